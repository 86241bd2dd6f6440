//! Streams of blocks and batches between ranks, with bounded memory; it must never see a plan.
//!
//! ```text
//!   operator's batches                                                          batches, in place
//!        │ encode: once, into an aligned block                           ▲ decode
//!        ▼                                                               │
//!   BatchSender ──credit──► outbox ─► driver ═══ frames, alone or many ═══► driver ─► StreamReceiver
//!        ▲                                                               │
//!        └────────────────────── Credit, Stop ◄──────────────────────────┘
//! ```
//!
//! - [`Interconnect`]: this rank's membership in the gang; opens streams and calls to other ranks.
//! - [`Service`]: handler of streams that other ranks open here.
//! - [`transport`]: the carrier of frames; MPI, QUIC, or any other implementation of its contract. [`launch`]
//!   detects which one this process was started for.
//! - [`streams`]: the state machine of a stream, with its transition table.
//! - [`frame`]: the wire format. [`encode`], [`decode`]: batches in blocks, [`Broadcast`]: once for several
//!   streams. [`limits`]: every bound.
//!
//! # Threads
//! One thread, the driver, moves all frames and makes every MPI call; it never blocks in MPI and sleeps when
//! idle, at once or after polling busily for a moment (`busy_poll.rs`). All public items may be used from any
//! thread.
//!
//! # Errors
//! [`StartError`]: the gang is not formed. [`StreamError`]: a statement is dead, or a rank and everything
//! that ran there.
//!
//! # Crash
//! The death of a rank is detected by its pidfd (same host), a closed connection (other hosts), or its
//! silence; every stream with it ends as lost. The others remain a gang as long as rank 0 lives: see
//! [`Interconnect::members`] and `driver.rs`.

pub mod decode;
pub mod doorbell;
pub mod encode;
pub mod frame;
pub mod limits;
pub mod streams;
pub mod transport;

mod batches;
mod broadcast;
mod bundle;
mod busy_poll;
mod codec;
mod configuration;
mod counts;
mod driver;
mod error;
mod handshake;
mod introduction;
mod launch;
mod lending;
mod liveness_connections;
mod presence;
mod watchdog;

pub use batches::{Arrival, BatchReceiver, BatchSender, SendOutcome};
pub use broadcast::Broadcast;
pub use codec::Codec;
pub use configuration::{ConfigurationFact, Difference};
pub use counts::StreamCounts;
pub use driver::Driver;
pub use error::{Failure, PlaceError, StartError, StreamError};
pub use harrier_mpi::descriptors::raise_limit as raise_descriptors;
pub use harrier_mpi::terminal::drain;
pub use launch::{Carrier, Launch, launch, launched_rank};
pub use presence::Attendance;
pub use streams::{
    Budget, Closed, MessageReceiver, MessageSender, MessageStream, Received, StreamReceiver, StreamSender,
};

use bytes::Bytes;
use counts::{InQueue, StreamCells};
use crossbeam_queue::SegQueue;
use doorbell::Wake;
use frame::{Header, Kind};
use harrier_mpi::shared::{Arena, Loan};
use harrier_mpi::{Block, Channel};
use lending::Lending;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use streams::Table;
use tokio::sync::{oneshot, watch};

/// The number of the first stream that a rank opens.
const FIRST_STREAM: u64 = 1;

/// Parameters for joining the gang.
pub struct Options {
    pub carrier: Carrier,
    /// This build of Harrier: ranks with different ones refuse to work together.
    pub version: String,
    /// Whether large blocks go to ranks of the same host through shared memory; if not, everything goes
    /// through the carrier.
    pub shared_memory: bool,
    /// Configuration facts: ranks with different ones refuse to work together.
    pub facts: Vec<ConfigurationFact>,
}

/// Another rank, as it introduced itself.
#[derive(Clone, Debug)]
pub struct Peer {
    pub host: String,
    pub pid: u32,
    /// Shares this rank's host and network namespace, so it can be rung.
    pub here: bool,
}

/// Handles streams that other ranks open here.
pub trait Service: Send + Sync {
    /// Called on the driver's thread: hand the work to a task and return. Every sender in `incoming` ends by
    /// itself when dropped.
    fn open(&self, incoming: Incoming);
}

