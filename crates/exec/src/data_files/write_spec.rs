//! What a statement writes: the layout, format and destination of new data files.

use std::collections::BTreeMap;

use datafusion::arrow::datatypes::SchemaRef;
use harrier_committer::object_store::ReplacedFiles;

use crate::data_files::write_format::WriteFormat;

/// Sizes and compression of files.
#[derive(Clone, Debug, PartialEq)]
pub struct FileShape {
    /// A Parquet codec name: `uncompressed`, `snappy`, `gzip(6)`, `zstd(3)`, `lz4_raw`, `brotli(1)`.
    pub compression: String,
    pub row_group_rows: usize,
    pub target_file_bytes: u64,
}

/// Layout and destination of new files.
#[derive(Clone, Debug, PartialEq)]
pub struct WriteSpec {
    /// The table's folder, as a location of `location.rs` with a trailing `/`.
    pub folder: String,
    /// Prefix of all file names of this statement.
    pub name: String,
    /// The table's name, for errors.
    pub table: String,
    /// The columns of the files, which are the first of the input, with Parquet field ids in their metadata.
    /// Non-nullable ones are checked.
    pub schema: SchemaRef,
    /// The partition keys: columns of the input after those of the files, by which it is sorted.
    pub partition: Vec<PartitionFolder>,
    /// The sort order of rows in files: column index, descending, nulls first.
    pub sort: Vec<(usize, bool, bool)>,
    /// The input ends with a column that says whether to write the row, and the position (file, row) of the
    /// row that it replaces, if any.
    pub replaces: bool,
    pub shape: FileShape,
    /// Overriding shapes, by the value of the first partition key.
    pub own_shapes: BTreeMap<String, FileShape>,
    /// A single writer gets all rows, so that there are as few files as possible.
    pub one_writer: bool,
    pub format: WriteFormat,
    /// The statement's folder, for files that are published together at its end; in an object store, the
    /// statement's id.
    pub staging: Option<String>,
    /// The files that staged ones replace, in an object store.
    pub replaced_files: ReplacedFiles,
}

/// One level of folders.
#[derive(Clone, Debug, PartialEq)]
pub struct PartitionFolder {
    /// The part before the `=`. Empty: there is no folder, and file names are prefixed with the value.
    pub name: String,
}
