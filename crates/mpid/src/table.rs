//! A hash table of pairs whose values are combined as they come: open addressing over one arena of bytes.
//!
//! # Invariants
//! - A key stands once among the living entries of the arena.
//! - A slot holds the upper half of a key's hash and where its entry begins, so that a probe reads the arena
//!   only for what is almost surely the key.
//! - Entries lie in the order in which they were put in, so that a few marks say where in its input each came
//!   from.
//! - A hot slot is one that was found not long ago, or free: there are so few of them that they and the
//!   entries of keys that come all the time stay in the second cache. Whatever moves entries frees all of
//!   them.
//!
//! # Memory bound
//! [`Table::bytes`] is what it holds; who owns it empties it in time. An arena has less than 4 GiB.
//!
//! Source: mpi-d, section IV-A (pairs are buffered in a hash table and combined before they are sent).

use crate::datum::Rejected;
use crate::origin::{Origin, shown};

/// Why two values were not combined.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// What the key had is no value.
    Held(Rejected),
    /// What came is none.
    Came(Rejected),
    /// One of the two is none.
    Either(Rejected),
    /// What the combiner made of both is none.
    Made(Rejected),
}

/// Boxed, so that what a combiner returns fits into registers where nothing is refused.
impl Refusal {
    #[cold]
    pub fn held(why: Rejected) -> Box<Refusal> {
        Box::new(Refusal::Held(why))
    }

    #[cold]
    pub fn came(why: Rejected) -> Box<Refusal> {
        Box::new(Refusal::Came(why))
    }

    #[cold]
    pub fn made(why: Rejected) -> Box<Refusal> {
        Box::new(Refusal::Made(why))
    }

    /// With the key that it was about.
    #[cold]
    pub fn told(&self, key: &[u8]) -> Rejected {
        let (what, Rejected(why)) = match self {
            Refusal::Held(why) => ("the value that was there before", why),
            Refusal::Came(why) => ("the value that came", why),
            Refusal::Either(why) => ("one of two values", why),
            Refusal::Made(why) => ("what the combiner made of two values", why),
        };
        Rejected(format!("{what} of key {}: {why}", shown(key)))
    }
}

/// Joins two values of one key. Must be associative and commutative: the order of values is not known.
pub trait Combine: Send + Sync {
    /// Writes what `held` and `value` are together into `out`, which is empty.
    fn combine(&self, key: &[u8], held: &[u8], value: &[u8], out: &mut Vec<u8>) -> Result<(), Box<Refusal>>;

