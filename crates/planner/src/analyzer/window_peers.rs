//! Windows over orders by types of which the planner knows no ranges: intervals, bytes, times of day, UUIDs.
//!
//! A range without offsets ends where the peers of a row do, as a frame of GROUPS does. So such a frame
//! becomes one of these, whatever the type is. Ranges with offsets are left to the planner.
//!
//! ```text
//! ORDER BY i RANGE UNBOUNDED PRECEDING  ─►  ORDER BY i GROUPS UNBOUNDED PRECEDING   i an interval
//! ORDER BY i RANGE '1 day' PRECEDING    ─►  the same                                has an offset
//! ORDER BY n RANGE UNBOUNDED PRECEDING  ─►  the same                                n a number
//! ```
//!
//! `WindowPeers` can go with a DataFusion that has apache/datafusion#24357, apache/datafusion#24515 and
//! apache/datafusion#24916: RANGE without offsets over types that have no arithmetic.

use datafusion::arrow::datatypes::DataType;
use datafusion::common::DFSchema;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::error::Result;
use datafusion::logical_expr::{
    Expr, ExprSchemable, LogicalPlan, WindowFrame, WindowFrameBound, WindowFrameUnits,
};
use datafusion::optimizer::AnalyzerRule;

use crate::rewrite::{input_schema, rewrite_expressions};

/// The rule; to stand before the coercion of types.
#[derive(Debug)]
pub struct WindowPeers;

impl AnalyzerRule for WindowPeers {
    fn name(&self) -> &str {
        "window_peers"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        let changed = plan.transform_up_with_subqueries(|plan| {
            if !matches!(plan, LogicalPlan::Window(_)) {
                return Ok(Transformed::no(plan));
            }
            let schema = input_schema(&plan)?;
            rewrite_expressions(plan, |expr| Ok(of_peers(expr, &schema)))
        })?;
        Ok(changed.data)
    }
}

fn of_peers(mut expr: Expr, schema: &DFSchema) -> Transformed<Expr> {
    let Expr::WindowFunction(call) = &mut expr else { return Transformed::no(expr) };
    let frame = &call.params.window_frame;
    let is_range = frame.units == WindowFrameUnits::Range
        && is_of_peers(&frame.start_bound)
        && is_of_peers(&frame.end_bound);
    let keys = &call.params.order_by;
    let kind = keys.first().and_then(|key| key.expr.get_type(schema).ok());
    if !is_range || !kind.is_some_and(|kind| has_no_range(&kind)) {
        return Transformed::no(expr);
    }
    call.params.window_frame =
        WindowFrame::new_bounds(WindowFrameUnits::Groups, frame.start_bound.clone(), frame.end_bound.clone());
    Transformed::yes(expr)
}

/// Whether a bound is about no distance.
fn is_of_peers(bound: &WindowFrameBound) -> bool {
    match bound {
        WindowFrameBound::CurrentRow => true,
        WindowFrameBound::Preceding(rows) | WindowFrameBound::Following(rows) => rows.is_null(),
    }
}

fn has_no_range(kind: &DataType) -> bool {
    match kind {
        DataType::Interval(_) | DataType::Duration(_) | DataType::Time32(_) | DataType::Time64(_) => true,
        DataType::FixedSizeBinary(_) => true,
        DataType::Dictionary(_, value) => has_no_range(value),
        kind => kind.is_binary(),
    }
}
