//! Intervals times numbers, and divided by them.

use datafusion::arrow::datatypes::{DataType, IntervalUnit};
use datafusion::common::DFSchema;
use datafusion::error::Result;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult, RawBinaryExpr};
use datafusion::logical_expr::{Expr, ExprSchemable, cast};
use datafusion::sql::sqlparser::ast::BinaryOperator;
use harrier_functions::math::checked::Operation;

/// Plans `interval * number`, `number * interval` and `interval / number`, for which there is no operator.
#[derive(Debug)]
pub(crate) struct ScaledIntervals;

impl ExprPlanner for ScaledIntervals {
    fn plan_binary_op(&self, expr: RawBinaryExpr, schema: &DFSchema) -> Result<PlannerResult<RawBinaryExpr>> {
        let operation = match expr.op {
            BinaryOperator::Multiply => Operation::ScaleInterval,
            BinaryOperator::Divide => Operation::DivideInterval,
            _ => return Ok(PlannerResult::Original(expr)),
        };
        let (Ok(left), Ok(right)) = (expr.left.get_type(schema), expr.right.get_type(schema)) else {
            return Ok(PlannerResult::Original(expr));
        };
        let is_interval = |kind: &DataType| *kind == DataType::Interval(IntervalUnit::MonthDayNano);
        let (interval, number) = match operation {
            _ if is_interval(&left) && right.is_numeric() => (expr.left, expr.right),
            Operation::ScaleInterval if left.is_numeric() && is_interval(&right) => (expr.right, expr.left),
            _ => return Ok(PlannerResult::Original(expr)),
        };
        let arguments = vec![interval, cast(number, DataType::Float64)];
        let scaled = ScalarFunction::new_udf(operation.function(), arguments);
        Ok(PlannerResult::Planned(Expr::ScalarFunction(scaled)))
    }
}
