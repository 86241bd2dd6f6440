//! The ranks that run jobs together: a single process, the ranks of a launcher, or a simulated gang.
//!
//! # Order of calls
//! [`World::join`], [`World::configure`], then jobs and [`World::gather`] in the same order on every rank,
//! then [`World::leave`].
//!
//! # Threads
//! One thread, the mover, carries blocks and messages between the jobs' threads and the interconnect. A
//! single process has none.
//!
//! # Crash
//! When a rank is lost, every job fails with [`Error::RankLost`], which names that rank, and no further job
//! can run. A job with a checkpoint continues on the remaining ranks, which are renumbered ([`World::rank`],
//! [`World::ranks`]); so do later jobs. If rank 0 is lost, no job continues.

use crate::config::Config;
use crate::control::{Client, Coordinator, FromRank0, Pool, ToRank0};
use crate::error::Error;
use crate::outcome::{JOINED, NOT_LEFT, WITHOUT_OTHERS, report_to_mpidrun};
use bytes::Bytes;
use futures::StreamExt;
use harrier_interconnect::transport::Block;
use harrier_interconnect::{
    Incoming, Interconnect, MessageReceiver, MessageSender, MessageStream, Options, ReadOptions, Service,
    StreamReceiver, StreamSender, launch, limits, raise_descriptors,
};
use nix::unistd::{Pid, getpid, gettid};
use parking_lot::Mutex;
use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot, watch};

fn warn_unreported(reported: std::io::Result<()>) {
    if let Err(error) = reported {
        tracing::warn!(%error, "mpidrun could not be told how it goes");
    }
}

thread_local! {
    /// Dropped when the process exits, if this is its main thread; not when a signal kills it.
    static EXIT_HOOK: RefCell<Option<AtExit>> = const { RefCell::new(None) };
}

/// Reports to `mpidrun` that a rank exits without leaving.
struct AtExit {
    process: Pid,
    has_left: Arc<AtomicBool>,
    client: Arc<Client>,
}

impl Drop for AtExit {
    fn drop(&mut self) {
        // Not on another thread, nor in a forked process.
        let is_exit = getpid() == self.process && gettid() == self.process;
        if is_exit && !self.has_left.load(Ordering::SeqCst) && !self.client.has_unaccepted_loss() {
            // Too late to log a failure.
            let _ = report_to_mpidrun(NOT_LEFT);
        }
    }
}

/// This process as one of the ranks that run jobs together. Cheap to clone.
#[derive(Clone)]
pub struct World(Arc<Inner>);

struct Inner {
    /// Number assigned by the launcher.
    rank: usize,
    members: Mutex<Members>,
    client: Arc<Client>,
    /// Present on rank 0.
    coordinator: Option<Arc<Coordinator>>,
    /// `None` for a single process.
    link: Option<Link>,
    jobs: AtomicU32,
    /// Gathers of this epoch.
    gathers: AtomicU64,
    exchanges: AtomicU32,
    /// The program has exchanged data by [`World::gather`].
    has_gathered: AtomicBool,
    /// A job has finished, and the ranks hold the results of its A tasks.
    has_results: AtomicBool,
    /// The warning that rounds and streams keep no checkpoint was printed.
    has_warned: AtomicBool,
    has_left: Arc<AtomicBool>,
    /// Made by [`World::join`], so its outcome is reported to `mpidrun`.
    is_launched: AtomicBool,
}

/// Grace period after a rank disconnects without leaving: it may have done so because of the loss of another
/// rank, which is still to be detected here.
const LOSS_GRACE: Duration = Duration::from_millis(500);

/// The remaining ranks.
struct Members {
    /// Launcher numbers of the members; a job's rank is the index.
    ranks: Vec<usize>,
    /// Index of this rank.
    at: usize,
    /// Members on this host.
    here: usize,
    /// Number of accepted losses.
    epoch: u32,
}

/// Maximum number of exchanges per epoch, so that exchange numbers are unique during a world's life.
const EXCHANGES_MAX: u32 = 1 << 24;

/// Connection of this rank to the others.
struct Link {
    gang: Interconnect,
    pending: Arc<PendingStreams>,
    mover: Handle,
    /// Stops the mover.
    stop: Mutex<Option<oneshot::Sender<()>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
    /// Control stream to rank 0; absent on rank 0.
    up: Mutex<Option<MessageSender>>,
    /// Number of open control connections.
    connections: watch::Receiver<usize>,
    leave: bool,
}

