//! Snapshot expiry, and garbage collection of unreferenced files.
//!
//! Expiry removes snapshots and data that only they reference, and schedules the removed files for deletion.
//! Files are not deleted here: the caller gets them from `scheduled_files`, waits until readers are done,
//! deletes them, and calls `unschedule`. Files that no commit ever referenced are those missing from
//! `referenced_paths`.
//!
//! Invariants: the newest snapshot never expires. A file that some snapshot can see is never scheduled. All
//! column versions of existing tables are kept: files and inlined rows may need them.

use std::collections::{BTreeMap, BTreeSet};

use crate::catalog::Catalog;
use crate::catalog::analysis::ANALYSES;
use crate::database::retry::retry_if_lost;
use crate::database::session::{Row, Session};
use crate::database::sql::{Rows, boolean, flag, list, name, text};
use crate::error::{Error, Result};
use crate::layout::{inlined, sequences};
use crate::maintenance::folders::{File, Folders};
use crate::model::ids::{ObjectId, SnapshotId};
use crate::model::state::Location;
use crate::model::values;
use crate::snapshot::head::{self, SnapshotInfo};

/// The snapshots to expire. The newest never does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Expiry {
    /// All that are older than a time such as `2026-11-22 07:30:28+01`.
    OlderThan(String),
    Versions(Vec<SnapshotId>),
}

/// The result of an expiry.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ExpiryReport {
    pub snapshots: Vec<SnapshotInfo>,
    /// Number of data and delete files that may now be deleted.
    pub files: usize,
}

/// A file that no snapshot can see.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScheduledFile {
    pub id: i64,
    /// Absolute.
    pub path: String,
    /// When it was scheduled, UTC.
    pub since: String,
}

impl Catalog {
    /// Removes snapshots, and schedules the files that only they reference for deletion.
    pub async fn expire(&self, expiry: &Expiry) -> Result<ExpiryReport> {
        let mut session = self.inner.database.write().await?;
        let newest = head::head(&mut session, None).await?.snapshot;
        let snapshots = head::snapshots(&mut session, &format!("WHERE s.snapshot_id <> {newest}")).await?;
        let snapshots: Vec<SnapshotInfo> = match expiry {
            Expiry::OlderThan(time) => {
                let limit = values::parse_time(time)
                    .ok_or_else(|| Error::NotFound(format!("\"{time}\" is not a time")))?;
                let older =
                    |one: &SnapshotInfo| values::parse_time(&one.time).is_some_and(|time| time < limit);
                snapshots.into_iter().filter(older).collect()
            }
            Expiry::Versions(versions) => {
                snapshots.into_iter().filter(|one| versions.contains(&one.snapshot)).collect()
            }
        };
        if snapshots.is_empty() {
            return Ok(ExpiryReport::default());
        }
        let ids = list(snapshots.iter().map(|one| one.snapshot));
        session
            .execute(format!("DELETE FROM ducklake_snapshot_changes WHERE snapshot_id IN ({ids})"))
            .await?;
        session.execute(format!("DELETE FROM ducklake_snapshot WHERE snapshot_id IN ({ids})")).await?;
        let files = sweep(&mut session, self.inner.database.folder()).await?;
        session.commit().await?;
        self.inner.cache.invalidate();
        tracing::info!(snapshots = snapshots.len(), files, "expired snapshots");
        Ok(ExpiryReport { snapshots, files })
    }

    /// Files that may be deleted, because no snapshot can see them.
    pub async fn scheduled_files(&self) -> Result<Vec<ScheduledFile>> {
        let database = &self.inner.database;
        retry_if_lost(|| async { load_scheduled(&mut database.read().await?, database.folder()).await }).await
    }

    /// Removes scheduled files, by id, after they have been deleted.
    pub async fn unschedule(&self, files: &[i64]) -> Result<()> {
        if files.is_empty() {
            return Ok(());
        }
        let mut session = self.inner.database.write().await?;
        let sql = format!(
            "DELETE FROM ducklake_files_scheduled_for_deletion WHERE data_file_id IN ({})",
            list(files)
        );
        session.execute(sql).await?;
        Ok(session.commit().await?)
    }

