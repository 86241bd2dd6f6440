//! Contract test of transports: every rank opens random streams to every other, and each end derives the
//! expected content from a seed.
//!
//! Batches have all sizes, some larger than a block; some streams stop half-way, some fail, some readers keep
//! everything they read until the end. The last stream between each pair is a broadcast: it carries the same
//! batches to all.
//!
//! Order of calls: [`serve`] on every rank, then [`exchange`], then [`barrier`]. Then every ledger must
//! clear.

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringViewArray};
use arrow::compute::concat_batches;
use futures::StreamExt;
use harrier_error::SqlState;
use harrier_interconnect::{
    BatchReceiver, BatchSender, Broadcast, Budget, Codec, Failure, Incoming, Interconnect, ReadOptions,
    SendOutcome, Service, StreamError, StreamSender,
};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};
use tokio::runtime::Handle;
use tokio::sync::mpsc;

/// Parameters of the exchange; the same on every rank.
#[derive(Clone, Copy, Debug)]
pub struct Exchange {
    pub seed: u64,
    pub rounds: u64,
    /// Streams from each rank to each other one, per round.
    pub streams: usize,
    /// A batch has fewer than 2 to the power of this many rows.
    pub rows_log2: u32,
    /// Compression that readers on other hosts request.
    pub codec: Option<Codec>,
}

/// Bytes held by one side of a rank's streams, now and at peak.
#[derive(Default)]
pub struct Meter {
    present: AtomicUsize,
    peak: AtomicUsize,
}

impl Meter {
    pub fn present(&self) -> usize {
        self.present.load(Ordering::Relaxed)
    }

    pub fn peak(&self) -> usize {
        self.peak.load(Ordering::Relaxed)
    }
}

impl Budget for Meter {
    fn grow(&self, bytes: usize) {
        let present = self.present.fetch_add(bytes, Ordering::Relaxed) + bytes;
        self.peak.fetch_max(present, Ordering::Relaxed);
    }

    fn shrink(&self, bytes: usize) {
        let before = self.present.fetch_sub(bytes, Ordering::Relaxed);
        assert!(before >= bytes, "{bytes} bytes given back of {before}");
    }
}

/// The content of one stream, derived from its seed.
struct Script {
    batches: Vec<RecordBatch>,
    fails: bool,
    /// Number of batches after which the reader stops, if it does.
    stops_after: Option<usize>,
}

/// SQLSTATE of a scripted failure.
const SCRIPTED_FAILURE: SqlState = SqlState::DIVISION_BY_ZERO;

/// Window of one rank's reads from another in a round, bytes.
pub const WINDOW_BYTES: usize = 1 << 22;

/// Receiver number in the seed of a broadcast, which is the same for all receivers.
const ALL: usize = 63;

impl Exchange {
    fn script(&self, from: usize, to: usize, round: u64, stream: usize) -> Script {
        let mut random = self.random(from, to, round, stream);
        let batches = self.batches(&mut random);
        Script {
            batches: if self.is_broadcast(stream) { self.broadcast(from, round) } else { batches },
            fails: random.random_ratio(1, 6),
            stops_after: random.random_ratio(1, 4).then(|| random.random_range(0..4)),
        }
    }

    fn is_broadcast(&self, stream: usize) -> bool {
        stream + 1 == self.streams
    }

    /// The batches that a rank broadcasts in a round.
    fn broadcast(&self, from: usize, round: u64) -> Vec<RecordBatch> {
        self.batches(&mut self.random(from, ALL, round, self.streams - 1))
    }

    fn random(&self, from: usize, to: usize, round: u64, stream: usize) -> StdRng {
        let place = ((from * 64 + to) * self.streams + stream) as u64;
        StdRng::seed_from_u64(self.seed ^ (round << 32) ^ place.wrapping_mul(0x9E37_79B9_7F4A_7C15))
    }

    fn batches(&self, random: &mut StdRng) -> Vec<RecordBatch> {
        (0..random.random_range(0..12)).map(|_| batch(random, self.rows_log2)).collect()
    }
}

