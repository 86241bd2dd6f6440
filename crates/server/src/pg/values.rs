//! Decoding of bound parameter values, from text or binary to Arrow.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BinaryArray, BooleanArray, FixedSizeBinaryArray, ListArray, StringArray,
    new_null_array,
};
use arrow::buffer::OffsetBuffer;
use arrow::compute::concat;
use arrow::datatypes::{DataType, Field};
use arrow::error::ArrowError;
use harrier_error::{SqlError, SqlState};

use super::decode::{cast_to, decoder};
use super::types::{self, NUMERIC_PRECISION, PgType};

/// Converts a date or timestamp from the session's style to ISO 8601; `None` if the text needs no change.
pub(crate) type ReadTime<'a> = &'a dyn Fn(&str, &DataType) -> Option<String>;

/// Decodes parameter `number`, counted from 1, to an array of one row of type `target_type`. `oid`: the
/// parameter's type for the client.
///
/// Errors: the bytes are invalid (22P02, 22P03).
pub(crate) fn decode_parameter(
    bytes: Option<&[u8]>,
    is_binary: bool,
    oid: u32,
    target_type: &DataType,
    number: usize,
    time: ReadTime<'_>,
) -> Result<ArrayRef, SqlError> {
    let Some(bytes) = bytes else {
        return Ok(new_null_array(target_type, 1));
    };
    let parsed = match is_binary {
        true => binary(bytes, oid).ok_or_else(|| {
            SqlError::new(
                SqlState::INVALID_BINARY_REPRESENTATION,
                format!("incorrect binary data format in bind parameter {number}"),
            )
        })?,
        false => parse_text(bytes, target_type, time)?,
    };
    // An unconstrained NUMERIC takes its scale from the value.
    let own_scale = types::is_any_numeric(target_type).then(|| scale_of(&parsed)).flatten();
    let target_type = own_scale.as_ref().unwrap_or(target_type);
    let text = || match is_binary {
        true => String::new(),
        false => format!(": \"{}\"", String::from_utf8_lossy(bytes)),
    };
    cast_to(&parsed, target_type, false).map_err(|error| {
        let state = match is_binary {
            true => misfit_state(&error, target_type),
            false => misfit_state_of(bytes, &error, target_type),
        };
        let name = type_name(target_type);
        SqlError::new(state, format!("invalid input syntax for type {name}{}", text()))
            .with_detail(format!("parameter ${number}"))
    })
}

/// The SQLSTATE of a value that does not fit type `target_type`.
pub(super) fn misfit_state(error: &ArrowError, target_type: &DataType) -> SqlState {
    match target_type {
        _ if matches!(error, ArrowError::ArithmeticOverflow(_)) => SqlState::NUMERIC_VALUE_OUT_OF_RANGE,
        DataType::Date32 | DataType::Timestamp(_, _) | DataType::Time64(_) => {
            SqlState::INVALID_DATETIME_FORMAT
        }
        _ => SqlState::INVALID_TEXT_REPRESENTATION,
    }
}

/// The same for a text: one that looks like a date is out of range.
fn misfit_state_of(text: &[u8], error: &ArrowError, target_type: &DataType) -> SqlState {
    let is_day = |text: &[u8]| {
        let sign = text.iter().find(|byte| !byte.is_ascii_digit()).filter(|sign| b"-/.".contains(sign));
        let mut parts = text.trim_ascii().splitn(3, |byte| Some(byte) == sign);
        let mut is_number =
            || parts.next().is_some_and(|part| !part.is_empty() && part.iter().all(u8::is_ascii_digit));
        is_number() && is_number() && is_number()
    };
    match misfit_state(error, target_type) {
        SqlState::INVALID_DATETIME_FORMAT if is_day(text) => SqlState::DATETIME_FIELD_OVERFLOW,
        state => state,
    }
}

/// The decimal type with the scale of a number given as text.
fn scale_of(parsed: &ArrayRef) -> Option<DataType> {
    let text = parsed.as_string_opt::<i32>()?.value(0).trim();
    if text.contains(['e', 'E']) {
        return None;
    }
    let fraction = text.split_once('.').map_or("", |(_, fraction)| fraction);
    let scale = i8::try_from(fraction.len()).ok().filter(|scale| *scale <= NUMERIC_PRECISION as i8)?;
    Some(DataType::Decimal128(NUMERIC_PRECISION, scale))
}

pub(super) fn type_name(data_type: &DataType) -> &'static str {
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

