//! `LIMIT '10' OFFSET '20'`, as drivers write it that put parameters into the text: literals in quotes are
//! whole numbers there.

use datafusion::error::Result;
use datafusion::sql::sqlparser::ast::{Expr, LimitClause, Query, Value, ValueWithSpan};
use harrier_error::{SqlError, SqlState};
use harrier_sqlstate::IntoDataFusionError;

/// Has such literals of a query be numbers.
///
/// Errors: one is none (22P02).
pub(super) fn read(query: &mut Query) -> Result<()> {
    match &mut query.limit_clause {
        Some(LimitClause::LimitOffset { limit, offset, .. }) => {
            limit.as_mut().map_or(Ok(()), number)?;
            offset.as_mut().map_or(Ok(()), |offset| number(&mut offset.value))
        }
        Some(LimitClause::OffsetCommaLimit { offset, limit }) => {
            number(offset)?;
            number(limit)
        }
        None => Ok(()),
    }
}

fn number(expr: &mut Expr) -> Result<()> {
    let Expr::Value(ValueWithSpan { value: Value::SingleQuotedString(text), .. }) = expr else {
        return Ok(());
    };
    match text.trim().parse::<i64>() {
        // The planner says of negative ones what is wrong with them.
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
