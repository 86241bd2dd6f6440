//! Rows of Arrow as the messages of PostgreSQL: one column after the other is made ready, then row by row is written.
//!
//! Points in time are told to the microsecond, as PostgreSQL keeps them.

use std::sync::Arc;

use arrow::array::timezone::Tz;
use arrow::array::{
    Array, ArrayRef, AsArray, FixedSizeBinaryArray, GenericListArray, OffsetSizeTrait, RecordBatch,
};
use arrow::compute::cast;
use arrow::datatypes::{
    DataType, Date32Type, Decimal128Type, Field, Float32Type, Float64Type, Int16Type, Int32Type, Int64Type,
    IntervalMonthDayNanoType, IntervalUnit, Schema, Time64MicrosecondType, TimeUnit,
    TimestampMicrosecondType, UInt64Type,
};
use arrow::json::writer::{EncoderOptions, make_encoder};
use arrow::temporal_conversions::as_datetime_with_timezone;
use arrow::util::display::{ArrayFormatter, FormatOptions};
use bytes::{BufMut, BytesMut};
use chrono::Offset;

use super::reply::Column;
use super::text;
use super::types::{self, PgType};
use crate::backend::Failure;

/// Writes one value of a column, which is not NULL.
type Put<'a> = Box<dyn FnMut(usize, &mut BytesMut) + 'a>;

/// Where the session is, for points in time as text.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Zone(Option<Tz>);

impl Zone {
    /// A zone that is not known is UTC.
    pub(crate) fn named(name: &str) -> Self {
        Self(name.parse().ok())
    }

    fn offset(self, us: i64) -> i32 {
        self.0
            .and_then(|zone| as_datetime_with_timezone::<TimestampMicrosecondType>(us, zone))
            .map_or(0, |there| there.offset().fix().local_minus_utc())
    }
}

/// What a client is told of the columns of `schema`. `formats`: none for text, one for all, or one for each.
pub(crate) fn columns(schema: &Schema, formats: &[i16]) -> Result<Vec<Column>, Failure> {
    let count = schema.fields().len();
    if formats.len() > 1 && formats.len() != count {
        let message =
            format!("bind message has {} result formats but query has {count} columns", formats.len());
        return Err(Failure::new("08P01", message));
    }
    let format = |at: usize| *formats.get(at).or(formats.first()).unwrap_or(&0);
    let column = |(at, field): (usize, &Arc<Field>)| {
        let pg_type = PgType::of_field(field);
        // What has no form of its own in binary is text in both.
        Column { name: field.name().clone(), pg_type, format: format(at) }
    };
    Ok(schema.fields().iter().enumerate().map(column).collect())
}

/// Writes rows `from..to` of a batch as data rows.
pub(crate) fn put_rows(
    batch: &RecordBatch,
    from: usize,
    to: usize,
    columns: &[Column],
    zone: Zone,
    out: &mut BytesMut,
) -> Result<(), Failure> {
    let schema = batch.schema();
    let ready = batch
        .columns()
        .iter()
        .zip(schema.fields())
        .map(|(array, field)| ready(array, field))
        .collect::<Result<Vec<_>, _>>()?;
    let mut puts = ready
        .iter()
        .zip(columns)
        .map(|((array, field), column)| Ok((array, put(array, field, column.format == 1, zone)?)))
        .collect::<Result<Vec<_>, Failure>>()?;
    for row in from..to {
        out.put_u8(b'D');
        let begin = out.len();
        out.put_i32(0);
        out.put_i16(puts.len() as i16);
        for (array, put) in &mut puts {
            if array.is_null(row) {
                out.put_i32(-1);
                continue;
            }
            sized(out, |out| put(row, out));
        }
        let length = (out.len() - begin) as i32;
        out[begin..begin + 4].copy_from_slice(&length.to_be_bytes());
    }
    Ok(())
}

/// What `put` writes, behind its length.
fn sized(out: &mut BytesMut, put: impl FnOnce(&mut BytesMut)) {
    let at = out.len();
    out.put_i32(0);
    put(out);
    let length = (out.len() - at - 4) as i32;
    out[at..at + 4].copy_from_slice(&length.to_be_bytes());
}

