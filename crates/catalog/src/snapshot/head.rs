//! Snapshots: their rows, the settings of the warehouse, and which of them a time or a transaction means.

use std::collections::BTreeMap;

use crate::database::session::{Row, Session};
use crate::database::sql::text;
use crate::error::{Error, Result};
use crate::layout::identity::{ID, KEYS, PLACE};
use crate::layout::{self, VERSION};
use crate::model::identity::data_path_now;
use crate::model::ids::{ObjectId, SnapshotId};
use crate::model::values;

/// A row of `ducklake_snapshot`, and the settings, which have no snapshots.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Head {
    pub snapshot: SnapshotId,
    pub schema_version: i64,
    pub next_catalog_id: i64,
    pub next_file_id: i64,
    /// Microseconds since 1970.
    pub time: i64,
    pub settings: Settings,
}

/// `ducklake_metadata`.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Settings {
    global: BTreeMap<String, String>,
    pub(super) schemas: BTreeMap<ObjectId, BTreeMap<String, String>>,
    pub(super) tables: BTreeMap<ObjectId, BTreeMap<String, String>>,
}

/// A snapshot as listed by `snapshots`.
#[derive(Debug, Clone, PartialEq)]
pub struct SnapshotInfo {
    pub snapshot: SnapshotId,
    /// UTC, as `2026-11-22 07:30:28.649688+00`.
    pub time: String,
    pub schema_version: i64,
    /// In DuckLake's words, such as `created_table:"main"."t",inserted_into_table:1`.
    pub changes: String,
    pub author: Option<String>,
    pub message: Option<String>,
    pub extra: Option<String>,
}

/// Loads the row of a snapshot (the newest if `None`) and the settings, in one query.
pub(crate) async fn head(session: &mut Session, snapshot: Option<SnapshotId>) -> Result<Head> {
    let rows = session.query(head_query(snapshot)).await?;
    read_head(&rows, snapshot)
}

/// The query of `head`, for `read_head`.
pub(crate) fn head_query(snapshot: Option<SnapshotId>) -> String {
    let wanted = match snapshot {
        Some(snapshot) => snapshot.to_string(),
        None => "(SELECT max(snapshot_id) FROM ducklake_snapshot)".to_string(),
    };
    format!(
        "SELECT s.snapshot_id, s.schema_version, s.next_catalog_id, s.next_file_id, s.snapshot_time, \
         m.\"key\", m.\"value\", m.\"scope\", m.scope_id \
         FROM ducklake_snapshot s LEFT JOIN ducklake_metadata m ON 1 = 1 WHERE s.snapshot_id = {wanted}"
    )
}

pub(crate) fn read_head(rows: &[Row], snapshot: Option<SnapshotId>) -> Result<Head> {
    let Some(first) = rows.first() else {
        return Err(match snapshot {
            Some(snapshot) => Error::NotFound(format!("there is no snapshot {snapshot}: unknown or expired")),
            None => Error::Corrupt("the catalog has no snapshot".to_string()),
        });
    };
    let time = first.optional_text(4)?.and_then(|time| values::parse_time(&time)).unwrap_or_default();
    let mut head = Head {
        snapshot: first.integer(0)?,
        schema_version: first.integer(1)?,
        next_catalog_id: first.integer(2)?,
        next_file_id: first.integer(3)?,
        time,
        settings: Settings::default(),
    };
    for row in rows {
        let (Some(key), Some(value)) = (row.optional_text(5)?, row.optional_text(6)?) else { continue };
        let settings = &mut head.settings;
        match (row.optional_text(7)?.as_deref(), row.optional_integer(8)?) {
            (Some("schema"), Some(id)) => settings.schemas.entry(id).or_default().insert(key, value),
            (Some("table"), Some(id)) => settings.tables.entry(id).or_default().insert(key, value),
            _ => settings.global.insert(key, value),
        };
    }
    head.settings.check()?;
    Ok(head)
}

impl Settings {
    fn check(&self) -> Result<()> {
        match self.global.get("version").map(String::as_str) {
            Some(VERSION) => {}
            Some(other) => {
                return Err(Error::Unsupported(format!(
                    "the catalog has version {other} of the DuckLake layout; Harrier knows {VERSION}"
                )));
            }
            None => {
                return Err(Error::Corrupt(
                    "the catalog does not name the version of its layout".to_string(),
                ));
            }
        }
        if self.global.get("encrypted").is_some_and(|encrypted| encrypted == "true") {
            return Err(Error::Unsupported(
                "the warehouse is encrypted, which Harrier does not support".to_string(),
            ));
        }
        layout::check(&self.global).map(drop)
    }

