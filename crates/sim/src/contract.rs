//! Scripts of random streams, for gangs over any transport: every rank opens streams to every other, and each
//! end knows from a seed what the other must say.
//!
//! Batches are of all sizes, some larger than a block; some streams are stopped half-way, some fail, some
//! readers keep what they read to the end. The last stream from a rank to each other one is a broadcast: it
//! carries the same batches to all.
//!
//! Order of calls: [`serve`] on every rank, then [`exchange`], then [`part`]. Then every ledger must clear.

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

/// What is exchanged; the same on every rank.
#[derive(Clone, Copy, Debug)]
pub struct Exchange {
    pub seed: u64,
    pub rounds: u64,
    /// From each rank to each other one, in each round.
    pub streams: usize,
    /// A batch has fewer than 2 to the power of this many rows.
    pub rows_log2: u32,
    /// What readers on other hosts ask blocks to be compressed by.
    pub codec: Option<Codec>,
}

/// What one side of a rank's streams holds at present, and the most it held.
#[derive(Default)]
pub struct Meter {
    present: AtomicUsize,
    most: AtomicUsize,
}

impl Meter {
    pub fn present(&self) -> usize {
        self.present.load(Ordering::Relaxed)
    }

    pub fn most(&self) -> usize {
        self.most.load(Ordering::Relaxed)
    }
}

impl Budget for Meter {
    fn grow(&self, bytes: usize) {
        let present = self.present.fetch_add(bytes, Ordering::Relaxed) + bytes;
        self.most.fetch_max(present, Ordering::Relaxed);
    }

    fn shrink(&self, bytes: usize) {
        let before = self.present.fetch_sub(bytes, Ordering::Relaxed);
        assert!(before >= bytes, "{bytes} bytes given back of {before}");
    }
}

/// What one stream carries, from its seed alone.
struct Script {
    batches: Vec<RecordBatch>,
    fails: bool,
    /// After how many batches the reader stops, if it does.
    stops_after: Option<usize>,
}

/// SQLSTATE of a stream that fails as its script says.
const SCRIPTED: SqlState = SqlState::DIVISION_BY_ZERO;

/// Of what one rank reads from another one in a round, bytes.
pub const WINDOW_BYTES: usize = 1 << 22;

/// In place of a reader: what is the same for all of them.
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

    /// What a rank sends to all others in a round.
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

/// The request of a rank that has read everything; its answer comes when all have.
const DONE: u64 = u64::MAX;

/// Those who wait for the others, on rank 0.
pub struct Done(mpsc::UnboundedReceiver<StreamSender>);

/// What all others are sent, and the broadcast by which they are.
type Alike = (Vec<RecordBatch>, Weak<Broadcast>);

struct Producer {
    exchange: Exchange,
    rank: usize,
    runtime: Handle,
    done: mpsc::UnboundedSender<StreamSender>,
    sent: Arc<Meter>,
    others: usize,
    /// By round.
    broadcasts: Mutex<HashMap<u64, Alike>>,
}

impl Producer {
    /// What all others are sent in a round, in the same memory for each of them.
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

/// Answers the streams that other ranks open to this one, with tasks on `runtime`. `sent` is charged with
/// what they send.
pub fn serve(gang: &Interconnect, exchange: Exchange, runtime: Handle, sent: Arc<Meter>) -> Done {
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
    Done(all_done)
}

impl Service for Producer {
    fn open(&self, incoming: Incoming) {
        let Ok(round) = incoming.request[..].try_into().map(u64::from_le_bytes) else {
            // Damaged on its way: the senders fail as they are dropped.
            return;
        };
        if round == DONE {
            // Nobody waits for it any more where the exchange has failed.
            return incoming.senders.into_iter().for_each(|sender| drop(self.done.send(sender)));
        }
        for (stream, sender) in incoming.senders.into_iter().enumerate() {
            let mut script = self.exchange.script(self.rank, incoming.from, round, stream);
            let mut sender = BatchSender::charged(sender, Arc::clone(&self.sent) as _);
            if self.exchange.is_broadcast(stream) {
                let (batches, broadcast) = self.broadcast(round);
                script.batches = batches;
                sender = sender.alike(broadcast);
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
        true => sender.fail(&Failure::new(SCRIPTED, "as the script says")),
        false => sender.finish(),
    }
}

/// What went other than the script says.
#[derive(Debug)]
pub enum Problem {
    /// A rank is lost, which the script cannot know of.
    Lost { rank: usize, reason: String },
    /// The transport broke its contract, or the streams above it theirs.
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

/// Reads one stream to its end and compares. Returns what it read, for those who keep it.
async fn read(script: Script, mut receiver: BatchReceiver) -> Result<Vec<RecordBatch>, Problem> {
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
            Some(Err(StreamError::Failed { failure, .. })) if failure.sqlstate == SCRIPTED => break true,
            Some(Err(StreamError::Lost { rank, reason })) => return Err(Problem::Lost { rank, reason }),
            Some(Err(error)) => return Err(Problem::Wrong(error.to_string())),
        }
    };
    if failed != script.fails || rows != expected.num_rows() {
        return Err(Problem::Wrong(format!("{rows} rows of {}, failed: {failed}", expected.num_rows())));
    }
    Ok(got)
}

/// Reads what the other members of `gang` send, in every round. Returns how many streams that were.
/// `received` is charged with what waits to be read.
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
                reads.push(tokio::spawn(read(script, BatchReceiver::new(receiver, |_| {}))));
            }
        }
        for read in reads {
            let batches = read.await.map_err(|error| Problem::Wrong(error.to_string()))?;
            let batches = batches.map_err(|problem| match problem {
                Problem::Wrong(what) => Problem::Wrong(format!("round {round}: {what}")),
                lost => lost,
            })?;
            streams += 1;
            // As a hash join keeps what it was built from.
            if streams % 5 == 0 {
                kept.extend(batches);
            }
        }
    }
    drop(kept);
    Ok(streams)
}

/// Nobody leaves while another may still open streams to it: waits until every member has come to this.
pub async fn part(gang: &Interconnect, mut done: Done) {
    if gang.rank() > 0 {
        let (_messages, mut answer) = gang.call(0, &DONE.to_le_bytes());
        // An end is all the answer; or the coordinator is lost.
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
            _ = gang.lost(losses) => {}
        }
    }
    waiting.into_iter().for_each(StreamSender::finish);
}
