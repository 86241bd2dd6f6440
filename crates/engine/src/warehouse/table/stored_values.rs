//! Values stored as text in the catalog: statistics, and inlined rows.

use std::collections::BTreeMap;
use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, BinaryViewArray, BooleanArray, Int64Array, RecordBatch, StringArray,
    StringViewArray, new_null_array,
};
use datafusion::arrow::compute::cast;
use datafusion::arrow::compute::kernels::cmp;
use datafusion::arrow::compute::kernels::zip::zip;
use datafusion::arrow::datatypes::{DataType, Int64Type, SchemaRef};
use datafusion::common::ScalarValue;
use datafusion::error::Result;
use harrier_catalog::files::{Cell, ColumnStats};
use harrier_catalog::state::{Column, ColumnId};
use harrier_catalog::types::ColumnType;
use harrier_error::{SqlError, SqlState};
use harrier_exec::data_files::text_of;
use harrier_exec::formats::interval_encoding::round_to_stored;
use harrier_functions::datetime::infinity::with_far;
use harrier_functions::parse::text_array::parse_array;
use harrier_sqlstate::IntoDataFusionError;

use crate::types::columns::type_of;

/// Converts a column's bounds in files to its current type. `written`: its type when each file was written,
/// if some differ. Other programs may since have merged such a file and rewritten its bounds, so the result
/// covers the text's meaning as either type. `is_lower`: whether these are lower bounds.
pub(crate) fn bounds(
    texts: StringArray,
    column: &Column,
    kind: &DataType,
    written: Option<&[ColumnType]>,
    is_lower: bool,
) -> Result<ArrayRef> {
    let mut values = parse_array(&texts, kind)?;
    let mut seen = Vec::new();
    for old in written.unwrap_or_default() {
        if *old == column.kind || seen.contains(old) {
            continue;
        }
        seen.push(*old);
        let other = match column.kind {
            // Text has a different order.
            ColumnType::Varchar | ColumnType::Json => new_null_array(kind, texts.len()),
            _ => cast(&parse_array(&texts, &type_of(&with_type(column, *old), false)?)?, kind)?,
        };
        let is_first = match is_lower {
            true => cmp::lt_eq(&values, &other)?,
            false => cmp::gt_eq(&values, &other)?,
        };
        // Where one of both is NULL the other is used: a text that is not a value of the new type was written
        // as the old one.
        let covering = zip(&is_first, &values, &other)?;
        let is_old: BooleanArray = written.unwrap_or_default().iter().map(|kind| Some(kind == old)).collect();
        values = zip(&is_old, &covering, &values)?;
    }
    Ok(values)
}

/// The column with another type.
fn with_type(column: &Column, kind: ColumnType) -> Column {
    Column { kind, ..column.clone() }
}

/// Rewrites the text of a value that was written as another type for the current one; unchanged if it cannot
/// be converted.
pub(crate) fn text_as_now(text: &str, column: &Column, written: ColumnType) -> Result<String> {
    if written == column.kind {
        return Ok(text.to_string());
    }
    let old = parse_one(text, &type_of(&with_type(column, written), false)?)?;
    let now = cast(&old.to_array()?, &type_of(column, false)?)?;
    Ok(constant(&now, &column.name)?.unwrap_or_else(|| text.to_string()))
}

/// Parses a text as a value of `kind`, as written by [`constant`].
pub(crate) fn parse_one(text: &str, kind: &DataType) -> Result<ScalarValue> {
    if kind.is_binary() {
        return ScalarValue::BinaryView(bytes_of_text(text)).cast_to(kind);
    }
    ScalarValue::try_from_array(&parse_array(&StringArray::from(vec![text]), kind)?, 0)
}

/// Formats the only value of an array in the catalog's encoding; `None` for NULL. `column`: its column, for
/// errors.
///
/// Errors: the catalog has no text form for it.
pub(crate) fn constant(value: &ArrayRef, column: &str) -> Result<Option<String>> {
    if value.data_type().is_binary() {
        let bytes = cast(value, &DataType::BinaryView)?;
        return Ok(bytes.as_binary_view().iter().next().flatten().map(text_of_bytes));
    }
    if value.data_type().is_nested() && value.is_valid(0) {
        let message =
            format!("a constant of column \"{column}\" of type {} cannot be kept", value.data_type());
        return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message).into_datafusion());
    }
    let texts = text_of(&round_to_stored(value, column)?)?;
    Ok(texts.iter().next().flatten().map(str::to_string))
}