    /// Absolute paths of all files in the catalog, of any snapshot and scheduled. Other files in the
    /// warehouse's folder were never committed, or not yet.
    pub async fn referenced_paths(&self) -> Result<BTreeSet<String>> {
        let database = &self.inner.database;
        retry_if_lost(|| async { referenced_paths(&mut database.read().await?, database.folder()).await })
            .await
    }
}

async fn referenced_paths(session: &mut Session, folder: Option<&str>) -> Result<BTreeSet<String>> {
    let folders = Folders::load(session, folder).await?;
    let mut paths = BTreeSet::new();
    for (table, sql) in [("ducklake_data_file", "data_file_id"), ("ducklake_delete_file", "delete_file_id")] {
        for file in files(session, table, sql, "1 = 1").await? {
            paths.insert(folders.absolute(&file)?);
        }
    }
    paths.extend(load_scheduled(session, folder).await?.into_iter().map(|file| file.path));
    Ok(paths)
}

async fn load_scheduled(session: &mut Session, folder: Option<&str>) -> Result<Vec<ScheduledFile>> {
    let root = Folders::load(session, folder).await?.root;
    let sql = format!(
        "SELECT data_file_id, path, {}, schedule_start FROM ducklake_files_scheduled_for_deletion ORDER BY data_file_id",
        flag("path_is_relative")
    );
    let mut scheduled = Vec::new();
    for row in session.query(sql).await? {
        let location = Location { path: row.text(1)?, relative: row.flag(2)? };
        let since = row.optional_text(3)?.unwrap_or_default();
        let since = values::parse_time(&since).map_or(since, values::format_time);
        scheduled.push(ScheduledFile { id: row.integer(0)?, path: location.below(&root), since });
    }
    Ok(scheduled)
}

/// The condition for rows of a catalog table that no snapshot can see.
fn unseen(table: &str) -> String {
    format!(
        "{table}.end_snapshot IS NOT NULL AND NOT EXISTS (SELECT 1 FROM ducklake_snapshot s \
         WHERE s.snapshot_id >= {table}.begin_snapshot AND s.snapshot_id < {table}.end_snapshot)"
    )
}

