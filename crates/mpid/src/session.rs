//! Pull-style job on byte strings: the program asks for its tasks, the inverse of [`crate::Job`]. For
//! languages whose programs have a loop of their own.
//!
//! # Order of calls
//! [`Session::start`], then [`Session::next_task`] until it returns `None`; between two calls
//! [`Session::send`] in an O task, [`Session::receive`] in an A task; last [`Session::finish`], also after an
//! error. Start and finish are collective. A job that is finished, goes on to another round, or is dropped
//! while tasks are left fails on all ranks ([`Error::Unfinished`]): pairs would be missing.
//!
//! In rounds ([`Mode::Iteration`]) an A task stores pairs with [`Session::keep`] in memory for the tasks of
//! the same number in later rounds, which read them with [`Session::kept_pair`]. When no task is left, all
//! ranks call [`Session::sum`] and [`Session::next_round`], or finish.
//!
//! In streams ([`Mode::Streaming`]) a rank's O task is resumed until it calls [`Session::end_input`]; in
//! between it sends with [`Session::send_at`] and moves its watermark with [`Session::advance`]. An A task is
//! a closed window.
//!
//! # Threads
//! All calls on one thread. A rank runs one task at a time, so it has at most one O task of a stream.
//!
//! # Memory bound
//! Pairs kept between rounds have no bound: the program decides. Closed windows that wait for their A task
//! use at most half of the job's share of memory, or one window if that is larger; others are spilled to
//! disk, where small ones share a file.

mod kept_pairs;

use crate::config::{Config, Mode};
use crate::counters::{Report, now};
use crate::datum::Rejected;
use crate::emit::{EmitError, Emitter};
use crate::error::{Cause, Error, Side};
use crate::exchange::{Plan, store_error};
use crate::input::{self, Share, Split};
use crate::job::ReceiveError;
use crate::origin::{Work, format_key};
use crate::running::{Running, Spec};
use crate::runs::KeyOrder;
use crate::store::{Shape, Source, Store};
use crate::stream::{ClosedWindow, Window, WindowQueue, WindowSink};
use crate::table::{Combine, CombineError};
use crate::world::World;
use kept_pairs::{Cursor, Part};
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

pub use crate::store::Arrangement;

/// Combines two values of a key. Arguments: the key, both values, and the output buffer.
pub type CombineBytes = dyn Fn(&[u8], &[u8], &[u8], &mut Vec<u8>) -> Result<(), Rejected> + Send + Sync;

/// Chooses the A task of a key, given the number of A tasks, or rejects the key.
pub type PartitionBytes = dyn Fn(&[u8], usize) -> Result<usize, Rejected> + Send + Sync;

pub use crate::runs::CompareBytes;

/// Options of a byte-string job; the same on every rank.
#[derive(Clone, Default)]
pub struct Shaping {
    pub mode: Mode,
    /// Width of a stream's windows, in the unit of the program's times.
    pub window_width: u64,
    pub arrangement: Arrangement,
    pub combine: Option<Arc<CombineBytes>>,
    /// Chooses the A task of a key, given the number of A tasks.
    pub partition: Option<Arc<PartitionBytes>>,
    /// Order of keys; `None`: byte order.
    pub compare: Option<Arc<CompareBytes>>,
    /// Error that the program found in its own options: all ranks report it.
    pub refused: Option<String>,
}

struct BytesCombiner(Arc<CombineBytes>);

impl Combine for BytesCombiner {
    fn combine(
        &self,
        key: &[u8],
        held: &[u8],
        value: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), Box<CombineError>> {
        (self.0)(key, held, value, out).map_err(|rejected| self.blame(key, held, value, rejected))
    }
}

