//! Numbers that name what a catalog contains.

/// A snapshot's number: counts up from 0, one per commit.
pub type SnapshotId = i64;
/// The id of a schema, table, view or sequence. Negative until the creating transaction commits.
pub type ObjectId = i64;
/// A column's id within its table, never reused in it. Data files store it as their Parquet field id.
pub type ColumnId = i64;
