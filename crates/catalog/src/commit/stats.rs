//! Table-level statistics in the catalog: counts, and bounds of columns.
//!
//! Bounds only widen: they hold for every snapshot. A statistic that is unknown for one file is unknown for
//! the table.
//!
//! A row of `ducklake_table_column_stats` without bounds says that the column has no value yet, only NULLs or
//! no rows: DuckDB then uses the bounds of the next values for the whole table. A column with unknown
//! statistics has no row, and never gets one again, since DuckDB updates existing rows and adds none
//! (`docs/decisions/0042-what-bounds-in-the-catalog-mean.md`).
//!
//! The count includes all rows ever inserted, and never falls. DuckDB compares it with the remaining rows: if
//! they are equal, nothing was ever deleted, the bounds are exact, and it answers `min` and `max` from them.
//! So table bounds are stored only as long as they are exact, and a compaction counts nothing.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::database::session::Session;
use crate::database::sql::{Dialect, Rows, list, name, optional_boolean, optional_text, text};
use crate::error::Result;
use crate::model::files::{ColumnStats, NewFile, TableChanges};
use crate::model::ids::{ColumnId, ObjectId};
use crate::model::state::{Column, Table, flatten};
use crate::model::types::ColumnType;
use crate::model::values;
use crate::snapshot::inlined_rows;
use crate::snapshot::table_stats::{self, TableColumnStats, TableStats};

/// Parquet writers truncate text bounds at 64 bytes, or a character before. Longer ones may not be exact.
const EXACT_TEXT_BYTES_MAX: usize = 60;

/// The statistics of one table during a commit.
pub(crate) struct Totals {
    table: ObjectId,
    /// Whether the table has a row of statistics: rows were inserted before.
    has_row: bool,
    before: TableStats,
    now: TableStats,
    kinds: BTreeMap<ColumnId, ColumnType>,
}

impl Totals {
    pub async fn load(session: &mut Session, table: ObjectId, columns: &[Column]) -> Result<Self> {
        let before = table_stats::table_stats(session, table).await?;
        let mut flat = Vec::new();
        flatten(columns, None, &mut flat);
        let kinds: BTreeMap<_, _> = flat
            .into_iter()
            .filter(|(column, _)| !column.kind.is_nested())
            .map(|(column, _)| (column.id, column.kind))
            .collect();
        let has_row = before.is_some();
        let before = before.unwrap_or_default();
        let mut now = before.clone();
        // A column added to a table with rows has values that were not inspected: it stays unknown.
        if before.next_row_id == 0 && now.columns.is_empty() {
            for column in kinds.keys() {
                let nothing = TableColumnStats { contains_null: Some(false), ..TableColumnStats::default() };
                now.columns.insert(*column, nothing);
            }
        }
        let mut totals = Self { table, has_row, before, now, kinds };
        totals.forget_other_types(session).await?;
        Ok(totals)
    }

    /// Drops bounds that were written under another type than the column has now, and would be read as
    /// another value.
    async fn forget_other_types(&mut self, session: &mut Session) -> Result<()> {
        let is_bounded = |column: &ColumnId| self.before.columns.get(column).is_some_and(has_bounds);
        let unsure = |kind: ColumnType| matches!(kind, ColumnType::Float64 | ColumnType::Varchar);
        let columns = self.kinds.iter().filter(|(column, kind)| unsure(**kind) && is_bounded(column));
        let columns: Vec<ColumnId> = columns.map(|(column, _)| *column).collect();
        if columns.is_empty() {
            return Ok(());
        }
        let sql = format!(
            "SELECT DISTINCT column_id, column_type FROM ducklake_column WHERE table_id = {} AND column_id IN ({}) \
             AND end_snapshot IS NOT NULL",
            self.table,
            list(&columns)
        );
        for row in session.query(sql).await? {
            let (column, kind) = (row.integer(0)?, row.text(1)?);
            let now = self.kinds.get(&column).copied();
            if !now.is_some_and(|now| kind.parse().is_ok_and(|kind: ColumnType| has_same_text(kind, now))) {
                self.now.columns.remove(&column);
            }
        }
        Ok(())
    }

