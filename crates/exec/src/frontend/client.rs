//! Client side of a front end that is not part of the gang: sends large enough plans to the coordinating rank
//! over a local socket, and receives their rows.
//!
//! ```text
//!   front end: statement ─► one-rank plan ─► GangExec ══ local socket ══► Desk (server.rs): slices and motions ─► ranks
//!                             │ too small, or not for ranks                  rows, lines, failure ◄──────────────┘
//!                             └─► runs here
//! ```
//!
//! One connection carries one request. Backpressure is the socket's: rows are read on demand.
//!
//! # Cancellation
//! Dropping the rows closes the connection; the desk then drops the plan.
//!
//! # Crash
//! A connection that closes without an end frame means that the gang is lost (57P02). The front end survives,
//! and retries a read-only plan once if allowed (`client/retry.rs`).

mod retry;

use std::any::Any;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use datafusion::arrow::buffer::Buffer;
use datafusion::arrow::ipc::reader::StreamDecoder;
use datafusion::catalog::Session;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{DataFusionError, Result, internal_err};
use datafusion::execution::context::QueryPlanner;
use datafusion::execution::{SendableRecordBatchStream, SessionState, SessionStateBuilder, TaskContext};
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PlanProperties};
use datafusion::prelude::SessionConfig;
use futures::FutureExt;
use futures::future::BoxFuture;
use harrier_session_api::query_profile::QueryProfile;
use parking_lot::Mutex;
use prost::Message;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::sync::watch;

use self::retry::PlanRun;
pub use self::retry::RetryReads;
use crate::distribution::direct_dispatch::{scanned_bytes, with_dispatch};
use crate::distribution::gang_planner;
use crate::distribution::logical_planner::physical_plan;
use crate::operators::cancelable_joins;
use crate::transport::local_socket;
use crate::transport::plan_codec;
use crate::transport::propagated_settings;
use crate::transport::stream_metrics::RankCounts;
use harrier_error::SqlState;
use harrier_resources::spill_disks::DiskStatus;
use harrier_resources::statement_limits::{Scope, StatementLimits};

/// The largest frame that either side accepts: a batch may be large, a larger length is invalid.
const FRAME_BYTES_MAX: usize = 1 << 31;

/// The request of a connection.
#[derive(Clone, PartialEq, Message)]
pub struct Request {
    #[prost(enumeration = "RequestKind", tag = "1")]
    pub kind: i32,
    /// A one-rank plan.
    #[prost(bytes = "vec", tag = "2")]
    pub plan: Vec<u8>,
    /// The session's settings, as encoded by [`propagated_settings::text`].
    #[prost(string, tag = "3")]
    pub settings: String,
    #[prost(uint64, tag = "4")]
    pub distribute_bytes_min: u64,
    #[prost(bool, tag = "5")]
    pub verbose: bool,
    /// EXPLAIN ANALYZE of a writing statement needs its rows as well.
    #[prost(bool, tag = "6")]
    pub keeps_rows: bool,
    /// Ranks to mark down; all others are used.
    #[prost(uint64, repeated, tag = "7")]
    pub marked_down: Vec<u64>,
    /// Memory limit of the statement per rank, in bytes; 0: none.
    #[prost(uint64, tag = "8")]
    pub memory_bytes: u64,
    #[prost(uint64, tag = "9")]
    pub spill_bytes: u64,
    /// The number under which the statement's progress can be polled, or of the statement to poll; 0: none.
    #[prost(uint64, tag = "10")]
    pub run: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, prost::Enumeration)]
pub enum RequestKind {
    Nothing = 0,
    Run = 1,
    Explain = 2,
    Analyze = 3,
    /// A stream of gang statuses. The gang ends with the connection.
    Hold = 4,
    /// Marks ranks down for later statements.
    MarkDown = 5,
    /// The progress of a running statement.
    Snapshot = 6,
}

