//! Planner of long chains of `||`, and of `+`, `-` and `*` over numbers of one type, as a single function
//! call.
//!
//! DataFusion's planner and type coercion derive the type of each level of an operator chain again for every
//! level above (apache/datafusion#12604): a chain of a few thousand texts took minutes.
//! [`bounded_results`](crate::analyzer::bounded_results) replaces the remaining `||` by the same function,
//! but after coercion, and [`checked_arithmetic`](crate::analyzer::checked_arithmetic) does so for integers
//! of several types.
//!
//! ```text
//! a || b || … || r || s            ─►  textcat(a, b, …, r, s)                 of texts
//! 1 + n - m … + k                  ─►  harrier_terms('+-…+', 1, n, m, …, k)   of one type
//! a || b, a chain below 16 levels  ─►  the same
//! ```
//! Each further operator adds an argument to the call instead of a nesting level.
//!
//! `OperatorChainPlanner` can go when planning and coercion derive the type of each level once;
//! apache/datafusion#12604 could not be found; related: apache/datafusion#6261, apache/datafusion#17493,
//! apache/datafusion#19795.

use std::sync::Arc;

use datafusion::arrow::datatypes::{DECIMAL128_MAX_PRECISION, DataType, Field};
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::error::Result;
use datafusion::logical_expr::expr::{Cast, ScalarFunction};
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult, RawBinaryExpr};
use datafusion::logical_expr::{BinaryExpr, Expr, ExprSchemable, Operator, lit};
use datafusion::sql::sqlparser::ast::BinaryOperator;
use harrier_functions::bounded_result;
use harrier_functions::math::checked::Operation;
use harrier_pgcatalog::TYPE_KEY;

/// The number of levels from which a chain becomes a function call.
const CHAIN_LEVELS_MIN: usize = 16;

/// Plans the next operator of a long chain. Must run before all other planners, which derive the types of
/// both operands.
#[derive(Debug)]
pub struct OperatorChainPlanner;

impl ExprPlanner for OperatorChainPlanner {
    fn plan_binary_op(
        &self,
        mut expr: RawBinaryExpr,
        schema: &DFSchema,
    ) -> Result<PlannerResult<RawBinaryExpr>> {
        if let Some(sign) = sign_of(&expr.op) {
            return Ok(append_term(expr, sign, schema));
        }
        if expr.op != BinaryOperator::StringConcat || !is_long(&expr.left) {
            return Ok(PlannerResult::Original(expr));
        }
        let left = match chain_of(expr.left, schema) {
            Ok(chain) => chain,
            Err(left) => {
                expr.left = left;
                return Ok(PlannerResult::Original(expr));
            }
        };
        match coerce_to_text(expr.right, &left.kind, schema) {
            Ok(right) => {
                let mut args = left.values;
                args.push(right);
                Ok(PlannerResult::Planned(concat_call(args)))
            }
            Err(right) => {
                let (op, left) = (expr.op, concat_call(left.values));
                Ok(PlannerResult::Original(RawBinaryExpr { op, left, right }))
            }
        }
    }
}

fn sign_of(op: &BinaryOperator) -> Option<char> {
    match op {
        BinaryOperator::Plus => Some('+'),
        BinaryOperator::Minus => Some('-'),
        BinaryOperator::Multiply => Some('*'),
        _ => None,
    }
}

/// Appends a term to a chain of numbers if all have the same type.
fn append_term(expr: RawBinaryExpr, sign: char, schema: &DFSchema) -> PlannerResult<RawBinaryExpr> {
    if terms_from_last(&expr.left).nth(CHAIN_LEVELS_MIN - 1).is_none() && !is_sum(&expr.left) {
        return PlannerResult::Original(expr);
    }
    let kind = match expr.right.get_type(schema).ok() {
        Some(DataType::Decimal128(_, scale)) => return append_decimal(expr, sign, scale, schema),
        kind => kind.filter(|kind| kind.is_integer() || *kind == DataType::Float64),
    };
    let is_of_kind = |term: &Expr| term.get_type(schema).ok() == kind;
    match expr.left {
        Expr::ScalarFunction(mut sum) if kind.is_some() && sum.args.get(1).is_some_and(is_of_kind) => {
            if let Some(Expr::Literal(ScalarValue::Utf8(Some(signs)), _)) = sum.args.first_mut() {
                signs.push(sign);
            }
            sum.args.push(expr.right);
            PlannerResult::Planned(Expr::ScalarFunction(sum))
        }
        left if kind.is_some() && terms_from_last(&left).all(|(_, term)| is_of_kind(term)) => {
            let mut signs = vec![sign];
            let mut args = vec![expr.right];
            for (sign, term) in terms_from_last(&left) {
                signs.extend(sign);
                args.push(term.clone());
            }
            args.push(lit(signs.into_iter().rev().collect::<String>()));
            args.reverse();
            let func = Operation::Terms.function();
            PlannerResult::Planned(Expr::ScalarFunction(ScalarFunction { func, args }))
        }
        left => PlannerResult::Original(RawBinaryExpr { left, ..expr }),
    }
}

