//! The talk between ranks besides pairs: rank 0 hands out O tasks, gathers what ranks tell, and passes
//! failures on.
//!
//! ```text
//!   rank r                     rank 0
//!   Take{job}          ──────►  the next O task of the job, or none
//!   Gather{n, bytes}   ──────►  when all members have come to their n-th: everything to everybody
//!   Fail{job}          ──────►  Abort{job} to everybody
//!   Stored{job, task}  ──────►  when every A task has it: the commit is written (checkpoints only)
//!                      ◄──────  Lost{rank}, when a rank is lost: the beginning of an epoch
//! ```
//!
//! # Invariants
//! - Ranks gather in the same order: the n-th gather of one in an epoch is the n-th of all.
//! - A loss comes between the same two gathers on every rank: rank 0 tells of both in one order, and what was
//!   gathered before the loss is found by who comes for it later. So all ranks agree on whether a job had
//!   ended before.
//! - Who waits here is woken by a loss of any rank, and waits for no other reason than a rank that still
//!   works.
//! - After a loss nothing is gathered until it is accepted ([`Client::accept_losses`]), which begins the next
//!   epoch on this rank. What is left of an earlier epoch is not looked at.

use crate::checkpoint::Commits;
use crate::error::{Damaged, Error};
use crate::wire::{Reader, Writer};
use parking_lot::{Condvar, Mutex};
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, watch};

/// How long rank 0 may take to tell of a loss that another rank has heard of: longer than silence tells.
const TOLD_PATIENCE: Duration = Duration::from_secs(10);

/// How long why a job has failed may be on its way, to a rank that is about to end without having heard it.
const WHY_PATIENCE: Duration = Duration::from_millis(500);

/// What a rank tells rank 0.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Up {
    Take {
        job: u32,
    },
    Gather {
        epoch: u32,
        number: u64,
        bytes: Vec<u8>,
    },
    /// `why`: what the rank says of it.
    Fail {
        job: u32,
        why: String,
    },
    Stored {
        job: u32,
        o_task: u32,
    },
}

/// What rank 0 tells a rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Down {
    Task {
        job: u32,
        o_task: Option<u32>,
    },
    Gathered {
        epoch: u32,
        number: u64,
        /// Of the members, in the order of their ranks.
        all: Arc<Vec<Vec<u8>>>,
    },
    /// A job is to stop. `why`: what the rank that has stopped it says.
    Abort {
        job: u32,
        why: String,
    },
    /// A rank is lost, and the epoch of this number begins.
    Lost {
        rank: usize,
        reason: String,
        epoch: u32,
    },
}

impl Up {
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Writer::default();
        match self {
            Up::Take { job } => out.u8(1).u32(*job),
            Up::Gather { epoch, number, bytes } => out.u8(2).u32(*epoch).u64(*number).bytes(bytes),
            Up::Fail { job, why } => out.u8(3).u32(*job).text(why),
            Up::Stored { job, o_task } => out.u8(4).u32(*job).u32(*o_task),
        };
        out.0
    }

    pub fn decode(bytes: &[u8]) -> Result<Up, Damaged> {
        let mut input = Reader(bytes);
        Ok(match input.u8()? {
            1 => Up::Take { job: input.u32()? },
            2 => Up::Gather { epoch: input.u32()?, number: input.u64()?, bytes: input.bytes()?.to_vec() },
            3 => Up::Fail { job: input.u32()?, why: input.text()? },
            4 => Up::Stored { job: input.u32()?, o_task: input.u32()? },
            _ => return Err(Damaged("a message of no kind")),
        })
    }
}

impl Down {
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Writer::default();
        match self {
            Down::Task { job, o_task } => {
                out.u8(1).u32(*job).u8(u8::from(o_task.is_some())).u32(o_task.unwrap_or(0));
            }
            Down::Gathered { epoch, number, all } => {
                out.u8(2).u32(*epoch).u64(*number).u64(all.len() as u64);
                all.iter().for_each(|bytes| {
                    out.bytes(bytes);
                });
            }
            Down::Abort { job, why } => {
                out.u8(3).u32(*job).text(why);
            }
            Down::Lost { rank, reason, epoch } => {
                out.u8(4).u64(*rank as u64).text(reason).u32(*epoch);
            }
        }
        out.0
    }

    pub fn decode(bytes: &[u8]) -> Result<Down, Damaged> {
        let mut input = Reader(bytes);
        Ok(match input.u8()? {
            1 => {
                let job = input.u32()?;
                let some = input.u8()? != 0;
                let o_task = input.u32()?;
                Down::Task { job, o_task: some.then_some(o_task) }
            }
            2 => {
                let (epoch, number) = (input.u32()?, input.u64()?);
                let ranks = input.u64()?;
                let all = (0..ranks).map(|_| Ok(input.bytes()?.to_vec())).collect::<Result<_, Damaged>>()?;
                Down::Gathered { epoch, number, all: Arc::new(all) }
            }
            3 => Down::Abort { job: input.u32()?, why: input.text()? },
            4 => Down::Lost { rank: input.u64()? as usize, reason: input.text()?, epoch: input.u32()? },
            _ => return Err(Damaged("a message of no kind")),
        })
    }
}

