//! Worker that moves batches: rank 0 takes the driver's requests, and asks all ranks to send and to read.
//!
//! ```text
//!  driver ──► rank 0 ── prepare ──► all ranks: offer the streams that others fetch; CPU time so far
//!                    ── read ─────► all ranks: read every stream to this rank, one task each      ◄ the wall time
//!                    ── finish ───► all ranks: CPU time since
//! ```
//!
//! Ranks in different processes send these requests over the interconnect, whatever the transport of the
//! batches. All ranks inside one process are served by one [`Rank`].
//!
//! Order of calls: for each transfer `prepare`, `read`, `finish`, each on all ranks before the next.
//! Errors: a failed transfer is a reply; a lost rank makes the worker exit with a failure.

use std::collections::HashMap;
use std::process::ExitCode;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use arrow::record_batch::RecordBatch;
use futures::stream::{self, BoxStream};
use futures::{StreamExt, TryStreamExt};
use harrier_error::{SqlState, exit};
use harrier_exec::transport::grpc_benchmark::{GrpcBatches, Offer, Ticket};
use harrier_interconnect::limits::MOTION_WINDOW_BYTES;
use harrier_interconnect::{
    BatchReceiver, BatchSender, Failure as StreamFailure, Incoming, Interconnect, Launch, MessageReceiver,
    ReadOptions, SendOutcome, Service, StreamSender,
};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::runtime::{Handle, Runtime};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::latency::Clock;
use super::pool::{Pool, Reader, StreamName};
use super::transfer::{Transfer, VALUE_BYTES};
use super::{DIRECT, GRPC, MESSAGE_BYTES, MPI, WARM_UP_ROUND_TRIPS, direct};
use crate::WorkerArgs;
use crate::configuration::{INPROCESS, MEMCPY, MEMCPY_SUM, UDP};
use crate::protocol::{Latency, Moved, Reply, Request};
use crate::worker;

/// Copies in a row before the first buffer is overwritten.
const COPIES: usize = 8;

/// Capacity of a channel from task to task, in batches.
const CHANNEL_BATCHES: usize = 8;

/// Names of settings on the command line.
const INTERCONNECT: &str = "harrier.interconnect";
const COMPRESSION: &str = "distributed.compression";

type Batches = BoxStream<'static, Result<RecordBatch, String>>;

/// Runs the worker until its standard input ends, or as a rank until rank 0 leaves.
pub fn run_worker(args: WorkerArgs) -> ExitCode {
    let setting =
        |name: &str| args.settings.iter().find(|(key, _)| key == name).map(|(_, value)| value.clone());
    let kind = setting(INTERCONNECT).unwrap_or_default();
    if kind == DIRECT {
        return exit_code(direct::run());
    }
    let launch = match worker::launch(&args) {
        Ok(launch) => launch,
        Err(status) => return status,
    };
    let threads = usize::from(args.threads.unwrap_or(1));
    let ranks = args.inprocess_ranks.unwrap_or(1);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(if kind == INPROCESS { threads * ranks } else { threads })
        .enable_all()
        .build();
    exit_code(runtime.map_err(|error| error.to_string()).and_then(|runtime| {
        let rank = Rank::start(&kind, ranks, launch, setting(COMPRESSION), &runtime)?;
        let done = runtime.block_on(rank.clone().work());
        if let Some(gang) = &rank.gang {
            gang.leave(0);
        }
        runtime.shutdown_background();
        done
    }))
}

fn exit_code(result: Result<(), String>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::from(exit::DONE),
        Err(error) => {
            eprintln!("ERROR 58000: {error}");
            ExitCode::from(exit::BROKEN)
        }
    }
}

/// Transport of the batches.
enum Transport {
    /// The interconnect, over any transport.
    Harrier(Interconnect),
    Grpc {
        batches: GrpcBatches,
        addresses: OnceLock<Vec<String>>,
    },
    /// From task to task through a channel, by reference.
    InProcess,
    /// No transport: one thread copies every batch once and, if `sum`, sums the copy.
    Memcpy {
        sum: bool,
    },
}

/// One rank, or all ranks of one process.
struct Rank {
    /// `None`: the other ranks are in this process.
    gang: Option<Interconnect>,
    ranks: usize,
    transport: Transport,
    pool: Arc<Pool>,
    offers: Mutex<HashMap<u64, Vec<Offer>>>,
}

