//! Server side of a front end, on the coordinating rank: accepts plans over a local socket, distributes them
//! over the gang and returns their rows.
//!
//! Every connection carries one request (`protocol.rs`); all are served concurrently.
//!
//! # Cancellation
//! Closing the connection drops the plan. A thread that does no computing detects it, and sets the
//! statement's cancellation flag (`resources/src/cancellation.rs`) for operators that do not notice the drop.
//! # Errors
//! A failure is reported with its SQLSTATE and message; the gang survives unless it is lost itself.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::ipc::writer::StreamWriter;
use datafusion::common::{Result, internal_datafusion_err};
use datafusion::execution::{SendableRecordBatchStream, SessionState, SessionStateBuilder};
use datafusion::physical_plan::{ExecutionPlan, execute_stream};
use datafusion::prelude::SessionConfig;
use futures::{FutureExt, StreamExt};
use harrier_session_api::query_profile::QueryProfile;
use parking_lot::Mutex;
use prost::Message;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::unix::OwnedWriteHalf;
use tokio::net::{UnixListener, UnixStream};
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};

use crate::distribution::gang_planner;
use crate::formats::atomic_sinks::AtomicSinkFiles;
use crate::frontend::protocol::{Lines, RankStatus, Request, RequestKind, StatementFailure, Status, kind};
use crate::functions;
use crate::gang::ledger::Audit;
use crate::gang::{Gang, RowTransport, StatementOptions};
use crate::monitor::plan_snapshot;
use crate::monitor::resource_usage::{ResourceUsage, UsageBaseline};
use crate::monitor::running_slices;
use crate::monitor::slice_tree::{RankMetrics, SliceNode, copy_descriptions, slices, with_metrics};
use crate::operators::cancelable_joins;
use crate::transport::messages::RankReport;
use crate::transport::plan_codec;
use crate::transport::propagated_settings;
use crate::transport::remote_error::to_failure;
use harrier_resources::cancellation::{CancelFlag, Reason};
use harrier_resources::statement_limits::Scope;
use harrier_resources::statement_memory::StatementMemory;

/// The longest request, in bytes: a plan lists every file that it reads.
const REQUEST_BYTES_MAX: usize = 1 << 30;

/// How long a gang without a front end waits for one.
const HOLD_TIMEOUT: Duration = Duration::from_secs(60);

/// The pause after a failed accept.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// The interval of checks for lost ranks, and the number of checks after which the status is sent in any
/// case.
const STATUS_TICK: Duration = Duration::from_millis(50);
const STATUS_TICKS: u32 = 20;

/// The deadline for reports of ranks; after that their last reports are sent again.
const REPORT_TIMEOUT: Duration = Duration::from_secs(1);

/// The deadline for the metrics of a statement after its last row.
const METRICS_TIMEOUT: Duration = Duration::from_secs(1);

/// The deadline for the resource usage of a failed statement.
const FAILED_TIMEOUT: Duration = Duration::from_millis(100);

/// Formats a plan, and its resource usage if it ran. The last argument: verbose.
pub type FormatPlan = fn(&[SliceNode], Option<&ResourceUsage>, bool) -> Vec<String>;

/// The service that accepts plans for a gang.
#[derive(Clone)]
pub struct PlanService {
    gang: Gang,
    threads: usize,
    format_plan: FormatPlan,
    running: RunningStatements,
    /// The last reports of ranks.
    reports: Arc<Mutex<Vec<RankReport>>>,
    audit: Audit,
}

/// Running statements, by the number under which they can be polled.
type RunningStatements = Arc<Mutex<HashMap<u64, RunningStatement>>>;

#[derive(Clone)]
struct RunningStatement {
    plan: Arc<dyn ExecutionPlan>,
    /// The ranks that it runs on.
    members: Vec<usize>,
    memory: Arc<StatementMemory>,
}

/// A started plan.
struct StartedPlan {
    plan: Arc<dyn ExecutionPlan>,
    rows: SendableRecordBatchStream,
    memory: Arc<StatementMemory>,
    /// The plan for display.
    as_planned: Arc<dyn ExecutionPlan>,
}

