//! Cleanup of the launcher of a killed front end. Its ranks end by themselves once their front end has
//! disconnected, and the launcher ends with them, unless it waits forever for an unreachable host: then the
//! next front end on this host kills it.
//!
//! A front end records the launcher's pid with its start time: the pid alone may have been reused.

use std::fs;
use std::os::fd::AsFd;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use harrier_mpi::process;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

const FILE: &str = "launcher";

/// Time for a launcher to end by itself.
const PATIENCE: Duration = Duration::from_secs(3);

/// Records the launcher in a front end's own folder. Only the last one matters: a live front end ends the
/// others itself.
pub(super) fn remember(folder: &Path, pid: Option<u32>) {
    let Some((pid, began)) = pid.and_then(|pid| Some((pid, began(pid)?))) else { return };
    if let Err(error) = fs::write(folder.join(FILE), format!("{pid} {began}")) {
        tracing::debug!(%error, "cannot write down which process the launcher is");
    }
}

/// Ends the launcher left by a killed front end, whose own folder was `folder`. Does not wait.
pub(super) fn end(folder: &Path) {
    let text = fs::read_to_string(folder.join(FILE)).unwrap_or_default();
    let mut numbers = text.split(' ').map(str::parse::<u64>);
    let (Some(Ok(pid)), Some(Ok(expected))) = (numbers.next(), numbers.next()) else { return };
    let Ok(pid) = u32::try_from(pid) else { return };
    // Open the pidfd first, then check the process: the descriptor cannot change its process.
    let Ok(watched) = process::watch(pid) else { return };
    if began(pid) != Some(expected) {
        return;
    }
    thread::spawn(move || {
        let deadline = Instant::now() + PATIENCE;
        while let Some(left) = deadline.checked_duration_since(Instant::now()) {
            let mut fds = [PollFd::new(watched.as_fd(), PollFlags::POLLIN)];
            let left = PollTimeout::try_from(left).unwrap_or(PollTimeout::ZERO);
            if poll(&mut fds, left).is_ok_and(|ready| ready > 0) {
                return;
            }
        }
        tracing::info!(pid, "ended the launcher of a server that was killed");
        let _ = process::kill(&watched);
    });
}

/// Start time of a process, in ticks since boot: field 22 of proc_pid_stat(5).
fn began(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name may contain anything; the state behind it is field 3.
    let (_, fields) = stat.rsplit_once(") ")?;
    fields.split(' ').nth(22 - 3)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Child, Command};

    fn sleeper() -> Child {
        Command::new("sleep").arg("1000").spawn().unwrap()
    }

    #[test]
    fn orphaned_processes_are_ended() {
        let folder = tempfile::tempdir().unwrap();
        let mut left = sleeper();
        remember(folder.path(), Some(left.id()));
        end(folder.path());
        assert!(!left.wait().unwrap().success());
    }

    #[test]
    fn reused_pids_are_not_ended() {
        let folder = tempfile::tempdir().unwrap();
        let mut other = sleeper();
        let began = began(other.id()).unwrap();
        for text in [format!("{} {}", other.id(), began + 1), other.id().to_string(), String::new()] {
            fs::write(folder.path().join(FILE), text).unwrap();
            end(folder.path());
        }
        thread::sleep(PATIENCE + Duration::from_millis(500));
        assert!(other.try_wait().unwrap().is_none());
        other.kill().unwrap();
        other.wait().unwrap();
        // A process that has exited is left alone as well.
        end(folder.path());
    }
}
