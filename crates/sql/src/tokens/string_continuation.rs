//! String literal continuation: literals on consecutive lines are one literal, with line comments between
//! them or not: `'a' -- one` and `'b'` below it are `'ab'`. On one line they are an error, as in PostgreSQL;
//! the parser would take the second one for an alias.
//!
//! `OPTIONS ('key' 'value')` of tables and files is exempt.

use datafusion::error::Result;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan, Whitespace};
use harrier_error::{SqlError, SqlState};
use harrier_sqlstate::IntoDataFusionError;

use super::{Edit, Tokens};

/// Concatenates literals on consecutive lines.
///
/// Errors: they are on one line (42601).
pub fn rewrite(tokens: &mut Tokens<'_>) -> Result<()> {
    let mut edits = Vec::new();
    // For each open parenthesis, whether it is a list of key-value pairs.
    let mut open = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        match tokens.token(at) {
            Some(Token::LParen) => {
                let is_of_pairs = at > 0 && tokens.is_one_of(at - 1, &["options", "tblproperties"]);
                open.push(is_of_pairs || open.last() == Some(&true));
            }
            Some(Token::RParen) => {
                open.pop();
            }
            Some(first) if open.last() != Some(&true) => {
                if let Some((joined, behind)) = continued_literal(tokens, first, at)? {
                    edits.push(Edit::replace(at..behind, [joined]));
                    at = behind;
                    continue;
                }
            }
            _ => {}
        }
        at += 1;
    }
    tokens.edit(edits);
    Ok(())
}

/// The concatenated literal that begins at `at`, and the index after it; `None` if no other literal follows.
fn continued_literal(tokens: &Tokens<'_>, first: &Token, at: usize) -> Result<Option<(Token, usize)>> {
    let make: fn(String) -> Token = match first {
        Token::SingleQuotedString(_) => Token::SingleQuotedString,
        Token::EscapedStringLiteral(_) => Token::EscapedStringLiteral,
        _ => return Ok(None),
    };
    let (Token::SingleQuotedString(text) | Token::EscapedStringLiteral(text)) = first else {
        return Ok(None);
    };
    let (mut text, mut behind) = (text.clone(), at + 1);
    while let Some(Token::SingleQuotedString(next)) = tokens.token(behind) {
        if !are_lines(blanks_before(tokens, behind)) {
            let near = tokens.source(behind..behind + 1);
            let message = format!("syntax error at or near \"{near}\"");
            return Err(SqlError::new(SqlState::SYNTAX_ERROR, message).into_datafusion());
        }
        text.push_str(next);
        behind += 1;
    }
    Ok((behind > at + 1).then(|| (make(text), behind)))
}

fn blanks_before<'b>(tokens: &'b Tokens<'_>, at: usize) -> &'b [TokenWithSpan] {
    tokens.all.get(at).map_or(&[], |placed| &tokens.blanks[placed.blanks.clone()])
}

/// Whether these blanks contain a line break, and no block comment.
fn are_lines(blanks: &[TokenWithSpan]) -> bool {
    let is_long =
        |blank: &TokenWithSpan| matches!(blank.token, Token::Whitespace(Whitespace::MultiLineComment(_)));
    let ends = |blank: &TokenWithSpan| {
        matches!(blank.token, Token::Whitespace(Whitespace::Newline | Whitespace::SingleLineComment { .. }))
    };
    blanks.iter().any(ends) && !blanks.iter().any(is_long)
}

#[cfg(test)]
mod tests {
    use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;

    use super::*;

    fn tokens_of(sql: &str) -> Result<Vec<String>> {
        let mut tokens = Tokens::of(sql, &PostgreSqlDialect {})?;
        rewrite(&mut tokens)?;
        Ok((0..tokens.len()).filter_map(|at| tokens.token(at)).map(ToString::to_string).collect())
    }

    #[test]
    fn texts_on_lines_are_one() {
        for sql in ["SELECT 'a'\n'b'", "SELECT 'a' -- c\n 'b'", "SELECT 'a'\n\n-- c\n\t'b'"] {
            assert_eq!(tokens_of(sql).unwrap(), ["SELECT", "'ab'"], "{sql}");
        }
        assert_eq!(tokens_of("SELECT 'a'\n'b'\n'c', E'd'\n'e'").unwrap(), ["SELECT", "'abc'", ",", "E'de'"]);
        assert_eq!(tokens_of("OPTIONS ('a' 'b')").unwrap(), ["OPTIONS", "(", "'a'", "'b'", ")"]);
        assert_eq!(tokens_of("SELECT 'a' AS x, 'b'").unwrap().len(), 6);
    }

    #[test]
    fn texts_on_one_line_are_an_error() {
        for sql in
            ["SELECT 'a' 'b'", "SELECT 'a' /* c */ 'b'", "SELECT 'a'\n'b' 'c'", "SELECT 'a' /*\n*/ 'b'"]
        {
            let error = tokens_of(sql).unwrap_err();
            assert_eq!(harrier_sqlstate::of(&error), SqlState::SYNTAX_ERROR, "{sql}");
        }
    }
}