/// Kinds of response frames; a frame is a byte, four bytes of length, and that many bytes.
pub(crate) mod kind {
    /// A part of an Arrow IPC stream: one message with its batch, or the schema.
    pub(crate) const ROWS: u8 = 1;
    /// [`super::Lines`].
    pub(crate) const LINES: u8 = 2;
    /// [`super::Failure`]: the last frame.
    pub(crate) const FAILURE: u8 = 3;
    /// [`super::Status`].
    pub(crate) const STATUS: u8 = 4;
    /// Success: the last frame.
    pub(crate) const END: u8 = 5;
    /// [`QueryProfile`] of the running statement, before its first row and
    /// after its last.
    pub(crate) const SNAPSHOT: u8 = 6;
}

#[derive(Clone, PartialEq, Message)]
pub struct Lines {
    #[prost(string, repeated, tag = "1")]
    pub lines: Vec<String>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Failure {
    #[prost(string, tag = "1")]
    pub sqlstate: String,
    #[prost(string, tag = "2")]
    pub message: String,
}

/// The status of a gang.
#[derive(Clone, PartialEq, Message)]
pub struct Status {
    #[prost(message, repeated, tag = "1")]
    pub ranks: Vec<RankStatus>,
    /// The MPI library or protocol, for display.
    #[prost(string, tag = "2")]
    pub library: String,
    #[prost(string, tag = "3")]
    pub version: String,
    /// Threads that a statement may use per rank.
    #[prost(uint64, tag = "4")]
    pub threads: u64,
}

#[derive(Clone, PartialEq, Message)]
pub struct RankStatus {
    #[prost(string, tag = "1")]
    pub host: String,
    #[prost(uint32, tag = "2")]
    pub pid: u32,
    /// It takes part in statements; otherwise it is a spare, or lost.
    #[prost(bool, tag = "3")]
    pub works: bool,
    /// The reason, if it is lost.
    #[prost(string, optional, tag = "4")]
    pub lost: Option<String>,
    #[prost(uint64, tag = "5")]
    pub bytes_sent: u64,
    #[prost(uint64, tag = "6")]
    pub frames_sent: u64,
    #[prost(uint64, tag = "7")]
    pub process_cpu_ns: u64,
    #[prost(uint64, tag = "8")]
    pub reserved_bytes: u64,
    #[prost(uint64, tag = "9")]
    pub streams_open: u64,
    /// Marked down: takes part in no statement until it is marked up.
    #[prost(bool, tag = "10")]
    pub marked_down: bool,
    /// Its spill disks; known for working ranks.
    #[prost(message, repeated, tag = "11")]
    pub disks: Vec<DiskStatus>,
    #[prost(uint64, tag = "12")]
    pub resident_bytes: u64,
    /// Known for working ranks.
    #[prost(message, required, tag = "13")]
    pub counts: RankCounts,
    /// Nanoseconds by which its clock is ahead of rank 0's.
    #[prost(sint64, tag = "14")]
    pub clock_ahead_ns: i64,
}

/// The reason shown for a rank that was marked down.
const MARKED_DOWN: &str = "marked down";

impl RankStatus {
    /// Whether it can take part in no statement.
    pub fn is_down(&self) -> bool {
        self.lost.is_some() || self.marked_down
    }

    /// The reason, if it is down.
    pub fn reason(&self) -> Option<String> {
        self.lost.clone().or_else(|| self.marked_down.then(|| MARKED_DOWN.to_string()))
    }
}

/// The socket of a gang's desk, and the number of statements running there.
#[derive(Debug)]
pub struct DeskAddress {
    path: PathBuf,
    running: AtomicUsize,
}

impl DeskAddress {
    /// Statements that the gang runs for this process.
    pub fn running(&self) -> usize {
        self.running.load(Ordering::Relaxed)
    }
}

/// Counts a statement at a desk until dropped.
struct RunningGuard(Arc<DeskAddress>);

impl RunningGuard {
    fn new(place: Arc<DeskAddress>) -> Self {
        place.running.fetch_add(1, Ordering::Relaxed);
        Self(place)
    }
}

impl Drop for RunningGuard {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Holds a gang: it ends when this is dropped.
pub struct Hold(UnixStream);

impl Hold {
    /// Takes hold of the gang with its desk at `path`. Errors: it does not exist, or not yet.
    pub async fn take(path: &Path) -> Result<Self> {
        send_request(path, &Request { kind: RequestKind::Hold.into(), ..Request::default() }).await.map(Self)
    }

