//! State of a running job on this rank, on byte strings; drives both the typed API and the C API.
//!
//! # Order of calls
//! [`Running::start`] (collective), [`Running::take_task`] and [`Running::o_task`] until none is left,
//! [`Running::end_o_phase`], the A tasks, [`Running::end`] (collective). The last must be called in any case.

use crate::checkpoint::{self, Commits, Committed, Program, Tasks};
use crate::config::{A_TASKS_MAX, Config, Mode, Parallelism, check_counts};
use crate::control::Pool;
use crate::counters::{Counters, Report, Span, Spans, now};
use crate::emit::{self, Emitter, Partition};
use crate::error::{Cause, Error, Side, TaskError};
use crate::exchange::{BatchSink, CheckpointPlan, Exchange, Plan, Sink, Stop, panic_message};
use crate::runs::KeyOrder;
use crate::spill::SpillFolders;
use crate::store::{Shape, Store};
use crate::wire::Damaged;
use crate::wire::{Reader, Writer};
use crate::world::World;
use parking_lot::Mutex;
use std::any::Any;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// Interval at which rank 0 prints a job's progress.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(1);

/// A job's definition by its program; the same on every rank.
#[derive(Clone)]
pub(crate) struct Spec {
    pub name: String,
    /// Fixed number of O tasks.
    pub o_tasks: Option<u32>,
    pub a_tasks: Option<u32>,
    /// Default number of O tasks.
    pub o_tasks_default: Option<u32>,
    pub shape: Shape,
    pub partition: Option<Arc<Partition>>,
    /// O task `i` runs on the rank of A task `i`, instead of on any free rank.
    pub owned: bool,
    pub mode: Mode,
    /// A common job that may be part of a program of rounds or windows.
    pub in_any_mode: bool,
    /// Width of a stream's windows; otherwise 0.
    pub window: u64,
    /// Error in the definition, found on this rank and reported on all.
    pub refused: Option<String>,
}

/// See the module documentation.
pub(crate) struct Running {
    pub world: World,
    pub plan: Arc<Plan>,
    spec: Spec,
    pub threads: usize,
    pub folders: Arc<SpillFolders>,
    exchange: Exchange,
    /// O tasks that only this rank runs.
    own: Mutex<VecDeque<u32>>,
    counters: Mutex<Counters>,
    spans: Mutex<Spans>,
    progress: Option<(Sender<()>, JoinHandle<()>)>,
}

impl Running {
    /// Agrees with all ranks on the job's definition, and opens its exchange. `number` comes from
    /// [`World::next_job`], and stays when a job continues after a loss.
    ///
    /// Errors: the ranks do not agree, a checkpoint cannot be used, a rank is lost.
    pub fn start(world: &World, config: &Config, mut spec: Spec, number: u32) -> Result<Running, Error> {
        let plan = Running::agree(world, config, &mut spec, number)?;
        let folders = Arc::new(SpillFolders::new(config.spill_folders.clone()));
        let exchange = Exchange::open(world, &plan, |merger| -> Box<dyn Sink> {
            Box::new(BatchSink::new(world, &plan, &folders, merger))
        });
        Ok(Running::over(world, plan, spec, folders, exchange))
    }

    /// Like [`Running::start`], with other sinks.
    pub fn start_with(
        world: &World,
        config: &Config,
        mut spec: Spec,
        sink: impl Fn(&Arc<Plan>, &Arc<SpillFolders>, usize) -> Box<dyn Sink>,
    ) -> Result<Running, Error> {
        let plan = Running::agree(world, config, &mut spec, world.next_job())?;
        let folders = Arc::new(SpillFolders::new(config.spill_folders.clone()));
        let exchange = Exchange::open(world, &plan, |merger| sink(&plan, &folders, merger));
        Ok(Running::over(world, plan, spec, folders, exchange))
    }