/// From a few bytes to a few MiB.
fn batch(random: &mut StdRng, rows_log2: u32) -> RecordBatch {
    let rows = 1usize << random.random_range(0..rows_log2);
    let numbers = Int64Array::from_iter_values((0..rows).map(|_| random.random()));
    let text = "x".repeat(random.random_range(0..40));
    let texts = StringViewArray::from_iter((0..rows).map(|row| (row % 7 != 0).then_some(text.as_str())));
    RecordBatch::try_from_iter([("n", Arc::new(numbers) as ArrayRef), ("s", Arc::new(texts) as ArrayRef)])
        .expect("the columns fit")
}

/// The request of a rank that has finished reading; it is answered when all have.
const DONE: u64 = u64::MAX;

/// Ranks waiting at the final barrier, on rank 0.
pub struct BarrierWaiters(mpsc::UnboundedReceiver<StreamSender>);

/// The batches of a broadcast, and the broadcast itself.
type RoundBroadcast = (Vec<RecordBatch>, Weak<Broadcast>);

struct Producer {
    exchange: Exchange,
    rank: usize,
    runtime: Handle,
    done: mpsc::UnboundedSender<StreamSender>,
    sent: Arc<Meter>,
    others: usize,
    /// By round.
    broadcasts: Mutex<HashMap<u64, RoundBroadcast>>,
}

impl Producer {
    /// The broadcast of a round; all receivers share its memory.
    fn broadcast(&self, round: u64) -> (Vec<RecordBatch>, Arc<Broadcast>) {
        let mut broadcasts = self.broadcasts.lock().expect("nobody panics");
        let (batches, broadcast) = broadcasts
            .entry(round)
            .or_insert_with(|| (self.exchange.broadcast(self.rank, round), Weak::new()));
        let joined = broadcast.upgrade().unwrap_or_else(|| {
            let new = Arc::new(Broadcast::new(self.others, Arc::clone(&self.sent) as _));
            *broadcast = Arc::downgrade(&new);
            new
        });
        (batches.clone(), joined)
    }
}

/// Answers streams opened by other ranks with tasks on `runtime`. `sent` is charged with the bytes sent.
pub fn serve(gang: &Interconnect, exchange: Exchange, runtime: Handle, sent: Arc<Meter>) -> BarrierWaiters {
    let (done, all_done) = mpsc::unbounded_channel();
    gang.serve(Arc::new(Producer {
        exchange,
        rank: gang.rank(),
        runtime,
        done,
        sent,
        others: gang.ranks() - 1,
        broadcasts: Mutex::default(),
    }));
    BarrierWaiters(all_done)
}

impl Service for Producer {
    fn open(&self, incoming: Incoming) {
        let Ok(round) = incoming.request[..].try_into().map(u64::from_le_bytes) else {
            // Damaged in transit: the senders fail when dropped.
            return;
        };
        if round == DONE {
            // No receiver is left if the exchange has failed.
            return incoming.senders.into_iter().for_each(|sender| drop(self.done.send(sender)));
        }
        for (stream, sender) in incoming.senders.into_iter().enumerate() {
            let mut script = self.exchange.script(self.rank, incoming.from, round, stream);
            let mut sender = BatchSender::with_budget(sender, Arc::clone(&self.sent) as _);
            if self.exchange.is_broadcast(stream) {
                let (batches, broadcast) = self.broadcast(round);
                script.batches = batches;
                sender = sender.with_broadcast(broadcast);
            }
            self.runtime.spawn(produce(script, sender));
        }
    }
}

async fn produce(script: Script, mut sender: BatchSender) {
    for batch in script.batches {
        match sender.send(batch).await {
            SendOutcome::Sent => {}
            SendOutcome::Closed(_) => break,
            SendOutcome::Unfit(error) => panic!("{error}"),
        }
    }
    match script.fails {
        true => sender.fail(&Failure::new(SCRIPTED_FAILURE, "as the script says")),
        false => sender.finish(),
    }
}

/// A deviation from the script.
#[derive(Debug)]
pub enum Problem {
    /// A rank was lost, which scripts do not foresee.
    Lost { rank: usize, reason: String },
    /// The transport or the streams above it violated their contract.
    Wrong(String),
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Problem::Lost { rank, reason } => write!(f, "rank {rank} is lost: {reason}"),
            Problem::Wrong(what) => f.write_str(what),
        }
    }
}