    /// Waits for the gang's next status, sent every second or on a change.
    ///
    /// Errors: the gang is lost.
    pub async fn next(&mut self) -> Result<Status> {
        match read_frame(&mut self.0).await? {
            Some((kind::STATUS, bytes)) => decode(&bytes),
            Some((kind::FAILURE, bytes)) => Err(decode_failure(&bytes)),
            _ => Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
        }
    }
}

/// The connection to a gang that may come and go. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Link {
    inner: Arc<watch::Sender<LinkState>>,
    /// The number of the last plan.
    last_run: Arc<AtomicU64>,
}

#[derive(Debug, Default)]
struct LinkState {
    /// `None` while there is no gang.
    desk: Option<Arc<DeskAddress>>,
    /// Output partitions of plans for the gang.
    partitions: usize,
    /// Number of ranks of the gang.
    ranks: usize,
    /// Why the gang was last lost.
    reason: String,
}

impl Link {
    /// Routes later plans to the desk at `path`, planned for `ranks` of `threads`.
    pub fn up(&self, path: &Path, ranks: usize, threads: usize) -> Arc<DeskAddress> {
        let place = Arc::new(DeskAddress { path: path.to_path_buf(), running: AtomicUsize::new(0) });
        self.inner.send_modify(|inner| {
            inner.desk = Some(Arc::clone(&place));
            // With one partition there is no redistribution that could become a motion.
            inner.partitions = threads.max(2);
            inner.ranks = ranks;
        });
        place
    }

    /// Runs later plans in this process.
    pub fn down(&self, reason: &str) {
        self.inner.send_modify(|inner| {
            inner.desk = None;
            inner.reason = reason.to_string();
        });
    }

    pub fn is_up(&self) -> bool {
        self.inner.borrow().desk.is_some()
    }

    /// Makes `builder` plan for the gang while there is one. `here_only`: a rule for plans that run in this
    /// process, whose operators ranks do not know.
    pub fn configure(
        &self,
        builder: SessionStateBuilder,
        here_only: Arc<dyn PhysicalOptimizerRule + Send + Sync>,
    ) -> SessionStateBuilder {
        let planner = FrontPlanner { link: self.clone(), here_only: here_only.name().to_string() };
        builder.with_physical_optimizer_rule(here_only).with_query_planner(Arc::new(planner))
    }

