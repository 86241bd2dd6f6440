//! A job whose tasks are asked for, in bytes: the other way round than [`crate::Job`], for languages whose
//! programs have a loop of their own.
//!
//! # Order of calls
//! [`Session::start`], then [`Session::next_task`] until there is none; between two of them [`Session::send`]
//! in an O task, [`Session::receive`] in an A task; last [`Session::finish`], also after an error. Start and
//! finish are collective. A job that is finished, goes on to another round, or is dropped, before there is no
//! task left, fails on all ranks ([`Error::Unfinished`]): pairs would be missing.
//!
//! In rounds ([`Mode::Iteration`]) an A task says with [`Session::keep`] what stays in memory for the tasks
//! of its number, which have it from [`Session::kept`]. When there is no task left, all ranks call
//! [`Session::sum`] and [`Session::next_round`], or finish.
//!
//! In streams ([`Mode::Streaming`]) the O task of a rank is come back to until it has called
//! [`Session::end_input`]; in between it sends with [`Session::send_at`] and says with [`Session::advance`]
//! how far it has come. An A task is a window that has closed.
//!
//! # Threads
//! All calls on one thread. A rank runs one task at a time, so that it has one O task of a stream at most.
//!
//! # Memory bound
//! What is kept between rounds has none: it is what the program keeps. Windows that have closed and wait for
//! their A task have half of the job's share of memory, or are one: others go to disk, where small ones share
//! a file.

mod kept;

use crate::config::{Config, Mode};
use crate::counters::{Report, now};
use crate::datum::Rejected;
use crate::emit::{EmitError, Emitter};
use crate::error::{Cause, Error, Side};
use crate::exchange::{Plan, store_error};
use crate::input::{self, Share, Split};
use crate::job::ReceiveError;
use crate::origin::{Work, shown};
use crate::running::{Running, Spec};
use crate::runs::KeyOrder;
use crate::store::{Shape, Source, Store};
use crate::stream::{Closed, Closing, Window, WindowSink};
use crate::table::{Combine, Refusal};
use crate::world::World;
use kept::{Cursor, Part};
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

pub use crate::store::Arrangement;

/// Joins two values of a key: is given the key, both values, and where to write what they are together.
pub type CombineBytes = dyn Fn(&[u8], &[u8], &[u8], &mut Vec<u8>) -> Result<(), Rejected> + Send + Sync;

/// Chooses the A task of a key, among so many, or does not accept the key.
pub type PartitionBytes = dyn Fn(&[u8], usize) -> Result<usize, Rejected> + Send + Sync;

pub use crate::runs::CompareBytes;

/// What a job in bytes is; the same on every rank.
#[derive(Clone, Default)]
pub struct Shaping {
    pub mode: Mode,
    /// Of windows, when streaming, in the unit of the program's times.
    pub window_width: u64,
    pub arrangement: Arrangement,
    pub combine: Option<Arc<CombineBytes>>,
    /// Chooses the A task of a key, among so many.
    pub partition: Option<Arc<PartitionBytes>>,
    /// The order of keys; of their bytes if there is none.
    pub compare: Option<Arc<CompareBytes>>,
    /// Why the program cannot run, as it has found itself: all ranks are told that instead.
    pub refused: Option<String>,
}

struct Combining(Arc<CombineBytes>);

impl Combine for Combining {
    fn combine(&self, key: &[u8], held: &[u8], value: &[u8], out: &mut Vec<u8>) -> Result<(), Box<Refusal>> {
        (self.0)(key, held, value, out).map_err(|rejected| self.blame(key, held, value, rejected))
    }
}

impl Combining {
    /// There is no codec to ask, and a combiner says only that it does not accept two values: so each is
    /// tried with itself.
    #[cold]
    fn blame(&self, key: &[u8], held: &[u8], value: &[u8], rejected: Rejected) -> Box<Refusal> {
        let accepts = |one: &[u8]| (self.0)(key, one, one, &mut Vec::new()).is_ok();
        Box::new(match (accepts(held), accepts(value)) {
            (false, true) => Refusal::Held(rejected),
            (true, false) => Refusal::Came(rejected),
            _ => Refusal::Either(rejected),
        })
    }
}

/// An O task.
struct Input {
    index: u32,
    begin: Duration,
    emitter: Emitter,
    /// Pairs that it was given of those that were kept, and whether what it reads is them.
    kept: Cursor,
    reads_kept: bool,
    /// What it reads, if it has asked for its share of files.
    share: Share,
    /// When streaming: windows before this one are closed to this task.
    horizon: u64,
    late: u64,
    /// When streaming: nothing comes any more.
    over: bool,
}

