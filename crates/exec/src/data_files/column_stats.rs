//! Column statistics of a file: bounds and counts, as text in DuckLake's encoding.

use datafusion::arrow::array::{Array, ArrayRef, AsArray, StringArray};
use datafusion::arrow::datatypes::{
    DataType, Field, FieldRef, Float32Type, Float64Type, IntervalMonthDayNanoType, Schema,
};
use datafusion::arrow::util::display::FormatOptions;
use datafusion::common::{Result, ScalarValue};
use datafusion::parquet::arrow::PARQUET_FIELD_ID_META_KEY;
use datafusion::parquet::arrow::arrow_reader::statistics::StatisticsConverter;
use datafusion::parquet::file::metadata::ParquetMetaData;

use super::file_record::FileStats;
use crate::formats::interval_encoding;
use harrier_functions::datetime::infinity::{in_catalog, infinity_of};
use harrier_functions::format::datetime::formatter;
use harrier_functions::uuid_text;

const TIMESTAMP: &str = "%Y-%m-%d %H:%M:%S%.f";
const TIMESTAMP_UTC: &str = "%Y-%m-%d %H:%M:%S%.f+00";

/// Encodes every value as text, in DuckLake's encoding of its type: `1.50`, `true`, `2024-01-15
/// 12:30:00.123456+00`.
pub fn text_of(values: &dyn Array) -> Result<StringArray> {
    if let Some(values) = values.as_primitive_opt::<IntervalMonthDayNanoType>() {
        return Ok(values.iter().map(|value| value.map(interval_encoding::format_interval)).collect());
    }
    let options = FormatOptions::new()
        .with_timestamp_format(Some(TIMESTAMP))
        .with_timestamp_tz_format(Some(TIMESTAMP_UTC))
        .with_time_format(Some("%H:%M:%S%.f"));
    let utc;
    let values = match values.data_type() {
        DataType::Timestamp(unit, Some(_)) => {
            let kind = DataType::Timestamp(*unit, Some("+00:00".into()));
            utc = datafusion::arrow::compute::cast(values, &kind)?;
            utc.as_ref()
        }
        _ => values,
    };
    let texts = formatter(values, &options)?;
    let is_time = infinity_of(values.data_type()).is_some();
    let text = |at: usize| values.is_valid(at).then(|| texts.value(at).to_string());
    let text = |at: usize| text(at).map(|text| if is_time { in_catalog(text) } else { text });
    Ok((0..values.len()).map(text).collect())
}

/// The field id of a column of a data file.
pub fn field_id(field: &Field) -> Option<i64> {
    field.metadata().get(PARQUET_FIELD_ID_META_KEY)?.parse().ok()
}

/// The float columns of a file that contain NaN.
pub struct Nans(Vec<Option<bool>>);

impl Nans {
    pub fn new(schema: &Schema) -> Self {
        let is_float = |field: &FieldRef| field.data_type().is_floating().then_some(false);
        Self(schema.fields().iter().map(is_float).collect())
    }

    /// Adds the values of a batch.
    pub fn update(&mut self, columns: &[ArrayRef]) {
        for (seen, column) in self.0.iter_mut().zip(columns) {
            if *seen == Some(false) {
                *seen = Some(has_nan(column));
            }
        }
    }
}

fn has_nan(column: &ArrayRef) -> bool {
    match column.data_type() {
        DataType::Float32 => column.as_primitive::<Float32Type>().iter().flatten().any(f32::is_nan),
        DataType::Float64 => column.as_primitive::<Float64Type>().iter().flatten().any(f64::is_nan),
        _ => false,
    }
}

