//! Privilege checks of a statement's reads, on its unoptimized plan.
//!
//! Scans check privileges too, for their final columns. But EXPLAIN does not run scans, and the optimizer
//! removes those without rows: `WHERE false`, `LIMIT 0`.

use std::sync::Arc;

use datafusion::catalog::TableProvider;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::datasource::source_as_provider;
use datafusion::error::Result;
use datafusion::execution::SessionState;
use datafusion::logical_expr::{LogicalPlan, TableScan, WriteOp};
use datafusion::optimizer::Optimizer;
use datafusion::optimizer::optimize_projections::OptimizeProjections;
use harrier_catalog::access::Columns;
use harrier_catalog::state::ObjectId;

use crate::warehouse::access::restricted_view::RestrictedView;
use crate::warehouse::table::WarehouseTable;

/// Checks the reads of `plan`. Those of the table that it changes are checked with the change.
///
/// Errors: a privilege is missing (42501).
pub(crate) fn check_reads(state: &SessionState, plan: &LogicalPlan) -> Result<()> {
    match plan {
        LogicalPlan::Explain(asked) => check_reads(state, &asked.plan),
        LogicalPlan::Analyze(asked) => check_reads(state, &asked.input),
        LogicalPlan::Dml(dml) => {
            let changed = match dml.op {
                WriteOp::Insert(_) | WriteOp::Ctas => None,
                _ => source_as_provider(&dml.target)
                    .ok()
                    .and_then(|target| target.downcast_ref::<WarehouseTable>().map(|table| table.table().id)),
            };
            check_scans(state, &dml.input, changed)
        }
        plan => check_scans(state, plan, None),
    }
}

fn check_scans(state: &SessionState, plan: &LogicalPlan, changed: Option<ObjectId>) -> Result<()> {
    let mut is_partly = false;
    plan.apply_with_subqueries(|node| {
        if let LogicalPlan::TableScan(scan) = node
            && let Some(read) = ProtectedScan::of(scan, changed)
        {
            match read.columns() {
                Columns::All => {}
                Columns::None => read.check(&[], scan)?,
                Columns::Some(_) => is_partly = true,
            }
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    if !is_partly {
        return Ok(());
    }
    // The needed columns are known after projection pushdown. Planning errors are reported by planning
    // itself.
    let analyzed = state.analyzer().execute_and_check(plan.clone(), state.config_options(), |_, _| {});
    let Ok(analyzed) = analyzed else { return Ok(()) };
    let optimizer = Optimizer::with_rules(vec![Arc::new(OptimizeProjections::new())]);
    let Ok(needed) = optimizer.optimize(analyzed, state, |_, _| {}) else { return Ok(()) };
    needed.apply_with_subqueries(|node| {
        if let LogicalPlan::TableScan(scan) = node
            && let Some(read) = ProtectedScan::of(scan, changed)
        {
            let all: Vec<usize> = (0..scan.source.schema().fields().len()).collect();
            read.check(scan.projection.as_ref().unwrap_or(&all), scan)?;
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(())
}

/// A scanned table or view with privileges.
struct ProtectedScan(Arc<dyn TableProvider>);

impl ProtectedScan {
    fn of(scan: &TableScan, changed: Option<ObjectId>) -> Option<Self> {
        let provider = source_as_provider(&scan.source).ok()?;
        let is_protected = match provider.downcast_ref::<WarehouseTable>() {
            Some(table) => Some(table.table().id) != changed,
            None => provider.downcast_ref::<RestrictedView>().is_some(),
        };
        is_protected.then_some(Self(provider))
    }

    fn columns(&self) -> Columns {
        match (self.0.downcast_ref::<WarehouseTable>(), self.0.downcast_ref::<RestrictedView>()) {
            (Some(table), _) => table.readable().clone(),
            (None, Some(view)) => Columns::Some(view.readable().clone()),
            (None, None) => Columns::All,
        }
    }

    fn check(&self, projection: &[usize], scan: &TableScan) -> Result<()> {
        match (self.0.downcast_ref::<WarehouseTable>(), self.0.downcast_ref::<RestrictedView>()) {
            (Some(table), _) => table.check_readable(projection, &scan.filters),
            (None, Some(view)) => view.check_readable(projection),
            (None, None) => Ok(()),
        }
    }
}
