//! The error of a statement or a session, in the fields of PostgreSQL's protocol.

use std::error::Error;
use std::fmt;

use crate::SqlState;

/// Why a statement, or a whole session, failed. Its `Display` is the message alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SqlError {
    pub sqlstate: SqlState,
    /// The session has ended as well.
    pub is_fatal: bool,
    /// PostgreSQL's style: lower case, no full stop, the object and its kind named.
    pub message: String,
    pub detail: Option<String>,
    pub hint: Option<String>,
    /// Where it happened, such as a line of a copied file.
    pub context: Option<String>,
    /// 1-based offset in characters into the statement's text.
    pub position: Option<usize>,
}

impl SqlError {
    pub fn new(sqlstate: SqlState, message: impl Into<String>) -> Self {
        Self {
            sqlstate,
            is_fatal: false,
            message: message.into(),
            detail: None,
            hint: None,
            context: None,
            position: None,
        }
    }

    /// An error that ends its session.
    pub fn fatal(sqlstate: SqlState, message: impl Into<String>) -> Self {
        Self { is_fatal: true, ..Self::new(sqlstate, message) }
    }

    /// The error of every front end when the user interrupts.
    pub fn canceled_by_user() -> Self {
        Self::new(SqlState::QUERY_CANCELED, "canceling statement due to user request")
    }

    pub fn timed_out() -> Self {
        Self::new(SqlState::QUERY_CANCELED, "canceling statement due to statement timeout")
    }

    pub fn with_detail(mut self, detail: impl Into<String>) -> Self {
        self.detail = Some(detail.into());
        self
    }

    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Formats all the lines for standard error, without a final newline. If the statement's text is given,
    /// the position is shown as in psql: the line, and a caret below the place.
    pub fn report(&self, sql: Option<&str>) -> String {
        let mut report = format!("ERROR {}: {}", self.sqlstate, self.message);
        if let (Some(sql), Some(position)) = (sql, self.position) {
            report.push_str(&marked_line(sql, position));
        }
        for (label, text) in [("DETAIL", &self.detail), ("HINT", &self.hint), ("CONTEXT", &self.context)] {
            if let Some(text) = text {
                report.push_str(&format!("\n{label}: {text}"));
            }
        }
        report
    }
}

impl fmt::Display for SqlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl Error for SqlError {}

/// Characters of a long line shown before the position, and in total.
const MARKED_BEFORE_MAX: usize = 60;
const MARKED_LINE_MAX: usize = 120;

/// `\nLINE 2: select x\n               ^`; long lines are shortened on both sides.
fn marked_line(sql: &str, position: usize) -> String {
    let mut line_number = 1;
    let mut left = position.saturating_sub(1);
    let mut line = "";
    for text in sql.split('\n') {
        line = text;
        let length = text.chars().count();
        if left <= length {
            break;
        }
        left -= length + 1;
        line_number += 1;
    }
    let skip = left.saturating_sub(MARKED_BEFORE_MAX);
    let label = format!("LINE {line_number}: ");
    let before = if skip > 0 { "..." } else { "" };
    let mut shown: String = line.chars().skip(skip).take(MARKED_LINE_MAX).collect();
    if line.chars().count() > skip + MARKED_LINE_MAX {
        shown.push_str("...");
    }
    // A tab under a tab keeps the caret in its column, whatever the width of the terminal's tabs.
    let padding: String = line
        .chars()
        .skip(skip)
        .chain(std::iter::repeat(' '))
        .take(left - skip)
        .map(|c| if c == '\t' { '\t' } else { ' ' })
        .collect();
    format!(
        "\n{label}{before}{}\n{}{padding}^",
        shown.trim_end_matches('\r'),
        " ".repeat(label.len() + before.len()),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_of_a_position_is_marked() {
        let sql = "é\n  ü x";
        assert_eq!(marked_line(sql, 7), "\nLINE 2:   ü x\n            ^");
        assert_eq!(marked_line("\tx", 2), "\nLINE 1: \tx\n        \t^");
    }

    #[test]
    fn reports_include_all_fields() {
        let error = SqlError {
            position: Some(8),
            ..SqlError::new(SqlState::UNDEFINED_COLUMN, "column \"x\" does not exist")
        };
        let error = SqlError {
            context: Some("COPY t, line 2".to_string()),
            ..error.with_detail("D.").with_hint("H.")
        };
        let expected = "ERROR 42703: column \"x\" does not exist\nLINE 1: select x\n               ^\nDETAIL: D.\nHINT: H.\nCONTEXT: COPY t, line 2";
        assert_eq!(error.report(Some("select x")), expected);
        assert_eq!(error.to_string(), "column \"x\" does not exist");
    }

    #[test]
    fn long_lines_are_shortened() {
        let sql = format!("{}x{}", "a".repeat(200), "b".repeat(200));
        let marked = marked_line(&sql, 201);
        let lines: Vec<_> = marked.lines().skip(1).collect();
        let caret = lines[1].find('^').unwrap();
        assert_eq!(lines[0].as_bytes()[caret], b'x');
        assert!(lines[0].len() < 140);
    }
}
