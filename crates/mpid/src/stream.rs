//! Streaming: O tasks read inputs that may never end, A tasks get window after window.
//!
//! # Invariants
//! - A pair belongs to one window, by its time. Windows follow one another and have one width.
//! - An O task says how far its input has come; a pair of an earlier window is late, counted, and left out. A
//!   window is closed, and given to its A tasks, once every O task has come past it: then all of its pairs
//!   are there.
//!
//! # Memory bound
//! As in other jobs: the stores of all open windows of a merger together, above which they are spilled.
//! Closed windows that wait for the A function: [`CLOSED_WAITING_MAX`]; in a [`crate::session::Session`] one,
//! or all together half of that memory, which open windows have less then: others go to disk, where thousands
//! of small ones share a file.
//!
//! # Order of calls
//! All O tasks run at the same time, each on a thread of its own, on the rank that an A task of its number
//! would have. The A function is called for each window and A task; for one A task, in the order of windows.

use crate::Report;
use crate::config::{Config, Mode};
use crate::counters::now;
use crate::datum::Datum;
use crate::emit::EmitError;
use crate::error::{BoxError, Error, Side};
use crate::exchange::{Plan, Sink, store_error};
use crate::job::{ATask, Job, OTask, run_a};
use crate::origin::{self, Work};
use crate::records::{BlockHeader, BlockKind};
use crate::running::{Running, Spec};
use crate::spill::{SpillFolders, Spiller};
use crate::store::{Store, StoreError};
use crate::world::World;
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, SyncSender, sync_channel};

/// Closed windows of a merger that wait for the A function in memory. More would be memory that nothing
/// bounds.
const CLOSED_WAITING_MAX: usize = 2;

/// An interval of time, in whatever unit the program's times have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Window {
    pub begin: u64,
    /// Not within it any more; but the last window ends with 2^64-1, which is within it.
    pub end: u64,
}

impl Window {
    /// The one with this number, of those of this width.
    pub(crate) fn of(number: u64, width: u64) -> Window {
        let begin = number.saturating_mul(width);
        Window { begin, end: begin.saturating_add(width) }
    }
}

/// An O task of a stream as its function sees it.
pub struct StreamTask<'a, K: ?Sized, V: ?Sized> {
    task: OTask<'a, K, V>,
    width: u64,
    /// Windows before this one are closed to this task.
    horizon: u64,
}

impl<K: Datum + ?Sized, V: Datum + ?Sized> StreamTask<'_, K, V> {
    /// Of this task among all O tasks.
    pub fn index(&self) -> usize {
        self.task.index()
    }

    /// All O tasks.
    pub fn count(&self) -> usize {
        self.task.count()
    }

    /// See [`OTask::reads`].
    pub fn reads(&mut self, source: &str) {
        self.task.reads(source);
    }

    /// See [`OTask::at`].
    pub fn at(&mut self, position: u64) {
        self.task.at(position);
    }

    /// Sends a pair of this time. Returns whether it was in time; a late one is counted, and left out.
    ///
    /// Errors: as [`OTask::emit`].
    #[inline]
    pub fn emit(&mut self, time: u64, key: &K, value: &V) -> Result<bool, EmitError> {
        let window = time / self.width;
        if window < self.horizon {
            self.task.late += 1;
            return Ok(false);
        }
        self.task.emit_in_window(window, key, value)?;
        Ok(true)
    }

    /// Says that nothing comes any more of a time before `time`. What was sent of windows that end by then is
    /// on its way.
    pub fn advance(&mut self, time: u64) -> Result<(), EmitError> {
        self.close(time / self.width)
    }

    fn close(&mut self, horizon: u64) -> Result<(), EmitError> {
        if horizon <= self.horizon {
            return Ok(());
        }
        self.horizon = horizon;
        self.task.emitter.close_windows(horizon).map_err(|error| self.task.remember(error))
    }

    fn end(&mut self) -> Result<(), EmitError> {
        self.task.emitter.end_windows().map_err(|error| self.task.remember(error))
    }
}

