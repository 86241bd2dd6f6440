//! `a[n]` and `a[m:n]` of an array, as in PostgreSQL: elements count from 1, there is none at 0 and below,
//! and of a slice what is beyond the array is left out.
//!
//! DataFusion counts from the end where a subscript is negative, and knows neither fractions nor literals in
//! quotes.
//!
//! ```text
//! a[-1]       ─►  array_element(a, 0)                       0 is no element, which is NULL
//! a[n]        ─►  array_element(a, greatest(n, 0))
//! a[1.5]      ─►  array_element(a, greatest(CAST(round(1.5) AS BIGINT), 0))
//! a[m:n]      ─►  harrier_array_slice(a, m, n)
//! ```
//! A bound that is left out is written before: crate sql, `desugar/slices.rs`.
//!
//! `ArraySubscriptPlanner` can go when arrays have no elements before the first one (PostgreSQL 8.15.3).

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
        // What has no type yet is no column of this query.
        let is_array = matches!(expr.expr.get_type(schema), Ok(DataType::List(_)));
        if !is_array {
            return Ok(PlannerResult::Original(expr));
        }
        let place = match expr.field_access {
            // From the beginning, as the planner has it.
            GetFieldAccess::ListIndex { ref key } if is_natural(key) => {
                return Ok(PlannerResult::Original(expr));
            }
            GetFieldAccess::ListIndex { key } => match number_of(&key) {
                Some(_) => lit(0_i64),
                None => greatest(vec![whole(*key, schema)?, lit(0_i64)]),
            },
            GetFieldAccess::NamedStructField { name } => {
                greatest(vec![cast(Expr::Literal(name, None), DataType::Int64), lit(0_i64)])
            }
            GetFieldAccess::ListRange { ref stride, .. } if number_of(stride) != Some(1) => {
                return Ok(PlannerResult::Original(expr));
            }
            GetFieldAccess::ListRange { start, stop, .. } => {
                let arguments = vec![expr.expr, whole(*start, schema)?, whole(*stop, schema)?];
                let slice = ScalarFunction::new_udf(array_slice::function(), arguments);
                return Ok(PlannerResult::Planned(Expr::ScalarFunction(slice)));
            }
        };
        Ok(PlannerResult::Planned(array_element(expr.expr, place)))
    }
}

/// The whole number that a literal is.
fn number_of(expr: &Expr) -> Option<i64> {
    match expr {
        Expr::Literal(ScalarValue::Int64(number), _) => *number,
        Expr::Negative(inner) => number_of(inner)?.checked_neg(),
        _ => None,
    }
}

fn is_natural(key: &Expr) -> bool {
    number_of(key).is_some_and(|number| number > 0)
}

/// A subscript as a whole number.
fn whole(key: Expr, schema: &DFSchema) -> Result<Expr> {
    let kind = key.get_type(schema)?;
    Ok(match kind {
        DataType::Int64 => key,
        kind if kind.is_floating() || kind.is_decimal() => cast(round(vec![key]), DataType::Int64),
        _ => cast(key, DataType::Int64),
    })
}
