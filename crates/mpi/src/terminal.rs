//! Standard output: whether there is one, and how large the terminal is that it goes to.
//!
//! Source: the System V ABI on `.init_array`, tty_ioctl(4).

#![allow(unsafe_code)]

use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, Ordering};

/// As it was before anything of this program ran: Rust's runtime opens `/dev/null` in its place, and so what is written would be lost.
static WAS_CLOSED: AtomicBool = AtomicBool::new(false);

extern "C" fn look() {
    // SAFETY: the call takes two integers and reads no memory of ours.
    let flags = unsafe { libc::fcntl(libc::STDOUT_FILENO, libc::F_GETFD) };
    WAS_CLOSED.store(flags < 0, Ordering::Relaxed);
}

// SAFETY: the loader calls what stands in this section once, on the first thread, before `main`; `look` needs nothing that is not there then.
#[used]
#[unsafe(link_section = ".init_array")]
static LOOK: extern "C" fn() = look;

/// Whether this process was started with a standard output.
pub fn has_stdout() -> bool {
    !WAS_CLOSED.load(Ordering::Relaxed)
}

/// Rows and columns of the terminal behind a descriptor; `None` where there is none, or it does not know.
pub fn size(fd: RawFd) -> Option<(usize, usize)> {
    let mut size = libc::winsize { ws_row: 0, ws_col: 0, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: `size` is large enough for what the call writes, and lives longer than it.
    let done = unsafe { libc::ioctl(fd, libc::TIOCGWINSZ, &mut size) };
    (done == 0 && size.ws_row > 0 && size.ws_col > 0).then(|| (size.ws_row.into(), size.ws_col.into()))
}
