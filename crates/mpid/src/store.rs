//! Store of an A task's received pairs: buffered in memory, sorted or combined on arrival, spilled above a
//! threshold.
//!
//! ```text
//!   blocks ─► arrival order ────────────────────────────────► pairs in no order
//!          ─► run_bytes of them ─► sorted run ─┐
//!                 memory is full ─► run on disk ├─ merge ───► pairs in order, groups complete
//!          ─► table, combined ── memory is full ┘
//! ```
//!
//! # Memory bound
//! The owner calls [`Store::spill`] when all stores together exceed the job's share of memory
//! ([`Store::bytes`]); that frees all of the store's memory. Reading back takes one buffer per run.

use crate::datum::Rejected;
use crate::hash::hash;
use crate::origin::PanicKeys;
use crate::records::{self, Pairs, Place};
use crate::runs::{KeyOrder, MemoryRun, Merge};
use crate::spill::{DiskCursor, DiskRun, SpillError, Spiller, WriteError};
use crate::table::{Combine, Table, Upsert};
use crate::wire::Damaged;
use bytes::Bytes;
use std::collections::VecDeque;
use std::sync::Arc;

/// Number of runs on disk above which they are merged into one: each needs a buffer when read. For unordered
/// pairs, whose runs are read one after the other, the number of files above which a new run is appended to
/// an existing file: each file is an open descriptor.
const DISK_RUNS_MAX: usize = 64;

/// Size below which the pairs of a block are copied, because a block occupies its whole size while any of it
/// is used. Half of a default block, so that at least half of the held memory is accounted for.
const COPIED_BYTES_MAX: usize = 128 * 1024;

/// Pairs that are looked up in a table together.
const BATCH_PAIRS: usize = 16;

/// Target size of the blocks that a table is written to.
const TABLE_BLOCK_BYTES: usize = 1 << 20;

/// Order and grouping of an A task's pairs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Arrangement {
    /// Arrival order.
    Plain,
    /// All values of a key together; keys in no order.
    #[default]
    Grouped,
    /// All values of a key together; keys in order.
    Sorted,
}

/// Processing options of the receiving side; the same for every A task of a job.
#[derive(Clone)]
pub struct Shape {
    pub arrangement: Arrangement,
    pub order: KeyOrder,
    pub combine: Option<Arc<dyn Combine>>,
    /// Bytes of pairs per sorted run.
    pub run_bytes: usize,
}

