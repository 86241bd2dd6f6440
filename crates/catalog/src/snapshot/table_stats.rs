//! Loads sizes and statistics of whole tables.

use std::collections::BTreeMap;

use crate::database::session::Session;
use crate::database::sql::flag;
use crate::error::Result;
use crate::model::ids::{ColumnId, ObjectId};

/// Statistics of a whole table. Bounds hold for every snapshot.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TableStats {
    /// Number of rows ever inserted, including deleted ones. The current number is the sum over
    /// `Catalog::data`.
    pub record_count: i64,
    pub next_row_id: i64,
    pub file_size_bytes: i64,
    pub columns: BTreeMap<ColumnId, TableColumnStats>,
}

/// Statistics of a column in all files of a table. `None`: unknown.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TableColumnStats {
    pub contains_null: Option<bool>,
    pub contains_nan: Option<bool>,
    pub min: Option<String>,
    pub max: Option<String>,
}

/// Size of a table's files, without inlined rows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TableSize {
    /// Without deleted rows.
    pub rows: i64,
    pub bytes: i64,
}

/// Current sizes of all tables that have files.
pub(crate) async fn sizes(session: &mut Session) -> Result<BTreeMap<ObjectId, TableSize>> {
    let mut sizes = BTreeMap::new();
    let files = "SELECT table_id, CAST(sum(record_count) AS BIGINT), CAST(sum(file_size_bytes) AS BIGINT) \
                 FROM ducklake_data_file WHERE end_snapshot IS NULL GROUP BY table_id";
    for row in session.query(files.to_string()).await? {
        sizes.insert(row.integer(0)?, TableSize { rows: row.integer(1)?, bytes: row.integer(2)? });
    }
    let deleted = "SELECT table_id, CAST(sum(delete_count) AS BIGINT) FROM ducklake_delete_file \
                   WHERE end_snapshot IS NULL GROUP BY table_id";
    for row in session.query(deleted.to_string()).await? {
        if let Some(size) = sizes.get_mut(&row.integer(0)?) {
            size.rows -= row.integer(1)?;
        }
    }
    Ok(sizes)
}

/// Statistics of a table; `None` if no row was ever inserted.
pub(crate) async fn table_stats(session: &mut Session, table: ObjectId) -> Result<Option<TableStats>> {
    let sql = format!(
        "SELECT record_count, next_row_id, file_size_bytes FROM ducklake_table_stats WHERE table_id = {table}"
    );
    let rows = session.query(sql).await?;
    let Some(row) = rows.first() else { return Ok(None) };
    let mut stats = TableStats {
        record_count: row.optional_integer(0)?.unwrap_or_default(),
        next_row_id: row.optional_integer(1)?.unwrap_or_default(),
        file_size_bytes: row.optional_integer(2)?.unwrap_or_default(),
        columns: BTreeMap::new(),
    };
    let sql = format!(
        "SELECT column_id, {}, {}, min_value, max_value FROM ducklake_table_column_stats WHERE table_id = {table}",
        flag("contains_null"),
        flag("contains_nan")
    );
    for row in session.query(sql).await? {
        let of_column = TableColumnStats {
            contains_null: row.optional_flag(1)?,
            contains_nan: row.optional_flag(2)?,
            min: row.optional_text(3)?,
            max: row.optional_text(4)?,
        };
        stats.columns.insert(row.integer(0)?, of_column);
    }
    Ok(Some(stats))
}
