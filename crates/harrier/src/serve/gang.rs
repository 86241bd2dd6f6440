//! The gang that a front end supervises: starts it, watches it, and starts it again when it is lost.
//!
//! ```text
//!            start            first status          a status is late, a rank of too many is lost, the launcher ended
//!   Absent ────────► Starting ────────────► Up ──────────────────────────────────────────────────────────► Absent
//!      ▲                │ not in time, or the launcher ended                                                   │
//!      └────────────────┴──────────────────────────── after a pause ◄──────────────────────────────────────────┘
//! ```
//!
//! # Invariants
//! The front end is never part of the gang: it only holds one end of a local socket. While there is no gang, statements run in the front
//! end's own process.
//!
//! # Crash
//! A rank that is stopped is killed, so that its peers notice. A gang whose front end has gone ends by itself (`rank.rs`).

use std::ffi::OsString;
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use harrier_exec::front::{Hold, Link, Place, Status};
use harrier_mpi::process;
use parking_lot::RwLock;
use tokio::process::{Child, Command};
use tokio::time::{Instant, sleep, timeout_at};
use tokio_util::sync::CancellationToken;

/// How long the ranks of a gang may take to meet.
const START_PATIENCE: Duration = Duration::from_secs(90);

/// How often it is tried to reach a gang that starts.
const START_PAUSE: Duration = Duration::from_millis(20);

/// How long a gang may say nothing. It says something every second; a machine with nothing to spare may delay that.
const SILENCE: Duration = Duration::from_secs(10);

/// How often it is looked whether a rank was stopped.
const LOOK: Duration = Duration::from_millis(200);

/// The pause before a gang is started again, doubled with every start that failed.
const PAUSE: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(30);

/// How long statements of a gang that is replaced may go on.
const REPLACE_PATIENCE: Duration = Duration::from_secs(30);

/// How long a launcher that was asked to end has for it.
const END_PATIENCE: Duration = Duration::from_secs(2);

/// What starts the ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Launcher {
    /// Slurm's inside an allocation, or else MPI's
    Auto,
    /// The `mpirun` of Open MPI or MPICH
    Mpirun,
    /// Slurm's
    Srun,
    /// No gang: all runs in one process
    None,
}

/// How the gang is to be.
#[derive(Debug, Clone)]
pub(super) struct Plan {
    pub(super) launcher: Launcher,
    /// Ranks that work.
    pub(super) ranks: usize,
    pub(super) spares: usize,
    pub(super) threads: usize,
    /// For each rank, in bytes.
    pub(super) memory_bytes: Option<u64>,
    pub(super) hosts: Option<PathBuf>,
    pub(super) spill_dir: Option<PathBuf>,
    /// Put before the other arguments of the launcher.
    pub(super) arguments: Vec<String>,
}

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
    /// Why the last one was lost, or could not be started.
    pub(super) reason: Option<String>,
}

/// A gang under supervision. Cheap to clone.
#[derive(Clone)]
pub(super) struct Supervisor {
    link: Link,
    plan: Arc<Plan>,
    folder: Arc<PathBuf>,
    view: Arc<RwLock<View>>,
}

