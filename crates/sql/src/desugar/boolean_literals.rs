//! String literals as booleans where PostgreSQL coerces them: `WHERE ('true')`, `'f' OR a`, `NOT 'on'`.

use datafusion::error::Result;
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr, JoinConstraint, JoinOperator, Select, TableWithJoins, UnaryOperator, Value,
    ValueWithSpan,
};
use harrier_error::{SqlError, SqlState};
use harrier_sqlstate::IntoDataFusionError;

/// Rewrites the conditions of a SELECT.
///
/// Errors: a string is no boolean (22P02).
pub(super) fn in_select(select: &mut Select) -> Result<()> {
    let conditions = select.selection.iter_mut().chain(&mut select.having).chain(&mut select.qualify);
    conditions.into_iter().try_for_each(rewrite_literal)?;
    select.from.iter_mut().try_for_each(in_joins)
}

fn in_joins(from: &mut TableWithJoins) -> Result<()> {
    for join in &mut from.joins {
        let constraint = match &mut join.join_operator {
            JoinOperator::Join(constraint)
            | JoinOperator::Inner(constraint)
            | JoinOperator::Left(constraint)
            | JoinOperator::LeftOuter(constraint)
            | JoinOperator::Right(constraint)
            | JoinOperator::RightOuter(constraint)
            | JoinOperator::FullOuter(constraint) => constraint,
            _ => continue,
        };
        if let JoinConstraint::On(condition) = constraint {
            rewrite_literal(condition)?;
        }
    }
    Ok(())
}

/// Rewrites the boolean operands of an expression.
///
/// Errors: as [`in_select`].
pub(super) fn in_expr(expr: &mut Expr) -> Result<()> {
    match expr {
        Expr::BinaryOp { left, op: BinaryOperator::And | BinaryOperator::Or, right } => {
            rewrite_literal(left)?;
            rewrite_literal(right)
        }
        Expr::UnaryOp { op: UnaryOperator::Not, expr } => rewrite_literal(expr),
        Expr::IsTrue(inner) | Expr::IsFalse(inner) | Expr::IsNotTrue(inner) | Expr::IsNotFalse(inner) => {
            rewrite_literal(inner)
        }
        Expr::Case { operand: None, conditions, .. } => {
            conditions.iter_mut().try_for_each(|when| rewrite_literal(&mut when.condition))
        }
        _ => Ok(()),
    }
}

fn rewrite_literal(expr: &mut Expr) -> Result<()> {
    match expr {
        Expr::Nested(inner) => rewrite_literal(inner),
        Expr::Value(ValueWithSpan { value: Value::SingleQuotedString(text), .. }) => {
            match parse_boolean(text) {
                Some(truth) => {
                    *expr = Expr::value(Value::Boolean(truth));
                    Ok(())
                }
                None => {
                    let message = format!("invalid input syntax for type boolean: \"{text}\"");
                    Err(SqlError::new(SqlState::INVALID_TEXT_REPRESENTATION, message).into_datafusion())
                }
            }
        }
        _ => Ok(()),
    }
}

/// Parses a boolean as PostgreSQL does, which accepts unambiguous prefixes.
fn parse_boolean(text: &str) -> Option<bool> {
    let text = text.trim().to_ascii_lowercase();
    let begins = |word: &str, least: usize| text.len() >= least && word.starts_with(&text);
    match () {
        () if begins("true", 1) || begins("yes", 1) || text == "on" || text == "1" => Some(true),
        () if begins("false", 1) || begins("no", 1) || begins("off", 2) || text == "0" => Some(false),
        () => None,
    }
}

#[cfg(test)]
mod tests {

    use super::super::tests::rewritten;

    #[test]
    fn string_literals_become_booleans() {
        for (sql, expected) in [
            ("SELECT 1 WHERE ('true')", "SELECT 1 WHERE (true)"),
            ("SELECT a FROM t WHERE 'f' OR a = 't'", "SELECT a FROM t WHERE false OR a = 't'"),
            ("SELECT NOT 'on', 'on'", "SELECT NOT true, 'on'"),
            ("SELECT CASE WHEN 'of' THEN 'x' END", "SELECT CASE WHEN false THEN 'x' END"),
            ("SELECT CASE 'on' WHEN 'on' THEN 1 END", "SELECT CASE 'on' WHEN 'on' THEN 1 END"),
            ("SELECT 1 FROM t JOIN u ON ' YES '", "SELECT 1 FROM t JOIN u ON true"),
            ("SELECT 1 FROM t HAVING '0'", "SELECT 1 FROM t HAVING (false) AND count(*) >= 0"),
        ] {
            assert_eq!(rewritten(sql).unwrap(), expected);
        }
        for sql in ["SELECT 1 WHERE 'maybe'", "SELECT NOT ''", "SELECT true AND 'o'"] {
            assert_eq!(harrier_sqlstate::of(&rewritten(sql).unwrap_err()).as_str(), "22P02", "{sql}");
        }
    }
}
