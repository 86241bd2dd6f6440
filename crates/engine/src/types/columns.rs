//! Mapping of column types: DuckLake's in the catalog, Arrow's in plans and files.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use datafusion::arrow::datatypes::{
    DECIMAL64_MAX_PRECISION, DataType, Field, FieldRef, Fields, IntervalUnit, Schema, SchemaRef, TimeUnit,
};
use datafusion::error::Result;
use datafusion::parquet::arrow::PARQUET_FIELD_ID_META_KEY;
use harrier_catalog::state::{Column, ColumnId};
use harrier_catalog::types::ColumnType;
use harrier_error::{SqlError, SqlState};
use harrier_exec::formats::interval_encoding::file_type;
use harrier_functions::uuid_text;
use harrier_planner::analyzer::session_time_zone::UTC;
use harrier_sqlstate::IntoDataFusionError;

use crate::types::json_columns;

/// Decimal digits of 128-bit integers. The largest values of either sign have one more.
const HUGE_DIGITS: u8 = 38;

/// The schema of a table's rows.
pub(crate) fn schema_of(columns: &[Column]) -> Result<SchemaRef> {
    let fields = columns.iter().map(|column| field_of(column, false)).collect::<Result<Fields>>()?;
    Ok(Arc::new(Schema::new(fields)))
}

/// The schema of a table's files: the same with Parquet's field ids.
pub(crate) fn file_schema_of(columns: &[Column]) -> Result<SchemaRef> {
    let fields = columns.iter().map(|column| field_of(column, true)).collect::<Result<Fields>>()?;
    Ok(Arc::new(Schema::new(fields)))
}

/// The schema with which a table's rows are read from its files: every column is nullable.
pub(crate) fn stored_schema_of(columns: &[Column]) -> Result<SchemaRef> {
    let field = |column: &Column| Ok(Field::new(&column.name, stored_type_of(column)?, true));
    Ok(Arc::new(Schema::new(columns.iter().map(field).collect::<Result<Vec<_>>>()?)))
}

fn stored_type_of(column: &Column) -> Result<DataType> {
    if !has_uuid(column) {
        return Ok(file_type(&type_of(column, false)?));
    }
    let part = |at: usize| match column.children.get(at) {
        Some(child) => Ok(Arc::new(Field::new(&child.name, stored_type_of(child)?, child.nullable))),
        // `type_of` reports the error.
        None => type_of(column, false).map(|kind| Arc::new(Field::new("", kind, true))),
    };
    Ok(match column.kind {
        ColumnType::Uuid => uuid_text::STORED,
        ColumnType::Struct => DataType::Struct((0..column.children.len()).map(part).collect::<Result<_>>()?),
        ColumnType::List => DataType::List(part(0)?),
        ColumnType::Map => {
            let key = Arc::new(part(0)?.as_ref().clone().with_nullable(false));
            let entries = DataType::Struct(Fields::from(vec![key, part(1)?]));
            DataType::Map(Arc::new(Field::new("key_value", entries, false)), false)
        }
        _ => file_type(&type_of(column, false)?),
    })
}

/// Whether a column's values are or contain UUIDs.
pub(crate) fn has_uuid(column: &Column) -> bool {
    column.kind == ColumnType::Uuid || column.children.iter().any(has_uuid)
}

fn field_of(column: &Column, with_ids: bool) -> Result<FieldRef> {
    let field = Field::new(&column.name, type_of(column, with_ids)?, column.nullable);
    Ok(Arc::new(match with_ids {
        true => field
            .with_metadata(HashMap::from([(PARQUET_FIELD_ID_META_KEY.to_string(), column.id.to_string())])),
        false => json_columns::with_json_type(field, column),
    }))
}

