//! The launcher as a process: what kind it is, how it is started and waited for, and that it ends with its
//! ranks.
//!
//! # Cancellation
//! SIGTERM, SIGINT and SIGHUP that are sent to `mpidrun` are passed on to the launcher, once: Open MPI's
//! kills its ranks after the first one and leaves them behind at a second one within five seconds; Hydra's
//! hands them on to its ranks, but dies of a SIGHUP. What the terminal sends (Ctrl-C), it sends to the
//! launcher too. One that does not end within [`LAUNCHER_PATIENCE`] is killed, and so is what it leaves
//! running on this host.
//!
//! # Crash
//! The launcher has a SIGTERM when `mpidrun` dies, however that is.

use crate::outcome::{Ended, Told};
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

/// How long a launcher without children is waited for: Open MPI's now and then does not notice that the last
/// of its ranks was killed. And how long one that is asked to end, and its ranks, have for that.
pub const LAUNCHER_PATIENCE: Duration = Duration::from_secs(5);

/// The time between two looks at a launcher.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// The first argument of an `mpidrun` that is to become the launcher: see [`become_launcher`].
pub const AS_LAUNCHER: &str = "--as-launcher";

/// What the launcher is: others do not know Open MPI's options.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kind {
    pub open_mpi: bool,
    /// It can be told to leave the other ranks alone when one dies.
    pub bears_deaths: bool,
}

impl Kind {
    pub fn of(launcher: &Path) -> Kind {
        let asked = Command::new(launcher).arg("--version").output();
        asked.map_or(Kind::default(), |told| Kind::told(&String::from_utf8_lossy(&told.stdout)))
    }

    /// It tells its name as it was called: mpirun.openmpi is "OpenRTE", and Open MPI 5 is "PRRTE" by another
    /// name.
    fn told(version: &str) -> Kind {
        let open_mpi = ["Open MPI", "OpenRTE", "PRRTE"].iter().any(|name| version.contains(name));
        let major = version.split_whitespace().find_map(|word| word.split_once('.')?.0.parse::<u32>().ok());
        Kind { open_mpi, bears_deaths: open_mpi && major == Some(4) }
    }
}

/// Those that end `mpidrun`.
const ENDING: [Signal; 3] = [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP];

/// Signals that end `mpidrun`, and do so only when it looks for them.
pub struct Signals(SignalFd);

/// A signal that has come.
#[derive(Clone, Copy, Debug)]
pub struct Sent {
    pub signal: Signal,
    /// It went to the whole group of processes, and so to the launcher.
    by_terminal: bool,
}

impl Signals {
    /// Of this process, which has no other thread yet. One that whoever started it has it ignore (`nohup`)
    /// stays ignored.
    pub fn listen() -> io::Result<Signals> {
        let status = std::fs::read_to_string("/proc/self/status")?;
        let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
        let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
        let mut set = SigSet::empty();
        for signal in ENDING {
            if ignored & 1 << (signal as u32 - 1) == 0 {
                set.add(signal);
            }
        }
        set.thread_block()?;
        Ok(Signals(SignalFd::with_flags(&set, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)?))
    }

    /// The next one, if there is one.
    pub fn next(&self) -> Option<Sent> {
        let told = self.0.read_signal().ok().flatten()?;
        let signal = Signal::try_from(told.ssi_signo as i32).ok()?;
        Some(Sent { signal, by_terminal: told.ssi_code == SI_KERNEL })
    }
}

/// Starts the launcher. It ends when this process does.
///
/// Errors: it cannot be started; that a file is none to start, it tells itself, and ends with 2.
pub fn start(command: &Command) -> io::Result<Child> {
    // What it leaves behind becomes a child of this process, and can be found.
    set_child_subreaper(true)?;
    let mut start = Command::new("/proc/self/exe");
    start.arg0("mpidrun").arg(AS_LAUNCHER).arg(std::process::id().to_string());
    start.arg(command.get_program()).args(command.get_args());
    start.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    start.spawn()
}

/// Becomes the launcher, whose words follow the number of the process that it is to end with. Returns why
/// that cannot be.
pub fn become_launcher(mut words: impl Iterator<Item = OsString>) -> String {
    let (parent, launcher) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let name = launcher.to_string_lossy().into_owned();
    if let Err(error) = set_pdeathsig(Signal::SIGTERM) {
        return format!("{name}: {error}");
    }
    // As its parent has them, which looks for them.
    if let Err(error) = ENDING.into_iter().collect::<SigSet>().thread_unblock() {
        return format!("{name}: {error}");
    }
    // It may have died before that.
    if parent != *getppid().to_string() {
        return format!("{name}: whoever starts it has ended");
    }
    format!("{name}: {}", Command::new(launcher).args(words).exec())
}

/// Whether a process runs, and is not just waited for.
fn runs(process: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with(['Z', 'X']))
}