/// Streams that another rank opened to this one.
pub struct Incoming {
    /// The rank that opened them and reads them.
    pub from: usize,
    /// A call: the single sender carries messages, and `messages` yields the caller's.
    pub call: bool,
    pub request: Bytes,
    pub senders: Vec<StreamSender>,
    pub messages: MessageReceiver,
}

/// Why a rank is no longer in the gang.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Departure {
    /// The rank left in good order with this exit status.
    Exited { status: i32 },
    /// The rank died or was cut off.
    Lost { reason: String },
}

/// Resources in use, which must be zero when nothing runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ledger {
    pub streams_in: u64,
    pub streams_out: u64,
    pub frames_queued: u64,
    pub requests: u64,
    /// Blocks in this rank's shared memory that other members of the gang still read.
    pub blocks_lent: u64,
}

impl Ledger {
    pub fn is_clear(&self) -> bool {
        *self == Ledger::default()
    }
}

/// Running totals of this rank since it joined.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    pub frames_sent: u64,
    pub frames_received: u64,
    pub bytes_sent: u64,
    pub bytes_received: u64,
    pub sleeps: u64,
    pub rings: u64,
    /// Blocks sent by streams and calls to other ranks.
    pub blocks_sent: u64,
    /// Number of them that went through shared memory.
    pub blocks_lent: u64,
    /// Totals of all streams and calls that this rank has answered.
    pub streams: StreamCounts,
    /// Processor time of the driver, nanoseconds.
    pub thread_cpu_ns: u64,
}

/// State that tasks, streams and the driver share.
pub(crate) struct Shared {
    rank: usize,
    epoch: u32,
    /// All ranks, by rank.
    peers: Vec<Peer>,
    /// Description of the transport, for messages.
    description: String,
    wake: Wake,
    outbox: SegQueue<QueuedFrame>,
    lending: Lending,
    table: Arc<Table>,
    next_stream: AtomicU64,
    service: OnceLock<Arc<dyn Service>>,
    /// Streams opened before [`Interconnect::serve`] set the service.
    early: Mutex<Vec<Incoming>>,
    departures: Vec<watch::Sender<Option<Departure>>>,
    /// Lost ranks in the order of their loss, with reasons.
    losses: watch::Sender<Vec<(usize, String)>>,
    /// Tasks waiting for the driver's next check for ended processes.
    process_checks: SegQueue<oneshot::Sender<()>>,
    /// Why this rank has lost all others at once, if it has.
    broken: OnceLock<String>,
    leaving: AtomicBool,
    requests: AtomicU64,
    counters: CounterCells,
}

/// Read options of streams that are opened together.
#[derive(Clone)]
pub struct ReadOptions {
    /// Bounds the unread blocks of all of them together.
    pub window_bytes: usize,
    /// Codec for blocks from other hosts, where compression pays off.
    pub codec: Option<Codec>,
    /// Budget charged with unread blocks.
    pub budget: Option<Arc<dyn Budget>>,
}

impl ReadOptions {
    /// Without compression and budget.
    pub fn window(window_bytes: usize) -> ReadOptions {
        ReadOptions { window_bytes, codec: None, budget: None }
    }
}

/// The parameters of an `Open`.
struct OpenRequest {
    streams: usize,
    /// Window of each stream, bytes.
    window: u64,
    flags: u8,
    codec: Option<Codec>,
}

impl OpenRequest {
    const CALL: OpenRequest =
        OpenRequest { streams: 1, window: limits::WINDOW_BYTES_MAX, flags: Header::FLAG_CALL, codec: None };
}

/// A frame in the outbox.
struct QueuedFrame {
    to: usize,
    channel: Channel,
    frame: Arc<Block>,
    /// Queue time and counters, if it is a block or the end of a stream.
    counted: Option<InQueue>,
}

#[derive(Default)]
struct CounterCells {
    frames_sent: AtomicU64,
    frames_received: AtomicU64,
    bytes_sent: AtomicU64,
    bytes_received: AtomicU64,
    sleeps: AtomicU64,
    rings: AtomicU64,
    blocks_sent: AtomicU64,
    blocks_lent: AtomicU64,
    streams: StreamCells,
    thread_cpu_ns: AtomicU64,
}