/// The Arrow type of a column.
pub(crate) fn type_of(column: &Column, with_ids: bool) -> Result<DataType> {
    let child = |at: usize| {
        column
            .children
            .get(at)
            .ok_or_else(|| {
                SqlError::new(SqlState::DATA_CORRUPTED, format!("column \"{}\" lacks a part", column.name))
                    .into_datafusion()
            })
            .and_then(|child| field_of(child, with_ids))
    };
    Ok(match column.kind {
        ColumnType::Boolean => DataType::Boolean,
        ColumnType::Int8 => DataType::Int8,
        ColumnType::Int16 => DataType::Int16,
        ColumnType::Int32 => DataType::Int32,
        ColumnType::Int64 => DataType::Int64,
        ColumnType::UInt8 => DataType::UInt8,
        ColumnType::UInt16 => DataType::UInt16,
        ColumnType::UInt32 => DataType::UInt32,
        ColumnType::UInt64 => DataType::UInt64,
        ColumnType::Float32 => DataType::Float32,
        ColumnType::Float64 => DataType::Float64,
        ColumnType::Decimal { precision, scale } => DataType::Decimal128(precision, scale as i8),
        ColumnType::Time => DataType::Time64(TimeUnit::Microsecond),
        ColumnType::Date => DataType::Date32,
        ColumnType::Timestamp => DataType::Timestamp(TimeUnit::Microsecond, None),
        ColumnType::TimestampTz => DataType::Timestamp(TimeUnit::Microsecond, Some(UTC.into())),
        ColumnType::TimestampS => DataType::Timestamp(TimeUnit::Second, None),
        ColumnType::TimestampMs => DataType::Timestamp(TimeUnit::Millisecond, None),
        ColumnType::TimestampNs => DataType::Timestamp(TimeUnit::Nanosecond, None),
        ColumnType::Varchar | ColumnType::Json => DataType::Utf8View,
        ColumnType::Blob => DataType::BinaryView,
        // Files store bytes, plans use text: see `harrier_functions::uuid_text`.
        ColumnType::Uuid if with_ids => uuid_text::STORED,
        ColumnType::Uuid => DataType::Utf8View,
        ColumnType::Struct => DataType::Struct((0..column.children.len()).map(child).collect::<Result<_>>()?),
        ColumnType::List => DataType::List(child(0)?),
        ColumnType::Map => {
            let key = Arc::new(child(0)?.as_ref().clone().with_nullable(false));
            let entries = DataType::Struct(Fields::from(vec![key, child(1)?]));
            DataType::Map(Arc::new(Field::new("key_value", entries, false)), false)
        }
        // DuckDB writes and reads them as DOUBLE; Harrier's files are exact, and it reads them exactly.
        ColumnType::Int128 => DataType::Decimal128(HUGE_DIGITS, 0),
        ColumnType::UInt128 if !with_ids => DataType::Decimal128(HUGE_DIGITS, 0),
        ColumnType::UInt128 => {
            let message = format!("column \"{}\" has type UHUGEINT, which cannot be written", column.name);
            return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message)
                .with_detail(
                    "it is read as DECIMAL(38,0), which has numbers below zero and not all of its own",
                )
                .into_datafusion());
        }
        // Files store bytes: see `harrier_exec::formats::interval_encoding`.
        ColumnType::Interval => DataType::Interval(IntervalUnit::MonthDayNano),
        ColumnType::TimeTz => {
            let message = format!("column \"{}\" has type TIMETZ, which cannot be read", column.name);
            return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message)
                .with_detail("no type here has an offset, and DuckDB tells equal times of two offsets apart")
                .into_datafusion());
        }
    })
}

/// Whether DuckDB's bucket of a value cannot be computed from the value: DuckDB hashes the text of intervals
/// and nested values, and that of 128-bit integers before its files round them.
pub(crate) fn has_foreign_buckets(column: &Column) -> bool {
    matches!(column.kind, ColumnType::Int128 | ColumnType::UInt128 | ColumnType::Interval)
        || column.kind.is_nested()
}

/// Whether rows with equal values of this column may be in several buckets: where DuckDB hashes the text of
/// values, 1.5.5 sometimes hashes the text of other rows, or crashes with a segmentation fault. Rows are
/// written to the bucket of their own text, but scans do not prune by it.
pub(crate) fn has_unreliable_buckets(column: &Column) -> bool {
    use ColumnType::{Decimal, UInt8, UInt16, UInt32, UInt64, Uuid};
    let is_text = match column.kind {
        UInt8 | UInt16 | UInt32 | UInt64 | Uuid => true,
        Decimal { precision, .. } => precision > DECIMAL64_MAX_PRECISION,
        _ => false,
    };
    is_text || has_foreign_buckets(column)
}