/// The processes that a process has started, or that were left to it, and that still run. `None`: the system
/// does not tell.
fn children(process: u32) -> Option<Vec<i32>> {
    let tasks = std::fs::read_dir(format!("/proc/{process}/task")).ok()?;
    let mut found = Vec::new();
    for task in tasks.flatten() {
        let told = std::fs::read_to_string(task.path().join("children")).ok()?;
        let those = told.split_whitespace().filter(|child| runs(child));
        found.extend(those.filter_map(|child| child.parse::<i32>().ok()));
    }
    Some(found)
}

/// What there was to see of a launcher.
struct Watch {
    most: usize,
    /// When there were as many children as ever, or the ranks had met.
    whole: Instant,
    /// When there was any child; `None`: there was none yet.
    last_seen: Option<Instant>,
}

impl Watch {
    fn new() -> Watch {
        Watch { most: 0, whole: Instant::now(), last_seen: None }
    }

    /// Returns why it is to be ended: it has had children, and has had none for a while; or one of its ranks
    /// has died before they met, and the others would wait for it.
    fn look(&mut self, launcher: u32, told: Option<&Told>) -> Option<&'static str> {
        let now = Instant::now();
        let there = children(launcher).map(|children| children.len());
        self.most = self.most.max(there.unwrap_or(0));
        if there != Some(0) {
            self.last_seen = Some(now);
        }
        if there.is_none_or(|there| there == self.most) || told.is_none_or(Told::have_met) {
            self.whole = now;
        }
        if self.last_seen.is_some_and(|seen| now - seen > LAUNCHER_PATIENCE) {
            Some("all ranks are gone, and the launcher still waits for them")
        } else if now - self.whole > LAUNCHER_PATIENCE {
            Some("a rank is gone, and the others wait for it to join them")
        } else {
            None
        }
    }
}

/// Waits until the launcher and its ranks have ended: by themselves, or since a signal came, or since it
/// hangs. `bears_deaths`: it was told to. Returns the signal, if there was one.
pub fn wait(
    launcher: &mut Child,
    signals: &Signals,
    told: Option<&Told>,
    bears_deaths: bool,
) -> io::Result<(Ended, Option<Signal>)> {
    let pid = Pid::from_raw(i32::try_from(launcher.id()).expect("a process has a positive number"));
    let (mut watch, mut asked, mut sent) = (Watch::new(), None, None);
    let ended = |status, by_itself| Ended { status, by_itself, bears_deaths };
    let ended = loop {
        let status = launcher.try_wait()?;
        if let Some(now) = signals.next().filter(|_| sent.is_none()) {
            sent = Some(now.signal);
            asked = Some(Instant::now());
            if !now.by_terminal && status.is_none() {
                kill(pid, now.signal)?;
            }
        }
        if let Some(status) = status {
            break ended(status, asked.is_none());
        }
        let Some(since) = asked else {
            // Other launchers see to it that all end when one has died.
            match watch.look(launcher.id(), told.filter(|_| bears_deaths)) {
                Some(wrong) => {
                    eprintln!("mpidrun: {wrong}; it is ended");
                    asked = Some(Instant::now());
                    // It ends its ranks.
                    kill(pid, Signal::SIGTERM)?;
                }
                None => std::thread::sleep(LOOK_EVERY),
            }
            continue;
        };
        if since.elapsed() > LAUNCHER_PATIENCE {
            launcher.kill()?;
            break ended(launcher.wait()?, false);
        }
        std::thread::sleep(LOOK_EVERY);
    };
    if !ended.by_itself || ended.status.code().is_none() {
        end_children()?;
    }
    Ok((ended, sent))
}

/// Ends what a launcher has left running, which nothing else would.
fn end_children() -> io::Result<()> {
    let begin = Instant::now();
    let mut asked = HashSet::new();
    loop {
        // Those that have ended.
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
            let signal = match asked.insert(child) {
                true => Signal::SIGTERM,
                false if begin.elapsed() > LAUNCHER_PATIENCE => Signal::SIGKILL,
                false => continue,
            };
            // It may have ended meanwhile.
            let _ = kill(Pid::from_raw(child), signal);
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn launchers_are_known_by_what_they_say() {
        let told = |text: &str| Kind::told(text);
        assert_eq!(told("mpirun (Open MPI) 4.1.4\n"), Kind { open_mpi: true, bears_deaths: true });
        assert_eq!(told("mpirun.openmpi (OpenRTE) 4.1.4"), Kind { open_mpi: true, bears_deaths: true });
        assert_eq!(told("mpirun (Open MPI) 5.0.6"), Kind { open_mpi: true, bears_deaths: false });
        assert_eq!(told("HYDRA build details:\n Version: 4.0.2"), Kind::default());
    }
}