/// The statistics in the footer of a file written with `schema`, except for nested columns.
pub fn of_file(footer: &ParquetMetaData, schema: &Schema, nans: &Nans) -> Result<Vec<FileStats>> {
    let parquet_schema = footer.file_metadata().schema_descr();
    let mut all = Vec::with_capacity(schema.fields().len());
    for (at, field) in schema.fields().iter().enumerate() {
        let Some(column) = field_id(field) else { continue };
        let bytes = footer
            .row_groups()
            .iter()
            .flat_map(|group| group.columns().iter().enumerate())
            .filter(|(leaf, _)| parquet_schema.get_column_root_idx(*leaf) == at)
            .map(|(_, chunk)| chunk.compressed_size())
            .sum();
        let mut stats = FileStats { column, bytes, nan: nans.0[at], ..FileStats::default() };
        if !field.data_type().is_nested() {
            let converter = StatisticsConverter::try_new(field.name(), schema, parquet_schema)?;
            let nulls = converter.row_group_null_counts(footer.row_groups())?;
            stats.nulls = (nulls.null_count() == 0).then(|| nulls.iter().flatten().sum::<u64>() as i64);
            if has_bounds(field.data_type()) {
                stats.min = merged_bound(&converter.row_group_mins(footer.row_groups())?, Side::Min)?;
                stats.max = merged_bound(&converter.row_group_maxes(footer.row_groups())?, Side::Max)?;
            }
        }
        all.push(stats);
    }
    Ok(all)
}

/// Whether bounds are recorded. Bytes other than UUIDs have no encoding that all readers of the catalog agree
/// on, and intervals in files have no order.
fn has_bounds(kind: &DataType) -> bool {
    *kind == uuid_text::STORED
        || !matches!(
            kind,
            DataType::Binary
                | DataType::LargeBinary
                | DataType::BinaryView
                | DataType::FixedSizeBinary(_)
                | DataType::Interval(_)
        )
}

#[derive(Clone, Copy, PartialEq)]
enum Side {
    Min,
    Max,
}

/// The least or greatest of the bounds of all row groups. A row group without bounds has no relevant values:
/// only NULLs or NaNs.
fn merged_bound(bounds: &ArrayRef, side: Side) -> Result<Option<String>> {
    let mut best: Option<ScalarValue> = None;
    for at in (0..bounds.len()).filter(|at| bounds.is_valid(*at)) {
        let value = ScalarValue::try_from_array(bounds, at)?;
        let better = match &best {
            None => true,
            Some(best) => match side {
                Side::Min => value.partial_cmp(best).is_some_and(|order| order.is_lt()),
                Side::Max => value.partial_cmp(best).is_some_and(|order| order.is_gt()),
            },
        };
        if better {
            best = Some(value);
        }
    }
    match best {
        Some(ScalarValue::FixedSizeBinary(_, Some(bytes))) => Ok(Some(uuid_text::text_of(&bytes))),
        Some(best) => Ok(text_of(&best.to_array()?)?.iter().next().flatten().map(str::to_string)),
        None => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use datafusion::arrow::array::*;
    use datafusion::arrow::datatypes::IntervalMonthDayNano;

    use super::*;

    #[test]
    fn statistics_have_ducklakes_text_format() {
        let micros = 1_705_321_800_123_456i64;
        let interval = IntervalMonthDayNano::new(1, 0, 1_500_000_000);
        let cases: [(ArrayRef, &str); 10] = [
            (Arc::new(Int32Array::from(vec![-7])), "-7"),
            (Arc::new(BooleanArray::from(vec![true])), "true"),
            (Arc::new(Float64Array::from(vec![f64::INFINITY])), "inf"),
            (Arc::new(Decimal128Array::from(vec![150]).with_precision_and_scale(10, 2).unwrap()), "1.50"),
            (Arc::new(Date32Array::from(vec![19737])), "2024-01-15"),
            (Arc::new(TimestampMicrosecondArray::from(vec![micros])), "2024-01-15 12:30:00.123456"),
            (Arc::new(TimestampMicrosecondArray::from(vec![micros - 123_456])), "2024-01-15 12:30:00"),
            (
                Arc::new(TimestampMicrosecondArray::from(vec![micros]).with_timezone("Europe/Berlin")),
                "2024-01-15 12:30:00.123456+00",
            ),
            (Arc::new(Time64MicrosecondArray::from(vec![1_500_000])), "00:00:01.500"),
            (Arc::new(IntervalMonthDayNanoArray::from(vec![interval])), "1 month 00:00:01.5"),
        ];
        for (values, expected) in cases {
            assert_eq!(text_of(&values).unwrap().value(0), expected);
        }
        assert!(text_of(&Int32Array::from(vec![None])).unwrap().is_null(0));
    }
}
