//! Converts timestamp differences, which are durations in DataFusion, to intervals of days and time as in
//! PostgreSQL, where they are cast to an interval or a text. Also plans EXTRACT with Harrier's function.
//!
//! ```text
//! CAST(t2 - t1 AS Interval)  ─►  harrier_day_time(t2 - t1)                 TimestampDifferences
//! CAST(t2 - t1 AS Utf8)      ─►  CAST(harrier_day_time(t2 - t1) AS Utf8)
//! make_array(t2 - t1)        ─►  make_array(harrier_day_time(t2 - t1))
//! EXTRACT(hour FROM t)       ─►  harrier_extract('HOUR', t)                ExtractPlanner
//! ```
//!
//! `TimestampDifferences` can go when timestamp - timestamp is an interval (apache/datafusion#7068:
//! DataFusion returns a duration on purpose).
//!
//! `ExtractPlanner` can go when DataFusion's date_part and EXTRACT return numeric and support all fields.

use datafusion::arrow::datatypes::{DataType, IntervalUnit};
use datafusion::common::DFSchema;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::error::Result;
use datafusion::logical_expr::expr::{Cast, ScalarFunction};
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult};
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan};
use datafusion::optimizer::AnalyzerRule;
use harrier_functions::datetime::{date_part, duration};

use crate::rewrite::{input_schema, rewrite_expressions};

/// The analyzer rule; runs after type coercion, which adds casts.
#[derive(Debug)]
pub struct TimestampDifferences;

impl AnalyzerRule for TimestampDifferences {
    fn name(&self) -> &str {
        "timestamp_differences"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        let changed = plan.transform_up_with_subqueries(|plan| {
            let schema = input_schema(&plan)?;
            rewrite_expressions(plan, |expr| Ok(rewrite_expr(expr, &schema)))
        })?;
        Ok(changed.data)
    }
}

/// Plans EXTRACT; runs before DataFusion's planner.
#[derive(Debug)]
pub struct ExtractPlanner;

impl ExprPlanner for ExtractPlanner {
    fn plan_extract(&self, arguments: Vec<Expr>) -> Result<PlannerResult<Vec<Expr>>> {
        Ok(PlannerResult::Planned(date_part::extract().call(arguments)))
    }
}

fn rewrite_expr(expr: Expr, schema: &DFSchema) -> Transformed<Expr> {
    const INTERVAL: DataType = DataType::Interval(IntervalUnit::MonthDayNano);
    let is_duration = |expr: &Expr| matches!(expr.get_type(schema), Ok(DataType::Duration(_)));
    match expr {
        Expr::Cast(Cast { expr, field }) if *field.data_type() == INTERVAL && is_duration(&expr) => {
            Transformed::yes(to_interval(*expr))
        }
        Expr::Cast(Cast { expr, field }) if field.data_type().is_string() && is_duration(&expr) => {
            Transformed::yes(Expr::Cast(Cast { expr: Box::new(to_interval(*expr)), field }))
        }
        // Consumers of array elements and struct fields do not support durations.
        Expr::ScalarFunction(mut call)
            if matches!(call.func.name(), "make_array" | "named_struct")
                && call.args.iter().any(is_duration) =>
        {
            let elements = call.args.into_iter().map(|element| match is_duration(&element) {
                true => to_interval(element),
                false => element,
            });
            call.args = elements.collect();
            Transformed::yes(Expr::ScalarFunction(call))
        }
        other => Transformed::no(other),
    }
}

fn to_interval(duration: Expr) -> Expr {
    Expr::ScalarFunction(ScalarFunction::new_udf(duration::function(), vec![duration]))
}
