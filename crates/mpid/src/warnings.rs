//! Messages of the library on stderr: warnings as lines, for processes without a `tracing` subscriber (events
//! the library recovered from, but not as requested), and the reason for which a failed program ends.

use std::fmt;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::time::Duration;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

/// Time limit for the launcher to read a rank's last line.
const READ_WAIT_MAX: Duration = Duration::from_secs(1);

/// Prints to stderr, in a line that begins with `mpid: `, why this program is about to end. Under a launcher
/// it then waits, a second at most, until the launcher has read the line: a launcher kills the other ranks at
/// once when a rank has failed, and stops reading their output.
pub fn last_words(text: &str) {
    let mut stderr = std::io::stderr();
    // A failed write is no reason to panic here.
    let _ = stderr.write_all(format!("mpid: {text}\n").as_bytes());
    if harrier_interconnect::launched_rank().is_some() {
        harrier_interconnect::drain(stderr.as_raw_fd(), READ_WAIT_MAX);
    }
}

/// Line format `mpid: rank 1: message field=value`; without the rank in a single process.
struct Lines {
    rank: Option<usize>,
}

impl<S, N> FormatEvent<S, N> for Lines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut out: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        out.write_str("mpid: ")?;
        if let Some(rank) = self.rank {
            write!(out, "rank {rank}: ")?;
        }
        context.format_fields(out.by_ref(), event)?;
        writeln!(out)
    }
}

/// Prints warnings to stderr from now on, one line each, unless the process already has a `tracing`
/// subscriber. To be called first by a program; a library must not decide this for its process.
pub fn tell_warnings() {
    let lines = Lines { rank: harrier_interconnect::launched_rank() };
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(Level::WARN)
        .with_ansi(false)
        .with_writer(std::io::stderr)
        .event_format(lines)
        .finish();
    // Fails if a subscriber is already set.
    let _ = tracing::subscriber::set_global_default(subscriber);
}
