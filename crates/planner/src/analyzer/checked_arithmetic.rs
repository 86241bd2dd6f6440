//! PostgreSQL's checked arithmetic: integer overflow fails (22003), and so does a decimal of more than 38
//! digits, casts to integers round, doubles out of range of a REAL fail (22003). NaN results of float
//! arithmetic have no sign: NaN sorts above all numbers.
//!
//! This is an analyzer rule, because types are only known after type coercion. It replaces operators by
//! functions of [`harrier_functions::math::checked`], and inserts them before casts.
//!
//! ```text
//! a + b, a - b, a * b, integers      ─►  harrier_add(a, b), harrier_subtract(a, b), harrier_multiply(a, b)
//! m + n, m - n, m * n                ─►  the same, for decimals whose result may need more than 38 digits
//! -a                                 ─►  harrier_subtract(0, a)
//! a + b + … + r, more than 16 signs  ─►  harrier_terms('++…', a, b, …, r)
//! CAST(d AS Int32), d a double       ─►  CAST(harrier_round(d) AS Int32)
//! CAST(d AS Float32)                 ─►  harrier_real(d)
//! CAST(t AS Float64), t a text       ─►  harrier_double_of_text(t)
//! d * e                              ─►  harrier_unsigned_nan(d * e)
//! d / e, d % e                       ─►  harrier_divide(d, e), harrier_modulo(d, e)
//! t + i, t - i, t a date or timestamp ─► harrier_later(t, i), harrier_earlier(t, i), i an interval
//! t - u, of dates and timestamps     ─►  harrier_difference(t, u)
//! ```
//!
//! `CheckedArithmetic` can go when DataFusion offers checked integer arithmetic (apache/datafusion#17539),
//! and casts to integers round (apache/datafusion#11886, open); related: apache/datafusion#21318,
//! apache/datafusion#12140.

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, TimeUnit};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::error::Result;
use datafusion::logical_expr::expr::{Cast, ScalarFunction, TryCast};
use datafusion::logical_expr::{BinaryExpr, Expr, ExprSchemable, LogicalPlan, Operator, ScalarUDF};
use datafusion::optimizer::AnalyzerRule;
use harrier_functions::datetime::{difference, midnight, zoned_interval};
use harrier_functions::math::checked::{Operation, has_room};
use harrier_functions::parse::float;

use crate::fallible::is_nonzero;
use crate::rewrite::{input_schema, rewrite_expressions};

/// The number of nested sums, differences and products from which a chain becomes a single call.
const CHAIN_LEVELS_MIN: usize = 16;

/// The analyzer rule; runs after type coercion.
#[derive(Debug)]
pub struct CheckedArithmetic;

impl AnalyzerRule for CheckedArithmetic {
    fn name(&self) -> &str {
        "checked_arithmetic"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        Ok(plan.transform_up_with_subqueries(check_plan)?.data)
    }
}

fn check_plan(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    let schema = input_schema(&plan)?;
    rewrite_expressions(plan, |expr| Ok(check_expr(expr, &schema)))
}

