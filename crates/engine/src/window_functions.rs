//! Window functions with FILTER or IGNORE NULLS, or that the planner would reverse, in the form in which
//! ranks get them whole.
//!
//! Windows of opposite orders are sorted each: `lag` over one of them is not computed as `lead` over the
//! other.

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::error::Result;
use datafusion::logical_expr::expr::{Cast, NullTreatment};
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan, WindowFunctionDefinition, lit};
use datafusion::optimizer::AnalyzerRule;
use harrier_functions::window::option_wrappers;

use crate::rewriting::{rewritten, schema_below};

/// Puts [`window_functions`] in the place of DataFusion's; to stand behind all rules that bring other
/// aggregates in.
#[derive(Debug)]
pub(crate) struct WindowFunctions;

impl AnalyzerRule for WindowFunctions {
    fn name(&self) -> &str {
        "window_functions"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        let whole = |plan: LogicalPlan| {
            let schema = schema_below(&plan)?;
            rewritten(plan, |expr| Ok(whole(without_null_offset(expr, &schema)?)))
        };
        Ok(plan.transform_up_with_subqueries(whole)?.data)
    }
}

/// `lag` and `lead` by NULL rows are NULL, defaults or not; DataFusion takes them for 1.
fn without_null_offset(mut expr: Expr, schema: &DFSchema) -> Result<Expr> {
    if let Expr::WindowFunction(call) = &mut expr
        && matches!(call.fun.name(), "lag" | "lead")
        && let [value, offset, ..] = call.params.args.as_slice()
        && matches!(without_casts(offset), Expr::Literal(offset, _) if offset.is_null())
    {
        let null = ScalarValue::try_new_null(&value.get_type(schema)?)?;
        call.params.args = vec![lit(null)];
    }
    Ok(expr)
}

fn without_casts(mut expr: &Expr) -> &Expr {
    while let Expr::Cast(Cast { expr: inner, .. }) = expr {
        expr = inner;
    }
    expr
}

fn whole(expr: Expr) -> Transformed<Expr> {
    let Expr::WindowFunction(mut call) = expr else { return Transformed::no(expr) };
    let params = &mut call.params;
    let is_changed = match &call.fun {
        WindowFunctionDefinition::AggregateUDF(aggregate) => match params.filter.take() {
            Some(filter) => {
                params.args.push(*filter);
                call.fun = WindowFunctionDefinition::AggregateUDF(option_wrappers::filtered(aggregate));
                true
            }
            None => match option_wrappers::in_place_of_aggregate(aggregate) {
                Some(aggregate) => {
                    call.fun = WindowFunctionDefinition::AggregateUDF(aggregate);
                    true
                }
                None => false,
            },
        },
        WindowFunctionDefinition::WindowUDF(function) => {
            let ignores_nulls = params.null_treatment == Some(NullTreatment::IgnoreNulls);
            match option_wrappers::in_place_of(function, ignores_nulls) {
                Some(function) => {
                    params.null_treatment = None;
                    call.fun = WindowFunctionDefinition::WindowUDF(function);
                    true
                }
                None => false,
            }
        }
    };
    match is_changed {
        true => Transformed::yes(Expr::WindowFunction(call)),
        false => Transformed::no(Expr::WindowFunction(call)),
    }
}
