//! `LIMIT '10' OFFSET '20'`, as drivers send them that interpolate parameters: the string literals are
//! integers.

use datafusion::error::Result;
use datafusion::sql::sqlparser::ast::{Expr, LimitClause, Query, Value, ValueWithSpan};
use harrier_error::{SqlError, SqlState};
use harrier_sqlstate::IntoDataFusionError;

/// Rewrites string literals in LIMIT and OFFSET to numbers.
///
/// Errors: one is no integer (22P02).
pub(super) fn rewrite(query: &mut Query) -> Result<()> {
    match &mut query.limit_clause {
        Some(LimitClause::LimitOffset { limit, offset, .. }) => {
            limit.as_mut().map_or(Ok(()), parse_number)?;
            offset.as_mut().map_or(Ok(()), |offset| parse_number(&mut offset.value))
        }
        Some(LimitClause::OffsetCommaLimit { offset, limit }) => {
            parse_number(offset)?;
            parse_number(limit)
        }
        None => Ok(()),
    }
}

fn parse_number(expr: &mut Expr) -> Result<()> {
    let Expr::Value(ValueWithSpan { value: Value::SingleQuotedString(text), .. }) = expr else {
        return Ok(());
    };
    match text.trim().parse::<i64>() {
        // The planner reports negative numbers.
        Ok(count) => *expr = Expr::value(Value::Number(count.to_string(), false)),
        Err(_) => {
            let message = format!("invalid input syntax for type bigint: \"{text}\"");
            return Err(SqlError::new(SqlState::INVALID_TEXT_REPRESENTATION, message).into_datafusion());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::tests::rewritten;

    #[test]
    fn counts_in_quotes_are_numbers() {
        let check = |sql: &str, expected: &str| assert_eq!(rewritten(sql).unwrap(), expected);
        check("SELECT a FROM t LIMIT '2' OFFSET ' 1 '", "SELECT a FROM t LIMIT 2 OFFSET 1");
        check("SELECT (SELECT a FROM t LIMIT '1')", "SELECT (SELECT a FROM t LIMIT 1)");
        assert!(rewritten("SELECT a FROM t LIMIT '1.5'").is_err());
        assert!(rewritten("SELECT a FROM t OFFSET 'x'").is_err());
    }
}