/// The array as one of the few types that there is a way to write for.
fn ready(array: &ArrayRef, field: &Field) -> Result<(ArrayRef, Arc<Field>), Failure> {
    let microseconds = TimeUnit::Microsecond;
    let wanted = match array.data_type() {
        // Which has no marks of what is NULL.
        DataType::Null => DataType::Utf8,
        DataType::Int8 | DataType::UInt8 => DataType::Int16,
        DataType::UInt16 => DataType::Int32,
        DataType::UInt32 => DataType::Int64,
        DataType::Float16 => DataType::Float32,
        DataType::Date64 => DataType::Timestamp(microseconds, None),
        DataType::Timestamp(unit, zone) if *unit != microseconds => {
            DataType::Timestamp(microseconds, zone.clone())
        }
        DataType::Time32(_) | DataType::Time64(TimeUnit::Nanosecond) => DataType::Time64(microseconds),
        DataType::Interval(unit) if *unit != IntervalUnit::MonthDayNano => {
            DataType::Interval(IntervalUnit::MonthDayNano)
        }
        DataType::Duration(unit) if *unit != TimeUnit::Microsecond => DataType::Duration(microseconds),
        DataType::Decimal32(precision, scale) | DataType::Decimal64(precision, scale) => {
            DataType::Decimal128(*precision, *scale)
        }
        DataType::Dictionary(_, value) => DataType::clone(value),
        DataType::RunEndEncoded(_, value) => value.data_type().clone(),
        DataType::LargeBinary | DataType::BinaryView => DataType::Binary,
        DataType::ListView(item) | DataType::FixedSizeList(item, _) => DataType::List(Arc::clone(item)),
        DataType::LargeListView(item) => DataType::LargeList(Arc::clone(item)),
        _ => return Ok((Arc::clone(array), Arc::new(field.clone()))),
    };
    let failed = |error| Failure::new("XX000", format!("could not write a value of type {wanted}: {error}"));
    let array = cast(array, &wanted).map_err(failed)?;
    let field = field.clone().with_data_type(wanted.clone());
    ready(&array, &field)
}

