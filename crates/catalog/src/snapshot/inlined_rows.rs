//! Loads the inlined rows of a table at a snapshot.

use std::collections::BTreeMap;

use crate::database::session::Session;
use crate::database::sql::{name, visible};
use crate::error::Result;
use crate::layout::inlined;
use crate::model::files::InlinedRows;
use crate::model::ids::{ObjectId, SnapshotId};
use crate::model::state::Column;
use crate::snapshot::objects::columns_at;

/// The inlined tables of `table`: schema version, and name.
pub(crate) async fn inlined_tables(session: &mut Session, table: ObjectId) -> Result<BTreeMap<i64, String>> {
    let sql = format!(
        "SELECT schema_version, table_name FROM ducklake_inlined_data_tables WHERE table_id = {table}"
    );
    session.query(sql).await?.iter().map(|row| Ok((row.integer(0)?, row.text(1)?))).collect()
}

/// The columns of the rows inlined under a schema version of a table.
pub(crate) async fn inlined_columns(
    session: &mut Session,
    table: ObjectId,
    schema_version: i64,
) -> Result<Vec<Column>> {
    let began = session
        .query(format!(
            "SELECT max(begin_snapshot) FROM ducklake_schema_versions \
             WHERE table_id = {table} AND schema_version <= {schema_version}"
        ))
        .await?;
    let began = match began.first().map(|row| row.optional_integer(0)).transpose()?.flatten() {
        Some(began) => began,
        None => {
            let sql = format!("SELECT min(begin_snapshot) FROM ducklake_table WHERE table_id = {table}");
            session.query(sql).await?.first().map_or(Ok(0), |row| row.integer(0))?
        }
    };
    columns_at(session, table, began).await
}

/// The inlined rows of a table, by schema version.
pub(crate) async fn inlined_rows(
    session: &mut Session,
    table: ObjectId,
    snapshot: SnapshotId,
) -> Result<Vec<InlinedRows>> {
    let mut found = Vec::new();
    for (schema_version, table_name) in inlined_tables(session, table).await? {
        let from = name(&table_name)?;
        // Most versions have no rows left; their columns need not be read.
        let visible = visible("", snapshot);
        if session.query(format!("SELECT 1 FROM {from} WHERE {visible} LIMIT 1")).await?.is_empty() {
            continue;
        }
        let columns = inlined_columns(session, table, schema_version).await?;
        let mut wanted = String::from("row_id");
        for (place, column) in columns.iter().enumerate() {
            // PostgreSQL and SQLite both allow names that differ from DuckLake's only in the alias.
            wanted += &format!(", {} AS c{place}", name(&column.name)?);
        }
        let sql = format!("SELECT {wanted} FROM {from} WHERE {visible} ORDER BY row_id");
        let mut rows = InlinedRows {
            schema_version,
            columns: columns.iter().map(|column| (column.id, column.name.clone())).collect(),
            kinds: columns.iter().map(|column| column.kind).collect(),
            row_ids: Vec::new(),
            rows: Vec::new(),
        };
        let dialect = session.dialect();
        for row in session.query(sql).await? {
            rows.row_ids.push(row.integer(0)?);
            let cells = row.into_cells().into_iter().skip(1).zip(&columns);
            rows.rows.push(
                cells
                    .map(|(cell, column)| inlined::decode(dialect, column.kind, cell))
                    .collect::<Result<_>>()?,
            );
        }
        found.push(rows);
    }
    Ok(found)
}
