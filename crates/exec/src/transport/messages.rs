//! Wire format of datafusion-distributed's messages, for calls and opens between ranks.
//!
//! Its own encoding is private to its gRPC transport, so the messages are defined here once more as Protocol
//! Buffers. Both sides are the same build of Harrier (the gang checks that when it forms), so there is no
//! versioning.

use crate::transport::metrics_codec;
use crate::transport::running_tasks::RunningTaskMetrics;
use crate::transport::stream_metrics::RankCounts;
use datafusion::common::{DataFusionError, Result, internal_datafusion_err};
use datafusion::execution::TaskContext;
use datafusion::physical_plan::ExecutionPlan;
use datafusion_distributed::{
    CoordinatorToWorkerMsg, ExecuteTaskRequest, LoadInfo, MaybeEncoded, ProducerHead, SetPlanRequest,
    TaskKey, TaskMetrics, WorkUnitBatch, WorkUnitFeedDeclaration, WorkUnitMsg, WorkerToCoordinatorMsg,
};
use harrier_resources::spill_disks::DiskStatus;
use harrier_resources::statement_memory::MemoryUse;
use http::{HeaderMap, HeaderName, HeaderValue};
use prost::Message;
use std::sync::Arc;
use url::Url;
use uuid::Uuid;

/// The request at the start of an open or a call.
#[derive(Clone, PartialEq, Message)]
pub struct Request {
    #[prost(oneof = "Operation", tags = "1, 2, 3, 4, 5, 6")]
    pub operation: Option<Operation>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
pub enum Operation {
    /// A call: sends a part of a plan, followed by the coordinator's messages.
    #[prost(message, tag = "1")]
    SetPlan(SetPlan),
    /// An open: one stream for every output partition in the range.
    #[prost(message, tag = "2")]
    Execute(Execute),
    /// A call with one response: the rank's counters, see `RankReport`.
    #[prost(message, tag = "3")]
    Report(ReportRequest),
    /// A call with one response: the address of the rank's gRPC server, started if needed.
    #[prost(message, tag = "4")]
    Grpc(GrpcRequest),
    /// A call with one response: the metrics of a statement's tasks on the rank, see `TaskMetricsList`.
    #[prost(message, tag = "5")]
    TaskMetrics(TaskMetricsRequest),
    /// A call with one response: the rank's clock, see `ClockReport`.
    #[prost(message, tag = "6")]
    Clock(ClockRequest),
}

#[derive(Clone, PartialEq, Message)]
pub struct ClockRequest {}

#[derive(Clone, PartialEq, Message)]
pub struct ClockReport {
    /// Nanoseconds since 1970.
    #[prost(uint64, tag = "1")]
    pub now_ns: u64,
}

#[derive(Clone, PartialEq, Message)]
pub struct TaskMetricsRequest {
    #[prost(uint64, tag = "1")]
    pub run: u64,
}

#[derive(Clone, PartialEq, Message)]
pub struct TaskMetricsList {
    #[prost(message, repeated, tag = "1")]
    pub tasks: Vec<RunningTaskMetrics>,
    /// The statement's resource usage on the rank.
    #[prost(message, optional, tag = "2")]
    pub memory: Option<MemoryUse>,
}

#[derive(Clone, PartialEq, Message)]
pub struct ReportRequest {}

#[derive(Clone, PartialEq, Message)]
pub struct GrpcRequest {}

#[derive(Clone, PartialEq, Message)]
pub struct GrpcAddress {
    #[prost(string, tag = "1")]
    pub url: String,
}

/// Resources that may outlive their statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retained {
    Nothing,
    /// Rows of in-memory tables, in blocks lent by other ranks.
    Rows,
}

/// Running totals of one rank, for `EXPLAIN ANALYZE` and for the ledger.
#[derive(Clone, PartialEq, Message)]
pub struct RankReport {
    #[prost(uint64, tag = "1")]
    pub frames_sent: u64,
    #[prost(uint64, tag = "2")]
    pub bytes_sent: u64,
    #[prost(uint64, tag = "3")]
    pub mpi_cpu_ns: u64,
    #[prost(uint64, tag = "4")]
    pub process_cpu_ns: u64,
    #[prost(uint64, tag = "5")]
    pub streams_open: u64,
    /// Bytes reserved in the rank's memory pool.
    #[prost(uint64, tag = "6")]
    pub reserved_bytes: u64,
    /// Frames queued for the MPI thread, and incomplete MPI requests.
    #[prost(uint64, tag = "7")]
    pub frames_pending: u64,
    /// Blocks in the rank's shared memory that other ranks still read.
    #[prost(uint64, tag = "8")]
    pub blocks_lent: u64,
    /// The rank's spill disks.
    #[prost(message, repeated, tag = "9")]
    pub disks: Vec<DiskStatus>,
    /// Resident memory of the process.
    #[prost(uint64, tag = "10")]
    pub resident_bytes: u64,
    #[prost(message, required, tag = "11")]
    pub counts: RankCounts,
}

