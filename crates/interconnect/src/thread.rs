//! The MPI thread: the one thread of a rank that makes MPI calls, from joining the gang to leaving it.
//!
//! ```text
//!   ┌─► outbox: hand every queued frame to MPI, ring its receiver
//!   │   progress: let MPI move; frames that arrived go to their streams or to the service
//!   │   watch: heartbeats, processes that ended
//!   └── nothing happened: sleep until woken, rung, or the time is up
//! ```
//!
//! # Invariants
//! - No call here blocks, but the sleep; a sleep is bounded whenever something is open.
//! - Whatever makes the wire untrustworthy (an MPI error, a malformed frame) ends the whole epoch: every rank is
//!   declared lost, so that every stream ends and every waiting task learns of it.

use crate::doorbell::{Doorbell, Wake};
use crate::error::{Failure, StartError, StreamError};
use crate::frame::{Header, Kind, decode_loan, decode_words};
use crate::lending::Lending;
use crate::limits::*;
use crate::streams::{StreamEnd, Table, Violation};
use crate::{CounterCells, Departure, Incoming, Options, Peer, Shared};
use bytes::Bytes;
use crossbeam_queue::SegQueue;
use harrier_mpi::shared::{Arena, Window};
use harrier_mpi::{Block, Channel, Mpi, process, schedule};
use nix::sys::utsname::uname;
use nix::time::{ClockId, clock_gettime};
use parking_lot::Mutex;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// The membership epoch. A gang that loses a rank ends; there is no second epoch yet.
const EPOCH: u32 = 1;

/// How long a rank that leaves waits for the others to leave too before it goes without them.
const LEAVE_PATIENCE: Duration = Duration::from_secs(5);

/// How long a rank that all others have left too waits for MPI to complete what it sent them: they may read no more.
const COMPLETION_PATIENCE: Duration = Duration::from_millis(500);

/// Turns without anything to do before the thread sleeps. A call that finds nothing may be the one that brings a message in
/// from the other side: only the next turn sees it, and its ring has already been heard.
const IDLE_TURNS_BEFORE_REST: u32 = 2;

/// Starts the thread and waits until the gang is formed.
pub(crate) fn start(options: Options) -> Result<(Arc<Shared>, JoinHandle<()>), StartError> {
    let (ready_tx, ready_rx) = mpsc::channel();
    let thread = std::thread::Builder::new().name("mpi".to_string()).spawn(move || {
        if let Err(error) = schedule::wake_soon(Duration::from_nanos(MPI_THREAD_SLICE_NS)) {
            tracing::debug!(%error, "the MPI thread waits its turn like any other");
        }
        match MpiThread::join(options) {
            Ok(mut thread) => {
                let _ = ready_tx.send(Ok(Arc::clone(&thread.shared)));
                thread.run();
                thread.end();
            }
            Err(error) => {
                let _ = ready_tx.send(Err(error));
            }
        };
    })?;
    let shared = ready_rx.recv().expect("the thread answers before it ends")?;
    Ok((shared, thread))
}

/// What ranks tell each other when they meet, one line each.
struct Introduction {
    version: String,
    host: String,
    /// Ranks with the same one can ring each other: same kernel, host name and network namespace.
    place: String,
    /// Ranks with the same one see each other's process ids.
    pid_space: String,
    pid: u32,
    token: String,
    /// The descriptor of its shared memory; -1 if it has none.
    arena: i32,
}

impl Introduction {
    fn mine(version: &str, arena: Option<&Arena>) -> Introduction {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default().trim().to_string();
        let link = |path: &str| {
            std::fs::read_link(path).map(|target| target.to_string_lossy().into_owned()).unwrap_or_default()
        };
        let host = uname().map(|names| names.nodename().to_string_lossy().into_owned()).unwrap_or_default();
        let boot = read("/proc/sys/kernel/random/boot_id");
        Introduction {
            version: version.to_string(),
            place: format!("{boot} {host} {}", link("/proc/self/ns/net")),
            pid_space: format!("{boot} {}", link("/proc/self/ns/pid")),
            host,
            pid: std::process::id(),
            token: read("/proc/sys/kernel/random/uuid"),
            arena: arena.map_or(-1, Arena::descriptor),
        }
    }