    fn gang_lost(&self) -> DataFusionError {
        let reason = &self.inner.borrow().reason;
        let message = match reason.is_empty() {
            true => "the gang is lost".to_string(),
            false => format!("the gang is lost: {reason}"),
        };
        harrier_sqlstate::remote(SqlState::CRASH_SHUTDOWN, message)
    }
}

/// Marks these ranks down for later statements, and all others up.
///
/// Errors: the gang at `path` is gone.
pub async fn mark_down(path: &Path, ranks: impl IntoIterator<Item = usize>) -> Result<()> {
    let marked_down = ranks.into_iter().map(|rank| rank as u64).collect();
    let mut stream = send_request(
        path,
        &Request { kind: RequestKind::MarkDown.into(), marked_down, ..Request::default() },
    )
    .await?;
    match read_frame(&mut stream).await? {
        Some((kind::END, _)) => Ok(()),
        Some((kind::FAILURE, bytes)) => Err(decode_failure(&bytes)),
        _ => Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
    }
}

async fn send_request(path: &Path, request: &Request) -> Result<UnixStream> {
    let mut stream = local_socket::connect(path).await?;
    let bytes = request.encode_to_vec();
    stream.write_all(&(bytes.len() as u32).to_le_bytes()).await?;
    stream.write_all(&bytes).await?;
    Ok(stream)
}

/// Reads the next frame; `None` if the other side has closed the connection.
async fn read_frame(stream: &mut UnixStream) -> Result<Option<(u8, Vec<u8>)>> {
    let mut head = [0; 5];
    match stream.read_exact(&mut head).await {
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        Err(error) => return Err(error.into()),
    }
    let length = u32::from_le_bytes([head[1], head[2], head[3], head[4]]) as usize;
    if length > FRAME_BYTES_MAX {
        return internal_err!("a frame of {length} bytes from the gang");
    }
    let mut bytes = vec![0; length];
    match stream.read_exact(&mut bytes).await {
        Ok(_) => Ok(Some((head[0], bytes))),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn decode<M: Message + Default>(bytes: &[u8]) -> Result<M> {
    M::decode(bytes).map_err(|error| DataFusionError::Internal(format!("a frame of the gang: {error}")))
}

fn decode_failure(bytes: &[u8]) -> DataFusionError {
    match Failure::decode(bytes) {
        Ok(Failure { sqlstate, message }) => {
            let state = SqlState::parse(&sqlstate).unwrap_or(SqlState::INTERNAL_ERROR);
            harrier_sqlstate::remote(state, message)
        }
        Err(error) => DataFusionError::Internal(format!("a failure of the gang: {error}")),
    }
}

#[derive(Debug)]
struct FrontPlanner {
    link: Link,
    here_only: String,
}

impl FrontPlanner {
    fn boxed_create_physical_plan<'a>(
        &'a self,
        logical_plan: &'a LogicalPlan,
        session: &'a dyn Session,
    ) -> BoxFuture<'a, Result<Arc<dyn ExecutionPlan>>> {
        async move {
            let here = physical_plan(logical_plan, session, 1).await?;
            let (partitions, ranks) = {
                let inner = self.link.inner.borrow();
                match inner.desk {
                    Some(_) => (inner.partitions, inner.ranks),
                    None => return Ok(here),
                }
            };
            let bytes_min =
                session.config().get_extension::<DistributeBytesMin>().map_or(0, |bytes_min| bytes_min.0);
            if !gang_planner::is_distributable(&here) || scanned_bytes(&here) < bytes_min.max(1) {
                return Ok(here);
            }
            let config = session.config().clone().with_target_partitions(partitions);
            let Some(state) = session.as_any().downcast_ref::<SessionState>() else {
                return internal_err!("a session without a state");
            };
            let rules = state.physical_optimizers().iter().filter(|rule| rule.name() != self.here_only);
            let there = SessionStateBuilder::new_from_existing(state.clone())
                .with_physical_optimizer_rules(rules.cloned().collect())
                .with_config(config.clone())
                .build();
            let one_rank = physical_plan(logical_plan, &there, ranks).await?;
            match GangExec::try_new(self.link.clone(), one_rank, &config, bytes_min) {
                Ok(gang) => Ok(Arc::new(gang)),
                // Plans that cannot be serialized, for example with an in-memory table, run here.
                Err(error) => {
                    tracing::debug!(%error, "a plan stays in this process");
                    Ok(here)
                }
            }
        }
        .boxed()
    }
}

// Methods are written out for the compiler's sake: docs/decisions/0025-boxed-futures-behind-traits.md
impl QueryPlanner for FrontPlanner {
    fn create_physical_plan<'a: 'f, 'b: 'f, 'c: 'f, 'f>(
        &'a self,
        logical_plan: &'b LogicalPlan,
        session: &'c dyn Session,
    ) -> BoxFuture<'f, Result<Arc<dyn ExecutionPlan>>> {
        self.boxed_create_physical_plan(logical_plan, session)
    }
}

/// Admission control for statements on the gang. An extension of the session's settings.
#[derive(Clone)]
pub struct Admission(pub Arc<dyn Admit>);

/// An admission controller: decides when a statement may run on the gang.
pub trait Admit: Send + Sync {
    /// Waits for admission of a statement that reads `bytes` bytes. Cancel-safe.
    fn admit(&self, bytes: u64) -> BoxFuture<'static, Result<Admitted>>;

