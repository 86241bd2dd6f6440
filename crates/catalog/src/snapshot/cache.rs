//! LRU caches of table data, statistics and column versions by snapshot: the next statement only queries the
//! newest snapshot, or what later snapshots added. Schemas, tables and views are cached in `catalog.rs`
//! (`cached_state`), roles and privileges in `catalog/access.rs`.
//!
//! Invariants: only data of committed snapshots is cached, never that of an open transaction. Files and
//! inlined rows are cached by snapshot. Statistics of a file are immutable: they are cached by table and
//! column, with the range of file ids that they cover. An entry of a snapshot older than the newest is
//! revalidated when there are newer snapshots than when it was read. A snapshot that expires while it is
//! cached remains readable for its holders; `Catalog::at` does not return it to others.
//!
//! Memory bound: `ENTRIES_MAX` entries of each kind; plus a configured number of bytes for files, inlined
//! rows and statistics together, shared by all sessions. The least recently used entry is evicted first.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError};

use crate::model::file_stats::FileStats;
use crate::model::files::TableData;
use crate::model::ids::{ColumnId, ObjectId, SnapshotId};
use crate::model::state::Column;

/// Entries of each kind of small answers: some for every table that many statements read.
const ENTRIES_MAX: usize = 128;
/// Entries of data that may be large. Many of them are small.
const LARGE_ENTRIES_MAX: usize = 1024;
/// Default bytes for files, inlined rows and statistics: three tables of 100 000 files with four filtered
/// columns each.
pub(crate) const BYTES_MAX: usize = 256 << 20;

#[derive(Default)]
pub(crate) struct Cache {
    pub versions: Lru<(ObjectId, SnapshotId), Vec<SnapshotId>>,
    pub columns: Lru<(ObjectId, SnapshotId), Vec<Column>>,
    pub large: Mutex<SizedLru<Key, Large>>,
}

impl Cache {
    /// Invalidates entries because snapshots have expired.
    pub fn invalidate(&self) {
        self.versions.clear();
        self.columns.clear();
        self.large().clear();
    }

    fn large(&self) -> std::sync::MutexGuard<'_, SizedLru<Key, Large>> {
        self.large.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the maximum number of cached bytes.
    pub fn set_bytes_max(&self, bytes: usize) {
        self.large().set_bytes_max(bytes);
    }

    pub fn data(&self, table: ObjectId, snapshot: SnapshotId) -> Option<CachedData> {
        match self.large().get(&Key::Data(table, snapshot)) {
            Some(Large::Data(data)) => Some(data),
            _ => None,
        }
    }

    /// The newest cached data of a table before `snapshot`.
    pub fn data_before(&self, table: ObjectId, snapshot: SnapshotId) -> Option<CachedData> {
        let older = |key: &Key| match key {
            Key::Data(of, at) if *of == table && *at < snapshot => Some(*at),
            _ => None,
        };
        let newest = self.large().keys().filter_map(older).max();
        self.data(table, newest?)
    }

    pub fn put_data(&self, known: CachedData) {
        let bytes = known.data.bytes();
        self.large().put(Key::Data(known.data.table, known.data.snapshot), Large::Data(known), bytes);
    }

    pub fn stats(&self, table: ObjectId, column: ColumnId) -> Option<CachedStats> {
        match self.large().get(&Key::Stats(table, column)) {
            Some(Large::Stats(stats)) => Some(stats),
            _ => None,
        }
    }

