//! The contents of a warehouse at one snapshot: schemas, tables, views. Plain values; a transaction changes a
//! copy.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::model::sequences::Sequence;
use crate::model::types::ColumnType;

pub use crate::model::ids::{ColumnId, ObjectId, SnapshotId};

/// The table tag that contains its keys and CHECK constraints, as JSON. The catalog only interprets [`CHECK`]
/// in it.
pub const KEYS_TAG: &str = "harrier.keys";
/// A text in [`KEYS_TAG`] of a table with CHECK constraints.
pub const CHECK: &str = r#""kind":"check""#;
/// The column tag that contains its declared type, in SQL.
pub const DECLARED_TYPE_TAG: &str = "harrier.type";

/// The option that contains the range or list partitions of a table, which DuckLake cannot express. The
/// catalog does not interpret it; a change of it is a change of the table.
pub const TABLE_PARTITIONS_OPTION: &str = "harrier_table_partitions";

/// Everything but the data files, at one snapshot, or as changed by a transaction.
#[derive(Debug, Clone, PartialEq)]
pub struct State {
    pub snapshot: SnapshotId,
    /// Time of the snapshot, in microseconds since 1970: a snapshot with the same number in a restored
    /// catalog has another.
    pub time: i64,
    /// Counts the commits that changed a schema, table or view: equal versions mean equal schemas.
    pub schema_version: i64,
    /// The identity of the catalog; `None` for one of an earlier version that no files have been written into
    /// since.
    pub warehouse: Option<String>,
    /// The base of schemas' relative paths; ends in `/`.
    pub data_path: String,
    pub schemas: BTreeMap<ObjectId, Arc<Schema>>,
    pub tables: BTreeMap<ObjectId, Arc<Table>>,
    pub views: BTreeMap<ObjectId, Arc<View>>,
    pub sequences: BTreeMap<ObjectId, Arc<Sequence>>,
    /// Existing tables that cannot be used, with the reason: their names are taken.
    pub unusable: BTreeMap<ObjectId, Arc<Unusable>>,
    /// Settings of the whole warehouse (`ducklake_metadata` without a scope).
    pub options: BTreeMap<String, String>,
}

/// Key prefix of Harrier's own tags.
pub const OWN_TAGS: &str = "harrier.";

/// Key prefix of column tags, which are stored on the table.
const COLUMN_TAGS: &str = "harrier.column.";

/// The key of the table tag that stores a column's tag.
pub(crate) fn column_tag_key(column: ColumnId, key: &str) -> String {
    format!("{COLUMN_TAGS}{column}.{key}")
}

/// The column and the key encoded in such a key.
pub(crate) fn column_of_tag(key: &str) -> Option<(ColumnId, &str)> {
    let (column, key) = key.strip_prefix(COLUMN_TAGS)?.split_once('.')?;
    Some((column.parse().ok()?, key))
}

#[derive(Debug, Clone, PartialEq)]
pub struct Schema {
    pub id: ObjectId,
    pub uuid: String,
    pub name: String,
    pub path: Location,
    pub comment: Option<String>,
    pub options: BTreeMap<String, String>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Table {
    pub id: ObjectId,
    pub uuid: String,
    pub schema: ObjectId,
    pub name: String,
    pub path: Location,
    /// In order. Ids are unique over the table's life and over nesting.
    pub columns: Vec<Column>,
    /// The first column id that no version of this table has used.
    pub next_column: ColumnId,
    /// Partitioning of new files, outermost first; empty: none.
    pub partition: Vec<PartitionKey>,
    /// In `ducklake_partition_info`; `None` for an uncommitted partitioning, or for none.
    pub partition_id: Option<i64>,
    /// Sort order of rows in new files.
    pub sort: Vec<SortKey>,
    pub comment: Option<String>,
    /// Harrier's own tags (`ducklake_tag`), whose keys begin with [`OWN_TAGS`]; others are ignored.
    pub tags: BTreeMap<String, String>,
    pub options: BTreeMap<String, String>,
}

impl Table {
    /// Its range or list partitions, as they are stored.
    pub(crate) fn table_partitions(&self) -> Option<&String> {
        self.options.get(TABLE_PARTITIONS_OPTION)
    }

