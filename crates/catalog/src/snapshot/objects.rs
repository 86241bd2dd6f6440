//! Loads schemas, tables, views and sequences at a snapshot.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use crate::database::session::{Row, Session};
use crate::database::sql::{flag, visible};
use crate::error::{Error, Result};
use crate::layout::sequences;
use crate::model::ids::{ColumnId, ObjectId, SnapshotId};
use crate::model::state::{
    Column, DefaultValue, Location, OWN_TAGS, PartitionKey, Schema, SortKey, State, Table, Transform,
    Unusable, View, column_of_tag,
};
use crate::model::types::ColumnType;
use crate::snapshot::head::Head;

/// Loads everything but the data files, at the snapshot of `head`. `folder`: the catalog's folder, if it is a
/// file.
pub(crate) async fn state(session: &mut Session, head: &Head, folder: Option<&str>) -> Result<State> {
    let mut state = State {
        snapshot: head.snapshot,
        time: head.time,
        schema_version: head.schema_version,
        warehouse: head.settings.identity().cloned(),
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
            kind: ColumnType::Boolean,
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
