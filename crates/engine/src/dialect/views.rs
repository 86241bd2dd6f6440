//! `ALTER VIEW v RENAME …`, which the parser takes for a table only: `ALTER TABLE v RENAME …`, as PostgreSQL
//! has it, too.

use datafusion::sql::sqlparser::dialect::Dialect;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan, Tokenizer};

/// The tokens to parse instead of `text`, or of `tokens` if it is told to parse others already.
pub(crate) fn tokens(
    text: &str,
    tokens: Option<Vec<TokenWithSpan>>,
    dialect: &dyn Dialect,
) -> Option<Vec<TokenWithSpan>> {
    if !is_renamed(text) {
        return tokens;
    }
    let mut all = match tokens {
        Some(tokens) => tokens,
        None => Tokenizer::new(dialect, text).tokenize_with_location().ok()?,
    };
    let word = all.iter_mut().find(|token| is_word(&token.token, "view"))?;
    word.token = Token::make_word("TABLE", None);
    Some(all)
}

/// Whether a statement is `ALTER VIEW [IF EXISTS] name RENAME …`.
pub(crate) fn is_renamed(text: &str) -> bool {
    const WORD: &[u8] = b"rename";
    if !text.as_bytes().windows(WORD.len()).any(|part| part.eq_ignore_ascii_case(WORD)) {
        return false;
    }
    let Ok(mut tokens) = Tokenizer::new(&super::SqlDialect, text).tokenize() else { return false };
    tokens.retain(|token| !matches!(token, Token::Whitespace(_)));
    let is = |at: usize, word: &str| tokens.get(at).is_some_and(|token| is_word(token, word));
    if !is(0, "alter") || !is(1, "view") {
        return false;
    }
    let mut name = if is(2, "if") && is(3, "exists") { 4 } else { 2 };
    while tokens.get(name + 1) == Some(&Token::Period) {
        name += 2;
    }
    is(name + 1, "rename")
}

fn is_word(token: &Token, expected: &str) -> bool {
    matches!(token, Token::Word(word) if word.quote_style.is_none() && word.value.eq_ignore_ascii_case(expected))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn renamed_views_are_found() {
        for text in [
            "ALTER VIEW v RENAME TO w",
            "alter /* a */ view if exists s.\"v\" rename to w;",
            "ALTER VIEW v RENAME COLUMN a TO b",
        ] {
            assert!(is_renamed(text), "{text}");
            let tokens = tokens(text, None, &super::super::SqlDialect).unwrap();
            assert!(tokens.iter().any(|token| is_word(&token.token, "table")), "{text}");
        }
        for text in [
            "ALTER TABLE v RENAME TO w",
            "ALTER VIEW v AS SELECT rename",
            "SELECT 'ALTER VIEW v RENAME TO w'",
        ] {
            assert!(!is_renamed(text), "{text}");
        }
    }
}