/// A statement can be polled until this is dropped.
struct RunRegistration {
    running: RunningStatements,
    run: u64,
}

impl Drop for RunRegistration {
    fn drop(&mut self) {
        self.running.lock().remove(&self.run);
    }
}

impl PlanService {
    /// Call it on rank 0, with the gang attached.
    pub fn new(gang: Gang, threads: usize, format_plan: FormatPlan) -> Self {
        Self {
            gang,
            threads,
            format_plan,
            running: RunningStatements::default(),
            reports: Arc::default(),
            audit: Audit::default(),
        }
    }

    /// Serves until the front end releases its lease on the gang, or no front end takes one for
    /// [`HOLD_TIMEOUT`]. Call it in a runtime of its own: statements run on the threads of `work`, all of
    /// which may compute for seconds without a pause.
    pub async fn serve(self, listener: UnixListener, work: Handle) {
        let (lease_sender, mut leases) = mpsc::channel(1);
        let accept = async {
            loop {
                match listener.accept().await {
                    Ok((stream, _)) => {
                        let (service, leases, work) = (self.clone(), lease_sender.clone(), work.clone());
                        tokio::spawn(async move { service.serve_connection(stream, leases, work).await });
                    }
                    Err(error) => {
                        tracing::warn!(%error, "cannot accept a plan");
                        tokio::time::sleep(ACCEPT_PAUSE).await;
                    }
                }
            }
        };
        let released = async {
            if let Ok(Some(lease)) = tokio::time::timeout(HOLD_TIMEOUT, leases.recv()).await {
                let _: std::result::Result<(), _> = lease.await;
            }
        };
        tokio::select! {
            () = accept => {}
            () = released => {}
        }
    }

    /// Reads the request of a connection and serves it until the client closes the connection.
    async fn serve_connection(
        self,
        mut stream: UnixStream,
        lease_sender: mpsc::Sender<oneshot::Receiver<()>>,
        work: Handle,
    ) {
        let Ok(request) = read_request(&mut stream).await else {
            return;
        };
        let (mut closed, out) = stream.into_split();
        let disconnect = async move {
            // The client sends nothing more: any read is the end of the connection.
            let mut byte = [0];
            let _ = closed.read(&mut byte).await;
        };
        match request.kind() {
            RequestKind::Hold => {
                let (lease, released) = oneshot::channel();
                // Dropped with the connection.
                let _lease = lease_sender.send(released).await.is_ok().then_some(lease);
                self.serve_request(request, out, disconnect).await;
            }
            RequestKind::MarkDown | RequestKind::Snapshot => {
                self.serve_request(request, out, disconnect).await;
            }
            _ => self.run_request(request, out, disconnect, &work).await,
        }
    }

    /// Serves a request on the threads of `work`. `disconnect` sets the statement's cancellation flag.
    async fn run_request(
        self,
        request: Request,
        out: OwnedWriteHalf,
        disconnect: impl Future<Output = ()>,
        work: &Handle,
    ) {
        let cancel_flag = CancelFlag::default();
        let (disconnect_sender, disconnect_receiver) = oneshot::channel::<()>();
        let cancel_guard = cancel_flag.cancel_on_drop();
        let task = work.spawn(cancel_flag.scope(async move {
            let _cancel_guard = cancel_guard;
            self.serve_request(request, out, disconnect_receiver.map(drop)).await;
        }));
        tokio::select! {
            () = disconnect => cancel_flag.set(Reason::Request),
            _ = task => {}
        }
        drop(disconnect_sender);
    }