/// Why pairs cannot be stored or read.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("{0}")]
    Spill(#[from] SpillError),
    #[error("{0}")]
    Damaged(#[from] Damaged),
    /// The combiner rejected a value.
    #[error("{0}")]
    Rejected(#[source] Rejected),
}

/// The received pairs of one A task; when streaming, of one window of it.
pub struct Store {
    shape: Shape,
    /// Unsorted blocks; never sorted in a plain arrangement.
    pending: Vec<Bytes>,
    pending_bytes: usize,
    runs: Vec<Arc<MemoryRun>>,
    run_bytes: usize,
    /// Present with a combiner while pairs are in memory.
    table: Option<Table>,
    disk: Vec<DiskRun>,
    /// Received pairs and bytes, before combining.
    pub received_pairs: u64,
    pub received_bytes: u64,
    /// Pairs combined into another one here.
    pub combined: u64,
}

impl Store {
    pub fn new(shape: Shape) -> Store {
        Store {
            shape,
            pending: Vec::new(),
            pending_bytes: 0,
            runs: Vec::new(),
            run_bytes: 0,
            table: None,
            disk: Vec::new(),
            received_pairs: 0,
            received_bytes: 0,
            combined: 0,
        }
    }

    /// Memory in use, in bytes.
    pub fn bytes(&self) -> usize {
        self.pending_bytes + self.run_bytes + self.table.as_ref().map_or(0, Table::bytes)
    }

    /// Adds the pairs of one block, which are `count`.
    pub fn add(&mut self, pairs: Bytes, count: u32, spiller: &mut Spiller) -> Result<(), StoreError> {
        self.received_pairs += u64::from(count);
        self.received_bytes += pairs.len() as u64;
        if let Some(combine) = self.shape.combine.clone() {
            return self.combine_all(&*combine, &pairs, count, spiller);
        }
        self.pending_bytes += pairs.len();
        let small = pairs.len() < COPIED_BYTES_MAX;
        self.pending.push(if small { Bytes::copy_from_slice(&pairs) } else { pairs });
        if self.shape.arrangement != Arrangement::Plain && self.pending_bytes >= self.shape.run_bytes {
            self.sort_pending()?;
        }
        Ok(())
    }

    fn combine_all(
        &mut self,
        combine: &dyn Combine,
        pairs: &[u8],
        count: u32,
        spiller: &mut Spiller,
    ) -> Result<(), StoreError> {
        let before = self.received_pairs - u64::from(count);
        let mut seen = 0;
        let mut pairs = Pairs::new(pairs);
        // Batched lookups, as in an O task.
        let mut batch: [(u64, &[u8], &[u8]); BATCH_PAIRS] = [(0, &[], &[]); BATCH_PAIRS];
        let mut at = PanicKeys { what: "its values were combined", keys: [&[]; 2] };
        loop {
            let mut len = 0;
            for (place, pair) in batch.iter_mut().zip(&mut pairs) {
                let (key, value) = pair?;
                *place = (hash(key), key, value);
                len += 1;
            }
            if len == 0 {
                break;
            }
            seen += len as u32;
            let table = self.table.get_or_insert_default();
            table.prefetch(batch[..len].iter().map(|(hash, _, _)| *hash));
            for (place, (hash, key, value)) in batch[..len].iter().enumerate() {
                at.keys = [key, key];
                loop {
                    let table = self.table.get_or_insert_default();
                    let put = table.upsert(*hash, key, value, combine, None);
                    match put.map_err(|combine_error| {
                        let number = before + u64::from(seen) - (len - place) as u64 + 1;
                        let Rejected(why) = combine_error.for_key(key);
                        StoreError::Rejected(Rejected(format!("{why}, pair {number} of those that came")))
                    })? {
                        Upsert::Inserted => {}
                        Upsert::Combined => self.combined += 1,
                        Upsert::Full => {
                            self.spill(spiller)?;
                            continue;
                        }
                    }
                    break;
                }
            }
        }
        if seen != count {
            return Err(Damaged("a block with another number of pairs").into());
        }
        Ok(())
    }

    fn sort_pending(&mut self) -> Result<(), StoreError> {
        if self.pending.is_empty() {
            return Ok(());
        }
        let run = MemoryRun::sort(std::mem::take(&mut self.pending), &self.shape.order)?;
        self.run_bytes += std::mem::take(&mut self.pending_bytes) + run.index_bytes();
        self.runs.push(Arc::new(run));
        Ok(())
    }

    /// Spills the pairs in memory to disk.
    pub fn spill(&mut self, spiller: &mut Spiller) -> Result<(), StoreError> {
        // Also frees the table's memory.
        if let Some(table) = self.table.take().filter(|table| !table.is_empty()) {
            let blocks = blocks_of(&table);
            drop(table);
            self.runs.push(Arc::new(MemoryRun::sort(blocks, &self.shape.order)?));
        }
        let run = match self.shape.arrangement {
            Arrangement::Plain if self.shape.combine.is_none() => {
                if self.pending.is_empty() {
                    return Ok(());
                }
                let pending = &self.pending;
                // Append to the allowed files in turn, so that the runs of each file stay in order.
                let behind = self.disk.len().checked_sub(DISK_RUNS_MAX).map(|at| &self.disk[at]);
                spiller.write::<StoreError>(behind, |run| {
                    for block in pending {
                        for pair in Pairs::new(block) {
                            let (key, value) = pair.map_err(|damaged| WriteError::Other(damaged.into()))?;
                            run.push(key, value).map_err(WriteError::Folder)?;
                        }
                    }
                    Ok(())
                })?
            }
            _ => {
                self.sort_pending()?;
                if self.runs.is_empty() {
                    return Ok(());
                }
                merge_to_disk(&self.runs, &[], &self.shape, spiller)?
            }
        };
        self.pending.clear();
        self.runs.clear();
        (self.pending_bytes, self.run_bytes) = (0, 0);
        self.disk.push(run);
        let ordered = self.shape.arrangement != Arrangement::Plain || self.shape.combine.is_some();
        if ordered && self.disk.len() >= DISK_RUNS_MAX {
            let merged = merge_to_disk(&[], &self.disk, &self.shape, spiller)?;
            self.disk = vec![merged];
        }
        Ok(())
    }

    /// Returns all pairs in the requested arrangement.
    pub fn finish(mut self) -> Result<Source, StoreError> {
        if let Some(table) = self.table.take().filter(|table| !table.is_empty()) {
            self.pending = blocks_of(&table);
            if self.disk.is_empty() && self.shape.arrangement != Arrangement::Sorted {
                // Each key occurs once, so no merge is needed.
                return Ok(Source::plain(vec![], self.pending));
            }
        }
        if self.shape.arrangement == Arrangement::Plain && self.shape.combine.is_none() {
            return Ok(Source::plain(self.disk, self.pending));
        }
        self.sort_pending()?;
        let merge = Merge::new(&self.runs, &self.disk, &self.shape.order);
        Ok(match self.shape.combine {
            Some(combine) if !self.disk.is_empty() => Source::Combined(Combined::new(merge, combine)),
            _ => Source::Merge(merge),
        })
    }
}

fn blocks_of(table: &Table) -> Vec<Bytes> {
    let mut blocks = Vec::new();
    let mut block = Vec::with_capacity(TABLE_BLOCK_BYTES.min(table.bytes()));
    for (_, key, value) in table.iter() {
        if block.len() + records::pair_bytes(key.len(), value.len()) > TABLE_BLOCK_BYTES && !block.is_empty()
        {
            blocks.push(Bytes::from(std::mem::replace(&mut block, Vec::with_capacity(TABLE_BLOCK_BYTES))));
        }
        records::push_pair(&mut block, key, value);
    }
    blocks.push(Bytes::from(block));
    blocks
}

fn merge_to_disk(
    memory: &[Arc<MemoryRun>],
    disk: &[DiskRun],
    shape: &Shape,
    spiller: &mut Spiller,
) -> Result<DiskRun, StoreError> {
    spiller.write(None, |run| {
        let merge = Merge::new(memory, disk, &shape.order);
        let mut source = match &shape.combine {
            Some(combine) => Source::Combined(Combined::new(merge, Arc::clone(combine))),
            None => Source::Merge(merge),
        };
        while source.advance().map_err(WriteError::Other)? {
            run.push(source.key(), source.value()).map_err(WriteError::Folder)?;
        }
        Ok(())
    })
}

/// Reader of an A task's pairs.
pub enum Source {
    Plain(Plain),
    Merge(Merge),
    Combined(Combined),
}

impl Source {
    fn plain(disk: Vec<DiskRun>, blocks: Vec<Bytes>) -> Source {
        Source::Plain(Plain {
            disk: disk.into(),
            cursor: None,
            blocks: blocks.into(),
            block: Bytes::new(),
            place: Place::default(),
        })
    }

    /// Advances to the next pair. Returns whether there is one.
    #[inline]
    pub fn advance(&mut self) -> Result<bool, StoreError> {
        match self {
            Source::Plain(plain) => plain.advance(),
            Source::Merge(merge) => Ok(merge.advance()?),
            Source::Combined(combined) => combined.advance(),
        }
    }

    /// Key of the current pair.
    #[inline]
    pub fn key(&self) -> &[u8] {
        match self {
            Source::Plain(plain) => plain.key(),
            Source::Merge(merge) => merge.key(),
            Source::Combined(combined) => &combined.key,
        }
    }

    #[inline]
    pub fn value(&self) -> &[u8] {
        match self {
            Source::Plain(plain) => plain.value(),
            Source::Merge(merge) => merge.value(),
            Source::Combined(combined) => &combined.value,
        }
    }
}

/// Pairs in arrival order, those on disk first.
pub struct Plain {
    disk: VecDeque<DiskRun>,
    cursor: Option<DiskCursor>,
    blocks: VecDeque<Bytes>,
    block: Bytes,
    place: Place,
}

impl Plain {
    #[inline]
    fn advance(&mut self) -> Result<bool, StoreError> {
        loop {
            if let Some(cursor) = &mut self.cursor {
                if cursor.advance()? {
                    return Ok(true);
                }
                self.cursor = None;
            }
            if self.place.end < self.block.len() {
                let place = records::place(&self.block, self.place.end);
                self.place = place.ok_or(Damaged("a pair that reaches past its block"))?;
                return Ok(true);
            }
            if let Some(run) = self.disk.pop_front() {
                self.cursor = Some(run.read());
                continue;
            }
            let Some(block) = self.blocks.pop_front() else { return Ok(false) };
            self.block = block;
            self.place = Place::default();
        }
    }

    fn key(&self) -> &[u8] {
        match &self.cursor {
            Some(cursor) => cursor.key(),
            None => &self.block[self.place.key..self.place.value],
        }
    }

    fn value(&self) -> &[u8] {
        match &self.cursor {
            Some(cursor) => cursor.value(),
            None => &self.block[self.place.value..self.place.end],
        }
    }
}

/// Merged runs, with pairs of equal keys combined into one.
pub struct Combined {
    merge: Merge,
    combine: Arc<dyn Combine>,
    key: Vec<u8>,
    value: Vec<u8>,
    scratch: Vec<u8>,
    /// Whether the merge is at a pair that was not consumed yet.
    pending_pair: Option<bool>,
}

impl Combined {
    fn new(merge: Merge, combine: Arc<dyn Combine>) -> Combined {
        Combined { merge, combine, key: vec![], value: vec![], scratch: vec![], pending_pair: None }
    }

    fn advance(&mut self) -> Result<bool, StoreError> {
        let pending_pair = match self.pending_pair {
            Some(pending_pair) => pending_pair,
            None => self.merge.advance()?,
        };
        if !pending_pair {
            self.pending_pair = Some(false);
            return Ok(false);
        }
        self.key.clear();
        self.key.extend_from_slice(self.merge.key());
        self.value.clear();
        self.value.extend_from_slice(self.merge.value());
        loop {
            let more = self.merge.advance()?;
            if !more || self.merge.key() != self.key {
                self.pending_pair = Some(more);
                return Ok(true);
            }
            self.scratch.clear();
            let (held, value) = (&self.value, self.merge.value());
            let at = PanicKeys { what: "its values were combined", keys: [&self.key; 2] };
            let combined = self.combine.combine(&self.key, held, value, &mut self.scratch);
            drop(at);
            combined.map_err(|combine_error| StoreError::Rejected(combine_error.for_key(&self.key)))?;
            std::mem::swap(&mut self.value, &mut self.scratch);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spill::SpillFolders;
    use crate::table::CombineError;
    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};
    use std::collections::BTreeMap;

    struct Sum;

    impl Combine for Sum {
        fn combine(
            &self,
            _: &[u8],
            held: &[u8],
            value: &[u8],
            out: &mut Vec<u8>,
        ) -> Result<(), Box<CombineError>> {
            let number = |bytes: &[u8]| {
                bytes.try_into().map(u64::from_be_bytes).map_err(|_| Rejected("no number".to_string()))
            };
            let (held, value) = (
                number(held).map_err(CombineError::invalid_existing)?,
                number(value).map_err(CombineError::invalid_new)?,
            );
            out.extend_from_slice(&(held + value).to_be_bytes());
            Ok(())
        }
    }

    /// Every arrangement keeps its promise, however pairs are spilled.
    #[test]
    fn every_layout_returns_all_pairs() {
        let seed: u64 = rand::rng().random();
        println!("seed {seed}");
        let mut random = StdRng::seed_from_u64(seed);
        let folder = tempfile::tempdir().unwrap();
        let folders = Arc::new(SpillFolders::new(vec![folder.path().to_path_buf()]));
        let mut spillers = [Spiller::new(&folders), Spiller::sharing(&folders)];
        for case in 0..60 {
            let spiller = &mut spillers[random.random_range(0..2)];
            let arrangement = [Arrangement::Plain, Arrangement::Grouped, Arrangement::Sorted][case % 3];
            let combine = (case % 2 == 0).then(|| Arc::new(Sum) as Arc<dyn Combine>);
            let spills = case % 4 < 2;
            let combines = combine.is_some();
            let shape = Shape { arrangement, order: KeyOrder::Bytes, combine, run_bytes: 5000 };
            let mut store = Store::new(shape);
            let mut expected: BTreeMap<Vec<u8>, Vec<u64>> = BTreeMap::new();
            for _ in 0..random.random_range(0..200) {
                let mut block = Vec::new();
                let count = random.random_range(0..60);
                for _ in 0..count {
                    let key = random.random_range(0..500u32).to_string().into_bytes();
                    let value = random.random_range(0..1000u64);
                    records::push_pair(&mut block, &key, &value.to_be_bytes());
                    expected.entry(key).or_default().push(value);
                }
                store.add(Bytes::from(block), count, spiller).unwrap();
                if spills && random.random_ratio(1, 2) {
                    store.spill(spiller).unwrap();
                    assert!(store.bytes() < 20_000);
                }
            }
            let mut source = store.finish().unwrap();
            let mut keys = Vec::new();
            let mut got: BTreeMap<Vec<u8>, Vec<u64>> = BTreeMap::new();
            while source.advance().unwrap() {
                let key = source.key().to_vec();
                let value = u64::from_be_bytes(source.value().try_into().unwrap());
                got.entry(key.clone()).or_default().push(value);
                if keys.last() != Some(&key) {
                    keys.push(key);
                }
            }
            let context = format!("case {case} of seed {seed}");
            if arrangement != Arrangement::Plain || combines {
                assert_eq!(keys.len(), expected.len(), "{context}: a group in two places");
            }
            if arrangement == Arrangement::Sorted {
                assert!(keys.is_sorted(), "{context}");
            }
            for (key, values) in &mut expected {
                values.sort();
                let mut got = got.remove(key).unwrap_or_default();
                got.sort();
                match combines {
                    true => assert_eq!(got, [values.iter().sum::<u64>()], "{context}"),
                    false => assert_eq!(&got, values, "{context}"),
                }
            }
            assert!(got.is_empty(), "{context}");
        }
    }

    /// However often unordered pairs are spilled, the number of open files is bounded, and pairs keep their
    /// arrival order.
    #[test]
    fn unsorted_pairs_are_in_few_files() {
        const SPILLS: u32 = 1000;
        let folder = tempfile::tempdir().unwrap();
        let folders = Arc::new(SpillFolders::new(vec![folder.path().join("a"), folder.path().join("b")]));
        let mut spiller = Spiller::new(&folders);
        let shape =
            Shape { arrangement: Arrangement::Plain, order: KeyOrder::Bytes, combine: None, run_bytes: 1 };
        let mut store = Store::new(shape);
        for number in 0..SPILLS {
            let mut block = Vec::new();
            records::push_pair(&mut block, b"key", &number.to_be_bytes());
            store.add(Bytes::from(block), 1, &mut spiller).unwrap();
            store.spill(&mut spiller).unwrap();
        }
        // An unlinked file still counts as an open descriptor.
        let open = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
        let open =
            open.filter(|file| std::fs::read_link(file.path()).is_ok_and(|to| to.starts_with(&folder)));
        assert_eq!(open.count(), DISK_RUNS_MAX);
        let mut source = store.finish().unwrap();
        for number in 0..SPILLS {
            assert!(source.advance().unwrap());
            assert_eq!(source.value(), number.to_be_bytes());
        }
        assert!(!source.advance().unwrap());
    }

    /// There may be thousands of stores.
    #[test]
    fn combined_values_are_compact() {
        let folder = tempfile::tempdir().unwrap();
        let spiller = &mut Spiller::sharing(&Arc::new(SpillFolders::new(vec![folder.path().to_path_buf()])));
        let shape = Shape {
            arrangement: Arrangement::Grouped,
            order: KeyOrder::Bytes,
            combine: Some(Arc::new(Sum)),
            run_bytes: 1,
        };
        let mut store = Store::new(shape);
        assert_eq!(store.bytes(), 0);
        let mut block = Vec::new();
        (0..4u32).for_each(|key| records::push_pair(&mut block, &key.to_be_bytes(), &1u64.to_be_bytes()));
        store.add(Bytes::from(block), 4, spiller).unwrap();
        assert!((1..1000).contains(&store.bytes()), "{}", store.bytes());
        store.spill(spiller).unwrap();
        assert_eq!(store.bytes(), 0);
    }

    #[test]
    fn inconsistent_blocks_are_refused() {
        let spiller = &mut Spiller::new(&Arc::new(SpillFolders::new(vec![])));
        let shape = Shape {
            arrangement: Arrangement::Grouped,
            order: KeyOrder::Bytes,
            combine: Some(Arc::new(Sum)),
            run_bytes: 1,
        };
        let mut store = Store::new(shape.clone());
        let mut block = Vec::new();
        records::push_pair(&mut block, b"key", &1u64.to_be_bytes());
        let whole = Bytes::from(block);
        assert!(matches!(store.add(whole.clone(), 2, spiller), Err(StoreError::Damaged(_))));
        let cut = whole.slice(..whole.len() - 1);
        assert!(matches!(store.add(cut.clone(), 1, spiller), Err(StoreError::Damaged(_))));
        let mut store = Store::new(Shape { combine: None, ..shape });
        assert!(matches!(store.add(cut, 1, spiller), Err(StoreError::Damaged(_))));
    }
}
