//! Sorted runs of pairs in memory, and the k-way merge of runs in memory and on disk.
//!
//! A run is an index over the received blocks: 16 bytes for each pair, eight of them a key prefix, which
//! contains short keys entirely. Sorting and merging read the blocks only for longer keys with equal
//! prefixes. No pair is copied.

use crate::origin::PanicKeys;
use crate::records::{self, Place};
use crate::spill::{DiskCursor, DiskRun, SpillError};
use crate::wire::Damaged;
use bytes::Bytes;
use std::cmp::Ordering;
use std::sync::Arc;

/// Order of two encoded keys.
pub type CompareBytes = dyn Fn(&[u8], &[u8]) -> Ordering + Send + Sync;

/// Order of keys: byte order, or the user's.
#[derive(Clone, Default)]
pub enum KeyOrder {
    #[default]
    Bytes,
    Custom(Arc<CompareBytes>),
}

impl KeyOrder {
    #[inline]
    pub fn compare(&self, left: &[u8], right: &[u8]) -> Ordering {
        match self {
            KeyOrder::Bytes => left.cmp(right),
            // Keys that the user's order calls equal but that differ in bytes are two groups, each
            // contiguous.
            KeyOrder::Custom(compare) => {
                let _at = PanicKeys { what: "its keys were compared", keys: [left, right] };
                compare(left, right).then_with(|| left.cmp(right))
            }
        }
    }

    #[inline]
    fn prefix(&self, key: &[u8]) -> u64 {
        match self {
            KeyOrder::Bytes => prefix(key),
            KeyOrder::Custom(_) => LONGER,
        }
    }
}

/// Bytes of a key in its prefix.
const PREFIX_BYTES: usize = 7;

/// Last byte of a prefix whose key is longer.
const LONGER: u64 = PREFIX_BYTES as u64 + 1;

/// Returns the first seven bytes of a key, padded with zeros, followed by its length, or eight for longer
/// keys: a number that orders as keys do.
#[inline]
fn prefix(key: &[u8]) -> u64 {
    match key.first_chunk::<8>() {
        Some(first) => u64::from_be_bytes(*first) & !0xff | LONGER,
        None => {
            let mut bytes = [0; 8];
            bytes[..key.len()].copy_from_slice(key);
            bytes[PREFIX_BYTES] = key.len() as u8;
            u64::from_be_bytes(bytes)
        }
    }
}

/// Whether equal prefixes of this value mean equal keys.
#[inline]
fn is_whole(prefix: u64) -> bool {
    prefix & 0xff != LONGER
}

/// Index entry of a pair.
#[derive(Clone, Copy, Default)]
struct Entry {
    /// Prefix of the key after the bytes common to all keys of the run.
    prefix: u64,
    block: u32,
    /// Offset of the pair in its block.
    offset: u32,
}

impl Entry {
    #[inline]
    fn key<'a>(&self, blocks: &'a [Bytes]) -> &'a [u8] {
        let bytes = &blocks[self.block as usize];
        let place = records::place(bytes, self.offset as usize).expect("it was found before");
        &bytes[place.key..place.value]
    }
}

/// ToRank0 to this many pairs with equal prefixes are sorted by comparing whole keys.
const COMPARISON_SORT_MAX: usize = 8;

/// Keys equal in this many consecutive prefixes are compared whole.
const DEPTH_MAX: usize = 16;

/// Sorts pairs by the key prefixes from byte `at` on; pairs with equal prefixes are sorted by the following
/// prefixes.
///
/// A key is read from its block once for each prefix that it shares with others, not for each comparison:
/// most of these would be cache misses.
fn sort_by_prefixes(entries: &mut [Entry], blocks: &[Bytes], at: usize) {
    sort_by_prefixes_to(entries, blocks, at, DEPTH_MAX);
}

fn sort_by_prefixes_to(entries: &mut [Entry], blocks: &[Bytes], at: usize, depth: usize) {
    entries.sort_unstable_by_key(|entry| entry.prefix);
    for alike in entries.chunk_by_mut(|left, right| left.prefix == right.prefix) {
        if alike.len() == 1 || is_whole(alike[0].prefix) {
            continue;
        }
        let next = at + PREFIX_BYTES;
        if alike.len() <= COMPARISON_SORT_MAX || depth == 0 {
            alike.sort_unstable_by(|left, right| left.key(blocks)[next..].cmp(&right.key(blocks)[next..]));
            continue;
        }
        alike.iter_mut().for_each(|entry| entry.prefix = prefix(&entry.key(blocks)[next..]));
        sort_by_prefixes_to(alike, blocks, next, depth - 1);
    }
}

/// Minimum number of pairs for bucket sorting.
const BUCKET_SORT_MIN: usize = 4096;
const BUCKET_BITS: u32 = 11;