/// Rank 0's side.
pub(crate) struct Coordinator {
    state: Mutex<CoordinatorState>,
    own: Arc<Client>,
}

struct CoordinatorState {
    /// To every other rank that has called, by rank.
    peers: Vec<Option<mpsc::UnboundedSender<Down>>>,
    /// Ranks that are lost, in that order, and why.
    losses: Vec<(usize, String)>,
    /// Nothing more is told.
    is_over: bool,
    /// Of this epoch.
    gathers: HashMap<u64, Vec<Option<Vec<u8>>>>,
    jobs: HashMap<u32, Pool>,
}

/// The O tasks of a job that are left, and those that are stored.
#[derive(Default)]
pub(crate) struct Pool {
    pub left: VecDeque<u32>,
    pub given: usize,
    /// How many A tasks have all of an O task; a checkpoint's only.
    pub stored: HashMap<u32, u32>,
    pub a_tasks: u32,
    pub commits: Option<Commits>,
}

impl CoordinatorState {
    /// Losses so far.
    fn epoch(&self) -> u32 {
        self.losses.len() as u32
    }

    fn is_lost(&self, rank: usize) -> bool {
        self.losses.iter().any(|(lost, _)| *lost == rank)
    }
}

impl Coordinator {
    pub fn new(ranks: usize, own: Arc<Client>) -> Coordinator {
        let state = CoordinatorState {
            peers: (0..ranks).map(|_| None).collect(),
            losses: Vec::new(),
            is_over: false,
            gathers: HashMap::new(),
            jobs: HashMap::new(),
        };
        Coordinator { state: Mutex::new(state), own }
    }

    /// Says how `rank` is told things. It is told of losses that were before it came.
    pub fn connect(&self, rank: usize, peer: mpsc::UnboundedSender<Down>) {
        let mut state = self.state.lock();
        for (at, (lost, reason)) in state.losses.iter().enumerate() {
            let _ = peer.send(Down::Lost { rank: *lost, reason: reason.clone(), epoch: at as u32 + 1 });
        }
        if !state.is_over {
            state.peers[rank] = Some(peer);
        }
    }

    /// Nothing more is told.
    pub fn disconnect(&self) {
        let mut state = self.state.lock();
        state.is_over = true;
        state.peers.iter_mut().for_each(|peer| *peer = None);
    }

    /// A rank is lost: tells every rank, behind what was gathered before.
    pub fn lose(&self, rank: usize, reason: &str) {
        let mut state = self.state.lock();
        if state.is_lost(rank) {
            return;
        }
        state.losses.push((rank, reason.to_string()));
        state.gathers.clear();
        let epoch = state.epoch();
        for other in (0..state.peers.len()).filter(|other| *other != rank) {
            self.tell(&state, other, Down::Lost { rank, reason: reason.to_string(), epoch });
        }
        state.peers[rank] = None;
    }

    /// Says what O tasks a job has, before any rank asks for one.
    pub fn begin(&self, job: u32, pool: Pool) {
        self.state.lock().jobs.insert(job, pool);
    }

    /// Returns how many O tasks were handed out, and how many there still are.
    pub fn progress(&self, job: u32) -> (usize, usize) {
        self.state.lock().jobs.get(&job).map_or((0, 0), |pool| (pool.given, pool.left.len()))
    }

    /// Ends a job; returns its checkpoint, if it has one.
    pub fn end(&self, job: u32) -> Option<Commits> {
        self.state.lock().jobs.remove(&job).and_then(|pool| pool.commits)
    }

