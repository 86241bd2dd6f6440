//! Statements about the conversation itself, which the engine does not run: cursors, DISCARD, DEALLOCATE,
//! LISTEN. Those about cursors are parsed by the session.

use harrier_error::{SqlError, SqlState};

use crate::backend::CursorStatement;

/// A statement that the session with the client answers by itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Own {
    Cursor(CursorStatement),
    DiscardAll,
    /// The tables of the session.
    DiscardTemporary,
    DiscardSequences,
    /// Forgets a prepared statement of the protocol, or else of SQL; `None`: all of both.
    Deallocate(Option<String>),
    /// Nothing to do: nobody notifies anybody.
    Nothing(&'static str),
    /// Nothing to do, either, but for superusers.
    Checkpoint,
}

impl Own {
    /// What PostgreSQL says when it is done, without counts.
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

/// `text` as such a statement, if it is one. `cursor` parses those about cursors.
///
/// Errors: it is one that is not understood (42601), or that asks for what there is not (0A000).
pub(crate) fn parse(
    text: &str,
    cursor: impl FnOnce(&str) -> Result<Option<CursorStatement>, SqlError>,
) -> Result<Option<Own>, SqlError> {
    let mut words = Words { rest: text };
    let Some(first) = words.next() else {
        return Ok(None);
    };
    let own = match first.to_ascii_lowercase().as_str() {
        "declare" | "fetch" | "move" | "close" => {
            return Ok(cursor(text)?.map(Own::Cursor));
        }
        "discard" => match words.next().map(str::to_ascii_lowercase).as_deref() {
            Some("all") => Own::DiscardAll,
            Some("plans") => Own::Nothing("DISCARD PLANS"),
            Some("sequences") => Own::DiscardSequences,
            Some("temp" | "temporary") => Own::DiscardTemporary,
            other => return Err(unexpected(other)),
        },
        "deallocate" => {
            let mut word = words.next();
            if word.is_some_and(|word| word.eq_ignore_ascii_case("prepare")) {
                word = words.next();
            }
            match word {
                Some(name) if name.eq_ignore_ascii_case("all") => Own::Deallocate(None),
                Some(name) => Own::Deallocate(Some(plain(name))),
                None => return Err(unexpected(None)),
            }
        }
        "unlisten" => {
            words.next();
            Own::Nothing("UNLISTEN")
        }
        "listen" | "notify" => {
            return Err(SqlError::new(
                SqlState::FEATURE_NOT_SUPPORTED,
                format!("{} is not supported", first.to_uppercase()),
            ));
        }
        "checkpoint" => Own::Checkpoint,
        _ => return Ok(None),
    };
    match words.next() {
        None => Ok(Some(own)),
        other => Err(unexpected(other)),
    }
}

fn unexpected(word: Option<&str>) -> SqlError {
    match word {
        Some(word) => SqlError::new(SqlState::SYNTAX_ERROR, format!("syntax error at or near \"{word}\"")),
        None => SqlError::new(SqlState::SYNTAX_ERROR, "syntax error at end of input"),
    }
}

/// A name as SQL has it: in lower case unless it is quoted.
fn plain(word: &str) -> String {
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

/// Words of a statement, one after the other; comments between them are skipped.
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
        let cases: [(&str, Result<Option<Own>, &str>); 12] = [
            ("SELECT 1", Ok(None)),
            ("-- nothing\n", Ok(None)),
            ("/* x */ discard all", Ok(Some(Own::DiscardAll))),
            ("DISCARD TEMP", Ok(Some(Own::DiscardTemporary))),
            ("discard temporary", Ok(Some(Own::DiscardTemporary))),
            ("DISCARD SEQUENCES", Ok(Some(Own::DiscardSequences))),
            ("DISCARD", Err("42601")),
            ("DISCARD ALL x", Err("42601")),
            ("DEALLOCATE PREPARE ALL", Ok(Some(Own::Deallocate(None)))),
            ("deallocate \"a \"\"b\"", Ok(Some(Own::Deallocate(Some("a \"b".to_string()))))),
            ("LISTEN x", Err("0A000")),
            ("CHECKPOINT", Ok(Some(Own::Checkpoint))),
        ];
        for (text, expected) in cases {
            let found = parse(text, |_| panic!("no cursor")).map_err(|failure| failure.sqlstate.to_string());
            assert_eq!(found, expected.map_err(str::to_string), "{text}");
        }
        for text in ["-- c\nfetch c", "DECLARE", "Move 1 c", "CLOSE c"] {
            let cursor = CursorStatement::Close(Some(text.to_string()));
            let found = parse(text, |found| Ok(Some(CursorStatement::Close(Some(found.to_string())))));
            assert_eq!(found, Ok(Some(Own::Cursor(cursor))));
        }
    }
}
