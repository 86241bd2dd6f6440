//! The receiving side of a plan: serves the calls and opens of other ranks.
//!
//! Cancellation: when the opener of a stream goes away, the part of the plan behind it is dropped at its next
//! await. When the call that sent a plan ends, because the statement has ended or its coordinator has
//! canceled it or is lost, the cancellation flag stops computations of the plan
//! (`resources/src/cancellation.rs`): the call is watched outside of the computing threads. Errors: an error
//! or a panic in an operator ends the streams that it feeds, with its SQLSTATE, and nothing else.

use crate::transport::broadcast::{Broadcasts, PartitionRequest};
use crate::transport::channel::PoolBudget;
use crate::transport::clock_offset;
use crate::transport::grpc::GrpcServer;
use crate::transport::messages::{
    self, ClockReport, GrpcAddress, Operation, RankReport, Request, TaskMetricsList,
};
use crate::transport::remote_error::to_failure;
use crate::transport::running_tasks::{self, Tasks};
use crate::transport::stream_metrics::RankCounts;
use crate::transport::task_reaper::Janitor;
use datafusion::common::{DataFusionError, Result, exec_datafusion_err, internal_datafusion_err};
use datafusion::execution::SendableRecordBatchStream;
use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion_distributed::{Worker, WorkerToCoordinatorMsg};
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt};
use harrier_error::SqlState;
use harrier_interconnect::{
    BatchSender, Budget, Closed, Failure, Incoming, Interconnect, MessageReceiver, SendOutcome, Service,
    StreamSender,
};
use harrier_resources::cancellation::{self, CancelFlag, Reason};
use harrier_resources::spill_disks::Disks;
use harrier_resources::statement_limits::{Scope, StatementEnvironments};
use harrier_resources::statement_memory::StatementMemory;
use http::HeaderMap;
use prost::Message;
use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::runtime::Handle;

pub struct RankService {
    pub worker: Worker,
    pub interconnect: Interconnect,
    pub grpc: Arc<GrpcServer>,
    pub runtime_env: Arc<RuntimeEnv>,
    pub disks: Option<Disks>,
    pub janitor: Janitor,
    pub tasks: Tasks,
    pub limited: StatementEnvironments,
    pub broadcasts: Broadcasts,
    pub runtime: Handle,
}

impl Service for RankService {
    fn open(&self, incoming: Incoming) {
        let worker = self.worker.clone();
        let interconnect = self.interconnect.clone();
        let grpc = Arc::clone(&self.grpc);
        let runtime_env = Arc::clone(&self.runtime_env);
        let disks = self.disks.clone();
        let janitor = self.janitor.clone();
        let (tasks, limited) = (self.tasks.clone(), self.limited.clone());
        let broadcasts = self.broadcasts.clone();
        self.runtime.spawn(async move {
            let Incoming { request, senders, messages, .. } = incoming;
            let asked = messages::decode::<Request>(&request).and_then(|request| {
                request.operation.ok_or_else(|| internal_datafusion_err!("a rank asked for nothing"))
            });
            match asked {
                Ok(Operation::Execute(execute)) => serve_execute(worker, broadcasts, execute, senders).await,
                Ok(Operation::SetPlan(plan)) => {
                    let environment = move |headers: &HeaderMap| {
                        let scope = Scope::read(headers)?;
                        limited.of(&scope, &runtime_env, disks.as_ref()).ok()
                    };
                    serve_plan(worker, plan, environment, messages, senders).await;
                    janitor.call();
                }
                Ok(Operation::Report(_)) => {
                    janitor.call();
                    // This call is itself an open stream.
                    let report = report(&interconnect, &runtime_env, disks.as_ref(), 1).encode_to_vec();
                    respond(senders, |sender| send_response(sender, report).boxed()).await;
                }
                Ok(Operation::TaskMetrics(request)) => {
                    let memory = tasks.memory(request.run);
                    let response =
                        TaskMetricsList { tasks: tasks.metrics(request.run), memory }.encode_to_vec();
                    respond(senders, |sender| send_response(sender, response).boxed()).await;
                }
                Ok(Operation::Clock(_)) => {
                    let response = ClockReport { now_ns: clock_offset::now_ns() }.encode_to_vec();
                    respond(senders, |sender| send_response(sender, response).boxed()).await;
                }
                Ok(Operation::Grpc(_)) => {
                    let address = async move |sender: &mut StreamSender| {
                        let url = grpc.start(&worker).await?.to_string();
                        send_response(sender, GrpcAddress { url }.encode_to_vec()).await
                    };
                    respond(senders, |sender| Box::pin(async move { address(sender).await })).await;
                }
                Err(error) => fail_all(senders, &to_failure(&error)),
            }
        });
    }
}

