//! Regular expressions of Java, which those of Rust are but for look-around, back references and possessive
//! quantifiers.

use std::cell::RefCell;

use datafusion::common::Result;
use harrier_error::{SqlError, SqlState};
use harrier_sqlstate::IntoDataFusionError;
use regex::Regex;

thread_local! {
    /// The pattern of the last row, which is mostly that of the next one.
    static LAST: RefCell<Option<(String, Regex)>> = const { RefCell::new(None) };
}

/// Errors: the pattern is none of these (2201B).
pub(super) fn compile(pattern: &str) -> Result<Regex> {
    let known = LAST.with_borrow(|last| match last {
        Some((known, regex)) if known == pattern => Some(regex.clone()),
        _ => None,
    });
    if let Some(regex) = known {
        return Ok(regex);
    }
    let regex = Regex::new(pattern).map_err(|error| {
        SqlError::new(SqlState::INVALID_REGULAR_EXPRESSION, "invalid regular expression")
            .with_detail(error.to_string())
            .with_hint("look-around, back references and possessive quantifiers of Java are not supported")
            .into_datafusion()
    })?;
    LAST.set(Some((pattern.to_string(), regex.clone())));
    Ok(regex)
}

/// A replacement of Java, `$1` and `\$`, in Rust's form.
pub(super) fn replacement(java: &str) -> String {
    let mut rust = String::with_capacity(java.len() + 4);
    let mut signs = java.chars().peekable();
    while let Some(sign) = signs.next() {
        match sign {
            '\\' => match signs.next() {
                Some('$') => rust.push_str("$$"),
                Some(other) => rust.push(other),
                None => {}
            },
            '$' => {
                let mut digits = String::new();
                while let Some(digit) = signs.next_if(char::is_ascii_digit) {
                    digits.push(digit);
                }
                match digits.is_empty() {
                    true => rust.push_str("$$"),
                    false => rust.push_str(&format!("${{{digits}}}")),
                }
            }
            other => rust.push(other),
        }
    }
    rust
}