/// Encodes bytes as DuckDB does: all but printable ASCII as `\xHH`, also quotation marks and the backslash.
fn text_of_bytes(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for byte in bytes {
        match byte {
            b'\\' | b'\'' | b'"' => text.push_str(&format!("\\x{byte:02X}")),
            b' '..=b'~' => text.push(char::from(*byte)),
            _ => text.push_str(&format!("\\x{byte:02X}")),
        }
    }
    text
}

/// Decodes such a text; `None` if it is malformed.
fn bytes_of_text(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, behind)) = rest.split_first() {
        rest = behind;
        bytes.push(match first {
            b'\\' => {
                let digits = std::str::from_utf8(rest.strip_prefix(b"x")?.get(..2)?).ok()?;
                rest = &rest[3..];
                u8::from_str_radix(digits, 16).ok()?
            }
            other => *other,
        });
    }
    Some(bytes)
}

/// Converts inlined rows to a batch of `schema`. `from`: the index of each column in `rows`, and its type
/// when they were written; `None` for a column that was added later and has its
/// [`missing_value`](super::missing_value).
pub(crate) fn rows_of(
    rows: &[Vec<Cell>],
    columns: &[&Column],
    from: &[Option<(usize, ColumnType)>],
    schema: &SchemaRef,
) -> Result<RecordBatch> {
    let mut arrays = Vec::with_capacity(columns.len());
    for (column, from) in columns.iter().zip(from) {
        let kind = type_of(column, false)?;
        arrays.push(match from {
            Some((at, written)) if *written == column.kind => {
                column_of_cells(rows.iter().map(|row| &row[*at]), column, &kind)?
            }
            Some((at, written)) => {
                let column = with_type(column, *written);
                let old = type_of(&column, false)?;
                cast(&column_of_cells(rows.iter().map(|row| &row[*at]), &column, &old)?, &kind)?
            }
            None => match &column.initial_default {
                Some(text) => parse_one(text, &kind)?.to_array_of_size(rows.len())?,
                None => new_null_array(&kind, rows.len()),
            },
        });
    }
    let count = datafusion::arrow::array::RecordBatchOptions::new().with_row_count(Some(rows.len()));
    Ok(RecordBatch::try_new_with_options(Arc::clone(schema), arrays, &count)?)
}

fn column_of_cells<'a>(
    cells: impl Iterator<Item = &'a Cell>,
    column: &Column,
    kind: &DataType,
) -> Result<ArrayRef> {
    if column.kind.is_nested() {
        return Err(SqlError::new(
            SqlState::FEATURE_NOT_SUPPORTED,
            format!(
                "column \"{}\" has nested values in the catalog, which Harrier does not read",
                column.name
            ),
        )
        .with_hint("in DuckDB, CALL ducklake_flush_inlined_data('…') moves them into files")
        .into_datafusion());
    }
    if matches!(kind, DataType::BinaryView) {
        let bytes = cells.map(|cell| match cell {
            Cell::Null => None,
            Cell::Blob(bytes) => Some(bytes.clone()),
            Cell::Text(text) => Some(text.clone().into_bytes()),
            Cell::Integer(number) => Some(number.to_string().into_bytes()),
        });
        let bytes: Vec<_> = bytes.collect();
        return Ok(Arc::new(BinaryViewArray::from_iter(bytes)));
    }
    let texts = cells.map(|cell| match cell {
        Cell::Null => Ok(None),
        Cell::Integer(number) if column.kind == ColumnType::Boolean => Ok(Some((*number != 0).to_string())),
        Cell::Integer(number) => Ok(Some(number.to_string())),
        Cell::Text(text) => Ok(Some(text.clone())),
        Cell::Blob(bytes) => match String::from_utf8(bytes.clone()) {
            Ok(text) => Ok(Some(text)),
            Err(_) => Err(corrupted_value(column)),
        },
    });
    let texts = texts.collect::<Result<Vec<_>>>()?;
    if kind == &DataType::Utf8View {
        return Ok(Arc::new(StringViewArray::from_iter(texts)));
    }
    let texts = StringArray::from_iter(texts);
    let nulls = texts.null_count();
    let values = match column.kind {
        ColumnType::Interval => parse_array(&texts, kind)?,
        _ => with_far(cast(&texts, kind)?, &texts)?,
    };
    if values.null_count() > nulls {
        return Err(match column.kind {
            ColumnType::Int128 | ColumnType::UInt128 => {
                let message = format!("a value of column \"{}\" is out of range for {kind}", column.name);
                SqlError::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, message).into_datafusion()
            }
            _ => corrupted_value(column),
        });
    }
    Ok(values)
}

