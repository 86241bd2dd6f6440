//! Hash table that combines the values of equal keys: open addressing over one byte arena.
//!
//! # Invariants
//! - A key occurs once among the live entries of the arena.
//! - A slot holds the upper half of a key's hash and the offset of its entry, so a probe reads the arena only
//!   for a very likely match.
//! - Entries lie in insertion order, so a few marks record the input position of each.
//! - A hot slot is free or caches a recent lookup: hot slots are few enough to stay in the L2 cache with the
//!   entries of frequent keys. Any move of entries clears all of them.
//!
//! # Memory bound
//! [`Table::bytes`] is the memory held; the owner must flush the table in time. An arena is smaller than 4
//! GiB.
//!
//! Source: mpi-d, section IV-A (pairs are buffered in a hash table and combined before they are sent).

use crate::datum::Rejected;
use crate::origin::{Origin, format_key};

/// Why two values could not be combined.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CombineError {
    /// The value in the table is invalid.
    Existing(Rejected),
    /// The new value is invalid.
    New(Rejected),
    /// One of the two is invalid.
    Either(Rejected),
    /// The combiner's result is invalid.
    Result(Rejected),
}

/// Boxed, so that a combiner's successful result fits into registers.
impl CombineError {
    #[cold]
    pub fn invalid_existing(why: Rejected) -> Box<CombineError> {
        Box::new(CombineError::Existing(why))
    }

    #[cold]
    pub fn invalid_new(why: Rejected) -> Box<CombineError> {
        Box::new(CombineError::New(why))
    }

    #[cold]
    pub fn invalid_result(why: Rejected) -> Box<CombineError> {
        Box::new(CombineError::Result(why))
    }

    /// Converts the error to one that names the key.
    #[cold]
    pub fn for_key(&self, key: &[u8]) -> Rejected {
        let (what, Rejected(why)) = match self {
            CombineError::Existing(why) => ("the value that was there before", why),
            CombineError::New(why) => ("the value that came", why),
            CombineError::Either(why) => ("one of two values", why),
            CombineError::Result(why) => ("what the combiner made of two values", why),
        };
        Rejected(format!("{what} of key {}: {why}", format_key(key)))
    }
}

/// Combines two values of one key. Must be associative and commutative: the order of values is undefined.
pub trait Combine: Send + Sync {
    /// Writes the combination of `held` and `value` to `out`, which is empty.
    fn combine(
        &self,
        key: &[u8],
        held: &[u8],
        value: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), Box<CombineError>>;

    /// Like [`Combine::combine`], but overwrites `held` if the result has the same length. Returns whether it
    /// did; otherwise the result is in `out`.
    #[inline]
    fn combine_over(
        &self,
        key: &[u8],
        held: &mut [u8],
        value: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<bool, Box<CombineError>> {
        self.combine(key, held, value, out)?;
        let fits = out.len() == held.len();
        if fits {
            held.copy_from_slice(out);
        }
        Ok(fits)
    }
}

/// Bytes before the key of an entry: its hash, and the lengths of key and value.
const ENTRY_HEADER_BYTES: usize = 16;

/// Key length that marks a dead entry, replaced by one of another length.
const DEAD: u32 = u32::MAX;

/// Maximum arena size: offsets have 32 bits.
const ARENA_BYTES_MAX: usize = u32::MAX as usize - 1;

/// Small, because there may be a table for each of thousands of windows.
const SLOTS_MIN: usize = 16;

/// Maximum number of hot slots: 128 KiB, which fit into an L2 cache of 1 MiB beside their entries. With the
/// words of a text, half as many and twice as many were slower.
const HOT_SLOTS_MAX: usize = 16_384;

/// Bytes of entries between two marks of the same origin: small enough to locate a record, large enough that
/// marks cost nothing.
const MARK_BYTES: usize = 4096;

/// Origin of the entries from an offset up to the next mark.
struct Mark {
    offset: usize,
    origin: Origin,
}

/// Result of an upsert.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Upsert {
    Inserted,
    Combined,
    /// The table is full and must be flushed first.
    Full,
}

pub struct Table {
    /// Upper half of the hash, and the entry's offset plus one; 0 for a free slot.
    slots: Vec<u64>,
    /// Cache of recently used slots: as many as slots, up to [`HOT_SLOTS_MAX`].
    hot: Vec<u64>,
    arena: Vec<u8>,
    entries: usize,
    dead_bytes: usize,
    scratch: Vec<u8>,
    /// In offset order; only for entries inserted with an origin.
    marks: Vec<Mark>,
}