/// Request of rank 0 to all ranks.
#[derive(Debug, Clone)]
enum RankRequest {
    /// Returns the address of the rank's server.
    Address,
    Addresses(Vec<String>),
    /// Returns the CPU time so far, in nanoseconds.
    Prepare(u64, Transfer),
    /// Returns the bytes read.
    Read(u64, Transfer),
    /// Returns the CPU time so far, in nanoseconds.
    Finish(u64),
    /// Echoes every message.
    Echo,
}

impl RankRequest {
    fn to_bytes(&self) -> Vec<u8> {
        match self {
            RankRequest::Address => json!({ "ask": "address" }),
            RankRequest::Addresses(addresses) => json!({ "ask": "addresses", "addresses": addresses }),
            RankRequest::Prepare(number, transfer) => {
                json!({ "ask": "prepare", "number": number, "transfer": transfer.to_json() })
            }
            RankRequest::Read(number, transfer) => {
                json!({ "ask": "read", "number": number, "transfer": transfer.to_json() })
            }
            RankRequest::Finish(number) => json!({ "ask": "finish", "number": number }),
            RankRequest::Echo => json!({ "ask": "echo" }),
        }
        .to_string()
        .into_bytes()
    }

    fn parse(bytes: &[u8]) -> Result<RankRequest, String> {
        let value: Value = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
        let number = value["number"].as_u64().unwrap_or_default();
        let transfer = || Transfer::from_json(&value["transfer"]);
        Ok(match value["ask"].as_str().unwrap_or_default() {
            "address" => RankRequest::Address,
            "addresses" => {
                let addresses = value["addresses"].as_array().into_iter().flatten();
                RankRequest::Addresses(
                    addresses.filter_map(|address| address.as_str().map(str::to_owned)).collect(),
                )
            }
            "prepare" => RankRequest::Prepare(number, transfer()?),
            "read" => RankRequest::Read(number, transfer()?),
            "finish" => RankRequest::Finish(number),
            "echo" => RankRequest::Echo,
            other => return Err(format!("a rank was asked for \"{other}\"")),
        })
    }
}

impl Rank {
    /// Joins the gang, if there is one, and serves the other ranks.
    fn start(
        kind: &str,
        ranks: usize,
        launch: Option<Launch>,
        compression: Option<String>,
        runtime: &Runtime,
    ) -> Result<Arc<Rank>, String> {
        let gang = || {
            let Launch { carrier, .. } = launch.ok_or("no launcher started this rank")?;
            Interconnect::start(harrier_exec::interconnect_options(carrier))
                .map_err(|error| error.to_string())
        };
        let (gang, transport) = match kind {
            MPI | UDP => gang().map(|gang| (Some(gang.clone()), Transport::Harrier(gang)))?,
            GRPC => {
                let gang = gang()?;
                let many_hosts = gang.peers().iter().any(|peer| !peer.here);
                let host = many_hosts.then(|| gang.peers()[gang.rank()].host.clone());
                let batches = runtime
                    .block_on(GrpcBatches::start(host, compression))
                    .map_err(|error| error.to_string())?;
                (Some(gang), Transport::Grpc { batches, addresses: OnceLock::new() })
            }
            INPROCESS => (None, Transport::InProcess),
            MEMCPY => (None, Transport::Memcpy { sum: false }),
            MEMCPY_SUM => (None, Transport::Memcpy { sum: true }),
            other => return Err(format!("\"{other}\" moves no batches")),
        };
        let ranks = gang.as_ref().map_or(ranks, Interconnect::ranks);
        let rank =
            Arc::new(Rank { gang, ranks, transport, pool: Arc::new(Pool::new()), offers: Mutex::default() });
        if let Some(gang) = &rank.gang {
            let runtime = runtime.handle().clone();
            gang.serve(Arc::new(RankService { rank: Arc::clone(&rank), runtime }));
        }
        Ok(rank)
    }

    fn number(&self) -> usize {
        self.gang.as_ref().map_or(0, Interconnect::rank)
    }

    /// Rank 0 takes requests; the others wait until it has left.
    async fn work(self: Arc<Self>) -> Result<(), String> {
        match &self.gang {
            Some(gang) if gang.rank() > 0 => {
                gang.departure(0).await;
                Ok(())
            }
            _ => self.take_requests().await,
        }
    }

