//! Tables and views of one session alone, as PostgreSQL's catalogs tell of them: in a schema `pg_temp_N` of
//! that session.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::MemTable;
use harrier_pgcatalog::{Column, Contents, Kind, Relation, Schema};

/// The number of the schema: numbers of the warehouse's own are positive.
const SCHEMA_ID: i64 = -1;

/// Numbers of relations are below this.
const RELATIONS_BELOW: i64 = -2;

/// How many numbers there are for relations.
const RELATIONS: u64 = 1 << 28;

/// A table or view of a session.
#[derive(Debug, Clone)]
pub(super) struct OwnTable {
    pub(super) name: String,
    pub(super) schema: SchemaRef,
    pub(super) is_view: bool,
}

/// Whether a number is that of something of the session alone.
pub(super) fn is_own(id: i64) -> bool {
    id <= SCHEMA_ID
}

/// The schema that they are in, for the session of this number.
pub(super) fn schema_name(process: i32) -> String {
    format!("pg_temp_{process}")
}

/// Adds them to what the catalogs tell.
pub(super) fn add(own: &[OwnTable], contents: &mut Contents, process: i32, owner: &str) {
    if own.is_empty() {
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
    contents.relations.extend(own.iter().map(|table| Relation {
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

/// The same for one name as long as the session lasts, whatever other tables come and go.
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