/// Appends a term with `scale` fractional digits to a chain of decimals. Requires that the type of the chain
/// has reached its maximum precision: it does not change from then on.
fn append_decimal(
    expr: RawBinaryExpr,
    sign: char,
    scale: i8,
    schema: &DFSchema,
) -> PlannerResult<RawBinaryExpr> {
    let RawBinaryExpr { op, left, right } = expr;
    let sum = match &left {
        Expr::ScalarFunction(sum) if is_sum(&left) => sum.args.get(1),
        _ => Some(&left),
    };
    let kind = sum.and_then(|sum| sum.get_type(schema).ok());
    let is_settled =
        matches!(kind, Some(DataType::Decimal128(DECIMAL128_MAX_PRECISION, most)) if scale <= most);
    if !is_settled || sign == '*' {
        return PlannerResult::Original(RawBinaryExpr { op, left, right });
    }
    let mut args = match left {
        Expr::ScalarFunction(sum) if sum.name() == Operation::Terms.name() => sum.args,
        left => vec![lit(""), left],
    };
    if let Some(Expr::Literal(ScalarValue::Utf8(Some(signs)), _)) = args.first_mut() {
        signs.push(sign);
    }
    args.push(right);
    PlannerResult::Planned(Expr::ScalarFunction(ScalarFunction { func: Operation::Terms.function(), args }))
}

fn is_sum(expr: &Expr) -> bool {
    matches!(expr, Expr::ScalarFunction(call) if call.name() == Operation::Terms.name())
}

/// The terms of a chain from last to first, each with its sign; the first one has none.
fn terms_from_last(expr: &Expr) -> impl Iterator<Item = (Option<char>, &Expr)> {
    let mut next = Some(expr);
    std::iter::from_fn(move || {
        let expr = next.take()?;
        let (sign, left, right) = match expr {
            Expr::BinaryExpr(BinaryExpr { left, op: Operator::Plus, right }) => ('+', left, right),
            Expr::BinaryExpr(BinaryExpr { left, op: Operator::Minus, right }) => ('-', left, right),
            Expr::BinaryExpr(BinaryExpr { left, op: Operator::Multiply, right }) => ('*', left, right),
            first => return Some((None, first)),
        };
        next = Some(left);
        Some((Some(sign), right.as_ref()))
    })
}

fn concat_call(args: Vec<Expr>) -> Expr {
    Expr::ScalarFunction(ScalarFunction { func: bounded_result::concatenation(), args })
}

/// The operands of a chain of texts of one type.
struct Chain {
    kind: DataType,
    values: Vec<Expr>,
}

fn is_concat_call(expr: &Expr) -> bool {
    matches!(expr, Expr::ScalarFunction(call) if *call.func == *bounded_result::concatenation())
}

/// The left operand of a `||`.
fn left_operand(expr: &Expr) -> Option<&Expr> {
    match expr {
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::StringConcat, .. }) => Some(left),
        _ => None,
    }
}

fn is_long(expr: &Expr) -> bool {
    is_concat_call(expr)
        || std::iter::successors(left_operand(expr), |left| left_operand(left)).take(CHAIN_LEVELS_MIN).count()
            == CHAIN_LEVELS_MIN
}

/// The chain that an expression represents; the unchanged expression if it is not a chain of texts.
fn chain_of(expr: Expr, schema: &DFSchema) -> std::result::Result<Chain, Expr> {
    let kind = match &expr {
        // All operands have the type of the first.
        Expr::ScalarFunction(call) => call.args.first().and_then(|first| first.get_type(schema).ok()),
        other => other.get_type(schema).ok(),
    };
    let Some(kind) = kind.filter(DataType::is_string) else { return Err(expr) };
    if is_concat_call(&expr) {
        let Expr::ScalarFunction(ScalarFunction { args, .. }) = expr else { unreachable!("a call") };
        return Ok(Chain { kind, values: args });
    }
    // From last to first, as long as the left operand is a text.
    let (mut values, mut rest) = (Vec::new(), expr.clone());
    loop {
        let is_text = rest.get_type(schema).is_ok_and(|kind| kind.is_string());
        match rest {
            Expr::BinaryExpr(BinaryExpr { left, op: Operator::StringConcat, right }) if is_text => {
                let Ok(right) = coerce_to_text(*right, &kind, schema) else { return Err(expr) };
                values.push(right);
                rest = *left;
            }
            first => {
                let Ok(first) = coerce_to_text(first, &kind, schema) else { return Err(expr) };
                values.push(first);
                break;
            }
        }
    }
    values.reverse();
    Ok(Chain { kind, values })
}

