//! Query planner of the gang: makes a one-rank plan, then distributes it over all ranks unless that would
//! change its result.
//!
//! A plan that reads a single bucket runs on the rank that owns it: see `direct_dispatch.rs`. Some others
//! must run entirely on the coordinator:
//! - recursive queries: the work table lives in one process;
//! - scalar subqueries, if planned as such by a front end: the values are set in the process that computes
//!   them (plans made on ranks join such subqueries);
//! - system tables (`information_schema`, `SHOW`): their rows are local to this process;
//! - waiting functions, such as `pg_advisory_lock`: they belong to the session;
//! - scans of compressed text: the compression is not part of a serialized plan;
//! - plans with a redistribution by a very deeply nested expression, which does not fit into the message that
//!   requests rows;
//! - plans that rely on the order of rows below a redistribution: rows of several ranks arrive interleaved,
//!   and datafusion-distributed does not merge them in order.
//!
//! In other plans an operator requires a single input partition, and has it without a gather because its
//! input has only one: a small file, a sort, a limit. Distributed, that one would become one per rank, and a
//! count over it one count per rank: [`gather_single`] inserts the gather.
//!
//! Sorts omit columns that a filter makes constant, and a motion does not propagate constants:
//! `window_sorts.rs` adds such columns back where a window function needs them.

use crate::distribution::bucket_routing::for_ranks;
use crate::distribution::direct_dispatch::{distribute_dispatch, with_dispatch, without_dispatch};
use crate::distribution::distribution_config::DistributionConfig;
use crate::distribution::logical_planner::physical_plan;
use crate::distribution::window_sorts::sort_by_keys;
use crate::formats::staged_files;
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
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::execution_plan::replace_children_if_necessary;
use datafusion::physical_plan::joins::{CrossJoinExec, HashJoinExec, NestedLoopJoinExec, PartitionMode};
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::sorts::sort_preserving_merge::SortPreservingMergeExec;
use datafusion::physical_plan::{Distribution, ExecutionPlan, ExecutionPlanProperties, Partitioning};
use datafusion_distributed::SessionStateBuilderExt;
use futures::FutureExt;
use futures::future::BoxFuture;
use std::sync::Arc;

/// Operators whose rows exist in one process only, or whose functions belong to the session.
const ONE_RANK_ONLY: [&str; 7] = [
    "RecursiveQueryExec",
    "ScalarSubqueryExec",
    "SharedRowsExec",
    "SharedScanExec",
    "StreamingTableExec",
    "WorkTableExec",
    "async_func",
];

/// The deepest nesting of a redistribution expression. Each level is up to three levels of a protobuf
/// message, whose decoder allows 100.
const KEY_LEVELS_MAX: usize = 25;

/// Installs the gang's planner in `builder`.
pub fn install(builder: SessionStateBuilder) -> SessionStateBuilder {
    let mut builder = builder.with_query_planner(Arc::new(OneRankPlanner)).with_distributed_planner();
    match builder.query_planner().take() {
        Some(distributed_planner) => {
            builder.with_query_planner(Arc::new(GangPlanner { distributed_planner }))
        }
        None => builder,
    }
}

tokio::task_local! {
    /// Passes the one-rank plan from [`GangPlanner`] through datafusion-distributed's planner to
    /// [`OneRankPlanner`].
    static ONE_RANK: Arc<dyn ExecutionPlan>;
}

