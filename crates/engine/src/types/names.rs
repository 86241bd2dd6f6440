//! PostgreSQL type names, and those in the metadata of fields.

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef};
use harrier_functions::cast::declared_type::DeclaredType;
use harrier_pgcatalog::{NO_MODIFIER, TYPE_KEY, format_type, named_field, postgres_type};

/// PostgreSQL's name of a type.
pub(crate) fn type_name(kind: &DataType) -> String {
    format_type(postgres_type(kind).0, NO_MODIFIER).unwrap_or_else(|| kind.to_string())
}

/// The equivalent type without dictionary, view or large layout.
pub(crate) fn plain_type(data_type: DataType) -> DataType {
    match data_type {
        DataType::Dictionary(_, value) => plain_type(*value),
        DataType::Utf8View | DataType::LargeUtf8 => DataType::Utf8,
        DataType::BinaryView | DataType::LargeBinary => DataType::Binary,
        other => other,
    }
}

/// The type name in a field's metadata.
pub(crate) fn field_type_name(field: &Field) -> Option<String> {
    field.metadata().get(TYPE_KEY).cloned()
}

/// The type name of a function's result on such values: lengths are dropped.
pub(crate) fn without_size(name: String) -> Option<String> {
    match name.parse() {
        Ok(DeclaredType::Varchar(_)) => Some(DeclaredType::Varchar(None).name()),
        Ok(DeclaredType::Char(_)) => Some(DeclaredType::Char(None).name()),
        Ok(DeclaredType::Uuid) | Err(()) => Some(name),
        Ok(_) => None,
    }
}

/// Sets the type names in a schema's fields.
pub(crate) fn with_type_names(schema: &SchemaRef, names: &[Option<String>]) -> SchemaRef {
    let is_same = |(field, name): (&FieldRef, &Option<String>)| field_type_name(field) == *name;
    if names.len() != schema.fields().len() || schema.fields().iter().zip(names).all(is_same) {
        return Arc::clone(schema);
    }
    let fields = schema.fields().iter().zip(names).map(|(field, name)| match name {
        Some(name) => Arc::new(named_field(Field::clone(field), name)),
        // A cast keeps the metadata of its input.
        None => {
            let mut metadata = field.metadata().clone();
            metadata.remove(TYPE_KEY);
            Arc::new(Field::clone(field).with_metadata(metadata))
        }
    });
    Arc::new(Schema::new_with_metadata(fields.collect::<Vec<_>>(), schema.metadata().clone()))
}
