//! Values that a client binds to parameters, from text or binary to Arrow.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, BinaryArray, BooleanArray, Date32Array, Float32Array, Float64Array, Int16Array,
    Int32Array, Int64Array, IntervalMonthDayNanoArray, ListArray, StringArray, Time64MicrosecondArray,
    TimestampMicrosecondArray, new_null_array,
};
use arrow::buffer::OffsetBuffer;
use arrow::compute::{CastOptions, cast_with_options, concat};
use arrow::datatypes::{DataType, Field, IntervalMonthDayNano};

use super::text;
use super::types::{self, PgType};
use crate::backend::Failure;

/// Parts of an array that a client sends, at most: dimensions as PostgreSQL has them.
const DIMENSIONS_MAX: i32 = 6;

/// A value of parameter `number`, counted from 1: an array of one row of type `wanted`. `oid`: what the client takes it for.
///
/// Errors: the bytes are no such value (22P02, 22P03).
pub(crate) fn value(
    bytes: Option<&[u8]>,
    is_binary: bool,
    oid: u32,
    wanted: &DataType,
    number: usize,
) -> Result<ArrayRef, Failure> {
    let Some(bytes) = bytes else {
        return Ok(new_null_array(wanted, 1));
    };
    let found = match is_binary {
        true => binary(bytes, oid).ok_or_else(|| {
            Failure::new("22P03", format!("incorrect binary data format in bind parameter {number}"))
        })?,
        false => of_text(bytes, wanted)?,
    };
    if found.data_type() == wanted {
        return Ok(found);
    }
    let text = || match is_binary {
        true => String::new(),
        false => format!(": \"{}\"", String::from_utf8_lossy(bytes)),
    };
    let options = CastOptions { safe: false, ..CastOptions::default() };
    cast_with_options(&found, wanted, &options).map_err(|error| {
        let state = match wanted {
            _ if matches!(error, arrow::error::ArrowError::ArithmeticOverflow(_)) => "22003",
            DataType::Date32 | DataType::Timestamp(_, _) | DataType::Time64(_) => "22007",
            _ => "22P02",
        };
        let name = type_name(wanted);
        Failure::new(state, format!("invalid input syntax for type {name}{}", text()))
            .with_detail(format!("parameter ${number}"))
    })
}

fn type_name(data_type: &DataType) -> &'static str {
    match PgType::of(data_type).oid {
        types::BOOL => "boolean",
        types::INT2 => "smallint",
        types::INT4 => "integer",
        types::INT8 => "bigint",
        types::FLOAT4 => "real",
        types::FLOAT8 => "double precision",
        types::NUMERIC => "numeric",
        types::DATE => "date",
        types::TIME => "time",
        types::TIMESTAMP => "timestamp",
        types::TIMESTAMPTZ => "timestamp with time zone",
        types::INTERVAL => "interval",
        types::BYTEA => "bytea",
        _ => "text",
    }
}

/// Text as Arrow can make a value of `wanted` from it.
fn of_text(bytes: &[u8], wanted: &DataType) -> Result<ArrayRef, Failure> {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return Err(Failure::new("22021", "invalid byte sequence for encoding \"UTF8\""));
    };
    Ok(match wanted {
        DataType::Boolean => {
            let value = match text.trim().to_ascii_lowercase().as_str() {
                "t" | "true" | "y" | "yes" | "on" | "1" => true,
                "f" | "false" | "n" | "no" | "off" | "0" => false,
                _ => {
                    let message = format!("invalid input syntax for type boolean: \"{text}\"");
                    return Err(Failure::new("22P02", message));
                }
            };
            Arc::new(BooleanArray::from(vec![value]))
        }
        DataType::Binary | DataType::BinaryView | DataType::LargeBinary => {
            let value =
                bytea(text).ok_or_else(|| Failure::new("22P02", "invalid input syntax for type bytea"))?;
            Arc::new(BinaryArray::from(vec![value.as_slice()]))
        }
        DataType::List(item) => {
            let items = array_items(text)
                .ok_or_else(|| Failure::new("22P02", format!("malformed array literal: \"{text}\"")))?;
            let parts = items
                .iter()
                .map(|part| match part {
                    Some(part) => value(Some(part.as_bytes()), false, types::TEXT, item.data_type(), 1),
                    None => Ok(new_null_array(item.data_type(), 1)),
                })
                .collect::<Result<Vec<_>, _>>()?;
            return list(&parts, item).ok_or_else(|| Failure::new("22P02", "malformed array literal"));
        }
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => Arc::new(StringArray::from(vec![text])),
        // JDBC says in which zone a day is, which a day is not.
        DataType::Date32 => Arc::new(StringArray::from(vec![text.split_whitespace().next().unwrap_or("")])),
        _ => Arc::new(StringArray::from(vec![text.trim()])),
    })
}

