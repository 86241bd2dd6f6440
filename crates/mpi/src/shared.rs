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

use crate::block::Block;
use std::collections::{HashMap, HashSet, VecDeque};
use std::ffi::c_void;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError};

/// Bytes of pages that free ranges may retain for reuse.
const WARM_BYTES_MAX: usize = 64 * 1024 * 1024;

/// The smallest range allocated, bytes. Ranges are powers of two, so that they can be reused for other sizes.
const RANGE_BYTES_MIN: usize = 16 * 1024;

/// Size classes of ranges: 16 KiB to 2 GiB.
const CLASSES: usize = 18;

fn class_of(bytes: usize) -> Option<usize> {
    let class = bytes.max(RANGE_BYTES_MIN).next_power_of_two().ilog2() - RANGE_BYTES_MIN.ilog2();
    Some(class as usize).filter(|class| *class < CLASSES)
}

fn class_bytes(class: usize) -> usize {
    RANGE_BYTES_MIN << class
}

/// A mapping of a memfd.
struct Mapping {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: a mapping is memory that stays in place until it is dropped; `Arena` and `Window` ensure that no
// two threads access the same part in conflict.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    fn new(fd: &OwnedFd, len: usize, protection: i32) -> io::Result<Mapping> {
        let anywhere = std::ptr::null_mut();
        let flags = libc::MAP_SHARED | libc::MAP_NORESERVE;
        // SAFETY: a new mapping at an address the kernel chooses; it aliases nothing of this process.
        let base = unsafe { libc::mmap(anywhere, len, protection, flags, fd.as_raw_fd(), 0) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast()).ok_or_else(|| io::Error::other("mapped at address 0"))?;
        Ok(Mapping { base, len })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped in `new` with this length; all readers and writers held the `Arc` that is now gone.
        unsafe { libc::munmap(self.base.as_ptr().cast::<c_void>(), self.len) };
    }
}

/// Memory that this process writes and other processes of the host read.
pub struct Arena {
    mapping: Mapping,
    fd: OwnedFd,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Nothing has been allocated from here on, bytes.
    end: usize,
    /// Free ranges by class: those that retain their pages at the back.
    free: [VecDeque<Free>; CLASSES],
    warm_bytes: usize,
    /// Ranges that are lent or may still be, by offset.
    lent: HashMap<usize, LentRange>,
    /// Readers that return nothing any more.
    abandoned: HashSet<usize>,
}

struct LentRange {
    class: usize,
    /// One entry per loan.
    readers: Vec<usize>,
    /// A [`Published`] of it exists.
    published: bool,
}

impl LentRange {
    fn is_over(&self) -> bool {
        self.readers.is_empty() && !self.published
    }
}

#[derive(Clone, Copy)]
struct Free {
    offset: usize,
    warm: bool,
}

/// The location of a block in an arena.
pub(crate) struct ArenaRange {
    /// `None` once the range is lent: it then belongs to the reader.
    arena: Option<Arc<Arena>>,
    offset: usize,
    class: usize,
}

impl Drop for ArenaRange {
    fn drop(&mut self) {
        if let Some(arena) = self.arena.take() {
            arena.release(self.offset, self.class);
        }
    }
}

/// A range of an arena on its way to a reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loan {
    /// Offset of the range in the arena, bytes.
    pub offset: u64,
    /// The length of the block, bytes.
    pub len: u64,
}

