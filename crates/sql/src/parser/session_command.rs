//! Parser of statements that a client's connection runs: those about cursors, DISCARD, DEALLOCATE, LISTEN,
//! NOTIFY, UNLISTEN and CHECKPOINT.

use datafusion::error::Result;
use datafusion::sql::sqlparser::tokenizer::Token;
use harrier_session_api::command::{Discard, SessionCommand};

use crate::dialect::SqlDialect;
use crate::nesting::NESTING_MAX;
use crate::parser::cursor;
use crate::tokens::Tokens;
use crate::words::{StatementWords, first_word};

/// First keywords of those that are not about cursors.
const FIRST: [&str; 6] = ["checkpoint", "deallocate", "discard", "listen", "notify", "unlisten"];

/// Parses a session command from text; `None` for other statements, of which only the first word is read.
///
/// Errors: as [`parse`]; unterminated string literal or comment (42601).
pub fn parse_text(text: &str) -> Result<Option<SessionCommand>> {
    let first = first_word(text);
    if !FIRST.iter().chain(&cursor::FIRST).any(|word| word.eq_ignore_ascii_case(first)) {
        return Ok(None);
    }
    parse(&Tokens::of(text, &SqlDialect)?)
}

/// Parses a session command; `None` for other statements.
///
/// Errors: it is malformed (42601), or has both SCROLL and NO SCROLL (42P11).
pub fn parse(tokens: &Tokens<'_>) -> Result<Option<SessionCommand>> {
    if let Some(statement) = cursor::parse(tokens)? {
        return Ok(Some(SessionCommand::Cursor(statement)));
    }
    if !tokens.is_one_of(0, &FIRST) {
        return Ok(None);
    }
    let mut words = StatementWords(tokens.parser(NESTING_MAX));
    let command = match () {
        () if words.take("checkpoint") => SessionCommand::Checkpoint,
        () if words.take("discard") => SessionCommand::Discard(match () {
            () if words.take("all") => Discard::All,
            () if words.take("plans") => Discard::Plans,
            () if words.take("sequences") => Discard::Sequences,
            () if words.take_any(&["temp", "temporary"]) => Discard::Temporary,
            () => return Err(words.syntax_error()),
        }),
        () if words.take("deallocate") => {
            words.take("prepare");
            SessionCommand::Deallocate(if words.take("all") { None } else { Some(words.name()?) })
        }
        () if words.take("listen") => {
            words.name()?;
            SessionCommand::Listen
        }
        () if words.take("notify") => {
            words.name()?;
            if words.0.consume_token(&Token::Comma) {
                words.text()?;
            }
            SessionCommand::Notify
        }
        () => {
            words.expect("unlisten")?;
            if !words.0.consume_token(&Token::Mul) {
                words.name()?;
            }
            SessionCommand::Unlisten
        }
    };
    words.end()?;
    Ok(Some(command))
}

#[cfg(test)]
mod tests {
    use harrier_session_api::cursor::CursorStatement;

    use super::*;

    #[test]
    fn session_commands_are_parsed() {
        let deallocate = |name: &str| Ok(Some(SessionCommand::Deallocate(Some(name.to_string()))));
        let cases: [(&str, Result<Option<SessionCommand>, &str>); 24] = [
            ("SELECT 1", Ok(None)),
            ("-- nothing\n", Ok(None)),
            ("", Ok(None)),
            ("discarded", Ok(None)),
            ("/* x /* y */ */ discard all", Ok(Some(SessionCommand::Discard(Discard::All)))),
            ("DISCARD PLANS;", Ok(Some(SessionCommand::Discard(Discard::Plans)))),
            ("DISCARD TEMP", Ok(Some(SessionCommand::Discard(Discard::Temporary)))),
            ("discard temporary", Ok(Some(SessionCommand::Discard(Discard::Temporary)))),
            ("DISCARD SEQUENCES", Ok(Some(SessionCommand::Discard(Discard::Sequences)))),
            ("DISCARD", Err("42601")),
            ("DISCARD x", Err("42601")),
            ("DISCARD ALL x", Err("42601")),
            ("DEALLOCATE PREPARE ALL", Ok(Some(SessionCommand::Deallocate(None)))),
            ("deallocate \"a \"\"b\"", deallocate("a \"b")),
            ("DEALLOCATE P", deallocate("p")),
            ("DEALLOCATE PREPARE \"all\"", deallocate("all")),
            ("DEALLOCATE", Err("42601")),
            ("LISTEN x", Ok(Some(SessionCommand::Listen))),
            ("NOTIFY x, 'y'", Ok(Some(SessionCommand::Notify))),
            ("UNLISTEN *", Ok(Some(SessionCommand::Unlisten))),
            ("UNLISTEN", Err("42601")),
            ("CHECKPOINT", Ok(Some(SessionCommand::Checkpoint))),
            ("-- c\nclose c", Ok(Some(SessionCommand::Cursor(CursorStatement::Close(Some("c".into())))))),
            ("DECLARE", Err("42601")),
        ];
        for (text, expected) in cases {
            let found = parse_text(text).map_err(|error| harrier_sqlstate::of(&error).as_str().to_string());
            assert_eq!(found, expected.map_err(str::to_string), "{text}");
        }
    }
}