/// Counters and held resources of this rank: streams besides `own_streams`, and memory of `runtime_env`'s
/// pool.
pub fn report(
    interconnect: &Interconnect,
    runtime_env: &RuntimeEnv,
    disks: Option<&Disks>,
    own_streams: u64,
) -> RankReport {
    let counters = interconnect.counters();
    RankReport {
        frames_sent: counters.frames_sent,
        bytes_sent: counters.bytes_sent,
        mpi_cpu_ns: counters.thread_cpu_ns,
        process_cpu_ns: crate::process_cpu_ns(),
        disks: disks.map(Disks::status).unwrap_or_default(),
        resident_bytes: crate::resident_bytes(),
        counts: RankCounts::of(interconnect),
        ..held_resources(interconnect, runtime_env, own_streams)
    }
}

/// The part of [`report`] that must be zero when nothing runs. Makes no system calls.
pub fn held_resources(interconnect: &Interconnect, runtime_env: &RuntimeEnv, own_streams: u64) -> RankReport {
    let ledger = interconnect.ledger();
    RankReport {
        streams_open: (ledger.streams_in + ledger.streams_out).saturating_sub(own_streams),
        reserved_bytes: runtime_env.memory_pool.reserved() as u64,
        frames_pending: ledger.frames_queued + ledger.requests,
        blocks_lent: ledger.blocks_lent,
        ..RankReport::default()
    }
}

fn fail_all(senders: Vec<StreamSender>, failure: &Failure) {
    senders.into_iter().for_each(|sender| sender.fail(failure));
}

/// Runs a call's work and ends its one sender by the outcome, including a panic.
async fn respond(
    mut senders: Vec<StreamSender>,
    work: impl for<'a> FnOnce(&'a mut StreamSender) -> BoxFuture<'a, Result<()>>,
) {
    let Some(mut sender) = senders.pop() else { return };
    let outcome = AssertUnwindSafe(work(&mut sender)).catch_unwind().await;
    match outcome {
        Ok(Ok(())) => sender.finish(),
        Ok(Err(error)) => sender.fail(&to_failure(&error)),
        Err(panic) => sender.fail(&panic_failure(panic.as_ref())),
    }
}

/// Sends a call's single response. A caller that has gone needs none.
async fn send_response(sender: &mut StreamSender, answer: Vec<u8>) -> Result<()> {
    let _ = sender.send_message(&answer).await;
    Ok(())
}

/// Runs a plan and responds with its metrics when its statement has ended. `environment`: the statement's, by
/// the plan's headers.
async fn serve_plan(
    worker: Worker,
    plan: messages::SetPlan,
    environment: impl FnOnce(&HeaderMap) -> Option<Arc<RuntimeEnv>> + Send,
    messages: MessageReceiver,
    senders: Vec<StreamSender>,
) {
    let canceled = CancelFlag::default();
    let taken = canceled.scope(accept_plan(worker, plan, environment, messages));
    let taken = AssertUnwindSafe(taken).catch_unwind().await;
    let told = cancellation::dedicated_runtime().spawn(async move {
        let _ended = canceled.cancel_on_drop();
        respond(senders, |sender| {
            async move {
                match taken {
                    Ok(Ok(taken)) => send_metrics(taken, &canceled, sender).await,
                    Ok(Err(error)) => Err(error),
                    Err(panic) => std::panic::resume_unwind(panic),
                }
            }
            .boxed()
        })
        .await;
    });
    // It neither panics nor is it aborted.
    let _ = told.await;
}

/// A plan accepted by this rank, and its future metrics.
struct AcceptedPlan {
    /// Held until the end, so that all parts of the statement share it, also those that arrive after others
    /// have ended.
    environment: Option<Arc<RuntimeEnv>>,
    answers: BoxStream<'static, Result<WorkerToCoordinatorMsg>>,
}

async fn accept_plan(
    worker: Worker,
    plan: messages::SetPlan,
    environment: impl FnOnce(&HeaderMap) -> Option<Arc<RuntimeEnv>> + Send,
    messages: MessageReceiver,
) -> Result<AcceptedPlan> {
    let (mut headers, request) = messages::decode_set_plan(plan)?;
    running_tasks::add_slice_header(&mut headers, request.task_key.stage_id);
    let environment = environment(&headers);
    let messages = messages.map(|message| messages::decode_to_worker(messages::decode(&message)?)).boxed();
    let answers = worker.coordinator_channel(headers, request, messages).await?;
    Ok(AcceptedPlan { environment, answers })
}