    async fn take_requests(self: &Arc<Self>) -> Result<(), String> {
        if let Transport::Grpc { .. } = self.transport {
            let addresses = self.request_all(RankRequest::Address).await?;
            let text = |address: &Value| address.as_str().unwrap_or_default().to_owned();
            self.request_all(RankRequest::Addresses(addresses.iter().map(text).collect())).await?;
        }
        let engine = match &self.gang {
            Some(gang) => format!("harrier {}, {}", env!("CARGO_PKG_VERSION"), gang.library()),
            None => format!("harrier {}", env!("CARGO_PKG_VERSION")),
        };
        let to_text = |error: std::io::Error| error.to_string();
        worker::reply(&Reply::Engine(engine)).map_err(to_text)?;
        let mut number = 0;
        loop {
            let line =
                tokio::task::spawn_blocking(worker::next_line).await.map_err(|error| error.to_string())?;
            let Some(line) = line.map_err(to_text)? else { return Ok(()) };
            number += 1;
            let answer = match Request::parse(&line) {
                Ok(Request::Transfer(transfer)) => self.transfer(number, transfer).await.map(Reply::Moved),
                Ok(Request::RoundTrips(count)) => self.round_trips(count).await.map(Reply::Latency),
                Ok(_) => Err("a worker that moves batches runs no statements".to_owned()),
                Err(message) => Err(message),
            };
            worker::reply(&answer.unwrap_or_else(Reply::Error)).map_err(to_text)?;
        }
    }

    /// Measures one transfer. On rank 0.
    async fn transfer(self: &Arc<Self>, number: u64, transfer: Transfer) -> Result<Moved, String> {
        let payloads = VALUE_BYTES..=super::PAYLOAD_BYTES_MAX;
        if !payloads.contains(&transfer.payload_bytes) || !transfer.payload_bytes.is_multiple_of(VALUE_BYTES)
        {
            return Err(format!("no batch has {} bytes", transfer.payload_bytes));
        }
        let before = total(&self.request_all(RankRequest::Prepare(number, transfer)).await?);
        let start = Instant::now();
        let read = self.request_all(RankRequest::Read(number, transfer)).await;
        let wall = start.elapsed();
        let after = total(&self.request_all(RankRequest::Finish(number)).await?);
        let bytes = total(&read?);
        if bytes != transfer.bytes(self.ranks) {
            return Err(format!("{bytes} bytes instead of {}", transfer.bytes(self.ranks)));
        }
        Ok(Moved { bytes, wall, cpu: Duration::from_nanos(after.saturating_sub(before)) })
    }

    /// Sends a request to all ranks and returns their answers in rank order. On rank 0.
    async fn request_all(self: &Arc<Self>, ask: RankRequest) -> Result<Vec<Value>, String> {
        let others = self.gang.iter().flat_map(|gang| (1..gang.ranks()).map(move |rank| (gang, rank)));
        let answers: Vec<_> = others
            .map(|(gang, rank)| {
                let (messages, mut answers) = gang.call(rank, &ask.to_bytes());
                async move {
                    let answer = answers.next().await;
                    drop(messages);
                    let bytes = answer
                        .ok_or_else(|| format!("rank {rank} gave no answer"))?
                        .map_err(|error| format!("rank {rank}: {error}"))?;
                    serde_json::from_slice(&bytes).map_err(|error| error.to_string())
                }
            })
            .collect();
        let mine = tokio::spawn(Arc::clone(self).answer(ask));
        let mut all = vec![mine.await.map_err(|error| error.to_string())??];
        for answer in answers {
            all.push(answer.await?);
        }
        Ok(all)
    }

    /// Answers a request on this rank.
    async fn answer(self: Arc<Self>, ask: RankRequest) -> Result<Value, String> {
        match ask {
            RankRequest::Address => match &self.transport {
                Transport::Grpc { batches, .. } => Ok(json!(batches.address())),
                _ => Err("this rank has no server".to_owned()),
            },
            RankRequest::Addresses(all) => {
                if let Transport::Grpc { addresses, .. } = &self.transport {
                    addresses.set(all).map_err(|_| "the addresses are told once".to_owned())?;
                }
                Ok(Value::Null)
            }
            RankRequest::Prepare(number, transfer) => {
                self.offer(number, transfer).await?;
                Ok(json!(harrier_exec::process_cpu_ns()))
            }
            RankRequest::Read(number, transfer) => {
                self.read(number, transfer).await.map(|bytes| json!(bytes))
            }
            RankRequest::Finish(number) => {
                self.offers.lock().remove(&number);
                Ok(json!(harrier_exec::process_cpu_ns()))
            }
            RankRequest::Echo => Err("an echo is no answer".to_owned()),
        }
    }

