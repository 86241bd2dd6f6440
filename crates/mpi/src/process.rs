//! Other ranks' processes as file descriptors (pidfd): noticed when they end, and never another process with the same id.
//!
//! MPI does not tell of the death of a rank; the system does, on one host. Its calls stand in this crate because they need
//! `unsafe`.
//!
//! Source: pidfd_open(2), pidfd_send_signal(2), proc_pid_stat(5); Linux 5.3.

#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

/// A descriptor that polls readable once process `pid` has ended.
///
/// Errors: no such process, or a kernel without pidfd.
pub fn watch(pid: u32) -> io::Result<OwnedFd> {
    // SAFETY: the call takes two integers and reads no memory of ours.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid as libc::pid_t, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just made this descriptor for us, close-on-exec, and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as RawFd) })
}

/// Ends the process behind `watched` at once, even one that is stopped.
///
/// Errors: it has ended already, or belongs to somebody else.
pub fn kill(watched: &OwnedFd) -> io::Result<()> {
    let no_info = std::ptr::null::<libc::siginfo_t>();
    // SAFETY: the descriptor is open for as long as it is borrowed; a null siginfo is allowed and means a plain kill.
    let done =
        unsafe { libc::syscall(libc::SYS_pidfd_send_signal, watched.as_raw_fd(), libc::SIGKILL, no_info, 0) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Whether process `pid` is stopped, by a signal or a debugger. One that does not exist is not.
pub fn is_stopped(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The name before it may hold anything, parentheses too.
    let state = stat.rsplit_once(')').and_then(|(_, rest)| rest.trim_start().chars().next());
    matches!(state, Some('T' | 't'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn a_process_is_watched_and_ended() {
        let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
        let watched = watch(child.id()).unwrap();
        kill(&watched).unwrap();
        assert!(!child.wait().unwrap().success());
        assert!(kill(&watched).is_err());
    }

    #[test]
    fn a_process_that_does_not_exist_is_an_error() {
        assert!(watch(u32::MAX >> 1).is_err());
        assert!(!is_stopped(u32::MAX >> 1));
    }

    #[test]
    fn a_stopped_process_is_seen() {
        let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
        assert!(!is_stopped(child.id()));
        assert!(Command::new("kill").args(["-STOP", &child.id().to_string()]).status().unwrap().success());
        while !is_stopped(child.id()) {
            std::thread::yield_now();
        }
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