    /// Whether `after` has other than options changed. They have no snapshots: the last writer wins. Table
    /// partitions are more than an option.
    pub(crate) fn differs_beyond_options(&self, after: &Self) -> bool {
        let partitions_differ = self.table_partitions() != after.table_partitions();
        let after = Self { options: self.options.clone(), ..after.clone() };
        partitions_differ || *self != after
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct Column {
    pub id: ColumnId,
    pub name: String,
    pub kind: ColumnType,
    /// Fields of a struct; the element of a list; key and value of a map.
    pub children: Vec<Column>,
    pub nullable: bool,
    /// Value for rows of files written before the column was added; as text.
    pub initial_default: Option<String>,
    /// Default for INSERT; as text.
    pub default: Option<DefaultValue>,
    pub comment: Option<String>,
    /// Harrier's own tags (in `ducklake_tag`, on its table), like those of a [`Table`].
    pub tags: BTreeMap<String, String>,
}

/// Columns with their nested columns and parents, in order.
pub(crate) fn flatten<'c>(
    columns: &'c [Column],
    parent: Option<ColumnId>,
    out: &mut Vec<(&'c Column, Option<ColumnId>)>,
) {
    for column in columns {
        out.push((column, parent));
        flatten(&column.children, Some(column.id), out);
    }
}

#[derive(Debug, Clone, PartialEq)]
pub enum DefaultValue {
    Literal(String),
    /// SQL in the dialect of the program that wrote it, such as `duckdb` or `harrier`.
    Expression {
        sql: String,
        dialect: String,
    },
}

#[derive(Debug, Clone, PartialEq)]
pub struct PartitionKey {
    pub column: ColumnId,
    pub transform: Transform,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transform {
    Identity,
    Year,
    Month,
    Day,
    Hour,
    /// Murmur3 (32 bits, seed 0) of the value as Iceberg hashes it, modulo this number.
    Bucket(u32),
}

#[derive(Debug, Clone, PartialEq)]
pub struct SortKey {
    /// SQL; nearly always a column's name.
    pub expression: String,
    pub dialect: String,
    pub descending: bool,
    pub nulls_first: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub struct View {
    pub id: ObjectId,
    pub uuid: String,
    pub schema: ObjectId,
    pub name: String,
    pub dialect: String,
    pub sql: String,
    /// Names of its first columns, quoted and comma-separated.
    pub column_aliases: String,
    pub comment: Option<String>,
    /// For each table that it reads, [`Table::next_column`] when the view was created. Later columns are not
    /// part of the view.
    pub columns_below: BTreeMap<ObjectId, ColumnId>,
}

/// The key of the tag with [`View::columns_below`]: `TABLE:COLUMN` separated by blanks.
const COLUMNS_BELOW_TAG: &str = "harrier.columns_below";

impl View {
    /// Its own tags, with table ids mapped to final ones by `real`.
    pub(crate) fn tags(&self, real: impl Fn(ObjectId) -> ObjectId) -> BTreeMap<String, String> {
        let columns: Vec<String> =
            self.columns_below.iter().map(|(table, column)| format!("{}:{column}", real(*table))).collect();
        match columns.is_empty() {
            true => BTreeMap::new(),
            false => BTreeMap::from([(COLUMNS_BELOW_TAG.to_string(), columns.join(" "))]),
        }
    }

    /// Parses the columns in its own tags; malformed entries are ignored.
    pub(crate) fn columns_below(tags: &BTreeMap<String, String>) -> BTreeMap<ObjectId, ColumnId> {
        let pairs = tags.get(COLUMNS_BELOW_TAG).into_iter().flat_map(|text| text.split(' '));
        let parsed = pairs.filter_map(|pair| {
            let (table, column) = pair.split_once(':')?;
            Some((table.parse().ok()?, column.parse().ok()?))
        });
        parsed.collect()
    }
}

/// A table with something that Harrier does not support, such as a column of type `variant`.
#[derive(Debug, Clone, PartialEq)]
pub struct Unusable {
    pub schema: ObjectId,
    pub name: String,
    pub reason: String,
}

/// A path that is absolute or relative to its parent's (file to table, table to schema, schema to the data
/// path).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Location {
    pub path: String,
    pub relative: bool,
}

impl Location {
    /// Resolves the path against `parent`, which ends in `/`.
    pub fn below(&self, parent: &str) -> String {
        if self.relative { format!("{parent}{}", self.path) } else { self.path.clone() }
    }

    pub fn relative(path: impl Into<String>) -> Self {
        Self { path: path.into(), relative: true }
    }
}

/// DuckLake's name of the initial schema.
pub const DEFAULT_SCHEMA: &str = "main";

/// PostgreSQL's name of it, which clients expect. It is an alias unless the warehouse has another schema of
/// this name.
pub const PUBLIC_SCHEMA: &str = "public";

impl State {
    /// The schema of this exact name.
    pub fn schema(&self, name: &str) -> Option<&Arc<Schema>> {
        self.schemas.values().find(|schema| schema.name == name)
    }

    /// The schema of a name in SQL.
    pub fn named_schema(&self, name: &str) -> Option<&Arc<Schema>> {
        let is_alias = name == PUBLIC_SCHEMA;
        self.schema(name).or_else(|| is_alias.then(|| self.schema(DEFAULT_SCHEMA)).flatten())
    }

    /// The name of a schema for users.
    pub fn display_name<'s>(&self, schema: &'s Schema) -> &'s str {
        match schema.name == DEFAULT_SCHEMA && self.schema(PUBLIC_SCHEMA).is_none() {
            true => PUBLIC_SCHEMA,
            false => &schema.name,
        }
    }

    pub fn table(&self, schema: ObjectId, name: &str) -> Option<&Arc<Table>> {
        self.tables.values().find(|table| table.schema == schema && table.name == name)
    }

    /// The reason why a table of this name cannot be used.
    pub fn unusable(&self, schema: ObjectId, name: &str) -> Option<&str> {
        let of_name = self.unusable.values().find(|table| table.schema == schema && table.name == name);
        of_name.map(|table| table.reason.as_str())
    }

    pub fn view(&self, schema: ObjectId, name: &str) -> Option<&Arc<View>> {
        self.views.values().find(|view| view.schema == schema && view.name == name)
    }

    pub fn sequence(&self, schema: ObjectId, name: &str) -> Option<&Arc<Sequence>> {
        self.sequences.values().find(|sequence| sequence.schema == schema && sequence.name == name)
    }

    /// Whether a table, view or sequence has this name: they share one namespace.
    pub fn has_relation(&self, schema: ObjectId, name: &str) -> bool {
        self.table(schema, name).is_some()
            || self.view(schema, name).is_some()
            || self.sequence(schema, name).is_some()
            || self.unusable(schema, name).is_some()
    }

    /// The folder of a table's files, absolute, ending in `/`.
    pub fn table_path(&self, table: &Table) -> String {
        let schema = &self.schemas[&table.schema];
        table.path.below(&schema.path.below(&self.data_path))
    }

    /// An option at its narrowest scope: table, schema, warehouse.
    pub fn option<'a>(&'a self, table: &'a Table, key: &str) -> Option<&'a str> {
        let schema = &self.schemas[&table.schema];
        [&table.options, &schema.options, &self.options]
            .into_iter()
            .find_map(|scope| scope.get(key))
            .map(String::as_str)
    }
}
