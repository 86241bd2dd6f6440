//! Intervals as data files have them: twelve bytes with months, days and milliseconds.
//!
//! That is Parquet's own type for intervals, but no type of Arrow, and what the library makes of it has no
//! months. To the library they are bytes: rows are written as such, read as such (`interval_files.rs`), and a
//! function in the plan makes intervals of them.
//!
//! Parquet's three numbers have no sign, so files have nothing below zero, no fractions of a millisecond, and
//! 2^32 of those at most. DuckDB's files are the same.
//!
//! UUIDs are bytes as well there (`functions/src/uuid_text.rs`), and the same function makes texts of them.

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

use super::nested_types::replaced;
use harrier_error::{SqlError, SqlState};
use harrier_functions::uuid_text;
use harrier_sqlstate::IntoDataFusionError;

/// Bytes of an interval in a file.
pub(super) const WIDTH: i32 = 12;

/// In plans.
const SHOWN: DataType = DataType::Interval(IntervalUnit::MonthDayNano);
/// In files. No column of a table has such values of its own.
const STORED: DataType = DataType::FixedSizeBinary(WIDTH);

const NANOSECONDS: i64 = 1_000_000;

/// The type that values of `kind` are read from files with: another one if there are intervals in them.
pub fn stored_type(kind: &DataType) -> DataType {
    replaced(kind, &SHOWN, &STORED)
}

/// The type that values which were read as `kind` have in plans.
fn shown_type(kind: &DataType) -> DataType {
    replaced(&replaced(kind, &STORED, &SHOWN), &uuid_text::STORED, &uuid_text::SHOWN)
}

/// Whether values that were read from files have intervals in them.
pub(super) fn has_stored(kind: &DataType) -> bool {
    replaced(kind, &STORED, &SHOWN) != *kind
}

/// What rows of `schema` are written with.
pub(super) fn stored_schema(schema: &Schema) -> SchemaRef {
    let stored = |field: &FieldRef| field.as_ref().clone().with_data_type(stored_type(field.data_type()));
    let fields: Vec<_> = schema.fields().iter().map(stored).collect();
    Arc::new(Schema::new_with_metadata(fields, schema.metadata().clone()))
}

