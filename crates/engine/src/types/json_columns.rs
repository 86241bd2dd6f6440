//! Columns of `json` and `jsonb` in the catalog: both are DuckLake's `json`, which DuckDB reads as its JSON,
//! and a tag says which it is.

use std::collections::BTreeMap;
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, AsArray, StringViewArray};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Field};
use datafusion::error::Result;
use harrier_catalog::state::Column;
use harrier_catalog::types::ColumnType;
use harrier_functions::json::{Kind, TYPE_KEY, normal};

/// The tag whose value is the name of the type. A column without it is of `json`: its texts are as they were
/// written.
const TAG: &str = "harrier.json";

/// What a column of a table is; `None`: no JSON.
pub(crate) fn kind_of(column: &Column) -> Option<Kind> {
    (column.kind == ColumnType::Json)
        .then(|| column.tags.get(TAG).and_then(|name| Kind::of_name(name)).unwrap_or(Kind::Json))
}

/// The field of a column, which says that it is JSON.
pub(crate) fn told(field: Field, column: &Column) -> Field {
    match kind_of(column) {
        Some(kind) => {
            let mut metadata = field.metadata().clone();
            metadata.insert(TYPE_KEY.to_string(), kind.name().to_string());
            field.with_metadata(metadata)
        }
        None => field,
    }
}

/// The type of the column that keeps values of a field, with its tags, if the field says that it is JSON.
pub(crate) fn of_field(field: &Field) -> Option<(ColumnType, BTreeMap<String, String>)> {
    let kind = Kind::of_field(field)?;
    let tags = match kind {
        Kind::Json => BTreeMap::new(),
        Kind::Jsonb => BTreeMap::from([(TAG.to_string(), kind.name().to_string())]),
    };
    Some((ColumnType::Json, tags))
}

/// The field of a column of a type that a statement names, which may be one of these.
pub(crate) fn declared(name: &str, kind: DataType, sql: &datafusion::sql::sqlparser::ast::DataType) -> Field {
    use datafusion::sql::sqlparser::ast::DataType as Sql;
    match sql {
        Sql::JSON => Kind::Json.field(name).as_ref().clone(),
        Sql::JSONB => Kind::Jsonb.field(name).as_ref().clone(),
        _ => Field::new(name, kind, true),
    }
}

/// Whether values of one column are those of the other.
pub(crate) fn are_alike(one: &Column, other: &Column) -> bool {
    kind_of(one) == kind_of(other)
}

/// Values as a column has them.
///
/// Errors: one is no JSON (22P02).
pub(crate) fn stored(values: ArrayRef, column: &Column) -> Result<ArrayRef> {
    let Some(kind) = kind_of(column) else { return Ok(values) };
    let texts = cast(&values, &DataType::Utf8View)?;
    let texts = texts.as_string_view().iter().map(|text| text.map(|text| normal(kind, text)).transpose());
    Ok(Arc::new(texts.collect::<Result<StringViewArray>>()?))
}
