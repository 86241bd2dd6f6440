//! Exchange of one job's blocks, from O tasks to the stores of A tasks.
//!
//! ```text
//!   O task ─ block full ─► send queue of a rank ─ credit ─► stream ═══► mover of that rank ─► merger ─► stores of its A tasks
//!          ─ own rank ───────────────────────────────────────────────────────────────────────►
//! ```
//!
//! # Invariants
//! - A task `a` belongs to rank `a` modulo the number of ranks, and to one merger thread of it. Blocks of one
//!   O task for one A task arrive in the order in which they were sent.
//! - A merger never waits for an O task or for another rank, so O tasks, which wait for mergers, always make
//!   progress.
//!
//! # Memory bound
//! For each pair of ranks: the send queue, the stream's credits, and one block for each A task and running O
//! task. Behind a merger: the job's share of memory, above which stores spill.
//!
//! # Cancellation
//! A failure is reported to rank 0, which announces it to every rank. Then blocks are dropped instead of sent
//! or stored, and streams end.

use crate::checkpoint::{Committed, Log};
use crate::config::Config;
use crate::control::ToRank0;
use crate::error::{Cause, Error, Side, TaskError};
use crate::origin::{self, Work};
use crate::records::{BLOCK_HEADER_BYTES, BlockHeader, BlockKind};
use crate::spill::{SpillFolders, Spiller};
use crate::store::{Shape, Store, StoreError};
use crate::table::Table;
use crate::world::World;
use bytes::Bytes;
use futures::StreamExt;
use harrier_error::SqlState;
use harrier_interconnect::limits::{HEADER_BYTES, MOTION_WINDOW_BYTES};
use harrier_interconnect::transport::Block;
use harrier_interconnect::{Failure, Received, StreamError, StreamReceiver, StreamSender};
use parking_lot::Mutex;
use std::any::Any;
use std::collections::{BTreeMap, HashMap};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Instant;
use tokio::sync::{mpsc, oneshot, watch};

/// SQLSTATE of a stream whose job is stopping; the reason travels by a control message.
const STOPPED: SqlState = SqlState::QUERY_CANCELED;

/// Parameters of a job that its exchange needs; the same on every rank, except for the counts.
pub(crate) struct Plan {
    pub job: u32,
    pub o_tasks: u32,
    pub a_tasks: u32,
    pub shape: Shape,
    pub config: Config,
    pub cache_bytes: usize,
    pub mergers: usize,
    pub checkpoint: Option<CheckpointPlan>,
    /// Streaming: number of windows that this rank has closed, and the end of the last one.
    pub closed: AtomicU64,
    pub closed_until: AtomicU64,
}

pub(crate) struct CheckpointPlan {
    pub folder: PathBuf,
    pub generation: u32,
    pub committed: Committed,
}

impl Plan {
    pub fn owner(&self, a_task: u32, ranks: usize) -> usize {
        a_task as usize % ranks
    }

    fn merger(&self, a_task: u32, ranks: usize) -> usize {
        a_task as usize / ranks % self.mergers
    }
}

/// Early stop of a job on this rank.
pub(crate) struct Stop {
    world: World,
    job: u32,
    first: Mutex<Option<Error>>,
    stopped: watch::Receiver<bool>,
}

impl Stop {
    /// Stops the job on all ranks. Only the first error of a rank is reported.
    pub fn fail(&self, error: Error) {
        let why;
        {
            let mut first = self.first.lock();
            if first.is_some() {
                return;
            }
            tracing::debug!(%error, job = self.job, "the job fails");
            why = error.to_string();
            *first = Some(error);
        }
        self.world.client().abort_here(self.job);
        self.world.send_to_rank_0(ToRank0::Fail { job: self.job, why });
    }

    /// Stops the job on this rank, because another one has stopped it.
    fn stop_here(&self) {
        self.world.client().abort_here(self.job);
    }

    pub fn is_set(&self) -> bool {
        *self.stopped.borrow()
    }

    /// Returns why the job stops, if it does and any rank has reported a reason: this rank's own, or the
    /// first one received.
    pub fn why(&self) -> Option<String> {
        let own = self.error().map(|error| error.to_string());
        own.or_else(|| self.world.client().stop_reason(self.job))
    }

    pub fn error(&self) -> Option<Error> {
        self.first.lock().clone()
    }
}

async fn wait_for_stop(stopped: &mut watch::Receiver<bool>) {
    if stopped.wait_for(|stopped| *stopped).await.is_err() {
        // The sender is gone, so no stop can arrive.
        std::future::pending::<()>().await;
    }
}

