//! Blocks in shared memory, so that a large block is read by other processes of the host without a copy.
//!
//! ```text
//!   owner: Arena::allocate ─► Block, written ─► Arena::lend ──offset, length──► reader: Window::piece ─► read in place
//!                 ▲                                                                                │ dropped
//!                 └─────────────────────── Arena::end_loan ◄──────────offset──────────────────────┘
//! ```
//! An arena is one memfd: it has no name, no file, and its memory is freed with the last process that maps
//! it, however that one ends. It is sparse and far larger than its use: the system allocates pages as they
//! are written. It cannot shrink (it is sealed), so a reader's access never faults.
//!
//! # Invariants
//! - A range of the arena is owned by one block, lent to one or several readers, or free.
//! - The owner neither writes a lent range nor gives it to another block before its reader returns it or the
//!   reader's process has ended. A reader never writes: its mapping is read-only.
//!
//! # Memory bound
//! The lender bounds how much is lent. Free ranges retain at most [`WARM_BYTES_MAX`] bytes of pages; the rest
//! is returned to the system.
//!
//! Source: memfd_create(2), mmap(2), fallocate(2), fcntl(2) (F_ADD_SEALS).
#![allow(unsafe_code)]

use crate::arena::{ArenaRange, LentRange, Mapping, class_bytes, class_of};
use crate::block::Block;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;

pub use crate::arena::Arena;

/// A range of an arena on its way to a reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loan {
    /// Offset of the range in the arena, bytes.
    pub offset: u64,
    /// The length of the block, bytes.
    pub len: u64,
}

impl Arena {
    /// Allocates an empty block with room for `bytes`; `None` if the arena is full or the block is too large
    /// for it.
    pub fn allocate(self: &Arc<Arena>, bytes: usize) -> Option<Block> {
        let class = class_of(bytes)?;
        let size = class_bytes(class);
        let mut state = self.state();
        let offset = match state.free[class].pop_back() {
            Some(free) => {
                state.warm_bytes -= if free.warm { size } else { 0 };
                free.offset
            }
            None => {
                let offset = state.end;
                state.end = offset.checked_add(size).filter(|end| *end <= self.mapping.len)?;
                offset
            }
        };
        drop(state);
        let range = ArenaRange { arena: Some(Arc::clone(self)), offset, class };
        // SAFETY: the range lies in the mapping, which `range` keeps; it is neither free, lent nor another
        // block's.
        Some(unsafe { Block::at(self.mapping.base.add(offset), size.min(i32::MAX as usize), range) })
    }

    /// Lends a block of this arena to the reader `to`; the caller sends it the loan. Returns a block that is
    /// not of this arena.
    pub fn lend(&self, block: Block, to: usize) -> Result<Loan, Block> {
        self.detach(block, |class| LentRange { class, readers: vec![to], published: false })
    }

    /// Publishes a block of this arena, to be lent to several readers. Returns a block that is not of this
    /// arena.
    pub fn publish(self: &Arc<Arena>, block: Block) -> Result<Published, Block> {
        let loan = self.detach(block, |class| LentRange { class, readers: vec![], published: true })?;
        Ok(Published { arena: Arc::clone(self), loan })
    }

    fn detach(&self, block: Block, lent: impl FnOnce(usize) -> LentRange) -> Result<Loan, Block> {
        let ours =
            |range: &ArenaRange| range.arena.as_ref().is_some_and(|arena| std::ptr::eq(&**arena, self));
        if !block.range().is_some_and(ours) {
            return Err(block);
        }
        let (mut range, len) = block.detach_range().expect("it has one");
        range.arena = None;
        self.state().loans.insert(range.offset, lent(range.class));
        Ok(Loan { offset: range.offset as u64, len: len as u64 })
    }
}

/// A block that is lent to several readers; freed once this is dropped and all of them have returned it.
pub struct Published {
    arena: Arc<Arena>,
    loan: Loan,
}

impl Published {
    /// Lends it to the reader `to`; the caller sends it the loan.
    pub fn lend(&self, to: usize) -> Loan {
        let mut state = self.arena.state();
        let lent = state.loans.get_mut(&(self.loan.offset as usize)).expect("it is kept while this lives");
        lent.readers.push(to);
        self.loan
    }
}

impl AsRef<[u8]> for Published {
    fn as_ref(&self) -> &[u8] {
        let Loan { offset, len } = self.loan;
        // SAFETY: the range lies in the mapping, which the arena keeps. The block that was here has
        // initialised its bytes, and nothing writes them before the range is free, which it is not while this
        // lives.
        unsafe {
            std::slice::from_raw_parts(self.arena.mapping.base.as_ptr().add(offset as usize), len as usize)
        }
    }
}

