//! Planner of Hive's operators ([`harrier_sql::hive::operators`]), which statements in PostgreSQL's language
//! cannot have.
//!
//! ```text
//! text + number      ─►  double + double           text = number  ─►  double = double
//! integer / integer  ─►  double / double           text = date    ─►  date = date
//! a / 0, a % 0       ─►  NULL                      a <=> b        ─►  a IS NOT DISTINCT FROM b
//! ```
//!
//! What is left has PostgreSQL's operator, and goes to the planners after this one.
//!
//! Source: `GenericUDFBaseNumeric`, `GenericUDFOPDivide`, `GenericUDFBaseCompare` of Hive 4.0.1.

use datafusion::arrow::datatypes::{DECIMAL128_MAX_PRECISION, DataType, TimeUnit};
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::error::Result;
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult, RawBinaryExpr};
use datafusion::logical_expr::{BinaryExpr, Expr, ExprSchemable, Operator, cast, lit, when};
use datafusion::sql::sqlparser::ast::BinaryOperator;
use harrier_functions::hive::to_type;
use harrier_functions::math::quotient::Computation;
use harrier_sql::hive::operators::sign_of;

use super::decimal_division::rounding_call;

/// Plans operators of Hive.
#[derive(Debug)]
pub struct HiveOperatorPlanner;

impl ExprPlanner for HiveOperatorPlanner {
    fn plan_binary_op(&self, expr: RawBinaryExpr, schema: &DFSchema) -> Result<PlannerResult<RawBinaryExpr>> {
        let Some(sign) = sign_of(&expr.op).map(str::to_string) else {
            return Ok(PlannerResult::Original(expr));
        };
        let RawBinaryExpr { left, right, .. } = expr;
        let (one, other) = (left.get_type(schema)?, right.get_type(schema)?);
        let is_arithmetic = matches!(sign.as_str(), "+" | "-" | "*" | "/" | "%" | "DIV");
        let (left, right) = match meeting(&one, &other, is_arithmetic) {
            Some(kind) => (convert(left, &one, &kind), convert(right, &other, &kind)),
            None => (left, right),
        };
        let op = match sign.as_str() {
            "+" => BinaryOperator::Plus,
            "-" => BinaryOperator::Minus,
            "*" => BinaryOperator::Multiply,
            "=" => BinaryOperator::Eq,
            "<>" => BinaryOperator::NotEq,
            "<" => BinaryOperator::Lt,
            "<=" => BinaryOperator::LtEq,
            ">" => BinaryOperator::Gt,
            ">=" => BinaryOperator::GtEq,
            "/" => return quotient(left, right, schema).map(PlannerResult::Planned),
            "DIV" => return Ok(PlannerResult::Planned(whole_quotient(left, right)?)),
            "%" => {
                let right = nonzero(right)?;
                return Ok(PlannerResult::Original(RawBinaryExpr {
                    op: BinaryOperator::Modulo,
                    left,
                    right,
                }));
            }
            _ => return Ok(PlannerResult::Planned(binary(left, Operator::IsNotDistinctFrom, right))),
        };
        Ok(PlannerResult::Original(RawBinaryExpr { op, left, right }))
    }
}

/// The type in which operands of different types meet; `None`: they do as they are.
fn meeting(one: &DataType, other: &DataType, is_arithmetic: bool) -> Option<DataType> {
    let (text, other) = match (one.is_string(), other.is_string()) {
        (true, true) if is_arithmetic => return Some(DataType::Float64),
        (true, false) => (one, other),
        (false, true) => (other, one),
        _ => return None,
    };
    debug_assert!(text.is_string(), "one of them is");
    match other {
        DataType::Date32 => Some(DataType::Date32),
        DataType::Timestamp(..) => Some(DataType::Timestamp(TimeUnit::Microsecond, None)),
        DataType::Boolean if !is_arithmetic => Some(DataType::Boolean),
        other if other.is_numeric() || other.is_null() && is_arithmetic => Some(DataType::Float64),
        _ => None,
    }
}

fn convert(expr: Expr, given: &DataType, kind: &DataType) -> Expr {
    match given {
        given if given == kind => expr,
        given if given.is_numeric() => cast(expr, kind.clone()),
        _ => to_type(expr, kind),
    }
}

fn binary(left: Expr, op: Operator, right: Expr) -> Expr {
    Expr::BinaryExpr(BinaryExpr { left: Box::new(left), op, right: Box::new(right) })
}

/// NULL in place of zero.
fn nonzero(expr: Expr) -> Result<Expr> {
    when(expr.clone().not_eq(lit(0_i64)), expr).end()
}

/// The decimal type of an operand: an integer literal has as many digits as it is written with.
fn decimal(expr: &Expr, kind: &DataType) -> Option<(i16, i16)> {
    let digits = match kind {
        DataType::Decimal128(precision, scale) => return Some((i16::from(*precision), i16::from(*scale))),
        DataType::Int8 => 3,
        DataType::Int16 => 5,
        DataType::Int32 => 10,
        DataType::Int64 => 19,
        _ => return None,
    };
    match expr {
        Expr::Literal(ScalarValue::Int64(Some(value)), _) => {
            Some((value.unsigned_abs().to_string().len() as i16, 0))
        }
        _ => Some((digits, 0)),
    }
}

/// A double, or a decimal if one operand is and none is a double.
fn quotient(left: Expr, right: Expr, schema: &DFSchema) -> Result<Expr> {
    let (one, other) = (left.get_type(schema)?, right.get_type(schema)?);
    if (one.is_decimal() || other.is_decimal())
        && let (Some((p1, s1)), Some((p2, s2))) = (decimal(&left, &one), decimal(&right, &other))
        && let Ok(computed) =
            rounding_call(Computation::Quotient, left.clone(), nonzero(right.clone())?, schema)
    {
        let scale = (s1 + p2 + 1).max(6);
        let whole = p1 - s1 + s2;
        let most = i16::from(DECIMAL128_MAX_PRECISION);
        let (precision, scale) = match whole + scale > most {
            true => (most, (most - whole).max(scale.min(6))),
            false => (whole + scale, scale),
        };
        let precision = u8::try_from(precision).unwrap_or(DECIMAL128_MAX_PRECISION);
        let kind = DataType::Decimal128(precision.max(1), i8::try_from(scale).unwrap_or(6));
        return Ok(cast(computed, kind));
    }
    let double = |expr: Expr, kind: &DataType| {
        if *kind == DataType::Float64 { expr } else { cast(expr, DataType::Float64) }
    };
    let right = double(right, &other);
    let right = when(right.clone().not_eq(lit(0.0_f64)), right).end()?;
    Ok(binary(double(left, &one), Operator::Divide, right))
}

/// The integer part of a quotient of integers.
fn whole_quotient(left: Expr, right: Expr) -> Result<Expr> {
    let whole = |expr: Expr| to_type(expr, &DataType::Int64);
    Ok(binary(whole(left), Operator::Divide, nonzero(whole(right))?))
}
