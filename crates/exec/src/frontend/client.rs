//! The front end's side of a gang that it is not part of: plans that are worth it go to the gang's
//! coordinating rank, over a local socket, and their rows come back.
//!
//! ```text
//!   front end: statement ─► one-rank plan ─► GangExec ══ local socket ══► Desk (server.rs): slices and motions ─► ranks
//!                             │ too small, or not for ranks                  rows, lines, failure ◄──────────────┘
//!                             └─► runs here
//! ```
//!
//! One connection is one request. Back pressure is the socket's: rows are read when they are asked for.
//!
//! # Cancellation
//! Whoever drops the rows closes the connection; the desk then drops the plan.
//!
//! # Crash
//! A connection that ends without an end is the loss of the gang (57P02). The front end lives on, and runs a
//! plan that reads once more if it may (`front/rows.rs`).

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
use parking_lot::Mutex;
use prost::Message;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::sync::watch;

pub use self::retry::RetryReads;
use self::retry::Run;
use crate::distribution::direct_dispatch::{marked, scanned_bytes};
use crate::distribution::gang_planner;
use crate::distribution::logical_planner::physical_plan;
use crate::monitor::plan_snapshot::Look;
use crate::operators::cancelable_joins;
use crate::transport::local_socket;
use crate::transport::plan_codec;
use crate::transport::propagated_settings;
use crate::transport::stream_metrics::RankCounts;
use harrier_error::SqlState;
use harrier_resources::spill_disks::DiskStatus;
use harrier_resources::statement_limits::{Scope, StatementLimits};

/// The largest frame that either side takes: a batch may be large, a length that is none is larger.
const FRAME_BYTES_MAX: usize = 1 << 31;

/// What a connection asks for.
#[derive(Clone, PartialEq, Message)]
pub struct Request {
    #[prost(enumeration = "Asked", tag = "1")]
    pub asked: i32,
    /// A one-rank plan.
    #[prost(bytes = "vec", tag = "2")]
    pub plan: Vec<u8>,
    /// The session's settings, as [`propagated_settings::text`] writes them.
    #[prost(string, tag = "3")]
    pub settings: String,
    #[prost(uint64, tag = "4")]
    pub distribute_bytes_min: u64,
    #[prost(bool, tag = "5")]
    pub verbose: bool,
    /// EXPLAIN ANALYZE of a statement that writes needs its rows as well.
    #[prost(bool, tag = "6")]
    pub keeps_rows: bool,
    /// Ranks to be set aside; all others are used.
    #[prost(uint64, repeated, tag = "7")]
    pub aside: Vec<u64>,
    /// What the statement may take of every rank, in bytes; 0: as much as there is.
    #[prost(uint64, tag = "8")]
    pub memory_bytes: u64,
    #[prost(uint64, tag = "9")]
    pub spill_bytes: u64,
    /// The number under which the statement that is to run may be looked at, or the one that is to be looked
    /// at; 0: nobody will look.
    #[prost(uint64, tag = "10")]
    pub run: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, prost::Enumeration)]
pub enum Asked {
    Nothing = 0,
    Run = 1,
    Explain = 2,
    Analyze = 3,
    /// How the gang is, again and again. The gang ends when the connection does.
    Hold = 4,
    /// That statements begin without some ranks.
    Aside = 5,
    /// What a statement that runs has done so far.
    Look = 6,
}

