//! Gang membership of a rank: joins, takes part in statements, coordinates them on rank 0, leaves.
//!
//! # Order of calls
//! [`Gang::join`], [`Gang::attach`] with the engine's runtime; then rank 0 calls [`Gang::statement`] for
//! every statement, the others [`Gang::follow`]; last, all call [`Gang::leave`].
//!
//! # Crash
//! A statement fails (57P02) on every rank if it loses a participating rank. The next one runs on the
//! remaining ranks, with a spare replacing the lost one if there is one: see [`Gang::members`]. Ranks keep no
//! state between statements, so there is nothing to restore. Without rank 0 there is no gang.

pub(crate) mod ledger;
pub(crate) mod rank_loss;

use crate::distribution::distribution_config::DistributionConfig;
use crate::distribution::gang_planner;
use crate::distribution::task_assignment;
use crate::functions;
use crate::operators::cancelable_joins;
use crate::transport::broadcast::Broadcasts;
use crate::transport::channel::{RankChannels, Ranks, rank_url};
use crate::transport::clock_offset::{self, ClockSample};
use crate::transport::grpc::GrpcServer;
use crate::transport::in_process::LoopbackChannels;
use crate::transport::messages::{
    self, ClockReport, ClockRequest, GrpcAddress, GrpcRequest, Operation, RankReport, ReportRequest, Request,
    Retained, TaskMetricsList, TaskMetricsRequest,
};
use crate::transport::plan_codec::node_codec;
use crate::transport::propagated_settings;
use crate::transport::remote_error;
use crate::transport::running_tasks::{RunningTaskMetrics, Tasks};
use crate::transport::service;
use crate::transport::service::RankService;
use crate::transport::task_reaper::Janitor;
use datafusion::common::{Result, exec_datafusion_err, internal_datafusion_err};
use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::execution::session_state::SessionState;
use datafusion::execution::{SendableRecordBatchStream, SessionStateBuilder};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::prelude::SessionConfig;
use datafusion_distributed::grpc::DefaultChannelResolver;
use datafusion_distributed::{
    ChannelResolver, DistributedConfig, DistributedExec, DistributedExt, Worker, WorkerPlanRewriteEvent,
    WorkerPlanRewriteEventResponse, WorkerQueryContext,
};
use futures::{FutureExt, StreamExt};
use harrier_error::SqlState;
use harrier_interconnect::{
    Carrier, ConfigurationFact, Departure, Interconnect, Launch, Options, Peer, StartError,
};
use harrier_resources::cancellation::CancelFlag;
use harrier_resources::spill_disks::Disks;
use harrier_resources::statement_limits::{Scope, StatementEnvironments};
use harrier_resources::statement_memory;
use harrier_resources::statement_memory::StatementMemory;
use harrier_resources::value_account::Account;
use prost::Message;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};
use tokio::runtime::Handle;
use tokio::sync::{Mutex, OnceCell};
use url::Url;

/// Environment variable: 0 disables shared memory between ranks of one host. The same on every rank.
const SHARED_MEMORY: &str = "HARRIER_SHARED_MEMORY";

/// How long resources of a statement may stay in use after its end: tasks are dropped at their next await,
/// and the ends of streams cross the network.
const LEDGER_TIMEOUT: Duration = Duration::from_secs(2);

/// Immediate polls of a ledger that is not clear yet, before polling with pauses: resources are usually
/// released within microseconds, and timers cannot pause for less than a millisecond.
const LEDGER_LOOKS_AT_ONCE: u32 = 8;

/// Bounds of the exponential backoff between later polls.
const LEDGER_PAUSE_MIN: Duration = Duration::from_millis(1);
const LEDGER_PAUSE_MAX: Duration = Duration::from_millis(20);

/// Makes this process pretend to be another build, so that a test can launch mismatched ranks.
const BUILD_VARIABLE: &str = "HARRIER_PRETEND_BUILD";

/// The transport of a statement's rows between ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowTransport {
    /// The interconnect.
    Mpi,
    /// datafusion-distributed's own, for comparison.
    Grpc,
}

/// Options of a statement on the gang.
#[derive(Clone, Copy, Debug)]
pub struct StatementOptions {
    pub transport: RowTransport,
    /// A scan of fewer bytes than this stays on one rank.
    pub distribute_bytes_min: usize,
    /// The number by which [`Gang::task_metrics`] finds it while it runs; `None`: it is not polled.
    pub run: Option<u64>,
}

