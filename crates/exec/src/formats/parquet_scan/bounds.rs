//! Written files have no float statistics.
//!
//! Parquet bounds ignore NaN, and readers that order NaN after all other numbers (DuckDB, PostgreSQL,
//! Harrier) would wrongly prune by them: a file with 0.5, 1 and NaN, whose bounds are 0.5 and 1, returned no
//! row for `x > 1`. The writer of COPY writes the bounds of pages before it has seen all rows. The
//! warehouse's own files have bounds if there is no NaN (`data_files/row_groups.rs`).

use datafusion::arrow::datatypes::Schema;
use datafusion::common::Result;
use datafusion::common::config::TableParquetOptions;
use datafusion::parquet::arrow::ArrowSchemaConverter;
use datafusion::parquet::basic::{LogicalType, Type};
use datafusion::parquet::schema::types::ColumnDescriptor;

const NONE: &str = "none";

/// Options for files of `schema` without float statistics, unless a statement enables them
/// (`format.statistics_enabled::x`).
pub(super) fn without_floats(options: &TableParquetOptions, schema: &Schema) -> Result<TableParquetOptions> {
    let mut options = options.clone();
    let written = ArrowSchemaConverter::new().convert(schema)?;
    for column in written.columns().iter().filter(|column| is_float(column)) {
        let parts = column.path().parts();
        if parts.iter().any(|part| part.contains('.')) {
            // Options name nested columns by dotted paths.
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