/// Casts an operand to the text type if `||` accepts its type; otherwise returns it unchanged.
fn coerce_to_text(expr: Expr, kind: &DataType, schema: &DFSchema) -> std::result::Result<Expr, Expr> {
    // Extension types such as json have their own operators.
    let (found, is_named) = match &expr {
        Expr::Literal(value, None) => (value.data_type(), false),
        other => match other.to_field(schema) {
            Ok((_, field)) => (field.data_type().clone(), field.metadata().contains_key(TYPE_KEY)),
            Err(_) => return Err(expr),
        },
    };
    let is_plain = found.is_string() || found.is_null() || found.is_numeric() || found == DataType::Boolean;
    match is_plain && !is_named {
        true if found == *kind => Ok(expr),
        true => {
            let field = Arc::new(Field::new("", kind.clone(), true));
            Ok(Expr::Cast(Cast { expr: Box::new(expr), field }))
        }
        false => Err(expr),
    }
}

#[cfg(test)]
mod tests {
    use datafusion::logical_expr::{col, lit};

    use super::*;

    fn schema() -> DFSchema {
        let list = DataType::List(Arc::new(Field::new_list_field(DataType::Int64, true)));
        let fields = vec![
            Field::new("t", DataType::Utf8, true),
            Field::new("n", DataType::Int64, true),
            Field::new("l", list, true),
        ];
        DFSchema::from_unqualified_fields(fields.into(), Default::default()).unwrap()
    }

    /// Plans a chain from left to right, like the SQL planner.
    fn plan_concat(values: impl IntoIterator<Item = Expr>) -> Expr {
        plan_chain(values, |_| (BinaryOperator::StringConcat, Operator::StringConcat))
    }

    fn plan_chain(
        values: impl IntoIterator<Item = Expr>,
        operator: impl Fn(usize) -> (BinaryOperator, Operator),
    ) -> Expr {
        let mut values = values.into_iter();
        let first = values.next().unwrap();
        values.enumerate().fold(first, |left, (at, right)| {
            let (op, planned) = operator(at);
            let raw = RawBinaryExpr { op, left, right };
            match OperatorChainPlanner.plan_binary_op(raw, &schema()).unwrap() {
                PlannerResult::Planned(planned) => planned,
                PlannerResult::Original(raw) => {
                    Expr::BinaryExpr(BinaryExpr::new(Box::new(raw.left), planned, Box::new(raw.right)))
                }
            }
        })
    }

    #[test]
    fn long_sums_of_one_type_are_one_call() {
        let operator = |at: usize| match at % 3 {
            0 => (BinaryOperator::Plus, Operator::Plus),
            1 => (BinaryOperator::Minus, Operator::Minus),
            _ => (BinaryOperator::Multiply, Operator::Multiply),
        };
        let sum = plan_chain(vec![col("n"); 1000], operator);
        let Expr::ScalarFunction(call) = &sum else { panic!("{sum}") };
        assert_eq!(call.args.len(), 1001);
        let signs: String = (0..999).map(|at| ['+', '-', '*'][at % 3]).collect();
        assert_eq!(call.args[0], lit(signs));
        assert_eq!(sum.get_type(&schema()).unwrap(), DataType::Int64);
        let short = plan_chain(vec![col("n"); CHAIN_LEVELS_MIN], operator);
        assert!(matches!(short, Expr::BinaryExpr(_)), "{short}");
        let several = plan_chain((0..40).map(|at| if at == 3 { lit(1.5) } else { col("n") }), operator);
        assert!(matches!(several, Expr::BinaryExpr(_)), "{several}");
    }

    fn arguments(expr: &Expr) -> usize {
        match expr {
            Expr::ScalarFunction(call) if is_concat_call(expr) => call.args.len(),
            _ => 0,
        }
    }

    #[test]
    fn a_long_chain_is_one_call() {
        assert_eq!(arguments(&plan_concat(vec![lit("a"); CHAIN_LEVELS_MIN])), 0);
        assert_eq!(arguments(&plan_concat(vec![lit("a"); 5000])), 5000);
        let mixed = (0..100).map(|at| if at % 2 == 0 { col("n") } else { col("t") });
        let planned = plan_concat(mixed);
        assert_eq!(arguments(&planned), 100);
        assert_eq!(planned.get_type(&schema()).unwrap(), DataType::Utf8);
    }

    #[test]
    fn other_operands_keep_the_operator() {
        let lists = plan_concat((0..40).map(|_| col("l")));
        assert_eq!(arguments(&lists), 0);
        let ends_in_list = plan_concat((0..40).map(|at| if at == 39 { col("l") } else { col("t") }));
        assert!(left_operand(&ends_in_list).is_some_and(|left| arguments(left) == 39), "{ends_in_list}");
    }
}