/// Options of this rank for joining a gang, from its environment.
pub fn interconnect_options(carrier: Carrier) -> Options {
    Options {
        carrier,
        version: std::env::var(BUILD_VARIABLE).unwrap_or_else(|_| crate::VERSION.to_string()),
        shared_memory: std::env::var_os(SHARED_MEMORY).is_none_or(|value| value != "0"),
        facts: Vec::new(),
    }
}

/// This rank's membership in the gang. Cheap to clone.
#[derive(Clone)]
pub struct Gang {
    inner: Arc<Inner>,
}

struct Inner {
    links: Links,
    /// Channels to every rank, for the coordinator's plans and this rank's slices alike.
    channels: Arc<dyn ChannelResolver + Send + Sync>,
    worker: OnceLock<Worker>,
    runtime_env: OnceLock<Arc<RuntimeEnv>>,
    disks: OnceLock<Disks>,
    /// Environments of statements with limits.
    limited: StatementEnvironments,
    janitor: Janitor,
    /// The tasks running on this rank.
    tasks: Tasks,
    clocks: OnceCell<Vec<i64>>,
    grpc: Arc<GrpcServer>,
    /// Addresses of the ranks' gRPC servers started so far, on the coordinator.
    grpc_ranks: Mutex<BTreeMap<usize, Url>>,
    /// The most ranks that take part in a statement; the others are spares.
    working: usize,
    /// Ranks marked down: they take part in no statement, as if they were lost.
    marked_down: parking_lot::Mutex<BTreeSet<usize>>,
    /// Losses that earlier statements have already failed with.
    reported_losses: AtomicUsize,
    /// Number of statements started over gRPC.
    by_grpc: AtomicU64,
    /// [`Gang::uses`] when the ledgers of all ranks were last found clear.
    clear_at: AtomicU64,
    /// The ranks were started by a launcher, and end with it.
    has_launcher: bool,
}

enum Links {
    /// Ranks are processes connected by MPI or a hosts file.
    Processes(Interconnect),
    /// Ranks are workers inside this process, for measuring transport costs.
    InProcess { workers: Arc<OnceLock<Vec<Worker>>>, ranks: usize },
}

impl std::fmt::Debug for Gang {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Gang(rank {} of {})", self.rank(), self.ranks())
    }
}

impl Gang {
    /// Joins the gang that this process was launched for. Collective; blocks until every rank has joined.
    /// `spares` ranks, fewer than there are, take part in statements only when others are lost; the same
    /// number on every rank.
    pub fn join(launch: Launch, spares: usize) -> Result<Gang, StartError> {
        let has_launcher = matches!(launch.carrier, Carrier::Mpi { .. });
        let mut options = interconnect_options(launch.carrier);
        options.facts = launch.facts;
        options.facts.push(ConfigurationFact::new("spares", &spares.to_string()));
        let interconnect = Interconnect::start(options)?;
        Ok(Gang::with(interconnect, spares, has_launcher))
    }

    /// A gang over an interconnect that has joined already.
    pub fn from_interconnect(interconnect: Interconnect, spares: usize) -> Gang {
        Gang::with(interconnect, spares, false)
    }

    fn with(interconnect: Interconnect, spares: usize, has_launcher: bool) -> Gang {
        let peers = interconnect.peers();
        let many_hosts = peers.iter().any(|peer| !peer.here);
        let host = many_hosts.then(|| peers[interconnect.rank()].host.clone());
        let channels =
            RankChannels { interconnect: interconnect.clone(), grpc: DefaultChannelResolver::default() };
        let working = interconnect.ranks().saturating_sub(spares).max(1);
        Gang {
            inner: Arc::new(Inner {
                links: Links::Processes(interconnect),
                working,
                reported_losses: AtomicUsize::new(0),
                by_grpc: AtomicU64::new(0),
                clear_at: AtomicU64::new(0),
                has_launcher,
                channels: Arc::new(channels),
                worker: OnceLock::new(),
                runtime_env: OnceLock::new(),
                disks: OnceLock::new(),
                limited: StatementEnvironments::default(),
                marked_down: parking_lot::Mutex::default(),
                janitor: Janitor::default(),
                tasks: Tasks::default(),
                clocks: OnceCell::new(),
                grpc: Arc::new(GrpcServer::new(host)),
                grpc_ranks: Mutex::default(),
            }),
        }
    }

