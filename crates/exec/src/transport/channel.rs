//! The sending side of a plan: datafusion-distributed's transport traits over the interconnect.
//!
//! A rank's address is `rank://<number>`. A plan is sent to another rank as a call that stays open until the
//! query ends and returns metrics; a motion's rows are one stream per output partition, opened at once and
//! not at the first poll, because the producing side drops plans that nobody requests.

use crate::transport::messages::{self, Operation, Request, ToCoordinator};
use crate::transport::plan_codec;
use crate::transport::propagated_settings::RowCodec;
use crate::transport::remote_error::from_stream;
use crate::transport::stream_metrics::StreamMeter;
use datafusion::arrow::array::RecordBatch;
use datafusion::common::{Result, exec_err};
use datafusion::execution::TaskContext;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryPool, MemoryReservation};
use datafusion::physical_plan::metrics::{ExecutionPlanMetricsSet, MetricBuilder};
use datafusion_distributed::grpc::DefaultChannelResolver;
use datafusion_distributed::{
    BytesMetricExt, ChannelResolver, CoordinatorToWorkerMsg, ExecuteTaskRequest, GetWorkerInfoRequest,
    GetWorkerInfoResponse, MaybeEncoded, SetPlanRequest, WorkerChannel, WorkerResolver,
    WorkerToCoordinatorMsg,
};
use futures::future::{BoxFuture, ready};
use futures::stream::BoxStream;
use futures::{FutureExt, Stream, StreamExt};
use harrier_interconnect::limits::MOTION_WINDOW_BYTES;
use harrier_interconnect::{BatchReceiver, Budget, Interconnect, MessageStream, ReadOptions};
use harrier_resources::statement_memory::StatementMemory;
use http::HeaderMap;
use prost::Message;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use url::Url;

/// The address of a rank in plans.
pub fn rank_url(rank: usize) -> Url {
    Url::parse(&format!("rank://{rank}")).expect("a number is a valid host")
}

fn rank_of(url: &Url) -> Result<usize> {
    match url.host_str().and_then(|host| host.parse().ok()) {
        Some(rank) if url.scheme() == "rank" => Ok(rank),
        _ => exec_err!("{url} is not the address of a rank"),
    }
}

/// Every rank of the gang, in order.
pub struct Ranks(pub Vec<Url>);

impl WorkerResolver for Ranks {
    fn get_urls(&self) -> Result<Vec<Url>> {
        Ok(self.0.clone())
    }
}

/// Channels to ranks by address scheme: `rank://` over the interconnect, `http://` over gRPC.
pub struct RankChannels {
    pub interconnect: Interconnect,
    pub grpc: DefaultChannelResolver,
}

impl RankChannels {
    fn channel(&self, url: &Url) -> Result<Box<dyn WorkerChannel>> {
        Ok(Box::new(RankChannel { interconnect: self.interconnect.clone(), to: rank_of(url)? }))
    }
}

// Methods are written out for the compiler's sake: docs/decisions/0025-boxed-futures-behind-traits.md
impl ChannelResolver for RankChannels {
    fn get_worker_client_for_url<'a: 'f, 'b: 'f, 'f>(
        &'a self,
        url: &'b Url,
    ) -> BoxFuture<'f, Result<Box<dyn WorkerChannel>>> {
        match url.scheme() {
            "http" => async move {
                let channel = self.grpc.get_worker_client_for_url(url).await?;
                Ok(Box::new(GrpcChannel(channel)) as _)
            }
            .boxed(),
            _ => ready(self.channel(url)).boxed(),
        }
    }
}

/// datafusion-distributed's own channel, with plans encoded as in [`RankChannel`].
struct GrpcChannel(Box<dyn WorkerChannel>);

// Methods are written out for the compiler's sake: docs/decisions/0025-boxed-futures-behind-traits.md
impl WorkerChannel for GrpcChannel {
    fn coordinator_channel<'a: 'f, 'b: 'f, 'f>(
        &'a mut self,
        headers: HeaderMap,
        mut set_plan_request: SetPlanRequest,
        to_worker: BoxStream<'static, CoordinatorToWorkerMsg>,
        metrics: ExecutionPlanMetricsSet,
        context: &'b Arc<TaskContext>,
    ) -> BoxFuture<'f, Result<BoxStream<'static, Result<WorkerToCoordinatorMsg>>>> {
        match plan_codec::for_worker(set_plan_request.plan) {
            Ok(plan) => set_plan_request.plan = MaybeEncoded::Encoded(plan),
            Err(error) => return ready(Err(error)).boxed(),
        }
        self.0.coordinator_channel(headers, set_plan_request, to_worker, metrics, context)
    }

    fn execute_task<'a: 'f, 'b: 'f, 'f>(
        &'a mut self,
        headers: HeaderMap,
        request: ExecuteTaskRequest,
        metrics: ExecutionPlanMetricsSet,
        context: &'b Arc<TaskContext>,
    ) -> BoxFuture<'f, Result<Vec<BoxStream<'static, Result<RecordBatch>>>>> {
        self.0.execute_task(headers, request, metrics, context)
    }

    fn get_worker_info<'a: 'f, 'f>(
        &'a mut self,
        request: GetWorkerInfoRequest,
    ) -> BoxFuture<'f, Result<GetWorkerInfoResponse>> {
        self.0.get_worker_info(request)
    }
}

