//! Statements about indexes and constraints that the parser does not know, as calls that it does.

use datafusion::sql::sqlparser::tokenizer::Token;

use crate::tokens::{Tokens, word};

/// Writes what the parser knows for such a statement.
pub fn rewrite(tokens: &mut Tokens<'_>) {
    if tokens.are(0, &["drop", "index", "concurrently"]) {
        tokens.remove(2..3);
    } else if tokens.are(0, &["alter", "index", "if", "exists"]) {
        let Some(rename) = (4..tokens.len()).find(|at| tokens.are(*at, &["rename", "to"])) else { return };
        tokens.replace(rename..rename + 2, [Token::Comma]);
        call(tokens, 0..4, "rename_index", vec![]);
    } else if tokens.are(0, &["set", "constraints"]) {
        tokens.remove(2..tokens.len());
        call(tokens, 0..2, "set_constraints", vec![]);
    } else if tokens.is(0, "reindex") {
        // Options in parentheses say how it is done.
        let is_open = tokens.is_token(1, &Token::LParen);
        let at = if is_open { tokens.after_parentheses(1).unwrap_or(1) } else { 1 };
        let Some(kind) = tokens.name(at) else { return };
        let rest = if tokens.is(at + 1, "concurrently") { at + 2 } else { at + 1 };
        if rest < tokens.len() {
            call(tokens, 0..rest, "reindex", vec![Token::SingleQuotedString(kind), Token::Comma]);
        }
    }
}

/// `CALL name(first …)` of all that stands behind `range`, a semicolon apart.
pub(super) fn call(tokens: &mut Tokens<'_>, range: std::ops::Range<usize>, name: &str, first: Vec<Token>) {
    while tokens.len() > range.end && tokens.is_token(tokens.len() - 1, &Token::SemiColon) {
        tokens.remove(tokens.len() - 1..tokens.len());
    }
    tokens.push(Token::RParen);
    let call = [word("CALL"), word(name), Token::LParen];
    tokens.replace(range, call.into_iter().chain(first));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tokens::testing::changed;

    #[test]
    fn statements_become_calls() {
        for (sql, expected) in [
            ("DROP INDEX CONCURRENTLY IF EXISTS i", "DROP INDEX IF EXISTS i"),
            ("ALTER INDEX IF EXISTS s.i RENAME TO \"J\"", "CALL rename_index ( s . i , \"J\" )"),
            ("REINDEX (VERBOSE) TABLE CONCURRENTLY s.t;", "CALL reindex ( 'table' , s . t )"),
            ("reindex index i", "CALL reindex ( 'index' , i )"),
            ("SET CONSTRAINTS ALL DEFERRED", "CALL set_constraints ( )"),
            ("ALTER INDEX i RENAME TO j", "ALTER INDEX i RENAME TO j"),
            ("DROP INDEX i", "DROP INDEX i"),
            ("SELECT 1", "SELECT 1"),
        ] {
            assert_eq!(changed(sql, rewrite), expected, "{sql}");
        }
    }
}
