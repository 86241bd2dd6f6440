//! Processes of other ranks as file descriptors (pidfd), to detect their exit without confusing reused ids.
//!
//! MPI does not report the death of a rank; the system does, on one host. Its calls are in this crate because
//! they need `unsafe`.
//!
//! Source: pidfd_open(2), pidfd_send_signal(2), proc_pid_stat(5); Linux 5.3.

#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

/// Opens a descriptor that polls readable once process `pid` has ended.
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

/// Kills the process behind `watched` at once, even if it is stopped.
///
/// Errors: it has ended already, or belongs to another user.
pub fn kill(watched: &OwnedFd) -> io::Result<()> {
    let no_info = std::ptr::null::<libc::siginfo_t>();
    // SAFETY: the descriptor is open for as long as it is borrowed; a null siginfo is allowed and means a
    // plain kill.
    let done =
        unsafe { libc::syscall(libc::SYS_pidfd_send_signal, watched.as_raw_fd(), libc::SIGKILL, no_info, 0) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Whether process `pid` is stopped, by a signal or a debugger; false if it does not exist.
pub fn is_stopped(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The name before it may contain anything, parentheses too.
    let state = stat.rsplit_once(')').and_then(|(_, rest)| rest.trim_start().chars().next());
    matches!(state, Some('T' | 't'))
}

/// Makes this process survive signals that are notifications: SIGXFSZ, of a file that grew beyond its limit,
/// which the call that wrote it reports (EFBIG); SIGUSR1 and SIGUSR2, by which batch systems announce a time
/// limit. Child processes get the default handling, except for SIGXFSZ, as in PostgreSQL. An existing handler
/// for SIGUSR1 or SIGUSR2, such as that of a checkpointing library, is kept.
pub fn survive_notification_signals() {
    extern "C" fn nothing(_: libc::c_int) {}
    // SAFETY: the action is filled in before it is installed, its handler does nothing and exists until the
    // process has ended, and interrupted calls are restarted (SA_RESTART).
    unsafe {
        libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
        for signal in [libc::SIGUSR1, libc::SIGUSR2] {
            let mut action = std::mem::zeroed::<libc::sigaction>();
            let asked = libc::sigaction(signal, std::ptr::null(), &mut action);
            if asked != 0 || action.sa_sigaction != libc::SIG_DFL {
                continue;
            }
            action.sa_sigaction = nothing as extern "C" fn(libc::c_int) as libc::sighandler_t;
            action.sa_flags = libc::SA_RESTART;
            libc::sigemptyset(&mut action.sa_mask);
            libc::sigaction(signal, &action, std::ptr::null_mut());
        }
    }
}

/// Makes this process skip the exit handlers that libraries have registered: one may wait for ever for a
/// thread of its library. Buffers of the C library are still flushed.
pub fn skip_exit_handlers() {
    unsafe extern "C" {
        /// on_exit(3), of the GNU C library.
        fn on_exit(
            handler: extern "C" fn(libc::c_int, *mut libc::c_void),
            argument: *mut libc::c_void,
        ) -> libc::c_int;
    }
    extern "C" fn leave(status: libc::c_int, _: *mut libc::c_void) {
        // SAFETY: flushing all streams takes no argument of ours; _exit runs nothing of this process any
        // more.
        unsafe {
            libc::fflush(std::ptr::null_mut());
            libc::_exit(status)
        }
    }
    // SAFETY: the handler is a function of this program, which is there until the process has ended, and
    // ignores its argument. Handlers run in the reverse order of their registration, so this one comes before
    // those of libraries that are loaded.
    unsafe { on_exit(leave, std::ptr::null_mut()) };
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
    fn missing_processes_are_errors() {
        assert!(watch(u32::MAX >> 1).is_err());
        assert!(!is_stopped(u32::MAX >> 1));
    }

    #[test]
    fn stopped_processes_are_detected() {
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
