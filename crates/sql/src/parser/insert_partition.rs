//! Hive's `INSERT … INTO t PARTITION (k = 'v', other)`: static partition keys have a value, dynamic ones take
//! it from the last columns of the rows.

use datafusion::error::Result;
use datafusion::sql::sqlparser::ast;
use datafusion::sql::sqlparser::parser::Parser;
use datafusion::sql::sqlparser::tokenizer::Token;
use harrier_error::{SqlError, SqlState};

use crate::identifier::plain;
use crate::nesting::NESTING_MAX;
use crate::tokens::Tokens;

/// Partition keys; static ones have a value.
#[derive(Debug, Clone, PartialEq)]
pub struct InsertPartition {
    pub keys: Vec<(String, Option<ast::Expr>)>,
}

/// Takes the PARTITION clause, if there is one.
///
/// Errors: it is not a list of keys (42601).
pub fn take(tokens: &mut Tokens<'_>) -> Result<Option<InsertPartition>> {
    if !tokens.is(0, "insert") {
        return Ok(None);
    }
    let mut at = 1;
    while tokens.is_one_of(at, &["overwrite", "into", "table"]) {
        at += 1;
    }
    at = tokens.after_name(at);
    if !tokens.is(at, "partition") {
        return Ok(None);
    }
    let wrong = |detail: String| {
        harrier_sqlstate::external(
            SqlError::new(
                SqlState::SYNTAX_ERROR,
                "PARTITION names keys, with or without a value: (k = 'v', other)",
            )
            .with_detail(detail),
        )
    };
    let end = tokens.after_parentheses(at + 1).filter(|_| tokens.is_token(at + 1, &Token::LParen));
    let Some(end) = end else {
        return Err(wrong("its parentheses are missing".to_string()));
    };
    let mut parser = tokens.part(at + 2..end - 1).parser(NESTING_MAX);
    let keys = parser
        .parse_comma_separated(Parser::parse_expr)
        .and_then(|keys| parser.expect_token(&Token::EOF).map(|_| keys))
        .map_err(|error| wrong(error.to_string()))?;
    let key = |key: ast::Expr| match key {
        ast::Expr::Identifier(name) => Ok((plain(&name), None)),
        ast::Expr::BinaryOp { left, op: ast::BinaryOperator::Eq, right } => match *left {
            ast::Expr::Identifier(name) => Ok((plain(&name), Some(*right))),
            other => Err(wrong(format!("{other} is no key"))),
        },
        other => Err(wrong(format!("{other} is no key"))),
    };
    let keys = keys.into_iter().map(key).collect::<Result<Vec<_>>>()?;
    tokens.remove(at..end);
    Ok(Some(InsertPartition { keys }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dialect::SqlDialect;

    #[test]
    fn clauses_are_taken() {
        let sql = "INSERT OVERWRITE TABLE s.t PARTITION (y = 2024, \"M\"='a', d) SELECT 1";
        let mut tokens = Tokens::of(sql, &SqlDialect).unwrap();
        let clause = take(&mut tokens).unwrap();
        let left: Vec<String> = tokens.iter().map(ToString::to_string).collect();
        assert_eq!(left, ["INSERT", "OVERWRITE", "TABLE", "s", ".", "t", "SELECT", "1"]);
        let keys: Vec<(String, Option<String>)> = clause
            .unwrap()
            .keys
            .into_iter()
            .map(|(key, value)| (key, value.map(|value| value.to_string())))
            .collect();
        let expected = [("y", Some("2024")), ("M", Some("'a'")), ("d", None)];
        assert_eq!(keys, expected.map(|(key, value)| (key.to_string(), value.map(str::to_string))));
        for sql in
            ["INSERT INTO t SELECT 'PARTITION (a)'", "INSERT INTO partition (a) VALUES (1)", "SELECT 1"]
        {
            assert_eq!(take(&mut Tokens::of(sql, &SqlDialect).unwrap()).unwrap(), None, "{sql}");
        }
        for sql in ["INSERT INTO t PARTITION SELECT 1", "INSERT INTO t PARTITION (a + 1) SELECT 1"] {
            assert!(take(&mut Tokens::of(sql, &SqlDialect).unwrap()).is_err(), "{sql}");
        }
    }
}
