//! A view of which a role may read some columns only.

use std::collections::BTreeSet;
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::{Session, TableProvider};
use datafusion::datasource::{TableType, ViewTable};
use datafusion::error::Result;
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown};
use datafusion::physical_plan::ExecutionPlan;
use harrier_catalog::state::ColumnId;

use super::access::denied;

/// It is planned by itself, not as a part of the statement: then what is asked of it is what the statement needs.
#[derive(Debug)]
pub(crate) struct GuardedView {
    inner: ViewTable,
    /// Its kind and name.
    what: String,
    /// From 1.
    columns: BTreeSet<ColumnId>,
}

impl GuardedView {
    pub(crate) fn new(inner: ViewTable, what: String, columns: BTreeSet<ColumnId>) -> Self {
        Self { inner, what, columns }
    }
}

#[async_trait]
impl TableProvider for GuardedView {
    fn schema(&self) -> SchemaRef {
        self.inner.schema()
    }

    fn table_type(&self) -> TableType {
        TableType::View
    }

    fn supports_filters_pushdown(&self, filters: &[&Expr]) -> Result<Vec<TableProviderFilterPushDown>> {
        Ok(vec![TableProviderFilterPushDown::Unsupported; filters.len()])
    }

    async fn scan(
        &self,
        session: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let all: Vec<usize> = (0..self.schema().fields().len()).collect();
        let asked = projection.unwrap_or(&all);
        match asked.iter().all(|at| self.columns.contains(&(*at as ColumnId + 1))) {
            true => self.inner.scan(session, projection, filters, limit).await,
            false => Err(denied(&self.what)),
        }
    }
}