    pub fn take(&self, from: usize, message: Up) {
        let mut state = self.state.lock();
        let ranks = state.peers.len();
        match message {
            Up::Take { job } => {
                let o_task = state.jobs.get_mut(&job).and_then(|pool| {
                    let o_task = pool.left.pop_front()?;
                    pool.given += 1;
                    Some(o_task)
                });
                self.tell(&state, from, Down::Task { job, o_task });
            }
            Up::Gather { epoch, number, bytes } => {
                if epoch != state.epoch() || state.is_lost(from) {
                    return;
                }
                let state = &mut *state;
                let all = state.gathers.entry(number).or_insert_with(|| vec![None; ranks]);
                all[from] = Some(bytes);
                let is_lost = |rank: usize| state.losses.iter().any(|(lost, _)| *lost == rank);
                if all.iter().enumerate().all(|(rank, said)| said.is_some() || is_lost(rank)) {
                    let all = state.gathers.remove(&number).expect("it is there");
                    let all = Arc::new(all.into_iter().flatten().collect::<Vec<_>>());
                    for rank in 0..ranks {
                        self.tell(state, rank, Down::Gathered { epoch, number, all: Arc::clone(&all) });
                    }
                }
            }
            Up::Fail { job, why } => {
                (0..ranks).for_each(|rank| self.tell(&state, rank, Down::Abort { job, why: why.clone() }));
            }
            Up::Stored { job, o_task } => {
                let Some(pool) = state.jobs.get_mut(&job) else { return };
                let stored = pool.stored.entry(o_task).or_default();
                *stored += 1;
                if *stored < pool.a_tasks {
                    return;
                }
                if let Some(Err(error)) = pool.commits.as_mut().map(|commits| commits.commit(o_task)) {
                    // The job goes on; after a death, this O task runs again.
                    tracing::warn!(%error, o_task, "a commit was not written");
                }
            }
        }
    }

    fn tell(&self, state: &CoordinatorState, rank: usize, message: Down) {
        if rank == 0 {
            return self.own.hear(message);
        }
        if let Some(peer) = &state.peers[rank] {
            // A rank that is lost hears nothing.
            let _ = peer.send(message);
        }
    }
}

/// Every rank's side: what it has heard, and who waits for it.
pub(crate) struct Client {
    heard: Mutex<Heard>,
    news: Condvar,
}

#[derive(Default)]
struct Heard {
    tasks: HashMap<u32, VecDeque<Option<u32>>>,
    /// By epoch and number.
    gathered: HashMap<(u32, u64), Arc<Vec<Vec<u8>>>>,
    /// By job: told to whoever works for it.
    aborts: HashMap<u32, watch::Sender<bool>>,
    aborted: HashSet<u32>,
    /// By job: the first word of why it is to stop.
    whys: HashMap<u32, String>,
    /// Losses that were not accepted yet, in their order.
    lost: Vec<(usize, String)>,
    /// Those that were.
    accepted: HashSet<usize>,
    /// Rank 0 tells nothing any more, because this rank was lost.
    silent: Option<(usize, String)>,
    /// Losses so far.
    epoch: u32,
}

impl Heard {
    fn loss(&self) -> Option<Error> {
        // Rank 0 leaves because of a loss, too, and then is silent.
        let (rank, reason) = self.lost.first().or(self.silent.as_ref())?;
        Some(Error::RankLost { rank: *rank, reason: reason.clone() })
    }

    fn stop(&mut self, job: u32) {
        self.aborted.insert(job);
        if let Some(abort) = self.aborts.get(&job) {
            abort.send_replace(true);
        }
    }

    fn stop_all(&self) {
        self.aborts.values().for_each(|abort| {
            abort.send_replace(true);
        });
    }
}

impl Client {
    pub fn new() -> Client {
        Client { heard: Mutex::default(), news: Condvar::new() }
    }

    pub fn hear(&self, message: Down) {
        let mut heard = self.heard.lock();
        match message {
            Down::Task { job, o_task } => heard.tasks.entry(job).or_default().push_back(o_task),
            Down::Gathered { epoch, number, all } => {
                heard.gathered.insert((epoch, number), all);
            }
            Down::Abort { job, why } => {
                heard.whys.entry(job).or_insert(why);
                heard.stop(job);
            }
            Down::Lost { rank, reason, epoch } => {
                heard.epoch = epoch;
                heard.lost.push((rank, reason));
                // Nobody who waits will be answered.
                heard.stop_all();
            }
        }
        self.news.notify_all();
    }

    /// Rank 0 tells nothing any more, because `rank` was lost, which may be another one that rank 0 has
    /// missed.
    pub fn lose_coordinator(&self, rank: usize, reason: String) {
        let mut heard = self.heard.lock();
        heard.silent.get_or_insert((rank, reason));
        heard.stop_all();
        self.news.notify_all();
    }

    /// Whether a rank was lost, without which this one has not gone on.
    pub fn misses_a_rank(&self) -> bool {
        self.heard.lock().loss().is_some()
    }

