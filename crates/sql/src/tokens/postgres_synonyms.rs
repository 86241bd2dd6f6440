//! PostgreSQL synonyms that the parser does not know: ABORT, LOCAL before TEMPORARY, ARRAY after a type. Also
//! rejects the statements of two-phase commit, which is not supported.

use datafusion::error::Result;
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::Token;
use harrier_error::{SqlError, SqlState};
use harrier_sqlstate::IntoDataFusionError;

use super::{Edit, Tokens, word};

/// The last words of types that ARRAY may follow.
const TYPES: [&str; 30] = [
    "bigint",
    "bool",
    "boolean",
    "bytea",
    "char",
    "character",
    "date",
    "dec",
    "decimal",
    "float",
    "float4",
    "float8",
    "int",
    "int2",
    "int4",
    "int8",
    "integer",
    "interval",
    "numeric",
    "precision",
    "real",
    "smallint",
    "text",
    "time",
    "timestamp",
    "timestamptz",
    "uuid",
    "varchar",
    "varying",
    "zone",
];

/// Rewrites the synonyms.
///
/// Errors: two-phase commit (0A000).
pub fn rewrite(tokens: &mut Tokens<'_>) -> Result<()> {
    check_phases(tokens)?;
    abort(tokens);
    temporary(tokens);
    arrays(tokens);
    Ok(())
}

/// Rejects PREPARE TRANSACTION, COMMIT PREPARED and ROLLBACK PREPARED.
fn check_phases(tokens: &Tokens<'_>) -> Result<()> {
    let is_about = tokens.are(0, &["prepare", "transaction"])
        || tokens.is_one_of(0, &["commit", "rollback"]) && tokens.is(1, "prepared");
    if !is_about || !matches!(tokens.token(2), Some(Token::SingleQuotedString(_))) {
        return Ok(());
    }
    let words = [0, 1].map(|at| tokens.word(at).unwrap_or_default().to_uppercase()).join(" ");
    Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, format!("{words} is not supported"))
        .with_hint("transactions have one phase: COMMIT")
        .into_datafusion())
}

/// Rewrites ABORT to ROLLBACK.
fn abort(tokens: &mut Tokens<'_>) {
    if tokens.is(0, "abort") {
        tokens.replace(0..1, [word("ROLLBACK")]);
    }
}

/// Drops LOCAL and GLOBAL before TEMPORARY, which have no effect.
fn temporary(tokens: &mut Tokens<'_>) {
    if !tokens.may_have(&[Keyword::LOCAL, Keyword::GLOBAL]) {
        return;
    }
    let at = match tokens.is(0, "create") {
        true => 1,
        // SELECT … INTO LOCAL TEMPORARY t.
        false => match (0..tokens.len()).find(|at| tokens.is(*at, "into")) {
            Some(into) => into + 1,
            None => return,
        },
    };
    if tokens.is_one_of(at, &["local", "global"]) && tokens.is_one_of(at + 1, &["temp", "temporary"]) {
        tokens.remove(at..at + 1);
    }
}

/// Rewrites `int ARRAY[4]` to `int[]`.
fn arrays(tokens: &mut Tokens<'_>) {
    if !tokens.may_have(&[Keyword::ARRAY]) {
        return;
    }
    let found: Vec<usize> = (1..tokens.len())
        .filter(|at| tokens.is(*at, "array") && ends_type(tokens, *at - 1) && !begins_array(tokens, *at))
        .collect();
    let brackets = |at: usize| {
        let is_sized = tokens.is_token(at + 1, &Token::LBracket);
        let end = if is_sized { at + 4 } else { at + 1 };
        Edit::replace(at..end.min(tokens.len()), [Token::LBracket, Token::RBracket])
    };
    let edits = found.into_iter().map(brackets).collect();
    tokens.edit(edits);
}

/// Whether a type ends at `at`, `numeric(10, 2)` with its modifiers.
fn ends_type(tokens: &Tokens<'_>, at: usize) -> bool {
    let mut last = at;
    if tokens.is_token(at, &Token::RParen) {
        let open = (0..at).rev().take(4).find(|at| tokens.is_token(*at, &Token::LParen));
        let is_plain =
            |at: usize| matches!(tokens.token(at), Some(Token::Number(..) | Token::Comma | Token::Minus));
        match open {
            Some(open) if open > 0 && (open + 1..at).all(is_plain) => last = open - 1,
            _ => return false,
        }
    }
    tokens.is_one_of(last, &TYPES)
}

/// Whether an array constructor begins at `at`: `ARRAY[a, b]` or `ARRAY(SELECT 1)`.
fn begins_array(tokens: &Tokens<'_>, at: usize) -> bool {
    match tokens.token(at + 1) {
        Some(Token::LBracket) => !matches!(
            (tokens.token(at + 2), tokens.token(at + 3)),
            (Some(Token::Number(..)), Some(Token::RBracket))
        ),
        Some(Token::LParen) => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::edited_text;
    use super::*;
    use crate::dialect::SqlDialect;

    fn rewritten(text: &str) -> String {
        edited_text(text, |tokens| rewrite(tokens).unwrap())
    }

    #[test]
    fn other_words_are_those_of_the_parser() {
        for (text, expected) in [
            ("ABORT", "ROLLBACK"),
            ("abort work and no chain", "ROLLBACK work and no chain"),
            ("CREATE LOCAL TEMPORARY TABLE t (a int)", "CREATE TEMPORARY TABLE t ( a int )"),
            ("create global temp table t as select 1", "create temp table t as select 1"),
            ("SELECT 1 INTO LOCAL TEMP t", "SELECT 1 INTO TEMP t"),
            ("CREATE TABLE t (l int4 array, b int)", "CREATE TABLE t ( l int4 [ ] , b int )"),
            ("CREATE TABLE t (l numeric(10,2) ARRAY[4])", "CREATE TABLE t ( l numeric ( 10 , 2 ) [ ] )"),
            ("CREATE TABLE t (l double precision ARRAY)", "CREATE TABLE t ( l double precision [ ] )"),
            ("SELECT CAST(x AS int ARRAY)", "SELECT CAST ( x AS int [ ] )"),
        ] {
            assert_eq!(rewritten(text), expected, "{text}");
        }
    }

    #[test]
    fn the_same_words_elsewhere_stay() {
        for text in [
            "SELECT ARRAY[1]",
            "SELECT abort FROM local",
            "SET LOCAL work_mem = '1MB'",
            "PREPARE transaction AS SELECT 1",
            "SELECT date, ARRAY[1] FROM t",
            "SELECT (1), ARRAY(SELECT 1)",
            "SELECT 'local temporary', \"array\" FROM t",
        ] {
            assert_eq!(rewritten(text), edited_text(text, |_| ()), "{text}");
        }
    }

    #[test]
    fn transactions_have_one_phase() {
        for text in ["PREPARE TRANSACTION 'x'", "commit prepared 'x'", "ROLLBACK PREPARED 'x'"] {
            let error = rewrite(&mut Tokens::of(text, &SqlDialect).unwrap()).unwrap_err();
            assert_eq!(harrier_sqlstate::of(&error).as_str(), "0A000", "{text}");
        }
    }
}
