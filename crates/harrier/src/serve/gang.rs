//! Supervisor of the gang in a front end: starts it, monitors it, and restarts it after a loss.
//!
//! ```text
//!            start            first status         status late, too few ranks, launcher ended
//!   Absent ────────► Starting ────────────► Up ────────────────────────────────────────────────► Absent
//!      ▲                │ timeout, or launcher ended                                              │
//!      └────────────────┴─────────────────────── after a pause ◄─────────────────────────────────┘
//! ```
//!
//! An operator can exclude ranks (they take part in nothing until marked up again), and restart the gang, on
//! the current hosts of its hosts file, or with a rank moved to another of them. A host of that file that
//! does not respond is excluded (`hosts.rs`), and the gang is restarted when it is back. MPI cannot add a
//! rank to a running gang: running statements end first, and those that arrive meanwhile run in the front
//! end, whose sessions and queues live on.
//!
//! # Invariants
//! The front end is never part of the gang: it only holds one end of a local socket. While there is no gang,
//! statements run in the front end's own process.
//!
//! # Crash
//! A rank that is stopped (SIGSTOP) is killed, so that its peers notice. A gang whose front end has died ends
//! by itself (`rank.rs`).

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};
use harrier_error::SqlState;
use harrier_exec::frontend::client::{Hold, mark_down};
use harrier_exec::frontend::link::{Link, PlanServiceAddress};
use harrier_exec::frontend::protocol::Status;
use harrier_mpi::process;
use parking_lot::RwLock;
use tokio::sync::{Mutex, mpsc};
use tokio::time::{Instant, sleep, sleep_until, timeout_at};
use tokio_util::sync::CancellationToken;

use super::launcher::{LauncherProcess, Plan, StartCommand};
use super::orphan;
use super::segments;

/// Timeout of the ranks' rendezvous.
const START_PATIENCE: Duration = Duration::from_secs(90);

/// Retry interval of connecting to a gang that starts.
const START_PAUSE: Duration = Duration::from_millis(20);

/// Maximum silence of a gang. It sends a status every second; an overloaded machine may delay it.
const SILENCE_MAX: Duration = Duration::from_secs(10);

/// Poll interval for stopped ranks.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// Maximum pause before a restart of the gang.
const RESTART_PAUSE_MAX: Duration = Duration::from_secs(30);

/// Exponential backoff of restarts: the first pause follows a loss, the next ones each failed start.
fn restart_backoff() -> ExponentialBackoff {
    ExponentialBuilder::default()
        .with_min_delay(Duration::from_millis(100))
        .with_max_delay(RESTART_PAUSE_MAX)
        .without_max_times()
        .build()
}

/// How long statements of a gang that is replaced may continue.
const REPLACE_PATIENCE: Duration = Duration::from_secs(30);

/// Maximum number of pending orders of operators.
const ORDERS_MAX: usize = 16;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    Absent,
    Starting,
    Up,
}

/// Current state of the gang.
#[derive(Debug, Clone)]
pub(super) struct View {
    pub(super) state: State,
    pub(super) since: SystemTime,
    /// Number of gang starts.
    pub(super) generation: u64,
    pub(super) status: Status,
    /// When `status` was received; `None`: not yet.
    pub(super) status_at: Option<Instant>,
    /// Why the last gang was lost, or could not be started.
    pub(super) reason: Option<String>,
    /// Ranks that an operator has marked down; kept across restarts.
    pub(super) marked_down: BTreeSet<usize>,
}

/// Order of an operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    /// Excludes a rank from new statements; a spare takes its place.
    Down(usize),
    /// Includes the rank again.
    Up(usize),
    /// Lets running statements end, then restarts all ranks.
    Restart,
}

/// Reason for refusing an order: SQLSTATE and message.
pub(super) type Refusal = (SqlState, String);

/// A supervised gang. Cheap to clone.
#[derive(Clone)]
pub(super) struct Supervisor {
    link: Link,
    plan: Arc<Plan>,
    folder: Arc<PathBuf>,
    view: Arc<RwLock<View>>,
    orders: mpsc::Sender<Order>,
    /// Receiver, locked by the task that runs the gang.
    pending_orders: Arc<Mutex<mpsc::Receiver<Order>>>,
}

impl Supervisor {
    /// `folder`: private folder for sockets, inaccessible to others.
    pub(super) fn new(link: Link, plan: Plan, folder: PathBuf) -> Self {
        let view = View {
            state: State::Absent,
            since: SystemTime::now(),
            generation: 0,
            status: Status::default(),
            status_at: None,
            reason: None,
            marked_down: BTreeSet::new(),
        };
        let (plan, folder, view) = (Arc::new(plan), Arc::new(folder), Arc::new(RwLock::new(view)));
        let (orders, pending_orders) = mpsc::channel(ORDERS_MAX);
        Self { link, plan, folder, view, orders, pending_orders: Arc::new(Mutex::new(pending_orders)) }
    }