/// A block queued for another rank.
struct Parcel {
    block: Block,
    pairs: u32,
    /// Notified when the block was received; only in blocking mode.
    received: Option<oneshot::Sender<()>>,
}

/// A block that has arrived at its rank.
struct Arrival {
    header: BlockHeader,
    pairs: Bytes,
    received: Option<oneshot::Sender<()>>,
}

/// Send queues of this rank. Every O task holds a reference; when the last is dropped, the streams end.
pub(crate) struct SendQueues {
    pub world: World,
    pub plan: Arc<Plan>,
    pub stop: Arc<Stop>,
    /// By rank; `None` for this one.
    remote: Vec<Option<mpsc::Sender<Parcel>>>,
    mergers: Vec<mpsc::Sender<Arrival>>,
    /// Tables of finished O tasks with pairs not sent yet, each with the last task that used it; at most as
    /// many as tasks run concurrently.
    pub tables: Mutex<Vec<(u32, Table)>>,
    pub blocks: AtomicU64,
    pub bytes: AtomicU64,
    /// Nanoseconds that O tasks waited for a place in a send queue.
    pub wait_ns: AtomicU64,
}

/// The job is stopping: nothing more is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct JobStopped;

impl SendQueues {
    /// Allocates an empty block for pairs to `a_task`, with room for `pair_bytes` of them.
    pub fn block(&self, a_task: u32, pair_bytes: usize) -> Block {
        let to = self.plan.owner(a_task, self.world.ranks());
        let mut block = self.world.block(to, BLOCK_HEADER_BYTES + pair_bytes);
        block.push_zeros(BLOCK_HEADER_BYTES);
        block
    }

    /// Sends a block from [`SendQueues::block`]. Waits while its queue is full. Returns the acknowledgement
    /// to wait for, if one is requested.
    pub fn send(
        &self,
        header: BlockHeader,
        mut block: Block,
        ask: bool,
    ) -> Result<Option<oneshot::Receiver<()>>, JobStopped> {
        if self.stop.is_set() {
            return Err(JobStopped);
        }
        block.as_mut_slice()[HEADER_BYTES..HEADER_BYTES + BLOCK_HEADER_BYTES]
            .copy_from_slice(&header.encode());
        self.blocks.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add((block.len() - HEADER_BYTES - BLOCK_HEADER_BYTES) as u64, Ordering::Relaxed);
        let (received, acknowledgement) = if ask {
            let (received, acknowledgement) = oneshot::channel();
            (Some(received), Some(acknowledgement))
        } else {
            (None, None)
        };
        let to = self.plan.owner(header.a_task, self.world.ranks());
        match &self.remote[to] {
            Some(queue) => self.push(queue, Parcel { block, pairs: header.pairs, received })?,
            None => {
                let merger = self.plan.merger(header.a_task, self.world.ranks());
                let pairs = Bytes::from_owner(Owned(block)).slice(HEADER_BYTES + BLOCK_HEADER_BYTES..);
                self.push(&self.mergers[merger], Arrival { header, pairs, received })?;
            }
        }
        Ok(acknowledgement)
    }

    fn push<T>(&self, queue: &mpsc::Sender<T>, item: T) -> Result<(), JobStopped> {
        match queue.try_send(item) {
            Ok(()) => Ok(()),
            Err(mpsc::error::TrySendError::Closed(_)) => Err(JobStopped),
            Err(mpsc::error::TrySendError::Full(item)) => {
                let since = Instant::now();
                let sent = queue.blocking_send(item).map_err(|_| JobStopped);
                self.wait_ns.fetch_add(since.elapsed().as_nanos() as u64, Ordering::Relaxed);
                sent
            }
        }
    }
}

struct Owned(Block);

impl AsRef<[u8]> for Owned {
    fn as_ref(&self) -> &[u8] {
        self.0.as_slice()
    }
}

/// Consumer of a merger's blocks.
pub(crate) trait Sink: Send {
    fn push(&mut self, header: BlockHeader, pairs: Bytes) -> Result<(), Error>;

    /// Called after the last block. Returns the remaining stores, by A task.
    fn finish(self: Box<Self>) -> Result<Vec<(u32, Store)>, Error>;
}

/// Exchange of a job on this rank.
pub(crate) struct Exchange {
    /// `None` once the O phase is over.
    queues: Mutex<Option<Arc<SendQueues>>>,
    mergers: Vec<JoinHandle<Vec<(u32, Store)>>>,
    pub stop: Arc<Stop>,
}

