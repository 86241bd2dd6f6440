//! Generated tables as Parquet files: `DIR/<table>/<n>.parquet`, compressed with Snappy, in row groups of
//! [`ROW_GROUP_ROWS`].
//!
//! Invariant: a folder under its final name is complete, because it is written as `<DIR>.part` and renamed.
//! Memory bound: one row group, encoded, and one batch of [`BATCH_ROWS`].
//! Crash: an unfinished folder stays, and the next call removes it.

use std::fs::{self, File};
use std::ops::Range;
use std::path::Path;

use arrow::error::ArrowError;
use arrow::record_batch::RecordBatch;
use datafusion::parquet::arrow::ArrowWriter;
use datafusion::parquet::basic::Compression;
use datafusion::parquet::errors::ParquetError;
use datafusion::parquet::file::properties::{EnabledStatistics, WriterProperties};
use harrier_error::{SqlError, SqlState};

use crate::io_error;

/// Rows of a row group.
const ROW_GROUP_ROWS: u64 = 250_000;

/// Rows made at a time.
const BATCH_ROWS: u64 = 25_000;

/// A table to generate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Table {
    pub name: &'static str,
    pub rows: u64,
    /// Number of files, of about as many rows.
    pub files: u64,
}

/// Tables whose rows are functions of their numbers.
pub trait Source {
    fn tables(&self) -> Vec<Table>;

    /// The rows of these numbers, in this order. `table`: a name out of [`Source::tables`].
    fn batch(&self, table: &str, rows: Range<u64>) -> Result<RecordBatch, ArrowError>;
}

/// Writes all tables into a new folder, and a line for each to standard error. Blocks until it is done.
///
/// Errors: a file cannot be written; the folder does not exist then.
pub fn write(source: &dyn Source, folder: &Path) -> Result<(), SqlError> {
    let mut unfinished = folder.as_os_str().to_owned();
    unfinished.push(".part");
    let unfinished = Path::new(&unfinished);
    if unfinished.exists() {
        fs::remove_dir_all(unfinished).map_err(|e| io_error("remove folder", unfinished, &e))?;
    }
    for table in source.tables() {
        let place = unfinished.join(table.name);
        fs::create_dir_all(&place).map_err(|e| io_error("create folder", &place, &e))?;
        let first = |file: u64| table.rows * file / table.files;
        for file in 0..table.files {
            let path = place.join(format!("{file}.parquet"));
            write_file(source, table.name, first(file)..first(file + 1), &path)?;
        }
        eprintln!("{}: {} rows", table.name, table.rows);
    }
    fs::rename(unfinished, folder).map_err(|e| io_error("create folder", folder, &e))
}

fn write_file(source: &dyn Source, table: &str, rows: Range<u64>, path: &Path) -> Result<(), SqlError> {
    let failure = |error: ParquetError| {
        SqlError::new(SqlState::IO_ERROR, format!("could not write file \"{}\": {error}", path.display()))
    };
    let batch = |rows| source.batch(table, rows).map_err(|error| failure(error.into()));
    let schema = batch(rows.start..rows.start)?.schema();
    // As other programs write by default: statistics of row groups, and no index of pages.
    let properties = WriterProperties::builder()
        .set_compression(Compression::SNAPPY)
        .set_max_row_group_row_count(Some(ROW_GROUP_ROWS as usize))
        .set_statistics_enabled(EnabledStatistics::Chunk)
        .build();
    let file = File::create(path).map_err(|e| io_error("create file", path, &e))?;
    let mut writer = ArrowWriter::try_new(file, schema, Some(properties)).map_err(failure)?;
    let mut start = rows.start;
    while start < rows.end {
        let end = (start + BATCH_ROWS).min(rows.end);
        writer.write(&batch(start..end)?).map_err(failure)?;
        start = end;
    }
    writer.close().map_err(failure)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{ArrayRef, Int64Array};
    use datafusion::parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

    use super::*;

    struct Numbers;

    impl Source for Numbers {
        fn tables(&self) -> Vec<Table> {
            vec![Table { name: "numbers", rows: 600_001, files: 2 }]
        }

        fn batch(&self, _: &str, rows: Range<u64>) -> Result<RecordBatch, ArrowError> {
            let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(rows.map(|row| row as i64)));
            RecordBatch::try_from_iter_with_nullable([("number", numbers, true)])
        }
    }

    #[test]
    fn files_hold_all_rows_in_row_groups() {
        let place = tempfile::tempdir().unwrap();
        let folder = place.path().join("data");
        // What another run has left.
        fs::create_dir_all(place.path().join("data.part/old")).unwrap();
        write(&Numbers, &folder).unwrap_or_else(|error| panic!("{}", error.message));
        assert!(!place.path().join("data.part").exists() && !folder.join("old").exists());
        let mut groups = Vec::new();
        for file in ["0.parquet", "1.parquet"] {
            let file = File::open(folder.join("numbers").join(file)).unwrap();
            let reader = ParquetRecordBatchReaderBuilder::try_new(file).unwrap();
            groups.extend(reader.metadata().row_groups().iter().map(|group| group.num_rows()));
        }
        assert_eq!(groups, [250_000, 50_000, 250_000, 50_001]);
    }
}
