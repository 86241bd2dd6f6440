//! A table over CSV files without those of their columns that folders give the value of: `a=5/f.csv` with a
//! column `a`. Columns of CSV files are found by their place, so the file's own stays in what is scanned,
//! under another name, and is left out here. It can only be read.

use std::sync::Arc;

use datafusion::arrow::datatypes::{Schema, SchemaRef};
use datafusion::catalog::{Session, TableProvider};
use datafusion::error::Result;
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown, TableType};
use datafusion::physical_plan::ExecutionPlan;
use futures::future::BoxFuture;

/// What the names of hidden columns begin with.
pub(super) const HIDDEN: &str = "__in_file_";

/// The table without its hidden columns; the table itself if it has none.
pub(super) fn without_hidden(table: Arc<dyn TableProvider>) -> Arc<dyn TableProvider> {
    let all = table.schema();
    let places: Vec<usize> =
        (0..all.fields().len()).filter(|at| !all.field(*at).name().starts_with(HIDDEN)).collect();
    if places.len() == all.fields().len() {
        return table;
    }
    let fields = places.iter().map(|at| Arc::clone(&all.fields()[*at])).collect::<Vec<_>>();
    let schema = Arc::new(Schema::new_with_metadata(fields, all.metadata().clone()));
    Arc::new(HiddenColumns { table, places, schema })
}

#[derive(Debug)]
struct HiddenColumns {
    table: Arc<dyn TableProvider>,
    /// Of the visible columns in `table`.
    places: Vec<usize>,
    schema: SchemaRef,
}

impl TableProvider for HiddenColumns {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn table_type(&self) -> TableType {
        self.table.table_type()
    }

    fn get_table_definition(&self) -> Option<&str> {
        self.table.get_table_definition()
    }

    fn supports_filters_pushdown(&self, filters: &[&Expr]) -> Result<Vec<TableProviderFilterPushDown>> {
        self.table.supports_filters_pushdown(filters)
    }

    fn scan<'a: 'f, 'b: 'f, 'c: 'f, 'd: 'f, 'f>(
        &'a self,
        session: &'b dyn Session,
        projection: Option<&'c Vec<usize>>,
        filters: &'d [Expr],
        limit: Option<usize>,
    ) -> BoxFuture<'f, Result<Arc<dyn ExecutionPlan>>> {
        let places: Vec<usize> = match projection {
            Some(chosen) => chosen.iter().map(|at| self.places[*at]).collect(),
            None => self.places.clone(),
        };
        Box::pin(async move { self.table.scan(session, Some(&places), filters, limit).await })
    }
}