impl Default for Table {
    fn default() -> Table {
        Table {
            slots: vec![0; SLOTS_MIN],
            hot: vec![0; SLOTS_MIN],
            arena: Vec::new(),
            entries: 0,
            dead_bytes: 0,
            scratch: Vec::new(),
            marks: Vec::new(),
        }
    }
}

impl Table {
    pub fn is_empty(&self) -> bool {
        self.entries == 0
    }

    /// Memory in use, in bytes.
    pub fn bytes(&self) -> usize {
        let slots = self.slots.len() + self.hot.len();
        self.arena.len() + slots * size_of::<u64>() + self.marks.len() * size_of::<Mark>()
    }

    /// Combines a value with its key's entry if that is in a hot slot and its length stays the same. Returns
    /// whether it did; if not, nothing has changed.
    ///
    /// Errors: the combiner rejects a value.
    #[inline]
    pub fn combine_hot(
        &mut self,
        hash: u64,
        key: &[u8],
        value: &[u8],
        combine: &dyn Combine,
    ) -> Result<bool, Box<CombineError>> {
        let slot = self.hot[self.hot_slot(hash)];
        if slot == 0 || slot & !0xffff_ffff != hash & !0xffff_ffff {
            return Ok(false);
        }
        let offset = (slot as u32 - 1) as usize;
        let (key_bytes, value_bytes) = self.lengths(offset);
        let key_at = offset + ENTRY_HEADER_BYTES;
        if key_bytes != key.len() || !keys_equal(&self.arena[key_at..key_at + key_bytes], key) {
            return Ok(false);
        }
        self.scratch.clear();
        let value_at = key_at + key_bytes;
        combine.combine_over(key, &mut self.arena[value_at..value_at + value_bytes], value, &mut self.scratch)
    }

    /// Inserts a pair, or combines its value with its key's entry. `origin`: origin of the pair, for
    /// [`Table::place_of`].
    ///
    /// Errors: the combiner rejects a value.
    #[inline]
    pub fn upsert(
        &mut self,
        hash: u64,
        key: &[u8],
        value: &[u8],
        combine: &dyn Combine,
        origin: Option<&Origin>,
    ) -> Result<Upsert, Box<CombineError>> {
        let mask = self.slots.len() - 1;
        let tag = hash & !0xffff_ffff;
        let mut at = hash as usize & mask;
        loop {
            let slot = self.slots[at];
            if slot == 0 {
                break;
            }
            if slot & !0xffff_ffff == tag {
                let offset = (slot as u32 - 1) as usize;
                let (key_bytes, value_bytes) = self.lengths(offset);
                let key_at = offset + ENTRY_HEADER_BYTES;
                if key_bytes == key.len() && keys_equal(&self.arena[key_at..key_at + key_bytes], key) {
                    let hot = self.hot_slot(hash);
                    self.hot[hot] = slot;
                    return self.combine(at, offset, value_bytes, key, value, combine, origin);
                }
            }
            at = (at + 1) & mask;
        }
        match self.push(hash, key, value, origin) {
            None => Ok(Upsert::Full),
            Some(offset) => {
                self.slots[at] = tag | (offset as u64 + 1);
                self.entries += 1;
                if self.entries * 2 > self.slots.len() {
                    self.rehash(self.slots.len() * 2);
                }
                Ok(Upsert::Inserted)
            }
        }
    }

    /// Prefetches the memory that [`Table::upsert`] reads first for keys of these hashes. The reads are
    /// independent, so that their cache misses overlap, unlike those of consecutive lookups, and together
    /// take as long as one.
    #[inline]
    pub fn prefetch(&mut self, hashes: impl Iterator<Item = u64> + Clone) {
        let mask = self.slots.len() - 1;
        let mut read = 0;
        for hash in hashes.clone() {
            read ^= self.slots[hash as usize & mask];
        }
        for hash in hashes {
            let slot = self.slots[hash as usize & mask];
            // Start of the entry's key, mostly in the same cache line as its lengths and its value.
            let key = (slot as u32).wrapping_sub(1) as usize + ENTRY_HEADER_BYTES;
            read ^= self.arena.get(key).map_or(0, |byte| u64::from(*byte));
        }
        // The compiler would remove reads whose results are unused.
        std::hint::black_box(read);
    }

