//! What the library says on stderr: warnings, as lines, for processes that have no subscriber of their own
//! (what went on, and not as it was asked); and why a program ends that has failed.

use std::fmt;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::time::Duration;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

/// How long a launcher may take to read what a rank has said last.
const READ_PATIENCE: Duration = Duration::from_secs(1);

/// Says on stderr, in a line that begins with `mpid: `, why this program is about to end. Under a launcher it
/// waits, a second at most, until that has read the line: one that hears of a rank that has failed ends the
/// others at once, and reads no more of any.
pub fn last_words(text: &str) {
    let mut stderr = std::io::stderr();
    // One that cannot be written to is no reason to panic here.
    let _ = stderr.write_all(format!("mpid: {text}\n").as_bytes());
    if harrier_interconnect::launched_rank().is_some() {
        harrier_interconnect::drain(stderr.as_raw_fd(), READ_PATIENCE);
    }
}

/// `mpid: rank 1: message field=value`; alone without the rank.
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

/// Writes warnings to stderr from now on, each as one line, unless the process has a subscriber of `tracing`
/// already. For programs to call first; a library does not decide this for its process.
pub fn tell_warnings() {
    let lines = Lines { rank: harrier_interconnect::launched_rank() };
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(Level::WARN)
        .with_ansi(false)
        .with_writer(std::io::stderr)
        .event_format(lines)
        .finish();
    // There is one already.
    let _ = tracing::subscriber::set_global_default(subscriber);
}
