//! Typed jobs: O tasks emit pairs, A tasks receive them, with the user's functions and types.

use crate::config::{Config, Mode};
use crate::counters::{Report, now};
use crate::datum::{Datum, Rejected};
use crate::emit::{EmitError, Emitter, Partition};
use crate::error::{BoxError, Cause, Error, Side};
use crate::input::Split;
use crate::origin::{self, Work, format_key};
use crate::records;
use crate::running::{Running, Spec};
use crate::runs::KeyOrder;
use crate::store::{Arrangement, Shape, Source, Store, StoreError};
use crate::table::{Combine, CombineError};
use crate::world::World;
use bytes::Bytes;
use parking_lot::Mutex;
use std::any::TypeId;
use std::cmp::Ordering;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, OnceLock};

/// Target size of the blocks of kept pairs.
const KEPT_BLOCK_BYTES: usize = 1 << 20;

/// A bipartite job over keys `K` and values `V`. Every rank builds and runs the same one.
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
    /// A job whose A tasks receive all values of a key together, with keys in no order.
    pub fn new(name: &str) -> Job<K, V> {
        let shape =
            Shape { arrangement: Arrangement::Grouped, order: KeyOrder::Bytes, combine: None, run_bytes: 0 };
        let spec = Spec {
            name: name.to_string(),
            o_tasks: None,
            a_tasks: None,
            o_tasks_default: None,
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

    /// Fixes the number of O tasks. A configuration with another number is rejected.
    pub fn o_tasks(mut self, tasks: usize) -> Self {
        self.spec.o_tasks = Some(u32::try_from(tasks).expect("fewer than 2^32 tasks"));
        self
    }

    /// Default number of O tasks if the configuration does not set one ([`Config::o_tasks`], `mpidrun -O`):
    /// for tasks that divide their input with [`OTask::share_of`], which works for any number.
    pub fn o_tasks_unless_told(mut self, tasks: usize) -> Self {
        self.spec.o_tasks_default = Some(u32::try_from(tasks).expect("fewer than 2^32 tasks"));
        self
    }

    /// Lets [`Job::run`] run this job also in a program started for rounds or streams ([`Config::mode`],
    /// `mpidrun -mode`), for example to load their input. Other jobs are rejected there.
    pub fn in_any_mode(mut self) -> Self {
        self.spec.in_any_mode = true;
        self
    }

    /// Fixes the number of A tasks. A configuration with another number is rejected.
    pub fn a_tasks(mut self, tasks: usize) -> Self {
        self.spec.a_tasks = Some(u32::try_from(tasks).expect("fewer than 2^32 tasks"));
        self
    }

    /// A tasks receive pairs in arrival order.
    pub fn plain(mut self) -> Self {
        self.spec.shape.arrangement = Arrangement::Plain;
        self
    }

    /// A tasks receive keys in sorted order.
    pub fn sorted(mut self) -> Self {
        self.spec.shape.arrangement = Arrangement::Sorted;
        if !K::BYTE_ORDER {
            self.spec.shape.order = KeyOrder::Custom(Arc::new(K::compare));
        }
        self
    }

    /// A tasks receive keys in this order. Keys that compare equal but differ in bytes stay separate groups.
    pub fn sorted_by(
        mut self,
        compare: impl for<'a> Fn(K::View<'a>, K::View<'a>) -> Ordering + Send + Sync + 'static,
    ) -> Self {
        self.spec.shape.arrangement = Arrangement::Sorted;
        self.spec.shape.order = KeyOrder::Custom(Arc::new(move |left, right| {
            match (K::decode(left), K::decode(right)) {
                (Ok(left), Ok(right)) => compare(left, right),
                // They are rejected when read; until then any order will do.
                _ => left.cmp(right),
            }
        }));
        self
    }

    /// Combines two values of a key into one, before they are sent and after they are received. `combine`
    /// must be associative and commutative. Its result is encoded as a `V`.
    pub fn combine<W: Datum + 'static>(
        mut self,
        combine: impl for<'a> Fn(V::View<'a>, V::View<'a>) -> W + Send + Sync + 'static,
    ) -> Self {
        self.spec.shape.combine = Some(Arc::new(Combiner::<V, W, _> { combine, types: PhantomData }));
        self
    }

    /// Chooses the A task of a key, given the number of A tasks.
    pub fn partition(
        mut self,
        partition: impl for<'a> Fn(K::View<'a>, usize) -> usize + Send + Sync + 'static,
    ) -> Self {
        let chooses: Arc<Partition> = Arc::new(move |key, parts| Ok(partition(K::decode(key)?, parts)));
        self.spec.partition = Some(chooses);
        self
    }

    /// Runs the job. Collective: every rank calls it, with the same job and the same configuration.
    ///
    /// `o` is called for each O task, on some rank, on any of its threads; `a` for each A task, on the rank
    /// that has its pairs. Returns the results of this rank's A tasks.
    ///
    /// With a checkpoint ([`Config::checkpoint`]) the job continues when a rank other than 0 is lost: the
    /// remaining ranks take over its A tasks and rerun the O tasks whose pairs were not all received. Then
    /// `a` is called again for A tasks that had begun, also for those that had finished; their earlier
    /// results are dropped. The job does not continue if an earlier job of the program has finished: the lost
    /// rank held results of it.
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
        // Data that a rank held before the job is lost with it and is in no checkpoint.
        let mut goes_on = has_checkpoint && world.is_new();
        loop {
            let outcome = Running::start(world, config, self.spec.clone(), number).and_then(|mut running| {
                goes_on = has_checkpoint && !world.has_results();
                run_on_threads(running.threads, || {
                    while let Some(o_task) = running.take_task() {
                        run_o(&running, o_task, &o);
                    }
                });
                finish(running.end_o_phase(), running, |_, task| a(task))
            });
            let lost = match &outcome {
                Err(Error::RankLost { .. }) if goes_on => world.continue_after_loss(),
                _ => None,
            };
            let Some(lost) = lost else { return outcome };
            // All remaining ranks decide the same.
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

    /// Runs a round over kept parts: O task `i` and A task `i` get part `i` on its rank. Collective.
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
        run_on_threads(running.threads, || {
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
    fn join(&self, held: &[u8], value: &[u8]) -> Result<W, Box<CombineError>> {
        let held = V::decode(held).map_err(CombineError::invalid_existing)?;
        Ok((self.combine)(held, V::decode(value).map_err(CombineError::invalid_new)?))
    }

    /// Checks that the combiner's result is a valid `V`, immediately, while its inputs are known; free if the
    /// types are the same.
    #[inline]
    fn check(bytes: &[u8]) -> Result<(), Box<CombineError>> {
        if TypeId::of::<V>() == TypeId::of::<W>() {
            return Ok(());
        }
        V::decode(bytes).map(drop).map_err(CombineError::invalid_result)
    }
}

impl<V: Datum + ?Sized + 'static, W: Datum + 'static, F> Combine for Combiner<V, W, F>
where
    F: for<'a> Fn(V::View<'a>, V::View<'a>) -> W + Send + Sync,
{
    #[inline]
    fn combine(
        &self,
        _: &[u8],
        held: &[u8],
        value: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), Box<CombineError>> {
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
    ) -> Result<bool, Box<CombineError>> {
        let combined = self.join(held, value)?;
        let bytes = combined.encode(out);
        Self::check(bytes)?;
        if bytes.len() == held.len() {
            held.copy_from_slice(bytes);
            return Ok(true);
        }
        // As `append` does for values that return their own bytes.
        out.clear();
        crate::datum::append(&combined, out);
        Ok(false)
    }
}

/// Runs `work` on this many threads, including the calling one.
pub(crate) fn run_on_threads(threads: usize, work: impl Fn() + Sync) {
    std::thread::scope(|scope| {
        for thread in 1..threads {
            let builder = std::thread::Builder::new().name(format!("mpid task {thread}"));
            if let Err(error) = builder.spawn_scoped(scope, &work) {
                // The other threads take over its work.
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
        task.emitter.finish().map_err(|error| task.record_rejection(error))?;
        Ok(())
    }));
    task.settle(outcome);
    running.o_task_done(o_task, begin, &task.emitter, task.late);
}

/// Runs the A phase and ends the job.
fn finish<K: Datum + ?Sized, V: Datum + ?Sized, R: Send>(
    stores: Vec<(u32, Store)>,
    running: Running,
    a: impl Fn(u32, &mut ATask<K, V>) -> Result<R, BoxError> + Sync,
) -> Result<Outcome<R>, Error> {
    let outputs = Mutex::new(Vec::new());
    let left = Mutex::new(stores.into_iter());
    run_on_threads(running.threads, || {
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

/// Runs one A task over its store. `None`: it failed, and the job is stopping.
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
        a(task.insert(ATask::new(source, a_task as usize, count, running.world.own_launcher_rank())))
    }));
    let place = || {
        let place = task.as_ref().map_or("before its first record".to_string(), ATask::place);
        let place = work.place(&place);
        // Keys that were compared or combined to find the next record.
        origin::take_panic_place().map_or(place.clone(), |keys| format!("{place}, {keys}"))
    };
    let received = |error: &ReceiveError, place: String| {
        let rank = running.world.own_launcher_rank();
        match error {
            ReceiveError::Rejected(rejected) => {
                running.task_error(Side::A, a_task, place, Cause::Rejected, rejected)
            }
            ReceiveError::Spill(message) => Error::Spill { rank, message: message.clone() },
            ReceiveError::Damaged(message) => Error::Damaged { rank, message: message.clone() },
        }
    };
    let error = match (outcome, task.as_ref().and_then(|task| task.failed.get())) {
        (Err(panic), _) => running.panic_error(Side::A, a_task, place(), &*panic),
        // Also if the function ignored the error: pairs are missing.
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

/// Result of a job.
#[derive(Debug)]
pub struct Outcome<R> {
    /// Results of this rank's A tasks, by index.
    pub outputs: Vec<(usize, R)>,
    /// Counters, the same on every rank.
    pub report: Report,
}

impl<R> Outcome<R> {
    /// Turns the outputs into parts that stay on their ranks, for [`Job::round`].
    pub fn keep(self, a_tasks: usize) -> Kept<R> {
        let parts = self.outputs.into_iter().map(|(part, state)| (part as u32, Mutex::new(state)));
        Kept { parts: parts.collect(), count: a_tasks as u32 }
    }
}

/// One part for each A task, on that task's rank.
pub struct Kept<S> {
    parts: Vec<(u32, Mutex<S>)>,
    count: u32,
}

impl<S> Kept<S> {
    /// Number of parts on all ranks.
    pub fn count(&self) -> usize {
        self.count as usize
    }

    /// Iterates over this rank's parts and their indexes.
    pub fn here(&mut self) -> impl Iterator<Item = (usize, &mut S)> {
        self.parts.iter_mut().map(|(part, state)| (*part as usize, state.get_mut()))
    }

    fn part(&self, part: u32) -> &Mutex<S> {
        let at = self.parts.binary_search_by_key(&part, |(known, _)| *known);
        &self.parts[at.expect("a part is used where it is")].1
    }
}

/// Handle of an O task, passed to its function.
pub struct OTask<'a, K: ?Sized, V: ?Sized> {
    running: &'a Running,
    pub(crate) emitter: Emitter,
    index: u32,
    /// Whether values are combined: each is then validated when it is sent, while its position is known.
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

    /// Index among all O tasks.
    pub fn index(&self) -> usize {
        self.index as usize
    }

    /// Number of O tasks.
    pub fn count(&self) -> usize {
        self.running.plan.o_tasks as usize
    }

    /// Number of A tasks.
    pub fn a_tasks(&self) -> usize {
        self.running.plan.a_tasks as usize
    }

    /// The task's share of `all`, dealt round-robin: the tasks' shares together contain each item once.
    pub fn share_of<'s, T>(&self, all: &'s [T]) -> impl Iterator<Item = &'s T> + use<'s, T, K, V> {
        all.iter().skip(self.index()).step_by(self.count().max(1))
    }

    /// The task's part of a range of bytes or other units: see [`part`].
    ///
    /// [`part`]: crate::input::part
    pub fn part_of(&self, range: std::ops::Range<u64>) -> std::ops::Range<u64> {
        crate::input::part(range, self.index(), self.count())
    }

    /// Passes the text of the task's share of these splits to `each`, as [`Lines::next_lines`] returns it,
    /// and records the position for errors.
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

    /// Like [`OTask::read`], line by line: `each` gets the line's offset and the line without its line
    /// ending.
    pub fn read_lines(
        &mut self,
        splits: &[Split],
        mut each: impl FnMut(&mut Self, u64, &[u8]) -> Result<(), BoxError>,
    ) -> Result<(), BoxError> {
        self.share_of(splits).try_for_each(|split| self.read_split(split, &mut each))
    }

    /// Like [`OTask::read_lines`], for one split.
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

    /// Sets the name of the task's input, for errors.
    pub fn reads(&mut self, source: &str) {
        self.emitter.set_source(source);
    }

    /// Sets the task's position in its input, such as a byte or a row, for errors. Nearly free.
    #[inline]
    pub fn at(&mut self, position: u64) {
        self.emitter.origin.position = Some(position);
    }

    /// Sends a pair to the A task of its key. Returns immediately unless the send queue is full.
    ///
    /// Errors: the job is stopping, or a codec rejects the pair. The function should return the error; the
    /// task fails in any case.
    #[inline]
    pub fn emit(&mut self, key: &K, value: &V) -> Result<(), EmitError> {
        // A fixed-width value that was just encoded has the right length and needs no check.
        self.send(key, value, V::WIDTH.is_none())
    }

    /// Like [`OTask::emit`], with key and value of other types whose encodings equal those of `K` and `V`:
    /// for example a tuple of borrowed parts where `K` has a `String`.
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
            Err(rejected) => Err(self.emitter.reject(rejected.into())),
        };
        sent.map_err(|error| self.record_rejection(error))
    }

    #[inline]
    pub(crate) fn emit_in_window(&mut self, window: u64, key: &K, value: &V) -> Result<(), EmitError> {
        self.key.clear();
        self.value.clear();
        let (key, value) = (key.encode(&mut self.key), value.encode(&mut self.value));
        let sent = match check_value::<V>(self.combines, value) {
            Ok(()) => self.emitter.emit_in_window(window, key, value),
            Err(rejected) => Err(self.emitter.reject(rejected.into())),
        };
        sent.map_err(|error| self.record_rejection(error))
    }

    #[cold]
    pub(crate) fn record_rejection(&mut self, error: EmitError) -> EmitError {
        if let EmitError::Rejected(rejected) = &error {
            self.rejected = Some(rejected.clone());
        }
        error
    }

    /// Fails the job unless the function returned successfully.
    pub(crate) fn settle(&mut self, outcome: std::thread::Result<Result<(), BoxError>>) {
        let place = self.emitter.origin.place();
        let error = match (outcome, &self.rejected) {
            (Err(panic), _) => self.running.panic_error(Side::O, self.index, place, &*panic),
            // Also if the function ignored the error: pairs are missing.
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

/// Checks that the bytes are a valid `V`, if requested.
#[inline]
fn check_value<V: Datum + ?Sized>(required: bool, value: &[u8]) -> Result<(), Rejected> {
    if required { V::decode(value).map(drop) } else { Ok(()) }
}

/// Why an A task cannot get its next pair. Its function should return the error; the task fails in any case.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReceiveError {
    /// A codec rejects the bytes of a key or a value.
    #[error("{0}")]
    Rejected(#[from] Rejected),
    /// Spilled pairs cannot be read back.
    #[error("{0}")]
    Spill(String),
    /// The bytes read are not those written.
    #[error("{0}")]
    Damaged(String),
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

/// An A task's position among its pairs.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// The current pair, if any, was returned.
    Returned,
    /// The current pair begins a group that was not returned yet.
    GroupPending,
    /// A group was returned, but not its first value.
    GroupBegins,
    /// A group was returned, and the current pair's value too.
    InGroup,
    End,
}

/// First read error, and its pair.
type ReadFailure = OnceLock<(ReceiveError, String)>;

/// Records the first error.
#[cold]
fn record_failure(failed: &ReadFailure, error: ReceiveError, place: String) -> ReceiveError {
    failed.get_or_init(|| (error, place)).0.clone()
}

/// Describes the pair that its A task received as the `number`th.
fn place_of(number: u64, key: &[u8]) -> String {
    format!("record {number} (key {})", format_key(key))
}

/// A received pair.
pub type PairView<'a, K, V> = (<K as Datum>::View<'a>, <V as Datum>::View<'a>);

/// Handle of an A task, passed to its function.
pub struct ATask<K: ?Sized, V: ?Sized> {
    source: Source,
    index: usize,
    count: usize,
    rank: usize,
    records: u64,
    state: State,
    /// Key of the current group.
    key: Vec<u8>,
    /// The last pair belonged to a group.
    group_ended: bool,
    /// Once set, no more pairs are returned.
    failed: ReadFailure,
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
            state: State::Returned,
            key: Vec::new(),
            group_ended: false,
            failed: ReadFailure::new(),
            types: PhantomData,
        }
    }

    /// Index among all A tasks.
    pub fn index(&self) -> usize {
        self.index
    }

    /// Number of A tasks.
    pub fn count(&self) -> usize {
        self.count
    }

    /// The rank that runs the task.
    pub fn rank(&self) -> usize {
        self.rank
    }

    fn place(&self) -> String {
        match self.state {
            _ if self.records == 0 => "before its first record".to_string(),
            // The pair after the group was read ahead to find the group's end.
            State::GroupPending => place_of(self.records - 1, &self.key),
            State::End if self.group_ended => place_of(self.records, &self.key),
            State::End => format!("after its last record, {}", self.records),
            State::Returned | State::GroupBegins | State::InGroup => {
                place_of(self.records, self.source.key())
            }
        }
    }

    #[inline]
    fn advance(&mut self) -> Result<bool, ReceiveError> {
        if let Some((failed, _)) = self.failed.get() {
            return Err(failed.clone());
        }
        let more = self.source.advance().map_err(|error| {
            let place = match &error {
                // A combined pair whose value was rejected: its key is known.
                StoreError::Rejected(_) => place_of(self.records + 1, self.source.key()),
                StoreError::Spill(_) | StoreError::Damaged(_) => String::new(),
            };
            record_failure(&self.failed, error.into(), place)
        })?;
        self.records += u64::from(more);
        Ok(more)
    }

    /// Returns the next pair, whatever its key.
    pub fn next_pair(&mut self) -> Result<Option<PairView<'_, K, V>>, ReceiveError> {
        match self.state {
            State::End => return Ok(None),
            State::GroupPending | State::GroupBegins => self.state = State::Returned,
            State::Returned | State::InGroup => {
                if !self.advance()? {
                    self.state = State::End;
                    return Ok(None);
                }
                self.state = State::Returned;
            }
        }
        let ATask { source, records, failed, .. } = self;
        let reject =
            |rejected: Rejected| record_failure(failed, rejected.into(), place_of(*records, source.key()));
        Ok(Some((K::decode(source.key()).map_err(reject)?, V::decode(source.value()).map_err(reject)?)))
    }

    /// Returns the next key with all its values; skips unread values of the previous group.
    pub fn next_group(&mut self) -> Result<Option<Group<'_, K, V>>, ReceiveError> {
        while matches!(self.state, State::GroupBegins | State::InGroup) {
            self.next_in_group()?;
        }
        if self.state == State::Returned {
            self.state = if self.advance()? { State::GroupPending } else { State::End };
        }
        if self.state == State::End {
            return Ok(None);
        }
        self.key.clear();
        self.key.extend_from_slice(self.source.key());
        self.state = State::GroupBegins;
        Ok(Some(Group { task: self }))
    }

    /// Advances to the next pair of the current group. Returns whether there is one.
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
                    true => State::GroupPending,
                }
            }
            State::Returned | State::GroupPending | State::End => {}
        }
        Ok(self.state == State::InGroup)
    }

    /// Keeps the remaining pairs in memory, as a source for later rounds.
    pub fn keep(&mut self) -> Result<Pairs<K, V>, ReceiveError> {
        let mut pairs = Pairs { blocks: Vec::new(), count: 0, types: PhantomData };
        let mut block = Vec::new();
        loop {
            match self.state {
                State::End => break,
                State::GroupPending | State::GroupBegins => {}
                State::Returned | State::InGroup => {
                    if !self.advance()? {
                        self.state = State::End;
                        break;
                    }
                }
            }
            self.state = State::Returned;
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

    /// Encoded current pair, for languages with their own codecs.
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
        K::decode(&task.key).map_err(|rejected| record_failure(&task.failed, rejected.into(), task.place()))
    }

    pub fn next_value(&mut self) -> Result<Option<V::View<'_>>, ReceiveError> {
        if !self.task.next_in_group()? {
            return Ok(None);
        }
        let task = &*self.task;
        let value = V::decode(task.source.value());
        value.map(Some).map_err(|rejected| record_failure(&task.failed, rejected.into(), task.place()))
    }

    /// Returns the key, and the fold of the remaining values.
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

/// Received pairs kept in memory.
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

    /// Iterates in the order of arrival.
    ///
    /// Errors: a codec rejects a pair; the message names it.
    pub fn iter(&self) -> impl Iterator<Item = Result<(K::View<'_>, V::View<'_>), Rejected>> {
        self.blocks.iter().flat_map(|block| records::Pairs::new(block)).zip(1..).map(|(pair, number)| {
            let (key, value) = pair.map_err(|damaged| Rejected(damaged.to_string()))?;
            let reject = |Rejected(why)| Rejected(format!("{}: {why}", place_of(number, key)));
            Ok((K::decode(key).map_err(reject)?, V::decode(value).map_err(reject)?))
        })
    }
}