    fn over(
        world: &World,
        plan: Arc<Plan>,
        spec: Spec,
        folders: Arc<SpillFolders>,
        exchange: Exchange,
    ) -> Running {
        let threads = threads(&plan.config, world);
        let done =
            |o_task: &u32| plan.checkpoint.as_ref().is_some_and(|plan| plan.committed.contains_key(o_task));
        let own = match spec.owned {
            true => (0..plan.o_tasks)
                .filter(|o_task| plan.owner(*o_task, world.ranks()) == world.rank() && !done(o_task))
                .collect(),
            false => VecDeque::new(),
        };
        // A round prints its report when it has ended.
        let shows = plan.config.progress && world.rank() == 0 && spec.mode != Mode::Iteration;
        let progress = shows.then(|| show_progress(world.clone(), &spec, Arc::clone(&plan)));
        Running {
            world: world.clone(),
            plan,
            spec,
            threads,
            folders,
            exchange,
            own: Mutex::new(own),
            counters: Mutex::default(),
            spans: Mutex::default(),
            progress,
        }
    }

    fn agree(world: &World, config: &Config, spec: &mut Spec, number: u32) -> Result<Arc<Plan>, Error> {
        let job = world.next_exchange();
        let (rank, ranks) = (world.own_launcher_rank(), world.ranks());
        let threads = threads(config, world);
        // All settings that determine a pair's destination, so that a rank with other settings is detected
        // before any pair is sent.
        let mut message = Writer::default();
        // Plus one, so that `None` differs from 0.
        let option = |value: Option<usize>| value.map_or(0, |value| value as u64 + 1);
        let tasks = |value: Option<u32>| option(value.map(|value| value as usize));
        message.text(&spec.name).u64(tasks(spec.o_tasks)).u64(tasks(spec.a_tasks));
        message.u64(tasks(spec.o_tasks_default));
        message.u64(option(config.o_tasks)).u64(option(config.a_tasks));
        message
            .u8(config.mode.map_or(u8::MAX, |mode| mode as u8))
            .u8(config.parallelism as u8)
            .u8(u8::from(config.blocking));
        message.u8(u8::from(config.checkpoint.is_some())).u8(spec.shape.arrangement as u8);
        message.u8(u8::from(spec.shape.combine.is_some())).u64(config.block_bytes as u64);
        message.u8(spec.mode as u8).u8(u8::from(spec.owned)).u64(spec.window);
        message.u8(u8::from(spec.partition.is_some()));
        message.u8(u8::from(matches!(spec.shape.order, KeyOrder::Custom(_))));
        let mut mine = Writer::default();
        let checked = config.check().and_then(|()| check_mode(config.mode, spec));
        let checked = checked.and_then(|()| check_tasks(config, spec)).and_then(|()| check_spec(spec));
        let checked = checked.err().map_or(String::new(), |error| error.to_string());
        // Otherwise ranks may run different programs.
        let keeps = config.checkpoint.is_some() && spec.mode == Mode::Common;
        let program = keeps.then(|| format!("{} {}", Program::this().words, Program::this().content));
        mine.u64(threads as u64).text(&checked).bytes(&message.0).text(&program.unwrap_or_default());
        let (mut slots, mut first, mut first_program) = (0, None, None);
        for (other, theirs) in world.gather(&mine.0)?.iter().enumerate() {
            let mut theirs = Reader(theirs);
            let damaged = |error: Damaged| Error::Damaged { rank, message: error.to_string() };
            slots += theirs.u64().map_err(damaged)?;
            let wrong = theirs.text().map_err(damaged)?;
            if !wrong.is_empty() {
                return Err(Error::Configuration(wrong));
            }
            let job = theirs.bytes().map_err(damaged)?;
            let program = theirs.text().map_err(damaged)?;
            let ranks = (world.launcher_rank(0), world.launcher_rank(other));
            // Compare with rank 0's message, so that every rank gets the same result.
            if *first.get_or_insert(job) != job {
                let message = format!("ranks {} and {} were given different jobs or knobs", ranks.0, ranks.1);
                return Err(Error::Configuration(message));
            }
            if *first_program.get_or_insert_with(|| program.clone()) != program {
                let message = format!(
                    "ranks {} and {} are different programs, or have other arguments: a checkpoint is of one",
                    ranks.0, ranks.1
                );
                return Err(Error::Configuration(message));
            }
        }
        let slots = u32::try_from(slots).unwrap_or(u32::MAX);
        let configured = |tasks: Option<usize>| tasks.map(|tasks| u32::try_from(tasks).unwrap_or(u32::MAX));
        let o_fixed = spec.o_tasks.or(configured(config.o_tasks)).or(spec.o_tasks_default);
        let a_fixed = spec.a_tasks.or(configured(config.a_tasks));
        let o_tasks = Tasks { count: o_fixed.unwrap_or(slots), fixed: o_fixed.is_some() };
        let a_count = a_fixed.unwrap_or(match config.parallelism {
            Parallelism::Default => slots,
            // Without input there are no O tasks.
            Parallelism::Enhanced => o_tasks.count.clamp(1, A_TASKS_MAX as u32),
        });
        if a_count == 0 {
            return Err(Error::Configuration("there is at least one A task".to_string()));
        }
        check_counts(o_tasks.count as usize, a_count as usize)?;
        let a_tasks = Tasks { count: a_count, fixed: a_fixed.is_some() };
        let (checkpoint, (o_tasks, a_tasks)) =
            Running::open_checkpoint(world, config, spec, (number, job), o_tasks, a_tasks)?;
        Ok(Arc::new(Plan {
            job,
            o_tasks,
            a_tasks,
            shape: Shape { run_bytes: config.run_bytes, ..spec.shape.clone() },
            config: config.clone(),
            cache_bytes: config.cache_bytes(world.ranks_here()),
            mergers: threads.min((a_tasks as usize).div_ceil(ranks)).max(1),
            checkpoint,
            closed: AtomicU64::new(0),
            closed_until: AtomicU64::new(0),
        }))
    }