fn corrupted_value(column: &Column) -> datafusion::error::DataFusionError {
    SqlError::new(
        SqlState::DATA_CORRUPTED,
        format!("the catalog keeps a value of column \"{}\" that is no {}", column.name, column.kind),
    )
    .into_datafusion()
}

/// Whether rows of these columns can be inlined in the catalog.
pub(crate) fn can_inline(columns: &[Column]) -> bool {
    let is_kept = |kind: ColumnType| {
        // UHUGEINT values are read as a type with a different range.
        !kind.is_nested() && kind != ColumnType::UInt128
    };
    columns.iter().all(|column| is_kept(column.kind))
}

/// The rows of a batch as catalog cells.
pub(crate) fn cells_of(batch: &RecordBatch) -> Result<Vec<Vec<Cell>>> {
    let columns = batch.columns().iter().map(cells_of_column).collect::<Result<Vec<_>>>()?;
    Ok((0..batch.num_rows()).map(|row| columns.iter().map(|column| column[row].clone()).collect()).collect())
}

fn cells_of_column(column: &ArrayRef) -> Result<Vec<Cell>> {
    let kind = column.data_type();
    let each = |cell: &dyn Fn(usize) -> Cell| {
        (0..column.len()).map(|at| if column.is_valid(at) { cell(at) } else { Cell::Null }).collect()
    };
    Ok(match kind {
        DataType::Boolean => {
            let values = column.as_boolean();
            each(&|at| Cell::Integer(values.value(at).into()))
        }
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView => {
            let values = cast(column, &DataType::BinaryView)?;
            let values = values.as_binary_view();
            each(&|at| Cell::Blob(values.value(at).to_vec()))
        }
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => {
            let values = cast(column, &DataType::Utf8View)?;
            let values = values.as_string_view();
            each(&|at| Cell::Text(values.value(at).to_string()))
        }
        kind if kind.is_integer() && *kind != DataType::UInt64 => {
            let values = cast(column, &DataType::Int64)?;
            let values: &Int64Array = values.as_primitive::<Int64Type>();
            each(&|at| Cell::Integer(values.value(at)))
        }
        _ => {
            let values = text_of(column)?;
            each(&|at| Cell::Text(values.value(at).to_string()))
        }
    })
}

/// The statistics of inlined rows.
pub(crate) fn stats_of_cells(
    rows: &[Vec<Cell>],
    columns: &[Column],
) -> Result<BTreeMap<ColumnId, ColumnStats>> {
    let stats = |(at, column): (usize, &Column)| {
        let kind = type_of(column, false)?;
        let values = column_of_cells(rows.iter().map(|row| &row[at]), column, &kind)?;
        Ok((column.id, stats_of(&values)?))
    };
    columns.iter().enumerate().map(stats).collect()
}

