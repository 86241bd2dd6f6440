//! The driver of a rank: the single thread that moves its frames, from joining the gang to leaving it.
//!
//! ```text
//!   ┌─► outbox: pass every queued frame to the transport
//!   │   progress: poll the transport; frames that arrived go to their streams or to the service
//!   │   watch: heartbeats to the ranks this one waits for
//!   └── nothing happened, twice: poll busily if a message is expected (`busy_poll.rs`), then sleep until
//!       woken, or the transport has something
//! ```
//!
//! # Invariants
//! - No call here blocks, except the sleep. If one blocks all the same, the watchdog kills the process
//!   (`watchdog.rs`).
//! - A lost rank stays lost: nothing is sent to it, and its frames are ignored. Every stream with it ends,
//!   and every waiting task is notified.
//! - The set of lost ranks is agreed on through the coordinator: a rank that loses another reports it to rank
//!   0, which announces it to every other rank before it sends any of them another plan (both go over the
//!   control channel). Without rank 0 there is no gang.
//! - A rank that violates the contract of a frame or a stream is lost to the receiver. If the transport
//!   fails, every rank is lost.

use crate::bundle::{Bundles, Message, unbundle};
use crate::busy_poll::BusyPoll;
use crate::doorbell::Wake;
use crate::error::{Failure, StartError, StreamError};
use crate::frame::{Header, Kind, Malformed, decode_loan, decode_words, stamp};
use crate::limits::*;
use crate::presence::Presence;
use crate::streams::{Table, Violation};
use crate::transport::{InFlight, Joined, SleepParameters, Transport};
use crate::watchdog::{self, Pulse};
use crate::{CounterCells, Departure, FIRST_STREAM, Incoming, Peer, QueuedFrame, Shared};
use bytes::Bytes;
use crossbeam_queue::SegQueue;
use harrier_mpi::{Block, Channel, process, schedule};
use nix::time::{ClockId, clock_gettime};
use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// The membership epoch. There is only one: after a loss the gang continues in it and ignores all frames of
/// the lost rank (`docs/decisions/0005-who-is-lost-instead-of-a-new-communicator.md`).
const EPOCH: u32 = 1;

/// How long a leaving rank waits for the others to leave too.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(5);

/// How long a leaving rank waits for its last sends to complete after all others have left: they may read no
/// more.
const COMPLETION_TIMEOUT: Duration = Duration::from_millis(500);

/// Consecutive polls, a quarter of a heartbeat apart, at which a rank's process is stopped before it is
/// declared lost: the processes of a job that is continued after it was stopped as a whole do not continue at
/// the same moment.
const STOPPED_POLLS_MAX: u32 = 3;

/// How long a rank killed for its silence may take to exit: its memory is unmapped first.
const KILL_TIMEOUT: Duration = Duration::from_secs(2);

/// Idle turns before the thread sleeps. A call that finds nothing may itself complete a message from the
/// peer: only the next turn sees it, and its ring has already been consumed.
const IDLE_TURNS_BEFORE_SLEEP: u32 = 2;

/// How often the thread's processor time is recorded while it does not sleep: reading it takes as long as a
/// turn.
const CPU_RECORD_INTERVAL: Duration = Duration::from_millis(1);

