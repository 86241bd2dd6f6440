//! Adds a column below windows whose input has none, as in `SELECT rank() OVER (ORDER BY (SELECT …))`. Sorts
//! and windows concatenate batches, and lose the row count of batches without columns (error 22023).
//!
//! ```text
//! WindowAggr: rank() …      Projection: rank() …
//!   (rows, no columns)  ─►    WindowAggr: rank() …
//!                               Projection: 0 AS harrier_row
//! ```
//!
//! `ColumnlessWindows` can go when windows and sorts concatenate batches without columns by their row counts;
//! no issue was found.

use datafusion::common::tree_node::Transformed;
use datafusion::error::Result;
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, lit};
use datafusion::optimizer::optimizer::ApplyOrder;
use datafusion::optimizer::{OptimizerConfig, OptimizerRule};

/// The optimizer rule; runs after the one that prunes columns.
#[derive(Debug)]
pub(crate) struct ColumnlessWindows;

impl OptimizerRule for ColumnlessWindows {
    fn name(&self) -> &str {
        "columnless_windows"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::BottomUp)
    }

    fn rewrite(&self, plan: LogicalPlan, _: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        let LogicalPlan::Window(window) = &plan else { return Ok(Transformed::no(plan)) };
        if !window.input.schema().fields().is_empty() {
            return Ok(Transformed::no(plan));
        }
        let output: Vec<Expr> =
            plan.schema().iter().map(|(relation, field)| Expr::from((relation, field))).collect();
        LogicalPlanBuilder::from(window.input.as_ref().clone())
            .project([lit(0_i32).alias(ROW)])?
            .window(window.window_expr.clone())?
            .project(output)?
            .build()
            .map(Transformed::yes)
    }
}

/// The name of the added column.
const ROW: &str = "harrier_row";
