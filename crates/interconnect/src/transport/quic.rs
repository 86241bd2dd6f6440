//! Frames over QUIC, for clusters without MPI: one UDP socket per rank, one connection per pair of ranks.
//!
//! ```text
//!   send ──► lane (a peer's channel) ──► writer ──► QUIC stream ═══ UDP ═══► QUIC stream ──► reader ──► arrived
//!            frames, in their order       └────────── tasks of a runtime that only the driver's thread runs ──┘
//! ```
//!
//! Everything runs on the driver's thread: [`Transport::progress`] runs ready tasks without waiting, and
//! [`Transport::sleep`] lets the runtime sleep in its `epoll` until a frame arrives or the driver is woken.
//! Acknowledgements, retransmissions and encryption continue while the driver sleeps. `hosts.rs` reads the
//! addresses of the ranks, `secret.rs` authenticates them, `rendezvous.rs` connects them. Blocks between
//! ranks of one host go through shared memory, as over MPI.
//!
//! # Invariants
//! - Each channel to a peer is one QUIC stream for the life of the gang, so its frames keep their order, and
//!   neither channel blocks the other.
//! - A frame is received into its own aligned block, and sent from the block it was built in.
//! - Once the gang is formed, new connections are refused.
//!
//! # Memory bound
//! QUIC buffers up to [`SEND_WINDOW`] bytes that a peer has not acknowledged, and [`RECEIVE_WINDOW`] that
//! were not read here, per peer. Frames in a lane are bounded by the credits of streams, as MPI's sends are.
//!
//! # Death
//! The exit of a process on the same host is seen through its pidfd. For a process on another host its system
//! answers datagrams to its port with "port unreachable", which QUIC ignores. So a separate socket probes the
//! port a few times a second. If a firewall gives the same answer or drops it, or a host is cut off, the
//! driver's heartbeats detect it. QUIC's own idle timeout is off: it would treat a job that was stopped and
//! continued as dead.
//!
//! # Source
//! RFC 9000 (QUIC), RFC 1122, section 4.1.3.3 (errors of ICMP reach connected UDP sockets).

mod framing;
pub mod hosts;
mod rendezvous;
mod secret;

pub use hosts::{Address, Place};
pub use secret::Token;

use super::{InFlight, Joined, Progress, SleepParameters, Transport};
use crate::Options;
use crate::error::StartError;
use crate::introduction::{Introduction, Introductions, create_arena, mapped_flags};
use crate::limits::*;
use framing::Assembler;
use harrier_mpi::{Block, Channel, process};
use parking_lot::Mutex;
use quinn::congestion::CubicConfig;
use quinn::{
    AckFrequencyConfig, ClientConfig, Connection, ConnectionError, Endpoint, EndpointConfig,
    MtuDiscoveryConfig, ReadError, RecvStream, SendStream, ServerConfig, TokioRuntime, TransportConfig,
    VarInt,
};
use rendezvous::{CLOSED_AS_LOST, CLOSED_IN_ORDER, Link, Rendezvous};
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::runtime::Runtime;
use tokio::sync::{Notify, mpsc};
use tokio::task::{AbortHandle, JoinHandle, yield_now};
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};

/// Unread bytes of a peer's channel. The driver reads everything at every turn, so this bounds the data in
/// flight during its longest pause: 8 ms at a gigabyte a second.
const STREAM_WINDOW: u32 = 8 * 1024 * 1024;

/// The same for both channels of a peer together.
const RECEIVE_WINDOW: u32 = 2 * STREAM_WINDOW;

/// Bytes to a peer that it has not acknowledged.
const SEND_WINDOW: u64 = RECEIVE_WINDOW as u64;

/// Maximum datagram size in bytes, if path MTU discovery allows: ten are passed to the system in one call,
/// which takes 65507 bytes at a time.
const DATAGRAM_BYTES_MAX: u16 = 6500;

/// Requested size of the socket's buffers, bytes; the system may grant less. Datagrams that do not fit are
/// lost, and the sender slows down.
const SOCKET_BUFFER_BYTES: usize = 4 * 1024 * 1024;

/// Round trip time assumed before one was measured: the first packet is retransmitted after three times this.
const INITIAL_ROUND_TRIP: Duration = Duration::from_millis(20);

/// Maximum delay of an acknowledgement, to piggyback on another packet.
const ACKNOWLEDGE_WITHIN: Duration = Duration::from_millis(5);

