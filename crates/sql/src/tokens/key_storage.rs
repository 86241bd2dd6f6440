//! `PRIMARY KEY (…) WITH (fillfactor = 90) USING INDEX TABLESPACE name`: how the index of a key is stored,
//! which means nothing where no index is built. The parser does not know the clauses.

use datafusion::error::Result;
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::Token;
use harrier_error::{SqlError, SqlState};
use harrier_sqlstate::IntoDataFusionError;

use super::{Edit, Tokens};

/// Drops the clauses.
///
/// Errors: an index has no such parameter, or not this value of it (22023).
pub fn rewrite(tokens: &mut Tokens<'_>) -> Result<()> {
    if !tokens.is_one_of(0, &["create", "alter"]) || !tokens.may_have(&[Keyword::PRIMARY, Keyword::UNIQUE]) {
        return Ok(());
    }
    let mut edits = Vec::new();
    for at in 1..tokens.len() {
        let mut end = match (tokens.are(at, &["primary", "key"]), tokens.is(at, "unique")) {
            (true, _) => at + 2,
            (_, true) if tokens.is(at + 1, "index") => continue,
            (_, true) => at + 1,
            _ => continue,
        };
        for nulls in [&["nulls", "not", "distinct"][..], &["nulls", "distinct"]] {
            if tokens.are(end, nulls) {
                end += nulls.len();
            }
        }
        if tokens.is_token(end, &Token::LParen) {
            end = tokens.after_parentheses(end).unwrap_or(end);
        }
        if tokens.is(end, "include") && tokens.is_token(end + 1, &Token::LParen) {
            end = tokens.after_parentheses(end + 1).unwrap_or(end);
        }
        if tokens.is(end, "with") && tokens.is_token(end + 1, &Token::LParen) {
            let Some(after) = tokens.after_parentheses(end + 1) else { continue };
            check_parameters(tokens, end + 2, after - 1)?;
            edits.push(Edit::remove(end..after));
            end = after;
        }
        if tokens.are(end, &["using", "index", "tablespace"]) {
            edits.push(Edit::remove(end..end + 4));
        }
    }
    tokens.edit(edits);
    Ok(())
}

/// Checks the parameters between `start` and `end`.
fn check_parameters(tokens: &Tokens<'_>, start: usize, end: usize) -> Result<()> {
    let invalid =
        |message: String| SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message).into_datafusion();
    let mut at = start;
    while at < end {
        let name = tokens.name(at).unwrap_or_default();
        let has_value = tokens.is_token(at + 1, &Token::Eq);
        let value = tokens.token(at + 2).filter(|_| has_value).map(ToString::to_string);
        let value = value.map(|value| value.trim_matches('\'').to_ascii_lowercase());
        let is_known = match (name.as_str(), &value) {
            ("fillfactor", Some(value)) => value.parse().is_ok_and(|share: u32| (10..=100).contains(&share)),
            ("fillfactor", None) => false,
            ("deduplicate_items", None) => true,
            ("deduplicate_items", Some(value)) => {
                ["on", "off", "true", "false", "yes", "no", "1", "0"].contains(&value.as_str())
            }
            _ => return Err(invalid(format!("unrecognized parameter \"{name}\""))),
        };
        if !is_known {
            let value = value.unwrap_or_default();
            return Err(invalid(format!("invalid value for option \"{name}\": \"{value}\"")));
        }
        at += if has_value { 4 } else { 2 };
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dialect::SqlDialect;

    fn of(sql: &str) -> Result<String> {
        let mut tokens = Tokens::of(sql, &SqlDialect)?;
        rewrite(&mut tokens)?;
        Ok(tokens.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn index_parameters_of_keys_are_dropped() {
        for (sql, expected) in [
            (
                "CREATE TABLE t (a int PRIMARY KEY WITH (fillfactor=90) USING INDEX TABLESPACE x, b int)",
                "CREATE TABLE t ( a int PRIMARY KEY , b int )",
            ),
            (
                "CREATE TABLE t (a int, UNIQUE NULLS NOT DISTINCT (a) WITH (fillfactor = 70, \
                 deduplicate_items) DEFERRABLE)",
                "CREATE TABLE t ( a int , UNIQUE NULLS NOT DISTINCT ( a ) DEFERRABLE )",
            ),
            (
                "ALTER TABLE t ADD CONSTRAINT k PRIMARY KEY (a) INCLUDE (b) USING INDEX TABLESPACE x",
                "ALTER TABLE t ADD CONSTRAINT k PRIMARY KEY ( a ) INCLUDE ( b )",
            ),
        ] {
            assert_eq!(of(sql).unwrap(), expected);
        }
        for sql in [
            "CREATE TABLE t ( a int PRIMARY KEY ) WITH ( fillfactor = 5 )",
            "CREATE UNIQUE INDEX i ON t ( a ) WITH ( fillfactor = 5 )",
            "SELECT unique ( a ) WITH ( nosuch )",
        ] {
            assert_eq!(of(sql).unwrap(), sql);
        }
    }

    #[test]
    fn unknown_parameters_are_refused() {
        for parameters in ["nosuch = 1", "fillfactor = 9", "fillfactor", "deduplicate_items = maybe"] {
            let error =
                of(&format!("CREATE TABLE t (a int, PRIMARY KEY (a) WITH ({parameters}))")).unwrap_err();
            assert_eq!(harrier_sqlstate::of(&error).as_str(), "22023", "{parameters}");
        }
    }
}