    /// A gang of `ranks` workers inside this process, of which this is rank 0.
    pub fn in_process(ranks: usize) -> Gang {
        let workers = Arc::new(OnceLock::new());
        Gang {
            inner: Arc::new(Inner {
                links: Links::InProcess { workers: Arc::clone(&workers), ranks },
                working: ranks,
                reported_losses: AtomicUsize::new(0),
                by_grpc: AtomicU64::new(0),
                clear_at: AtomicU64::new(0),
                has_launcher: false,
                channels: Arc::new(LoopbackChannels(workers)),
                worker: OnceLock::new(),
                runtime_env: OnceLock::new(),
                disks: OnceLock::new(),
                limited: StatementEnvironments::default(),
                marked_down: parking_lot::Mutex::default(),
                janitor: Janitor::default(),
                tasks: Tasks::default(),
                clocks: OnceCell::new(),
                grpc: Arc::new(GrpcServer::new(None)),
                grpc_ranks: Mutex::default(),
            }),
        }
    }

    pub fn rank(&self) -> usize {
        match &self.inner.links {
            Links::Processes(interconnect) => interconnect.rank(),
            Links::InProcess { .. } => 0,
        }
    }

    pub fn ranks(&self) -> usize {
        match &self.inner.links {
            Links::Processes(interconnect) => interconnect.ranks(),
            Links::InProcess { ranks, .. } => *ranks,
        }
    }

    /// The ranks of the next statement, in order; rank 0 is the first of them. Excludes ranks that are lost
    /// or marked down.
    pub fn members(&self) -> Vec<usize> {
        self.members_after(&self.losses())
    }

    fn members_after(&self, losses: &[(usize, String)]) -> Vec<usize> {
        let marked_down = self.inner.marked_down.lock();
        let usable =
            |rank: &usize| !marked_down.contains(rank) && losses.iter().all(|(lost, _)| lost != rank);
        (0..self.ranks()).filter(usable).take(self.inner.working).collect()
    }

    /// Marks these ranks down for later statements, and all others up; spares replace them. Rank 0 stays: it
    /// coordinates. Call it on rank 0.
    pub fn mark_down(&self, ranks: impl IntoIterator<Item = usize>) {
        *self.inner.marked_down.lock() = ranks.into_iter().filter(|rank| *rank > 0).collect();
    }

    /// The ranks marked down.
    pub fn marked_down(&self) -> BTreeSet<usize> {
        self.inner.marked_down.lock().clone()
    }

    /// The rows of the last statement begun by [`Gang::statement`], until one of its ranks is lost: then an
    /// error (57P02). A plan that stays on this rank is not affected.
    pub fn fail_on_rank_loss(
        &self,
        plan: &Arc<dyn ExecutionPlan>,
        rows: SendableRecordBatchStream,
    ) -> SendableRecordBatchStream {
        let Links::Processes(interconnect) = &self.inner.links else {
            return rows;
        };
        if !plan.is::<DistributedExec>() {
            return rows;
        }
        let interconnect = interconnect.clone();
        let mut known = self.inner.reported_losses.load(Ordering::Relaxed);
        let members = self.members_after(&interconnect.losses()[..known]);
        let loss = async move {
            loop {
                let losses = interconnect.wait_for_losses(known).await;
                let loss = losses[known..].iter().find(|(rank, _)| members.contains(rank));
                if let Some(loss) = loss {
                    return loss.clone();
                }
                known = losses.len();
            }
        };
        rank_loss::fail_on_rank_loss(loss.boxed(), rows)
    }

    /// All ranks, by number; empty for a gang inside one process.
    pub fn peers(&self) -> &[Peer] {
        match &self.inner.links {
            Links::Processes(interconnect) => interconnect.peers(),
            Links::InProcess { .. } => &[],
        }
    }

    /// Whether the process that started this one is the gang's launcher, with which the gang ends.
    pub fn has_launcher(&self) -> bool {
        self.inner.has_launcher
    }

    /// The MPI library or the protocol in use, for display.
    pub fn library(&self) -> &str {
        match &self.inner.links {
            Links::Processes(interconnect) => interconnect.library(),
            Links::InProcess { .. } => "none: the ranks share one process",
        }
    }

