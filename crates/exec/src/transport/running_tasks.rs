//! The parts of plans that this rank runs now, so that a statement can be looked at before it has ended.
//!
//! datafusion-distributed sends metrics to the coordinator when a statement has ended. Until then they are
//! where the operators are: every plan that arrives for a statement that may be looked at is remembered here,
//! by a reference that does not keep it alive, and [`Tasks::told`] reads the counters of what is still there.
//!
//! A part that comes from another rank says which slice it is. The coordinator hands its own parts to itself
//! without saying so: those are told without a slice, and [`crate::monitor::running_slices::fill`] finds the
//! slice by its operators.
//!
//! Memory bound: one weak reference for each part that runs, and those of the last statements.

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

/// The number under which a statement may be looked at; absent: nobody will.
pub const RUN: HeaderName = HeaderName::from_static("x-harrier-run");

/// The slice that a part belongs to.
const SLICE: HeaderName = HeaderName::from_static("x-harrier-slice");

/// Says in the headers of a part which slice it is.
pub fn mark(headers: &mut HeaderMap, slice: usize) {
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

/// What one rank's part of one slice has measured.
#[derive(Clone, PartialEq, Message)]
pub struct TaskTold {
    #[prost(uint64, optional, tag = "1")]
    pub slice: Option<u64>,
    /// Of the rank in the slice.
    #[prost(uint64, tag = "2")]
    pub place: u64,
    /// In pre-order.
    #[prost(message, repeated, tag = "3")]
    pub operators: Vec<OperatorTold>,
}

#[derive(Clone, PartialEq, Message)]
pub struct OperatorTold {
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
    /// Remembers the plan that `config` is the session of, if its headers say that it may be looked at.
    /// `memory`: of its statement.
    pub fn watch(
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

    /// What a statement takes here, if this rank has a part of it.
    pub fn memory(&self, run: u64) -> Option<MemoryUse> {
        let runs = self.runs.lock();
        runs.get(&run)?.iter().find_map(|task| task.memory.as_ref()).map(|memory| memory.local())
    }

    /// What the parts of a statement that this rank still has say now.
    pub fn told(&self, run: u64) -> Vec<TaskTold> {
        let living: Vec<_> = {
            let runs = self.runs.lock();
            let tasks = runs.get(&run).map(Vec::as_slice).unwrap_or_default();
            tasks.iter().filter_map(|task| Some((task.slice, task.place, task.plan.upgrade()?))).collect()
        };
        living
            .into_iter()
            .map(|(slice, place, plan)| {
                let mut operators = Vec::new();
                tell(&plan, 0, &mut operators);
                TaskTold { slice: slice.map(|slice| slice as u64), place: place as u64, operators }
            })
            .collect()
    }
}

fn tell(plan: &Arc<dyn ExecutionPlan>, depth: u64, operators: &mut Vec<OperatorTold>) {
    let feeder = plan.as_network_boundary().map(|boundary| boundary.input_stage().num() as u64);
    let metrics = plan.metrics().map(|metrics| metrics_codec::encode(&metrics)).unwrap_or_default();
    operators.push(OperatorTold { depth, name: plan.name().to_string(), feeder, metrics });
    if feeder.is_none() {
        plan.children().into_iter().for_each(|child| tell(child, depth + 1, operators));
    }
}
