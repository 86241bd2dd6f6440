//! Planner of decimal division, and of decimal multiplication with many digits, as functions that round
//! ([`harrier_functions::math::quotient`]).

use datafusion::arrow::datatypes::DataType;
use datafusion::common::DFSchema;
use datafusion::common::tree_node::Transformed;
use datafusion::error::Result;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult, RawBinaryExpr};
use datafusion::logical_expr::{BinaryExpr, Expr, ExprSchemable, Operator, cast};
use datafusion::sql::sqlparser::ast::BinaryOperator;
use harrier_functions::math::quotient::Computation;

/// Plans `decimal / decimal` and `decimal * decimal`, either of which may be an integer.
///
/// It is an expression planner and not a rule, because the types of enclosing expressions depend on it. When
/// column types change later, the rule that changes them plans these expressions again.
#[derive(Debug)]
pub struct DecimalDivisionPlanner;

impl ExprPlanner for DecimalDivisionPlanner {
    fn plan_binary_op(&self, expr: RawBinaryExpr, schema: &DFSchema) -> Result<PlannerResult<RawBinaryExpr>> {
        let computation = match expr.op {
            BinaryOperator::Multiply => Computation::Product,
            BinaryOperator::Divide => Computation::Quotient,
            _ => return Ok(PlannerResult::Original(expr)),
        };
        let RawBinaryExpr { op, left, right } = expr;
        Ok(match rounding_call(computation, left, right, schema) {
            Ok(computed) => PlannerResult::Planned(computed),
            Err(operands) => {
                let (left, right) = *operands;
                PlannerResult::Original(RawBinaryExpr { op, left, right })
            }
        })
    }
}

/// Plans an existing expression again after the types of its columns have changed.
pub(crate) fn replan_decimal(expr: Expr, schema: &DFSchema) -> Transformed<Expr> {
    let Expr::BinaryExpr(BinaryExpr { left, op, right }) = expr else { return Transformed::no(expr) };
    let computation = match op {
        Operator::Multiply => Computation::Product,
        Operator::Divide => Computation::Quotient,
        _ => return Transformed::no(Expr::BinaryExpr(BinaryExpr { left, op, right })),
    };
    match rounding_call(computation, *left, *right, schema) {
        Ok(computed) => Transformed::yes(computed),
        Err(operands) => {
            let (left, right) = (Box::new(operands.0), Box::new(operands.1));
            Transformed::no(Expr::BinaryExpr(BinaryExpr { left, op, right }))
        }
    }
}

/// The function that replaces an operator; both operands if they are not decimals, or no result type fits.
pub(super) fn rounding_call(
    computation: Computation,
    left: Expr,
    right: Expr,
    schema: &DFSchema,
) -> std::result::Result<Expr, Box<(Expr, Expr)>> {
    let (Ok(one), Ok(other)) = (left.get_type(schema), right.get_type(schema)) else {
        return Err(Box::new((left, right)));
    };
    let (Some(first), Some(second)) = (decimal(&one), decimal(&other)) else {
        return Err(Box::new((left, right)));
    };
    let is_decimal = one.is_decimal() || other.is_decimal();
    if !is_decimal || computation.kind(&first, &second).is_none() {
        return Err(Box::new((left, right)));
    }
    let argument = |expr: Expr, kind: &DataType, decimal: DataType| match *kind == decimal {
        true => expr,
        false => cast(expr, decimal),
    };
    let arguments = vec![argument(left, &one, first), argument(right, &other, second)];
    Ok(Expr::ScalarFunction(ScalarFunction::new_udf(computation.function(), arguments)))
}

/// A decimal type itself, or the decimal type that holds all values of an integer type.
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
