//! The data of a table: files, rows deleted from them, and inlined rows.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::model::ids::{ColumnId, ObjectId, SnapshotId};
use crate::model::state::Location;
use crate::model::types::ColumnType;

/// A data file of a committed snapshot.
#[derive(Debug, Clone, PartialEq)]
pub struct DataFile {
    pub id: i64,
    /// Position among the table's files, if DuckLake has set it; otherwise ordered by id.
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
    /// The file contains rows of several snapshots, up to this one, distinguished by a column
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

/// Statistics of one column in one file, or in a whole table. Values as text, in DuckLake's encoding.
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

/// A data file that a transaction has written, at its final path, not referenced yet.
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
    /// The delete file with `deleted`, if there are any.
    pub deletes: Option<NewDeleteFile>,
}

/// A delete file that a transaction has written: all positions deleted from one data file, including earlier
/// ones.
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
    /// Few: stored in the catalog. Positions in the file, only newly deleted ones.
    Inline(BTreeSet<i64>),
    /// Many: the whole set, including earlier ones, in a file. `positions` are only the newly deleted ones.
    File { file: NewDeleteFile, positions: BTreeSet<i64> },
}

/// A cell of an inlined row, in DuckLake's encoding of the column's type for the catalog database.
#[derive(Debug, Clone, PartialEq)]
pub enum Cell {
    Null,
    Integer(i64),
    Text(String),
    Blob(Vec<u8>),
}

/// Inlined rows, all written under one schema version of the table.
#[derive(Debug, Clone, PartialEq)]
pub struct InlinedRows {
    /// The schema version of the table under which they were written.
    pub schema_version: i64,
    /// The columns of `rows`, by id and by their name at that version.
    pub columns: Vec<(ColumnId, String)>,
    /// The types of these columns at that version.
    pub kinds: Vec<ColumnType>,
    pub row_ids: Vec<i64>,
    pub rows: Vec<Vec<Cell>>,
}

/// The row changes of one table in a transaction. Empty for an unchanged table.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TableChanges {
    pub added: Vec<NewFile>,
    /// Rows to inline: every top-level column of the table as the transaction sees it, in order.
    pub inlined: Vec<Vec<Cell>>,
    /// Contribution of `inlined` to the table's statistics, with the same order of columns.
    pub inlined_stats: BTreeMap<ColumnId, ColumnStats>,
    /// By data file id.
    pub deleted: BTreeMap<i64, NewDeletes>,
    /// Deleted inlined rows: schema version and row id.
    pub deleted_inlined: BTreeSet<(i64, i64)>,
    /// Ids of data files removed as a whole (TRUNCATE, INSERT OVERWRITE, compaction).
    pub removed: BTreeSet<i64>,
    /// All inlined rows are removed.
    pub removed_inlined: bool,
    /// An INSERT OVERWRITE or TRUNCATE: concurrently inserted rows are a conflict.
    pub replaces: bool,
    /// The rows are the same as before, in other files: readers see no difference.
    pub compacts: bool,
    /// The snapshot from which the first of these changes was computed.
    pub since: SnapshotId,
}

impl TableChanges {
    /// Whether no row and no file is changed.
    pub fn is_empty(&self) -> bool {
        *self == Self { since: self.since, ..Self::default() }
    }
}

/// Every file and inlined row of one table at one snapshot.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TableData {
    pub table: ObjectId,
    pub snapshot: SnapshotId,
    /// Shared by snapshots that have the same files.
    pub files: Arc<Vec<DataFile>>,
    pub inlined: Vec<InlinedRows>,
}

impl TableData {
    /// Approximate memory size, bytes.
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