    /// Answers a request, until `disconnect` completes.
    async fn serve_request(
        &self,
        request: Request,
        mut out: impl AsyncWriteExt + Unpin,
        disconnect: impl Future<Output = ()>,
    ) {
        let runs = matches!(request.kind(), RequestKind::Run | RequestKind::Explain | RequestKind::Analyze);
        let _busy = runs.then(|| self.audit.begin());
        let send_answer = async {
            let answer = std::panic::AssertUnwindSafe(self.answer(&request, &mut out)).catch_unwind().await;
            let failure = match answer {
                Ok(Ok(())) => return write_frame(&mut out, kind::END, &[]).await,
                Ok(Err(error)) => {
                    let failure = to_failure(&error);
                    StatementFailure {
                        sqlstate: failure.sqlstate.to_string(),
                        message: failure.message.to_string(),
                    }
                }
                Err(_) => StatementFailure {
                    sqlstate: "XX000".to_string(),
                    message: "query code panicked".to_string(),
                },
            };
            write_frame(&mut out, kind::FAILURE, &failure.encode_to_vec()).await
        };
        tokio::select! {
            _ = send_answer => {}
            () = disconnect => {}
        }
        self.gang.release_ended();
    }

    async fn answer(&self, request: &Request, out: &mut (impl AsyncWriteExt + Unpin)) -> Result<()> {
        match request.kind() {
            RequestKind::Nothing => Ok(()),
            RequestKind::Hold => self.hold(out).await,
            RequestKind::MarkDown => {
                self.gang.mark_down(request.marked_down.iter().map(|rank| *rank as usize));
                Ok(())
            }
            RequestKind::Run => self.run(request, out).await,
            RequestKind::Snapshot => {
                let snapshot = self.snapshot(request.run).await;
                Ok(write_frame(out, kind::SNAPSHOT, &snapshot.encode_to_vec()).await?)
            }
            RequestKind::Explain => {
                let (plan, _) = self.plan(request).await?;
                self.send_lines(&slices(&plan), None, request.verbose, out).await
            }
            RequestKind::Analyze => self.analyze(request, out).await,
        }
    }

    /// Sends a snapshot of the plan, its rows, and the metrics of every rank.
    async fn run(&self, request: &Request, out: &mut (impl AsyncWriteExt + Unpin)) -> Result<()> {
        let StartedPlan { plan, rows, memory, .. } = self.start(request).await?;
        if request.run == 0 {
            return send_rows(rows, out).await;
        }
        let run = RunningStatement { plan: Arc::clone(&plan), members: self.gang.members(), memory };
        let planned = self.snapshot_of(&slices(&plan), &run).await;
        write_frame(out, kind::SNAPSHOT, &planned.encode_to_vec()).await?;
        self.running.lock().insert(request.run, run.clone());
        let registration = RunRegistration { running: Arc::clone(&self.running), run: request.run };
        let sent = send_rows(rows, out).await;
        drop(registration);
        if sent.is_err() {
            // The resource usage is part of the failure report.
            let metrics = self.gang.task_metrics(request.run, &run.memory);
            let _ = tokio::time::timeout(FAILED_TIMEOUT, metrics).await;
            let snapshot = self.snapshot_of(&slices(&plan), &run).await;
            write_frame(out, kind::SNAPSHOT, &snapshot.encode_to_vec()).await?;
            return sent;
        }
        // All rows have been sent: a rank that can no longer report its metrics is no failure of the
        // statement.
        if let Ok(Ok(measured)) = tokio::time::timeout(METRICS_TIMEOUT, with_metrics(plan)).await {
            let snapshot = self.snapshot_of(&slices(&measured), &run).await;
            write_frame(out, kind::SNAPSHOT, &snapshot.encode_to_vec()).await?;
        }
        Ok(())
    }

    /// The progress of a statement; an empty snapshot if it does not run here.
    async fn snapshot(&self, run: u64) -> QueryProfile {
        let running = self.running.lock().get(&run).cloned();
        let Some(running) = running else {
            return QueryProfile::default();
        };
        let mut slices = slices(&running.plan);
        // Rank 0's parts may share metrics with the plan that they were cut from.
        for operator in slices.iter_mut().skip(1).flat_map(|slice| &mut slice.operators) {
            operator.measured = RankMetrics::default();
        }
        for task in self.gang.task_metrics(run, &running.memory).await {
            running_slices::fill(&mut slices, &task);
        }
        self.snapshot_of(&slices, &running).await
    }

