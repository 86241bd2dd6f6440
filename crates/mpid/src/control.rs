//! Control messages between ranks: rank 0 hands out O tasks, gathers the ranks' data, and broadcasts
//! failures.
//!
//! ```text
//!   rank r                     rank 0
//!   Take{job}          ──────►  the next O task of the job, or none
//!   Gather{n, bytes}   ──────►  when all members have sent their n-th: all data to everybody
//!   Fail{job}          ──────►  Abort{job} to everybody
//!   Stored{job, task}  ──────►  when every A task has logged it: the commit is written (checkpoints only)
//!                      ◄──────  Lost{rank}, when a rank is lost: begins an epoch
//! ```
//!
//! # Invariants
//! - Ranks gather in the same order: the n-th gather of a rank in an epoch is the n-th gather of all.
//! - On every rank, a loss falls between the same two gathers: rank 0 announces both in one order, and the
//!   result of a gather before the loss stays available to late readers. So all ranks agree on whether a job
//!   had ended before.
//! - A waiter is woken by the loss of any rank, and otherwise waits only for a rank that is still working.
//! - After a loss nothing is gathered until the loss is accepted ([`Client::accept_losses`]), which begins
//!   the next epoch on this rank. Messages of earlier epochs are ignored.

use crate::checkpoint::Commits;
use crate::error::Error;
use crate::wire::Damaged;
use crate::wire::{Reader, Writer};
use parking_lot::{Condvar, Mutex};
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, watch};

/// Time limit for rank 0 to announce a loss that another rank has detected: longer than the detection of a
/// silent rank takes.
const LOSS_ANNOUNCEMENT_WAIT_MAX: Duration = Duration::from_secs(10);

/// Time that a failing rank waits for the reason of a job's failure, which may still be in flight.
const REASON_WAIT_MAX: Duration = Duration::from_millis(500);

/// A message to rank 0.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ToRank0 {
    Take {
        job: u32,
    },
    Gather {
        epoch: u32,
        number: u64,
        bytes: Vec<u8>,
    },
    /// `why`: the rank's reason.
    Fail {
        job: u32,
        why: String,
    },
    Stored {
        job: u32,
        o_task: u32,
    },
}

/// A message from rank 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FromRank0 {
    Task {
        job: u32,
        o_task: Option<u32>,
    },
    Gathered {
        epoch: u32,
        number: u64,
        /// By member, in rank order.
        all: Arc<Vec<Vec<u8>>>,
    },
    /// The job must stop. `why`: the reason of the rank that stopped it.
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

impl ToRank0 {
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Writer::default();
        match self {
            ToRank0::Take { job } => out.u8(1).u32(*job),
            ToRank0::Gather { epoch, number, bytes } => out.u8(2).u32(*epoch).u64(*number).bytes(bytes),
            ToRank0::Fail { job, why } => out.u8(3).u32(*job).text(why),
            ToRank0::Stored { job, o_task } => out.u8(4).u32(*job).u32(*o_task),
        };
        out.0
    }

    pub fn decode(bytes: &[u8]) -> Result<ToRank0, Damaged> {
        let mut input = Reader(bytes);
        Ok(match input.u8()? {
            1 => ToRank0::Take { job: input.u32()? },
            2 => {
                ToRank0::Gather { epoch: input.u32()?, number: input.u64()?, bytes: input.bytes()?.to_vec() }
            }
            3 => ToRank0::Fail { job: input.u32()?, why: input.text()? },
            4 => ToRank0::Stored { job: input.u32()?, o_task: input.u32()? },
            _ => return Err(Damaged("a message of no kind")),
        })
    }
}