    /// Offers this rank's streams to other ranks, for transports that need it.
    async fn offer(&self, number: u64, transfer: Transfer) -> Result<(), String> {
        let Transport::Grpc { batches, .. } = &self.transport else { return Ok(()) };
        let from = self.number();
        let mut offers = Vec::new();
        for reader in transfer.pattern.readers(self.ranks, from) {
            let streams = (0..transfer.streams)
                .map(|stream| self.source(&transfer, StreamName { from, to: reader, number: stream }))
                .collect();
            let ticket = Ticket { transfer: number, reader };
            let schema = Arc::clone(&self.pool.schema);
            offers.push(batches.offer(ticket, schema, streams).await.map_err(|error| error.to_string())?);
        }
        self.offers.lock().insert(number, offers);
        Ok(())
    }

    /// Returns the batches that a stream sends.
    fn source(&self, transfer: &Transfer, stream: StreamName) -> BoxStream<'static, RecordBatch> {
        stream::iter(self.pool.batches(transfer, stream)).boxed()
    }

    /// Reads all streams to this rank, or to all ranks of this process, each in a task of its own. Returns
    /// the bytes.
    async fn read(self: &Arc<Self>, number: u64, transfer: Transfer) -> Result<u64, String> {
        if let Transport::Memcpy { sum } = self.transport {
            let rank = Arc::clone(self);
            return tokio::task::spawn_blocking(move || rank.copy(transfer, sum))
                .await
                .map_err(|error| error.to_string())?;
        }
        let readers = match &self.gang {
            Some(gang) => gang.rank()..gang.rank() + 1,
            None => 0..self.ranks,
        };
        let mut tasks = JoinSet::new();
        for to in readers {
            for from in transfer.pattern.senders(self.ranks, to) {
                for (number, batches) in self.open(number, transfer, from, to).await?.into_iter().enumerate()
                {
                    let pool = Arc::clone(&self.pool);
                    tasks.spawn(read_stream(pool, transfer, StreamName { from, to, number }, batches));
                }
            }
        }
        let mut bytes = 0;
        while let Some(read) = tasks.join_next().await {
            bytes += read.map_err(|error| error.to_string())??;
        }
        Ok(bytes)
    }

    /// Opens the streams from rank `from` to rank `to`, which is this one or in this process.
    async fn open(
        &self,
        number: u64,
        transfer: Transfer,
        from: usize,
        to: usize,
    ) -> Result<Vec<Batches>, String> {
        match &self.transport {
            Transport::Harrier(gang) => {
                let request = transfer.to_json().to_string();
                let streams = gang.open(
                    from,
                    request.as_bytes(),
                    transfer.streams,
                    ReadOptions::window(MOTION_WINDOW_BYTES),
                );
                let batches =
                    |stream| BatchReceiver::new(stream, |_| ()).map_err(|error| error.to_string()).boxed();
                Ok(streams.into_iter().map(batches).collect())
            }
            Transport::Grpc { batches, addresses } => {
                let address =
                    addresses.get().and_then(|all| all.get(from)).ok_or("a rank without address")?;
                let ticket = Ticket { transfer: number, reader: to };
                let streams = batches
                    .open(address, ticket, transfer.streams)
                    .await
                    .map_err(|error| error.to_string())?;
                Ok(streams.into_iter().map(|s| s.map_err(|error| error.to_string()).boxed()).collect())
            }
            Transport::InProcess => Ok((0..transfer.streams)
                .map(|stream| {
                    let mut source = self.source(&transfer, StreamName { from, to, number: stream });
                    let (sender, receiver) = mpsc::channel(CHANNEL_BATCHES);
                    tokio::spawn(async move {
                        while let Some(batch) = source.next().await {
                            if sender.send(batch).await.is_err() {
                                break;
                            }
                        }
                    });
                    let next = async |mut receiver: mpsc::Receiver<RecordBatch>| {
                        receiver.recv().await.map(|batch| (Ok(batch), receiver))
                    };
                    stream::unfold(receiver, next).boxed()
                })
                .collect()),
            Transport::Memcpy { .. } => Err("a copy has no streams".to_owned()),
        }
    }

    /// Copies every batch of every stream once, stream by stream, on this thread.
    fn copy(&self, transfer: Transfer, sum: bool) -> Result<u64, String> {
        let rows = (transfer.payload_bytes / VALUE_BYTES) as usize;
        let mut copies = vec![vec![0i64; rows]; COPIES];
        let mut bytes = 0;
        for (from, to) in transfer.pattern.pairs(self.ranks) {
            for number in 0..transfer.streams {
                let stream = StreamName { from, to, number };
                let mut reader = Reader::new(&self.pool, transfer, stream);
                for number in 0..transfer.batches {
                    let copy = &mut copies[number as usize % COPIES];
                    copy.copy_from_slice(self.pool.slice(&transfer, stream, number));
                    std::hint::black_box(&*copy);
                    if sum || transfer.compare {
                        reader.take_values(copy);
                    }
                }
                bytes += if sum || transfer.compare { reader.finish()? } else { transfer.stream_bytes() };
            }
        }
        Ok(bytes)
    }

    /// Measures round trips between ranks 0 and 1, one at a time. On rank 0.
    async fn round_trips(self: &Arc<Self>, count: u64) -> Result<Latency, String> {
        let rank = Arc::clone(self);
        // In a task of its own, like statements.
        let all = tokio::spawn(async move {
            let clock = Clock::new(WARM_UP_ROUND_TRIPS, count);
            match &rank.transport {
                Transport::Harrier(gang) => round_trips_harrier(gang, clock).await,
                Transport::Grpc { batches, addresses } => {
                    let address = addresses.get().and_then(|all| all.get(1)).ok_or("there is no rank 1")?;
                    round_trips_grpc(batches, address, clock).await
                }
                Transport::InProcess => round_trips_in_process(clock).await,
                Transport::Memcpy { .. } => Err("a copy has no latency".to_owned()),
            }
        });
        all.await.map_err(|error| error.to_string())?
    }
}

