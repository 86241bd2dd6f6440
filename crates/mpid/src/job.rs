//! Jobs: O tasks emit pairs, A tasks receive them, each with the user's functions and types.

use crate::config::{Config, Mode};
use crate::counters::{Report, now};
use crate::datum::{Datum, Rejected};
use crate::emit::{EmitError, Emitter, Partition};
use crate::error::{BoxError, Cause, Error, Side};
use crate::input::Split;
use crate::origin::{self, Work, shown};
use crate::records;
use crate::running::{Running, Spec};
use crate::runs::KeyOrder;
use crate::store::{Arrangement, Shape, Source, Store, StoreError};
use crate::table::{Combine, Refusal};
use crate::world::World;
use bytes::Bytes;
use parking_lot::Mutex;
use std::any::TypeId;
use std::cmp::Ordering;
use std::fmt;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, OnceLock};

/// Bytes of the blocks into which pairs are put that stay.
const KEPT_BLOCK_BYTES: usize = 1 << 20;

/// A bipartite job over keys `K` and values `V`. Every rank makes the same one and runs it.
///
/// ```
/// use harrier_mpid::{Config, Job, World};
/// let world = World::join()?;
/// let lines = ["to be or not", "to be"];
/// let outcome = Job::<str, u64>::new("word count").o_tasks(2).sorted().combine(|a, b| a + b).run(
///     &world,
///     &Config::default(),
///     |task| {
///         for word in lines[task.index()].split(' ') {
///             task.emit(word, &1)?;
///         }
///         Ok(())
///     },
///     |task| {
///         let mut counts = Vec::new();
///         while let Some(mut group) = task.next_group()? {
///             let (word, count) = group.fold(0, |sum, count| sum + count)?;
///             counts.push((word.to_string(), count));
///         }
///         Ok(counts)
///     },
/// )?;
/// let mut counts: Vec<_> = outcome.outputs.into_iter().flat_map(|(_, counts)| counts).collect();
/// counts.sort();
/// assert_eq!(counts[1], ("not".to_string(), 1));
/// world.leave(0)?;
/// # Ok::<(), harrier_mpid::Error>(())
/// ```
pub struct Job<K: ?Sized, V: ?Sized> {
    spec: Spec,
    types: PhantomData<fn(&K, &V)>,
}

impl<K: Datum + ?Sized + 'static, V: Datum + ?Sized + 'static> Job<K, V> {
    /// A job whose A tasks get all values of a key together, keys in no order.
    pub fn new(name: &str) -> Job<K, V> {
        let shape =
            Shape { arrangement: Arrangement::Grouped, order: KeyOrder::Bytes, combine: None, run_bytes: 0 };
        let spec = Spec {
            name: name.to_string(),
            o_tasks: None,
            a_tasks: None,
            o_tasks_unless_told: None,
            shape,
            partition: None,
            owned: false,
            mode: Mode::Common,
            in_any_mode: false,
            window: 0,
            refused: None,
        };
        Job { spec, types: PhantomData }
    }

    /// How many O tasks: these and no others. A configuration that says another number is refused.
    pub fn o_tasks(mut self, tasks: usize) -> Self {
        self.spec.o_tasks = Some(u32::try_from(tasks).expect("fewer than 2^32 tasks"));
        self
    }

    /// How many O tasks if the configuration does not say ([`Config::o_tasks`], `mpidrun -O`): for tasks that
    /// share their input with [`OTask::share_of`], of which any number will do.
    pub fn o_tasks_unless_told(mut self, tasks: usize) -> Self {
        self.spec.o_tasks_unless_told = Some(u32::try_from(tasks).expect("fewer than 2^32 tasks"));
        self
    }

    /// Lets [`Job::run`] run this job also in a program that was started for rounds or streams
    /// ([`Config::mode`], `mpidrun -mode`): one that loads what they go over, say. Others are refused there.
    pub fn in_any_mode(mut self) -> Self {
        self.spec.in_any_mode = true;
        self
    }

    /// How many A tasks: these and no others. A configuration that says another number is refused.
    pub fn a_tasks(mut self, tasks: usize) -> Self {
        self.spec.a_tasks = Some(u32::try_from(tasks).expect("fewer than 2^32 tasks"));
        self
    }

