//! What a warehouse holds at one snapshot: schemas, tables, views. Plain values; a transaction changes a
//! copy.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::sequences::Sequence;
use crate::types::ColumnType;

/// A snapshot's number: counts up from 0, one for each commit.
pub type SnapshotId = i64;
/// The number of a schema, table, view or sequence. Negative until the transaction that made it commits.
pub type ObjectId = i64;
/// A column's number within its table, never used again in it. Data files carry it as their Parquet field id.
pub type ColumnId = i64;

/// The tag of a table that has its keys and its CHECK constraints, as JSON. Of what is in it the catalog
/// knows [`CHECK`] alone.
pub const KEYS_TAG: &str = "harrier.keys";
/// What a text of [`KEYS_TAG`] has if rows are asked for something.
pub const CHECK: &str = r#""kind":"check""#;
/// The tag of a column that has its declared type, as SQL writes it.
pub const DECLARED_TYPE_TAG: &str = "harrier.type";

/// The option that says how a table is divided by ranges or lists of values, which DuckLake has no words for.
/// What is to be in it is not the catalog's to know; a change of it is one of the table.
pub const TABLE_PARTITIONS_OPTION: &str = "harrier_table_partitions";

/// Everything but the data files, as of one snapshot, or as a transaction has changed it.
#[derive(Debug, Clone, PartialEq)]
pub struct State {
    pub snapshot: SnapshotId,
    /// That of the snapshot, in microseconds since 1970: one of the same number in a catalog that was put
    /// back has another.
    pub time: i64,
    /// Counts the commits that changed a schema, table or view: equal versions mean equal schemas.
    pub schema_version: i64,
    /// The identity of the catalog; `None` in one of an earlier version that nobody has written files into
    /// since.
    pub warehouse: Option<String>,
    /// Where relative paths of schemas begin; ends in `/`.
    pub data_path: String,
    pub schemas: BTreeMap<ObjectId, Arc<Schema>>,
    pub tables: BTreeMap<ObjectId, Arc<Table>>,
    pub views: BTreeMap<ObjectId, Arc<View>>,
    pub sequences: BTreeMap<ObjectId, Arc<Sequence>>,
    /// Tables that exist and cannot be used, with the reason: their names are taken.
    pub unusable: BTreeMap<ObjectId, Arc<Unusable>>,
    /// Settings of the whole warehouse (`ducklake_metadata` without a scope).
    pub options: BTreeMap<String, String>,
}

/// What the keys of Harrier's own tags begin with.
pub const OWN_TAGS: &str = "harrier.";

/// What those keys begin with, in the catalog, of which the table has the tag for one of its columns.
const COLUMN_TAGS: &str = "harrier.column.";

/// The key of the table's tag that is one of a column.
pub(crate) fn column_tag_key(column: ColumnId, key: &str) -> String {
    format!("{COLUMN_TAGS}{column}.{key}")
}

/// The column and its key that such a key of a table's tag is of.
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
    /// How new files are divided, outermost first; empty: not at all.
    pub partition: Vec<PartitionKey>,
    /// In `ducklake_partition_info`; `None` for a partitioning that is not committed yet, or for none.
    pub partition_id: Option<i64>,
    /// The order of rows in new files.
    pub sort: Vec<SortKey>,
    pub comment: Option<String>,
    /// Harrier's own tags (`ducklake_tag`), whose keys begin with [`OWN_TAGS`]; others are left alone.
    pub tags: BTreeMap<String, String>,
    pub options: BTreeMap<String, String>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Column {
    pub id: ColumnId,
    pub name: String,
    pub kind: ColumnType,
    /// Fields of a struct; the element of a list; key and value of a map.
    pub children: Vec<Column>,
    pub nullable: bool,
    /// What rows of files have that were written before the column was added; as text.
    pub initial_default: Option<String>,
    /// What INSERT puts where it names no value; as text.
    pub default: Option<DefaultValue>,
    pub comment: Option<String>,
    /// Harrier's own tags (in `ducklake_tag`, of its table), as those of a [`Table`].
    pub tags: BTreeMap<String, String>,
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
    /// Murmur3 (32 bits, seed 0) of the value as Iceberg hashes it, modulo this many.
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
    /// Names for its first columns, in quotes with commas between them.
    pub column_aliases: String,
    pub comment: Option<String>,
    /// Of each table that it reads, the number that the next column was to get when the view was made
    /// ([`Table::next_column`]). Later columns are none of the view's.
    pub columns_below: BTreeMap<ObjectId, ColumnId>,
}