/// Kinds of frames that come back; each is a byte, four bytes of length, and that many bytes.
pub(crate) mod kind {
    /// A part of an Arrow IPC stream: one message with its batch, or the schema.
    pub(crate) const ROWS: u8 = 1;
    /// [`super::Lines`].
    pub(crate) const LINES: u8 = 2;
    /// [`super::Failure`]: nothing comes behind it.
    pub(crate) const FAILURE: u8 = 3;
    /// [`super::Status`].
    pub(crate) const STATUS: u8 = 4;
    /// All went well; nothing comes behind it.
    pub(crate) const END: u8 = 5;
    /// [`crate::monitor::plan_snapshot::Look`]: of a statement that runs, before its first row and behind its
    /// last.
    pub(crate) const LOOK: u8 = 6;
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

/// How a gang is.
#[derive(Clone, PartialEq, Message)]
pub struct Status {
    #[prost(message, repeated, tag = "1")]
    pub ranks: Vec<RankStatus>,
    /// The MPI library or protocol, for people.
    #[prost(string, tag = "2")]
    pub library: String,
    #[prost(string, tag = "3")]
    pub version: String,
    /// Threads that a statement may keep busy on a rank.
    #[prost(uint64, tag = "4")]
    pub threads: u64,
}

#[derive(Clone, PartialEq, Message)]
pub struct RankStatus {
    #[prost(string, tag = "1")]
    pub host: String,
    #[prost(uint32, tag = "2")]
    pub pid: u32,
    /// It takes part in statements; else it is a spare, or lost.
    #[prost(bool, tag = "3")]
    pub works: bool,
    /// Why it is lost, if it is.
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
    /// It takes part in no statement until it is marked up again.
    #[prost(bool, tag = "10")]
    pub aside: bool,
    /// Where it spills to; known of ranks that work.
    #[prost(message, repeated, tag = "11")]
    pub disks: Vec<DiskStatus>,
    #[prost(uint64, tag = "12")]
    pub resident_bytes: u64,
    /// Known of ranks that work.
    #[prost(message, required, tag = "13")]
    pub counts: RankCounts,
    /// Nanoseconds by which its clock is ahead of rank 0's.
    #[prost(sint64, tag = "14")]
    pub clock_ahead_ns: i64,
}

/// What is told of a rank that was set aside.
const ASIDE: &str = "marked down";

impl RankStatus {
    /// Whether it can take part in no statement.
    pub fn is_down(&self) -> bool {
        self.lost.is_some() || self.aside
    }

    /// Why it is down, if it is.
    pub fn reason(&self) -> Option<String> {
        self.lost.clone().or_else(|| self.aside.then(|| ASIDE.to_string()))
    }
}

/// Where a gang's desk is, and how many statements are there.
#[derive(Debug)]
pub struct Place {
    path: PathBuf,
    running: AtomicUsize,
}

impl Place {
    /// Statements that the gang runs for this process.
    pub fn running(&self) -> usize {
        self.running.load(Ordering::Relaxed)
    }
}

/// A statement at a desk, until it is dropped.
struct Visit(Arc<Place>);

impl Visit {
    fn new(place: Arc<Place>) -> Self {
        place.running.fetch_add(1, Ordering::Relaxed);
        Self(place)
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A gang that is held: it ends when this is dropped.
pub struct Hold(UnixStream);

impl Hold {
    /// Takes hold of the gang whose desk is at `path`. Errors: it is not there, or not there yet.
    pub async fn take(path: &Path) -> Result<Self> {
        ask(path, &Request { asked: Asked::Hold.into(), ..Request::default() }).await.map(Self)
    }

    /// How the gang is, the next time that it tells, which is every second or when something happens.
    ///
    /// Errors: the gang is lost.
    pub async fn next(&mut self) -> Result<Status> {
        match read_frame(&mut self.0).await? {
            Some((kind::STATUS, bytes)) => decode(&bytes),
            Some((kind::FAILURE, bytes)) => Err(failed(&bytes)),
            _ => Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
        }
    }
}

/// A way to a gang that may come and go. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Link {
    inner: Arc<watch::Sender<LinkState>>,
    /// The number of the last plan.
    last_run: Arc<AtomicU64>,
}

#[derive(Debug, Default)]
struct LinkState {
    /// None while there is no gang.
    desk: Option<Arc<Place>>,
    /// Output partitions that plans for the gang are made with.
    partitions: usize,
    /// How many ranks the gang has.
    ranks: usize,
    /// Why the gang was lost last.
    reason: String,
}

impl Link {
    /// From now on plans go to the desk at `path`, made for so many ranks of `threads`.
    pub fn up(&self, path: &Path, ranks: usize, threads: usize) -> Arc<Place> {
        let place = Arc::new(Place { path: path.to_path_buf(), running: AtomicUsize::new(0) });
        self.inner.send_modify(|inner| {
            inner.desk = Some(Arc::clone(&place));
            // With one partition there is no redistribution that could become a motion.
            inner.partitions = threads.max(2);
            inner.ranks = ranks;
        });
        place
    }