    /// Opens the checkpoint on rank 0, if configured, computes the O tasks that are left, and broadcasts
    /// both. Also returns the numbers of O and A tasks.
    fn open_checkpoint(
        world: &World,
        config: &Config,
        spec: &Spec,
        (number, job): (u32, u32),
        o_tasks: Tasks,
        a_tasks: Tasks,
    ) -> Result<(Option<CheckpointPlan>, (u32, u32)), Error> {
        let wanted = config.checkpoint.as_ref().filter(|_| spec.mode == Mode::Common);
        if config.checkpoint.is_some() && wanted.is_none() && world.rank() == 0 && world.first_warning() {
            eprintln!(
                "mpid: rounds and streams keep no checkpoint: if a rank is lost, \"{}\" begins anew",
                spec.name
            );
        }
        let folder = wanted.map(|path| checkpoint::folder(path, number, &spec.name));
        let mut message = Writer::default();
        if world.rank() == 0 {
            let mut tasks = (o_tasks.count, a_tasks.count);
            let opened = folder
                .as_ref()
                .map(|folder| Commits::open(folder, Program::this(), o_tasks, a_tasks))
                .transpose();
            let (commits, committed) = match opened {
                Err(error) => {
                    message.u8(1).text(&error.to_string());
                    (None, Default::default())
                }
                Ok(None) => {
                    message.u8(0).u32(o_tasks.count).u32(a_tasks.count).u32(0).u64(0);
                    (None, Default::default())
                }
                Ok(Some((commits, committed))) => {
                    tasks = commits.tasks;
                    message.u8(0).u32(tasks.0).u32(tasks.1);
                    message.u32(commits.generation).u64(committed.len() as u64);
                    committed.iter().for_each(|(o_task, generation)| {
                        message.u32(*o_task).u32(*generation);
                    });
                    (Some(commits), committed)
                }
            };
            let left = (0..tasks.0).filter(|o_task| !spec.owned && !committed.contains_key(o_task));
            world
                .begin(job, Pool { remaining: left.collect(), a_tasks: tasks.1, commits, ..Pool::default() });
        }
        let all = world.gather(&message.0).inspect_err(|_| {
            world.coordinator().inspect(|coordinator| drop(coordinator.end(job)));
        })?;
        type Broadcast = Result<((u32, u32), u32, Committed), String>;
        let read = |input: &mut Reader<'_>| -> Result<Broadcast, Damaged> {
            if input.u8()? != 0 {
                return Ok(Err(input.text()?));
            }
            let tasks = (input.u32()?, input.u32()?);
            let generation = input.u32()?;
            let count = input.u64()?;
            let committed = (0..count).map(|_| Ok((input.u32()?, input.u32()?)));
            Ok(Ok((tasks, generation, committed.collect::<Result<_, Damaged>>()?)))
        };
        match read(&mut Reader(&all[0])) {
            Ok(Ok((tasks, generation, committed))) => {
                Ok((folder.map(|folder| CheckpointPlan { folder, generation, committed }), tasks))
            }
            Ok(Err(message)) => {
                world.coordinator().inspect(|coordinator| drop(coordinator.end(job)));
                Err(Error::Checkpoint { rank: 0, message })
            }
            Err(damaged) => {
                Err(Error::Damaged { rank: world.own_launcher_rank(), message: damaged.to_string() })
            }
        }
    }

    /// Returns the next O task for this rank; `None`: none is left, or the job is stopping.
    pub fn take_task(&self) -> Option<u32> {
        if self.exchange.stop.is_set() {
            return None;
        }
        if self.spec.owned {
            return self.own.lock().pop_front();
        }
        self.world.take_task(self.plan.job).unwrap_or_else(|error| {
            self.exchange.stop.fail(error);
            None
        })
    }

    pub fn o_task(&self, o_task: u32) -> Emitter {
        let queues = self.exchange.queues().expect("the O phase is not over");
        Emitter::new(&queues, o_task, self.spec.partition.clone())
    }

    /// Closes the send queues: no more O tasks run on this rank.
    pub fn close_queues(&self) {
        if let Some(queues) = self.exchange.queues() {
            if let Err((o_task, rejected)) = emit::flush_tables(&queues) {
                let error = self.task_error(Side::O, o_task, String::new(), Cause::Rejected, rejected);
                self.exchange.stop.fail(error);
            }
            let mut counters = self.counters.lock();
            counters.blocks_sent = queues.blocks.load(Ordering::Relaxed);
            counters.bytes_sent = queues.bytes.load(Ordering::Relaxed);
            counters.send_wait_ns = queues.wait_ns.load(Ordering::Relaxed);
        }
        self.exchange.close_queues();
    }

    pub fn stop(&self) -> &Arc<Stop> {
        &self.exchange.stop
    }

    /// Counts the pairs that an O task has emitted.
    pub fn o_task_done(&self, o_task: u32, begin: Duration, emitter: &Emitter, late: u64) {
        let mut counters = self.counters.lock();
        counters.o_tasks_run += 1;
        counters.pairs_emitted += emitter.pairs;
        counters.bytes_emitted += emitter.bytes;
        counters.combined_before_sending += emitter.combined;
        counters.late += late;
        drop(counters);
        self.span(Side::O, o_task, begin, emitter.pairs);
    }

    /// Counts the pairs that an A task has received, from its store.
    pub fn a_task_begins(&self, store: &Store) {
        count_store(&mut self.counters.lock(), store);
    }

    pub fn span(&self, side: Side, task: u32, begin: Duration, pairs: u64) {
        let span = Span { side, task, rank: self.world.own_launcher_rank(), begin, end: now(), pairs };
        self.spans.lock().push(span);
    }

    /// Waits until all pairs have arrived. Returns the stores of this rank's A tasks.
    pub fn end_o_phase(&mut self) -> Vec<(u32, Store)> {
        self.close_queues();
        self.exchange.end_o_phase()
    }

    /// Ends the job on all ranks.
    ///
    /// Errors: the error of the first rank that has one; a rank is lost.
    pub fn end(mut self) -> Result<Report, Error> {
        // If the O phase was aborted, its waiters must be released.
        drop(self.exchange.end_o_phase());
        if let Some((over, thread)) = self.progress.take() {
            drop(over);
            let _ = thread.join();
        }
        let mut counters = *self.counters.lock();
        (counters.runs_spilled, counters.bytes_spilled, counters.spill_folders_dropped) =
            self.folders.totals();
        let mut message = Writer::default();
        match (self.exchange.stop.error(), self.exchange.stop.is_set()) {
            (Some(error), _) => error.encode(message.u8(2)),
            (None, true) => drop(message.u8(1)),
            (None, false) => drop(message.u8(0)),
        }
        counters.encode(&mut message);
        self.spans.lock().encode(&mut message);
        let job = self.plan.job;
        let gathered = self.world.gather(&message.0);
        self.world.end_job(job);
        let commits = self.world.coordinator().and_then(|coordinator| coordinator.end(job));
        let all = gathered?;
        let rank = self.world.own_launcher_rank();
        let damaged = |error: Damaged| Error::Damaged { rank, message: error.to_string() };
        let mut report = Report { name: self.spec.name.clone(), ..Report::default() };
        let (mut failed, mut stopped) = (None, false);
        for theirs in &all {
            let mut theirs = Reader(theirs);
            match theirs.u8().map_err(damaged)? {
                0 => {}
                1 => stopped = true,
                _ => {
                    let error = Error::decode(&mut theirs).map_err(damaged)?;
                    // A loss takes precedence, as it causes other failures.
                    if failed.is_none() || matches!(error, Error::RankLost { .. }) {
                        failed = Some(error);
                    }
                }
            }
            report.counters.add(&Counters::decode(&mut theirs).map_err(damaged)?);
            report.add_spans(&mut theirs).map_err(damaged)?;
        }
        // A rank lost since then had reported completion; the next collective call will fail.
        if let Some(error) = failed {
            return Err(error);
        }
        if stopped {
            let message = "a job that stopped and does not say why".to_string();
            return Err(Error::Damaged { rank, message });
        }
        if let Some(Err(error)) = commits.map(Commits::remove) {
            tracing::warn!(%error, "a checkpoint that is not needed any more was not removed");
        }
        self.world.set_has_results();
        report.spans.sort_by_key(|span| (span.side, span.task, span.begin));
        if self.world.rank() == 0 {
            self.print_report(&report);
        }
        Ok(report)
    }

    fn print_report(&self, report: &Report) {
        if self.plan.config.progress {
            eprintln!("{report}");
        }
        if let Some(path) = &self.plan.config.timeline {
            let append = std::fs::OpenOptions::new().append(true).create(true).open(path);
            let csv = report.timeline_csv();
            let written = append.and_then(|mut file| {
                // Write the header only once, however many jobs a program runs.
                let rows = csv.split_once('\n').map_or("", |(_, rows)| rows);
                let text = if file.metadata()?.len() == 0 { &csv[..] } else { rows };
                std::io::Write::write_all(&mut file, text.as_bytes())
            });
            if let Err(error) = written {
                tracing::warn!(%error, path = %path.display(), "the timeline was not written");
            }
        }
    }

    /// Builds a task's error from its function's result or panic.
    pub fn task_error(
        &self,
        side: Side,
        task: u32,
        place: String,
        cause: Cause,
        message: impl ToString,
    ) -> Error {
        let rank = self.world.own_launcher_rank();
        Error::Task(TaskError { side, task, rank, cause, place, message: message.to_string() })
    }

    pub fn panic_error(&self, side: Side, task: u32, place: String, panic: &(dyn Any + Send)) -> Error {
        self.task_error(side, task, place, Cause::Panicked, panic_message(panic))
    }
}