impl<K: Datum + ?Sized + 'static, V: Datum + ?Sized + 'static> Job<K, V> {
    /// Runs the job on inputs that may never end, in tumbling windows of this width. Collective; returns when
    /// the functions of all O tasks have.
    ///
    /// `a` is called for every window of every A task that got pairs, as soon as all O tasks have come past
    /// it. An input that stands still holds up the windows of all: it should say [`StreamTask::advance`] even
    /// without pairs. There are no checkpoints of streams: a configured one is not used, and rank 0 warns of
    /// that once.
    ///
    /// What a stream keeps does not grow with its length, its timeline included ([`crate::SPANS_MAX`]).
    ///
    /// Errors: as [`Job::run`].
    pub fn stream(
        &self,
        world: &World,
        config: &Config,
        width: u64,
        o: impl Fn(&mut StreamTask<'_, K, V>) -> Result<(), BoxError> + Sync,
        a: impl Fn(Window, &mut ATask<K, V>) -> Result<(), BoxError> + Sync,
    ) -> Result<Report, Error> {
        assert!(width > 0, "a window has a width");
        let spec = Spec {
            owned: true,
            mode: Mode::Streaming,
            in_any_mode: false,
            window: width,
            ..self.spec().clone()
        };
        let closed = Mutex::new(Vec::new());
        let mut running = Running::start_with(world, config, spec, |plan, folders, _| {
            let (close, closes) = sync_channel(CLOSED_WAITING_MAX);
            closed.lock().push(closes);
            Box::new(WindowSink::new(world, plan, folders, width, Closing::Waiting(close)))
        })?;
        let closed = closed.into_inner();
        // The consumers outlive the O phase, whose end needs the job for itself: so its parts are told apart.
        let (running_ref, a) = (&running, &a);
        let consume = |closes: std::sync::mpsc::Receiver<Closed>| {
            for Closed { window, a_task, store } in closes {
                if running_ref.stop().is_set() {
                    continue;
                }
                let begin = now();
                running_ref.a_task_begins(&store);
                let pairs = store.received_pairs;
                let within = Window::of(window, width);
                let work = Work { a_task, window: Some(within.begin) };
                run_a(running_ref, work, store, &|task: &mut ATask<K, V>| a(within, task));
                running_ref.span(Side::A, a_task, begin, pairs);
            }
        };
        std::thread::scope(|scope| {
            let consumers: Vec<_> =
                closed.into_iter().map(|closes| scope.spawn(|| consume(closes))).collect();
            std::thread::scope(|scope| {
                while let Some(o_task) = running_ref.take_task() {
                    let o = &o;
                    scope.spawn(move || run_stream(running_ref, o_task, width, o));
                }
            });
            running_ref.close_outs();
            consumers.into_iter().for_each(|consumer| {
                let _ = consumer.join();
            });
        });
        drop(running.end_o_phase());
        running.end()
    }
}

fn run_stream<K: Datum + ?Sized, V: Datum + ?Sized>(
    running: &Running,
    o_task: u32,
    width: u64,
    o: &impl Fn(&mut StreamTask<'_, K, V>) -> Result<(), BoxError>,
) {
    let begin = now();
    let emitter = running.o_task(o_task).without_table();
    let mut task = StreamTask { task: OTask::new(running, o_task, emitter), width, horizon: 0 };
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        o(&mut task)?;
        task.end()?;
        Ok(())
    }));
    task.task.settle(outcome);
    running.o_task_done(o_task, begin, &task.task.emitter, task.task.late);
}

/// A window of an A task, with all its pairs.
pub(crate) struct Closed {
    pub window: u64,
    pub a_task: u32,
    pub store: Store,
}

/// The way of closed windows to who runs A tasks.
#[derive(Clone)]
pub(crate) enum Closing {
    /// The merger waits while there are too many.
    Waiting(SyncSender<Closed>),
    /// Who takes them sends, too, and so must not be waited for: what are too many bytes of them go to disk.
    Spilling { way: Option<Sender<Closed>>, waiting_bytes: Arc<AtomicUsize> },
}

impl Closing {
    pub fn spilling(way: Sender<Closed>) -> Closing {
        Closing::Spilling { way: Some(way), waiting_bytes: Arc::default() }
    }

    /// For who takes them: it must not hold the way open.
    pub fn without_way(self) -> Closing {
        match self {
            Closing::Spilling { waiting_bytes, .. } => Closing::Spilling { way: None, waiting_bytes },
            waiting => waiting,
        }
    }

    /// One was taken.
    pub fn taken(&self, store: &Store) {
        if let Closing::Spilling { waiting_bytes, .. } = self {
            waiting_bytes.fetch_sub(store.bytes(), Ordering::Relaxed);
        }
    }

    /// Memory of those that wait, where their number has no bound.
    fn waiting_bytes(&self) -> usize {
        match self {
            Closing::Waiting(_) => 0,
            Closing::Spilling { waiting_bytes, .. } => waiting_bytes.load(Ordering::Relaxed),
        }
    }

    /// Nobody takes it any more when the job is to stop.
    fn give(&self, mut closed: Closed, bytes_max: usize, spiller: &mut Spiller) -> Result<(), StoreError> {
        match self {
            Closing::Waiting(way) => drop(way.send(closed)),
            Closing::Spilling { way, waiting_bytes } => {
                let waiting = self.waiting_bytes();
                if waiting > 0 && waiting + closed.store.bytes() > bytes_max {
                    closed.store.spill(spiller)?;
                }
                waiting_bytes.fetch_add(closed.store.bytes(), Ordering::Relaxed);
                if let Some(way) = way {
                    drop(way.send(closed));
                }
            }
        }
        Ok(())
    }
}

