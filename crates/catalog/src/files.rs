//! The data of a table: files, rows deleted from them, and rows kept in the catalog itself.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::state::{ColumnId, Location, ObjectId, SnapshotId};
use crate::types::ColumnType;

/// A data file of a committed snapshot.
#[derive(Debug, Clone, PartialEq)]
pub struct DataFile {
    pub id: i64,
    /// Where it stands among the table's files, if DuckLake has said so; then by id.
    pub order: Option<i64>,
    pub begin: SnapshotId,
    pub path: Location,
    pub format: Cow<'static, str>,
    pub rows: i64,
    pub bytes: i64,
    pub footer_bytes: Option<i64>,
    pub partition_id: Option<i64>,
    /// By position of the key in the partitioning; `None` is NULL.
    pub partition_values: Vec<Option<String>>,
    pub mapping: Option<i64>,
    /// The file holds rows of several snapshots, up to this one, told apart by a column
    /// `_ducklake_internal_snapshot_id`.
    pub partial_max: Option<SnapshotId>,
    pub deletes: Option<Box<DeleteFile>>,
    /// Rows deleted by entries in the catalog (`ducklake_inlined_delete_…`): positions in the file.
    pub deleted_inline: Vec<i64>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct DeleteFile {
    pub id: i64,
    pub path: Location,
    pub format: Cow<'static, str>,
    pub rows: i64,
    pub bytes: i64,
    pub footer_bytes: Option<i64>,
    pub partial_max: Option<SnapshotId>,
}

/// What is known of one column in one file, or in a whole table. Values as text, in DuckLake's encoding.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ColumnStats {
    pub bytes: Option<i64>,
    /// Values that are not NULL.
    pub values: Option<i64>,
    pub nulls: Option<i64>,
    /// A lower bound.
    pub min: Option<String>,
    /// An upper bound.
    pub max: Option<String>,
    pub nan: Option<bool>,
}

/// A data file that a transaction has written, at its final path, referenced by nothing yet.
#[derive(Debug, Clone, PartialEq)]
pub struct NewFile {
    pub path: Location,
    pub rows: i64,
    pub bytes: i64,
    pub footer_bytes: i64,
    pub partition_values: Vec<Option<String>>,
    pub stats: BTreeMap<ColumnId, ColumnStats>,
    /// Positions deleted again in the transaction that wrote the file.
    pub deleted: BTreeSet<i64>,
    /// The delete file that holds `deleted`, when there are any.
    pub deletes: Option<NewDeleteFile>,
}

/// A delete file that a transaction has written: all positions deleted from one data file, older ones
/// included.
#[derive(Debug, Clone, PartialEq)]
pub struct NewDeleteFile {
    pub path: Location,
    pub rows: i64,
    pub bytes: i64,
    pub footer_bytes: i64,
}

/// Rows that are deleted from a committed data file.
#[derive(Debug, Clone, PartialEq)]
pub enum NewDeletes {
    /// Few: kept in the catalog. Positions in the file, only those not deleted before.
    Inline(BTreeSet<i64>),
    /// Many: the whole set, older ones included, in a file. `positions` are only those not deleted before.
    File { file: NewDeleteFile, positions: BTreeSet<i64> },
}

/// A cell of a row that the catalog keeps, in the encoding DuckLake gives the column's type for the catalog
/// database.
#[derive(Debug, Clone, PartialEq)]
pub enum Cell {
    Null,
    Integer(i64),
    Text(String),
    Blob(Vec<u8>),
}

/// Rows kept in the catalog, all written under one version of the table.
#[derive(Debug, Clone, PartialEq)]
pub struct InlinedRows {
    /// The version of the table's schema under which they were written.
    pub schema_version: i64,
    /// The columns of `rows`, by id and by the name they had then.
    pub columns: Vec<(ColumnId, String)>,
    /// The types of these columns then.
    pub kinds: Vec<ColumnType>,
    pub row_ids: Vec<i64>,
    pub rows: Vec<Vec<Cell>>,
}

/// What a transaction does to the rows of one table. Empty for a table it leaves alone.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TableChanges {
    pub added: Vec<NewFile>,
    /// Rows for the catalog to keep: every top-level column of the table as the transaction sees it, in
    /// order.
    pub inlined: Vec<Vec<Cell>>,
    /// With the same order of columns: what the rows of `inlined` contribute to the table's statistics.
    pub inlined_stats: BTreeMap<ColumnId, ColumnStats>,
    /// By data file id.
    pub deleted: BTreeMap<i64, NewDeletes>,
    /// Committed rows in the catalog: schema version and row id.
    pub deleted_inlined: BTreeSet<(i64, i64)>,
    /// Whole files that go (TRUNCATE, INSERT OVERWRITE, compaction), by data file id.
    pub removed: BTreeSet<i64>,
    /// All rows kept in the catalog go.
    pub removed_inlined: bool,
    /// An INSERT OVERWRITE or TRUNCATE: rows that another transaction added meanwhile are a conflict.
    pub replaces: bool,
    /// The rows are the same as before, in other files: no reader sees a difference.
    pub compacts: bool,
    /// The snapshot the first of these changes was computed from.
    pub since: SnapshotId,
}

impl TableChanges {
    /// Whether no row and no file is changed.
    pub fn is_empty(&self) -> bool {
        *self == Self { since: self.since, ..Self::default() }
    }
}

/// Every file and kept row of one table at one snapshot.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TableData {
    pub table: ObjectId,
    pub snapshot: SnapshotId,
    /// Snapshots that have the same files may share them.
    pub files: Arc<Vec<DataFile>>,
    pub inlined: Vec<InlinedRows>,
}

impl TableData {
    /// About what it takes in memory.
    pub(crate) fn bytes(&self) -> usize {
        let of_file = |file: &DataFile| {
            let values: usize = file.partition_values.iter().flatten().map(String::len).sum();
            let deletes =
                file.deletes.as_ref().map_or(0, |deletes| size_of::<DeleteFile>() + deletes.path.path.len());
            let places =
                file.partition_values.len() * size_of::<Option<String>>() + file.deleted_inline.len() * 8;
            size_of::<DataFile>() + file.path.path.len() + values + places + deletes
        };
        let of_cell = |cell: &Cell| {
            size_of::<Cell>()
                + match cell {
                    Cell::Text(text) => text.len(),
                    Cell::Blob(bytes) => bytes.len(),
                    Cell::Null | Cell::Integer(_) => 0,
                }
        };
        let kept = self.inlined.iter().flat_map(|kept| &kept.rows).flatten().map(of_cell).sum::<usize>();
        size_of::<Self>() + self.files.iter().map(of_file).sum::<usize>() + kept
    }
}