/// Datagrams received before an acknowledgement is due: an acknowledgement is a datagram too.
const ACKNOWLEDGE_AFTER: u32 = 10;

/// Initial congestion window to a peer, bytes: half of the default socket buffer of Linux, and half of a
/// usual block.
const INITIAL_WINDOW: u64 = 128 * 1024;

/// Keep-alive interval, so that stateful firewalls do not forget an idle connection. Most remember for 30
/// seconds.
const KEEP_ALIVE: Duration = Duration::from_secs(10);

/// Interval of port probes.
const PROBE_INTERVAL: Duration = Duration::from_millis(200);

/// Consecutive refusals after which a port counts as unused.
const REFUSALS_MAX: u32 = 2;

/// Timeout of the last frames to a rank that is declared lost.
const FAREWELL_TIMEOUT: Duration = Duration::from_secs(1);

/// How long a rank that leaves in good order waits for the others' acknowledgements.
const CLOSE_TIMEOUT: Duration = Duration::from_millis(500);

/// Turns of the runtime in which received data reaches its reader: the socket is polled between two of them.
const RUNTIME_TURNS: usize = 2;

/// Turns after which every event that preceded them is seen.
const SETTLE_TURNS: usize = 3;

/// Timeout of a name lookup.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(2);

/// Chunks taken from a stream at a time.
const PIECES_MAX: usize = 32;

/// Connects to the other ranks of `place`. Collective; call it on the thread that will make all further
/// calls, outside of any runtime.
pub(crate) fn join(options: &Options, place: &Place) -> Result<Joined, StartError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let ranks = place.addresses.len();
    let (server, client) =
        secret::tls(&place.token).map_err(|error| StartError::Encryption(error.to_string()))?;
    let transport = Arc::new(transport_config());
    let mut server = ServerConfig::with_crypto(Arc::new(server));
    server.transport_config(Arc::clone(&transport)).migration(false).max_incoming(4 * ranks + 64);
    let mut client = ClientConfig::new(Arc::new(client));
    client.transport_config(transport);
    let address = &place.addresses[place.rank];
    let socket = bind(address).map_err(|error| StartError::Port { address: address.to_string(), error })?;
    let mut config = EndpointConfig::default();
    config
        .max_udp_payload_size(DATAGRAM_BYTES_MAX)
        .map_err(|error| StartError::Encryption(error.to_string()))?;
    let endpoint = {
        let _entered = runtime.enter();
        Endpoint::new(config, Some(server), socket, Arc::new(TokioRuntime))?
    };

    let arena = create_arena(options, ranks);
    let mine = Introduction::mine(options, arena.as_deref());
    let mut rendezvous = Rendezvous::new(place, &endpoint);
    let met = runtime.block_on(async {
        let all = rendezvous.gather(client, mine.encode()).await?;
        let all = all.iter().map(|bytes| Introduction::decode(bytes)).collect();
        let introductions = match Introductions::new(place.rank, all) {
            Ok(introductions) => introductions,
            Err(error) => {
                rendezvous.close_when_sent().await;
                return Err(error);
            }
        };
        let windows = introductions.windows();
        // Every rank must have mapped shared memory before any sends.
        let everybodys = rendezvous.all_gather(mapped_flags(&windows)).await?;
        Ok((introductions, windows, everybodys, rendezvous.into_links()))
    });
    let (introductions, windows, everybodys, links) = match met {
        Ok(met) => met,
        Err(error) => {
            endpoint.close(CLOSED_IN_ORDER, b"the gang is not formed");
            runtime.block_on(run_turns(SETTLE_TURNS));
            let unknown = runtime.block_on(unknown_hosts(place));
            return Err(match error {
                // Any other observed error is a consequence of it.
                StartError::NoAnswer { .. } | StartError::Incompatible { .. } if !unknown.is_empty() => {
                    StartError::UnknownHosts { hosts: unknown }
                }
                error => error,
            });
        }
    };
    endpoint.set_server_config(None);
    let description = match endpoint.local_addr() {
        Ok(address) => format!("QUIC with TLS 1.3 (UDP, {address})"),
        Err(_) => "QUIC with TLS 1.3 (UDP)".to_string(),
    };
    let watched = if place.watch_processes { introductions.watches() } else { Vec::new() };
    let transport = {
        let _entered = runtime.enter();
        QuicTransport::new(runtime.handle().clone(), endpoint, links, watched, &introductions)
    };
    Ok(Joined {
        rank: place.rank,
        peers: introductions.peers(),
        description,
        lending: introductions.lending(arena, windows, &everybodys),
        transport: Box::new(QuicTransport { runtime: Some(runtime), ..transport? }),
    })
}

