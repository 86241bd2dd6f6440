//! Encoders of arrays, nested ones too: in braces as text, by dimensions in binary.

use arrow::array::{Array, AsArray};
use arrow::buffer::OffsetBuffer;
use arrow::datatypes::DataType;
use bytes::{BufMut, BytesMut};
use harrier_error::{SqlError, SqlState};

use super::encodable::EncodableColumn;
use super::types;
use super::value_output::{ValueEncoder, with_length};

/// The offsets of each row's values.
enum Bounds<'a> {
    Small(&'a OffsetBuffer<i32>),
    Large(&'a OffsetBuffer<i64>),
}

impl Bounds<'_> {
    fn of(&self, row: usize) -> (usize, usize) {
        match self {
            Self::Small(offsets) => (offsets[row] as usize, offsets[row + 1] as usize),
            Self::Large(offsets) => (offsets[row] as usize, offsets[row + 1] as usize),
        }
    }
}

fn bounds(lists: &EncodableColumn) -> Bounds<'_> {
    match lists.array.data_type() {
        DataType::LargeList(_) => Bounds::Large(lists.array.as_list::<i64>().offsets()),
        _ => Bounds::Small(lists.array.as_list::<i32>().offsets()),
    }
}

/// The values that a list's encoder has encoded one by one: the innermost ones in binary, whose dimensions
/// come before all of them.
pub(super) fn encoded_items(items: &EncodableColumn, is_binary: bool) -> &EncodableColumn {
    match &items.items {
        Some(inner) if is_binary => encoded_items(inner, is_binary),
        _ => items,
    }
}

/// An encoder of lists whose values are `items`. `encode`: that of their [`encoded_items`].
pub(super) fn list_encoder<'a>(
    lists: &'a EncodableColumn,
    items: &'a EncodableColumn,
    is_binary: bool,
    encode: ValueEncoder<'a>,
) -> ValueEncoder<'a> {
    match (is_binary, lists.pg_type.oid) {
        (true, _) => binary_encoder(lists, items, encode),
        (false, types::INT2VECTOR | types::OIDVECTOR) => vector_encoder(lists, encode),
        (false, _) => text_encoder(lists, items, encode),
    }
}

/// Encodes `{1,NULL,"a b"}`.
fn text_encoder<'a>(
    lists: &'a EncodableColumn,
    items: &'a EncodableColumn,
    mut encode: ValueEncoder<'a>,
) -> ValueEncoder<'a> {
    let bounds = bounds(lists);
    let is_nested = items.items.is_some();
    let mut value = BytesMut::new();
    Box::new(move |row, out| {
        let (from, to) = bounds.of(row);
        out.put_u8(b'{');
        for at in from..to {
            if at > from {
                out.put_u8(b',');
            }
            if items.array.is_null(at) {
                out.put_slice(b"NULL");
                continue;
            }
            value.clear();
            encode(at, &mut value)?;
            let needs_quotes = value.is_empty()
                || value.eq_ignore_ascii_case(b"null")
                || value.iter().any(|byte| b"{},\"\\".contains(byte) || byte.is_ascii_whitespace());
            if is_nested || !needs_quotes {
                out.put_slice(&value);
                continue;
            }
            out.put_u8(b'"');
            for byte in &value {
                if matches!(byte, b'"' | b'\\') {
                    out.put_u8(b'\\');
                }
                out.put_u8(*byte);
            }
            out.put_u8(b'"');
        }
        out.put_u8(b'}');
        Ok(())
    })
}

/// Encodes `1 2`, the catalogs' vector types.
fn vector_encoder<'a>(lists: &'a EncodableColumn, mut encode: ValueEncoder<'a>) -> ValueEncoder<'a> {
    let bounds = bounds(lists);
    Box::new(move |row, out| {
        let (from, to) = bounds.of(row);
        for at in from..to {
            if at > from {
                out.put_u8(b' ');
            }
            encode(at, out)?;
        }
        Ok(())
    })
}

fn binary_encoder<'a>(
    lists: &'a EncodableColumn,
    items: &'a EncodableColumn,
    mut encode: ValueEncoder<'a>,
) -> ValueEncoder<'a> {
    let leaves = encoded_items(items, true);
    let is_vector = matches!(lists.pg_type.oid, types::INT2VECTOR | types::OIDVECTOR);
    // Vectors are zero-based.
    let lower_bound = i32::from(!is_vector);
    let value_type = types::item_of(lists.pg_type.oid).unwrap_or(leaves.pg_type.oid);
    let bounds = bounds(lists);
    let mut lengths = Vec::new();
    Box::new(move |row, out| {
        lengths.clear();
        let (from, to) = measure(items, bounds.of(row), 0, &mut lengths)?;
        let is_empty = lengths.contains(&0) && !is_vector;
        let has_nulls = (from..to).any(|at| leaves.array.is_null(at));
        out.put_i32(if is_empty { 0 } else { lengths.len() as i32 });
        out.put_i32(has_nulls.into());
        out.put_u32(value_type);
        if is_empty {
            return Ok(());
        }
        for length in &lengths {
            out.put_i32(*length as i32);
            out.put_i32(lower_bound);
        }
        for at in from..to {
            match leaves.array.is_null(at) {
                true => out.put_i32(-1),
                false => with_length(out, |out| encode(at, out))?,
            }
        }
        Ok(())
    })
}

/// The array lengths at each depth, from that of `items` on; also returns the range of innermost values.
///
/// Errors: arrays of one depth differ in length (0A000); PostgreSQL's arrays are rectangular.
fn measure(
    items: &EncodableColumn,
    (from, to): (usize, usize),
    depth: usize,
    lengths: &mut Vec<usize>,
) -> Result<(usize, usize), Box<SqlError>> {
    match lengths.get(depth) {
        Some(length) if *length != to - from => return Err(jagged_array_error()),
        Some(_) => {}
        None => lengths.push(to - from),
    }
    let Some(inner) = &items.items else {
        return Ok((from, to));
    };
    let bounds = bounds(items);
    let mut whole: Option<(usize, usize)> = None;
    for at in from..to {
        if items.array.is_null(at) {
            return Err(jagged_array_error());
        }
        let (begin, end) = measure(inner, bounds.of(at), depth + 1, lengths)?;
        whole = Some((whole.map_or(begin, |(first, _)| first), end));
    }
    Ok(whole.unwrap_or((0, 0)))
}

fn jagged_array_error() -> Box<SqlError> {
    let message = "arrays that differ in length, or are NULL, inside of an array have no binary form";
    Box::new(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message).with_hint("ask for the result as text"))
}
