//! Files of a scan, their statistics, and row positions.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use datafusion::common::ScalarValue;
use datafusion::datasource::listing::PartitionedFile;
use datafusion::error::Result;
use datafusion::object_store::ObjectMeta;
use harrier_catalog::files::ColumnStats;
use harrier_catalog::state::{Column, ColumnId, PartitionKey, Table, Transform};
use harrier_catalog::{FileStats, StatsRef};
use harrier_exec::data_files::location::Folder;
use harrier_exec::data_files::{DeletedRows, FileBucket};

use crate::types::columns::{has_unreliable_buckets, share_buckets};
use crate::warehouse::table::stored_values;

/// Length and magic after Parquet's footer.
pub(crate) const FOOTER_END_BYTES: usize = 8;

/// Column statistics of committed files.
#[derive(Default)]
pub(crate) struct StatsByFile(pub(crate) BTreeMap<ColumnId, Arc<FileStats>>);

impl StatsByFile {
    /// The statistics of a file, committed or added by the transaction.
    pub(crate) fn get<'s>(&'s self, file: &'s ScannedFile, column: ColumnId) -> Option<StatsRef<'s>> {
        match file.source {
            RowSource::File(id) => self.0.get(&column)?.get(id),
            _ => file.own_stats.get(&column).map(StatsRef::from),
        }
    }
}

/// A data file, with everything needed to read it.
#[derive(Debug, Clone)]
pub(crate) struct ScannedFile {
    pub source: RowSource,
    pub location: String,
    pub rows: i64,
    pub bytes: i64,
    pub partition_values: Vec<Option<String>>,
    /// In a range or list partitioned table: the table partition of all its rows.
    pub table_partition: Option<i64>,
    /// See [`partitions::unplaced_before`].
    pub unplaced_before: Option<i64>,
    /// Whether it is partitioned by the table's current keys.
    pub(crate) is_partitioned_now: bool,
    pub(crate) footer_bytes: Option<i64>,
    pub(crate) columns: Arc<Vec<Column>>,
    pub deleted: DeletedRows,
    /// The part of `deleted` that the catalog had inlined in an earlier snapshot.
    pub deleted_inline: BTreeSet<i64>,
    /// Total number of deleted rows.
    pub(crate) deleted_count: i64,
    /// Statistics of an uncommitted file.
    pub(crate) own_stats: BTreeMap<ColumnId, ColumnStats>,
}

impl ScannedFile {
    pub(crate) fn deleted_rows(&self) -> i64 {
        self.deleted_count
    }

    /// Rows that are not deleted.
    pub(crate) fn live_rows(&self) -> i64 {
        (self.rows - self.deleted_count).max(0)
    }

    /// The table's columns when the file was written.
    pub(crate) fn columns(&self) -> &[Column] {
        &self.columns
    }

    /// Whether its partition values are those of the table's current keys.
    pub(crate) fn is_partitioned_as(&self, table: &Table) -> bool {
        self.is_partitioned_now && self.partition_values.len() == table.partition.len()
    }

    /// Its partition values as they are written now: a column may have had another type when the file was
    /// written.
    pub(crate) fn partition_values_now(&self, table: &Table) -> Result<Vec<Option<String>>> {
        let now = |(key, value): (&PartitionKey, &Option<String>)| {
            let column = table.columns.iter().find(|column| column.id == key.column);
            let written = self.columns.iter().find(|own| own.id == key.column);
            match (value, column, written) {
                (Some(text), Some(column), Some(written)) if key.transform == Transform::Identity => {
                    stored_values::text_as_now(text, column, written.kind).map(Some)
                }
                (value, ..) => Ok(value.clone()),
            }
        };
        table.partition.iter().zip(&self.partition_values).map(now).collect()
    }

    /// The bucket that contains all rows of the file, if the table has buckets and the file was written into
    /// them.
    pub(crate) fn bucket(&self, table: &Table) -> Option<FileBucket> {
        let mut keys = table.partition.iter().zip(&self.partition_values);
        let (key, value, count) = keys.find_map(|(key, value)| match key.transform {
            Transform::Bucket(count) => Some((key, value, count)),
            _ => None,
        })?;
        if table.partition_id.is_none() || !self.is_partitioned_as(table) {
            return None;
        }
        let column = table.columns.iter().find(|column| column.id == key.column)?;
        if has_unreliable_buckets(column) {
            return None;
        }
        // The scan knows the column by its name in the file.
        let in_file = self.columns.iter().find(|own| own.id == column.id)?;
        if !share_buckets(in_file.kind, column.kind) {
            return None;
        }
        let number = match value {
            Some(value) => value.parse().ok().filter(|number| *number < count)?,
            // NULL, which equals nothing.
            None => 0,
        };
        Some(FileBucket { column: in_file.name.clone(), count, number })
    }

    pub(crate) fn partitioned_file(
        &self,
        by_row: bool,
        table: &Table,
        folder: &Folder,
    ) -> Result<PartitionedFile> {
        let meta = ObjectMeta {
            location: folder.path_of(&self.location)?,
            // Constant: files are immutable.
            last_modified: std::time::UNIX_EPOCH.into(),
            size: self.bytes as u64,
            e_tag: None,
            version: None,
        };
        let mut file = PartitionedFile::from(meta);
        if by_row {
            file.partition_values = vec![ScalarValue::Int64(Some(self.source.encode()))];
        }
        if let Some(bucket) = self.bucket(table) {
            file.extensions.insert(bucket);
        }
        if let Some(footer) = self.footer_bytes {
            file = file.with_metadata_size_hint(footer as usize + FOOTER_END_BYTES);
        }
        Ok(file)
    }
}

/// The source of a row to be changed: the value of [`FILE_COLUMN`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum RowSource {
    /// A committed data file, by id.
    File(i64),
    /// A file added by the transaction, by index.
    Added(usize),
    /// Inlined rows of this schema version; the row is a row id.
    Inlined(i64),
    /// Inlined rows added by the transaction; the row is an index.
    AddedInlined,
}

impl RowSource {
    pub(crate) fn encode(self) -> i64 {
        match self {
            Self::File(id) => id,
            Self::Added(at) => -3 * (at as i64) - 1,
            Self::Inlined(version) => -3 * version - 2,
            Self::AddedInlined => -3,
        }
    }

    pub(crate) fn decode(code: i64) -> Self {
        match (code, (-code).rem_euclid(3)) {
            (0.., _) => Self::File(code),
            (_, 1) => Self::Added((-code / 3) as usize),
            (_, 2) => Self::Inlined(-code / 3),
            _ => Self::AddedInlined,
        }
    }
}