impl Shared {
    fn header(&self, kind: Kind, stream: u64) -> Header {
        Header::new(kind, self.epoch, stream)
    }

    /// An empty block with room for `payload_bytes` behind the header, for a frame to rank `to`.
    fn block_for(&self, to: usize, payload_bytes: usize) -> Block {
        Self::block_in(self.lending.arena_for(to), payload_bytes)
    }

    /// Like [`Shared::block_for`], for a frame to any rank.
    fn block_for_any(&self, payload_bytes: usize) -> Block {
        Self::block_in(self.lending.arena(), payload_bytes)
    }

    fn block_in(arena: Option<&Arc<Arena>>, payload_bytes: usize) -> Block {
        if payload_bytes >= limits::SHARED_BYTES_MIN
            && let Some(arena) = arena
            && let Some(mut block) = arena.allocate(limits::HEADER_BYTES + payload_bytes)
        {
            block.push_zeros(limits::HEADER_BYTES);
            return block;
        }
        StreamSender::block(payload_bytes)
    }

    /// Queues a small frame: copies `payload` behind the header.
    fn send(&self, to: usize, channel: Channel, header: Header, payload: &[u8]) {
        self.queue(to, channel, self.frame(header, payload), None);
    }

    fn queue(&self, to: usize, channel: Channel, frame: Block, counted: Option<InQueue>) {
        self.outbox.push(QueuedFrame { to, channel, frame: Arc::new(frame), counted });
        self.wake.wake();
    }

    /// Builds a frame: copies `payload` behind the header.
    fn frame(&self, mut header: Header, payload: &[u8]) -> Block {
        let mut block = Block::with_capacity(limits::HEADER_BYTES + payload.len());
        header.payload_bytes = payload.len() as u64;
        block.extend_from_slice(&header.encode());
        block.extend_from_slice(payload);
        block
    }

    /// Queues a block's frame. The driver is not woken for it.
    ///
    /// The outbox has no bound of its own: data frames are bounded by the windows of the open streams, and
    /// every stream adds at most a few control frames.
    fn queue_block(&self, to: usize, mut header: Header, body: Body, counted: InQueue) {
        self.counters.blocks_sent.fetch_add(1, Ordering::Relaxed);
        let mut block = match self.lend(to, body) {
            Body::Own(block) => block,
            Body::Loan(loan) => {
                self.counters.bytes_sent.fetch_add(loan.len, Ordering::Relaxed);
                self.counters.blocks_lent.fetch_add(1, Ordering::Relaxed);
                header.flags |= Header::FLAG_SHARED;
                let mut block = StreamSender::block(size_of::<Loan>());
                block.extend_from_slice(&frame::encode_loan(loan));
                block
            }
        };
        header.payload_bytes = (block.len() - limits::HEADER_BYTES) as u64;
        block.as_mut_slice()[..limits::HEADER_BYTES].copy_from_slice(&header.encode());
        self.outbox.push(QueuedFrame {
            to,
            channel: Channel::Data,
            frame: Arc::new(block),
            counted: Some(counted),
        });
    }

    /// Lends rank `to` a block of the arena that it reads.
    fn lend(&self, to: usize, body: Body) -> Body {
        match (body, self.lending.arena_for(to)) {
            (Body::Own(block), Some(arena)) => arena.lend(block, to).map_or_else(Body::Own, Body::Loan),
            (body, _) => body,
        }
    }
}

/// The payload of a block's frame, behind room for the header.
enum Body {
    Own(Block),
    Loan(Loan),
}

impl Body {
    /// Length without the header.
    fn payload_bytes(&self) -> usize {
        let bytes = match self {
            Body::Own(block) => block.len(),
            Body::Loan(loan) => loan.len as usize,
        };
        bytes - limits::HEADER_BYTES
    }
}

/// This rank's membership in the gang. Cheap to clone.
#[derive(Clone)]
pub struct Interconnect {
    shared: Arc<Shared>,
    thread: Arc<Mutex<Option<std::thread::JoinHandle<()>>>>,
}

