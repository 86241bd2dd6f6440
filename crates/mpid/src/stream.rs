//! Streaming jobs: O tasks read unbounded inputs, A tasks process tumbling windows.
//!
//! # Invariants
//! - A pair belongs to one window, by its time. Windows are contiguous and of one width.
//! - An O task advances its watermark; a pair of an earlier window is late, counted, and dropped. A window
//!   closes, and goes to its A tasks, once every O task's watermark has passed it: then all of its pairs have
//!   arrived.
//!
//! # Memory bound
//! As in other jobs: the stores of all open windows of a merger together, above which they spill. Closed
//! windows that wait for the A function: [`CLOSED_WINDOWS_MAX`]; in a [`crate::session::Session`] one window,
//! or as many as fit into half of that memory, which reduces the memory of open windows: others are spilled
//! to disk, where thousands of small ones share a file.
//!
//! # Order of calls
//! All O tasks run concurrently, each on a thread of its own, on the rank that an A task of its number would
//! have. The A function is called for each window and A task; for one A task, in window order.

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

/// Maximum number of a merger's closed windows waiting in memory for the A function. More would be unbounded
/// memory.
const CLOSED_WINDOWS_MAX: usize = 2;

/// A time interval, in the unit of the program's times.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Window {
    pub begin: u64,
    /// Exclusive; but the last window ends with 2^64-1, which it includes.
    pub end: u64,
}

impl Window {
    /// The window of this number, for windows of this width.
    pub(crate) fn of(number: u64, width: u64) -> Window {
        let begin = number.saturating_mul(width);
        Window { begin, end: begin.saturating_add(width) }
    }
}

/// Handle of a stream's O task, passed to its function.
pub struct StreamTask<'a, K: ?Sized, V: ?Sized> {
    task: OTask<'a, K, V>,
    width: u64,
    /// Windows before this one are closed to this task.
    horizon: u64,
}

impl<K: Datum + ?Sized, V: Datum + ?Sized> StreamTask<'_, K, V> {
    /// Index among all O tasks.
    pub fn index(&self) -> usize {
        self.task.index()
    }

    /// Number of O tasks.
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

    /// Sends a pair with this time. Returns false if it is late: it is then counted and dropped.
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

    /// Moves the watermark: no pair before `time` will follow. Sends the buffered pairs of windows that end
    /// by then.
    pub fn advance(&mut self, time: u64) -> Result<(), EmitError> {
        self.close(time / self.width)
    }

    fn close(&mut self, horizon: u64) -> Result<(), EmitError> {
        if horizon <= self.horizon {
            return Ok(());
        }
        self.horizon = horizon;
        self.task.emitter.close_windows(horizon).map_err(|error| self.task.record_rejection(error))
    }

    fn end(&mut self) -> Result<(), EmitError> {
        self.task.emitter.end_windows().map_err(|error| self.task.record_rejection(error))
    }
}