fn check_expr(expr: Expr, schema: &DFSchema) -> Transformed<Expr> {
    let type_of = |expr: &Expr| expr.get_type(schema).ok();
    let is_checked = |kind: &Option<DataType>| kind.as_ref().is_some_and(DataType::is_integer);
    match expr {
        Expr::BinaryExpr(BinaryExpr { left, op, right }) => {
            let operation = match op {
                Operator::Plus => Some(Operation::Add),
                Operator::Minus => Some(Operation::Subtract),
                Operator::Multiply => Some(Operation::Multiply),
                _ => None,
            };
            let kind = operation.and_then(|_| type_of(first_term(&left)));
            match operation {
                // DataFusion casts dates to integers, and subtracts these.
                Some(Operation::Subtract) if let Some(dates) = dates_of(&left, &right, schema) => {
                    Transformed::yes(Expr::ScalarFunction(ScalarFunction::new_udf(
                        difference::function(),
                        dates.to_vec(),
                    )))
                }
                Some(operation) if is_checked(&kind) && type_of(&right) == kind => {
                    Transformed::yes(build_operation(operation, *left, *right))
                }
                Some(operation) if is_narrow(operation, &kind, type_of(&right)) => {
                    Transformed::yes(call(operation, vec![*left, *right]))
                }
                Some(operation) if let Some(function) = shift(operation, &kind, type_of(&right)) => {
                    Transformed::yes(Expr::ScalarFunction(ScalarFunction::new_udf(
                        function,
                        [*left, *right].map(|side| begin_of_day(side, schema)).to_vec(),
                    )))
                }
                Some(Operation::Subtract) if is_moment(&kind) && type_of(&right) == kind => {
                    Transformed::yes(Expr::ScalarFunction(ScalarFunction::new_udf(
                        difference::function(),
                        vec![*left, *right],
                    )))
                }
                _ if let Some(operation) = float_division(op)
                    && is_float(&type_of(&left))
                    && type_of(&left) == type_of(&right)
                    && !is_nonzero(&right) =>
                {
                    let sides = [*left, *right].map(strip_unsigned_nan);
                    Transformed::yes(call(operation, sides.to_vec()))
                }
                _ if is_arithmetic(op) && is_float(&type_of(&right)) && is_float(&type_of(&left)) => {
                    let (left, right) =
                        (Box::new(strip_unsigned_nan(*left)), Box::new(strip_unsigned_nan(*right)));
                    let float = Expr::BinaryExpr(BinaryExpr { left, op, right });
                    Transformed::yes(call(Operation::UnsignedNan, vec![float]))
                }
                _ => Transformed::no(Expr::BinaryExpr(BinaryExpr { left, op, right })),
            }
        }
        Expr::Negative(inner)
            if !matches!(inner.as_ref(), Expr::Literal(..)) && is_float(&type_of(&inner)) =>
        {
            let negative = Expr::Negative(Box::new(strip_unsigned_nan(*inner)));
            Transformed::yes(call(Operation::UnsignedNan, vec![negative]))
        }
        Expr::ScalarFunction(terms)
            if terms.func.name() == Operation::Terms.name()
                && terms.args.get(1).is_some_and(|first| is_float(&type_of(first))) =>
        {
            Transformed::yes(call(Operation::UnsignedNan, vec![Expr::ScalarFunction(terms)]))
        }
        // `- n` is `0 - n`.
        Expr::Negative(inner) if !matches!(inner.as_ref(), Expr::Literal(..)) => {
            let zero = type_of(&inner)
                .filter(DataType::is_signed_integer)
                .and_then(|kind| ScalarValue::new_zero(&kind).ok());
            match zero {
                Some(zero) => {
                    Transformed::yes(call(Operation::Subtract, vec![Expr::Literal(zero, None), *inner]))
                }
                None => Transformed::no(Expr::Negative(inner)),
            }
        }
        Expr::Cast(Cast { expr, field }) if field.data_type().is_integer() => {
            let (expr, is_changed) = round_operand(*expr, schema);
            let cast = Expr::Cast(Cast { expr: Box::new(expr), field });
            if is_changed { Transformed::yes(cast) } else { Transformed::no(cast) }
        }
        Expr::TryCast(TryCast { expr, field }) if field.data_type().is_integer() => {
            let (expr, is_changed) = round_operand(*expr, schema);
            let cast = Expr::TryCast(TryCast { expr: Box::new(expr), field });
            if is_changed { Transformed::yes(cast) } else { Transformed::no(cast) }
        }
        Expr::Cast(Cast { expr, field }) if type_of(&expr).is_some_and(|kind| kind.is_string()) => {
            match float::function(field.data_type()) {
                Some(function) => Transformed::yes(function.call(vec![*expr])),
                None => Transformed::no(Expr::Cast(Cast { expr, field })),
            }
        }
        Expr::Cast(Cast { expr, field })
            if *field.data_type() == DataType::Float32 && type_of(&expr) == Some(DataType::Float64) =>
        {
            Transformed::yes(call(Operation::Real, vec![*expr]))
        }
        other => Transformed::no(other),
    }
}

/// The function for a division of floats, which fails if the divisor is zero.
fn float_division(op: Operator) -> Option<Operation> {
    match op {
        Operator::Divide => Some(Operation::Divide),
        Operator::Modulo => Some(Operation::Modulo),
        _ => None,
    }
}

fn is_arithmetic(op: Operator) -> bool {
    use Operator::{Divide, Minus, Modulo, Multiply, Plus};
    matches!(op, Plus | Minus | Multiply | Divide | Modulo)
}

/// The function for a sum or difference of a timestamptz and an interval.
fn shift(operation: Operation, left: &Option<DataType>, right: Option<DataType>) -> Option<Arc<ScalarUDF>> {
    let adds = match operation {
        Operation::Add => true,
        Operation::Subtract => false,
        _ => return None,
    };
    zoned_interval::in_place_of(adds, left.as_ref()?, &right?)
}

/// The dates of a difference of which each was cast to an integer.
fn dates_of(left: &Expr, right: &Expr, schema: &DFSchema) -> Option<[Expr; 2]> {
    fn date_of(expr: &Expr, schema: &DFSchema) -> Option<Expr> {
        match expr {
            Expr::Cast(Cast { expr, field }) if field.data_type().is_integer() => match expr.get_type(schema)
            {
                Ok(DataType::Date32) => Some(expr.as_ref().clone()),
                _ => date_of(expr, schema),
            },
            _ => None,
        }
    }
    Some([date_of(left, schema)?, date_of(right, schema)?])
}

/// A date that was cast to a timestamp by a function that knows infinity.
fn begin_of_day(expr: Expr, schema: &DFSchema) -> Expr {
    match expr {
        Expr::Cast(Cast { expr, field })
            if *field.data_type() == DataType::Timestamp(TimeUnit::Microsecond, None)
                && expr.get_type(schema).is_ok_and(|kind| kind == DataType::Date32) =>
        {
            midnight::function().call(vec![*expr])
        }
        other => other,
    }
}

/// Whether the types are decimals without room for every result.
fn is_narrow(operation: Operation, left: &Option<DataType>, right: Option<DataType>) -> bool {
    matches!((left, right), (Some(left), Some(right)) if !has_room(operation, left, &right))
}