/// Starts the thread, which calls `join`, and waits until it has joined, for at most `patience`, since a call
/// of MPI may block for ever. On a timeout the thread keeps MPI until the process ends.
pub(crate) fn start(
    patience: Option<Duration>,
    join: impl FnOnce() -> Result<Joined, StartError> + Send + 'static,
) -> Result<(Arc<Shared>, JoinHandle<()>), StartError> {
    let presence = patience.and_then(|_| Presence::announce());
    let (ready_tx, ready_rx) = mpsc::channel();
    let thread = std::thread::Builder::new().name("interconnect".to_string()).spawn(move || {
        if let Err(error) = schedule::set_slice(Duration::from_nanos(DRIVER_SLICE_NS)) {
            tracing::debug!(%error, "the interconnect's thread waits its turn like any other");
        }
        match join().and_then(Driver::new) {
            Ok(mut driver) => {
                if let Err(error) = watchdog::start(Arc::clone(&driver.pulse)) {
                    tracing::warn!(%error, "nobody looks after the interconnect's thread");
                }
                let _ = ready_tx.send(Ok(Arc::clone(&driver.shared)));
                driver.run();
                driver.pulse.end();
                driver.end();
            }
            Err(error) => {
                let _ = ready_tx.send(Err(error));
            }
        };
    })?;
    let Some(patience) = patience else {
        return Ok((ready_rx.recv().expect("the thread answers before it ends")?, thread));
    };
    let joined = ready_rx.recv_timeout(patience);
    let attendance = || presence.as_ref().map(Presence::attendance);
    let joined = match joined {
        Ok(joined) => joined.map(|shared| (shared, thread)),
        Err(mpsc::RecvTimeoutError::Timeout) => {
            process::skip_exit_handlers();
            Err(StartError::StartTimeout { seconds: patience.as_secs(), attendance: attendance() })
        }
        Err(mpsc::RecvTimeoutError::Disconnected) => panic!("the thread answers before it ends"),
    };
    // Others may look it up as long as this process lives.
    std::mem::forget(presence);
    joined
}

/// Moves the frames of one rank. [`crate::Interconnect::start`] runs it on a thread; a rank made with
/// [`crate::Interconnect::over`] calls [`Driver::step`] instead.
pub struct Driver {
    transport: Box<dyn Transport>,
    shared: Arc<Shared>,
    peers: Vec<PeerState>,
    next_watch: Instant,
    bundles: Bundles,
    pulse: Arc<Pulse>,
    busy_poll: BusyPoll,
    /// When its processor time was recorded last.
    cpu_recorded_at: Instant,
    /// Reused buffer.
    arrived: Vec<(usize, Block)>,
}

struct PeerState {
    /// It sends nothing more: it left, or it is lost.
    gone: bool,
    /// It reads nothing more. A rank that left still waits for the others to leave.
    lost: bool,
    /// It has sent something since the last check.
    has_sent: bool,
    /// Consecutive polls at which its process was stopped.
    stopped: u32,
    /// Heartbeats sent since it was last heard.
    unanswered: u32,
    next_ping: Instant,
    /// When and why it was killed for its silence; its exit has not been announced yet.
    killed: Option<(Instant, String)>,
    /// Its process has ended. A rank that is only lost may still read blocks lent to it.
    ended: bool,
}

impl Driver {
    pub(crate) fn new(joined: Joined) -> Result<Driver, StartError> {
        let Joined { rank, peers, description, lending, transport } = joined;
        let ranks = peers.len();
        let now = transport.now();
        let shared = Shared {
            rank,
            epoch: EPOCH,
            peers,
            description,
            wake: Wake::new()?,
            outbox: SegQueue::new(),
            lending,
            table: Arc::new(Table::default()),
            next_stream: AtomicU64::new(FIRST_STREAM),
            service: OnceLock::new(),
            early: Mutex::default(),
            departures: (0..ranks).map(|_| watch::channel(None).0).collect(),
            losses: watch::channel(Vec::new()).0,
            process_checks: SegQueue::new(),
            broken: OnceLock::new(),
            leaving: AtomicBool::new(false),
            requests: AtomicU64::new(0),
            counters: CounterCells::default(),
        };
        let peer = |peer| PeerState {
            gone: peer == rank,
            lost: false,
            has_sent: true,
            stopped: 0,
            unanswered: 0,
            next_ping: now,
            killed: None,
            ended: false,
        };
        Ok(Driver {
            busy_poll: BusyPoll::new(transport.may_busy_poll()),
            cpu_recorded_at: now,
            transport,
            shared: Arc::new(shared),
            peers: (0..ranks).map(peer).collect(),
            next_watch: now,
            bundles: Bundles::new(ranks, EPOCH),
            pulse: Arc::default(),
            arrived: Vec::new(),
        })
    }

    pub(crate) fn shared_state(&self) -> Arc<Shared> {
        Arc::clone(&self.shared)
    }

    /// Runs one turn; sleeps if it moves nothing. Returns whether anything moved.
    pub fn step(&mut self) -> bool {
        let moved = self.turn().unwrap_or_else(|reason| {
            self.lose_all(&reason);
            false
        });
        if !moved || !self.shared.process_checks.is_empty() {
            self.sleep(false);
        }
        moved
    }

