//! JSON for COPY FROM, read with types that lose no precision for the table's columns. A query's schema
//! inference would give doubles of fifteen digits and miss keys that appear only in later records.

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef};
use datafusion::catalog::TableProvider;
use datafusion::datasource::listing::{ListingOptions, ListingTable, ListingTableConfig};
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::SessionState;

use crate::external::file_tables;

/// Extra fractional digits for rounding to the column's scale: the reader truncates the rest.
const SPARE_DIGITS: i8 = 9;

/// Names and types to read the table's columns `fields` with, in order, from files in which a query infers
/// the schema `seen`. A key missing in all records is NULL.
pub(super) fn columns(fields: &[FieldRef], seen: &Schema) -> SchemaRef {
    let mut columns: Vec<Field> = Vec::with_capacity(fields.len());
    for field in fields {
        let exact = seen.fields().iter().find(|own| own.name() == field.name());
        let own = exact.or_else(|| {
            seen.fields().iter().find(|own| {
                own.name().eq_ignore_ascii_case(field.name())
                    && fields.iter().all(|other| other.name() != own.name())
                    && columns.iter().all(|taken| taken.name() != own.name())
            })
        });
        let name = own.map_or(field.name(), |own| own.name());
        let kind = match own {
            Some(own) => reader_type(field.data_type(), Some(own.data_type())),
            None => reader_type(field.data_type(), None),
        };
        columns.push(Field::new(name, kind, true));
    }
    Arc::new(Schema::new(columns))
}

/// A scan of the files that `name` stands for with these columns; `None` if folders have partition values, as
/// in `year=2024/`.
pub(super) async fn table(
    state: &SessionState,
    name: &str,
    compression: Option<&str>,
    columns: SchemaRef,
) -> Result<Option<Arc<dyn TableProvider>>> {
    let compression = match compression {
        Some(compression) => Some(compression.to_string()),
        None => file_tables::kind_of(name).and_then(|(_, compression)| compression),
    };
    let mut options = HashMap::new();
    if let Some(compression) = compression.filter(|compression| !compression.is_empty()) {
        options.insert("format.compression".to_string(), compression);
    }
    let format = state
        .get_file_format_factory("json")
        .ok_or_else(|| DataFusionError::Internal("no reader for format json".to_string()))?
        .create(state, &options)?;
    let config = ListingTableConfig::new_with_multi_paths(file_tables::locations(state, name).await?)
        .with_listing_options(ListingOptions::new(format).with_file_extension(""))
        .infer_partitions_from_path(state)
        .await?;
    if config.options.as_ref().is_some_and(|options| !options.table_partition_cols.is_empty()) {
        return Ok(None);
    }
    Ok(Some(Arc::new(ListingTable::try_new(config.with_schema(columns))?)))
}

/// Type to read values of a column of type `kind` with; `seen`: the inferred type, if any.
fn reader_type(kind: &DataType, seen: Option<&DataType>) -> DataType {
    let seen = seen.filter(|seen| **seen != DataType::Null);
    let is_number = seen.is_none_or(DataType::is_numeric);
    match (kind, seen) {
        (DataType::List(item), None) => DataType::List(Arc::new(reader_item(item, None))),
        (DataType::List(item), Some(DataType::List(seen))) => {
            DataType::List(Arc::new(reader_item(item, Some(seen.data_type()))))
        }
        (DataType::Struct(fields), None) => {
            DataType::Struct(fields.iter().map(|field| reader_item(field, None)).collect())
        }
        (DataType::Struct(fields), Some(DataType::Struct(seen)))
            if seen.iter().all(|own| fields.find(own.name()).is_some()) =>
        {
            let own = |field: &FieldRef| seen.find(field.name()).map(|(_, own)| own.data_type());
            DataType::Struct(fields.iter().map(|field| reader_item(field, own(field))).collect())
        }
        // A query would infer a struct whose field names are the map's keys.
        (DataType::Map(..), _) => kind.clone(),
        (kind, None) if kind.is_nested() => kind.clone(),
        (DataType::Decimal128(precision, scale) | DataType::Decimal256(precision, scale), _) if is_number => {
            decimal(*precision, *scale)
        }
        // Up to twenty digits: a double would lose some.
        (kind, _) if kind.is_integer() && is_number => decimal(20, 0),
        (kind, _) if kind.is_floating() && is_number => DataType::Float64,
        (_, Some(seen)) => seen.clone(),
        (DataType::Boolean, None) => DataType::Boolean,
        (_, None) => DataType::Utf8,
    }
}

/// Within nested values bytes are plain hexadecimal digits, in both directions.
fn reader_item(field: &FieldRef, seen: Option<&DataType>) -> Field {
    let kind = match field.data_type() {
        kind if kind.is_binary() => DataType::Binary,
        kind => reader_type(kind, seen),
    };
    Field::new(field.name(), kind, true)
}

/// A decimal with room for that many digits and those needed for rounding.
fn decimal(precision: u8, scale: i8) -> DataType {
    let spared = scale.max(0).saturating_add(SPARE_DIGITS);
    let integer_digits = i16::from(precision) - i16::from(scale);
    match integer_digits + i16::from(spared) <= 38 {
        true => DataType::Decimal128(38, spared),
        false => DataType::Decimal256(76, spared),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_keep_what_is_in_the_file() {
        let text = DataType::Utf8;
        for (kind, seen, expected) in [
            (DataType::Decimal128(18, 4), Some(DataType::Float64), DataType::Decimal128(38, 13)),
            (DataType::Decimal128(38, 4), Some(DataType::Int64), DataType::Decimal256(76, 13)),
            (DataType::Decimal128(18, 4), Some(text.clone()), text.clone()),
            (DataType::UInt64, Some(DataType::Float64), DataType::Decimal128(38, 9)),
            (DataType::Int32, None, DataType::Decimal128(38, 9)),
            (DataType::Float32, Some(DataType::Int64), DataType::Float64),
            (DataType::Date32, Some(DataType::Null), text.clone()),
            (DataType::Utf8View, Some(DataType::Int64), DataType::Int64),
            (DataType::Boolean, None, DataType::Boolean),
        ] {
            assert_eq!(reader_type(&kind, seen.as_ref()), expected, "{kind} from {seen:?}");
        }
        let list = |item| DataType::new_list(item, true);
        let found = reader_type(&list(DataType::Decimal128(9, 2)), Some(&list(DataType::Float64)));
        assert_eq!(found, list(DataType::Decimal128(38, 11)));
    }

    #[test]
    fn columns_are_found_by_name() {
        let field = |name: &str| Arc::new(Field::new(name, DataType::Utf8, true));
        let seen = Schema::new(vec![field("A"), field("c")]);
        let names = |columns: &[&str]| {
            let fields: Vec<FieldRef> = columns.iter().map(|name| field(name)).collect();
            let read = super::columns(&fields, &seen);
            read.fields().iter().map(|field| field.name().clone()).collect::<Vec<_>>()
        };
        assert_eq!(names(&["c", "a", "b"]), ["c", "A", "b"]);
        assert_eq!(names(&["a", "A"]), ["a", "A"]);
    }
}
