//! Formats boolean arguments of `concat`, `concat_ws` and `format` as `t` and `f`, the output format of
//! PostgreSQL. A cast to text yields `true` and `false`.
//!
//! ```text
//! concat(a, flag)  ─►  concat(a, CASE flag WHEN true THEN 't' WHEN false THEN 'f' END)
//! ```
//! The same for concat_ws and format. An explicit cast of flag to text stays: it yields true and false.
//!
//! `BooleanTextCasts` can go when concat and format use the output format of booleans, or never: a cast uses
//! another one.

use datafusion::arrow::datatypes::DataType;
use datafusion::common::DFSchema;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::error::Result;
use datafusion::logical_expr::expr::Case;
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan, lit};
use datafusion::optimizer::AnalyzerRule;

use crate::rewrite::{input_schema, rewrite_expressions};

/// The analyzer rule; runs before type coercion, which adds casts.
#[derive(Debug)]
pub struct BooleanTextCasts;

impl AnalyzerRule for BooleanTextCasts {
    fn name(&self) -> &str {
        "boolean_text_casts"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        let changed = plan.transform_up_with_subqueries(|plan| {
            let schema = input_schema(&plan)?;
            rewrite_expressions(plan, |expr| Ok(format_arguments(expr, &schema)))
        })?;
        Ok(changed.data)
    }
}

fn format_arguments(mut expr: Expr, schema: &DFSchema) -> Transformed<Expr> {
    let Expr::ScalarFunction(call) = &mut expr else { return Transformed::no(expr) };
    if !matches!(call.func.name(), "concat" | "concat_ws" | "format") {
        return Transformed::no(expr);
    }
    let mut is_changed = false;
    for argument in &mut call.args {
        if argument.get_type(schema).is_ok_and(|kind| kind == DataType::Boolean) {
            *argument = output_text(std::mem::take(argument));
            is_changed = true;
        }
    }
    Transformed::new_transformed(expr, is_changed)
}

fn output_text(boolean: Expr) -> Expr {
    let whens = [(true, "t"), (false, "f")];
    let whens = whens.map(|(value, text)| (Box::new(lit(value)), Box::new(lit(text)))).to_vec();
    Expr::Case(Case::new(Some(Box::new(boolean)), whens, None))
}