    /// Returns the hot slot of a hash, from other bits than its slot.
    #[inline]
    fn hot_slot(&self, hash: u64) -> usize {
        (hash >> 24) as usize & (self.hot.len() - 1)
    }

    #[inline]
    fn lengths(&self, offset: usize) -> (usize, usize) {
        let header = &self.arena[offset + 8..offset + ENTRY_HEADER_BYTES];
        let number = |at: usize| u32::from_le_bytes(header[at..at + 4].try_into().expect("four bytes"));
        (number(0) as usize, number(4) as usize)
    }

    #[inline]
    #[allow(clippy::too_many_arguments)]
    fn combine(
        &mut self,
        slot: usize,
        offset: usize,
        value_bytes: usize,
        key: &[u8],
        value: &[u8],
        combine: &dyn Combine,
        origin: Option<&Origin>,
    ) -> Result<Upsert, Box<CombineError>> {
        let value_at = offset + ENTRY_HEADER_BYTES + key.len();
        self.scratch.clear();
        let held = &mut self.arena[value_at..value_at + value_bytes];
        if combine.combine_over(key, held, value, &mut self.scratch)? {
            return Ok(Upsert::Combined);
        }
        Ok(self.replace(slot, offset, value_bytes, key, origin))
    }

    /// Replaces an entry by a new one with the value in `scratch`, which has another length.
    #[cold]
    fn replace(
        &mut self,
        slot: usize,
        offset: usize,
        value_bytes: usize,
        key: &[u8],
        origin: Option<&Origin>,
    ) -> Upsert {
        let scratch = std::mem::take(&mut self.scratch);
        let hash = u64::from_le_bytes(self.arena[offset..offset + 8].try_into().expect("eight bytes"));
        let pushed = self.push(hash, key, &scratch, origin);
        self.scratch = scratch;
        let Some(new_offset) = pushed else { return Upsert::Full };
        self.arena[offset + 8..offset + 12].copy_from_slice(&DEAD.to_le_bytes());
        // The lengths of a dead entry still locate the next one.
        let bytes = (key.len() + value_bytes) as u32;
        self.arena[offset + 12..offset + 16].copy_from_slice(&bytes.to_le_bytes());
        self.dead_bytes += ENTRY_HEADER_BYTES + bytes as usize;
        self.slots[slot] = (self.slots[slot] & !0xffff_ffff) | (new_offset as u64 + 1);
        let hot = self.hot_slot(hash);
        self.hot[hot] = self.slots[slot];
        if self.dead_bytes > self.arena.len() / 2 && self.dead_bytes > 1 << 16 {
            self.compact();
        }
        Upsert::Combined
    }

    fn push(&mut self, hash: u64, key: &[u8], value: &[u8], origin: Option<&Origin>) -> Option<usize> {
        let offset = self.arena.len();
        if offset + ENTRY_HEADER_BYTES + key.len() + value.len() > ARENA_BYTES_MAX {
            return None;
        }
        if let Some(origin) = origin
            && self
                .marks
                .last()
                .is_none_or(|mark| offset - mark.offset >= MARK_BYTES || !mark.origin.same_input(origin))
        {
            self.marks.push(Mark { offset, origin: origin.clone() });
        }
        self.arena.extend_from_slice(&hash.to_le_bytes());
        self.arena.extend_from_slice(&(key.len() as u32).to_le_bytes());
        self.arena.extend_from_slice(&(value.len() as u32).to_le_bytes());
        self.arena.extend_from_slice(key);
        self.arena.extend_from_slice(value);
        Some(offset)
    }

    /// Returns the O task that inserted a key, and the position in its input, as precisely as the marks
    /// allow. `None`: unknown.
    #[cold]
    pub fn place_of(&self, hash: u64, key: &[u8]) -> Option<(u32, String)> {
        let (offset, _) = self.entries_at().find(|(_, entry)| {
            entry.hash == hash && !entry.dead && &self.arena[entry.key..entry.value] == key
        })?;
        let next = self.marks.partition_point(|mark| mark.offset <= offset);
        let origin = &self.marks[next.checked_sub(1)?].origin;
        let until = self.marks.get(next).filter(|mark| mark.origin.same_input(origin));
        let until = until.and_then(|mark| mark.origin.position);
        Some((origin.o_task, origin.place_until(until)))
    }

