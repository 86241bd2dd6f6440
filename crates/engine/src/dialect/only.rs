//! `FROM ONLY t`, which leaves out what inherits from a table: nothing does here, so the word says nothing.

use datafusion::sql::sqlparser::dialect::Dialect;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan, Tokenizer};

/// What may stand behind the name of a table.
const CLAUSES: [&str; 29] = [
    "as",
    "cross",
    "except",
    "fetch",
    "for",
    "full",
    "group",
    "having",
    "inner",
    "intersect",
    "join",
    "left",
    "limit",
    "natural",
    "offset",
    "on",
    "order",
    "qualify",
    "returning",
    "right",
    "set",
    "tablesample",
    "then",
    "union",
    "using",
    "values",
    "when",
    "where",
    "window",
];

/// The tokens to parse instead of `text`, or of `tokens` if it is told to parse others already.
pub(crate) fn tokens(
    text: &str,
    tokens: Option<Vec<TokenWithSpan>>,
    dialect: &dyn Dialect,
) -> Option<Vec<TokenWithSpan>> {
    if !text.to_ascii_lowercase().contains("only") {
        return tokens;
    }
    let mut all = match &tokens {
        Some(tokens) => tokens.clone(),
        None => Tokenizer::new(dialect, text).tokenize_with_location().ok()?,
    };
    all.retain(|token| !matches!(token.token, Token::Whitespace(_)));
    let is = |at: usize, words: &[&str]| match all.get(at).map(|token| &token.token) {
        Some(Token::Word(word)) if word.quote_style.is_none() => {
            words.iter().any(|known| word.value.eq_ignore_ascii_case(known))
        }
        _ => false,
    };
    // Before the word of a clause it is the name of something, as the planner allows.
    let is_word = |at: usize| matches!(all.get(at).map(|token| &token.token), Some(Token::Word(_)));
    let is_name = |at: usize| is_word(at) && !is(at, &CLAUSES);
    let says_nothing = |at: usize| {
        at > 0
            && is(at, &["only"])
            && is(at - 1, &["from", "join", "update", "truncate", "table"])
            && is_name(at + 1)
    };
    let found: Vec<usize> = (0..all.len()).filter(|at| says_nothing(*at)).collect();
    if found.is_empty() {
        return tokens;
    }
    for at in found.into_iter().rev() {
        all.remove(at);
    }
    Some(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;

    #[test]
    fn only_says_nothing_before_a_table() {
        for (sql, expected) in [
            ("SELECT a FROM ONLY s.t JOIN only u ON true", Some("SELECT a FROM s . t JOIN u ON true")),
            ("DELETE FROM ONLY t", Some("DELETE FROM t")),
            ("UPDATE u SET a = 1 FROM only WHERE only.id = u.id", None),
            ("SELECT a FROM t FETCH FIRST 1 ROW ONLY", None),
            ("SELECT only FROM \"only\"", None),
        ] {
            let tokens = tokens(sql, None, &PostgreSqlDialect {});
            let written = tokens.map(|tokens| {
                tokens.iter().map(|token| token.token.to_string()).collect::<Vec<_>>().join(" ")
            });
            assert_eq!(written.as_deref(), expected);
        }
    }
}