/// The names in the hosts file that do not resolve on this host, and why.
async fn unknown_hosts(place: &Place) -> Vec<(String, String)> {
    let mut unknown: Vec<(String, String)> = Vec::new();
    for address in place.addresses.iter().filter(|address| address.ip().is_none()) {
        if unknown.iter().any(|(host, _)| *host == address.host) {
            continue;
        }
        let found = tokio::net::lookup_host((address.host.as_str(), address.port));
        if let Ok(Err(error)) = tokio::time::timeout(LOOKUP_TIMEOUT, found).await {
            unknown.push((address.host.clone(), error.to_string()));
        }
    }
    unknown
}

fn transport_config() -> TransportConfig {
    let mut discovery = MtuDiscoveryConfig::default();
    discovery.upper_bound(DATAGRAM_BYTES_MAX);
    let mut acknowledgements = AckFrequencyConfig::default();
    acknowledgements
        .max_ack_delay(Some(ACKNOWLEDGE_WITHIN))
        .ack_eliciting_threshold(VarInt::from_u32(ACKNOWLEDGE_AFTER));
    let mut congestion = CubicConfig::default();
    congestion.initial_window(INITIAL_WINDOW);
    let mut config = TransportConfig::default();
    config
        .max_concurrent_bidi_streams(VarInt::from_u32(0))
        .max_concurrent_uni_streams(VarInt::from_u32(Channel::ALL.len() as u32))
        .datagram_receive_buffer_size(None)
        .stream_receive_window(VarInt::from_u32(STREAM_WINDOW))
        .receive_window(VarInt::from_u32(RECEIVE_WINDOW))
        .send_window(SEND_WINDOW)
        .initial_rtt(INITIAL_ROUND_TRIP)
        .mtu_discovery_config(Some(discovery))
        .ack_frequency_config(Some(acknowledgements))
        .congestion_controller_factory(Arc::new(congestion))
        .keep_alive_interval(Some(KEEP_ALIVE))
        .max_idle_timeout(None)
        .allow_spin(false);
    config
}

/// Binds the socket of this rank: to its address if the hosts file gives one, else to its port on all
/// addresses.
fn bind(address: &Address) -> io::Result<UdpSocket> {
    let socket = match address.ip() {
        Some(ip) => UdpSocket::bind((ip, address.port)),
        None => match UdpSocket::bind((Ipv6Addr::UNSPECIFIED, address.port)) {
            // A host may have no IPv6 at all.
            Err(error) if error.kind() != io::ErrorKind::AddrInUse => {
                UdpSocket::bind((Ipv4Addr::UNSPECIFIED, address.port))
            }
            bound => bound,
        },
    }?;
    let state = quinn::udp::UdpSocketState::new((&socket).into())?;
    let _ = state.set_recv_buffer_size((&socket).into(), SOCKET_BUFFER_BYTES);
    let _ = state.set_send_buffer_size((&socket).into(), SOCKET_BUFFER_BYTES);
    Ok(socket)
}

/// Registers a descriptor with the runtime that this is called in.
#[expect(
    deprecated,
    reason = "what takes its place is unsafe, for descriptors that can change; an owned one cannot"
)]
fn readable(fd: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    AsyncFd::with_interest(fd, Interest::READABLE)
}

/// Runs all ready tasks and polls the socket, without waiting.
async fn run_turns(count: usize) {
    for _ in 0..count {
        yield_now().await;
    }
}

/// Events that tasks leave for the driver, and the driver's wake-up.
#[derive(Default)]
struct Inbox {
    events: Mutex<Events>,
    something: Notify,
    /// Streams are open: every peer is worth a probe.
    busy: AtomicBool,
    /// The driver also waits for its sends.
    leaving: AtomicBool,
}

#[derive(Default)]
struct Events {
    arrived: Vec<(usize, Block)>,
    broken: Vec<(usize, String)>,
    /// Peers whose process has ended.
    ended: Vec<usize>,
}

impl Inbox {
    fn post(&self, what: impl FnOnce(&mut Events)) {
        what(&mut self.events.lock());
        self.something.notify_one();
    }
}

