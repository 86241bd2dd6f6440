//! Layout of pairs in a block, and the block header.
//!
//! ```text
//!   block   │ frame header, 64 │ block header, 32 │ pair │ pair │ …
//!   pair    │ key bytes: varint │ value bytes: varint │ key │ value │
//! ```
//! Runs on disk and checkpoints have the same layout, so received bytes are written unchanged.

use crate::wire::Damaged;

/// Bytes between the frame header and the pairs.
pub const BLOCK_HEADER_BYTES: usize = 32;

/// Kind of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockKind {
    Pairs,
    /// End mark: the O task sends nothing more to this A task, in any window.
    TaskEnd,
    /// Streaming: the O task sends nothing more of windows before `window`.
    Watermark,
}

/// Source and destination of a block's pairs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockHeader {
    pub kind: BlockKind,
    pub o_task: u32,
    pub a_task: u32,
    /// Number of pairs that follow.
    pub pairs: u32,
    /// Streaming: their window.
    pub window: u64,
    /// Distinguishes runs of the same job that resume from one checkpoint.
    pub generation: u32,
}

impl BlockHeader {
    pub fn encode(&self) -> [u8; BLOCK_HEADER_BYTES] {
        let mut bytes = [0; BLOCK_HEADER_BYTES];
        bytes[0] = match self.kind {
            BlockKind::Pairs => 1,
            BlockKind::TaskEnd => 2,
            BlockKind::Watermark => 3,
        };
        bytes[4..8].copy_from_slice(&self.o_task.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.a_task.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.pairs.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.window.to_le_bytes());
        bytes[24..28].copy_from_slice(&self.generation.to_le_bytes());
        bytes
    }

    /// Errors: invalid header.
    pub fn decode(bytes: &[u8]) -> Result<BlockHeader, Damaged> {
        let bytes =
            bytes.get(..BLOCK_HEADER_BYTES).ok_or(Damaged("a block that is shorter than its header"))?;
        let kind = match bytes[0] {
            1 => BlockKind::Pairs,
            2 => BlockKind::TaskEnd,
            3 => BlockKind::Watermark,
            _ => return Err(Damaged("a block of no kind")),
        };
        let number = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
        Ok(BlockHeader {
            kind,
            o_task: number(4),
            a_task: number(8),
            pairs: number(12),
            window: u64::from_le_bytes(bytes[16..24].try_into().expect("eight bytes")),
            generation: number(24),
        })
    }
}

/// Encoded size of a length.
#[inline]
pub fn varint_bytes(value: usize) -> usize {
    if value < 0x80 { 1 } else { (usize::BITS - value.leading_zeros()).div_ceil(7) as usize }
}

/// Encoded size of a pair.
#[inline]
pub fn pair_bytes(key: usize, value: usize) -> usize {
    varint_bytes(key) + varint_bytes(value) + key + value
}

/// Encodes the two lengths before a pair; returns the buffer and its used size.
#[inline]
pub fn lengths(key: usize, value: usize) -> ([u8; 20], usize) {
    let mut bytes = [0; 20];
    if key < 0x80 && value < 0x80 {
        bytes[0] = key as u8;
        bytes[1] = value as u8;
        return (bytes, 2);
    }
    let mut at = 0;
    for mut length in [key, value] {
        while length >= 0x80 {
            bytes[at] = length as u8 | 0x80;
            length >>= 7;
            at += 1;
        }
        bytes[at] = length as u8;
        at += 1;
    }
    (bytes, at)
}

#[inline]
fn read_varint(bytes: &[u8], at: &mut usize) -> Option<usize> {
    let first = *bytes.get(*at)?;
    *at += 1;
    if first < 0x80 {
        return Some(first as usize);
    }
    let mut value = (first & 0x7f) as usize;
    let mut shift = 7;
    loop {
        let byte = *bytes.get(*at)?;
        *at += 1;
        if shift > 56 {
            return None;
        }
        value |= ((byte & 0x7f) as usize) << shift;
        if byte < 0x80 {
            return Some(value);
        }
        shift += 7;
    }
}

/// Position of a pair in its buffer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place {
    pub key: usize,
    pub value: usize,
    pub end: usize,
}

/// Locates the pair that begins at `at`; `None` if it does not end within `bytes`.
#[inline]
pub fn place(bytes: &[u8], at: usize) -> Option<Place> {
    let mut position = at;
    let key_bytes = read_varint(bytes, &mut position)?;
    let value_bytes = read_varint(bytes, &mut position)?;
    let value = position.checked_add(key_bytes)?;
    let end = value.checked_add(value_bytes)?;
    (end <= bytes.len()).then_some(Place { key: position, value, end })
}

/// Iterator over the pairs of a block, in order.
pub struct Pairs<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Pairs<'a> {
    pub fn new(bytes: &'a [u8]) -> Pairs<'a> {
        Pairs { bytes, at: 0 }
    }
}

impl<'a> Iterator for Pairs<'a> {
    type Item = Result<(&'a [u8], &'a [u8]), Damaged>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.at == self.bytes.len() {
            return None;
        }
        match place(self.bytes, self.at) {
            Some(Place { key, value, end }) => {
                self.at = end;
                Some(Ok((&self.bytes[key..value], &self.bytes[value..end])))
            }
            None => {
                self.at = self.bytes.len();
                Some(Err(Damaged("a pair that reaches past its block")))
            }
        }
    }
}

/// Appends a pair to `out`.
#[inline]
pub fn push_pair(out: &mut Vec<u8>, key: &[u8], value: &[u8]) {
    let (lengths, length_bytes) = lengths(key.len(), value.len());
    out.extend_from_slice(&lengths[..length_bytes]);
    out.extend_from_slice(key);
    out.extend_from_slice(value);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_of_all_sizes_round_trip() {
        let sizes = [0, 1, 127, 128, 300, 16_383, 16_384, 70_000];
        let mut block = Vec::new();
        for key in sizes {
            for value in sizes {
                let before = block.len();
                push_pair(&mut block, &vec![1; key], &vec![2; value]);
                assert_eq!(block.len() - before, pair_bytes(key, value));
            }
        }
        let pairs: Vec<_> = Pairs::new(&block).map(Result::unwrap).collect();
        let expected = sizes.iter().flat_map(|key| sizes.map(|value| (*key, value)));
        assert!(pairs.iter().map(|(key, value)| (key.len(), value.len())).eq(expected));
        assert!(Pairs::new(&block[..block.len() - 1]).any(|pair| pair.is_err()));
        assert!(Pairs::new(&[0xff; 30]).all(|pair| pair.is_err()));
    }

    #[test]
    fn headers_round_trip() {
        for kind in [BlockKind::Pairs, BlockKind::TaskEnd, BlockKind::Watermark] {
            let header =
                BlockHeader { kind, o_task: 3, a_task: u32::MAX, pairs: 9, window: 1 << 40, generation: 2 };
            assert_eq!(BlockHeader::decode(&header.encode()).unwrap(), header);
        }
        assert!(BlockHeader::decode(&[0; 32]).is_err());
        assert!(BlockHeader::decode(&[1; 31]).is_err());
    }
}
