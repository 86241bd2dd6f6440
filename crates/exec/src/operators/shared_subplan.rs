//! Operator that computes a part of a plan once for all places that read it.
//!
//! A common table expression, or a view, that a statement names several times is planned for each of them.
//! Where the plans are equal, one of them is run, and its batches are buffered until all places have read
//! them:
//!
//! ```text
//! HashJoinExec                               HashJoinExec
//!   AggregateExec: mode=FinalPartitioned       SharedSubplanExec: 1, reader 1 of 2
//!     …                                  ─►      AggregateExec: mode=FinalPartitioned
//!   AggregateExec: mode=FinalPartitioned           …
//!     …                                        SharedSubplanExec: 1, reader 2 of 2
//! ```
//!
//! Whichever reader needs a batch that is not there yet polls the input for it; no task of its own runs. So a
//! reader can wait for nothing but the input, and a plan that made progress with two copies makes it with
//! one.
//!
//! Memory bound: the batches between the first and the last reader are counted by the pool; beyond its limit
//! they go to temporary files. A reader that has ended, or was dropped, holds nothing back.
//!
//! Cancellation: the input ends with the last reader.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};
use std::task::{Context, Poll, Wake, Waker};

use datafusion::arrow::array::{Array, AsArray, RecordBatch};
use datafusion::arrow::datatypes::{DataType, SchemaRef};
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{DataFusionError, Result, internal_err};
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::execution::{RecordBatchStream, SendableRecordBatchStream, SpillFile, TaskContext};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::execution_plan::replace_children_if_necessary;
use datafusion::physical_plan::metrics::{
    BaselineMetrics, ExecutionPlanMetricsSet, MetricsSet, RecordOutput, SpillMetrics,
};
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, PlanProperties, SpillManager,
};
use futures::{Stream, StreamExt};

/// Marks a place of a subplan while a plan is optimized: no filter is pushed through it, so that the plans of
/// all places remain equal. [`join_readers`] replaces it.
#[derive(Debug)]
pub struct SubplanPlaceExec {
    input: Arc<dyn ExecutionPlan>,
    subplan: SubplanId,
}

/// Tells subplans apart, also those of parts of a plan that are optimized by themselves, as scalar subqueries
/// are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SubplanId(u64);

impl SubplanId {
    /// One that no other subplan of this process has.
    pub fn unique() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

impl SubplanPlaceExec {
    /// `subplan`: the same for all its places.
    pub fn new(input: Arc<dyn ExecutionPlan>, subplan: SubplanId) -> Self {
        Self { input, subplan }
    }
}

impl DisplayAs for SubplanPlaceExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SubplanPlaceExec: subplan {}", self.subplan.0)
    }
}

impl ExecutionPlan for SubplanPlaceExec {
    crate::one_input!("SubplanPlaceExec", input, |node, input| Self::new(input, node.subplan));
    crate::unchanged_rows!(input);

    fn properties(&self) -> &Arc<PlanProperties> {
        self.input.properties()
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        vec![true]
    }
}

/// Replaces the places of each subplan by readers of one plan, that of the first place.
pub fn join_readers(plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    if !plan.exists(|node| Ok(node.is::<SubplanPlaceExec>()))? {
        return Ok(plan);
    }
    let mut places = HashMap::new();
    count_places(&plan, &mut places);
    join_below(plan, &places, &mut HashMap::new())
}

/// Counts the places of each subplan, outside of all but the first place of another one.
fn count_places(plan: &Arc<dyn ExecutionPlan>, places: &mut HashMap<SubplanId, usize>) {
    if let Some(place) = plan.downcast_ref::<SubplanPlaceExec>() {
        let count = places.entry(place.subplan).or_insert(0);
        *count += 1;
        if *count > 1 {
            return;
        }
    }
    for child in plan.children() {
        count_places(child, places);
    }
}

/// A subplan, its plan, and the number of its readers so far.
type Joined = (Arc<Subplan>, Arc<dyn ExecutionPlan>, usize);