impl BytesCombiner {
    /// Finds which value is at fault. There is no codec to ask, and the combiner only rejects the
    /// combination, so each value is combined with itself.
    #[cold]
    fn blame(&self, key: &[u8], held: &[u8], value: &[u8], rejected: Rejected) -> Box<CombineError> {
        let accepts = |one: &[u8]| (self.0)(key, one, one, &mut Vec::new()).is_ok();
        Box::new(match (accepts(held), accepts(value)) {
            (false, true) => CombineError::Existing(rejected),
            (true, false) => CombineError::New(rejected),
            _ => CombineError::Either(rejected),
        })
    }
}

/// A running O task.
struct Input {
    index: u32,
    begin: Duration,
    emitter: Emitter,
    /// Kept pairs already read, and whether the task reads them as its input.
    cursor: Cursor,
    reads_kept: bool,
    /// The task's share of input files, if requested.
    share: Share,
    /// Streaming: windows before this one are closed for this task.
    horizon: u64,
    late: u64,
    /// Streaming: the input has ended.
    has_ended: bool,
}

/// A running A task.
struct Output {
    index: u32,
    begin: Duration,
    pairs: u64,
    source: Source,
    received: u64,
    /// Whether the last received pair was the final one.
    at_end: bool,
    cursor: Cursor,
    /// Pairs to keep, replacing those kept before.
    new_kept: Option<Part>,
    window: Option<Window>,
}

/// The current task.
enum Current {
    None,
    O(Box<Input>),
    A(Box<Output>),
}

/// Stream state besides the job.
struct Streaming {
    width: u64,
    /// The rank's O task while suspended.
    input: Option<Box<Input>>,
    closed: Receiver<ClosedWindow>,
    queue: WindowQueue,
}

/// A rank's step between two rounds; all ranks take the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Finish,
    NextRound,
    Sum,
}

/// See the module documentation.
pub struct Session {
    world: World,
    config: Config,
    name: String,
    mode: Mode,
    plan: Arc<Plan>,
    /// `None` when the round or the job is over.
    running: Option<Running>,
    /// Whether [`Session::next_task`] has returned `None` in this round.
    is_exhausted: bool,
    /// Whether all ranks have ended the job.
    has_ended: bool,
    report: Report,
    /// Error that prevents another round.
    failed: Option<Error>,
    current: Current,
    /// Stores of A tasks that have not run; `None` before the end of the O phase.
    stores: Option<VecDeque<(u32, Store)>>,
    round: u64,
    /// Pairs kept on this rank, by task.
    kept_pairs: BTreeMap<u32, Part>,
    streaming: Option<Streaming>,
}

fn spec_of(name: &str, config: &Config, shaping: &Shaping, mode: Mode) -> Spec {
    let shape = Shape {
        arrangement: shaping.arrangement,
        order: shaping.compare.clone().map_or(KeyOrder::Bytes, KeyOrder::Custom),
        combine: shaping.combine.clone().map(|combine| Arc::new(BytesCombiner(combine)) as Arc<dyn Combine>),
        run_bytes: config.run_bytes,
    };
    let partition = shaping.partition.clone().map(|partition| {
        let chooses: Arc<crate::emit::Partition> = Arc::new(move |key, parts| partition(key, parts));
        chooses
    });
    Spec {
        name: name.to_string(),
        o_tasks: None,
        a_tasks: None,
        o_tasks_default: None,
        shape,
        partition,
        owned: mode == Mode::Streaming,
        mode,
        in_any_mode: false,
        window: if mode == Mode::Streaming { shaping.window_width } else { 0 },
        refused: shaping.refused.clone(),
    }
}

impl Session {
    /// Errors: as [`crate::Job::run`] before its first task; a stream whose windows have width 0, or with
    /// more O tasks than ranks.
    pub fn start(world: &World, config: &Config, name: &str, shaping: &Shaping) -> Result<Session, Error> {
        let config = Config { threads: Some(1), ..config.clone() };
        let mode = shaping.mode;
        let spec = spec_of(name, &config, shaping, mode);
        let (running, streaming) = match mode {
            Mode::Common | Mode::Iteration => (Running::start(world, &config, spec, world.next_job())?, None),
            Mode::Streaming => {
                let (running, streaming) = start_stream(world, &config, spec)?;
                (running, Some(streaming))
            }
        };
        Ok(Session {
            world: world.clone(),
            config,
            name: name.to_string(),
            mode,
            plan: Arc::clone(&running.plan),
            running: Some(running),
            is_exhausted: false,
            has_ended: false,
            report: Report::default(),
            failed: None,
            current: Current::None,
            stores: None,
            round: 0,
            kept_pairs: BTreeMap::new(),
            streaming,
        })
    }

