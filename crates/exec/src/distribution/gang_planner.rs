//! The gang's planner: plans for one rank, then spreads the plan over all ranks unless that would change its
//! answer.
//!
//! A plan that reads one bucket only runs on the one rank that has it: see `dispatch.rs`. Some others must
//! stay on the coordinator as a whole:
//! - recursive queries: the work table lives in one process;
//! - subqueries that are values, where a front end has planned them as such: the values are set in the
//!   process that computes them (plans made on ranks join such subqueries);
//! - system tables (`information_schema`, `SHOW`): their rows are this process's own;
//! - functions that wait, such as `pg_advisory_lock`: they are the session's;
//! - scans of compressed text: that it is compressed is not in the form in which plans travel;
//! - plans with a redistribution by an expression that is nested very deeply, which does not fit into the
//!   message that asks for rows;
//! - plans that rely on the order of rows below a redistribution: rows of several ranks arrive interleaved,
//!   and datafusion-distributed does not merge them in order.
//!
//! In others an operator needs all rows in one output partition, and has them there without a gather because
//! what it reads has one output partition only: a small file, a sort, a limit. Spread over ranks that one
//! would become one for every rank, and a count over it one count for every rank: [`gather_single`] puts the
//! gather in.
//!
//! A column that a filter makes constant is left out of sorts, and a motion does not tell what reads it that
//! the column is constant: [`sort_by_keys`] puts it back where a window function needs it.

use crate::distribution::bucket_routing::for_ranks;
use crate::distribution::direct_dispatch::{dispatched, marked, unmarked};
use crate::distribution::logical_planner::physical_plan;
use crate::distribution::task_assignment::Spread;
use crate::operators::file_scan::file_scan;
use crate::operators::unordered::UnorderedExec;
use datafusion::catalog::Session;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DFSchema, Result, internal_err};
use datafusion::datasource::file_format::file_compression_type::FileCompressionType;
use datafusion::execution::config::SessionConfig;
use datafusion::execution::context::QueryPlanner;
use datafusion::execution::{SessionState, SessionStateBuilder};
use datafusion::logical_expr::{EmptyRelation, LogicalPlan};
use datafusion::physical_expr::{LexOrdering, PhysicalExpr, PhysicalSortExpr};
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::execution_plan::replace_children_if_necessary;
use datafusion::physical_plan::joins::{CrossJoinExec, HashJoinExec, NestedLoopJoinExec, PartitionMode};
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::sorts::sort_preserving_merge::SortPreservingMergeExec;
use datafusion::physical_plan::windows::{BoundedWindowAggExec, WindowAggExec};
use datafusion::physical_plan::{
    Distribution, ExecutionPlan, ExecutionPlanProperties, InputOrderMode, Partitioning,
};
use datafusion_distributed::SessionStateBuilderExt;
use futures::FutureExt;
use futures::future::BoxFuture;
use std::sync::Arc;

/// Operators whose rows exist in one process only, or whose functions are of the session.
const ONE_RANK_ONLY: [&str; 5] =
    ["RecursiveQueryExec", "ScalarSubqueryExec", "WorkTableExec", "StreamingTableExec", "async_func"];

/// Of an expression that rows are redistributed by. Each is up to three levels of a message, which a decoder
/// takes 100 of.
const KEY_LEVELS_MAX: usize = 25;

/// Makes `builder` plan for the gang.
pub fn install(builder: SessionStateBuilder) -> SessionStateBuilder {
    let mut builder = builder.with_query_planner(Arc::new(Handed)).with_distributed_planner();
    match builder.query_planner().take() {
        Some(spreading) => builder.with_query_planner(Arc::new(GangPlanner { spreading })),
        None => builder,
    }
}

tokio::task_local! {
    /// The one-rank plan on its way from [`GangPlanner`] through datafusion-distributed's planner to
    /// [`Handed`].
    static ONE_RANK: Arc<dyn ExecutionPlan>;
}

#[derive(Debug)]
struct GangPlanner {
    spreading: Arc<dyn QueryPlanner + Send + Sync>,
}

impl GangPlanner {
    fn boxed_create_physical_plan<'a>(
        &'a self,
        logical_plan: &'a LogicalPlan,
        session: &'a dyn Session,
    ) -> BoxFuture<'a, Result<Arc<dyn ExecutionPlan>>> {
        async move {
            let ranks = ranks(session.config());
            let one_rank = physical_plan(logical_plan, session, ranks).await?;
            if !may_spread(&one_rank) {
                return Ok(one_rank);
            }
            let marked = marked(one_rank);
            if let Some(plan) = dispatched(&marked, session.config())? {
                return Ok(plan);
            }
            let one_rank = unmarked(marked);
            let one_rank = ready(one_rank, ranks)?;
            ONE_RANK.scope(one_rank, self.spreading.create_physical_plan(logical_plan, session)).await
        }
        .boxed()
    }
}