/// A sorted run in memory.
pub struct MemoryRun {
    blocks: Vec<Bytes>,
    entries: Vec<Entry>,
    order: KeyOrder,
}

impl MemoryRun {
    /// Sorts the pairs of `blocks`.
    ///
    /// Errors: a block does not consist of pairs.
    pub fn sort(blocks: Vec<Bytes>, order: &KeyOrder) -> Result<MemoryRun, Damaged> {
        let mut entries = Vec::new();
        // A prefix common to all keys does not affect their order.
        let mut first: Option<&[u8]> = None;
        let mut common = 0;
        for (block, bytes) in blocks.iter().enumerate() {
            let mut offset = 0;
            while let Some(Place { key, value, end }) = records::place(bytes, offset) {
                let key = &bytes[key..value];
                match first {
                    None => {
                        first = Some(key);
                        common = key.len();
                    }
                    Some(first) => {
                        if !key.starts_with(&first[..common]) {
                            common = first.iter().zip(key).take_while(|(left, right)| left == right).count();
                        }
                    }
                }
                entries.push(Entry { prefix: 0, block: block as u32, offset: offset as u32 });
                offset = end;
            }
            if offset != bytes.len() {
                return Err(Damaged("a pair that reaches past its block"));
            }
        }
        let mut run = MemoryRun { blocks, entries, order: order.clone() };
        if let KeyOrder::Bytes = order {
            for entry in &mut run.entries {
                entry.prefix = prefix(&entry.key(&run.blocks)[common..]);
            }
        }
        run.sort_entries(common);
        Ok(run)
    }

    fn sort_entries(&mut self, common: usize) {
        if let KeyOrder::Custom(_) = self.order {
            let (blocks, order) = (&self.blocks, self.order.clone());
            self.entries.sort_unstable_by(|left, right| order.compare(left.key(blocks), right.key(blocks)));
            return;
        }
        if self.entries.len() < BUCKET_SORT_MIN {
            sort_by_prefixes(&mut self.entries, &self.blocks, common);
            return;
        }
        // One pass of radix sort over the bits in which prefixes differ, then each bucket separately, in
        // cache.
        let low = self.entries.iter().map(|entry| entry.prefix).min().expect("there are entries");
        let high = self.entries.iter().map(|entry| entry.prefix).max().expect("there are entries");
        let shift = (u64::BITS - (high - low).leading_zeros()).saturating_sub(BUCKET_BITS);
        let bucket = |entry: &Entry| ((entry.prefix - low) >> shift) as usize;
        let mut ends = vec![0usize; (1 << BUCKET_BITS) + 1];
        self.entries.iter().for_each(|entry| ends[bucket(entry) + 1] += 1);
        for at in 1..ends.len() {
            ends[at] += ends[at - 1];
        }
        let mut sorted = vec![Entry::default(); self.entries.len()];
        for entry in &self.entries {
            let next = &mut ends[bucket(entry)];
            sorted[*next] = *entry;
            *next += 1;
        }
        let mut from = 0;
        for end in &ends[..1 << BUCKET_BITS] {
            sort_by_prefixes(&mut sorted[from..*end], &self.blocks, common);
            from = *end;
        }
        self.entries = sorted;
    }

    /// Memory of the index, without the blocks.
    pub fn index_bytes(&self) -> usize {
        self.entries.len() * size_of::<Entry>()
    }

    /// Locates the pairs from `at` on, as many as `found` has room for. Returns their number.
    ///
    /// Reads all of them before using the first, so that their cache misses overlap: they are scattered over
    /// the blocks.
    fn places(&self, at: usize, found: &mut [(u32, Place)]) -> usize {
        let entries = &self.entries[at..self.entries.len().min(at + found.len())];
        let mut read = 0;
        for entry in entries {
            read ^= self.blocks[entry.block as usize][entry.offset as usize];
        }
        // The compiler would remove reads whose results are unused.
        std::hint::black_box(read);
        for (entry, found) in entries.iter().zip(found) {
            let bytes = &self.blocks[entry.block as usize];
            let place = records::place(bytes, entry.offset as usize).expect("it was found before");
            *found = (entry.block, place);
        }
        entries.len()
    }
}

/// Read-ahead of the merge in a run in memory, in pairs.
const READ_AHEAD: usize = 16;

/// Merge cursor of a sorted run in memory.
struct MemoryCursor {
    run: Arc<MemoryRun>,
    /// First pair that is not in `ahead`.
    next: usize,
    ahead: [(u32, Place); READ_AHEAD],
    /// Current index in `ahead`, and its length.
    at: usize,
    filled: usize,
}