    /// Iterates over all entries with their offsets, including dead ones.
    fn entries_at(&self) -> impl Iterator<Item = (usize, Entry)> {
        let mut offset = 0;
        std::iter::from_fn(move || {
            let (at, entry) = (offset, entry_at(&self.arena, offset)?);
            offset = entry.end;
            Some((at, entry))
        })
    }

    /// Rebuilds the table with `slots` slots, and clears the hot ones.
    fn rehash(&mut self, slots: usize) {
        self.slots.clear();
        self.slots.resize(slots, 0);
        self.hot.clear();
        self.hot.resize(slots.min(HOT_SLOTS_MAX), 0);
        let mask = slots - 1;
        let mut offset = 0;
        while let Some(entry) = entry_at(&self.arena, offset) {
            if !entry.dead {
                let mut at = entry.hash as usize & mask;
                while self.slots[at] != 0 {
                    at = (at + 1) & mask;
                }
                self.slots[at] = (entry.hash & !0xffff_ffff) | (offset as u64 + 1);
            }
            offset = entry.end;
        }
    }

    fn compact(&mut self) {
        let arena = std::mem::take(&mut self.arena);
        self.dead_bytes = 0;
        let mut offset = 0;
        let mut marks = self.marks.iter_mut().peekable();
        while let Some(entry) = entry_at(&arena, offset) {
            while let Some(mark) = marks.next_if(|mark| mark.offset <= offset) {
                mark.offset = self.arena.len();
            }
            if !entry.dead {
                self.arena.extend_from_slice(&arena[offset..entry.end]);
            }
            offset = entry.end;
        }
        self.rehash(self.slots.len());
    }

    /// Iterates over all pairs and their hashes, in arbitrary order.
    pub fn iter(&self) -> impl Iterator<Item = (u64, &[u8], &[u8])> {
        self.entries_at().filter(|(_, entry)| !entry.dead).map(|(_, entry)| {
            (entry.hash, &self.arena[entry.key..entry.value], &self.arena[entry.value..entry.end])
        })
    }

    /// Removes all pairs but keeps the memory.
    pub fn clear(&mut self) {
        self.slots.fill(0);
        self.hot.fill(0);
        self.arena.clear();
        self.entries = 0;
        self.dead_bytes = 0;
        self.marks.clear();
    }
}

/// Whether two keys of the same length are equal. Most keys are short, and a call of `memcmp` costs more than
/// the comparison.
#[inline]
fn keys_equal(left: &[u8], right: &[u8]) -> bool {
    fn part<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
        bytes[at..at + N].try_into().expect("so many bytes")
    }
    let length = right.len();
    if left.len() != length {
        return false;
    }
    // The first and the last bytes may overlap.
    match length {
        8..=16 => {
            part::<8>(left, 0) == part::<8>(right, 0)
                && part::<8>(left, length - 8) == part::<8>(right, length - 8)
        }
        4..=7 => {
            part::<4>(left, 0) == part::<4>(right, 0)
                && part::<4>(left, length - 4) == part::<4>(right, length - 4)
        }
        2..=3 => {
            part::<2>(left, 0) == part::<2>(right, 0)
                && part::<2>(left, length - 2) == part::<2>(right, length - 2)
        }
        1 => left[0] == right[0],
        _ => left == right,
    }
}

struct Entry {
    hash: u64,
    dead: bool,
    key: usize,
    value: usize,
    end: usize,
}

