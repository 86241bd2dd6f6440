//! Encoders of values in PostgreSQL's text and binary formats: one per column of a batch.
//!
//! Timestamps are encoded in microseconds, PostgreSQL's resolution.

use std::sync::{Arc, LazyLock};

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::datatypes::{
    DataType, Date32Type, Decimal128Type, DurationMicrosecondType, Float32Type, Float64Type, Int16Type,
    Int32Type, Int64Type, IntervalMonthDayNanoType, Time64MicrosecondType, TimestampMicrosecondType,
    UInt64Type,
};
use arrow::json::writer::{EncoderOptions, make_encoder};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use bytes::{BufMut, BytesMut};
use harrier_error::{SqlError, SqlState};

use super::encodable::EncodableColumn;
use super::json_floats::FloatTexts;
use super::lists::{encoded_items, list_encoder};
use super::text;
use super::types;
use super::value_output::ValueEncoder;
use super::zone::Zone;

/// JSON encoder options for nested values.
static JSON: LazyLock<EncoderOptions> =
    LazyLock::new(|| EncoderOptions::default().with_encoder_factory(Arc::new(FloatTexts)));

/// An encoder that cannot fail.
fn infallible<'a>(mut encode: impl FnMut(usize, &mut BytesMut) + 'a) -> ValueEncoder<'a> {
    Box::new(move |row, out| {
        encode(row, out);
        Ok(())
    })
}

/// Encodes the text of a UUID as 16 bytes.
fn write_uuid(text: &str, out: &mut BytesMut) -> Result<(), Box<SqlError>> {
    match uuid::Uuid::parse_str(text) {
        Ok(uuid) => {
            out.put_slice(uuid.as_bytes());
            Ok(())
        }
        Err(_) => {
            let message = format!("invalid input syntax for type uuid: \"{text}\"");
            Err(Box::new(SqlError::new(SqlState::INVALID_TEXT_REPRESENTATION, message)))
        }
    }
}

/// The encoder for a column.
pub(super) fn value_encoder(
    column: &EncodableColumn,
    is_binary: bool,
    zone: Zone,
) -> Result<ValueEncoder<'_>, SqlError> {
    let array = &column.array;
    if let Some(items) = &column.items {
        let encode = value_encoder(encoded_items(items, is_binary), is_binary, zone)?;
        return Ok(list_encoder(column, items, is_binary, encode));
    }
    let is_jsonb = is_binary && column.pg_type.oid == types::JSONB;
    Ok(match (array.data_type(), is_binary) {
        (DataType::Boolean, _) => {
            let array = array.as_boolean();
            match is_binary {
                true => infallible(|row, out| out.put_u8(array.value(row).into())),
                false => infallible(|row, out| out.put_u8(if array.value(row) { b't' } else { b'f' })),
            }
        }
        (
            DataType::Int16
            | DataType::Int32
            | DataType::Int64
            | DataType::UInt64
            | DataType::Float32
            | DataType::Float64
            | DataType::Decimal128(_, _),
            true,
        ) => binary_number(array),
        (
            DataType::Int16
            | DataType::Int32
            | DataType::Int64
            | DataType::UInt64
            | DataType::Float32
            | DataType::Float64
            | DataType::Decimal128(_, _),
            false,
        ) => text_number(array, column.pg_type.oid == types::OID),
        (DataType::Utf8, true) if column.pg_type.oid == types::UUID => {
            let array = array.as_string::<i32>();
            Box::new(move |row, out| write_uuid(array.value(row), out))
        }
        (DataType::Utf8View, true) if column.pg_type.oid == types::UUID => {
            let array = array.as_string_view();
            Box::new(move |row, out| write_uuid(array.value(row), out))
        }
        // `jsonb` in binary begins with its format version.
        (DataType::Utf8, _) => {
            let array = array.as_string::<i32>();
            text_encoder(is_jsonb, move |row| array.value(row))
        }
        (DataType::LargeUtf8, _) => {
            let array = array.as_string::<i64>();
            text_encoder(is_jsonb, move |row| array.value(row))
        }
        (DataType::Utf8View, _) => {
            let array = array.as_string_view();
            text_encoder(is_jsonb, move |row| array.value(row))
        }
        (DataType::Binary, _) => {
            let array = array.as_binary::<i32>();
            match is_binary {
                true => infallible(|row, out| out.put_slice(array.value(row))),
                false => infallible(|row, out| text::bytes(out, array.value(row))),
            }
        }
        (DataType::FixedSizeBinary(_), _) => {
            let array = array.as_fixed_size_binary();
            match (is_binary, column.pg_type.oid == types::UUID) {
                (true, _) => infallible(|row, out| out.put_slice(array.value(row))),
                (false, true) => infallible(|row, out| text::uuid(out, array.value(row))),
                (false, false) => infallible(|row, out| text::bytes(out, array.value(row))),
            }
        }
        (
            DataType::Date32
            | DataType::Time64(_)
            | DataType::Timestamp(_, _)
            | DataType::Interval(_)
            | DataType::Duration(_),
            true,
        ) => binary_time(array),
        (
            DataType::Date32
            | DataType::Time64(_)
            | DataType::Timestamp(_, _)
            | DataType::Interval(_)
            | DataType::Duration(_),
            false,
        ) => text_time(array, zone),
        (DataType::Struct(_) | DataType::Map(_, _), _) => {
            let failed =
                |error| SqlError::new(SqlState::INTERNAL_ERROR, format!("could not write JSON: {error}"));
            let mut encoder = make_encoder(&column.field, array.as_ref(), &JSON).map_err(failed)?;
            let mut json = Vec::new();
            infallible(move |row, out| {
                json.clear();
                encoder.encode(row, &mut json);
                out.put_slice(&json);
            })
        }
        _ => {
            let formatter =
                ArrayFormatter::try_new(array.as_ref(), &FormatOptions::new()).map_err(|error| {
                    SqlError::new(SqlState::INTERNAL_ERROR, format!("could not write a value: {error}"))
                })?;
            let is_decimal = matches!(array.data_type(), DataType::Decimal256(_, _));
            infallible(move |row, out| {
                let value = formatter.value(row).to_string();
                match is_binary && is_decimal {
                    true => text::numeric(out, &value),
                    false => out.put_slice(value.as_bytes()),
                }
            })
        }
    })
}

