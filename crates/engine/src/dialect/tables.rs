//! `TABLE t` for `SELECT * FROM t`: the parser knows it in a few places, and takes the words behind it for
//! parts of the name.

use datafusion::sql::sqlparser::dialect::Dialect;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan, Tokenizer};

/// The tokens to parse instead of `text`, or of `tokens` if it is told to parse others already.
pub(crate) fn tokens(
    text: &str,
    tokens: Option<Vec<TokenWithSpan>>,
    dialect: &dyn Dialect,
) -> Option<Vec<TokenWithSpan>> {
    const WORD: &[u8] = b"table";
    if !text.as_bytes().windows(WORD.len()).any(|part| part.eq_ignore_ascii_case(WORD)) {
        return tokens;
    }
    let mut all = match &tokens {
        Some(tokens) => tokens.clone(),
        None => Tokenizer::new(dialect, text).tokenize_with_location().ok()?,
    };
    all.retain(|token| !matches!(token.token, Token::Whitespace(_)));
    let found: Vec<usize> = (0..all.len()).filter(|at| is_query(&all, *at)).collect();
    if found.is_empty() {
        return tokens;
    }
    for at in found.into_iter().rev() {
        let span = all[at].span;
        let words = [Token::make_word("SELECT", None), Token::Mul, Token::make_word("FROM", None)];
        all.splice(at..=at, words.map(|token| TokenWithSpan { token, span }));
    }
    Some(all)
}

/// Whether the word at `at` is TABLE where a query may begin, and not the one of CREATE TABLE.
fn is_query(tokens: &[TokenWithSpan], at: usize) -> bool {
    let word = |at: usize| match tokens.get(at).map(|token| &token.token) {
        Some(Token::Word(word)) if word.quote_style.is_none() => Some(word.value.to_ascii_lowercase()),
        _ => None,
    };
    let is_word = |at: usize| matches!(tokens.get(at).map(|token| &token.token), Some(Token::Word(_)));
    // `a AS table FROM t` names a column.
    if word(at).as_deref() != Some("table") || !is_word(at + 1) || word(at + 1).as_deref() == Some("from") {
        return false;
    }
    let Some(before) = at.checked_sub(1) else { return true };
    match (&tokens[before].token, word(before).as_deref()) {
        (Token::LParen | Token::RParen, _) => true,
        (_, Some("as" | "union" | "except" | "intersect" | "all" | "distinct" | "explain" | "verbose")) => {
            true
        }
        (_, Some("analyze")) => before > 0,
        (Token::Word(_), _) => inserts_into(tokens, before),
        _ => false,
    }
}

/// Whether the name that ends at `last` is that of the table of an INSERT.
fn inserts_into(tokens: &[TokenWithSpan], last: usize) -> bool {
    let mut first = last;
    while first >= 2 && tokens[first - 1].token == Token::Period {
        first -= 2;
    }
    let is = |at: usize, expected: &str| {
        matches!(tokens.get(at).map(|token| &token.token), Some(Token::Word(word))
            if word.quote_style.is_none() && word.value.eq_ignore_ascii_case(expected))
    };
    first >= 2 && is(first - 1, "into") && is(first - 2, "insert") && !is(last, "table")
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
    fn tables_are_queries() {
        for (text, expected) in [
            ("TABLE t", "SELECT * FROM t"),
            ("table s.t ORDER BY 1 LIMIT 2", "SELECT * FROM s . t ORDER BY 1 LIMIT 2"),
            ("TABLE \"T\" UNION ALL TABLE u", "SELECT * FROM \"T\" UNION ALL SELECT * FROM u"),
            ("EXPLAIN ANALYZE TABLE t", "EXPLAIN ANALYZE SELECT * FROM t"),
            ("SELECT 1 IN (TABLE t)", "SELECT 1 IN ( SELECT * FROM t )"),
            ("WITH w AS (TABLE t) TABLE w", "WITH w AS ( SELECT * FROM t ) SELECT * FROM w"),
            ("INSERT INTO s.t TABLE u", "INSERT INTO s . t SELECT * FROM u"),
            ("INSERT INTO t (a) TABLE u", "INSERT INTO t ( a ) SELECT * FROM u"),
            ("INSERT INTO TABLE t TABLE u", "INSERT INTO TABLE t TABLE u"),
            ("CREATE TABLE t AS TABLE u", "CREATE TABLE t AS SELECT * FROM u"),
        ] {
            assert_eq!(read(text).unwrap_or_else(|| text.to_string()), expected);
        }
    }

    #[test]
    fn others_are_left_alone() {
        for text in [
            "CREATE TABLE t (a int)",
            "ANALYZE TABLE t",
            "DROP TABLE IF EXISTS t",
            "INSERT INTO TABLE t SELECT 1",
            "ALTER TABLE t EXCHANGE PARTITION (a = 1) WITH TABLE u",
            "SELECT 'TABLE t', \"table\" t FROM u",
            "é table",
        ] {
            assert_eq!(read(text), None, "{text}");
        }
    }
}