    fn running(&self) -> &Running {
        self.running.as_ref().expect("a task runs, so its round does")
    }

    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// Number of the current round, from 0.
    pub fn round(&self) -> u64 {
        self.round
    }

    /// Finishes the current task successfully and begins the next. Waits for other ranks between the last O
    /// task and the first A task; when streaming, for a window once this rank's inputs have ended. `None`: no
    /// task is left, or the job is stopping.
    pub fn next_task(&mut self) -> Option<(Side, usize)> {
        let next = self.begin_next();
        self.is_exhausted = next.is_none();
        next
    }

    fn begin_next(&mut self) -> Option<(Side, usize)> {
        self.end_task();
        self.running.as_ref()?;
        if self.streaming.is_some() {
            return self.next_of_stream();
        }
        if self.stores.is_none() {
            if let Some(index) = self.running().take_task() {
                let mut emitter = self.running().o_task(index);
                let reads_kept = self.round > 0;
                if reads_kept {
                    emitter.set_source(&format!("round {}, kept pairs", self.round));
                }
                return Some(self.begin_o(index, emitter, reads_kept));
            }
            let stores = self.running.as_mut().expect("it was just seen").end_o_phase();
            self.stores = Some(stores.into());
        }
        if self.running().stop().is_set() {
            return None;
        }
        let (index, store) = self.stores.as_mut()?.pop_front()?;
        self.begin_a(index, store, None)
    }

    fn begin_o(&mut self, index: u32, emitter: Emitter, reads_kept: bool) -> (Side, usize) {
        let begin = now();
        let cursor = Cursor::default();
        self.current = Current::O(Box::new(Input {
            index,
            begin,
            emitter,
            cursor,
            reads_kept,
            share: Share::default(),
            horizon: 0,
            late: 0,
            has_ended: false,
        }));
        (Side::O, index as usize)
    }

    fn begin_a(&mut self, index: u32, store: Store, window: Option<Window>) -> Option<(Side, usize)> {
        self.running().a_task_begins(&store);
        let (begin, pairs) = (now(), store.received_pairs);
        // May call the program's comparator to sort.
        let finished = catch_unwind(AssertUnwindSafe(|| store.finish()));
        let window_begin = window.map(|window| window.begin);
        let finished = match finished {
            Ok(finished) => {
                let rank = self.running().world.own_launcher_rank();
                finished.map_err(|error| store_error(error, index, window_begin, rank))
            }
            Err(panic) => {
                let place = "before its first record".to_string();
                Err(self.running().panic_error(Side::A, index, place, &*panic))
            }
        };
        let source = match finished {
            Ok(source) => source,
            Err(error) => {
                self.running().stop().fail(error);
                return None;
            }
        };
        self.current = Current::A(Box::new(Output {
            index,
            begin,
            pairs,
            source,
            received: 0,
            at_end: false,
            cursor: Cursor::default(),
            new_kept: None,
            window,
        }));
        Some((Side::A, index as usize))
    }

