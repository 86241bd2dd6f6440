//! How a one-rank plan is spread: which scans go to all ranks, which splits each gets, which rank runs which task.

use datafusion::catalog::memory::DataSourceExec;
use datafusion::common::Result;
use datafusion::datasource::physical_plan::{FileGroup, FileScanConfig};
use datafusion::execution::config::SessionConfig;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};
use datafusion_distributed::{
    DesiredTaskCountEvent, DesiredTaskCountEventResponse, DistributedExt, DistributedLeafExec,
    RouteTasksEvent, RouteTasksEventResponse, ScaleUpLeafNodeEvent, ScaleUpLeafNodeEventResponse,
    get_distributed_worker_resolver,
};
use std::sync::Arc;

/// What a statement may say about its own distribution.
#[derive(Clone, Copy, Debug)]
pub struct Spread {
    /// A scan of fewer bytes than this stays on one rank.
    pub bytes_min: usize,
}

/// Registers the three decisions. They take precedence over datafusion-distributed's own.
pub fn register(config: &mut SessionConfig) {
    config.set_distributed_desired_task_count_handler(desired_task_count);
    config.set_distributed_scale_up_leaf_node_handler(splits);
    config.set_distributed_route_tasks_handler(route);
}

fn file_scan(plan: &Arc<dyn ExecutionPlan>) -> Option<&FileScanConfig> {
    plan.downcast_ref::<DataSourceExec>()?.data_source().downcast_ref::<FileScanConfig>()
}

/// A file scan that is worth it runs on all ranks; the planner caps the number at the gang's size.
fn desired_task_count(event: DesiredTaskCountEvent) -> Option<Result<DesiredTaskCountEventResponse>> {
    let scan = file_scan(event.plan)?;
    // A limit below which there is one partition ends the scan itself: on several ranks each would read as many rows.
    if scan.limit.is_some() {
        return Some(Ok(DesiredTaskCountEventResponse::maximum(1)));
    }
    let spread = event.session_config.get_extension::<Spread>()?;
    let bytes: u64 =
        scan.file_groups.iter().flat_map(|group| group.files()).map(|file| file.effective_size()).sum();
    let tasks = if bytes as usize >= spread.bytes_min { usize::MAX } else { 1 };
    Some(Ok(DesiredTaskCountEventResponse::desired(tasks)))
}

/// Deals the scan's files to the tasks: cut into byte ranges where the format allows it, else whole.
///
/// Every task gets the same number of file groups, some of them empty when there are fewer files than groups. A scan
/// whose groups carry a declared partitioning (rows with equal keys are in one group) keeps its groups whole.
fn splits(event: ScaleUpLeafNodeEvent) -> Option<Result<ScaleUpLeafNodeEventResponse>> {
    let scan = file_scan(event.plan)?;
    let groups_per_task = event.plan.output_partitioning().partition_count().max(1);
    let groups = if scan.output_partitioning.is_some() {
        scan.file_groups.clone()
    } else {
        let ordering = scan.output_ordering.first().cloned();
        let ordered = ordering.is_some();
        let cut = scan.file_source().repartitioned(groups_per_task * event.task_count, 0, ordering, scan);
        match cut {
            Ok(Some(cut)) => cut.file_groups,
            Ok(None) if ordered => scan.file_groups.clone(),
            Ok(None) => deal(scan, groups_per_task * event.task_count),
            Err(error) => return Some(Err(error)),
        }
    };
    let per_task = groups.len().div_ceil(event.task_count).max(groups_per_task);
    let mut scans = Vec::with_capacity(event.task_count);
    for task in 0..event.task_count {
        let mut own: Vec<FileGroup> = groups.iter().skip(task).step_by(event.task_count).cloned().collect();
        own.resize_with(per_task, || FileGroup::new(vec![]));
        let mut scan = scan.clone();
        scan.file_groups = own;
        // Declared for the whole scan; no single task has all of its groups.
        scan.output_partitioning = None;
        scans.push(DataSourceExec::from_data_source(scan) as Arc<dyn ExecutionPlan>);
    }
    let leaf = DistributedLeafExec::try_new(Arc::clone(event.plan), scans);
    Some(leaf.map(|leaf| ScaleUpLeafNodeEventResponse::new(Arc::new(leaf))))
}

/// Whole files, the largest first, each to the group that has the fewest bytes so far.
fn deal(scan: &FileScanConfig, groups: usize) -> Vec<FileGroup> {
    let mut files: Vec<_> = scan.file_groups.iter().flat_map(|group| group.files()).cloned().collect();
    files.sort_by_key(|file| std::cmp::Reverse(file.effective_size()));
    let mut dealt = vec![(0, vec![]); groups];
    for file in files {
        let least = dealt.iter_mut().min_by_key(|(bytes, _)| *bytes).expect("at least one group");
        least.0 += file.effective_size();
        least.1.push(file);
    }
    dealt.into_iter().map(|(_, files)| FileGroup::new(files)).collect()
}

/// Task `i` runs on rank `i`: the same plan runs on the same ranks every time. A slice of one task stays with
/// datafusion-distributed's own choice, the coordinator.
fn route(event: RouteTasksEvent) -> Option<Result<RouteTasksEventResponse>> {
    if event.task_count == 1 {
        return None;
    }
    let urls =
        get_distributed_worker_resolver(event.task_ctx.session_config()).and_then(|ranks| ranks.get_urls());
    Some(urls.map(|urls| {
        RouteTasksEventResponse::new(urls.iter().cycle().take(event.task_count).cloned().collect())
    }))
}