    /// Runs until this rank has left the gang, or all others are gone.
    fn run(&mut self) {
        let mut leaving_since = None;
        let (mut idle_turns, mut moved_bytes) = (0, 0);
        loop {
            self.pulse.beat();
            let moved = match self.turn() {
                Ok(moved) => moved,
                Err(reason) => {
                    self.lose_all(&reason);
                    false
                }
            };
            if self.shared.leaving.load(Ordering::SeqCst) {
                let since = *leaving_since.get_or_insert_with(Instant::now);
                if self.has_left(since.elapsed()) {
                    return;
                }
            }
            if moved {
                let bytes = self.moved_bytes();
                self.busy_poll.record_moved(Instant::now, bytes - std::mem::replace(&mut moved_bytes, bytes));
                idle_turns = 0;
                continue;
            }
            idle_turns += 1;
            let polls_busily = self.busy_poll.should_poll(Instant::now);
            if !self.shared.process_checks.is_empty()
                || (idle_turns >= IDLE_TURNS_BEFORE_SLEEP && !polls_busily)
            {
                self.sleep(leaving_since.is_some());
                idle_turns = 0;
            } else if polls_busily {
                self.record_processor_time(CPU_RECORD_INTERVAL);
                std::thread::yield_now();
            }
        }
    }

    /// Bytes sent and received so far, including lent blocks.
    fn moved_bytes(&self) -> u64 {
        let counters = &self.shared.counters;
        counters.bytes_sent.load(Ordering::Relaxed) + counters.bytes_received.load(Ordering::Relaxed)
    }