/// Whether equal values of two types hash to the same bucket, so that the buckets of existing files remain
/// valid after the column is widened. For types with reliable buckets: see [`has_unreliable_buckets`].
pub(crate) fn share_buckets(one: ColumnType, other: ColumnType) -> bool {
    use ColumnType::*;
    // The hashed type: see `harrier_functions::hash::bucket`.
    let hashed = |kind: ColumnType| match kind {
        Int8 | Int16 | Int32 | Int64 => Int64,
        Float32 | Float64 => Float64,
        Varchar | Json => Varchar,
        Decimal { precision: ..=DECIMAL64_MAX_PRECISION, scale } => {
            Decimal { precision: DECIMAL64_MAX_PRECISION, scale }
        }
        kind => kind,
    };
    hashed(one) == hashed(other)
}

/// Whether the catalog's statistics of a column in files can be true. For interval columns DuckDB records
/// that there are neither values nor NULLs.
pub(crate) fn has_stats(column: &Column) -> bool {
    !column.kind.is_nested() && column.kind != ColumnType::Interval
}

/// The column type that system catalogs show: text for a type that cannot be read.
pub(crate) fn catalog_type_of(column: &Column) -> Result<DataType> {
    match type_of(column, false) {
        Err(error) if harrier_sqlstate::of(&error) == SqlState::FEATURE_NOT_SUPPORTED => {
            Ok(DataType::Utf8View)
        }
        kind => kind,
    }
}

/// The catalog column for values of an Arrow field; ids are taken from `next`.
///
/// Errors: no DuckLake type holds such values (0A000).
pub(crate) fn column_of(field: &Field, next: &mut ColumnId) -> Result<Column> {
    let id = *next;
    *next += 1;
    let mut children = Vec::new();
    let json = json_columns::of_field(field);
    let kind = match field.data_type() {
        _ if let Some((kind, _)) = &json => *kind,
        DataType::Boolean => ColumnType::Boolean,
        DataType::Int8 => ColumnType::Int8,
        DataType::Int16 => ColumnType::Int16,
        DataType::Int32 => ColumnType::Int32,
        DataType::Int64 => ColumnType::Int64,
        DataType::UInt8 => ColumnType::UInt8,
        DataType::UInt16 => ColumnType::UInt16,
        DataType::UInt32 => ColumnType::UInt32,
        DataType::UInt64 => ColumnType::UInt64,
        DataType::Float16 | DataType::Float32 => ColumnType::Float32,
        DataType::Float64 => ColumnType::Float64,
        DataType::Decimal32(precision, scale)
        | DataType::Decimal64(precision, scale)
        | DataType::Decimal128(precision, scale)
            if *scale >= 0 =>
        {
            ColumnType::Decimal { precision: *precision, scale: *scale as u8 }
        }
        DataType::Time32(_) | DataType::Time64(_) => ColumnType::Time,
        DataType::Date32 | DataType::Date64 => ColumnType::Date,
        DataType::Timestamp(_, Some(_)) => ColumnType::TimestampTz,
        DataType::Timestamp(TimeUnit::Second, None) => ColumnType::TimestampS,
        DataType::Timestamp(TimeUnit::Millisecond, None) => ColumnType::TimestampMs,
        DataType::Timestamp(TimeUnit::Microsecond, None) => ColumnType::Timestamp,
        DataType::Timestamp(TimeUnit::Nanosecond, None) => ColumnType::TimestampNs,
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => ColumnType::Varchar,
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView => ColumnType::Blob,
        DataType::FixedSizeBinary(16) => ColumnType::Uuid,
        DataType::Interval(_) | DataType::Duration(_) => ColumnType::Interval,
        // Untyped NULLs.
        DataType::Null => ColumnType::Int32,
        DataType::Dictionary(_, value) => {
            *next = id;
            return column_of(&field.clone().with_data_type(value.as_ref().clone()), next);
        }
        DataType::Struct(fields) => {
            children = fields.iter().map(|field| column_of(field, next)).collect::<Result<_>>()?;
            ColumnType::Struct
        }
        DataType::List(element) | DataType::LargeList(element) | DataType::FixedSizeList(element, _) => {
            children = vec![column_of(&element.as_ref().clone().with_name("element"), next)?];
            ColumnType::List
        }
        DataType::Map(entries, _) => {
            let DataType::Struct(fields) = entries.data_type() else {
                return Err(unfit(field));
            };
            children = fields
                .iter()
                .zip(["key", "value"])
                .map(|(field, name)| column_of(&field.as_ref().clone().with_name(name), next))
                .collect::<Result<_>>()?;
            ColumnType::Map
        }
        _ => return Err(unfit(field)),
    };
    Ok(Column {
        id,
        name: field.name().clone(),
        kind,
        children,
        nullable: field.is_nullable(),
        initial_default: None,
        default: None,
        comment: None,
        tags: json.map_or_else(BTreeMap::new, |(_, tags)| tags),
    })
}