    /// Lets this rank run its parts of plans, with the memory, spill folders and object stores of
    /// `runtime_env`. From now on it serves other ranks, and reports the state of `disks` to them. Call it
    /// once, inside the tokio runtime that will do the work.
    pub fn attach(&self, runtime_env: Arc<RuntimeEnv>, disks: Option<Disks>) {
        if let Some(disks) = &disks {
            let _ = self.inner.disks.set(disks.clone());
        }
        let worker = || {
            let channels = Arc::clone(&self.inner.channels);
            let inner = Arc::downgrade(&self.inner);
            let tasks = self.inner.tasks.clone();
            Worker::from_session_builder(move |context| {
                build_session(context, Arc::clone(&channels), Weak::clone(&inner), tasks.clone())
            })
            .with_runtime_env(Arc::clone(&runtime_env))
            .with_version(crate::VERSION)
        };
        let own = worker();
        let inner = &self.inner;
        if inner.worker.set(own.clone()).is_err() || inner.runtime_env.set(Arc::clone(&runtime_env)).is_err()
        {
            panic!("a rank is attached once");
        }
        tokio::spawn(inner.janitor.clone().work(own.clone()));
        match &self.inner.links {
            Links::Processes(interconnect) => interconnect.serve(Arc::new(RankService {
                worker: own,
                interconnect: interconnect.clone(),
                grpc: Arc::clone(&self.inner.grpc),
                runtime_env: Arc::clone(&runtime_env),
                disks,
                janitor: self.inner.janitor.clone(),
                tasks: self.inner.tasks.clone(),
                limited: self.inner.limited.clone(),
                broadcasts: Broadcasts::default(),
                runtime: Handle::current(),
            })),
            Links::InProcess { workers, ranks } => {
                let others = (1..*ranks).map(|_| worker());
                workers.set(std::iter::once(own).chain(others).collect()).unwrap_or_else(|_| unreachable!());
            }
        }
    }

    fn worker(&self) -> &Worker {
        self.inner.worker.get().expect("Gang::attach comes before any statement")
    }

    /// The memory and temporary files of a statement, within this rank's.
    pub fn environment(&self, scope: &Scope) -> Result<Arc<RuntimeEnv>> {
        self.environment_within(scope, self.runtime_env())
    }

    /// The same within those of a session of this rank, if this is the statement's first part here.
    pub fn environment_within(&self, scope: &Scope, session: &Arc<RuntimeEnv>) -> Result<Arc<RuntimeEnv>> {
        self.inner.limited.of(scope, session, self.inner.disks.get())
    }

    /// The memory account of a statement's functions on this rank.
    pub(crate) fn account(&self, scope: Option<&Scope>, canceled: CancelFlag) -> Account {
        Account::new(self.runtime_env(), scope, canceled)
    }

    fn runtime_env(&self) -> &Arc<RuntimeEnv> {
        self.inner.runtime_env.get().expect("Gang::attach comes before any statement")
    }

    /// Registers datafusion-distributed's own settings (`distributed.…`) in `config`.
    pub fn declare_settings(&self, config: &mut SessionConfig) {
        config.set_distributed_option_extension(DistributedConfig::default());
    }

    /// Makes `builder` plan for the gang. Call it once per session, on rank 0.
    pub fn configure(&self, builder: SessionStateBuilder) -> SessionStateBuilder {
        let mut builder = builder;
        let config = builder.config().get_or_insert_default();
        task_assignment::register(config);
        config.set_distributed_user_codec(node_codec());
        gang_planner::install(builder)
    }

    /// Begins a statement on the gang.
    ///
    /// Errors: this rank cannot reach any other (57P02); a gRPC server cannot be started.
    pub async fn statement(&self, options: StatementOptions) -> Result<GangStatement> {
        if let Links::Processes(interconnect) = &self.inner.links {
            // A rank that has ended before the statement began does not fail it.
            interconnect.check_processes().await;
            if let Some(reason) = interconnect.failure_reason() {
                let message = format!("the gang is lost: {reason}");
                return Err(harrier_sqlstate::remote(SqlState::CRASH_SHUTDOWN, message));
            }
        }
        let losses = self.losses();
        self.inner.reported_losses.store(losses.len(), Ordering::Relaxed);
        let members = self.members();
        let urls = match options.transport {
            RowTransport::Mpi => members.iter().copied().map(rank_url).collect(),
            RowTransport::Grpc => {
                self.inner.by_grpc.fetch_add(1, Ordering::Relaxed);
                self.grpc_ranks(&members).await?
            }
        };
        let StatementOptions { distribute_bytes_min, run, .. } = options;
        Ok(GangStatement { gang: self.clone(), distribute_bytes_min, run, members, urls })
    }