impl Exchange {
    /// Opens the streams from all other ranks, and starts the mergers, each with a sink from `sink`.
    pub fn open(world: &World, plan: &Arc<Plan>, sink: impl Fn(usize) -> Box<dyn Sink>) -> Exchange {
        let (rank, ranks) = (world.rank(), world.ranks());
        let stop = Arc::new(Stop {
            world: world.clone(),
            job: plan.job,
            first: Mutex::default(),
            stopped: world.client().aborts(plan.job),
        });
        let queue_blocks = plan.config.send_queue_blocks;
        let mut mergers = Vec::new();
        let mut queues = Vec::new();
        for merger in 0..plan.mergers {
            let (queue, arrivals) = mpsc::channel(queue_blocks.max(2));
            queues.push(queue);
            let (sink, stop) = (sink(merger), Arc::clone(&stop));
            let thread = std::thread::Builder::new().name(format!("mpid merger {merger}"));
            let launched = world.own_launcher_rank();
            let work = move || merge(arrivals, sink, launched, &stop);
            mergers.push(thread.spawn(work).expect("threads can be had"));
        }
        let mut remote = Vec::new();
        for other in 0..ranks {
            if other == rank {
                remote.push(None);
                continue;
            }
            let window_bytes = if plan.config.blocking { 0 } else { MOTION_WINDOW_BYTES };
            let receiver = world.open(other, plan.job, window_bytes);
            let stopped = stop.stopped.clone();
            world.spawn(receive(
                receiver,
                other,
                world.clone(),
                Arc::clone(plan),
                queues.clone(),
                Arc::clone(&stop),
                stopped.clone(),
            ));
            let (queue, parcels) = mpsc::channel(queue_blocks);
            world.spawn(send(world.sender(plan.job, other), parcels, stopped));
            remote.push(Some(queue));
        }
        let queues = SendQueues {
            world: world.clone(),
            plan: Arc::clone(plan),
            stop: Arc::clone(&stop),
            remote,
            mergers: queues,
            tables: Mutex::default(),
            blocks: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            wait_ns: AtomicU64::new(0),
        };
        Exchange { queues: Mutex::new(Some(Arc::new(queues))), mergers, stop }
    }

    pub fn queues(&self) -> Option<Arc<SendQueues>> {
        self.queues.lock().clone()
    }

    /// Closes this rank's send queues.
    pub fn close_queues(&self) {
        *self.queues.lock() = None;
    }

    /// Waits until the blocks of all ranks are merged, and returns the stores of this rank's A tasks.
    pub fn end_o_phase(&mut self) -> Vec<(u32, Store)> {
        self.close_queues();
        let mut stores = Vec::new();
        for merger in self.mergers.drain(..) {
            // A merger catches the panics of its sink.
            stores.extend(merger.join().unwrap_or_default());
        }
        stores.sort_by_key(|(a_task, _)| *a_task);
        stores
    }
}

/// Sends the blocks of a queue over the stream as credit allows.
async fn send(
    stream: oneshot::Receiver<StreamSender>,
    mut parcels: mpsc::Receiver<Parcel>,
    mut stopped: watch::Receiver<bool>,
) {
    let stream = tokio::select! {
        stream = stream => stream,
        () = wait_for_stop(&mut stopped) => return,
    };
    // The receiving rank is lost, which is detected elsewhere.
    let Ok(mut stream) = stream else { return };
    let give_up = |stream: StreamSender| stream.fail(&Failure::new(STOPPED, "the job is to stop"));
    loop {
        let parcel = tokio::select! {
            biased;
            () = wait_for_stop(&mut stopped) => return give_up(stream),
            parcel = parcels.recv() => parcel,
        };
        let Some(parcel) = parcel else { return stream.finish() };
        tokio::select! {
            biased;
            () = wait_for_stop(&mut stopped) => return give_up(stream),
            credit = stream.credit() => if credit.is_err() {
                return give_up(stream);
            },
        }
        stream.send(parcel.pairs as usize, parcel.block);
        if let Some(received) = parcel.received {
            // There is one credit, and the reader returns it when it takes the block.
            tokio::select! {
                biased;
                () = wait_for_stop(&mut stopped) => return give_up(stream),
                credit = stream.credit() => if credit.is_err() {
                    return give_up(stream);
                },
            }
            let _ = received.send(());
        }
    }
}