    /// A tasks get pairs as they come.
    pub fn plain(mut self) -> Self {
        self.spec.shape.arrangement = Arrangement::Plain;
        self
    }

    /// A tasks get keys in their order.
    pub fn sorted(mut self) -> Self {
        self.spec.shape.arrangement = Arrangement::Sorted;
        if !K::BYTE_ORDER {
            self.spec.shape.order = KeyOrder::Custom(Arc::new(K::compare));
        }
        self
    }

    /// A tasks get keys in this order. Keys that are equal in it and differ otherwise stay groups of their
    /// own.
    pub fn sorted_by(
        mut self,
        compare: impl for<'a> Fn(K::View<'a>, K::View<'a>) -> Ordering + Send + Sync + 'static,
    ) -> Self {
        self.spec.shape.arrangement = Arrangement::Sorted;
        self.spec.shape.order = KeyOrder::Custom(Arc::new(move |left, right| {
            match (K::decode(left), K::decode(right)) {
                (Ok(left), Ok(right)) => compare(left, right),
                // They are refused when they are read; until then any order will do.
                _ => left.cmp(right),
            }
        }));
        self
    }

    /// Joins two values of a key into one, wherever they meet: before they are sent, and after. `combine`
    /// must be associative and commutative. What it returns is encoded as a `V`.
    pub fn combine<W: Datum + 'static>(
        mut self,
        combine: impl for<'a> Fn(V::View<'a>, V::View<'a>) -> W + Send + Sync + 'static,
    ) -> Self {
        self.spec.shape.combine = Some(Arc::new(Combiner::<V, W, _> { combine, types: PhantomData }));
        self
    }

    /// Chooses the A task of a key, among so many.
    pub fn partition(
        mut self,
        partition: impl for<'a> Fn(K::View<'a>, usize) -> usize + Send + Sync + 'static,
    ) -> Self {
        let chooses: Arc<Partition> = Arc::new(move |key, parts| Ok(partition(K::decode(key)?, parts)));
        self.spec.partition = Some(chooses);
        self
    }

    /// Runs the job. Collective: every rank calls it, with the same job and the same knobs.
    ///
    /// `o` is called for each O task, on some rank, on any of its threads; `a` for each A task, on the rank
    /// that has its pairs. Returns what the A tasks of this rank returned.
    ///
    /// With a checkpoint ([`Config::checkpoint`]) the job goes on when a rank other than 0 is lost: the ranks
    /// that are left take over its A tasks and run again the O tasks whose pairs were not all received. Then
    /// `a` is called once more for A tasks that had begun, also for those that had ended; what it returned
    /// before is dropped. It does not go on where an earlier job of the program has come to its end: what a
    /// rank had of its results is lost with it.
    ///
    /// Errors: the same on every rank. Other jobs may follow unless a rank was lost.
    pub fn run<R: Send>(
        &self,
        world: &World,
        config: &Config,
        o: impl Fn(&mut OTask<'_, K, V>) -> Result<(), BoxError> + Sync,
        a: impl Fn(&mut ATask<K, V>) -> Result<R, BoxError> + Sync,
    ) -> Result<Outcome<R>, Error> {
        let number = world.next_job();
        let has_checkpoint = config.checkpoint.is_some();
        // What a rank had before the job is lost with it, and no checkpoint has it.
        let mut goes_on = has_checkpoint && world.is_new();
        loop {
            let outcome = Running::start(world, config, self.spec.clone(), number).and_then(|mut running| {
                goes_on = has_checkpoint && !world.has_results();
                on_threads(running.threads, || {
                    while let Some(o_task) = running.take_task() {
                        run_o(&running, o_task, &o);
                    }
                });
                finish(running.end_o_phase(), running, |_, task| a(task))
            });
            let lost = match &outcome {
                Err(Error::RankLost { .. }) if goes_on => world.go_on(),
                _ => None,
            };
            let Some(lost) = lost else { return outcome };
            // All that are left find the same.
            let (name, ranks) = (&self.spec.name, world.ranks());
            match world.rank() {
                0 if config.progress => {
                    eprintln!("mpid: {name}: lost rank {lost:?}, goes on with {ranks} from the checkpoint");
                }
                0 => tracing::warn!("{name}: lost rank {lost:?}, goes on with {ranks} from the checkpoint"),
                _ => {}
            }
        }
    }

    /// Runs a round over what stays on its rank: O task `i` and A task `i` are given part `i`. Collective.
    pub fn round<S: Send, R: Send>(
        &self,
        world: &World,
        config: &Config,
        kept: &Kept<S>,
        o: impl Fn(&mut OTask<'_, K, V>, &mut S) -> Result<(), BoxError> + Sync,
        a: impl Fn(&mut ATask<K, V>, &mut S) -> Result<R, BoxError> + Sync,
    ) -> Result<Outcome<R>, Error> {
        let spec = Spec {
            o_tasks: Some(kept.count),
            a_tasks: Some(kept.count),
            owned: true,
            mode: Mode::Iteration,
            in_any_mode: false,
            ..self.spec.clone()
        };
        let mut running = Running::start(world, config, spec, world.next_job())?;
        on_threads(running.threads, || {
            while let Some(o_task) = running.take_task() {
                run_o(&running, o_task, &|task: &mut OTask<'_, K, V>| o(task, &mut kept.part(o_task).lock()));
            }
        });
        finish(running.end_o_phase(), running, |a_task, task| a(task, &mut kept.part(a_task).lock()))
    }

    pub(crate) fn spec(&self) -> &Spec {
        &self.spec
    }
}

struct Combiner<V: ?Sized, W, F> {
    combine: F,
    types: PhantomData<fn(&V, W)>,
}

impl<V: Datum + ?Sized + 'static, W: Datum + 'static, F> Combiner<V, W, F>
where
    F: for<'a> Fn(V::View<'a>, V::View<'a>) -> W + Send + Sync,
{
    #[inline]
    fn join(&self, held: &[u8], value: &[u8]) -> Result<W, Box<Refusal>> {
        let held = V::decode(held).map_err(Refusal::held)?;
        Ok((self.combine)(held, V::decode(value).map_err(Refusal::came)?))
    }

    /// What it made is a `V`, too. Looked at at once, while it is known what it was made of; costs nothing
    /// where the types are one.
    #[inline]
    fn check(bytes: &[u8]) -> Result<(), Box<Refusal>> {
        if TypeId::of::<V>() == TypeId::of::<W>() {
            return Ok(());
        }
        V::decode(bytes).map(drop).map_err(Refusal::made)
    }
}

impl<V: Datum + ?Sized + 'static, W: Datum + 'static, F> Combine for Combiner<V, W, F>
where
    F: for<'a> Fn(V::View<'a>, V::View<'a>) -> W + Send + Sync,
{
    #[inline]
    fn combine(&self, _: &[u8], held: &[u8], value: &[u8], out: &mut Vec<u8>) -> Result<(), Box<Refusal>> {
        crate::datum::append(&self.join(held, value)?, out);
        Self::check(out)
    }

    #[inline]
    fn combine_over(
        &self,
        _: &[u8],
        held: &mut [u8],
        value: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<bool, Box<Refusal>> {
        let combined = self.join(held, value)?;
        let bytes = combined.encode(out);
        Self::check(bytes)?;
        if bytes.len() == held.len() {
            held.copy_from_slice(bytes);
            return Ok(true);
        }
        // As `append` does, for values that have their bytes themselves.
        out.clear();
        crate::datum::append(&combined, out);
        Ok(false)
    }
}

/// Runs `work` on so many threads, of which this is one.
pub(crate) fn on_threads(threads: usize, work: impl Fn() + Sync) {
    std::thread::scope(|scope| {
        for thread in 1..threads {
            let builder = std::thread::Builder::new().name(format!("mpid task {thread}"));
            if let Err(error) = builder.spawn_scoped(scope, &work) {
                // The others do its work.
                tracing::warn!(%error, "a thread for tasks cannot be had");
            }
        }
        work();
    });
}

fn run_o<K: Datum + ?Sized, V: Datum + ?Sized>(
    running: &Running,
    o_task: u32,
    o: &impl Fn(&mut OTask<'_, K, V>) -> Result<(), BoxError>,
) {
    let begin = now();
    let mut task = OTask::new(running, o_task, running.o_task(o_task));
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        o(&mut task)?;
        task.emitter.finish().map_err(|error| task.remember(error))?;
        Ok(())
    }));
    task.settle(outcome);
    running.o_task_done(o_task, begin, &task.emitter, task.late);
}

/// The A phase and the end of a job.
fn finish<K: Datum + ?Sized, V: Datum + ?Sized, R: Send>(
    stores: Vec<(u32, Store)>,
    running: Running,
    a: impl Fn(u32, &mut ATask<K, V>) -> Result<R, BoxError> + Sync,
) -> Result<Outcome<R>, Error> {
    let outputs = Mutex::new(Vec::new());
    let left = Mutex::new(stores.into_iter());
    on_threads(running.threads, || {
        loop {
            let next = left.lock().next();
            let Some((a_task, store)) = next.filter(|_| !running.stop().is_set()) else { return };
            let begin = now();
            running.a_task_begins(&store);
            let pairs = store.received_pairs;
            let work = Work { a_task, window: None };
            if let Some(output) = run_a(&running, work, store, &|task: &mut ATask<K, V>| a(a_task, task)) {
                outputs.lock().push((a_task, output));
            }
            running.span(Side::A, a_task, begin, pairs);
        }
    });
    let report = running.end()?;
    let mut outputs: Vec<(usize, R)> =
        outputs.into_inner().into_iter().map(|(a_task, output)| (a_task as usize, output)).collect();
    outputs.sort_by_key(|(a_task, _)| *a_task);
    Ok(Outcome { outputs, report })
}

/// Runs one A task over its store. `None`: it failed, and the job is to stop.
pub(crate) fn run_a<K: Datum + ?Sized, V: Datum + ?Sized, R>(
    running: &Running,
    work: Work,
    store: Store,
    a: &impl Fn(&mut ATask<K, V>) -> Result<R, BoxError>,
) -> Option<R> {
    let (count, a_task) = (running.plan.a_tasks as usize, work.a_task);
    let mut task = None;
    let outcome = catch_unwind(AssertUnwindSafe(|| -> Result<R, BoxError> {
        let source = store.finish().map_err(ReceiveError::from)?;
        a(task.insert(ATask::new(source, a_task as usize, count, running.world.launched_rank())))
    }));
    let place = || {
        let place = task.as_ref().map_or("before its first record".to_string(), ATask::place);
        let place = work.place(&place);
        // Keys that were compared or combined to find the next record.
        origin::panicked_at().map_or(place.clone(), |keys| format!("{place}, {keys}"))
    };
    let received = |error: &ReceiveError, place: String| {
        let rank = running.world.launched_rank();
        match error {
            ReceiveError::Rejected(rejected) => {
                running.task_error(Side::A, a_task, place, Cause::Rejected, rejected)
            }
            ReceiveError::Spill(message) => Error::Spill { rank, message: message.clone() },
            ReceiveError::Damaged(message) => Error::Damaged { rank, message: message.clone() },
        }
    };
    let error = match (outcome, task.as_ref().and_then(|task| task.failed.get())) {
        (Err(panic), _) => running.panicked(Side::A, a_task, place(), &*panic),
        // Also where the function has passed over it: pairs are missing.
        (Ok(_), Some((failed, at))) => received(failed, work.place(at)),
        (Ok(Ok(output)), None) => return Some(output),
        (Ok(Err(error)), None) => match error.downcast_ref::<ReceiveError>() {
            Some(error) => received(error, place()),
            None => running.task_error(Side::A, a_task, place(), Cause::Failed, error),
        },
    };
    running.stop().fail(error);
    None
}

/// What a job gave.
#[derive(Debug)]
pub struct Outcome<R> {
    /// Of the A tasks that ran on this rank, by their index.
    pub outputs: Vec<(usize, R)>,
    /// The same on every rank.
    pub report: Report,
}

impl<R> Outcome<R> {
    /// The outputs as parts that stay on their ranks, for [`Job::round`].
    pub fn keep(self, a_tasks: usize) -> Kept<R> {
        let parts = self.outputs.into_iter().map(|(part, state)| (part as u32, Mutex::new(state)));
        Kept { parts: parts.collect(), count: a_tasks as u32 }
    }
}

/// One part for each A task, on the rank of that task.
pub struct Kept<S> {
    parts: Vec<(u32, Mutex<S>)>,
    count: u32,
}

impl<S> Kept<S> {
    /// Parts on all ranks.
    pub fn count(&self) -> usize {
        self.count as usize
    }

    /// The parts on this rank, each with its index.
    pub fn here(&mut self) -> impl Iterator<Item = (usize, &mut S)> {
        self.parts.iter_mut().map(|(part, state)| (*part as usize, state.get_mut()))
    }

    fn part(&self, part: u32) -> &Mutex<S> {
        let at = self.parts.binary_search_by_key(&part, |(known, _)| *known);
        &self.parts[at.expect("a part is used where it is")].1
    }
}

/// An O task as its function sees it.
pub struct OTask<'a, K: ?Sized, V: ?Sized> {
    running: &'a Running,
    pub(crate) emitter: Emitter,
    index: u32,
    /// Whether values are combined: then each is looked at when it is sent, while its place is known.
    combines: bool,
    key: Vec<u8>,
    value: Vec<u8>,
    rejected: Option<Rejected>,
    pub(crate) late: u64,
    types: PhantomData<fn(&K, &V)>,
}

