//! `FROM ONLY t`, which excludes inheriting tables: there is no inheritance here, so ONLY is dropped.

use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::Token;

use super::{Edit, Tokens};

/// Keywords that may follow a table name.
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

/// Keywords after which commas in the same parentheses separate tables: `FROM a, ONLY b`.
const LISTS: [&str; 4] = ["from", "using", "truncate", "lock"];

/// Keywords that end such a list.
const AFTER_LISTS: [&str; 16] = [
    "except",
    "fetch",
    "for",
    "group",
    "having",
    "intersect",
    "limit",
    "offset",
    "order",
    "returning",
    "select",
    "set",
    "union",
    "when",
    "where",
    "window",
];

/// Drops ONLY before table names.
pub fn rewrite(tokens: &mut Tokens<'_>) {
    const BEFORE: [&str; 6] = ["from", "join", "update", "truncate", "table", "using"];
    if !tokens.may_have(&[Keyword::ONLY]) {
        return;
    }
    let mut edits = Vec::new();
    // For each open parenthesis, whether commas separate tables.
    let (mut is_list, mut outer) = (false, Vec::new());
    for at in 0..tokens.len() {
        match tokens.token(at) {
            Some(Token::LParen) => outer.push(std::mem::take(&mut is_list)),
            Some(Token::RParen) => is_list = outer.pop().unwrap_or_default(),
            Some(Token::Word(_)) if tokens.is_one_of(at, &LISTS) => {
                // In `a IS DISTINCT FROM b, c`, commas separate values.
                is_list = at == 0 || !tokens.is(at - 1, "distinct");
            }
            Some(Token::Word(_)) if tokens.is_one_of(at, &AFTER_LISTS) => is_list = false,
            Some(Token::Word(_)) if at > 0 && tokens.is(at, "only") => {
                let is_next = is_list && tokens.is_token(at - 1, &Token::Comma);
                let is_merged = tokens.is(at - 1, "into") && at > 1 && tokens.is(at - 2, "merge");
                if is_next || is_merged || tokens.is_one_of(at - 1, &BEFORE) {
                    drop_only(tokens, at, &mut edits);
                }
            }
            _ => {}
        }
    }
    tokens.edit(edits);
}

/// Drops ONLY at `at` if a table name follows, and parentheses around that name.
fn drop_only(tokens: &Tokens<'_>, at: usize, edits: &mut Vec<Edit>) {
    let is_word = |at: usize| matches!(tokens.token(at), Some(Token::Word(_)));
    // Before a clause keyword, `only` is itself a name, as the planner allows.
    if is_word(at + 1) && !tokens.is_one_of(at + 1, &CLAUSES) {
        edits.push(Edit::remove(at..at + 1));
    } else if tokens.is_token(at + 1, &Token::LParen) && is_word(at + 2) {
        let close = tokens.after_name(at + 2);
        if tokens.is_token(close, &Token::RParen) {
            edits.extend([Edit::remove(at..at + 2), Edit::remove(close..close + 1)]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::edited_text;
    use super::*;

    #[test]
    fn only_before_tables_is_dropped() {
        for (sql, expected) in [
            ("SELECT a FROM ONLY s.t JOIN only u ON true", Some("SELECT a FROM s . t JOIN u ON true")),
            ("DELETE FROM ONLY t", Some("DELETE FROM t")),
            ("UPDATE u SET a = 1 FROM only WHERE only.id = u.id", None),
            ("DELETE FROM t USING ONLY u WHERE true", Some("DELETE FROM t USING u WHERE true")),
            ("SELECT a FROM t, only u, ONLY v", Some("SELECT a FROM t , u , v")),
            ("SELECT a FROM t JOIN u ON f(a, b), only v", Some("SELECT a FROM t JOIN u ON f ( a , b ) , v")),
            ("SELECT a FROM ONLY (s.t) x, ONLY (u)", Some("SELECT a FROM s . t x , u")),
            ("SELECT (SELECT 1 FROM a, only b), only c", Some("SELECT ( SELECT 1 FROM a , b ) , only c")),
            ("TRUNCATE a, ONLY b", Some("TRUNCATE a , b")),
            (
                "MERGE INTO only t USING only u ON true WHEN MATCHED THEN DELETE",
                Some("MERGE INTO t USING u ON true WHEN MATCHED THEN DELETE"),
            ),
            ("SELECT a FROM t JOIN u USING (only)", None),
            ("SELECT a IS DISTINCT FROM b, only c", None),
            ("SELECT a FROM t WHERE f(b, only c)", None),
            ("SELECT a FROM t FETCH FIRST 1 ROW ONLY", None),
            ("SELECT only FROM \"only\"", None),
        ] {
            let same = edited_text(sql, |_| ());
            assert_eq!(edited_text(sql, rewrite), expected.map_or(same, str::to_string));
        }
    }
}
