//! `[NOT] DEFERRABLE` among transaction modes: transactions never wait for others before they begin, so it
//! has no effect.

use datafusion::sql::sqlparser::tokenizer::Token;

use crate::tokens::{Edit, Tokens};

/// Drops the mode.
pub fn rewrite(tokens: &mut Tokens<'_>) {
    let sets_modes = tokens.is(0, "set") && tokens.is_one_of(1, &["transaction", "session"]);
    if !sets_modes && !tokens.is_one_of(0, &["begin", "start"]) {
        return;
    }
    let mut edits: Vec<Edit> = Vec::new();
    for at in (1..tokens.len()).filter(|at| tokens.is(*at, "deferrable")) {
        let mut start = if tokens.is(at - 1, "not") { at - 1 } else { at };
        let mut end = at + 1;
        if start > 0 && tokens.is_token(start - 1, &Token::Comma) {
            start -= 1;
        } else if tokens.is_token(end, &Token::Comma) {
            end += 1;
        }
        edits.push(Edit::remove(start..end));
    }
    tokens.edit(edits);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tokens::testing::edited_text;

    #[test]
    fn default_transaction_modes_are_dropped() {
        for (sql, expected) in [
            (
                "BEGIN ISOLATION LEVEL SERIALIZABLE READ ONLY DEFERRABLE",
                "BEGIN ISOLATION LEVEL SERIALIZABLE READ ONLY",
            ),
            ("start transaction read write, not deferrable", "start transaction read write"),
            (
                "SET SESSION CHARACTERISTICS AS TRANSACTION NOT DEFERRABLE, READ WRITE",
                "SET SESSION CHARACTERISTICS AS TRANSACTION READ WRITE",
            ),
            ("SET deferrable = 1", "SET deferrable = 1"),
        ] {
            assert_eq!(edited_text(sql, rewrite), expected);
        }
    }
}
