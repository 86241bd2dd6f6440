//! Casts string literals that are compared with intervals to intervals: `i > '02:00:00'`.
//!
//! ```text
//! i > '02:00:00', i an interval  ─►  i > CAST('02:00:00' AS Interval(MonthDayNano))
//! ```
//!
//! `IntervalComparisons` can go when DataFusion coerces a literal compared with an interval to an interval,
//! instead of both to text; related: apache/datafusion#5652, apache/datafusion#5117.

use datafusion::arrow::datatypes::{DataType, IntervalUnit};
use datafusion::common::DFSchema;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::error::Result;
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan, cast};
use datafusion::optimizer::AnalyzerRule;

use crate::rewrite::{input_schema, map_comparison_sides, rewrite_expressions};

const INTERVAL: DataType = DataType::Interval(IntervalUnit::MonthDayNano);

/// The analyzer rule; runs before type coercion.
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

/// Casts string literals next to an interval to intervals; returns whether there were any.
fn level(sides: &mut [&mut Expr], schema: &DFSchema) -> bool {
    let kinds: Vec<Option<DataType>> = sides.iter().map(|side| side.get_type(schema).ok()).collect();
    if !kinds.contains(&Some(INTERVAL)) {
        return false;
    }
    let mut is_changed = false;
    for (side, kind) in sides.iter_mut().zip(kinds) {
        // As in PostgreSQL, only literals are cast.
        if matches!(**side, Expr::Literal(..)) && kind.is_some_and(|kind| kind.is_string()) {
            **side = cast(std::mem::take(*side), INTERVAL);
            is_changed = true;
        }
    }
    is_changed
}