/// Errors: the job does not match the mode that the program was started in.
fn check_mode(started: Option<Mode>, spec: &Spec) -> Result<(), Error> {
    let Some(started) = started.filter(|started| *started != spec.mode && !spec.in_any_mode) else {
        return Ok(());
    };
    let (name, mode) = (&spec.name, spec.mode);
    let mut message =
        format!("\"{name}\" is a job of mode {mode}, and the program was started in mode {started}");
    if spec.mode == Mode::Common {
        message += ": it has neither rounds (Job::round, MPI_D_Set_mode in C, Rounds in Python) nor streams";
    }
    Err(Error::Configuration(message))
}

/// Errors: the definition is invalid for any configuration.
fn check_spec(spec: &Spec) -> Result<(), Error> {
    match &spec.refused {
        Some(why) => Err(Error::Configuration(why.clone())),
        None if spec.mode == Mode::Streaming && spec.window == 0 => {
            Err(Error::Configuration("a stream has windows, which have a width".to_string()))
        }
        None => Ok(()),
    }
}

/// Errors: the program fixes a number of tasks, and the configuration sets another. Rounds are exempt: they
/// have as many tasks as there are parts.
fn check_tasks(config: &Config, spec: &Spec) -> Result<(), Error> {
    if spec.mode == Mode::Iteration {
        return Ok(());
    }
    let counts = [
        (Side::O, spec.o_tasks, config.o_tasks, "-O or HARRIER_MPID_O"),
        (Side::A, spec.a_tasks, config.a_tasks, "-A or HARRIER_MPID_A"),
    ];
    for (side, own, configured, by) in counts {
        if let (Some(own), Some(configured)) = (own, configured)
            && own as usize != configured
        {
            let message = format!("\"{}\" has {own} {side}s, and was told {configured} by {by}", spec.name);
            return Err(Error::Configuration(message));
        }
    }
    Ok(())
}

