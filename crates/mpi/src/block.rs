//! A block of bytes aligned for Arrow and for vector instructions: the unit passed to and from MPI.
#![allow(unsafe_code)]

use crate::arena::ArenaRange;
use std::alloc::{Layout, alloc, dealloc, handle_alloc_error, realloc};
use std::fmt;
use std::ptr::NonNull;

/// Alignment of blocks: a cache line, as Arrow recommends for its buffers.
const ALIGNMENT: usize = 64;

/// The maximum length of a block: an MPI count is an `int`.
const BYTES_MAX: usize = i32::MAX as usize;

/// The maximum capacity: the last multiple of [`ALIGNMENT`] that holds [`BYTES_MAX`].
const CAPACITY_MAX: usize = BYTES_MAX.next_multiple_of(ALIGNMENT);

/// Bytes that begin at a multiple of 64, at most `i32::MAX` of them.
///
/// Appending grows it as a `Vec` would; exceeding `i32::MAX` bytes in length or capacity panics. Memory for a
/// message to be received is not zeroed first.
pub struct Block {
    /// Aligned to [`ALIGNMENT`]; dangling while `capacity` is 0. The first `len` bytes are initialised.
    data: NonNull<u8>,
    len: usize,
    /// A multiple of [`ALIGNMENT`].
    capacity: usize,
    /// Location in an arena; `None` for this process's heap.
    range: Option<ArenaRange>,
}

// SAFETY: a block owns its memory alone, as `Vec<u8>` does, and hands it out by the usual borrowing rules.
unsafe impl Send for Block {}
// SAFETY: as above; nothing is changed through a shared reference.
unsafe impl Sync for Block {}

impl Block {
    /// An empty block with room for `bytes`, rounded up to a multiple of 64.
    pub fn with_capacity(bytes: usize) -> Block {
        let mut block = Block { data: Self::dangling(), len: 0, capacity: 0, range: None };
        if bytes > 0 {
            block.set_capacity(bytes);
        }
        block
    }

    /// A block for a message of `len` bytes that MPI is about to write. Its content is indeterminate until
    /// then.
    ///
    /// # Safety
    /// Nothing reads the block before all its bytes are written.
    pub(crate) unsafe fn for_receive(len: usize) -> Block {
        let mut block = Block::with_capacity(len);
        block.len = len;
        block
    }

    /// An empty block at `data`, with room for `capacity` bytes, in the arena that `range` refers to.
    ///
    /// # Safety
    /// `data` is aligned to 64 bytes, and nothing else uses the memory while `range` lives.
    pub(crate) unsafe fn at(data: NonNull<u8>, capacity: usize, range: ArenaRange) -> Block {
        Block { data, len: 0, capacity: capacity / ALIGNMENT * ALIGNMENT, range: Some(range) }
    }

    pub(crate) fn range(&self) -> Option<&ArenaRange> {
        self.range.as_ref()
    }

    /// Detaches the memory of a block in an arena: its location, and the bytes written.
    pub(crate) fn detach_range(mut self) -> Option<(ArenaRange, usize)> {
        let range = self.range.take()?;
        let len = std::mem::take(&mut self.len);
        // The memory belongs to the arena, not to this block.
        self.capacity = 0;
        Some((range, len))
    }

    /// The number of bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The number of bytes that fit without growing.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// The bytes.
    pub fn as_slice(&self) -> &[u8] {
        // SAFETY: the first `len` bytes are initialised and owned by this block, which is borrowed as long as
        // the slice.
        unsafe { std::slice::from_raw_parts(self.data.as_ptr(), self.len) }
    }