    /// As [`Combine::combine`], but writes over `held` if what both are together has as many bytes. Returns
    /// whether it has; if not, it is in `out`.
    #[inline]
    fn combine_over(
        &self,
        key: &[u8],
        held: &mut [u8],
        value: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<bool, Box<Refusal>> {
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

/// The length of the key of an entry that was replaced by a longer or shorter one.
const DEAD: u32 = u32::MAX;

/// Bytes that an arena may hold: an offset has 32 bits.
const ARENA_BYTES_MAX: usize = u32::MAX as usize - 1;

/// Few, as there may be a table for each of thousands of windows.
const SLOTS_MIN: usize = 16;

/// Hot slots, if there are as many slots: 128 KiB, which fit into a second cache of 1 MiB beside the entries
/// that they name. With the words of a text half as many, or twice as many, took longer.
const HOT_SLOTS_MAX: usize = 16_384;

/// Bytes of entries between two marks of the same origin: few enough to name a place, so many that marks cost
/// nothing.
const MARK_BYTES: usize = 4096;

/// Where the entries from an offset on came from, up to the next mark.
struct Mark {
    offset: usize,
    origin: Origin,
}

/// What became of a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Upsert {
    Inserted,
    Combined,
    /// There is no room: the table has to be emptied first.
    Full,
}

pub struct Table {
    /// Upper half of the hash, and one more than the offset of the entry; 0 for a free slot.
    slots: Vec<u64>,
    /// Some of the same: as many as slots, up to [`HOT_SLOTS_MAX`].
    hot: Vec<u64>,
    arena: Vec<u8>,
    entries: usize,
    dead_bytes: usize,
    scratch: Vec<u8>,
    /// In the order of their offsets; only of entries that were put in with an origin.
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

    /// Memory in use.
    pub fn bytes(&self) -> usize {
        let slots = self.slots.len() + self.hot.len();
        self.arena.len() + slots * size_of::<u64>() + self.marks.len() * size_of::<Mark>()
    }

    /// Combines a value with what its key has, if that was looked for not long ago and does not become longer
    /// or shorter. Returns whether it was; if not, nothing has changed.
    ///
    /// Errors: the combiner does not accept a value.
    #[inline]
    pub fn combine_hot(
        &mut self,
        hash: u64,
        key: &[u8],
        value: &[u8],
        combine: &dyn Combine,
    ) -> Result<bool, Box<Refusal>> {
        let slot = self.hot[self.hot_of(hash)];
        if slot == 0 || slot & !0xffff_ffff != hash & !0xffff_ffff {
            return Ok(false);
        }
        let offset = (slot as u32 - 1) as usize;
        let (key_bytes, value_bytes) = self.lengths(offset);
        let key_at = offset + ENTRY_HEADER_BYTES;
        if key_bytes != key.len() || !same(&self.arena[key_at..key_at + key_bytes], key) {
            return Ok(false);
        }
        self.scratch.clear();
        let value_at = key_at + key_bytes;
        combine.combine_over(key, &mut self.arena[value_at..value_at + value_bytes], value, &mut self.scratch)
    }

    /// Adds a pair, or combines its value with what its key has. `origin`: of the pair, for
    /// [`Table::place_of`].
    ///
    /// Errors: the combiner does not accept a value.
    #[inline]
    pub fn upsert(
        &mut self,
        hash: u64,
        key: &[u8],
        value: &[u8],
        combine: &dyn Combine,
        origin: Option<&Origin>,
    ) -> Result<Upsert, Box<Refusal>> {
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
                if key_bytes == key.len() && same(&self.arena[key_at..key_at + key_bytes], key) {
                    let hot = self.hot_of(hash);
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

    /// Reads what [`Table::upsert`] will read first for keys of these hashes. No read waits for another one,
    /// as those of keys that are looked up one after the other do, so that all of them take as long as one
    /// does from memory.
    #[inline]
    pub fn touch(&mut self, hashes: impl Iterator<Item = u64> + Clone) {
        let mask = self.slots.len() - 1;
        let mut read = 0;
        for hash in hashes.clone() {
            read ^= self.slots[hash as usize & mask];
        }
        for hash in hashes {
            let slot = self.slots[hash as usize & mask];
            // Where the entry's key begins, which mostly lies in the same line of the cache as its lengths
            // and its value.
            let key = (slot as u32).wrapping_sub(1) as usize + ENTRY_HEADER_BYTES;
            read ^= self.arena.get(key).map_or(0, |byte| u64::from(*byte));
        }
        // Reads whose result nobody looks at are left out.
        std::hint::black_box(read);
    }

    /// The hot slot of a hash: by other bits than those of the slots.
    #[inline]
    fn hot_of(&self, hash: u64) -> usize {
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
    ) -> Result<Upsert, Box<Refusal>> {
        let value_at = offset + ENTRY_HEADER_BYTES + key.len();
        self.scratch.clear();
        let held = &mut self.arena[value_at..value_at + value_bytes];
        if combine.combine_over(key, held, value, &mut self.scratch)? {
            return Ok(Upsert::Combined);
        }
        Ok(self.replace(slot, offset, value_bytes, key, origin))
    }

    /// Puts a new entry with the value in `scratch` in the place of one whose value has another length.
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
        // The lengths of a dead entry still say where the next one begins.
        let bytes = (key.len() + value_bytes) as u32;
        self.arena[offset + 12..offset + 16].copy_from_slice(&bytes.to_le_bytes());
        self.dead_bytes += ENTRY_HEADER_BYTES + bytes as usize;
        self.slots[slot] = (self.slots[slot] & !0xffff_ffff) | (new_offset as u64 + 1);
        let hot = self.hot_of(hash);
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
                .is_none_or(|mark| offset - mark.offset >= MARK_BYTES || !mark.origin.is_of(origin))
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

    /// The O task from which a key has what it has, and where in its input: as closely as the marks say.
    /// `None`: nobody knows.
    #[cold]
    pub fn place_of(&self, hash: u64, key: &[u8]) -> Option<(u32, String)> {
        let (offset, _) = self.entries_at().find(|(_, entry)| {
            entry.hash == hash && !entry.dead && &self.arena[entry.key..entry.value] == key
        })?;
        let next = self.marks.partition_point(|mark| mark.offset <= offset);
        let origin = &self.marks[next.checked_sub(1)?].origin;
        let until = self.marks.get(next).filter(|mark| mark.origin.is_of(origin));
        let until = until.and_then(|mark| mark.origin.position);
        Some((origin.o_task, origin.place_until(until)))
    }

    /// Every entry, also dead ones, with its offset.
    fn entries_at(&self) -> impl Iterator<Item = (usize, Entry)> {
        let mut offset = 0;
        std::iter::from_fn(move || {
            let (at, entry) = (offset, entry_at(&self.arena, offset)?);
            offset = entry.end;
            Some((at, entry))
        })
    }

    /// Gives every entry a slot among `slots`, and frees the hot ones.
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

    /// Every pair with the hash of its key, in no order that means anything.
    pub fn iter(&self) -> impl Iterator<Item = (u64, &[u8], &[u8])> {
        self.entries_at().filter(|(_, entry)| !entry.dead).map(|(_, entry)| {
            (entry.hash, &self.arena[entry.key..entry.value], &self.arena[entry.value..entry.end])
        })
    }

    /// Forgets every pair and keeps the memory.
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
/// what it compares.
#[inline]
fn same(left: &[u8], right: &[u8]) -> bool {
    fn part<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
        bytes[at..at + N].try_into().expect("so many bytes")
    }
    let length = right.len();
    if left.len() != length {
        return false;
    }
    // First and last bytes may overlap.
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

    /// Adds up the lengths of values, and writes as many bytes as the sum's last digit says.
    struct Growing;

    impl Combine for Growing {
        fn combine(
            &self,
            _: &[u8],
            held: &[u8],
            value: &[u8],
            out: &mut Vec<u8>,
        ) -> Result<(), Box<Refusal>> {
            out.resize((held.len() + value.len()) % 10, b'v');
            Ok(())
        }
    }

    #[test]
    fn keys_of_all_lengths_are_compared() {
        for length in 0..40usize {
            let key: Vec<u8> = (0..length as u8).collect();
            assert!(same(&key, &key.clone()));
            assert!(!same(&key, &vec![0; length + 1]));
            for at in 0..length {
                let mut other = key.clone();
                other[at] ^= 0x80;
                assert!(!same(&key, &other), "{length}, {at}");
            }
        }
    }

    #[test]
    fn what_it_holds_is_what_a_map_holds() {
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

    /// Whatever grows, dies and is moved, an entry is known to be of the O task that put it in, near where
    /// that was.
    #[test]
    fn where_an_entry_came_from_is_known() {
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
            // A value that is written over stays where it is; a longer or shorter one is put in anew.
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
