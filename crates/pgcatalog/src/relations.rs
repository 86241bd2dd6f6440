//! The schemas `pg_catalog` and `information_schema` as DataFusion providers, with all of PostgreSQL's
//! relations and columns. Rows are produced at scan time: from the source, from PostgreSQL's built-in rows,
//! or both.

use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::memory::MemorySourceConfig;
use datafusion::catalog::{SchemaProvider, Session, TableFunctionImpl, TableProvider};
use datafusion::datasource::TableType;
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::Expr;
use datafusion::physical_plan::ExecutionPlan;
use futures::FutureExt;
use futures::future::{BoxFuture, ready};

use crate::catalog::Catalog;
use crate::live;
use crate::system::{PG_CATALOG, SYSTEM, SystemRelation};

/// One of the two schemas.
#[derive(Debug)]
pub(crate) struct CatalogSchema {
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) namespace: Namespace,
}

/// Which of them it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Namespace {
    Catalog,
    Information,
}

impl CatalogSchema {
    fn find(&self, name: &str) -> Option<&'static SystemRelation> {
        match self.namespace {
            Namespace::Catalog => SYSTEM.catalog(name),
            Namespace::Information => SYSTEM.information(name),
        }
    }
}

// Methods are written out for the compiler's sake: docs/decisions/0025-boxed-futures-behind-traits.md
impl SchemaProvider for CatalogSchema {
    fn table_names(&self) -> Vec<String> {
        let is_catalog = self.namespace == Namespace::Catalog;
        let own = SYSTEM.relations.iter().filter(|relation| (relation.namespace == PG_CATALOG) == is_catalog);
        own.filter(|relation| relation.kind != "f").map(|relation| relation.name.to_string()).collect()
    }

    fn table<'a: 'f, 'b: 'f, 'f>(
        &'a self,
        name: &'b str,
    ) -> BoxFuture<'f, Result<Option<Arc<dyn TableProvider>>>> {
        let relation = self.find(name).filter(|relation| relation.kind != "f");
        let provider = relation.map(|relation| {
            let provider = CatalogRelation { catalog: Arc::clone(&self.catalog), relation: relation.oid };
            Arc::new(provider) as Arc<dyn TableProvider>
        });
        ready(Ok(provider)).boxed()
    }

    fn table_type<'a: 'f, 'b: 'f, 'f>(&'a self, name: &'b str) -> BoxFuture<'f, Result<Option<TableType>>> {
        ready(Ok(self.find(name).map(table_type))).boxed()
    }

    fn table_exist(&self, name: &str) -> bool {
        self.find(name).is_some_and(|relation| relation.kind != "f")
    }
}

fn table_type(relation: &SystemRelation) -> TableType {
    if relation.kind == "v" { TableType::View } else { TableType::Base }
}

/// One relation, by its oid in the system.
#[derive(Debug)]
struct CatalogRelation {
    catalog: Arc<Catalog>,
    relation: i32,
}

impl CatalogRelation {
    fn relation(&self) -> &'static SystemRelation {
        // The oid was taken from it.
        SYSTEM.get(self.relation).unwrap_or(&SYSTEM.relations[0])
    }

    fn scan_plan(&self, projection: Option<&Vec<usize>>) -> Result<Arc<dyn ExecutionPlan>> {
        let relation = self.relation();
        memory(live::rows(&self.catalog, relation)?, relation, projection)
    }
}

// Methods are written out for the compiler's sake: docs/decisions/0025-boxed-futures-behind-traits.md
impl TableProvider for CatalogRelation {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.relation().schema)
    }

    fn table_type(&self) -> TableType {
        table_type(self.relation())
    }

    fn scan<'a: 'f, 'b: 'f, 'c: 'f, 'd: 'f, 'f>(
        &'a self,
        _: &'b dyn Session,
        projection: Option<&'c Vec<usize>>,
        _: &'d [Expr],
        _: Option<usize>,
    ) -> BoxFuture<'f, Result<Arc<dyn ExecutionPlan>>> {
        ready(self.scan_plan(projection)).boxed()
    }
}

fn memory(
    rows: RecordBatch,
    relation: &SystemRelation,
    projection: Option<&Vec<usize>>,
) -> Result<Arc<dyn ExecutionPlan>> {
    let schema = Arc::clone(&relation.schema);
    Ok(MemorySourceConfig::try_new_exec(&[vec![rows]], schema, projection.cloned())?)
}

/// `pg_get_keywords()`, as a table.
#[derive(Debug)]
pub(crate) struct Keywords;

impl TableFunctionImpl for Keywords {
    fn call(&self, _: &[Expr]) -> Result<Arc<dyn TableProvider>> {
        Ok(Arc::new(Keywords))
    }
}

fn keywords() -> &'static SystemRelation {
    SYSTEM.catalog("pg_get_keywords").unwrap_or(&SYSTEM.relations[0])
}

// Methods are written out for the compiler's sake: docs/decisions/0025-boxed-futures-behind-traits.md
impl TableProvider for Keywords {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&keywords().schema)
    }

    fn table_type(&self) -> TableType {
        TableType::View
    }

    fn scan<'a: 'f, 'b: 'f, 'c: 'f, 'd: 'f, 'f>(
        &'a self,
        _: &'b dyn Session,
        projection: Option<&'c Vec<usize>>,
        _: &'d [Expr],
        _: Option<usize>,
    ) -> BoxFuture<'f, Result<Arc<dyn ExecutionPlan>>> {
        let rows = keywords().rows().cloned().map_err(DataFusionError::from);
        ready(rows.and_then(|rows| memory(rows, keywords(), projection))).boxed()
    }
}
