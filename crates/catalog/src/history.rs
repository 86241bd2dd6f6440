//! Which history of snapshots a catalog has. It may be put back to an earlier state while a process has it
//! open, from a backup or by a replica that takes the place of its primary without the last commits: the
//! numbers of snapshots and files that come then were others' before.
//!
//! # Invariants
//! - A snapshot is known by its number and its time together. Commits never go back in time, so a history
//!   that was put back and went on has no snapshot with both of one that was lost.
//! - What a process keeps is of one history. Whoever asks for the newest snapshot looks whether the newest
//!   one that was seen before is still there; if not, everything is forgotten. What was read before that
//!   moment is not kept after it: see `History::generation`.
//! - A transaction commits upon the history that it began with, or not at all (40001).

use std::sync::{Mutex, PoisonError};

use crate::catalog::Catalog;
use crate::database::Session;
use crate::error::{Error, Result};
use crate::load::Head;
use crate::state::SnapshotId;
use crate::values;

/// What was seen of a history.
#[derive(Debug, Default)]
pub(crate) struct History(Mutex<Seen>);

#[derive(Debug, Default, Clone, Copy)]
struct Seen {
    /// The newest snapshot, and its time in microseconds since 1970.
    newest: Option<(SnapshotId, i64)>,
    generation: u64,
}

impl History {
    fn seen(&self) -> Seen {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The newest snapshot that was seen, 0 before any.
    pub fn newest(&self) -> SnapshotId {
        self.seen().newest.map_or(0, |(snapshot, _)| snapshot)
    }

    /// Counts the histories. What was read while there was another one is not to be kept.
    pub fn generation(&self) -> u64 {
        self.seen().generation
    }

    fn is_newest(&self, head: &Head) {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        seen.newest = seen.newest.max(Some((head.snapshot, head.time)));
    }

    fn begin_anew(&self, head: &Head) {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *seen = Seen { newest: Some((head.snapshot, head.time)), generation: seen.generation + 1 };
    }
}

impl Catalog {
    /// Counts the histories of the catalog that were seen: it may have been put back to an earlier state.
    pub fn histories(&self) -> u64 {
        self.inner.history.generation()
    }

    /// Looks whether the newest snapshot continues the history that is known, and forgets all that is kept if
    /// it does not. An older one may have been read before another task saw a newer one.
    pub(crate) async fn follow(&self, head: &Head) -> Result<()> {
        let history = &self.inner.history;
        let is_same = match history.seen().newest {
            None => true,
            Some((snapshot, time)) if snapshot == head.snapshot => time == head.time,
            Some((snapshot, time)) => {
                let found = self.inner.database.query(time_query(snapshot)).await?;
                found
                    .first()
                    .map(|row| row.optional_text(0))
                    .transpose()?
                    .flatten()
                    .is_some_and(|found| values::parse_time(&found).unwrap_or_default() == time)
            }
        };
        if is_same {
            history.is_newest(head);
            return Ok(());
        }
        tracing::warn!(
            snapshot = head.snapshot,
            "the newest snapshot that was seen is not there any more: it has expired, or the catalog has another history; what was kept of it is forgotten"
        );
        history.begin_anew(head);
        self.forget();
        Ok(())
    }
}

/// Looks whether a snapshot that was read before is in the history that ends with `head`. One that has
/// expired may be.
///
/// Errors: it is not (40001).
pub(crate) async fn check(
    session: &mut Session,
    (snapshot, time): (SnapshotId, i64),
    head: &Head,
) -> Result<()> {
    let found = match snapshot == head.snapshot {
        true => Some(head.time),
        false => {
            let rows = session.query(time_query(snapshot)).await?;
            let found = rows.first().map(|row| row.optional_text(0)).transpose()?.flatten();
            found.map(|found| values::parse_time(&found).unwrap_or_default())
        }
    };
    match head.snapshot < snapshot || found.is_some_and(|found| found != time) {
        true => Err(lost(snapshot)),
        false => Ok(()),
    }
}

/// A snapshot is none of the catalog's any more.
pub(crate) fn lost(snapshot: SnapshotId) -> Error {
    Error::Conflict(format!("the catalog was put back to a state before snapshot {snapshot}, or replaced"))
}

fn time_query(snapshot: SnapshotId) -> String {
    format!("SELECT snapshot_time FROM ducklake_snapshot WHERE snapshot_id = {snapshot}")
}