    /// Next task of a stream: a closed window if there is one, else the O task, else the next window that
    /// closes.
    fn next_of_stream(&mut self) -> Option<(Side, usize)> {
        let running = self.running.as_ref()?;
        let streaming = self.streaming.as_mut()?;
        let stops = running.stop().is_set();
        let mut closed = if stops { None } else { streaming.closed.try_recv().ok() };
        if closed.is_none() && !stops {
            if let Some(input) = streaming.input.take() {
                let index = input.index as usize;
                self.current = Current::O(input);
                return Some((Side::O, index));
            }
            if let Some(index) = running.take_task() {
                let emitter = running.o_task(index).without_table();
                return Some(self.begin_o(index, emitter, false));
            }
        }
        if closed.is_none() {
            // This rank sends nothing more; the merger ends when that holds for all ranks.
            streaming.input = None;
            running.close_queues();
            closed = streaming.closed.recv().ok();
        }
        let ClosedWindow { window, a_task, store } = closed.filter(|_| !running.stop().is_set())?;
        streaming.queue.release(&store);
        let window = Window::of(window, streaming.width);
        self.begin_a(a_task, store, Some(window))
    }

    fn end_task(&mut self) {
        match std::mem::replace(&mut self.current, Current::None) {
            Current::None => {}
            Current::O(mut input) => {
                if let Some(streaming) = self.streaming.as_mut().filter(|_| !input.has_ended) {
                    streaming.input = Some(input);
                    return;
                }
                let finished = match self.streaming {
                    Some(_) => input.emitter.end_windows(),
                    None => input.emitter.finish(),
                };
                self.running().o_task_done(input.index, input.begin, &input.emitter, input.late);
                if let Err(EmitError::Rejected(rejected)) = finished {
                    self.fail_task(Side::O, input.emitter.blame(), Cause::Rejected, &rejected.to_string());
                }
            }
            Current::A(mut output) => {
                if let Some(part) = output.new_kept.take() {
                    self.kept_pairs.insert(output.index, part);
                }
                self.running().span(Side::A, output.index, output.begin, output.pairs);
            }
        }
    }

    /// Number of tasks on this side.
    pub fn tasks(&self, side: Side) -> usize {
        if side == Side::O { self.plan.o_tasks as usize } else { self.plan.a_tasks as usize }
    }

    /// The current task's side and index.
    pub fn task(&self) -> Option<(Side, usize)> {
        match &self.current {
            Current::None => None,
            Current::O(input) => Some((Side::O, input.index as usize)),
            Current::A(output) => Some((Side::A, output.index as usize)),
        }
    }

    /// Window of the current A task, when streaming.
    pub fn window(&self) -> Option<Window> {
        match &self.current {
            Current::A(output) => output.window,
            _ => None,
        }
    }

    /// Sets the input's name of the current O task, for errors. Returns whether an O task is running.
    pub fn reads(&mut self, source: &str) -> bool {
        let Current::O(input) = &mut self.current else { return false };
        input.emitter.set_source(source);
        input.reads_kept = false;
        true
    }

    /// Sets the current O task's position in its input, such as a byte or a row, for errors. Returns whether
    /// an O task is running.
    pub fn at(&mut self, position: u64) -> bool {
        let Current::O(input) = &mut self.current else { return false };
        input.emitter.origin.position = Some(position);
        true
    }

    /// Assigns the current O task its share of files, including all files in folders: splits of
    /// `split_bytes`, or by default as [`input::splits_for`] computes them. In a stream, the share stays
    /// until the task's input has ended.
    ///
    /// Errors: a file cannot be inspected, or too many splits, which fails the task; no O task is running.
    pub fn share(&mut self, paths: &[PathBuf], split_bytes: Option<u64>) -> Result<(), String> {
        let tasks = self.tasks(Side::O);
        let Current::O(task) = &mut self.current else { return Err("no O task runs".to_string()) };
        let splits = match split_bytes {
            Some(bytes) => input::splits(paths, bytes),
            None => input::splits_for(paths, tasks),
        };
        match splits {
            Ok(splits) => task.share = Share::of(splits, task.index as usize, tasks),
            Err(error) => return Err(self.failed_with(&error)),
        }
        Ok(())
    }

    /// Next split of the current O task's share; the task's errors name its file. `None`: no split is left.
    pub fn next_split(&mut self) -> Option<Split> {
        let Current::O(task) = &mut self.current else { return None };
        let split = task.share.next_split()?.clone();
        self.reads(&split.name());
        Some(split)
    }