/// `\x` and hexadecimal digits, or bytes with backslashes before what is not ASCII.
fn bytea(text: &str) -> Option<Vec<u8>> {
    if let Some(digits) = text.strip_prefix("\\x") {
        let digits: Vec<u8> = digits.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
        let digit = |byte: u8| char::from(byte).to_digit(16).map(|digit| digit as u8);
        return match digits.len() % 2 {
            0 => digits.chunks(2).map(|pair| Some(digit(pair[0])? << 4 | digit(pair[1])?)).collect(),
            _ => None,
        };
    }
    let mut value = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        if byte != b'\\' {
            value.push(byte);
            continue;
        }
        match bytes.next()? {
            b'\\' => value.push(b'\\'),
            first => {
                let mut octal = u32::from(first).checked_sub(48).filter(|digit| *digit < 4)?;
                for _ in 0..2 {
                    octal =
                        octal * 8 + u32::from(bytes.next()?).checked_sub(48).filter(|digit| *digit < 8)?;
                }
                value.push(octal as u8);
            }
        }
    }
    Some(value)
}

/// The values in `{1,NULL,"a b"}`; arrays in it stay text.
fn array_items(text: &str) -> Option<Vec<Option<String>>> {
    let inner = text.trim().strip_prefix('{')?.strip_suffix('}')?;
    let mut items = Vec::new();
    if inner.trim().is_empty() {
        return Some(items);
    }
    let mut chars = inner.chars().peekable();
    loop {
        let (mut item, mut is_quoted, mut depth) = (String::new(), false, 0);
        loop {
            match chars.next() {
                None => break,
                Some(',') if depth == 0 => {
                    chars.peek()?;
                    items.push(item_of(item, is_quoted));
                    (item, is_quoted) = (String::new(), false);
                }
                Some('"') if depth == 0 => {
                    is_quoted = true;
                    loop {
                        match chars.next()? {
                            '"' => break,
                            '\\' => item.push(chars.next()?),
                            other => item.push(other),
                        }
                    }
                }
                Some('\\') => item.push(chars.next()?),
                Some(other) => {
                    depth += i32::from(other == '{') - i32::from(other == '}');
                    item.push(other);
                }
            }
        }
        if depth != 0 {
            return None;
        }
        items.push(item_of(item, is_quoted));
        return Some(items);
    }
}

fn item_of(item: String, is_quoted: bool) -> Option<String> {
    match is_quoted {
        true => Some(item),
        false if item.trim().eq_ignore_ascii_case("null") => None,
        false => Some(item.trim().to_string()),
    }
}

fn list(parts: &[ArrayRef], item: &Arc<Field>) -> Option<ArrayRef> {
    let values = match parts.is_empty() {
        true => new_null_array(item.data_type(), 0),
        false => concat(&parts.iter().map(AsRef::as_ref).collect::<Vec<&dyn Array>>()).ok()?,
    };
    let item = Arc::new(Field::new(item.name(), item.data_type().clone(), true));
    let offsets = OffsetBuffer::from_lengths([values.len()]);
    Some(Arc::new(ListArray::try_new(item, offsets, values, None).ok()?))
}

