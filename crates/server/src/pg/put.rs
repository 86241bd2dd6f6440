//! Values as PostgreSQL writes them, in text and in binary: for each column of a batch, what writes one row
//! of it.
//!
//! Points in time are told to the microsecond, as PostgreSQL keeps them.

use std::sync::LazyLock;

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

use super::lists::put_list;
use super::ready::Ready;
use super::rows::Zone;
use super::text;
use super::types;

/// Writes one value of a column, which is not NULL.
///
/// Errors: it has no such form. What was written of it then is to be taken back.
pub(super) type Put<'a> = Box<dyn FnMut(usize, &mut BytesMut) -> Result<(), Box<SqlError>> + 'a>;

/// What nested values are written with.
static JSON: LazyLock<EncoderOptions> = LazyLock::new(EncoderOptions::default);

/// What cannot fail.
fn sure<'a>(mut put: impl FnMut(usize, &mut BytesMut) + 'a) -> Put<'a> {
    Box::new(move |row, out| {
        put(row, out);
        Ok(())
    })
}

/// The bytes of a UUID that is a text.
fn put_uuid(text: &str, out: &mut BytesMut) -> Result<(), Box<SqlError>> {
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

/// What `put` writes, behind its length.
pub(super) fn sized(
    out: &mut BytesMut,
    put: impl FnOnce(&mut BytesMut) -> Result<(), Box<SqlError>>,
) -> Result<(), Box<SqlError>> {
    let at = out.len();
    out.put_i32(0);
    put(out)?;
    let length = (out.len() - at - 4) as i32;
    out[at..at + 4].copy_from_slice(&length.to_be_bytes());
    Ok(())
}

/// Writes the values of a column.
pub(super) fn put(column: &Ready, is_binary: bool, zone: Zone) -> Result<Put<'_>, SqlError> {
    let array = &column.array;
    if let Some(items) = &column.items {
        return put_list(column, items, is_binary, zone);
    }
    let is_jsonb = is_binary && column.pg_type.oid == types::JSONB;
    Ok(match (array.data_type(), is_binary) {
        (DataType::Boolean, _) => {
            let array = array.as_boolean();
            match is_binary {
                true => sure(|row, out| out.put_u8(array.value(row).into())),
                false => sure(|row, out| out.put_u8(if array.value(row) { b't' } else { b'f' })),
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
            Box::new(move |row, out| put_uuid(array.value(row), out))
        }
        (DataType::Utf8View, true) if column.pg_type.oid == types::UUID => {
            let array = array.as_string_view();
            Box::new(move |row, out| put_uuid(array.value(row), out))
        }
        // The version of the format of `jsonb` stands before its text.
        (DataType::Utf8, _) => {
            let array = array.as_string::<i32>();
            put_text(is_jsonb, move |row| array.value(row))
        }
        (DataType::LargeUtf8, _) => {
            let array = array.as_string::<i64>();
            put_text(is_jsonb, move |row| array.value(row))
        }
        (DataType::Utf8View, _) => {
            let array = array.as_string_view();
            put_text(is_jsonb, move |row| array.value(row))
        }
        (DataType::Binary, _) => {
            let array = array.as_binary::<i32>();
            match is_binary {
                true => sure(|row, out| out.put_slice(array.value(row))),
                false => sure(|row, out| text::bytes(out, array.value(row))),
            }
        }
        (DataType::FixedSizeBinary(_), _) => {
            let array = array.as_fixed_size_binary();
            match (is_binary, column.pg_type.oid == types::UUID) {
                (true, _) => sure(|row, out| out.put_slice(array.value(row))),
                (false, true) => sure(|row, out| text::uuid(out, array.value(row))),
                (false, false) => sure(|row, out| text::bytes(out, array.value(row))),
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
            sure(move |row, out| {
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
            sure(move |row, out| {
                let value = formatter.value(row).to_string();
                match is_binary && is_decimal {
                    true => text::numeric(out, &value),
                    false => out.put_slice(value.as_bytes()),
                }
            })
        }
    })
}

/// Puts texts, or values of `jsonb` in binary.
fn put_text<'a>(is_jsonb: bool, text: impl Fn(usize) -> &'a str + 'a) -> Put<'a> {
    const VERSION: u8 = 1;
    match is_jsonb {
        true => sure(move |row, out| {
            out.put_u8(VERSION);
            out.put_slice(text(row).as_bytes());
        }),
        false => sure(move |row, out| out.put_slice(text(row).as_bytes())),
    }
}

fn binary_number(array: &ArrayRef) -> Put<'_> {
    match array.data_type() {
        DataType::Int16 => {
            let array = array.as_primitive::<Int16Type>();
            sure(|row, out| out.put_i16(array.value(row)))
        }
        DataType::Int32 => {
            let array = array.as_primitive::<Int32Type>();
            sure(|row, out| out.put_i32(array.value(row)))
        }
        DataType::Int64 => {
            let array = array.as_primitive::<Int64Type>();
            sure(|row, out| out.put_i64(array.value(row)))
        }
        DataType::UInt64 => {
            let array = array.as_primitive::<UInt64Type>();
            sure(|row, out| text::numeric(out, &array.value(row).to_string()))
        }
        DataType::Float32 => {
            let array = array.as_primitive::<Float32Type>();
            sure(|row, out| out.put_f32(array.value(row)))
        }
        DataType::Float64 => {
            let array = array.as_primitive::<Float64Type>();
            sure(|row, out| out.put_f64(array.value(row)))
        }
        _ => {
            let array = array.as_primitive::<Decimal128Type>();
            sure(|row, out| text::numeric(out, &array.value_as_string(row)))
        }
    }
}

/// `is_oid`: what is below zero is a number above 2³¹.
fn text_number(array: &ArrayRef, is_oid: bool) -> Put<'_> {
    match array.data_type() {
        DataType::Int32 if is_oid => {
            let array = array.as_primitive::<Int32Type>();
            sure(|row, out| text::unsigned(out, u64::from(array.value(row) as u32)))
        }
        DataType::Int16 => {
            let array = array.as_primitive::<Int16Type>();
            sure(|row, out| text::integer(out, array.value(row).into()))
        }
        DataType::Int32 => {
            let array = array.as_primitive::<Int32Type>();
            sure(|row, out| text::integer(out, array.value(row).into()))
        }
        DataType::Int64 => {
            let array = array.as_primitive::<Int64Type>();
            sure(|row, out| text::integer(out, array.value(row)))
        }
        DataType::UInt64 => {
            let array = array.as_primitive::<UInt64Type>();
            sure(|row, out| text::unsigned(out, array.value(row)))
        }
        DataType::Float32 => {
            let array = array.as_primitive::<Float32Type>();
            sure(|row, out| {
                let value = array.value(row);
                text::float(out, value.into(), &format!("{value:e}"), 6);
            })
        }
        DataType::Float64 => {
            let array = array.as_primitive::<Float64Type>();
            sure(|row, out| {
                let value = array.value(row);
                text::float(out, value, &format!("{value:e}"), 15);
            })
        }
        _ => {
            let array = array.as_primitive::<Decimal128Type>();
            sure(|row, out| out.put_slice(array.value_as_string(row).as_bytes()))
        }
    }
}

fn binary_time(array: &ArrayRef) -> Put<'_> {
    match array.data_type() {
        DataType::Date32 => {
            let array = array.as_primitive::<Date32Type>();
            sure(|row, out| {
                out.put_i32(match array.value(row) {
                    i32::MAX => i32::MAX,
                    // DuckDB's of before all others is one more than the least.
                    days => days.saturating_sub(text::EPOCH_DAYS),
                });
            })
        }
        DataType::Time64(_) => {
            let array = array.as_primitive::<Time64MicrosecondType>();
            sure(|row, out| out.put_i64(array.value(row)))
        }
        DataType::Timestamp(_, _) => {
            let array = array.as_primitive::<TimestampMicrosecondType>();
            sure(|row, out| {
                out.put_i64(match array.value(row) {
                    i64::MAX => i64::MAX,
                    us => us.saturating_sub(text::EPOCH_US),
                });
            })
        }
        DataType::Interval(_) => {
            let array = array.as_primitive::<IntervalMonthDayNanoType>();
            sure(|row, out| {
                let value = array.value(row);
                out.put_i64(value.nanoseconds / 1000);
                out.put_i32(value.days);
                out.put_i32(value.months);
            })
        }
        _ => {
            let array = array.as_primitive::<DurationMicrosecondType>();
            sure(|row, out| {
                let (days, us) = days_apart(array.value(row));
                out.put_i64(us);
                out.put_i32(days);
                out.put_i32(0);
            })
        }
    }
}

fn text_time(array: &ArrayRef, zone: Zone) -> Put<'_> {
    match array.data_type() {
        DataType::Date32 => {
            let array = array.as_primitive::<Date32Type>();
            sure(|row, out| text::date(out, array.value(row).into()))
        }
        DataType::Time64(_) => {
            let array = array.as_primitive::<Time64MicrosecondType>();
            sure(|row, out| text::time(out, array.value(row)))
        }
        DataType::Timestamp(_, has_zone) => {
            let has_zone = has_zone.is_some();
            let array = array.as_primitive::<TimestampMicrosecondType>();
            sure(move |row, out| {
                let us = array.value(row);
                text::timestamp(out, us, has_zone.then(|| zone.offset(us)));
            })
        }
        DataType::Interval(_) => {
            let array = array.as_primitive::<IntervalMonthDayNanoType>();
            sure(move |row, out| {
                let value = array.value(row);
                interval(out, zone, value.months, value.days, value.nanoseconds / 1000);
            })
        }
        _ => {
            let array = array.as_primitive::<DurationMicrosecondType>();
            sure(move |row, out| {
                let (days, us) = days_apart(array.value(row));
                interval(out, zone, 0, days, us);
            })
        }
    }
}

/// Whole days, and the microseconds that are left: what timestamps are apart, as PostgreSQL subtracts them.
/// There are fewer days than 2^31.
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
