//! Every rank opens streams to every other, and each end knows from a seed what the other must say.
//!
//! usage, below a launcher: `exchange [--seed N] [--rounds N] [--messages]`
//!
//! Batches are of all sizes, some larger than a block; some streams are stopped half-way, some fail, some receivers keep
//! what they read to the end. At last every rank's ledger must be clear. Prints one line a rank; exit status 1 for
//! anything else. `--messages` does without shared memory.

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringViewArray};
use futures::StreamExt;
use harrier_interconnect::{
    BatchReceiver, BatchSender, Failure, Incoming, Interconnect, Options, SendOutcome, Service, StreamError,
    StreamSender,
};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::runtime::Handle;
use tokio::sync::mpsc;

const STREAMS: usize = 3;

/// How long a ledger may take to clear once everything is read.
const CLEAR_PATIENCE: Duration = Duration::from_secs(10);

/// What one stream carries, from its seed alone.
struct Script {
    batches: Vec<RecordBatch>,
    fails: bool,
    /// After how many batches the reader stops, if it does.
    stops_after: Option<usize>,
}

impl Script {
    fn of(seed: u64, from: usize, to: usize, round: u64, stream: usize) -> Script {
        let place = ((from * 64 + to) * STREAMS + stream) as u64;
        let mut random =
            StdRng::seed_from_u64(seed ^ (round << 32) ^ place.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        let batches = (0..random.random_range(0..12)).map(|_| batch(&mut random)).collect();
        Script {
            batches,
            fails: random.random_ratio(1, 6),
            stops_after: random.random_ratio(1, 4).then(|| random.random_range(0..4)),
        }
    }
}

/// From a few bytes to a few MiB.
fn batch(random: &mut StdRng) -> RecordBatch {
    let rows = 1usize << random.random_range(0..18);
    let numbers = Int64Array::from_iter_values((0..rows).map(|_| random.random()));
    let text = "x".repeat(random.random_range(0..40));
    let texts = StringViewArray::from_iter((0..rows).map(|row| (row % 7 != 0).then_some(text.as_str())));
    RecordBatch::try_from_iter([("n", Arc::new(numbers) as ArrayRef), ("s", Arc::new(texts) as ArrayRef)])
        .expect("the columns fit")
}

/// The request of a rank that has read everything; its answer comes when all have.
const DONE: u64 = u64::MAX;

struct Producer {
    seed: u64,
    rank: usize,
    runtime: Handle,
    /// On rank 0: those who wait for the others.
    done: mpsc::UnboundedSender<StreamSender>,
}

impl Service for Producer {
    fn open(&self, incoming: Incoming) {
        let round = u64::from_le_bytes(incoming.request[..].try_into().expect("the request is a round"));
        if round == DONE {
            return incoming
                .senders
                .into_iter()
                .for_each(|sender| self.done.send(sender).expect("rank 0 waits"));
        }
        for (stream, sender) in incoming.senders.into_iter().enumerate() {
            let (seed, rank, to) = (self.seed, self.rank, incoming.from);
            self.runtime.spawn(async move {
                let script = Script::of(seed, rank, to, round, stream);
                let mut sender = BatchSender::new(sender);
                for batch in script.batches {
                    match sender.send(batch).await {
                        SendOutcome::Sent => {}
                        SendOutcome::Closed(_) => break,
                        SendOutcome::Unfit(error) => panic!("{error}"),
                    }
                }
                match script.fails {
                    true => sender.fail(&Failure::new("22012", "as the script says")),
                    false => sender.finish(),
                }
            });
        }
    }
}

/// Reads one stream to its end and compares. Returns what it read, for those who keep it.
async fn read(script: Script, mut receiver: BatchReceiver) -> Result<Vec<RecordBatch>, String> {
    let expected =
        arrow::compute::concat_batches(&batch(&mut StdRng::seed_from_u64(0)).schema(), &script.batches)
            .map_err(|error| error.to_string())?;
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
                    return Err(format!("rows from {rows} on differ"));
                }
                rows += batch.num_rows();
                got.push(batch);
            }
            Some(Err(StreamError::Failed { failure, .. })) if failure.sqlstate == "22012" => break true,
            Some(Err(error)) => return Err(error.to_string()),
        }
    };
    if failed != script.fails || rows != expected.num_rows() {
        return Err(format!("{rows} rows of {}, failed: {failed}", expected.num_rows()));
    }
    Ok(got)
}

async fn exchange(gang: &Interconnect, seed: u64, rounds: u64) -> Result<usize, String> {
    let mut kept = Vec::new();
    let mut streams = 0;
    for round in 0..rounds {
        let mut reads = Vec::new();
        for from in (0..gang.ranks()).filter(|from| *from != gang.rank()) {
            let receivers = gang.open(from, &round.to_le_bytes(), STREAMS, 1 << 22, None);
            for (stream, receiver) in receivers.into_iter().enumerate() {
                let script = Script::of(seed, from, gang.rank(), round, stream);
                reads.push(tokio::spawn(read(script, BatchReceiver::new(receiver, |_| {}))));
            }
        }
        for read in reads {
            let batches = read.await.map_err(|error| error.to_string())?;
            let batches = batches.map_err(|error| format!("round {round}: {error}"))?;
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

/// Nobody leaves while another may still open streams to it.
async fn wait_for_all(gang: &Interconnect, mut done: mpsc::UnboundedReceiver<StreamSender>) {
    if gang.rank() > 0 {
        let (_messages, mut answer) = gang.call(0, &DONE.to_le_bytes());
        return assert!(answer.next().await.is_none(), "an end is all the answer");
    }
    let mut waiting = Vec::new();
    while waiting.len() + 1 < gang.ranks() {
        waiting.push(done.recv().await.expect("the service has the other end"));
    }
    waiting.into_iter().for_each(StreamSender::finish);
}

fn run() -> Result<(), String> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |name: &str, default: u64| {
        let value = arguments.iter().skip_while(|argument| *argument != name).nth(1);
        value.map_or(Ok(default), |value| value.parse().map_err(|_| format!("{name} takes a number")))
    };
    let (seed, rounds) = (number("--seed", 1)?, number("--rounds", 5)?);
    let shared_memory = !arguments.iter().any(|argument| argument == "--messages");
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|error| error.to_string())?;
    let options = Options { library: None, version: "exchange".to_string(), shared_memory };
    let gang = Interconnect::start(options).map_err(|error| error.to_string())?;
    let (done, all_done) = mpsc::unbounded_channel();
    let producer = Producer { seed, rank: gang.rank(), runtime: runtime.handle().clone(), done };
    gang.serve(Arc::new(producer));
    let streams = runtime.block_on(exchange(&gang, seed, rounds))?;
    runtime.block_on(wait_for_all(&gang, all_done));
    // Ends and returns may still be on their way.
    let since = Instant::now();
    while !gang.ledger().is_clear() && since.elapsed() < CLEAR_PATIENCE {
        std::thread::sleep(Duration::from_millis(10));
    }
    let (ledger, counters) = (gang.ledger(), gang.counters());
    gang.leave(0);
    if !ledger.is_clear() {
        return Err(format!("the ledger does not clear: {ledger:?}"));
    }
    println!("rank {}: {streams} streams read, {} blocks lent", gang.rank(), counters.blocks_lent);
    Ok(())
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
