//! The ranks that run jobs together: this process alone, or those of a launcher, or a simulated gang.
//!
//! # Order of calls
//! [`World::join`], [`World::configure`], then jobs and [`World::gather`], which every rank calls in the same
//! order, then [`World::leave`].
//!
//! # Threads
//! One thread, the mover, carries blocks and messages between the jobs' threads and the interconnect. Alone
//! there is none.
//!
//! # Crash
//! When a rank is lost, every job ends with that rank's number, and no further one can run: see
//! [`Error::RankLost`]. A job with a checkpoint goes on with the ranks that are left, which are numbered anew
//! ([`World::rank`], [`World::ranks`]); so do those after it. Without rank 0 no job goes on.

use crate::config::Config;
use crate::control::{Client, Coordinator, Down, Pool, Up};
use crate::error::Error;
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
use std::fs::OpenOptions;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot, watch};

/// Variable: the file in which the ranks tell `mpidrun` how it goes, a line each: rank 0 [`JOINED`] when they
/// have met, and its exit status when they part, or [`WITHOUT_OTHERS`]; any rank [`NOT_LEFT`]. From what
/// launchers say themselves a rank that was killed is not known from one that has exited: Hydra's ends with
/// the bare number of a signal, and one that bears the death of ranks tells nothing.
pub const OUTCOME: &str = "HARRIER_MPID_OUTCOME";

/// The ranks have met: from here on, one that is gone without a word was lost.
pub const JOINED: &str = "joined";

/// Ranks were lost, and the others could not go on.
pub const WITHOUT_OTHERS: &str = "broken";

/// A rank that had lost nobody has exited of its own accord, and has not left the others in good order
/// before.
pub const NOT_LEFT: &str = "exited";

/// The exit status of programs whose ranks were lost.
pub const BROKEN: i32 = 3;

/// Errors: the file cannot be written.
fn tell_mpidrun(what: &str) -> std::io::Result<()> {
    let Some(path) = std::env::var_os(OUTCOME) else { return Ok(()) };
    let mut file = OpenOptions::new().append(true).create(true).open(path)?;
    // One call, since other ranks write, too.
    file.write_all(format!("{what}\n").as_bytes())
}

fn warn_untold(told: std::io::Result<()>) {
    if let Err(error) = told {
        tracing::warn!(%error, "mpidrun could not be told how it goes");
    }
}

thread_local! {
    /// Dropped when the process exits, if this is its first thread; but not when a signal ends it.
    static JOINED_HERE: RefCell<Option<AtExit>> = const { RefCell::new(None) };
}

/// Tells `mpidrun` of a rank that exits and has not left.
struct AtExit {
    process: Pid,
    left: Arc<AtomicBool>,
    client: Arc<Client>,
}

impl Drop for AtExit {
    fn drop(&mut self) {
        // Neither another thread nor a process that was forked.
        let is_exit = getpid() == self.process && gettid() == self.process;
        if is_exit && !self.left.load(Ordering::SeqCst) && !self.client.misses_a_rank() {
            // There is nobody any more to be warned.
            let _ = tell_mpidrun(NOT_LEFT);
        }
    }
}

/// This process as one of the ranks that run jobs together. Cheap to clone.
#[derive(Clone)]
pub struct World(Arc<Inner>);

struct Inner {
    /// As the launcher numbered them.
    rank: usize,
    members: Mutex<Members>,
    client: Arc<Client>,
    /// On rank 0.
    coordinator: Option<Arc<Coordinator>>,
    /// `None`: alone.
    link: Option<Link>,
    jobs: AtomicU32,
    /// Of this epoch.
    gathers: AtomicU64,
    exchanges: AtomicU32,
    /// The ranks have told one another something of the program's.
    has_gathered: AtomicBool,
    /// A job has come to its end, and what its A tasks returned is with the ranks.
    has_results: AtomicBool,
    /// The user knows that rounds and streams keep no checkpoint.
    has_warned: AtomicBool,
    left: Arc<AtomicBool>,
    /// [`World::join`] has made it, so that `mpidrun` is told what becomes of it.
    is_launched: AtomicBool,
}

/// How long a rank that left without a word is held to have missed another one, whose loss is still to be
/// heard of.
const LOSS_PATIENCE: Duration = Duration::from_millis(500);

