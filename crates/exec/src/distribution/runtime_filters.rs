//! Placement of [`RuntimeFilterExec`]: the runtime (dynamic) filters of joins and sorts, applied to rows
//! above the scans that they have reached.
//!
//! ```text
//! HashJoinExec A, builds a filter               HashJoinExec A
//!   …                                             …
//!   HashJoinExec B, builds a filter               HashJoinExec B
//!     …                                             …
//!     FilterExec                              ─►    RuntimeFilterExec: of A
//!       scan: row groups by A and B                   FilterExec
//!                                                       scan: row groups by A and B
//! ```
//!
//! A filter is applied above the operators that only remove rows of the scan, whose conditions are cheaper.
//! Above deleted rows it has to be: these are found by their numbers in the file. The filter of a join right
//! above is left out, as the join itself tests the same rows next; so is that of a join whose build side has
//! all rows of its tables, which every foreign key passes.
//!
//! Only filters that compare columns are applied: an expression may fail for rows that a condition between
//! scan and join removes.

use std::collections::HashSet;
use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{Column, DynamicFilterPhysicalExpr};
use datafusion::physical_expr::utils::split_conjunction;
use datafusion::physical_plan::coop::CooperativeExec;
use datafusion::physical_plan::execution_plan::replace_children_if_necessary;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::joins::HashJoinExec;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::{ExecutionPlan, Partitioning};

use crate::data_files::{LiveRowsExec, VisibleRowsExec};
use crate::operators::file_scan::file_scan;
use crate::operators::runtime_filter::RuntimeFilterExec;

/// Whether plans apply runtime filters to rows. A session extension; without it they do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RuntimeFilters(pub bool);

