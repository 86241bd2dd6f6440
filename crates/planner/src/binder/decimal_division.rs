//! Divisions of decimals, and products that have many digits, planned as functions that round
//! ([`harrier_functions::math::quotient`]).

use datafusion::arrow::datatypes::DataType;
use datafusion::common::DFSchema;
use datafusion::error::Result;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult, RawBinaryExpr};
use datafusion::logical_expr::{Expr, ExprSchemable, cast};
use datafusion::sql::sqlparser::ast::BinaryOperator;
use harrier_functions::math::quotient::Computation;

/// Plans `decimal / decimal` and `decimal * decimal`, either of which may be an integer.
///
/// It is a part of the planning of expressions, and no rule, because what stands above them depends on their
/// types.
#[derive(Debug)]
pub struct DecimalDivisionPlanner;

impl ExprPlanner for DecimalDivisionPlanner {
    fn plan_binary_op(&self, expr: RawBinaryExpr, schema: &DFSchema) -> Result<PlannerResult<RawBinaryExpr>> {
        let computation = match expr.op {
            BinaryOperator::Multiply => Computation::Product,
            BinaryOperator::Divide => Computation::Quotient,
            _ => return Ok(PlannerResult::Original(expr)),
        };
        let (Ok(left), Ok(right)) = (expr.left.get_type(schema), expr.right.get_type(schema)) else {
            return Ok(PlannerResult::Original(expr));
        };
        let decimals = match (decimal(&left), decimal(&right)) {
            (Some(decimal), Some(other)) if left.is_decimal() || right.is_decimal() => (decimal, other),
            _ => return Ok(PlannerResult::Original(expr)),
        };
        if computation.kind(&decimals.0, &decimals.1).is_none() {
            return Ok(PlannerResult::Original(expr));
        }
        let argument = |expr: Expr, kind: &DataType, decimal: DataType| match *kind == decimal {
            true => expr,
            false => cast(expr, decimal),
        };
        let arguments =
            vec![argument(expr.left, &left, decimals.0), argument(expr.right, &right, decimals.1)];
        let computed = ScalarFunction::new_udf(computation.function(), arguments);
        Ok(PlannerResult::Planned(Expr::ScalarFunction(computed)))
    }
}

/// A number's type, or the decimal that holds all integers of a type.
fn decimal(kind: &DataType) -> Option<DataType> {
    let digits = match kind {
        kind if kind.is_decimal() => return Some(kind.clone()),
        DataType::Int8 | DataType::UInt8 => 3,
        DataType::Int16 | DataType::UInt16 => 5,
        DataType::Int32 | DataType::UInt32 => 10,
        DataType::Int64 | DataType::UInt64 => 20,
        _ => return None,
    };
    Some(DataType::Decimal128(digits, 0))
}