fn is_moment(kind: &Option<DataType>) -> bool {
    matches!(kind, Some(DataType::Date32 | DataType::Timestamp(..)))
}

fn is_float(kind: &Option<DataType>) -> bool {
    matches!(kind, Some(DataType::Float32 | DataType::Float64))
}

/// Unwraps an intermediate float result: the sign of NaN is only removed at the end.
fn strip_unsigned_nan(expr: Expr) -> Expr {
    match expr {
        Expr::ScalarFunction(mut function) if function.func.name() == Operation::UnsignedNan.name() => {
            function.args.remove(0)
        }
        other => other,
    }
}

/// Rounds an expression to be cast to an integer; also returns whether it changed.
fn round_operand(expr: Expr, schema: &DFSchema) -> (Expr, bool) {
    // A numeric literal with a decimal point is exact in PostgreSQL, so halves round away from zero.
    match &expr {
        Expr::Literal(ScalarValue::Float64(Some(number)), metadata) => {
            let rounded = Expr::Literal(ScalarValue::Float64(Some(number.round())), metadata.clone());
            let is_changed = number.round() != *number;
            return (if is_changed { rounded } else { expr }, is_changed);
        }
        Expr::ScalarFunction(function) if function.func.name() == Operation::Round.function().name() => {
            return (expr, false);
        }
        _ => {}
    }
    match expr.get_type(schema) {
        Ok(DataType::Float32 | DataType::Float64) => (call(Operation::Round, vec![expr]), true),
        Ok(DataType::Decimal128(_, scale) | DataType::Decimal256(_, scale)) if scale > 0 => {
            (call(Operation::Round, vec![expr]), true)
        }
        _ => (expr, false),
    }
}

/// Builds a sum, a difference or a product; a long chain becomes a single call.
fn build_operation(operation: Operation, left: Expr, right: Expr) -> Expr {
    let sign = match sign_of(operation) {
        Some(sign) if chain_levels(&left) >= CHAIN_LEVELS_MIN => sign,
        _ => return call(operation, vec![left, right]),
    };
    let (mut signs, mut terms) = terms_of(left);
    signs.push(sign);
    terms.push(right);
    terms.insert(0, Expr::Literal(ScalarValue::Utf8(Some(signs)), None));
    call(Operation::Terms, terms)
}

fn sign_of(operation: Operation) -> Option<char> {
    match operation {
        Operation::Add => Some('+'),
        Operation::Subtract => Some('-'),
        Operation::Multiply => Some('*'),
        _ => None,
    }
}

/// Splits a sum, a difference or a product into left operand, sign and right operand.
fn split_operation(expr: &Expr) -> Option<(&Expr, char, &Expr)> {
    let Expr::ScalarFunction(ScalarFunction { func, args }) = expr else { return None };
    let sign = [Operation::Add, Operation::Subtract, Operation::Multiply]
        .into_iter()
        .find(|operation| operation.name() == func.name())
        .and_then(sign_of)?;
    match args.as_slice() {
        [left, right] => Some((left, sign, right)),
        _ => None,
    }
}

/// An expression with the type of a sum: the first term of a long chain, whose own type is expensive to
/// derive.
fn first_term(expr: &Expr) -> &Expr {
    match expr {
        Expr::ScalarFunction(ScalarFunction { args, .. }) if is_terms(expr) => args.get(1).unwrap_or(expr),
        other => other,
    }
}

fn is_terms(expr: &Expr) -> bool {
    matches!(expr, Expr::ScalarFunction(function) if function.func.name() == Operation::Terms.name())
}

/// The number of nested sums on the left side, at most the chain threshold.
fn chain_levels(expr: &Expr) -> usize {
    if is_terms(expr) {
        return CHAIN_LEVELS_MIN;
    }
    std::iter::successors(split_operation(expr), |(left, ..)| split_operation(left))
        .take(CHAIN_LEVELS_MIN)
        .count()
}

/// The signs and terms of a chain.
fn terms_of(expr: Expr) -> (String, Vec<Expr>) {
    let expr = match expr {
        Expr::ScalarFunction(ScalarFunction { func, mut args }) if func.name() == Operation::Terms.name() => {
            match args.first_mut() {
                Some(Expr::Literal(ScalarValue::Utf8(Some(signs)), _)) => {
                    let signs = std::mem::take(signs);
                    return (signs, args.split_off(1));
                }
                _ => Expr::ScalarFunction(ScalarFunction { func, args }),
            }
        }
        other => other,
    };
    let (mut signs, mut terms, mut next) = (Vec::new(), Vec::new(), &expr);
    while let Some((left, sign, right)) = split_operation(next) {
        signs.push(sign);
        terms.push(right.clone());
        next = left;
    }
    terms.push(next.clone());
    terms.reverse();
    (signs.into_iter().rev().collect(), terms)
}

fn call(operation: Operation, arguments: Vec<Expr>) -> Expr {
    Expr::ScalarFunction(ScalarFunction::new_udf(operation.function(), arguments))
}