impl World {
    /// Joins the ranks of this process's launcher: `mpirun`, `srun`, or a hosts file (`HARRIER_HOSTS`);
    /// without one, the process runs alone. Collective; blocks until all ranks have joined.
    ///
    /// Errors: [`Error::Start`].
    pub fn join() -> Result<World, Error> {
        // A spilled run is an unlinked file, which stays open because it cannot be reopened.
        if let Err(error) = raise_descriptors() {
            tracing::warn!(%error, "the limit of open files stays as it is");
        }
        let Some(launched) = launch(None, false)? else {
            return Ok(World::alone().report_outcome());
        };
        if launched.ranks == Some(1) {
            return Ok(World::alone().report_outcome());
        }
        let shared_memory = std::env::var_os("HARRIER_SHARED_MEMORY").is_none_or(|value| value != "0");
        let version = concat!("mpid ", env!("CARGO_PKG_VERSION")).to_string();
        let facts = launched.facts;
        let gang = Interconnect::start(Options { carrier: launched.carrier, version, shared_memory, facts })?;
        if gang.ranks() == 1 {
            // The launcher did not announce that there is only one rank.
            gang.leave(0);
            return Ok(World::alone().report_outcome());
        }
        Ok(World::from_gang(gang, true)?.report_outcome())
    }

    /// Starts reporting this world's outcome to `mpidrun`.
    fn report_outcome(self) -> World {
        self.0.is_launched.store(true, Ordering::Relaxed);
        if self.0.rank == 0 {
            warn_unreported(report_to_mpidrun(JOINED));
        }
        let (has_left, client) = (Arc::clone(&self.0.has_left), Arc::clone(&self.0.client));
        EXIT_HOOK.set(Some(AtExit { process: getpid(), has_left, client }));
        self
    }

    /// A world of this process only, regardless of the launcher.
    pub fn alone() -> World {
        let client = Arc::new(Client::new());
        let coordinator = Arc::new(Coordinator::new(1, Arc::clone(&client)));
        World(Arc::new(Inner {
            rank: 0,
            members: Mutex::new(Members { ranks: vec![0], at: 0, here: 1, epoch: 0 }),
            client,
            coordinator: Some(coordinator),
            link: None,
            jobs: AtomicU32::new(0),
            gathers: AtomicU64::new(0),
            exchanges: AtomicU32::new(0),
            has_gathered: AtomicBool::new(false),
            has_results: AtomicBool::new(false),
            has_warned: AtomicBool::new(false),
            has_left: Arc::default(),
            is_launched: AtomicBool::new(false),
        }))
    }

    /// A world over a gang that its owner drives and shuts down, such as a simulated one. The gang must not
    /// have another service.
    pub fn over(gang: Interconnect) -> Result<World, Error> {
        World::from_gang(gang, false)
    }

    fn from_gang(gang: Interconnect, leave: bool) -> Result<World, Error> {
        let (rank, ranks) = (gang.rank(), gang.ranks());
        let client = Arc::new(Client::new());
        let coordinator = (rank == 0).then(|| Arc::new(Coordinator::new(ranks, Arc::clone(&client))));
        let start = |error: std::io::Error| Error::Start(error.into());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().map_err(start)?;
        let mover = runtime.handle().clone();
        let (stop, stopped) = oneshot::channel::<()>();
        let thread = std::thread::Builder::new().name("mpid mover".to_string());
        let thread = thread
            .spawn(move || {
                let _ = runtime.block_on(stopped);
            })
            .map_err(start)?;
        let pending = Arc::new(PendingStreams::default());
        let (connections, connections_seen) = watch::channel(if rank == 0 { 0 } else { 1 });
        let connections = Arc::new(connections);
        gang.serve(Arc::new(StreamService {
            pending: Arc::clone(&pending),
            coordinator: coordinator.clone(),
            mover: mover.clone(),
            connections: Arc::clone(&connections),
        }));
        let up = (rank > 0).then(|| {
            let (up, down) = gang.call(0, b"mpid");
            mover.spawn(receive_control(down, gang.clone(), Arc::clone(&client), connections));
            up
        });
        mover.spawn(watch_losses(gang.clone(), coordinator.clone(), Arc::clone(&client)));
        let peers = gang.peers();
        let ranks_here = peers.iter().filter(|peer| peer.here).count().max(1);
        Ok(World(Arc::new(Inner {
            rank,
            members: Mutex::new(Members {
                ranks: (0..ranks).collect(),
                at: rank,
                here: ranks_here,
                epoch: 0,
            }),
            client,
            coordinator,
            link: Some(Link {
                gang,
                pending,
                mover,
                stop: Mutex::new(Some(stop)),
                thread: Mutex::new(Some(thread)),
                up: Mutex::new(up),
                connections: connections_seen,
                leave,
            }),
            jobs: AtomicU32::new(0),
            gathers: AtomicU64::new(0),
            exchanges: AtomicU32::new(0),
            has_gathered: AtomicBool::new(false),
            has_results: AtomicBool::new(false),
            has_warned: AtomicBool::new(false),
            has_left: Arc::default(),
            is_launched: AtomicBool::new(false),
        })))
    }