/// Encodes texts, or `jsonb` in binary.
fn text_encoder<'a>(is_jsonb: bool, text: impl Fn(usize) -> &'a str + 'a) -> ValueEncoder<'a> {
    const VERSION: u8 = 1;
    match is_jsonb {
        true => infallible(move |row, out| {
            out.put_u8(VERSION);
            out.put_slice(text(row).as_bytes());
        }),
        false => infallible(move |row, out| out.put_slice(text(row).as_bytes())),
    }
}

fn binary_number(array: &ArrayRef) -> ValueEncoder<'_> {
    match array.data_type() {
        DataType::Int16 => {
            let array = array.as_primitive::<Int16Type>();
            infallible(|row, out| out.put_i16(array.value(row)))
        }
        DataType::Int32 => {
            let array = array.as_primitive::<Int32Type>();
            infallible(|row, out| out.put_i32(array.value(row)))
        }
        DataType::Int64 => {
            let array = array.as_primitive::<Int64Type>();
            infallible(|row, out| out.put_i64(array.value(row)))
        }
        DataType::UInt64 => {
            let array = array.as_primitive::<UInt64Type>();
            infallible(|row, out| text::numeric(out, &array.value(row).to_string()))
        }
        DataType::Float32 => {
            let array = array.as_primitive::<Float32Type>();
            infallible(|row, out| out.put_f32(array.value(row)))
        }
        DataType::Float64 => {
            let array = array.as_primitive::<Float64Type>();
            infallible(|row, out| out.put_f64(array.value(row)))
        }
        _ => {
            let array = array.as_primitive::<Decimal128Type>();
            infallible(|row, out| text::numeric(out, &array.value_as_string(row)))
        }
    }
}

