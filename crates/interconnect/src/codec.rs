//! Compression of blocks between hosts, for networks slower than the codec. The opener of a stream requests
//! it; between ranks of one host, where blocks move in memory, it is not used.
//!
//! ```text
//! payload of a compressed block:  │ uncompressed length, u64 │ compressed bytes │
//! ```
//!
//! Source: LZ4 block format, RFC 8878 (Zstandard).

use crate::frame::Header;
use crate::limits::{BLOCK_BYTES_MAX, COMPRESSED_BYTES_MIN, HEADER_BYTES};
use bytes::Bytes;
use harrier_mpi::Block;

/// Zstandard level: the fastest of the standard levels. Higher ones are slower than most networks.
const ZSTD_LEVEL: i32 = 1;

/// A compression codec.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Codec {
    Lz4,
    Zstd,
}

impl Codec {
    /// Parses the name used in settings.
    pub fn from_name(name: &str) -> Option<Codec> {
        [Codec::Lz4, Codec::Zstd].into_iter().find(|codec| codec.name() == name)
    }

    pub fn name(self) -> &'static str {
        match self {
            Codec::Lz4 => "lz4",
            Codec::Zstd => "zstd",
        }
    }

    pub(crate) fn flag(self) -> u8 {
        match self {
            Codec::Lz4 => Header::FLAG_LZ4,
            Codec::Zstd => Header::FLAG_ZSTD,
        }
    }

    /// The codec requested by the flags of an `Open`.
    pub(crate) fn from_flags(flags: u8) -> Option<Codec> {
        [Codec::Lz4, Codec::Zstd].into_iter().find(|codec| flags & codec.flag() != 0)
    }

    /// Compresses `payload`, with room for a header in front; `None` if it saves too little to pay for
    /// decompression.
    pub(crate) fn compress(self, payload: &[u8]) -> Option<Block> {
        if !(COMPRESSED_BYTES_MIN..=BLOCK_BYTES_MAX).contains(&payload.len()) {
            return None;
        }
        let compressed = match self {
            Codec::Lz4 => lz4_flex::block::compress(payload),
            Codec::Zstd => zstd::bulk::compress(payload, ZSTD_LEVEL).ok()?,
        };
        let bytes = size_of::<u64>() + compressed.len();
        if bytes > payload.len() / 8 * 7 {
            return None;
        }
        let mut packed = Block::with_capacity(HEADER_BYTES + bytes);
        packed.push_zeros(HEADER_BYTES);
        packed.extend_from_slice(&(payload.len() as u64).to_le_bytes());
        packed.extend_from_slice(&compressed);
        Some(packed)
    }

    /// Decompresses the payload of a block.
    ///
    /// Errors: it is malformed.
    pub(crate) fn decompress(self, payload: &[u8]) -> Result<Bytes, String> {
        let (bytes, compressed) =
            payload.split_first_chunk().ok_or("a compressed block without its length")?;
        let bytes = usize::try_from(u64::from_le_bytes(*bytes)).unwrap_or(usize::MAX);
        // Bounds the allocation: rows larger than a usual block are never compressed.
        if bytes > BLOCK_BYTES_MAX {
            return Err(format!("a compressed block of {bytes} bytes"));
        }
        let mut block = Block::with_capacity(bytes);
        block.push_zeros(bytes);
        let unpacked = match self {
            Codec::Lz4 => lz4_flex::block::decompress_into(compressed, block.as_mut_slice())
                .map_err(|error| error.to_string())?,
            Codec::Zstd => zstd::bulk::decompress_to_buffer(compressed, block.as_mut_slice())
                .map_err(|error| error.to_string())?,
        };
        match unpacked == bytes {
            true => Ok(Bytes::from_owner(block)),
            false => Err(format!("a compressed block of {unpacked} bytes instead of {bytes}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn even() -> Vec<u8> {
        (0..100_000u32).flat_map(|number| (number / 100).to_le_bytes()).collect()
    }

    #[test]
    fn compressed_blocks_round_trip() {
        for codec in [Codec::Lz4, Codec::Zstd] {
            let packed = codec.compress(&even()).expect("it is worth it");
            assert!(packed.len() < even().len() / 4, "{codec:?}: {} bytes", packed.len());
            let unpacked = codec.decompress(&packed.as_slice()[HEADER_BYTES..]).unwrap();
            assert_eq!(unpacked, even(), "{codec:?}");
            assert_eq!(Codec::from_name(codec.name()), Some(codec));
            assert_eq!(Codec::from_flags(codec.flag()), Some(codec));
        }
        assert_eq!(Codec::from_name("snappy"), None);
        assert_eq!(Codec::from_flags(Header::FLAG_CALL), None);
    }

    #[test]
    fn incompressible_blocks_stay_uncompressed() {
        let random: Vec<u8> = {
            let mut state = 1u64;
            let mut next = || {
                state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                (state >> 33) as u8
            };
            (0..100_000).map(|_| next()).collect()
        };
        for codec in [Codec::Lz4, Codec::Zstd] {
            assert!(codec.compress(&random).is_none(), "{codec:?}");
            assert!(codec.compress(&[0; COMPRESSED_BYTES_MIN - 1]).is_none(), "{codec:?}");
            assert!(codec.compress(&vec![0; BLOCK_BYTES_MAX + 1]).is_none(), "{codec:?}");
        }
    }

    #[test]
    fn malformed_compressed_blocks_are_refused() {
        for codec in [Codec::Lz4, Codec::Zstd] {
            let packed = codec.compress(&even()).expect("it is worth it");
            let good = &packed.as_slice()[HEADER_BYTES..];
            for length in [0, 7, 8, 9, good.len() / 2, good.len() - 1] {
                assert!(codec.decompress(&good[..length]).is_err(), "{codec:?}: {length} bytes of it");
            }
            let bytes = even().len() as u64;
            for length in [0, 1, bytes - 1, bytes + 1, BLOCK_BYTES_MAX as u64 + 1, u64::MAX] {
                let mut wrong = good.to_vec();
                wrong[..8].copy_from_slice(&length.to_le_bytes());
                assert!(codec.decompress(&wrong).is_err(), "{codec:?}: of {length} bytes");
            }
            // Corrupt input gives an error or other bytes, never more of them.
            for at in (8..good.len()).step_by(97) {
                let mut damaged = good.to_vec();
                damaged[at] ^= 0x55;
                assert!(codec.decompress(&damaged).map_or(0, |bytes| bytes.len()) <= even().len());
            }
        }
    }
}
