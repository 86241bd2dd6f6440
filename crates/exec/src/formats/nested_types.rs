//! Rewriting of nested data types.

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, FieldRef};

/// Replaces `from` by `to` at every level of `kind`.
pub(crate) fn replace_type(kind: &DataType, from: &DataType, to: &DataType) -> DataType {
    let inside = |field: &FieldRef| {
        let kind = replace_type(field.data_type(), from, to);
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