impl Arena {
    /// Creates an arena with `bytes` of address space, which costs no memory before it is written.
    ///
    /// Errors: the system refuses, as under a limit on address space (`ulimit -v`) or on file sizes (`ulimit
    /// -f`).
    pub fn create(bytes: usize) -> io::Result<Arc<Arena>> {
        let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: writes one struct of ours.
        if unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, &mut limit) } == 0 && limit.rlim_cur < bytes as u64 {
            // Growing past the limit would end the process with a signal.
            return Err(io::Error::from_raw_os_error(libc::EFBIG));
        }
        let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
        // SAFETY: the name is a C string literal.
        let fd = unsafe { libc::memfd_create(c"harrier-blocks".as_ptr(), flags) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel has just made this descriptor for us and nobody else knows it.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        let len = libc::off_t::try_from(bytes).map_err(io::Error::other)?;
        let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
        // SAFETY: integers only, on a descriptor we own.
        let sized = unsafe {
            libc::ftruncate(fd.as_raw_fd(), len) == 0
                && libc::fcntl(fd.as_raw_fd(), libc::F_ADD_SEALS, seals) == 0
        };
        if !sized {
            return Err(io::Error::last_os_error());
        }
        let mapping = Mapping::new(&fd, bytes, libc::PROT_READ | libc::PROT_WRITE)?;
        Ok(Arc::new(Arena { mapping, fd, state: Mutex::default() }))
    }

    /// The descriptor by which other processes open it, see [`Window::open`].
    pub fn descriptor(&self) -> RawFd {
        self.fd.as_raw_fd()
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

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
        self.state().lent.insert(range.offset, lent(range.class));
        Ok(Loan { offset: range.offset as u64, len: len as u64 })
    }

    /// Ends the loan of `from` at `offset`. Returns false if there was none.
    pub fn end_loan(&self, offset: u64, from: usize) -> bool {
        let Ok(offset) = usize::try_from(offset) else { return false };
        self.change(offset, |lent| {
            let found = lent.readers.iter().position(|reader| *reader == from);
            found.map(|at| lent.readers.swap_remove(at)).is_some()
        })
    }

    /// Changes the entry of the range at `offset`, if it is lent, and frees the range when no loan remains.
    /// Returns the result of `change`.
    fn change(&self, offset: usize, change: impl FnOnce(&mut LentRange) -> bool) -> bool {
        let mut state = self.state();
        let Some(lent) = state.lent.get_mut(&offset) else { return false };
        let changed = change(lent);
        if lent.is_over() {
            let class = lent.class;
            state.lent.remove(&offset);
            drop(state);
            self.release(offset, class);
        }
        changed
    }

    /// Stops counting current and future loans of `reader`. It may still read while its process lives: its
    /// ranges stay reserved until [`Arena::reclaim`].
    pub fn abandon(&self, reader: usize) {
        self.state().abandoned.insert(reader);
    }

    /// Reclaims all ranges lent to `from`, whose process has ended.
    pub fn reclaim(&self, from: usize) {
        let mut state = self.state();
        let over = |lent: &mut LentRange| {
            lent.readers.retain(|reader| *reader != from);
            lent.is_over()
        };
        let ranges: Vec<(usize, usize)> =
            state.lent.extract_if(|_, lent| over(lent)).map(|(at, lent)| (at, lent.class)).collect();
        drop(state);
        ranges.into_iter().for_each(|(offset, class)| self.release(offset, class));
    }

    /// Number of lent ranges, excluding those lent to abandoned readers only.
    pub fn loans(&self) -> usize {
        let state = self.state();
        let is_awaited =
            |lent: &&LentRange| lent.readers.iter().any(|reader| !state.abandoned.contains(reader));
        state.lent.values().filter(is_awaited).count()
    }

    /// Readers of lent ranges, excluding abandoned ones; with duplicates.
    pub fn readers(&self) -> Vec<usize> {
        let state = self.state();
        let readers = state.lent.values().flat_map(|lent| lent.readers.iter().copied());
        readers.filter(|reader| !state.abandoned.contains(reader)).collect()
    }

    /// Number of ranges lent to `reader`, abandoned or not.
    pub fn loans_to(&self, reader: usize) -> usize {
        self.state().lent.values().filter(|lent| lent.readers.contains(&reader)).count()
    }

    fn release(&self, offset: usize, class: usize) {
        let size = class_bytes(class);
        let mut state = self.state();
        if state.warm_bytes + size <= WARM_BYTES_MAX {
            state.warm_bytes += size;
            state.free[class].push_back(Free { offset, warm: true });
            return;
        }
        drop(state);
        let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        // SAFETY: integers only; no one owns the range at this moment: it is neither in the free list, nor a
        // block's, nor lent.
        unsafe { libc::fallocate(self.fd.as_raw_fd(), mode, offset as libc::off_t, size as libc::off_t) };
        self.state().free[class].push_front(Free { offset, warm: false });
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
        let lent = state.lent.get_mut(&(self.loan.offset as usize)).expect("it is kept while this lives");
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
    fn a_loan_is_read_in_place_and_given_back() {
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
    fn what_the_dead_were_lent_is_taken_back() {
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
    fn what_an_abandoned_reader_has_is_not_written_before_its_end() {
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
    fn what_is_published_is_free_when_all_are_done() {
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
    fn what_is_too_much_to_keep_goes_back_to_the_system() {
        let arena = arena();
        let blocks: Vec<Block> = (0..40).map(|n| block_of(&arena, n, 4 * MIB)).collect();
        drop(blocks);
        assert_eq!(arena.state().warm_bytes, WARM_BYTES_MAX);
        assert_eq!(arena.allocate(4 * MIB).unwrap().capacity(), 4 * MIB);
    }

    #[test]
    fn a_full_arena_says_so() {
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