    /// Index among the remaining ranks; the launcher's number as long as none was lost.
    pub fn rank(&self) -> usize {
        self.0.members.lock().at
    }

    /// Number of remaining ranks.
    pub fn ranks(&self) -> usize {
        self.0.members.lock().ranks.len()
    }

    /// Number of ranks on this host, including this one.
    pub fn ranks_here(&self) -> usize {
        self.0.members.lock().here
    }

    /// Returns the configuration from each rank's environment, after all ranks have validated theirs.
    /// Collective: call before the first job.
    ///
    /// Errors: the first invalid configuration, reported on all ranks, which can then leave;
    /// [`Error::RankLost`].
    pub fn configure(&self) -> Result<Config, Error> {
        let own = Config::from_environment();
        let invalid = own.as_ref().err().map_or(String::new(), |error| error.to_string());
        let keeps = own.as_ref().is_ok_and(|config| config.checkpoint.is_some());
        let all = loop {
            match self.gather_before_all(invalid.as_bytes()) {
                // No data exists yet that could be lost with the rank.
                Err(Error::RankLost { .. }) if keeps && self.continue_after_loss().is_some() => {}
                gathered => break gathered?,
            }
        };
        let Some(rank) = all.iter().position(|invalid| !invalid.is_empty()) else { return own };
        let mut message = String::from_utf8_lossy(&all[rank]).into_owned();
        if all.iter().any(|other| *other != all[rank]) {
            message += &format!(" (on rank {})", self.launcher_rank(rank));
        }
        Err(Error::Configuration(message))
    }

    /// Launcher number, for error messages.
    pub(crate) fn own_launcher_rank(&self) -> usize {
        self.0.rank
    }

    /// Description of the transport between the ranks.
    pub fn library(&self) -> String {
        self.0.link.as_ref().map_or("one process".to_string(), |link| link.gang.library().to_string())
    }

    /// Gathers every rank's bytes on all ranks, by rank. Collective: returns when all ranks have called it.
    ///
    /// Errors: [`Error::RankLost`].
    pub fn gather(&self, bytes: &[u8]) -> Result<Vec<Vec<u8>>, Error> {
        self.0.has_gathered.store(true, Ordering::Relaxed);
        self.gather_before_all(bytes)
    }

    /// Like [`World::gather`], for data that a lost rank does not invalidate.
    fn gather_before_all(&self, bytes: &[u8]) -> Result<Vec<Vec<u8>>, Error> {
        let epoch = self.0.members.lock().epoch;
        let number = self.0.gathers.fetch_add(1, Ordering::Relaxed);
        self.send_to_rank_0(ToRank0::Gather { epoch, number, bytes: bytes.to_vec() });
        let all = self.0.client.wait_for_gather(epoch, number)?;
        Ok(Arc::try_unwrap(all).unwrap_or_else(|all| (*all).clone()))
    }

    /// Resolves the actual loss after the stream from `rank` has failed.
    pub(crate) async fn find_loss(&self, rank: usize, reason: String) -> Error {
        let (rank, reason) = match &self.0.link {
            Some(link) => find_first_loss(&link.gang, &self.0.client, rank, reason).await,
            None => (rank, reason),
        };
        Error::RankLost { rank, reason }
    }