/// Distributes the blocks of a stream to the mergers.
async fn receive(
    mut stream: StreamReceiver,
    from: usize,
    world: World,
    plan: Arc<Plan>,
    mergers: Vec<mpsc::Sender<Arrival>>,
    stop: Arc<Stop>,
    mut stopped: watch::Receiver<bool>,
) {
    let (rank, ranks, launched) = (world.rank(), world.ranks(), world.own_launcher_rank());
    loop {
        let received = tokio::select! {
            biased;
            () = wait_for_stop(&mut stopped) => return,
            received = stream.next() => received,
        };
        let payload = match received {
            None => return,
            Some(Ok(Received::Block { payload, .. })) => payload,
            Some(Ok(Received::Schema(_))) => continue,
            Some(Err(StreamError::Lost { rank, reason })) => {
                return stop.fail(world.find_loss(rank, reason).await);
            }
            Some(Err(StreamError::Failed { .. })) => return stop.stop_here(),
            Some(Err(error)) => {
                return stop.fail(Error::Damaged { rank: launched, message: error.to_string() });
            }
        };
        let header = match BlockHeader::decode(&payload) {
            Ok(header) if header.a_task < plan.a_tasks && header.o_task < plan.o_tasks => header,
            _ => {
                let message =
                    format!("a block of rank {} that belongs to no task", world.launcher_rank(from));
                return stop.fail(Error::Damaged { rank: launched, message });
            }
        };
        if plan.owner(header.a_task, ranks) != rank {
            let message = format!("a block of rank {} for another rank", world.launcher_rank(from));
            return stop.fail(Error::Damaged { rank: launched, message });
        }
        let pairs = payload.slice(BLOCK_HEADER_BYTES..);
        let arrival = Arrival { header, pairs, received: None };
        if mergers[plan.merger(header.a_task, ranks)].send(arrival).await.is_err() {
            return;
        }
    }
}

/// Main loop of a merger thread. Takes blocks until all senders are gone, even when the job is stopping.
fn merge(
    mut arrivals: mpsc::Receiver<Arrival>,
    sink: Box<dyn Sink>,
    rank: usize,
    stop: &Stop,
) -> Vec<(u32, Store)> {
    let mut sink = Some(sink);
    let guarded = |work: &mut dyn FnMut() -> Result<(), Error>| {
        let outcome = catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
            let work = origin::current_work();
            let what = origin::take_panic_place();
            Err(Error::Task(TaskError {
                side: Side::A,
                task: work.a_task,
                rank,
                cause: Cause::Panicked,
                place: work.place(what.as_deref().unwrap_or("while its pairs were combined or ordered")),
                message: panic_message(&*panic),
            }))
        });
        outcome.map_err(|error| stop.fail(error)).is_ok()
    };
    while let Some(Arrival { header, pairs, received }) = arrivals.blocking_recv() {
        if stop.is_set() {
            sink = None;
        }
        if let Some(open) = &mut sink {
            let mut pairs = Some(pairs);
            if !guarded(&mut || open.push(header, pairs.take().expect("called once"))) {
                sink = None;
            }
        }
        if let Some(received) = received {
            let _ = received.send(());
        }
    }
    let mut stores = Vec::new();
    if let Some(sink) = sink.filter(|_| !stop.is_set()) {
        let mut sink = Some(sink);
        guarded(&mut || {
            stores = sink.take().expect("called once").finish()?;
            Ok(())
        });
    }
    stores
}

/// Returns a panic's message.
pub(crate) fn panic_message(panic: &(dyn Any + Send)) -> String {
    match (panic.downcast_ref::<&str>(), panic.downcast_ref::<String>()) {
        (Some(text), _) => text.to_string(),
        (_, Some(text)) => text.clone(),
        _ => "a panic that says nothing".to_string(),
    }
}

/// `window`: start of the store's window, when streaming.
pub(crate) fn store_error(error: StoreError, a_task: u32, window: Option<u64>, rank: usize) -> Error {
    match error {
        StoreError::Spill(error) => Error::Spill { rank, message: error.to_string() },
        StoreError::Damaged(error) => Error::Damaged { rank, message: error.to_string() },
        StoreError::Rejected(rejected) => Error::Task(TaskError {
            side: Side::A,
            task: a_task,
            rank,
            cause: Cause::Rejected,
            place: Work { a_task, window }.place("while its pairs were combined"),
            message: rejected.to_string(),
        }),
    }
}

