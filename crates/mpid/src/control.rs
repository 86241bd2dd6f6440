//! The talk between ranks besides pairs: rank 0 hands out O tasks, gathers what ranks tell, and passes failures on.
//!
//! ```text
//!   rank r                     rank 0
//!   Take{job}          ──────►  the next O task of the job, or none
//!   Gather{n, bytes}   ──────►  when all ranks have come to their n-th: everything to everybody
//!   Fail{job}          ──────►  Abort{job} to everybody
//!   Stored{job, task}  ──────►  when every A task has it: the commit is written (checkpoints only)
//! ```
//!
//! # Invariants
//! - Ranks gather in the same order: the n-th gather of one is the n-th of all.
//! - Who waits here is woken by a loss of any rank, and waits for no other reason than a rank that still works.

use crate::checkpoint::Commits;
use crate::error::{Damaged, Error};
use crate::wire::{Reader, Writer};
use parking_lot::{Condvar, Mutex};
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use tokio::sync::{mpsc, watch};

/// What a rank tells rank 0.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Up {
    Take { job: u32 },
    Gather { number: u64, bytes: Vec<u8> },
    Fail { job: u32 },
    Stored { job: u32, o_task: u32 },
}

/// What rank 0 tells a rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Down {
    Task {
        job: u32,
        o_task: Option<u32>,
    },
    Gathered {
        number: u64,
        all: Arc<Vec<Vec<u8>>>,
    },
    Abort {
        job: u32,
    },
    /// A rank is lost, and rank 0 is about to part.
    Lost {
        rank: usize,
        reason: String,
    },
}