    /// Whether the ranks have not exchanged anything yet, so that a lost rank takes no data with it.
    pub(crate) fn is_new(&self) -> bool {
        !self.0.has_gathered.load(Ordering::Relaxed) && self.0.members.lock().epoch == 0
    }

    /// Records that a job has finished on all ranks.
    pub(crate) fn set_has_results(&self) {
        self.0.has_results.store(true, Ordering::Relaxed);
    }

    /// Returns true on the first call only, for a warning that is printed once.
    pub(crate) fn first_warning(&self) -> bool {
        !self.0.has_warned.swap(true, Ordering::Relaxed)
    }

    /// Whether the ranks hold results of a job, which are lost with a rank.
    pub(crate) fn has_results(&self) -> bool {
        self.0.has_results.load(Ordering::Relaxed)
    }

    /// Continues with the remaining ranks after a loss. Returns the launcher numbers of the lost ranks;
    /// `None` if continuing is impossible. All members call it after a collective call has failed on all of
    /// them. No job may be running on this rank.
    pub(crate) fn continue_after_loss(&self) -> Option<Vec<usize>> {
        let (epoch, lost) = self.0.client.accept_losses()?;
        let mut members = self.0.members.lock();
        members.ranks.retain(|rank| !lost.contains(rank));
        members.at = members.ranks.iter().position(|rank| *rank == self.0.rank)?;
        if let Some(link) = &self.0.link {
            let peers = link.gang.peers();
            members.here = members.ranks.iter().filter(|rank| peers[**rank].here).count().max(1);
        }
        members.epoch = epoch;
        self.0.gathers.store(0, Ordering::Relaxed);
        self.0.exchanges.store(0, Ordering::Relaxed);
        Some(lost)
    }

    /// Leaves the other ranks cleanly with this exit status. Collective; blocks until all have left.
    ///
    /// Errors: [`Error::RankLost`]. The remaining ranks still leave.
    pub fn leave(&self, status: i32) -> Result<(), Error> {
        if self.0.has_left.swap(true, Ordering::SeqCst) {
            return Ok(());
        }
        let gathered = self.gather(&[]).map(|_| ());
        if self.0.rank == 0 && self.0.is_launched.load(Ordering::Relaxed) {
            let report = if gathered.is_ok() { status.to_string() } else { WITHOUT_OTHERS.to_string() };
            warn_unreported(report_to_mpidrun(&report));
        }
        let Some(link) = &self.0.link else { return gathered };
        drop(link.up.lock().take());
        if let Some(coordinator) = self.0.coordinator.as_ref().filter(|_| gathered.is_err()) {
            coordinator.disconnect();
        }
        // The control connection to a lost rank has ended.
        let mut connections = link.connections.clone();
        let (ended, waiting) = oneshot::channel();
        link.mover.spawn(async move {
            let _ = connections.wait_for(|connections| *connections == 0).await;
            let _ = ended.send(());
        });
        let _ = waiting.blocking_recv();
        if let Some(stop) = link.stop.lock().take() {
            let _ = stop.send(());
        }
        if let Some(thread) = link.thread.lock().take() {
            let _ = thread.join();
        }
        if link.leave {
            link.gang.leave(status);
        }
        gathered
    }

    pub(crate) fn client(&self) -> &Arc<Client> {
        &self.0.client
    }

    pub(crate) fn coordinator(&self) -> Option<&Arc<Coordinator>> {
        self.0.coordinator.as_ref()
    }

    /// Returns the next job number: the n-th job of the program, also after a restart of the ranks.
    pub(crate) fn next_job(&self) -> u32 {
        self.0.jobs.fetch_add(1, Ordering::Relaxed)
    }

    /// Returns the next exchange number, equal on all members: a job that continues after a loss gets a new
    /// one.
    pub(crate) fn next_exchange(&self) -> u32 {
        let epoch = self.0.members.lock().epoch;
        epoch * EXCHANGES_MAX + self.0.exchanges.fetch_add(1, Ordering::Relaxed) % EXCHANGES_MAX
    }

    /// Returns the launcher number of a member.
    pub(crate) fn launcher_rank(&self, rank: usize) -> usize {
        self.0.members.lock().ranks[rank]
    }

