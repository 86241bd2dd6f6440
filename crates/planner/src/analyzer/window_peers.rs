//! Supports RANGE frames over types without range arithmetic in DataFusion: intervals, bytea, times of day,
//! UUIDs.
//!
//! A RANGE frame without offsets ends at the last peer of a row, like a GROUPS frame. So it becomes one,
//! which works for any type. Frames with offsets are left to DataFusion.
//!
//! ```text
//! ORDER BY i RANGE UNBOUNDED PRECEDING  ─►  ORDER BY i GROUPS UNBOUNDED PRECEDING   i an interval
//! ORDER BY i RANGE '1 day' PRECEDING    ─►  the same                                has an offset
//! ORDER BY n RANGE UNBOUNDED PRECEDING  ─►  the same                                n a number
//! ```
//!
//! `WindowPeers` can go with a DataFusion that includes apache/datafusion#24357, apache/datafusion#24515 and
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

/// The analyzer rule; runs before type coercion.
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
            rewrite_expressions(plan, |expr| Ok(to_groups_frame(expr, &schema)))
        })?;
        Ok(changed.data)
    }
}

fn to_groups_frame(mut expr: Expr, schema: &DFSchema) -> Transformed<Expr> {
    let Expr::WindowFunction(call) = &mut expr else { return Transformed::no(expr) };
    let frame = &call.params.window_frame;
    let is_range = frame.units == WindowFrameUnits::Range
        && has_no_offset(&frame.start_bound)
        && has_no_offset(&frame.end_bound);
    let keys = &call.params.order_by;
    let kind = keys.first().and_then(|key| key.expr.get_type(schema).ok());
    if !is_range || !kind.is_some_and(|kind| has_no_range(&kind)) {
        return Transformed::no(expr);
    }
    call.params.window_frame =
        WindowFrame::new_bounds(WindowFrameUnits::Groups, frame.start_bound.clone(), frame.end_bound.clone());
    Transformed::yes(expr)
}

/// Whether a frame bound has no offset.
fn has_no_offset(bound: &WindowFrameBound) -> bool {
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
