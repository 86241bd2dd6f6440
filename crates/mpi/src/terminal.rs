//! Standard output and error: whether stdout is open, the size of the terminal, and whether written output
//! has been read.
//!
//! Source: the System V ABI on `.init_array`, tty_ioctl(4), pipe(7), unix(7).

#![allow(unsafe_code)]

use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// State before any code of this program ran: Rust's runtime opens `/dev/null` in place of a closed
/// descriptor, and output would be lost silently.
static WAS_CLOSED: AtomicBool = AtomicBool::new(false);

extern "C" fn record_stdout() {
    // SAFETY: the call takes two integers and reads no memory of ours.
    let flags = unsafe { libc::fcntl(libc::STDOUT_FILENO, libc::F_GETFD) };
    WAS_CLOSED.store(flags < 0, Ordering::Relaxed);
}

// SAFETY: the loader calls the functions in this section once, on the first thread, before `main`;
// `record_stdout` needs nothing that does not exist then.
#[used]
#[unsafe(link_section = ".init_array")]
static RECORD_STDOUT: extern "C" fn() = record_stdout;

/// Whether this process was started with an open standard output.
pub fn has_stdout() -> bool {
    !WAS_CLOSED.load(Ordering::Relaxed)
}

/// Rows and columns of the terminal behind a descriptor; `None` if it is not a terminal, or its size is
/// unknown.
pub fn size(fd: RawFd) -> Option<(usize, usize)> {
    let mut size = libc::winsize { ws_row: 0, ws_col: 0, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: `size` is large enough for what the call writes, and lives longer than it.
    let done = unsafe { libc::ioctl(fd, libc::TIOCGWINSZ, &mut size) };
    (done == 0 && size.ws_row > 0 && size.ws_col > 0).then(|| (size.ws_row.into(), size.ws_col.into()))
}

/// Poll interval of [`drain`].
const DRAIN_POLL_INTERVAL: Duration = Duration::from_millis(1);

/// Waits until the reader of the pipe or socket behind a descriptor has read everything written to it, for at
/// most `patience`. Returns at once for anything else, such as a file or a terminal. Returns whether nothing
/// is left unread.
pub fn drain(fd: RawFd, patience: Duration) -> bool {
    let deadline = Instant::now() + patience;
    loop {
        match unread_bytes(fd) {
            None | Some(0) => return true,
            Some(_) if Instant::now() >= deadline => return false,
            Some(_) => std::thread::sleep(DRAIN_POLL_INTERVAL),
        }
    }
}

/// Number of bytes written to a descriptor and not yet read. `None`: unknown.
fn unread_bytes(fd: RawFd) -> Option<libc::c_int> {
    // SAFETY: `stat` is a plain struct, which the call fills in.
    let mut stat = unsafe { std::mem::zeroed::<libc::stat>() };
    // SAFETY: writes one struct of ours.
    if unsafe { libc::fstat(fd, &mut stat) } != 0 {
        return None;
    }
    let question = match stat.st_mode & libc::S_IFMT {
        libc::S_IFIFO => libc::FIONREAD,
        // SIOCOUTQ, which has the same number.
        libc::S_IFSOCK => libc::TIOCOUTQ,
        _ => return None,
    };
    let mut bytes: libc::c_int = 0;
    // SAFETY: both calls write one int of ours.
    let done = unsafe { libc::ioctl(fd, question, &mut bytes) };
    (done == 0).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::os::fd::AsRawFd;
    use std::os::unix::net::UnixStream;

    #[test]
    fn terminal_output_is_drained() {
        let (reader, writer) = std::io::pipe().unwrap();
        let (one, other) = UnixStream::pair().unwrap();
        check(reader, writer);
        check(one, other);
        // The readers of a file are unknown.
        let file = std::fs::File::open(std::env::current_exe().unwrap()).unwrap();
        assert!(drain(file.as_raw_fd(), Duration::ZERO));
        assert!(drain(-1, Duration::ZERO));
    }

    fn check(mut reader: impl Read + Send + 'static, mut writer: impl Write + AsRawFd) {
        assert!(drain(writer.as_raw_fd(), Duration::ZERO));
        writer.write_all(b"the last words").unwrap();
        assert!(!drain(writer.as_raw_fd(), Duration::from_millis(5)));
        let read = std::thread::spawn(move || reader.read_exact(&mut [0; 14]).map(|()| reader));
        assert!(drain(writer.as_raw_fd(), Duration::from_secs(60)));
        drop(read.join().unwrap().unwrap());
    }
}