    /// Moves a rank to another host once the running statements have ended. Returns whether it was on a
    /// different host.
    ///
    /// Errors: 22023 no such rank or host; 55000 not possible in this state; 58030 the hosts file cannot be
    /// read.
    pub(super) fn move_rank(&self, rank: usize, host: &str) -> Result<bool, Refusal> {
        if rank >= self.plan.count() {
            return Err(self.no_rank(rank));
        }
        if rank == 0 {
            let message = "rank 0 hands out the work of the others, on the host that the server runs on";
            return Err((SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, message.to_string()));
        }
        let Some(hosts) = &self.plan.hosts else {
            let message = "ranks can be moved between the hosts of a hosts file, and the server has none";
            return Err((SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, message.to_string()));
        };
        if self.view.read().state == State::Starting {
            return Err((
                SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE,
                "the gang is being started: ranks are moved when it is there".to_string(),
            ));
        }
        let is_elsewhere = hosts.move_rank(rank, host)?;
        if is_elsewhere {
            self.order(Order::Restart)?;
        }
        Ok(is_elsewhere)
    }

    fn no_rank(&self, rank: usize) -> Refusal {
        (
            SqlState::INVALID_PARAMETER_VALUE,
            format!("there is no rank {rank}: the last one is {}", self.plan.count() - 1),
        )
    }

    /// Queues an order; the views show its execution.
    ///
    /// Errors: 22023 no such rank; 55000 not possible in this state.
    pub(super) fn order(&self, order: Order) -> Result<(), Refusal> {
        {
            let mut view = self.view.write();
            match order {
                Order::Down(rank) | Order::Up(rank) if rank >= self.plan.count() => {
                    return Err(self.no_rank(rank));
                }
                Order::Down(0) => {
                    let message = "rank 0 hands out the work of the others and cannot be marked down";
                    return Err((SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, message.to_string()));
                }
                Order::Down(rank) => {
                    view.marked_down.insert(rank);
                }
                Order::Up(rank) => {
                    let lost = view.status.ranks.get(rank).and_then(|rank| rank.lost.clone());
                    if let Some(reason) = lost {
                        let message = format!("rank {rank} is lost and can only be started again: {reason}");
                        return Err((SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, message));
                    }
                    view.marked_down.remove(&rank);
                }
                Order::Restart => {}
            }
        }
        let full = |_| {
            (
                SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE,
                "the gang has not followed earlier orders yet".to_string(),
            )
        };
        self.orders.try_send(order).map_err(full)
    }

    pub(super) fn view(&self) -> View {
        self.view.read().clone()
    }

    pub(super) fn plan(&self) -> &Plan {
        &self.plan
    }

    fn set_state(&self, state: State, reason: Option<String>) {
        let mut view = self.view.write();
        if view.state != state {
            view.since = SystemTime::now();
        }
        view.state = state;
        if state != State::Up {
            view.status = Status::default();
            view.status_at = None;
        }
        if reason.is_some() {
            view.reason = reason;
        }
    }

    /// Keeps a gang running until `stop` is canceled, then ends it and removes the shared memory of all its
    /// gangs on this host.
    pub(super) async fn run(self, stop: CancellationToken) {
        let server = self.name();
        self.supervise(stop).await;
        segments::sweep_all_of(&server).await;
    }

    /// The random suffix of the folder's name, unique to this server.
    fn name(&self) -> String {
        let folder = self.folder.file_name().unwrap_or_default().to_string_lossy();
        folder.rsplit('-').next().unwrap_or_default().to_string()
    }

    async fn supervise(self, stop: CancellationToken) {
        // The channel outlives a run: a server that takes over again reuses it.
        let pending_orders = Arc::clone(&self.pending_orders);
        let mut pending_orders = pending_orders.lock().await;
        self.set_state(State::Absent, None);
        let mut failures = 0;
        let mut backoff = restart_backoff();
        while !stop.is_cancelled() {
            let generation = {
                let mut view = self.view.write();
                view.generation += 1;
                view.generation
            };
            self.set_state(State::Starting, None);
            let started = tokio::select! {
                started = self.start(generation, failures) => started,
                () = stop.cancelled() => {
                    self.set_state(State::Absent, None);
                    return;
                }
            };
            match started {
                Ok(gang) => {
                    failures = 0;
                    backoff = restart_backoff();
                    let Some(reason) = self.watch(gang, &mut pending_orders, &stop).await else {
                        self.set_state(State::Absent, None);
                        return;
                    };
                    tracing::warn!(reason, "the gang is lost and started again");
                    self.set_state(State::Absent, Some(reason));
                }
                Err(reason) => {
                    failures += 1;
                    segments::sweep_host();
                    tracing::warn!(reason, "the gang could not be started; statements run in this process");
                    self.set_state(State::Absent, Some(reason));
                }
            }
            let pause = backoff.next().unwrap_or(RESTART_PAUSE_MAX);
            tokio::select! {
                () = sleep(pause) => {}
                () = stop.cancelled() => {}
            }
        }
    }