/// The statistics of one column's values.
pub(crate) fn stats_of(column: &ArrayRef) -> Result<ColumnStats> {
    let nulls = column.logical_null_count() as i64;
    let mut stats = ColumnStats {
        values: Some(column.len() as i64 - nulls),
        nulls: Some(nulls),
        ..ColumnStats::default()
    };
    // DuckDB orders intervals differently.
    if column.data_type().is_nested()
        || matches!(column.data_type(), DataType::BinaryView | DataType::Interval(_))
    {
        return Ok(stats);
    }
    let mut values = (0..column.len())
        .filter(|at| column.is_valid(*at))
        .map(|at| ScalarValue::try_from_array(column, at))
        .collect::<Result<Vec<_>>>()?;
    if column.data_type().is_floating() {
        let is_nan = |value: &ScalarValue| {
            matches!(value, ScalarValue::Float32(Some(v)) if v.is_nan())
                || matches!(value, ScalarValue::Float64(Some(v)) if v.is_nan())
        };
        stats.nan = Some(values.iter().any(is_nan));
        values.retain(|value| !is_nan(value));
    }
    values.sort_by(|a, b| a.partial_cmp(b).unwrap_or(std::cmp::Ordering::Equal));
    let text = |value: Option<&ScalarValue>| -> Result<Option<String>> {
        let Some(value) = value else { return Ok(None) };
        Ok(text_of(&value.to_array()?)?.iter().next().flatten().map(str::to_string))
    };
    stats.min = text(values.first())?;
    stats.max = text(values.last())?;
    Ok(stats)
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::datatypes::{IntervalMonthDayNano, IntervalUnit};

    use super::*;

    #[test]
    fn byte_constants_round_trip() {
        for (bytes, text) in
            [(&b""[..], ""), (b"plain text", "plain text"), (b"a\\b'\"\0\xff", "a\\x5Cb\\x27\\x22\\x00\\xFF")]
        {
            let value = ScalarValue::BinaryView(Some(bytes.to_vec()));
            assert_eq!(constant(&value.to_array().unwrap(), "a").unwrap().as_deref(), Some(text));
            assert_eq!(parse_one(text, &DataType::BinaryView).unwrap(), value);
        }
        for damaged in ["\\", "\\x0", "\\xg0", "\\y00"] {
            assert!(parse_one(damaged, &DataType::BinaryView).unwrap().is_null(), "{damaged}");
        }
    }

    #[test]
    fn file_bounds_cover_the_written_values() {
        let column = |kind| Column {
            id: 1,
            name: "a".into(),
            kind,
            nullable: true,
            initial_default: None,
            default: None,
            comment: None,
            tags: BTreeMap::new(),
            children: Vec::new(),
        };
        let of = |now, written: &[ColumnType], texts: &[&str]| {
            let column = column(now);
            let kind = type_of(&column, false).unwrap();
            let texts = || StringArray::from(texts.to_vec());
            [true, false].map(|is_lower| {
                let bounds = bounds(texts(), &column, &kind, Some(written), is_lower).unwrap();
                (0..bounds.len())
                    .map(|at| ScalarValue::try_from_array(&bounds, at).unwrap())
                    .collect::<Vec<_>>()
            })
        };
        use ColumnType::*;
        let double = |value| ScalarValue::Float64(Some(value));
        let [lower, upper] = of(Float64, &[Float32, Float64, Float32], &["0.1", "0.1", "0.7"]);
        assert_eq!(lower, [double(0.1), double(0.1), double(f64::from(0.7_f32))]);
        assert_eq!(upper, [double(f64::from(0.1_f32)), double(0.1), double(0.7)]);
        assert_eq!(of(Int64, &[Int32], &["7"])[0], [ScalarValue::Int64(Some(7))]);
        let [lower, upper] = of(Varchar, &[Int32, Varchar], &["9", "9"]);
        assert!(lower[0].is_null() && upper[0].is_null() && !lower[1].is_null());
        let [lower, _] = of(Timestamp, &[Date], &["2020-01-02"]);
        assert_eq!(lower, [ScalarValue::TimestampMicrosecond(Some(1_577_923_200_000_000), None)]);
    }

    #[test]
    fn texts_of_intervals_are_read() {
        const SECOND: i64 = 1_000_000_000;
        let kind = DataType::Interval(IntervalUnit::MonthDayNano);
        for (text, expected) in [
            // As DuckDB writes them in SQLite catalogs and in defaults.
            ("1 year 2 months 3 days 04:05:06.789012", Some((14, 3, 14_706 * SECOND + 789_012_000))),
            ("-1 year -2 months 3 days -04:05:06.7", Some((-14, 3, -14_706 * SECOND - 700_000_000))),
            ("-1 day", Some((0, -1, 0))),
            ("100:00:00", Some((0, 0, 360_000 * SECOND))),
            ("00:00:00", Some((0, 0, 0))),
            ("-1 month 3 hours", Some((-1, 0, 10_800 * SECOND))),
            // As PostgreSQL writes them, with its word for months changed.
            ("-1 years -2 months 3 days -04:05:06", Some((-14, 3, -14_706 * SECOND))),
            ("3 moons", None),
        ] {
            let expected = expected.map(|(months, days, time)| IntervalMonthDayNano::new(months, days, time));
            let value = parse_one(text, &kind).unwrap();
            assert_eq!(value, ScalarValue::IntervalMonthDayNano(expected), "{text}");
        }
    }
}
