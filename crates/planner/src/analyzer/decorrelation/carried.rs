//! Scans of rows that a plan computes itself, for plans that are evaluated for several values at once: the
//! work table of WITH RECURSIVE, and shared rows. The rows carry the values that they belong to.

use std::sync::Arc;

use datafusion::arrow::datatypes::{Field, Schema};
use datafusion::catalog::cte_worktable::CteWorkTable;
use datafusion::common::Column;
use datafusion::datasource::{provider_as_source, source_as_provider};
use datafusion::error::Result;
use datafusion::logical_expr::{LogicalPlan, LogicalPlanBuilder, TableScan, TableSource};
use harrier_exec::operators::shared_rows::SharedRows;

/// Rows that carry keys.
#[derive(Clone)]
pub(super) struct Carried {
    /// The name of the original rows.
    pub(super) name: String,
    /// The rows with key columns behind their own.
    source: Arc<dyn TableSource>,
    /// The names of the key columns.
    keys: Vec<Column>,
}

impl Carried {
    /// The shared rows of `input`, in which `keys` come last.
    pub(super) fn shared_rows(
        name: String,
        as_name: &str,
        input: &LogicalPlan,
        keys: &[Column],
    ) -> Result<Self> {
        let LogicalPlan::TableScan(scan) = SharedRows::scan(as_name, input)? else {
            return datafusion::common::internal_err!("shared rows are not scanned");
        };
        Ok(Self { name, source: scan.source, keys: keys.to_vec() })
    }

    /// The work table of a recursive query whose static term is `rows`, in which `keys` come last.
    pub(super) fn work_table(name: String, as_name: &str, rows: &LogicalPlan, keys: &[Column]) -> Self {
        let fields = rows.schema().fields().iter();
        let fields: Vec<Field> = fields.map(|field| field.as_ref().clone().with_nullable(true)).collect();
        let table = CteWorkTable::new(as_name, Arc::new(Schema::new(fields)));
        Self { name, source: provider_as_source(Arc::new(table)), keys: keys.to_vec() }
    }

    /// A scan of the rows in place of one without keys, and the key columns.
    pub(super) fn scan(&self, scan: &TableScan) -> Result<(LogicalPlan, Vec<Column>)> {
        let first = scan.source.schema().fields().len();
        let projection = scan.projection.as_ref().map(|columns| {
            columns.iter().copied().chain((0..self.keys.len()).map(|at| first + at)).collect()
        });
        let name = scan.table_name.clone();
        let plan = LogicalPlanBuilder::scan(name.clone(), Arc::clone(&self.source), projection)?.build()?;
        let keys = self.keys.iter().map(|key| Column::new(Some(name.clone()), &key.name));
        Ok((plan, keys.collect()))
    }
}

/// The name of the rows that a scan reads, if the plan computes them itself.
pub(super) fn computed_name(scan: &TableScan) -> Option<String> {
    let work_table = || {
        let provider = source_as_provider(&scan.source).ok()?;
        provider.downcast_ref::<CteWorkTable>().map(|table| table.name().to_owned())
    };
    SharedRows::name_in(scan).or_else(work_table)
}

/// Whether a scan reads the rows of the round before in WITH RECURSIVE.
pub(super) fn is_work_table(scan: &TableScan) -> bool {
    source_as_provider(&scan.source).is_ok_and(|provider| provider.downcast_ref::<CteWorkTable>().is_some())
}