    /// All its times are by this rank's clock.
    async fn snapshot_of(&self, slices: &[SliceNode], run: &RunningStatement) -> QueryProfile {
        let mut snapshot = plan_snapshot::of(slices, &run.members);
        snapshot.memory = run.memory.by_process(Some(0));
        plan_snapshot::align(&mut snapshot, self.gang.clocks().await);
        snapshot
    }

    /// Sends the gang's status until the client has gone.
    async fn hold(&self, out: &mut (impl AsyncWriteExt + Unpin)) -> Result<()> {
        let mut membership = None;
        loop {
            let status = self.status().await;
            write_frame(out, kind::STATUS, &status.encode_to_vec()).await?;
            // Membership changes are sent at once, everything else periodically.
            for _ in 0..STATUS_TICKS {
                let current = Some((self.gang.losses().len(), self.gang.marked_down()));
                if current != membership {
                    membership = current;
                    break;
                }
                tokio::time::sleep(STATUS_TICK).await;
            }
        }
    }

    async fn send_lines(
        &self,
        slices: &[SliceNode],
        usage: Option<&ResourceUsage>,
        verbose: bool,
        out: &mut (impl AsyncWriteExt + Unpin),
    ) -> Result<()> {
        let lines = (self.format_plan)(slices, usage, verbose);
        Ok(write_frame(out, kind::LINES, &Lines { lines }.encode_to_vec()).await?)
    }

    async fn analyze(&self, request: &Request, out: &mut (impl AsyncWriteExt + Unpin)) -> Result<()> {
        let before = UsageBaseline::of(Some(&self.gang)).await?;
        let started = Instant::now();
        let StartedPlan { plan, mut rows, as_planned, .. } = self.start(request).await?;
        if request.keeps_rows {
            send_rows(rows, out).await?;
        } else {
            while let Some(batch) = rows.next().await {
                batch?;
            }
            drop(rows);
        }
        let wall = started.elapsed();
        let measured = with_metrics(plan).await?;
        let usage = before.usage(Some(&self.gang), wall).await?;
        let mut measured = slices(&measured);
        copy_descriptions(&mut measured, &slices(&as_planned));
        self.send_lines(&measured, Some(&usage), request.verbose, out).await
    }

    async fn start(&self, request: &Request) -> Result<StartedPlan> {
        let (plan, state) = self.plan(request).await?;
        let as_planned = plan;
        let context = state.task_ctx();
        let plan = cancelable_joins::cancelable_in(Arc::clone(&as_planned), &context)?;
        let (context, files) = AtomicSinkFiles::of(&plan, context)?;
        let rows = execute_stream(Arc::clone(&plan), context)?;
        let rows = self.gang.fail_on_rank_loss(&plan, rows);
        let rows = match files {
            Some(files) => files.publish_after(rows),
            None => rows,
        };
        let memory = StatementMemory::of(&state.runtime_env().memory_pool).unwrap_or_default();
        Ok(StartedPlan { plan, rows, memory, as_planned })
    }

    /// Decodes the plan of a request and distributes it over the gang.
    async fn plan(&self, request: &Request) -> Result<(Arc<dyn ExecutionPlan>, SessionState)> {
        let options = StatementOptions {
            transport: RowTransport::Mpi,
            distribute_bytes_min: request.distribute_bytes_min as usize,
            run: (request.run > 0).then_some(request.run),
        };
        let statement = self.gang.statement(options).await?;
        let mut config = SessionConfig::new().with_target_partitions(self.threads.max(2));
        self.gang.declare_settings(&mut config);
        propagated_settings::apply_text(&request.settings, &mut config)?;
        let scope = Scope::new(request.limits());
        scope.clone().set(&mut config);
        scope.limit_sort_reservation(&mut config);
        self.gang.account(Some(&scope), scope.canceled.clone()).install(config.options_mut());
        let environment = self.gang.environment(&scope)?;
        let mut builder = SessionStateBuilder::new_with_default_features()
            .with_config(config)
            .with_runtime_env(environment);
        functions::install(&mut builder);
        let mut state = self.gang.configure(builder).build();
        statement.apply(state.config_mut())?;
        let one_rank = plan_codec::decode(&request.plan, &state.task_ctx())?;
        let plan = gang_planner::distribute(one_rank, &state).await?;
        Ok((plan, state))
    }

