//! Planner of array subscripts `a[n]` and slices `a[m:n]` as in PostgreSQL: elements are numbered from 1,
//! subscripts of 0 and below yield NULL, and slices are clipped to the array.
//!
//! DataFusion counts negative subscripts from the end, and accepts neither fractional numbers nor string
//! literals.
//!
//! ```text
//! a[-1]       ─►  array_element(a, 0)                       0 is no element, which is NULL
//! a[n]        ─►  array_element(a, greatest(n, 0))
//! a[1.5]      ─►  array_element(a, greatest(CAST(round(1.5) AS BIGINT), 0))
//! a[m:n]      ─►  harrier_array_slice(a, m, n)
//! ```
//! The SQL crate fills in omitted bounds: `desugar/slices.rs`.
//!
//! `ArraySubscriptPlanner` can go when negative subscripts yield NULL (PostgreSQL 8.15.3).

use datafusion::arrow::datatypes::DataType;
use datafusion::common::DFSchema;
use datafusion::common::ScalarValue;
use datafusion::error::Result;
use datafusion::functions::core::expr_fn::greatest;
use datafusion::functions::math::expr_fn::round;
use datafusion::functions_nested::expr_fn::array_element;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult, RawFieldAccessExpr};
use datafusion::logical_expr::{Expr, ExprSchemable, GetFieldAccess, cast, lit};
use harrier_functions::array_slice;

/// Plans subscripts of arrays.
#[derive(Debug)]
pub struct ArraySubscriptPlanner;

impl ExprPlanner for ArraySubscriptPlanner {
    fn plan_field_access(
        &self,
        expr: RawFieldAccessExpr,
        schema: &DFSchema,
    ) -> Result<PlannerResult<RawFieldAccessExpr>> {
        // Without a type it is not a column of this query.
        let is_array = matches!(expr.expr.get_type(schema), Ok(DataType::List(_)));
        if !is_array {
            return Ok(PlannerResult::Original(expr));
        }
        let place = match expr.field_access {
            // DataFusion's planner handles positive subscripts correctly.
            GetFieldAccess::ListIndex { ref key } if is_positive(key) => {
                return Ok(PlannerResult::Original(expr));
            }
            GetFieldAccess::ListIndex { key } => match integer_literal(&key) {
                Some(_) => lit(0_i64),
                None => greatest(vec![to_integer(*key, schema)?, lit(0_i64)]),
            },
            GetFieldAccess::NamedStructField { name } => {
                greatest(vec![cast(Expr::Literal(name, None), DataType::Int64), lit(0_i64)])
            }
            GetFieldAccess::ListRange { ref stride, .. } if integer_literal(stride) != Some(1) => {
                return Ok(PlannerResult::Original(expr));
            }
            GetFieldAccess::ListRange { start, stop, .. } => {
                let arguments = vec![expr.expr, to_integer(*start, schema)?, to_integer(*stop, schema)?];
                let slice = ScalarFunction::new_udf(array_slice::function(), arguments);
                return Ok(PlannerResult::Planned(Expr::ScalarFunction(slice)));
            }
        };
        Ok(PlannerResult::Planned(array_element(expr.expr, place)))
    }
}

/// The integer value of a literal.
fn integer_literal(expr: &Expr) -> Option<i64> {
    match expr {
        Expr::Literal(ScalarValue::Int64(number), _) => *number,
        Expr::Negative(inner) => integer_literal(inner)?.checked_neg(),
        _ => None,
    }
}

fn is_positive(key: &Expr) -> bool {
    integer_literal(key).is_some_and(|number| number > 0)
}

/// Casts a subscript to an integer.
fn to_integer(key: Expr, schema: &DFSchema) -> Result<Expr> {
    let kind = key.get_type(schema)?;
    Ok(match kind {
        DataType::Int64 => key,
        kind if kind.is_floating() || kind.is_decimal() => cast(round(vec![key]), DataType::Int64),
        _ => cast(key, DataType::Int64),
    })
}
