//! Types with others inside of them.

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, FieldRef};

/// `kind` with `to` wherever it has `from`.
pub(super) fn replaced(kind: &DataType, from: &DataType, to: &DataType) -> DataType {
    let inside = |field: &FieldRef| {
        let kind = replaced(field.data_type(), from, to);
        Arc::new(field.as_ref().clone().with_data_type(kind))
    };
    match kind {
        kind if kind == from => to.clone(),
        DataType::Struct(fields) => DataType::Struct(fields.iter().map(inside).collect()),
        DataType::List(element) => DataType::List(inside(element)),
        DataType::Map(entries, sorted) => DataType::Map(inside(entries), *sorted),
        other => other.clone(),
    }
}