/// Normalizes a text so that Arrow can parse it as `target_type`.
fn parse_text(bytes: &[u8], target_type: &DataType, time: ReadTime<'_>) -> Result<ArrayRef, SqlError> {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return Err(SqlError::new(
            SqlState::CHARACTER_NOT_IN_REPERTOIRE,
            "invalid byte sequence for encoding \"UTF8\"",
        ));
    };
    Ok(match target_type {
        DataType::Boolean => {
            let value = match text.trim().to_ascii_lowercase().as_str() {
                "t" | "true" | "y" | "yes" | "on" | "1" => true,
                "f" | "false" | "n" | "no" | "off" | "0" => false,
                _ => {
                    let message = format!("invalid input syntax for type boolean: \"{text}\"");
                    return Err(SqlError::new(SqlState::INVALID_TEXT_REPRESENTATION, message));
                }
            };
            Arc::new(BooleanArray::from(vec![value]))
        }
        DataType::Binary | DataType::BinaryView | DataType::LargeBinary => {
            let value = bytea(text).ok_or_else(|| {
                SqlError::new(SqlState::INVALID_TEXT_REPRESENTATION, "invalid input syntax for type bytea")
            })?;
            Arc::new(BinaryArray::from(vec![value.as_slice()]))
        }
        DataType::List(item) => {
            if text.trim_start().starts_with('[') {
                let message = format!("array literal with bounds of its subscripts: \"{text}\"");
                return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message));
            }
            let items = array_items(text).ok_or_else(|| {
                SqlError::new(
                    SqlState::INVALID_TEXT_REPRESENTATION,
                    format!("malformed array literal: \"{text}\""),
                )
            })?;
            let parts = items
                .iter()
                .map(|part| match part {
                    Some(part) => {
                        decode_parameter(Some(part.as_bytes()), false, types::TEXT, item.data_type(), 1, time)
                    }
                    None => Ok(new_null_array(item.data_type(), 1)),
                })
                .collect::<Result<Vec<_>, _>>()?;
            return list(&parts, item).ok_or_else(|| {
                SqlError::new(SqlState::INVALID_TEXT_REPRESENTATION, "malformed array literal")
            });
        }
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => Arc::new(StringArray::from(vec![text])),
        DataType::FixedSizeBinary(16) => {
            let Ok(uuid) = uuid::Uuid::parse_str(text.trim()) else {
                let message = format!("invalid input syntax for type uuid: \"{text}\"");
                return Err(SqlError::new(SqlState::INVALID_TEXT_REPRESENTATION, message));
            };
            Arc::new(
                FixedSizeBinaryArray::try_from_iter(std::iter::once(uuid.as_bytes()))
                    .map_err(|error| SqlError::new(SqlState::INTERNAL_ERROR, error.to_string()))?,
            )
        }
        // JDBC appends the time zone, which PostgreSQL parses and ignores.
        DataType::Time64(_) => {
            let text = text.trim();
            let time = text.split(['+', '-', 'Z', 'z', ' ']).next().unwrap_or(text);
            Arc::new(StringArray::from(vec![time]))
        }
        DataType::Date32 | DataType::Timestamp(..) if let Some(text) = time(text, target_type) => {
            Arc::new(StringArray::from(vec![text]))
        }
        // JDBC appends a time zone to dates.
        DataType::Date32 => Arc::new(StringArray::from(vec![text.split_whitespace().next().unwrap_or("")])),
        _ => Arc::new(StringArray::from(vec![text.trim()])),
    })
}

/// Parses bytea: `\x` and hexadecimal digits, or the escape format.
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