    /// Starts the ranks and waits for their rendezvous.
    async fn start(&self, generation: u64, failures: u32) -> Result<Gang, String> {
        let name = format!("{}-{generation}", self.name());
        let StartCommand { mut command, desk } = self.plan.command(&name, &self.folder, failures).await?;
        let program = command.as_std().get_program().to_string_lossy().into_owned();
        let launcher = command.spawn().map_err(|error| format!("cannot start {program}: {error}"))?;
        orphan::remember(&self.folder, launcher.id());
        let mut launcher = LauncherProcess(Some(launcher));
        let deadline = Instant::now() + START_PATIENCE;
        let met = async {
            loop {
                if let Ok(mut hold) = Hold::take(&desk).await
                    && let Ok(Ok(status)) = timeout_at(deadline, hold.next()).await
                {
                    return (hold, status);
                }
                sleep(START_PAUSE).await;
            }
        };
        let reason = tokio::select! {
            (hold, status) = met => return Ok(Gang { desk, launcher, hold, status }),
            ended = launcher.wait() => return Err(match ended {
                Ok(status) => format!("{program} ended before the ranks had met: {status}"),
                Err(error) => format!("{program} cannot be watched: {error}"),
            }),
            host = self.wait_for_host_failure() => format!("host {host} does not answer any more"),
            () = sleep_until(deadline) => {
                format!("the ranks have not met in {} s", START_PATIENCE.as_secs())
            }
        };
        launcher.end().await;
        Err(reason)
    }

    /// Waits until a host with ranks stops responding.
    async fn wait_for_host_failure(&self) -> String {
        match &self.plan.hosts {
            Some(hosts) => hosts.wait_for_failure().await,
            None => std::future::pending().await,
        }
    }

    /// Waits until a host without ranks can have some again.
    async fn wait_for_host_return(&self) -> String {
        let lost = || self.view.read().status.ranks.iter().map(|rank| rank.lost.is_some()).collect();
        match &self.plan.hosts {
            Some(hosts) => hosts.wait_for_return(lost).await,
            None => std::future::pending().await,
        }
    }

    /// Runs statements on a gang until it is lost; returns the reason. `None`: it was ended.
    async fn watch(
        &self,
        gang: Gang,
        pending_orders: &mut mpsc::Receiver<Order>,
        stop: &CancellationToken,
    ) -> Option<String> {
        let Gang { desk, mut launcher, mut hold, status } = gang;
        // Discards orders from before: the new gang applies them below, and a restart is obsolete.
        while pending_orders.try_recv().is_ok() {}
        self.send_marked_down(&desk).await;
        let place = self.link.up(&desk, status.ranks.len(), self.plan.threads);
        {
            let mut view = self.view.write();
            view.status = status;
            view.status_at = Some(Instant::now());
        }
        self.set_state(State::Up, None);
        let mut status_at = Instant::now();
        let mut returned = Box::pin(self.wait_for_host_return());
        let reason = loop {
            let mut poll = Box::pin(sleep(POLL_INTERVAL));
            tokio::select! {
                status = hold.next() => match status {
                    Ok(status) => {
                        status_at = Instant::now();
                        let lost = missing_ranks(&status, self.plan.ranks);
                        {
                            let mut view = self.view.write();
                            view.status = status;
                            view.status_at = Some(status_at);
                        }
                        if let Some(reason) = lost {
                            // Statements on the remaining ranks may end.
                            self.link.down(&reason);
                            self.finish(&place, &mut hold).await;
                            break reason;
                        }
                    }
                    Err(_) => break self.loss_reason(&mut launcher).await,
                },
                Some(order) = pending_orders.recv() => match order {
                    Order::Restart => {
                        let reason = "an operator has it started again".to_string();
                        self.link.down(&reason);
                        self.finish(&place, &mut hold).await;
                        break reason;
                    }
                    Order::Down(_) | Order::Up(_) => self.send_marked_down(&desk).await,
                },
                host = &mut returned => {
                    let reason = format!("host {host} is back");
                    self.link.down(&reason);
                    self.finish(&place, &mut hold).await;
                    break reason;
                }
                ended = launcher.wait() => break match ended {
                    Ok(status) => format!("its launcher has ended: {status}"),
                    Err(error) => format!("its launcher cannot be watched: {error}"),
                },
                () = stop.cancelled() => {
                    self.link.down("the server is stopping");
                    drop(hold);
                    launcher.end().await;
                    return None;
                }
                () = &mut poll => {
                    self.kill_stopped();
                    if status_at.elapsed() > SILENCE_MAX {
                        break format!("it has said nothing for {} s", SILENCE_MAX.as_secs());
                    }
                }
            }
        };
        self.link.down(&reason);
        drop(hold);
        // The next gang need not wait for the end of this one.
        tokio::spawn(async move {
            launcher.end().await;
            segments::sweep_host();
        });
        let _ = std::fs::remove_file(&desk);
        Some(reason)
    }