    /// Sends a message to rank 0. Never blocks.
    pub(crate) fn send_to_rank_0(&self, message: ToRank0) {
        match (&self.0.coordinator, &self.0.link) {
            (Some(coordinator), _) => coordinator.handle(0, message),
            (None, Some(link)) => {
                if let Some(up) = &*link.up.lock() {
                    up.send(&message.encode());
                }
            }
            (None, None) => unreachable!("who is alone is rank 0"),
        }
    }

    /// Requests an O task from rank 0. `Ok(None)`: none is left, or the job is stopping.
    pub(crate) fn take_task(&self, job: u32) -> Result<Option<u32>, Error> {
        self.send_to_rank_0(ToRank0::Take { job });
        self.0.client.wait_for_task(job)
    }

    pub(crate) fn begin(&self, job: u32, pool: Pool) {
        if let Some(coordinator) = &self.0.coordinator {
            coordinator.begin(job, pool);
        }
    }

    /// Allocates an empty block for a frame to rank `to`, with room for the frame's header and `bytes` more.
    pub(crate) fn block(&self, to: usize, bytes: usize) -> Block {
        let to = self.launcher_rank(to);
        match &self.0.link {
            Some(link) if to != self.0.rank => link.gang.block_for(to, bytes),
            _ => {
                let mut block = Block::with_capacity(limits::HEADER_BYTES + bytes);
                block.push_zeros(limits::HEADER_BYTES);
                block
            }
        }
    }

    /// Opens the stream of a job's blocks from rank `from`.
    pub(crate) fn open(&self, from: usize, job: u32, window_bytes: usize) -> StreamReceiver {
        let link = self.0.link.as_ref().expect("there is another rank");
        let mut streams = link.gang.open(
            self.launcher_rank(from),
            &job.to_le_bytes(),
            1,
            ReadOptions::window(window_bytes),
        );
        streams.pop().expect("one was opened")
    }

    /// Returns the sending end of the stream that rank `to` opens here for a job, once it does.
    pub(crate) fn sender(&self, job: u32, to: usize) -> oneshot::Receiver<StreamSender> {
        self.0.link.as_ref().expect("there is another rank").pending.wait(job, self.launcher_rank(to))
    }

    pub(crate) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.0.link.as_ref().expect("there is another rank").mover.spawn(work);
    }

    /// Discards the streams of jobs up to this one.
    pub(crate) fn end_job(&self, job: u32) {
        self.0.client.forget(job);
        if let Some(link) = &self.0.link {
            link.pending.end(job);
        }
    }
}

/// Streams that other ranks have opened and whose jobs have not claimed them yet, and jobs that wait for a
/// stream.
#[derive(Default)]
struct PendingStreams {
    slots: Mutex<Slots>,
}

#[derive(Default)]
struct Slots {
    waiting: HashMap<(u32, usize), Slot>,
    /// Jobs before this one have ended.
    ended: u32,
}

enum Slot {
    Sender(StreamSender),
    Waiter(oneshot::Sender<StreamSender>),
}

impl PendingStreams {
    fn arrive(&self, job: u32, from: usize, sender: StreamSender) {
        let mut slots = self.slots.lock();
        if job < slots.ended {
            // The reader's job has ended, too: dropping the sender ends the stream.
            return;
        }
        match slots.waiting.remove(&(job, from)) {
            Some(Slot::Waiter(waiter)) => {
                let _ = waiter.send(sender);
            }
            _ => {
                slots.waiting.insert((job, from), Slot::Sender(sender));
            }
        }
    }

    fn wait(&self, job: u32, to: usize) -> oneshot::Receiver<StreamSender> {
        let (waiter, waiting) = oneshot::channel();
        let mut slots = self.slots.lock();
        match slots.waiting.remove(&(job, to)) {
            Some(Slot::Sender(sender)) => {
                let _ = waiter.send(sender);
            }
            _ => {
                slots.waiting.insert((job, to), Slot::Waiter(waiter));
            }
        }
        waiting
    }

    fn end(&self, job: u32) {
        let mut slots = self.slots.lock();
        slots.ended = slots.ended.max(job + 1);
        let ended = slots.ended;
        slots.waiting.retain(|(job, _), _| *job >= ended);
    }
}

/// Service that accepts streams of other ranks.
struct StreamService {
    pending: Arc<PendingStreams>,
    coordinator: Option<Arc<Coordinator>>,
    mover: Handle,
    connections: Arc<watch::Sender<usize>>,
}

