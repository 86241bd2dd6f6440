//! Limit on open files and connections of this process.
//!
//! Systems start processes with a low soft limit that each may raise up to a hard limit: 1024 is the maximum
//! descriptor that the legacy call `select` supports, which nothing here uses. Raising it needs `unsafe`.
//!
//! Source: getrlimit(2); systemd.exec(5) on `LimitNOFILE=`.

#![allow(unsafe_code)]

use std::io;

/// Raises the soft limit on open descriptors to the hard limit. Child processes started from then on inherit
/// it.
///
/// Returns the limits before and after.
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
