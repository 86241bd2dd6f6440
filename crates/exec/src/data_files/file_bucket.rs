//! Bucket metadata of a data file, for planning.

/// The bucket of all rows of a data file, as an extension of [`PartitionedFile`] for planning.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileBucket {
    /// The key's column name in the file's table.
    pub column: String,
    /// Number of buckets of the table.
    pub count: u32,
    /// From 0.
    pub number: u32,
}