impl<'a, K: Datum + ?Sized, V: Datum + ?Sized> OTask<'a, K, V> {
    pub(crate) fn new(running: &'a Running, index: u32, emitter: Emitter) -> OTask<'a, K, V> {
        OTask {
            running,
            emitter,
            index,
            combines: running.plan.shape.combine.is_some(),
            key: Vec::new(),
            value: Vec::new(),
            rejected: None,
            late: 0,
            types: PhantomData,
        }
    }

    /// Of this task among all O tasks.
    pub fn index(&self) -> usize {
        self.index as usize
    }

    /// All O tasks.
    pub fn count(&self) -> usize {
        self.running.plan.o_tasks as usize
    }

    /// All A tasks.
    pub fn a_tasks(&self) -> usize {
        self.running.plan.a_tasks as usize
    }

    /// The task's share of all there is to read: of what the tasks are given in turn. Together they have each
    /// once.
    pub fn share_of<'s, T>(&self, all: &'s [T]) -> impl Iterator<Item = &'s T> + use<'s, T, K, V> {
        all.iter().skip(self.index()).step_by(self.count().max(1))
    }

    /// The task's part of a range of bytes, or of whatever is counted: see [`part`].
    ///
    /// [`part`]: crate::input::part
    pub fn part_of(&self, range: std::ops::Range<u64>) -> std::ops::Range<u64> {
        crate::input::part(range, self.index(), self.count())
    }

