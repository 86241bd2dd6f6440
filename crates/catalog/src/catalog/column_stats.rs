//! Loads column statistics of single files: all files of a table at once, and later only new ones.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::catalog::Catalog;
use crate::database::bulk::{self, Wanted};
use crate::database::retry::retry_if_lost;
use crate::database::session::Session;
use crate::database::sql::{Dialect, flag, list};
use crate::error::Result;
use crate::model::file_stats::{FileStats, StatsRef};
use crate::model::ids::{ColumnId, ObjectId};
use crate::snapshot::cache::{CachedStats, StatsRow};

const TABLE: &str = "ducklake_file_column_stats";

impl Catalog {
    /// Column statistics of a table's files with ids `first` to `last`, as far as these are committed, and
    /// possibly of other files. A column without statistics has an empty entry.
    pub async fn column_stats(
        &self,
        table: ObjectId,
        columns: &[ColumnId],
        first: i64,
        last: i64,
    ) -> Result<BTreeMap<ColumnId, Arc<FileStats>>> {
        let mut found = BTreeMap::new();
        // Columns to read, by the start of the read.
        let mut unread: BTreeMap<Start, BTreeMap<ColumnId, Arc<FileStats>>> = BTreeMap::new();
        for column in columns {
            let known = self.inner.cache.stats(table, *column).filter(|known| known.first <= first);
            let (start, stats) = match known {
                Some(known) if last <= known.last => {
                    found.insert(*column, known.stats);
                    continue;
                }
                Some(CachedStats { first, last, row, stats }) => {
                    (Start { first, after: Some((last, row)) }, stats)
                }
                None => (Start { first, after: None }, Arc::default()),
            };
            unread.entry(start).or_default().insert(*column, stats);
        }
        if unread.is_empty() {
            return Ok(found);
        }
        let generation = self.inner.history.generation();
        let read_on = || async {
            let mut session = self.inner.database.read().await?;
            let newest = "SELECT next_file_id FROM ducklake_snapshot ORDER BY snapshot_id DESC LIMIT 1";
            let newest = session.query(newest).await?;
            let last = newest.first().map_or(Ok(0), |row| row.integer(0))? - 1;
            let mut known = Vec::new();
            for (start, before) in &unread {
                let (row, stats) = load_newer(&mut session, table, start, before.clone()).await?;
                let first = start.first;
                known.extend(
                    stats
                        .into_iter()
                        .map(|(column, stats)| (column, CachedStats { first, last, row, stats })),
                );
            }
            Ok(known)
        };
        for (column, known) in retry_if_lost(read_on).await? {
            found.insert(column, Arc::clone(&known.stats));
            if self.inner.history.generation() == generation {
                self.inner.cache.put_stats(table, column, known);
            }
        }
        Ok(found)
    }
}

/// The start of a read of a column's statistics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Start {
    /// The first file id.
    first: i64,
    /// Files up to this id are cached, from rows up to this one.
    after: Option<(i64, Option<StatsRow>)>,
}

/// Reads the entries after `before`. Also returns the last row of the table.
async fn load_newer(
    session: &mut Session,
    table: ObjectId,
    start: &Start,
    mut before: BTreeMap<ColumnId, Arc<FileStats>>,
) -> Result<(Option<StatsRow>, BTreeMap<ColumnId, Arc<FileStats>>)> {
    let first = start.after.map_or(start.first, |(last, _)| last + 1);
    // Rows are appended, so earlier ones need not be read again; if this row has not moved, none has.
    let mut after = None;
    if let Some((_, Some(row))) = start.after
        && row_at(session, row.row).await? == Some(row)
    {
        after = Some(row.row);
    }
    let has_nan = flag("contains_nan");
    let wanted = [
        Wanted::Integer("data_file_id"),
        Wanted::Integer("column_id"),
        Wanted::Integer("column_size_bytes"),
        Wanted::Integer("value_count"),
        Wanted::Integer("null_count"),
        Wanted::Text("min_value"),
        Wanted::Text("max_value"),
        Wanted::Integer(&has_nan),
    ];
    let columns = list(before.keys());
    let condition = format!("table_id = {table} AND column_id IN ({columns}) AND data_file_id >= {first}");
    let mut stats: BTreeMap<ColumnId, FileStats> =
        before.keys().map(|id| (*id, FileStats::default())).collect();
    let last = bulk::each(session, TABLE, &wanted, &condition, after, |fields| {
        let (file, column) = (fields.integer()?, fields.integer()?);
        let of_file = StatsRef {
            bytes: fields.optional_integer()?,
            values: fields.optional_integer()?,
            nulls: fields.optional_integer()?,
            min: fields.optional_text()?,
            max: fields.optional_text()?,
            nan: fields.optional_flag()?,
        };
        if let Some(stats) = stats.get_mut(&column) {
            stats.push(file, of_file);
        }
        Ok(())
    })
    .await?;
    for (column, newer) in stats {
        let all = before.entry(column).or_default();
        let newer = newer.into_sorted();
        if all.is_empty() {
            *all = Arc::new(newer);
        } else if !newer.is_empty() {
            Arc::make_mut(all).append(&newer);
        }
    }
    let row = match last.filter(|_| session.dialect() == Dialect::Sqlite) {
        Some(last) => row_at(session, last).await?,
        None => None,
    };
    Ok((row, before))
}

/// The key of the row with this number. SQLite only.
async fn row_at(session: &mut Session, row: i64) -> Result<Option<StatsRow>> {
    let sql = format!("SELECT data_file_id, column_id FROM {TABLE} WHERE rowid = {row}");
    let found = session.query(sql).await?;
    found
        .first()
        .map(|found| Ok(StatsRow { row, file: found.integer(0)?, column: found.integer(1)? }))
        .transpose()
}