    /// From now on everything runs in this process.
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
    /// process, whose operators mean nothing to ranks.
    pub fn configure(
        &self,
        builder: SessionStateBuilder,
        here_only: Arc<dyn PhysicalOptimizerRule + Send + Sync>,
    ) -> SessionStateBuilder {
        let planner = FrontPlanner { link: self.clone(), here_only: here_only.name().to_string() };
        builder.with_physical_optimizer_rule(here_only).with_query_planner(Arc::new(planner))
    }

    fn lost(&self) -> DataFusionError {
        let reason = &self.inner.borrow().reason;
        let message = match reason.is_empty() {
            true => "the gang is lost".to_string(),
            false => format!("the gang is lost: {reason}"),
        };
        harrier_sqlstate::remote(SqlState::CRASH_SHUTDOWN, message)
    }
}

/// Has statements that begin from now on run without these ranks, and with all others.
///
/// Errors: there is no gang at `path` any more.
pub async fn set_aside(path: &Path, ranks: impl IntoIterator<Item = usize>) -> Result<()> {
    let aside = ranks.into_iter().map(|rank| rank as u64).collect();
    let mut stream = ask(path, &Request { asked: Asked::Aside.into(), aside, ..Request::default() }).await?;
    match read_frame(&mut stream).await? {
        Some((kind::END, _)) => Ok(()),
        Some((kind::FAILURE, bytes)) => Err(failed(&bytes)),
        _ => Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
    }
}

async fn ask(path: &Path, request: &Request) -> Result<UnixStream> {
    let mut stream = local_socket::connect(path).await?;
    let bytes = request.encode_to_vec();
    stream.write_all(&(bytes.len() as u32).to_le_bytes()).await?;
    stream.write_all(&bytes).await?;
    Ok(stream)
}

/// The next frame; `None` if the other side has closed the connection.
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

fn failed(bytes: &[u8]) -> DataFusionError {
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
            if !gang_planner::may_spread(&here) || scanned_bytes(&here) < bytes_min.max(1) {
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
                // What cannot be sent, such as a table in memory that is none of files, runs here.
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

/// Lets statements onto the gang. An extension of the session's settings.
#[derive(Clone)]
pub struct Admission(pub Arc<dyn Admit>);

/// Who decides when a statement may run on the gang.
pub trait Admit: Send + Sync {
    /// Waits for the turn of a statement that reads so many bytes. Cancel-safe.
    fn admit(&self, bytes: u64) -> BoxFuture<'static, Result<Admitted>>;

    /// The statement is run once more, because a rank was lost before its first row, for this reason.
    fn repeated(&self, reason: &str);
}

/// The turn of a statement on the gang.
#[derive(Default)]
pub struct Admitted {
    /// The turn ends when it is dropped.
    pub turn: Option<Box<dyn Any + Send>>,
    /// What it may take of every rank.
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
    /// What the gang told last of what the plan does there.
    told: Told,
}

type Told = Arc<Mutex<LastTold>>;

#[derive(Debug, Default)]
struct LastTold {
    look: Look,
    /// How many of the looks came with the rows: the second is the last word.
    with_rows: usize,
}

impl Request {
    /// What the statement may take of every rank.
    pub(crate) fn limits(&self) -> StatementLimits {
        let limit = |bytes: u64| Some(bytes).filter(|bytes| *bytes > 0);
        StatementLimits { memory_bytes: limit(self.memory_bytes), spill_bytes: limit(self.spill_bytes) }
    }

    fn limited(self, limits: StatementLimits) -> Self {
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
        let marked = marked(Arc::clone(&plan));
        let bytes = plan_codec::encode(&marked)?;
        let request = Request {
            asked: Asked::Run.into(),
            plan: bytes,
            settings: propagated_settings::text(config),
            distribute_bytes_min: bytes_min as u64,
            run: link.last_run.fetch_add(1, Ordering::Relaxed) + 1,
            ..Request::default()
        };
        let request = request.limited(Scope::of(config).map(|scope| scope.limits).unwrap_or_default());
        let properties = PlanProperties::new(
            EquivalenceProperties::new(plan.schema()),
            Partitioning::UnknownPartitioning(1),
            EmissionType::Incremental,
            Boundedness::Bounded,
        );
        let bytes = scanned_bytes(&plan) as u64;
        Ok(Self { link, plan, bytes, request, properties: Arc::new(properties), told: Told::default() })
    }

    async fn ask(link: &Link, request: &Request) -> Result<(UnixStream, Visit)> {
        let desk = link.inner.borrow().desk.clone();
        let Some(desk) = desk else {
            return Err(link.lost());
        };
        let visit = Visit::new(desk);
        let stream = ask(&visit.0.path, request).await.map_err(|_| link.lost())?;
        Ok((stream, visit))
    }

    /// What the gang told last of what the plan does there: in the beginning, at its end, and whenever it was
    /// looked at. Empty before the plan has come to its turn.
    pub fn told(&self) -> Look {
        self.told.lock().look.clone()
    }

    /// What the plan has done until now, asked of all ranks. What was told before, if it does not run or the
    /// gang does not answer.
    pub async fn look(&self) -> Look {
        let request = Request { asked: Asked::Look.into(), run: self.request.run, ..Request::default() };
        let asked = async {
            let desk = self.link.inner.borrow().desk.clone()?;
            let mut stream = ask(&desk.path, &request).await.ok()?;
            match read_frame(&mut stream).await {
                Ok(Some((kind::LOOK, bytes))) => decode::<Look>(&bytes).ok(),
                _ => None,
            }
        };
        if let Some(look) = asked.await.filter(|look| !look.is_empty()) {
            let mut told = self.told.lock();
            // The answer may have been overtaken by the end.
            if told.with_rows < 2 {
                told.look = look;
            }
        }
        self.told()
    }

    /// What EXPLAIN says of the plan, and the rows if it was run and they were asked for.
    pub async fn explain(
        &self,
        asked: Asked,
        verbose: bool,
        keeps_rows: bool,
        admission: Option<Arc<Admission>>,
    ) -> Result<Explained> {
        let turn = match admission.filter(|_| asked == Asked::Analyze) {
            Some(admission) => admission.0.admit(self.bytes).await?,
            None => Admitted::default(),
        };
        let request = Request { asked: asked.into(), verbose, keeps_rows, ..self.request.clone() };
        let request = request.limited(turn.limits);
        let (mut stream, _visit) = Self::ask(&self.link, &request).await?;
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
                Some((kind::FAILURE, bytes)) => return Err(failed(&bytes)),
                Some((kind::END, _)) => return Ok(explained),
                _ => return Err(self.link.lost()),
            }
        }
    }
}

/// What came of [`GangExec::explain`].
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
        // Those of the plan are its own.
        Ok(TreeNodeRecursion::Continue)
    }

    fn execute(&self, _: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let schema = self.schema();
        let (link, request, bytes) = (self.link.clone(), self.request.clone(), self.bytes);
        let told = Arc::clone(&self.told);
        let config = context.session_config();
        let admission = config.get_extension::<Admission>().map(|admission| Arc::clone(&admission.0));
        let wants_repeat = config.get_extension::<RetryReads>().is_some_and(|retry| retry.0);
        let may_repeat = wants_repeat && !retry::writes(&self.plan);
        let rows = futures::stream::once(async move {
            let Admitted { turn, limits } = match &admission {
                Some(admission) => admission.admit(bytes).await?,
                None => Admitted::default(),
            };
            let request = request.limited(limits);
            Ok::<_, DataFusionError>(retry::rows(Run { link, request, told, may_repeat, admission }, turn))
        });
        let rows = futures::TryStreamExt::try_flatten(rows);
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, rows)))
    }
}

/// The plan as one that runs on the gang, if it is.
pub fn on_gang(plan: &Arc<dyn ExecutionPlan>) -> Option<&GangExec> {
    plan.downcast_ref::<GangExec>()
}
