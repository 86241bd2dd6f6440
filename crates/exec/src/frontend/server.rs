//! The coordinating rank's side of a front end: takes plans over a local socket, spreads them over the gang
//! and sends their rows back.
//!
//! Every connection is one request (`client.rs`), and all are served side by side.
//!
//! # Cancellation
//! A connection that its other side closes drops the plan. That is heard where nothing computes, which sets
//! the statement's flag (`resources/src/cancellation.rs`) for what does not hear of being dropped.
//! # Errors
//! A failure is told as its SQLSTATE and message; the gang lives on unless it is what is lost.

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
use parking_lot::Mutex;
use prost::Message;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};

use crate::distribution::gang_planner;
use crate::formats::atomic_sinks::WholeFiles;
use crate::frontend::client::{Asked, Failure, Lines, RankStatus, Request, Status, kind};
use crate::functions;
use crate::gang::ledger::Audit;
use crate::gang::{Gang, StatementOptions, Transport};
use crate::monitor::plan_snapshot::Look;
use crate::monitor::resource_usage::{Before, Took};
use crate::monitor::running_slices;
use crate::monitor::slice_tree::{Measured, Slice, slices, tell_as, with_metrics};
use crate::operators::cancelable_joins;
use crate::transport::messages::RankReport;
use crate::transport::plan_codec;
use crate::transport::propagated_settings;
use crate::transport::remote_error::to_failure;
use harrier_resources::cancellation::{CancelFlag, Reason};
use harrier_resources::statement_limits::Scope;
use harrier_resources::statement_memory::StatementMemory;

/// The longest request, in bytes: a plan names every file that it reads.
const REQUEST_BYTES_MAX: usize = 1 << 30;

/// How long a gang waits for its front end.
const HOLD_PATIENCE: Duration = Duration::from_secs(60);

/// The time after a failure to accept a connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// How often it is looked whether a rank was lost, and after how many looks the status is told in any case.
const STATUS_TICK: Duration = Duration::from_millis(50);
const STATUS_TICKS: u32 = 20;

/// How long ranks may take to tell how they are, before what they have told last is told again.
const REPORT_PATIENCE: Duration = Duration::from_secs(1);

/// How long the metrics of a statement that has given its last row may take.
const METRICS_PATIENCE: Duration = Duration::from_secs(1);

/// How long ranks may take to tell what a statement had that has failed.
const FAILED_PATIENCE: Duration = Duration::from_millis(100);

/// Says in lines what a plan is, and what it took if it ran. The last argument: with all there is to tell.
pub type Tell = fn(&[Slice], Option<&Took>, bool) -> Vec<String>;

/// Where plans for a gang are handed in.
#[derive(Clone)]
pub struct Desk {
    gang: Gang,
    threads: usize,
    tell: Tell,
    running: Running,
    /// What ranks have told of themselves last.
    reports: Arc<Mutex<Vec<RankReport>>>,
    audit: Audit,
}

/// Statements that run, by the number under which they may be looked at.
type Running = Arc<Mutex<HashMap<u64, Run>>>;

#[derive(Clone)]
struct Run {
    plan: Arc<dyn ExecutionPlan>,
    /// The ranks that it runs on.
    members: Vec<usize>,
    memory: Arc<StatementMemory>,
}

/// A plan whose rows can be asked for.
struct Started {
    plan: Arc<dyn ExecutionPlan>,
    rows: SendableRecordBatchStream,
    memory: Arc<StatementMemory>,
    /// What there is to show of it.
    as_planned: Arc<dyn ExecutionPlan>,
}

/// A statement can be looked at until this is dropped.
struct Shown {
    running: Running,
    run: u64,
}

impl Drop for Shown {
    fn drop(&mut self) {
        self.running.lock().remove(&self.run);
    }
}

impl Desk {
    /// To be made on rank 0, when the gang is attached.
    pub fn new(gang: Gang, threads: usize, tell: Tell) -> Self {
        Self {
            gang,
            threads,
            tell,
            running: Running::default(),
            reports: Arc::default(),
            audit: Audit::default(),
        }
    }

    /// Serves until the front end that holds the gang has gone, or none has come for [`HOLD_PATIENCE`]. To be
    /// called in a runtime of its own: statements run on the threads of `work`, all of which may compute for
    /// seconds without a pause.
    pub async fn serve(self, listener: UnixListener, work: Handle) {
        let (held, mut holds) = mpsc::channel(1);
        let accept = async {
            loop {
                match listener.accept().await {
                    Ok((stream, _)) => {
                        let (desk, held, work) = (self.clone(), held.clone(), work.clone());
                        tokio::spawn(async move { desk.connection(stream, held, work).await });
                    }
                    Err(error) => {
                        tracing::warn!(%error, "cannot accept a plan");
                        tokio::time::sleep(ACCEPT_PAUSE).await;
                    }
                }
            }
        };
        let released = async {
            if let Ok(Some(hold)) = tokio::time::timeout(HOLD_PATIENCE, holds.recv()).await {
                let _: std::result::Result<(), _> = hold.await;
            }
        };
        tokio::select! {
            () = accept => {}
            () = released => {}
        }
    }

