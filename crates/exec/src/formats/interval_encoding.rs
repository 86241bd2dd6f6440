//! Encoding of intervals in data files: twelve bytes with months, days and milliseconds.
//!
//! This is Parquet's own interval type, but not a type of Arrow, and the library's conversion loses months.
//! So the library reads and writes them as bytes (`interval_parquet.rs`), and a function in the plan decodes
//! them.
//!
//! Parquet's three numbers are unsigned, so files cannot store negative intervals, fractions of a
//! millisecond, or 2^32 milliseconds and more. DuckDB's files are the same.
//!
//! UUIDs are stored as bytes, too (`functions/src/uuid_text.rs`); the same function decodes them to text.

use std::ops::Range;
use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, FixedSizeBinaryBuilder, IntervalMonthDayNanoArray, ListArray, MapArray,
    StructArray,
};
use datafusion::arrow::buffer::OffsetBuffer;
use datafusion::arrow::datatypes::{
    DataType, FieldRef, IntervalMonthDayNano, IntervalMonthDayNanoType, IntervalUnit, Schema, SchemaRef,
};
use datafusion::common::{DataFusionError, Result, internal_err};
use datafusion::config::ConfigOptions;
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr};

use super::nested_types::replace_type;
use harrier_error::{SqlError, SqlState};
use harrier_functions::uuid_text;
use harrier_sqlstate::IntoDataFusionError;

/// Bytes of an interval in a file.
pub(crate) const WIDTH: i32 = 12;

/// The type in plans.
const PLAN_TYPE: DataType = DataType::Interval(IntervalUnit::MonthDayNano);
/// The type in files. No column of a table has such values of its own.
const FILE_TYPE: DataType = DataType::FixedSizeBinary(WIDTH);

const NANOSECONDS: i64 = 1_000_000;

/// Maps a column type to its type in files: nested intervals are replaced.
pub fn file_type(kind: &DataType) -> DataType {
    replace_type(kind, &PLAN_TYPE, &FILE_TYPE)
}

/// Maps a type read from files to its type in plans.
fn plan_type(kind: &DataType) -> DataType {
    replace_type(&replace_type(kind, &FILE_TYPE, &PLAN_TYPE), &uuid_text::STORED, &uuid_text::SHOWN)
}

/// Whether a type read from files contains intervals.
pub(crate) fn has_file_type(kind: &DataType) -> bool {
    replace_type(kind, &FILE_TYPE, &PLAN_TYPE) != *kind
}

/// The schema in which rows of `schema` are written.
pub(crate) fn file_schema(schema: &Schema) -> SchemaRef {
    let stored = |field: &FieldRef| field.as_ref().clone().with_data_type(file_type(field.data_type()));
    let fields: Vec<_> = schema.fields().iter().map(stored).collect();
    Arc::new(Schema::new_with_metadata(fields, schema.metadata().clone()))
}

/// Encodes a column for a file.
///
/// Errors: an interval cannot be stored (22008).
pub(crate) fn encode_intervals(values: &ArrayRef, column: &str) -> Result<ArrayRef> {
    convert_nested(values, &PLAN_TYPE, &FILE_TYPE, &|values: &ArrayRef| -> Result<ArrayRef> {
        let values = values.as_primitive::<IntervalMonthDayNanoType>();
        let mut bytes = FixedSizeBinaryBuilder::with_capacity(values.len(), WIDTH);
        for value in values.iter() {
            match value {
                Some(value) => match bytes_of(value) {
                    Some(value) => bytes.append_value(value)?,
                    None => return Err(out_of_range(value, column)),
                },
                None => bytes.append_null(),
            }
        }
        Ok(Arc::new(bytes.finish()))
    })
}

/// Rounds a column to the values that a file would return.
///
/// Errors: as of [`encode_intervals`].
pub fn round_to_stored(values: &ArrayRef, column: &str) -> Result<ArrayRef> {
    decode_intervals(&encode_intervals(values, column)?)
}

fn decode_intervals(values: &ArrayRef) -> Result<ArrayRef> {
    let values = convert_nested(values, &FILE_TYPE, &PLAN_TYPE, &|values: &ArrayRef| -> Result<ArrayRef> {
        let values = values.as_fixed_size_binary();
        Ok(Arc::new(IntervalMonthDayNanoArray::from_unary(values, interval_of)))
    })?;
    convert_nested(&values, &uuid_text::STORED, &uuid_text::SHOWN, &|values: &ArrayRef| {
        Ok(uuid_text::to_texts(values))
    })
}