    pub fn put_stats(&self, table: ObjectId, column: ColumnId, stats: CachedStats) {
        let bytes = stats.stats.memory_bytes();
        self.large().put(Key::Stats(table, column), Large::Stats(stats), bytes);
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Key {
    Data(ObjectId, SnapshotId),
    Stats(ObjectId, ColumnId),
}

#[derive(Debug, Clone)]
pub(crate) enum Large {
    Data(CachedData),
    Stats(CachedStats),
}

/// The files and inlined rows of one table at one snapshot.
#[derive(Debug, Clone)]
pub(crate) struct CachedData {
    pub data: Arc<TableData>,
    /// Time of the snapshot, in microseconds since 1970: see `history.rs`.
    pub time: i64,
    /// The newest snapshot when the entry was validated. DuckDB's merging of files creates a snapshot and
    /// gives older ones other files with the same rows: their former files may be removed soon.
    pub compared_at: SnapshotId,
}

/// The statistics of one column in all files of a table within a range of ids.
#[derive(Debug, Clone)]
pub(crate) struct CachedStats {
    pub first: i64,
    pub last: i64,
    /// The last row of the statistics table when they were read, in SQLite.
    pub row: Option<StatsRow>,
    pub stats: Arc<FileStats>,
}

/// A row of `ducklake_file_column_stats`: its row number in SQLite, and its key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct StatsRow {
    pub row: i64,
    pub file: i64,
    pub column: ColumnId,
}

/// An LRU cache bounded by bytes.
pub(crate) struct SizedLru<K, V> {
    entries: HashMap<K, Entry<V>>,
    bytes: usize,
    bytes_max: usize,
    /// Counts uses.
    clock: u64,
}

struct Entry<V> {
    value: V,
    bytes: usize,
    used: u64,
}

impl<K, V> Default for SizedLru<K, V> {
    fn default() -> Self {
        Self { entries: HashMap::new(), bytes: 0, bytes_max: BYTES_MAX, clock: 0 }
    }
}

impl<K: Copy + Eq + Hash, V: Clone> SizedLru<K, V> {
    fn get(&mut self, key: &K) -> Option<V> {
        self.clock += 1;
        let entry = self.entries.get_mut(key)?;
        entry.used = self.clock;
        Some(entry.value.clone())
    }

    fn keys(&self) -> impl Iterator<Item = &K> {
        self.entries.keys()
    }

    fn put(&mut self, key: K, value: V, bytes: usize) {
        self.clock += 1;
        if bytes > self.bytes_max {
            // It would evict all others, and itself.
            self.remove(&key);
            return;
        }
        let entry = Entry { value, bytes, used: self.clock };
        self.bytes += bytes;
        if let Some(before) = self.entries.insert(key, entry) {
            self.bytes -= before.bytes;
        }
        self.shrink();
    }

    fn set_bytes_max(&mut self, bytes: usize) {
        self.bytes_max = bytes;
        self.shrink();
    }

    fn shrink(&mut self) {
        while self.bytes > self.bytes_max || self.entries.len() > LARGE_ENTRIES_MAX {
            let oldest = self.entries.iter().min_by_key(|(_, entry)| entry.used).map(|(key, _)| *key);
            let Some(oldest) = oldest else { return };
            self.remove(&oldest);
        }
    }

    fn remove(&mut self, key: &K) {
        if let Some(entry) = self.entries.remove(key) {
            self.bytes -= entry.bytes;
        }
    }

    fn clear(&mut self) {
        self.entries.clear();
        self.bytes = 0;
    }
}

/// An LRU cache bounded by entries.
pub(crate) struct Lru<K, V>(Mutex<VecDeque<(K, Arc<V>)>>);

impl<K, V> Default for Lru<K, V> {
    fn default() -> Self {
        Self(Mutex::new(VecDeque::new()))
    }
}

impl<K: PartialEq, V> Lru<K, V> {
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

    fn clear(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn least_recently_used_entries_are_evicted() {
        let kept = Lru::default();
        for number in 0..ENTRIES_MAX {
            kept.put(number, Arc::new(number * 2));
        }
        assert_eq!(kept.get(&0).as_deref(), Some(&0));
        kept.put(ENTRIES_MAX, Arc::new(7));
        assert_eq!(kept.get(&0).as_deref(), Some(&0));
        assert_eq!(kept.get(&1), None);
        kept.clear();
        assert_eq!(kept.get(&0), None);
    }

    #[test]
    fn cache_is_bounded_by_bytes() {
        let mut kept = SizedLru::default();
        kept.set_bytes_max(100);
        kept.put(1, 'a', 40);
        kept.put(2, 'b', 40);
        assert_eq!(kept.get(&1), Some('a'));
        kept.put(3, 'c', 40);
        assert_eq!((kept.get(&1), kept.get(&2), kept.get(&3)), (Some('a'), None, Some('c')));
        // A value that is too large is not cached, and replaces the former one of its key.
        kept.put(1, 'd', 101);
        assert_eq!((kept.get(&1), kept.get(&3), kept.bytes), (None, Some('c'), 40));
        kept.put(3, 'e', 60);
        assert_eq!((kept.get(&3), kept.bytes), (Some('e'), 60));
        kept.set_bytes_max(59);
        assert_eq!((kept.get(&3), kept.bytes), (None, 0));
        for number in 0..=LARGE_ENTRIES_MAX {
            kept.put(number, 'f', 0);
        }
        assert_eq!((kept.get(&0), kept.get(&1)), (None, Some('f')));
    }
}