fn unfit(field: &Field) -> datafusion::error::DataFusionError {
    SqlError::new(
        SqlState::FEATURE_NOT_SUPPORTED,
        format!(
            "column \"{}\" has type {}, which a table of a warehouse cannot keep",
            field.name(),
            field.data_type()
        ),
    )
    .into_datafusion()
}

/// The stored type of SQL's `TIMESTAMP` in a column list: DataFusion plans it with nanoseconds, files store
/// microseconds.
pub(crate) fn with_stored_timestamp(field: &Field) -> Field {
    match field.data_type() {
        DataType::Timestamp(TimeUnit::Nanosecond, None) => {
            field.clone().with_data_type(DataType::Timestamp(TimeUnit::Microsecond, None))
        }
        _ => field.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_round_trip() {
        use DataType::*;
        let item = Arc::new(Field::new("element", Int64, true));
        let parts = Fields::from(vec![Field::new("x", Int32, true), Field::new("y", Utf8View, true)]);
        let entries =
            Fields::from(vec![Field::new("key", Utf8View, false), Field::new("value", Int32, true)]);
        let kinds = [
            Boolean,
            Int8,
            UInt64,
            Float32,
            Decimal128(10, 2),
            Time64(TimeUnit::Microsecond),
            Date32,
            Timestamp(TimeUnit::Microsecond, None),
            Timestamp(TimeUnit::Nanosecond, None),
            Timestamp(TimeUnit::Microsecond, Some(UTC.into())),
            Utf8View,
            BinaryView,
            Interval(IntervalUnit::MonthDayNano),
            List(item),
            Struct(parts),
            Map(Arc::new(Field::new("key_value", Struct(entries), false)), false),
        ];
        for kind in kinds {
            let mut next = 1;
            let column = column_of(&Field::new("a", kind.clone(), true), &mut next).unwrap();
            assert_eq!(type_of(&column, false).unwrap(), kind);
            assert!(column.kind.to_string().parse::<ColumnType>() == Ok(column.kind));
        }
    }

    #[test]
    fn widened_columns_keep_their_buckets_or_not() {
        use ColumnType::*;
        let decimal = |precision, scale| Decimal { precision, scale };
        let cases = [
            (Int8, Int64, true),
            (UInt32, Int64, false),
            (Float32, Float64, true),
            (Date, Timestamp, false),
            (TimestampS, Timestamp, false),
            (decimal(9, 2), decimal(18, 2), true),
            (decimal(18, 2), decimal(19, 2), false),
            (decimal(9, 2), decimal(18, 3), false),
            (Varchar, Json, true),
        ];
        for (one, other, expected) in cases {
            assert_eq!(share_buckets(one, other), expected, "{one} and {other}");
        }
    }

    #[test]
    fn numbers_of_128_bits_are_decimals() {
        let column = |kind| {
            let mut column = column_of(&Field::new("a", DataType::Int64, true), &mut 1).unwrap();
            column.kind = kind;
            column
        };
        let decimal = DataType::Decimal128(38, 0);
        assert_eq!(type_of(&column(ColumnType::Int128), true).unwrap(), decimal);
        assert_eq!(type_of(&column(ColumnType::UInt128), false).unwrap(), decimal);
        for (kind, with_ids) in [(ColumnType::UInt128, true), (ColumnType::TimeTz, false)] {
            let error = type_of(&column(kind), with_ids).unwrap_err();
            assert_eq!(harrier_sqlstate::of(&error), SqlState::FEATURE_NOT_SUPPORTED, "{kind}");
        }
    }
}