/// `is_oid`: a negative number is one above 2³¹.
fn text_number(array: &ArrayRef, is_oid: bool) -> ValueEncoder<'_> {
    match array.data_type() {
        DataType::Int32 if is_oid => {
            let array = array.as_primitive::<Int32Type>();
            infallible(|row, out| text::unsigned_integer(out, u64::from(array.value(row) as u32)))
        }
        DataType::Int16 => {
            let array = array.as_primitive::<Int16Type>();
            infallible(|row, out| text::integer(out, array.value(row).into()))
        }
        DataType::Int32 => {
            let array = array.as_primitive::<Int32Type>();
            infallible(|row, out| text::integer(out, array.value(row).into()))
        }
        DataType::Int64 => {
            let array = array.as_primitive::<Int64Type>();
            infallible(|row, out| text::integer(out, array.value(row)))
        }
        DataType::UInt64 => {
            let array = array.as_primitive::<UInt64Type>();
            infallible(|row, out| text::unsigned_integer(out, array.value(row)))
        }
        DataType::Float32 => {
            let array = array.as_primitive::<Float32Type>();
            infallible(|row, out| {
                let value = array.value(row);
                text::float(out, value.into(), &format!("{value:e}"), 6);
            })
        }
        DataType::Float64 => {
            let array = array.as_primitive::<Float64Type>();
            infallible(|row, out| {
                let value = array.value(row);
                text::float(out, value, &format!("{value:e}"), 15);
            })
        }
        _ => {
            let array = array.as_primitive::<Decimal128Type>();
            infallible(|row, out| out.put_slice(array.value_as_string(row).as_bytes()))
        }
    }
}

fn binary_time(array: &ArrayRef) -> ValueEncoder<'_> {
    match array.data_type() {
        DataType::Date32 => {
            let array = array.as_primitive::<Date32Type>();
            infallible(|row, out| {
                out.put_i32(match array.value(row) {
                    i32::MAX => i32::MAX,
                    // DuckDB's -infinity is one more than the minimum.
                    days => days.saturating_sub(text::EPOCH_DAYS),
                });
            })
        }
        DataType::Time64(_) => {
            let array = array.as_primitive::<Time64MicrosecondType>();
            infallible(|row, out| out.put_i64(array.value(row)))
        }
        DataType::Timestamp(_, _) => {
            let array = array.as_primitive::<TimestampMicrosecondType>();
            infallible(|row, out| {
                out.put_i64(match array.value(row) {
                    i64::MAX => i64::MAX,
                    us => us.saturating_sub(text::EPOCH_US),
                });
            })
        }
        DataType::Interval(_) => {
            let array = array.as_primitive::<IntervalMonthDayNanoType>();
            infallible(|row, out| {
                let value = array.value(row);
                out.put_i64(value.nanoseconds / 1000);
                out.put_i32(value.days);
                out.put_i32(value.months);
            })
        }
        _ => {
            let array = array.as_primitive::<DurationMicrosecondType>();
            infallible(|row, out| {
                let (days, us) = days_apart(array.value(row));
                out.put_i64(us);
                out.put_i32(days);
                out.put_i32(0);
            })
        }
    }
}

fn text_time(array: &ArrayRef, zone: Zone) -> ValueEncoder<'_> {
    match array.data_type() {
        DataType::Date32 => {
            let array = array.as_primitive::<Date32Type>();
            infallible(|row, out| text::date(out, array.value(row).into()))
        }
        DataType::Time64(_) => {
            let array = array.as_primitive::<Time64MicrosecondType>();
            infallible(|row, out| text::time(out, array.value(row)))
        }
        DataType::Timestamp(_, has_zone) => {
            let has_zone = has_zone.is_some();
            let array = array.as_primitive::<TimestampMicrosecondType>();
            infallible(move |row, out| {
                let us = array.value(row);
                text::timestamp(out, us, has_zone.then(|| zone.offset(us)));
            })
        }
        DataType::Interval(_) => {
            let array = array.as_primitive::<IntervalMonthDayNanoType>();
            infallible(move |row, out| {
                let value = array.value(row);
                interval(out, zone, value.months, value.days, value.nanoseconds / 1000);
            })
        }
        _ => {
            let array = array.as_primitive::<DurationMicrosecondType>();
            infallible(move |row, out| {
                let (days, us) = days_apart(array.value(row));
                interval(out, zone, 0, days, us);
            })
        }
    }
}

/// Splits a difference of timestamps into whole days and microseconds, as PostgreSQL does. There are fewer
/// than 2^31 days.
fn days_apart(us: i64) -> (i32, i64) {
    const DAY: i64 = 86_400_000_000;
    (i32::try_from(us / DAY).unwrap_or(i32::MAX), us % DAY)
}

fn interval(out: &mut BytesMut, style: Zone, months: i32, days: i32, us: i64) {
    match style.intervals() {
        Some(text) => out.put_slice(text(months, days, us).as_bytes()),
        None => text::interval(out, months, days, us),
    }
}
