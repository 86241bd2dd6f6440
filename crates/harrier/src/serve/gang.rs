//! The gang that a front end supervises: starts it, watches it, and starts it again when it is lost.
//!
//! ```text
//!            start            first status          a status is late, a rank of too many is lost, the launcher ended
//!   Absent ────────► Starting ────────────► Up ──────────────────────────────────────────────────────────► Absent
//!      ▲                │ not in time, or the launcher ended                                                   │
//!      └────────────────┴──────────────────────────── after a pause ◄──────────────────────────────────────────┘
//! ```
//!
//! An operator can have ranks left alone (they take part in nothing, until they are marked up again), and the
//! gang started again, on the hosts that its hosts file names by then, or with a rank on another of them. A
//! host of that file that does not answer is left out (`hosts.rs`), and the gang is started again when it is
//! back. MPI cannot add a rank to a gang that runs: statements end first, and those that come meanwhile run
//! in the front end, whose sessions and queues live on.
//!
//! # Invariants
//! The front end is never part of the gang: it only holds one end of a local socket. While there is no gang,
//! statements run in the front end's own process.
//!
//! # Crash
//! A rank that is stopped is killed, so that its peers notice. A gang whose front end has gone ends by itself
//! (`rank.rs`).

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};
use harrier_error::SqlState;
use harrier_exec::frontend::client::{Hold, Link, Place, Status, set_aside};
use harrier_mpi::process;
use parking_lot::RwLock;
use tokio::sync::{Mutex, mpsc};
use tokio::time::{Instant, sleep, sleep_until, timeout_at};
use tokio_util::sync::CancellationToken;

use super::launching::{Launched, Plan, Start};
use super::orphan;
use super::segments;

/// How long the ranks of a gang may take to meet.
const START_PATIENCE: Duration = Duration::from_secs(90);

/// How often it is tried to reach a gang that starts.
const START_PAUSE: Duration = Duration::from_millis(20);

/// How long a gang may say nothing. It says something every second; a machine with nothing to spare may delay
/// that.
const SILENCE: Duration = Duration::from_secs(10);

/// How often it is looked whether a rank was stopped.
const LOOK: Duration = Duration::from_millis(200);

/// The longest pause before a gang is started again.
const RESTART_PAUSE_MAX: Duration = Duration::from_secs(30);

/// The pauses before a gang is started again: the first after one that was lost, the next after each start
/// that failed.
fn restart_backoff() -> ExponentialBackoff {
    ExponentialBuilder::default()
        .with_min_delay(Duration::from_millis(100))
        .with_max_delay(RESTART_PAUSE_MAX)
        .without_max_times()
        .build()
}

/// How long statements of a gang that is replaced may go on.
const REPLACE_PATIENCE: Duration = Duration::from_secs(30);

/// What operators want that has not been done yet.
const ORDERS_MAX: usize = 16;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    Absent,
    Starting,
    Up,
}

/// What is known of the gang at the moment.
#[derive(Debug, Clone)]
pub(super) struct View {
    pub(super) state: State,
    pub(super) since: SystemTime,
    /// How often a gang was started.
    pub(super) generation: u64,
    pub(super) status: Status,
    /// When `status` was told; `None`: it was not.
    pub(super) heard: Option<Instant>,
    /// Why the last one was lost, or could not be started.
    pub(super) reason: Option<String>,
    /// Ranks that an operator has marked down; also of gangs to come.
    pub(super) aside: BTreeSet<usize>,
}

/// What an operator wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    /// A rank takes part in nothing that begins from now on; a spare takes its place.
    Down(usize),
    /// It takes part again.
    Up(usize),
    /// Statements that run may end; then all ranks are started again.
    Restart,
}

/// Why an order cannot be followed: SQLSTATE and message.
pub(super) type Refusal = (SqlState, String);

/// A gang under supervision. Cheap to clone.
#[derive(Clone)]
pub(super) struct Supervisor {
    link: Link,
    plan: Arc<Plan>,
    folder: Arc<PathBuf>,
    view: Arc<RwLock<View>>,
    orders: mpsc::Sender<Order>,
    /// Taken by who runs the gang.
    ordered: Arc<Mutex<mpsc::Receiver<Order>>>,
}

impl Supervisor {
    /// `folder`: where sockets go, which nobody else may enter.
    pub(super) fn new(link: Link, plan: Plan, folder: PathBuf) -> Self {
        let view = View {
            state: State::Absent,
            since: SystemTime::now(),
            generation: 0,
            status: Status::default(),
            heard: None,
            reason: None,
            aside: BTreeSet::new(),
        };
        let (plan, folder, view) = (Arc::new(plan), Arc::new(folder), Arc::new(RwLock::new(view)));
        let (orders, ordered) = mpsc::channel(ORDERS_MAX);
        Self { link, plan, folder, view, orders, ordered: Arc::new(Mutex::new(ordered)) }
    }