// Methods are written out for the compiler's sake: docs/decisions/0025-boxed-futures-behind-traits.md
impl QueryPlanner for GangPlanner {
    fn create_physical_plan<'a: 'f, 'b: 'f, 'c: 'f, 'f>(
        &'a self,
        logical_plan: &'b LogicalPlan,
        session: &'c dyn Session,
    ) -> BoxFuture<'f, Result<Arc<dyn ExecutionPlan>>> {
        self.boxed_create_physical_plan(logical_plan, session)
    }
}

/// Spreads a one-rank plan that was made elsewhere, in a session that plans for the gang. One that was marked
/// there as reading one bucket only goes to the rank that has it.
pub async fn spread(
    one_rank: Arc<dyn ExecutionPlan>,
    state: &SessionState,
) -> Result<Arc<dyn ExecutionPlan>> {
    if let Some(plan) = dispatched(&one_rank, state.config())? {
        return Ok(plan);
    }
    let one_rank = ready(unmarked(one_rank), ranks(state.config()))?;
    // Its planner asks for the plan and is given this one, whatever the statement.
    let statement = LogicalPlan::EmptyRelation(EmptyRelation {
        produce_one_row: false,
        schema: Arc::new(DFSchema::empty()),
    });
    let spreading = SessionStateBuilder::new_from_existing(state.clone())
        .with_query_planner(Arc::new(Handed))
        .with_distributed_planner()
        .build();
    ONE_RANK.scope(one_rank, spreading.query_planner().create_physical_plan(&statement, state)).await
}

/// How many ranks a statement with these settings is planned for.
fn ranks(config: &SessionConfig) -> usize {
    config.get_extension::<Spread>().map_or(1, |spread| spread.members.len())
}

/// A one-rank plan with the gathers that it needs on so many ranks, and its redistributions into buckets for
/// them.
fn ready(one_rank: Arc<dyn ExecutionPlan>, ranks: usize) -> Result<Arc<dyn ExecutionPlan>> {
    let one_rank = unordered_redistributions(for_ranks(one_rank, ranks)?)?;
    // The coordinator's slice runs once; a plan of several output partitions gets a gather on top of it.
    let once = one_rank.output_partitioning().partition_count() == 1;
    gather_single(one_rank, once)
}

/// Hides from every redistribution that its input is ordered.
///
/// A redistribution of one partition keeps the order of its input, and says so. Spread over ranks, one of
/// several partitions may be one of one partition on each, while its rows arrive from all of them
/// interleaved: a sort above it took them for sorted and did nothing.
fn unordered_redistributions(plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    let changed = plan.transform_up(|plan| {
        let Some(repartition) = plan.downcast_ref::<RepartitionExec>() else {
            return Ok(Transformed::no(plan));
        };
        let input = repartition.input();
        if !is_motion(&plan) || input.output_ordering().is_none() {
            return Ok(Transformed::no(plan));
        }
        let input = Arc::new(UnorderedExec::new(Arc::clone(input)));
        Ok(Transformed::yes(replace_children_if_necessary(plan, vec![input])?))
    })?;
    Ok(changed.data)
}

/// Whether the plan gives the same rows when it is spread over ranks.
pub fn may_spread(plan: &Arc<dyn ExecutionPlan>) -> bool {
    if ONE_RANK_ONLY.contains(&plan.name()) {
        return false;
    }
    if file_scan(plan).is_some_and(|scan| scan.file_compression_type != FileCompressionType::UNCOMPRESSED) {
        return false;
    }
    if let Some(repartition) = plan.downcast_ref::<RepartitionExec>()
        && let Partitioning::Hash(keys, _) = repartition.partitioning()
        && (plan.output_ordering().is_some() || keys.iter().any(|key| levels(key) > KEY_LEVELS_MAX))
    {
        return false;
    }
    plan.children().into_iter().all(may_spread)
}

/// How deep an expression is nested; 1: it has no parts.
fn levels(expr: &Arc<dyn PhysicalExpr>) -> usize {
    1 + expr.children().into_iter().map(levels).max().unwrap_or(0)
}

/// Puts a gather above every single output partition that an operator needs to be the only one. `once`:
/// `plan` is in a slice that runs on one rank.
///
/// datafusion-distributed adds motions at the hash redistributions, gathers and broadcasts of the one-rank
/// plan, and spreads what is between them, whatever the operators there require of their inputs.
fn gather_single(plan: Arc<dyn ExecutionPlan>, once: bool) -> Result<Arc<dyn ExecutionPlan>> {
    let required = plan.input_distribution_requirements().into_per_child();
    let mut children = Vec::with_capacity(required.len());
    for ((at, child), required) in plan.children().into_iter().enumerate().zip(required) {
        let broadcast = at == 0 && collects_left(&plan);
        let one = child.output_partitioning().partition_count() == 1;
        let once = once && one && !broadcast && !is_motion(&plan);
        let child = gather_single(Arc::clone(child), once)?;
        let needs_all = !matches!(required, Distribution::UnspecifiedDistribution);
        // The collected side of a join is broadcast as a whole, or else the join is kept on one rank.
        children.push(match needs_all && !once && !broadcast && is_single_of_many(&child) {
            true => gather(child, None),
            false => child,
        });
    }
    let plan = sort_by_keys(replace_children_if_necessary(plan, children)?)?;
    // Where there is one output partition a limit can be anywhere, as a filter that stops after some rows.
    let limit = plan.fetch().filter(|_| !once && is_single_of_many(&plan));
    Ok(match limit {
        Some(limit) => gather(plan, Some(limit)),
        None => plan,
    })
}