    fn encode(&self) -> Vec<u8> {
        let (pid, arena) = (self.pid.to_string(), self.arena.to_string());
        [&self.version, &self.host, &self.place, &self.pid_space, &pid, &self.token, &arena]
            .map(|field| field.replace('\n', " "))
            .join("\n")
            .into_bytes()
    }

    fn decode(bytes: &[u8]) -> Introduction {
        let text = String::from_utf8_lossy(bytes);
        let mut fields = text.split('\n').map(str::to_string);
        let mut next = || fields.next().unwrap_or_default();
        Introduction {
            version: next(),
            host: next(),
            place: next(),
            pid_space: next(),
            pid: next().parse().unwrap_or(0),
            token: next(),
            arena: next().parse().unwrap_or(-1),
        }
    }
}

/// Shared memory to lend blocks from; without it they go through MPI.
fn create_arena() -> Option<Arc<Arena>> {
    Arena::create(SHARED_ADDRESSES)
        .inspect_err(|error| tracing::info!(%error, "no shared memory, all blocks go through MPI"))
        .ok()
}

struct MpiThread {
    mpi: Mpi,
    shared: Arc<Shared>,
    doorbell: Doorbell,
    /// One for every peer whose process this rank can watch.
    watched: Vec<(usize, OwnedFd)>,
    peers: Vec<PeerState>,
    all_here: bool,
    in_flight_sleep_ns: u64,
    next_watch: Instant,
}

struct PeerState {
    /// It sends nothing more: it left, or it is lost.
    gone: bool,
    /// It reads nothing more. A rank that left still waits for the others to leave.
    lost: bool,
    /// Heartbeats sent since this peer was last heard.
    unanswered: u32,
    next_ping: Instant,
}

impl MpiThread {
    fn join(options: Options) -> Result<MpiThread, StartError> {
        let mut mpi = Mpi::init(&harrier_mpi::Options { library: options.library })?;
        let (rank, ranks) = (mpi.rank(), mpi.size());
        let arena = if options.shared_memory && ranks > 1 { create_arena() } else { None };
        let mine = Introduction::mine(&options.version, arena.as_deref());
        let all: Vec<Introduction> =
            mpi.all_gather(&mine.encode())?.iter().map(|bytes| Introduction::decode(bytes)).collect();
        if all.iter().any(|other| other.version != mine.version) {
            // Every rank sees the same list and leaves; nothing was sent, so MPI can be shut down.
            let _ = mpi.finalize();
            return Err(StartError::VersionMismatch {
                versions: all.into_iter().map(|other| other.version).collect(),
            });
        }
        let here: Vec<bool> = all.iter().map(|other| other.place == mine.place).collect();
        let doorbell = Doorbell::new(&all[0].token, rank, &here)?;
        let watched = all
            .iter()
            .enumerate()
            .filter(|(peer, other)| *peer != rank && other.pid_space == mine.pid_space)
            .filter_map(|(peer, other)| Some((peer, process::watch(other.pid).ok()?)))
            .collect();
        let shared = Arc::new(Shared {
            rank,
            ranks,
            epoch: EPOCH,
            peers: OnceLock::new(),
            library: OnceLock::new(),
            wake: Wake::new()?,
            outbox: SegQueue::new(),
            lending: OnceLock::new(),
            table: Arc::new(Table::default()),
            next_stream: AtomicU64::new(1),
            service: OnceLock::new(),
            early: Mutex::default(),
            departures: (0..ranks).map(|_| watch::channel(None).0).collect(),
            first_loss: watch::channel(None).0,
            leaving: AtomicBool::new(false),
            requests: AtomicU64::new(0),
            counters: CounterCells::default(),
        });
        let peers = all.iter().zip(&here).map(|(other, here)| Peer {
            host: other.host.clone(),
            pid: other.pid,
            here: *here,
        });
        shared.peers.set(peers.collect()).expect("set once");
        let library = mpi.library();
        let library = format!("{} ({}, {})", library.version, library.abi, library.path.display());
        shared.library.set(library).expect("set once");
        let windows: Vec<_> = all
            .iter()
            .enumerate()
            .map(|(peer, other)| {
                (peer != rank && other.pid_space == mine.pid_space && other.arena >= 0)
                    .then(|| Window::open(other.pid, other.arena))?
                    .inspect_err(|error| tracing::debug!(peer, %error, "no shared memory with this rank"))
                    .ok()
            })
            .collect();
        // Every rank listens to its doorbell, and has opened what it can, before any sends.
        let opened: Vec<u8> = windows.iter().map(|window| u8::from(window.is_some())).collect();
        let opened = mpi.all_gather(&opened)?;
        let readers = opened.iter().map(|by_peer| by_peer.get(rank) == Some(&1)).collect();
        let lending = Lending::new(arena, readers, windows);
        shared.lending.set(lending).unwrap_or_else(|_| unreachable!("set once"));
        let now = Instant::now();
        Ok(MpiThread {
            mpi,
            shared,
            doorbell,
            watched,
            peers: (0..ranks)
                .map(|peer| PeerState { gone: peer == rank, lost: false, unanswered: 0, next_ping: now })
                .collect(),
            all_here: here.iter().all(|here| *here),
            in_flight_sleep_ns: IN_FLIGHT_SLEEP_NS_MIN,
            next_watch: now,
        })
    }