/// One peer.
struct Peer {
    connection: Connection,
    /// By channel.
    lanes: [mpsc::UnboundedSender<Arc<Block>>; 2],
    unsent: Arc<AtomicUsize>,
    writers: [JoinHandle<()>; 2],
    readers: [AbortHandle; 2],
}

struct QuicTransport {
    /// Taken when the transport is closed.
    runtime: Option<Runtime>,
    endpoint: Endpoint,
    inbox: Arc<Inbox>,
    /// By rank; `None` for this one and for lost ones.
    peers: Vec<Option<Peer>>,
    /// The processes that this rank can watch, by rank, and their ids.
    watched: Vec<Option<(Arc<AsyncFd<OwnedFd>>, u32)>>,
    /// The wake-up descriptor for tasks of this process; set by the first sleep.
    wake: Option<AsyncFd<OwnedFd>>,
}

impl QuicTransport {
    /// Call it inside the runtime.
    fn new(
        handle: tokio::runtime::Handle,
        endpoint: Endpoint,
        links: Vec<Option<Link>>,
        watched: Vec<(usize, OwnedFd)>,
        introductions: &Introductions,
    ) -> Result<QuicTransport, StartError> {
        let inbox = Arc::new(Inbox::default());
        let mut watches: Vec<_> = links.iter().map(|_| None).collect();
        for (peer, fd) in watched {
            let fd = Arc::new(readable(fd)?);
            handle.spawn(watch(peer, Arc::clone(&fd), Arc::clone(&inbox)));
            watches[peer] = Some((fd, introductions.all[peer].pid));
        }
        for (peer, link) in links.iter().enumerate() {
            let Some(link) = link.as_ref().filter(|_| watches[peer].is_none()) else { continue };
            // The coordinator probes all ranks, and all ranks probe the coordinator.
            let always = peer == 0 || introductions.rank == 0;
            match prober(link.connection.remote_address()) {
                Ok(socket) => drop(handle.spawn(probe(peer, always, socket, Arc::clone(&inbox)))),
                Err(error) => tracing::debug!(peer, %error, "cannot ask for its port"),
            }
        }
        let peers = links
            .into_iter()
            .enumerate()
            .map(|(peer, link)| link.map(|link| Peer::new(peer, link, &handle, &inbox)))
            .collect();
        Ok(QuicTransport { runtime: None, endpoint, inbox, peers, watched: watches, wake: None })
    }

    fn runtime(&self) -> &Runtime {
        self.runtime.as_ref().expect("it is taken when the transport is closed")
    }

    /// Maximum sleep: all arrivals wake it, so only the driver's own heartbeats need a timeout.
    fn sleep_max(parameters: &SleepParameters<'_>) -> Duration {
        Duration::from_nanos(match parameters.busy || parameters.leaving {
            true => HEARTBEAT_NS / 4,
            false => HEARTBEAT_NS / 2,
        })
    }
}

impl Peer {
    fn new(peer: usize, link: Link, handle: &tokio::runtime::Handle, inbox: &Arc<Inbox>) -> Peer {
        let Link { connection, send, receive } = link;
        let unsent = Arc::new(AtomicUsize::new(0));
        let (lanes, writers): (Vec<_>, Vec<_>) = send
            .into_iter()
            .map(|stream| {
                let (lane, frames) = mpsc::unbounded_channel();
                let writer = write_lane(peer, stream, frames, Arc::clone(&unsent), Arc::clone(inbox));
                (lane, handle.spawn(writer))
            })
            .unzip();
        let readers: Vec<_> = receive
            .into_iter()
            .map(|stream| handle.spawn(read_channel(peer, stream, Arc::clone(inbox))).abort_handle())
            .collect();
        Peer {
            connection,
            lanes: lanes.try_into().expect("there are two channels"),
            unsent,
            writers: writers.try_into().expect("there are two channels"),
            readers: readers.try_into().expect("there are two channels"),
        }
    }
}

impl Transport for QuicTransport {
    fn send(&mut self, to: usize, channel: Channel, frame: Arc<Block>, _: bool) -> Result<(), String> {
        if let Some(peer) = &self.peers[to] {
            peer.unsent.fetch_add(1, Ordering::Relaxed);
            // A writer that has ended has reported why.
            let _ = peer.lanes[channel as usize].send(frame);
        }
        Ok(())
    }

