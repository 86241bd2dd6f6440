//! Benchmark baseline: batches between ranks over datafusion-distributed's gRPC, without a statement.
//!
//! It uses the real transport: its worker serves a plan whose leaves are the offered batches, with the same
//! encoder, multiplexer, client and demultiplexer as in a statement, and its own message sizes, windows and
//! compression.
//!
//! Order of calls: [`GrpcBatches::start`] on every rank; for each transfer [`GrpcBatches::offer`] on the
//! sending ranks, then [`GrpcBatches::open`] on the reading ones. An offer ends when its [`Offer`] is
//! dropped.

use crate::transport::grpc::GrpcServer;
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::{Result, exec_datafusion_err, internal_datafusion_err};
use datafusion::execution::{SendableRecordBatchStream, SessionStateBuilder, TaskContext};
use datafusion::physical_plan::metrics::ExecutionPlanMetricsSet;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::streaming::{PartitionStream, StreamingTableExec};
use datafusion::prelude::SessionConfig;
use datafusion_distributed::grpc::DefaultChannelResolver;
use datafusion_distributed::{
    ChannelResolver, DistributedConfig, DistributedExt, ExecuteTaskRequest, GetWorkerInfoRequest,
    MaybeEncoded, ProducerHead, SetPlanRequest, TaskKey, Worker, WorkerQueryContext, WorkerToCoordinatorMsg,
};
use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt};
use http::HeaderMap;
use std::sync::{Arc, Mutex};
use tokio::sync::oneshot;
use url::Url;
use uuid::Uuid;

/// datafusion-distributed's name of the setting, and so Harrier's.
const COMPRESSION: &str = "distributed.compression";

/// One rank's server, and its connections to the others. The server lives until the process ends.
pub struct GrpcBatches {
    worker: Worker,
    url: Url,
    channels: DefaultChannelResolver,
    context: Arc<TaskContext>,
}

/// Identifies a transfer on both sides: its number and the reading rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket {
    pub transfer: u64,
    pub reader: usize,
}

/// Batches that a rank may fetch while this lives.
pub struct Offer {
    _end: oneshot::Sender<()>,
    /// The worker's messages to a coordinator. Nobody reads them.
    _messages: BoxStream<'static, Result<WorkerToCoordinatorMsg>>,
}

impl GrpcBatches {
    /// Starts this rank's server. `host`: this rank's name for other hosts; `None` if all ranks share this
    /// host. `compression`: `lz4`, `zstd` or `none`; by default datafusion-distributed's.
    ///
    /// Errors: unknown compression; no port is available.
    pub async fn start(host: Option<String>, compression: Option<String>) -> Result<GrpcBatches> {
        let mut config = SessionConfig::new();
        config.set_distributed_option_extension(DistributedConfig::default());
        compress(&mut config, compression.as_deref())?;
        let worker = Worker::from_session_builder(move |context: WorkerQueryContext| {
            let compression = compression.clone();
            async move {
                let mut builder = context.builder;
                compress(builder.config().get_or_insert_default(), compression.as_deref())?;
                Ok(builder.build())
            }
        });
        let url = GrpcServer::new(host).start(&worker).await?;
        let state = SessionStateBuilder::new().with_default_features().with_config(config).build();
        Ok(GrpcBatches {
            worker,
            url,
            channels: DefaultChannelResolver::default(),
            context: state.task_ctx(),
        })
    }

    /// The address of this rank for other ranks.
    pub fn address(&self) -> &str {
        self.url.as_str()
    }

    /// Lets the reader of `ticket` fetch `streams`, each once and from its first batch on.
    pub async fn offer(
        &self,
        ticket: Ticket,
        schema: SchemaRef,
        streams: Vec<BoxStream<'static, RecordBatch>>,
    ) -> Result<Offer> {
        let leaves = streams
            .into_iter()
            .map(|stream| {
                let stream = RecordBatchStreamAdapter::new(Arc::clone(&schema), stream.map(Ok));
                Arc::new(Leaf { schema: Arc::clone(&schema), stream: Mutex::new(Some(Box::pin(stream))) })
                    as _
            })
            .collect();
        let plan = StreamingTableExec::try_new(Arc::clone(&schema), leaves, None, [], false, None)?;
        let request = SetPlanRequest {
            task_key: ticket.key(),
            task_count: 1,
            plan: MaybeEncoded::Decoded(Arc::new(plan)),
            work_unit_feed_declarations: Vec::new(),
            target_worker_url: self.url.clone(),
            query_start_time_ns: 0,
        };
        // The worker drops the plan when its coordinator's messages end.
        let (end, ended) = oneshot::channel::<()>();
        let silence = ended.into_stream().filter_map(async |_| None).boxed();
        let messages = self.worker.coordinator_channel(HeaderMap::new(), request, silence).await?;
        Ok(Offer { _end: end, _messages: messages })
    }

    /// Fetches the `streams` streams of batches that the rank at `address` offers for `ticket`.
    pub async fn open(
        &self,
        address: &str,
        ticket: Ticket,
        streams: usize,
    ) -> Result<Vec<BoxStream<'static, Result<RecordBatch>>>> {
        let request = ExecuteTaskRequest {
            task_key: ticket.key(),
            target_partition_start: 0,
            target_partition_end: streams,
            producer_head: ProducerHead::None,
        };
        let mut channel = self.channels.get_worker_client_for_url(&parse(address)?).await?;
        channel.execute_task(HeaderMap::new(), request, ExecutionPlanMetricsSet::new(), &self.context).await
    }

    /// One small request to the rank at `address`, and its small response.
    pub async fn round_trip(&self, address: &str) -> Result<()> {
        let mut channel = self.channels.get_worker_client_for_url(&parse(address)?).await?;
        channel.get_worker_info(GetWorkerInfoRequest {}).await.map(drop)
    }
}

impl Ticket {
    fn key(self) -> TaskKey {
        TaskKey {
            query_id: Uuid::from_u128(u128::from(self.transfer)),
            stage_id: 0,
            task_number: self.reader,
        }
    }
}

fn compress(config: &mut SessionConfig, compression: Option<&str>) -> Result<()> {
    compression.map_or(Ok(()), |compression| config.options_mut().set(COMPRESSION, compression))
}

fn parse(address: &str) -> Result<Url> {
    Url::parse(address).map_err(|error| exec_datafusion_err!("address \"{address}\" of a rank: {error}"))
}

/// One offered stream.
struct Leaf {
    schema: SchemaRef,
    /// `None` after it was fetched.
    stream: Mutex<Option<SendableRecordBatchStream>>,
}

impl std::fmt::Debug for Leaf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Leaf")
    }
}

impl PartitionStream for Leaf {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, _: Arc<TaskContext>) -> SendableRecordBatchStream {
        let stream = self.stream.lock().ok().and_then(|mut stream| stream.take());
        stream.unwrap_or_else(|| {
            let error = internal_datafusion_err!("a stream is fetched once");
            Box::pin(RecordBatchStreamAdapter::new(
                Arc::clone(&self.schema),
                futures::stream::once(async { Err(error) }),
            ))
        })
    }
}
