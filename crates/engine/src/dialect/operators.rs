//! `OPERATOR(pg_catalog.=) ANY (…)`, whose operator the parser wants to be a plain one before ANY, ALL and
//! SOME.

use datafusion::sql::sqlparser::dialect::Dialect;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan, Tokenizer};

/// The tokens to parse instead of `text`, or of `tokens` if it is told to parse others already.
pub(crate) fn tokens(
    text: &str,
    tokens: Option<Vec<TokenWithSpan>>,
    dialect: &dyn Dialect,
) -> Option<Vec<TokenWithSpan>> {
    if !text.to_ascii_lowercase().contains("operator") {
        return tokens;
    }
    let mut tokens = match tokens {
        Some(tokens) => tokens,
        None => Tokenizer::new(dialect, text).tokenize_with_location().ok()?,
    };
    tokens.retain(|token| !matches!(token.token, Token::Whitespace(_)));
    let is = |at: usize, word: &str| {
        matches!(tokens.get(at).map(|token| &token.token), Some(Token::Word(found))
            if found.quote_style.is_none() && found.value.eq_ignore_ascii_case(word))
    };
    let is_token = |at: usize, token: &Token| tokens.get(at).is_some_and(|found| found.token == *token);
    let mut written = Vec::with_capacity(tokens.len());
    let mut at = 0;
    while let Some(token) = tokens.get(at) {
        let is_named = is(at, "operator")
            && is_token(at + 1, &Token::LParen)
            && is(at + 2, "pg_catalog")
            && is_token(at + 3, &Token::Period)
            && is_token(at + 5, &Token::RParen)
            && ["any", "all", "some"].iter().any(|word| is(at + 6, word));
        match is_named {
            true => {
                written.push(tokens[at + 4].clone());
                at += 6;
            }
            false => {
                written.push(token.clone());
                at += 1;
            }
        }
    }
    Some(written)
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;

    #[test]
    fn operators_before_any_are_plain() {
        for (sql, expected) in [
            ("SELECT a OPERATOR(pg_catalog.=) ANY (b)", "SELECT a = ANY ( b )"),
            ("SELECT a operator(pg_catalog.~~) ALL (b)", "SELECT a ~~ ALL ( b )"),
            ("SELECT a OPERATOR(pg_catalog.=) b", "SELECT a OPERATOR ( pg_catalog . = ) b"),
        ] {
            let tokens = tokens(sql, None, &PostgreSqlDialect {}).unwrap();
            let written = tokens.iter().map(|token| token.token.to_string()).collect::<Vec<_>>().join(" ");
            assert_eq!(written, expected);
        }
        assert!(tokens("SELECT 1", None, &PostgreSqlDialect {}).is_none());
    }
}
