//! The record that a rank returns for each data file that it wrote.

use harrier_committer::object_store::Staged;
use prost::Message;

/// A complete data file at its final path, unless it was staged.
#[derive(Clone, PartialEq, Message)]
pub struct FileRecord {
    /// Relative to the table's folder, percent-encoded as in URLs.
    #[prost(string, tag = "1")]
    pub path: String,
    #[prost(int64, tag = "2")]
    pub rows: i64,
    #[prost(int64, tag = "3")]
    pub bytes: i64,
    #[prost(int64, tag = "4")]
    pub footer_bytes: i64,
    /// The value of every partition key, as text.
    #[prost(message, repeated, tag = "5")]
    pub partition: Vec<PartitionValue>,
    #[prost(message, repeated, tag = "6")]
    pub stats: Vec<FileStats>,
    /// The staging path until the file is published at `path`, if it was staged.
    #[prost(string, optional, tag = "7")]
    pub staged: Option<String>,
    /// The same in an object store.
    #[prost(message, optional, tag = "8")]
    pub upload: Option<Staged>,
}

#[derive(Clone, PartialEq, Message)]
pub struct PartitionValue {
    #[prost(string, optional, tag = "1")]
    pub value: Option<String>,
}

/// Statistics of one column in one file. Values are text.
#[derive(Clone, PartialEq, Message)]
pub struct FileStats {
    /// Parquet's field id.
    #[prost(int64, tag = "1")]
    pub column: i64,
    #[prost(int64, tag = "2")]
    pub bytes: i64,
    #[prost(int64, optional, tag = "3")]
    pub nulls: Option<i64>,
    #[prost(string, optional, tag = "4")]
    pub min: Option<String>,
    #[prost(string, optional, tag = "5")]
    pub max: Option<String>,
    #[prost(bool, optional, tag = "6")]
    pub nan: Option<bool>,
}
