//! Values that are not nested as text, in Hive's form.

use arrow::array::{ArrayRef, AsArray, Decimal32Array, Decimal64Array, Decimal128Array, Decimal256Array};
use arrow::compute::cast;
use arrow::datatypes::{
    DataType, Date32Type, Field, Float32Type, Float64Type, Int64Type, IntervalMonthDayNanoType, IntervalUnit,
    TimeUnit, TimestampMicrosecondType,
};
use bytes::{BufMut, BytesMut};
use harrier_error::{SqlError, SqlState};

use super::hive_type::is_uuid;
use crate::pg::text;
use crate::pg::zone::Zone;

/// A column whose values can be written as text.
pub(super) enum TextColumn {
    Utf8(ArrayRef),
    Date(ArrayRef),
    /// With the session's time zone, of values that have one.
    Timestamp(ArrayRef, Option<Zone>),
    Decimal(Decimal),
    Uuid(ArrayRef),
    Interval(ArrayRef),
    Integer(ArrayRef),
    Float(ArrayRef),
    Double(ArrayRef),
    Boolean(ArrayRef),
    Null,
}

pub(super) enum Decimal {
    Narrow(Decimal32Array),
    Medium(Decimal64Array),
    Wide(Decimal128Array),
    Huge(Decimal256Array),
}

impl Decimal {
    fn text(&self, row: usize) -> String {
        match self {
            Self::Narrow(array) => array.value_as_string(row),
            Self::Medium(array) => array.value_as_string(row),
            Self::Wide(array) => array.value_as_string(row),
            Self::Huge(array) => array.value_as_string(row),
        }
    }
}

/// Errors: there is no such cast (XX000).
pub(super) fn cast_to(array: &ArrayRef, wanted: &DataType) -> Result<ArrayRef, SqlError> {
    cast(array, wanted).map_err(|error| {
        SqlError::new(SqlState::INTERNAL_ERROR, format!("could not send a value as {wanted}: {error}"))
    })
}

impl TextColumn {
    pub fn new(field: &Field, array: &ArrayRef, zone: Zone) -> Result<Self, SqlError> {
        Ok(match field.data_type() {
            DataType::Null => Self::Null,
            DataType::Utf8 => Self::Utf8(ArrayRef::clone(array)),
            DataType::Date32 => Self::Date(ArrayRef::clone(array)),
            DataType::Date64 => Self::Date(cast_to(array, &DataType::Date32)?),
            DataType::Timestamp(_, has_zone) => {
                // Microseconds are what all other protocols have.
                let wanted = DataType::Timestamp(TimeUnit::Microsecond, has_zone.clone());
                Self::Timestamp(cast_to(array, &wanted)?, has_zone.as_ref().map(|_| zone))
            }
            DataType::Decimal32(..) => Self::Decimal(Decimal::Narrow(array.as_primitive().clone())),
            DataType::Decimal64(..) => Self::Decimal(Decimal::Medium(array.as_primitive().clone())),
            DataType::Decimal128(..) => Self::Decimal(Decimal::Wide(array.as_primitive().clone())),
            DataType::Decimal256(..) => Self::Decimal(Decimal::Huge(array.as_primitive().clone())),
            DataType::FixedSizeBinary(_) if is_uuid(field) => Self::Uuid(ArrayRef::clone(array)),
            DataType::Interval(_) => {
                Self::Interval(cast_to(array, &DataType::Interval(IntervalUnit::MonthDayNano))?)
            }
            DataType::UInt64 => Self::Decimal(Decimal::Wide(
                cast_to(array, &DataType::Decimal128(20, 0))?.as_primitive().clone(),
            )),
            kind if kind.is_integer() => Self::Integer(cast_to(array, &DataType::Int64)?),
            DataType::Boolean => Self::Boolean(ArrayRef::clone(array)),
            DataType::Float16 | DataType::Float32 => Self::Float(cast_to(array, &DataType::Float32)?),
            DataType::Float64 => Self::Double(ArrayRef::clone(array)),
            DataType::Binary
            | DataType::LargeBinary
            | DataType::BinaryView
            | DataType::FixedSizeBinary(_) => {
                return Err(SqlError::new(SqlState::INTERNAL_ERROR, "bytes are not sent as text"));
            }
            _ => Self::Utf8(cast_to(array, &DataType::Utf8)?),
        })
    }

    /// Writes the value of a row that is not NULL.
    pub fn write(&self, row: usize, out: &mut BytesMut) {
        match self {
            Self::Null => {}
            Self::Utf8(array) => out.put_slice(array.as_string::<i32>().value(row).as_bytes()),
            Self::Date(array) => text::date(out, i64::from(array.as_primitive::<Date32Type>().value(row))),
            Self::Timestamp(array, zone) => {
                let us = array.as_primitive::<TimestampMicrosecondType>().value(row);
                let offset = zone.map_or(0, |zone| i64::from(zone.offset(us)));
                text::timestamp(out, us.saturating_add(offset * 1_000_000), None);
            }
            Self::Decimal(array) => out.put_slice(array.text(row).as_bytes()),
            Self::Uuid(array) => {
                let bytes = array.as_fixed_size_binary().value(row);
                let text = uuid::Uuid::from_slice(bytes).map(|it| it.to_string()).unwrap_or_default();
                out.put_slice(text.as_bytes());
            }
            Self::Interval(array) => {
                let value = array.as_primitive::<IntervalMonthDayNanoType>().value(row);
                text::interval(out, value.months, value.days, value.nanoseconds / 1000);
            }
            Self::Integer(array) => text::integer(out, array.as_primitive::<Int64Type>().value(row)),
            Self::Boolean(array) => {
                out.put_slice(if array.as_boolean().value(row) { b"true" } else { b"false" });
            }
            Self::Float(array) => {
                float(out, &array.as_primitive::<Float32Type>().value(row).to_string());
            }
            Self::Double(array) => {
                float(out, &array.as_primitive::<Float64Type>().value(row).to_string());
            }
        }
    }
}

/// Writes a number from its shortest text, with a fraction as Java has it.
fn float(out: &mut BytesMut, shortest: &str) {
    match shortest {
        "inf" => out.put_slice(b"Infinity"),
        "-inf" => out.put_slice(b"-Infinity"),
        "NaN" => out.put_slice(b"NaN"),
        number => {
            out.put_slice(number.as_bytes());
            if !number.contains('.') {
                out.put_slice(b".0");
            }
        }
    }
}
