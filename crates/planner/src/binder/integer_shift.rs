//! Planner of `n << 2` and `n >> 2` in the type of `n`, dropping bits beyond it. DataFusion shifts 64 bits if
//! either operand has 64, such as an integer literal or an expression of literals.

use datafusion::arrow::datatypes::DataType;
use datafusion::common::DFSchema;
use datafusion::error::Result;
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult, RawBinaryExpr};
use datafusion::logical_expr::{Expr, ExprSchemable, Operator, binary_expr, cast, lit};
use datafusion::sql::sqlparser::ast::BinaryOperator;

use crate::binder::integer_width::is_int4;

/// Plans shifts of 16- and 32-bit integers.
#[derive(Debug)]
pub(crate) struct IntegerShiftPlanner;

impl ExprPlanner for IntegerShiftPlanner {
    fn plan_binary_op(&self, expr: RawBinaryExpr, schema: &DFSchema) -> Result<PlannerResult<RawBinaryExpr>> {
        let operator = match expr.op {
            BinaryOperator::PGBitwiseShiftLeft => Operator::BitwiseShiftLeft,
            BinaryOperator::PGBitwiseShiftRight => Operator::BitwiseShiftRight,
            _ => return Ok(PlannerResult::Original(expr)),
        };
        let (Ok(left), Ok(right)) = (expr.left.get_type(schema), expr.right.get_type(schema)) else {
            return Ok(PlannerResult::Original(expr));
        };
        if !right.is_integer() {
            return Ok(PlannerResult::Original(expr));
        }
        let is_short = left == DataType::Int16;
        if !is_short && !is_int4(&expr.left, schema) {
            return Ok(PlannerResult::Original(expr));
        }
        let shifted =
            binary_expr(cast(expr.left, DataType::Int32), operator, cast(expr.right, DataType::Int32));
        Ok(PlannerResult::Planned(match is_short {
            true => cast(lower_half(shifted), DataType::Int16),
            false => shifted,
        }))
    }
}

/// Sign-extends the lower 16 of 32 bits.
fn lower_half(number: Expr) -> Expr {
    let half = || lit(16_i32);
    let upper = binary_expr(number, Operator::BitwiseShiftLeft, half());
    binary_expr(upper, Operator::BitwiseShiftRight, half())
}
