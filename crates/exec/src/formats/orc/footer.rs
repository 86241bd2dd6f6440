//! Footer patching to read integers of ORC files as 64 bits.
//!
//! The base and deltas of an integer run may have more bits than its values and wrap around. The library
//! computes a run in the width of its column (orc-rust 0.9), and rejects such a run of SMALLINT or INT as
//! damaged. Runs of all widths have the same encoding, so the library gets a footer that declares the columns
//! as BIGINT.

use std::io::Read;

use bytes::{BufMut, Bytes, BytesMut};
use orc_rust::compression::{Compression, Decompressor};

/// Field numbers of the specification.
const FOOTER_LENGTH: u64 = 1;
const METADATA_LENGTH: u64 = 5;
const TYPES: u64 = 4;
const KIND: u64 = 1;
const SHORT: u8 = 2;
const INT: u8 = 3;
const LONG: u8 = 4;
const UNION: u8 = 13;

/// Bytes of a block, whose length has 23 bits.
const BLOCK_MAX: usize = 1 << 22;

/// The length of a file's metadata, from its last bytes. `None`: not an ORC file.
pub(super) fn length(tail: &[u8]) -> Option<u64> {
    let postscript = postscript(tail)?;
    let lengths = number(postscript, FOOTER_LENGTH)?.checked_add(number(postscript, METADATA_LENGTH)?)?;
    lengths.checked_add(postscript.len() as u64 + 1)
}

/// Replaces SMALLINT and INT by BIGINT in the footer within the last bytes of a file. `None`: there is no
/// such column, or a union, whose variants cannot be cast.
pub(super) fn widen_integers(tail: &Bytes, compression: Option<Compression>) -> Option<Bytes> {
    let postscript = postscript(tail)?;
    let end = tail.len() - 1 - postscript.len();
    let start = end.checked_sub(usize::try_from(number(postscript, FOOTER_LENGTH)?).ok()?)?;
    let mut footer = Vec::new();
    Decompressor::new(tail.slice(start..end), compression, vec![]).read_to_end(&mut footer).ok()?;
    let mut kinds = Vec::new();
    for field in fields(&footer) {
        let field = field?;
        if field.number == TYPES {
            let within = fields(&footer[field.start..field.end]).find_map(|inner| match inner {
                // A valid kind has at least one byte; with another wire type it may have none.
                Some(inner) if inner.number == KIND && inner.start < inner.end => {
                    Some(field.start + inner.start)
                }
                _ => None,
            });
            // The first kind is omitted if it is 0.
            kinds.extend(within);
        }
    }
    if kinds.iter().any(|at| footer[*at] == UNION) || !kinds.iter().any(|at| is_narrow(footer[*at])) {
        return None;
    }
    for at in kinds {
        if is_narrow(footer[at]) {
            footer[at] = LONG;
        }
    }
    let mut changed = BytesMut::from(&tail[..start]);
    match compression {
        None => changed.put_slice(&footer),
        // Blocks stored uncompressed.
        Some(_) => {
            for block in footer.chunks(BLOCK_MAX) {
                changed.put_uint_le((block.len() as u64) << 1 | 1, 3);
                changed.put_slice(block);
            }
        }
    }
    let footer_length = changed.len() - start;
    let before = changed.len();
    for field in fields(postscript) {
        let field = field?;
        match field.number {
            FOOTER_LENGTH => {
                changed.put_slice(&postscript[field.tag..field.start]);
                put_varint(&mut changed, footer_length as u64);
            }
            _ => changed.put_slice(&postscript[field.tag..field.end]),
        }
    }
    let length = u8::try_from(changed.len() - before).ok()?;
    changed.put_u8(length);
    Some(changed.freeze())
}

fn is_narrow(kind: u8) -> bool {
    matches!(kind, SHORT | INT)
}

/// The postscript of a file, without its length.
fn postscript(tail: &[u8]) -> Option<&[u8]> {
    let (length, before) = tail.split_last()?;
    before.get(before.len().checked_sub((*length).into())?..)
}

/// An integer field of a message.
fn number(message: &[u8], number: u64) -> Option<u64> {
    let field = fields(message).find_map(|field| field.filter(|field| field.number == number))?;
    varint(&message[field.start..field.end]).map(|(value, _)| value)
}

/// A protobuf field: the offset of its tag, and its value.
struct Field {
    number: u64,
    tag: usize,
    start: usize,
    end: usize,
}

/// The fields of a message; the last is `None` if it is damaged.
fn fields(message: &[u8]) -> impl Iterator<Item = Option<Field>> + '_ {
    let mut next = Some(0);
    std::iter::from_fn(move || {
        let at = next.take().filter(|at| *at < message.len())?;
        let field = field(message, at);
        next = field.as_ref().map(|field| field.end);
        Some(field)
    })
}

fn field(message: &[u8], tag: usize) -> Option<Field> {
    let (key, length) = varint(&message[tag..])?;
    let at = tag + length;
    let (start, bytes) = match key & 7 {
        0 => (at, varint(&message[at..])?.1),
        1 => (at, 8),
        2 => {
            let (bytes, length) = varint(&message[at..])?;
            (at + length, usize::try_from(bytes).ok()?)
        }
        5 => (at, 4),
        _ => return None,
    };
    let end = start.checked_add(bytes).filter(|end| *end <= message.len())?;
    Some(Field { number: key >> 3, tag, start, end })
}

/// Decodes a varint and its length.
fn varint(bytes: &[u8]) -> Option<(u64, usize)> {
    let mut value = 0;
    for (at, byte) in bytes.iter().enumerate().take(10) {
        value |= u64::from(byte & 0x7f).checked_shl(7 * at as u32)?;
        if byte & 0x80 == 0 {
            return Some((value, at + 1));
        }
    }
    None
}

fn put_varint(bytes: &mut BytesMut, mut value: u64) {
    while value >= 0x80 {
        bytes.put_u8(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.put_u8(value as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The tail of a file with two columns of these kinds.
    fn tail(kinds: [u8; 2]) -> Bytes {
        let footer = [0x22, 2, 0x08, 12, 0x22, 2, 0x08, kinds[0], 0x22, 2, 0x08, kinds[1], 0x30, 5];
        let postscript = [0x08, footer.len() as u8, 0x10, 0, 0x28, 3];
        let parts: [&[u8]; 4] = [b"abc", &footer, &postscript, &[postscript.len() as u8]];
        Bytes::from(parts.concat())
    }

    #[test]
    fn narrow_integers_are_wide() {
        assert_eq!(length(&tail([SHORT, INT])), Some(3 + 14 + 6 + 1));
        assert_eq!(widen_integers(&tail([SHORT, INT]), None), Some(tail([LONG, LONG])));
        assert_eq!(widen_integers(&tail([7, INT]), None), Some(tail([7, LONG])));
        assert_eq!(widen_integers(&tail([7, LONG]), None), None);
        assert_eq!(widen_integers(&tail([SHORT, UNION]), None), None);
    }

    #[test]
    fn non_orc_files_are_unchanged() {
        let good = tail([SHORT, INT]);
        for length in 0..good.len() {
            assert_eq!(widen_integers(&good.slice(..length), None), None, "{length}");
        }
        assert_eq!(length(b""), None);
        assert_eq!(length(&[200, 1, 2, 3]), None);
    }

    #[test]
    fn varints_have_minimal_length() {
        for value in [0, 1, 127, 128, 300, 1 << 21, u64::MAX] {
            let mut bytes = BytesMut::new();
            put_varint(&mut bytes, value);
            assert_eq!(varint(&bytes), Some((value, bytes.len())));
        }
    }
}
