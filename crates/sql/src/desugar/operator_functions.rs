//! PostgreSQL operators that DataFusion does not have, as equivalents.
//!
//! ```text
//! +x                        ──►  x, which keeps its own column name
//! - INTERVAL 'i'            ──►  INTERVAL '0' - INTERVAL 'i': the planner prepends the sign to the string,
//!                                where it applies to the first field only
//! a ^@ b                    ──►  starts_with(a, b)
//! @x, |/x, ||/x, ~x         ──►  functions; roots are of doubles
//! (a, b) OVERLAPS (c, d)    ──►  whether the periods overlap; their ends may be in either order, or durations
//! ```

use crate::ast_builder::function_call;
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, CastKind, DataType, Expr, Interval, UnaryOperator, Value, ValueWithSpan,
};

/// Rewrites an operator.
pub(super) fn rewrite(expr: &mut Expr) {
    match expr {
        Expr::UnaryOp { op: UnaryOperator::Plus, expr: inner } if is_column(inner) => {
            *expr = Expr::clone(inner);
        }
        Expr::UnaryOp { op: UnaryOperator::Minus, expr: inner } if is_interval(inner) => {
            let none = Interval {
                value: Box::new(Expr::value(Value::SingleQuotedString("0 days".to_string()))),
                leading_field: None,
                leading_precision: None,
                last_field: None,
                fractional_seconds_precision: None,
            };
            let difference = binary(Expr::Interval(none), BinaryOperator::Minus, Expr::clone(inner));
            *expr = Expr::Nested(Box::new(difference));
        }
        // The planner would apply the sign to the first number of the string only.
        Expr::UnaryOp { op: UnaryOperator::Minus, expr: inner }
            if matches!(inner.as_ref(), Expr::Interval(_)) =>
        {
            **inner = Expr::Nested(inner.clone());
        }
        Expr::UnaryOp { op, expr: inner } => {
            let inner = || Expr::clone(inner);
            let double = || Expr::Cast {
                kind: CastKind::Cast,
                expr: Box::new(inner()),
                data_type: DataType::DoublePrecision,
                array: false,
                format: None,
            };
            let found = match op {
                UnaryOperator::PGAbs => function_call("abs", vec![inner()]),
                UnaryOperator::PGSquareRoot => function_call("sqrt", vec![double()]),
                UnaryOperator::PGCubeRoot => function_call("cbrt", vec![double()]),
                UnaryOperator::BitwiseNot => function_call("harrier_bitwise_not", vec![inner()]),
                _ => return,
            };
            *expr = Expr::Function(found);
        }
        Expr::BinaryOp { left, op: BinaryOperator::PGStartsWith, right } => {
            let arguments = vec![Expr::clone(left), Expr::clone(right)];
            *expr = Expr::Function(function_call("starts_with", arguments));
        }
        Expr::BinaryOp { left, op: BinaryOperator::Overlaps, right } => {
            if let (Some(one), Some(other)) = (period(left), period(right)) {
                *expr = overlap(&one, &other);
            }
        }
        _ => {}
    }
}

fn is_column(expr: &Expr) -> bool {
    match expr {
        Expr::Identifier(_) | Expr::CompoundIdentifier(_) => true,
        Expr::Nested(inner) | Expr::UnaryOp { op: UnaryOperator::Plus, expr: inner } => is_column(inner),
        _ => false,
    }
}

/// Whether an expression is an interval with several fields.
fn is_interval(expr: &Expr) -> bool {
    match expr {
        Expr::Interval(interval) => match interval.value.as_ref() {
            Expr::Value(ValueWithSpan { value: Value::SingleQuotedString(text), .. }) => {
                text.split_whitespace().nth(2).is_some()
            }
            _ => false,
        },
        Expr::Nested(inner) => is_interval(inner),
        _ => false,
    }
}

/// The start and end of a period, in order.
fn period(expr: &Expr) -> Option<[Expr; 2]> {
    let Expr::Tuple(ends) = expr else { return None };
    let [first, last] = ends.as_slice() else { return None };
    let last = match is_duration(last) {
        true => binary(first.clone(), BinaryOperator::Plus, last.clone()),
        false => last.clone(),
    };
    let of = |name: &str| Expr::Function(function_call(name, vec![first.clone(), last.clone()]));
    Some([of("least"), of("greatest")])
}

fn is_duration(expr: &Expr) -> bool {
    match expr {
        Expr::Interval(_) => true,
        Expr::Cast { data_type, .. } => matches!(data_type, DataType::Interval { .. }),
        Expr::Nested(inner) => is_duration(inner),
        _ => false,
    }
}

fn binary(left: Expr, op: BinaryOperator, right: Expr) -> Expr {
    Expr::Nested(Box::new(Expr::BinaryOp { left: Box::new(left), op, right: Box::new(right) }))
}

/// Whether half-open periods overlap. An empty period contains its start.
fn overlap([from, to]: &[Expr; 2], [other_from, other_to]: &[Expr; 2]) -> Expr {
    use BinaryOperator::{And, Eq, Gt, Lt, Or};
    let compare = |left: &Expr, op, right: &Expr| binary(left.clone(), op, right.clone());
    let begins_within = binary(compare(from, Gt, other_from), And, compare(from, Lt, other_to));
    let other_begins_within = binary(compare(other_from, Gt, from), And, compare(other_from, Lt, to));
    let begin_together = compare(from, Eq, other_from);
    binary(begin_together, Or, binary(begins_within, Or, other_begins_within))
}

#[cfg(test)]
mod tests {
    use super::super::tests::rewritten;

    #[test]
    fn operators_are_rewritten_for_the_planner() {
        for (sql, expected) in [
            ("SELECT + a, + (+ t.a), + 1", "SELECT a, (t.a), +1"),
            ("SELECT a ^@ 'b'", "SELECT starts_with(a, 'b')"),
        ] {
            assert_eq!(rewritten(sql).unwrap(), expected);
        }
        let overlaps = rewritten("SELECT (a, INTERVAL '1' DAY) OVERLAPS (b, c)").unwrap();
        assert!(overlaps.contains("greatest(a, (a + INTERVAL '1' DAY))"), "{overlaps}");
        assert!(overlaps.contains("(least(a, (a + INTERVAL '1' DAY)) = least(b, c))"), "{overlaps}");
    }
}