fn binary(bytes: &[u8], oid: u32) -> Option<ArrayRef> {
    let i32 = |bytes: &[u8]| Some(i32::from_be_bytes(bytes.try_into().ok()?));
    let i64 = |bytes: &[u8]| Some(i64::from_be_bytes(bytes.try_into().ok()?));
    Some(match oid {
        types::BOOL => match bytes {
            [value] => Arc::new(BooleanArray::from(vec![*value != 0])),
            _ => return None,
        },
        types::INT2 => Arc::new(Int16Array::from(vec![i16::from_be_bytes(bytes.try_into().ok()?)])),
        types::INT4 => Arc::new(Int32Array::from(vec![i32(bytes)?])),
        types::OID => Arc::new(Int64Array::from(vec![i64::from(i32(bytes)? as u32)])),
        types::INT8 => Arc::new(Int64Array::from(vec![i64(bytes)?])),
        types::FLOAT4 => Arc::new(Float32Array::from(vec![f32::from_bits(i32(bytes)? as u32)])),
        types::FLOAT8 => Arc::new(Float64Array::from(vec![f64::from_bits(i64(bytes)? as u64)])),
        types::BYTEA => Arc::new(BinaryArray::from(vec![bytes])),
        types::DATE => Arc::new(Date32Array::from(vec![i32(bytes)?.checked_add(text::EPOCH_DAYS)?])),
        types::TIME => Arc::new(Time64MicrosecondArray::from(vec![i64(bytes)?])),
        types::TIMESTAMP | types::TIMESTAMPTZ => {
            let us = i64(bytes)?.checked_add(text::EPOCH_US)?;
            let array = TimestampMicrosecondArray::from(vec![us]);
            match oid {
                types::TIMESTAMPTZ => Arc::new(array.with_timezone("+00:00")),
                _ => Arc::new(array),
            }
        }
        types::INTERVAL if bytes.len() == 16 => {
            let (us, days, months) = (i64(&bytes[..8])?, i32(&bytes[8..12])?, i32(&bytes[12..])?);
            let value = IntervalMonthDayNano::new(months, days, us.checked_mul(1000)?);
            Arc::new(IntervalMonthDayNanoArray::from(vec![value]))
        }
        types::NUMERIC => Arc::new(StringArray::from(vec![text::numeric_text(bytes)?])),
        types::UUID if bytes.len() == 16 => {
            let mut out = bytes::BytesMut::new();
            text::uuid(&mut out, bytes);
            Arc::new(StringArray::from(vec![std::str::from_utf8(&out).ok()?]))
        }
        types::JSONB => {
            Arc::new(StringArray::from(vec![std::str::from_utf8(bytes.strip_prefix(&[1])?).ok()?]))
        }
        types::TEXT
        | types::VARCHAR
        | types::BPCHAR
        | types::NAME
        | types::CHAR
        | types::JSON
        | types::UNKNOWN
        | 0 => Arc::new(StringArray::from(vec![std::str::from_utf8(bytes).ok()?])),
        _ => return binary_list(bytes, types::item_of(oid)?),
    })
}

fn binary_list(mut bytes: &[u8], item: u32) -> Option<ArrayRef> {
    fn next<'b>(bytes: &mut &'b [u8], count: usize) -> Option<&'b [u8]> {
        let (part, rest) = bytes.split_at_checked(count)?;
        *bytes = rest;
        Some(part)
    }
    fn number(bytes: &mut &[u8]) -> Option<i32> {
        Some(i32::from_be_bytes(next(bytes, 4)?.try_into().ok()?))
    }
    let dimensions = number(&mut bytes)?;
    let (_flags, item_type) = (number(&mut bytes)?, number(&mut bytes)? as u32);
    if item_type != item || !(0..=DIMENSIONS_MAX).contains(&dimensions) {
        return None;
    }
    let item_type = types::arrow_type(item).unwrap_or(DataType::Utf8);
    let field = Arc::new(Field::new_list_field(item_type.clone(), true));
    match dimensions {
        0 => return list(&[], &field),
        1 => {}
        // Which Arrow type arrays in arrays have is not said by PostgreSQL's.
        _ => return None,
    }
    let count = usize::try_from(number(&mut bytes)?).ok()?;
    let _lower_bound = number(&mut bytes)?;
    // Each takes four bytes at least.
    if count > bytes.len() / 4 {
        return None;
    }
    let mut parts = Vec::with_capacity(count);
    for _ in 0..count {
        parts.push(match usize::try_from(number(&mut bytes)?) {
            Ok(length) => binary(next(&mut bytes, length)?, item)?,
            Err(_) => new_null_array(&item_type, 1),
        });
    }
    if !bytes.is_empty() {
        return None;
    }
    list(&parts, &field)
}