    /// Hands the text of the task's share of these splits to `each`, as [`Lines::next_lines`] gives it. Says
    /// where it is, for errors.
    ///
    /// [`Lines::next_lines`]: crate::input::Lines::next_lines
    pub fn read(
        &mut self,
        splits: &[Split],
        mut each: impl FnMut(&mut Self, &[u8]) -> Result<(), BoxError>,
    ) -> Result<(), BoxError> {
        for split in self.share_of(splits) {
            self.reads(&split.name());
            let mut lines = split.lines()?;
            while let Some((at, text)) = lines.next_lines()? {
                self.at(at);
                each(self, text)?;
            }
        }
        Ok(())
    }

    /// As [`OTask::read`], line by line: `each` is given where a line begins, and the line without its end.
    pub fn read_lines(
        &mut self,
        splits: &[Split],
        mut each: impl FnMut(&mut Self, u64, &[u8]) -> Result<(), BoxError>,
    ) -> Result<(), BoxError> {
        self.share_of(splits).try_for_each(|split| self.read_split(split, &mut each))
    }

    /// As [`OTask::read_lines`], of one split.
    pub fn read_split(
        &mut self,
        split: &Split,
        mut each: impl FnMut(&mut Self, u64, &[u8]) -> Result<(), BoxError>,
    ) -> Result<(), BoxError> {
        self.reads(&split.name());
        let mut lines = split.lines()?;
        while let Some((at, line)) = lines.next_line()? {
            self.at(at);
            each(self, at, line)?;
        }
        Ok(())
    }

