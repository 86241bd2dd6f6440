//! Frames in a stream of bytes: each behind its length, four bytes little-endian.

use crate::limits::{BLOCK_BYTES_HARD_MAX, BLOCK_BYTES_MAX, HEADER_BYTES};
use bytes::Bytes;
use harrier_mpi::Block;
use std::fmt;
use std::sync::Arc;

/// Bytes before a frame.
pub(super) const PREFIX_BYTES: usize = 4;

/// Bytes of the longest frame.
const FRAME_BYTES_MAX: usize = HEADER_BYTES + BLOCK_BYTES_HARD_MAX;

/// Bytes of a frame up to which it is copied behind its prefix: two pieces cost more than so small a copy.
const COPIED_BYTES_MAX: usize = 512;

/// Bytes that a prefix alone makes the receiver allocate at most; the rest as they come. Room for a usual
/// block.
const ALLOCATED_BYTES_MAX: usize = 2 * BLOCK_BYTES_MAX;

/// What to write for `frame`, without a copy if it is large. The second piece may be empty.
pub(super) fn pieces(frame: &Arc<Block>) -> [Bytes; 2] {
    struct Owned(Arc<Block>);
    impl AsRef<[u8]> for Owned {
        fn as_ref(&self) -> &[u8] {
            self.0.as_slice()
        }
    }
    let prefix = u32::try_from(frame.len()).expect("a block is shorter than 2 GiB").to_le_bytes();
    match frame.len() <= COPIED_BYTES_MAX {
        true => [Bytes::from([&prefix, frame.as_slice()].concat()), Bytes::new()],
        false => [Bytes::copy_from_slice(&prefix), Bytes::from_owner(Owned(Arc::clone(frame)))],
    }
}

/// A frame is announced that is longer than any can be.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TooLong(usize);

impl fmt::Display for TooLong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a frame of {} bytes is announced, and none is longer than {FRAME_BYTES_MAX}", self.0)
    }
}

/// Puts frames together, each in a block of its own, from pieces of any length.
#[derive(Default)]
pub(super) struct Assembler {
    prefix: [u8; PREFIX_BYTES],
    prefix_bytes: usize,
    /// The frame that the prefix announces, and its length.
    frame: Option<(Block, usize)>,
}

impl Assembler {
    /// Takes bytes off the front of `piece` until a frame is whole, and returns that; `None`: all are taken.
    pub(super) fn take(&mut self, piece: &mut &[u8]) -> Result<Option<Block>, TooLong> {
        if self.frame.is_none() {
            let missing = (PREFIX_BYTES - self.prefix_bytes).min(piece.len());
            let (prefix, rest) = piece.split_at(missing);
            self.prefix[self.prefix_bytes..][..missing].copy_from_slice(prefix);
            self.prefix_bytes += missing;
            *piece = rest;
            if self.prefix_bytes < PREFIX_BYTES {
                return Ok(None);
            }
            let len = u32::from_le_bytes(self.prefix) as usize;
            if len > FRAME_BYTES_MAX {
                return Err(TooLong(len));
            }
            self.frame = Some((Block::with_capacity(len.min(ALLOCATED_BYTES_MAX)), len));
        }
        let Some((block, len)) = &mut self.frame else { return Ok(None) };
        let (part, rest) = piece.split_at((*len - block.len()).min(piece.len()));
        block.extend_from_slice(part);
        *piece = rest;
        if block.len() < *len {
            return Ok(None);
        }
        self.prefix_bytes = 0;
        Ok(self.frame.take().map(|(block, _)| block))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};

    fn block(bytes: usize, random: &mut StdRng) -> Arc<Block> {
        let mut block = Block::with_capacity(bytes);
        block.extend_from_slice(&(0..bytes).map(|_| random.random()).collect::<Vec<u8>>());
        Arc::new(block)
    }

    #[test]
    fn frames_come_out_as_they_went_in() {
        for seed in 0..50 {
            let mut random = StdRng::seed_from_u64(seed);
            let frames: Vec<_> = [0, 1, 64, COPIED_BYTES_MAX, COPIED_BYTES_MAX + 1, 100_000]
                .into_iter()
                .map(|bytes| block(bytes, &mut random))
                .collect();
            let written: Vec<u8> = frames.iter().flat_map(pieces).flatten().collect();
            let mut assembler = Assembler::default();
            let mut read = Vec::new();
            let mut rest = &written[..];
            while !rest.is_empty() {
                let (mut piece, after) = rest.split_at(random.random_range(1..2000).min(rest.len()));
                while let Some(frame) = assembler.take(&mut piece).unwrap() {
                    assert_eq!(frame.as_slice().as_ptr() as usize % 64, 0);
                    read.push(frame);
                }
                rest = after;
            }
            let bytes = |frames: &[_]| -> Vec<Vec<u8>> {
                frames.iter().map(|frame: &Block| frame.as_slice().to_vec()).collect()
            };
            let frames: Vec<_> = frames.into_iter().map(|frame| Arc::try_unwrap(frame).unwrap()).collect();
            assert_eq!(bytes(&read), bytes(&frames), "seed {seed}");
        }
    }

    #[test]
    fn a_length_alone_takes_little_memory() {
        let mut assembler = Assembler::default();
        let longest = (FRAME_BYTES_MAX as u32).to_le_bytes();
        assert!(assembler.take(&mut &longest[..]).unwrap().is_none());
        assert!(assembler.frame.unwrap().0.capacity() <= ALLOCATED_BYTES_MAX);
        let too_long = (FRAME_BYTES_MAX as u32 + 1).to_le_bytes();
        assert_eq!(Assembler::default().take(&mut &too_long[..]).err(), Some(TooLong(FRAME_BYTES_MAX + 1)));
    }
}
