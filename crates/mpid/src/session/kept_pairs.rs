//! Encoded pairs that a task keeps in memory between rounds.

use crate::records::{self, Place};

/// Target size of a block of kept pairs.
const BLOCK_BYTES: usize = 1 << 20;

/// Pairs kept for the tasks of one number.
#[derive(Default)]
pub(super) struct Part {
    blocks: Vec<Vec<u8>>,
}

impl Part {
    pub fn push(&mut self, key: &[u8], value: &[u8]) {
        let bytes = records::pair_bytes(key.len(), value.len());
        if self.blocks.last().is_none_or(|block| block.len() + bytes > block.capacity()) {
            self.blocks.push(Vec::with_capacity(bytes.max(BLOCK_BYTES)));
        }
        records::push_pair(self.blocks.last_mut().expect("it was just pushed"), key, value);
    }
}

/// A task's read position in its kept pairs.
#[derive(Clone, Copy, Default)]
pub(super) struct Cursor {
    block: usize,
    place: Place,
    count: u64,
}

impl Cursor {
    /// Advances to the next pair. Returns whether there is one.
    pub fn advance(&mut self, part: &Part) -> bool {
        while let Some(block) = part.blocks.get(self.block) {
            if let Some(place) = records::place(block, self.place.end) {
                self.place = place;
                self.count += 1;
                return true;
            }
            (self.block, self.place) = (self.block + 1, Place::default());
        }
        false
    }

    /// Number of pairs read.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Current pair; empty before the first and after the last.
    pub fn pair<'a>(&self, part: &'a Part) -> (&'a [u8], &'a [u8]) {
        let Place { key, value, end } = self.place;
        match part.blocks.get(self.block) {
            Some(block) => (&block[key..value], &block[value..end]),
            None => (&[], &[]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_of_all_sizes_stay_in_their_order() {
        let mut part = Part::default();
        assert!(!Cursor::default().advance(&part));
        let sizes = [0, 5, BLOCK_BYTES - 1, 0, 3 * BLOCK_BYTES, 1];
        for (at, bytes) in sizes.iter().enumerate() {
            part.push(&vec![at as u8; at], &vec![at as u8; *bytes]);
        }
        let mut cursor = Cursor::default();
        for (at, bytes) in sizes.iter().enumerate() {
            assert!(cursor.advance(&part));
            assert_eq!(cursor.pair(&part), (&vec![at as u8; at][..], &vec![at as u8; *bytes][..]));
            assert_eq!(cursor.count(), at as u64 + 1);
        }
        assert!(!cursor.advance(&part) && !cursor.advance(&part));
        assert_eq!(cursor.pair(&part), (&[][..], &[][..]));
    }
}