    async fn connection(
        self,
        mut stream: UnixStream,
        held: mpsc::Sender<oneshot::Receiver<()>>,
        work: Handle,
    ) {
        let Ok(request) = read_request(&mut stream).await else {
            return;
        };
        let (mut closed, out) = stream.into_split();
        let gone = async move {
            // Nothing more is to come: what is read is the end.
            let mut byte = [0];
            let _ = closed.read(&mut byte).await;
        };
        match request.asked() {
            Asked::Hold => {
                let (hold, released) = oneshot::channel();
                // Dropped with the connection.
                let _hold = held.send(released).await.is_ok().then_some(hold);
                self.converse(request, out, gone).await;
            }
            Asked::Aside | Asked::Look => self.converse(request, out, gone).await,
            _ => {
                let canceled = CancelFlag::default();
                let (is_gone, told) = oneshot::channel::<()>();
                let ended = canceled.cancel_on_drop();
                let answered = work.spawn(canceled.scope(async move {
                    let _ended = ended;
                    self.converse(request, out, told.map(drop)).await;
                }));
                tokio::select! {
                    () = gone => canceled.set(Reason::Request),
                    _ = answered => {}
                }
                drop(is_gone);
            }
        }
    }

    /// Answers a request, until whoever asked has `gone`.
    async fn converse(
        &self,
        request: Request,
        mut out: impl AsyncWriteExt + Unpin,
        gone: impl Future<Output = ()>,
    ) {
        let runs = matches!(request.asked(), Asked::Run | Asked::Explain | Asked::Analyze);
        let _busy = runs.then(|| self.audit.begin());
        let answered = async {
            let answer = std::panic::AssertUnwindSafe(self.answer(&request, &mut out)).catch_unwind().await;
            let failure = match answer {
                Ok(Ok(())) => return write_frame(&mut out, kind::END, &[]).await,
                Ok(Err(error)) => {
                    let failure = to_failure(&error);
                    Failure { sqlstate: failure.sqlstate.to_string(), message: failure.message.to_string() }
                }
                Err(_) => {
                    Failure { sqlstate: "XX000".to_string(), message: "query code panicked".to_string() }
                }
            };
            write_frame(&mut out, kind::FAILURE, &failure.encode_to_vec()).await
        };
        tokio::select! {
            _ = answered => {}
            () = gone => {}
        }
        self.gang.tidy();
    }

    async fn answer(&self, request: &Request, out: &mut (impl AsyncWriteExt + Unpin)) -> Result<()> {
        match request.asked() {
            Asked::Nothing => Ok(()),
            Asked::Hold => self.hold(out).await,
            Asked::Aside => {
                self.gang.set_aside(request.aside.iter().map(|rank| *rank as usize));
                Ok(())
            }
            Asked::Run => self.run(request, out).await,
            Asked::Look => {
                let look = self.look(request.run).await;
                Ok(write_frame(out, kind::LOOK, &look.encode_to_vec()).await?)
            }
            Asked::Explain => {
                let (plan, _) = self.plan(request).await?;
                self.tell(&slices(&plan), None, request.verbose, out).await
            }
            Asked::Analyze => self.analyze(request, out).await,
        }
    }

    /// Sends what the plan is, its rows, and what every rank has measured.
    async fn run(&self, request: &Request, out: &mut (impl AsyncWriteExt + Unpin)) -> Result<()> {
        let Started { plan, rows, memory, .. } = self.start(request).await?;
        if request.run == 0 {
            return send_rows(rows, out).await;
        }
        let run = Run { plan: Arc::clone(&plan), members: self.gang.members(), memory };
        let planned = self.look_of(&slices(&plan), &run).await;
        write_frame(out, kind::LOOK, &planned.encode_to_vec()).await?;
        self.running.lock().insert(request.run, run.clone());
        let shown = Shown { running: Arc::clone(&self.running), run: request.run };
        let sent = send_rows(rows, out).await;
        drop(shown);
        if sent.is_err() {
            // What it took is a part of why it failed.
            let told = self.gang.look(request.run, &run.memory);
            let _ = tokio::time::timeout(FAILED_PATIENCE, told).await;
            let look = self.look_of(&slices(&plan), &run).await;
            write_frame(out, kind::LOOK, &look.encode_to_vec()).await?;
            return sent;
        }
        // All rows are there: that a rank cannot tell any more what it has done is no failure of the
        // statement.
        if let Ok(Ok(measured)) = tokio::time::timeout(METRICS_PATIENCE, with_metrics(plan)).await {
            let look = self.look_of(&slices(&measured), &run).await;
            write_frame(out, kind::LOOK, &look.encode_to_vec()).await?;
        }
        Ok(())
    }