#[cfg(test)]
mod tests {
    use arrow::array::AsArray;
    use arrow::datatypes::{Decimal128Type, Int32Type};
    use arrow::util::display::array_value_to_string;

    use super::*;

    fn shown(bytes: &[u8], is_binary: bool, oid: u32, wanted: DataType) -> Result<String, String> {
        let array = value(Some(bytes), is_binary, oid, &wanted, 1).map_err(|failure| failure.sqlstate)?;
        assert_eq!(array.data_type(), &wanted);
        Ok(array_value_to_string(&array, 0).unwrap())
    }

    #[test]
    fn values_are_read() {
        let timestamp = DataType::Timestamp(arrow::datatypes::TimeUnit::Microsecond, None);
        let cases: [(&[u8], bool, u32, DataType, Result<&str, &str>); 14] = [
            (b"12", false, 0, DataType::Int32, Ok("12")),
            (b"x", false, 0, DataType::Int32, Err("22P02")),
            (b"\0\0\0\x0c", true, types::INT4, DataType::Int64, Ok("12")),
            (b"\0\0\x0c", true, types::INT4, DataType::Int64, Err("22P03")),
            (b"on", false, 0, DataType::Boolean, Ok("true")),
            (b"maybe", false, 0, DataType::Boolean, Err("22P02")),
            (b"\\x0aff", false, 0, DataType::Binary, Ok("0aff")),
            (b"a\\\\\\001", false, 0, DataType::Binary, Ok("615c01")),
            (b"2024-02-29", false, 0, DataType::Date32, Ok("2024-02-29")),
            (b"2024-02-30", false, 0, DataType::Date32, Err("22007")),
            (&[0; 8], true, types::TIMESTAMP, timestamp, Ok("2000-01-01T00:00:00")),
            (b"{1,NULL,3}", false, 0, DataType::new_list(DataType::Int32, true), Ok("[1, , 3]")),
            (b"{\"a b\",c\\,d,\"\"}", false, 0, DataType::new_list(DataType::Utf8, true), Ok("[a b, c,d, ]")),
            (b"{1", false, 0, DataType::new_list(DataType::Int32, true), Err("22P02")),
        ];
        for (bytes, is_binary, oid, wanted, expected) in cases {
            let expected = expected.map(str::to_string).map_err(str::to_string);
            assert_eq!(shown(bytes, is_binary, oid, wanted), expected, "{}", String::from_utf8_lossy(bytes));
        }
    }

    #[test]
    fn numbers_keep_their_digits() {
        let bytes = [0, 3, 0, 1, 0, 0, 0, 3, 0, 1, 9, 41, 26, 124];
        let array = value(Some(&bytes), true, types::NUMERIC, &DataType::Decimal128(10, 3), 1).unwrap();
        assert_eq!(array.as_primitive::<Decimal128Type>().value(0), 12_345_678);
    }

    #[test]
    fn binary_arrays_are_read() {
        let mut bytes = Vec::new();
        for number in [1, 1, types::INT4 as i32, 2, 1, 4, 7, -1] {
            bytes.extend(number.to_be_bytes());
        }
        let wanted = DataType::new_list(DataType::Int32, true);
        let array = value(Some(&bytes), true, 1007, &wanted, 1).unwrap();
        let values = array.as_list::<i32>().value(0);
        assert_eq!(values.as_primitive::<Int32Type>().iter().collect::<Vec<_>>(), [Some(7), None]);
        assert!(value(Some(&bytes[..20]), true, 1007, &wanted, 1).is_err());
    }
}