/// The values of a column for a file.
///
/// Errors: there is an interval that files do not have (22008).
pub(super) fn stored(values: &ArrayRef, column: &str) -> Result<ArrayRef> {
    converted(values, &SHOWN, &STORED, &|values: &ArrayRef| -> Result<ArrayRef> {
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

/// The values of a column as a file would give them back.
///
/// Errors: those of [`stored`].
pub fn storable(values: &ArrayRef, column: &str) -> Result<ArrayRef> {
    shown(&stored(values, column)?)
}

fn shown(values: &ArrayRef) -> Result<ArrayRef> {
    let values = converted(values, &STORED, &SHOWN, &|values: &ArrayRef| -> Result<ArrayRef> {
        let values = values.as_fixed_size_binary();
        Ok(Arc::new(IntervalMonthDayNanoArray::from_unary(values, interval_of)))
    })?;
    converted(&values, &uuid_text::STORED, &uuid_text::SHOWN, &|values: &ArrayRef| {
        Ok(uuid_text::shown(values))
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

/// Of twelve bytes. Months and days are read with a sign, as DuckDB does it.
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
    let message = format!("interval {} is out of range for column \"{column}\"", text(interval));
    SqlError::new(SqlState::DATETIME_FIELD_OVERFLOW, message)
        .with_detail("files have no months, days or time below zero, and less than 2^32 milliseconds")
        .into_datafusion()
}

/// `values` with whatever in them is of type `from` made values of type `to`.
fn converted(
    values: &ArrayRef,
    from: &DataType,
    to: &DataType,
    convert: &dyn Fn(&ArrayRef) -> Result<ArrayRef>,
) -> Result<ArrayRef> {
    let kind = replaced(values.data_type(), from, to);
    if kind == *values.data_type() {
        return Ok(Arc::clone(values));
    }
    let inside = |values: &ArrayRef| converted(values, from, to, convert);
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

/// Offsets into the elements of these lists alone, and where those are among all that the lists were cut
/// from.
fn from_zero(offsets: &OffsetBuffer<i32>) -> (OffsetBuffer<i32>, Range<usize>) {
    let (first, last) = (offsets[0] as usize, offsets[offsets.len() - 1] as usize);
    (OffsetBuffer::from_lengths(offsets.lengths()), first..last)
}

/// As DuckDB writes it, which PostgreSQL reads, too: `1 year 2 months -3 days 04:05:06.7`.
pub(super) fn text(interval: IntervalMonthDayNano) -> String {
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

/// `column`, of rows that were read from files, with its intervals and UUIDs; itself, if it has none.
pub fn shown_column(
    column: Arc<dyn PhysicalExpr>,
    schema: &Schema,
    options: &Arc<ConfigOptions>,
) -> Result<Arc<dyn PhysicalExpr>> {
    let kind = column.data_type(schema)?;
    if shown_type(&kind) == kind {
        return Ok(column);
    }
    Ok(Arc::new(ScalarFunctionExpr::try_new(function(), vec![column], schema, Arc::clone(options))?))
}

/// The function; it travels to ranks by its name.
pub(crate) fn function() -> Arc<ScalarUDF> {
    Arc::new(ScalarUDF::new_from_impl(Shown { signature: Signature::any(1, Volatility::Immutable) }))
}

/// (values of a file) → the same with intervals.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Shown {
    signature: Signature,
}

impl ScalarUDFImpl for Shown {
    fn name(&self) -> &str {
        "harrier_intervals"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        match arguments {
            [kind] => Ok(shown_type(kind)),
            _ => internal_err!("intervals of {} columns", arguments.len()),
        }
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [values] = arguments.args.as_slice() else {
            return internal_err!("intervals of {} columns", arguments.args.len());
        };
        Ok(ColumnarValue::Array(shown(&values.to_array(arguments.number_rows)?)?))
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
    fn files_have_whole_milliseconds() {
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
        assert_eq!(stored(&values, "v").unwrap().data_type(), &STORED);
        assert_eq!(&storable(&values, "v").unwrap(), &expected);
    }

    #[test]
    fn what_files_do_not_have_is_refused() {
        for value in [(-1, 0, 0), (0, -1, 0), (0, 0, -1), (1, -1, 0), (0, 0, 4_294_967_296_000_000)] {
            let error = stored(&array(&[None, Some(value)]), "v").unwrap_err();
            assert_eq!(harrier_sqlstate::of(&error), SqlState::DATETIME_FIELD_OVERFLOW, "{value:?}");
        }
    }

    #[test]
    fn nested_intervals_are_stored() {
        let leaves = array(&[Some((-1, 0, 0)), Some((1, 2, HOUR)), None, Some((3, 0, 0))]);
        let part = Field::new("a", SHOWN, true);
        let parts: ArrayRef =
            Arc::new(StructArray::try_new(Fields::from(vec![part]), vec![leaves], None).unwrap());
        let element = Arc::new(Field::new("element", parts.data_type().clone(), true));
        let offsets = OffsetBuffer::from_lengths([1, 2, 1]);
        let lists: ArrayRef = Arc::new(ListArray::try_new(element, offsets, parts, None).unwrap());
        assert!(stored(&lists, "l").is_err());
        // What only the lists that were cut off have does not count.
        let lists = lists.slice(1, 2);
        let bytes = stored(&lists, "l").unwrap();
        assert!(has_stored(bytes.data_type()) && !has_stored(lists.data_type()));
        assert_eq!(bytes.data_type(), &stored_type(lists.data_type()));
        assert_eq!(&storable(&lists, "l").unwrap(), &lists);
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
            assert_eq!(text(IntervalMonthDayNano::new(months, days, nanoseconds)), expected);
        }
    }
}
