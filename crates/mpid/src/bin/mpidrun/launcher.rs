//! The launcher process: detection of its kind, start, wait, and termination with its ranks.
//!
//! # Cancellation
//! SIGTERM, SIGINT and SIGHUP sent to `mpidrun` are forwarded to the launcher, once: Open MPI's kills its
//! ranks after the first one and leaves them behind at a second one within five seconds; Hydra's forwards
//! them to its ranks, but dies of a SIGHUP. A signal from the terminal (Ctrl-C) reaches the launcher anyway.
//! A launcher that does not end within [`LAUNCHER_WAIT_MAX`] is killed, and so are the processes that it
//! leaves running on this host.
//!
//! # Crash
//! The launcher gets a SIGTERM when `mpidrun` dies for any reason.

use crate::outcome::{LauncherExit, RankReports};
use nix::libc::SI_KERNEL;
use nix::sys::prctl::{set_child_subreaper, set_pdeathsig};
use nix::sys::signal::{SigSet, Signal, kill};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{Pid, getppid};
use std::collections::HashSet;
use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

/// Time limit for a launcher without children: Open MPI's sometimes does not notice that the last of its
/// ranks was killed. Also the time limit for a launcher and its ranks to terminate on request.
pub const LAUNCHER_WAIT_MAX: Duration = Duration::from_secs(5);

/// Polling interval.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// First argument of an `mpidrun` that is to become the launcher: see [`become_launcher`].
pub const AS_LAUNCHER: &str = "--as-launcher";

/// Kind of launcher: others do not accept Open MPI's options.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kind {
    pub open_mpi: bool,
    /// It can leave the other ranks running when one dies.
    pub tolerates_losses: bool,
}

impl Kind {
    pub fn of(launcher: &Path) -> Kind {
        let output = Command::new(launcher).arg("--version").output();
        output.map_or(Kind::default(), |output| Kind::parse_version(&String::from_utf8_lossy(&output.stdout)))
    }

    /// Parses the output of `--version`. Open MPI prints the name it was called by: mpirun.openmpi is
    /// "OpenRTE", and Open MPI 5 under another name is "PRRTE".
    fn parse_version(version: &str) -> Kind {
        let open_mpi = ["Open MPI", "OpenRTE", "PRRTE"].iter().any(|name| version.contains(name));
        let major = version.split_whitespace().find_map(|word| word.split_once('.')?.0.parse::<u32>().ok());
        Kind { open_mpi, tolerates_losses: open_mpi && major == Some(4) }
    }
}

/// Signals that end `mpidrun`.
const END_SIGNALS: [Signal; 3] = [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP];

/// Blocked signals, polled by [`Signals::next`].
pub struct Signals(SignalFd);

/// A received signal.
#[derive(Clone, Copy, Debug)]
pub struct Received {
    pub signal: Signal,
    /// Sent by the terminal to the whole process group, including the launcher.
    by_terminal: bool,
}

impl Signals {
    /// Blocks the signals in this process, which must be single-threaded. Signals that the parent process
    /// ignores (`nohup`) stay ignored.
    pub fn listen() -> io::Result<Signals> {
        let status = std::fs::read_to_string("/proc/self/status")?;
        let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
        let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
        let mut set = SigSet::empty();
        for signal in END_SIGNALS {
            if ignored & 1 << (signal as u32 - 1) == 0 {
                set.add(signal);
            }
        }
        set.thread_block()?;
        Ok(Signals(SignalFd::with_flags(&set, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)?))
    }

    /// Returns the next pending signal, if any.
    pub fn next(&self) -> Option<Received> {
        let info = self.0.read_signal().ok().flatten()?;
        let signal = Signal::try_from(info.ssi_signo as i32).ok()?;
        Some(Received { signal, by_terminal: info.ssi_code == SI_KERNEL })
    }
}

/// Starts the launcher, which ends with this process.
///
/// Errors: it cannot be started. If the file is not executable, the child process prints the error and exits
/// with 2.
pub fn start(command: &Command) -> io::Result<Child> {
    // Orphans of the launcher become children of this process, and can be found.
    set_child_subreaper(true)?;
    let mut start = Command::new("/proc/self/exe");
    start.arg0("mpidrun").arg(AS_LAUNCHER).arg(std::process::id().to_string());
    start.arg(command.get_program()).args(command.get_args());
    start.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    start.spawn()
}

/// Replaces this process by the launcher; `words` is the parent's process id, then the launcher's command
/// line. Returns only on error, with the reason.
pub fn become_launcher(mut words: impl Iterator<Item = OsString>) -> String {
    let (parent, launcher) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let name = launcher.to_string_lossy().into_owned();
    if let Err(error) = set_pdeathsig(Signal::SIGTERM) {
        return format!("{name}: {error}");
    }
    // Unblock the signals that the parent process polls for.
    if let Err(error) = END_SIGNALS.into_iter().collect::<SigSet>().thread_unblock() {
        return format!("{name}: {error}");
    }
    // The parent may have died before that.
    if parent != *getppid().to_string() {
        return format!("{name}: whoever starts it has ended");
    }
    format!("{name}: {}", Command::new(launcher).args(words).exec())
}

/// Whether a process is running and not a zombie.
fn is_running(process: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with(['Z', 'X']))
}