fn entry_at(arena: &[u8], offset: usize) -> Option<Entry> {
    let header = arena.get(offset..offset + ENTRY_HEADER_BYTES)?;
    let hash = u64::from_le_bytes(header[..8].try_into().expect("eight bytes"));
    let key_bytes = u32::from_le_bytes(header[8..12].try_into().expect("four bytes"));
    let value_bytes = u32::from_le_bytes(header[12..].try_into().expect("four bytes"));
    let dead = key_bytes == DEAD;
    let key = offset + ENTRY_HEADER_BYTES;
    let value = key + if dead { 0 } else { key_bytes as usize };
    Some(Entry { hash, dead, key, value, end: value + value_bytes as usize })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash::hash;
    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};
    use std::collections::BTreeMap;

    /// Sums the lengths of values, and writes as many bytes as the sum's last digit.
    struct Growing;

    impl Combine for Growing {
        fn combine(
            &self,
            _: &[u8],
            held: &[u8],
            value: &[u8],
            out: &mut Vec<u8>,
        ) -> Result<(), Box<CombineError>> {
            out.resize((held.len() + value.len()) % 10, b'v');
            Ok(())
        }
    }

    #[test]
    fn keys_of_all_lengths_are_compared() {
        for length in 0..40usize {
            let key: Vec<u8> = (0..length as u8).collect();
            assert!(keys_equal(&key, &key.clone()));
            assert!(!keys_equal(&key, &vec![0; length + 1]));
            for at in 0..length {
                let mut other = key.clone();
                other[at] ^= 0x80;
                assert!(!keys_equal(&key, &other), "{length}, {at}");
            }
        }
    }

    #[test]
    fn table_matches_a_hash_map() {
        let seed = rand::rng().random();
        println!("seed {seed}");
        let mut random = StdRng::seed_from_u64(seed);
        let mut table = Table::default();
        let mut hot = 0;
        for round in 0..3 {
            let mut map: BTreeMap<Vec<u8>, usize> = BTreeMap::new();
            for _ in 0..40_000 {
                let key = random.random_range(0..9_000u32).to_string().into_bytes();
                let value = random.random_range(0..10usize);
                let known = map.contains_key(&key);
                let (hash, bytes) = (hash(&key), vec![b'v'; value]);
                if random.random() && table.combine_hot(hash, &key, &bytes, &Growing).unwrap() {
                    hot += 1;
                    assert!(known);
                } else {
                    let outcome = table.upsert(hash, &key, &bytes, &Growing, None).unwrap();
                    assert_eq!(outcome, if known { Upsert::Combined } else { Upsert::Inserted });
                }
                map.entry(key).and_modify(|held| *held = (*held + value) % 10).or_insert(value);
            }
            assert_eq!(table.entries, map.len(), "round {round}");
            let held: BTreeMap<Vec<u8>, usize> =
                table.iter().map(|(_, key, value)| (key.to_vec(), value.len())).collect();
            assert_eq!(held, map);
            assert!(table.dead_bytes * 2 <= table.arena.len() + (1 << 17));
            table.clear();
            assert!(table.is_empty() && table.iter().next().is_none());
        }
        assert!(hot > 100, "{hot}");
    }

    /// Whatever grows, dies or is moved, an entry is attributed to the O task that inserted it, close to its
    /// position.
    #[test]
    fn entries_have_their_origin() {
        let seed = rand::rng().random();
        println!("seed {seed}");
        let mut random = StdRng::seed_from_u64(seed);
        let mut table = Table::default();
        let mut put: BTreeMap<Vec<u8>, (u32, u64)> = BTreeMap::new();
        let mut origin = Origin::default();
        for position in 0..40_000 {
            if position % 9_000 == 0 {
                origin =
                    Origin { o_task: position as u32 / 9_000, source: Some("file".into()), position: None };
            }
            origin.position = Some(position);
            let key = random.random_range(0..30_000u32).to_string().into_bytes();
            let bytes = vec![b'v'; random.random_range(0..10)];
            let before = put.get(&key).map(|_| table.arena.len());
            table.upsert(hash(&key), &key, &bytes, &Growing, Some(&origin)).unwrap();
            // An overwritten value stays in place; one of another length is inserted anew.
            if before.is_none_or(|before| before != table.arena.len()) {
                put.insert(key, (origin.o_task, position));
            }
        }
        for (key, (o_task, position)) in &put {
            let (task, place) = table.place_of(hash(key), key).unwrap();
            assert_eq!(task, *o_task, "{place}");
            let numbers: Vec<u64> = place.split(' ').filter_map(|word| word.parse().ok()).collect();
            assert!(place.starts_with("file at "), "{place}");
            assert!(numbers[0] <= *position, "{place} is not {position}");
            assert!(numbers.get(1).is_none_or(|until| until >= position), "{place} is not {position}");
        }
        assert!(table.marks.len() * MARK_BYTES < 4 * table.arena.len(), "{} marks", table.marks.len());
        assert_eq!(table.place_of(hash(b"none"), b"none"), None);
    }
}