fn put<'a>(array: &'a ArrayRef, field: &'a Field, is_binary: bool, zone: Zone) -> Result<Put<'a>, Failure> {
    Ok(match array.data_type() {
        DataType::Boolean => {
            let array = array.as_boolean();
            match is_binary {
                true => Box::new(move |row, out| out.put_u8(array.value(row).into())),
                false => Box::new(move |row, out| out.put_u8(if array.value(row) { b't' } else { b'f' })),
            }
        }
        DataType::Int16 => {
            let array = array.as_primitive::<Int16Type>();
            match is_binary {
                true => Box::new(move |row, out| out.put_i16(array.value(row))),
                false => Box::new(move |row, out| text::integer(out, array.value(row).into())),
            }
        }
        DataType::Int32 => {
            let array = array.as_primitive::<Int32Type>();
            match is_binary {
                true => Box::new(move |row, out| out.put_i32(array.value(row))),
                false => Box::new(move |row, out| text::integer(out, array.value(row).into())),
            }
        }
        DataType::Int64 => {
            let array = array.as_primitive::<Int64Type>();
            match is_binary {
                true => Box::new(move |row, out| out.put_i64(array.value(row))),
                false => Box::new(move |row, out| text::integer(out, array.value(row))),
            }
        }
        DataType::UInt64 => {
            let array = array.as_primitive::<UInt64Type>();
            match is_binary {
                true => Box::new(move |row, out| text::numeric(out, &array.value(row).to_string())),
                false => Box::new(move |row, out| text::unsigned(out, array.value(row))),
            }
        }
        DataType::Float32 => {
            let array = array.as_primitive::<Float32Type>();
            match is_binary {
                true => Box::new(move |row, out| out.put_f32(array.value(row))),
                false => Box::new(move |row, out| {
                    let value = array.value(row);
                    text::float(out, value.into(), &format!("{value:e}"), 6);
                }),
            }
        }
        DataType::Float64 => {
            let array = array.as_primitive::<Float64Type>();
            match is_binary {
                true => Box::new(move |row, out| out.put_f64(array.value(row))),
                false => Box::new(move |row, out| {
                    let value = array.value(row);
                    text::float(out, value, &format!("{value:e}"), 15);
                }),
            }
        }
        DataType::Decimal128(_, _) => {
            let array = array.as_primitive::<Decimal128Type>();
            match is_binary {
                true => Box::new(move |row, out| text::numeric(out, &array.value_as_string(row))),
                false => Box::new(move |row, out| out.put_slice(array.value_as_string(row).as_bytes())),
            }
        }
        DataType::Utf8 => {
            let array = array.as_string::<i32>();
            Box::new(move |row, out| out.put_slice(array.value(row).as_bytes()))
        }
        DataType::LargeUtf8 => {
            let array = array.as_string::<i64>();
            Box::new(move |row, out| out.put_slice(array.value(row).as_bytes()))
        }
        DataType::Utf8View => {
            let array = array.as_string_view();
            Box::new(move |row, out| out.put_slice(array.value(row).as_bytes()))
        }
        DataType::Binary => {
            let array = array.as_binary::<i32>();
            match is_binary {
                true => Box::new(move |row, out| out.put_slice(array.value(row))),
                false => Box::new(move |row, out| text::bytes(out, array.value(row))),
            }
        }
        DataType::FixedSizeBinary(_) => {
            let array: &FixedSizeBinaryArray = array.as_fixed_size_binary();
            let is_uuid = PgType::of_field(field).oid == types::UUID;
            match (is_binary, is_uuid) {
                (true, _) => Box::new(move |row, out| out.put_slice(array.value(row))),
                (false, true) => Box::new(move |row, out| text::uuid(out, array.value(row))),
                (false, false) => Box::new(move |row, out| text::bytes(out, array.value(row))),
            }
        }
        DataType::Date32 => {
            let array = array.as_primitive::<Date32Type>();
            match is_binary {
                true => Box::new(move |row, out| {
                    out.put_i32(array.value(row).saturating_sub(text::EPOCH_DAYS));
                }),
                false => Box::new(move |row, out| text::date(out, array.value(row).into())),
            }
        }
        DataType::Time64(_) => {
            let array = array.as_primitive::<Time64MicrosecondType>();
            match is_binary {
                true => Box::new(move |row, out| out.put_i64(array.value(row))),
                false => Box::new(move |row, out| text::time(out, array.value(row))),
            }
        }
        DataType::Timestamp(_, has_zone) => {
            let has_zone = has_zone.is_some();
            let array = array.as_primitive::<TimestampMicrosecondType>();
            match is_binary {
                true => Box::new(move |row, out| {
                    out.put_i64(array.value(row).saturating_sub(text::EPOCH_US));
                }),
                false => Box::new(move |row, out| {
                    let us = array.value(row);
                    text::timestamp(out, us, has_zone.then(|| zone.offset(us)));
                }),
            }
        }
        DataType::Interval(_) => {
            let array = array.as_primitive::<IntervalMonthDayNanoType>();
            Box::new(move |row, out| {
                let value = array.value(row);
                let us = value.nanoseconds / 1000;
                match is_binary {
                    true => {
                        out.put_i64(us);
                        out.put_i32(value.days);
                        out.put_i32(value.months);
                    }
                    false => text::interval(out, value.months, value.days, us),
                }
            })
        }
        DataType::Duration(_) => {
            let array = array.as_primitive::<arrow::datatypes::DurationMicrosecondType>();
            Box::new(move |row, out| match is_binary {
                true => {
                    out.put_i64(array.value(row));
                    out.put_i64(0);
                }
                false => text::interval(out, 0, 0, array.value(row)),
            })
        }
        DataType::List(item) => put_list(array.as_list::<i32>(), item, is_binary, zone),
        DataType::LargeList(item) => put_list(array.as_list::<i64>(), item, is_binary, zone),
        DataType::Struct(_) | DataType::Map(_, _) => {
            let shared = Arc::new(field.clone());
            let failed = |error| Failure::new("XX000", format!("could not write JSON: {error}"));
            // Checked once here; made again where it is used, since it borrows the field.
            make_encoder(&shared, array.as_ref(), &EncoderOptions::default()).map_err(failed)?;
            Box::new(move |row, out| {
                if let Ok(mut encoder) = make_encoder(&shared, array.as_ref(), &EncoderOptions::default()) {
                    let mut json = Vec::new();
                    encoder.encode(row, &mut json);
                    out.put_slice(&json);
                }
            })
        }
        _ => {
            let formatter = ArrayFormatter::try_new(array.as_ref(), &FormatOptions::new())
                .map_err(|error| Failure::new("XX000", format!("could not write a value: {error}")))?;
            let is_decimal = matches!(array.data_type(), DataType::Decimal256(_, _));
            Box::new(move |row, out| {
                let value = formatter.value(row).to_string();
                match is_binary && is_decimal {
                    true => text::numeric(out, &value),
                    false => out.put_slice(value.as_bytes()),
                }
            })
        }
    })
}