impl Drop for Published {
    fn drop(&mut self) {
        self.arena.change(self.loan.offset as usize, |lent| std::mem::replace(&mut lent.published, false));
    }
}

/// Read-only mapping of another process's arena.
pub struct Window {
    mapping: Mapping,
}

impl Window {
    /// Opens the arena that process `pid` of this host has as `descriptor`.
    ///
    /// Errors: no such process or descriptor, another user's, a process of another PID namespace, not enough
    /// address space.
    pub fn open(pid: u32, descriptor: RawFd) -> io::Result<Arc<Window>> {
        let file = std::fs::File::open(format!("/proc/{pid}/fd/{descriptor}"))?;
        let len = usize::try_from(file.metadata()?.len()).map_err(io::Error::other)?;
        let fd = OwnedFd::from(file);
        // SAFETY: an integer result, on a descriptor we own.
        let seals = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GET_SEALS) };
        if seals < 0 || seals & libc::F_SEAL_SHRINK == 0 {
            return Err(io::Error::other("not an arena"));
        }
        Ok(Arc::new(Window { mapping: Mapping::new(&fd, len, libc::PROT_READ)? }))
    }

    /// The bytes of `loan`; `None` if it reaches past the arena.
    pub fn piece(self: &Arc<Window>, loan: Loan) -> Option<Piece> {
        let offset = usize::try_from(loan.offset).ok()?;
        let len = usize::try_from(loan.len).ok()?;
        offset.checked_add(len).filter(|end| *end <= self.mapping.len)?;
        Some(Piece { window: Arc::clone(self), offset, len })
    }
}

/// Bytes that another process has lent to this one. The holder reports to the lender when it is dropped.
pub struct Piece {
    window: Arc<Window>,
    offset: usize,
    len: usize,
}