    fn progress(&mut self, arrived: &mut Vec<(usize, Block)>) -> Result<Progress, String> {
        let before = self.in_flight();
        self.runtime().block_on(run_turns(RUNTIME_TURNS));
        let mut events = self.inbox.events.lock();
        let moved = !events.arrived.is_empty() || self.in_flight() != before;
        arrived.append(&mut events.arrived);
        Ok(Progress { moved, rings: 0, broken: std::mem::take(&mut events.broken) })
    }

    fn in_flight(&self) -> InFlight {
        let sends = self.peers.iter().flatten().map(|peer| peer.unsent.load(Ordering::Relaxed)).sum();
        InFlight { sends, receives: 0 }
    }

    fn sleep(&mut self, parameters: &SleepParameters<'_>) -> Result<Vec<usize>, String> {
        let runtime = self.runtime.as_ref().expect("it is taken when the transport is closed");
        let inbox = &self.inbox;
        inbox.busy.store(parameters.busy, Ordering::Relaxed);
        inbox.leaving.store(parameters.leaving, Ordering::Relaxed);
        let wake = match &mut self.wake {
            Some(wake) => wake,
            none => {
                let _entered = runtime.enter();
                let event = parameters.wake.event().try_clone_to_owned();
                none.insert(
                    event
                        .and_then(readable)
                        .map_err(|error| format!("the driver cannot be woken: {error}"))?,
                )
            }
        };
        let may_sleep = parameters.wake.start_sleeping(parameters.nothing_to_do);
        let slept = runtime.block_on(async {
            if !may_sleep {
                run_turns(SETTLE_TURNS).await;
                return Ok(());
            }
            tokio::select! {
                woken = wake.readable() => {
                    woken?.clear_ready();
                    parameters.wake.clear();
                }
                () = inbox.something.notified() => {}
                () = sleep(Self::sleep_max(parameters)) => {}
            }
            Ok(())
        });
        parameters.wake.stop_sleeping();
        slept.map_err(|error: io::Error| format!("the driver cannot sleep: {error}"))?;
        Ok(std::mem::take(&mut inbox.events.lock().ended))
    }

    fn is_stopped(&self, peer: usize) -> bool {
        self.watched[peer].as_ref().is_some_and(|(_, pid)| process::is_stopped(*pid))
    }

    fn kill(&mut self, peer: usize) -> bool {
        let Some((watch, _)) = &self.watched[peer] else { return false };
        let killed = process::kill(watch.get_ref());
        killed.inspect_err(|error| tracing::debug!(peer, %error, "could not be ended")).is_ok()
    }

    /// The last frames on the control channel are still sent: they may tell the peer that it was evicted.
    fn lose(&mut self, peer: usize) {
        let Some(Peer { connection, lanes, writers, readers, .. }) = self.peers[peer].take() else { return };
        readers.iter().for_each(AbortHandle::abort);
        let [control, data] = writers;
        data.abort();
        drop(lanes);
        self.runtime().spawn(async move {
            let _ = timeout(FAREWELL_TIMEOUT, control).await;
            connection.close(CLOSED_AS_LOST, b"held lost");
        });
    }

    fn close(mut self: Box<Self>, orderly: bool) {
        let Some(runtime) = self.runtime.take() else { return };
        let peers: Vec<Peer> = self.peers.iter_mut().filter_map(Option::take).collect();
        runtime.block_on(async {
            let written = async {
                for Peer { lanes, writers, .. } in peers {
                    drop(lanes);
                    for writer in writers {
                        let _ = writer.await;
                    }
                }
            };
            if orderly {
                let _ = timeout(CLOSE_TIMEOUT, written).await;
            }
            self.endpoint.close(CLOSED_IN_ORDER, b"left");
            run_turns(SETTLE_TURNS).await;
        });
        // Everything bound to the runtime is dropped before it.
        drop(self);
        runtime.shutdown_background();
    }
}