/// Who is left.
struct Members {
    /// By the numbers that jobs know: as the launcher numbered them.
    ranks: Vec<usize>,
    /// Of this rank among them.
    at: usize,
    /// Members on this host.
    here: usize,
    /// Losses that were accepted.
    epoch: u32,
}

/// Exchanges of an epoch at most, so that no two in a world's life have the same number.
const EXCHANGES_MAX: u32 = 1 << 24;

/// What ties this rank to the others.
struct Link {
    gang: Interconnect,
    ports: Arc<Ports>,
    mover: Handle,
    /// Ends the mover.
    stop: Mutex<Option<oneshot::Sender<()>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
    /// To rank 0, from all others.
    up: Mutex<Option<MessageSender>>,
    /// Talks with other ranks that are open.
    talks: watch::Receiver<usize>,
    leave: bool,
}

impl World {
    /// Joins the ranks that this process was started with: by `mpirun`, `srun`, or a hosts file
    /// (`HARRIER_HOSTS`); or is alone. Collective; blocks until all ranks have come.
    ///
    /// Errors: [`Error::Start`].
    pub fn join() -> Result<World, Error> {
        // A run that is spilled is a file, and has no name by which it could be opened again.
        if let Err(error) = raise_descriptors() {
            tracing::warn!(%error, "the limit of open files stays as it is");
        }
        let Some(launched) = launch(None, false)? else {
            return Ok(World::alone().launched_world());
        };
        if launched.ranks == Some(1) {
            return Ok(World::alone().launched_world());
        }
        let shared_memory = std::env::var_os("HARRIER_SHARED_MEMORY").is_none_or(|value| value != "0");
        let version = concat!("mpid ", env!("CARGO_PKG_VERSION")).to_string();
        let told = launched.told;
        let gang = Interconnect::start(Options { carrier: launched.carrier, version, shared_memory, told })?;
        if gang.ranks() == 1 {
            // A launcher that did not say so.
            gang.leave(0);
            return Ok(World::alone().launched_world());
        }
        Ok(World::linked(gang, true)?.launched_world())
    }

    /// Tells `mpidrun`, from now on, what becomes of it.
    fn launched_world(self) -> World {
        self.0.is_launched.store(true, Ordering::Relaxed);
        if self.0.rank == 0 {
            warn_untold(tell_mpidrun(JOINED));
        }
        let (left, client) = (Arc::clone(&self.0.left), Arc::clone(&self.0.client));
        JOINED_HERE.set(Some(AtExit { process: getpid(), left, client }));
        self
    }