    /// Next line that begins in the split, without its line ending, and its offset in the file, which the
    /// task's errors report. `None` after the last one.
    ///
    /// Errors: the file cannot be read, or the line is too long, which fails the task.
    pub fn next_line(&mut self) -> Result<Option<(u64, &[u8])>, String> {
        let Current::O(task) = &mut self.current else { return Ok(None) };
        // Return the borrowed line; otherwise fail the task.
        let failed = match task.share.next_line() {
            Ok(Some((at, _))) => {
                task.emitter.origin.position = Some(at);
                None
            }
            Ok(None) => return Ok(None),
            Err(error) => Some(error),
        };
        if let Some(error) = failed {
            return Err(self.failed_with(&error));
        }
        let Current::O(task) = &self.current else { return Ok(None) };
        Ok(task.share.line())
    }

    /// The current O task's part of a range of bytes or other units. `None`: no O task is running.
    pub fn part_of(&self, range: Range<u64>) -> Option<Range<u64>> {
        let Current::O(task) = &self.current else { return None };
        Some(input::part(range, task.index as usize, self.tasks(Side::O)))
    }

    fn failed_with(&mut self, error: &std::io::Error) -> String {
        let message = error.to_string();
        self.fail(&message);
        message
    }

    /// Sends a pair from an O task. Returns immediately unless the send queue is full.
    ///
    /// Errors: the job is stopping, the pair is rejected, or no O task is running; in a stream, pairs need a
    /// time.
    pub fn send(&mut self, key: &[u8], value: &[u8]) -> Result<(), EmitError> {
        let sent = match (&mut self.current, &self.streaming) {
            (Current::O(input), None) => input.emitter.emit(key, value),
            (Current::O(_), Some(_)) => return Err(rejection("a pair of a stream has a time")),
            _ => return Err(rejection("only an O task sends")),
        };
        self.blame_sent(sent)
    }

    /// Sends a pair with this time. Returns false if it is late: it is then counted and dropped.
    ///
    /// Errors: as [`Session::send`]; not a stream, or the input has ended.
    pub fn send_at(&mut self, time: u64, key: &[u8], value: &[u8]) -> Result<bool, EmitError> {
        let (Current::O(input), Some(streaming)) = (&mut self.current, &self.streaming) else {
            return Err(rejection("only an O task of a stream sends pairs of a time"));
        };
        if input.has_ended {
            return Err(rejection("the input has ended"));
        }
        let window = time / streaming.width;
        if window < input.horizon {
            input.late += 1;
            return Ok(false);
        }
        let sent = input.emitter.emit_in_window(window, key, value);
        self.blame_sent(sent).map(|()| true)
    }

    /// Moves the watermark: no pair before `time` will follow. Sends the buffered pairs of windows that end
    /// by then.
    ///
    /// Errors: as [`Session::send_at`].
    pub fn advance(&mut self, time: u64) -> Result<(), EmitError> {
        let (Current::O(input), Some(streaming)) = (&mut self.current, &self.streaming) else {
            return Err(rejection("only an O task of a stream says how far it has come"));
        };
        if input.has_ended {
            return Err(rejection("the input has ended"));
        }
        let horizon = time / streaming.width;
        if horizon <= input.horizon {
            return Ok(());
        }
        input.horizon = horizon;
        let closed = input.emitter.close_windows(horizon);
        self.blame_sent(closed)
    }

    /// Ends the input of the stream's current O task, which is not resumed again. Returns whether one is
    /// running.
    pub fn end_input(&mut self) -> bool {
        match (&mut self.current, &self.streaming) {
            (Current::O(input), Some(_)) => {
                input.has_ended = true;
                true
            }
            _ => false,
        }
    }

    /// Whether the stream's current O task has ended its input.
    pub fn has_ended_input(&self) -> bool {
        matches!(&self.current, Current::O(input) if input.has_ended)
    }

