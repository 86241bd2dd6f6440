//! A hash table of pairs whose values are combined as they come: open addressing over one arena of bytes.
//!
//! # Invariants
//! - A key stands once among the living entries of the arena.
//! - A slot holds the upper half of a key's hash and where its entry begins, so that a probe reads the arena only for what is
//!   almost surely the key.
//! - An entry begins in a cell of its own and has its key's fingerprint, which says all bytes of a short key, so that short keys are compared as numbers, whatever their lengths.
//! - Entries lie in the order in which they were put in, so that a few marks say where in its input each came from.
//! - A hot slot is one that was found not long ago, or free: there are so few of them that they and the entries of keys that come all the
//!   time stay in the first cache. Whatever moves entries frees all of them.
//!
//! # Memory bound
//! [`Table::bytes`] is what it holds; who owns it empties it in time. An arena has less than 4 GiB.
//!
//! Source: mpi-d, section IV-A (pairs are buffered in a hash table and combined before they are sent).

use crate::arena::{Arena, CELL_BYTES};
use crate::datum::Rejected;
use crate::hash::{Fingerprint, Key, Room};
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
    pub fn told(&self, key: &Key<'_>) -> Rejected {
        let (what, Rejected(why)) = match self {
            Refusal::Held(why) => ("the value that was there before", why),
            Refusal::Came(why) => ("the value that came", why),
            Refusal::Either(why) => ("one of two values", why),
            Refusal::Made(why) => ("what the combiner made of two values", why),
        };
        Rejected(format!("{what} of key {}: {why}", shown(key.bytes(&mut Room::default()))))
    }
}

/// Joins two values of one key. Must be associative and commutative: the order of values is not known.
pub trait Combine: Send + Sync {
    /// Writes what `held` and `value` are together into `out`, which is empty.
    fn combine(
        &self,
        key: &Key<'_>,
        held: &[u8],
        value: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), Box<Refusal>>;

    /// As [`Combine::combine`], but writes over `held` if what both are together has as many bytes. Returns whether it has;
    /// if not, it is in `out`.
    #[inline]
    fn combine_over(
        &self,
        key: &Key<'_>,
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

/// Bytes of an entry before those of a long key and of the value: the lengths of both, and the two numbers of the key's fingerprint.
const ENTRY_HEADER_BYTES: usize = 24;

/// The length of the key of an entry that was replaced by a longer or shorter one.
const DEAD: u32 = u32::MAX;

/// Bytes that an arena may hold: an offset has 32 bits.
const ARENA_BYTES_MAX: usize = u32::MAX as usize - 1;

const SLOTS_MIN: usize = 1024;

/// Hot slots: three quarters of a first cache of 32 KiB.
const HOT_SLOTS: usize = 1024;

/// A key that was found not long ago, by its fingerprint, and one more than the offset of its entry; or, at 0, none.
#[derive(Clone, Copy)]
struct Hot {
    low: u64,
    high: u64,
    length: u32,
    entry: u32,
}

const NOT_HOT: Hot = Hot { low: 0, high: 0, length: 0, entry: 0 };

impl Hot {
    #[inline]
    fn print(&self) -> Fingerprint {
        Fingerprint { low: self.low, high: self.high, length: self.length }
    }
}

/// The hot slot of a hash: by other bits than those of the slots.
#[inline]
fn hot_of(hash: u64) -> usize {
    (hash >> 24) as usize % HOT_SLOTS
}

/// Bytes of entries between two marks of the same origin: few enough to name a place, so many that marks cost nothing.
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
    hot: Box<[Hot; HOT_SLOTS]>,
    arena: Arena,
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
            hot: Box::new([NOT_HOT; HOT_SLOTS]),
            arena: Arena::default(),
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
        self.arena.len() + self.slots.len() * size_of::<u64>() + self.marks.len() * size_of::<Mark>()
    }

