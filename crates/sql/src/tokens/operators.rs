//! `OPERATOR(pg_catalog.=) ANY (…)`: before ANY, ALL and SOME the parser accepts only plain operators.

use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::Token;

use super::{Edit, Tokens};

/// Drops the schema of such operators.
pub fn rewrite(tokens: &mut Tokens<'_>) {
    if !tokens.may_have(&[Keyword::OPERATOR]) {
        return;
    }
    let is_named = |at: usize| {
        tokens.is(at, "operator")
            && tokens.is_token(at + 1, &Token::LParen)
            && tokens.is(at + 2, "pg_catalog")
            && tokens.is_token(at + 3, &Token::Period)
            && tokens.is_token(at + 5, &Token::RParen)
            && tokens.is_one_of(at + 6, &["any", "all", "some"])
    };
    let found = (0..tokens.len()).filter(|at| is_named(*at));
    let edits = found.flat_map(|at| [Edit::remove(at..at + 4), Edit::remove(at + 5..at + 6)]).collect();
    tokens.edit(edits);
}

#[cfg(test)]
mod tests {
    use super::super::testing::edited_text;
    use super::*;

    #[test]
    fn operators_before_any_are_plain() {
        for (sql, expected) in [
            ("SELECT a OPERATOR(pg_catalog.=) ANY (b)", "SELECT a = ANY ( b )"),
            ("SELECT a operator(pg_catalog.~~) ALL (b)", "SELECT a ~~ ALL ( b )"),
            ("SELECT a OPERATOR(pg_catalog.=) b", "SELECT a OPERATOR ( pg_catalog . = ) b"),
        ] {
            assert_eq!(edited_text(sql, rewrite), expected);
        }
    }
}