impl FromRank0 {
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Writer::default();
        match self {
            FromRank0::Task { job, o_task } => {
                out.u8(1).u32(*job).u8(u8::from(o_task.is_some())).u32(o_task.unwrap_or(0));
            }
            FromRank0::Gathered { epoch, number, all } => {
                out.u8(2).u32(*epoch).u64(*number).u64(all.len() as u64);
                all.iter().for_each(|bytes| {
                    out.bytes(bytes);
                });
            }
            FromRank0::Abort { job, why } => {
                out.u8(3).u32(*job).text(why);
            }
            FromRank0::Lost { rank, reason, epoch } => {
                out.u8(4).u64(*rank as u64).text(reason).u32(*epoch);
            }
        }
        out.0
    }

    pub fn decode(bytes: &[u8]) -> Result<FromRank0, Damaged> {
        let mut input = Reader(bytes);
        Ok(match input.u8()? {
            1 => {
                let job = input.u32()?;
                let some = input.u8()? != 0;
                let o_task = input.u32()?;
                FromRank0::Task { job, o_task: some.then_some(o_task) }
            }
            2 => {
                let (epoch, number) = (input.u32()?, input.u64()?);
                let ranks = input.u64()?;
                let all = (0..ranks).map(|_| Ok(input.bytes()?.to_vec())).collect::<Result<_, Damaged>>()?;
                FromRank0::Gathered { epoch, number, all: Arc::new(all) }
            }
            3 => FromRank0::Abort { job: input.u32()?, why: input.text()? },
            4 => FromRank0::Lost { rank: input.u64()? as usize, reason: input.text()?, epoch: input.u32()? },
            _ => return Err(Damaged("a message of no kind")),
        })
    }
}

/// State of rank 0.
pub(crate) struct Coordinator {
    state: Mutex<CoordinatorState>,
    own: Arc<Client>,
}

struct CoordinatorState {
    /// By rank: the channel to every other connected rank.
    peers: Vec<Option<mpsc::UnboundedSender<FromRank0>>>,
    /// Lost ranks and reasons, in order of detection.
    losses: Vec<(usize, String)>,
    /// No more messages are sent.
    is_over: bool,
    /// Gathers of this epoch.
    gathers: HashMap<u64, Vec<Option<Vec<u8>>>>,
    jobs: HashMap<u32, Pool>,
}

/// The O tasks of a job that are left to hand out, and those stored.
#[derive(Default)]
pub(crate) struct Pool {
    pub remaining: VecDeque<u32>,
    pub handed_out: usize,
    /// Number of A tasks that have logged all of an O task; only with a checkpoint.
    pub stored: HashMap<u32, u32>,
    pub a_tasks: u32,
    pub commits: Option<Commits>,
}

impl CoordinatorState {
    /// Number of losses so far.
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

    /// Registers the channel to `rank`, after sending it the losses so far.
    pub fn connect(&self, rank: usize, peer: mpsc::UnboundedSender<FromRank0>) {
        let mut state = self.state.lock();
        for (at, (lost, reason)) in state.losses.iter().enumerate() {
            let _ = peer.send(FromRank0::Lost { rank: *lost, reason: reason.clone(), epoch: at as u32 + 1 });
        }
        if !state.is_over {
            state.peers[rank] = Some(peer);
        }
    }

    /// Closes all channels.
    pub fn disconnect(&self) {
        let mut state = self.state.lock();
        state.is_over = true;
        state.peers.iter_mut().for_each(|peer| *peer = None);
    }

    /// Announces the loss of a rank to every rank, after the results of earlier gathers.
    pub fn announce_loss(&self, rank: usize, reason: &str) {
        let mut state = self.state.lock();
        if state.is_lost(rank) {
            return;
        }
        state.losses.push((rank, reason.to_string()));
        state.gathers.clear();
        let epoch = state.epoch();
        for other in (0..state.peers.len()).filter(|other| *other != rank) {
            self.send(&state, other, FromRank0::Lost { rank, reason: reason.to_string(), epoch });
        }
        state.peers[rank] = None;
    }

    /// Sets a job's O tasks, before any rank requests one.
    pub fn begin(&self, job: u32, pool: Pool) {
        self.state.lock().jobs.insert(job, pool);
    }

    /// Returns how many O tasks were handed out, and how many are left.
    pub fn progress(&self, job: u32) -> (usize, usize) {
        self.state.lock().jobs.get(&job).map_or((0, 0), |pool| (pool.handed_out, pool.remaining.len()))
    }

    /// Ends a job; returns its checkpoint, if it has one.
    pub fn end(&self, job: u32) -> Option<Commits> {
        self.state.lock().jobs.remove(&job).and_then(|pool| pool.commits)
    }