    /// Has a rank be on another host, when the statements that run have ended. Returns whether it was
    /// elsewhere.
    ///
    /// Errors: 22023 there is no such rank or host; 55000 it cannot be done as things are; 58030 the hosts
    /// file cannot be read.
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

    /// Has an order followed soon; the views show when it was.
    ///
    /// Errors: 22023 there is no such rank; 55000 it cannot be done as things are.
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
                    view.aside.insert(rank);
                }
                Order::Up(rank) => {
                    let lost = view.status.ranks.get(rank).and_then(|rank| rank.lost.clone());
                    if let Some(reason) = lost {
                        let message = format!("rank {rank} is lost and can only be started again: {reason}");
                        return Err((SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, message));
                    }
                    view.aside.remove(&rank);
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

    fn set(&self, state: State, reason: Option<String>) {
        let mut view = self.view.write();
        if view.state != state {
            view.since = SystemTime::now();
        }
        view.state = state;
        if state != State::Up {
            view.status = Status::default();
            view.heard = None;
        }
        if reason.is_some() {
            view.reason = reason;
        }
    }

    /// Keeps a gang running until `stop` is canceled, and then ends it. No memory of any of its gangs stays
    /// on this host.
    pub(super) async fn run(self, stop: CancellationToken) {
        let server = self.name();
        self.keep(stop).await;
        segments::sweep_all_of(&server).await;
    }

    /// The random end of the folder's name, which nobody else has.
    fn name(&self) -> String {
        let folder = self.folder.file_name().unwrap_or_default().to_string_lossy();
        folder.rsplit('-').next().unwrap_or_default().to_string()
    }

    async fn keep(self, stop: CancellationToken) {
        // A server that takes over again finds the channel where the last run has left it.
        let ordered = Arc::clone(&self.ordered);
        let mut ordered = ordered.lock().await;
        self.set(State::Absent, None);
        let mut failures = 0;
        let mut backoff = restart_backoff();
        while !stop.is_cancelled() {
            let generation = {
                let mut view = self.view.write();
                view.generation += 1;
                view.generation
            };
            self.set(State::Starting, None);
            let started = tokio::select! {
                started = self.start(generation, failures) => started,
                () = stop.cancelled() => {
                    self.set(State::Absent, None);
                    return;
                }
            };
            match started {
                Ok(gang) => {
                    failures = 0;
                    backoff = restart_backoff();
                    let Some(reason) = self.watch(gang, &mut ordered, &stop).await else {
                        self.set(State::Absent, None);
                        return;
                    };
                    tracing::warn!(reason, "the gang is lost and started again");
                    self.set(State::Absent, Some(reason));
                }
                Err(reason) => {
                    failures += 1;
                    segments::sweep_host();
                    tracing::warn!(reason, "the gang could not be started; statements run in this process");
                    self.set(State::Absent, Some(reason));
                }
            }
            let pause = backoff.next().unwrap_or(RESTART_PAUSE_MAX);
            tokio::select! {
                () = sleep(pause) => {}
                () = stop.cancelled() => {}
            }
        }
    }

    /// Starts the ranks and waits until they have met.
    async fn start(&self, generation: u64, failures: u32) -> Result<Gang, String> {
        let name = format!("{}-{generation}", self.name());
        let Start { mut command, desk } = self.plan.command(&name, &self.folder, failures).await?;
        let program = command.as_std().get_program().to_string_lossy().into_owned();
        let launcher = command.spawn().map_err(|error| format!("cannot start {program}: {error}"))?;
        orphan::remember(&self.folder, launcher.id());
        let mut launcher = Launched(Some(launcher));
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
            host = self.vanished() => format!("host {host} does not answer any more"),
            () = sleep_until(deadline) => {
                format!("the ranks have not met in {} s", START_PATIENCE.as_secs())
            }
        };
        launcher.end().await;
        Err(reason)
    }

    /// Waits until a host is gone that ranks are started on.
    async fn vanished(&self) -> String {
        match &self.plan.hosts {
            Some(hosts) => hosts.vanished().await,
            None => std::future::pending().await,
        }
    }

    /// Waits until a host can have ranks again that has none.
    async fn returned(&self) -> String {
        let lost = || self.view.read().status.ranks.iter().map(|rank| rank.lost.is_some()).collect();
        match &self.plan.hosts {
            Some(hosts) => hosts.returned(lost).await,
            None => std::future::pending().await,
        }
    }

    /// Lets statements run on a gang until it is lost; says why it is. `None`: it was ended.
    async fn watch(
        &self,
        gang: Gang,
        ordered: &mut mpsc::Receiver<Order>,
        stop: &CancellationToken,
    ) -> Option<String> {
        let Gang { desk, mut launcher, mut hold, status } = gang;
        // What was ordered meanwhile is done with the new gang, but that it is started again.
        while ordered.try_recv().is_ok() {}
        self.tell_aside(&desk).await;
        let place = self.link.up(&desk, status.ranks.len(), self.plan.threads);
        {
            let mut view = self.view.write();
            view.status = status;
            view.heard = Some(Instant::now());
        }
        self.set(State::Up, None);
        let mut heard = Instant::now();
        let mut returned = Box::pin(self.returned());
        let reason = loop {
            let mut look = Box::pin(sleep(LOOK));
            tokio::select! {
                status = hold.next() => match status {
                    Ok(status) => {
                        heard = Instant::now();
                        let lost = too_few(&status, self.plan.ranks);
                        {
                            let mut view = self.view.write();
                            view.status = status;
                            view.heard = Some(heard);
                        }
                        if let Some(reason) = lost {
                            // Statements that run on those that are left may end.
                            self.link.down(&reason);
                            self.finish(&place, &mut hold).await;
                            break reason;
                        }
                    }
                    Err(_) => break self.why(&mut launcher).await,
                },
                Some(order) = ordered.recv() => match order {
                    Order::Restart => {
                        let reason = "an operator has it started again".to_string();
                        self.link.down(&reason);
                        self.finish(&place, &mut hold).await;
                        break reason;
                    }
                    Order::Down(_) | Order::Up(_) => self.tell_aside(&desk).await,
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
                () = &mut look => {
                    self.kill_stopped();
                    if heard.elapsed() > SILENCE {
                        break format!("it has said nothing for {} s", SILENCE.as_secs());
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

    /// Has rank 0 leave those alone that are marked down.
    async fn tell_aside(&self, desk: &Path) {
        let aside = self.view.read().aside.clone();
        if let Err(error) = set_aside(desk, aside).await {
            // The gang is as good as lost, which is noticed elsewhere.
            tracing::warn!(%error, "the gang was not told which ranks are marked down");
        }
    }

    /// Waits for the statements that a gang still runs, but not for ever.
    async fn finish(&self, place: &Arc<Place>, hold: &mut Hold) {
        let deadline = Instant::now() + REPLACE_PATIENCE;
        while place.running() > 0 && Instant::now() < deadline {
            tokio::select! {
                status = hold.next() => if status.is_err() {
                    return;
                },
                () = sleep(LOOK) => self.kill_stopped(),
            }
        }
    }

    /// Why rank 0 is silent.
    async fn why(&self, launcher: &mut Launched) -> String {
        let pid = self.view.read().status.ranks.first().map(|rank| rank.pid);
        match launcher.try_wait() {
            Ok(Some(status)) => format!("its launcher has ended: {status}"),
            _ => match pid {
                Some(pid) => format!("rank 0 (process {pid}) has gone"),
                None => "rank 0 has gone".to_string(),
            },
        }
    }

    /// A rank that is stopped holds up all others and is not noticed by them for seconds.
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

/// A gang that has met.
struct Gang {
    desk: PathBuf,
    launcher: Launched,
    hold: Hold,
    status: Status,
}

/// Why a gang has to be started again although rank 0 is there: the spares are used up.
fn too_few(status: &Status, wanted: usize) -> Option<String> {
    // Those that are marked down are there: an operator wants to do without them.
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
    use harrier_exec::frontend::client::RankStatus;

    use super::*;

    #[test]
    fn spares_take_the_places_of_the_lost() {
        let rank = |works, lost: Option<&str>| RankStatus {
            works,
            lost: lost.map(str::to_string),
            ..RankStatus::default()
        };
        let status = |ranks: Vec<RankStatus>| Status { ranks, ..Status::default() };
        let all = status(vec![rank(true, None), rank(true, None), rank(false, None)]);
        assert_eq!(too_few(&all, 2), None);
        let replaced = status(vec![rank(true, None), rank(false, Some("killed")), rank(true, None)]);
        assert_eq!(too_few(&replaced, 2), None);
        let one = status(vec![rank(true, None), rank(false, Some("killed"))]);
        assert_eq!(too_few(&one, 2).as_deref(), Some("rank 1 is lost: killed"));
    }
}