/// An A task.
struct Output {
    index: u32,
    begin: Duration,
    pairs: u64,
    source: Source,
    received: u64,
    /// Whether there is no pair behind the last that was received.
    at_end: bool,
    kept: Cursor,
    /// What it keeps instead of what was kept.
    keeps: Option<Part>,
    window: Option<Window>,
}

/// The task that runs.
enum Current {
    None,
    O(Box<Input>),
    A(Box<Output>),
}

/// What is there of a stream beside its job.
struct Streaming {
    width: u64,
    /// The O task of this rank, when it does not run.
    input: Option<Box<Input>>,
    closed: Receiver<Closed>,
    closing: Closing,
}

/// What a rank does between two rounds; all of them do the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Finish,
    NextRound,
    Sum,
}

/// See the module.
pub struct Session {
    world: World,
    config: Config,
    name: String,
    mode: Mode,
    plan: Arc<Plan>,
    /// `None`: the round is over, or the job is.
    running: Option<Running>,
    /// Whether the program was told that no task of the round is left.
    is_through: bool,
    /// Whether all ranks have ended the job.
    has_ended: bool,
    report: Report,
    /// Why there is no other round.
    failed: Option<Error>,
    current: Current,
    /// Of A tasks that have not run; `None` before the O phase is over.
    stores: Option<VecDeque<(u32, Store)>>,
    round: u64,
    /// By task, what this rank keeps.
    kept: BTreeMap<u32, Part>,
    streaming: Option<Streaming>,
}

