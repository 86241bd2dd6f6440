//! Bytes of which every part begins in a cell of its own, and a part of one cell lies in one line of the processor's cache: to read it is to wait
//! for memory once.

use std::ops::{Deref, DerefMut};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Half a line.
pub const CELL_BYTES: usize = 32;

#[derive(Clone, Copy, FromBytes, Immutable, IntoBytes, KnownLayout)]
#[repr(C, align(32))]
struct Cell([u8; CELL_BYTES]);

#[derive(Default)]
pub struct Arena {
    cells: Vec<Cell>,
}

impl Arena {
    /// Adds a part: zeros, for which the next one begins at a multiple of [`CELL_BYTES`].
    pub fn push(&mut self, bytes: usize) -> &mut [u8] {
        let before = self.cells.len();
        self.cells.resize(before + bytes.div_ceil(CELL_BYTES), Cell([0; CELL_BYTES]));
        &mut self.cells[before..].as_mut_bytes()[..bytes]
    }

    /// Forgets all parts and keeps the memory.
    pub fn clear(&mut self) {
        self.cells.clear();
    }
}

impl Deref for Arena {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        self.cells.as_bytes()
    }
}

impl DerefMut for Arena {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        self.cells.as_mut_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_begin_in_cells_of_their_own() {
        let mut arena = Arena::default();
        for (bytes, end) in [(1, 32), (32, 64), (33, 128), (0, 128), (64, 192)] {
            let part = arena.push(bytes);
            assert_eq!(part, vec![0; bytes]);
            assert_eq!(part.as_ptr() as usize % CELL_BYTES, 0);
            part.fill(7);
            assert_eq!(arena.len(), end);
        }
        assert_eq!(arena.iter().filter(|byte| **byte == 7).count(), 130);
    }
}