impl Service for StreamService {
    fn open(&self, incoming: Incoming) {
        let Incoming { from, call, request, mut senders, messages } = incoming;
        let Some(sender) = senders.pop() else { return };
        if call {
            if let Some(coordinator) = &self.coordinator {
                let (sender_of_replies, replies) = mpsc::unbounded_channel();
                coordinator.connect(from, sender_of_replies);
                self.connections.send_modify(|connections| *connections += 1);
                let coordinator = Arc::clone(coordinator);
                self.mover.spawn(serve_control(
                    from,
                    messages,
                    sender,
                    replies,
                    coordinator,
                    Arc::clone(&self.connections),
                ));
            }
            return;
        }
        // Invalid job number: dropping the sender fails the stream.
        if let Ok(job) = request[..].try_into().map(u32::from_le_bytes) {
            self.pending.arrive(job, from, sender);
        }
    }
}

/// Rank 0 announces lost ranks to the others, which themselves only watch rank 0.
async fn watch_losses(gang: Interconnect, coordinator: Option<Arc<Coordinator>>, client: Arc<Client>) {
    let mut known = 0;
    loop {
        let losses = gang.wait_for_losses(known).await;
        for (rank, reason) in &losses[known..] {
            match &coordinator {
                Some(coordinator) => coordinator.announce_loss(*rank, reason),
                None if *rank == 0 => {
                    let (first, reason) = find_first_loss(&gang, &client, 0, reason.clone()).await;
                    client.set_coordinator_lost(first, reason);
                }
                None => {}
            }
        }
        known = losses.len();
    }
}

/// Control connection of rank 0 to another rank.
async fn serve_control(
    from: usize,
    mut messages: MessageReceiver,
    mut sender: StreamSender,
    mut replies: mpsc::UnboundedReceiver<FromRank0>,
    coordinator: Arc<Coordinator>,
    connections: Arc<watch::Sender<usize>>,
) {
    let receive = async {
        while let Some(message) = messages.next().await {
            let message: Bytes = message;
            match ToRank0::decode(&message) {
                Ok(message) => coordinator.handle(from, message),
                Err(damaged) => tracing::warn!(from, %damaged, "a message is not understood"),
            }
        }
    };
    let send = async {
        while let Some(message) = replies.recv().await {
            if sender.send_message(&message.encode()).await.is_err() {
                break;
            }
        }
    };
    tokio::select! {
        () = receive => {}
        // A rank that stops reading is lost, which is detected elsewhere.
        () = send => {}
    }
    sender.finish();
    connections.send_modify(|connections| *connections -= 1);
    // No rank should wait for one that left alone. For a lost rank, the actual reason is reported within this
    // delay; after a clean end this task no longer runs.
    tokio::time::sleep(LOSS_GRACE).await;
    coordinator.announce_loss(from, "it has left");
}

/// Returns the rank that was lost first, and why, after contact with `rank` failed for this reason. Ranks
/// that detect a loss leave, and their leaving may be noticed before the loss itself.
async fn find_first_loss(
    gang: &Interconnect,
    client: &Client,
    rank: usize,
    reason: String,
) -> (usize, String) {
    let accepted = client.accepted_losses();
    let first_loss = async {
        let mut known = 0;
        loop {
            let losses = gang.wait_for_losses(known).await;
            if let Some(first_loss) = losses.iter().find(|(lost, _)| !accepted.contains(lost)) {
                return first_loss.clone();
            }
            known = losses.len();
        }
    };
    tokio::time::timeout(LOSS_GRACE, first_loss).await.unwrap_or((rank, reason))
}

/// Control connection of another rank to rank 0.
async fn receive_control(
    mut down: MessageStream,
    gang: Interconnect,
    client: Arc<Client>,
    connections: Arc<watch::Sender<usize>>,
) {
    while let Some(message) = down.next().await {
        match message.map(|message| FromRank0::decode(&message)) {
            Ok(Ok(message)) => client.handle(message),
            Ok(Err(damaged)) => client.set_coordinator_lost(0, damaged.to_string()),
            Err(error) => {
                let (rank, reason) = find_first_loss(&gang, &client, 0, error.to_string()).await;
                client.set_coordinator_lost(rank, reason);
            }
        }
    }
    // Waiters here would get no more answers.
    client.set_coordinator_lost(0, "it has left".to_string());
    connections.send_modify(|connections| *connections -= 1);
}
