//! What files that are written say of the values of floats: nothing.
//!
//! Bounds leave NaN out, as Parquet has it, and readers who hold NaN for greater than all other numbers
//! (DuckDB, PostgreSQL, Harrier) pass over it by them: of a file with 0.5, 1 and NaN, whose bounds are 0.5
//! and 1, `x > 1` had no row. The writer of COPY has told the bounds of pages before it has seen all rows.
//! The warehouse's own files have bounds where there is no NaN (`table_files/row_groups.rs`).

use datafusion::arrow::datatypes::Schema;
use datafusion::common::Result;
use datafusion::common::config::TableParquetOptions;
use datafusion::parquet::arrow::ArrowSchemaConverter;
use datafusion::parquet::basic::{LogicalType, Type};
use datafusion::parquet::schema::types::ColumnDescriptor;

const NONE: &str = "none";

/// The options for files of `schema`, without bounds of floats unless a statement says how they are to be
/// told (`format.statistics_enabled::x`).
pub(super) fn without_floats(options: &TableParquetOptions, schema: &Schema) -> Result<TableParquetOptions> {
    let mut options = options.clone();
    let written = ArrowSchemaConverter::new().convert(schema)?;
    for column in written.columns().iter().filter(|column| is_float(column)) {
        let parts = column.path().parts();
        if parts.iter().any(|part| part.contains('.')) {
            // Options name columns by their parts with dots between them.
            options.global.statistics_enabled = Some(NONE.to_string());
            continue;
        }
        let own = options.column_specific_options.entry(parts.join(".")).or_default();
        own.statistics_enabled.get_or_insert_with(|| NONE.to_string());
    }
    Ok(options)
}

fn is_float(column: &ColumnDescriptor) -> bool {
    matches!(column.physical_type(), Type::FLOAT | Type::DOUBLE)
        || column.logical_type_ref() == Some(&LogicalType::Float16)
}