fn put_list<'a, O: OffsetSizeTrait>(
    array: &'a GenericListArray<O>,
    item: &'a Arc<Field>,
    is_binary: bool,
    zone: Zone,
) -> Put<'a> {
    Box::new(move |row, out| {
        let values = array.value(row);
        if is_binary {
            let mut lengths = Vec::new();
            let mut leaves = Vec::new();
            if flatten(&values, item, 0, &mut lengths, &mut leaves) {
                put_binary_list(&lengths, &leaves, item, zone, out);
                return;
            }
            // Arrays whose arrays differ in length have no binary form: what is there is told as an empty one.
            return put_binary_list(&[], &[], item, zone, out);
        }
        put_text_list(&values, item, zone, out);
    })
}

fn put_text_list(values: &ArrayRef, item: &Field, zone: Zone, out: &mut BytesMut) {
    let Ok((array, field)) = ready(values, item) else {
        return out.put_slice(b"{}");
    };
    let Ok(mut put) = put(&array, &field, false, zone) else {
        return out.put_slice(b"{}");
    };
    let is_list = PgType::of(array.data_type()).oid
        == PgType::of(&DataType::List(Arc::new(field.as_ref().clone()))).oid;
    let mut value = BytesMut::new();
    out.put_u8(b'{');
    for at in 0..array.len() {
        if at > 0 {
            out.put_u8(b',');
        }
        if array.is_null(at) {
            out.put_slice(b"NULL");
            continue;
        }
        value.clear();
        put(at, &mut value);
        let needs_quotes = value.is_empty()
            || value.eq_ignore_ascii_case(b"null")
            || value.iter().any(|byte| b"{},\"\\".contains(byte) || byte.is_ascii_whitespace());
        if is_list || !needs_quotes {
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
}

/// The innermost values of arrays in arrays and how long each level is; false if those of a level differ.
fn flatten(
    values: &ArrayRef,
    item: &Arc<Field>,
    depth: usize,
    lengths: &mut Vec<usize>,
    leaves: &mut Vec<(ArrayRef, Arc<Field>)>,
) -> bool {
    match lengths.get(depth) {
        Some(length) if *length != values.len() => return false,
        Some(_) => {}
        None => lengths.push(values.len()),
    }
    let Ok((array, field)) = ready(values, item) else {
        return false;
    };
    let inner: Vec<ArrayRef> = match array.data_type() {
        DataType::List(_) => (0..array.len()).map(|at| array.as_list::<i32>().value(at)).collect(),
        DataType::LargeList(_) => (0..array.len()).map(|at| array.as_list::<i64>().value(at)).collect(),
        _ => {
            leaves.push((array, field));
            return true;
        }
    };
    let (DataType::List(below) | DataType::LargeList(below)) = array.data_type() else {
        return false;
    };
    array.null_count() == 0 && inner.iter().all(|values| flatten(values, below, depth + 1, lengths, leaves))
}

fn put_binary_list(
    lengths: &[usize],
    leaves: &[(ArrayRef, Arc<Field>)],
    item: &Field,
    zone: Zone,
    out: &mut BytesMut,
) {
    let is_empty = lengths.contains(&0) || lengths.is_empty();
    let mut value_type = PgType::of_field(item).oid;
    while let Some(inner) = types::item_of(value_type) {
        value_type = inner;
    }
    let has_nulls = leaves.iter().any(|(array, _)| array.null_count() > 0);
    out.put_i32(if is_empty { 0 } else { lengths.len() as i32 });
    out.put_i32(has_nulls.into());
    out.put_u32(value_type);
    if is_empty {
        return;
    }
    for length in lengths {
        out.put_i32(*length as i32);
        out.put_i32(1);
    }
    for (array, field) in leaves {
        let Ok(mut put) = put(array, field, true, zone) else {
            (0..array.len()).for_each(|_| out.put_i32(-1));
            continue;
        };
        for at in 0..array.len() {
            match array.is_null(at) {
                true => out.put_i32(-1),
                false => sized(out, |out| put(at, out)),
            }
        }
    }
}
