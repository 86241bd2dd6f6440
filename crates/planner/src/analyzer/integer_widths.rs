//! Types integer literals that fit, and expressions of these, as 32-bit where the bits or the type name are
//! visible. DataFusion types all as 64-bit.
//!
//! ```text
//! to_hex(1 - 2)     ─►  to_hex(CAST(1 - 2 AS Int32))
//! pg_typeof(1 + 1)  ─►  'integer'
//! ```
//!
//! `IntegerWidths` can go when literals that fit are 32-bit integers; DataFusion uses 64 on purpose (related:
//! apache/datafusion#3160); PostgreSQL 4.1.2.6.

use datafusion::arrow::datatypes::DataType;
use datafusion::common::DFSchema;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::error::Result;
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan, cast, lit};
use datafusion::optimizer::AnalyzerRule;

use crate::binder::integer_width::is_int4;
use crate::rewrite::{input_schema, rewrite_expressions};

/// The analyzer rule; runs before type coercion.
#[derive(Debug)]
pub struct IntegerWidths;

impl AnalyzerRule for IntegerWidths {
    fn name(&self) -> &str {
        "integer_widths"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        let changed = plan.transform_up_with_subqueries(|plan| {
            let schema = input_schema(&plan)?;
            rewrite_expressions(plan, |mut expr| {
                let Expr::ScalarFunction(call) = &mut expr else { return Ok(Transformed::no(expr)) };
                let name = call.func.name();
                if name == "pg_typeof" && call.args.first().is_some_and(|array| is_int4_array(array, &schema))
                {
                    return Ok(Transformed::yes(lit("integer[]")));
                }
                let is_narrower = match call.args.as_slice() {
                    [number] if matches!(name, "to_hex" | "pg_typeof") => {
                        is_int4(number, &schema) && number.get_type(&schema)? == DataType::Int64
                    }
                    _ => false,
                };
                if !is_narrower {
                    return Ok(Transformed::no(expr));
                }
                if name == "pg_typeof" {
                    return Ok(Transformed::yes(lit("integer")));
                }
                let number = std::mem::take(&mut call.args[0]);
                call.args[0] = cast(number, DataType::Int32);
                Ok(Transformed::yes(expr))
            })
        })?;
        Ok(changed.data)
    }
}

/// Whether an array is written with elements that are integers of 32 bits in PostgreSQL.
fn is_int4_array(array: &Expr, schema: &DFSchema) -> bool {
    let Expr::ScalarFunction(call) = array else { return false };
    let is_null = |element: &Expr| matches!(element, Expr::Literal(value, _) if value.is_null());
    call.func.name() == "make_array"
        && call.args.iter().any(|element| is_int4(element, schema))
        && call.args.iter().all(|element| is_int4(element, schema) || is_null(element))
}
