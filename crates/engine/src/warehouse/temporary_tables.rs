//! Temporary tables and views in PostgreSQL's catalogs: in a schema `pg_temp_N` of their session. The tables
//! themselves are in the session's `NameResolver`.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::MemTable;
use harrier_pgcatalog::{Column, Contents, Kind, Relation, Schema};

/// Id of the schema; ids of warehouse objects are positive.
const SCHEMA_ID: i64 = -1;

/// Ids of temporary relations are below this.
const RELATIONS_BELOW: i64 = -2;

/// Number of ids for temporary relations.
const RELATIONS: u64 = 1 << 28;

/// A temporary table or view.
#[derive(Debug, Clone)]
pub(super) struct TemporaryTable {
    pub(super) name: String,
    pub(super) schema: SchemaRef,
    pub(super) is_view: bool,
}

/// Whether an id is that of a temporary object or its schema.
pub(super) fn is_temporary_id(id: i64) -> bool {
    id <= SCHEMA_ID
}

/// The name of the schema for the session with this process number.
pub(super) fn schema_name(process: i32) -> String {
    format!("pg_temp_{process}")
}

/// Adds temporary tables to the contents of the catalogs.
pub(super) fn add(tables: &[TemporaryTable], contents: &mut Contents, process: i32, owner: &str) {
    if tables.is_empty() {
        return;
    }
    contents.schemas.push(Schema {
        id: SCHEMA_ID,
        name: schema_name(process),
        other_name: None,
        is_public: false,
        owner: owner.to_string(),
        comment: None,
        grants: vec![],
    });
    let column = |field| Column { field, default: None, comment: None, grants: vec![], statistics: None };
    contents.relations.extend(tables.iter().map(|table| Relation {
        id: temporary_number(&table.name),
        schema: SCHEMA_ID,
        name: table.name.clone(),
        kind: if table.is_view { Kind::View } else { Kind::TemporaryTable },
        owner: owner.to_string(),
        comment: None,
        columns: table.schema.fields().iter().map(Arc::clone).map(column).collect(),
        keys: Default::default(),
        rows: None,
        bytes: None,
        definition: None,
        reads: vec![],
        grants: vec![],
    }));
}

/// The id of a temporary relation: constant for one name throughout the session, whatever other tables come
/// and go.
pub(crate) fn temporary_number(name: &str) -> i64 {
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    RELATIONS_BELOW - (hasher.finish() % RELATIONS) as i64
}

/// Removes all rows of a temporary table.
pub(crate) async fn truncate(table: &MemTable) {
    for partition in &table.batches {
        partition.write().await.clear();
    }
}
