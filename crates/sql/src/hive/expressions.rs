//! Expressions of Hive: literals, casts, operators, subscripts and calls.

use datafusion::error::Result;
use datafusion::sql::sqlparser::ast::{
    AccessExpr, BinaryOperator, CastKind, DataType, Expr, Subscript, UnaryOperator, Value, ValueWithSpan,
};

use super::build::{as_text, as_type, call, text};
use super::types::{self, Target};
use super::{calls, dialect, operators, plain_name};
use crate::ast_builder::{binary, cast, parentheses};

fn take(expr: &mut Expr) -> Expr {
    std::mem::replace(expr, Expr::value(Value::Null))
}

/// Rewrites an expression whose parts have been.
///
/// Errors: a call with other arguments than it has in Hive (42883); what is not supported (0A000).
pub(super) fn rewrite(expr: &mut Expr) -> Result<()> {
    match expr {
        Expr::Identifier(name) => plain_name(name),
        Expr::CompoundIdentifier(names) => names.iter_mut().for_each(plain_name),
        Expr::Value(ValueWithSpan { value: Value::Number(digits, _), .. }) => {
            let is_decimal = digits.contains('.') && !digits.contains(['e', 'E']);
            if is_decimal {
                let mut data_type = dialect::decimal_of(digits);
                types::rewrite(&mut data_type)?;
                let digits = text(digits);
                *expr = cast(digits, data_type);
            } else if digits.contains(['e', 'E']) {
                *expr = cast(take(expr), DataType::DoublePrecision);
            }
        }
        Expr::Cast { expr: inner, data_type, kind, .. } => {
            types::rewrite(data_type)?;
            // A number of the lexer, whose suffix says its type.
            if *kind == CastKind::DoubleColon {
                return Ok(());
            }
            *expr = match types::target(data_type) {
                Target::Arrow(name) => as_type(take(inner), &name),
                Target::Text => call("hive_string", vec![take(inner)]),
                Target::TextOf(length) => {
                    call("hive_substr", vec![as_text(take(inner)), one(), as_type(length, "Int64")])
                }
                Target::Plain => return Ok(()),
            };
        }
        Expr::TypedString(typed) => types::rewrite(&mut typed.data_type)?,
        Expr::BinaryOp { left, op, right } => {
            if *op == BinaryOperator::StringConcat {
                *expr = call("hive_concat", vec![as_text(take(left)), as_text(take(right))]);
            } else if let Some(own) = operators::of(op) {
                *op = own;
            }
        }
        Expr::UnaryOp { op: op @ UnaryOperator::BangNot, .. } => *op = UnaryOperator::Not,
        Expr::Between { expr: value, negated, low, high } => {
            let value = parentheses(take(value));
            let low = binary(value.clone(), operators::custom(">="), parentheses(take(low)));
            let high = binary(value, operators::custom("<="), parentheses(take(high)));
            let within = parentheses(binary(low, BinaryOperator::And, high));
            *expr = match negated {
                true => Expr::UnaryOp { op: UnaryOperator::Not, expr: Box::new(within) },
                false => within,
            };
        }
        Expr::RLike { negated, expr: value, pattern, .. } => {
            let matches = call("hive_rlike", vec![as_text(take(value)), as_text(take(pattern))]);
            *expr = match negated {
                true => Expr::UnaryOp { op: UnaryOperator::Not, expr: Box::new(matches) },
                false => matches,
            };
        }
        Expr::CompoundFieldAccess { root, access_chain } => {
            let mut value = take(root);
            for access in access_chain.drain(..) {
                value = match access {
                    AccessExpr::Subscript(Subscript::Index { index }) => {
                        call("hive_element", vec![value, index])
                    }
                    AccessExpr::Dot(Expr::Identifier(name)) => {
                        call("get_field", vec![value, text(&name.value.to_lowercase())])
                    }
                    other => return Err(super::refuse(format!("{other} is not supported"))),
                };
            }
            *expr = value;
        }
        Expr::Substring { expr: value, substring_from: Some(from), substring_for, .. } => {
            let mut arguments = vec![as_text(take(value)), as_type(take(from), "Int64")];
            arguments.extend(substring_for.as_mut().map(|length| as_type(take(length), "Int64")));
            *expr = call("hive_substr", arguments);
        }
        Expr::Function(_) => {
            if let Some(rewritten) = calls::rewrite(expr)? {
                *expr = rewritten;
            }
        }
        _ => {}
    }
    Ok(())
}

fn one() -> Expr {
    as_type(crate::ast_builder::number("1"), "Int64")
}