impl Interconnect {
    /// Joins the gang over its carrier and starts the driver. Collective: every rank must call it. Blocks
    /// until all have.
    ///
    /// Errors: no MPI library, an MPI that does not match the launcher, ranks with different builds, tokens
    /// or configurations, a rank that does not come.
    pub fn start(options: Options) -> Result<Interconnect, StartError> {
        let patience = match &options.carrier {
            Carrier::Mpi { patience, .. } => Some(*patience),
            Carrier::Quic(_) => None,
        };
        let (shared, thread) = driver::start(patience, move || match &options.carrier {
            Carrier::Mpi { library, .. } => transport::mpi::join(&options, library.clone()),
            Carrier::Quic(place) => transport::quic::join(&options, place),
        })?;
        Ok(Interconnect { shared, thread: Arc::new(Mutex::new(Some(thread))) })
    }

    /// Creates a rank over any transport, whose driver the caller steps.
    ///
    /// Errors: an eventfd cannot be created.
    pub fn over(joined: transport::Joined) -> Result<(Interconnect, Driver), StartError> {
        let driver = Driver::new(joined)?;
        Ok((Interconnect { shared: driver.shared_state(), thread: Arc::default() }, driver))
    }

    pub fn rank(&self) -> usize {
        self.shared.rank
    }

    pub fn ranks(&self) -> usize {
        self.shared.peers.len()
    }

    /// All ranks of the gang, this one included, by rank.
    pub fn peers(&self) -> &[Peer] {
        &self.shared.peers
    }

    /// Description of the carrier: the MPI library with its path, interface and version, or the protocol and
    /// the port.
    pub fn library(&self) -> &str {
        &self.shared.description
    }

    /// Sets the handler of streams that other ranks open here. Streams opened earlier are passed to it at
    /// once.
    pub fn serve(&self, service: Arc<dyn Service>) {
        let mut early = self.shared.early.lock();
        if self.shared.service.set(Arc::clone(&service)).is_err() {
            panic!("a rank has one service");
        }
        early.drain(..).for_each(|incoming| service.open(incoming));
    }

    /// Opens `streams` streams from rank `to` to this one, and sends it `request`. Never blocks.
    ///
    pub fn open(
        &self,
        to: usize,
        request: &[u8],
        streams: usize,
        options: ReadOptions,
    ) -> Vec<StreamReceiver> {
        let ReadOptions { window_bytes, codec, budget } = options;
        let window = limits::window_for(streams, window_bytes);
        let codec = codec.filter(|_| !self.shared.peers[to].here);
        self.open_with(to, request, OpenRequest { streams, window, flags: 0, codec }, budget).0
    }

    /// Calls rank `to`: sends it `request` and later messages, and yields its answers. Never blocks.
    pub fn call(&self, to: usize, request: &[u8]) -> (MessageSender, MessageStream) {
        let (mut receivers, id) = self.open_with(to, request, OpenRequest::CALL, None);
        let receiver = receivers.pop().expect("one stream was opened");
        (MessageSender { shared: Arc::clone(&self.shared), to, id }, MessageStream(receiver))
    }

    /// An empty block with room for `payload_bytes` behind the header, in the memory that reaches rank `to`
    /// fastest. For producers that fill a block before they know which of that rank's streams it goes to.
    pub fn block_for(&self, to: usize, payload_bytes: usize) -> Block {
        self.shared.block_for(to, payload_bytes)
    }

    fn open_with(
        &self,
        to: usize,
        request: &[u8],
        opening: OpenRequest,
        budget: Option<Arc<dyn Budget>>,
    ) -> (Vec<StreamReceiver>, u64) {
        let OpenRequest { streams, window, flags, codec } = opening;
        assert!(to != self.shared.rank, "a rank opens no stream to itself");
        assert!(streams > 0 && streams <= limits::STREAMS_PER_OPEN_MAX, "a motion of {streams} streams");
        let first = self.shared.next_stream.fetch_add(streams as u64, Ordering::Relaxed);
        let receivers = self.shared.table.open_inbound(&self.shared, first, to, &opening, budget);
        let departure = self.shared.departures[to].borrow().clone();
        if let Some(departure) = departure {
            // A lost rank would never answer, and an unanswered stream stays for ever.
            let reason = match &departure {
                Departure::Lost { reason } => reason,
                Departure::Exited { .. } => "it left the gang",
            };
            self.shared.table.on_lost(to, reason);
        } else {
            let mut header = self.shared.header(Kind::Open, first);
            header.flags = flags | codec.map_or(0, Codec::flag);
            header.sequence = window;
            header.a = streams as u64;
            self.shared.send(to, Channel::Control, header, request);
        }
        (receivers, first)
    }

