//! Planner of interval arithmetic: interval times or divided by number, date plus interval (a timestamp), and
//! differences of dates (an integer) and of timestamps. DataFusion types the latter as durations; they are
//! cast to intervals next to a number, a date, or a string that is compared with them.

use datafusion::arrow::datatypes::{DataType, IntervalUnit, TimeUnit};
use datafusion::common::DFSchema;
use datafusion::error::Result;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult, RawBinaryExpr};
use datafusion::logical_expr::{Expr, ExprSchemable, Operator, binary_expr, cast};
use datafusion::sql::sqlparser::ast::BinaryOperator;
use harrier_functions::math::checked::Operation;

const INTERVAL: DataType = DataType::Interval(IntervalUnit::MonthDayNano);

/// Plans `interval * number`, `number * interval` and `interval / number`, which DataFusion has no operators
/// for.
#[derive(Debug)]
pub struct IntervalArithmeticPlanner;

impl ExprPlanner for IntervalArithmeticPlanner {
    fn plan_binary_op(
        &self,
        mut expr: RawBinaryExpr,
        schema: &DFSchema,
    ) -> Result<PlannerResult<RawBinaryExpr>> {
        let is_date = |expr: &Expr| expr.get_type(schema).is_ok_and(|kind| kind == DataType::Date32);
        if expr.op == BinaryOperator::Minus && is_date(&expr.left) && is_date(&expr.right) {
            // DataFusion's is a 64-bit integer.
            let days = binary_expr(expr.left, Operator::Minus, expr.right);
            return Ok(PlannerResult::Planned(cast(days, DataType::Int32)));
        }
        to_interval(&mut expr, schema);
        let operation = match expr.op {
            BinaryOperator::Multiply => Operation::ScaleInterval,
            BinaryOperator::Divide => Operation::DivideInterval,
            _ => return Ok(PlannerResult::Original(expr)),
        };
        let (Ok(left), Ok(right)) = (expr.left.get_type(schema), expr.right.get_type(schema)) else {
            return Ok(PlannerResult::Original(expr));
        };
        let is_interval = |kind: &DataType| *kind == INTERVAL;
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

/// Casts a duration to an interval where the other operand does not support durations. Also casts a string
/// literal that is compared with either to an interval, and a date that either is added to or subtracted from
/// to a timestamp.
fn to_interval(expr: &mut RawBinaryExpr, schema: &DFSchema) {
    let (Ok(left), Ok(right)) = (expr.left.get_type(schema), expr.right.get_type(schema)) else { return };
    let is_time = |kind: &DataType| *kind == INTERVAL || matches!(kind, DataType::Duration(_));
    let (time, other, kind) = match (is_time(&left), is_time(&right)) {
        (true, false) => (&mut expr.left, &mut expr.right, right),
        (false, true) => (&mut expr.right, &mut expr.left, left),
        _ => return,
    };
    let is_beside = match expr.op {
        BinaryOperator::Multiply | BinaryOperator::Divide => kind.is_numeric(),
        BinaryOperator::Plus | BinaryOperator::Minus => kind == DataType::Date32,
        BinaryOperator::Eq
        | BinaryOperator::NotEq
        | BinaryOperator::Lt
        | BinaryOperator::LtEq
        | BinaryOperator::Gt
        | BinaryOperator::GtEq => matches!(other, Expr::Literal(..)) && kind.is_string(),
        _ => false,
    };
    if !is_beside {
        return;
    }
    if time.get_type(schema).is_ok_and(|kind| kind != INTERVAL) {
        *time = cast(std::mem::take(time), INTERVAL);
    }
    if kind.is_string() {
        *other = cast(std::mem::take(other), INTERVAL);
    }
    if kind == DataType::Date32 {
        *other = cast(std::mem::take(other), DataType::Timestamp(TimeUnit::Microsecond, None));
    }
}
