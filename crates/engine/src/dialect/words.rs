//! Words that PostgreSQL has beside others for the same, and the parser has not: ABORT, LOCAL before
//! TEMPORARY, ARRAY behind a type. And those of transactions in two phases, of which there are none.

use datafusion::error::Result;
use datafusion::sql::sqlparser::dialect::Dialect;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan, Tokenizer};
use harrier_error::{SqlError, SqlState};
use harrier_sqlstate::IntoDataFusionError;

/// The last words of types behind which ARRAY makes an array of them.
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

/// The tokens to parse instead of `text`, or of `tokens` if it is told to parse others already.
///
/// Errors: it is about a transaction in two phases (0A000).
pub(crate) fn tokens(
    text: &str,
    tokens: Option<Vec<TokenWithSpan>>,
    dialect: &dyn Dialect,
) -> Result<Option<Vec<TokenWithSpan>>> {
    const WORDS: [&[u8]; 6] = [b"abort", b"local", b"global", b"array", b"prepared", b"prepare"];
    let has = |word: &[u8]| text.as_bytes().windows(word.len()).any(|part| part.eq_ignore_ascii_case(word));
    if !WORDS.iter().any(|word| has(word)) {
        return Ok(tokens);
    }
    let mut all = match &tokens {
        Some(tokens) => tokens.clone(),
        None => match Tokenizer::new(dialect, text).tokenize_with_location() {
            Ok(all) => all,
            Err(_) => return Ok(tokens),
        },
    };
    all.retain(|token| !matches!(token.token, Token::Whitespace(_)));
    check_phases(&all)?;
    let is_changed = abort(&mut all) | temporary(&mut all) | arrays(&mut all);
    Ok(if is_changed { Some(all) } else { tokens })
}

fn word(tokens: &[TokenWithSpan], at: usize) -> Option<String> {
    match tokens.get(at).map(|token| &token.token) {
        Some(Token::Word(word)) if word.quote_style.is_none() => Some(word.value.to_ascii_lowercase()),
        _ => None,
    }
}

fn is(tokens: &[TokenWithSpan], at: usize, expected: &str) -> bool {
    word(tokens, at).as_deref() == Some(expected)
}

/// `PREPARE TRANSACTION 'x'`, `COMMIT PREPARED 'x'`, `ROLLBACK PREPARED 'x'`.
fn check_phases(tokens: &[TokenWithSpan]) -> Result<()> {
    let verb = word(tokens, 0).unwrap_or_default();
    let is_text = matches!(tokens.get(2).map(|token| &token.token), Some(Token::SingleQuotedString(_)));
    let is_about = match verb.as_str() {
        "prepare" => is(tokens, 1, "transaction"),
        "commit" | "rollback" => is(tokens, 1, "prepared"),
        _ => false,
    };
    if !is_about || !is_text {
        return Ok(());
    }
    let words = [Some(verb), word(tokens, 1)].into_iter().flatten().collect::<Vec<_>>().join(" ");
    let message = format!("{} is not supported", words.to_uppercase());
    Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message)
        .with_hint("transactions have one phase: COMMIT")
        .into_datafusion())
}

/// `ABORT [WORK | TRANSACTION] [AND [NO] CHAIN]` is ROLLBACK.
fn abort(tokens: &mut [TokenWithSpan]) -> bool {
    let is_abort = is(tokens, 0, "abort");
    if is_abort {
        tokens[0].token = Token::make_word("ROLLBACK", None);
    }
    is_abort
}

/// `CREATE LOCAL TEMPORARY TABLE`, and GLOBAL, which PostgreSQL reads the same way.
fn temporary(tokens: &mut Vec<TokenWithSpan>) -> bool {
    let is_kind = |at: usize| is(tokens, at, "local") || is(tokens, at, "global");
    let is_table = |at: usize| is(tokens, at, "temp") || is(tokens, at, "temporary");
    let at = match () {
        () if is(tokens, 0, "create") => 1,
        // SELECT … INTO LOCAL TEMPORARY t.
        () => match (0..tokens.len()).find(|at| is(tokens, *at, "into")) {
            Some(into) => into + 1,
            None => return false,
        },
    };
    let found = is_kind(at) && is_table(at + 1);
    if found {
        tokens.remove(at);
    }
    found
}

/// `int ARRAY`, `numeric(10, 2) ARRAY[4]`: the sizes of arrays are not kept, as in PostgreSQL.
fn arrays(tokens: &mut Vec<TokenWithSpan>) -> bool {
    let found: Vec<usize> = (1..tokens.len())
        .filter(|at| is(tokens, *at, "array") && ends_type(tokens, *at - 1) && !begins_array(tokens, *at))
        .collect();
    for at in found.iter().rev() {
        let span = tokens[*at].span;
        let is_sized = tokens.get(at + 1).is_some_and(|token| token.token == Token::LBracket);
        let last = if is_sized { at + 3 } else { *at };
        let last = last.min(tokens.len() - 1);
        let brackets = [Token::LBracket, Token::RBracket].map(|token| TokenWithSpan { token, span });
        tokens.splice(at..=&last, brackets);
    }
    !found.is_empty()
}

/// Whether the token at `at` is the last of a type: its name, or what is in parentheses behind that.
fn ends_type(tokens: &[TokenWithSpan], at: usize) -> bool {
    let mut last = at;
    if tokens[at].token == Token::RParen {
        let open = (0..at).rev().take(4).find(|at| tokens[*at].token == Token::LParen);
        let is_plain =
            |at: usize| matches!(tokens[at].token, Token::Number(..) | Token::Comma | Token::Minus);
        match open {
            Some(open) if open > 0 && (open + 1..at).all(is_plain) => last = open - 1,
            _ => return false,
        }
    }
    word(tokens, last).is_some_and(|word| TYPES.contains(&word.as_str()))
}

/// Whether ARRAY at `at` begins an array of values, `ARRAY[…]` of anything but one number.
fn begins_array(tokens: &[TokenWithSpan], at: usize) -> bool {
    let token = |at: usize| tokens.get(at).map(|token| &token.token);
    match token(at + 1) {
        Some(Token::LBracket) => {
            !matches!((token(at + 2), token(at + 3)), (Some(Token::Number(..)), Some(Token::RBracket)))
        }
        Some(Token::LParen) => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;

    use super::*;

    fn read(text: &str) -> Option<String> {
        let tokens = tokens(text, None, &PostgreSqlDialect {}).unwrap()?;
        let words = tokens.iter().map(|token| token.token.to_string());
        Some(words.filter(|word| word != "EOF").collect::<Vec<_>>().join(" "))
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
            assert_eq!(read(text).as_deref(), Some(expected), "{text}");
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
            assert_eq!(read(text), None, "{text}");
        }
    }

    #[test]
    fn transactions_have_one_phase() {
        for text in ["PREPARE TRANSACTION 'x'", "commit prepared 'x'", "ROLLBACK PREPARED 'x'"] {
            let error = tokens(text, None, &PostgreSqlDialect {}).unwrap_err();
            assert_eq!(harrier_sqlstate::of(&error).as_str(), "0A000", "{text}");
        }
    }
}
