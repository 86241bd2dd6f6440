//! What the catalog knows of a whole table: counts, and bounds of its columns.
//!
//! Bounds only widen: they hold for every snapshot. Something that is not known of one file is not known of the table.
//!
//! The count is of all rows that were ever put in, and never falls. DuckDB compares it with the rows that are left: if they
//! are as many, nothing was ever deleted, the bounds are exact, and it answers `min` and `max` from them. So bounds of the
//! whole table are kept only as long as they are exact, and a compaction counts nothing.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use crate::commit::flatten;
use crate::database::{Rows, Session, optional_boolean, optional_text};
use crate::error::Result;
use crate::files::{ColumnStats, NewFile};
use crate::load::{self, TableColumnStats, TableStats};
use crate::state::{Column, ColumnId, ObjectId};
use crate::types::ColumnType;
use crate::values;

/// Writers of Parquet cut the bounds of text at 64 bytes, or a character before. What is as long may not be exact.
const EXACT_TEXT_BYTES_MAX: usize = 60;

/// The statistics of one table, as a commit changes them.
pub(crate) struct Totals {
    table: ObjectId,
    /// Whether the table has a row of statistics: rows were put in before.
    known: bool,
    before: TableStats,
    now: TableStats,
    kinds: BTreeMap<ColumnId, ColumnType>,
    /// Columns of which values were seen, so that there are bounds to widen.
    seen: BTreeMap<ColumnId, bool>,
}

impl Totals {
    pub async fn load(session: &mut Session, table: ObjectId, columns: &[Column]) -> Result<Self> {
        let before = load::table_stats(session, table).await?;
        let mut flat = Vec::new();
        flatten(columns, None, &mut flat);
        let kinds: BTreeMap<_, _> = flat
            .into_iter()
            .filter(|(column, _)| !column.kind.is_nested())
            .map(|(column, _)| (column.id, column.kind))
            .collect();
        let known = before.is_some();
        let before = before.unwrap_or_default();
        let mut now = before.clone();
        let mut seen = BTreeMap::new();
        // A column that was added to a table with rows has values that nobody has looked at: it stays unknown.
        if before.next_row_id == 0 && now.columns.is_empty() {
            for column in kinds.keys() {
                let nothing = TableColumnStats { contains_null: Some(false), ..TableColumnStats::default() };
                now.columns.insert(*column, nothing);
                seen.insert(*column, false);
            }
        }
        Ok(Self { table, known, before, now, kinds, seen })
    }

    /// Files are gone.
    pub fn remove_bytes(&mut self, bytes: i64) {
        self.now.file_size_bytes -= bytes;
    }

    /// Counts a new file in, unless its rows were in others before; the number of its first row.
    pub fn add_file(&mut self, file: &NewFile, compacts: bool) -> i64 {
        let first = self.now.next_row_id;
        self.now.next_row_id += file.rows;
        self.now.file_size_bytes += file.bytes;
        if !compacts {
            self.now.record_count += file.rows;
        }
        self.add_stats(&file.stats);
        first
    }

    /// The number of a new row that the catalog keeps.
    pub fn add_row(&mut self) -> i64 {
        self.now.next_row_id += 1;
        self.now.record_count += 1;
        self.now.next_row_id - 1
    }

    /// Widens the bounds of all columns by those of a file.
    pub fn add_stats(&mut self, stats: &BTreeMap<ColumnId, ColumnStats>) {
        for (column, total) in &mut self.now.columns {
            let Some(kind) = self.kinds.get(column) else { continue };
            let Some(stats) = stats.get(column) else {
                *total = TableColumnStats::default();
                self.seen.insert(*column, true);
                continue;
            };
            total.contains_null = match (total.contains_null, stats.nulls) {
                (Some(true), _) => Some(true),
                (_, Some(nulls)) if nulls > 0 => Some(true),
                (Some(false), Some(_)) => Some(false),
                _ => None,
            };
            if stats.values == Some(0) {
                continue;
            }
            let first = self.seen.insert(*column, true) == Some(false);
            total.contains_nan = match (total.contains_nan, stats.nan) {
                (Some(true), _) | (_, Some(true)) => Some(true),
                (Some(false), Some(false)) => Some(false),
                (None, nan) if first => nan,
                _ => None,
            };
            let exact = |bound: &Option<String>| {
                bound.clone().filter(|bound| bound.len() <= EXACT_TEXT_BYTES_MAX && !bound.contains('\0'))
            };
            let (min, max) = (exact(&stats.min), exact(&stats.max));
            total.min = widen(*kind, total.min.take(), min.as_deref(), first, Ordering::Less);
            total.max = widen(*kind, total.max.take(), max.as_deref(), first, Ordering::Greater);
        }
    }

    /// The statements that store them.
    pub fn write(mut self) -> Result<Vec<String>> {
        self.now.file_size_bytes = self.now.file_size_bytes.max(0);
        let TableStats { record_count, next_row_id, file_size_bytes, columns } = &self.now;
        if self.now == self.before || (!self.known && *next_row_id == 0) {
            return Ok(Vec::new());
        }
        let table = self.table;
        let mut statements = vec![if self.known {
            format!(
                "UPDATE ducklake_table_stats SET record_count = {record_count}, next_row_id = {next_row_id}, \
                 file_size_bytes = {file_size_bytes} WHERE table_id = {table}"
            )
        } else {
            format!(
                "INSERT INTO ducklake_table_stats (table_id, record_count, next_row_id, file_size_bytes) VALUES \
                 ({table}, {record_count}, {next_row_id}, {file_size_bytes})"
            )
        }];
        let mut rows = Rows::into(
            "ducklake_table_column_stats",
            "table_id, column_id, contains_null, contains_nan, min_value, max_value, extra_stats",
        );
        for (column, stats) in columns {
            let before = self.before.columns.get(column);
            if before == Some(stats) {
                continue;
            }
            let (null, nan) = (optional_boolean(stats.contains_null), optional_boolean(stats.contains_nan));
            let (min, max) = (optional_text(stats.min.as_deref())?, optional_text(stats.max.as_deref())?);
            if before.is_some() {
                statements.push(format!(
                    "UPDATE ducklake_table_column_stats SET contains_null = {null}, contains_nan = {nan}, \
                     min_value = {min}, max_value = {max} WHERE table_id = {table} AND column_id = {column}"
                ));
            } else {
                rows.add(&format!("{table}, {column}, {null}, {nan}, {min}, {max}, NULL"));
            }
        }
        statements.extend(rows.finish());
        Ok(statements)
    }
}

/// The bounds of a column as the catalog can keep them. It cannot keep a character of code 0: what stands before it is
/// still a lower bound; there is no upper one.
pub(crate) fn bounds(stats: &ColumnStats) -> (Option<&str>, Option<&str>) {
    let min = stats.min.as_deref().map(|min| min.split('\0').next().unwrap_or_default());
    let max = stats.max.as_deref().filter(|max| !max.contains('\0'));
    (min, max)
}

/// The lesser or greater of two bounds; none if either is unknown.
fn widen(
    kind: ColumnType,
    before: Option<String>,
    bound: Option<&str>,
    first: bool,
    wanted: Ordering,
) -> Option<String> {
    let bound = bound?;
    match before {
        None if first => Some(bound.to_string()),
        None => None,
        Some(before) => match values::compare(kind, bound, &before)? {
            order if order == wanted => Some(bound.to_string()),
            _ => Some(before),
        },
    }
}
