//! Distribution of a one-rank plan: which scans run on all ranks, the splits of each rank, and the rank of
//! each task.

use crate::distribution::direct_dispatch::DispatchExec;
use crate::distribution::distribution_config::DistributionConfig;
use crate::distribution::splits;
use crate::operators::file_scan::file_scan;
use datafusion::catalog::memory::DataSourceExec;
use datafusion::common::Result;
use datafusion::execution::config::SessionConfig;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties, Partitioning};
use datafusion_distributed::{
    DesiredTaskCountEvent, DesiredTaskCountEventResponse, DistributedExt, DistributedLeafExec,
    RouteTasksEvent, RouteTasksEventResponse, ScaleUpLeafNodeEvent, ScaleUpLeafNodeEventResponse,
    get_distributed_worker_resolver,
};
use std::sync::Arc;

/// Registers the three decisions. They take precedence over datafusion-distributed's own.
pub fn register(config: &mut SessionConfig) {
    config.set_distributed_desired_task_count_handler(desired_task_count);
    config.set_distributed_scale_up_leaf_node_handler(splits);
    config.set_distributed_route_tasks_handler(route);
}

/// A large enough file scan runs on all ranks; the planner caps the number at the gang's size.
fn desired_task_count(event: DesiredTaskCountEvent) -> Option<Result<DesiredTaskCountEventResponse>> {
    let scan = file_scan(event.plan)?;
    // A limit over a single partition ends the scan itself: on several ranks each would read as many rows.
    if scan.limit.is_some() {
        return Some(Ok(DesiredTaskCountEventResponse::maximum(1)));
    }
    let distribution = event.session_config.get_extension::<DistributionConfig>()?;
    let bytes: u64 =
        scan.file_groups.iter().flat_map(|group| group.files()).map(|file| file.effective_size()).sum();
    let tasks = if bytes as usize >= distribution.bytes_min { usize::MAX } else { 1 };
    Some(Ok(DesiredTaskCountEventResponse::desired(tasks)))
}

/// Gives every task its part of the scan.
fn splits(event: ScaleUpLeafNodeEvent) -> Option<Result<ScaleUpLeafNodeEventResponse>> {
    let scan = file_scan(event.plan)?;
    let distribution = event.session_config.get_extension::<DistributionConfig>()?;
    let groups_per_task = event.plan.output_partitioning().partition_count().max(1);
    let dealt = match scan.output_partitioning {
        Some(_) => splits::assign_buckets(&scan.file_groups, event.task_count, distribution.members.len()),
        None => splits::assign(scan, groups_per_task, event.task_count, &distribution.footers),
    };
    let dealt = match dealt {
        Ok(dealt) => dealt,
        Err(error) => return Some(Err(error)),
    };
    let scans = dealt.into_iter().map(|own| {
        let mut scan = scan.clone();
        // Declared for the whole scan, of which no single task has all groups. The declaration keeps a task's
        // groups apart: without it, an idle output partition takes files of another.
        scan.output_partitioning =
            scan.output_partitioning.map(|_| Partitioning::UnknownPartitioning(own.len()));
        scan.file_groups = own;
        DataSourceExec::from_data_source(scan) as Arc<dyn ExecutionPlan>
    });
    let leaf = DistributedLeafExec::try_new(Arc::clone(event.plan), scans);
    Some(leaf.map(|leaf| ScaleUpLeafNodeEventResponse::new(Arc::new(leaf))))
}

/// Routes task `i` to rank `i`, so that the same plan runs on the same ranks every time. A slice of one task
/// goes to the rank that owns its bucket; without a bucket it stays with datafusion-distributed's own choice,
/// the coordinator.
fn route(event: RouteTasksEvent) -> Option<Result<RouteTasksEventResponse>> {
    let owner = event.plan.downcast_ref::<DispatchExec>().and_then(DispatchExec::owner);
    if event.task_count == 1 && owner.is_none() {
        return None;
    }
    let first = owner.map_or(0, |owner| owner.place);
    let urls =
        get_distributed_worker_resolver(event.task_ctx.session_config()).and_then(|ranks| ranks.get_urls());
    Some(urls.map(|urls| {
        let urls = urls.iter().cycle().skip(first).take(event.task_count);
        RouteTasksEventResponse::new(urls.cloned().collect())
    }))
}