    fn blame_sent(&mut self, sent: Result<(), EmitError>) -> Result<(), EmitError> {
        if let (Err(EmitError::Rejected(rejected)), Current::O(input)) = (&sent, &self.current) {
            self.fail_task(Side::O, input.emitter.blame(), Cause::Rejected, &rejected.to_string());
        }
        sent
    }

    /// Advances to the next pair of an A task. Returns whether there is one.
    ///
    /// Errors: the pair cannot be read, or no A task is running.
    pub fn receive(&mut self) -> Result<bool, ReceiveError> {
        let Current::A(output) = &mut self.current else {
            return Err(Rejected("only an A task receives".to_string()).into());
        };
        match output.source.advance() {
            Ok(more) => {
                output.received += u64::from(more);
                output.at_end = !more;
                Ok(more)
            }
            Err(error) => {
                let error = ReceiveError::from(error);
                // Counts the pair that combining was to produce.
                output.received += u64::from(matches!(error, ReceiveError::Rejected(_)));
                let blamed = (output.index, self.place_of_output());
                let rank = self.running().world.own_launcher_rank();
                match &error {
                    ReceiveError::Rejected(rejected) => {
                        self.fail_task(Side::A, blamed, Cause::Rejected, &rejected.to_string());
                    }
                    ReceiveError::Spill(message) => {
                        self.running().stop().fail(Error::Spill { rank, message: message.clone() });
                    }
                    ReceiveError::Damaged(message) => {
                        self.running().stop().fail(Error::Damaged { rank, message: message.clone() });
                    }
                }
                Err(error)
            }
        }
    }

    /// Key and value of the A task's current pair.
    pub fn pair(&self) -> (&[u8], &[u8]) {
        match &self.current {
            Current::A(output) if output.received > 0 && !output.at_end => {
                (output.source.key(), output.source.value())
            }
            _ => (&[], &[]),
        }
    }

    /// Advances to the next pair kept for tasks of this number before this task began, in the order in which
    /// they were kept. Returns whether there is one. A first round has none.
    pub fn next_kept(&mut self) -> bool {
        let (index, cursor) = match &mut self.current {
            Current::O(input) => (input.index, &mut input.cursor),
            Current::A(output) => (output.index, &mut output.cursor),
            Current::None => return false,
        };
        let more = self.kept_pairs.get(&index).is_some_and(|part| cursor.advance(part));
        if let Current::O(input) = &mut self.current
            && more
            && input.reads_kept
        {
            input.emitter.origin.position = Some(input.cursor.count() - 1);
        }
        more
    }

    /// Key and value of the pair at [`Session::next_kept`]; valid until the task ends.
    pub fn kept_pair(&self) -> (&[u8], &[u8]) {
        let (index, cursor) = match &self.current {
            Current::O(input) => (input.index, &input.cursor),
            Current::A(output) => (output.index, &output.cursor),
            Current::None => return (&[], &[]),
        };
        match self.kept_pairs.get(&index) {
            Some(part) => cursor.pair(part),
            None => (&[], &[]),
        }
    }

    /// Keeps a pair of an A task in memory for the tasks of its number in later rounds. The pairs a task
    /// keeps replace those kept before; if it keeps none, the earlier ones stay. Returns whether an A task of
    /// rounds is running.
    pub fn keep(&mut self, key: &[u8], value: &[u8]) -> bool {
        match &mut self.current {
            Current::A(output) if self.mode == Mode::Iteration => {
                output.new_kept.get_or_insert_default().push(key, value);
                true
            }
            _ => false,
        }
    }

    /// Fails the current task, and the job with it.
    pub fn fail(&mut self, message: &str) {
        let (side, blamed) = match &self.current {
            Current::None => return,
            Current::O(input) => (Side::O, (input.index, input.emitter.origin.place())),
            Current::A(output) => (Side::A, (output.index, self.place_of_output())),
        };
        self.fail_task(side, blamed, Cause::Failed, message);
    }

