//! How many files and connections this process may have open.
//!
//! Systems start processes with a low limit that each may raise by itself up to a higher one: 1024 is the
//! largest number that the old call `select` can bear, which nothing here uses. The call that raises it needs
//! `unsafe`.
//!
//! Source: getrlimit(2); systemd.exec(5) on `LimitNOFILE=`.

#![allow(unsafe_code)]

use std::io;

/// Raises what this process may have open to the most that it may raise it to. Programs that it starts from
/// then on inherit that.
///
/// Returns: the limit before, and since.
///
/// Errors: the system refuses.
pub fn raise_limit() -> io::Result<(u64, u64)> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: writes one struct of ours.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let before = limit.rlim_cur;
    if before < limit.rlim_max {
        limit.rlim_cur = limit.rlim_max;
        // SAFETY: reads one struct of ours.
        if unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) } != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok((before, limit.rlim_cur))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_raised_once() {
        let (before, since) = raise_limit().unwrap();
        assert!(before <= since);
        assert_eq!(raise_limit().unwrap(), (since, since));
    }
}
