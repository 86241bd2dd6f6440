//! Second timestamps in Parquet, which has no such type: the library would write bare integers, which other
//! readers do not take for timestamps. Files store microseconds, as DuckDB's do.
//!
//! Older files with integers can still be read: the reader casts an integer to that many seconds.

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, FieldRef, Schema, SchemaRef, TimeUnit};

use crate::formats::nested_types::replace_type;

const PLAN_TYPE: DataType = DataType::Timestamp(TimeUnit::Second, None);
const FILE_TYPE: DataType = DataType::Timestamp(TimeUnit::Microsecond, None);

/// The declared schema of files with rows of `schema`.
pub fn declared_schema(schema: &SchemaRef) -> SchemaRef {
    let told = |field: &FieldRef| {
        let kind = replace_type(field.data_type(), &PLAN_TYPE, &FILE_TYPE);
        field.as_ref().clone().with_data_type(kind)
    };
    let fields: Vec<_> = schema.fields().iter().map(told).collect();
    Arc::new(Schema::new_with_metadata(fields, schema.metadata().clone()))
}
