//! Statements about the conversation itself, which no engine needs to see: cursors, DISCARD, DEALLOCATE,
//! LISTEN.

use harrier_error::{SqlError, SqlState};

/// A statement that the session with the client answers by itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Own {
    Declare {
        name: String,
        query: String,
        is_held: bool,
        is_binary: bool,
        /// FETCH may go back.
        scrolls: bool,
    },
    Fetch {
        name: String,
        step: Step,
        is_move: bool,
    },
    /// `None`: all cursors.
    Close(Option<String>),
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

/// Where FETCH goes from the row of a cursor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// To the rows behind it; no row is that row itself once more.
    Forward(Count),
    /// To the rows before it, the next one first.
    Backward(Count),
    /// To one row, counted from 1; from -1 where the last is meant.
    Absolute(i64),
    /// To the row that is so many behind it.
    Relative(i64),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Count {
    Rows(u64),
    All,
}

impl Step {
    /// So many rows forward, or backward if they are less than none.
    fn of(rows: i64) -> Self {
        let count = Count::Rows(rows.unsigned_abs());
        if rows < 0 { Self::Backward(count) } else { Self::Forward(count) }
    }

    fn back(self) -> Self {
        match self {
            // Which is the row itself, either way.
            Self::Forward(Count::Rows(0)) => self,
            Self::Forward(count) => Self::Backward(count),
            Self::Backward(count) => Self::Forward(count),
            other => other,
        }
    }
}

