//! `LATERAL VIEW`, before or after joins, as a join with a function in FROM.
//!
//! ```text
//! FROM t LATERAL VIEW explode(a) v AS x        ──►  FROM t CROSS JOIN LATERAL explode(a) AS v (x)
//! FROM t LATERAL VIEW OUTER explode(a) v AS x  ──►  FROM t LEFT JOIN LATERAL explode(a) AS v (x) ON true
//! ```
//!
//! Source: Hive Language Manual, "LateralView"; `FromClauseParser.g`.

use datafusion::error::Result;
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::Token;

use crate::tokens::{Edit, Tokens, word};
use crate::words::syntax_error_near;

/// Errors: no call and name follow (42601).
pub(super) fn rewrite(tokens: &mut Tokens<'_>) -> Result<()> {
    if !tokens.may_have(&[Keyword::LATERAL]) {
        return Ok(());
    }
    let mut edits = Vec::new();
    for at in 0..tokens.len() {
        if !tokens.are(at, &["lateral", "view"]) {
            continue;
        }
        let is_outer = tokens.is(at + 2, "outer");
        let call = at + 2 + usize::from(is_outer);
        let open = tokens.after_name(call);
        let missing = |at: usize| syntax_error_near(tokens.token(at).unwrap_or(&Token::EOF));
        let is_call = tokens.is_token(open, &Token::LParen);
        let name = tokens.after_parentheses(open).filter(|_| is_call).ok_or_else(|| missing(open))?;
        let Some(Token::Word(view)) = tokens.token(name) else { return Err(missing(name)) };
        let view = Token::Word(view.clone());
        let join = if is_outer { ["LEFT", "JOIN", "LATERAL"] } else { ["CROSS", "JOIN", "LATERAL"] };
        edits.push(Edit::replace(at..call, join.map(word)));
        let mut end = name + 1;
        let mut alias = vec![word("AS"), view];
        if tokens.is(end, "as") {
            alias.push(Token::LParen);
            loop {
                let Some(Token::Word(column)) = tokens.token(end + 1) else { return Err(missing(end + 1)) };
                alias.push(Token::Word(column.clone()));
                end += 2;
                if !tokens.is_token(end, &Token::Comma) {
                    break;
                }
                alias.push(Token::Comma);
            }
            alias.push(Token::RParen);
        }
        if is_outer {
            alias.extend([word("ON"), word("TRUE")]);
        }
        edits.push(Edit::replace(name..end, alias));
    }
    tokens.edit(edits);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hive::dialect::HiveSqlDialect;

    #[test]
    fn views_are_joins() {
        for (text, expected) in [
            (
                "FROM t LATERAL VIEW explode(f(a)) v AS x, y LATERAL VIEW OUTER explode(x) w WHERE 1",
                "FROM t CROSS JOIN LATERAL explode ( f ( a ) ) AS v ( x , y ) \
                 LEFT JOIN LATERAL explode ( x ) AS w ON TRUE WHERE 1",
            ),
            ("SELECT lateral, view FROM t", "SELECT lateral , view FROM t"),
        ] {
            let mut tokens = Tokens::of(text, &HiveSqlDialect).unwrap();
            rewrite(&mut tokens).unwrap();
            let shown: Vec<String> = tokens.iter().map(ToString::to_string).collect();
            assert_eq!(shown.join(" "), expected);
        }
        for text in ["FROM t LATERAL VIEW", "FROM t LATERAL VIEW explode(a)", "FROM t LATERAL VIEW a b"] {
            assert!(rewrite(&mut Tokens::of(text, &HiveSqlDialect).unwrap()).is_err(), "{text}");
        }
    }
}