    /// Collects the reports of ranks, and logs resources that finished statements have leaked. A busy rank
    /// responds when it has time: until then its last report counts.
    async fn collect_reports(&self) -> Vec<RankReport> {
        let Ok(reports) = tokio::time::timeout(REPORT_TIMEOUT, self.gang.reports()).await else {
            return self.reports.lock().clone();
        };
        let reports = reports.unwrap_or_default();
        if let Some((at, report)) = self.audit.check(&reports) {
            let RankReport { streams_open, frames_pending, reserved_bytes, blocks_lent, .. } = report;
            let rank = self.gang.members().get(at).copied();
            tracing::error!(
                rank,
                streams_open,
                frames_pending,
                reserved_bytes,
                blocks_lent,
                "statements that have ended left something behind"
            );
        }
        self.reports.lock().clone_from(&reports);
        reports
    }

    /// The status of every rank, the lost ones included.
    async fn status(&self) -> Status {
        // A rank that is lost during the request has no report; losses are read afterwards.
        let reports = self.collect_reports().await;
        let clocks = self.gang.clocks().await;
        let members = self.gang.members();
        let losses = self.gang.losses();
        let marked_down = self.gang.marked_down();
        let ranks = self.gang.peers().iter().enumerate().map(|(rank, peer)| {
            let lost = losses.iter().find(|(lost, _)| *lost == rank).map(|(_, reason)| reason.clone());
            let report = members.iter().position(|member| *member == rank).and_then(|at| reports.get(at));
            let report = report.cloned().unwrap_or_default();
            RankStatus {
                host: peer.host.clone(),
                pid: peer.pid,
                works: members.contains(&rank),
                lost,
                bytes_sent: report.bytes_sent,
                frames_sent: report.frames_sent,
                process_cpu_ns: report.process_cpu_ns,
                reserved_bytes: report.reserved_bytes,
                streams_open: report.streams_open,
                marked_down: marked_down.contains(&rank),
                disks: report.disks,
                resident_bytes: report.resident_bytes,
                counts: report.counts,
                clock_ahead_ns: clocks.get(rank).copied().unwrap_or(0),
            }
        });
        Status {
            ranks: ranks.collect(),
            library: self.gang.library().to_string(),
            version: crate::VERSION.to_string(),
            threads: self.threads as u64,
        }
    }
}

async fn read_request(stream: &mut UnixStream) -> Result<Request> {
    let length = stream.read_u32_le().await? as usize;
    if length > REQUEST_BYTES_MAX {
        return Err(internal_datafusion_err!("a request of {length} bytes"));
    }
    let mut bytes = vec![0; length];
    stream.read_exact(&mut bytes).await?;
    Request::decode(&bytes[..]).map_err(|error| internal_datafusion_err!("a request: {error}"))
}

async fn send_rows(
    mut rows: SendableRecordBatchStream,
    out: &mut (impl AsyncWriteExt + Unpin),
) -> Result<()> {
    let mut writer = StreamWriter::try_new(Vec::new(), &rows.schema())?;
    while let Some(batch) = rows.next().await {
        send_batch(&batch?, &mut writer, out).await?;
    }
    Ok(())
}

/// Encodes the batch, preceded by the schema if that was not sent yet.
async fn send_batch(
    batch: &RecordBatch,
    writer: &mut StreamWriter<Vec<u8>>,
    out: &mut (impl AsyncWriteExt + Unpin),
) -> Result<()> {
    writer.write(batch)?;
    let bytes = std::mem::take(writer.get_mut());
    Ok(write_frame(out, kind::ROWS, &bytes).await?)
}

async fn write_frame(out: &mut (impl AsyncWriteExt + Unpin), kind: u8, bytes: &[u8]) -> io::Result<()> {
    let length = u32::try_from(bytes.len()).map_err(|_| io::Error::from(io::ErrorKind::InvalidData))?;
    let mut head = [kind; 5];
    head[1..].copy_from_slice(&length.to_le_bytes());
    out.write_all(&head).await?;
    out.write_all(bytes).await
}