    /// Verifies that columns that get their first values from these changes really had none: rows without
    /// bounds were also written by earlier versions for unknown columns, and are by DuckDB for texts without
    /// known bounds.
    pub async fn verify_first_values(
        &mut self,
        session: &mut Session,
        table: &Table,
        changes: &TableChanges,
    ) -> Result<()> {
        if self.before.next_row_id == 0 {
            return Ok(());
        }
        let inlined = (!changes.inlined.is_empty()).then_some(&changes.inlined_stats);
        let new: Vec<_> = changes.added.iter().map(|file| &file.stats).chain(inlined).collect();
        let gets_values = |column: &ColumnId| {
            new.iter().any(|stats| stats.get(column).is_none_or(|stats| stats.values != Some(0)))
        };
        let empty = self.now.columns.iter().filter(|(_, stats)| !has_bounds(stats));
        let first: Vec<ColumnId> = empty.map(|(column, _)| *column).filter(gets_values).collect();
        if first.is_empty() {
            return Ok(());
        }
        let id = self.table;
        let sql = format!(
            "SELECT DISTINCT column_id FROM ducklake_file_column_stats WHERE table_id = {id} AND \
             column_id IN ({}) AND (value_count IS NULL OR value_count > 0)",
            list(&first)
        );
        for row in session.query(sql).await? {
            self.now.columns.remove(&row.integer(0)?);
        }
        let kept: Vec<String> = inlined_rows::inlined_tables(session, id).await?.into_values().collect();
        if kept.is_empty() {
            return Ok(());
        }
        // All former names of the columns, which inlined tables use.
        let sql = format!(
            "SELECT DISTINCT column_id, column_name FROM ducklake_column WHERE table_id = {id} AND \
             column_id IN ({}) AND parent_column IS NULL",
            list(&first)
        );
        let mut names = Vec::new();
        for row in session.query(sql).await? {
            names.push((row.integer(0)?, row.text(1)?));
        }
        for column in table.columns.iter().filter(|column| first.contains(&column.id)) {
            names.push((column.id, column.name.clone()));
        }
        for (column, name) in names {
            for kept in &kept {
                if self.now.columns.contains_key(&column) && has_inlined_values(session, kept, &name).await? {
                    self.now.columns.remove(&column);
                }
            }
        }
        Ok(())
    }

    /// Subtracts removed files.
    pub fn remove_bytes(&mut self, bytes: i64) {
        self.now.file_size_bytes -= bytes;
    }

    /// Counts a new file, unless its rows were in other files before; returns the id of its first row.
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

    /// The id of a new inlined row.
    pub fn add_row(&mut self) -> i64 {
        self.now.next_row_id += 1;
        self.now.record_count += 1;
        self.now.next_row_id - 1
    }

    /// Widens the bounds of all columns by those of a file.
    pub fn add_stats(&mut self, stats: &BTreeMap<ColumnId, ColumnStats>) {
        let kinds = &self.kinds;
        self.now.columns.retain(|column, total| {
            // Dropped columns stay as they are.
            let Some(kind) = kinds.get(column) else { return true };
            stats.get(column).is_some_and(|stats| add(total, *kind, stats))
        });
    }

