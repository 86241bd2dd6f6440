//! What it costs to move batches and messages between ranks, without anything above the interconnect.
//!
//! usage, below a launcher or with a hosts file: `blocks [--sizes BYTES,…] [--streams N] [--megabytes N]
//! [--round-trips N] [--messages] [--one-way]`
//!
//! For each size every rank reads from every other one, or with `--one-way` rank 1 from rank 0, over N
//! streams. Rank 0 prints GB (10⁹ bytes of values) a second, and the processor time of all ranks for each GB;
//! then half of a round trip of 64 bytes between ranks 0 and 1. `--messages` does without shared memory. It
//! is for comparing two builds; `harrier bench interconnect` compares with other ways.

use arrow::array::{ArrayRef, Int64Array, RecordBatch};
use futures::StreamExt;
use harrier_interconnect::{
    BatchReceiver, BatchSender, Carrier, Incoming, Interconnect, Options, ReadOptions, SendOutcome, Service,
    StreamSender, launch,
};
use nix::time::{ClockId, clock_gettime};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;
use tokio::runtime::Handle;
use tokio::sync::mpsc;

/// Of the window of a motion, as statements have it.
const WINDOW_BYTES: usize = harrier_interconnect::limits::MOTION_WINDOW_BYTES;

const MESSAGE_BYTES: usize = 64;

/// What is asked of a rank: the first word; the others say how many bytes a batch has, and how many batches.
const BATCHES: u64 = 0;
const ECHO: u64 = 1;
/// Answered when all ranks have asked, with the processor time since they did so last, nanoseconds.
const MEET: u64 = 2;

struct Rank {
    runtime: Handle,
    meeting: mpsc::UnboundedSender<(u64, StreamSender)>,
}

impl Service for Rank {
    fn open(&self, mut incoming: Incoming) {
        let words: Vec<u64> = incoming
            .request
            .chunks(8)
            .map(|word| u64::from_le_bytes(word.try_into().expect("words")))
            .collect();
        match words[0] {
            BATCHES => {
                let values = Int64Array::from_iter_values(0..words[1] as i64 / 8);
                let batch = RecordBatch::try_from_iter([("n", Arc::new(values) as ArrayRef)]).expect("fits");
                for sender in incoming.senders {
                    self.runtime.spawn(send(batch.clone(), words[2], BatchSender::new(sender)));
                }
            }
            ECHO => {
                let mut sender = incoming.senders.pop().expect("a call has one");
                self.runtime.spawn(async move {
                    while let Some(message) = incoming.messages.next().await {
                        if sender.send_message(&message).await.is_err() {
                            break;
                        }
                    }
                    sender.finish();
                });
            }
            _ => drop(self.meeting.send((words[1], incoming.senders.pop().expect("a call has one")))),
        }
    }
}

async fn send(batch: RecordBatch, batches: u64, mut sender: BatchSender) {
    for _ in 0..batches {
        if sender.credit().await.is_err() || !matches!(sender.send(batch.clone()).await, SendOutcome::Sent) {
            break;
        }
    }
    sender.finish();
}

async fn read(mut receiver: BatchReceiver) -> Result<u64, String> {
    let mut bytes = 0;
    while let Some(batch) = receiver.next().await {
        let batch = batch.map_err(|error| error.to_string())?;
        let sum =
            arrow::compute::sum(batch.column(0).as_any().downcast_ref::<Int64Array>().expect("numbers"));
        std::hint::black_box(sum);
        bytes += batch.num_rows() as u64 * 8;
    }
    Ok(bytes)
}

fn request(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn processor_ns() -> u64 {
    let time = clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID).expect("a clock");
    time.tv_sec() as u64 * 1_000_000_000 + time.tv_nsec() as u64
}

struct Meetings {
    gang: Interconnect,
    others: mpsc::UnboundedReceiver<(u64, StreamSender)>,
    since_ns: u64,
}

impl Meetings {
    /// Waits until all ranks have come here. On rank 0: the processor time of all of them since the last
    /// time, nanoseconds.
    async fn meet(&mut self) -> Result<u64, String> {
        let used = processor_ns() - self.since_ns;
        let mut all = used;
        if self.gang.rank() > 0 {
            let (_messages, mut answer) = self.gang.call(0, &request(&[MEET, used]));
            while let Some(answer) = answer.next().await {
                answer.map_err(|error| error.to_string())?;
            }
        } else {
            let mut waiting = Vec::new();
            while waiting.len() + 1 < self.gang.ranks() {
                let (used, sender) = self.others.recv().await.ok_or("nobody comes")?;
                all += used;
                waiting.push(sender);
            }
            waiting.into_iter().for_each(StreamSender::finish);
        }
        self.since_ns = processor_ns();
        Ok(all)
    }
}