    /// Position of the current A task, for errors.
    fn place_of_output(&self) -> String {
        let Current::A(output) = &self.current else { return String::new() };
        let place = match output.received {
            0 => "before its first record".to_string(),
            number if output.at_end => format!("record {number}"),
            number => format!("record {number} (key {})", format_key(output.source.key())),
        };
        let place = if self.round > 0 { format!("round {}, {place}", self.round) } else { place };
        Work { a_task: output.index, window: output.window.map(|window| window.begin) }.place(&place)
    }

    /// Reason of the job's failure as far as a rank has reported it. If the job was stopped here, waits
    /// briefly for the other rank's reason.
    pub fn failure(&self) -> Option<String> {
        let reason = self.running.as_ref().and_then(|running| running.stop().why());
        reason.or_else(|| self.failed.as_ref().map(|error| error.to_string()))
    }

    /// Fails the job, whether or not a task is running: an option was set too late.
    pub fn refuse(&mut self, message: &str) {
        if let Some(running) = &self.running {
            running.stop().fail(Error::Configuration(message.to_string()));
        } else {
            self.failed.get_or_insert_with(|| Error::Configuration(message.to_string()));
        }
    }

    fn fail_task(&self, side: Side, (index, place): (u32, String), cause: Cause, message: &str) {
        let error = self.running().task_error(side, index, place, cause, message);
        self.running().stop().fail(error);
    }

    /// Whether no task is running or left, so that the ranks may call a collective.
    pub fn is_between_rounds(&self) -> bool {
        let left = self.stores.as_ref().is_none_or(|stores| !stores.is_empty());
        let stops = self.running.as_ref().is_none_or(|running| running.stop().is_set());
        self.mode == Mode::Iteration && matches!(self.current, Current::None) && (stops || !left)
    }

    /// Sums the ranks' numbers element by element, in rank order, so the result is identical on every rank.
    /// Collective, between rounds.
    ///
    /// Errors: the round has failed; ranks take different steps, or pass different counts.
    pub fn sum(&mut self, numbers: &mut [f64]) -> Result<(), Error> {
        self.end_round()?;
        let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
        let all = self.agree(Step::Sum, &bytes)?;
        numbers.fill(0.0);
        for theirs in all {
            for (sum, number) in numbers.iter_mut().zip(theirs[1..].chunks_exact(8)) {
                *sum += f64::from_le_bytes(number.try_into().expect("eight bytes"));
            }
        }
        Ok(())
    }

    /// Begins another round, with as many O and A tasks as there were A tasks; each runs where its kept pairs
    /// are. Collective.
    ///
    /// Errors: the previous round has failed on any rank or has unfinished tasks; ranks take different steps;
    /// a session without rounds.
    pub fn next_round(&mut self, shaping: &Shaping) -> Result<(), Error> {
        if self.mode != Mode::Iteration {
            return Err(Error::Configuration(format!("a program of mode {} has no rounds", self.mode)));
        }
        self.end_round()?;
        self.agree(Step::NextRound, &[])?;
        let parts = Some(self.plan.a_tasks);
        let spec = spec_of(&self.name, &self.config, shaping, self.mode);
        let spec = Spec { o_tasks: parts, a_tasks: parts, owned: true, ..spec };
        let running = Running::start(&self.world, &self.config, spec, self.world.next_job());
        let running = running.inspect_err(|error| self.failed = Some(error.clone()))?;
        self.plan = Arc::clone(&running.plan);
        self.running = Some(running);
        self.is_exhausted = false;
        self.stores = None;
        self.round += 1;
        Ok(())
    }