    pub fn handle(&self, from: usize, message: ToRank0) {
        let mut state = self.state.lock();
        let ranks = state.peers.len();
        match message {
            ToRank0::Take { job } => {
                let o_task = state.jobs.get_mut(&job).and_then(|pool| {
                    let o_task = pool.remaining.pop_front()?;
                    pool.handed_out += 1;
                    Some(o_task)
                });
                self.send(&state, from, FromRank0::Task { job, o_task });
            }
            ToRank0::Gather { epoch, number, bytes } => {
                if epoch != state.epoch() || state.is_lost(from) {
                    return;
                }
                let state = &mut *state;
                let all = state.gathers.entry(number).or_insert_with(|| vec![None; ranks]);
                all[from] = Some(bytes);
                let is_lost = |rank: usize| state.losses.iter().any(|(lost, _)| *lost == rank);
                if all.iter().enumerate().all(|(rank, bytes)| bytes.is_some() || is_lost(rank)) {
                    let all = state.gathers.remove(&number).expect("it is there");
                    let all = Arc::new(all.into_iter().flatten().collect::<Vec<_>>());
                    for rank in 0..ranks {
                        self.send(state, rank, FromRank0::Gathered { epoch, number, all: Arc::clone(&all) });
                    }
                }
            }
            ToRank0::Fail { job, why } => {
                (0..ranks)
                    .for_each(|rank| self.send(&state, rank, FromRank0::Abort { job, why: why.clone() }));
            }
            ToRank0::Stored { job, o_task } => {
                let Some(pool) = state.jobs.get_mut(&job) else { return };
                let stored = pool.stored.entry(o_task).or_default();
                *stored += 1;
                if *stored < pool.a_tasks {
                    return;
                }
                if let Some(Err(error)) = pool.commits.as_mut().map(|commits| commits.commit(o_task)) {
                    // The job continues; after a crash, this O task runs again.
                    tracing::warn!(%error, o_task, "a commit was not written");
                }
            }
        }
    }

    fn send(&self, state: &CoordinatorState, rank: usize, message: FromRank0) {
        if rank == 0 {
            return self.own.handle(message);
        }
        if let Some(peer) = &state.peers[rank] {
            // A lost rank gets no message.
            let _ = peer.send(message);
        }
    }
}

/// State of every rank: messages received, and their waiters.
pub(crate) struct Client {
    state: Mutex<ClientState>,
    changed: Condvar,
}

#[derive(Default)]
struct ClientState {
    tasks: HashMap<u32, VecDeque<Option<u32>>>,
    /// By epoch and number.
    gathered: HashMap<(u32, u64), Arc<Vec<Vec<u8>>>>,
    /// By job: notifies the threads that work on it.
    aborts: HashMap<u32, watch::Sender<bool>>,
    aborted: HashSet<u32>,
    /// By job: the first reason to stop.
    reasons: HashMap<u32, String>,
    /// Losses not accepted yet, in order.
    lost: Vec<(usize, String)>,
    /// Accepted losses.
    accepted: HashSet<usize>,
    /// The loss after which rank 0 sends nothing more.
    coordinator_loss: Option<(usize, String)>,
    /// Number of losses so far.
    epoch: u32,
}

impl ClientState {
    fn loss(&self) -> Option<Error> {
        // Rank 0 also leaves because of a loss, and then is silent.
        let (rank, reason) = self.lost.first().or(self.coordinator_loss.as_ref())?;
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
        Client { state: Mutex::default(), changed: Condvar::new() }
    }

    pub fn handle(&self, message: FromRank0) {
        let mut state = self.state.lock();
        match message {
            FromRank0::Task { job, o_task } => state.tasks.entry(job).or_default().push_back(o_task),
            FromRank0::Gathered { epoch, number, all } => {
                state.gathered.insert((epoch, number), all);
            }
            FromRank0::Abort { job, why } => {
                state.reasons.entry(job).or_insert(why);
                state.stop(job);
            }
            FromRank0::Lost { rank, reason, epoch } => {
                state.epoch = epoch;
                state.lost.push((rank, reason));
                // Waiters will get no answer.
                state.stop_all();
            }
        }
        self.changed.notify_all();
    }

    /// Records that rank 0 sends nothing more because `rank` was lost: rank 0 itself, or one whose loss made
    /// rank 0 leave.
    pub fn set_coordinator_lost(&self, rank: usize, reason: String) {
        let mut state = self.state.lock();
        state.coordinator_loss.get_or_insert((rank, reason));
        state.stop_all();
        self.changed.notify_all();
    }

    /// Whether an unaccepted loss exists.
    pub fn has_unaccepted_loss(&self) -> bool {
        self.state.lock().loss().is_some()
    }

    /// Ranks whose loss was accepted.
    pub fn accepted_losses(&self) -> HashSet<usize> {
        self.state.lock().accepted.clone()
    }

