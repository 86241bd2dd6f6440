//! `json` and `jsonb` columns in the catalog: both have DuckLake's type `json`, which DuckDB reads as its
//! JSON; a tag distinguishes them.

use std::collections::BTreeMap;
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, AsArray, StringViewArray};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Field};
use datafusion::error::Result;
use harrier_catalog::state::Column;
use harrier_catalog::types::ColumnType;
use harrier_functions::json::{Kind, TYPE_KEY, normal};

/// The tag that holds the type's name. A column without it is `json`: its texts are stored as written.
const TAG: &str = "harrier.json";

/// The JSON type of a column; `None` if it is not JSON.
pub(crate) fn kind_of(column: &Column) -> Option<Kind> {
    (column.kind == ColumnType::Json)
        .then(|| column.tags.get(TAG).and_then(|name| Kind::of_name(name)).unwrap_or(Kind::Json))
}

/// Adds a column's JSON type to its field.
pub(crate) fn with_json_type(field: Field, column: &Column) -> Field {
    match kind_of(column) {
        Some(kind) => {
            let mut metadata = field.metadata().clone();
            metadata.insert(TYPE_KEY.to_string(), kind.name().to_string());
            field.with_metadata(metadata)
        }
        None => field,
    }
}

/// The catalog type and tags of a column for a field, if the field is marked as JSON.
pub(crate) fn of_field(field: &Field) -> Option<(ColumnType, BTreeMap<String, String>)> {
    let kind = Kind::of_field(field)?;
    let tags = match kind {
        Kind::Json => BTreeMap::new(),
        Kind::Jsonb => BTreeMap::from([(TAG.to_string(), kind.name().to_string())]),
    };
    Some((ColumnType::Json, tags))
}

/// The field of a column whose SQL type may be `json` or `jsonb`.
pub(crate) fn declared_field(
    name: &str,
    kind: DataType,
    sql: &datafusion::sql::sqlparser::ast::DataType,
) -> Field {
    use datafusion::sql::sqlparser::ast::DataType as Sql;
    match sql {
        Sql::JSON => Kind::Json.field(name).as_ref().clone(),
        Sql::JSONB => Kind::Jsonb.field(name).as_ref().clone(),
        _ => Field::new(name, kind, true),
    }
}

/// Whether two columns have the same JSON type, or none.
pub(crate) fn are_alike(one: &Column, other: &Column) -> bool {
    kind_of(one) == kind_of(other)
}

/// Values as a column stores them.
///
/// Errors: invalid JSON (22P02).
pub(crate) fn stored_values(values: ArrayRef, column: &Column) -> Result<ArrayRef> {
    let Some(kind) = kind_of(column) else { return Ok(values) };
    let texts = cast(&values, &DataType::Utf8View)?;
    let texts = texts.as_string_view().iter().map(|text| text.map(|text| normal(kind, text)).transpose());
    Ok(Arc::new(texts.collect::<Result<StringViewArray>>()?))
}