    /// Records the processor time of this thread, unless that was done within `patience`.
    fn record_processor_time(&mut self, patience: Duration) {
        let now = Instant::now();
        if now - self.cpu_recorded_at < patience {
            return;
        }
        self.cpu_recorded_at = now;
        if let Ok(cpu) = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID) {
            let cpu_ns = cpu.tv_sec() as u64 * 1_000_000_000 + cpu.tv_nsec() as u64;
            self.shared.counters.thread_cpu_ns.store(cpu_ns, Ordering::Relaxed);
        }
    }

    /// Whether this rank, which said goodbye `waited` ago, may exit.
    fn has_left(&self, waited: Duration) -> bool {
        let in_flight = self.transport.in_flight();
        if self.peers.iter().all(|peer| peer.gone) && self.shared.outbox.is_empty() {
            if in_flight.sends > 0 && waited > COMPLETION_TIMEOUT {
                tracing::debug!(?in_flight, "left with sends that nobody reads");
            }
            return in_flight.sends == 0 || waited > COMPLETION_TIMEOUT;
        }
        if waited > LEAVE_TIMEOUT {
            let waiting: Vec<usize> = (0..self.peers.len()).filter(|peer| !self.peers[*peer].gone).collect();
            tracing::warn!(?waiting, ?in_flight, "left the gang without the others");
        }
        waited > LEAVE_TIMEOUT
    }

    /// Runs one round. Returns whether anything moved.
    fn turn(&mut self) -> Result<bool, String> {
        let sent = self.send_returns()? + self.send_queued()?;
        let mut arrived = std::mem::take(&mut self.arrived);
        let progress = self.transport.progress(&mut arrived)?;
        let InFlight { sends, receives } = self.transport.in_flight();
        self.shared.requests.store((sends + receives) as u64, Ordering::Relaxed);
        count(&self.shared.counters.rings, progress.rings);
        for (source, block) in arrived.drain(..) {
            // Frames of a lost rank would confuse the members.
            if self.peers[source].lost {
                continue;
            }
            if let Err(what) = self.handle_message(source, block) {
                self.lose(source, &format!("it sent {what}"), true);
            }
        }
        self.arrived = arrived;
        for (peer, reason) in progress.broken {
            self.lose(peer, &format!("{}: {reason}", self.describe(peer)), true);
        }
        if self.transport.now() >= self.next_watch {
            self.watch();
        }
        Ok(sent > 0 || progress.moved)
    }

    /// Returns the loans that were read. No lender is woken for one: a busy lender sees it at its own next
    /// turn.
    fn send_returns(&mut self) -> Result<usize, String> {
        let mut sent = 0;
        for (lender, offsets) in self.shared.lending.take_returns() {
            if self.peers[lender].gone {
                continue;
            }
            let bytes: Vec<u8> = offsets.iter().flat_map(|offset| offset.to_le_bytes()).collect();
            let frame = Arc::new(self.shared.frame(self.shared.header(Kind::Return, 0), &bytes));
            // An idle lender may sleep for long.
            let urgent = self.shared.table.open() == (0, 0);
            self.transport.send(lender, Channel::Control, frame, urgent)?;
            count(&self.shared.counters.frames_sent, 1);
            sent += 1;
        }
        Ok(sent)
    }

    fn send_queued(&mut self) -> Result<usize, String> {
        let mut sent = 0;
        let transport = &mut self.transport;
        let mut send = |(to, channel, block): Message| transport.send(to, channel, block, true);
        while let Some(QueuedFrame { to, channel, frame: mut block, counted }) = self.shared.outbox.pop() {
            sent += 1;
            // No one else holds a frame that was queued for a stream.
            if let (Some(counted), Some(block)) = (counted, Arc::get_mut(&mut block)) {
                stamp(block.as_mut_slice(), counted.dequeue(&self.shared.counters));
            }
            if self.peers[to].lost {
                // It may be a loan made while the loss was being announced: no one else will return it.
                drop(block);
                if self.peers[to].ended {
                    self.shared.lending.reclaim(to);
                }
                continue;
            }
            count(&self.shared.counters.frames_sent, 1);
            count(&self.shared.counters.bytes_sent, block.len() as u64);
            self.bundles.add((to, channel, block), &mut send)?;
        }
        self.bundles.finish(&mut send)?;
        Ok(sent)
    }

    /// Handles a message, which is one frame or a bundle.
    fn handle_message(&mut self, source: usize, block: Block) -> Result<(), String> {
        let malformed = |malformed: Malformed| malformed.to_string();
        let epoch = self.shared.epoch;
        let header = Header::decode(block.as_slice(), epoch).map_err(malformed)?;
        self.peers[source].has_sent = true;
        let payload = Bytes::from_owner(block).slice(HEADER_BYTES..);
        if header.kind != Kind::Bundle {
            return self.dispatch(source, header, payload);
        }
        for frame in unbundle(payload, epoch) {
            let (header, payload) = frame.map_err(malformed)?;
            self.dispatch(source, header, payload)?;
            // A frame of the bundle may have made its sender lost.
            if self.peers[source].lost {
                break;
            }
        }
        Ok(())
    }

    fn dispatch(&mut self, source: usize, header: Header, payload: Bytes) -> Result<(), String> {
        let shared = Arc::clone(&self.shared);
        count(&shared.counters.frames_received, 1);
        count(&shared.counters.bytes_received, (HEADER_BYTES + payload.len()) as u64);
        let table = &shared.table;
        let violation = |Violation(what)| what;
        match header.kind {
            Kind::Open => {
                let (senders, messages) = table.open_outbound(&shared, source, &header).map_err(violation)?;
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
                let lent = shared.lending.borrow(&shared, source, loan, HEADER_BYTES);
                let payload = lent.ok_or("a loan outside its shared memory")?;
                count(&shared.counters.bytes_received, payload.len() as u64);
                table.on_block(&header, source, payload).map_err(violation)?;
            }
            Kind::Block => table.on_block(&header, source, payload).map_err(violation)?,
            Kind::Return => {
                for offset in decode_words(&payload).ok_or("returns that are none")? {
                    if !shared.lending.end_loan(offset, source) {
                        return Err("back what it was not lent".to_string());
                    }
                }
            }
            Kind::End => {
                table.on_end(&header, source, Ok(())).map_err(violation)?;
            }
            Kind::Fail => {
                let failure = Failure::decode(&payload);
                table
                    .on_end(&header, source, Err(StreamError::Failed { rank: source, failure }))
                    .map_err(violation)?;
            }
            Kind::Credit => table.on_credit(&header, source).map_err(violation)?,
            Kind::Stop => table.on_stop(source, header.stream),
            Kind::Message => table.on_message(source, header.stream, payload).map_err(violation)?,
            Kind::MessagesEnd => table.on_messages_end(source, header.stream),
            Kind::Ping => shared.send(source, Channel::Control, shared.header(Kind::Alive, 0), &[]),
            Kind::Alive => {}
            // Bundles are unpacked before.
            Kind::Bundle => return Err("a bundle in a bundle".to_string()),
            Kind::Lost => {
                let lost = usize::try_from(header.a).unwrap_or(usize::MAX);
                let reason = String::from_utf8_lossy(&payload).into_owned();
                if lost >= self.peers.len() || (source != 0 && shared.rank != 0) {
                    return Err(format!("the loss of rank {}, which it cannot know of", header.a));
                }
                if lost == shared.rank {
                    self.lose_all(&format!("the gang goes on without this rank: {reason}"));
                } else {
                    self.lose(lost, &reason, source != 0);
                }
            }
            Kind::Leave => {
                self.peers[source].gone = true;
                table.on_lost(source, "it left the gang");
                shared.departures[source].send_replace(Some(Departure::Exited { status: header.a as i32 }));
            }
        }
        Ok(())
    }

    /// Sends heartbeats to silent ranks that this rank waits for.
    fn watch(&mut self) {
        let now = self.transport.now();
        let heartbeat = Duration::from_nanos(HEARTBEAT_NS);
        self.next_watch = now + heartbeat / 4;
        let mut waited_for = self.shared.table.peers(self.peers.len());
        // Idle ranks wait for the coordinator, and the coordinator tracks all members.
        match self.shared.rank {
            0 => waited_for.fill(true),
            _ => waited_for[0] = true,
        }
        // A block would stay lent for ever if its reader is cut off and its stream has ended.
        for reader in self.shared.lending.readers() {
            waited_for[reader] = true;
        }
        let mut silent = Vec::new();
        let mut undead = Vec::new();
        for (peer, state) in self.peers.iter_mut().enumerate() {
            if std::mem::take(&mut state.has_sent) {
                state.unanswered = 0;
                state.next_ping = now + heartbeat;
            }
            if state.gone || !waited_for[peer] {
                continue;
            }
            if let Some((since, reason)) = &state.killed {
                if now - *since > KILL_TIMEOUT {
                    undead.push((peer, reason.clone()));
                }
                continue;
            }
            state.stopped = if self.transport.is_stopped(peer) { state.stopped + 1 } else { 0 };
            let patience = match peer < self.shared.rank {
                true => SILENCE_NS_MAX / HEARTBEAT_NS + HEARTBEATS_FOR_LOWER,
                false => SILENCE_NS_MAX / HEARTBEAT_NS,
            };
            if state.stopped == STOPPED_POLLS_MAX {
                silent.push((peer, "is stopped".to_string()));
            } else if now >= state.next_ping && u64::from(state.unanswered) == patience {
                let seconds = patience * HEARTBEAT_NS / 1_000_000_000;
                silent.push((peer, format!("has not answered for {seconds} s")));
            } else if now >= state.next_ping {
                state.unanswered += 1;
                state.next_ping = now + heartbeat;
                self.shared.send(peer, Channel::Control, self.shared.header(Kind::Ping, 0), &[]);
            }
        }
        for (peer, what) in silent {
            let reason = format!("{} {what}", self.describe(peer));
            // Other ranks may clean up after that rank once they hear of the loss: it should be dead by then.
            match self.transport.kill(peer) {
                true => self.peers[peer].killed = Some((now, reason)),
                false => self.lose(peer, &reason, true),
            }
        }
        for (peer, reason) in undead {
            self.lose(peer, &reason, true);
        }
    }

    fn describe(&self, peer: usize) -> String {
        let Peer { host, pid, .. } = &self.shared.peers[peer];
        format!("process {pid} on {host}")
    }

    /// `silent`: it may still be alive.
    fn lose(&mut self, peer: usize, reason: &str, silent: bool) {
        if std::mem::replace(&mut self.peers[peer].gone, true) {
            return;
        }
        tracing::debug!(peer, reason, "rank lost");
        self.announce_loss(peer, reason, silent);
        self.peers[peer].lost = true;
        self.transport.lose(peer);
        let shared = &self.shared;
        shared.lending.lose(peer);
        shared.departures[peer].send_replace(Some(Departure::Lost { reason: reason.to_string() }));
        shared.losses.send_modify(|losses| losses.push((peer, reason.to_string())));
        shared.table.on_lost(peer, reason);
    }

    fn announce_loss(&mut self, lost: usize, reason: &str, silent: bool) {
        let mut header = self.shared.header(Kind::Lost, 0);
        header.a = lost as u64;
        if self.shared.rank == 0 && silent {
            // If it is alive, it learns that it was evicted.
            let frame = Arc::new(self.shared.frame(header, reason.as_bytes()));
            let _ = self.transport.send(lost, Channel::Control, frame, true);
        }
        let informed = if self.shared.rank == 0 { 1..self.peers.len() } else { 0..1 };
        for peer in informed.filter(|peer| !self.peers[*peer].gone) {
            self.shared.send(peer, Channel::Control, header, reason.as_bytes());
        }
    }

    fn lose_all(&mut self, reason: &str) {
        let _ = self.shared.broken.set(reason.to_string());
        for peer in 0..self.peers.len() {
            self.lose(peer, reason, false);
        }
    }

    /// Sleeps until something may have happened.
    fn sleep(&mut self, leaving: bool) {
        count(&self.shared.counters.sleeps, 1);
        self.record_processor_time(Duration::ZERO);
        let shared = Arc::clone(&self.shared);
        let parameters = SleepParameters {
            wake: &shared.wake,
            busy: shared.table.open() != (0, 0),
            leaving,
            nothing_to_do: &|| {
                shared.outbox.is_empty() && !shared.lending.has_returns() && shared.process_checks.is_empty()
            },
        };
        // Requests that come now wait for the next one.
        let checks = shared.process_checks.len();
        self.pulse.set_sleeping(true);
        let ended = self.transport.sleep(&parameters);
        self.pulse.set_sleeping(false);
        let ended = match ended {
            Ok(ended) => ended,
            Err(error) => return self.lose_all(&error),
        };
        for peer in ended {
            // A rank that left in good order also ends its process; its last frames may still be in flight.
            for _ in 0..3 {
                if !self.peers[peer].gone {
                    let _ = self.turn();
                }
            }
            let reason = match self.peers[peer].killed.take() {
                Some((_, reason)) => reason,
                None => format!("{} ended", self.describe(peer)),
            };
            self.peers[peer].ended = true;
            self.lose(peer, &reason, false);
            // Only now: it may have been lost before while its process lived.
            self.shared.lending.reclaim(peer);
        }
        for look in (0..checks).map_while(|_| shared.process_checks.pop()) {
            // The waiter may be gone.
            let _ = look.send(());
        }
    }

    fn end(self) {
        let lost = !self.shared.losses.borrow().is_empty();
        let all_left = self.peers.iter().all(|peer| peer.gone);
        let orderly = !lost && all_left && self.transport.in_flight() == InFlight::default();
        self.transport.close(orderly);
    }
}