impl Own {
    /// What PostgreSQL says when it is done, without counts.
    pub(crate) fn tag(&self) -> &'static str {
        match self {
            Self::Declare { .. } => "DECLARE CURSOR",
            Self::Fetch { is_move: false, .. } => "FETCH",
            Self::Fetch { is_move: true, .. } => "MOVE",
            Self::Close(Some(_)) => "CLOSE CURSOR",
            Self::Close(None) => "CLOSE CURSOR ALL",
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

/// `text` as such a statement, if it is one.
///
/// Errors: it is one that is not understood (42601), or that asks for what there is not (0A000).
pub(crate) fn parse(text: &str) -> Result<Option<Own>, SqlError> {
    let mut words = Words { rest: text };
    let Some(first) = words.next() else {
        return Ok(None);
    };
    let own = match first.to_ascii_lowercase().as_str() {
        "declare" => declare(&mut words)?,
        "fetch" => fetch(&mut words, false)?,
        "move" => fetch(&mut words, true)?,
        "close" => match words.next() {
            Some(name) if name.eq_ignore_ascii_case("all") => Own::Close(None),
            Some(name) => Own::Close(Some(plain(name))),
            None => return Err(unexpected(None)),
        },
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

fn declare(words: &mut Words<'_>) -> Result<Own, SqlError> {
    let name = plain(words.next().ok_or_else(|| unexpected(None))?);
    let (mut is_held, mut is_binary, mut scrolls, mut goes_forward) = (false, false, false, false);
    loop {
        match words.next().map(str::to_ascii_lowercase).as_deref() {
            Some("binary") => is_binary = true,
            Some("scroll") => scrolls = true,
            Some("no") => match words.next() {
                Some(word) if word.eq_ignore_ascii_case("scroll") => goes_forward = true,
                other => return Err(unexpected(other)),
            },
            Some("insensitive" | "asensitive") => {}
            Some("cursor") => break,
            other => return Err(unexpected(other)),
        }
    }
    loop {
        match words.next().map(str::to_ascii_lowercase).as_deref() {
            Some(with @ ("with" | "without")) => match words.next() {
                Some(word) if word.eq_ignore_ascii_case("hold") => is_held = with == "with",
                other => return Err(unexpected(other)),
            },
            Some("for") => break,
            other => return Err(unexpected(other)),
        }
    }
    if scrolls && goes_forward {
        return Err(SqlError::new(
            SqlState::INVALID_CURSOR_DEFINITION,
            "cannot specify both SCROLL and NO SCROLL",
        ));
    }
    let query = words.all();
    match query.is_empty() {
        true => Err(unexpected(None)),
        false => Ok(Own::Declare { name, query: query.to_string(), is_held, is_binary, scrolls }),
    }
}

fn fetch<'t>(words: &mut Words<'t>, is_move: bool) -> Result<Own, SqlError> {
    let mut word = words.next().ok_or_else(|| unexpected(None))?;
    let mut next = |word: &mut &'t str| match words.next() {
        Some(next) => {
            *word = next;
            Ok(())
        }
        None => Err(unexpected(None)),
    };
    let one = Step::Forward(Count::Rows(1));
    let mut step = one;
    let direction = word.to_ascii_lowercase();
    match direction.as_str() {
        "next" => next(&mut word)?,
        "prior" => (step, _) = (one.back(), next(&mut word)?),
        "first" => (step, _) = (Step::Absolute(1), next(&mut word)?),
        "last" => (step, _) = (Step::Absolute(-1), next(&mut word)?),
        "all" => (step, _) = (Step::Forward(Count::All), next(&mut word)?),
        "absolute" | "relative" => {
            next(&mut word)?;
            let rows = signed(&mut word, &mut next)?.ok_or_else(|| unexpected(Some(word)))?;
            step = if direction == "absolute" { Step::Absolute(rows) } else { Step::Relative(rows) };
        }
        "forward" | "backward" => {
            next(&mut word)?;
            if word.eq_ignore_ascii_case("all") {
                step = Step::Forward(Count::All);
                next(&mut word)?;
            } else if let Some(rows) = signed(&mut word, &mut next)? {
                step = Step::of(rows);
            }
            if direction == "backward" {
                step = step.back();
            }
        }
        _ => {
            if let Some(rows) = signed(&mut word, &mut next)? {
                step = Step::of(rows);
            }
        }
    }
    if matches!(word.to_ascii_lowercase().as_str(), "from" | "in") {
        next(&mut word)?;
    }
    Ok(Own::Fetch { name: plain(word), step, is_move })
}

/// The number that `word` begins, behind which `word` is then; `None` if it is none.
fn signed<'t>(
    word: &mut &'t str,
    next: &mut impl FnMut(&mut &'t str) -> Result<(), SqlError>,
) -> Result<Option<i64>, SqlError> {
    let is_positive = *word == "+";
    if is_positive {
        next(word)?;
    }
    if !word.starts_with(|c: char| c.is_ascii_digit() || c == '-' && !is_positive) {
        return if is_positive { Err(unexpected(Some(word))) } else { Ok(None) };
    }
    let number = word.parse().map_err(|_| unexpected(Some(word)))?;
    next(word)?;
    Ok(Some(number))
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

    /// All that is left.
    fn all(&mut self) -> &'t str {
        let all = self.rest.trim();
        self.rest = "";
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_are_known() {
        let go = |name: &str, step| Own::Fetch { name: name.to_string(), step, is_move: false };
        let fetch = |name: &str, count| go(name, Step::Forward(count));
        let declare = |name: &str, query: &str, is_held| Own::Declare {
            name: name.to_string(),
            query: query.to_string(),
            is_held,
            is_binary: false,
            scrolls: false,
        };
        let cases: [(&str, Result<Option<Own>, &str>); 35] = [
            ("SELECT 1", Ok(None)),
            ("-- nothing\n", Ok(None)),
            ("declare C cursor for select 1", Ok(Some(declare("c", "select 1", false)))),
            (
                "DECLARE \"a \"\"b\" NO SCROLL CURSOR WITH HOLD FOR SELECT ';'",
                Ok(Some(declare("a \"b", "SELECT ';'", true))),
            ),
            (
                "DECLARE c BINARY CURSOR FOR SELECT 1",
                Ok(Some(Own::Declare {
                    name: "c".to_string(),
                    query: "SELECT 1".to_string(),
                    is_held: false,
                    is_binary: true,
                    scrolls: false,
                })),
            ),
            (
                "DECLARE c SCROLL CURSOR FOR SELECT 1",
                Ok(Some(Own::Declare {
                    name: "c".to_string(),
                    query: "SELECT 1".to_string(),
                    is_held: false,
                    is_binary: false,
                    scrolls: true,
                })),
            ),
            ("DECLARE c SCROLL NO SCROLL CURSOR FOR SELECT 1", Err("42P11")),
            ("DECLARE c CURSOR FOR", Err("42601")),
            ("FETCH c", Ok(Some(fetch("c", Count::Rows(1))))),
            ("FETCH 10 FROM c", Ok(Some(fetch("c", Count::Rows(10))))),
            ("/* x */ fetch forward 5 in \"C\"", Ok(Some(fetch("C", Count::Rows(5))))),
            ("FETCH ALL FROM next", Ok(Some(fetch("next", Count::All)))),
            ("FETCH FORWARD ALL c", Ok(Some(fetch("c", Count::All)))),
            ("FETCH BACKWARD FROM c", Ok(Some(go("c", Step::Backward(Count::Rows(1)))))),
            ("FETCH -1 FROM c", Ok(Some(go("c", Step::Backward(Count::Rows(1)))))),
            ("FETCH BACKWARD -2 c", Ok(Some(fetch("c", Count::Rows(2))))),
            ("FETCH BACKWARD ALL IN c", Ok(Some(go("c", Step::Backward(Count::All))))),
            ("FETCH BACKWARD 0 c", Ok(Some(fetch("c", Count::Rows(0))))),
            ("FETCH FORWARD -3 c", Ok(Some(go("c", Step::Backward(Count::Rows(3)))))),
            ("FETCH PRIOR c", Ok(Some(go("c", Step::Backward(Count::Rows(1)))))),
            ("FETCH first FROM c", Ok(Some(go("c", Step::Absolute(1))))),
            ("FETCH LAST c", Ok(Some(go("c", Step::Absolute(-1))))),
            ("FETCH ABSOLUTE -5 FROM c", Ok(Some(go("c", Step::Absolute(-5))))),
            ("FETCH RELATIVE + 5 FROM c", Ok(Some(go("c", Step::Relative(5))))),
            ("FETCH RELATIVE FROM c", Err("42601")),
            ("FETCH FORWARD FROM c", Ok(Some(fetch("c", Count::Rows(1))))),
            ("FETCH prior", Err("42601")),
            ("FETCH 1 FROM c d", Err("42601")),
            ("CLOSE ALL", Ok(Some(Own::Close(None)))),
            ("CLOSE c", Ok(Some(Own::Close(Some("c".to_string()))))),
            ("DISCARD ALL", Ok(Some(Own::DiscardAll))),
            ("DISCARD TEMP", Ok(Some(Own::DiscardTemporary))),
            ("discard temporary", Ok(Some(Own::DiscardTemporary))),
            ("DISCARD SEQUENCES", Ok(Some(Own::DiscardSequences))),
            ("LISTEN x", Err("0A000")),
        ];
        for (text, expected) in cases {
            let found = parse(text).map_err(|failure| failure.sqlstate.to_string());
            assert_eq!(found, expected.map_err(str::to_string), "{text}");
        }
    }
}