    /// The gRPC addresses of `members`, which start their servers on the first request.
    async fn grpc_ranks(&self, members: &[usize]) -> Result<Vec<Url>> {
        let mut known = self.inner.grpc_ranks.lock().await;
        for &rank in members {
            if known.contains_key(&rank) {
                continue;
            }
            let url = match rank {
                0 => self.inner.grpc.start(self.worker()).await?,
                _ => {
                    let answer: GrpcAddress = self.request(rank, Operation::Grpc(GrpcRequest {})).await?;
                    Url::parse(&answer.url)
                        .map_err(|error| exec_datafusion_err!("gRPC address of rank {rank}: {error}"))?
                }
            };
            known.insert(rank, url);
        }
        Ok(members.iter().map(|rank| known[rank].clone()).collect())
    }

    /// Calls `rank` and returns its single response.
    async fn request<M: Message + Default>(&self, rank: usize, operation: Operation) -> Result<M> {
        let Links::Processes(interconnect) = &self.inner.links else {
            return Err(internal_datafusion_err!("a gang inside one process has nobody to ask"));
        };
        let (_messages, mut answers) =
            interconnect.call(rank, &Request { operation: Some(operation) }.encode_to_vec());
        match answers.next().await {
            Some(Ok(answer)) => messages::decode(&answer),
            Some(Err(error)) => Err(remote_error::from_stream(error)),
            None => Err(internal_datafusion_err!("rank {rank} gave no answer")),
        }
    }

    /// The counters of every member since it joined, in order.
    pub async fn reports(&self) -> Result<Vec<RankReport>> {
        Ok(self.reports_by_rank().await?.into_iter().map(|(_, report)| report).collect())
    }

    /// As [`Gang::reports`], with the rank of each.
    pub async fn reports_by_rank(&self) -> Result<Vec<(usize, RankReport)>> {
        let Links::Processes(interconnect) = &self.inner.links else {
            return Ok(vec![(0, RankReport::of_process())]);
        };
        let own = service::report(interconnect, self.runtime_env(), self.inner.disks.get(), 0);
        let mut reports = vec![(0, own)];
        for rank in self.members().into_iter().skip(1) {
            reports.push((rank, self.request(rank, Operation::Report(ReportRequest {})).await?));
        }
        Ok(reports)
    }

    /// Nanoseconds by which the clock of every rank is ahead of this one's, by rank. Measured on the first
    /// call, for ranks on other hosts that respond; see `clock_offset.rs`. Call it on rank 0.
    pub async fn clocks(&self) -> &[i64] {
        self.inner.clocks.get_or_init(|| self.measure_clocks()).await
    }

    async fn measure_clocks(&self) -> Vec<i64> {
        let mut ahead = vec![0; self.ranks()];
        let others =
            self.members().into_iter().filter(|rank| self.peers().get(*rank).is_some_and(|p| !p.here));
        for rank in others {
            let mut answers = Vec::with_capacity(clock_offset::SAMPLES);
            for _ in 0..clock_offset::SAMPLES {
                let sent_at = clock_offset::now_ns();
                let report: Result<ClockReport> = self.request(rank, Operation::Clock(ClockRequest {})).await;
                // A rank that is lost in between has no clock any more.
                let Ok(ClockReport { now_ns: remote_at }) = report else { break };
                answers.push(ClockSample { sent_at, remote_at, received_at: clock_offset::now_ns() });
            }
            ahead[rank] = clock_offset::ahead(&answers).unwrap_or(0);
        }
        ahead
    }

