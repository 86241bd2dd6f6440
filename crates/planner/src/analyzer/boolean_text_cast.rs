//! Booleans among the arguments of `concat`, `concat_ws` and `format`, which write `t` and `f`, as results of
//! a client are written. A cast to text writes `true` and `false`.
//!
//! ```text
//! concat(a, flag)  ─►  concat(a, CASE flag WHEN true THEN 't' WHEN false THEN 'f' END)
//! ```
//! The same in concat_ws and format. A cast of flag to text stays: it writes true and false.
//!
//! `BooleanTextCasts` can go when concat and format write the output form of a boolean, or never: a cast
//! writes another one.

use datafusion::arrow::datatypes::DataType;
use datafusion::common::DFSchema;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::error::Result;
use datafusion::logical_expr::expr::Case;
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan, lit};
use datafusion::optimizer::AnalyzerRule;

use crate::rewrite::{input_schema, rewrite_expressions};

/// The rule; to stand in front of the coercion of types, which adds casts.
#[derive(Debug)]
pub struct BooleanTextCasts;

impl AnalyzerRule for BooleanTextCasts {
    fn name(&self) -> &str {
        "boolean_text_casts"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        let changed = plan.transform_up_with_subqueries(|plan| {
            let schema = input_schema(&plan)?;
            rewrite_expressions(plan, |expr| Ok(written(expr, &schema)))
        })?;
        Ok(changed.data)
    }
}

fn written(mut expr: Expr, schema: &DFSchema) -> Transformed<Expr> {
    let Expr::ScalarFunction(call) = &mut expr else { return Transformed::no(expr) };
    if !matches!(call.func.name(), "concat" | "concat_ws" | "format") {
        return Transformed::no(expr);
    }
    let mut is_changed = false;
    for argument in &mut call.args {
        if argument.get_type(schema).is_ok_and(|kind| kind == DataType::Boolean) {
            *argument = text_of(std::mem::take(argument));
            is_changed = true;
        }
    }
    Transformed::new_transformed(expr, is_changed)
}

fn text_of(boolean: Expr) -> Expr {
    let whens = [(true, "t"), (false, "f")];
    let whens = whens.map(|(value, text)| (Box::new(lit(value)), Box::new(lit(text)))).to_vec();
    Expr::Case(Case::new(Some(Box::new(boolean)), whens, None))
}