fn bytes_of(interval: IntervalMonthDayNano) -> Option<[u8; WIDTH as usize]> {
    let months = u32::try_from(interval.months).ok()?;
    let days = u32::try_from(interval.days).ok()?;
    let nanoseconds = u64::try_from(interval.nanoseconds).ok()?;
    let milliseconds = u32::try_from(nanoseconds / NANOSECONDS as u64).ok()?;
    let mut bytes = [0; WIDTH as usize];
    for (part, value) in bytes.chunks_exact_mut(4).zip([months, days, milliseconds]) {
        part.copy_from_slice(&value.to_le_bytes());
    }
    Some(bytes)
}

/// Decodes twelve bytes. Months and days are read as signed, as in DuckDB.
fn interval_of(bytes: &[u8]) -> IntervalMonthDayNano {
    let part = |at: usize| [bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]];
    let milliseconds = u32::from_le_bytes(part(8));
    IntervalMonthDayNano::new(
        i32::from_le_bytes(part(0)),
        i32::from_le_bytes(part(4)),
        i64::from(milliseconds) * NANOSECONDS,
    )
}

fn out_of_range(interval: IntervalMonthDayNano, column: &str) -> DataFusionError {
    let message = format!("interval {} is out of range for column \"{column}\"", format_interval(interval));
    SqlError::new(SqlState::DATETIME_FIELD_OVERFLOW, message)
        .with_detail("files have no months, days or time below zero, and less than 2^32 milliseconds")
        .into_datafusion()
}

/// Converts all values of type `from` within `values` to type `to`.
fn convert_nested(
    values: &ArrayRef,
    from: &DataType,
    to: &DataType,
    convert: &dyn Fn(&ArrayRef) -> Result<ArrayRef>,
) -> Result<ArrayRef> {
    let kind = replace_type(values.data_type(), from, to);
    if kind == *values.data_type() {
        return Ok(Arc::clone(values));
    }
    let inside = |values: &ArrayRef| convert_nested(values, from, to, convert);
    Ok(match kind {
        DataType::Struct(fields) => {
            let parts = values.as_struct();
            let columns = parts.columns().iter().map(inside).collect::<Result<Vec<_>>>()?;
            Arc::new(StructArray::try_new(fields, columns, parts.nulls().cloned())?)
        }
        DataType::List(element) => {
            let list = values.as_list::<i32>();
            let (offsets, own) = from_zero(list.offsets());
            let elements = inside(&list.values().slice(own.start, own.len()))?;
            Arc::new(ListArray::try_new(element, offsets, elements, list.nulls().cloned())?)
        }
        DataType::Map(entries, sorted) => {
            let map = values.as_map();
            let (offsets, own) = from_zero(map.offsets());
            let pairs: ArrayRef = Arc::new(map.entries().slice(own.start, own.len()));
            let pairs = inside(&pairs)?.as_struct().clone();
            Arc::new(MapArray::try_new(entries, offsets, pairs, map.nulls().cloned(), sorted)?)
        }
        _ => convert(values)?,
    })
}

/// Rebases offsets to zero; returns the range of the referenced elements, too.
fn from_zero(offsets: &OffsetBuffer<i32>) -> (OffsetBuffer<i32>, Range<usize>) {
    let (first, last) = (offsets[0] as usize, offsets[offsets.len() - 1] as usize);
    (OffsetBuffer::from_lengths(offsets.lengths()), first..last)
}

/// Formats as DuckDB does, which PostgreSQL reads, too: `1 year 2 months -3 days 04:05:06.7`.
pub(crate) fn format_interval(interval: IntervalMonthDayNano) -> String {
    let IntervalMonthDayNano { months, days, nanoseconds } = interval;
    let mut words: Vec<String> = [(months / 12, "year"), (months % 12, "month"), (days, "day")]
        .into_iter()
        .filter(|(amount, _)| *amount != 0)
        .map(|(amount, unit)| format!("{amount} {unit}{}", if amount.unsigned_abs() == 1 { "" } else { "s" }))
        .collect();
    let microseconds = nanoseconds / 1_000;
    if microseconds != 0 || words.is_empty() {
        let sign = if microseconds < 0 { "-" } else { "" };
        let microseconds = microseconds.unsigned_abs();
        let (seconds, fraction) = (microseconds / 1_000_000, microseconds % 1_000_000);
        let clock = format!("{sign}{:02}:{:02}:{:02}", seconds / 3_600, seconds / 60 % 60, seconds % 60);
        words.push(match fraction {
            0 => clock,
            _ => format!("{clock}.{fraction:06}").trim_end_matches('0').to_string(),
        });
    }
    words.join(" ")
}

/// Decodes the intervals and UUIDs of `column`, read from files; returns it unchanged if it has none.
pub fn decode_column(
    column: Arc<dyn PhysicalExpr>,
    schema: &Schema,
    options: &Arc<ConfigOptions>,
) -> Result<Arc<dyn PhysicalExpr>> {
    let kind = column.data_type(schema)?;
    if plan_type(&kind) == kind {
        return Ok(column);
    }
    Ok(Arc::new(ScalarFunctionExpr::try_new(function(), vec![column], schema, Arc::clone(options))?))
}