    /// Notifies that the statement is retried, because a rank was lost before its first row, for this reason.
    fn notify_retry(&self, reason: &str);
}

/// An admitted statement.
#[derive(Default)]
pub struct Admitted {
    /// Dropping it releases the admission.
    pub turn: Option<Box<dyn Any + Send>>,
    /// Limits of the statement per rank.
    pub limits: StatementLimits,
}

/// A scan of fewer bytes than this stays in the front end. An extension of the session's settings.
#[derive(Debug, Clone, Copy)]
pub struct DistributeBytesMin(pub usize);

/// Runs a plan on the gang. 1 output partition, in the order of the plan's rows if that has one.
#[derive(Debug)]
pub struct GangExec {
    link: Link,
    plan: Arc<dyn ExecutionPlan>,
    bytes: u64,
    request: Request,
    properties: Arc<PlanProperties>,
    /// The gang's last snapshot of the plan.
    last_snapshot: SharedSnapshot,
}

type SharedSnapshot = Arc<Mutex<LastSnapshot>>;

#[derive(Debug, Default)]
struct LastSnapshot {
    snapshot: QueryProfile,
    /// Number of snapshots received along with the rows: the second is final.
    with_rows: usize,
}

impl Request {
    /// Limits of the statement per rank.
    pub(crate) fn limits(&self) -> StatementLimits {
        let limit = |bytes: u64| Some(bytes).filter(|bytes| *bytes > 0);
        StatementLimits { memory_bytes: limit(self.memory_bytes), spill_bytes: limit(self.spill_bytes) }
    }

    fn with_limits(self, limits: StatementLimits) -> Self {
        let StatementLimits { memory_bytes, spill_bytes } = self.limits().lower_of(limits);
        Self {
            memory_bytes: memory_bytes.unwrap_or_default(),
            spill_bytes: spill_bytes.unwrap_or_default(),
            ..self
        }
    }
}

impl GangExec {
    fn try_new(
        link: Link,
        plan: Arc<dyn ExecutionPlan>,
        config: &SessionConfig,
        bytes_min: usize,
    ) -> Result<Self> {
        let marked = with_dispatch(Arc::clone(&plan));
        let bytes = plan_codec::encode(&marked)?;
        let request = Request {
            kind: RequestKind::Run.into(),
            plan: bytes,
            settings: propagated_settings::text(config),
            distribute_bytes_min: bytes_min as u64,
            run: link.last_run.fetch_add(1, Ordering::Relaxed) + 1,
            ..Request::default()
        };
        let request = request.with_limits(Scope::of(config).map(|scope| scope.limits).unwrap_or_default());
        let properties = PlanProperties::new(
            EquivalenceProperties::new(plan.schema()),
            Partitioning::UnknownPartitioning(1),
            EmissionType::Incremental,
            Boundedness::Bounded,
        );
        let bytes = scanned_bytes(&plan) as u64;
        Ok(Self {
            link,
            plan,
            bytes,
            request,
            properties: Arc::new(properties),
            last_snapshot: SharedSnapshot::default(),
        })
    }

    async fn send(link: &Link, request: &Request) -> Result<(UnixStream, RunningGuard)> {
        let desk = link.inner.borrow().desk.clone();
        let Some(desk) = desk else {
            return Err(link.gang_lost());
        };
        let running_guard = RunningGuard::new(desk);
        let stream = send_request(&running_guard.0.path, request).await.map_err(|_| link.gang_lost())?;
        Ok((stream, running_guard))
    }

    /// The gang's last snapshot of the plan: taken at its beginning, its end, and on every poll. Empty before
    /// the plan is admitted.
    pub fn last_snapshot(&self) -> QueryProfile {
        self.last_snapshot.lock().snapshot.clone()
    }

