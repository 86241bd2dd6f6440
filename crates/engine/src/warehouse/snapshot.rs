//! What one statement sees of the warehouse.

use std::collections::BTreeMap;
use std::sync::Arc;

use harrier_catalog::Catalog;
use harrier_catalog::files::TableChanges;
use harrier_catalog::sequences::UncommittedValue;
use harrier_catalog::state::{DEFAULT_SCHEMA, ObjectId, PUBLIC_SCHEMA, Schema, State, Table};

use crate::planning::stored_sql::Asker;
use crate::warehouse::access::Viewer;
use crate::warehouse::public_schema::told_name;

/// What a statement sees.
#[derive(Debug, Clone, Default)]
pub(crate) struct Sight {
    /// `None` before the warehouse is made.
    pub catalog: Option<Catalog>,
    pub state: Option<Arc<State>>,
    /// What the transaction has done to rows so far.
    pub data: Arc<BTreeMap<ObjectId, TableChanges>>,
    /// Where sequences are that the transaction has made or begun anew.
    pub values: Arc<BTreeMap<ObjectId, UncommittedValue>>,
    /// As whom it sees that.
    pub viewer: Viewer,
    /// Who asks, whoever the viewer is.
    pub asker: Asker,
    /// The schema `public` is called `main` in what it is told.
    pub says_main: bool,
}

impl Sight {
    /// By name as SQL gives it.
    pub(crate) fn schema(&self, name: &str) -> Option<&Arc<Schema>> {
        self.state.as_ref()?.named_schema(name)
    }

    /// The schema of a table, as the statement is told it.
    pub(crate) fn schema_name(&self, table: &Table) -> Option<&str> {
        let state = self.state.as_ref()?;
        Some(told_name(state, state.schemas.get(&table.schema)?, self.says_main))
    }

    /// The schema that `name` means, as the statement is told it; `name` if there is none.
    pub(crate) fn told<'s>(&'s self, name: &'s str) -> &'s str {
        match (&self.state, self.schema(name)) {
            (Some(state), Some(schema)) => told_name(state, schema, self.says_main),
            (None, _) if is_default(name) => {
                if self.says_main {
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
