//! Joins and groups of bucketed tables by their key, without moving rows.
//!
//! A plan redistributes both sides of a join by the hash of the join's keys. Where the files of both sides are in buckets of
//! such a key already, and in as many, the same buckets meet if each is one output partition: then the redistributions
//! are left out, and so are the motions that they would become on ranks, which get whole buckets
//! ([`crate::splits`]). The same goes for an aggregate by a key that has buckets.
//!
//! The buckets' hash is not the one that redistributes rows. So nothing may come to depend on both: a side that was left where it
//! is never meets one that was redistributed, and scans say of their output partitions only how many there are.

use datafusion::catalog::memory::DataSourceExec;
use datafusion::common::{JoinType, Result};
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::{FileGroup, FileScanConfigBuilder};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode};
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::execution_plan::replace_children_if_necessary;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::joins::{HashJoinExec, PartitionMode};
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::sorts::sort_preserving_merge::SortPreservingMergeExec;
use datafusion::physical_plan::union::UnionExec;
use datafusion::physical_plan::{ExecutionPlan, Partitioning};
use std::sync::Arc;

use crate::planning::file_scan;

/// The bucket that all rows of a data file are in. Said of a [`PartitionedFile`] in its extensions, for planning.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileBucket {
    /// The key, by its name in the file's table.
    pub column: String,
    /// How many buckets the table has.
    pub count: u32,
    /// From 0.
    pub number: u32,
}

/// The same plan with bucketed sides of joins and aggregates left where they are.
pub fn colocate(plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    without_lost_waits(place(plan, true)?, false)
}

/// Takes the runtime filter from joins whose output partitions may not all be asked for rows.
///
/// A join that collects its left side holds every output partition back until all of them have heard of that, to make one filter for its
/// right side. A partitioned join above, without an exchange between, does not ask for the rows of a partition whose left side
/// is empty, and DataFusion 55 does not count a collecting join's partition that nobody asked for: the others would wait for ever.
fn without_lost_waits(plan: Arc<dyn ExecutionPlan>, may_be_left_out: bool) -> Result<Arc<dyn ExecutionPlan>> {
    let is_partitioned = is_partitioned_join(&plan);
    let is_exchange = is_exchange(&plan);
    let children = plan.children().into_iter().enumerate().map(|(at, child)| {
        let may_be_left_out = !is_exchange && (may_be_left_out || is_partitioned && at == 1);
        without_lost_waits(Arc::clone(child), may_be_left_out)
    });
    let children = children.collect::<Result<Vec<_>>>()?;
    let plan = replace_children_if_necessary(plan, children)?;
    match plan.downcast_ref::<HashJoinExec>() {
        Some(join) if may_be_left_out && !is_partitioned => join.builder().reset_state().build_exec(),
        _ => Ok(plan),
    }
}

/// `free`: nothing above, up to the next exchange of rows, minds which rows are in which output partition of `plan`, nor how many there are.
fn place(plan: Arc<dyn ExecutionPlan>, free: bool) -> Result<Arc<dyn ExecutionPlan>> {
    if free
        && needs_keys_together(&plan)
        && let Some(bucketed) = bucketed(&plan)?
    {
        return Ok(bucketed.plan);
    }
    let children = plan.children().into_iter().enumerate().map(|(at, child)| {
        let free = is_exchange(&plan) || free && passes(&plan, at);
        place(Arc::clone(child), free)
    });
    let children = children.collect::<Result<Vec<_>>>()?;
    replace_children_if_necessary(plan, children)
}

/// Whether `plan` wants rows with equal keys in the same output partition.
fn needs_keys_together(plan: &Arc<dyn ExecutionPlan>) -> bool {
    is_partitioned_join(plan) || final_aggregate(plan).is_some()
}

fn is_partitioned_join(plan: &Arc<dyn ExecutionPlan>) -> bool {
    plan.downcast_ref::<HashJoinExec>()
        .is_some_and(|join| *join.partition_mode() == PartitionMode::Partitioned)
}

fn final_aggregate(plan: &Arc<dyn ExecutionPlan>) -> Option<&AggregateExec> {
    let whole = [AggregateMode::FinalPartitioned, AggregateMode::SinglePartitioned];
    plan.downcast_ref::<AggregateExec>().filter(|aggregate| whole.contains(aggregate.mode()))
}