/// Collects pairs in the stores of A tasks until the O phase is over.
pub(crate) struct BatchSink {
    rank: usize,
    world: World,
    plan: Arc<Plan>,
    spiller: Spiller,
    stores: BTreeMap<u32, Store>,
    logs: HashMap<u32, Log>,
    /// Spill threshold of its stores.
    bytes_max: usize,
}

impl BatchSink {
    pub fn new(world: &World, plan: &Arc<Plan>, folders: &Arc<SpillFolders>, merger: usize) -> BatchSink {
        let (rank, ranks) = (world.rank(), world.ranks());
        let mine = (0..plan.a_tasks)
            .filter(|a_task| plan.owner(*a_task, ranks) == rank && plan.merger(*a_task, ranks) == merger);
        BatchSink {
            rank: world.own_launcher_rank(),
            world: world.clone(),
            plan: Arc::clone(plan),
            spiller: Spiller::new(folders),
            stores: mine.map(|a_task| (a_task, Store::new(plan.shape.clone()))).collect(),
            logs: HashMap::new(),
            bytes_max: plan.cache_bytes / plan.mergers,
        }
    }

    fn store(&mut self, header: BlockHeader, pairs: Bytes) -> Result<(), Error> {
        let rank = self.rank;
        let store = self.stores.get_mut(&header.a_task).ok_or_else(|| Error::Damaged {
            rank,
            message: format!("a block for A task {}, which is not merged here", header.a_task),
        })?;
        origin::set_work(Work { a_task: header.a_task, window: None });
        let added = store.add(pairs, header.pairs, &mut self.spiller);
        added.map_err(|error| store_error(error, header.a_task, None, rank))?;
        while self.stores.values().map(Store::bytes).sum::<usize>() > self.bytes_max {
            let largest = self.stores.iter_mut().max_by_key(|(_, store)| store.bytes());
            let (a_task, store) = largest.expect("some store is larger than nothing");
            let before = store.bytes();
            origin::set_work(Work { a_task: *a_task, window: None });
            store.spill(&mut self.spiller).map_err(|error| store_error(error, *a_task, None, rank))?;
            if store.bytes() >= before {
                break;
            }
        }
        Ok(())
    }

    /// Returns the log of an A task; when first opened, replays the pairs of earlier generations.
    fn log(&mut self, a_task: u32) -> Result<&mut Log, Error> {
        if !self.logs.contains_key(&a_task) {
            let plan = Arc::clone(&self.plan);
            let checkpoint = plan.checkpoint.as_ref().expect("there is a checkpoint");
            let CheckpointPlan { folder, generation, committed } = checkpoint;
            let log = Log::open::<LogError>(folder, a_task, *generation, committed, |header, pairs| {
                self.store(header, pairs).map_err(LogError::Other)
            });
            let log = log.map_err(|error| error.into_error(self.rank))?;
            self.logs.insert(a_task, log);
        }
        Ok(self.logs.get_mut(&a_task).expect("it was just opened"))
    }
}

/// Why a log of received pairs could not be written.
#[derive(Debug, thiserror::Error)]
enum LogError {
    #[error("{0}")]
    Io(#[from] std::io::Error),
    #[error("{0}")]
    Other(#[source] Error),
}

impl LogError {
    fn into_error(self, rank: usize) -> Error {
        match self {
            LogError::Io(error) => Error::Checkpoint { rank, message: error.to_string() },
            LogError::Other(error) => error,
        }
    }
}

impl Sink for BatchSink {
    fn push(&mut self, header: BlockHeader, pairs: Bytes) -> Result<(), Error> {
        if self.plan.checkpoint.is_some() {
            let rank = self.rank;
            let log = self.log(header.a_task)?;
            let mut logged = log.append(header, &pairs);
            if header.kind == BlockKind::TaskEnd {
                logged = logged.and_then(|()| log.flush());
            }
            logged.map_err(|error| LogError::Io(error).into_error(rank))?;
            if header.kind == BlockKind::TaskEnd {
                self.world.send_to_rank_0(ToRank0::Stored { job: self.plan.job, o_task: header.o_task });
            }
        }
        match header.kind {
            BlockKind::Pairs => self.store(header, pairs),
            _ => Ok(()),
        }
    }

    fn finish(mut self: Box<Self>) -> Result<Vec<(u32, Store)>, Error> {
        if self.plan.checkpoint.is_some() {
            // Also for an A task that received nothing from this generation's O tasks.
            for a_task in self.stores.keys().copied().collect::<Vec<_>>() {
                self.log(a_task)?;
            }
        }
        Ok(std::mem::take(&mut self.stores).into_iter().collect())
    }
}
