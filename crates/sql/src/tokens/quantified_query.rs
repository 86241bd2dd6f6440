//! `= ANY ((SELECT …) UNION (SELECT …))` and `= ANY (VALUES …)`: after ANY, ALL and SOME the parser
//! recognizes a query only by a leading SELECT or WITH. Other queries become `SELECT * FROM (query) AS rows`.

use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::Token;

use super::{Edit, Tokens, word};

/// Alias of the derived table.
pub const ROWS: &str = "_harrier_rows";

/// Keywords that combine or continue parenthesized queries.
const BETWEEN_QUERIES: [&str; 7] = ["union", "intersect", "except", "order", "limit", "offset", "fetch"];

/// Wraps such queries in a derived table.
pub fn rewrite(tokens: &mut Tokens<'_>) {
    if !tokens.may_have(&[Keyword::ANY, Keyword::ALL, Keyword::SOME]) {
        return;
    }
    let found = (0..tokens.len()).filter_map(|at| query_behind(tokens, at));
    let edits = found.flat_map(|(open, close)| {
        let before = [word("SELECT"), Token::Mul, word("FROM"), Token::LParen];
        [Edit::insert(open + 1, before), Edit::insert(close, [Token::RParen, word("AS"), word(ROWS)])]
    });
    let edits = edits.collect();
    tokens.edit(edits);
}

/// The parentheses of the query after ANY, ALL or SOME at `at`, if the parser does not recognize it.
fn query_behind(tokens: &Tokens<'_>, at: usize) -> Option<(usize, usize)> {
    let is_compared = matches!(
        tokens.token(at.checked_sub(1)?)?,
        Token::Eq | Token::Neq | Token::Lt | Token::Gt | Token::LtEq | Token::GtEq
    );
    let open = at + 1;
    if !is_compared
        || !tokens.is_one_of(at, &["any", "all", "some"])
        || !tokens.is_token(open, &Token::LParen)
    {
        return None;
    }
    let close = tokens.after_parentheses(open)? - 1;
    let first = (open + 1..close).find(|at| !tokens.is_token(*at, &Token::LParen))?;
    let is_query = match first == open + 1 {
        true => tokens.is(first, "values"),
        false => {
            tokens.is_one_of(first, &["select", "with", "values", "table"])
                && has_operator(tokens, open, close)
        }
    };
    is_query.then_some((open, close))
}

/// Whether a keyword of [`BETWEEN_QUERIES`] stands at the top level of these parentheses.
fn has_operator(tokens: &Tokens<'_>, open: usize, close: usize) -> bool {
    let mut depth = 0;
    (open + 1..close).any(|at| {
        match tokens.token(at) {
            Some(Token::LParen) => depth += 1,
            Some(Token::RParen) => depth -= 1,
            _ => {}
        }
        depth == 0 && tokens.is_one_of(at, &BETWEEN_QUERIES)
    })
}

#[cfg(test)]
mod tests {
    use super::super::testing::edited_text;
    use super::*;

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
            assert_eq!(edited_text(sql, rewrite), expected);
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
            assert_eq!(edited_text(sql, rewrite), edited_text(sql, |_| ()), "{sql}");
        }
    }
}
