//! `EXCLUDE` at the end of a window frame: `EXCLUDE NO OTHERS` is the default and is dropped; the other kinds
//! are not supported.

use datafusion::error::Result;
use datafusion::sql::sqlparser::tokenizer::Token;
use harrier_error::{SqlError, SqlState};
use harrier_sqlstate::IntoDataFusionError;

use super::{Edit, Tokens};

/// Drops `EXCLUDE NO OTHERS`.
///
/// Errors: another kind of exclusion (0A000).
pub fn rewrite(tokens: &mut Tokens<'_>) -> Result<()> {
    const KINDS: [&[&str]; 4] = [&["no", "others"], &["current", "row"], &["group"], &["ties"]];
    let mut edits = Vec::new();
    for at in 1..tokens.len() {
        // Only after a frame bound: elsewhere the word is a name.
        if !tokens.is(at, "exclude") || !tokens.is_one_of(at - 1, &["row", "preceding", "following"]) {
            continue;
        }
        let is_last =
            |kind: &&[&str]| tokens.are(at + 1, kind) && tokens.is_token(at + 1 + kind.len(), &Token::RParen);
        match KINDS.into_iter().find(is_last) {
            Some(["no", "others"]) => edits.push(Edit::remove(at..at + 3)),
            Some(kind) => {
                let kind = kind.join(" ").to_uppercase();
                let message = format!("EXCLUDE {kind} in a frame of a window is not supported");
                return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message).into_datafusion());
            }
            None => {}
        }
    }
    tokens.edit(edits);
    Ok(())
}

#[cfg(test)]
mod tests {
    use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;

    use super::*;

    fn of(sql: &str) -> Result<String> {
        let mut tokens = Tokens::of(sql, &PostgreSqlDialect {})?;
        rewrite(&mut tokens)?;
        let all: Vec<String> =
            (0..tokens.len()).filter_map(|at| tokens.token(at)).map(ToString::to_string).collect();
        Ok(all.join(" "))
    }

    #[test]
    fn exclude_no_others_is_dropped() {
        assert_eq!(
            of("OVER (ORDER BY a ROWS 1 PRECEDING EXCLUDE NO OTHERS)").unwrap(),
            "OVER ( ORDER BY a ROWS 1 PRECEDING )"
        );
        for kind in ["CURRENT ROW", "GROUP", "TIES"] {
            let error =
                of(&format!("(ROWS BETWEEN 1 PRECEDING AND CURRENT ROW EXCLUDE {kind})")).unwrap_err();
            assert_eq!(harrier_sqlstate::of(&error), SqlState::FEATURE_NOT_SUPPORTED, "{kind}");
        }
        for same in ["SELECT exclude FROM exclude GROUP BY exclude", "( SELECT a FROM following exclude )"] {
            assert_eq!(of(same).unwrap(), same);
        }
    }
}