impl RankReport {
    /// The report of a process that is no rank.
    pub fn of_process() -> RankReport {
        RankReport { process_cpu_ns: crate::process_cpu_ns(), ..RankReport::default() }
    }

    /// Whether everything that statements take was released, except `retained`.
    pub fn is_clear(&self, retained: Retained) -> bool {
        self.streams_open == 0
            && self.reserved_bytes == 0
            && self.frames_pending == 0
            && (self.blocks_lent == 0 || retained == Retained::Rows)
    }
}

#[derive(Clone, PartialEq, Message)]
pub struct Header {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(bytes = "vec", tag = "2")]
    pub value: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Key {
    #[prost(bytes = "vec", tag = "1")]
    pub query_id: Vec<u8>,
    #[prost(uint64, tag = "2")]
    pub stage_id: u64,
    #[prost(uint64, tag = "3")]
    pub task_number: u64,
}

#[derive(Clone, PartialEq, Message)]
pub struct SetPlan {
    #[prost(message, repeated, tag = "1")]
    pub headers: Vec<Header>,
    #[prost(message, required, tag = "2")]
    pub key: Key,
    #[prost(uint64, tag = "3")]
    pub task_count: u64,
    #[prost(bytes = "vec", tag = "4")]
    pub plan: Vec<u8>,
    #[prost(message, repeated, tag = "5")]
    pub feeds: Vec<Feed>,
    #[prost(string, tag = "6")]
    pub target: String,
    #[prost(uint64, tag = "7")]
    pub query_start_ns: u64,
}

#[derive(Clone, PartialEq, Message)]
pub struct Feed {
    #[prost(bytes = "vec", tag = "1")]
    pub id: Vec<u8>,
    #[prost(uint64, tag = "2")]
    pub partitions: u64,
}

#[derive(Clone, PartialEq, Message)]
pub struct Execute {
    #[prost(message, required, tag = "1")]
    pub key: Key,
    #[prost(uint64, tag = "2")]
    pub start: u64,
    #[prost(uint64, tag = "3")]
    pub end: u64,
    #[prost(oneof = "Head", tags = "4, 5")]
    pub head: Option<Head>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
pub enum Head {
    #[prost(uint64, tag = "4")]
    Broadcast(u64),
    #[prost(bytes = "vec", tag = "5")]
    Repartition(Vec<u8>),
}

#[derive(Clone, PartialEq, Message)]
pub struct ToWorker {
    /// Empty: no more work units will come.
    #[prost(message, repeated, tag = "1")]
    pub units: Vec<Unit>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Unit {
    #[prost(bytes = "vec", tag = "1")]
    pub id: Vec<u8>,
    #[prost(uint64, tag = "2")]
    pub partition: u64,
    #[prost(bytes = "vec", tag = "3")]
    pub body: Vec<u8>,
    /// Created, sent, received, processed; nanoseconds since 1970.
    #[prost(uint64, repeated, tag = "4")]
    pub times_ns: Vec<u64>,
}

#[derive(Clone, PartialEq, Message)]
pub struct ToCoordinator {
    #[prost(oneof = "CoordinatorMessage", tags = "1, 2, 3")]
    pub message: Option<CoordinatorMessage>,
    /// The statement's resource usage on the rank.
    #[prost(message, optional, tag = "4")]
    pub memory: Option<MemoryUse>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
pub enum CoordinatorMessage {
    #[prost(message, tag = "1")]
    Metrics(Metrics),
    #[prost(message, tag = "2")]
    Load(Load),
    #[prost(bool, tag = "3")]
    LoadEnd(bool),
}

#[derive(Clone, PartialEq, Message)]
pub struct Metrics {
    /// One per operator, in pre-order.
    #[prost(message, repeated, tag = "1")]
    pub operators: Vec<metrics_codec::Set>,
    #[prost(message, required, tag = "2")]
    pub task: metrics_codec::Set,
}

#[derive(Clone, PartialEq, Message)]
pub struct Load {
    #[prost(uint64, tag = "1")]
    pub partition: u64,
    #[prost(uint64, tag = "2")]
    pub rows_ready: u64,
    #[prost(uint64, repeated, tag = "3")]
    pub per_column_bytes_ready: Vec<u64>,
    #[prost(float, repeated, tag = "4")]
    pub per_column_ndv: Vec<f32>,
    #[prost(float, repeated, tag = "5")]
    pub per_column_null: Vec<f32>,
    #[prost(uint64, tag = "6")]
    pub rows_pulled_from_leaf: u64,
    #[prost(bool, tag = "7")]
    pub reached_eos: bool,
}

/// Decodes any message of this module.
pub fn decode<M: Message + Default>(bytes: &[u8]) -> Result<M> {
    M::decode(bytes).map_err(|error| internal_datafusion_err!("malformed message between ranks: {error}"))
}

impl From<TaskKey> for Key {
    fn from(key: TaskKey) -> Self {
        Key {
            query_id: key.query_id.as_bytes().to_vec(),
            stage_id: key.stage_id as u64,
            task_number: key.task_number as u64,
        }
    }
}

impl TryFrom<Key> for TaskKey {
    type Error = DataFusionError;