    /// Says what the task reads from now on, for errors.
    pub fn reads(&mut self, source: &str) {
        self.emitter.reads(source);
    }

    /// Says where in what it reads the task is, such as a byte or a row, for errors. Costs next to nothing.
    #[inline]
    pub fn at(&mut self, position: u64) {
        self.emitter.origin.position = Some(position);
    }

    /// Sends a pair to the A task of its key. Returns at once, unless the send queue is full.
    ///
    /// Errors: the job is to stop, or a codec refuses the pair; the function should return it. One that does
    /// not fails all the same.
    #[inline]
    pub fn emit(&mut self, key: &K, value: &V) -> Result<(), EmitError> {
        // Where all values have as many bytes, one that has just been encoded is one.
        self.send(key, value, V::WIDTH.is_none())
    }

    /// As [`OTask::emit`], with key and value of other types whose bytes are those of `K` and `V`: borrowed
    /// parts of a tuple, say, where `K` has a `String`.
    #[inline]
    pub fn emit_as(
        &mut self,
        key: &(impl Datum + ?Sized),
        value: &(impl Datum + ?Sized),
    ) -> Result<(), EmitError> {
        self.send(key, value, true)
    }

    #[inline]
    fn send(
        &mut self,
        key: &(impl Datum + ?Sized),
        value: &(impl Datum + ?Sized),
        check: bool,
    ) -> Result<(), EmitError> {
        self.key.clear();
        self.value.clear();
        let (key, value) = (key.encode(&mut self.key), value.encode(&mut self.value));
        let sent = match check_value::<V>(check && self.combines, value) {
            Ok(()) => self.emitter.emit(key, value),
            Err(rejected) => Err(self.emitter.refuse(rejected.into())),
        };
        sent.map_err(|error| self.remember(error))
    }