impl MemoryCursor {
    fn new(run: Arc<MemoryRun>) -> MemoryCursor {
        MemoryCursor { run, next: 0, ahead: [(0, Place::default()); READ_AHEAD], at: 0, filled: 0 }
    }

    #[inline]
    fn advance(&mut self) -> bool {
        self.at += 1;
        if self.at >= self.filled {
            self.filled = self.run.places(self.next, &mut self.ahead);
            self.next += self.filled;
            self.at = 0;
        }
        self.filled > 0
    }

    #[inline]
    fn current(&self) -> (&[u8], Place) {
        let (block, place) = self.ahead[self.at];
        (&self.run.blocks[block as usize], place)
    }
}

/// Merge cursor of one run.
enum Cursor {
    Memory(Box<MemoryCursor>),
    Disk(DiskCursor),
}

impl Cursor {
    #[inline]
    fn advance(&mut self) -> Result<bool, SpillError> {
        match self {
            Cursor::Memory(cursor) => Ok(cursor.advance()),
            Cursor::Disk(cursor) => cursor.advance(),
        }
    }

    #[inline]
    fn key(&self) -> &[u8] {
        match self {
            Cursor::Memory(cursor) => {
                let (block, place) = cursor.current();
                &block[place.key..place.value]
            }
            Cursor::Disk(cursor) => cursor.key(),
        }
    }

    #[inline]
    fn value(&self) -> &[u8] {
        match self {
            Cursor::Memory(cursor) => {
                let (block, place) = cursor.current();
                &block[place.value..place.end]
            }
            Cursor::Disk(cursor) => cursor.value(),
        }
    }
}

/// K-way merge of several sorted runs: a heap of the runs by their current keys.
pub struct Merge {
    cursors: Vec<Cursor>,
    /// By cursor: prefix of the current key.
    prefixes: Vec<u64>,
    /// Cursors that have a pair; smallest key first.
    heap: Vec<u32>,
    order: KeyOrder,
    started: bool,
}

impl Merge {
    pub fn new(memory: &[Arc<MemoryRun>], disk: &[DiskRun], order: &KeyOrder) -> Merge {
        let in_memory = memory.iter().map(|run| Cursor::Memory(Box::new(MemoryCursor::new(Arc::clone(run)))));
        let cursors: Vec<_> = in_memory.chain(disk.iter().map(|run| Cursor::Disk(run.read()))).collect();
        Merge {
            prefixes: vec![0; cursors.len()],
            cursors,
            heap: vec![],
            order: order.clone(),
            started: false,
        }
    }

    /// Advances to the next pair. Returns whether there is one.
    ///
    /// Errors: a run on disk cannot be read.
    #[inline]
    pub fn advance(&mut self) -> Result<bool, SpillError> {
        if !self.started {
            return self.start();
        }
        let Some(&top) = self.heap.first() else { return Ok(false) };
        if self.step(top)? {
            if self.heap.len() > 1 {
                self.sink(0);
            }
        } else {
            self.heap.swap_remove(0);
            if self.heap.len() > 1 {
                self.sink(0);
            }
        }
        Ok(!self.heap.is_empty())
    }

    /// Encoded key of the current pair.
    #[inline]
    pub fn key(&self) -> &[u8] {
        self.cursors[self.heap[0] as usize].key()
    }

    #[inline]
    pub fn value(&self) -> &[u8] {
        self.cursors[self.heap[0] as usize].value()
    }

    fn start(&mut self) -> Result<bool, SpillError> {
        self.started = true;
        for cursor in 0..self.cursors.len() as u32 {
            if self.step(cursor)? {
                self.heap.push(cursor);
            }
        }
        for at in (0..self.heap.len() / 2).rev() {
            self.sink(at);
        }
        Ok(!self.heap.is_empty())
    }

    #[inline]
    fn step(&mut self, cursor: u32) -> Result<bool, SpillError> {
        let cursor = cursor as usize;
        let more = self.cursors[cursor].advance()?;
        if more {
            self.prefixes[cursor] = self.order.prefix(self.cursors[cursor].key());
        }
        Ok(more)
    }

    #[inline]
    fn is_before(&self, left: u32, right: u32) -> bool {
        let (left, right) = (left as usize, right as usize);
        match self.prefixes[left].cmp(&self.prefixes[right]) {
            Ordering::Less => true,
            Ordering::Greater => false,
            Ordering::Equal if is_whole(self.prefixes[left]) => false,
            Ordering::Equal => {
                self.order.compare(self.cursors[left].key(), self.cursors[right].key()).is_lt()
            }
        }
    }