    /// Polls the plan's progress on all ranks. Returns the last snapshot if it does not run or the gang does
    /// not respond.
    pub async fn poll_snapshot(&self) -> QueryProfile {
        let request =
            Request { kind: RequestKind::Snapshot.into(), run: self.request.run, ..Request::default() };
        let response = async {
            let desk = self.link.inner.borrow().desk.clone()?;
            let mut stream = send_request(&desk.path, &request).await.ok()?;
            match read_frame(&mut stream).await {
                Ok(Some((kind::SNAPSHOT, bytes))) => decode::<QueryProfile>(&bytes).ok(),
                _ => None,
            }
        };
        if let Some(snapshot) = response.await.filter(|snapshot| !snapshot.is_empty()) {
            let mut last = self.last_snapshot.lock();
            // The end may have overtaken the response.
            if last.with_rows < 2 {
                last.snapshot = snapshot;
            }
        }
        self.last_snapshot()
    }

    /// Runs EXPLAIN on the gang; returns the lines, and the rows if it was run and they were requested.
    pub async fn explain(
        &self,
        kind: RequestKind,
        verbose: bool,
        keeps_rows: bool,
        admission: Option<Arc<Admission>>,
    ) -> Result<Explained> {
        let turn = match admission.filter(|_| kind == RequestKind::Analyze) {
            Some(admission) => admission.0.admit(self.bytes).await?,
            None => Admitted::default(),
        };
        let request = Request { kind: kind.into(), verbose, keeps_rows, ..self.request.clone() };
        let request = request.with_limits(turn.limits);
        let (mut stream, _running) = Self::send(&self.link, &request).await?;
        let mut decoder = StreamDecoder::new();
        let mut explained = Explained::default();
        loop {
            match read_frame(&mut stream).await? {
                Some((kind::ROWS, bytes)) => {
                    let mut buffer = Buffer::from_vec(bytes);
                    while let Some(batch) = decoder.decode(&mut buffer)? {
                        explained.batches.push(batch);
                    }
                }
                Some((kind::LINES, bytes)) => explained.lines = decode::<Lines>(&bytes)?.lines,
                Some((kind::FAILURE, bytes)) => return Err(decode_failure(&bytes)),
                Some((kind::END, _)) => return Ok(explained),
                _ => return Err(self.link.gang_lost()),
            }
        }
    }
}

/// The result of [`GangExec::explain`].
#[derive(Debug, Default)]
pub struct Explained {
    pub lines: Vec<String>,
    pub batches: Vec<datafusion::arrow::array::RecordBatch>,
}

impl DisplayAs for GangExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "GangExec")
    }
}

impl ExecutionPlan for GangExec {
    fn name(&self) -> &'static str {
        cancelable_joins::GANG_EXEC
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.plan]
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        match children.first() {
            Some(child) if Arc::ptr_eq(child, &self.plan) => Ok(self),
            _ => internal_err!("a plan that was encoded for the gang is not changed any more"),
        }
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        // The plan's expressions belong to the plan.
        Ok(TreeNodeRecursion::Continue)
    }

    fn execute(&self, _: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let schema = self.schema();
        let (link, request, bytes) = (self.link.clone(), self.request.clone(), self.bytes);
        let last_snapshot = Arc::clone(&self.last_snapshot);
        let config = context.session_config();
        let admission = config.get_extension::<Admission>().map(|admission| Arc::clone(&admission.0));
        let wants_repeat = config.get_extension::<RetryReads>().is_some_and(|retry| retry.0);
        let may_retry = wants_repeat && !retry::writes(&self.plan);
        let rows = futures::stream::once(async move {
            let Admitted { turn, limits } = match &admission {
                Some(admission) => admission.admit(bytes).await?,
                None => Admitted::default(),
            };
            let request = request.with_limits(limits);
            Ok::<_, DataFusionError>(retry::rows(
                PlanRun { link, request, last_snapshot, may_retry, admission },
                turn,
            ))
        });
        let rows = futures::TryStreamExt::try_flatten(rows);
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, rows)))
    }
}

/// The `GangExec` that a plan is, if it is one.
pub fn on_gang(plan: &Arc<dyn ExecutionPlan>) -> Option<&GangExec> {
    plan.downcast_ref::<GangExec>()
}