/// Writes a lane's frames; when the lane is closed, ends the stream and waits until the peer has all of it.
async fn write_lane(
    peer: usize,
    mut stream: SendStream,
    mut frames: mpsc::UnboundedReceiver<Arc<Block>>,
    unsent: Arc<AtomicUsize>,
    inbox: Arc<Inbox>,
) {
    while let Some(frame) = frames.recv().await {
        let [first, second] = framing::pieces(&frame);
        drop(frame);
        let mut pieces = [first, second];
        let pieces = if pieces[1].is_empty() { &mut pieces[..1] } else { &mut pieces[..] };
        if let Err(error) = stream.write_all_chunks(pieces).await {
            let reason = match error {
                quinn::WriteError::ConnectionLost(error) => describe(&error),
                error => format!("it cannot be sent to: {error}"),
            };
            return inbox.post(|events| events.broken.push((peer, reason)));
        }
        unsent.fetch_sub(1, Ordering::Relaxed);
        if inbox.leaving.load(Ordering::Relaxed) {
            inbox.something.notify_one();
        }
    }
    if stream.finish().is_ok() {
        let _ = stream.stopped().await;
    }
}

/// Reads a channel's frames until the peer ends it, and reports the peer as broken.
async fn read_channel(peer: usize, stream: RecvStream, inbox: Arc<Inbox>) {
    let reason = read_frames(peer, stream, &inbox).await;
    inbox.post(|events| events.broken.push((peer, reason)));
}

/// Returns the reason why the stream ended.
async fn read_frames(peer: usize, mut stream: RecvStream, inbox: &Inbox) -> String {
    let mut assembler = Assembler::default();
    let mut pieces: [bytes::Bytes; PIECES_MAX] = Default::default();
    loop {
        let count = match stream.read_chunks(&mut pieces).await {
            Ok(Some(count)) => count,
            Ok(None) => return "it ended the connection".to_string(),
            Err(ReadError::ConnectionLost(error)) => return describe(&error),
            Err(error) => return format!("it cannot be read from: {error}"),
        };
        for piece in &mut pieces[..count] {
            let piece = std::mem::take(piece);
            let mut rest = &piece[..];
            loop {
                match assembler.take(&mut rest) {
                    Ok(Some(block)) => inbox.post(|events| events.arrived.push((peer, block))),
                    Ok(None) => break,
                    Err(too_long) => return too_long.to_string(),
                }
            }
        }
    }
}

/// Describes why a connection ended.
fn describe(error: &ConnectionError) -> String {
    match error {
        ConnectionError::ApplicationClosed(closed) if closed.error_code == CLOSED_IN_ORDER => {
            "it ended the connection".to_string()
        }
        ConnectionError::ApplicationClosed(closed) if closed.error_code == CLOSED_AS_LOST => {
            "it holds this rank lost".to_string()
        }
        ConnectionError::Reset => "it was started anew".to_string(),
        error => format!("the connection broke: {error}"),
    }
}

/// Reports the exit of a process on this host.
async fn watch(peer: usize, process: Arc<AsyncFd<OwnedFd>>, inbox: Arc<Inbox>) {
    if process.readable().await.is_ok() {
        inbox.post(|events| events.ended.push(peer));
    }
}

/// A socket that receives ICMP errors of the port at `address`.
fn prober(address: SocketAddr) -> io::Result<tokio::net::UdpSocket> {
    let any: SocketAddr = match address {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    let socket = UdpSocket::bind(any)?;
    socket.connect(address)?;
    socket.set_nonblocking(true)?;
    tokio::net::UdpSocket::from_std(socket)
}

/// Reports when the port of a peer on another host is not in use any more. The probes are not QUIC packets.
async fn probe(peer: usize, always: bool, socket: tokio::net::UdpSocket, inbox: Arc<Inbox>) {
    let mut pause = interval(PROBE_INTERVAL);
    pause.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut answer = [0; 1];
    let (mut asked, mut refusals) = (0u32, 0);
    while refusals < REFUSALS_MAX {
        tokio::select! {
            _ = pause.tick() => {
                if always || inbox.busy.load(Ordering::Relaxed) {
                    asked = asked.saturating_add(1);
                    // An earlier refusal may be reported here: sockets report it to the next call.
                    if is_refusal(socket.send(&[0]).await) {
                        refusals += 1;
                    }
                }
            }
            received = socket.recv(&mut answer) => match is_refusal(received) {
                true => {
                    refusals += 1;
                    pause.reset_immediately();
                }
                false => refusals = 0,
            },
        }
        // The peer is alive at the first probe, so a refusal does not come from its system.
        if refusals > 0 && asked <= 1 {
            tracing::debug!(peer, "a firewall answers for its port");
            return;
        }
    }
    inbox.post(|events| events.ended.push(peer));
}

fn is_refusal(result: io::Result<usize>) -> bool {
    result.is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
}