fn join_below(
    plan: Arc<dyn ExecutionPlan>,
    places: &HashMap<SubplanId, usize>,
    joined: &mut HashMap<SubplanId, Joined>,
) -> Result<Arc<dyn ExecutionPlan>> {
    let Some(place) = plan.downcast_ref::<SubplanPlaceExec>() else {
        let children = plan.children().into_iter().cloned().collect::<Vec<_>>();
        let children: Result<Vec<_>> =
            children.into_iter().map(|child| join_below(child, places, joined)).collect();
        return replace_children_if_necessary(plan, children?);
    };
    let id = place.subplan;
    if let Some((subplan, input, readers)) = joined.get_mut(&id) {
        let reader = SharedSubplanExec::new(Arc::clone(input), Arc::clone(subplan), *readers);
        *readers += 1;
        return Ok(Arc::new(reader));
    }
    let input = join_below(Arc::clone(&place.input), places, joined)?;
    match places.get(&id) {
        Some(count) if *count > 1 => {
            let subplan = Arc::new(Subplan::new(joined.len() + 1, *count));
            joined.insert(id, (Arc::clone(&subplan), Arc::clone(&input), 1));
            Ok(Arc::new(SharedSubplanExec::new(input, subplan, 0)))
        }
        // The other places were optimized away.
        _ => Ok(input),
    }
}

/// N → N output partitions: passes its input through, which runs once for all readers of the same subplan.
/// Preserves order.
#[derive(Debug)]
pub struct SharedSubplanExec {
    /// The plan of this place. That of the reader that starts first is run.
    input: Arc<dyn ExecutionPlan>,
    subplan: Arc<Subplan>,
    reader: usize,
    metrics: ExecutionPlanMetricsSet,
}

/// What the readers of a subplan share.
#[derive(Debug)]
pub struct Subplan {
    number: usize,
    readers: usize,
    /// The plan that is run, with its output partitions.
    producer: OnceLock<(Arc<dyn ExecutionPlan>, Vec<Arc<SharedPartition>>)>,
}

impl Subplan {
    /// `number`: how EXPLAIN names it; `readers`: the number of places that read it.
    pub fn new(number: usize, readers: usize) -> Self {
        Self { number, readers, producer: OnceLock::new() }
    }
}

impl SharedSubplanExec {
    /// Reader `reader`, from 0, of `subplan`. All readers' inputs are equal.
    pub fn new(input: Arc<dyn ExecutionPlan>, subplan: Arc<Subplan>, reader: usize) -> Self {
        Self { input, subplan, reader, metrics: ExecutionPlanMetricsSet::new() }
    }

    /// Whether EXPLAIN shows the input here.
    fn is_input_visible(&self) -> bool {
        self.reader == 0
    }
}

impl DisplayAs for SharedSubplanExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Subplan { number, readers, .. } = self.subplan.as_ref();
        write!(f, "SharedSubplanExec: subplan {number}, reader {} of {readers}", self.reader + 1)
    }
}

impl ExecutionPlan for SharedSubplanExec {
    fn name(&self) -> &str {
        "SharedSubplanExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.input.properties()
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        if self.is_input_visible() { vec![&self.input] } else { vec![] }
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn with_new_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(match children.pop() {
            Some(input) => Arc::new(Self::new(input, Arc::clone(&self.subplan), self.reader)),
            None => self,
        })
    }

    /// A plan that runs again computes its part for each place.
    fn reset_state(self: Arc<Self>) -> Result<Arc<dyn ExecutionPlan>> {
        let subplan = Subplan::new(self.subplan.number, 1);
        let input = Arc::clone(&self.input).reset_state()?;
        Ok(Arc::new(Self::new(input, Arc::new(subplan), 0)))
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        vec![true; self.children().len()]
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        vec![false; self.children().len()]
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let (producer, partitions) = self.subplan.producer.get_or_init(|| {
            let count = self.input.output_partitioning().partition_count();
            let partitions = (0..count).map(|_| Arc::new(SharedPartition::new(self.subplan.readers)));
            (Arc::clone(&self.input), partitions.collect())
        });
        let Some(shared) = partitions.get(partition) else {
            return internal_err!("a shared subplan has no partition {partition}");
        };
        shared.start(producer, partition, &context, &self.metrics)?;
        Ok(Box::pin(Reader {
            shared: Arc::clone(shared),
            place: self.reader,
            position: 0,
            file: None,
            schema: self.input.schema(),
            metrics: BaselineMetrics::new(&self.metrics, partition),
        }))
    }
}