    /// Current metrics of a running statement's tasks, from every member that responds. Also records the
    /// statement's resource usage there in `memory`.
    pub async fn task_metrics(&self, run: u64, memory: &StatementMemory) -> Vec<RunningTaskMetrics> {
        let mut metrics = self.inner.tasks.metrics(run);
        if matches!(self.inner.links, Links::InProcess { .. }) {
            return metrics;
        }
        let others = self.members().into_iter().skip(1).map(|rank| async move {
            let answer: Result<TaskMetricsList> =
                self.request(rank, Operation::TaskMetrics(TaskMetricsRequest { run })).await;
            // A rank that is lost in between reports nothing.
            let TaskMetricsList { tasks, memory: used } = answer.unwrap_or_default();
            if let Some(used) = used {
                memory.record(rank, used);
            }
            tasks
        });
        metrics.extend(futures::future::join_all(others).await.into_iter().flatten());
        metrics
    }

    /// Releases what a statement that has just ended still holds on this rank; the others do so by
    /// themselves. Never blocks: the release follows soon.
    pub fn release_ended(&self) {
        self.inner.janitor.call();
    }

    /// A counter of interactions with other ranks: it grows with everything that they may hold for this one.
    fn uses(&self, interconnect: &Interconnect) -> u64 {
        interconnect.streams_opened() + self.inner.by_grpc.load(Ordering::Relaxed)
    }

    /// Checks that ended statements have released everything on every rank except `retained`: streams,
    /// frames, memory, lent blocks. Call it while none runs. Ranks that were clear and have not been used
    /// since are skipped. Anything left after [`LEDGER_TIMEOUT`] is logged and an error, until it is
    /// released. A rank that is lost meanwhile has nothing left.
    ///
    /// Errors: something is left (XX000).
    pub async fn check_ledger(&self, retained: Retained) -> Result<()> {
        let Links::Processes(interconnect) = &self.inner.links else {
            return Ok(());
        };
        let deadline = Instant::now() + LEDGER_TIMEOUT;
        let gang = self;
        if gang.uses(interconnect) != gang.inner.clear_at.load(Ordering::Relaxed) {
            let checks = interconnect.members().into_iter().skip(1).map(|rank| {
                let report = move || async move {
                    match gang.request::<RankReport>(rank, Operation::Report(ReportRequest {})).await {
                        Err(_) if gang.losses().iter().any(|(lost, _)| *lost == rank) => Ok(None),
                        Ok(report) if !report.is_clear(retained) => {
                            // Blocks lent by that rank may be held by tasks that this rank has not cleaned up
                            // yet.
                            gang.release_ended();
                            Ok(Some(report))
                        }
                        report => report.map(Some),
                    }
                };
                until_clear(rank, retained, deadline, report)
            });
            futures::future::try_join_all(checks).await?;
        }
        // Counts these requests, and nothing else: no statement runs.
        let uses = gang.uses(interconnect);
        // This rank last: each request to another one opens a stream here for a moment.
        let report = move || {
            let report = service::held_resources(interconnect, gang.runtime_env(), 0);
            if !report.is_clear(retained) {
                gang.release_ended();
            }
            std::future::ready(Ok(Some(report)))
        };
        until_clear(0, retained, deadline, report).await?;
        self.inner.clear_at.store(uses, Ordering::Relaxed);
        Ok(())
    }

    /// On ranks other than 0: serves other ranks until rank 0 leaves or is lost, and returns the exit status
    /// to adopt.
    pub async fn follow(&self) -> Departure {
        match &self.inner.links {
            Links::Processes(interconnect) => interconnect.departure(0).await,
            Links::InProcess { .. } => Departure::Exited { status: 0 },
        }
    }

    /// Waits until a rank is lost that no earlier statement has failed with: its number and the reason.
    pub async fn next_loss(&self) -> (usize, String) {
        let known = self.inner.reported_losses.load(Ordering::Relaxed);
        match &self.inner.links {
            Links::Processes(interconnect) => interconnect.wait_for_losses(known).await.swap_remove(known),
            Links::InProcess { .. } => std::future::pending().await,
        }
    }

    /// The ranks lost so far, in order, with the reasons.
    pub fn losses(&self) -> Vec<(usize, String)> {
        match &self.inner.links {
            Links::Processes(interconnect) => interconnect.losses(),
            Links::InProcess { .. } => vec![],
        }
    }

    /// Whether a rank was lost since the last statement began.
    pub fn has_new_loss(&self) -> bool {
        self.losses().len() > self.inner.reported_losses.load(Ordering::Relaxed)
    }

    /// Leaves the gang. Blocks until all ranks do, a few seconds at most.
    pub fn leave(&self, status: i32) {
        if let Links::Processes(interconnect) = &self.inner.links {
            interconnect.leave(status);
        }
    }
}