impl AsRef<[u8]> for Piece {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: the range lies in the mapping, which cannot shrink and which this piece keeps. The lender,
        // a rank of the same build, does not write it before it is returned, which happens after the piece is
        // dropped.
        unsafe { std::slice::from_raw_parts(self.window.mapping.base.as_ptr().add(self.offset), self.len) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arena::WARM_BYTES_MAX;
    use std::collections::VecDeque;

    const MIB: usize = 1024 * 1024;

    fn arena() -> Arc<Arena> {
        Arena::create(1024 * MIB).unwrap()
    }

    fn block_of(arena: &Arc<Arena>, byte: u8, len: usize) -> Block {
        let mut block = arena.allocate(len).unwrap();
        block.extend_from_slice(&vec![byte; len]);
        block
    }

    #[test]
    fn loans_are_read_in_place_and_returned() {
        let arena = arena();
        let window = Window::open(std::process::id(), arena.descriptor()).unwrap();
        let loan = arena.lend(block_of(&arena, 7, 100_000), 3).unwrap();
        let piece = window.piece(loan).unwrap();
        assert_eq!(piece.as_ref(), vec![7; 100_000]);
        assert_eq!(arena.loans(), 1);
        assert!(!arena.end_loan(loan.offset, 2), "lent to another");
        assert!(!arena.end_loan(loan.offset + 1, 3), "no such loan");
        assert!(arena.end_loan(loan.offset, 3));
        assert!(!arena.end_loan(loan.offset, 3), "given back already");
        assert_eq!(arena.loans(), 0);
        let again = arena.allocate(100_000).unwrap();
        assert_eq!(
            again.as_slice().as_ptr(),
            arena.mapping.base.as_ptr().cast_const(),
            "the warm range is used again"
        );
    }

    #[test]
    fn loans_of_dead_ranks_are_reclaimed() {
        let arena = arena();
        for reader in [1, 2, 1] {
            arena.lend(block_of(&arena, 0, 100_000), reader).unwrap();
        }
        arena.reclaim(1);
        assert_eq!(arena.loans(), 1);
        arena.reclaim(2);
        assert_eq!(arena.loans(), 0);
    }

    /// It may be alive and still read.
    #[test]
    fn ranges_of_abandoned_readers_are_not_reused() {
        let arena = arena();
        let window = Window::open(std::process::id(), arena.descriptor()).unwrap();
        let loan = arena.lend(block_of(&arena, 7, 100_000), 1).unwrap();
        let piece = window.piece(loan).unwrap();
        arena.abandon(1);
        assert_eq!((arena.loans(), arena.loans_to(1), arena.readers()), (0, 1, vec![]));
        // A loan in flight when the reader was abandoned.
        arena.lend(block_of(&arena, 8, 100_000), 1).unwrap();
        assert_eq!((arena.loans(), arena.loans_to(1)), (0, 2));
        let others: Vec<Block> = (0..4).map(|_| block_of(&arena, 9, 100_000)).collect();
        assert_eq!(piece.as_ref(), vec![7; 100_000]);
        drop((piece, others));
        arena.reclaim(1);
        assert_eq!(arena.loans_to(1), 0);
        arena.lend(block_of(&arena, 7, 100_000), 2).unwrap();
        assert_eq!((arena.loans(), arena.readers()), (1, vec![2]), "others are counted on");
    }

    #[test]
    fn published_ranges_are_freed_after_the_last_reader() {
        let arena = arena();
        let free = |arena: &Arena| arena.state().free.iter().map(VecDeque::len).sum::<usize>();
        for dropped_first in [true, false] {
            let published = arena.publish(block_of(&arena, 9, 100_000)).unwrap();
            assert_eq!(published.as_ref(), vec![9; 100_000]);
            let loans = [1, 2, 3].map(|reader| published.lend(reader));
            let mut published = Some(published);
            assert_eq!((arena.loans(), free(&arena)), (1, 0));
            if dropped_first {
                published = None;
            }
            assert!(arena.end_loan(loans[0].offset, 1));
            assert!(!arena.end_loan(loans[0].offset, 1), "given back already");
            arena.reclaim(2);
            assert_eq!((arena.loans(), free(&arena)), (1, 0));
            assert!(arena.end_loan(loans[2].offset, 3));
            assert_eq!((arena.loans(), free(&arena)), (0, usize::from(dropped_first)));
            drop(published);
            assert_eq!(free(&arena), 1);
            // The next round reuses the free range.
        }
    }

    #[test]
    fn ranges_are_never_shared() {
        let arena = arena();
        let blocks: Vec<Block> = (0..20).map(|n| block_of(&arena, n, (16 * 1024) << (n % 4))).collect();
        for (n, block) in blocks.iter().enumerate() {
            assert!(block.as_slice().iter().all(|byte| usize::from(*byte) == n));
        }
        drop(blocks);
        let state = arena.state();
        assert_eq!(state.free.iter().map(VecDeque::len).sum::<usize>(), 20);
    }

    #[test]
    fn growing_past_the_range_moves_the_block_out() {
        let arena = arena();
        let mut block = block_of(&arena, 1, 16 * 1024);
        block.extend_from_slice(&[2; 10]);
        assert_eq!(block.len(), 16 * 1024 + 10);
        assert_eq!(&block.as_slice()[16 * 1024 - 1..16 * 1024 + 1], [1, 2]);
        let block = arena.lend(block, 0).unwrap_err();
        assert_eq!(block.len(), 16 * 1024 + 10);
    }

    #[test]
    fn excess_memory_is_returned_to_the_system() {
        let arena = arena();
        let blocks: Vec<Block> = (0..40).map(|n| block_of(&arena, n, 4 * MIB)).collect();
        drop(blocks);
        assert_eq!(arena.state().warm_bytes, WARM_BYTES_MAX);
        assert_eq!(arena.allocate(4 * MIB).unwrap().capacity(), 4 * MIB);
    }

    #[test]
    fn full_arenas_are_errors() {
        let arena = Arena::create(MIB).unwrap();
        let one = arena.allocate(MIB).unwrap();
        assert!(arena.allocate(1).is_none());
        drop(one);
        assert!(arena.allocate(MIB).is_some());
        assert!(arena.allocate(2 * MIB).is_none());
        assert!(arena.allocate(usize::MAX / 4).is_none());
    }

    #[test]
    fn loans_past_the_arena_are_refused() {
        let arena = Arena::create(MIB).unwrap();
        let window = Window::open(std::process::id(), arena.descriptor()).unwrap();
        for (offset, len) in [(0, MIB as u64 + 1), (MIB as u64, 1), (u64::MAX, 1), (1, u64::MAX)] {
            assert!(window.piece(Loan { offset, len }).is_none());
        }
        assert!(window.piece(Loan { offset: MIB as u64, len: 0 }).is_some());
    }

    #[test]
    fn only_an_arena_can_be_opened() {
        let file = std::fs::File::open("/proc/self/exe").unwrap();
        assert!(Window::open(std::process::id(), file.as_raw_fd()).is_err());
        assert!(Window::open(std::process::id(), 9999).is_err());
    }
}
