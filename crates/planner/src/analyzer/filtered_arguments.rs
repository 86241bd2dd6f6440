//! Evaluates arguments and ORDER BY keys of calls with FILTER only for the rows that pass the filter.
//!
//! DataFusion evaluates them for all rows, and ignores the values of filtered rows. So `sum(1 / b) FILTER
//! (WHERE b <> 0)` failed (22012). This is an analyzer rule, because the optimizer extracts common arguments
//! of several calls into columns.
//!
//! ```text
//! sum(1 / b) FILTER (WHERE b != 0)  ─►  sum(CASE WHEN b != 0 THEN 1 / b END) FILTER (WHERE b != 0)
//! ```
//! `FilteredArguments` can go when calls with FILTER evaluate their arguments only for the rows that pass
//! (apache/datafusion#8927, open, covers AND and OR).

use datafusion::common::DFSchema;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::error::Result;
use datafusion::logical_expr::expr::{Case, Sort};
use datafusion::logical_expr::{Expr, LogicalPlan};
use datafusion::optimizer::AnalyzerRule;

use crate::fallible::may_fail;
use crate::rewrite::{input_schema, rewrite_expressions};

/// The analyzer rule; runs after type coercion.
#[derive(Debug)]
pub struct FilteredArguments;

impl AnalyzerRule for FilteredArguments {
    fn name(&self) -> &str {
        "filtered_arguments"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        Ok(plan.transform_up_with_subqueries(guard_node)?.data)
    }
}

fn guard_node(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    if !matches!(plan, LogicalPlan::Aggregate(_) | LogicalPlan::Window(_)) {
        return Ok(Transformed::no(plan));
    }
    let schema = input_schema(&plan)?;
    rewrite_expressions(plan, |expr| match expr {
        Expr::AggregateFunction(mut call) => {
            let params = &mut call.params;
            let (filter, order_by) = (params.filter.as_deref(), &mut params.order_by);
            let is_changed = guard_arguments(&mut params.args, order_by, filter, &schema)?;
            Ok(Transformed::new_transformed(Expr::AggregateFunction(call), is_changed))
        }
        // A window sorts all of its rows.
        Expr::WindowFunction(mut call) => {
            let params = &mut call.params;
            let is_changed = guard_arguments(&mut params.args, &mut [], params.filter.as_deref(), &schema)?;
            Ok(Transformed::new_transformed(Expr::WindowFunction(call), is_changed))
        }
        other => Ok(Transformed::no(other)),
    })
}

fn guard_arguments(
    arguments: &mut [Expr],
    order_by: &mut [Sort],
    filter: Option<&Expr>,
    schema: &DFSchema,
) -> Result<bool> {
    let Some(filter) = filter.filter(|filter| !filter.is_volatile()) else { return Ok(false) };
    let mut is_changed = false;
    for value in arguments.iter_mut().chain(order_by.iter_mut().map(|key| &mut key.expr)) {
        // Some arguments must be constants.
        if value.any_column_refs() && !value.is_volatile() && may_fail(value, schema)? {
            let then = (Box::new(filter.clone()), Box::new(std::mem::take(value)));
            *value = Expr::Case(Case::new(None, vec![then], None));
            is_changed = true;
        }
    }
    Ok(is_changed)
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::datatypes::{DataType, Field, Schema};
    use datafusion::functions_aggregate::expr_fn::sum;
    use datafusion::logical_expr::{ExprFunctionExt, LogicalPlanBuilder, col, lit, table_scan};

    use super::*;

    #[test]
    fn filtered_aggregate_arguments_are_guarded() {
        let schema = Schema::new(vec![Field::new("b", DataType::Int64, true)]);
        let scan =
            || LogicalPlanBuilder::from(table_scan(Some("t"), &schema, None).unwrap().build().unwrap());
        let analyzed = |argument: Expr| {
            let call = sum(argument).filter(col("b").not_eq(lit(0_i64))).build().unwrap();
            let plan = scan().aggregate(Vec::<Expr>::new(), vec![call]).unwrap().build().unwrap();
            FilteredArguments.analyze(plan, &ConfigOptions::default()).unwrap().to_string()
        };
        let guarded = analyzed(lit(1_i64) / col("b"));
        assert!(guarded.contains("sum(CASE WHEN t.b != Int64(0) THEN Int64(1) / t.b END) FILTER (WHERE"));
        assert!(!analyzed(col("b")).contains("CASE"));
        assert!(!analyzed(lit(1_i64) / lit(0_i64)).contains("CASE"));
    }
}
