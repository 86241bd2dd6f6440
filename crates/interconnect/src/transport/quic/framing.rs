//! Framing of a byte stream: each frame is preceded by its length, four bytes little-endian.

use crate::limits::{BLOCK_BYTES_HARD_MAX, BLOCK_BYTES_MAX, HEADER_BYTES};
use bytes::Bytes;
use harrier_mpi::Block;
use std::fmt;
use std::sync::Arc;

/// Length of a frame's prefix, bytes.
pub(super) const PREFIX_BYTES: usize = 4;

/// Maximum length of a frame, bytes.
const FRAME_BYTES_MAX: usize = HEADER_BYTES + BLOCK_BYTES_HARD_MAX;

/// Frames up to this length are copied behind their prefix: two chunks cost more than so small a copy.
const COPIED_BYTES_MAX: usize = 512;

/// Maximum allocation on the prefix alone; the rest is allocated as bytes arrive. Room for a usual block.
const ALLOCATED_BYTES_MAX: usize = 2 * BLOCK_BYTES_MAX;

/// The chunks to write for `frame`, without a copy if it is large. The second may be empty.
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

/// A prefix announces a frame beyond the maximum length.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TooLong(usize);

impl fmt::Display for TooLong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a frame of {} bytes is announced, and none is longer than {FRAME_BYTES_MAX}", self.0)
    }
}

/// Assembles frames, each in its own block, from chunks of any length.
#[derive(Default)]
pub(super) struct Assembler {
    prefix: [u8; PREFIX_BYTES],
    prefix_bytes: usize,
    /// The frame in progress, and its announced length.
    frame: Option<(Block, usize)>,
}

impl Assembler {
    /// Consumes bytes from the front of `piece` until a frame is complete, and returns it; `None`: all are
    /// consumed.
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
    fn frames_round_trip() {
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