    /// Runs until this rank has left the gang, or nobody is left in it.
    fn run(&mut self) {
        let mut leaving_since = None;
        let mut idle_turns = 0;
        loop {
            let moved = match self.turn() {
                Ok(moved) => moved,
                Err(reason) => {
                    self.end_epoch(&reason);
                    false
                }
            };
            if self.shared.leaving.load(Ordering::SeqCst) {
                let since = *leaving_since.get_or_insert_with(Instant::now);
                let settled = self.peers.iter().all(|peer| peer.gone)
                    && self.shared.outbox.is_empty()
                    && self.mpi.in_flight().sends == 0;
                if settled {
                    return;
                }
                let alone = self.peers.iter().all(|peer| peer.gone) && self.shared.outbox.is_empty();
                if alone && since.elapsed() > COMPLETION_PATIENCE {
                    tracing::debug!(in_flight = ?self.mpi.in_flight(), "left with sends that nobody reads");
                    return;
                }
                if since.elapsed() > LEAVE_PATIENCE {
                    let waiting: Vec<usize> =
                        (0..self.peers.len()).filter(|peer| !self.peers[*peer].gone).collect();
                    tracing::warn!(?waiting, in_flight = ?self.mpi.in_flight(), "left the gang without the others");
                    return;
                }
            }
            idle_turns = if moved { 0 } else { idle_turns + 1 };
            if idle_turns == IDLE_TURNS_BEFORE_REST {
                self.rest(leaving_since.is_some());
                idle_turns = 0;
            }
        }
    }

    /// One round. Returns whether anything moved.
    fn turn(&mut self) -> Result<bool, String> {
        let mut touched = vec![false; self.shared.ranks];
        let mut sent = 0;
        // Nobody waits for a returned loan: a busy lender finds it at its own next turn.
        for (lender, offsets) in self.shared.lending().take_returns() {
            if !self.peers[lender].gone {
                let bytes: Vec<u8> = offsets.iter().flat_map(|offset| offset.to_le_bytes()).collect();
                let header = self.shared.header(Kind::Return, 0);
                let block = Arc::new(self.shared.frame(header, &bytes));
                self.mpi.isend(lender, Channel::Control, block).map_err(|error| error.to_string())?;
                count(&self.shared.counters.frames_sent, 1);
                // A rank with nothing to do may sleep for long.
                touched[lender] = self.shared.table.open() == (0, 0);
                sent += 1;
            }
        }
        while let Some((to, channel, block)) = self.shared.outbox.pop() {
            sent += 1;
            if self.peers[to].lost {
                continue;
            }
            count(&self.shared.counters.frames_sent, 1);
            count(&self.shared.counters.bytes_sent, block.len() as u64);
            self.mpi.isend(to, channel, block).map_err(|error| error.to_string())?;
            touched[to] = true;
        }
        let mut arrived: Vec<(usize, Block)> = Vec::new();
        let progress = self
            .mpi
            .progress(&mut |source, _, block| arrived.push((source, block)))
            .map_err(|error| error.to_string())?;
        let in_flight = self.mpi.in_flight();
        self.shared.requests.store((in_flight.sends + in_flight.receives) as u64, Ordering::Relaxed);
        // A long message moves only while both sides look: its sender waits for this rank's part.
        if progress.receives_started > 0 || progress.messages_received > 0 {
            for (source, block) in &arrived {
                touched[*source] |= block.len() > BLOCK_BYTES_TARGET / 4;
            }
        }
        for (source, block) in arrived {
            self.dispatch(source, block).map_err(|what| format!("rank {source} sent {what}"))?;
        }
        for (peer, _) in touched.iter().enumerate().filter(|(_, touched)| **touched) {
            if self.doorbell.ring(peer) {
                count(&self.shared.counters.rings, 1);
            }
        }
        if Instant::now() >= self.next_watch {
            self.watch();
        }
        let moved = sent > 0
            || progress.sends_completed > 0
            || progress.receives_started > 0
            || progress.messages_received > 0;
        if moved {
            self.in_flight_sleep_ns = IN_FLIGHT_SLEEP_NS_MIN;
        }
        Ok(moved)
    }