    /// Waits until rank `rank` has left or is lost.
    pub async fn departure(&self, rank: usize) -> Departure {
        let mut departure = self.shared.departures[rank].subscribe();
        departure.wait_for(Option::is_some).await.expect("the sender lives").clone().expect("is some")
    }

    /// Waits until more than `known` ranks are lost, and returns all losses with reasons, in order.
    pub async fn wait_for_losses(&self, known: usize) -> Vec<(usize, String)> {
        let mut losses = self.shared.losses.subscribe();
        losses.wait_for(|losses| losses.len() > known).await.expect("the sender lives").clone()
    }

    /// The ranks lost so far with reasons, in order. The others are the members of the gang.
    pub fn losses(&self) -> Vec<(usize, String)> {
        self.shared.losses.borrow().clone()
    }

    /// Why this rank can reach no other one any more: its transport failed, or the gang evicted it. `None`:
    /// it can.
    pub fn failure_reason(&self) -> Option<&str> {
        self.shared.broken.get().map(String::as_str)
    }

    /// Waits until every exit of a process before this call that is visible from here is registered as a
    /// loss.
    pub async fn check_processes(&self) {
        let (checked, done) = oneshot::channel();
        self.shared.process_checks.push(checked);
        self.shared.wake.wake();
        // The driver has ended: nothing is left to check.
        let _ = done.await;
    }

    /// The ranks that are not lost, this one included, in order.
    pub fn members(&self) -> Vec<usize> {
        let losses = self.shared.losses.borrow();
        (0..self.ranks()).filter(|rank| losses.iter().all(|(lost, _)| lost != rank)).collect()
    }

    /// Number of streams and calls that this rank has opened so far.
    pub fn streams_opened(&self) -> u64 {
        self.shared.next_stream.load(Ordering::Relaxed) - FIRST_STREAM
    }

    pub fn ledger(&self) -> Ledger {
        let (streams_in, streams_out) = self.shared.table.open();
        Ledger {
            streams_in: streams_in as u64,
            streams_out: streams_out as u64,
            frames_queued: self.shared.outbox.len() as u64,
            requests: self.shared.requests.load(Ordering::Relaxed),
            blocks_lent: self.shared.lending.loans() as u64,
        }
    }

    pub fn counters(&self) -> Counters {
        let cells = &self.shared.counters;
        let get = |cell: &AtomicU64| cell.load(Ordering::Relaxed);
        Counters {
            frames_sent: get(&cells.frames_sent),
            frames_received: get(&cells.frames_received),
            bytes_sent: get(&cells.bytes_sent),
            bytes_received: get(&cells.bytes_received),
            sleeps: get(&cells.sleeps),
            rings: get(&cells.rings),
            blocks_sent: get(&cells.blocks_sent),
            blocks_lent: get(&cells.blocks_lent),
            streams: cells.streams.get(),
            thread_cpu_ns: get(&cells.thread_cpu_ns),
        }
    }

    /// Leaves the gang in good order: announces `status` to every rank, waits until all have left, and shuts
    /// MPI down.
    ///
    /// Blocks; every rank must call it, and lost ranks are not waited for. Nothing may be open.
    pub fn leave(&self, status: i32) {
        for peer in (0..self.shared.peers.len()).filter(|peer| *peer != self.shared.rank) {
            let mut header = self.shared.header(Kind::Leave, 0);
            header.a = status as u64;
            // After the last rows and ends, which it must not overtake.
            self.shared.send(peer, Channel::Data, header, &[]);
        }
        self.shared.leaving.store(true, Ordering::SeqCst);
        self.shared.wake.wake();
        if let Some(thread) = self.thread.lock().take() {
            let _ = thread.join();
        }
    }
}
