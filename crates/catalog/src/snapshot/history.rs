//! Detection of a catalog that was restored to an earlier state while processes have it open, from a backup
//! or by a replica promoted without the last commits: later snapshot and file ids then duplicate lost ones.
//!
//! # Invariants
//! - A snapshot is identified by its number and its time together. Commit times are monotonic, so a restored
//!   history that continues has no snapshot that equals a lost one in both.
//! - A process's caches are of one history. Each query for the newest snapshot verifies that the newest one
//!   seen before still exists; if not, all caches are invalidated. Data read before that moment is not cached
//!   after it: see `History::generation`.
//! - A transaction commits to the history that it began with, or fails (40001).

use std::sync::{Mutex, PoisonError};

use crate::database::Database;
use crate::database::session::{Row, Session};
use crate::error::{Error, Result};
use crate::model::ids::SnapshotId;
use crate::model::values;
use crate::snapshot::head::Head;

/// The history seen so far.
#[derive(Debug, Default)]
pub(crate) struct History(Mutex<Seen>);

#[derive(Debug, Default, Clone, Copy)]
struct Seen {
    /// The newest snapshot, and its time in microseconds since 1970.
    newest: Option<(SnapshotId, i64)>,
    generation: u64,
}

impl History {
    fn last_seen(&self) -> Seen {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The newest snapshot seen, 0 before any.
    pub fn newest(&self) -> SnapshotId {
        self.last_seen().newest.map_or(0, |(snapshot, _)| snapshot)
    }

    /// Counts the histories. Data read in another generation must not be cached.
    pub fn generation(&self) -> u64 {
        self.last_seen().generation
    }

    /// Whether the newest snapshot continues the known history. If it does not, this is the history from now
    /// on, and all caches are of another. An older snapshot may have been read before another task saw a
    /// newer one.
    pub async fn verify(&self, database: &Database, head: &Head) -> Result<bool> {
        let is_same = match self.last_seen().newest {
            None => true,
            Some((snapshot, time)) if snapshot == head.snapshot => time == head.time,
            Some((snapshot, time)) => time_in(&database.query(time_query(snapshot)).await?)? == Some(time),
        };
        if is_same {
            self.set_newest(head);
            return Ok(true);
        }
        tracing::warn!(
            snapshot = head.snapshot,
            "the newest snapshot that was seen is not there any more: it has expired, or the catalog has another history; what was kept of it is forgotten"
        );
        self.reset(head);
        Ok(false)
    }

    fn set_newest(&self, head: &Head) {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        seen.newest = seen.newest.max(Some((head.snapshot, head.time)));
    }

    fn reset(&self, head: &Head) {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *seen = Seen { newest: Some((head.snapshot, head.time)), generation: seen.generation + 1 };
    }
}

/// Verifies that a snapshot read before is in the history that ends with `head`. An expired one is accepted.
///
/// Errors: it is not (40001).
pub(crate) async fn check(
    session: &mut Session,
    (snapshot, time): (SnapshotId, i64),
    head: &Head,
) -> Result<()> {
    let found = match snapshot == head.snapshot {
        true => Some(head.time),
        false => time_in(&session.query(time_query(snapshot)).await?)?,
    };
    match head.snapshot < snapshot || found.is_some_and(|found| found != time) {
        true => Err(lost_snapshot(snapshot)),
        false => Ok(()),
    }
}

/// The error for a snapshot that the catalog does not contain any more.
pub(crate) fn lost_snapshot(snapshot: SnapshotId) -> Error {
    Error::Conflict(format!("the catalog was put back to a state before snapshot {snapshot}, or replaced"))
}

fn time_query(snapshot: SnapshotId) -> String {
    format!("SELECT snapshot_time FROM ducklake_snapshot WHERE snapshot_id = {snapshot}")
}

/// The time of a snapshot, from the rows of `time_query`; `None`: the snapshot is not there.
fn time_in(rows: &[Row]) -> Result<Option<i64>> {
    let found = rows.first().map(|row| row.optional_text(0)).transpose()?.flatten();
    Ok(found.map(|found| values::parse_time(&found).unwrap_or_default()))
}