async fn round_trips_harrier(gang: &Interconnect, mut clock: Clock) -> Result<Latency, String> {
    let (messages, mut answers) = gang.call(1, &RankRequest::Echo.to_bytes());
    while clock.start() {
        messages.send(&[7; MESSAGE_BYTES]);
        match answers.next().await {
            Some(Ok(answer)) if answer.as_ref() == [7; MESSAGE_BYTES] => clock.stop(),
            Some(Ok(_)) => return Err("another message came back".to_owned()),
            Some(Err(error)) => return Err(error.to_string()),
            None => return Err("no message came back".to_owned()),
        }
    }
    clock.latency()
}

/// The service's smallest request; it returns the version of the rank's build.
async fn round_trips_grpc(batches: &GrpcBatches, address: &str, mut clock: Clock) -> Result<Latency, String> {
    while clock.start() {
        batches.round_trip(address).await.map_err(|error| error.to_string())?;
        clock.stop();
    }
    clock.latency()
}

async fn round_trips_in_process(mut clock: Clock) -> Result<Latency, String> {
    let (there, mut here) = mpsc::channel::<[u8; MESSAGE_BYTES]>(1);
    let (back, mut answers) = mpsc::channel(1);
    tokio::spawn(async move {
        while let Some(message) = here.recv().await {
            if back.send(message).await.is_err() {
                break;
            }
        }
    });
    while clock.start() {
        there.send([7; MESSAGE_BYTES]).await.map_err(|error| error.to_string())?;
        answers.recv().await.ok_or("no message came back")?;
        clock.stop();
    }
    clock.latency()
}

fn total(answers: &[Value]) -> u64 {
    answers.iter().filter_map(Value::as_u64).sum()
}

async fn read_stream(
    pool: Arc<Pool>,
    transfer: Transfer,
    stream: StreamName,
    mut batches: Batches,
) -> Result<u64, String> {
    let mut reader = Reader::new(&pool, transfer, stream);
    while let Some(batch) = batches.next().await {
        reader.take(&batch?);
    }
    reader.finish()
}

/// Service for requests and stream reads of other ranks.
struct RankService {
    rank: Arc<Rank>,
    runtime: Handle,
}

