//! Intervals that are compared with texts, which are intervals then: `i > '02:00:00'`.
//!
//! ```text
//! i > '02:00:00', i an interval  ─►  i > CAST('02:00:00' AS Interval(MonthDayNano))
//! ```
//!
//! `IntervalComparisons` can go when DataFusion coerces a literal beside an interval to an interval, and not
//! both to texts; akin: apache/datafusion#5652, apache/datafusion#5117.

use datafusion::arrow::datatypes::{DataType, IntervalUnit};
use datafusion::common::DFSchema;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::error::Result;
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan, cast};
use datafusion::optimizer::AnalyzerRule;

use crate::rewrite::{input_schema, map_comparison_sides, rewrite_expressions};

const INTERVAL: DataType = DataType::Interval(IntervalUnit::MonthDayNano);

/// The rule; to stand before the coercion of types.
#[derive(Debug)]
pub struct IntervalComparisons;

impl AnalyzerRule for IntervalComparisons {
    fn name(&self) -> &str {
        "interval_comparisons"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        let changed = plan.transform_up_with_subqueries(|plan| {
            let schema = input_schema(&plan)?;
            rewrite_expressions(plan, |mut expr| {
                let is_changed = map_comparison_sides(&mut expr, |sides| level(sides, &schema));
                Ok(if is_changed { Transformed::yes(expr) } else { Transformed::no(expr) })
            })
        })?;
        Ok(changed.data)
    }
}

/// Has the texts beside an interval be intervals; tells whether there were any.
fn level(sides: &mut [&mut Expr], schema: &DFSchema) -> bool {
    let kinds: Vec<Option<DataType>> = sides.iter().map(|side| side.get_type(schema).ok()).collect();
    if !kinds.contains(&Some(INTERVAL)) {
        return false;
    }
    let mut is_changed = false;
    for (side, kind) in sides.iter_mut().zip(kinds) {
        // As in PostgreSQL, a text that is no literal is no interval.
        if matches!(**side, Expr::Literal(..)) && kind.is_some_and(|kind| kind.is_string()) {
            **side = cast(std::mem::take(*side), INTERVAL);
            is_changed = true;
        }
    }
    is_changed
}
