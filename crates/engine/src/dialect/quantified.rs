//! `= ANY ((SELECT …) UNION (SELECT …))` and `= ANY (VALUES …)`: behind ANY, ALL and SOME the parser knows a
//! query only by the word SELECT or WITH that it begins with. Such a query is read from a derived table.

use datafusion::sql::sqlparser::dialect::Dialect;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan, Tokenizer};

use super::rows::ROWS;

/// What makes a query of parenthesised ones.
const BETWEEN_QUERIES: [&str; 7] = ["union", "intersect", "except", "order", "limit", "offset", "fetch"];

/// The tokens to parse instead of `text`, or of `tokens` if it is told to parse others already.
pub(crate) fn tokens(
    text: &str,
    tokens: Option<Vec<TokenWithSpan>>,
    dialect: &dyn Dialect,
) -> Option<Vec<TokenWithSpan>> {
    let lower = text.to_ascii_lowercase();
    if !["any", "all", "some"].iter().any(|word| lower.contains(word)) {
        return tokens;
    }
    let mut all = match &tokens {
        Some(tokens) => tokens.clone(),
        None => Tokenizer::new(dialect, text).tokenize_with_location().ok()?,
    };
    all.retain(|token| !matches!(token.token, Token::Whitespace(_)));
    let found: Vec<(usize, usize)> = (0..all.len()).filter_map(|at| query_behind(&all, at)).collect();
    if found.is_empty() {
        return tokens;
    }
    for (open, close) in found.into_iter().rev() {
        // Queries inside of this one come later in the list, so they have moved its end already.
        let close = close_of(&all, open).unwrap_or(close);
        let at = |span_of: usize, token: Token| TokenWithSpan { token, span: all[span_of].span };
        let behind = [
            at(close, Token::RParen),
            at(close, Token::make_word("AS", None)),
            at(close, Token::make_word(ROWS, None)),
        ];
        let before = [
            at(open, Token::make_word("SELECT", None)),
            at(open, Token::Mul),
            at(open, Token::make_word("FROM", None)),
            at(open, Token::LParen),
        ];
        all.splice(close..close, behind);
        all.splice(open + 1..open + 1, before);
    }
    Some(all)
}

/// Where the parentheses open and close of a query behind the quantifier at `at` that the parser does not
/// know for one.
fn query_behind(tokens: &[TokenWithSpan], at: usize) -> Option<(usize, usize)> {
    let is_quantifier = ["any", "all", "some"].iter().any(|word| is_word(tokens, at, word));
    let is_compared = at.checked_sub(1).is_some_and(|before| {
        matches!(
            tokens[before].token,
            Token::Eq | Token::Neq | Token::Lt | Token::Gt | Token::LtEq | Token::GtEq
        )
    });
    let open = at + 1;
    if !is_quantifier || !is_compared || tokens.get(open)?.token != Token::LParen {
        return None;
    }
    let close = close_of(tokens, open)?;
    let first = (open + 1..close).find(|at| tokens[*at].token != Token::LParen)?;
    let begins = |words: &[&str]| words.iter().any(|word| is_word(tokens, first, word));
    let is_query = match first == open + 1 {
        true => begins(&["values"]),
        false => begins(&["select", "with", "values", "table"]) && has_operator(tokens, open, close),
    };
    is_query.then_some((open, close))
}

/// Whether one of [`BETWEEN_QUERIES`] is between these parentheses and in no others.
fn has_operator(tokens: &[TokenWithSpan], open: usize, close: usize) -> bool {
    let mut depth = 0;
    (open + 1..close).any(|at| {
        match tokens[at].token {
            Token::LParen => depth += 1,
            Token::RParen => depth -= 1,
            _ => {}
        }
        depth == 0 && BETWEEN_QUERIES.iter().any(|word| is_word(tokens, at, word))
    })
}

fn close_of(tokens: &[TokenWithSpan], open: usize) -> Option<usize> {
    let mut depth = 0;
    (open..tokens.len()).find(|at| {
        match tokens[*at].token {
            Token::LParen => depth += 1,
            Token::RParen => depth -= 1,
            _ => {}
        }
        depth == 0
    })
}

fn is_word(tokens: &[TokenWithSpan], at: usize, expected: &str) -> bool {
    matches!(tokens.get(at).map(|token| &token.token), Some(Token::Word(word))
        if word.quote_style.is_none() && word.value.eq_ignore_ascii_case(expected))
}

#[cfg(test)]
mod tests {
    use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;

    use super::*;

    fn read(text: &str) -> Option<String> {
        let tokens = tokens(text, None, &PostgreSqlDialect {})?;
        let words = tokens.iter().map(|token| token.token.to_string());
        Some(words.filter(|word| word != "EOF").collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn queries_behind_quantifiers_are_derived_tables() {
        for (sql, expected) in [
            (
                "SELECT a = ANY ((SELECT 1) UNION (SELECT 2))",
                "SELECT a = ANY ( SELECT * FROM ( ( SELECT 1 ) UNION ( SELECT 2 ) ) AS _harrier_rows )",
            ),
            (
                "SELECT a <> ALL (VALUES (1), (2))",
                "SELECT a <> ALL ( SELECT * FROM ( VALUES ( 1 ) , ( 2 ) ) AS _harrier_rows )",
            ),
            (
                "SELECT a = SOME ((SELECT b WHERE b = ANY (VALUES (1))) LIMIT 1), 2",
                "SELECT a = SOME ( SELECT * FROM ( ( SELECT b WHERE b = ANY ( SELECT * FROM ( VALUES ( 1 ) ) AS \
                 _harrier_rows ) ) LIMIT 1 ) AS _harrier_rows ) , 2",
            ),
        ] {
            assert_eq!(read(sql).as_deref(), Some(expected));
        }
    }

    #[test]
    fn others_stay() {
        for sql in [
            "SELECT a = ANY (ARRAY[1])",
            "SELECT a = ANY ((SELECT 1))",
            "SELECT a = ANY ((b || c))",
            "SELECT 1 UNION ALL (VALUES (1))",
            "SELECT a = ANY (SELECT 1 UNION SELECT 2)",
        ] {
            assert_eq!(read(sql), None, "{sql}");
        }
    }
}