#[derive(Debug)]
struct GangPlanner {
    distributed_planner: Arc<dyn QueryPlanner + Send + Sync>,
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
            if !is_distributable(&one_rank) {
                return Ok(one_rank);
            }
            let one_rank = with_staged_files(one_rank, session.config())?;
            let marked = with_dispatch(one_rank);
            if let Some(plan) = distribute_dispatch(&marked, session.config())? {
                return Ok(plan);
            }
            let one_rank = without_dispatch(marked);
            let one_rank = prepare_for_ranks(one_rank, ranks)?;
            ONE_RANK
                .scope(one_rank, self.distributed_planner.create_physical_plan(logical_plan, session))
                .await
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

/// Distributes a one-rank plan made elsewhere, in a session that plans for the gang. A single-bucket plan
/// wrapped there goes to the rank that owns the bucket.
pub async fn distribute(
    one_rank: Arc<dyn ExecutionPlan>,
    state: &SessionState,
) -> Result<Arc<dyn ExecutionPlan>> {
    let one_rank = with_staged_files(one_rank, state.config())?;
    if let Some(plan) = distribute_dispatch(&one_rank, state.config())? {
        return Ok(plan);
    }
    let one_rank = prepare_for_ranks(without_dispatch(one_rank), ranks(state.config()))?;
    // Its planner requests the plan and gets this one, whatever the statement.
    let statement = LogicalPlan::EmptyRelation(EmptyRelation {
        produce_one_row: false,
        schema: Arc::new(DFSchema::empty()),
    });
    let distributed_planner = SessionStateBuilder::new_from_existing(state.clone())
        .with_query_planner(Arc::new(OneRankPlanner))
        .with_distributed_planner()
        .build();
    ONE_RANK
        .scope(one_rank, distributed_planner.query_planner().create_physical_plan(&statement, state))
        .await
}

/// The number of ranks that a statement with these settings is planned for.
fn ranks(config: &SessionConfig) -> usize {
    config.get_extension::<DistributionConfig>().map_or(1, |distribution| distribution.members.len())
}

/// Has all ranks write the files of a COPY to a folder, where there are several.
fn with_staged_files(
    one_rank: Arc<dyn ExecutionPlan>,
    config: &SessionConfig,
) -> Result<Arc<dyn ExecutionPlan>> {
    match ranks(config) {
        0 | 1 => Ok(one_rank),
        _ => staged_files::on_all_ranks(one_rank, config.target_partitions(), is_single_of_many),
    }
}

/// Adds the gathers that a one-rank plan needs on `ranks`, and adapts its redistributions into buckets.
fn prepare_for_ranks(one_rank: Arc<dyn ExecutionPlan>, ranks: usize) -> Result<Arc<dyn ExecutionPlan>> {
    let one_rank = hide_input_orderings(for_ranks(one_rank, ranks)?)?;
    // The coordinator's slice runs once; a plan of several output partitions gets a gather on top of it.
    let once = one_rank.output_partitioning().partition_count() == 1;
    gather_single(one_rank, once)
}

/// Hides the input ordering of every redistribution.
///
/// A redistribution of one partition preserves and declares its input's order. Distributed, a redistribution
/// of several partitions may have one partition on each rank, while its rows arrive interleaved from all of
/// them: a sort above would be skipped by mistake.
fn hide_input_orderings(plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
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

/// Whether the distributed plan returns the same rows.
pub fn is_distributable(plan: &Arc<dyn ExecutionPlan>) -> bool {
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
    plan.children().into_iter().all(is_distributable)
}

/// The nesting depth of an expression; 1 for a leaf.
fn levels(expr: &Arc<dyn PhysicalExpr>) -> usize {
    1 + expr.children().into_iter().map(levels).max().unwrap_or(0)
}

/// Inserts a gather above every single output partition that an operator requires to be the only one. `once`:
/// `plan` is in a slice that runs on one rank.
///
/// datafusion-distributed adds motions at the hash redistributions, gathers and broadcasts of the one-rank
/// plan, and distributes the operators between them regardless of their input requirements.
fn gather_single(plan: Arc<dyn ExecutionPlan>, once: bool) -> Result<Arc<dyn ExecutionPlan>> {
    let required = plan.input_distribution_requirements().into_per_child();
    let mut children = Vec::with_capacity(required.len());
    for ((at, child), required) in plan.children().into_iter().enumerate().zip(required) {
        let broadcast = at == 0 && collects_left(&plan);
        let one = child.output_partitioning().partition_count() == 1;
        let once = once && one && !broadcast && !is_motion(&plan);
        let child = gather_single(Arc::clone(child), once)?;
        let needs_all = !matches!(required, Distribution::UnspecifiedDistribution);
        // The collected side of a join is broadcast as a whole, or else the join stays on one rank.
        children.push(match needs_all && !once && !broadcast && is_single_of_many(&child) {
            true => gather(child, None),
            false => child,
        });
    }
    let plan = sort_by_keys(replace_children_if_necessary(plan, children)?)?;
    // With a single output partition a limit may be anywhere, for example as the fetch of a filter.
    let limit = plan.fetch().filter(|_| !once && is_single_of_many(&plan));
    Ok(match limit {
        Some(limit) => gather(plan, Some(limit)),
        None => plan,
    })
}

/// Whether `plan` has one output partition on one rank, and one on every rank when distributed.
fn is_single_of_many(plan: &Arc<dyn ExecutionPlan>) -> bool {
    fn is_distributed(plan: &Arc<dyn ExecutionPlan>) -> bool {
        file_scan(plan).is_some() || !is_gather(plan) && plan.children().into_iter().any(is_distributed)
    }
    plan.output_partitioning().partition_count() == 1 && is_distributed(plan)
}

/// A gather that preserves an order by merging.
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

/// Whether `plan` is a join that collects its left side.
fn collects_left(plan: &Arc<dyn ExecutionPlan>) -> bool {
    let collects = |join: &HashJoinExec| *join.partition_mode() == PartitionMode::CollectLeft;
    plan.downcast_ref::<HashJoinExec>().is_some_and(collects)
        || plan.is::<NestedLoopJoinExec>()
        || plan.is::<CrossJoinExec>()
}

/// Hands the one-rank plan to datafusion-distributed's planner.
#[derive(Debug)]
struct OneRankPlanner;

// Methods are written out for the compiler's sake: docs/decisions/0025-boxed-futures-behind-traits.md
impl QueryPlanner for OneRankPlanner {
    fn create_physical_plan<'a: 'f, 'b: 'f, 'c: 'f, 'f>(
        &'a self,
        _: &'b LogicalPlan,
        _: &'c dyn Session,
    ) -> BoxFuture<'f, Result<Arc<dyn ExecutionPlan>>> {
        // Read when polled: only then is the plan set.
        async {
            match ONE_RANK.try_with(Arc::clone) {
                Ok(plan) => Ok(plan),
                Err(_) => internal_err!("a plan was to be spread before it was made"),
            }
        }
        .boxed()
    }
}