impl Supervisor {
    /// `folder`: where sockets go that only this user may reach; it is made.
    pub(super) fn new(link: Link, plan: Plan, folder: PathBuf) -> io::Result<Self> {
        std::fs::create_dir_all(&folder)?;
        std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o700))?;
        let view = View {
            state: State::Absent,
            since: SystemTime::now(),
            generation: 0,
            status: Status::default(),
            reason: None,
        };
        let (plan, folder, view) = (Arc::new(plan), Arc::new(folder), Arc::new(RwLock::new(view)));
        Ok(Self { link, plan, folder, view })
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
        }
        if reason.is_some() {
            view.reason = reason;
        }
    }

    /// Keeps a gang running until `stop` is canceled, and then ends it.
    pub(super) async fn run(self, stop: CancellationToken) {
        let mut failures = 0;
        while !stop.is_cancelled() {
            let generation = {
                let mut view = self.view.write();
                view.generation += 1;
                view.generation
            };
            self.set(State::Starting, None);
            let started = tokio::select! {
                started = self.start(generation) => started,
                () = stop.cancelled() => return,
            };
            match started {
                Ok(gang) => {
                    failures = 0;
                    let Some(reason) = self.watch(gang, &stop).await else {
                        return;
                    };
                    tracing::warn!(reason, "the gang is lost and started again");
                    self.set(State::Absent, Some(reason));
                }
                Err(reason) => {
                    failures += 1;
                    tracing::warn!(reason, "the gang could not be started; statements run in this process");
                    self.set(State::Absent, Some(reason));
                }
            }
            let pause = PAUSE.saturating_mul(1 << failures.min(16)).min(PAUSE_MAX);
            tokio::select! {
                () = sleep(pause) => {}
                () = stop.cancelled() => {}
            }
        }
    }

    /// Starts the ranks and waits until they have met.
    async fn start(&self, generation: u64) -> Result<Gang, String> {
        let desk = self.folder.join(format!("desk-{generation}"));
        let _ = std::fs::remove_file(&desk);
        let mut command = self.command(&desk)?;
        let program = command.as_std().get_program().to_string_lossy().into_owned();
        let launcher = command.spawn().map_err(|error| format!("cannot start {program}: {error}"))?;
        let mut launcher = Launched(Some(launcher));
        let deadline = Instant::now() + START_PATIENCE;
        loop {
            if let Ok(Some(status)) = launcher.try_wait() {
                return Err(format!("{program} ended before the ranks had met: {status}"));
            }
            if let Ok(mut hold) = Hold::take(&desk).await
                && let Ok(Ok(status)) = timeout_at(deadline, hold.next()).await
            {
                return Ok(Gang { desk, launcher, hold, status });
            }
            if Instant::now() > deadline {
                launcher.end().await;
                return Err(format!("the ranks have not met in {} s", START_PATIENCE.as_secs()));
            }
            sleep(START_PAUSE).await;
        }
    }

    /// Lets statements run on a gang until it is lost; says why it is. `None`: it was ended.
    async fn watch(&self, gang: Gang, stop: &CancellationToken) -> Option<String> {
        let Gang { desk, mut launcher, mut hold, status } = gang;
        let place = self.link.up(&desk, self.plan.threads);
        {
            let mut view = self.view.write();
            view.status = status;
        }
        self.set(State::Up, None);
        let mut heard = Instant::now();
        let reason = loop {
            let mut look = Box::pin(sleep(LOOK));
            tokio::select! {
                status = hold.next() => match status {
                    Ok(status) => {
                        heard = Instant::now();
                        let lost = too_few(&status, self.plan.ranks);
                        self.view.write().status = status;
                        if let Some(reason) = lost {
                            // Statements that run on those that are left may end.
                            self.link.down(&reason);
                            self.finish(&place, &mut hold).await;
                            break reason;
                        }
                    }
                    Err(_) => break self.why(&mut launcher).await,
                },
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
        tokio::spawn(async move { launcher.end().await });
        let _ = std::fs::remove_file(&desk);
        Some(reason)
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

    /// What starts the ranks.
    fn command(&self, desk: &Path) -> Result<Command, String> {
        let plan = &self.plan;
        let binary = std::env::current_exe().map_err(|error| format!("cannot find this program: {error}"))?;
        let ranks = (plan.ranks + plan.spares).to_string();
        let is_slurm = std::env::var_os("SLURM_JOB_ID").is_some() && on_path("srun").is_some();
        let mut words: Vec<OsString> = match plan.launcher {
            Launcher::None => return Err("there is to be none".to_string()),
            Launcher::Srun => srun(&ranks),
            Launcher::Auto if is_slurm => srun(&ranks),
            Launcher::Auto | Launcher::Mpirun => mpirun(&ranks, plan.hosts.as_deref())?,
        };
        words.splice(1..1, plan.arguments.iter().map(OsString::from));
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).arg(binary).arg("rank").arg("--desk").arg(desk);
        command.arg("--threads").arg(plan.threads.to_string());
        command.arg("--spares").arg(plan.spares.to_string());
        if let Some(bytes) = plan.memory_bytes {
            command.arg("--memory").arg(format!("{bytes}"));
        }
        if let Some(folder) = &plan.spill_dir {
            command.arg("--spill-dir").arg(folder);
        }
        // What the ranks say is for the log; nothing of it is for standard output.
        command.stdin(Stdio::null()).stdout(Stdio::null()).process_group(0).kill_on_drop(true);
        Ok(command)
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
    let working = status.ranks.iter().filter(|rank| rank.works).count();
    if working >= wanted {
        return None;
    }
    let lost = status.ranks.iter().enumerate().rev().find_map(|(number, rank)| {
        rank.lost.as_ref().map(|reason| format!("rank {number} is lost: {reason}"))
    });
    Some(lost.unwrap_or_else(|| format!("{working} of {wanted} ranks work")))
}

/// A launcher's process, ended with all that it has started.
struct Launched(Option<Child>);

impl Launched {
    fn try_wait(&mut self) -> io::Result<Option<std::process::ExitStatus>> {
        match &mut self.0 {
            Some(child) => child.try_wait(),
            None => Ok(None),
        }
    }

    async fn wait(&mut self) -> io::Result<std::process::ExitStatus> {
        match &mut self.0 {
            Some(child) => child.wait().await,
            None => std::future::pending().await,
        }
    }

    /// Sees to it that it ends: by itself, as it does when its gang is not held any more, or else asked, or else killed.
    async fn end(&mut self) {
        let Some(mut child) = self.0.take() else {
            return;
        };
        let group = child.id().and_then(|pid| i32::try_from(pid).ok()).map(nix::unistd::Pid::from_raw);
        let signal = |signal| {
            if let Some(group) = group {
                let _ = nix::sys::signal::killpg(group, signal);
            }
        };
        if tokio::time::timeout(END_PATIENCE, child.wait()).await.is_err() {
            signal(nix::sys::signal::Signal::SIGTERM);
            let _ = tokio::time::timeout(END_PATIENCE, child.wait()).await;
        }
        // Ranks of Open MPI are in groups of their own; they end when their launcher or their front end has.
        signal(nix::sys::signal::Signal::SIGKILL);
        let _ = child.wait().await;
    }
}

fn srun(ranks: &str) -> Vec<OsString> {
    // Slurm starts several steps of an allocation at a time only if they may share what it has.
    let words = ["srun", "--mpi=pmix", "--overlap", "--kill-on-bad-exit=0", "--cpu-bind=none", "-n", ranks];
    words.iter().map(OsString::from).collect()
}

fn mpirun(ranks: &str, hosts: Option<&Path>) -> Result<Vec<OsString>, String> {
    let program = on_path("mpirun").ok_or("there is no mpirun on the path")?;
    let version = std::process::Command::new(&program)
        .arg("--version")
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("cannot start {}: {error}", program.display()))?;
    let version = String::from_utf8_lossy(&version.stdout).into_owned();
    let mut words: Vec<OsString> = vec![program.into()];
    if version.contains("HYDRA") {
        // Without it Hydra ends all ranks when one dies.
        words.push("-disable-auto-cleanup".into());
        if let Some(hosts) = hosts {
            words.extend(["-f".into(), hosts.into()]);
        }
    } else {
        let is_root = std::fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0);
        if is_root {
            words.push("--allow-run-as-root".into());
        }
        // Of Open MPI 4 only: later ones end all ranks when one dies, and the gang is started again.
        if version.contains(") 4.") {
            words.push("--enable-recovery".into());
        }
        let options =
            ["--bind-to", "none", "--map-by", ":OVERSUBSCRIBE", "--mca", "mpi_yield_when_idle", "1"];
        words.extend(options.iter().map(OsString::from));
        if let Some(hosts) = hosts {
            words.extend(["--hostfile".into(), hosts.into()]);
        }
    }
    words.extend(["-n".into(), ranks.into()]);
    Ok(words)
}

fn on_path(name: &str) -> Option<PathBuf> {
    let folders = std::env::var_os("PATH")?;
    std::env::split_paths(&folders).map(|folder| folder.join(name)).find(|path| path.is_file())
}

#[cfg(test)]
mod tests {
    use harrier_exec::front::RankStatus;

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