    /// Sends rank 0 the set of ranks marked down.
    async fn send_marked_down(&self, desk: &Path) {
        let marked_down = self.view.read().marked_down.clone();
        if let Err(error) = mark_down(desk, marked_down).await {
            // The gang is most likely lost, which is noticed elsewhere.
            tracing::warn!(%error, "the gang was not told which ranks are marked down");
        }
    }

    /// Waits for the statements still running on a gang, with a time limit.
    async fn finish(&self, place: &Arc<PlanServiceAddress>, hold: &mut Hold) {
        let deadline = Instant::now() + REPLACE_PATIENCE;
        while place.running() > 0 && Instant::now() < deadline {
            tokio::select! {
                status = hold.next() => if status.is_err() {
                    return;
                },
                () = sleep(POLL_INTERVAL) => self.kill_stopped(),
            }
        }
    }

    /// Reason for the silence of rank 0.
    async fn loss_reason(&self, launcher: &mut LauncherProcess) -> String {
        let pid = self.view.read().status.ranks.first().map(|rank| rank.pid);
        match launcher.try_wait() {
            Ok(Some(status)) => format!("its launcher has ended: {status}"),
            _ => match pid {
                Some(pid) => format!("rank 0 (process {pid}) has gone"),
                None => "rank 0 has gone".to_string(),
            },
        }
    }

    /// Kills stopped ranks (SIGSTOP) on this host: one blocks all others, which would not notice it for
    /// seconds.
    fn kill_stopped(&self) {
        let ranks = self.view.read().status.ranks.clone();
        let here = ranks.first().map(|rank| rank.host.clone());
        for (number, rank) in ranks.iter().enumerate() {
            if Some(&rank.host) != here.as_ref() || rank.lost.is_some() || !process::is_stopped(rank.pid) {
                continue;
            }
            tracing::warn!(rank = number, pid = rank.pid, "a rank that was stopped is killed");
            if let Ok(watched) = process::watch(rank.pid) {
                let _ = process::kill(&watched);
            }
        }
    }
}

/// A gang after its rendezvous.
struct Gang {
    desk: PathBuf,
    launcher: LauncherProcess,
    hold: Hold,
    status: Status,
}

/// Reason to restart a gang with a live rank 0: the spares are used up.
fn missing_ranks(status: &Status, wanted: usize) -> Option<String> {
    // Ranks marked down are alive and count: an operator excluded them.
    let living = status.ranks.iter().filter(|rank| rank.lost.is_none()).count();
    if living >= wanted {
        return None;
    }
    let lost = status.ranks.iter().enumerate().rev().find_map(|(number, rank)| {
        rank.lost.as_ref().map(|reason| format!("rank {number} is lost: {reason}"))
    });
    Some(lost.unwrap_or_else(|| format!("{living} of {wanted} ranks are left")))
}

#[cfg(test)]
mod tests {
    use harrier_exec::frontend::protocol::RankStatus;

    use super::*;

    #[test]
    fn spare_ranks_replace_lost_ranks() {
        let rank = |works, lost: Option<&str>| RankStatus {
            works,
            lost: lost.map(str::to_string),
            ..RankStatus::default()
        };
        let status = |ranks: Vec<RankStatus>| Status { ranks, ..Status::default() };
        let all = status(vec![rank(true, None), rank(true, None), rank(false, None)]);
        assert_eq!(missing_ranks(&all, 2), None);
        let replaced = status(vec![rank(true, None), rank(false, Some("killed")), rank(true, None)]);
        assert_eq!(missing_ranks(&replaced, 2), None);
        let one = status(vec![rank(true, None), rank(false, Some("killed"))]);
        assert_eq!(missing_ranks(&one, 2).as_deref(), Some("rank 1 is lost: killed"));
    }
}