impl Service for RankService {
    fn open(&self, incoming: Incoming) {
        let Incoming { from, call, request, mut senders, messages } = incoming;
        let rank = Arc::clone(&self.rank);
        if call {
            let Some(sender) = senders.pop() else { return };
            self.runtime.spawn(answer_call(rank, request.to_vec(), sender, messages));
            return;
        }
        let transfer = serde_json::from_slice(&request)
            .map_err(|error| error.to_string())
            .and_then(|value| Transfer::from_json(&value));
        match transfer {
            Ok(transfer) => {
                for (number, sender) in senders.into_iter().enumerate() {
                    let stream = StreamName { from: rank.number(), to: from, number };
                    let source = rank.source(&transfer, stream);
                    self.runtime.spawn(send_stream(source, BatchSender::new(sender)));
                }
            }
            Err(error) => {
                let failure = StreamFailure::new(SqlState::INTERNAL_ERROR, error);
                senders.into_iter().for_each(|sender| sender.fail(&failure));
            }
        }
    }
}

async fn answer_call(
    rank: Arc<Rank>,
    request: Vec<u8>,
    mut sender: StreamSender,
    mut messages: MessageReceiver,
) {
    let answer = match RankRequest::parse(&request) {
        Ok(RankRequest::Echo) => {
            while let Some(message) = messages.next().await {
                if sender.send_message(&message).await.is_err() {
                    break;
                }
            }
            return sender.finish();
        }
        Ok(ask) => rank.answer(ask).await,
        Err(error) => Err(error),
    };
    match answer {
        Ok(value) => {
            // If the caller is gone, no answer is needed.
            let _ = sender.send_message(value.to_string().as_bytes()).await;
            sender.finish();
        }
        Err(error) => sender.fail(&StreamFailure::new(SqlState::SYSTEM_ERROR, error)),
    }
}

/// Like the sender of a motion: makes a batch only when there is credit for it.
async fn send_stream(mut source: BoxStream<'static, RecordBatch>, mut sender: BatchSender) {
    loop {
        if sender.credit().await.is_err() {
            break;
        }
        let Some(batch) = source.next().await else { break };
        match sender.send(batch).await {
            SendOutcome::Sent => {}
            SendOutcome::Closed(_) => break,
            SendOutcome::Unfit(error) => {
                return sender.fail(&StreamFailure::new(SqlState::INTERNAL_ERROR, error.to_string()));
            }
        }
    }
    sender.finish();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interconnect::transfer::Pattern;

    fn run_transfer(kind: &str, pattern: Pattern, compare: bool) -> Moved {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let rank = Rank::start(kind, 3, None, None, &runtime).map_err(|error| panic!("{error}")).unwrap();
        let transfer = Transfer { pattern, streams: 2, payload_bytes: 4096, batches: 50, compare };
        runtime.block_on(rank.transfer(1, transfer)).unwrap()
    }

    #[test]
    fn batches_move_inside_one_process() {
        for (kind, pattern) in [
            (INPROCESS, Pattern::ManyToMany),
            (INPROCESS, Pattern::OneToMany),
            (MEMCPY_SUM, Pattern::ManyToOne),
            (MEMCPY, Pattern::ManyToMany),
        ] {
            for compare in [true, false] {
                let moved = run_transfer(kind, pattern, compare);
                assert_eq!(moved.bytes, pattern.pairs(3).len() as u64 * 2 * 50 * 4096);
            }
        }
    }

    #[test]
    fn messages_echo_in_one_process() {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let rank =
            Rank::start(INPROCESS, 2, None, None, &runtime).map_err(|error| panic!("{error}")).unwrap();
        let latency = runtime.block_on(rank.round_trips(100)).unwrap();
        assert!(latency.p50_ns > 0.0 && latency.p50_ns <= latency.p99_ns);
    }

    #[test]
    fn requests_round_trip() {
        let transfer = Transfer {
            pattern: Pattern::OneToOne,
            streams: 1,
            payload_bytes: 1024,
            batches: 1,
            compare: false,
        };
        for ask in [
            RankRequest::Address,
            RankRequest::Addresses(vec!["a".to_owned()]),
            RankRequest::Prepare(1, transfer),
            RankRequest::Read(2, transfer),
            RankRequest::Finish(3),
            RankRequest::Echo,
        ] {
            let parsed = RankRequest::parse(&ask.to_bytes()).unwrap();
            assert_eq!(format!("{parsed:?}"), format!("{ask:?}"));
        }
        assert!(RankRequest::parse(b"{}").is_err());
    }
}