/// Polls the `report` of `rank` until nothing is left there; `None`: the rank is gone.
///
/// Errors: something is left at the `deadline` (XX000); the report fails.
async fn until_clear<R: Future<Output = Result<Option<RankReport>>>>(
    rank: usize,
    retained: Retained,
    deadline: Instant,
    report: impl Fn() -> R,
) -> Result<()> {
    let (mut looks, mut pause) = (0, LEDGER_PAUSE_MIN);
    loop {
        let Some(report) = report().await? else { return Ok(()) };
        if report.is_clear(retained) {
            return Ok(());
        }
        if Instant::now() > deadline {
            let RankReport { streams_open, frames_pending, reserved_bytes, blocks_lent, .. } = report;
            tracing::warn!(
                rank,
                streams_open,
                frames_pending,
                reserved_bytes,
                blocks_lent,
                "a statement left something behind"
            );
            return Err(internal_datafusion_err!(
                "rank {rank} has {streams_open} streams, {frames_pending} frames, {reserved_bytes} bytes and \
                 {blocks_lent} lent blocks left of a statement that has ended"
            ));
        }
        looks += 1;
        if looks <= LEDGER_LOOKS_AT_ONCE {
            tokio::task::yield_now().await;
        } else {
            tokio::time::sleep(pause).await;
            pause = (2 * pause).min(LEDGER_PAUSE_MAX);
        }
    }
}

/// A statement prepared to run on the gang.
pub struct GangStatement {
    gang: Gang,
    distribute_bytes_min: usize,
    run: Option<u64>,
    members: Vec<usize>,
    /// Addresses of the members, in order.
    urls: Vec<Url>,
}

impl GangStatement {
    /// Adds it to the settings that the statement is planned and run with; they are sent along with its plan.
    pub fn apply(self, config: &mut SessionConfig) -> Result<()> {
        let GangStatement { gang, distribute_bytes_min, run, members, urls } = self;
        let footers = gang.runtime_env().cache_manager.get_file_metadata_cache();
        config.set_extension(Arc::new(DistributionConfig {
            bytes_min: distribute_bytes_min,
            footers,
            members,
        }));
        config.set_distributed_local_worker_context(gang.worker().to_local_worker_context(urls[0].clone()));
        config.set_distributed_channel_resolver(Arc::clone(&gang.inner.channels));
        config.set_distributed_worker_resolver(Ranks(urls));
        propagated_settings::attach(config, run)
    }
}

/// The session in which a rank runs its part of a plan: defaults, the coordinator's settings, and channels to
/// the ranks that feed it.
async fn build_session(
    mut context: WorkerQueryContext,
    channels: Arc<dyn ChannelResolver + Send + Sync>,
    gang: Weak<Inner>,
    tasks: Tasks,
) -> Result<SessionState> {
    let scope = Scope::read(&context.headers);
    let gang = gang.upgrade().map(|inner| Gang { inner });
    let mut memory = None;
    // The coordinator's own tasks are canceled with the statement, all others with the call that sent them.
    let mut canceled = CancelFlag::current();
    if let (Some(scope), Some(gang)) = (&scope, &gang) {
        let environment = gang.environment(scope)?;
        memory = StatementMemory::of(&environment.memory_pool);
        canceled = canceled.or_else(|| statement_memory::cancel_flag(&environment.memory_pool));
        *context.builder.runtime_env() = Some(environment);
    }
    let canceled = canceled.unwrap_or_default();
    let config: &mut SessionConfig = context.builder.config().get_or_insert_default();
    propagated_settings::apply(&context.headers, config)?;
    if let Some(gang) = gang {
        gang.account(scope.as_ref(), canceled.clone()).install(config.options_mut());
    }
    // Before the handler that registers the plan to run.
    config.set_distributed_worker_plan_rewrite_handler(
        move |event: WorkerPlanRewriteEvent<'_>| -> Result<WorkerPlanRewriteEventResponse> {
            Ok(WorkerPlanRewriteEventResponse::new(cancelable_joins::cancelable(event.plan, &canceled)?))
        },
    );
    tasks.register(&context.headers, config, memory);
    config.set_distributed_channel_resolver(channels);
    config.set_distributed_user_codec(node_codec());
    functions::install(&mut context.builder);
    Ok(context.builder.build())
}