    fn dispatch(&mut self, source: usize, block: Block) -> Result<(), String> {
        let shared = Arc::clone(&self.shared);
        let header =
            Header::decode(block.as_slice(), shared.epoch).map_err(|malformed| malformed.to_string())?;
        count(&shared.counters.frames_received, 1);
        count(&shared.counters.bytes_received, block.len() as u64);
        self.peers[source].unanswered = 0;
        let payload = Bytes::from_owner(block).slice(HEADER_BYTES..);
        let table = &shared.table;
        let violation = |Violation(what)| what;
        match header.kind {
            Kind::Open => {
                if header.a == 0 || header.sequence == 0 {
                    return Err("an open without streams or credits".to_string());
                }
                let (senders, messages) = table.open_outbound(&shared, source, &header);
                let call = header.flags & Header::FLAG_CALL != 0;
                let incoming = Incoming { from: source, call, request: payload, senders, messages };
                let mut early = shared.early.lock();
                match shared.service.get() {
                    Some(service) => service.open(incoming),
                    None => early.push(incoming),
                }
            }
            Kind::Block if header.flags & Header::FLAG_SHARED != 0 => {
                let loan = decode_loan(&payload).ok_or("a loan that is none")?;
                let lent = shared.lending().borrow(&shared, source, loan, HEADER_BYTES);
                let payload = lent.ok_or("a loan outside its shared memory")?;
                count(&shared.counters.bytes_received, payload.len() as u64);
                table.on_block(&header, source, payload).map_err(violation)?;
            }
            Kind::Block => table.on_block(&header, source, payload).map_err(violation)?,
            Kind::Return => {
                for offset in decode_words(&payload).ok_or("returns that are none")? {
                    if !shared.lending().give_back(offset, source) {
                        return Err("back what it was not lent".to_string());
                    }
                }
            }
            Kind::End => {
                table.on_end(header.stream, Ok(StreamEnd { encode_ns: header.a })).map_err(violation)?;
            }
            Kind::Fail => {
                let failure = Failure::decode(&payload);
                table
                    .on_end(header.stream, Err(StreamError::Failed { rank: source, failure }))
                    .map_err(violation)?;
            }
            Kind::Credit => table.on_credit(source, header.stream, header.a),
            Kind::Stop => table.on_stop(source, header.stream),
            Kind::Message => table.on_message(source, header.stream, payload),
            Kind::MessagesEnd => table.on_messages_end(source, header.stream),
            Kind::Ping => shared.send(source, Channel::Control, shared.header(Kind::Alive, 0), &[]),
            Kind::Alive => {}
            Kind::Leave => {
                self.peers[source].gone = true;
                table.on_lost(source, "it left the gang");
                shared.departures[source].send_replace(Some(Departure::Left { status: header.a as i32 }));
            }
        }
        Ok(())
    }

    /// Looks for peers that died, and asks the silent ones this rank waits for.
    fn watch(&mut self) {
        let now = Instant::now();
        let heartbeat = Duration::from_nanos(HEARTBEAT_NS);
        self.next_watch = now + heartbeat / 4;
        let mut waited_for = self.shared.table.peers(self.shared.ranks);
        // Ranks without work wait for the coordinator.
        waited_for[0] = true;
        for peer in 0..self.shared.ranks {
            if self.peers[peer].gone || !waited_for[peer] || now < self.peers[peer].next_ping {
                continue;
            }
            let state = &mut self.peers[peer];
            if u64::from(state.unanswered) >= SILENCE_NS_MAX / HEARTBEAT_NS {
                let seconds = SILENCE_NS_MAX / 1_000_000_000;
                self.lose(peer, &format!("{} has not answered for {seconds} s", self.describe(peer)));
                self.end_silent(peer);
                continue;
            }
            state.unanswered += 1;
            state.next_ping = now + heartbeat;
            self.shared.send(peer, Channel::Control, self.shared.header(Kind::Ping, 0), &[]);
        }
    }

