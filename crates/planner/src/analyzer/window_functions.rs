//! Encodes FILTER, IGNORE NULLS and other options of window functions in the function itself, so that they
//! survive plan serialization to ranks.
//!
//! It also prevents reversal: windows of opposite orders are sorted separately, and `lag` over one is not
//! computed as `lead` over the other.
//!
//! ```text
//! sum(x) FILTER (WHERE p) OVER w  ─►  sum_filtered(x, p) OVER w
//! lag(x) IGNORE NULLS OVER w      ─►  lag_ignoring_nulls(x) OVER w
//! lag(x) OVER w, sum(x) OVER w    ─►  the same, which cannot be reversed
//! lag(x, n) OVER w, n a column    ─►  lag_by_rows(x, n) OVER w
//! lag(x, NULL) OVER w             ─►  lag(NULL) OVER w
//! ```
//!
//! `WindowFunctions` can go when PhysicalWindowExprNode has filter and reversal (apache/datafusion#17417
//! covers logical plans, apache/datafusion#17235 IGNORE NULLS and DISTINCT); related:
//! apache/datafusion#25471, apache/datafusion#18024.

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::error::Result;
use datafusion::logical_expr::expr::{Cast, NullTreatment};
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan, WindowFunctionDefinition, cast, lit};
use datafusion::optimizer::AnalyzerRule;
use harrier_error::{SqlError, SqlState};
use harrier_functions::window::{option_wrappers, row_offset};
use harrier_sqlstate::IntoDataFusionError;

use crate::rewrite::{input_schema, rewrite_expressions};

/// Replaces window functions by those of [`window_functions`]; runs after all rules that add aggregates.
#[derive(Debug)]
pub struct WindowFunctions;

impl AnalyzerRule for WindowFunctions {
    fn name(&self) -> &str {
        "window_functions"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        let rewrite_node = |plan: LogicalPlan| {
            let schema = input_schema(&plan)?;
            rewrite_expressions(plan, |expr| {
                Ok(encode_options(row_dependent_offset(rewrite_null_offset(expr, &schema)?, &schema)?))
            })
        };
        Ok(plan.transform_up_with_subqueries(rewrite_node)?.data)
    }
}

/// `lag` and `lead` with a NULL offset return NULL, even with a default; DataFusion uses an offset of 1.
fn rewrite_null_offset(mut expr: Expr, schema: &DFSchema) -> Result<Expr> {
    if let Expr::WindowFunction(call) = &mut expr
        && matches!(call.fun.name(), "lag" | "lead")
        && let [value, offset, ..] = call.params.args.as_slice()
        && matches!(strip_casts(offset), Expr::Literal(offset, _) if offset.is_null())
    {
        let null = ScalarValue::try_new_null(&value.get_type(schema)?)?;
        call.params.args = vec![lit(null)];
    }
    Ok(expr)
}

/// Replaces calls whose offset or default depends on the row, or whose offset is not a number, by functions
/// that support this.
///
/// Errors: with IGNORE NULLS (0A000).
fn row_dependent_offset(mut expr: Expr, schema: &DFSchema) -> Result<Expr> {
    let Expr::WindowFunction(call) = &mut expr else { return Ok(expr) };
    let further = match (call.fun.name(), call.params.args.as_slice()) {
        ("lag" | "lead" | "nth_value", [_, further @ ..]) | ("ntile", further) => further,
        _ => return Ok(expr),
    };
    let is_number = |value: &Expr| matches!(strip_casts(value), Expr::Literal(value, _) if !value.is_null());
    let is_default = |value: &Expr| matches!(strip_casts(value), Expr::Literal(..));
    let are_literals = match further {
        [number, default @ ..] => {
            (is_number(number) || matches!(number, Expr::Negative(inner) if is_number(inner)))
                && default.iter().all(is_default)
        }
        [] => true,
    };
    if are_literals {
        return Ok(expr);
    }
    let Some(function) = row_offset::in_place_of(call.fun.name()) else { return Ok(expr) };
    if call.params.null_treatment == Some(NullTreatment::IgnoreNulls) {
        let message = format!("{} with IGNORE NULLS takes constants", call.fun.name());
        return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message).into_datafusion());
    }
    if let [value, _, default] = call.params.args.as_mut_slice() {
        let kind = value.get_type(schema)?;
        if default.get_type(schema)? != kind {
            *default = cast(std::mem::take(default), kind);
        }
    }
    call.params.null_treatment = None;
    call.fun = WindowFunctionDefinition::WindowUDF(function);
    Ok(expr)
}

fn strip_casts(mut expr: &Expr) -> &Expr {
    while let Expr::Cast(Cast { expr: inner, .. }) = expr {
        expr = inner;
    }
    expr
}

fn encode_options(expr: Expr) -> Transformed<Expr> {
    let Expr::WindowFunction(mut call) = expr else { return Transformed::no(expr) };
    let params = &mut call.params;
    let is_changed = match &call.fun {
        WindowFunctionDefinition::AggregateUDF(aggregate) => match params.filter.take() {
            Some(filter) => {
                params.args.push(*filter);
                call.fun = WindowFunctionDefinition::AggregateUDF(option_wrappers::with_filter(aggregate));
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