/// The decoding function; plans name it when sent to ranks.
pub(crate) fn function() -> Arc<ScalarUDF> {
    Arc::new(ScalarUDF::new_from_impl(DecodeFunction { signature: Signature::any(1, Volatility::Immutable) }))
}

/// (stored values) → decoded values.
#[derive(Debug, PartialEq, Eq, Hash)]
struct DecodeFunction {
    signature: Signature,
}

impl ScalarUDFImpl for DecodeFunction {
    fn name(&self) -> &str {
        "harrier_intervals"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        match arguments {
            [kind] => Ok(plan_type(kind)),
            _ => internal_err!("intervals of {} columns", arguments.len()),
        }
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [values] = arguments.args.as_slice() else {
            return internal_err!("intervals of {} columns", arguments.args.len());
        };
        Ok(ColumnarValue::Array(decode_intervals(&values.to_array(arguments.number_rows)?)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::arrow::datatypes::{Field, Fields};

    const HOUR: i64 = 3_600_000_000_000;

    fn array(values: &[Option<(i32, i32, i64)>]) -> ArrayRef {
        let interval = |parts: &(i32, i32, i64)| IntervalMonthDayNano::new(parts.0, parts.1, parts.2);
        let values = values.iter().map(|value| value.as_ref().map(interval));
        Arc::new(values.collect::<IntervalMonthDayNanoArray>())
    }

    #[test]
    fn intervals_are_stored_in_milliseconds() {
        let values = array(&[
            Some((14, 3, 4 * HOUR + 1_234_567)),
            None,
            Some((0, 0, 0)),
            Some((i32::MAX, i32::MAX, 4_294_967_295_999_999)),
        ]);
        let expected = array(&[
            Some((14, 3, 4 * HOUR + 1_000_000)),
            None,
            Some((0, 0, 0)),
            Some((i32::MAX, i32::MAX, 4_294_967_295_000_000)),
        ]);
        assert_eq!(encode_intervals(&values, "v").unwrap().data_type(), &FILE_TYPE);
        assert_eq!(&round_to_stored(&values, "v").unwrap(), &expected);
    }

    #[test]
    fn out_of_range_intervals_are_rejected() {
        for value in [(-1, 0, 0), (0, -1, 0), (0, 0, -1), (1, -1, 0), (0, 0, 4_294_967_296_000_000)] {
            let error = encode_intervals(&array(&[None, Some(value)]), "v").unwrap_err();
            assert_eq!(harrier_sqlstate::of(&error), SqlState::DATETIME_FIELD_OVERFLOW, "{value:?}");
        }
    }

    #[test]
    fn nested_intervals_are_stored() {
        let leaves = array(&[Some((-1, 0, 0)), Some((1, 2, HOUR)), None, Some((3, 0, 0))]);
        let part = Field::new("a", PLAN_TYPE, true);
        let parts: ArrayRef =
            Arc::new(StructArray::try_new(Fields::from(vec![part]), vec![leaves], None).unwrap());
        let element = Arc::new(Field::new("element", parts.data_type().clone(), true));
        let offsets = OffsetBuffer::from_lengths([1, 2, 1]);
        let lists: ArrayRef = Arc::new(ListArray::try_new(element, offsets, parts, None).unwrap());
        assert!(encode_intervals(&lists, "l").is_err());
        // Elements outside the sliced lists do not count.
        let lists = lists.slice(1, 2);
        let bytes = encode_intervals(&lists, "l").unwrap();
        assert!(has_file_type(bytes.data_type()) && !has_file_type(lists.data_type()));
        assert_eq!(bytes.data_type(), &file_type(lists.data_type()));
        assert_eq!(&round_to_stored(&lists, "l").unwrap(), &lists);
    }

    #[test]
    fn texts_are_duckdbs() {
        let clock = 4 * HOUR + 306_789_012_000;
        for (months, days, nanoseconds, expected) in [
            (14, 3, clock, "1 year 2 months 3 days 04:05:06.789012"),
            (-14, 3, -clock, "-1 year -2 months 3 days -04:05:06.789012"),
            (25, 0, 0, "2 years 1 month"),
            (0, -1, 0, "-1 day"),
            (0, 0, 700_000_000, "00:00:00.7"),
            (0, 0, 100 * HOUR, "100:00:00"),
            (0, 0, 0, "00:00:00"),
        ] {
            assert_eq!(format_interval(IntervalMonthDayNano::new(months, days, nanoseconds)), expected);
        }
    }
}