/// Sorts the input of a window function by those keys of `PARTITION BY` too that need no sorting for being
/// constant, or equal to others. A rank that plans the window function again above a motion refuses an input
/// not ordered by all keys. The rows stay in the order that they have.
pub(crate) fn sort_by_keys(plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    let windows = match (plan.downcast_ref::<WindowAggExec>(), plan.downcast_ref::<BoundedWindowAggExec>()) {
        (Some(window), _) => window.window_expr(),
        (_, Some(window)) if window.input_order_mode == InputOrderMode::Sorted => window.window_expr(),
        _ => return Ok(plan),
    };
    let keys = windows.first().map(|window| window.partition_by().to_vec()).unwrap_or_default();
    let [input] = plan.children()[..] else {
        return Ok(plan);
    };
    let sort = input.downcast_ref::<SortExec>();
    let sorted: Vec<PhysicalSortExpr> = match sort {
        Some(sort) => sort.expr().iter().cloned().collect(),
        None => input.output_ordering().into_iter().flatten().cloned().collect(),
    };
    let is_sorted = |key: &Arc<dyn PhysicalExpr>| sorted.iter().any(|sorted| sorted.expr.eq(key));
    if keys.iter().all(is_sorted) {
        return Ok(plan);
    }
    // The keys in the order and the directions in which the rows have them already.
    let (known, _) = input.equivalence_properties().find_longest_permutation(&keys)?;
    let first = match known.len() == keys.len() {
        true => known,
        false => keys.into_iter().filter(|key| !is_sorted(key)).map(PhysicalSortExpr::new_default).collect(),
    };
    let Some(ordering) = LexOrdering::new(first.into_iter().chain(sorted.iter().cloned())) else {
        return Ok(plan);
    };
    let sort = match sort {
        Some(sort) => SortExec::new(ordering, Arc::clone(sort.input()))
            .with_fetch(sort.fetch())
            .with_preserve_partitioning(sort.preserve_partitioning()),
        None => SortExec::new(ordering, Arc::clone(input)).with_preserve_partitioning(true),
    };
    replace_children_if_necessary(plan, vec![Arc::new(sort)])
}

/// Whether `plan` has one output partition on one rank, and one on every rank when it is spread.
fn is_single_of_many(plan: &Arc<dyn ExecutionPlan>) -> bool {
    fn is_spread(plan: &Arc<dyn ExecutionPlan>) -> bool {
        file_scan(plan).is_some() || !is_gather(plan) && plan.children().into_iter().any(is_spread)
    }
    plan.output_partitioning().partition_count() == 1 && is_spread(plan)
}

/// A gather from several ranks keeps an order by merging.
fn gather(plan: Arc<dyn ExecutionPlan>, limit: Option<usize>) -> Arc<dyn ExecutionPlan> {
    match plan.output_ordering().cloned() {
        Some(ordering) => Arc::new(SortPreservingMergeExec::new(ordering, plan).with_fetch(limit)),
        None => Arc::new(CoalescePartitionsExec::new(plan).with_fetch(limit)),
    }
}

fn is_gather(plan: &Arc<dyn ExecutionPlan>) -> bool {
    plan.is::<CoalescePartitionsExec>() || plan.is::<SortPreservingMergeExec>()
}

fn is_motion(plan: &Arc<dyn ExecutionPlan>) -> bool {
    let redistributes =
        |repartition: &RepartitionExec| matches!(repartition.partitioning(), Partitioning::Hash(..));
    is_gather(plan) || plan.downcast_ref::<RepartitionExec>().is_some_and(redistributes)
}

/// Whether `plan` is a join that holds the whole of its left side.
fn collects_left(plan: &Arc<dyn ExecutionPlan>) -> bool {
    let collects = |join: &HashJoinExec| *join.partition_mode() == PartitionMode::CollectLeft;
    plan.downcast_ref::<HashJoinExec>().is_some_and(collects)
        || plan.is::<NestedLoopJoinExec>()
        || plan.is::<CrossJoinExec>()
}

/// Where datafusion-distributed's planner asks for the plan it shall spread.
#[derive(Debug)]
struct Handed;

// Methods are written out for the compiler's sake: docs/decisions/0025-boxed-futures-behind-traits.md
impl QueryPlanner for Handed {
    fn create_physical_plan<'a: 'f, 'b: 'f, 'c: 'f, 'f>(
        &'a self,
        _: &'b LogicalPlan,
        _: &'c dyn Session,
    ) -> BoxFuture<'f, Result<Arc<dyn ExecutionPlan>>> {
        // It looks when it is polled: only then is the plan there.
        async {
            match ONE_RANK.try_with(Arc::clone) {
                Ok(plan) => Ok(plan),
                Err(_) => internal_err!("a plan was to be spread before it was made"),
            }
        }
        .boxed()
    }
}