struct RankChannel {
    interconnect: Interconnect,
    to: usize,
}

impl RankChannel {
    /// Sends a plan.
    fn send_plan(
        &self,
        headers: &HeaderMap,
        set_plan_request: SetPlanRequest,
        mut to_worker: BoxStream<'static, CoordinatorToWorkerMsg>,
        metrics: &ExecutionPlanMetricsSet,
        context: &TaskContext,
    ) -> Result<BoxStream<'static, Result<WorkerToCoordinatorMsg>>> {
        let plan = messages::encode_set_plan(headers, set_plan_request, plan_codec::for_worker)?;
        MetricBuilder::new(metrics).bytes_counter("plan_bytes_sent").add_bytes(plan.plan.len());
        let request = Request { operation: Some(Operation::SetPlan(plan)) }.encode_to_vec();
        let (messages, answers) = self.interconnect.call(self.to, &request);
        // Ends with the query, or with the responses when the query is dropped.
        let forward = tokio::spawn(async move {
            while let Some(message) = to_worker.next().await {
                messages.send(&messages::encode_to_worker(message).encode_to_vec());
            }
        });
        let memory = StatementMemory::of(context.memory_pool());
        Ok(Responses { answers, from: self.to, memory, forward: AbortOnDrop(forward) }.boxed())
    }

    /// Opens the streams of a slice on one rank.
    fn open(
        &self,
        request: ExecuteTaskRequest,
        metrics: &ExecutionPlanMetricsSet,
        context: &Arc<TaskContext>,
    ) -> Result<Vec<BoxStream<'static, Result<RecordBatch>>>> {
        let streams = request.target_partition_end - request.target_partition_start;
        let request =
            Request { operation: Some(Operation::Execute(messages::encode_execute(request, context)?)) };
        let budget = Arc::new(PoolBudget::new("motion", context.memory_pool()));
        let receivers = self.interconnect.open(
            self.to,
            &request.encode_to_vec(),
            streams,
            ReadOptions {
                window_bytes: MOTION_WINDOW_BYTES,
                codec: RowCodec::of(context.session_config()),
                budget: Some(budget),
            },
        );
        let meter = StreamMeter::new(metrics, self.to);
        Ok(receivers
            .into_iter()
            .map(|receiver| {
                let mut meter = meter.clone();
                BatchReceiver::new(receiver, move |arrival| meter.record(arrival))
                    .map(|batch| batch.map_err(from_stream))
                    .boxed()
            })
            .collect())
    }
}

// Methods are written out for the compiler's sake: docs/decisions/0025-boxed-futures-behind-traits.md
impl WorkerChannel for RankChannel {
    fn coordinator_channel<'a: 'f, 'b: 'f, 'f>(
        &'a mut self,
        headers: HeaderMap,
        set_plan_request: SetPlanRequest,
        to_worker: BoxStream<'static, CoordinatorToWorkerMsg>,
        metrics: ExecutionPlanMetricsSet,
        context: &'b Arc<TaskContext>,
    ) -> BoxFuture<'f, Result<BoxStream<'static, Result<WorkerToCoordinatorMsg>>>> {
        ready(self.send_plan(&headers, set_plan_request, to_worker, &metrics, context)).boxed()
    }

    fn execute_task<'a: 'f, 'b: 'f, 'f>(
        &'a mut self,
        _headers: HeaderMap,
        request: ExecuteTaskRequest,
        metrics: ExecutionPlanMetricsSet,
        context: &'b Arc<TaskContext>,
    ) -> BoxFuture<'f, Result<Vec<BoxStream<'static, Result<RecordBatch>>>>> {
        ready(self.open(request, &metrics, context)).boxed()
    }

    /// The gang checked when it formed that all ranks run this build.
    fn get_worker_info<'a: 'f, 'f>(
        &'a mut self,
        _request: GetWorkerInfoRequest,
    ) -> BoxFuture<'f, Result<GetWorkerInfoResponse>> {
        ready(Ok(GetWorkerInfoResponse { version: crate::VERSION.to_string() })).boxed()
    }
}

struct AbortOnDrop(tokio::task::JoinHandle<()>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

struct Responses {
    answers: MessageStream,
    /// The responding rank.
    from: usize,
    memory: Option<Arc<StatementMemory>>,
    forward: AbortOnDrop,
}

impl Stream for Responses {
    type Item = Result<WorkerToCoordinatorMsg>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let _ = &self.forward;
        Pin::new(&mut self.answers).poll_next(cx).map(|answer| {
            answer.map(|answer| {
                let message: ToCoordinator = messages::decode(&answer.map_err(from_stream)?)?;
                if let (Some(memory), Some(used)) = (&self.memory, message.memory) {
                    memory.record(self.from, used);
                }
                messages::decode_to_coordinator(message)
            })
        })
    }
}

/// Charges unread blocks to the statement's memory. Credits bound them, so reservations are infallible:
/// rejecting blocks that have already arrived would not help.
pub(crate) struct PoolBudget(MemoryReservation);

impl PoolBudget {
    pub(crate) fn new(name: &str, pool: &Arc<dyn MemoryPool>) -> Self {
        Self(MemoryConsumer::new(name).register(pool))
    }
}

impl Budget for PoolBudget {
    fn grow(&self, bytes: usize) {
        self.0.grow(bytes);
    }

    fn shrink(&self, bytes: usize) {
        self.0.shrink(bytes);
    }
}
