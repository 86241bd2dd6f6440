//! Catalog of a session without a warehouse, whose tables end with it, and their contents for PostgreSQL's
//! system catalogs.
//!
//! The system catalogs can be looked up in it but are not listed as schemas, as in
//! [`crate::warehouse::name_resolver::SessionCatalog`].

use std::sync::{Arc, OnceLock};

use datafusion::arrow::datatypes::FieldRef;
use datafusion::catalog::{CatalogProvider, SchemaProvider, TableProvider};
use datafusion::datasource::TableType;
use datafusion::error::Result;
use datafusion::sql::unparser::expr_to_sql;
use harrier_catalog::state::PUBLIC_SCHEMA;
use harrier_pgcatalog::{
    CATALOG_SCHEMA, Column, Contents, INFORMATION_SCHEMA, Installed, Kind, Relation, Schema,
};

use crate::planning::stored_sql;
use crate::warehouse::temporary_tables::temporary_number;

#[derive(Debug)]
pub(crate) struct TemporaryCatalog {
    inner: Arc<dyn CatalogProvider>,
    postgres: OnceLock<Installed>,
}

impl TemporaryCatalog {
    pub(crate) fn new(inner: Arc<dyn CatalogProvider>) -> Self {
        Self { inner, postgres: OnceLock::new() }
    }

    /// Installs PostgreSQL's system catalogs. Call it once.
    pub(crate) fn set_postgres(&self, installed: Installed) {
        assert!(self.postgres.set(installed).is_ok(), "a session begins once");
    }

    /// The current contents, all owned by `owner`.
    pub(crate) async fn contents(&self, owner: &str) -> Contents {
        let mut contents = Contents::default();
        let mut schemas = self.inner.schema_names();
        schemas.sort();
        for name in schemas {
            let Some(provider) = self.inner.schema(&name) else { continue };
            let schema = temporary_number(&name);
            let mut tables = provider.table_names();
            tables.sort();
            for table in tables {
                if let Ok(Some(found)) = provider.table(&table).await {
                    let id = temporary_number(&format!("{name}\0{table}"));
                    contents.relations.push(relation(id, schema, table, found.as_ref(), owner));
                }
            }
            contents.schemas.push(Schema {
                id: schema,
                is_public: name == PUBLIC_SCHEMA,
                name,
                other_name: None,
                owner: owner.to_string(),
                comment: None,
                grants: vec![],
            });
        }
        contents
    }
}

fn relation(id: i64, schema: i64, name: String, table: &dyn TableProvider, owner: &str) -> Relation {
    let fields = table.schema();
    let column = |field: &FieldRef| {
        let default = table.get_column_default(field.name()).and_then(|default| expr_to_sql(default).ok());
        Column {
            field: Arc::clone(field),
            default: default.map(|default| default.to_string()),
            comment: None,
            grants: vec![],
            statistics: None,
        }
    };
    Relation {
        id,
        schema,
        name,
        kind: match table.table_type() {
            TableType::Base => Kind::Table,
            TableType::View => Kind::View,
            TableType::Temporary => Kind::TemporaryTable,
        },
        owner: owner.to_string(),
        comment: None,
        columns: fields.fields().iter().map(column).collect(),
        keys: Default::default(),
        rows: None,
        bytes: None,
        definition: match table.table_type() {
            TableType::View => table.get_table_definition().map(query_of),
            _ => None,
        },
        reads: vec![],
        grants: vec![],
    }
}

/// The query of a CREATE VIEW; other text unchanged.
fn query_of(definition: &str) -> String {
    stored_sql::query_of_view(definition).unwrap_or(definition).to_string()
}

impl CatalogProvider for TemporaryCatalog {
    fn schema_names(&self) -> Vec<String> {
        self.inner.schema_names()
    }

    fn schema(&self, name: &str) -> Option<Arc<dyn SchemaProvider>> {
        match (self.postgres.get(), name) {
            (Some(postgres), CATALOG_SCHEMA) => Some(Arc::clone(&postgres.catalog)),
            (Some(postgres), INFORMATION_SCHEMA) => Some(Arc::clone(&postgres.information)),
            _ => self.inner.schema(name),
        }
    }

    fn register_schema(
        &self,
        name: &str,
        schema: Arc<dyn SchemaProvider>,
    ) -> Result<Option<Arc<dyn SchemaProvider>>> {
        self.inner.register_schema(name, schema)
    }

    fn deregister_schema(&self, name: &str, cascade: bool) -> Result<Option<Arc<dyn SchemaProvider>>> {
        self.inner.deregister_schema(name, cascade)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn views_are_listed_with_their_queries() {
        for (definition, expected) in [
            ("CREATE VIEW v AS SELECT id FROM t", "SELECT id FROM t"),
            ("CREATE OR REPLACE VIEW v (a) AS SELECT id FROM t", "SELECT id FROM t"),
            ("SELECT 1", "SELECT 1"),
            ("no SQL", "no SQL"),
        ] {
            assert_eq!(query_of(definition), expected);
        }
    }
}