/// An output partition of a subplan, with the wakers of readers that wait for its next batch.
#[derive(Debug)]
struct SharedPartition {
    state: Mutex<State>,
    waiting: Arc<WaitingReaders>,
    /// Whether a reader found the state locked and waits, although its batch may be there.
    is_contended: AtomicBool,
}

struct State {
    input: Input,
    /// Segments from `first` on.
    segments: VecDeque<Segment>,
    /// The number of segments that all readers have read.
    first: usize,
    /// For each reader, the segment that it reads; `None`: it has ended.
    positions: Vec<Option<usize>>,
    memory: Option<(MemoryReservation, SpillManager)>,
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("State").field("first", &self.first).field("positions", &self.positions).finish()
    }
}

enum Input {
    NotStarted,
    Running(SendableRecordBatchStream),
    Ended,
    Failed(Arc<DataFusionError>),
}

#[derive(Clone)]
enum Segment {
    /// A batch with its bytes.
    Memory(RecordBatch, usize),
    /// A temporary file with one batch.
    File(Arc<dyn SpillFile>),
}

#[derive(Debug, Default)]
struct WaitingReaders(Mutex<Vec<Waker>>);

impl WaitingReaders {
    fn add(&self, waker: &Waker) {
        let mut wakers = lock(&self.0);
        if !wakers.iter().any(|other| other.will_wake(waker)) {
            wakers.push(waker.clone());
        }
    }
}