    #[inline]
    pub(crate) fn emit_in_window(&mut self, window: u64, key: &K, value: &V) -> Result<(), EmitError> {
        self.key.clear();
        self.value.clear();
        let (key, value) = (key.encode(&mut self.key), value.encode(&mut self.value));
        let sent = match check_value::<V>(self.combines, value) {
            Ok(()) => self.emitter.emit_in_window(window, key, value),
            Err(rejected) => Err(self.emitter.refuse(rejected.into())),
        };
        sent.map_err(|error| self.remember(error))
    }

    #[cold]
    pub(crate) fn remember(&mut self, error: EmitError) -> EmitError {
        if let EmitError::Rejected(rejected) = &error {
            self.rejected = Some(rejected.clone());
        }
        error
    }

    /// Tells the job how the function ended, if it did not end well.
    pub(crate) fn settle(&mut self, outcome: std::thread::Result<Result<(), BoxError>>) {
        let place = self.emitter.origin.place();
        let error = match (outcome, &self.rejected) {
            (Err(panic), _) => self.running.panicked(Side::O, self.index, place, &*panic),
            // Also where the function has passed over it: pairs are missing.
            (Ok(_), Some(rejected)) => {
                let (o_task, place) = self.emitter.blame();
                self.running.task_error(Side::O, o_task, place, Cause::Rejected, rejected)
            }
            (Ok(Ok(())), None) => return,
            (Ok(Err(error)), None) => match error.downcast_ref::<EmitError>() {
                Some(EmitError::Stopped) => return,
                _ => self.running.task_error(Side::O, self.index, place, Cause::Failed, error),
            },
        };
        self.running.stop().fail(error);
    }
}

/// Whether the bytes are a `V`, if that is asked.
#[inline]
fn check_value<V: Datum + ?Sized>(asked: bool, value: &[u8]) -> Result<(), Rejected> {
    if asked { V::decode(value).map(drop) } else { Ok(()) }
}

/// Why an A task was not given its next pair; its function should return it. One that does not fails all the
/// same.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReceiveError {
    /// A codec does not accept the bytes of a key or a value.
    Rejected(Rejected),
    /// Spilled pairs cannot be read back.
    Spill(String),
    /// The bytes are not what was written.
    Damaged(String),
}

impl fmt::Display for ReceiveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReceiveError::Rejected(rejected) => rejected.fmt(f),
            ReceiveError::Spill(message) | ReceiveError::Damaged(message) => f.write_str(message),
        }
    }
}

impl std::error::Error for ReceiveError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            ReceiveError::Rejected(rejected) => Some(rejected),
            ReceiveError::Spill(_) | ReceiveError::Damaged(_) => None,
        }
    }
}

impl From<StoreError> for ReceiveError {
    fn from(error: StoreError) -> ReceiveError {
        match error {
            StoreError::Rejected(rejected) => ReceiveError::Rejected(rejected),
            StoreError::Spill(error) => ReceiveError::Spill(error.to_string()),
            StoreError::Damaged(error) => ReceiveError::Damaged(error.to_string()),
        }
    }
}