impl std::error::Error for Problem {}

/// Reads one stream to its end and verifies it. Returns the batches, for readers that keep them.
async fn read_stream(script: Script, mut receiver: BatchReceiver) -> Result<Vec<RecordBatch>, Problem> {
    let schema = batch(&mut StdRng::seed_from_u64(0), 1).schema();
    let expected =
        concat_batches(&schema, &script.batches).map_err(|error| Problem::Wrong(error.to_string()))?;
    let mut got: Vec<RecordBatch> = Vec::new();
    let mut rows = 0;
    let failed = loop {
        if script.stops_after.is_some_and(|batches| got.len() >= batches) {
            return Ok(got);
        }
        match receiver.next().await {
            None => break false,
            Some(Ok(batch)) => {
                if rows + batch.num_rows() > expected.num_rows()
                    || batch != expected.slice(rows, batch.num_rows())
                {
                    return Err(Problem::Wrong(format!("rows from {rows} on differ")));
                }
                rows += batch.num_rows();
                got.push(batch);
            }
            Some(Err(StreamError::Failed { failure, .. })) if failure.sqlstate == SCRIPTED_FAILURE => {
                break true;
            }
            Some(Err(StreamError::Lost { rank, reason })) => return Err(Problem::Lost { rank, reason }),
            Some(Err(error)) => return Err(Problem::Wrong(error.to_string())),
        }
    };
    if failed != script.fails || rows != expected.num_rows() {
        return Err(Problem::Wrong(format!("{rows} rows of {}, failed: {failed}", expected.num_rows())));
    }
    Ok(got)
}

/// Reads and verifies all streams of the other members of `gang`, in every round. Returns the number of
/// streams. `received` is charged with the bytes waiting to be read.
pub async fn exchange(
    gang: &Interconnect,
    exchange: Exchange,
    received: Arc<Meter>,
) -> Result<usize, Problem> {
    let mut kept = Vec::new();
    let mut streams = 0;
    for round in 0..exchange.rounds {
        let mut reads = Vec::new();
        for from in gang.members().into_iter().filter(|from| *from != gang.rank()) {
            let options = ReadOptions {
                window_bytes: WINDOW_BYTES,
                codec: exchange.codec,
                budget: Some(Arc::clone(&received) as _),
            };
            let receivers = gang.open(from, &round.to_le_bytes(), exchange.streams, options);
            for (stream, receiver) in receivers.into_iter().enumerate() {
                let script = exchange.script(from, gang.rank(), round, stream);
                reads.push(tokio::spawn(read_stream(script, BatchReceiver::new(receiver, |_| {}))));
            }
        }
        for read in reads {
            let batches = read.await.map_err(|error| Problem::Wrong(error.to_string()))?;
            let batches = batches.map_err(|problem| match problem {
                Problem::Wrong(what) => Problem::Wrong(format!("round {round}: {what}")),
                lost => lost,
            })?;
            streams += 1;
            // Keeps them, as a hash join keeps its build side.
            if streams % 5 == 0 {
                kept.extend(batches);
            }
        }
    }
    drop(kept);
    Ok(streams)
}

/// Barrier at the end: waits until every member has finished, since a rank must not leave while another may
/// open streams to it.
pub async fn barrier(gang: &Interconnect, mut done: BarrierWaiters) {
    if gang.rank() > 0 {
        let (_messages, mut answer) = gang.call(0, &DONE.to_le_bytes());
        // The answer is only an end of stream, or the loss of the coordinator.
        while answer.next().await.is_some_and(|answer| answer.is_ok()) {}
        return;
    }
    let mut waiting = Vec::new();
    loop {
        let losses = gang.losses().len();
        if waiting.len() + 1 + losses >= gang.ranks() {
            break;
        }
        tokio::select! {
            Some(sender) = done.0.recv() => waiting.push(sender),
            _ = gang.wait_for_losses(losses) => {}
        }
    }
    waiting.into_iter().for_each(StreamSender::finish);
}