    /// What a statement has done so far; an empty look when it does not run here.
    async fn look(&self, run: u64) -> Look {
        let running = self.running.lock().get(&run).cloned();
        let Some(running) = running else {
            return Look::default();
        };
        let mut slices = slices(&running.plan);
        // Parts of rank 0 may count where the plan that they were cut from does.
        for operator in slices.iter_mut().skip(1).flat_map(|slice| &mut slice.operators) {
            operator.measured = Measured::default();
        }
        for told in self.gang.look(run, &running.memory).await {
            running_slices::fill(&mut slices, &told);
        }
        self.look_of(&slices, &running).await
    }

    /// All its times are by this rank's clock.
    async fn look_of(&self, slices: &[Slice], run: &Run) -> Look {
        let mut look = Look::of(slices, &run.members);
        look.memory = run.memory.by_process(Some(0));
        look.align(self.gang.clocks().await);
        look
    }

    /// Tells how the gang is until nobody listens.
    async fn hold(&self, out: &mut (impl AsyncWriteExt + Unpin)) -> Result<()> {
        let mut known = None;
        loop {
            let status = self.status().await;
            write_frame(out, kind::STATUS, &status.encode_to_vec()).await?;
            // Who takes part in statements is told at once, everything else in its time.
            for _ in 0..STATUS_TICKS {
                let present = Some((self.gang.losses().len(), self.gang.aside()));
                if present != known {
                    known = present;
                    break;
                }
                tokio::time::sleep(STATUS_TICK).await;
            }
        }
    }

    async fn tell(
        &self,
        slices: &[Slice],
        took: Option<&Took>,
        verbose: bool,
        out: &mut (impl AsyncWriteExt + Unpin),
    ) -> Result<()> {
        let lines = (self.tell)(slices, took, verbose);
        Ok(write_frame(out, kind::LINES, &Lines { lines }.encode_to_vec()).await?)
    }

    async fn analyze(&self, request: &Request, out: &mut (impl AsyncWriteExt + Unpin)) -> Result<()> {
        let before = Before::of(Some(&self.gang)).await?;
        let started = Instant::now();
        let Started { plan, mut rows, as_planned, .. } = self.start(request).await?;
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
        let took = before.took(Some(&self.gang), wall).await?;
        let mut measured = slices(&measured);
        tell_as(&mut measured, &slices(&as_planned));
        self.tell(&measured, Some(&took), request.verbose, out).await
    }

    async fn start(&self, request: &Request) -> Result<Started> {
        let (plan, state) = self.plan(request).await?;
        let as_planned = plan;
        let context = state.task_ctx();
        let plan = cancelable_joins::heard_in(Arc::clone(&as_planned), &context)?;
        let (context, files) = WholeFiles::of(&plan, context)?;
        let rows = execute_stream(Arc::clone(&plan), context)?;
        let rows = self.gang.until_loss(&plan, rows);
        let rows = match files {
            Some(files) => files.after(rows),
            None => rows,
        };
        let memory = StatementMemory::of(&state.runtime_env().memory_pool).unwrap_or_default();
        Ok(Started { plan, rows, memory, as_planned })
    }

    /// The plan of a request, spread over the gang.
    async fn plan(&self, request: &Request) -> Result<(Arc<dyn ExecutionPlan>, SessionState)> {
        let options = StatementOptions {
            transport: Transport::Mpi,
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
        let plan = gang_planner::spread(one_rank, &state).await?;
        Ok((plan, state))
    }

    async fn status(&self) -> Status {
        // A rank that is lost while it is asked has nothing to report; who is lost is known after that. One
        // that computes answers when it has time: until then it is as it was.
        let told = tokio::time::timeout(REPORT_PATIENCE, self.gang.reports()).await;
        let reports = match told {
            Ok(reports) => {
                let reports = reports.unwrap_or_default();
                if let Some((at, report)) = self.audit.look(&reports) {
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
            Err(_) => self.reports.lock().clone(),
        };
        let clocks = self.gang.clocks().await;
        let members = self.gang.members();
        let losses = self.gang.losses();
        let aside = self.gang.aside();
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
                aside: aside.contains(&rank),
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

/// The batch with the schema before it, if that was not sent yet.
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