fn is_exchange(plan: &Arc<dyn ExecutionPlan>) -> bool {
    plan.is::<RepartitionExec>()
        || plan.is::<CoalescePartitionsExec>()
        || plan.is::<SortPreservingMergeExec>()
}

/// Operators that work on each output partition by itself.
const EACH_BY_ITSELF: [&str; 4] =
    ["CoalesceBatchesExec", "CooperativeExec", "LiveRowsExec", "VisibleRowsExec"];

/// Whether child `at` of `plan` may have other output partitions if `plan` may.
fn passes(plan: &Arc<dyn ExecutionPlan>, at: usize) -> bool {
    if let Some(join) = plan.downcast_ref::<HashJoinExec>() {
        return *join.partition_mode() == PartitionMode::CollectLeft && at == 1;
    }
    if let Some(aggregate) = plan.downcast_ref::<AggregateExec>() {
        return *aggregate.mode() == AggregateMode::Partial;
    }
    plan.is::<FilterExec>()
        || plan.is::<ProjectionExec>()
        || plan.is::<UnionExec>()
        || keeps_partitions(plan)
        || EACH_BY_ITSELF.contains(&plan.name())
}

/// Whether `plan` is a sort of each output partition.
fn keeps_partitions(plan: &Arc<dyn ExecutionPlan>) -> bool {
    plan.downcast_ref::<SortExec>().is_some_and(SortExec::preserve_partitioning)
}

/// A plan whose output partitions are the buckets.
struct Bucketed {
    plan: Arc<dyn ExecutionPlan>,
    count: u32,
    /// Columns of its output that hold the key.
    keys: Vec<usize>,
}

impl Bucketed {
    fn has_key(&self, expression: &Arc<dyn PhysicalExpr>) -> bool {
        expression.downcast_ref::<Column>().is_some_and(|column| self.keys.contains(&column.index()))
    }
}

/// `plan` without the redistributions in it, if its rows are in buckets and all it needs of them is together there.
fn bucketed(plan: &Arc<dyn ExecutionPlan>) -> Result<Option<Bucketed>> {
    if file_scan(plan).is_some() {
        return bucketed_scan(plan);
    }
    if let Some(join) = plan.downcast_ref::<HashJoinExec>() {
        return bucketed_join(plan, join);
    }
    let [child] = plan.children()[..] else {
        return Ok(None);
    };
    let is_known = plan.is::<RepartitionExec>()
        || plan.is::<FilterExec>()
        || plan.is::<ProjectionExec>()
        || plan.is::<AggregateExec>()
        || keeps_partitions(plan)
        || EACH_BY_ITSELF.contains(&plan.name());
    if !is_known {
        return Ok(None);
    }
    let Some(inner) = bucketed(child)? else {
        return Ok(None);
    };
    if let Some(repartition) = plan.downcast_ref::<RepartitionExec>() {
        let is_left_out = match repartition.partitioning() {
            Partitioning::RoundRobinBatch(_) => true,
            // Rows that are equal in all keys are equal in this one.
            Partitioning::Hash(keys, _) => keys.iter().any(|key| inner.has_key(key)),
            _ => false,
        };
        return Ok(is_left_out.then_some(inner));
    }
    let keys = if let Some(projection) = plan.downcast_ref::<ProjectionExec>() {
        let expressions = projection.expr().iter().enumerate();
        expressions.filter(|(_, output)| inner.has_key(&output.expr)).map(|(at, _)| at).collect()
    } else if let Some(filter) = plan.downcast_ref::<FilterExec>() {
        match filter.projection() {
            Some(columns) => projected(&inner.keys, columns),
            None => inner.keys.clone(),
        }
    } else if let Some(aggregate) = plan.downcast_ref::<AggregateExec>() {
        let groups = aggregate.group_expr();
        let kept: Vec<usize> = match groups.has_grouping_set() {
            true => vec![],
            false => {
                let expressions = groups.expr().iter().enumerate();
                expressions
                    .filter(|(_, (expression, _))| inner.has_key(expression))
                    .map(|(at, _)| at)
                    .collect()
            }
        };
        let is_whole = final_aggregate(plan).is_some();
        if is_whole && kept.is_empty() || !is_whole && *aggregate.mode() != AggregateMode::Partial {
            return Ok(None);
        }
        kept
    } else {
        inner.keys.clone()
    };
    let plan = replace_children_if_necessary(Arc::clone(plan), vec![inner.plan])?;
    Ok(Some(Bucketed { plan, count: inner.count, keys }))
}