impl Up {
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Writer::default();
        match self {
            Up::Take { job } => out.u8(1).u32(*job),
            Up::Gather { number, bytes } => out.u8(2).u64(*number).bytes(bytes),
            Up::Fail { job } => out.u8(3).u32(*job),
            Up::Stored { job, o_task } => out.u8(4).u32(*job).u32(*o_task),
        };
        out.0
    }

    pub fn decode(bytes: &[u8]) -> Result<Up, Damaged> {
        let mut input = Reader(bytes);
        Ok(match input.u8()? {
            1 => Up::Take { job: input.u32()? },
            2 => Up::Gather { number: input.u64()?, bytes: input.bytes()?.to_vec() },
            3 => Up::Fail { job: input.u32()? },
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
            Down::Gathered { number, all } => {
                out.u8(2).u64(*number).u64(all.len() as u64);
                all.iter().for_each(|bytes| {
                    out.bytes(bytes);
                });
            }
            Down::Abort { job } => {
                out.u8(3).u32(*job);
            }
            Down::Lost { rank, reason } => {
                out.u8(4).u64(*rank as u64).text(reason);
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
                let number = input.u64()?;
                let ranks = input.u64()?;
                let all = (0..ranks).map(|_| Ok(input.bytes()?.to_vec())).collect::<Result<_, Damaged>>()?;
                Down::Gathered { number, all: Arc::new(all) }
            }
            3 => Down::Abort { job: input.u32()? },
            4 => Down::Lost { rank: input.u64()? as usize, reason: input.text()? },
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

impl Coordinator {
    pub fn new(ranks: usize, own: Arc<Client>) -> Coordinator {
        let state = CoordinatorState {
            peers: (0..ranks).map(|_| None).collect(),
            gathers: HashMap::new(),
            jobs: HashMap::new(),
        };
        Coordinator { state: Mutex::new(state), own }
    }

    /// Says how `rank` is told things.
    pub fn connect(&self, rank: usize, peer: mpsc::UnboundedSender<Down>) {
        self.state.lock().peers[rank] = Some(peer);
    }

    /// Nothing more is told. If ranks part because one was lost, the last word is which: what else they would see is that this rank
    /// left, and it may reach them first.
    pub fn disconnect(&self) {
        let mut state = self.state.lock();
        let lost = self.own.heard.lock().lost.clone();
        for peer in state.peers.iter_mut().filter_map(Option::take) {
            if let Some((rank, reason)) = lost.clone() {
                let _ = peer.send(Down::Lost { rank, reason });
            }
        }
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
            Up::Gather { number, bytes } => {
                let all = state.gathers.entry(number).or_insert_with(|| vec![None; ranks]);
                all[from] = Some(bytes);
                if all.iter().all(Option::is_some) {
                    let all = state.gathers.remove(&number).expect("it is there");
                    let all = Arc::new(all.into_iter().flatten().collect::<Vec<_>>());
                    for rank in 0..ranks {
                        self.tell(&state, rank, Down::Gathered { number, all: Arc::clone(&all) });
                    }
                }
            }
            Up::Fail { job } => (0..ranks).for_each(|rank| self.tell(&state, rank, Down::Abort { job })),
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
    gathered: HashMap<u64, Arc<Vec<Vec<u8>>>>,
    /// By job: told to whoever works for it.
    aborts: HashMap<u32, watch::Sender<bool>>,
    aborted: HashSet<u32>,
    lost: Option<(usize, String)>,
}

impl Client {
    pub fn new() -> Client {
        Client { heard: Mutex::default(), news: Condvar::new() }
    }

    pub fn hear(&self, message: Down) {
        if let Down::Lost { rank, reason } = message {
            return self.lose(rank, reason);
        }
        let mut heard = self.heard.lock();
        match message {
            Down::Task { job, o_task } => heard.tasks.entry(job).or_default().push_back(o_task),
            Down::Gathered { number, all } => {
                heard.gathered.insert(number, all);
            }
            Down::Abort { job } => {
                heard.aborted.insert(job);
                if let Some(abort) = heard.aborts.get(&job) {
                    abort.send_replace(true);
                }
            }
            Down::Lost { .. } => unreachable!("it was just looked at"),
        }
        self.news.notify_all();
    }

    /// A rank is lost: nobody who waits will be answered.
    pub fn lose(&self, rank: usize, reason: String) {
        let mut heard = self.heard.lock();
        heard.lost.get_or_insert((rank, reason));
        heard.aborts.values().for_each(|abort| {
            abort.send_replace(true);
        });
        self.news.notify_all();
    }

    pub fn loss(&self) -> Option<Error> {
        let heard = self.heard.lock();
        heard.lost.as_ref().map(|(rank, reason)| Error::RankLost { rank: *rank, reason: reason.clone() })
    }

    /// Becomes true when the job is to stop.
    pub fn aborts(&self, job: u32) -> watch::Receiver<bool> {
        let mut heard = self.heard.lock();
        let now = heard.aborted.contains(&job) || heard.lost.is_some();
        heard.aborts.entry(job).or_insert_with(|| watch::channel(now).0).subscribe()
    }

    /// Stops the job on this rank alone.
    pub fn abort_here(&self, job: u32) {
        self.hear(Down::Abort { job });
    }

    pub fn forget(&self, job: u32) {
        let mut heard = self.heard.lock();
        heard.tasks.remove(&job);
        heard.aborts.remove(&job);
    }

    /// Waits for the answer to one [`Up::Take`]. `Ok(None)`: there is none, or the job is to stop.
    pub fn task(&self, job: u32) -> Result<Option<u32>, Error> {
        let mut heard = self.heard.lock();
        loop {
            if let Some((rank, reason)) = &heard.lost {
                return Err(Error::RankLost { rank: *rank, reason: reason.clone() });
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

    /// Waits until every rank has come to its gather of this number.
    pub fn gathered(&self, number: u64) -> Result<Arc<Vec<Vec<u8>>>, Error> {
        let mut heard = self.heard.lock();
        loop {
            if let Some(all) = heard.gathered.remove(&number) {
                return Ok(all);
            }
            if let Some((rank, reason)) = &heard.lost {
                return Err(Error::RankLost { rank: *rank, reason: reason.clone() });
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
            Up::Gather { number: 1 << 40, bytes: vec![1, 2] },
            Up::Fail { job: 1 },
            Up::Stored { job: 1, o_task: 9 },
        ] {
            assert_eq!(Up::decode(&up.encode()).unwrap(), up);
        }
        for down in [
            Down::Task { job: 1, o_task: Some(0) },
            Down::Task { job: 1, o_task: None },
            Down::Gathered { number: 2, all: Arc::new(vec![vec![], vec![5]]) },
            Down::Abort { job: 8 },
            Down::Lost { rank: 2, reason: "it ended".to_string() },
        ] {
            assert_eq!(Down::decode(&down.encode()).unwrap(), down);
            assert!(Down::decode(&down.encode()[..3]).is_err());
        }
        assert!(Up::decode(&[9]).is_err() && Down::decode(&[]).is_err());
    }
}