/// Applies the runtime filters of `plan` to the rows of its scans.
pub fn apply_to_rows(plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    let mut producers = HashSet::new();
    plan.apply(|plan| {
        let may_remove = plan.downcast_ref::<HashJoinExec>().is_none_or(|join| is_reduced(join.left()));
        if may_remove {
            let produced = plan.dynamic_expressions_produced();
            producers.extend(produced.iter().filter_map(|filter| filter.expression_id()));
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    if producers.is_empty() {
        return Ok(plan);
    }
    Ok(place(plan, &producers)?.apply())
}

/// Whether something removes rows of the tables that a build side is made of. The keys of whole tables, which
/// foreign keys refer to, remove nothing.
fn is_reduced(plan: &Arc<dyn ExecutionPlan>) -> bool {
    if let Some(scan) = file_scan(plan) {
        let predicate = scan.file_source.filter();
        let is_static = |condition: &&Arc<dyn PhysicalExpr>| !condition.is::<DynamicFilterPhysicalExpr>();
        return scan.limit.is_some()
            || predicate.is_some_and(|predicate| split_conjunction(&predicate).iter().any(is_static));
    }
    let children = plan.children();
    plan.is::<FilterExec>()
        || plan.fetch().is_some()
        || children.is_empty()
        || children.into_iter().any(is_reduced)
}

/// A plan, and filters over its output columns that are not applied yet.
struct Placed {
    plan: Arc<dyn ExecutionPlan>,
    pending: Vec<Arc<dyn PhysicalExpr>>,
}

impl Placed {
    fn apply(self) -> Arc<dyn ExecutionPlan> {
        match self.pending.is_empty() {
            true => self.plan,
            false => Arc::new(RuntimeFilterExec::new(self.plan, self.pending)),
        }
    }

    /// Below a join or sort, which tests the rows against its own filter itself.
    fn without(mut self, own: &[Arc<dyn PhysicalExpr>]) -> Self {
        let ids: Vec<_> = own.iter().map(|filter| filter.expression_id()).collect();
        self.pending.retain(|filter| !ids.contains(&filter.expression_id()));
        self
    }
}

fn place(plan: Arc<dyn ExecutionPlan>, producers: &HashSet<u64>) -> Result<Placed> {
    if file_scan(&plan).is_some() {
        let pending = scan_filters(&plan, producers)?;
        return Ok(Placed { plan, pending });
    }
    if let Some(columns) = output_columns(&plan)
        && let [input] = plan.children()[..]
    {
        let Placed { plan: input, pending } = place(Arc::clone(input), producers)?;
        let (mut above, mut below) = (vec![], vec![]);
        for filter in pending {
            match over_columns(&filter, &columns)? {
                Some(filter) => above.push(filter),
                // Below deleted rows nothing may be removed.
                None if plan.is::<LiveRowsExec>() => {}
                None => below.push(filter),
            }
        }
        let input = Placed { plan: input, pending: below }.apply();
        return Ok(Placed { plan: replace_children_if_necessary(plan, vec![input])?, pending: above });
    }
    let own = plan.dynamic_expressions_produced();
    let children = plan.children().into_iter();
    let children = children.map(|child| Ok(place(Arc::clone(child), producers)?.without(&own).apply()));
    let children = children.collect::<Result<Vec<_>>>()?;
    Ok(Placed { plan: replace_children_if_necessary(plan, children)?, pending: vec![] })
}

/// The runtime filters of a scan, over its output columns.
fn scan_filters(
    scan: &Arc<dyn ExecutionPlan>,
    producers: &HashSet<u64>,
) -> Result<Vec<Arc<dyn PhysicalExpr>>> {
    let source = file_scan(scan).map(|files| &files.file_source);
    let Some((source, predicate)) = source.and_then(|source| Some((source, source.filter()?))) else {
        return Ok(vec![]);
    };
    let output = |at: usize| match source.projection() {
        None => Some(at),
        Some(projection) => projection.iter().position(|projected| {
            projected.expr.downcast_ref::<Column>().is_some_and(|column| column.index() == at)
        }),
    };
    let is_live = |filter: &&Arc<dyn PhysicalExpr>| {
        filter.is::<DynamicFilterPhysicalExpr>()
            && filter.expression_id().is_some_and(|id| producers.contains(&id))
    };
    let live = split_conjunction(&predicate).into_iter().filter(is_live);
    let over_output = live.map(|filter| over_columns(filter, output)).collect::<Result<Vec<_>>>()?;
    Ok(over_output.into_iter().flatten().collect())
}

/// The output column of an input column, by index.
type ColumnMap = Box<dyn Fn(usize) -> Option<usize>>;

/// For operators that only remove rows or columns: where the columns of their input are.
fn output_columns(plan: &Arc<dyn ExecutionPlan>) -> Option<ColumnMap> {
    if let Some(filter) = plan.downcast_ref::<FilterExec>() {
        if filter.fetch().is_some() {
            return None;
        }
        let kept = filter.projection().as_ref().map(|kept| kept.to_vec());
        return Some(Box::new(move |at| match &kept {
            Some(kept) => kept.iter().position(|column| *column == at),
            None => Some(at),
        }));
    }
    if let Some(projection) = plan.downcast_ref::<ProjectionExec>() {
        let source = |expr: &Arc<dyn PhysicalExpr>| Some(expr.downcast_ref::<Column>()?.index());
        let sources: Vec<usize> =
            projection.expr().iter().map(|projected| source(&projected.expr)).collect::<Option<_>>()?;
        return Some(Box::new(move |at| sources.iter().position(|source| *source == at)));
    }
    if let Some(live) = plan.downcast_ref::<LiveRowsExec>() {
        let (from, to) = (live.children().first()?.schema(), plan.schema());
        return Some(Box::new(move |at| to.index_of(from.fields().get(at)?.name()).ok()));
    }
    let hands_round = |repartition: &RepartitionExec| {
        matches!(repartition.partitioning(), Partitioning::RoundRobinBatch(_))
    };
    let passes = plan.is::<CooperativeExec>()
        || plan.is::<VisibleRowsExec>()
        || plan.downcast_ref::<RepartitionExec>().is_some_and(hands_round);
    passes.then(|| Box::new(Some) as ColumnMap)
}

/// `filter` over the columns of another schema; `None`: it has an expression, or a column is not there.
fn over_columns(
    filter: &Arc<dyn PhysicalExpr>,
    target: impl Fn(usize) -> Option<usize>,
) -> Result<Option<Arc<dyn PhysicalExpr>>> {
    let column = |key: &Arc<dyn PhysicalExpr>| {
        let column = key.downcast_ref::<Column>()?;
        Some(Arc::new(Column::new(column.name(), target(column.index())?)) as Arc<dyn PhysicalExpr>)
    };
    let keys: Option<Vec<_>> = filter.children().into_iter().map(column).collect();
    keys.map(|keys| Arc::clone(filter).with_new_children(keys)).transpose()
}

#[cfg(test)]
mod tests {
    use datafusion::execution::SessionStateBuilder;
    use datafusion::parquet::arrow::ArrowWriter;
    use datafusion::physical_plan::displayable;
    use datafusion::prelude::{ParquetReadOptions, SessionConfig, SessionContext};
    use std::fs::File;
    use tempfile::TempDir;

    use super::*;

    /// A session with the tables `large` and `middle` of 10 000 and 1000 rows, and `small` of 10.
    async fn session() -> Result<(SessionContext, TempDir)> {
        let folder = TempDir::new()?;
        let config = SessionConfig::new().with_target_partitions(2);
        let state = SessionStateBuilder::new().with_default_features().with_config(config).build();
        let session = SessionContext::new_with_state(state);
        for (name, rows) in [("large", 10_000), ("middle", 1000), ("small", 10)] {
            let sql = format!(
                "SELECT value AS k, value % 10 AS m, value % 7 AS v FROM generate_series(0, {}) AS s(value)",
                rows - 1
            );
            let batches = session.sql(&sql).await?.collect().await?;
            let path = folder.path().join(format!("{name}.parquet"));
            let mut writer = ArrowWriter::try_new(File::create(&path)?, batches[0].schema(), None)?;
            batches.iter().try_for_each(|batch| writer.write(batch))?;
            writer.close()?;
            let path = path.to_string_lossy();
            session.register_parquet(name, path.as_ref(), ParquetReadOptions::default()).await?;
        }
        Ok((session, folder))
    }

    /// The filters that a statement applies to rows, and its rows.
    async fn run(session: &SessionContext, sql: &str) -> Result<(usize, String)> {
        let plan = apply_to_rows(session.sql(sql).await?.create_physical_plan().await?)?;
        let shown = displayable(plan.as_ref()).indent(false).to_string();
        let batches = datafusion::physical_plan::collect(plan, session.task_ctx()).await?;
        let rows = datafusion::arrow::util::pretty::pretty_format_batches(&batches)?.to_string();
        Ok((shown.matches("RuntimeFilterExec").count(), rows))
    }

    #[tokio::test]
    async fn runtime_filters_are_pushed_below_aggregates() -> Result<()> {
        let (session, _folder) = session().await?;
        let sql = "SELECT count(*), sum(n) FROM small JOIN (SELECT k, count(*) AS n FROM large GROUP BY k) AS l \
                   ON small.k = l.k WHERE small.v = 3";
        let (filters, rows) = run(&session, sql).await?;
        assert_eq!(filters, 1);
        assert_eq!(rows, run_without(&session, sql).await?);
        Ok(())
    }

    #[tokio::test]
    async fn joins_directly_above_a_scan_need_no_runtime_filter() -> Result<()> {
        let (session, _folder) = session().await?;
        let sql = "SELECT count(*) FROM small JOIN large ON small.k = large.k WHERE small.v = 3";
        let (filters, rows) = run(&session, sql).await?;
        assert_eq!(filters, 0);
        assert_eq!(rows, run_without(&session, sql).await?);
        Ok(())
    }

    #[tokio::test]
    async fn unfiltered_tables_yield_no_runtime_filter() -> Result<()> {
        let (session, _folder) = session().await?;
        let whole = "SELECT count(*) FROM small JOIN (SELECT k, count(*) AS n FROM large GROUP BY k) AS l \
                     ON small.k = l.k";
        assert_eq!(run(&session, whole).await?.0, 0);
        Ok(())
    }

    async fn run_without(session: &SessionContext, sql: &str) -> Result<String> {
        let batches = session.sql(sql).await?.collect().await?;
        Ok(datafusion::arrow::util::pretty::pretty_format_batches(&batches)?.to_string())
    }
}
