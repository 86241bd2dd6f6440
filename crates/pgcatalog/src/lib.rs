//! PostgreSQL's system catalogs as tables, with their functions. It knows nothing about warehouses.
//!
//! [`install`] gives a session the schema `pg_catalog` and the functions, from a [`Source`]; [`rewrite`]
//! rewrites clients' statements that DataFusion cannot plan; [`postgres_type`] is the PostgreSQL type of a
//! column.

mod catalog;
mod extensions;
mod functions;
mod key_texts;
mod keys;
mod live;
mod relations;
mod rewrite;
mod source;
mod system;
mod types;
mod view_texts;

use std::sync::Arc;

use datafusion::catalog::SchemaProvider;
use datafusion::common::plan_err;
use datafusion::error::Result;
use datafusion::execution::FunctionRegistry;
use datafusion::prelude::SessionContext;

use crate::catalog::Catalog;
use crate::relations::{CatalogSchema, Keywords, Namespace};

pub use crate::extensions::{EXTENSIONS, Extension};
pub use crate::keys::{Check, Constraint, ConstraintKind, ForeignKey, Index, IndexItem, Indexed, Keys};
pub use crate::rewrite::{cast_type, planned_type, rewrite, rewrite_catalogs, rewrite_query};
pub use crate::source::{
    Activity, AdvisoryLock, Column, ColumnStatistics, Contents, FIRST_USER_OID, Grant, Kind, Object,
    Relation, Role, Schema, Sequence, SequenceOwner, Setting, Source, microseconds, oid,
};
pub use crate::types::{
    NO_MODIFIER, ORIGIN_KEY, TYPE_KEY, array_of, format_type, named_field, oid_of, postgres_type,
    postgres_type_of_field,
};

/// The schema of the catalogs.
pub const CATALOG_SCHEMA: &str = "pg_catalog";

/// The schema to which [`rewrite`] maps `information_schema`, a name that DataFusion reserves.
pub const INFORMATION_SCHEMA: &str = "pg_information_schema";

/// The two schemas and the functions of a session.
#[derive(Debug)]
pub struct Installed {
    /// Registered as [`CATALOG_SCHEMA`].
    pub catalog: Arc<dyn SchemaProvider>,
    /// Registered as [`INFORMATION_SCHEMA`].
    pub information: Arc<dyn SchemaProvider>,
}

/// Registers the functions in a session, and returns the schemas, for a catalog that does not support
/// registering them. PostgreSQL's built-in rows are loaded lazily, not here.
pub fn install_functions(context: &SessionContext, source: Arc<dyn Source>) -> Installed {
    let catalog = Arc::new(Catalog::new(source));
    {
        let state = context.state_ref();
        let mut state = state.write();
        for function in functions::functions(&catalog) {
            // Registering a function in a session never fails.
            state.register_udf(function).ok();
        }
    }
    context.register_udtf("pg_get_keywords", Arc::new(Keywords));
    let schema = |namespace| {
        let catalog = Arc::clone(&catalog);
        Arc::new(CatalogSchema { catalog, namespace }) as Arc<dyn SchemaProvider>
    };
    Installed { catalog: schema(Namespace::Catalog), information: schema(Namespace::Information) }
}

/// Registers the schemas in the session's default catalog, and the functions.
pub fn install(context: &SessionContext, source: Arc<dyn Source>) -> Result<()> {
    let default = context.state_ref().read().config_options().catalog.default_catalog.clone();
    let Some(catalog) = context.catalog(&default) else {
        return plan_err!("catalog \"{default}\" does not exist");
    };
    let installed = install_functions(context, source);
    catalog.register_schema(CATALOG_SCHEMA, installed.catalog)?;
    catalog.register_schema(INFORMATION_SCHEMA, installed.information)?;
    Ok(())
}
