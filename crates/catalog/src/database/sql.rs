//! SQL as text, for both databases: literals, quoted names, lists, and statements of many rows.

use std::fmt::Write as _;

use crate::error::{Error, Result};

/// Bytes of SQL at which a multi-row statement is ended and the next begun: large enough that the round trip
/// does not matter, small enough to be parsed in little memory.
const STATEMENT_BYTES: usize = 256 * 1024;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dialect {
    Sqlite,
    Postgres,
}

/// A boolean column as 0, 1 or NULL. SQLite has no booleans: DuckDB stores numbers, other programs perhaps
/// words.
pub(crate) fn flag(column: &str) -> String {
    format!("CASE WHEN {column} THEN 1 WHEN NOT {column} THEN 0 END")
}

/// A text literal for both databases. Neither can store NUL in text.
pub(crate) fn text(value: &str) -> Result<String> {
    if value.contains('\0') {
        return Err(Error::Unsupported(
            "text with a character of code 0 cannot be kept in the catalog".to_string(),
        ));
    }
    Ok(format!("'{}'", value.replace('\'', "''")))
}

pub(crate) fn optional_text(value: Option<&str>) -> Result<String> {
    value.map_or_else(|| Ok("NULL".to_string()), text)
}

pub(crate) fn optional(value: Option<i64>) -> String {
    value.map_or_else(|| "NULL".to_string(), |value| value.to_string())
}

pub(crate) fn boolean(value: bool) -> &'static str {
    if value { "TRUE" } else { "FALSE" }
}

pub(crate) fn optional_boolean(value: Option<bool>) -> &'static str {
    value.map_or("NULL", boolean)
}

/// A quoted identifier.
pub(crate) fn name(value: &str) -> Result<String> {
    if value.contains('\0') {
        return Err(Error::Unsupported(
            "a name with a character of code 0 cannot be kept in the catalog".to_string(),
        ));
    }
    Ok(format!("\"{}\"", value.replace('"', "\"\"")))
}

/// The condition for rows visible at a snapshot.
pub(crate) fn visible(alias: &str, snapshot: i64) -> String {
    format!(
        "{alias}begin_snapshot <= {snapshot} AND ({alias}end_snapshot IS NULL OR {alias}end_snapshot > {snapshot})"
    )
}

/// `1, 2, 3`; if empty `NULL`, which `IN` never matches.
pub(crate) fn list<T: std::fmt::Display>(values: impl IntoIterator<Item = T>) -> String {
    let mut out = String::new();
    for value in values {
        let _ = write!(out, "{}{value}", if out.is_empty() { "" } else { ", " });
    }
    if out.is_empty() { "NULL".to_string() } else { out }
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut out, byte| {
        let _ = write!(out, "{byte:02X}");
        out
    })
}

pub(crate) fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let bytes = text.as_bytes();
    if !bytes.len().is_multiple_of(2) {
        return None;
    }
    bytes.chunks_exact(2).map(|pair| u8::try_from(digit(pair[0])? * 16 + digit(pair[1])?).ok()).collect()
}

/// Rows to insert into one table, in statements of bounded size.
pub(crate) struct Rows {
    head: String,
    open: String,
    statements: Vec<String>,
}

impl Rows {
    pub fn into(table: &str, columns: &str) -> Self {
        Self {
            head: format!("INSERT INTO {table} ({columns}) VALUES "),
            open: String::new(),
            statements: Vec::new(),
        }
    }

    /// Adds a row of comma-separated literals.
    pub fn add(&mut self, row: &str) {
        let before = if self.open.is_empty() { self.head.as_str() } else { ", " };
        self.open.reserve(before.len() + row.len() + 2);
        self.open.push_str(before);
        self.open.push('(');
        self.open.push_str(row);
        self.open.push(')');
        if self.open.len() >= STATEMENT_BYTES {
            self.statements.push(std::mem::take(&mut self.open));
        }
    }

    pub fn finish(mut self) -> Vec<String> {
        if !self.open.is_empty() {
            self.statements.push(self.open);
        }
        self.statements
    }
}

/// The query that has a row if the table exists.
pub(super) fn table_query(dialect: Dialect, name: &str) -> Result<String> {
    let name = text(name)?;
    Ok(match dialect {
        Dialect::Sqlite => format!("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = {name}"),
        Dialect::Postgres => format!("SELECT 1 WHERE to_regclass({name}) IS NOT NULL"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literals_are_quoted() {
        for (value, expected) in [("", "''"), ("a'b", "'a''b'"), ("''", "''''''"), ("\\'; --", "'\\''; --'")]
        {
            assert_eq!(text(value).unwrap(), expected);
        }
        assert!(matches!(text("a\0b"), Err(Error::Unsupported(_))));
        assert_eq!(name("a\"b").unwrap(), "\"a\"\"b\"");
    }

    #[test]
    fn hex_round_trips() {
        assert_eq!(from_hex(&hex(&[0, 255, 16])), Some(vec![0, 255, 16]));
        assert_eq!(from_hex("abc"), None);
        assert_eq!(from_hex("zz"), None);
    }

    #[test]
    fn rows_are_split_over_statements() {
        let mut rows = Rows::into("t", "a");
        let row = "1".repeat(STATEMENT_BYTES / 2);
        for _ in 0..3 {
            rows.add(&row);
        }
        assert_eq!(rows.finish().len(), 2);
        assert!(Rows::into("t", "a").finish().is_empty());
    }
}