    fn try_from(key: Key) -> Result<Self> {
        Ok(TaskKey {
            query_id: uuid(&key.query_id)?,
            stage_id: key.stage_id as usize,
            task_number: key.task_number as usize,
        })
    }
}

fn uuid(bytes: &[u8]) -> Result<Uuid> {
    Uuid::from_slice(bytes)
        .map_err(|error| internal_datafusion_err!("malformed message between ranks: {error}"))
}

pub fn encode_headers(headers: &HeaderMap) -> Vec<Header> {
    headers
        .iter()
        .map(|(name, value)| Header { name: name.to_string(), value: value.as_bytes().to_vec() })
        .collect()
}

pub fn decode_headers(headers: Vec<Header>) -> Result<HeaderMap> {
    headers
        .into_iter()
        .map(|header| {
            let name = HeaderName::from_bytes(header.name.as_bytes());
            let value = HeaderValue::from_bytes(&header.value);
            match (name, value) {
                (Ok(name), Ok(value)) => Ok((name, value)),
                _ => Err(internal_datafusion_err!("malformed header {} between ranks", header.name)),
            }
        })
        .collect()
}

/// `encode_plan`: as `for_worker` in `plan_codec.rs`, which is above this file.
pub fn encode_set_plan(
    headers: &HeaderMap,
    request: SetPlanRequest,
    encode_plan: impl FnOnce(MaybeEncoded<Arc<dyn ExecutionPlan>>) -> Result<Vec<u8>>,
) -> Result<SetPlan> {
    Ok(SetPlan {
        headers: encode_headers(headers),
        key: request.task_key.into(),
        task_count: request.task_count as u64,
        plan: encode_plan(request.plan)?,
        feeds: request
            .work_unit_feed_declarations
            .into_iter()
            .map(|feed| Feed { id: feed.id.as_bytes().to_vec(), partitions: feed.partitions as u64 })
            .collect(),
        target: request.target_worker_url.to_string(),
        query_start_ns: request.query_start_time_ns as u64,
    })
}

pub fn decode_set_plan(plan: SetPlan) -> Result<(HeaderMap, SetPlanRequest)> {
    let request = SetPlanRequest {
        task_key: plan.key.try_into()?,
        task_count: plan.task_count as usize,
        plan: MaybeEncoded::Encoded(plan.plan),
        work_unit_feed_declarations: plan
            .feeds
            .into_iter()
            .map(|feed| {
                Ok(WorkUnitFeedDeclaration { id: uuid(&feed.id)?, partitions: feed.partitions as usize })
            })
            .collect::<Result<_>>()?,
        target_worker_url: Url::parse(&plan.target)
            .map_err(|error| internal_datafusion_err!("malformed rank address {}: {error}", plan.target))?,
        query_start_time_ns: plan.query_start_ns as usize,
    };
    Ok((decode_headers(plan.headers)?, request))
}

pub fn encode_execute(request: ExecuteTaskRequest, context: &Arc<TaskContext>) -> Result<Execute> {
    Ok(Execute {
        key: request.task_key.into(),
        start: request.target_partition_start as u64,
        end: request.target_partition_end as u64,
        head: match request.producer_head {
            ProducerHead::None => None,
            ProducerHead::BroadcastExec { output_partitions } => {
                Some(Head::Broadcast(output_partitions as u64))
            }
            ProducerHead::RepartitionExec { partitioning } => {
                Some(Head::Repartition(partitioning.encode(context)?))
            }
        },
    })
}

pub fn decode_execute(execute: Execute) -> Result<ExecuteTaskRequest> {
    Ok(ExecuteTaskRequest {
        task_key: execute.key.try_into()?,
        target_partition_start: execute.start as usize,
        target_partition_end: execute.end as usize,
        producer_head: match execute.head {
            None => ProducerHead::None,
            Some(Head::Broadcast(partitions)) => {
                ProducerHead::BroadcastExec { output_partitions: partitions as usize }
            }
            Some(Head::Repartition(bytes)) => {
                ProducerHead::RepartitionExec { partitioning: MaybeEncoded::Encoded(bytes) }
            }
        },
    })
}

pub fn encode_to_worker(message: CoordinatorToWorkerMsg) -> ToWorker {
    let units = match message {
        CoordinatorToWorkerMsg::WorkUnitEos => vec![],
        CoordinatorToWorkerMsg::WorkUnitBatch(batch) => batch.batch,
    };
    ToWorker {
        units: units
            .into_iter()
            .map(|unit| Unit {
                id: unit.id.as_bytes().to_vec(),
                partition: unit.partition as u64,
                body: match unit.body {
                    MaybeEncoded::Encoded(bytes) => bytes,
                    MaybeEncoded::Decoded(body) => body.encode_to_bytes(),
                },
                times_ns: [
                    unit.created_timestamp_unix_nanos,
                    unit.sent_timestamp_unix_nanos,
                    unit.received_timestamp_unix_nanos,
                    unit.processed_timestamp_unix_nanos,
                ]
                .map(|time| time as u64)
                .to_vec(),
            })
            .collect(),
    }
}

pub fn decode_to_worker(message: ToWorker) -> Result<CoordinatorToWorkerMsg> {
    if message.units.is_empty() {
        return Ok(CoordinatorToWorkerMsg::WorkUnitEos);
    }
    let batch = message
        .units
        .into_iter()
        .map(|unit| {
            let time = |at: usize| unit.times_ns.get(at).copied().unwrap_or(0) as usize;
            Ok(WorkUnitMsg {
                id: uuid(&unit.id)?,
                partition: unit.partition as usize,
                created_timestamp_unix_nanos: time(0),
                sent_timestamp_unix_nanos: time(1),
                received_timestamp_unix_nanos: time(2),
                processed_timestamp_unix_nanos: time(3),
                body: MaybeEncoded::Encoded(unit.body),
            })
        })
        .collect::<Result<_>>()?;
    Ok(CoordinatorToWorkerMsg::WorkUnitBatch(WorkUnitBatch { batch }))
}

pub fn encode_to_coordinator(message: WorkerToCoordinatorMsg, memory: Option<MemoryUse>) -> ToCoordinator {
    ToCoordinator {
        memory,
        message: Some(match message {
            WorkerToCoordinatorMsg::TaskMetrics(metrics) => CoordinatorMessage::Metrics(Metrics {
                operators: metrics.pre_order_plan_metrics.iter().map(metrics_codec::encode).collect(),
                task: metrics_codec::encode(&metrics.task_metrics),
            }),
            WorkerToCoordinatorMsg::LoadInfo(load) => CoordinatorMessage::Load(Load {
                partition: load.partition as u64,
                rows_ready: load.rows_ready as u64,
                per_column_bytes_ready: load
                    .per_column_bytes_ready
                    .iter()
                    .map(|bytes| *bytes as u64)
                    .collect(),
                per_column_ndv: load.per_column_ndv_percentage,
                per_column_null: load.per_column_null_percentage,
                rows_pulled_from_leaf: load.rows_pulled_from_leaf as u64,
                reached_eos: load.reached_eos,
            }),
            WorkerToCoordinatorMsg::LoadInfoEos => CoordinatorMessage::LoadEnd(true),
        }),
    }
}

pub fn decode_to_coordinator(message: ToCoordinator) -> Result<WorkerToCoordinatorMsg> {
    match message.message {
        Some(CoordinatorMessage::Metrics(metrics)) => Ok(WorkerToCoordinatorMsg::TaskMetrics(TaskMetrics {
            pre_order_plan_metrics: metrics.operators.iter().map(metrics_codec::decode).collect(),
            task_metrics: metrics_codec::decode(&metrics.task),
        })),
        Some(CoordinatorMessage::Load(load)) => Ok(WorkerToCoordinatorMsg::LoadInfo(LoadInfo {
            partition: load.partition as usize,
            rows_ready: load.rows_ready as usize,
            per_column_bytes_ready: load.per_column_bytes_ready.iter().map(|bytes| *bytes as usize).collect(),
            per_column_ndv_percentage: load.per_column_ndv,
            per_column_null_percentage: load.per_column_null,
            rows_pulled_from_leaf: load.rows_pulled_from_leaf as usize,
            reached_eos: load.reached_eos,
        })),
        Some(CoordinatorMessage::LoadEnd(_)) => Ok(WorkerToCoordinatorMsg::LoadInfoEos),
        None => Err(internal_datafusion_err!("empty message between ranks")),
    }
}