    /// Begins the latest epoch: later requests are answered by the remaining members. Waits until rank 0 has
    /// announced a loss, which others may have detected first. Returns the epoch's number and the ranks lost
    /// since the last call; `None` if there is no loss, or rank 0 is silent. There must be no other waiter.
    pub fn accept_losses(&self) -> Option<(u32, Vec<usize>)> {
        let deadline = Instant::now() + LOSS_ANNOUNCEMENT_WAIT_MAX;
        let mut state = self.state.lock();
        while state.loss().is_none() {
            if self.changed.wait_until(&mut state, deadline).timed_out() {
                return None;
            }
        }
        if state.coordinator_loss.is_some() {
            return None;
        }
        let lost: Vec<usize> = std::mem::take(&mut state.lost).into_iter().map(|(rank, _)| rank).collect();
        state.accepted.extend(&lost);
        let epoch = state.epoch;
        state.gathered.retain(|(of, _), _| *of >= epoch);
        Some((epoch, lost))
    }

    /// Returns a receiver that turns true when the job must stop.
    pub fn aborts(&self, job: u32) -> watch::Receiver<bool> {
        let mut state = self.state.lock();
        let now = state.aborted.contains(&job) || state.loss().is_some();
        state.aborts.entry(job).or_insert_with(|| watch::channel(now).0).subscribe()
    }

    /// Stops the job on this rank only.
    pub fn abort_here(&self, job: u32) {
        self.state.lock().stop(job);
        self.changed.notify_all();
    }

    /// Returns the reason for which a job stops, as reported by the rank that stopped it. If the job was
    /// stopped here, waits briefly for the reason. `None`: it does not stop, or no reason is known.
    pub fn stop_reason(&self, job: u32) -> Option<String> {
        let deadline = Instant::now() + REASON_WAIT_MAX;
        let mut state = self.state.lock();
        loop {
            if let Some(why) = state.reasons.get(&job) {
                return Some(why.clone());
            }
            if !state.aborted.contains(&job) || state.loss().is_some() {
                return None;
            }
            if self.changed.wait_until(&mut state, deadline).timed_out() {
                return None;
            }
        }
    }

    pub fn forget(&self, job: u32) {
        let mut state = self.state.lock();
        state.tasks.remove(&job);
        state.aborts.remove(&job);
        state.reasons.remove(&job);
    }

    /// Waits for the answer to one [`ToRank0::Take`]. `Ok(None)`: no task is left, or the job is stopping.
    pub fn wait_for_task(&self, job: u32) -> Result<Option<u32>, Error> {
        let mut state = self.state.lock();
        loop {
            if let Some(loss) = state.loss() {
                return Err(loss);
            }
            if state.aborted.contains(&job) {
                return Ok(None);
            }
            if let Some(o_task) = state.tasks.get_mut(&job).and_then(VecDeque::pop_front) {
                return Ok(o_task);
            }
            self.changed.wait(&mut state);
        }
    }

    /// Waits until every member has reached its gather of this number.
    pub fn wait_for_gather(&self, epoch: u32, number: u64) -> Result<Arc<Vec<Vec<u8>>>, Error> {
        let mut state = self.state.lock();
        loop {
            if let Some(all) = state.gathered.remove(&(epoch, number)) {
                return Ok(all);
            }
            if let Some(loss) = state.loss() {
                return Err(loss);
            }
            self.changed.wait(&mut state);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_round_trip() {
        for up in [
            ToRank0::Take { job: 3 },
            ToRank0::Gather { epoch: 2, number: 1 << 40, bytes: vec![1, 2] },
            ToRank0::Fail { job: 1, why: "a reason".to_string() },
            ToRank0::Stored { job: 1, o_task: 9 },
        ] {
            assert_eq!(ToRank0::decode(&up.encode()).unwrap(), up);
        }
        for down in [
            FromRank0::Task { job: 1, o_task: Some(0) },
            FromRank0::Task { job: 1, o_task: None },
            FromRank0::Gathered { epoch: 1, number: 2, all: Arc::new(vec![vec![], vec![5]]) },
            FromRank0::Abort { job: 8, why: "a reason".to_string() },
            FromRank0::Lost { rank: 2, reason: "it ended".to_string(), epoch: 3 },
        ] {
            assert_eq!(FromRank0::decode(&down.encode()).unwrap(), down);
            assert!(FromRank0::decode(&down.encode()[..3]).is_err());
        }
        assert!(ToRank0::decode(&[9]).is_err() && FromRank0::decode(&[]).is_err());
    }
}
