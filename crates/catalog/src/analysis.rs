//! What ANALYZE has found out about tables: counts that no file's statistics tell. It is for planning alone, so it may be old.
//!
//! DuckLake has no place for it: it is in two tables of Harrier's own, made when the first table is analyzed.

use std::collections::BTreeMap;

use crate::catalog::Catalog;
use crate::database::{Session, optional};
use crate::error::Result;
use crate::state::{ColumnId, ObjectId, SnapshotId};

const TABLE: &str = "harrier_table_analysis";
const COLUMN: &str = "harrier_column_analysis";

/// What was found in a table.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Analysis {
    /// The snapshot that was looked at.
    pub snapshot: SnapshotId,
    pub rows: i64,
    /// Of the columns that were looked at.
    pub columns: BTreeMap<ColumnId, ColumnAnalysis>,
}

/// What was found in a column.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ColumnAnalysis {
    /// Different values, about.
    pub distinct: i64,
    pub nulls: i64,
    /// The mean size of a value, if sizes vary.
    pub mean_bytes: Option<i64>,
}

impl Catalog {
    /// Keeps what was found in a table. What was known of other columns stays.
    pub async fn put_analysis(&self, table: ObjectId, analysis: &Analysis) -> Result<()> {
        let mut session = self.inner.database.write().await?;
        make(&mut session).await?;
        session.execute(format!("DELETE FROM {TABLE} WHERE table_id = {table}")).await?;
        let Analysis { snapshot, rows, columns } = analysis;
        session.execute(format!("INSERT INTO {TABLE} VALUES ({table}, {snapshot}, {rows})")).await?;
        for (column, found) in columns {
            let ColumnAnalysis { distinct, nulls, mean_bytes } = found;
            let bytes = optional(*mean_bytes);
            let known = format!("DELETE FROM {COLUMN} WHERE table_id = {table} AND column_id = {column}");
            session.execute(known).await?;
            let sql =
                format!("INSERT INTO {COLUMN} VALUES ({table}, {column}, {distinct}, {nulls}, {bytes})");
            session.execute(sql).await?;
        }
        Ok(session.commit().await?)
    }

    /// What is known of a table; `None` if it was never analyzed.
    pub async fn analysis(&self, table: ObjectId) -> Result<Option<Analysis>> {
        let mut session = self.inner.database.read().await?;
        if !session.has_table(TABLE).await? {
            return Ok(None);
        }
        let rows = session
            .query(format!("SELECT snapshot_id, row_count FROM {TABLE} WHERE table_id = {table}"))
            .await?;
        let Some(row) = rows.first() else {
            return Ok(None);
        };
        let mut analysis =
            Analysis { snapshot: row.integer(0)?, rows: row.integer(1)?, columns: BTreeMap::new() };
        let sql = format!(
            "SELECT column_id, distinct_count, null_count, mean_bytes FROM {COLUMN} WHERE table_id = {table}"
        );
        for row in session.query(sql).await? {
            let found = ColumnAnalysis {
                distinct: row.integer(1)?,
                nulls: row.integer(2)?,
                mean_bytes: row.optional_integer(3)?,
            };
            analysis.columns.insert(row.integer(0)?, found);
        }
        Ok(Some(analysis))
    }
}

async fn make(session: &mut Session) -> Result<()> {
    if session.has_table(TABLE).await? {
        return Ok(());
    }
    let table =
        format!("CREATE TABLE {TABLE} (table_id BIGINT PRIMARY KEY, snapshot_id BIGINT, row_count BIGINT)");
    session.execute(table).await?;
    let column = format!(
        "CREATE TABLE {COLUMN} (table_id BIGINT, column_id BIGINT, distinct_count BIGINT, null_count BIGINT, \
         mean_bytes BIGINT, PRIMARY KEY (table_id, column_id))"
    );
    session.execute(column).await?;
    Ok(())
}