impl From<Rejected> for ReceiveError {
    fn from(rejected: Rejected) -> ReceiveError {
        ReceiveError::Rejected(rejected)
    }
}

/// Where an A task is among its pairs.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// The current pair, if there is one, was given.
    Given,
    /// The current pair begins a group that was not given yet.
    Waiting,
    /// A group was given, and its first value was not.
    GroupBegins,
    /// A group was given, and the current pair's value too.
    InGroup,
    End,
}

/// Why a pair was not given, and which one.
type Failed = OnceLock<(ReceiveError, String)>;

/// Keeps the first error.
#[cold]
fn note(failed: &Failed, error: ReceiveError, place: String) -> ReceiveError {
    failed.get_or_init(|| (error, place)).0.clone()
}

/// Of a pair, which is the `number`th that its A task was given.
fn place_of(number: u64, key: &[u8]) -> String {
    format!("record {number} (key {})", shown(key))
}

/// A received pair.
pub type PairView<'a, K, V> = (<K as Datum>::View<'a>, <V as Datum>::View<'a>);

/// An A task as its function sees it.
pub struct ATask<K: ?Sized, V: ?Sized> {
    source: Source,
    index: usize,
    count: usize,
    rank: usize,
    records: u64,
    state: State,
    /// Of the current group.
    key: Vec<u8>,
    /// The pairs have ended with a group.
    group_ended: bool,
    /// No pair is given after it.
    failed: Failed,
    types: PhantomData<fn(&K, &V)>,
}

impl<K: Datum + ?Sized, V: Datum + ?Sized> ATask<K, V> {
    pub(crate) fn new(source: Source, index: usize, count: usize, rank: usize) -> ATask<K, V> {
        ATask {
            source,
            index,
            count,
            rank,
            records: 0,
            state: State::Given,
            key: Vec::new(),
            group_ended: false,
            failed: Failed::new(),
            types: PhantomData,
        }
    }

    /// Of this task among all A tasks.
    pub fn index(&self) -> usize {
        self.index
    }

    /// All A tasks.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Where it runs.
    pub fn rank(&self) -> usize {
        self.rank
    }

    fn place(&self) -> String {
        match self.state {
            _ if self.records == 0 => "before its first record".to_string(),
            // The pair behind the group was read to see that it is none of it.
            State::Waiting => place_of(self.records - 1, &self.key),
            State::End if self.group_ended => place_of(self.records, &self.key),
            State::End => format!("after its last record, {}", self.records),
            State::Given | State::GroupBegins | State::InGroup => place_of(self.records, self.source.key()),
        }
    }

    #[inline]
    fn advance(&mut self) -> Result<bool, ReceiveError> {
        if let Some((failed, _)) = self.failed.get() {
            return Err(failed.clone());
        }
        let more = self.source.advance().map_err(|error| {
            let place = match &error {
                // Of a pair that cannot be combined from others, whose key is known.
                StoreError::Rejected(_) => place_of(self.records + 1, self.source.key()),
                StoreError::Spill(_) | StoreError::Damaged(_) => String::new(),
            };
            note(&self.failed, error.into(), place)
        })?;
        self.records += u64::from(more);
        Ok(more)
    }