/// Removes everything that no snapshot can see; returns the number of files.
async fn sweep(session: &mut Session, folder: Option<&str>) -> Result<usize> {
    let folders = Folders::load(session, folder).await?;
    let ids = async |session: &mut Session, sql: String| -> Result<BTreeSet<i64>> {
        session.query(sql).await?.iter().map(|row| row.integer(0)).collect()
    };
    // A table is removed with its last row: a rename ends one and begins another.
    let seen = format!("SELECT table_id FROM ducklake_table WHERE NOT ({})", unseen("ducklake_table"));
    let gone =
        ids(session, format!("SELECT table_id FROM ducklake_table WHERE table_id NOT IN ({seen})")).await?;
    let of_gone = format!("table_id IN ({})", list(&gone));

    let condition = format!("{of_gone} OR ({})", unseen("ducklake_data_file"));
    let data = files(session, "ducklake_data_file", "data_file_id", &condition).await?;
    let data_ids = list(data.iter().map(|file| file.id));
    let condition =
        format!("data_file_id IN ({data_ids}) OR {of_gone} OR ({})", unseen("ducklake_delete_file"));
    let deletes = files(session, "ducklake_delete_file", "delete_file_id", &condition).await?;
    let delete_ids = list(deletes.iter().map(|file| file.id));

    let time = values::format_time(values::now());
    let mut rows = Rows::into(
        "ducklake_files_scheduled_for_deletion",
        "data_file_id, path, path_is_relative, schedule_start",
    );
    for file in data.iter().chain(&deletes) {
        let location = folders.below_root(file)?;
        rows.add(&format!(
            "{}, {}, {}, '{time}'",
            file.id,
            text(&location.path)?,
            boolean(location.relative)
        ));
    }
    let mut statements = rows.finish();
    for table in [
        "ducklake_data_file",
        "ducklake_file_column_stats",
        "ducklake_file_variant_stats",
        "ducklake_file_partition_value",
    ] {
        statements.push(format!("DELETE FROM {table} WHERE data_file_id IN ({data_ids})"));
    }
    statements.push(format!("DELETE FROM ducklake_delete_file WHERE delete_file_id IN ({delete_ids})"));

    statements.extend(inlined_rows(session, &gone, &data).await?);
    if !gone.is_empty() {
        for table in [
            "ducklake_table",
            "ducklake_table_stats",
            "ducklake_table_column_stats",
            "ducklake_partition_info",
            "ducklake_partition_column",
            "ducklake_column",
            "ducklake_column_tag",
            "ducklake_sort_info",
            "ducklake_sort_expression",
            "ducklake_schema_versions",
            "ducklake_inlined_data_tables",
            "ducklake_column_mapping",
        ] {
            statements.push(format!("DELETE FROM {table} WHERE {of_gone}"));
        }
        for table in ANALYSES {
            if session.has_table(table).await? {
                statements.push(format!("DELETE FROM {table} WHERE {of_gone}"));
            }
        }
        statements.push(format!(
            "DELETE FROM ducklake_metadata WHERE \"scope\" = 'table' AND scope_id IN ({})",
            list(&gone)
        ));
        statements.push(
            "DELETE FROM ducklake_name_mapping WHERE mapping_id NOT IN (SELECT mapping_id FROM ducklake_column_mapping)"
                .to_string(),
        );
    }
    let schemas =
        ids(session, format!("SELECT schema_id FROM ducklake_schema WHERE {}", unseen("ducklake_schema")))
            .await?;
    statements.push(format!(
        "DELETE FROM ducklake_metadata WHERE \"scope\" = 'schema' AND scope_id IN ({})",
        list(&schemas)
    ));
    statements.extend(sequences::sweep(session, &|table| unseen(table)).await?);
    for table in ["ducklake_schema", "ducklake_view", "ducklake_tag", "ducklake_column_tag", "ducklake_macro"]
    {
        statements.push(format!("DELETE FROM {table} WHERE {}", unseen(table)));
    }
    for table in ["ducklake_macro_impl", "ducklake_macro_parameters"] {
        statements
            .push(format!("DELETE FROM {table} WHERE macro_id NOT IN (SELECT macro_id FROM ducklake_macro)"));
    }
    for statement in statements {
        session.execute(statement).await?;
    }
    Ok(data.len() + deletes.len())
}

/// Removes inlined rows, and inlined deletions of removed files.
async fn inlined_rows(
    session: &mut Session,
    gone: &BTreeSet<ObjectId>,
    data: &[File],
) -> Result<Vec<String>> {
    let mut statements = Vec::new();
    for row in session.query("SELECT table_id, table_name FROM ducklake_inlined_data_tables").await? {
        let (id, table) = (row.integer(0)?, name(&row.text(1)?)?);
        statements.push(match gone.contains(&id) {
            true => format!("DROP TABLE IF EXISTS {table}"),
            false => format!("DELETE FROM {table} WHERE {}", unseen(&table)),
        });
    }
    for id in gone {
        statements.push(format!("DROP TABLE IF EXISTS {}", inlined::delete_table(*id)));
    }
    let mut of_table: BTreeMap<ObjectId, Vec<i64>> = BTreeMap::new();
    for file in data.iter().filter(|file| !gone.contains(&file.table)) {
        of_table.entry(file.table).or_default().push(file.id);
    }
    for (id, files) in of_table {
        let table = inlined::delete_table(id);
        if session.has_table(&table).await? {
            statements.push(format!("DELETE FROM {table} WHERE file_id IN ({})", list(&files)));
        }
    }
    Ok(statements)
}

async fn files(session: &mut Session, table: &str, id: &str, condition: &str) -> Result<Vec<File>> {
    let relative = flag("path_is_relative");
    let sql = format!("SELECT {id}, table_id, path, {relative} FROM {table} WHERE {condition}");
    let file = |row: &Row| {
        let location = Location { path: row.text(2)?, relative: row.flag(3)? };
        Ok(File { id: row.integer(0)?, table: row.integer(1)?, location })
    };
    session.query(sql).await?.iter().map(file).collect()
}