fn count(cell: &AtomicU64, by: u64) {
    cell.fetch_add(by, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::encode_loan;
    use crate::lending::Lending;
    use crate::transport::Progress;
    use crate::{Interconnect, Service};
    use futures::{FutureExt, StreamExt};
    use harrier_mpi::shared::{Arena, Window};
    use std::collections::VecDeque;

    /// The stream that the peer opens.
    const STREAM: u64 = 1;

    /// A peer that sends queued messages and then exits.
    #[derive(Clone, Default)]
    struct OneOther {
        says: Arc<Mutex<VecDeque<Block>>>,
        frames: Arc<Mutex<Vec<Arc<Block>>>>,
        ends: Arc<AtomicBool>,
    }

    impl Transport for OneOther {
        fn send(&mut self, _: usize, _: Channel, frame: Arc<Block>, _: bool) -> Result<(), String> {
            self.frames.lock().push(frame);
            Ok(())
        }

        fn progress(&mut self, arrived: &mut Vec<(usize, Block)>) -> Result<Progress, String> {
            arrived.extend(self.says.lock().pop_front().map(|frame| (1, frame)));
            Ok(Progress::default())
        }

        fn in_flight(&self) -> InFlight {
            InFlight::default()
        }

        fn sleep(&mut self, _: &SleepParameters<'_>) -> Result<Vec<usize>, String> {
            Ok(if self.ends.swap(false, Ordering::SeqCst) { vec![1] } else { vec![] })
        }

        fn kill(&mut self, _: usize) -> bool {
            false
        }

        fn lose(&mut self, _: usize) {}

        fn close(self: Box<Self>, _: bool) {}
    }

    #[derive(Default)]
    struct Opened(Mutex<Vec<Incoming>>);

    impl Service for Opened {
        fn open(&self, incoming: Incoming) {
            self.0.lock().push(incoming);
        }
    }

    /// This rank, to which the peer has opened a stream.
    struct Pair {
        other: OneOther,
        gang: Interconnect,
        driver: Driver,
        arena: Arc<Arena>,
        incoming: Incoming,
    }

    impl Pair {
        fn new(flags: u8) -> Pair {
            let other = OneOther::default();
            let arena = Arena::create(1 << 24).unwrap();
            let peer = |pid| Peer { host: "here".to_string(), pid, here: true };
            let lending = Lending::new(Some(Arc::clone(&arena)), vec![false, true], vec![None, None]);
            let (gang, mut driver) = Interconnect::over(Joined {
                rank: 0,
                peers: vec![peer(1), peer(2)],
                description: String::new(),
                lending,
                transport: Box::new(other.clone()),
            })
            .unwrap();
            let opened = Arc::new(Opened::default());
            gang.serve(Arc::clone(&opened) as Arc<dyn Service>);
            let mut open = Header::new(Kind::Open, EPOCH, STREAM);
            (open.flags, open.a, open.sequence) = (flags, 1, WINDOW_BYTES_MAX);
            say(&other, open, &[]);
            driver.step();
            let incoming = opened.0.lock().pop().expect("the stream was opened");
            Pair { other, gang, driver, arena, incoming }
        }

        /// Receives a frame. Returns whether its sender is still a member.
        fn hear(&mut self, header: Header, payload: &[u8]) -> bool {
            say(&self.other, header, payload);
            self.driver.step();
            self.gang.members() == [0, 1]
        }

        /// Sends a block of `bytes` times `byte`.
        fn send(&mut self, byte: u8, bytes: usize) {
            let sender = &mut self.incoming.senders[0];
            let mut block = sender.block_for(bytes);
            block.extend_from_slice(&vec![byte; bytes]);
            sender.send(1, block);
        }

        /// The peer's process exits.
        fn end(&mut self) {
            self.other.ends.store(true, Ordering::SeqCst);
            self.driver.step();
        }
    }

    fn say(other: &OneOther, mut header: Header, payload: &[u8]) {
        header.payload_bytes = payload.len() as u64;
        let mut block = Block::with_capacity(HEADER_BYTES + payload.len());
        block.extend_from_slice(&header.encode());
        block.extend_from_slice(payload);
        other.says.lock().push_back(block);
    }

    /// A task that already had its credit lends a block to a rank at the moment of its loss.
    #[test]
    fn loans_of_a_lost_rank_are_reclaimed() {
        let mut pair = Pair::new(0);
        pair.end();
        assert_eq!(pair.gang.members(), [0]);
        pair.send(7, SHARED_BYTES_MIN);
        assert_eq!(pair.arena.loans_to(1), 1);
        pair.driver.step();
        assert_eq!(pair.arena.loans_to(1), 0);
        drop(pair.incoming);
        assert!(pair.gang.ledger().is_clear(), "{:?}", pair.gang.ledger());
    }

    /// A rank evicted for a violation may be alive, and pass on what it reads here until it hears of the
    /// eviction.
    #[test]
    fn blocks_readable_by_a_lost_rank_are_not_reused() {
        let mut pair = Pair::new(0);
        pair.send(7, SHARED_BYTES_MIN);
        pair.driver.step();
        let frame = pair.other.frames.lock().pop().expect("a block was sent");
        let header = Header::decode(frame.as_slice(), EPOCH).unwrap();
        assert_eq!(header.flags, Header::FLAG_SHARED);
        let loan = decode_loan(&frame.as_slice()[HEADER_BYTES..]).expect("a loan");
        let window = Window::open(std::process::id(), pair.arena.descriptor()).unwrap();
        let piece = window.piece(loan).expect("it lies in the arena");
        assert!(!pair.hear(Header::new(Kind::Bundle, EPOCH + 1, 0), &encode_loan(loan)));
        assert_eq!(pair.gang.ledger().blocks_lent, 0, "nothing is expected of it");
        // Blocks are sent to other ranks meanwhile.
        let others: Vec<Block> = (0..3)
            .map(|_| {
                let mut block = pair.gang.block_for(1, SHARED_BYTES_MIN);
                block.extend_from_slice(&[9; SHARED_BYTES_MIN]);
                block
            })
            .collect();
        assert_eq!(&piece.as_ref()[HEADER_BYTES..], [7; SHARED_BYTES_MIN]);
        drop((others, piece));
        assert_eq!(pair.arena.loans_to(1), 1);
        pair.end();
        assert_eq!(pair.arena.loans_to(1), 0);
    }

    /// Sends two blocks of 1000 bytes; then these credits arrive, each with its number and bytes.
    #[test]
    fn a_credit_counts_once() {
        let check = |credits: &[(u64, u64)], is_right: bool| {
            let mut pair = Pair::new(0);
            pair.send(1, 1000);
            pair.send(2, 1000);
            let (last, before) = credits.split_last().expect("there is one");
            let mut hear = |(sequence, bytes): (u64, u64)| {
                let mut credit = Header::new(Kind::Credit, EPOCH, STREAM);
                (credit.sequence, credit.a) = (sequence, bytes);
                pair.hear(credit, &[])
            };
            for credit in before {
                assert!(hear(*credit), "{credit:?} of {credits:?}");
            }
            assert_eq!(hear(*last), is_right, "the last of {credits:?}");
        };
        let one = block_cost(1000);
        check(&[(0, one)], true);
        check(&[(0, 2 * one)], true);
        check(&[(0, one), (1, one)], true);
        check(&[(0, 100), (1, 100), (2, one)], true);
        // A duplicate though it fits; a gap; too much; zero.
        check(&[(0, one), (0, one)], false);
        check(&[(0, 100), (1, 100), (1, 100)], false);
        check(&[(1, one)], false);
        check(&[(0, one), (2, one)], false);
        check(&[(0, 2 * one + 1)], false);
        check(&[(0, one), (1, one + 1)], false);
        check(&[(0, 0)], false);
    }

    #[test]
    fn a_credit_may_cross_the_end_of_its_stream() {
        let mut pair = Pair::new(0);
        pair.send(1, 1000);
        pair.incoming.senders.pop().expect("one stream").finish();
        for sequence in [0, 0, 7] {
            let mut credit = Header::new(Kind::Credit, EPOCH, STREAM);
            (credit.sequence, credit.a) = (sequence, block_cost(1000));
            assert!(pair.hear(credit, &[]));
        }
    }

    #[test]
    fn unread_messages_are_bounded() {
        let message = Header::new(Kind::Message, EPOCH, STREAM);
        let half = vec![1; MESSAGES_BYTES_MAX as usize / 2];
        let mut pair = Pair::new(Header::FLAG_CALL);
        for _ in 0..6 {
            assert!(pair.hear(message, &half));
            assert!(pair.hear(message, b"and more"));
            for _ in 0..2 {
                assert!(pair.incoming.messages.next().now_or_never().flatten().is_some());
            }
        }
        assert!(pair.hear(message, &half));
        assert!(pair.hear(message, &half));
        assert!(!pair.hear(message, b"and more"));

        let mut pair = Pair::new(Header::FLAG_CALL);
        let Incoming { senders, messages, .. } = pair.incoming;
        drop(messages);
        for _ in 0..6 {
            say(&pair.other, message, &half);
            pair.driver.step();
        }
        assert_eq!(pair.gang.members(), [0, 1], "whoever wants none gets none");
        drop(senders);

        let mut pair = Pair::new(0);
        assert!(!pair.hear(message, b"not a call"));
    }
}