/// The elements of `{1,NULL,"a b"}`; nested arrays stay text.
fn array_items(text: &str) -> Option<Vec<Option<String>>> {
    let inner = text.trim().strip_prefix('{')?.strip_suffix('}')?;
    let mut items = Vec::new();
    if inner.trim().is_empty() {
        return Some(items);
    }
    let mut chars = inner.chars().peekable();
    let (mut item, mut is_quoted, mut depth) = (String::new(), false, 0);
    while let Some(next) = chars.next() {
        match next {
            ',' if depth == 0 => {
                chars.peek()?;
                items.push(item_of(item, is_quoted));
                (item, is_quoted) = (String::new(), false);
            }
            // Blanks around elements are ignored.
            blank if blank.is_whitespace() && depth == 0 && (is_quoted || item.is_empty()) => {}
            _ if is_quoted => return None,
            '"' if depth == 0 => {
                if !item.is_empty() {
                    return None;
                }
                is_quoted = true;
                loop {
                    match chars.next()? {
                        '"' => break,
                        '\\' => item.push(chars.next()?),
                        other => item.push(other),
                    }
                }
            }
            '\\' => item.push(chars.next()?),
            other => {
                depth += i32::from(other == '{') - i32::from(other == '}');
                item.push(other);
            }
        }
    }
    if depth != 0 {
        return None;
    }
    items.push(item_of(item, is_quoted));
    Some(items)
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
    let mut decoder = decoder(oid, 1)?;
    decoder.value(bytes)?;
    decoder.finish()
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::{Decimal128Type, Int32Type};
    use arrow::util::display::array_value_to_string;

    use super::*;

    fn decode(bytes: &[u8], is_binary: bool, oid: u32, target_type: &DataType) -> Result<ArrayRef, SqlError> {
        decode_parameter(Some(bytes), is_binary, oid, target_type, 1, &|text, _| {
            (text == "soon").then(|| "2024-02-29".into())
        })
    }

    fn format_value(
        bytes: &[u8],
        is_binary: bool,
        oid: u32,
        target_type: DataType,
    ) -> Result<String, String> {
        let array =
            decode(bytes, is_binary, oid, &target_type).map_err(|failure| failure.sqlstate.to_string())?;
        assert_eq!(array.data_type(), &target_type);
        Ok(array_value_to_string(&array, 0).unwrap())
    }

    #[test]
    fn values_are_read() {
        let timestamp = DataType::Timestamp(arrow::datatypes::TimeUnit::Microsecond, None);
        let cases: [(&[u8], bool, u32, DataType, Result<&str, &str>); 19] = [
            (b"12", false, 0, DataType::Int32, Ok("12")),
            (b"x", false, 0, DataType::Int32, Err("22P02")),
            (b"\0\0\0\x0c", true, types::INT4, DataType::Int64, Ok("12")),
            (b"\0\0\x0c", true, types::INT4, DataType::Int64, Err("22P03")),
            (b"on", false, 0, DataType::Boolean, Ok("true")),
            (b"maybe", false, 0, DataType::Boolean, Err("22P02")),
            (b"\\x0aff", false, 0, DataType::Binary, Ok("0aff")),
            (b"a\\\\\\001", false, 0, DataType::Binary, Ok("615c01")),
            (b"2024-02-29", false, 0, DataType::Date32, Ok("2024-02-29")),
            (b"2024-02-30", false, 0, DataType::Date32, Err("22008")),
            (b"31/12/2024", false, 0, DataType::Date32, Err("22008")),
            (b"soon", false, 0, DataType::Date32, Ok("2024-02-29")),
            (b"today or so", false, 0, DataType::Date32, Err("22007")),
            (&[0; 8], true, types::TIMESTAMP, timestamp, Ok("2000-01-01T00:00:00")),
            (b"{1,NULL,3}", false, 0, DataType::new_list(DataType::Int32, true), Ok("[1, , 3]")),
            (b"{\"a b\",c\\,d,\"\"}", false, 0, DataType::new_list(DataType::Utf8, true), Ok("[a b, c,d, ]")),
            (
                b"{ \"p\", \" q\" , r s }",
                false,
                0,
                DataType::new_list(DataType::Utf8, true),
                Ok("[p,  q, r s]"),
            ),
            (b"{\"p\"q}", false, 0, DataType::new_list(DataType::Utf8, true), Err("22P02")),
            (b"{1", false, 0, DataType::new_list(DataType::Int32, true), Err("22P02")),
        ];
        for (bytes, is_binary, oid, target_type, expected) in cases {
            let expected = expected.map(str::to_string).map_err(str::to_string);
            assert_eq!(
                format_value(bytes, is_binary, oid, target_type),
                expected,
                "{}",
                String::from_utf8_lossy(bytes)
            );
        }
    }

    #[test]
    fn numbers_keep_their_digits() {
        let bytes = [0, 3, 0, 1, 0, 0, 0, 3, 0, 1, 9, 41, 26, 124];
        let array = decode(&bytes, true, types::NUMERIC, &DataType::Decimal128(10, 3)).unwrap();
        assert_eq!(array.as_primitive::<Decimal128Type>().value(0), 12_345_678);
        // Without a declared scale, the value's own.
        for (text, expected) in [("1.50", DataType::Decimal128(38, 2)), ("-7", DataType::Decimal128(38, 0))] {
            let array = decode(text.as_bytes(), false, 0, &DataType::Decimal128(38, 10)).unwrap();
            assert_eq!(array.data_type(), &expected);
            assert_eq!(array_value_to_string(&array, 0).unwrap(), text);
        }
        let uuid = "12345678-9abc-def0-1234-56789abcdef0";
        let array = decode(uuid.as_bytes(), false, 0, &DataType::FixedSizeBinary(16)).unwrap();
        let bytes = array.as_fixed_size_binary().value(0);
        let texts = decode(bytes, true, types::UUID, &DataType::Utf8).unwrap();
        assert_eq!(texts.as_string::<i32>().value(0), uuid);
    }

    #[test]
    fn binary_arrays_are_read() {
        let mut bytes = Vec::new();
        for number in [1, 1, types::INT4 as i32, 2, 1, 4, 7, -1] {
            bytes.extend(number.to_be_bytes());
        }
        let target_type = DataType::new_list(DataType::Int32, true);
        let array = decode(&bytes, true, 1007, &target_type).unwrap();
        let values = array.as_list::<i32>().value(0);
        assert_eq!(values.as_primitive::<Int32Type>().iter().collect::<Vec<_>>(), [Some(7), None]);
        assert!(decode(&bytes[..20], true, 1007, &target_type).is_err());
    }
}