async fn work(gang: &Interconnect, arguments: &[String], meetings: &mut Meetings) -> Result<(), String> {
    let value = |name: &str| arguments.iter().skip_while(|argument| *argument != name).nth(1);
    let number = |name: &str, default: u64| {
        value(name).map_or(Ok(default), |value| value.parse().map_err(|_| format!("{name} takes a number")))
    };
    let sizes = value("--sizes").map_or("1024,4096,16384,65536,262144,1048576", String::as_str);
    let streams = number("--streams", 2)?;
    let one_way = arguments.iter().any(|argument| argument == "--one-way");
    let (me, ranks) = (gang.rank(), gang.ranks());
    for size in sizes.split(',') {
        let size: u64 = size.parse().map_err(|_| "--sizes takes numbers")?;
        let edges = if one_way { 1 } else { ranks * (ranks - 1) };
        let batches = (number("--megabytes", 500)? * 1_000_000 / size / streams / edges as u64).max(16);
        let mut told = String::new();
        for warm in [true, false] {
            meetings.meet().await?;
            let start = Instant::now();
            let batches = if warm { 16 } else { batches };
            let senders = (0..ranks).filter(|from| *from != me && (!one_way || (*from, me) == (0, 1)));
            let reads: Vec<_> = senders
                .flat_map(|from| {
                    gang.open(
                        from,
                        &request(&[BATCHES, size, batches]),
                        streams as usize,
                        ReadOptions::window(WINDOW_BYTES),
                    )
                })
                .map(|stream| tokio::spawn(read(BatchReceiver::new(stream, |_| {}))))
                .collect();
            for read in reads {
                read.await.map_err(|error| error.to_string())??;
            }
            let processor_s = meetings.meet().await? as f64 / 1e9;
            let gigabytes = (size * batches * streams * edges as u64) as f64 / 1e9;
            let seconds = start.elapsed().as_secs_f64();
            told =
                format!("{size:>8} B: {:6.2} GB/s {:7.3} s/GB", gigabytes / seconds, processor_s / gigabytes);
        }
        if me == 0 {
            println!("{told}");
        }
    }
    let round_trips = number("--round-trips", 5000)?;
    if me == 0 && ranks > 1 && round_trips > 0 {
        let (messages, mut answers) = gang.call(1, &request(&[ECHO]));
        let mut halves_us = Vec::new();
        for _ in 0..round_trips {
            let start = Instant::now();
            messages.send(&[7; MESSAGE_BYTES]);
            answers.next().await.ok_or("no answer")?.map_err(|error| error.to_string())?;
            halves_us.push(start.elapsed().as_secs_f64() * 5e5);
        }
        halves_us.sort_by(f64::total_cmp);
        let at = |part: f64| halves_us[(halves_us.len() as f64 * part) as usize];
        println!("half a round trip of 64 B: {:.1} µs, 99 in 100 below {:.1} µs", at(0.5), at(0.99));
    }
    meetings.meet().await.map(drop)
}

fn run() -> Result<(), String> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .map_err(|error| error.to_string())?;
    let launched = launch(None, false).map_err(|error| error.to_string())?;
    let carrier = launched
        .map_or_else(Carrier::mpi, |launched| Ok(launched.carrier))
        .map_err(|error| error.to_string())?;
    let shared_memory = !arguments.iter().any(|argument| argument == "--messages");
    let options = Options { carrier, version: "blocks".to_string(), shared_memory, facts: Vec::new() };
    let gang = Interconnect::start(options).map_err(|error| error.to_string())?;
    let (meeting, others) = mpsc::unbounded_channel();
    gang.serve(Arc::new(Rank { runtime: runtime.handle().clone(), meeting }));
    let mut meetings = Meetings { gang: gang.clone(), others, since_ns: processor_ns() };
    // In a task, so that the runtime's own thread waits for the answers, as it does for statements.
    let worked = {
        let gang = gang.clone();
        runtime.block_on(runtime.spawn(async move { work(&gang, &arguments, &mut meetings).await }))
    };
    gang.leave(0);
    worked.map_err(|error| error.to_string())?
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
