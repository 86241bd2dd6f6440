//! Planner of `a && b` (array overlap) as `array_has_any`.
//!
//! ```text
//! a && b        ─►  array_has_any(a, b)
//! a && '{1,2}'  ─►  array_has_any(a, CAST('{1,2}' AS List))
//! ```
//! At least one side has to be an array; other operands of && are left to the default planner.
//!
//! `ArrayOverlapPlanner` can go when DataFusion's array planner plans && (array_has_any).

use datafusion::arrow::datatypes::DataType;
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::error::Result;
use datafusion::functions_nested::expr_fn::array_has_any;
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult, RawBinaryExpr};
use datafusion::logical_expr::{Expr, ExprSchemable, cast};
use datafusion::sql::sqlparser::ast::BinaryOperator;

/// Plans `&&` where one side is an array; a string literal on the other side is cast to its type.
#[derive(Debug)]
pub struct ArrayOverlapPlanner;

impl ExprPlanner for ArrayOverlapPlanner {
    fn plan_binary_op(
        &self,
        mut expr: RawBinaryExpr,
        schema: &DFSchema,
    ) -> Result<PlannerResult<RawBinaryExpr>> {
        if expr.op != BinaryOperator::PGOverlap {
            return Ok(PlannerResult::Original(expr));
        }
        let is_list = |kind: &DataType| matches!(kind, DataType::List(_) | DataType::LargeList(_));
        let (left, right) = (expr.left.get_type(schema)?, expr.right.get_type(schema)?);
        if !is_list(&left) && !is_list(&right) {
            return Ok(PlannerResult::Original(expr));
        }
        let coerce_literal = |side: &mut Expr, other: &DataType| {
            let is_open = matches!(
                side,
                Expr::Literal(ScalarValue::Utf8(_) | ScalarValue::Utf8View(_) | ScalarValue::Null, _)
            );
            if is_open && is_list(other) {
                *side = cast(std::mem::take(side), other.clone());
            }
        };
        coerce_literal(&mut expr.left, &right);
        coerce_literal(&mut expr.right, &left);
        Ok(PlannerResult::Planned(array_has_any(expr.left, expr.right)))
    }
}
