//! Timestamps in whole seconds in Parquet, which has none: what the library writes for them are bare numbers,
//! which others do not take for timestamps. They are microseconds in files, which is what DuckDB makes of
//! them.
//!
//! Files that were written with numbers are read still: who reads them casts what a file has, and a number
//! becomes as many seconds.

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, FieldRef, Schema, SchemaRef, TimeUnit};

use super::nested_types::replaced;

const SHOWN: DataType = DataType::Timestamp(TimeUnit::Second, None);
const STORED: DataType = DataType::Timestamp(TimeUnit::Microsecond, None);

/// What files with rows of `schema` say that their columns are.
pub fn told_schema(schema: &SchemaRef) -> SchemaRef {
    let told = |field: &FieldRef| {
        let kind = replaced(field.data_type(), &SHOWN, &STORED);
        field.as_ref().clone().with_data_type(kind)
    };
    let fields: Vec<_> = schema.fields().iter().map(told).collect();
    Arc::new(Schema::new_with_metadata(fields, schema.metadata().clone()))
}