    /// Combines a value with what its key has, if that was looked for not long ago and does not become longer or shorter. Returns whether it
    /// was; if not, nothing has changed.
    ///
    /// Errors: the combiner does not accept a value.
    #[inline]
    pub fn combine_hot(
        &mut self,
        key: &Key<'_>,
        value: &[u8],
        combine: &dyn Combine,
    ) -> Result<bool, Box<Refusal>> {
        let hot = self.hot[hot_of(key.hash)];
        if hot.print() != key.print || hot.entry == 0 {
            return Ok(false);
        }
        let offset = hot.entry as usize - 1;
        if !self.has_bytes_of(offset, key) {
            return Ok(false);
        }
        let value_at = offset + ENTRY_HEADER_BYTES + key.long.len();
        let value_bytes = number(&self.arena, offset + 4) as usize;
        self.scratch.clear();
        combine.combine_over(key, &mut self.arena[value_at..value_at + value_bytes], value, &mut self.scratch)
    }

    /// Adds a pair, or combines its value with what its key has. `origin`: of the pair, for [`Table::place_of`].
    ///
    /// Errors: the combiner does not accept a value.
    #[inline]
    pub fn upsert(
        &mut self,
        key: &Key<'_>,
        value: &[u8],
        combine: &dyn Combine,
        origin: Option<&Origin>,
    ) -> Result<Upsert, Box<Refusal>> {
        let mask = self.slots.len() - 1;
        let tag = key.hash & !0xffff_ffff;
        let mut at = key.hash as usize & mask;
        loop {
            let slot = self.slots[at];
            if slot == 0 {
                break;
            }
            if slot & !0xffff_ffff == tag {
                let offset = (slot as u32 - 1) as usize;
                if print_at(&self.arena, offset) == key.print && self.has_bytes_of(offset, key) {
                    self.heat(key, offset);
                    return self.combine(at, offset, key, value, combine, origin);
                }
            }
            at = (at + 1) & mask;
        }
        match self.push(key, value, origin) {
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

    #[inline]
    fn heat(&mut self, key: &Key<'_>, offset: usize) {
        let Fingerprint { low, high, length } = key.print;
        self.hot[hot_of(key.hash)] = Hot { low, high, length, entry: offset as u32 + 1 };
    }

    /// Whether an entry with the key's fingerprint is the key's.
    #[inline]
    fn has_bytes_of(&self, offset: usize, key: &Key<'_>) -> bool {
        let at = offset + ENTRY_HEADER_BYTES;
        key.print.is_whole() || self.arena.get(at..at + key.long.len()) == Some(key.long)
    }

    /// Reads what [`Table::upsert`] will read first for keys of these hashes. No read waits for another one, as those of keys that
    /// are looked up one after the other do, so that all of them take as long as one does from memory.
    #[inline]
    pub fn touch(&mut self, hashes: impl Iterator<Item = u64> + Clone) {
        let mask = self.slots.len() - 1;
        let mut read = 0;
        for hash in hashes.clone() {
            read ^= self.slots[hash as usize & mask];
        }
        for hash in hashes {
            let slot = self.slots[hash as usize & mask];
            let entry = (slot as u32).wrapping_sub(1) as usize;
            read ^= self.arena.get(entry).map_or(0, |byte| u64::from(*byte));
        }
        // Reads whose result nobody looks at are left out.
        std::hint::black_box(read);
    }

    #[inline]
    fn combine(
        &mut self,
        slot: usize,
        offset: usize,
        key: &Key<'_>,
        value: &[u8],
        combine: &dyn Combine,
        origin: Option<&Origin>,
    ) -> Result<Upsert, Box<Refusal>> {
        let value_at = offset + ENTRY_HEADER_BYTES + key.long.len();
        let value_bytes = number(&self.arena, offset + 4) as usize;
        self.scratch.clear();
        let held = &mut self.arena[value_at..value_at + value_bytes];
        if combine.combine_over(key, held, value, &mut self.scratch)? {
            return Ok(Upsert::Combined);
        }
        Ok(self.replace(slot, offset, key, origin))
    }

    /// Puts a new entry with the value in `scratch` in the place of one whose value has another length.
    #[cold]
    fn replace(&mut self, slot: usize, offset: usize, key: &Key<'_>, origin: Option<&Origin>) -> Upsert {
        let scratch = std::mem::take(&mut self.scratch);
        let pushed = self.push(key, &scratch, origin);
        self.scratch = scratch;
        let Some(new_offset) = pushed else { return Upsert::Full };
        // The lengths of a dead entry still say where the next one begins.
        let bytes = key.long.len() as u32 + number(&self.arena, offset + 4);
        self.arena[offset..offset + 4].copy_from_slice(&DEAD.to_le_bytes());
        self.arena[offset + 4..offset + 8].copy_from_slice(&bytes.to_le_bytes());
        self.dead_bytes += entry_bytes(bytes as usize);
        self.slots[slot] = (self.slots[slot] & !0xffff_ffff) | (new_offset as u64 + 1);
        self.heat(key, new_offset);
        if self.dead_bytes > self.arena.len() / 2 && self.dead_bytes > 1 << 16 {
            self.compact();
        }
        Upsert::Combined
    }

    fn push(&mut self, key: &Key<'_>, value: &[u8], origin: Option<&Origin>) -> Option<usize> {
        let offset = self.arena.len();
        let bytes = ENTRY_HEADER_BYTES + key.long.len() + value.len();
        if offset + bytes > ARENA_BYTES_MAX {
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
        let entry = self.arena.push(bytes);
        let (header, rest) = entry.split_at_mut(ENTRY_HEADER_BYTES);
        header[..4].copy_from_slice(&key.print.length.to_le_bytes());
        header[4..8].copy_from_slice(&(value.len() as u32).to_le_bytes());
        header[8..16].copy_from_slice(&key.print.low.to_le_bytes());
        header[16..].copy_from_slice(&key.print.high.to_le_bytes());
        rest[..key.long.len()].copy_from_slice(key.long);
        rest[key.long.len()..].copy_from_slice(value);
        Some(offset)
    }

    /// The O task from which a key has what it has, and where in its input: as closely as the marks say. `None`: nobody knows.
    #[cold]
    pub fn place_of(&self, key: &Key<'_>) -> Option<(u32, String)> {
        let (offset, _) = self.entries_at().find(|(_, entry)| {
            !entry.dead && entry.print == key.print && &self.arena[entry.key..entry.value] == key.long
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
            offset = entry.next;
            Some((at, entry))
        })
    }

    /// Gives every entry a slot among `slots`.
    fn rehash(&mut self, slots: usize) {
        self.slots.clear();
        self.slots.resize(slots, 0);
        let mask = slots - 1;
        let mut offset = 0;
        while let Some(entry) = entry_at(&self.arena, offset) {
            if !entry.dead {
                let hash = entry.print.hash();
                let mut at = hash as usize & mask;
                while self.slots[at] != 0 {
                    at = (at + 1) & mask;
                }
                self.slots[at] = (hash & !0xffff_ffff) | (offset as u64 + 1);
            }
            offset = entry.next;
        }
    }

    fn compact(&mut self) {
        let arena = std::mem::take(&mut self.arena);
        self.hot.fill(NOT_HOT);
        self.dead_bytes = 0;
        let mut offset = 0;
        let mut marks = self.marks.iter_mut().peekable();
        while let Some(entry) = entry_at(&arena, offset) {
            while let Some(mark) = marks.next_if(|mark| mark.offset <= offset) {
                mark.offset = self.arena.len();
            }
            if !entry.dead {
                let part = &arena[offset..entry.next];
                self.arena.push(part.len()).copy_from_slice(part);
            }
            offset = entry.next;
        }
        self.rehash(self.slots.len());
    }

    /// Every pair, in no order that means anything.
    pub fn iter(&self) -> impl Iterator<Item = (Key<'_>, &[u8])> {
        self.entries_at().filter(|(_, entry)| !entry.dead).map(|(_, entry)| {
            let long = &self.arena[entry.key..entry.value];
            (Key { hash: entry.print.hash(), print: entry.print, long }, &self.arena[entry.value..entry.end])
        })
    }

    /// Forgets every pair and keeps the memory.
    pub fn clear(&mut self) {
        self.slots.fill(0);
        self.hot.fill(NOT_HOT);
        self.arena.clear();
        self.entries = 0;
        self.dead_bytes = 0;
        self.marks.clear();
    }
}

struct Entry {
    print: Fingerprint,
    dead: bool,
    /// Where the bytes of a key begin that its fingerprint does not say.
    key: usize,
    value: usize,
    end: usize,
    next: usize,
}

#[inline]
fn number(arena: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(arena[at..at + 4].try_into().expect("four bytes"))
}

#[inline]
fn print_at(arena: &[u8], offset: usize) -> Fingerprint {
    let header = &arena[offset..offset + ENTRY_HEADER_BYTES];
    let word = |at: usize| u64::from_le_bytes(header[at..at + 8].try_into().expect("eight bytes"));
    Fingerprint { low: word(8), high: word(16), length: number(header, 0) }
}

/// What an entry with so many bytes of a long key and of a value takes.
#[inline]
fn entry_bytes(bytes: usize) -> usize {
    (ENTRY_HEADER_BYTES + bytes).next_multiple_of(CELL_BYTES)
}

fn entry_at(arena: &[u8], offset: usize) -> Option<Entry> {
    if offset == arena.len() {
        return None;
    }
    let print = print_at(arena, offset);
    let value_bytes = number(arena, offset + 4) as usize;
    let dead = print.length == DEAD;
    let key = offset + ENTRY_HEADER_BYTES;
    let value = key + if dead || print.is_whole() { 0 } else { print.length as usize };
    let end = value + value_bytes;
    Some(Entry { print, dead, key, value, end, next: offset + entry_bytes(end - key) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};
    use std::collections::BTreeMap;

    /// Adds up the lengths of values, and writes as many bytes as the sum's last digit says.
    struct Growing;

    impl Combine for Growing {
        fn combine(
            &self,
            _: &Key<'_>,
            held: &[u8],
            value: &[u8],
            out: &mut Vec<u8>,
        ) -> Result<(), Box<Refusal>> {
            out.resize((held.len() + value.len()) % 10, b'v');
            Ok(())
        }
    }

    /// A key of the number: short, or too long for a fingerprint, where many begin and end with the same bytes.
    fn key_of(number: u32) -> Vec<u8> {
        match number % 3 {
            0 => format!("one of the keys that are long, {number}, and end alike").into_bytes(),
            _ => number.to_string().into_bytes(),
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
                let key = key_of(random.random_range(0..9_000));
                let value = random.random_range(0..10usize);
                let known = map.contains_key(&key);
                let (looked_for, bytes) = (Key::of(&key), vec![b'v'; value]);
                if random.random() && table.combine_hot(&looked_for, &bytes, &Growing).unwrap() {
                    hot += 1;
                    assert!(known);
                } else {
                    let outcome = table.upsert(&looked_for, &bytes, &Growing, None).unwrap();
                    assert_eq!(outcome, if known { Upsert::Combined } else { Upsert::Inserted });
                }
                map.entry(key).and_modify(|held| *held = (*held + value) % 10).or_insert(value);
            }
            assert_eq!(table.entries, map.len(), "round {round}");
            let held: BTreeMap<Vec<u8>, usize> = table
                .iter()
                .map(|(key, value)| (key.bytes(&mut Room::default()).to_vec(), value.len()))
                .collect();
            assert_eq!(held, map);
            assert!(table.dead_bytes * 2 <= table.arena.len() + (1 << 17));
            table.clear();
            assert!(table.is_empty() && table.iter().next().is_none());
        }
        assert!(hot > 100, "{hot}");
    }

    /// Whatever grows, dies and is moved, an entry is known to be of the O task that put it in, near where that was.
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
            let key = key_of(random.random_range(0..30_000));
            let bytes = vec![b'v'; random.random_range(0..10)];
            let before = put.get(&key).map(|_| table.arena.len());
            table.upsert(&Key::of(&key), &bytes, &Growing, Some(&origin)).unwrap();
            // A value that is written over stays where it is; a longer or shorter one is put in anew.
            if before.is_none_or(|before| before != table.arena.len()) {
                put.insert(key, (origin.o_task, position));
            }
        }
        for (key, (o_task, position)) in &put {
            let (task, place) = table.place_of(&Key::of(key)).unwrap();
            assert_eq!(task, *o_task, "{place}");
            let numbers: Vec<u64> = place.split(' ').filter_map(|word| word.parse().ok()).collect();
            assert!(place.starts_with("file at "), "{place}");
            assert!(numbers[0] <= *position, "{place} is not {position}");
            assert!(numbers.get(1).is_none_or(|until| until >= position), "{place} is not {position}");
        }
        assert!(table.marks.len() * MARK_BYTES < 4 * table.arena.len(), "{} marks", table.marks.len());
        assert_eq!(table.place_of(&Key::of(b"none")), None);
    }
}
