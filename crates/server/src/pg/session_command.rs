//! Session commands, which the engine does not run: cursors, DISCARD, DEALLOCATE, LISTEN. The session parses
//! those about cursors.

use harrier_error::{SqlError, SqlState};
use harrier_session_api::cursor::CursorStatement;

/// A command that the protocol's session runs itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SessionCommand {
    Cursor(CursorStatement),
    DiscardAll,
    /// Drops the session's temporary tables.
    DiscardTemporary,
    DiscardSequences,
    /// Drops a prepared statement of the protocol, or else of SQL; `None`: all of both.
    Deallocate(Option<String>),
    /// No-op: there are no notifications.
    Nothing(&'static str),
    /// No-op, but only for superusers.
    Checkpoint,
}

impl SessionCommand {
    /// The command tag, without counts.
    pub(crate) fn tag(&self) -> &'static str {
        match self {
            Self::Cursor(cursor) => cursor.tag(),
            Self::DiscardAll => "DISCARD ALL",
            Self::DiscardTemporary => "DISCARD TEMP",
            Self::DiscardSequences => "DISCARD SEQUENCES",
            Self::Deallocate(Some(_)) => "DEALLOCATE",
            Self::Deallocate(None) => "DEALLOCATE ALL",
            Self::Nothing(tag) => tag,
            Self::Checkpoint => "CHECKPOINT",
        }
    }
}

/// Parses `text` as a session command; `None` for other statements. `cursor` parses those about cursors.
///
/// Errors: a syntax error (42601), or an unsupported feature (0A000).
pub(crate) fn parse(
    text: &str,
    cursor: impl FnOnce(&str) -> Result<Option<CursorStatement>, SqlError>,
) -> Result<Option<SessionCommand>, SqlError> {
    let mut words = Words { rest: text };
    let Some(first) = words.next() else {
        return Ok(None);
    };
    let command = match first.to_ascii_lowercase().as_str() {
        "declare" | "fetch" | "move" | "close" => {
            return Ok(cursor(text)?.map(SessionCommand::Cursor));
        }
        "discard" => match words.next().map(str::to_ascii_lowercase).as_deref() {
            Some("all") => SessionCommand::DiscardAll,
            Some("plans") => SessionCommand::Nothing("DISCARD PLANS"),
            Some("sequences") => SessionCommand::DiscardSequences,
            Some("temp" | "temporary") => SessionCommand::DiscardTemporary,
            other => return Err(syntax_error(other)),
        },
        "deallocate" => {
            let mut word = words.next();
            if word.is_some_and(|word| word.eq_ignore_ascii_case("prepare")) {
                word = words.next();
            }
            match word {
                Some(name) if name.eq_ignore_ascii_case("all") => SessionCommand::Deallocate(None),
                Some(name) => SessionCommand::Deallocate(Some(fold_identifier(name))),
                None => return Err(syntax_error(None)),
            }
        }
        "unlisten" => {
            words.next();
            SessionCommand::Nothing("UNLISTEN")
        }
        "listen" | "notify" => {
            return Err(SqlError::new(
                SqlState::FEATURE_NOT_SUPPORTED,
                format!("{} is not supported", first.to_uppercase()),
            ));
        }
        "checkpoint" => SessionCommand::Checkpoint,
        _ => return Ok(None),
    };
    match words.next() {
        None => Ok(Some(command)),
        other => Err(syntax_error(other)),
    }
}

fn syntax_error(word: Option<&str>) -> SqlError {
    match word {
        Some(word) => SqlError::new(SqlState::SYNTAX_ERROR, format!("syntax error at or near \"{word}\"")),
        None => SqlError::new(SqlState::SYNTAX_ERROR, "syntax error at end of input"),
    }
}

/// Folds an SQL identifier: lower case unless quoted.
fn fold_identifier(word: &str) -> String {
    match word.strip_prefix('"').and_then(|word| word.strip_suffix('"')) {
        Some(quoted) => quoted.replace("\"\"", "\""),
        None => word.to_ascii_lowercase(),
    }
}

/// The words and signs of a statement, without comments.
pub(crate) fn words(text: &str) -> impl Iterator<Item = &str> {
    let mut words = Words { rest: text };
    std::iter::from_fn(move || words.next())
}

/// Iterator over the words of a statement; skips comments.
struct Words<'t> {
    rest: &'t str,
}

impl<'t> Words<'t> {
    fn skip(&mut self) {
        loop {
            self.rest = self.rest.trim_start();
            if let Some(comment) = self.rest.strip_prefix("--") {
                self.rest = comment.split_once('\n').map_or("", |(_, rest)| rest);
            } else if let Some(comment) = self.rest.strip_prefix("/*") {
                self.rest = comment.split_once("*/").map_or("", |(_, rest)| rest);
            } else {
                return;
            }
        }
    }

    fn next(&mut self) -> Option<&'t str> {
        self.skip();
        let first = self.rest.chars().next()?;
        let end = match first {
            '"' => {
                let mut end = 1;
                loop {
                    let quote = self.rest[end..].find('"').map(|at| end + at + 1);
                    match quote {
                        None => break self.rest.len(),
                        Some(at) if self.rest[at..].starts_with('"') => end = at + 1,
                        Some(at) => break at,
                    }
                }
            }
            first if first.is_alphanumeric() || matches!(first, '_' | '-') => self
                .rest
                .char_indices()
                .find(|(at, c)| *at > 0 && !c.is_alphanumeric() && !matches!(c, '_' | '$'))
                .map_or(self.rest.len(), |(at, _)| at),
            other => other.len_utf8(),
        };
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest;
        Some(word)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_are_known() {
        let cases: [(&str, Result<Option<SessionCommand>, &str>); 12] = [
            ("SELECT 1", Ok(None)),
            ("-- nothing\n", Ok(None)),
            ("/* x */ discard all", Ok(Some(SessionCommand::DiscardAll))),
            ("DISCARD TEMP", Ok(Some(SessionCommand::DiscardTemporary))),
            ("discard temporary", Ok(Some(SessionCommand::DiscardTemporary))),
            ("DISCARD SEQUENCES", Ok(Some(SessionCommand::DiscardSequences))),
            ("DISCARD", Err("42601")),
            ("DISCARD ALL x", Err("42601")),
            ("DEALLOCATE PREPARE ALL", Ok(Some(SessionCommand::Deallocate(None)))),
            ("deallocate \"a \"\"b\"", Ok(Some(SessionCommand::Deallocate(Some("a \"b".to_string()))))),
            ("LISTEN x", Err("0A000")),
            ("CHECKPOINT", Ok(Some(SessionCommand::Checkpoint))),
        ];
        for (text, expected) in cases {
            let found = parse(text, |_| panic!("no cursor")).map_err(|failure| failure.sqlstate.to_string());
            assert_eq!(found, expected.map_err(str::to_string), "{text}");
        }
        for text in ["-- c\nfetch c", "DECLARE", "Move 1 c", "CLOSE c"] {
            let cursor = CursorStatement::Close(Some(text.to_string()));
            let found = parse(text, |found| Ok(Some(CursorStatement::Close(Some(found.to_string())))));
            assert_eq!(found, Ok(Some(SessionCommand::Cursor(cursor))));
        }
    }
}
