//! Loads the catalog's contents at a snapshot from its tables.
//!
//! Every function reads within one database transaction, so that its result is consistent even while
//! snapshots are expired.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use crate::database::session::{Row, Session};
use crate::database::sql::{flag, text, visible};
use crate::error::{Error, Result};
use crate::layout::identity::{ID, KEYS, PLACE};
use crate::layout::inlined;
use crate::layout::sequences;
use crate::layout::{self, VERSION};
use crate::model::files::InlinedRows;
use crate::model::identity::data_path_now;
use crate::model::ids::{ColumnId, ObjectId, SnapshotId};
use crate::model::state::{
    Column, DefaultValue, Location, OWN_TAGS, PartitionKey, Schema, SortKey, State, Table, Transform,
    Unusable, View, column_of_tag,
};
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
    schemas: BTreeMap<ObjectId, BTreeMap<String, String>>,
    tables: BTreeMap<ObjectId, BTreeMap<String, String>>,
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

    /// Settings that describe the warehouse itself are not options.
    fn options(&self) -> BTreeMap<String, String> {
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

/// Loads everything but the data files, at the snapshot of `head`. `folder`: the catalog's folder, if it is a
/// file.
pub(crate) async fn state(session: &mut Session, head: &Head, folder: Option<&str>) -> Result<State> {
    let mut state = State {
        snapshot: head.snapshot,
        time: head.time,
        schema_version: head.schema_version,
        warehouse: head.settings.global.get(ID).cloned(),
        data_path: head.settings.data_path(folder)?,
        schemas: BTreeMap::new(),
        tables: BTreeMap::new(),
        views: BTreeMap::new(),
        sequences: BTreeMap::new(),
        unusable: BTreeMap::new(),
        options: head.settings.options(),
    };
    let mut tags = object_tags(session, head.snapshot).await?;
    schemas(session, head, &mut tags, &mut state).await?;
    tables(session, head, &mut tags, &mut state).await?;
    views(session, head, &mut tags, &mut state).await?;
    for mut sequence in sequences::load(session, head.snapshot, &state).await? {
        sequence.comment = tags.remove(&sequence.id).and_then(|tags| tags.comment);
        state.sequences.insert(sequence.id, Arc::new(sequence));
    }
    Ok(state)
}

/// Tags of an object or a column: its comment, and Harrier's own tags.
#[derive(Default)]
struct Tags {
    comment: Option<String>,
    own: BTreeMap<String, String>,
}

impl Tags {
    fn add(&mut self, key: String, value: String) {
        if key == "comment" {
            self.comment = Some(value);
        } else if key.starts_with(OWN_TAGS) && column_of_tag(&key).is_none() {
            self.own.insert(key, value);
        }
    }
}

async fn object_tags(session: &mut Session, snapshot: SnapshotId) -> Result<HashMap<ObjectId, Tags>> {
    let visible = visible("", snapshot);
    let sql = format!("SELECT object_id, \"key\", \"value\" FROM ducklake_tag WHERE {visible}");
    let mut tags: HashMap<ObjectId, Tags> = HashMap::new();
    for row in session.query(sql).await? {
        if let Some(value) = row.optional_text(2)? {
            tags.entry(row.integer(0)?).or_default().add(row.text(1)?, value);
        }
    }
    Ok(tags)
}

pub(crate) fn location(row: &Row, path: usize, relative: usize) -> Result<Location> {
    // Without its own path a schema or table is in its parent's folder.
    match row.optional_text(path)? {
        Some(path) => Ok(Location { path, relative: row.flag(relative)? }),
        None => Ok(Location { path: String::new(), relative: true }),
    }
}

async fn schemas(
    session: &mut Session,
    head: &Head,
    tags: &mut HashMap<ObjectId, Tags>,
    state: &mut State,
) -> Result<()> {
    let sql = format!(
        "SELECT schema_id, schema_uuid, schema_name, path, {} FROM ducklake_schema WHERE {}",
        flag("path_is_relative"),
        visible("", head.snapshot)
    );
    for row in session.query(sql).await? {
        let id = row.integer(0)?;
        let schema = Schema {
            id,
            uuid: row.optional_text(1)?.unwrap_or_default(),
            name: row.text(2)?,
            path: location(&row, 3, 4)?,
            comment: tags.remove(&id).and_then(|tags| tags.comment),
            options: head.settings.schemas.get(&id).cloned().unwrap_or_default(),
        };
        state.schemas.insert(id, Arc::new(schema));
    }
    Ok(())
}

async fn tables(
    session: &mut Session,
    head: &Head,
    tags: &mut HashMap<ObjectId, Tags>,
    state: &mut State,
) -> Result<()> {
    let visible = visible("", head.snapshot);
    let mut columns: HashMap<ObjectId, Vec<ColumnRow>> = HashMap::new();
    for (table, column) in column_rows(session, &visible).await? {
        columns.entry(table).or_default().push(column);
    }
    let mut next_columns = HashMap::new();
    for row in session.query("SELECT table_id, max(column_id) FROM ducklake_column GROUP BY table_id").await?
    {
        next_columns.insert(row.integer(0)?, row.integer(1)? + 1);
    }
    let mut partitions = partitions(session, &visible).await?;
    let mut sorts = sorts(session, &visible).await?;
    let sql = format!(
        "SELECT table_id, table_uuid, schema_id, table_name, path, {} FROM ducklake_table WHERE {visible}",
        flag("path_is_relative"),
    );
    for row in session.query(sql).await? {
        let (id, schema, name) = (row.integer(0)?, row.integer(2)?, row.text(3)?);
        let mut unusable = |reason: String| {
            let unusable = Unusable { schema, name: name.clone(), reason };
            state.unusable.insert(id, Arc::new(unusable));
        };
        if !state.schemas.contains_key(&schema) {
            return Err(Error::Corrupt(format!(
                "table \"{name}\" is in schema {schema}, which does not exist"
            )));
        }
        let columns = match tree(columns.remove(&id).unwrap_or_default()) {
            Ok(columns) => columns,
            Err(Error::Unsupported(reason)) => {
                unusable(reason);
                continue;
            }
            Err(error) => return Err(error),
        };
        let (partition_id, partition) = match partitions.remove(&id) {
            Some((_, Err(transform))) => {
                unusable(format!("it is partitioned by {transform}, which Harrier does not support"));
                continue;
            }
            Some((partition_id, Ok(partition))) if !partition.is_empty() => (Some(partition_id), partition),
            _ => (None, Vec::new()),
        };
        let tags = tags.remove(&id).unwrap_or_default();
        let table = Table {
            id,
            uuid: row.optional_text(1)?.unwrap_or_default(),
            schema,
            name,
            path: location(&row, 4, 5)?,
            columns,
            next_column: next_columns.get(&id).copied().unwrap_or(1),
            partition,
            partition_id,
            sort: sorts.remove(&id).unwrap_or_default(),
            comment: tags.comment,
            tags: tags.own,
            options: head.settings.tables.get(&id).cloned().unwrap_or_default(),
        };
        state.tables.insert(id, Arc::new(table));
    }
    Ok(())
}

async fn views(
    session: &mut Session,
    head: &Head,
    tags: &mut HashMap<ObjectId, Tags>,
    state: &mut State,
) -> Result<()> {
    let sql = format!(
        "SELECT view_id, view_uuid, schema_id, view_name, dialect, \"sql\", column_aliases FROM ducklake_view WHERE {}",
        visible("", head.snapshot)
    );
    for row in session.query(sql).await? {
        let id = row.integer(0)?;
        let tags = tags.remove(&id).unwrap_or_default();
        let view = View {
            id,
            uuid: row.optional_text(1)?.unwrap_or_default(),
            schema: row.integer(2)?,
            name: row.text(3)?,
            dialect: row.optional_text(4)?.unwrap_or_default(),
            sql: row.text(5)?,
            column_aliases: row.optional_text(6)?.unwrap_or_default(),
            comment: tags.comment,
            columns_below: View::columns_below(&tags.own),
        };
        state.views.insert(id, Arc::new(view));
    }
    Ok(())
}

/// The keys, or the unsupported transform.
type Partitioning = std::result::Result<Vec<PartitionKey>, String>;

async fn partitions(session: &mut Session, visible: &str) -> Result<HashMap<ObjectId, (i64, Partitioning)>> {
    let mut partitions: HashMap<ObjectId, (i64, Partitioning)> = HashMap::new();
    let sql = format!(
        "SELECT i.table_id, i.partition_id, c.column_id, c.\"transform\" \
         FROM (SELECT table_id, partition_id FROM ducklake_partition_info WHERE {visible}) i \
         JOIN ducklake_partition_column c ON c.partition_id = i.partition_id AND c.table_id = i.table_id \
         ORDER BY i.partition_id, c.partition_key_index"
    );
    for row in session.query(sql).await? {
        let (table, id, column, transform) =
            (row.integer(0)?, row.integer(1)?, row.integer(2)?, row.text(3)?);
        let entry = partitions.entry(table).or_insert_with(|| (id, Ok(Vec::new())));
        match (parse_transform(&transform), &mut entry.1) {
            (Some(transform), Ok(keys)) => keys.push(PartitionKey { column, transform }),
            (None, _) => entry.1 = Err(transform),
            _ => {}
        }
    }
    Ok(partitions)
}

fn parse_transform(text: &str) -> Option<Transform> {
    let buckets = |rest: &str| rest.strip_suffix(')')?.trim().parse().ok().filter(|buckets| *buckets > 0);
    Some(match text {
        "identity" => Transform::Identity,
        "year" => Transform::Year,
        "month" => Transform::Month,
        "day" => Transform::Day,
        "hour" => Transform::Hour,
        _ => Transform::Bucket(buckets(text.strip_prefix("bucket(")?)?),
    })
}

pub(crate) fn transform_name(transform: Transform) -> String {
    match transform {
        Transform::Identity => "identity".to_string(),
        Transform::Year => "year".to_string(),
        Transform::Month => "month".to_string(),
        Transform::Day => "day".to_string(),
        Transform::Hour => "hour".to_string(),
        Transform::Bucket(buckets) => format!("bucket({buckets})"),
    }
}

async fn sorts(session: &mut Session, visible: &str) -> Result<HashMap<ObjectId, Vec<SortKey>>> {
    let mut sorts: HashMap<ObjectId, Vec<SortKey>> = HashMap::new();
    let sql = format!(
        "SELECT i.table_id, e.expression, e.dialect, e.sort_direction, e.null_order \
         FROM (SELECT table_id, sort_id FROM ducklake_sort_info WHERE {visible}) i \
         JOIN ducklake_sort_expression e ON e.sort_id = i.sort_id AND e.table_id = i.table_id \
         ORDER BY i.sort_id, e.sort_key_index"
    );
    for row in session.query(sql).await? {
        sorts.entry(row.integer(0)?).or_default().push(SortKey {
            expression: row.text(1)?,
            dialect: row.optional_text(2)?.unwrap_or_default(),
            descending: row.optional_text(3)?.is_some_and(|direction| direction.eq_ignore_ascii_case("DESC")),
            nulls_first: row.optional_text(4)?.is_some_and(|order| order.eq_ignore_ascii_case("NULLS_FIRST")),
        });
    }
    Ok(sorts)
}

/// A row of `ducklake_column`.
struct ColumnRow {
    parent: Option<ColumnId>,
    kind: String,
    column: Column,
}

/// The columns of tables, by position, with their tags. `condition` applies to both tables.
async fn column_rows(session: &mut Session, condition: &str) -> Result<Vec<(ObjectId, ColumnRow)>> {
    let mut tags: HashMap<(ObjectId, ColumnId), Tags> = HashMap::new();
    let sql =
        format!("SELECT table_id, column_id, \"key\", \"value\" FROM ducklake_column_tag WHERE {condition}");
    for row in session.query(sql).await? {
        if let Some(value) = row.optional_text(3)? {
            tags.entry((row.integer(0)?, row.integer(1)?)).or_default().add(row.text(2)?, value);
        }
    }
    // Column tags are stored on the table: see `Draft::column_tags`.
    let sql = format!(
        "SELECT table_id, \"key\", \"value\" FROM (SELECT object_id AS table_id, begin_snapshot, end_snapshot, \
         \"key\", \"value\" FROM ducklake_tag) AS own WHERE {condition}"
    );
    for row in session.query(sql).await? {
        let key = row.text(1)?;
        if let (Some((column, key)), Some(value)) = (column_of_tag(&key), row.optional_text(2)?) {
            tags.entry((row.integer(0)?, column)).or_default().add(key.to_string(), value);
        }
    }
    let sql = format!(
        "SELECT table_id, column_id, parent_column, column_name, column_type, initial_default, default_value, \
         default_value_type, default_value_dialect, {} FROM ducklake_column WHERE {condition} \
         ORDER BY table_id, column_order",
        flag("nulls_allowed")
    );
    let mut rows = Vec::new();
    for row in session.query(sql).await? {
        let (table, id) = (row.integer(0)?, row.integer(1)?);
        let default = match (row.optional_text(6)?, row.optional_text(7)?.as_deref()) {
            (None, _) => None,
            (Some(sql), Some("expression")) => {
                Some(DefaultValue::Expression { sql, dialect: row.optional_text(8)?.unwrap_or_default() })
            }
            // DuckDB's representation of no default.
            (Some(value), _) if value == "NULL" => None,
            (Some(value), _) => Some(DefaultValue::Literal(value)),
        };
        let tags = tags.remove(&(table, id)).unwrap_or_default();
        let column = Column {
            id,
            name: row.text(3)?,
            // Set by `tree`, which can report the column of an unknown type.
            kind: crate::model::types::ColumnType::Boolean,
            children: Vec::new(),
            nullable: row.optional_flag(9)?.unwrap_or(true),
            initial_default: row.optional_text(5)?,
            default,
            comment: tags.comment,
            tags: tags.own,
        };
        rows.push((table, ColumnRow { parent: row.optional_integer(2)?, kind: row.text(4)?, column }));
    }
    Ok(rows)
}

/// Nests columns into their parents.
fn tree(rows: Vec<ColumnRow>) -> Result<Vec<Column>> {
    let mut children: HashMap<Option<ColumnId>, Vec<ColumnRow>> = HashMap::new();
    let count = rows.len();
    for row in rows {
        children.entry(row.parent).or_default().push(row);
    }
    let mut placed = 0;
    let columns = subtree(None, &mut children, &mut placed)?;
    if placed != count {
        return Err(Error::Corrupt("a column of the catalog is part of one that does not exist".to_string()));
    }
    Ok(columns)
}

fn subtree(
    parent: Option<ColumnId>,
    children: &mut HashMap<Option<ColumnId>, Vec<ColumnRow>>,
    placed: &mut usize,
) -> Result<Vec<Column>> {
    let mut columns = Vec::new();
    for ColumnRow { kind, mut column, .. } in children.remove(&parent).unwrap_or_default() {
        *placed += 1;
        column.kind = kind.parse().map_err(|_| {
            Error::Unsupported(format!(
                "its column \"{}\" has type {kind}, which Harrier does not support",
                column.name
            ))
        })?;
        column.children = subtree(Some(column.id), children, placed)?;
        columns.push(column);
    }
    Ok(columns)
}

/// The columns of one table at a snapshot.
pub(crate) async fn columns_at(
    session: &mut Session,
    table: ObjectId,
    snapshot: SnapshotId,
) -> Result<Vec<Column>> {
    let condition = format!("table_id = {table} AND {}", visible("", snapshot));
    let rows = column_rows(session, &condition).await?;
    tree(rows.into_iter().map(|(_, row)| row).collect())
}

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

pub(crate) async fn inlined_rows(
    session: &mut Session,
    table: ObjectId,
    snapshot: SnapshotId,
) -> Result<Vec<InlinedRows>> {
    let mut found = Vec::new();
    for (schema_version, name) in inlined_tables(session, table).await? {
        let name = crate::database::sql::name(&name)?;
        // Most versions have no rows left; their columns need not be read.
        let visible = visible("", snapshot);
        if session.query(format!("SELECT 1 FROM {name} WHERE {visible} LIMIT 1")).await?.is_empty() {
            continue;
        }
        let columns = inlined_columns(session, table, schema_version).await?;
        let mut wanted = String::from("row_id");
        for (place, column) in columns.iter().enumerate() {
            // PostgreSQL and SQLite both allow names that differ from DuckLake's only in the alias.
            wanted += &format!(", {} AS c{place}", crate::database::sql::name(&column.name)?);
        }
        let sql = format!("SELECT {wanted} FROM {name} WHERE {visible} ORDER BY row_id");
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
