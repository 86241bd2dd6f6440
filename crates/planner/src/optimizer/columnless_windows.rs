//! Windows over rows that have no columns, as `SELECT rank() OVER (ORDER BY (SELECT …))` has them: they get
//! one. Sorts and windows put batches together, of which nobody knows how many rows there are without columns
//! (22023).
//!
//! ```text
//! WindowAggr: rank() …      Projection: rank() …
//!   (rows, no columns)  ─►    WindowAggr: rank() …
//!                               Projection: 0 AS harrier_row
//! ```
//!
//! `ColumnlessWindows` can go when windows and sorts put batches without columns together by their numbers of
//! rows; no issue was found.

use datafusion::common::tree_node::Transformed;
use datafusion::error::Result;
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, lit};
use datafusion::optimizer::optimizer::ApplyOrder;
use datafusion::optimizer::{OptimizerConfig, OptimizerRule};

/// The rule; to stand behind the one that takes columns away.
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
        let shown: Vec<Expr> =
            plan.schema().iter().map(|(relation, field)| Expr::from((relation, field))).collect();
        LogicalPlanBuilder::from(window.input.as_ref().clone())
            .project([lit(0_i32).alias(ROW)])?
            .window(window.window_expr.clone())?
            .project(shown)?
            .build()
            .map(Transformed::yes)
    }
}

/// What the column is called.
const ROW: &str = "harrier_row";
