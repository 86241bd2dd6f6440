//! Planner of `n / -1` and `n % -1` for 4-byte integers, as in PostgreSQL: dividing the minimum overflows.
//! DataFusion types integer literals as 8 bytes.
//!
//! ```text
//! n / -1  ─►  n / CAST(-1 AS INTEGER)
//! ```
//! `IntegerNegationPlanner` can go when integer literals that fit have 4 bytes.

use datafusion::arrow::datatypes::DataType;
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::error::Result;
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult, RawBinaryExpr};
use datafusion::logical_expr::{Expr, ExprSchemable};
use datafusion::sql::sqlparser::ast::BinaryOperator;

/// Plans divisions by a literal -1.
#[derive(Debug)]
pub struct IntegerNegationPlanner;

impl ExprPlanner for IntegerNegationPlanner {
    fn plan_binary_op(
        &self,
        mut expr: RawBinaryExpr,
        schema: &DFSchema,
    ) -> Result<PlannerResult<RawBinaryExpr>> {
        let divides = matches!(expr.op, BinaryOperator::Divide | BinaryOperator::Modulo);
        if divides
            && is_minus_one(&expr.right)
            && expr.left.get_type(schema).is_ok_and(|kind| kind == DataType::Int32)
        {
            expr.right = Expr::Literal(ScalarValue::Int32(Some(-1)), None);
        }
        Ok(PlannerResult::Original(expr))
    }
}

fn is_minus_one(expr: &Expr) -> bool {
    match expr {
        Expr::Literal(ScalarValue::Int64(number), _) => *number == Some(-1),
        Expr::Negative(inner) => matches!(inner.as_ref(), Expr::Literal(ScalarValue::Int64(Some(1)), _)),
        _ => false,
    }
}
