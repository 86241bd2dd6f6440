//! File layout of a table: row groups, file sizes, codecs.

use std::collections::BTreeMap;

use datafusion::error::Result;
use harrier_catalog::state::{State, Table};
use harrier_exec::data_files::{FileShape, check_compression};

use crate::warehouse::table::partitions::partitions_of;

/// The file layout of the table, or of a table partition with its own options.
pub(crate) fn file_shape(state: &State, table: &Table, own: Option<&BTreeMap<String, String>>) -> FileShape {
    let option = |key: &str| match own.and_then(|own| own.get(key)) {
        Some(value) => Some(value.as_str()),
        None => state.option(table, key),
    };
    let codec = option("parquet_compression").unwrap_or(COMPRESSION);
    // The table's level applies to the table's codec only.
    let level = match own {
        Some(own) if own.contains_key("parquet_compression") => {
            own.get("parquet_compression_level").map(String::as_str)
        }
        _ => option("parquet_compression_level"),
    };
    let level = level.unwrap_or(match codec {
        "gzip" => "6",
        _ => COMPRESSION_LEVEL,
    });
    let compression = match codec {
        "gzip" | "zstd" | "brotli" => format!("{codec}({level})"),
        "lz4" => "lz4_raw".to_string(),
        other => other.to_string(),
    };
    let rows = option("parquet_row_group_size").and_then(|rows| rows.parse::<usize>().ok());
    FileShape {
        compression,
        row_group_rows: rows.unwrap_or(ROW_GROUP_ROWS),
        target_file_bytes: option("target_file_size").and_then(bytes_of).unwrap_or(TARGET_FILE_BYTES),
    }
}

/// Checks the codecs and levels in the options of a table and its table partitions.
///
/// Errors: an unsupported codec or level (22023).
pub(crate) fn check_codecs(state: &State, table: &Table) -> Result<()> {
    let says = |options: &BTreeMap<String, String>| {
        ["parquet_compression", "parquet_compression_level"].iter().any(|key| options.contains_key(*key))
    };
    if says(&table.options) {
        check_compression(&file_shape(state, table, None).compression)?;
    }
    if let Some(divided) = partitions_of(table)? {
        for own in divided.partitions.iter().filter(|own| says(&own.options)) {
            check_compression(&file_shape(state, table, Some(&own.options)).compression)?;
        }
    }
    Ok(())
}

/// Parses a size in DuckLake's options: `536870912`, `512MB`, `1GiB`.
pub(crate) fn bytes_of(text: &str) -> Option<u64> {
    harrier_functions::parse::byte_size::parse_size(text)
}

pub(crate) const ROW_GROUP_ROWS: usize = 122_880 * 4;

pub(crate) const TARGET_FILE_BYTES: u64 = 512 << 20;

pub(crate) const COMPRESSION: &str = "zstd";

pub(crate) const COMPRESSION_LEVEL: &str = "1";