pub(crate) fn count_store(counters: &mut Counters, store: &Store) {
    counters.a_tasks_run += 1;
    counters.pairs_received += store.received_pairs;
    counters.bytes_received += store.received_bytes;
    counters.combined_after_receiving += store.combined;
}

/// Number of tasks that this rank runs concurrently.
fn threads(config: &Config, world: &World) -> usize {
    let cores = || std::thread::available_parallelism().map_or(1, usize::from);
    config.threads.unwrap_or_else(|| (cores() / world.ranks_here()).max(1))
}

/// Prints the progress of the O tasks, or of a stream, once a second if it has changed.
fn show_progress(world: World, spec: &Spec, plan: Arc<Plan>) -> (Sender<()>, JoinHandle<()>) {
    let (over, waiting) = channel::<()>();
    let (name, is_stream) = (spec.name.clone(), spec.mode == Mode::Streaming);
    let thread = std::thread::spawn(move || {
        let mut printed = None;
        while waiting.recv_timeout(PROGRESS_INTERVAL) == Err(RecvTimeoutError::Timeout) {
            let now = match is_stream {
                true => match plan.closed.load(Ordering::Relaxed) {
                    0 => None,
                    closed => {
                        let until = plan.closed_until.load(Ordering::Relaxed);
                        Some(format!("rank 0 has closed {closed} windows of its A tasks, up to {until}"))
                    }
                },
                false => world.coordinator().map(|coordinator| {
                    let (given, left) = coordinator.progress(plan.job);
                    format!("{given} of {} O tasks begun", given + left)
                }),
            };
            if let Some(now) = now.as_ref().filter(|_| printed != now) {
                eprintln!("mpid: {name}: {now}");
            }
            printed = now;
        }
    });
    (over, thread)
}