impl Wake for WaitingReaders {
    fn wake(self: Arc<Self>) {
        for waker in std::mem::take(&mut *lock(&self.0)) {
            waker.wake();
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl SharedPartition {
    fn new(readers: usize) -> Self {
        let state = State {
            input: Input::NotStarted,
            segments: VecDeque::new(),
            first: 0,
            positions: vec![Some(0); readers],
            memory: None,
        };
        Self { state: Mutex::new(state), waiting: Arc::default(), is_contended: AtomicBool::new(false) }
    }

    /// Executes the input for the first reader.
    fn start(
        &self,
        producer: &Arc<dyn ExecutionPlan>,
        partition: usize,
        context: &Arc<TaskContext>,
        metrics: &ExecutionPlanMetricsSet,
    ) -> Result<()> {
        let mut state = lock(&self.state);
        if matches!(state.input, Input::NotStarted) {
            let input = producer.execute(partition, Arc::clone(context))?;
            state.start(input, partition, context, metrics);
        }
        Ok(())
    }

    /// The segment at `position`, for the reader `place`; `None`: the input has ended.
    fn poll_segment(
        &self,
        place: usize,
        position: usize,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Segment>>> {
        let mut state = match self.state.try_lock() {
            Ok(state) => state,
            Err(TryLockError::Poisoned(state)) => state.into_inner(),
            Err(TryLockError::WouldBlock) => {
                // Whoever holds the lock wakes all that wait once it is free.
                self.waiting.add(context.waker());
                self.is_contended.store(true, Ordering::SeqCst);
                match self.state.try_lock() {
                    Ok(state) => state,
                    Err(TryLockError::Poisoned(state)) => state.into_inner(),
                    Err(TryLockError::WouldBlock) => return Poll::Pending,
                }
            }
        };
        let polled = state.poll_segment(place, position, &self.waiting, context);
        drop(state);
        if polled.is_ready() || self.is_contended.swap(false, Ordering::SeqCst) {
            Arc::clone(&self.waiting).wake();
        }
        polled
    }

    /// Forgets a reader that has ended, with what only it had not read.
    fn leave(&self, place: usize) {
        let mut state = lock(&self.state);
        state.positions[place] = None;
        state.release();
        drop(state);
        Arc::clone(&self.waiting).wake();
    }
}

impl State {
    fn start(
        &mut self,
        input: SendableRecordBatchStream,
        partition: usize,
        context: &Arc<TaskContext>,
        metrics: &ExecutionPlanMetricsSet,
    ) {
        let consumer = MemoryConsumer::new(format!("SharedSubplan[{partition}]")).with_can_spill(true);
        let reservation = consumer.register(context.memory_pool());
        let spill_metrics = SpillMetrics::new(metrics, partition);
        let spills = SpillManager::new(context.runtime_env(), spill_metrics, input.schema());
        self.input = Input::Running(input);
        self.memory = Some((reservation, spills));
    }

    fn poll_segment(
        &mut self,
        place: usize,
        position: usize,
        waiting: &Arc<WaitingReaders>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Segment>>> {
        self.positions[place] = Some(position);
        self.release();
        loop {
            if let Some(segment) = self.segments.get(position - self.first) {
                return Poll::Ready(Some(Ok(segment.clone())));
            }
            let input = match &mut self.input {
                Input::Running(input) => input,
                Input::Ended => return Poll::Ready(None),
                Input::Failed(error) => {
                    return Poll::Ready(Some(Err(DataFusionError::Shared(Arc::clone(error)))));
                }
                Input::NotStarted => {
                    return Poll::Ready(Some(internal_err!("a shared subplan was not started")));
                }
            };
            // The reader that polls may be dropped before the input wakes it: it wakes all.
            waiting.add(context.waker());
            let waker = Waker::from(Arc::clone(waiting));
            match input.poll_next_unpin(&mut Context::from_waker(&waker)) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Some(Ok(batch))) if batch.num_rows() == 0 => {}
                Poll::Ready(Some(Ok(batch))) => {
                    if let Err(error) = self.push(batch) {
                        self.input = Input::Failed(Arc::new(error));
                    }
                }
                Poll::Ready(Some(Err(error))) => self.input = Input::Failed(Arc::new(error)),
                Poll::Ready(None) => self.input = Input::Ended,
            }
        }
    }

    /// Adds a batch, and moves those in memory to a file if memory is short.
    fn push(&mut self, batch: RecordBatch) -> Result<()> {
        let bytes = sliced_bytes(&batch)?;
        self.segments.push_back(Segment::Memory(batch, bytes));
        let Some((reservation, spills)) = &self.memory else { return Ok(()) };
        if reservation.try_grow(bytes).is_ok() {
            return Ok(());
        }
        // Behind the last file: readers know segments by their number.
        let files = self.segments.iter().rposition(|segment| matches!(segment, Segment::File(_)));
        let from = files.map_or(0, |last| last + 1);
        let mut batches = Vec::new();
        let mut reserved = 0;
        for segment in self.segments.range(from..) {
            if let Segment::Memory(batch, bytes) = segment {
                batches.push(batch.clone());
                reserved += bytes;
            }
        }
        // The last batch was not reserved.
        reserved -= bytes;
        for (at, batch) in batches.iter().enumerate() {
            let file = spills.spill_record_batch_and_finish(std::slice::from_ref(batch), "shared subplan")?;
            if let Some(file) = file {
                self.segments[from + at] = Segment::File(file);
            }
        }
        reservation.shrink(reserved);
        Ok(())
    }

    /// Drops the segments that all readers have read, and the input once no reader is left.
    fn release(&mut self) {
        let Some(first) = self.positions.iter().flatten().min().copied() else {
            self.segments.clear();
            self.memory = None;
            self.input = Input::Ended;
            return;
        };
        while self.first < first {
            let segment = self.segments.pop_front();
            self.first += 1;
            if let (Some(Segment::Memory(_, bytes)), Some((reservation, _))) = (segment, &self.memory) {
                reservation.shrink(bytes);
            }
        }
    }
}

/// The bytes of a batch: of a slice of larger arrays, as aggregates output them, those of its own rows. The
/// other slices are batches of their own.
fn sliced_bytes(batch: &RecordBatch) -> Result<usize> {
    let mut bytes = 0;
    for column in batch.columns() {
        bytes += column.to_data().get_slice_memory_size()?;
        bytes += match column.data_type() {
            DataType::Utf8View => column.as_string_view().total_buffer_bytes_used(),
            DataType::BinaryView => column.as_binary_view().total_buffer_bytes_used(),
            _ => 0,
        };
    }
    Ok(bytes)
}

/// The batches of a partition, for one place.
struct Reader {
    shared: Arc<SharedPartition>,
    place: usize,
    position: usize,
    /// A segment that is read from a file.
    file: Option<SendableRecordBatchStream>,
    schema: SchemaRef,
    metrics: BaselineMetrics,
}

impl Reader {
    fn file_stream(&self, file: Arc<dyn SpillFile>) -> Result<SendableRecordBatchStream> {
        match &lock(&self.shared.state).memory {
            Some((_, spills)) => spills.read_spill_as_stream(file, None),
            None => internal_err!("a shared subplan without temporary files"),
        }
    }
}

impl Stream for Reader {
    type Item = Result<RecordBatch>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let reader = &mut *self;
        loop {
            if let Some(file) = &mut reader.file {
                match std::task::ready!(file.poll_next_unpin(context)) {
                    Some(batch) => return Poll::Ready(Some(batch.record_output(&reader.metrics))),
                    None => reader.file = None,
                }
            }
            let segment =
                std::task::ready!(reader.shared.poll_segment(reader.place, reader.position, context));
            match segment {
                Some(Ok(Segment::Memory(batch, _))) => {
                    reader.position += 1;
                    return Poll::Ready(Some(Ok(batch.record_output(&reader.metrics))));
                }
                Some(Ok(Segment::File(file))) => {
                    reader.position += 1;
                    reader.file = Some(reader.file_stream(file)?);
                }
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                None => return Poll::Ready(None),
            }
        }
    }
}

impl RecordBatchStream for Reader {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.shared.leave(self.place);
    }
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::Int64Array;
    use datafusion::arrow::datatypes::{Field, Int64Type, Schema};
    use datafusion::execution::memory_pool::GreedyMemoryPool;
    use datafusion::execution::runtime_env::RuntimeEnvBuilder;
    use datafusion::physical_plan::stream::RecordBatchStreamAdapter;

    use super::*;

    const ROWS: i64 = 1000;
    const BATCHES: i64 = 40;

    fn schema() -> SchemaRef {
        Arc::new(Schema::new(vec![Field::new("n", DataType::Int64, false)]))
    }

    fn batch(at: i64) -> RecordBatch {
        let values = Int64Array::from_iter_values(at * ROWS..(at + 1) * ROWS);
        RecordBatch::try_new(schema(), vec![Arc::new(values)]).unwrap()
    }

    /// A partition whose input is `batches`, with memory for `bytes`.
    fn partition(
        readers: usize,
        bytes: usize,
        batches: impl Iterator<Item = Result<RecordBatch>> + Send + 'static,
    ) -> (Arc<SharedPartition>, Arc<TaskContext>) {
        let pool = Arc::new(GreedyMemoryPool::new(bytes));
        let runtime = RuntimeEnvBuilder::new().with_memory_pool(pool).build_arc().unwrap();
        let context = Arc::new(TaskContext::default().with_runtime(runtime));
        let shared = SharedPartition::new(readers);
        let stream = RecordBatchStreamAdapter::new(schema(), futures::stream::iter(batches));
        lock(&shared.state).start(Box::pin(stream), 0, &context, &ExecutionPlanMetricsSet::new());
        (Arc::new(shared), context)
    }

    fn reader(shared: &Arc<SharedPartition>, place: usize) -> Reader {
        Reader {
            shared: Arc::clone(shared),
            place,
            position: 0,
            file: None,
            schema: schema(),
            metrics: BaselineMetrics::new(&ExecutionPlanMetricsSet::new(), 0),
        }
    }

    fn first_value(batch: &RecordBatch) -> i64 {
        assert_eq!(batch.num_rows(), ROWS as usize);
        batch.column(0).as_primitive::<Int64Type>().value(0)
    }

    /// Memory for all batches, for five, for none.
    #[tokio::test]
    async fn readers_see_all_batches_in_any_interleaving() {
        for bytes in [usize::MAX, 5 * 8 * ROWS as usize, 1] {
            for seed in 0..50_u64 {
                let (shared, context) = partition(3, bytes, (0..BATCHES).map(|at| Ok(batch(at))));
                let mut readers: Vec<_> = (0..3).map(|place| Some((reader(&shared, place), 0))).collect();
                let mut random = seed;
                while readers.iter().any(Option::is_some) {
                    random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                    // Some seeds let one reader run ahead.
                    let place = (random >> 33) as usize % if seed % 2 == 0 { 3 } else { 5 } % 3;
                    let Some((reader, next)) = &mut readers[place] else { continue };
                    match reader.next().await {
                        Some(batch) => {
                            assert_eq!(first_value(&batch.unwrap()), *next * ROWS);
                            *next += 1;
                        }
                        None => {
                            assert_eq!(*next, BATCHES);
                            readers[place] = None;
                        }
                    }
                }
                assert_eq!(context.memory_pool().reserved(), 0);
                assert!(lock(&shared.state).segments.is_empty());
            }
        }
    }

    #[test]
    fn slices_count_their_own_part() {
        let whole = batch(0);
        let parts: usize = (0..10).map(|at| sliced_bytes(&whole.slice(at * 100, 100)).unwrap()).sum();
        assert_eq!(parts, sliced_bytes(&whole).unwrap());
        assert_eq!(parts, 8 * ROWS as usize);
    }

    #[tokio::test]
    async fn readers_that_left_hold_nothing_back() {
        let (shared, context) = partition(3, usize::MAX, (0..BATCHES).map(|at| Ok(batch(at))));
        let mut one = reader(&shared, 0);
        drop(reader(&shared, 1));
        let mut other = reader(&shared, 2);
        for _ in 0..10 {
            one.next().await.unwrap().unwrap();
        }
        assert_eq!(lock(&shared.state).segments.len(), 10, "the third reader has read none");
        drop(other.next().await);
        drop(other);
        // The batch that was read last is released with the next poll.
        one.next().await.unwrap().unwrap();
        assert!(lock(&shared.state).segments.len() <= 1);
        drop(one);
        assert_eq!(context.memory_pool().reserved(), 0);
        assert!(matches!(lock(&shared.state).input, Input::Ended));
    }

    #[tokio::test]
    async fn readers_all_see_an_error() {
        let batches = (0..3).map(|at| if at < 2 { Ok(batch(at)) } else { internal_err!("no batch") });
        let (shared, _context) = partition(2, usize::MAX, batches);
        for place in 0..2 {
            let mut reader = reader(&shared, place);
            assert!(reader.next().await.unwrap().is_ok());
            assert!(reader.next().await.unwrap().is_ok());
            let error = reader.next().await.unwrap().unwrap_err();
            assert!(error.to_string().contains("no batch"), "{error}");
        }
    }

    /// The reader that polled an input last is dropped before the input has a batch.
    #[tokio::test]
    async fn an_input_wakes_the_readers_that_are_left() {
        let (sender, receiver) = futures::channel::oneshot::channel();
        let late = futures::stream::once(async { Ok(receiver.await.unwrap()) });
        let (shared, context) = partition(2, usize::MAX, std::iter::empty());
        lock(&shared.state).input = Input::Running(Box::pin(RecordBatchStreamAdapter::new(schema(), late)));
        let (mut waiting, mut dropped) = (reader(&shared, 0), reader(&shared, 1));
        let waits = tokio::spawn(async move { waiting.next().await });
        tokio::task::yield_now().await;
        assert!(futures::poll!(dropped.next()).is_pending());
        drop(dropped);
        sender.send(batch(0)).unwrap();
        assert_eq!(first_value(&waits.await.unwrap().unwrap().unwrap()), 0);
        drop(context);
    }
}