/// How far an O task has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Reached {
    /// It sends nothing more of windows before this one.
    Window(u64),
    /// It sends nothing more. Not the same as any window: there may be pairs of the last one.
    End,
}

/// Keeps the pairs of open windows, and hands on each that is closed.
pub(crate) struct WindowSink {
    rank: usize,
    plan: Arc<Plan>,
    /// Of a window.
    width: u64,
    spiller: Spiller,
    /// By A task and window.
    stores: BTreeMap<(u32, u64), Store>,
    /// Of all of them.
    open_bytes: usize,
    /// By A task: how far each O task has come.
    reached: HashMap<u32, Vec<Reached>>,
    bytes_max: usize,
    closing: Closing,
}

impl WindowSink {
    pub fn new(
        world: &World,
        plan: &Arc<Plan>,
        folders: &Arc<SpillFolders>,
        width: u64,
        closing: Closing,
    ) -> WindowSink {
        WindowSink {
            rank: world.launched_rank(),
            plan: Arc::clone(plan),
            width,
            spiller: Spiller::sharing(folders),
            stores: BTreeMap::new(),
            open_bytes: 0,
            reached: HashMap::new(),
            bytes_max: plan.cache_bytes / plan.mergers,
            closing,
        }
    }

    fn keep(&mut self, header: BlockHeader, pairs: Bytes) -> Result<(), Error> {
        let (rank, a_task) = (self.rank, header.a_task);
        let shape = &self.plan.shape;
        let store = self.stores.entry((a_task, header.window)).or_insert_with(|| Store::new(shape.clone()));
        let window = Some(Window::of(header.window, self.width).begin);
        origin::works_on(Work { a_task, window });
        let before = store.bytes();
        let added = store.add(pairs, header.pairs, &mut self.spiller);
        self.open_bytes = self.open_bytes - before + store.bytes();
        added.map_err(|error| store_error(error, a_task, window, rank))?;
        // However much waits, blocks are not spilled one by one.
        let bytes_max = self.bytes_max.saturating_sub(self.closing.waiting_bytes()).max(self.bytes_max / 2);
        while self.open_bytes > bytes_max {
            let largest = self.stores.iter_mut().max_by_key(|(_, store)| store.bytes());
            let ((a_task, window), store) = largest.expect("some store is larger than nothing");
            let before = store.bytes();
            let window = Some(Window::of(*window, self.width).begin);
            origin::works_on(Work { a_task: *a_task, window });
            let spilled = store.spill(&mut self.spiller);
            self.open_bytes = self.open_bytes - before + store.bytes();
            spilled.map_err(|error| store_error(error, *a_task, window, rank))?;
            if store.bytes() >= before {
                break;
            }
        }
        Ok(())
    }

    fn reach(&mut self, a_task: u32, o_task: u32, to: Reached) -> Result<(), Error> {
        let o_tasks = self.plan.o_tasks as usize;
        let reached = self.reached.entry(a_task).or_insert_with(|| vec![Reached::Window(0); o_tasks]);
        let lowest = |reached: &[Reached]| reached.iter().copied().min().unwrap_or(Reached::Window(0));
        let before = lowest(reached);
        reached[o_task as usize] = reached[o_task as usize].max(to);
        let low = lowest(reached);
        if low == before {
            return Ok(());
        }
        while let Some((&(_, window), _)) = self.stores.range((a_task, 0)..=(a_task, u64::MAX)).next()
            && Reached::Window(window) < low
        {
            let store = self.stores.remove(&(a_task, window)).expect("it was just seen");
            self.open_bytes -= store.bytes();
            let within = Window::of(window, self.width);
            let begin = Some(within.begin);
            origin::works_on(Work { a_task, window: begin });
            let closed = Closed { window, a_task, store };
            let given = self.closing.give(closed, self.bytes_max / 2, &mut self.spiller);
            given.map_err(|error| store_error(error, a_task, begin, self.rank))?;
            self.plan.closed_until.fetch_max(within.end, Ordering::Relaxed);
            self.plan.closed.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }
}

impl Sink for WindowSink {
    fn take(&mut self, header: BlockHeader, pairs: Bytes) -> Result<(), Error> {
        match header.kind {
            BlockKind::Pairs => self.keep(header, pairs)?,
            BlockKind::Watermark => {
                self.reach(header.a_task, header.o_task, Reached::Window(header.window))?
            }
            BlockKind::TaskEnd => self.reach(header.a_task, header.o_task, Reached::End)?,
        }
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<Vec<(u32, Store)>, Error> {
        match self.stores.is_empty() {
            true => Ok(vec![]),
            false => {
                let message = "windows that were not closed at the end of all inputs".to_string();
                Err(Error::Damaged { rank: self.rank, message })
            }
        }
    }
}