    /// The version of Harrier's layout.
    pub(crate) fn own_layout(&self) -> Result<i64> {
        layout::check(&self.global)
    }

    /// The statements that upgrade the catalog to the current version; none if it is current.
    pub(crate) fn upgrade(&self) -> Result<Vec<String>> {
        layout::upgrade(&self.global)
    }

    /// The location of data files, with a trailing `/`. `folder`: the catalog's folder, if it is a file.
    pub(crate) fn data_path(&self, folder: Option<&str>) -> Result<String> {
        let path = self.global.get("data_path");
        let mut path = path
            .cloned()
            .ok_or_else(|| Error::Corrupt("the catalog does not name the path of its data".to_string()))?;
        if !path.ends_with('/') {
            path.push('/');
        }
        Ok(data_path_now(&path, self.global.get(PLACE).map(String::as_str), folder))
    }

    /// The identity of the warehouse; `None` in a catalog of an earlier version.
    pub(crate) fn identity(&self) -> Option<&String> {
        self.global.get(ID)
    }

    /// The options of the warehouse: settings that describe it are none.
    pub(crate) fn options(&self) -> BTreeMap<String, String> {
        let mut options = self.global.clone();
        options.retain(|key, _| !is_fixed(key));
        options
    }
}

/// Keys of `ducklake_metadata` that no transaction changes.
pub(crate) fn is_fixed(key: &str) -> bool {
    matches!(key, "version" | "created_by" | "data_path" | "encrypted")
        || KEYS.contains(&key)
        || layout::KEYS.contains(&key)
}

/// All snapshots, or those that satisfy a condition, oldest first.
pub(crate) async fn snapshots(session: &mut Session, condition: &str) -> Result<Vec<SnapshotInfo>> {
    let sql = format!(
        "SELECT s.snapshot_id, s.snapshot_time, s.schema_version, c.changes_made, c.author, c.commit_message, \
         c.commit_extra_info FROM ducklake_snapshot s \
         LEFT JOIN ducklake_snapshot_changes c ON c.snapshot_id = s.snapshot_id {condition} ORDER BY s.snapshot_id"
    );
    let row = |row: &Row| {
        let time = row.optional_text(1)?.unwrap_or_default();
        Ok(SnapshotInfo {
            snapshot: row.integer(0)?,
            time: values::parse_time(&time).map_or(time, values::format_time),
            schema_version: row.integer(2)?,
            changes: row.optional_text(3)?.unwrap_or_default(),
            author: row.optional_text(4)?,
            message: row.optional_text(5)?,
            extra: row.optional_text(6)?,
        })
    };
    session.query(sql).await?.iter().map(row).collect()
}

/// The newest snapshot that is not younger than `time`.
pub(crate) async fn snapshot_at(session: &mut Session, time: &str) -> Result<SnapshotId> {
    let wanted = values::parse_time(time).ok_or_else(|| {
        Error::NotFound(format!("\"{time}\" is not a time: cannot tell a snapshot from it"))
    })?;
    // SQLite stores times as text, with the writer's time zone: they are compared here.
    let mut found = None;
    for row in session.query("SELECT snapshot_id, snapshot_time FROM ducklake_snapshot").await? {
        let taken = row.optional_text(1)?.and_then(|taken| values::parse_time(&taken));
        if taken.is_some_and(|taken| taken <= wanted) {
            found = found.max(Some(row.integer(0)?));
        }
    }
    found.ok_or_else(|| {
        Error::NotFound(format!("there is no snapshot of {time} or before: unknown or expired"))
    })
}

/// The snapshot committed by a transaction, if any.
pub(crate) async fn find_transaction(
    session: &mut Session,
    base: SnapshotId,
    extra: &str,
) -> Result<Option<SnapshotId>> {
    let sql = format!(
        "SELECT snapshot_id FROM ducklake_snapshot_changes WHERE snapshot_id > {base} AND commit_extra_info = {}",
        text(extra)?
    );
    session.query(sql).await?.first().map(|row| row.integer(0)).transpose()
}