    /// The bytes, mutable in place.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: as in `as_slice`; the exclusive borrow of the block makes the slice the only access to the
        // bytes.
        unsafe { std::slice::from_raw_parts_mut(self.data.as_ptr(), self.len) }
    }

    /// Appends `bytes`.
    pub fn extend_from_slice(&mut self, bytes: &[u8]) {
        self.reserve(bytes.len());
        // SAFETY: `reserve` made room for `bytes.len()` bytes after the first `len`, in memory that this
        // block owns alone, so that `bytes` cannot overlap it.
        unsafe { self.data.as_ptr().add(self.len).copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        self.len += bytes.len();
    }

    /// Appends zero bytes until the length is a multiple of `alignment`, which must not be 0.
    pub fn pad_to(&mut self, alignment: usize) {
        self.push_zeros(self.len.next_multiple_of(alignment) - self.len);
    }

    /// Appends `n` zero bytes.
    pub fn push_zeros(&mut self, n: usize) {
        self.reserve(n);
        // SAFETY: `reserve` made room for `n` bytes after the first `len`, in memory that this block owns
        // alone.
        unsafe { self.data.as_ptr().add(self.len).write_bytes(0, n) };
        self.len += n;
    }

    /// Clears the block and keeps its memory.
    pub fn clear(&mut self) {
        self.len = 0;
    }

    /// The address for MPI to write to; stable while the block is moved.
    pub(crate) fn as_mut_ptr(&mut self) -> *mut u8 {
        self.data.as_ptr()
    }

    /// Makes room for `additional` bytes, at least doubling the capacity when it grows.
    fn reserve(&mut self, additional: usize) {
        let needed = self.len.checked_add(additional).filter(|&bytes| bytes <= BYTES_MAX);
        let needed = needed.unwrap_or_else(|| panic!("a block holds at most {BYTES_MAX} bytes"));
        if needed > self.capacity {
            self.set_capacity(needed.max((self.capacity * 2).min(BYTES_MAX)));
        }
    }

    /// Grows the capacity to `bytes`, rounded up.
    fn set_capacity(&mut self, bytes: usize) {
        assert!(bytes <= BYTES_MAX, "a block holds at most {BYTES_MAX} bytes");
        let capacity = bytes.next_multiple_of(ALIGNMENT);
        debug_assert!(capacity > self.capacity && capacity <= CAPACITY_MAX);
        let new = Self::layout(capacity);
        if let Some(range) = self.range.take() {
            // SAFETY: the layout's size is not 0.
            let data = NonNull::new(unsafe { alloc(new) }).unwrap_or_else(|| handle_alloc_error(new));
            // SAFETY: both are at least `len` bytes, of which those of the arena are initialised, and do not
            // overlap.
            unsafe { data.copy_from_nonoverlapping(self.data, self.len) };
            (self.data, self.capacity) = (data, capacity);
            return drop(range);
        }
        let data = if self.capacity == 0 {
            // SAFETY: the layout's size is not 0.
            unsafe { alloc(new) }
        } else {
            // SAFETY: `data` was allocated with the layout of the present capacity, the alignment is the
            // same, and the new size is neither 0 nor near `isize::MAX`.
            unsafe { realloc(self.data.as_ptr(), Self::layout(self.capacity), new.size()) }
        };
        self.data = NonNull::new(data).unwrap_or_else(|| handle_alloc_error(new));
        self.capacity = capacity;
    }

    fn layout(capacity: usize) -> Layout {
        Layout::from_size_align(capacity, ALIGNMENT).expect("the capacity of a block is bounded")
    }

    /// A non-null, aligned pointer for a block without memory.
    fn dangling() -> NonNull<u8> {
        NonNull::without_provenance(const { std::num::NonZero::new(ALIGNMENT).unwrap() })
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        if self.capacity > 0 && self.range.is_none() {
            // SAFETY: `data` was allocated with this layout, and nothing refers to it any more: a block
            // passed to MPI is owned by its request until MPI has completed it.
            unsafe { dealloc(self.data.as_ptr(), Self::layout(self.capacity)) };
        }
    }
}

impl AsRef<[u8]> for Block {
    fn as_ref(&self) -> &[u8] {
        self.as_slice()
    }
}

impl fmt::Debug for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Block")
            .field("len", &self.len)
            .field("capacity", &self.capacity)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn assert_aligned(block: &Block) {
        assert_eq!(block.as_slice().as_ptr() as usize % ALIGNMENT, 0);
        assert_eq!(block.capacity() % ALIGNMENT, 0);
    }

    #[test]
    fn capacity_is_rounded_up_and_aligned() {
        for (bytes, capacity) in [(0, 0), (1, 64), (64, 64), (65, 128), (256 * 1024, 256 * 1024)] {
            let block = Block::with_capacity(bytes);
            assert_eq!(block.capacity(), capacity);
            assert!(block.is_empty());
            assert_aligned(&block);
        }
    }

    #[test]
    fn an_empty_block_has_an_empty_slice() {
        let mut block = Block::with_capacity(0);
        assert_eq!(block.as_slice(), b"");
        assert_eq!(block.as_mut_slice(), b"");
        block.extend_from_slice(b"");
        block.push_zeros(0);
        block.pad_to(8);
        assert_eq!(block.capacity(), 0);
    }

    #[test]
    fn growing_keeps_the_bytes_and_is_amortised() {
        let mut block = Block::with_capacity(0);
        let mut expected = Vec::new();
        let mut growths = 0;
        for i in 0..100_000u32 {
            let before = block.capacity();
            block.extend_from_slice(&i.to_le_bytes());
            expected.extend_from_slice(&i.to_le_bytes());
            growths += usize::from(block.capacity() != before);
            assert_aligned(&block);
        }
        assert_eq!(block.as_slice(), expected);
        assert!(growths < 20, "{growths} reallocations");
    }

    #[test]
    fn padding_is_zero_and_exact() {
        let mut block = Block::with_capacity(64);
        block.extend_from_slice(&[0xff; 64]);
        block.clear();
        assert_eq!((block.len(), block.capacity()), (0, 64));
        block.extend_from_slice(b"abc");
        block.pad_to(8);
        assert_eq!(block.as_slice(), b"abc\0\0\0\0\0");
        block.pad_to(8);
        assert_eq!(block.len(), 8);
        block.push_zeros(3);
        assert_eq!(block.as_slice(), b"abc\0\0\0\0\0\0\0\0");
        block.as_mut_slice()[0] = b'x';
        assert_eq!(block.as_ref()[0], b'x');
    }

    #[test]
    fn blocks_are_send() {
        let mut block = Block::with_capacity(10);
        block.extend_from_slice(b"elsewhere");
        let len = std::thread::spawn(move || block.len()).join().unwrap();
        assert_eq!(len, 9);
    }

    #[test]
    #[should_panic(expected = "a block holds at most")]
    fn more_than_mpi_can_count_is_a_bug() {
        Block::with_capacity(BYTES_MAX + 1);
    }
}
