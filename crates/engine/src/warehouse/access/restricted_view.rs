//! A view of which a role may read only some columns.

use std::collections::BTreeSet;
use std::sync::Arc;

use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::{Session, TableProvider};
use datafusion::datasource::{TableType, ViewTable};
use datafusion::error::Result;
use datafusion::logical_expr::{Expr, LogicalPlan, TableProviderFilterPushDown};
use datafusion::physical_plan::ExecutionPlan;
use futures::FutureExt;
use futures::future::{BoxFuture, ready};
use harrier_catalog::state::ColumnId;

use crate::warehouse::access::permission_denied;

/// Planned separately, not inlined into the statement, so that its scan's projection is what the statement
/// needs.
#[derive(Debug)]
pub(crate) struct RestrictedView {
    inner: ViewTable,
    /// Kind and name, for errors.
    what: String,
    /// Column numbers from 1.
    columns: BTreeSet<ColumnId>,
}

impl RestrictedView {
    pub(crate) fn new(inner: ViewTable, what: String, columns: BTreeSet<ColumnId>) -> Self {
        Self { inner, what, columns }
    }

    /// The view's plan.
    pub(crate) fn plan(&self) -> &LogicalPlan {
        self.inner.logical_plan()
    }

    pub(crate) fn readable(&self) -> &BTreeSet<ColumnId> {
        &self.columns
    }

    /// Errors: a column of `asked` may not be read (42501).
    pub(crate) fn check_readable(&self, asked: &[usize]) -> Result<()> {
        match asked.iter().all(|at| self.columns.contains(&(*at as ColumnId + 1))) {
            true => Ok(()),
            false => Err(permission_denied(&self.what)),
        }
    }
}

// Methods are written out for the compiler's sake: docs/decisions/0025-boxed-futures-behind-traits.md
impl TableProvider for RestrictedView {
    fn schema(&self) -> SchemaRef {
        self.inner.schema()
    }

    fn table_type(&self) -> TableType {
        TableType::View
    }

    fn supports_filters_pushdown(&self, filters: &[&Expr]) -> Result<Vec<TableProviderFilterPushDown>> {
        Ok(vec![TableProviderFilterPushDown::Unsupported; filters.len()])
    }

    fn scan<'a: 'f, 'b: 'f, 'c: 'f, 'd: 'f, 'f>(
        &'a self,
        session: &'b dyn Session,
        projection: Option<&'c Vec<usize>>,
        filters: &'d [Expr],
        limit: Option<usize>,
    ) -> BoxFuture<'f, Result<Arc<dyn ExecutionPlan>>> {
        let all: Vec<usize> = (0..self.schema().fields().len()).collect();
        let asked = projection.unwrap_or(&all);
        match self.check_readable(asked) {
            Ok(()) => self.inner.scan(session, projection, filters, limit),
            Err(error) => ready(Err(error)).boxed(),
        }
    }
}