    /// This process alone, whatever it was started by.
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
            left: Arc::default(),
            is_launched: AtomicBool::new(false),
        }))
    }

    /// The ranks of a gang that its owner drives and ends, such as a simulated one. Nothing else may serve
    /// it.
    pub fn over(gang: Interconnect) -> Result<World, Error> {
        World::linked(gang, false)
    }

    fn linked(gang: Interconnect, leave: bool) -> Result<World, Error> {
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
        let ports = Arc::new(Ports::default());
        let (talks, talks_seen) = watch::channel(if rank == 0 { 0 } else { 1 });
        let talks = Arc::new(talks);
        gang.serve(Arc::new(Doors {
            ports: Arc::clone(&ports),
            coordinator: coordinator.clone(),
            mover: mover.clone(),
            talks: Arc::clone(&talks),
        }));
        let up = (rank > 0).then(|| {
            let (up, down) = gang.call(0, b"mpid");
            mover.spawn(listen(down, gang.clone(), Arc::clone(&client), talks));
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
                ports,
                mover,
                stop: Mutex::new(Some(stop)),
                thread: Mutex::new(Some(thread)),
                up: Mutex::new(up),
                talks: talks_seen,
                leave,
            }),
            jobs: AtomicU32::new(0),
            gathers: AtomicU64::new(0),
            exchanges: AtomicU32::new(0),
            has_gathered: AtomicBool::new(false),
            has_results: AtomicBool::new(false),
            has_warned: AtomicBool::new(false),
            left: Arc::default(),
            is_launched: AtomicBool::new(false),
        })))
    }

    /// Of this rank among those that are left: as its launcher numbered it, as long as none was lost.
    pub fn rank(&self) -> usize {
        self.0.members.lock().at
    }

    /// The ranks that are left.
    pub fn ranks(&self) -> usize {
        self.0.members.lock().ranks.len()
    }

    /// Ranks on this host, this one included.
    pub fn ranks_here(&self) -> usize {
        self.0.members.lock().here
    }

    /// What the environment of each rank says of the knobs, once all have found it right. Collective: before
    /// the first job.
    ///
    /// Errors: of the first rank where it is wrong, on all ranks, which then can leave; [`Error::RankLost`].
    pub fn configure(&self) -> Result<Config, Error> {
        let own = Config::from_environment();
        let wrong = own.as_ref().err().map_or(String::new(), |error| error.to_string());
        let keeps = own.as_ref().is_ok_and(|config| config.checkpoint.is_some());
        let all = loop {
            match self.gather_before_all(wrong.as_bytes()) {
                // There is nothing yet that was lost with it.
                Err(Error::RankLost { .. }) if keeps && self.go_on().is_some() => {}
                told => break told?,
            }
        };
        let Some(rank) = all.iter().position(|wrong| !wrong.is_empty()) else { return own };
        let mut told = String::from_utf8_lossy(&all[rank]).into_owned();
        if all.iter().any(|other| *other != all[rank]) {
            told += &format!(" (on rank {})", self.launched(rank));
        }
        Err(Error::Configuration(told))
    }

    /// As its launcher numbered it, for errors.
    pub(crate) fn launched_rank(&self) -> usize {
        self.0.rank
    }

    /// For people: what carries blocks between the ranks.
    pub fn library(&self) -> String {
        self.0.link.as_ref().map_or("one process".to_string(), |link| link.gang.library().to_string())
    }

    /// What every rank says, by rank. Collective: returns when all ranks have called it.
    ///
    /// Errors: [`Error::RankLost`].
    pub fn gather(&self, bytes: &[u8]) -> Result<Vec<Vec<u8>>, Error> {
        self.0.has_gathered.store(true, Ordering::Relaxed);
        self.gather_before_all(bytes)
    }

    /// As [`World::gather`]; what is gathered so is not lost with a rank.
    fn gather_before_all(&self, bytes: &[u8]) -> Result<Vec<Vec<u8>>, Error> {
        let epoch = self.0.members.lock().epoch;
        let number = self.0.gathers.fetch_add(1, Ordering::Relaxed);
        self.tell(Up::Gather { epoch, number, bytes: bytes.to_vec() });
        let all = self.0.client.gathered(epoch, number)?;
        Ok(Arc::try_unwrap(all).unwrap_or_else(|all| (*all).clone()))
    }

    /// The loss behind the end of what came from `rank`.
    pub(crate) async fn loss_behind(&self, rank: usize, reason: String) -> Error {
        let (rank, reason) = match &self.0.link {
            Some(link) => first_lost(&link.gang, &self.0.client, rank, reason).await,
            None => (rank, reason),
        };
        Error::RankLost { rank, reason }
    }

    /// Whether the ranks have not told one another anything yet, so that nothing was lost with a rank that
    /// is.
    pub(crate) fn is_new(&self) -> bool {
        !self.0.has_gathered.load(Ordering::Relaxed) && self.0.members.lock().epoch == 0
    }

    /// A job has come to its end on all ranks.
    pub(crate) fn has_come_to_results(&self) {
        self.0.has_results.store(true, Ordering::Relaxed);
    }

    /// Whether this is the first call: what is warned of once.
    pub(crate) fn first_warning(&self) -> bool {
        !self.0.has_warned.swap(true, Ordering::Relaxed)
    }

    /// Whether results of a job are with the ranks, and are lost with them.
    pub(crate) fn has_results(&self) -> bool {
        self.0.has_results.load(Ordering::Relaxed)
    }

    /// Goes on with the ranks that are left. Returns those that are not, as the launcher numbered them;
    /// `None`: nobody can go on. All members call it when a collective call has failed on all of them. No job
    /// may run on this rank.
    pub(crate) fn go_on(&self) -> Option<Vec<usize>> {
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

    /// Leaves the other ranks in good order with this exit status. Collective; blocks until all have left.
    ///
    /// Errors: [`Error::RankLost`]. The ranks that are there still part.
    pub fn leave(&self, status: i32) -> Result<(), Error> {
        if self.0.left.swap(true, Ordering::SeqCst) {
            return Ok(());
        }
        let met = self.gather(&[]).map(|_| ());
        if self.0.rank == 0 && self.0.is_launched.load(Ordering::Relaxed) {
            let told = if met.is_ok() { status.to_string() } else { WITHOUT_OTHERS.to_string() };
            warn_untold(tell_mpidrun(&told));
        }
        let Some(link) = &self.0.link else { return met };
        drop(link.up.lock().take());
        if let Some(coordinator) = self.0.coordinator.as_ref().filter(|_| met.is_err()) {
            coordinator.disconnect();
        }
        // A talk with a rank that is lost has ended.
        let mut talks = link.talks.clone();
        let (ended, waiting) = oneshot::channel();
        link.mover.spawn(async move {
            let _ = talks.wait_for(|talks| *talks == 0).await;
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
        met
    }

    pub(crate) fn client(&self) -> &Arc<Client> {
        &self.0.client
    }

    pub(crate) fn coordinator(&self) -> Option<&Arc<Coordinator>> {
        self.0.coordinator.as_ref()
    }

    /// A number for a job: the n-th of the program, also when its ranks are started again.
    pub(crate) fn next_job(&self) -> u32 {
        self.0.jobs.fetch_add(1, Ordering::Relaxed)
    }

    /// A number for an exchange, the same on all members: a job that goes on after a loss has another one.
    pub(crate) fn next_exchange(&self) -> u32 {
        let epoch = self.0.members.lock().epoch;
        epoch * EXCHANGES_MAX + self.0.exchanges.fetch_add(1, Ordering::Relaxed) % EXCHANGES_MAX
    }

    /// The rank with this number, as the launcher numbered it.
    pub(crate) fn launched(&self, rank: usize) -> usize {
        self.0.members.lock().ranks[rank]
    }

    /// Tells rank 0 something. Never blocks.
    pub(crate) fn tell(&self, message: Up) {
        match (&self.0.coordinator, &self.0.link) {
            (Some(coordinator), _) => coordinator.take(0, message),
            (None, Some(link)) => {
                if let Some(up) = &*link.up.lock() {
                    up.send(&message.encode());
                }
            }
            (None, None) => unreachable!("who is alone is rank 0"),
        }
    }

    /// Asks rank 0 for an O task. `Ok(None)`: there is none left, or the job is to stop.
    pub(crate) fn take_task(&self, job: u32) -> Result<Option<u32>, Error> {
        self.tell(Up::Take { job });
        self.0.client.task(job)
    }

    pub(crate) fn begin(&self, job: u32, pool: Pool) {
        if let Some(coordinator) = &self.0.coordinator {
            coordinator.begin(job, pool);
        }
    }

    /// An empty block for a frame to rank `to`, with room for the frame's header and `bytes` more.
    pub(crate) fn block(&self, to: usize, bytes: usize) -> Block {
        let to = self.launched(to);
        match &self.0.link {
            Some(link) if to != self.0.rank => link.gang.block_for(to, bytes),
            _ => {
                let mut block = Block::with_capacity(limits::HEADER_BYTES + bytes);
                block.push_zeros(limits::HEADER_BYTES);
                block
            }
        }
    }

    /// The stream of a job's blocks from rank `from`.
    pub(crate) fn open(&self, from: usize, job: u32, window_bytes: usize) -> StreamReceiver {
        let link = self.0.link.as_ref().expect("there is another rank");
        let mut streams =
            link.gang.open(self.launched(from), &job.to_le_bytes(), 1, ReadOptions::window(window_bytes));
        streams.pop().expect("one was opened")
    }

    /// The other end of the stream that rank `to` opens here for a job, once it does.
    pub(crate) fn sender(&self, job: u32, to: usize) -> oneshot::Receiver<StreamSender> {
        self.0.link.as_ref().expect("there is another rank").ports.wait(job, self.launched(to))
    }

    pub(crate) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.0.link.as_ref().expect("there is another rank").mover.spawn(work);
    }

    /// Nothing of jobs up to this one is wanted any more.
    pub(crate) fn end_job(&self, job: u32) {
        self.0.client.forget(job);
        if let Some(link) = &self.0.link {
            link.ports.end(job);
        }
    }
}

/// Streams that other ranks have opened, until their jobs take them; and jobs that wait for one.
#[derive(Default)]
struct Ports {
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

impl Ports {
    fn arrive(&self, job: u32, from: usize, sender: StreamSender) {
        let mut slots = self.slots.lock();
        if job < slots.ended {
            // Its reader does not want it either: it ends as it is dropped.
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

/// What this rank does with streams that others open to it.
struct Doors {
    ports: Arc<Ports>,
    coordinator: Option<Arc<Coordinator>>,
    mover: Handle,
    talks: Arc<watch::Sender<usize>>,
}

impl Service for Doors {
    fn open(&self, incoming: Incoming) {
        let Incoming { from, call, request, mut senders, messages } = incoming;
        let Some(sender) = senders.pop() else { return };
        if call {
            if let Some(coordinator) = &self.coordinator {
                let (tell, told) = mpsc::unbounded_channel();
                coordinator.connect(from, tell);
                self.talks.send_modify(|talks| *talks += 1);
                let coordinator = Arc::clone(coordinator);
                self.mover.spawn(talk(from, messages, sender, told, coordinator, Arc::clone(&self.talks)));
            }
            return;
        }
        // Bytes that are no number of a job: the stream fails as its sender is dropped.
        if let Ok(job) = request[..].try_into().map(u32::from_le_bytes) {
            self.ports.arrive(job, from, sender);
        }
    }
}

/// Rank 0 tells the others who is lost. They look for themselves only whether rank 0 still is there.
async fn watch_losses(gang: Interconnect, coordinator: Option<Arc<Coordinator>>, client: Arc<Client>) {
    let mut known = 0;
    loop {
        let losses = gang.lost(known).await;
        for (rank, reason) in &losses[known..] {
            match &coordinator {
                Some(coordinator) => coordinator.lose(*rank, reason),
                None if *rank == 0 => {
                    let (first, reason) = first_lost(&gang, &client, 0, reason.clone()).await;
                    client.lose_coordinator(first, reason);
                }
                None => {}
            }
        }
        known = losses.len();
    }
}

/// Rank 0's talk with another rank.
async fn talk(
    from: usize,
    mut messages: MessageReceiver,
    mut sender: StreamSender,
    mut told: mpsc::UnboundedReceiver<Down>,
    coordinator: Arc<Coordinator>,
    talks: Arc<watch::Sender<usize>>,
) {
    let hear = async {
        while let Some(message) = messages.next().await {
            let message: Bytes = message;
            match Up::decode(&message) {
                Ok(message) => coordinator.take(from, message),
                Err(damaged) => tracing::warn!(from, %damaged, "a message is not understood"),
            }
        }
    };
    let say = async {
        while let Some(message) = told.recv().await {
            if sender.send_message(&message.encode()).await.is_err() {
                break;
            }
        }
    };
    tokio::select! {
        () = hear => {}
        // Whoever takes no more is lost, which is told another way.
        () = say => {}
    }
    sender.finish();
    talks.send_modify(|talks| *talks -= 1);
    // Nobody shall wait for one that has left alone. Of one that was lost it is said why, until then; after a
    // good end nobody is here.
    tokio::time::sleep(LOSS_PATIENCE).await;
    coordinator.lose(from, "it has left");
}

/// Who was lost first, and why, where `rank` is heard of no more for this reason: ranks that miss another
/// leave, and that may be heard before the other one's loss.
async fn first_lost(gang: &Interconnect, client: &Client, rank: usize, reason: String) -> (usize, String) {
    let accepted = client.accepted();
    let news = async {
        let mut known = 0;
        loop {
            let losses = gang.lost(known).await;
            if let Some(news) = losses.iter().find(|(lost, _)| !accepted.contains(lost)) {
                return news.clone();
            }
            known = losses.len();
        }
    };
    tokio::time::timeout(LOSS_PATIENCE, news).await.unwrap_or((rank, reason))
}

/// Another rank's talk with rank 0.
async fn listen(
    mut down: MessageStream,
    gang: Interconnect,
    client: Arc<Client>,
    talks: Arc<watch::Sender<usize>>,
) {
    while let Some(message) = down.next().await {
        match message.map(|message| Down::decode(&message)) {
            Ok(Ok(message)) => client.hear(message),
            Ok(Err(damaged)) => client.lose_coordinator(0, damaged.to_string()),
            Err(error) => {
                let (rank, reason) = first_lost(&gang, &client, 0, error.to_string()).await;
                client.lose_coordinator(rank, reason);
            }
        }
    }
    // Whoever waits here would not be told anything any more.
    client.lose_coordinator(0, "it has left".to_string());
    talks.send_modify(|talks| *talks -= 1);
}