impl<K: Datum + ?Sized + 'static, V: Datum + ?Sized + 'static> Job<K, V> {
    /// Runs the job on unbounded inputs, in tumbling windows of this width. Collective; returns when the
    /// functions of all O tasks have returned.
    ///
    /// `a` is called for every window of every A task that received pairs, as soon as the watermarks of all O
    /// tasks have passed it. An idle input holds up all windows: it should call [`StreamTask::advance`] even
    /// without pairs. Streams have no checkpoints: a configured one is not used, and rank 0 prints one
    /// warning.
    ///
    /// A stream's memory does not grow with its length, including its timeline ([`crate::SPANS_MAX`]).
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
            let (close, closes) = sync_channel(CLOSED_WINDOWS_MAX);
            closed.lock().push(closes);
            Box::new(WindowSink::new(world, plan, folders, width, WindowQueue::Bounded(close)))
        })?;
        let closed = closed.into_inner();
        // The consumers outlive the O phase, whose end borrows the job mutably: so borrow its parts
        // separately.
        let (running_ref, a) = (&running, &a);
        let consume = |closes: std::sync::mpsc::Receiver<ClosedWindow>| {
            for ClosedWindow { window, a_task, store } in closes {
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
            running_ref.close_queues();
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

/// A closed window of an A task, with all its pairs.
pub(crate) struct ClosedWindow {
    pub window: u64,
    pub a_task: u32,
    pub store: Store,
}

/// Queue of closed windows, from mergers to the threads that run A tasks.
#[derive(Clone)]
pub(crate) enum WindowQueue {
    /// Bounded: the merger blocks while it is full.
    Bounded(SyncSender<ClosedWindow>),
    /// The receiving thread also sends pairs, so the merger must not block: excess bytes are spilled to disk.
    Spilling { sender: Option<Sender<ClosedWindow>>, waiting_bytes: Arc<AtomicUsize> },
}

impl WindowQueue {
    pub fn spilling(sender: Sender<ClosedWindow>) -> WindowQueue {
        WindowQueue::Spilling { sender: Some(sender), waiting_bytes: Arc::default() }
    }

    /// A handle for the receiver, without the sender, so that the queue can close.
    pub fn without_sender(self) -> WindowQueue {
        match self {
            WindowQueue::Spilling { waiting_bytes, .. } => {
                WindowQueue::Spilling { sender: None, waiting_bytes }
            }
            waiting => waiting,
        }
    }

    /// Releases the memory of a window taken from the queue.
    pub fn release(&self, store: &Store) {
        if let WindowQueue::Spilling { waiting_bytes, .. } = self {
            waiting_bytes.fetch_sub(store.bytes(), Ordering::Relaxed);
        }
    }

    /// Memory of the queued windows, if their number is unbounded.
    fn waiting_bytes(&self) -> usize {
        match self {
            WindowQueue::Bounded(_) => 0,
            WindowQueue::Spilling { waiting_bytes, .. } => waiting_bytes.load(Ordering::Relaxed),
        }
    }

    /// Queues a window. A stopping job may have no receiver; the window is then dropped.
    fn send(
        &self,
        mut closed: ClosedWindow,
        bytes_max: usize,
        spiller: &mut Spiller,
    ) -> Result<(), StoreError> {
        match self {
            WindowQueue::Bounded(sender) => drop(sender.send(closed)),
            WindowQueue::Spilling { sender, waiting_bytes } => {
                let waiting = self.waiting_bytes();
                if waiting > 0 && waiting + closed.store.bytes() > bytes_max {
                    closed.store.spill(spiller)?;
                }
                waiting_bytes.fetch_add(closed.store.bytes(), Ordering::Relaxed);
                if let Some(sender) = sender {
                    drop(sender.send(closed));
                }
            }
        }
        Ok(())
    }
}

/// Watermark of an O task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Watermark {
    /// It sends nothing more of windows before this one.
    Window(u64),
    /// It sends nothing more. Differs from any window: the last one may have pairs.
    End,
}

/// Stores the pairs of open windows, and passes on each closed one.
pub(crate) struct WindowSink {
    rank: usize,
    plan: Arc<Plan>,
    /// Width of a window.
    width: u64,
    spiller: Spiller,
    /// By A task and window.
    stores: BTreeMap<(u32, u64), Store>,
    /// Memory of all open windows.
    open_bytes: usize,
    /// By A task: the watermark of each O task.
    watermarks: HashMap<u32, Vec<Watermark>>,
    bytes_max: usize,
    queue: WindowQueue,
}

impl WindowSink {
    pub fn new(
        world: &World,
        plan: &Arc<Plan>,
        folders: &Arc<SpillFolders>,
        width: u64,
        queue: WindowQueue,
    ) -> WindowSink {
        WindowSink {
            rank: world.own_launcher_rank(),
            plan: Arc::clone(plan),
            width,
            spiller: Spiller::sharing(folders),
            stores: BTreeMap::new(),
            open_bytes: 0,
            watermarks: HashMap::new(),
            bytes_max: plan.cache_bytes / plan.mergers,
            queue,
        }
    }

    fn store(&mut self, header: BlockHeader, pairs: Bytes) -> Result<(), Error> {
        let (rank, a_task) = (self.rank, header.a_task);
        let shape = &self.plan.shape;
        let store = self.stores.entry((a_task, header.window)).or_insert_with(|| Store::new(shape.clone()));
        let window = Some(Window::of(header.window, self.width).begin);
        origin::set_work(Work { a_task, window });
        let before = store.bytes();
        let added = store.add(pairs, header.pairs, &mut self.spiller);
        self.open_bytes = self.open_bytes - before + store.bytes();
        added.map_err(|error| store_error(error, a_task, window, rank))?;
        // However many windows wait, do not spill single blocks.
        let bytes_max = self.bytes_max.saturating_sub(self.queue.waiting_bytes()).max(self.bytes_max / 2);
        while self.open_bytes > bytes_max {
            let largest = self.stores.iter_mut().max_by_key(|(_, store)| store.bytes());
            let ((a_task, window), store) = largest.expect("some store is larger than nothing");
            let before = store.bytes();
            let window = Some(Window::of(*window, self.width).begin);
            origin::set_work(Work { a_task: *a_task, window });
            let spilled = store.spill(&mut self.spiller);
            self.open_bytes = self.open_bytes - before + store.bytes();
            spilled.map_err(|error| store_error(error, *a_task, window, rank))?;
            if store.bytes() >= before {
                break;
            }
        }
        Ok(())
    }

    fn advance_watermark(&mut self, a_task: u32, o_task: u32, to: Watermark) -> Result<(), Error> {
        let o_tasks = self.plan.o_tasks as usize;
        let watermarks = self.watermarks.entry(a_task).or_insert_with(|| vec![Watermark::Window(0); o_tasks]);
        let lowest =
            |watermarks: &[Watermark]| watermarks.iter().copied().min().unwrap_or(Watermark::Window(0));
        let before = lowest(watermarks);
        watermarks[o_task as usize] = watermarks[o_task as usize].max(to);
        let low = lowest(watermarks);
        if low == before {
            return Ok(());
        }
        while let Some((&(_, window), _)) = self.stores.range((a_task, 0)..=(a_task, u64::MAX)).next()
            && Watermark::Window(window) < low
        {
            let store = self.stores.remove(&(a_task, window)).expect("it was just seen");
            self.open_bytes -= store.bytes();
            let within = Window::of(window, self.width);
            let begin = Some(within.begin);
            origin::set_work(Work { a_task, window: begin });
            let closed = ClosedWindow { window, a_task, store };
            let sent = self.queue.send(closed, self.bytes_max / 2, &mut self.spiller);
            sent.map_err(|error| store_error(error, a_task, begin, self.rank))?;
            self.plan.closed_until.fetch_max(within.end, Ordering::Relaxed);
            self.plan.closed.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }
}

impl Sink for WindowSink {
    fn push(&mut self, header: BlockHeader, pairs: Bytes) -> Result<(), Error> {
        match header.kind {
            BlockKind::Pairs => self.store(header, pairs)?,
            BlockKind::Watermark => {
                self.advance_watermark(header.a_task, header.o_task, Watermark::Window(header.window))?
            }
            BlockKind::TaskEnd => self.advance_watermark(header.a_task, header.o_task, Watermark::End)?,
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