/// Returns the running child processes of a process, including adopted orphans. `None`: not available from
/// the system.
fn children(process: u32) -> Option<Vec<i32>> {
    let tasks = std::fs::read_dir(format!("/proc/{process}/task")).ok()?;
    let mut found = Vec::new();
    for task in tasks.flatten() {
        let ids = std::fs::read_to_string(task.path().join("children")).ok()?;
        let running = ids.split_whitespace().filter(|child| is_running(child));
        found.extend(running.filter_map(|child| child.parse::<i32>().ok()));
    }
    Some(found)
}

/// Observed state of a launcher.
struct Watch {
    children_max: usize,
    /// Last time with the maximum number of children, or with the ranks joined.
    complete: Instant,
    /// Last time with any child; `None`: no child yet.
    last_seen: Option<Instant>,
}

impl Watch {
    fn new() -> Watch {
        Watch { children_max: 0, complete: Instant::now(), last_seen: None }
    }

    /// Returns why the launcher must be ended: all its children have been gone for a while, or a rank has
    /// died before the rendezvous, which would block the others.
    fn check(&mut self, launcher: u32, reports: Option<&RankReports>) -> Option<&'static str> {
        let now = Instant::now();
        let there = children(launcher).map(|children| children.len());
        self.children_max = self.children_max.max(there.unwrap_or(0));
        if there != Some(0) {
            self.last_seen = Some(now);
        }
        if there.is_none_or(|there| there == self.children_max)
            || reports.is_none_or(RankReports::have_joined)
        {
            self.complete = now;
        }
        if self.last_seen.is_some_and(|seen| now - seen > LAUNCHER_WAIT_MAX) {
            Some("all ranks are gone, and the launcher still waits for them")
        } else if now - self.complete > LAUNCHER_WAIT_MAX {
            Some("a rank is gone, and the others wait for it to join them")
        } else {
            None
        }
    }
}

/// Waits until the launcher and its ranks have ended: by themselves, after a signal, or because the launcher
/// hangs. `tolerates_losses`: it runs with that option. Returns the signal, if any.
pub fn wait(
    launcher: &mut Child,
    signals: &Signals,
    reports: Option<&RankReports>,
    tolerates_losses: bool,
) -> io::Result<(LauncherExit, Option<Signal>)> {
    let pid = Pid::from_raw(i32::try_from(launcher.id()).expect("a process has a positive number"));
    let (mut watch, mut end_requested, mut received) = (Watch::new(), None, None);
    let exit = |status, by_itself| LauncherExit { status, by_itself, tolerates_losses };
    let exit = loop {
        let status = launcher.try_wait()?;
        if let Some(now) = signals.next().filter(|_| received.is_none()) {
            received = Some(now.signal);
            end_requested = Some(Instant::now());
            if !now.by_terminal && status.is_none() {
                kill(pid, now.signal)?;
            }
        }
        if let Some(status) = status {
            break exit(status, end_requested.is_none());
        }
        let Some(since) = end_requested else {
            // Other launchers kill all ranks when one has died.
            match watch.check(launcher.id(), reports.filter(|_| tolerates_losses)) {
                Some(wrong) => {
                    eprintln!("mpidrun: {wrong}; it is ended");
                    end_requested = Some(Instant::now());
                    // The launcher then ends its ranks.
                    kill(pid, Signal::SIGTERM)?;
                }
                None => std::thread::sleep(POLL_INTERVAL),
            }
            continue;
        };
        if since.elapsed() > LAUNCHER_WAIT_MAX {
            launcher.kill()?;
            break exit(launcher.wait()?, false);
        }
        std::thread::sleep(POLL_INTERVAL);
    };
    if !exit.by_itself || exit.status.code().is_none() {
        end_children()?;
    }
    Ok((exit, received))
}

/// Terminates processes that a launcher has left running.
fn end_children() -> io::Result<()> {
    let begin = Instant::now();
    let mut terminated = HashSet::new();
    loop {
        // Reap exited processes.
        while let Ok(status) = waitpid(None, Some(WaitPidFlag::WNOHANG)) {
            if status == WaitStatus::StillAlive {
                break;
            }
        }
        let left = children(std::process::id()).unwrap_or_default();
        if left.is_empty() {
            return Ok(());
        }
        for child in left {
            let signal = match terminated.insert(child) {
                true => Signal::SIGTERM,
                false if begin.elapsed() > LAUNCHER_WAIT_MAX => Signal::SIGKILL,
                false => continue,
            };
            // It may have exited meanwhile.
            let _ = kill(Pid::from_raw(child), signal);
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn launchers_are_identified_by_their_version_output() {
        let parse = |text: &str| Kind::parse_version(text);
        assert_eq!(parse("mpirun (Open MPI) 4.1.4\n"), Kind { open_mpi: true, tolerates_losses: true });
        assert_eq!(parse("mpirun.openmpi (OpenRTE) 4.1.4"), Kind { open_mpi: true, tolerates_losses: true });
        assert_eq!(parse("mpirun (Open MPI) 5.0.6"), Kind { open_mpi: true, tolerates_losses: false });
        assert_eq!(parse("HYDRA build details:\n Version: 4.0.2"), Kind::default());
    }
}
