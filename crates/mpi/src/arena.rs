//! An arena of shared memory: which of its ranges are free, and which are lent to whom. The contract is that
//! of `shared.rs`, which makes blocks of ranges.
#![allow(unsafe_code)]

use std::collections::{HashMap, HashSet, VecDeque};
use std::ffi::c_void;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError};

/// Bytes of pages that free ranges may retain for reuse.
pub(crate) const WARM_BYTES_MAX: usize = 64 * 1024 * 1024;

/// The smallest range allocated, bytes. Ranges are powers of two, so that they can be reused for other sizes.
const RANGE_BYTES_MIN: usize = 16 * 1024;

/// Size classes of ranges: 16 KiB to 2 GiB.
const CLASSES: usize = 18;

pub(crate) fn class_of(bytes: usize) -> Option<usize> {
    let class = bytes.max(RANGE_BYTES_MIN).next_power_of_two().ilog2() - RANGE_BYTES_MIN.ilog2();
    Some(class as usize).filter(|class| *class < CLASSES)
}

pub(crate) fn class_bytes(class: usize) -> usize {
    RANGE_BYTES_MIN << class
}

/// A mapping of a memfd.
pub(crate) struct Mapping {
    pub(crate) base: NonNull<u8>,
    pub(crate) len: usize,
}

// SAFETY: a mapping is memory that stays in place until it is dropped; `Arena` and `Window` ensure that no
// two threads access the same part in conflict.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    pub(crate) fn new(fd: &OwnedFd, len: usize, protection: i32) -> io::Result<Mapping> {
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
    pub(crate) mapping: Mapping,
    fd: OwnedFd,
    state: Mutex<State>,
}

#[derive(Default)]
pub(crate) struct State {
    /// Nothing has been allocated from here on, bytes.
    pub(crate) end: usize,
    /// Free ranges by class: those that retain their pages at the back.
    pub(crate) free: [VecDeque<Free>; CLASSES],
    pub(crate) warm_bytes: usize,
    /// Ranges that are lent or may still be, by offset.
    pub(crate) loans: HashMap<usize, LentRange>,
    /// Readers that return nothing any more.
    abandoned: HashSet<usize>,
}

pub(crate) struct LentRange {
    pub(crate) class: usize,
    /// One entry per loan.
    pub(crate) readers: Vec<usize>,
    /// A [`Published`] of it exists.
    pub(crate) published: bool,
}

impl LentRange {
    fn is_over(&self) -> bool {
        self.readers.is_empty() && !self.published
    }
}

#[derive(Clone, Copy)]
pub(crate) struct Free {
    pub(crate) offset: usize,
    pub(crate) warm: bool,
}

/// The location of a block in an arena.
pub(crate) struct ArenaRange {
    /// `None` once the range is lent: it then belongs to the reader.
    pub(crate) arena: Option<Arc<Arena>>,
    pub(crate) offset: usize,
    pub(crate) class: usize,
}

impl Drop for ArenaRange {
    fn drop(&mut self) {
        if let Some(arena) = self.arena.take() {
            arena.release(self.offset, self.class);
        }
    }
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

    pub(crate) fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
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
    pub(crate) fn change(&self, offset: usize, change: impl FnOnce(&mut LentRange) -> bool) -> bool {
        let mut state = self.state();
        let Some(lent) = state.loans.get_mut(&offset) else { return false };
        let changed = change(lent);
        if lent.is_over() {
            let class = lent.class;
            state.loans.remove(&offset);
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
            state.loans.extract_if(|_, lent| over(lent)).map(|(at, lent)| (at, lent.class)).collect();
        drop(state);
        ranges.into_iter().for_each(|(offset, class)| self.release(offset, class));
    }

    /// Number of lent ranges, excluding those lent to abandoned readers only.
    pub fn loans(&self) -> usize {
        let state = self.state();
        let is_awaited =
            |lent: &&LentRange| lent.readers.iter().any(|reader| !state.abandoned.contains(reader));
        state.loans.values().filter(is_awaited).count()
    }

    /// Readers of lent ranges, excluding abandoned ones; with duplicates.
    pub fn readers(&self) -> Vec<usize> {
        let state = self.state();
        let readers = state.loans.values().flat_map(|lent| lent.readers.iter().copied());
        readers.filter(|reader| !state.abandoned.contains(reader)).collect()
    }

    /// Number of ranges lent to `reader`, abandoned or not.
    pub fn loans_to(&self, reader: usize) -> usize {
        self.state().loans.values().filter(|lent| lent.readers.contains(&reader)).count()
    }

    pub(crate) fn release(&self, offset: usize, class: usize) {
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
