//! `U&'d!0061t!+000061' UESCAPE '!'`: a text with another escape character than the backslash, which the
//! tokenizer knows alone. It becomes a plain literal.

use datafusion::error::{DataFusionError, Result};
use datafusion::sql::sqlparser::tokenizer::Token;
use harrier_error::{SqlError, SqlState};
use harrier_sqlstate::IntoDataFusionError;

use super::{Edit, Tokens};

/// Decodes the literals that have an escape character of their own.
///
/// Errors: it is none, or an escape in the text is not valid (42601).
pub fn rewrite(tokens: &mut Tokens<'_>) -> Result<()> {
    let mut edits = Vec::new();
    for at in 0..tokens.len() {
        if !matches!(tokens.token(at), Some(Token::UnicodeStringLiteral(_)))
            || !tokens.is_one_of(at + 1, &["uescape"])
        {
            continue;
        }
        let Some(Token::SingleQuotedString(escape)) = tokens.token(at + 2) else {
            return Err(error("UESCAPE must be followed by a simple string literal"));
        };
        let mut characters = escape.chars();
        let escape = match (characters.next(), characters.next()) {
            (Some(escape), None) if is_escape(escape) => escape,
            _ => return Err(error("invalid Unicode escape character")),
        };
        // The token has what backslashes stand for.
        let written = tokens.source(at..at + 1);
        let written = written.get(3..written.len() - 1).unwrap_or_default().replace("''", "'");
        edits.push(Edit::replace(at..at + 3, [Token::SingleQuotedString(decode(&written, escape)?)]));
    }
    tokens.edit(edits);
    Ok(())
}

fn error(message: &str) -> DataFusionError {
    SqlError::new(SqlState::SYNTAX_ERROR, message).into_datafusion()
}

fn is_escape(character: char) -> bool {
    !character.is_ascii_hexdigit() && !matches!(character, '+' | '\'' | '"') && !character.is_whitespace()
}

fn decode(text: &str, escape: char) -> Result<String> {
    let invalid = || error("invalid Unicode escape");
    let mut units = Vec::new();
    let mut rest = text;
    while let Some(character) = rest.chars().next() {
        rest = &rest[character.len_utf8()..];
        let digits = match rest.chars().next() {
            _ if character != escape => {
                units.extend_from_slice(character.encode_utf16(&mut [0; 2]));
                continue;
            }
            Some(again) if again == escape => {
                rest = &rest[escape.len_utf8()..];
                units.extend_from_slice(escape.encode_utf16(&mut [0; 2]));
                continue;
            }
            Some('+') => {
                rest = &rest[1..];
                6
            }
            _ => 4,
        };
        let number =
            rest.get(..digits).filter(|number| number.bytes().all(|digit| digit.is_ascii_hexdigit()));
        let number = number.and_then(|number| u32::from_str_radix(number, 16).ok()).ok_or_else(invalid)?;
        rest = &rest[digits..];
        match (u16::try_from(number), char::from_u32(number)) {
            // Half of a pair, or a character.
            (Ok(unit), _) if unit != 0 => units.push(unit),
            (Err(_), Some(character)) => units.extend_from_slice(character.encode_utf16(&mut [0; 2])),
            _ => return Err(error("invalid Unicode escape value")),
        }
    }
    String::from_utf16(&units).map_err(|_| error("invalid Unicode surrogate pair"))
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
    fn texts_have_their_own_escape_character() {
        for (sql, expected) in [
            ("U&'d!0061t!+000061' UESCAPE '!'", "'data'"),
            ("u&'!!a\\0041''b' uescape '!'", "'!a\\0041'b'"),
            ("U&'x*D83D*DE00y' UESCAPE '*'", "'x😀y'"),
            ("U&'plain' UESCAPE '!'", "'plain'"),
        ] {
            assert_eq!(tokens_of(sql).unwrap(), [expected], "{sql}");
        }
    }

    #[test]
    fn bad_escapes_are_an_error() {
        for sql in [
            "U&'!00' UESCAPE '!'",
            "U&'!0000' UESCAPE '!'",
            "U&'!D83Dx' UESCAPE '!'",
            "U&'!+110000' UESCAPE '!'",
            "U&'a' UESCAPE 'b'",
            "U&'a' UESCAPE '+'",
            "U&'a' UESCAPE ''",
            "U&'a' UESCAPE 5",
        ] {
            let error = tokens_of(sql).unwrap_err();
            assert_eq!(harrier_sqlstate::of(&error), SqlState::SYNTAX_ERROR, "{sql}");
        }
    }
}