    /// Checks that every rank takes the same step. Returns each rank's payload, after the leading step byte.
    fn agree(&mut self, step: Step, bytes: &[u8]) -> Result<Vec<Vec<u8>>, Error> {
        let mine = [&[step as u8], bytes].concat();
        let gathered = self.world.gather(&mine).and_then(|all| {
            // Compare with rank 0's message, so that every rank gets the same result.
            let shape = |theirs: &Vec<u8>| (theirs.first().copied(), theirs.len());
            let Some(odd) = all.iter().position(|theirs| shape(theirs) != shape(&all[0])) else {
                return Ok(all);
            };
            let does = |theirs: &[u8]| match theirs.first() {
                Some(step) if *step == Step::Finish as u8 => "ends".to_string(),
                Some(step) if *step == Step::NextRound as u8 => "begins another round".to_string(),
                _ => format!("adds up {} numbers", theirs.len().saturating_sub(1) / 8),
            };
            Err(Error::Configuration(format!(
                "after round {} rank 0 {} and rank {odd} {}",
                self.round,
                does(&all[0]),
                does(&all[odd])
            )))
        });
        gathered.inspect_err(|error| self.failed = Some(error.clone()))
    }

    /// Ends the round on all ranks if it is not over.
    fn end_round(&mut self) -> Result<(), Error> {
        if self.running.is_some() {
            self.fail_unless_complete();
            // Returns no task: the round is complete or stopping.
            while self.next_task().is_some() {}
        }
        if let Some(running) = self.running.take() {
            match running.end() {
                Ok(report) => self.report = report,
                Err(error) => self.failed = Some(error),
            }
        }
        self.failed.clone().map_or(Ok(()), Err)
    }

    /// Fails the job unless it is complete: pairs not sent or read, and tasks not requested, would be missing
    /// from the result.
    fn fail_unless_complete(&self) {
        let stop = self.running().stop();
        if self.is_exhausted || stop.is_set() {
            return;
        }
        let left = |side, index: u32, place: String| match place.is_empty() {
            true => format!("it left {side} {index}"),
            false => format!("it left {side} {index}, {place}"),
        };
        let message = match &self.current {
            Current::O(input) => left(Side::O, input.index, input.emitter.origin.place()),
            Current::A(output) => left(Side::A, output.index, self.place_of_output()),
            Current::None => "it did not ask for all of them".to_string(),
        };
        stop.fail(Error::Unfinished { rank: self.world.own_launcher_rank(), message });
    }

    /// Ends the job on all ranks. Returns the counters of the last round.
    ///
    /// Errors: as [`crate::Job::run`]; other ranks go on to another round; unfinished tasks.
    pub fn finish(mut self) -> Result<Report, Error> {
        self.end()
    }

    fn end(&mut self) -> Result<Report, Error> {
        self.has_ended = true;
        self.end_round()?;
        if self.mode == Mode::Iteration {
            self.agree(Step::Finish, &[])?;
        }
        Ok(std::mem::take(&mut self.report))
    }
}

impl Drop for Session {
    /// Fails the job on the other ranks if tasks are unfinished, as [`Session::finish`] does, but does not
    /// wait for them.
    fn drop(&mut self) {
        if !self.has_ended
            && let Err(error) = self.end()
        {
            tracing::warn!(%error, "a job was dropped before its end");
        }
    }
}

fn rejection(why: &str) -> EmitError {
    EmitError::Rejected(Rejected(why.to_string()))
}

fn start_stream(world: &World, config: &Config, mut spec: Spec) -> Result<(Running, Streaming), Error> {
    let (width, ranks) = (spec.window, world.ranks());
    let too_many = config.o_tasks.filter(|o_tasks| *o_tasks > ranks);
    if let Some(inputs) = too_many {
        spec.refused.get_or_insert(format!(
            "{inputs} inputs of a stream on {ranks} ranks: a rank reads one at a time, and all are read at the same time"
        ));
    }
    let (close, closed) = channel();
    let queue = WindowQueue::spilling(close);
    let sink_closing = queue.clone();
    let running = Running::start_with(world, config, spec, |plan, folders, _| {
        Box::new(WindowSink::new(world, plan, folders, width, sink_closing.clone()))
    })?;
    // Otherwise the receiver would never see the end of the closed windows.
    drop(sink_closing);
    Ok((running, Streaming { width, input: None, closed, queue: queue.without_sender() }))
}