    /// Ranks whose loss was accepted.
    pub fn accepted(&self) -> HashSet<usize> {
        self.heard.lock().accepted.clone()
    }

    /// Begins the latest epoch: whoever asks from now on is told by the members that are left. Waits until
    /// rank 0 has told of a loss, which others may have heard of before. Returns the epoch's number, and the
    /// ranks that were lost since the last time; `None` if there is none, or nothing can be told any more.
    /// Nobody may wait.
    pub fn accept_losses(&self) -> Option<(u32, Vec<usize>)> {
        let deadline = Instant::now() + TOLD_PATIENCE;
        let mut heard = self.heard.lock();
        while heard.loss().is_none() {
            if self.news.wait_until(&mut heard, deadline).timed_out() {
                return None;
            }
        }
        if heard.silent.is_some() {
            return None;
        }
        let lost: Vec<usize> = std::mem::take(&mut heard.lost).into_iter().map(|(rank, _)| rank).collect();
        heard.accepted.extend(&lost);
        let epoch = heard.epoch;
        heard.gathered.retain(|(of, _), _| *of >= epoch);
        Some((epoch, lost))
    }

    /// Becomes true when the job is to stop.
    pub fn aborts(&self, job: u32) -> watch::Receiver<bool> {
        let mut heard = self.heard.lock();
        let now = heard.aborted.contains(&job) || heard.loss().is_some();
        heard.aborts.entry(job).or_insert_with(|| watch::channel(now).0).subscribe()
    }

    /// Stops the job on this rank alone.
    pub fn abort_here(&self, job: u32) {
        self.heard.lock().stop(job);
        self.news.notify_all();
    }

    /// Why a job that stops does so, in the words of the rank that has stopped it. One that has stopped here
    /// may have to wait for that, not long. `None`: it does not stop, or nobody has said.
    pub fn why(&self, job: u32) -> Option<String> {
        let deadline = Instant::now() + WHY_PATIENCE;
        let mut heard = self.heard.lock();
        loop {
            if let Some(why) = heard.whys.get(&job) {
                return Some(why.clone());
            }
            if !heard.aborted.contains(&job) || heard.loss().is_some() {
                return None;
            }
            if self.news.wait_until(&mut heard, deadline).timed_out() {
                return None;
            }
        }
    }

    pub fn forget(&self, job: u32) {
        let mut heard = self.heard.lock();
        heard.tasks.remove(&job);
        heard.aborts.remove(&job);
        heard.whys.remove(&job);
    }

    /// Waits for the answer to one [`Up::Take`]. `Ok(None)`: there is none, or the job is to stop.
    pub fn task(&self, job: u32) -> Result<Option<u32>, Error> {
        let mut heard = self.heard.lock();
        loop {
            if let Some(loss) = heard.loss() {
                return Err(loss);
            }
            if heard.aborted.contains(&job) {
                return Ok(None);
            }
            if let Some(o_task) = heard.tasks.get_mut(&job).and_then(VecDeque::pop_front) {
                return Ok(o_task);
            }
            self.news.wait(&mut heard);
        }
    }

    /// Waits until every member has come to its gather of this number.
    pub fn gathered(&self, epoch: u32, number: u64) -> Result<Arc<Vec<Vec<u8>>>, Error> {
        let mut heard = self.heard.lock();
        loop {
            if let Some(all) = heard.gathered.remove(&(epoch, number)) {
                return Ok(all);
            }
            if let Some(loss) = heard.loss() {
                return Err(loss);
            }
            self.news.wait(&mut heard);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_come_back() {
        for up in [
            Up::Take { job: 3 },
            Up::Gather { epoch: 2, number: 1 << 40, bytes: vec![1, 2] },
            Up::Fail { job: 1, why: "a reason".to_string() },
            Up::Stored { job: 1, o_task: 9 },
        ] {
            assert_eq!(Up::decode(&up.encode()).unwrap(), up);
        }
        for down in [
            Down::Task { job: 1, o_task: Some(0) },
            Down::Task { job: 1, o_task: None },
            Down::Gathered { epoch: 1, number: 2, all: Arc::new(vec![vec![], vec![5]]) },
            Down::Abort { job: 8, why: "a reason".to_string() },
            Down::Lost { rank: 2, reason: "it ended".to_string(), epoch: 3 },
        ] {
            assert_eq!(Down::decode(&down.encode()).unwrap(), down);
            assert!(Down::decode(&down.encode()[..3]).is_err());
        }
        assert!(Up::decode(&[9]).is_err() && Down::decode(&[]).is_err());
    }
}
