//! PostgreSQL's names of types, and what a field says of its own.

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef};
use harrier_functions::cast::declared_type::DeclaredType;
use harrier_pgcatalog::{NO_MODIFIER, TYPE_KEY, format_type, named_field, postgres_type};

/// A type as PostgreSQL calls it.
pub(crate) fn type_name(kind: &DataType) -> String {
    format_type(postgres_type(kind).0, NO_MODIFIER).unwrap_or_else(|| kind.to_string())
}

/// A type as values of clients can have it.
pub(crate) fn plain(data_type: DataType) -> DataType {
    match data_type {
        DataType::Dictionary(_, value) => plain(*value),
        DataType::Utf8View | DataType::LargeUtf8 => DataType::Utf8,
        DataType::BinaryView | DataType::LargeBinary => DataType::Binary,
        other => other,
    }
}

/// What a field says.
pub(crate) fn told(field: &Field) -> Option<String> {
    field.metadata().get(TYPE_KEY).cloned()
}

/// What a function makes of such values: a length is not kept.
pub(crate) fn without_size(name: String) -> Option<String> {
    match name.parse() {
        Ok(DeclaredType::Varchar(_)) => Some(DeclaredType::Varchar(None).name()),
        Ok(DeclaredType::Char(_)) => Some(DeclaredType::Char(None).name()),
        Ok(DeclaredType::Uuid) | Err(()) => Some(name),
        Ok(_) => None,
    }
}

/// A schema whose fields say these types.
pub(crate) fn named(schema: &SchemaRef, names: &[Option<String>]) -> SchemaRef {
    let is_told = |(field, name): (&FieldRef, &Option<String>)| told(field) == *name;
    if names.len() != schema.fields().len() || schema.fields().iter().zip(names).all(is_told) {
        return Arc::clone(schema);
    }
    let fields = schema.fields().iter().zip(names).map(|(field, name)| match name {
        Some(name) => Arc::new(named_field(Field::clone(field), name)),
        // A cast leaves what the value was before.
        None => {
            let mut metadata = field.metadata().clone();
            metadata.remove(TYPE_KEY);
            Arc::new(Field::clone(field).with_metadata(metadata))
        }
    });
    Arc::new(Schema::new_with_metadata(fields.collect::<Vec<_>>(), schema.metadata().clone()))
}