    fn sink(&mut self, mut at: usize) {
        loop {
            let mut child = 2 * at + 1;
            if child >= self.heap.len() {
                return;
            }
            if child + 1 < self.heap.len() && self.is_before(self.heap[child + 1], self.heap[child]) {
                child += 1;
            }
            if !self.is_before(self.heap[child], self.heap[at]) {
                return;
            }
            self.heap.swap(at, child);
            at = child;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spill::{SpillFolders, WriteError};
    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};

    type Pair = (Vec<u8>, Vec<u8>);

    fn blocks(pairs: &[Pair], random: &mut StdRng) -> Vec<Bytes> {
        let mut blocks = vec![Vec::new()];
        for (key, value) in pairs {
            if random.random_ratio(1, 50) {
                blocks.push(Vec::new());
            }
            records::push_pair(blocks.last_mut().expect("one"), key, value);
        }
        blocks.into_iter().map(Bytes::from).collect()
    }

    fn merge_all(memory: &[Arc<MemoryRun>], disk: &[DiskRun], order: &KeyOrder) -> Vec<Pair> {
        let mut merge = Merge::new(memory, disk, order);
        let mut pairs = Vec::new();
        while merge.advance().unwrap() {
            pairs.push((merge.key().to_vec(), merge.value().to_vec()));
        }
        assert!(!merge.advance().unwrap());
        pairs
    }

    /// Keys that agree beyond the maximum prefix depth, some of which end where others continue.
    #[test]
    fn keys_with_common_prefixes_are_sorted() {
        let seed: u64 = rand::rng().random();
        println!("seed {seed}");
        let mut random = StdRng::seed_from_u64(seed);
        let deepest = (DEPTH_MAX + 3) * PREFIX_BYTES;
        let pairs: Vec<Pair> = (0..20_000_u32)
            .map(|number| {
                let mut key = vec![b'a'; random.random_range(0..=deepest)];
                // Bytes shared by many keys, so that more keys than are compared whole agree up to each of
                // them.
                for _ in 0..random.random_range(0..3) {
                    let at = random.random_range(0..8) * (deepest / 8) + random.random_range(0..2);
                    if let Some(byte) = key.get_mut(at) {
                        *byte = *[0, b'a', b'b', 255].get(random.random_range(0..4)).expect("of four");
                    }
                }
                (key, number.to_be_bytes().to_vec())
            })
            .collect();
        let run = Arc::new(MemoryRun::sort(blocks(&pairs, &mut random), &KeyOrder::Bytes).unwrap());
        let got = merge_all(&[run], &[], &KeyOrder::Bytes);
        assert!(got.is_sorted_by_key(|(key, _)| key));
        let sorted = |mut pairs: Vec<Pair>| {
            pairs.sort();
            pairs
        };
        assert_eq!(sorted(got), sorted(pairs));
    }

    #[test]
    fn runs_of_any_kind_merge_into_one_order() {
        let seed: u64 = rand::rng().random();
        println!("seed {seed}");
        let mut random = StdRng::seed_from_u64(seed);
        let folder = tempfile::tempdir().unwrap();
        let folders = SpillFolders::new(vec![folder.path().to_path_buf()]);
        let reversed: KeyOrder = KeyOrder::Custom(Arc::new(|left, right| right.cmp(left)));
        for common in ["", "http://www.example.org/"] {
            for order in [KeyOrder::Bytes, reversed.clone()] {
                let mut all: Vec<Pair> = Vec::new();
                let (mut memory, mut disk) = (vec![], vec![]);
                for run in 0..7 {
                    let pairs: Vec<Pair> = (0..random.random_range(0..12_000))
                        .map(|number: u32| {
                            let length = random.random_range(0..12);
                            let mut key = common.as_bytes().to_vec();
                            key.extend((0..length).map(|_| random.random_range(0..4u8)));
                            (key, number.to_be_bytes().to_vec())
                        })
                        .collect();
                    let sorted = MemoryRun::sort(blocks(&pairs, &mut random), &order).unwrap();
                    let sorted = Arc::new(sorted);
                    assert_eq!(sorted.entries.len(), pairs.len());
                    all.extend(pairs);
                    if run % 3 == 0 {
                        let run = folders.write::<SpillError>(None, |writer| {
                            let one = std::slice::from_ref(&sorted);
                            let mut merge = Merge::new(one, &[], &order);
                            while merge.advance().map_err(WriteError::Other)? {
                                writer.push(merge.key(), merge.value()).map_err(WriteError::Folder)?;
                            }
                            Ok(())
                        });
                        disk.push(run.unwrap());
                    } else {
                        memory.push(sorted);
                    }
                }
                let got = merge_all(&memory, &disk, &order);
                assert!(got.windows(2).all(|pair| order.compare(&pair[0].0, &pair[1].0).is_le()));
                let sorted = |mut pairs: Vec<Pair>| {
                    pairs.sort();
                    pairs
                };
                assert_eq!(sorted(got), sorted(all));
            }
        }
    }
}
