//! `TABLE t` as `SELECT * FROM t`: the parser knows it in a few places only, and takes the words after it for
//! parts of the name.

use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::Token;

use super::{Edit, Tokens, word};

/// Rewrites `TABLE t` to `SELECT * FROM t`.
pub fn rewrite(tokens: &mut Tokens<'_>) {
    if !tokens.may_have(&[Keyword::TABLE]) {
        return;
    }
    let found = (0..tokens.len()).filter(|at| is_query(tokens, *at));
    let edits =
        found.map(|at| Edit::replace(at..at + 1, [word("SELECT"), Token::Mul, word("FROM")])).collect();
    tokens.edit(edits);
}

/// Whether TABLE at `at` begins a query.
fn is_query(tokens: &Tokens<'_>, at: usize) -> bool {
    const BEFORE: [&str; 8] = ["as", "union", "except", "intersect", "all", "distinct", "explain", "verbose"];
    let is_word = |at: usize| matches!(tokens.token(at), Some(Token::Word(_)));
    // `a AS table FROM t` names a column.
    if !tokens.is(at, "table") || !is_word(at + 1) || tokens.is(at + 1, "from") {
        return false;
    }
    let Some(before) = at.checked_sub(1) else { return true };
    match tokens.token(before) {
        Some(Token::LParen | Token::RParen) => true,
        _ if tokens.is_one_of(before, &BEFORE) => true,
        _ if tokens.is(before, "analyze") => before > 0,
        Some(Token::Word(_)) => inserts_into(tokens, before),
        _ => false,
    }
}

/// Whether the name that ends at `last` is the target of an INSERT.
fn inserts_into(tokens: &Tokens<'_>, last: usize) -> bool {
    let mut first = last;
    while first >= 2 && tokens.is_token(first - 1, &Token::Period) {
        first -= 2;
    }
    first >= 2 && tokens.are(first - 2, &["insert", "into"]) && !tokens.is(last, "table")
}

#[cfg(test)]
mod tests {
    use super::super::testing::edited_text;
    use super::*;

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
            assert_eq!(edited_text(text, rewrite), expected);
        }
    }

    #[test]
    fn other_statements_are_unchanged() {
        for text in [
            "CREATE TABLE t (a int)",
            "ANALYZE TABLE t",
            "DROP TABLE IF EXISTS t",
            "INSERT INTO TABLE t SELECT 1",
            "ALTER TABLE t EXCHANGE PARTITION (a = 1) WITH TABLE u",
            "SELECT 'TABLE t', \"table\" t FROM u",
            "é table",
        ] {
            assert_eq!(edited_text(text, rewrite), edited_text(text, |_| ()), "{text}");
        }
    }
}