/// Sets the flag as soon as the caller has gone.
async fn send_metrics(taken: AcceptedPlan, canceled: &CancelFlag, sender: &mut StreamSender) -> Result<()> {
    let AcceptedPlan { environment, mut answers } = taken;
    let memory = environment.as_ref().and_then(|environment| StatementMemory::of(&environment.memory_pool));
    loop {
        let next = std::future::poll_fn(|cx| {
            if !canceled.is_set() && sender.poll_closed(cx).is_ready() {
                canceled.set(Reason::Request);
            }
            answers.poll_next_unpin(cx)
        });
        let Some(message) = next.await else { return Ok(()) };
        let used = memory.as_ref().map(|memory| memory.local());
        let bytes = messages::encode_to_coordinator(message?, used).encode_to_vec();
        if sender.send_message(&bytes).await.is_err() {
            return Ok(());
        }
    }
}

async fn serve_execute(
    worker: Worker,
    broadcasts: Broadcasts,
    execute: messages::Execute,
    mut senders: Vec<StreamSender>,
) {
    let openers = senders.len();
    let started = async {
        let request = messages::decode_execute(execute)?;
        let asked = PartitionRequest::of(&request);
        let (streams, context) = worker.execute_task(request).await?;
        if streams.len() != openers {
            return Err(internal_datafusion_err!("{} streams for {openers} openers", streams.len()));
        }
        let budget: Arc<dyn Budget> = Arc::new(PoolBudget::new("motion out", context.memory_pool()));
        let alike = broadcasts.join(&asked, &budget);
        Ok::<_, DataFusionError>((streams, alike, budget))
    };
    // An open that arrives after its statement was canceled would wait ten seconds for its plan.
    let outcome = tokio::select! {
        biased;
        outcome = AssertUnwindSafe(started).catch_unwind() => Some(outcome),
        () = all_closed(&mut senders) => None,
    };
    let Some(outcome) = outcome else {
        senders.into_iter().for_each(StreamSender::finish);
        return;
    };
    match outcome {
        Ok(Ok((streams, alike, budget))) => {
            let mut alike = alike.into_iter();
            for (stream, sender) in streams.into_iter().zip(senders) {
                let sender = BatchSender::with_budget(sender, Arc::clone(&budget));
                let sender = match alike.next() {
                    Some(broadcast) => sender.with_broadcast(broadcast),
                    None => sender,
                };
                tokio::spawn(pump(stream, sender));
            }
        }
        Ok(Err(error)) => fail_all(senders, &to_failure(&error)),
        Err(panic) => fail_all(senders, &panic_failure(panic.as_ref())),
    }
}

/// Waits until the readers of all these streams have gone.
async fn all_closed(senders: &mut [StreamSender]) {
    let is_closed = |cx: &mut Context<'_>, sender: &mut StreamSender| sender.poll_closed(cx).is_ready();
    std::future::poll_fn(|cx| {
        if senders.iter_mut().all(|sender| is_closed(cx, sender)) { Poll::Ready(()) } else { Poll::Pending }
    })
    .await
}

/// Moves one output partition into its stream. The operator is polled only while the stream has credit.
async fn pump(stream: SendableRecordBatchStream, mut sender: BatchSender) {
    // Drops the operator before the stream ends: readers may rely on that.
    match AssertUnwindSafe(produce(stream, &mut sender)).catch_unwind().await {
        Ok(Ok(())) => sender.finish(),
        Ok(Err(error)) => sender.fail(&to_failure(&error)),
        Err(panic) => sender.fail(&panic_failure(panic.as_ref())),
    }
}

async fn produce(mut stream: SendableRecordBatchStream, sender: &mut BatchSender) -> Result<()> {
    enum Next<T> {
        Batch(Option<T>),
        Closed(Closed),
    }
    loop {
        if sender.credit().await.is_err() {
            return Ok(());
        }
        let next = std::future::poll_fn(|cx| {
            if let Poll::Ready(closed) = sender.poll_closed(cx) {
                return Poll::Ready(Next::Closed(closed));
            }
            let next = stream.poll_next_unpin(cx).map(Next::Batch);
            if next.is_pending() {
                sender.flush();
            }
            next
        })
        .await;
        match next {
            Next::Closed(Closed::Stopped | Closed::Lost(_)) | Next::Batch(None) => return Ok(()),
            Next::Batch(Some(batch)) => match sender.send(batch?).await {
                SendOutcome::Sent => {}
                SendOutcome::Closed(_) => return Ok(()),
                SendOutcome::Unfit(error) => return Err(exec_datafusion_err!("{error}")),
            },
        }
    }
}

fn panic_failure(panic: &(dyn Any + Send)) -> Failure {
    let what = panic
        .downcast_ref::<&str>()
        .map(|what| what.to_string())
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "unknown cause".to_string());
    match harrier_sqlstate::of_panic(&what) {
        bug if bug.sqlstate == SqlState::INTERNAL_ERROR => {
            Failure::new(bug.sqlstate, format!("query code panicked: {what}"))
        }
        known => Failure::new(known.sqlstate, known.message),
    }
}