fn spec_of(name: &str, config: &Config, shaping: &Shaping, mode: Mode) -> Spec {
    let shape = Shape {
        arrangement: shaping.arrangement,
        order: shaping.compare.clone().map_or(KeyOrder::Bytes, KeyOrder::Custom),
        combine: shaping.combine.clone().map(|combine| Arc::new(Combining(combine)) as Arc<dyn Combine>),
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
        o_tasks_unless_told: None,
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
    /// Errors: as [`crate::Job::run`], of what goes before the first task; a stream whose windows have no
    /// width, or with more O tasks than there are ranks.
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
            is_through: false,
            has_ended: false,
            report: Report::default(),
            failed: None,
            current: Current::None,
            stores: None,
            round: 0,
            kept: BTreeMap::new(),
            streaming,
        })
    }

    fn running(&self) -> &Running {
        self.running.as_ref().expect("a task runs, so its round does")
    }

    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// Of the rounds that have begun, from 0.
    pub fn round(&self) -> u64 {
        self.round
    }

    /// Ends the current task well, and begins the next one. Waits for other ranks between the last O task and
    /// the first A task; when streaming, for a window once the inputs of this rank have ended. `None`: there
    /// is none left, or the job is to stop.
    pub fn next_task(&mut self) -> Option<(Side, usize)> {
        let next = self.begin_next();
        self.is_through = next.is_none();
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
                    emitter.reads(&format!("round {}, kept pairs", self.round));
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
        let kept = Cursor::default();
        self.current = Current::O(Box::new(Input {
            index,
            begin,
            emitter,
            kept,
            reads_kept,
            share: Share::default(),
            horizon: 0,
            late: 0,
            over: false,
        }));
        (Side::O, index as usize)
    }

    fn begin_a(&mut self, index: u32, store: Store, window: Option<Window>) -> Option<(Side, usize)> {
        self.running().a_task_begins(&store);
        let (begin, pairs) = (now(), store.received_pairs);
        // It sorts, by the program's order of keys if there is one.
        let finished = catch_unwind(AssertUnwindSafe(|| store.finish()));
        let window_begin = window.map(|window| window.begin);
        let finished = match finished {
            Ok(finished) => {
                let rank = self.running().world.launched_rank();
                finished.map_err(|error| store_error(error, index, window_begin, rank))
            }
            Err(panic) => {
                let place = "before its first record".to_string();
                Err(self.running().panicked(Side::A, index, place, &*panic))
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
            kept: Cursor::default(),
            keeps: None,
            window,
        }));
        Some((Side::A, index as usize))
    }

    /// A window that has closed, else the O task, else whatever window closes next.
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
            // Nothing comes from here any more; the merger ends when that is so of all ranks.
            streaming.input = None;
            running.close_outs();
            closed = streaming.closed.recv().ok();
        }
        let Closed { window, a_task, store } = closed.filter(|_| !running.stop().is_set())?;
        streaming.closing.taken(&store);
        let window = Window::of(window, streaming.width);
        self.begin_a(a_task, store, Some(window))
    }

    fn end_task(&mut self) {
        match std::mem::replace(&mut self.current, Current::None) {
            Current::None => {}
            Current::O(mut input) => {
                if let Some(streaming) = self.streaming.as_mut().filter(|_| !input.over) {
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
                if let Some(part) = output.keeps.take() {
                    self.kept.insert(output.index, part);
                }
                self.running().span(Side::A, output.index, output.begin, output.pairs);
            }
        }
    }

    /// Tasks of the current one's kind.
    pub fn tasks(&self, side: Side) -> usize {
        if side == Side::O { self.plan.o_tasks as usize } else { self.plan.a_tasks as usize }
    }

    /// The current task.
    pub fn task(&self) -> Option<(Side, usize)> {
        match &self.current {
            Current::None => None,
            Current::O(input) => Some((Side::O, input.index as usize)),
            Current::A(output) => Some((Side::A, output.index as usize)),
        }
    }

    /// Of the current A task, when streaming.
    pub fn window(&self) -> Option<Window> {
        match &self.current {
            Current::A(output) => output.window,
            _ => None,
        }
    }

    /// Says what the current O task reads from now on, for errors. Returns whether one runs.
    pub fn reads(&mut self, source: &str) -> bool {
        let Current::O(input) = &mut self.current else { return false };
        input.emitter.reads(source);
        input.reads_kept = false;
        true
    }

    /// Says where in what it reads the current O task is, such as a byte or a row, for errors. Returns
    /// whether one runs.
    pub fn at(&mut self, position: u64) -> bool {
        let Current::O(input) = &mut self.current else { return false };
        input.emitter.origin.position = Some(position);
        true
    }

    /// Gives the current O task its share of files, and of all files in folders: splits of so many bytes, or,
    /// without a number, as [`input::splits_for`] cuts them. In a stream, for as long as the task has not
    /// ended.
    ///
    /// Errors: a file that cannot be looked at, or too many splits, which fail the task; no O task runs.
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

    /// The next split of the current O task's share, of which errors of the task name the file. `None`: there
    /// is none left.
    pub fn next_split(&mut self) -> Option<Split> {
        let Current::O(task) = &mut self.current else { return None };
        let split = task.share.next_split()?.clone();
        self.reads(&split.name());
        Some(split)
    }

    /// The next line that begins in the split, without its end, and where that is in the file, as errors of
    /// the task have it. `None` behind the last one.
    ///
    /// Errors: the file cannot be read, or the line is too long, which fails the task.
    pub fn next_line(&mut self) -> Result<Option<(u64, &[u8])>, String> {
        let Current::O(task) = &mut self.current else { return Ok(None) };
        // What is borrowed is returned, or the task fails.
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

    /// The current O task's part of a range of bytes, or of whatever is counted. `None`: no O task runs.
    pub fn part_of(&self, range: Range<u64>) -> Option<Range<u64>> {
        let Current::O(task) = &self.current else { return None };
        Some(input::part(range, task.index as usize, self.tasks(Side::O)))
    }

    fn failed_with(&mut self, error: &std::io::Error) -> String {
        let message = error.to_string();
        self.fail(&message);
        message
    }

    /// Sends a pair from an O task. Returns at once, unless the send queue is full.
    ///
    /// Errors: the job is to stop, the pair is refused, or no O task runs; in a stream pairs have a time.
    pub fn send(&mut self, key: &[u8], value: &[u8]) -> Result<(), EmitError> {
        let sent = match (&mut self.current, &self.streaming) {
            (Current::O(input), None) => input.emitter.emit(key, value),
            (Current::O(_), Some(_)) => return Err(refused("a pair of a stream has a time")),
            _ => return Err(refused("only an O task sends")),
        };
        self.blame_sent(sent)
    }

    /// Sends a pair of this time. Returns whether it was in time; a late one is counted, and left out.
    ///
    /// Errors: as [`Session::send`]; it is no stream, or the input has ended.
    pub fn send_at(&mut self, time: u64, key: &[u8], value: &[u8]) -> Result<bool, EmitError> {
        let (Current::O(input), Some(streaming)) = (&mut self.current, &self.streaming) else {
            return Err(refused("only an O task of a stream sends pairs of a time"));
        };
        if input.over {
            return Err(refused("the input has ended"));
        }
        let window = time / streaming.width;
        if window < input.horizon {
            input.late += 1;
            return Ok(false);
        }
        let sent = input.emitter.emit_in_window(window, key, value);
        self.blame_sent(sent).map(|()| true)
    }

    /// Says that nothing comes any more of a time before `time`. What was sent of windows that end by then is
    /// on its way.
    ///
    /// Errors: as [`Session::send_at`].
    pub fn advance(&mut self, time: u64) -> Result<(), EmitError> {
        let (Current::O(input), Some(streaming)) = (&mut self.current, &self.streaming) else {
            return Err(refused("only an O task of a stream says how far it has come"));
        };
        if input.over {
            return Err(refused("the input has ended"));
        }
        let horizon = time / streaming.width;
        if horizon <= input.horizon {
            return Ok(());
        }
        input.horizon = horizon;
        let closed = input.emitter.close_windows(horizon);
        self.blame_sent(closed)
    }

    /// Nothing comes any more from the current O task of a stream, which is not come back to. Returns whether
    /// one runs.
    pub fn end_input(&mut self) -> bool {
        match (&mut self.current, &self.streaming) {
            (Current::O(input), Some(_)) => {
                input.over = true;
                true
            }
            _ => false,
        }
    }

    /// Whether the current O task of a stream has ended its input.
    pub fn has_ended_input(&self) -> bool {
        matches!(&self.current, Current::O(input) if input.over)
    }

    fn blame_sent(&mut self, sent: Result<(), EmitError>) -> Result<(), EmitError> {
        if let (Err(EmitError::Rejected(rejected)), Current::O(input)) = (&sent, &self.current) {
            self.fail_task(Side::O, input.emitter.blame(), Cause::Rejected, &rejected.to_string());
        }
        sent
    }

    /// Goes to the next pair of an A task. Returns whether there is one.
    ///
    /// Errors: it cannot be read, or no A task runs.
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
                let told = ReceiveError::from(error);
                // The pair that was to be made of others.
                output.received += u64::from(matches!(told, ReceiveError::Rejected(_)));
                let blamed = (output.index, self.place_of_output());
                let rank = self.running().world.launched_rank();
                match &told {
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
                Err(told)
            }
        }
    }

    /// Key and value of the current pair of an A task.
    pub fn pair(&self) -> (&[u8], &[u8]) {
        match &self.current {
            Current::A(output) if output.received > 0 && !output.at_end => {
                (output.source.key(), output.source.value())
            }
            _ => (&[], &[]),
        }
    }

    /// Goes to the next of the pairs that were kept before this task for those of its number, in the order in
    /// which they were. Returns whether there is one. There are none in a first round.
    pub fn next_kept(&mut self) -> bool {
        let (index, cursor) = match &mut self.current {
            Current::O(input) => (input.index, &mut input.kept),
            Current::A(output) => (output.index, &mut output.kept),
            Current::None => return false,
        };
        let more = self.kept.get(&index).is_some_and(|part| cursor.advance(part));
        if let Current::O(input) = &mut self.current
            && more
            && input.reads_kept
        {
            input.emitter.origin.position = Some(input.kept.count() - 1);
        }
        more
    }

    /// Key and value of the pair that [`Session::next_kept`] went to. They stay where they are until the task
    /// ends.
    pub fn kept(&self) -> (&[u8], &[u8]) {
        let (index, cursor) = match &self.current {
            Current::O(input) => (input.index, &input.kept),
            Current::A(output) => (output.index, &output.kept),
            Current::None => return (&[], &[]),
        };
        match self.kept.get(&index) {
            Some(part) => cursor.pair(part),
            None => (&[], &[]),
        }
    }

    /// Keeps a pair of an A task in memory for the tasks of its number in the rounds to come. What a task
    /// keeps takes the place of what was kept before; that of a task that keeps nothing stays. Returns
    /// whether an A task of rounds runs.
    pub fn keep(&mut self, key: &[u8], value: &[u8]) -> bool {
        match &mut self.current {
            Current::A(output) if self.mode == Mode::Iteration => {
                output.keeps.get_or_insert_default().push(key, value);
                true
            }
            _ => false,
        }
    }

    /// The current task has failed, and the job with it.
    pub fn fail(&mut self, message: &str) {
        let (side, blamed) = match &self.current {
            Current::None => return,
            Current::O(input) => (Side::O, (input.index, input.emitter.origin.place())),
            Current::A(output) => (Side::A, (output.index, self.place_of_output())),
        };
        self.fail_task(side, blamed, Cause::Failed, message);
    }

    /// Where the current A task is.
    fn place_of_output(&self) -> String {
        let Current::A(output) = &self.current else { return String::new() };
        let place = match output.received {
            0 => "before its first record".to_string(),
            number if output.at_end => format!("record {number}"),
            number => format!("record {number} (key {})", shown(output.source.key())),
        };
        let place = if self.round > 0 { format!("round {}, {place}", self.round) } else { place };
        Work { a_task: output.index, window: output.window.map(|window| window.begin) }.place(&place)
    }

    /// Why the job has failed, as far as any rank has said so. What another one says is waited for, not long,
    /// if the job has stopped here.
    pub fn failure(&self) -> Option<String> {
        let told = self.running.as_ref().and_then(|running| running.stop().why());
        told.or_else(|| self.failed.as_ref().map(|error| error.to_string()))
    }

    /// The job has failed, whether or not a task runs: it was told what it cannot be told any more.
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

    /// Whether no task runs or is left, so that the ranks may agree on something.
    pub fn is_between_rounds(&self) -> bool {
        let left = self.stores.as_ref().is_none_or(|stores| !stores.is_empty());
        let stops = self.running.as_ref().is_none_or(|running| running.stop().is_set());
        self.mode == Mode::Iteration && matches!(self.current, Current::None) && (stops || !left)
    }

    /// Adds up what each rank has, number by number, in the order of ranks: the same on every rank.
    /// Collective, between rounds.
    ///
    /// Errors: the round has failed; ranks that do something else, or have another count of numbers.
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

    /// Begins another round, whose O and A tasks are as many as the A tasks before, each where what is kept
    /// for it is. Collective.
    ///
    /// Errors: the round before has failed, as on every rank, or has tasks that are not done; ranks that do
    /// something else; a session without rounds.
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
        self.is_through = false;
        self.stores = None;
        self.round += 1;
        Ok(())
    }

    /// Hears from every rank that it does the same. Returns what they say behind one byte for what they do.
    fn agree(&mut self, step: Step, bytes: &[u8]) -> Result<Vec<Vec<u8>>, Error> {
        let mine = [&[step as u8], bytes].concat();
        let told = self.world.gather(&mine).and_then(|all| {
            // Against what rank 0 said, so that every rank finds the same.
            let said = |theirs: &Vec<u8>| (theirs.first().copied(), theirs.len());
            let Some(odd) = all.iter().position(|theirs| said(theirs) != said(&all[0])) else {
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
        told.inspect_err(|error| self.failed = Some(error.clone()))
    }

    /// The end of the round on all ranks, if it is not over.
    fn end_round(&mut self) -> Result<(), Error> {
        if self.running.is_some() {
            self.fail_unless_through();
            // There is none: it is through, or stops.
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

    /// What a task has not sent or read is missing from the answer, and so are tasks that nobody has asked
    /// for.
    fn fail_unless_through(&self) {
        let stop = self.running().stop();
        if self.is_through || stop.is_set() {
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
        stop.fail(Error::Unfinished { rank: self.world.launched_rank(), message });
    }

    /// The end of the job on all ranks. Returns what the last round counted.
    ///
    /// Errors: as [`crate::Job::run`]; other ranks go on to another round; tasks are not done.
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
    /// As [`Session::finish`]: the other ranks are told of tasks that are not done, and do not wait.
    fn drop(&mut self) {
        if !self.has_ended
            && let Err(error) = self.end()
        {
            tracing::warn!(%error, "a job was dropped before its end");
        }
    }
}

fn refused(why: &str) -> EmitError {
    EmitError::Rejected(Rejected(why.to_string()))
}

fn start_stream(world: &World, config: &Config, mut spec: Spec) -> Result<(Running, Streaming), Error> {
    let (width, ranks) = (spec.window, world.ranks());
    let too_many = config.o_tasks.filter(|o_tasks| *o_tasks > ranks);
    if let Some(told) = too_many {
        spec.refused.get_or_insert(format!(
            "{told} inputs of a stream on {ranks} ranks: a rank reads one at a time, and all are read at the same time"
        ));
    }
    let (close, closed) = channel();
    let closing = Closing::spilling(close);
    let sink_closing = closing.clone();
    let running = Running::start_with(world, config, spec, |plan, folders, _| {
        Box::new(WindowSink::new(world, plan, folders, width, sink_closing.clone()))
    })?;
    // Else nobody would hear that nothing closes any more.
    drop(sink_closing);
    Ok((running, Streaming { width, input: None, closed, closing: closing.without_way() }))
}