    fn describe(&self, peer: usize) -> String {
        let peers = self.shared.peers.get().expect("set in join");
        format!("process {} on {}", peers[peer].pid, peers[peer].host)
    }

    fn lose(&mut self, peer: usize, reason: &str) {
        if std::mem::replace(&mut self.peers[peer].gone, true) {
            return;
        }
        self.peers[peer].lost = true;
        tracing::debug!(peer, reason, "rank lost");
        self.shared.departures[peer].send_replace(Some(Departure::Lost { reason: reason.to_string() }));
        self.shared.first_loss.send_if_modified(|first| {
            let is_first = first.is_none();
            if is_first {
                *first = Some((peer, reason.to_string()));
            }
            is_first
        });
        self.shared.table.on_lost(peer, reason);
    }

    /// A rank that is stopped would outlive its gang: launchers ask processes to end, and a stopped one does not hear it.
    fn end_silent(&mut self, peer: usize) {
        if let Some((_, watch)) = self.watched.iter().find(|(watched, _)| *watched == peer)
            && let Err(error) = process::kill(watch)
        {
            tracing::debug!(peer, %error, "could not end a silent rank");
        }
    }

    fn end_epoch(&mut self, reason: &str) {
        for peer in 0..self.shared.ranks {
            self.lose(peer, reason);
        }
    }

    /// Sleeps until something may have happened.
    fn rest(&mut self, leaving: bool) {
        let in_flight = self.mpi.in_flight();
        let (streams_in, streams_out) = self.shared.table.open();
        let busy = streams_in + streams_out > 0;
        let timeout_ns = if in_flight.sends + in_flight.receives > 0 {
            let timeout = self.in_flight_sleep_ns;
            self.in_flight_sleep_ns = (timeout * 2).min(IN_FLIGHT_SLEEP_NS_MAX);
            timeout
        } else if leaving {
            IN_FLIGHT_SLEEP_NS_MAX
        } else if self.all_here {
            // Bounded although peers ring: MPI may hold a small message back and send it in a later progress call.
            if busy { 10 * IN_FLIGHT_SLEEP_NS_MAX } else { HEARTBEAT_NS / 2 }
        } else if busy {
            REMOTE_BUSY_SLEEP_NS_MAX
        } else {
            REMOTE_IDLE_SLEEP_NS_MAX
        };
        count(&self.shared.counters.sleeps, 1);
        if let Ok(cpu) = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID) {
            let cpu_ns = cpu.tv_sec() as u64 * 1_000_000_000 + cpu.tv_nsec() as u64;
            self.shared.counters.thread_cpu_ns.store(cpu_ns, Ordering::Relaxed);
        }
        let fds: Vec<&OwnedFd> = self.watched.iter().map(|(_, fd)| fd).collect();
        let shared = &self.shared;
        let nothing_to_send = || shared.outbox.is_empty() && !shared.lending().returns_wait();
        let ready = match self.doorbell.sleep(&shared.wake, &fds, timeout_ns, nothing_to_send) {
            Ok(ready) => ready,
            Err(error) => return self.end_epoch(&format!("the rank's doorbell failed: {error}")),
        };
        for at in ready.into_iter().rev() {
            let (peer, _) = self.watched.remove(at);
            // A rank that left in good order also ends its process; its last frames may still be on their way.
            if !self.peers[peer].gone {
                for _ in 0..3 {
                    let _ = self.turn();
                }
            }
            if !self.peers[peer].gone {
                self.lose(peer, &format!("{} ended", self.describe(peer)));
            }
        }
    }

    /// Shuts MPI down if every rank left in good order. After a loss MPI's own shutdown could wait for the dead.
    fn end(self) {
        let lost = self.shared.first_loss.borrow().is_some();
        let in_flight = self.mpi.in_flight();
        if !lost && self.peers.iter().all(|peer| peer.gone) && in_flight.sends + in_flight.receives == 0 {
            if let Err(error) = self.mpi.finalize() {
                tracing::warn!(%error, "MPI did not shut down cleanly");
            }
        } else {
            std::mem::forget(self.mpi);
        }
    }
}

fn count(cell: &AtomicU64, by: u64) {
    cell.fetch_add(by, Ordering::Relaxed);
}