    /// The next pair, whatever its key.
    pub fn next_pair(&mut self) -> Result<Option<PairView<'_, K, V>>, ReceiveError> {
        match self.state {
            State::End => return Ok(None),
            State::Waiting | State::GroupBegins => self.state = State::Given,
            State::Given | State::InGroup => {
                if !self.advance()? {
                    self.state = State::End;
                    return Ok(None);
                }
                self.state = State::Given;
            }
        }
        let ATask { source, records, failed, .. } = self;
        let refused = |rejected: Rejected| note(failed, rejected.into(), place_of(*records, source.key()));
        Ok(Some((K::decode(source.key()).map_err(refused)?, V::decode(source.value()).map_err(refused)?)))
    }

    /// The next key with all its values; those that were not read of the one before are passed over.
    pub fn next_group(&mut self) -> Result<Option<Group<'_, K, V>>, ReceiveError> {
        while matches!(self.state, State::GroupBegins | State::InGroup) {
            self.next_in_group()?;
        }
        if self.state == State::Given {
            self.state = if self.advance()? { State::Waiting } else { State::End };
        }
        if self.state == State::End {
            return Ok(None);
        }
        self.key.clear();
        self.key.extend_from_slice(self.source.key());
        self.state = State::GroupBegins;
        Ok(Some(Group { task: self }))
    }

    /// Goes to the next pair of the current group. Returns whether there is one.
    #[inline]
    fn next_in_group(&mut self) -> Result<bool, ReceiveError> {
        match self.state {
            State::GroupBegins => self.state = State::InGroup,
            State::InGroup => {
                self.state = match self.advance()? {
                    false => {
                        self.group_ended = true;
                        State::End
                    }
                    true if self.source.key() == self.key => State::InGroup,
                    true => State::Waiting,
                }
            }
            State::Given | State::Waiting | State::End => {}
        }
        Ok(self.state == State::InGroup)
    }

    /// Keeps the pairs that are left in memory, as a source for later rounds.
    pub fn keep(&mut self) -> Result<Pairs<K, V>, ReceiveError> {
        let mut pairs = Pairs { blocks: Vec::new(), count: 0, types: PhantomData };
        let mut block = Vec::new();
        loop {
            match self.state {
                State::End => break,
                State::Waiting | State::GroupBegins => {}
                State::Given | State::InGroup => {
                    if !self.advance()? {
                        self.state = State::End;
                        break;
                    }
                }
            }
            self.state = State::Given;
            let (key, value) = (self.source.key(), self.source.value());
            if !block.is_empty()
                && block.len() + records::pair_bytes(key.len(), value.len()) > KEPT_BLOCK_BYTES
            {
                pairs.blocks.push(Bytes::from(std::mem::take(&mut block)));
            }
            records::push_pair(&mut block, key, value);
            pairs.count += 1;
        }
        pairs.blocks.push(Bytes::from(block));
        Ok(pairs)
    }

    /// Of the current pair, in bytes; for languages that have codecs of their own.
    #[doc(hidden)]
    pub fn raw_pair(&self) -> (&[u8], &[u8]) {
        (self.source.key(), self.source.value())
    }
}

/// A key and its values.
pub struct Group<'a, K: ?Sized, V: ?Sized> {
    task: &'a mut ATask<K, V>,
}

impl<K: Datum + ?Sized, V: Datum + ?Sized> Group<'_, K, V> {
    pub fn key(&self) -> Result<K::View<'_>, ReceiveError> {
        let task = &*self.task;
        K::decode(&task.key).map_err(|rejected| note(&task.failed, rejected.into(), task.place()))
    }

    pub fn next_value(&mut self) -> Result<Option<V::View<'_>>, ReceiveError> {
        if !self.task.next_in_group()? {
            return Ok(None);
        }
        let task = &*self.task;
        let value = V::decode(task.source.value());
        value.map(Some).map_err(|rejected| note(&task.failed, rejected.into(), task.place()))
    }

    /// The key, and what `fold` makes of the values that are left.
    pub fn fold<T>(
        &mut self,
        first: T,
        mut fold: impl FnMut(T, V::View<'_>) -> T,
    ) -> Result<(K::View<'_>, T), ReceiveError> {
        let mut folded = first;
        while let Some(value) = self.next_value()? {
            folded = fold(folded, value);
        }
        Ok((self.key()?, folded))
    }
}

/// Received pairs that stay in memory.
pub struct Pairs<K: ?Sized, V: ?Sized> {
    blocks: Vec<Bytes>,
    count: usize,
    types: PhantomData<fn(&K, &V)>,
}

impl<K: Datum + ?Sized, V: Datum + ?Sized> Pairs<K, V> {
    pub fn len(&self) -> usize {
        self.count
    }

    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// In the order in which they were received.
    ///
    /// Errors: a codec does not accept a pair, which the text names.
    pub fn iter(&self) -> impl Iterator<Item = Result<(K::View<'_>, V::View<'_>), Rejected>> {
        self.blocks.iter().flat_map(|block| records::Pairs::new(block)).zip(1..).map(|(pair, number)| {
            let (key, value) = pair.map_err(|damaged| Rejected(damaged.to_string()))?;
            let refused = |Rejected(why)| Rejected(format!("{}: {why}", place_of(number, key)));
            Ok((K::decode(key).map_err(refused)?, V::decode(value).map_err(refused)?))
        })
    }
}
