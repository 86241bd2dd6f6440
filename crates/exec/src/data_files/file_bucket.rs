//! The bucket of a data file, as planning is told of it.

/// The bucket that all rows of a data file are in. Said of a [`PartitionedFile`] in its extensions, for
/// planning.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileBucket {
    /// The key, by its name in the file's table.
    pub column: String,
    /// How many buckets the table has.
    pub count: u32,
    /// From 0.
    pub number: u32,
}
