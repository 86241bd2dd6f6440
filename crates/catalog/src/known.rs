//! What was read of tables at snapshots and always reads the same: kept for the next statement, which then asks the database for the
//! newest snapshot alone.
//!
//! Invariants: only what belongs to one committed snapshot is kept, under its number. A snapshot that expires while it is kept here is
//! still read by those that have it; `Catalog::at` does not give it to others.
//!
//! Memory bound: `ENTRIES_MAX` answers of each kind, of tables with `FILES_MAX` files and as many kept rows at most: those are the ones of
//! which small statements read little.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use crate::files::{ColumnStats, TableData};
use crate::state::{Column, ColumnId, ObjectId, SnapshotId};

/// Answers of each kind: some for every table that many statements read.
const ENTRIES_MAX: usize = 128;
/// Larger tables are read anew by every statement, whose work is larger than that.
pub(crate) const FILES_MAX: usize = 256;

/// Statistics by file and column.
pub(crate) type FileStats = BTreeMap<(i64, ColumnId), ColumnStats>;

/// The table, the snapshot, the columns and the files that were asked for.
type StatsKey = (ObjectId, SnapshotId, Vec<ColumnId>, Option<Vec<i64>>);

#[derive(Default)]
pub(crate) struct Known {
    pub data: Kept<(ObjectId, SnapshotId), TableData>,
    pub versions: Kept<(ObjectId, SnapshotId), Vec<SnapshotId>>,
    pub columns: Kept<(ObjectId, SnapshotId), Vec<Column>>,
    pub stats: Kept<StatsKey, FileStats>,
}

impl Known {
    /// Snapshots have expired.
    pub fn forget(&self) {
        self.data.forget();
        self.versions.forget();
        self.columns.forget();
        self.stats.forget();
    }
}

/// The answers that were used last.
pub(crate) struct Kept<K, V>(Mutex<VecDeque<(K, Arc<V>)>>);

impl<K, V> Default for Kept<K, V> {
    fn default() -> Self {
        Self(Mutex::new(VecDeque::new()))
    }
}

impl<K: PartialEq, V> Kept<K, V> {
    pub fn get(&self, key: &K) -> Option<Arc<V>> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let place = kept.iter().position(|(known, _)| known == key)?;
        let found = kept.remove(place)?;
        let value = Arc::clone(&found.1);
        kept.push_front(found);
        Some(value)
    }

    pub fn put(&self, key: K, value: Arc<V>) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.push_front((key, value));
        kept.truncate(ENTRIES_MAX);
    }

    fn forget(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_used_for_long_goes_first() {
        let kept = Kept::default();
        for number in 0..ENTRIES_MAX {
            kept.put(number, Arc::new(number * 2));
        }
        assert_eq!(kept.get(&0).as_deref(), Some(&0));
        kept.put(ENTRIES_MAX, Arc::new(7));
        assert_eq!(kept.get(&0).as_deref(), Some(&0));
        assert_eq!(kept.get(&1), None);
        kept.forget();
        assert_eq!(kept.get(&0), None);
    }
}
