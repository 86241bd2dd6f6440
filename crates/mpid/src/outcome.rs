//! What ranks tell `mpidrun` of their progress, in a file that it names.

use std::fs::OpenOptions;
use std::io::Write;

/// Environment variable: the file in which ranks report their progress to `mpidrun`, one line each. Rank 0
/// writes [`JOINED`] after the rendezvous, and its exit status or [`WITHOUT_OTHERS`] when it leaves; any rank
/// may write [`NOT_LEFT`]. A launcher does not distinguish a killed rank from one that exited: Hydra's exit
/// status is then the bare signal number, and a launcher that tolerates lost ranks reports nothing.
pub const OUTCOME: &str = "HARRIER_MPID_OUTCOME";

/// The rendezvous is complete: from here on, a rank that disappears counts as lost.
pub const JOINED: &str = "joined";

/// Ranks were lost, and the others could not continue.
pub const WITHOUT_OTHERS: &str = "broken";

/// A rank exited by itself, without leaving and without having seen another rank lost.
pub const NOT_LEFT: &str = "exited";

/// Exit status of a program whose ranks were lost.
pub const BROKEN: i32 = 3;

/// Appends a line to the file of [`OUTCOME`]. Errors: the file cannot be written.
pub(crate) fn report_to_mpidrun(what: &str) -> std::io::Result<()> {
    let Some(path) = std::env::var_os(OUTCOME) else { return Ok(()) };
    let mut file = OpenOptions::new().append(true).create(true).open(path)?;
    // A single write, since other ranks append, too.
    file.write_all(format!("{what}\n").as_bytes())
}
