//! The snapshot of the warehouse that one statement reads.

use std::collections::BTreeMap;
use std::sync::Arc;

use harrier_catalog::Catalog;
use harrier_catalog::files::TableChanges;
use harrier_catalog::sequences::UncommittedValue;
use harrier_catalog::state::{DEFAULT_SCHEMA, ObjectId, PUBLIC_SCHEMA, Schema, State, Table};

use crate::planning::stored_sql::SessionUsers;
use crate::warehouse::access::Viewer;
use crate::warehouse::public_schema::schema_display_name;

/// A statement's snapshot of the warehouse.
#[derive(Debug, Clone, Default)]
pub(crate) struct StatementSnapshot {
    /// `None` before the warehouse is created.
    pub catalog: Option<Catalog>,
    pub state: Option<Arc<State>>,
    /// Row changes of the open transaction so far.
    pub data: Arc<BTreeMap<ObjectId, TableChanges>>,
    /// Values of sequences that the open transaction has created or restarted.
    pub values: Arc<BTreeMap<ObjectId, UncommittedValue>>,
    /// The role as which the statement reads.
    pub viewer: Viewer,
    /// The session's users, whichever role reads.
    pub asker: SessionUsers,
    /// Whether the statement is shown the schema `public` as `main`.
    pub shows_main: bool,
}

impl StatementSnapshot {
    /// Looks up a schema by its name in SQL.
    pub(crate) fn schema(&self, name: &str) -> Option<&Arc<Schema>> {
        self.state.as_ref()?.named_schema(name)
    }

    /// The schema name of a table, as shown to the statement.
    pub(crate) fn schema_name(&self, table: &Table) -> Option<&str> {
        let state = self.state.as_ref()?;
        Some(schema_display_name(state, state.schemas.get(&table.schema)?, self.shows_main))
    }

    /// The name of the schema `name`, as shown to the statement; `name` itself if there is no such schema.
    pub(crate) fn display_schema<'s>(&'s self, name: &'s str) -> &'s str {
        match (&self.state, self.schema(name)) {
            (Some(state), Some(schema)) => schema_display_name(state, schema, self.shows_main),
            (None, _) if is_default(name) => {
                if self.shows_main {
                    DEFAULT_SCHEMA
                } else {
                    PUBLIC_SCHEMA
                }
            }
            _ => name,
        }
    }
}

pub(crate) fn is_default(schema: &str) -> bool {
    schema == DEFAULT_SCHEMA || schema == PUBLIC_SCHEMA
}
