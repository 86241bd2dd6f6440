//! Registry of the tasks that run on this rank, for polling a statement's progress before it ends.
//!
//! datafusion-distributed sends metrics to the coordinator when a statement has ended. Until then they are in
//! the operators: every plan that arrives for a pollable statement is registered here by a weak reference,
//! and [`Tasks::metrics`] reads the counters of those still alive.
//!
//! A task sent by another rank carries its slice number. The coordinator passes its own tasks to itself
//! without it: those are reported without a slice, and [`crate::monitor::running_slices::fill`] finds the
//! slice by its operators.
//!
//! Memory bound: one weak reference per running task, and those of the last statements.

use crate::transport::metrics_codec;
use datafusion::common::Result;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::prelude::SessionConfig;
use datafusion_distributed::{
    DistributedExt, DistributedTaskContext, NetworkBoundaryExt, WorkerPlanRewriteEvent,
    WorkerPlanRewriteEventResponse,
};
use harrier_resources::statement_memory::{MemoryUse, StatementMemory};
use http::{HeaderMap, HeaderName, HeaderValue};
use parking_lot::Mutex;
use prost::Message;
use std::collections::HashMap;
use std::sync::{Arc, Weak};

/// The number under which a statement can be polled; absent: it cannot.
pub const RUN: HeaderName = HeaderName::from_static("x-harrier-run");

/// The slice of a task.
const SLICE: HeaderName = HeaderName::from_static("x-harrier-slice");

/// Adds the slice number to the headers of a task.
pub fn add_slice_header(headers: &mut HeaderMap, slice: usize) {
    headers.insert(SLICE, HeaderValue::from(slice));
}

fn number<T: std::str::FromStr>(headers: &HeaderMap, name: &HeaderName) -> Option<T> {
    headers.get(name)?.to_str().ok()?.parse().ok()
}

/// Cheap to clone.
#[derive(Clone, Default)]
pub struct Tasks {
    runs: Arc<Mutex<HashMap<u64, Vec<Task>>>>,
}

struct Task {
    slice: Option<usize>,
    place: usize,
    plan: Weak<dyn ExecutionPlan>,
    memory: Option<Arc<StatementMemory>>,
}

/// Current metrics of one rank's task of a slice.
#[derive(Clone, PartialEq, Message)]
pub struct RunningTaskMetrics {
    #[prost(uint64, optional, tag = "1")]
    pub slice: Option<u64>,
    /// The rank's place in the slice.
    #[prost(uint64, tag = "2")]
    pub place: u64,
    /// In pre-order.
    #[prost(message, repeated, tag = "3")]
    pub operators: Vec<OperatorMetrics>,
}

#[derive(Clone, PartialEq, Message)]
pub struct OperatorMetrics {
    #[prost(uint64, tag = "1")]
    pub depth: u64,
    #[prost(string, tag = "2")]
    pub name: String,
    /// The slice that feeds it, if it is the receiving end of a motion.
    #[prost(uint64, optional, tag = "3")]
    pub feeder: Option<u64>,
    #[prost(message, required, tag = "4")]
    pub metrics: metrics_codec::Set,
}

impl Tasks {
    /// Registers the plan of the session `config`, if its headers make it pollable. `memory`: of its
    /// statement.
    pub fn register(
        &self,
        headers: &HeaderMap,
        config: &mut SessionConfig,
        memory: Option<Arc<StatementMemory>>,
    ) {
        let Some(run) = number::<u64>(headers, &RUN) else {
            return;
        };
        let slice = number::<usize>(headers, &SLICE);
        let tasks = self.clone();
        config.set_distributed_worker_plan_rewrite_handler(
            move |event: WorkerPlanRewriteEvent<'_>| -> Result<WorkerPlanRewriteEventResponse> {
                let place = event.session_config.get_extension::<DistributedTaskContext>();
                let place = place.map_or(0, |context| context.task_index);
                let memory = memory.clone();
                tasks.add(run, Task { slice, place, plan: Arc::downgrade(&event.plan), memory });
                Ok(WorkerPlanRewriteEventResponse::new(event.plan))
            },
        );
    }

    fn add(&self, run: u64, task: Task) {
        let mut runs = self.runs.lock();
        runs.retain(|_, tasks| {
            tasks.retain(|task| task.plan.strong_count() > 0);
            !tasks.is_empty()
        });
        runs.entry(run).or_default().push(task);
    }

    /// The resource usage of a statement here, if this rank has a task of it.
    pub fn memory(&self, run: u64) -> Option<MemoryUse> {
        let runs = self.runs.lock();
        runs.get(&run)?.iter().find_map(|task| task.memory.as_ref()).map(|memory| memory.local())
    }

    /// Current metrics of a statement's tasks that this rank still has.
    pub fn metrics(&self, run: u64) -> Vec<RunningTaskMetrics> {
        let living: Vec<_> = {
            let runs = self.runs.lock();
            let tasks = runs.get(&run).map(Vec::as_slice).unwrap_or_default();
            tasks.iter().filter_map(|task| Some((task.slice, task.place, task.plan.upgrade()?))).collect()
        };
        living
            .into_iter()
            .map(|(slice, place, plan)| {
                let mut operators = Vec::new();
                collect_metrics(&plan, 0, &mut operators);
                RunningTaskMetrics { slice: slice.map(|slice| slice as u64), place: place as u64, operators }
            })
            .collect()
    }
}

fn collect_metrics(plan: &Arc<dyn ExecutionPlan>, depth: u64, operators: &mut Vec<OperatorMetrics>) {
    let feeder = plan.as_network_boundary().map(|boundary| boundary.input_stage().num() as u64);
    let metrics = plan.metrics().map(|metrics| metrics_codec::encode(&metrics)).unwrap_or_default();
    operators.push(OperatorMetrics { depth, name: plan.name().to_string(), feeder, metrics });
    if feeder.is_none() {
        plan.children().into_iter().for_each(|child| collect_metrics(child, depth + 1, operators));
    }
}
