//! Restricts `information_schema` to the relations that a statement needs: a view that cannot be planned or
//! read does not fail statements about other relations.

use std::ops::ControlFlow;
use std::sync::Arc;

use datafusion::catalog::{CatalogProvider, CatalogProviderList, SchemaProvider, TableProvider};
use datafusion::common::ResolvedTableReference;
use datafusion::datasource::TableType;
use datafusion::error::Result;
use datafusion::execution::SessionState;
use datafusion::sql::parser::Statement;
use datafusion::sql::planner::object_name_to_table_reference;
use datafusion::sql::sqlparser::ast::{self, ObjectName, visit_relations};
use futures::FutureExt;
use futures::future::BoxFuture;
use harrier_catalog::state::{DEFAULT_SCHEMA, PUBLIC_SCHEMA};

/// The planner builds its lists from all relations and their columns. Returns a session that contains only
/// the relations `statement` needs; `None` if it needs no such list.
///
/// Errors: the relation's name has too many parts.
pub(crate) fn restrict(state: &SessionState, statement: &Statement) -> Result<Option<SessionState>> {
    let Statement::Statement(statement) = statement else { return Ok(None) };
    let filter = match statement.as_ref() {
        ast::Statement::ShowColumns { show_options, .. } => {
            show_options.show_in.as_ref().and_then(|within| within.parent_name.as_ref())
        }
        ast::Statement::ShowCreate { obj_name, .. } => Some(obj_name),
        other if lists(other) => None,
        _ => return Ok(None),
    };
    let filter = filter.map(|name| resolve(state, name)).transpose()?;
    let mut listing = state.clone();
    let inner = Arc::clone(state.catalog_list());
    listing.register_catalog_list(Arc::new(Catalogs { inner, filter: filter.map(Arc::new) }));
    Ok(Some(listing))
}

fn lists(statement: &ast::Statement) -> bool {
    if matches!(statement, ast::Statement::ShowTables { .. } | ast::Statement::ShowViews { .. }) {
        return true;
    }
    visit_relations(statement, |name| {
        let parts = name.0.len();
        let schema = parts.checked_sub(2).and_then(|at| name.0[at].as_ident());
        match schema.is_some_and(|schema| schema.value.eq_ignore_ascii_case("information_schema")) {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    })
    .is_break()
}

fn resolve(state: &SessionState, name: &ObjectName) -> Result<ResolvedTableReference> {
    let defaults = &state.config_options().catalog;
    let name = object_name_to_table_reference(name.clone(), true)?;
    Ok(name.resolve(&defaults.default_catalog, &defaults.default_schema))
}

/// `None`: all relations that can be planned; otherwise only this one, whose planning errors are returned.
type RelationFilter = Option<Arc<ResolvedTableReference>>;

#[derive(Debug)]
struct Catalogs {
    inner: Arc<dyn CatalogProviderList>,
    filter: RelationFilter,
}

impl CatalogProviderList for Catalogs {
    fn register_catalog(
        &self,
        name: String,
        catalog: Arc<dyn CatalogProvider>,
    ) -> Option<Arc<dyn CatalogProvider>> {
        self.inner.register_catalog(name, catalog)
    }

    fn catalog_names(&self) -> Vec<String> {
        match &self.filter {
            Some(filter) => vec![filter.catalog.to_string()],
            None => self.inner.catalog_names(),
        }
    }

    fn catalog(&self, name: &str) -> Option<Arc<dyn CatalogProvider>> {
        let inner = self.inner.catalog(name)?;
        Some(Arc::new(Schemas { inner, filter: self.filter.clone() }))
    }
}

#[derive(Debug)]
struct Schemas {
    inner: Arc<dyn CatalogProvider>,
    filter: RelationFilter,
}

impl CatalogProvider for Schemas {
    fn schema_names(&self) -> Vec<String> {
        match &self.filter {
            Some(filter) => vec![display_name(&filter.schema, || self.inner.schema_names())],
            None => self.inner.schema_names(),
        }
    }

    fn schema(&self, name: &str) -> Option<Arc<dyn SchemaProvider>> {
        let inner = self.inner.schema(name)?;
        Some(Arc::new(Relations { inner, filter: self.filter.clone() }))
    }
}

/// The name by which lists show a schema: the first schema of a warehouse is `main` to the catalog, and
/// `public` to statements that do not say otherwise.
fn display_name(schema: &str, listed: impl FnOnce() -> Vec<String>) -> String {
    if schema == DEFAULT_SCHEMA {
        let listed = listed();
        let has = |name: &str| listed.iter().any(|listed| listed == name);
        if has(PUBLIC_SCHEMA) && !has(DEFAULT_SCHEMA) {
            return PUBLIC_SCHEMA.to_string();
        }
    }
    schema.to_string()
}

#[derive(Debug)]
struct Relations {
    inner: Arc<dyn SchemaProvider>,
    filter: RelationFilter,
}

// Methods are expanded to keep compile times low: docs/decisions/0025-boxed-futures-behind-traits.md
impl SchemaProvider for Relations {
    fn table_names(&self) -> Vec<String> {
        match &self.filter {
            Some(filter) => vec![filter.table.to_string()],
            None => self.inner.table_names(),
        }
    }

    fn table<'a: 'f, 'b: 'f, 'f>(
        &'a self,
        name: &'b str,
    ) -> BoxFuture<'f, Result<Option<Arc<dyn TableProvider>>>> {
        async move {
            match (self.inner.table(name).await, &self.filter) {
                (Err(error), None) => {
                    tracing::debug!(name, %error, "a relation is left out of a list");
                    Ok(None)
                }
                (found, _) => found,
            }
        }
        .boxed()
    }

    fn table_type<'a: 'f, 'b: 'f, 'f>(&'a self, name: &'b str) -> BoxFuture<'f, Result<Option<TableType>>> {
        async move {
            match (self.inner.table_type(name).await, &self.filter) {
                // The kind follows from the plan; only views can fail to be planned.
                (Err(_), None) => Ok(Some(TableType::View)),
                (found, _) => found,
            }
        }
        .boxed()
    }

    fn table_exist(&self, name: &str) -> bool {
        self.inner.table_exist(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schemas_have_the_names_of_lists() {
        let listed = |names: &[&str]| names.iter().map(|name| name.to_string()).collect::<Vec<_>>();
        for (schema, names, expected) in [
            ("main", &["public", "sys"][..], "public"),
            ("main", &["main", "sys"], "main"),
            ("main", &["public", "main"], "main"),
            ("own", &["public", "own"], "own"),
        ] {
            assert_eq!(display_name(schema, || listed(names)), expected, "{schema} {names:?}");
        }
    }
}