    /// The statements that store them.
    pub fn write(mut self) -> Result<Vec<String>> {
        self.now.file_size_bytes = self.now.file_size_bytes.max(0);
        let TableStats { record_count, next_row_id, file_size_bytes, columns } = &self.now;
        if self.now == self.before || (!self.has_row && *next_row_id == 0) {
            return Ok(Vec::new());
        }
        let table = self.table;
        let mut statements = vec![if self.has_row {
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
        let unknown = self.before.columns.keys().filter(|column| !columns.contains_key(column));
        let unknown: Vec<&ColumnId> = unknown.collect();
        if !unknown.is_empty() {
            statements.push(format!(
                "DELETE FROM ducklake_table_column_stats WHERE table_id = {table} AND column_id IN ({})",
                list(unknown)
            ));
        }
        Ok(statements)
    }
}

/// Whether the column has had values.
fn has_bounds(stats: &TableColumnStats) -> bool {
    stats.min.is_some() || stats.max.is_some()
}

/// Whether values written under a type have the same text and the same order under the wider type of the
/// column now.
pub(crate) fn has_same_text(written: ColumnType, now: ColumnType) -> bool {
    use ColumnType::*;
    match (written, now) {
        (written, now) if written == now => true,
        (Float32, Float64) | (_, Varchar) => false,
        _ => true,
    }
}

/// The statements that convert a column's statistics and inlined rows to its new type: texts written as REAL
/// become those of the equal DOUBLE PRECISION, which reads as the same REAL at earlier snapshots; bounds that
/// cannot be converted become unknown. `kept`: the inlined tables, with the name of the column.
pub(crate) async fn convert_stats(
    session: &mut Session,
    table: ObjectId,
    column: ColumnId,
    (before, now): (ColumnType, ColumnType),
    (kept, column_name): (&[String], &str),
) -> Result<Vec<String>> {
    let of_column = format!("table_id = {table} AND column_id = {column}");
    let mut statements = vec![format!("DELETE FROM ducklake_table_column_stats WHERE {of_column}")];
    if (before, now) != (ColumnType::Float32, ColumnType::Float64) {
        statements.push(format!(
            "UPDATE ducklake_file_column_stats SET min_value = NULL, max_value = NULL WHERE {of_column}"
        ));
        return Ok(statements);
    }
    for bound in ["min_value", "max_value"] {
        statements.extend(exact_texts(session, "ducklake_file_column_stats", bound, &of_column).await?);
    }
    // PostgreSQL keeps numbers, and those of the old type in a table of their own.
    if session.dialect() == Dialect::Sqlite {
        for kept in kept {
            if session.has_column(kept, column_name).await? {
                statements.extend(exact_texts(session, &name(kept)?, &name(column_name)?, "1 = 1").await?);
            }
        }
    }
    Ok(statements)
}

/// Number of texts replaced per statement.
const TEXTS_MAX: usize = 500;

/// The statements that replace texts of single precision by those of the same numbers in double precision.
async fn exact_texts(
    session: &mut Session,
    table: &str,
    column: &str,
    condition: &str,
) -> Result<Vec<String>> {
    let sql = format!("SELECT DISTINCT {column} FROM {table} WHERE {condition} AND {column} IS NOT NULL");
    let mut exact = Vec::new();
    for row in session.query(sql).await? {
        let written = row.text(0)?;
        let value = written.parse::<f32>().ok().filter(|value| value.is_finite()).map(f64::from);
        if let Some(value) = value.map(|value| format!("{value:?}")).filter(|value| *value != written) {
            exact.push((written, value));
        }
    }
    let replaced = |some: &[(String, String)]| {
        let (mut cases, mut all) = (String::new(), Vec::new());
        for (written, value) in some {
            let _ = write!(cases, " WHEN {} THEN {}", text(written)?, text(value)?);
            all.push(text(written)?);
        }
        Ok(format!(
            "UPDATE {table} SET {column} = CASE {column}{cases} ELSE {column} END WHERE {condition} AND {column} IN ({})",
            all.join(", ")
        ))
    };
    exact.chunks(TEXTS_MAX).map(replaced).collect()
}

/// Whether an inlined table has a value in a column of this name. It may have no such column.
async fn has_inlined_values(session: &mut Session, kept: &str, column: &str) -> Result<bool> {
    if !session.has_column(kept, column).await? {
        return Ok(false);
    }
    let sql = format!("SELECT 1 FROM {} WHERE {} IS NOT NULL LIMIT 1", name(kept)?, name(column)?);
    Ok(!session.query(sql).await?.is_empty())
}

/// Merges the statistics of a column in a file into those of the table. Returns whether they are still known.
fn add(total: &mut TableColumnStats, kind: ColumnType, stats: &ColumnStats) -> bool {
    total.contains_null = match (total.contains_null, stats.nulls) {
        (Some(true), _) => Some(true),
        (_, Some(nulls)) if nulls > 0 => Some(true),
        (Some(false), Some(_)) => Some(false),
        _ => None,
    };
    if stats.values == Some(0) {
        return true;
    }
    let is_first = !has_bounds(total);
    total.contains_nan = match (total.contains_nan, stats.nan) {
        (Some(true), _) | (_, Some(true)) => Some(true),
        (Some(false), Some(false)) => Some(false),
        (None, nan) if is_first => nan,
        _ => None,
    };
    let exact = |bound: &Option<String>| {
        bound.clone().filter(|bound| bound.len() <= EXACT_TEXT_BYTES_MAX && !bound.contains('\0'))
    };
    let (Some(min), Some(max)) = (exact(&stats.min), exact(&stats.max)) else { return false };
    match (total.min.take(), total.max.take()) {
        (Some(before_min), Some(before_max)) => {
            total.min = wider_bound(kind, before_min, min, Ordering::Less);
            total.max = wider_bound(kind, before_max, max, Ordering::Greater);
            total.min.is_some() && total.max.is_some()
        }
        (None, None) => {
            (total.min, total.max) = (Some(min), Some(max));
            true
        }
        // One of them is unknown.
        _ => false,
    }
}

/// The bounds of a column as the catalog can store them. It cannot store NUL characters: the prefix before
/// one is still a lower bound; there is no upper one.
pub(crate) fn bounds(stats: &ColumnStats) -> (Option<&str>, Option<&str>) {
    let min = stats.min.as_deref().map(|min| min.split('\0').next().unwrap_or_default());
    let max = stats.max.as_deref().filter(|max| !max.contains('\0'));
    (min, max)
}

/// The smaller or greater of two bounds; `None` if they cannot be compared.
fn wider_bound(kind: ColumnType, before: String, bound: String, wanted: Ordering) -> Option<String> {
    Some(if values::compare(kind, &bound, &before)? == wanted { bound } else { before })
}