/// Where columns are after a projection.
fn projected(keys: &[usize], columns: &[usize]) -> Vec<usize> {
    let all = columns.iter().enumerate();
    all.filter(|(_, column)| keys.contains(column)).map(|(at, _)| at).collect()
}

fn bucketed_join(plan: &Arc<dyn ExecutionPlan>, join: &HashJoinExec) -> Result<Option<Bucketed>> {
    let collects = *join.partition_mode() == PartitionMode::CollectLeft;
    let Some(right) = bucketed(join.right())? else {
        return Ok(None);
    };
    let (left, left_keys) = match collects {
        // All of the left side meets every bucket.
        true => (place(Arc::clone(join.left()), false)?, vec![]),
        false => {
            let Some(left) = bucketed(join.left())? else {
                return Ok(None);
            };
            let meet = join.on().iter().any(|(one, other)| left.has_key(one) && right.has_key(other));
            if !meet || left.count != right.count {
                return Ok(None);
            }
            (left.plan, left.keys)
        }
    };
    let left_columns = left.schema().fields().len();
    let mut keys = match join.join_type() {
        JoinType::LeftSemi | JoinType::LeftAnti | JoinType::LeftMark => left_keys.clone(),
        JoinType::RightSemi | JoinType::RightAnti | JoinType::RightMark => right.keys.clone(),
        // A row without a match has NULL for the other side's key, wherever it is.
        JoinType::Left => left_keys.clone(),
        JoinType::Right => right.keys.iter().map(|key| key + left_columns).collect(),
        JoinType::Full => vec![],
        JoinType::Inner => {
            left_keys.iter().copied().chain(right.keys.iter().map(|key| key + left_columns)).collect()
        }
    };
    if let Some(columns) = &join.projection {
        keys = projected(&keys, columns);
    }
    let count = right.count;
    let plan = replace_children_if_necessary(Arc::clone(plan), vec![left, right.plan])?;
    Ok(Some(Bucketed { plan, count, keys }))
}

fn bucketed_scan(plan: &Arc<dyn ExecutionPlan>) -> Result<Option<Bucketed>> {
    let Some(scan) = file_scan(plan).filter(|scan| scan.limit.is_none() && scan.output_ordering.is_empty())
    else {
        return Ok(None);
    };
    let files = || scan.file_groups.iter().flat_map(|group| group.files());

    let Some(first) = files().next().and_then(|file| file.extension::<FileBucket>().cloned()) else {
        return Ok(None);
    };
    let mut groups: Vec<Vec<PartitionedFile>> = vec![vec![]; first.count as usize];
    for file in files() {
        match file.extension::<FileBucket>() {
            Some(bucket) if bucket.column == first.column && bucket.count == first.count => {
                groups[bucket.number as usize].push(file.clone());
            }
            _ => return Ok(None),
        }
    }
    let is_key = |expression: &Arc<dyn PhysicalExpr>| {
        expression.downcast_ref::<Column>().is_some_and(|column| column.name() == first.column)
    };
    let keys: Vec<usize> = match scan.file_source().projection() {
        Some(projection) => projection
            .iter()
            .enumerate()
            .filter(|(_, output)| is_key(&output.expr))
            .map(|(at, _)| at)
            .collect(),
        None => plan.schema().index_of(&first.column).into_iter().collect(),
    };
    if keys.is_empty() {
        return Ok(None);
    }
    let count = groups.len();
    let config = FileScanConfigBuilder::from(scan.clone())
        .with_file_groups(groups.into_iter().map(FileGroup::new).collect())
        .with_output_partitioning(Some(Partitioning::UnknownPartitioning(count)))
        .build();
    Ok(Some(Bucketed { plan: DataSourceExec::from_data_source(config), count: first.count, keys }))
}