/// The key of the tag that has [`View::columns_below`]: `TABLE:COLUMN` with blanks between them.
const COLUMNS_BELOW_TAG: &str = "harrier.columns_below";

impl View {
    /// Its own tags, where its tables have other numbers (`real`) in the catalog than here.
    pub(crate) fn tags(&self, real: impl Fn(ObjectId) -> ObjectId) -> BTreeMap<String, String> {
        let columns: Vec<String> =
            self.columns_below.iter().map(|(table, column)| format!("{}:{column}", real(*table))).collect();
        match columns.is_empty() {
            true => BTreeMap::new(),
            false => BTreeMap::from([(COLUMNS_BELOW_TAG.to_string(), columns.join(" "))]),
        }
    }

    /// What its own tags say of columns; what cannot be read says nothing.
    pub(crate) fn columns_below(tags: &BTreeMap<String, String>) -> BTreeMap<ObjectId, ColumnId> {
        let pairs = tags.get(COLUMNS_BELOW_TAG).into_iter().flat_map(|text| text.split(' '));
        let parsed = pairs.filter_map(|pair| {
            let (table, column) = pair.split_once(':')?;
            Some((table.parse().ok()?, column.parse().ok()?))
        });
        parsed.collect()
    }
}

/// A table with something in it that Harrier does not know, such as a column of type `variant`.
#[derive(Debug, Clone, PartialEq)]
pub struct Unusable {
    pub schema: ObjectId,
    pub name: String,
    pub reason: String,
}

/// A path that is relative to its parent's (file to table, table to schema, schema to the data path), or
/// absolute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Location {
    pub path: String,
    pub relative: bool,
}

impl Location {
    /// This path as an absolute one, below `parent`, which ends in `/`.
    pub fn below(&self, parent: &str) -> String {
        if self.relative { format!("{parent}{}", self.path) } else { self.path.clone() }
    }

    pub fn relative(path: impl Into<String>) -> Self {
        Self { path: path.into(), relative: true }
    }
}

/// How DuckLake calls the schema that is there from the start.
pub const DEFAULT_SCHEMA: &str = "main";

/// How PostgreSQL does, and its clients expect it. It is a name of that schema unless the warehouse has
/// another schema of this name.
pub const PUBLIC_SCHEMA: &str = "public";

impl State {
    /// By name, exactly as written.
    pub fn schema(&self, name: &str) -> Option<&Arc<Schema>> {
        self.schemas.values().find(|schema| schema.name == name)
    }

    /// By a name as SQL gives it.
    pub fn named_schema(&self, name: &str) -> Option<&Arc<Schema>> {
        let is_alias = name == PUBLIC_SCHEMA;
        self.schema(name).or_else(|| is_alias.then(|| self.schema(DEFAULT_SCHEMA)).flatten())
    }

    /// The name of a schema as users are told it.
    pub fn told_name<'s>(&self, schema: &'s Schema) -> &'s str {
        match schema.name == DEFAULT_SCHEMA && self.schema(PUBLIC_SCHEMA).is_none() {
            true => PUBLIC_SCHEMA,
            false => &schema.name,
        }
    }

    pub fn table(&self, schema: ObjectId, name: &str) -> Option<&Arc<Table>> {
        self.tables.values().find(|table| table.schema == schema && table.name == name)
    }

    /// Why there is a table of this name that cannot be used.
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

    /// Whether a table, view or sequence has this name: they share one space of names.
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

    /// A setting with its narrowest scope: table, schema, warehouse.
    pub fn option<'a>(&'a self, table: &'a Table, key: &str) -> Option<&'a str> {
        let schema = &self.schemas[&table.schema];
        [&table.options, &schema.options, &self.options]
            .into_iter()
            .find_map(|scope| scope.get(key))
            .map(String::as_str)
    }
}
