//! JSON scanner without a tree: validates texts, and finds their parts and string values.

use std::borrow::Cow;

use datafusion::common::Result;
use serde::de::IgnoredAny;

use super::invalid;
use harrier_error::{SqlError, SqlState};
use harrier_sqlstate::IntoDataFusionError;

/// Checks a text, of any depth.
///
/// Errors: invalid JSON (22P02).
pub(super) fn check(text: &str) -> Result<()> {
    match serde_json::from_str::<IgnoredAny>(text) {
        Ok(IgnoredAny) => Ok(()),
        Err(error) if error.is_eof() => {
            Err(invalid(Some("The input string ended unexpectedly.".to_string())))
        }
        Err(error) => Err(invalid(token_at(text, error.line(), error.column()))),
    }
}

/// PostgreSQL's message about an invalid token at a position, if there is one.
fn token_at(text: &str, line: usize, column: usize) -> Option<String> {
    let is_part = |letter: &char| letter.is_alphanumeric() || matches!(letter, '_' | '-' | '+' | '.' | '$');
    let start: usize = text.split_inclusive('\n').take(line.saturating_sub(1)).map(str::len).sum();
    let mut at = (start + column.saturating_sub(1)).min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    let before: usize = text[..at].chars().rev().take_while(is_part).map(char::len_utf8).sum();
    let behind: usize = text[at..].chars().take_while(is_part).map(char::len_utf8).sum();
    let token = &text[at - before..at + behind];
    let is_word = !token.is_empty() && serde_json::from_str::<IgnoredAny>(token).is_err();
    is_word.then(|| format!("Token \"{token}\" is invalid."))
}

/// The kind of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    Null,
    Boolean,
    Number,
    String,
    Array,
    Object,
}

impl Shape {
    /// The name in `json_typeof`.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Boolean => "boolean",
            Self::Number => "number",
            Self::String => "string",
            Self::Array => "array",
            Self::Object => "object",
        }
    }
}

/// The kind of the value of a JSON text.
pub(super) fn shape(text: &str) -> Result<Shape> {
    Ok(match text.trim_start_matches(is_space).as_bytes().first() {
        Some(b'{') => Shape::Object,
        Some(b'[') => Shape::Array,
        Some(b'"') => Shape::String,
        Some(b't' | b'f') => Shape::Boolean,
        Some(b'n') => Shape::Null,
        Some(b'-' | b'0'..=b'9') => Shape::Number,
        _ => return Err(invalid(None)),
    })
}

/// The content of a JSON string, given with its quotes.
///
/// Errors: half of a surrogate pair (22P02), or a NUL, which no text can contain (22P05).
pub(super) fn unquote(quoted: &str) -> Result<Cow<'_, str>> {
    let inner =
        quoted.strip_prefix('"').and_then(|text| text.strip_suffix('"')).ok_or_else(|| invalid(None))?;
    if !inner.contains('\\') {
        return Ok(Cow::Borrowed(inner));
    }
    let text: String = serde_json::from_str(quoted)
        .map_err(|_| invalid(Some("Unicode low surrogate must follow a high surrogate.".to_string())))?;
    match text.contains('\0') {
        true => Err(SqlError::new(SqlState::UNTRANSLATABLE_CHARACTER, "unsupported Unicode escape sequence")
            .with_detail("\\u0000 cannot be converted to text.")
            .into_datafusion()),
        false => Ok(Cow::Owned(text)),
    }
}

/// Writes a text as JSON string, with quotes.
pub(super) fn quote(text: &str, into: &mut String) {
    into.push('"');
    let mut plain = 0;
    for (at, byte) in text.bytes().enumerate() {
        let short = match byte {
            b'"' => "\\\"",
            b'\\' => "\\\\",
            b'\n' => "\\n",
            b'\r' => "\\r",
            b'\t' => "\\t",
            8 => "\\b",
            12 => "\\f",
            0..0x20 => "",
            _ => continue,
        };
        into.push_str(&text[plain..at]);
        match short {
            "" => into.push_str(&format!("\\u{byte:04x}")),
            short => into.push_str(short),
        }
        plain = at + 1;
    }
    into.push_str(&text[plain..]);
    into.push('"');
}

fn is_space(letter: char) -> bool {
    matches!(letter, ' ' | '\t' | '\n' | '\r')
}

/// A position in a JSON text.
pub(super) struct Cursor<'j> {
    text: &'j str,
    at: usize,
}

impl<'j> Cursor<'j> {
    pub(super) fn new(text: &'j str) -> Self {
        Self { text, at: 0 }
    }

    /// Peeks at the next non-space byte.
    pub(super) fn peek(&mut self) -> Result<u8> {
        let bytes = self.text.as_bytes();
        while bytes.get(self.at).is_some_and(|byte| matches!(byte, b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
        bytes.get(self.at).copied().ok_or_else(|| invalid(None))
    }

    /// Consumes the next byte, if it is this one.
    pub(super) fn take(&mut self, byte: u8) -> Result<bool> {
        let is_next = self.peek()? == byte;
        self.at += usize::from(is_next);
        Ok(is_next)
    }

    pub(super) fn expect(&mut self, byte: u8) -> Result<()> {
        match self.take(byte)? {
            true => Ok(()),
            false => Err(invalid(None)),
        }
    }

    /// Whether another part follows in an opened bracket; consumes the comma or the closing bracket.
    pub(super) fn next_part(&mut self, is_first: bool, close: u8) -> Result<bool> {
        if self.take(close)? {
            return Ok(false);
        }
        if !is_first {
            self.expect(b',')?;
        }
        Ok(true)
    }

    /// Consumes a string, with its quotes.
    pub(super) fn string(&mut self) -> Result<&'j str> {
        if self.peek()? != b'"' {
            return Err(invalid(None));
        }
        let start = self.at;
        self.pass_string()?;
        Ok(&self.text[start..self.at])
    }

    fn pass_string(&mut self) -> Result<()> {
        let bytes = self.text.as_bytes();
        self.at += 1;
        loop {
            match bytes.get(self.at) {
                Some(b'"') => break,
                Some(b'\\') => self.at += 2,
                Some(_) => self.at += 1,
                None => return Err(invalid(None)),
            }
        }
        self.at += 1;
        Ok(())
    }

    /// Consumes a whole value, of any depth.
    pub(super) fn value(&mut self) -> Result<&'j str> {
        let bytes = self.text.as_bytes();
        self.peek()?;
        let start = self.at;
        let mut depth = 0_usize;
        loop {
            match bytes.get(self.at) {
                Some(b'{' | b'[') => {
                    depth += 1;
                    self.at += 1;
                }
                Some(b'}' | b']') => {
                    depth = depth.checked_sub(1).ok_or_else(|| invalid(None))?;
                    self.at += 1;
                }
                Some(b'"') => self.pass_string()?,
                Some(b',' | b':' | b' ' | b'\t' | b'\n' | b'\r') if depth > 0 => {
                    self.at += 1;
                    continue;
                }
                Some(_) => {
                    let word = bytes[self.at..].iter().take_while(|byte| {
                        byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'+' | b'.')
                    });
                    let length = word.count();
                    if length == 0 {
                        return Err(invalid(None));
                    }
                    self.at += length;
                }
                None => return Err(invalid(None)),
            }
            if depth == 0 {
                return self.text.get(start..self.at).ok_or_else(|| invalid(None));
            }
        }
    }
}

/// The members of an object in order, including duplicates.
pub(super) fn members<'j>(
    object: &'j str,
    mut each: impl FnMut(Cow<'j, str>, &'j str) -> Result<()>,
) -> Result<()> {
    let mut cursor = Cursor::new(object);
    cursor.expect(b'{')?;
    let mut is_first = true;
    while cursor.next_part(is_first, b'}')? {
        let key = unquote(cursor.string()?)?;
        cursor.expect(b':')?;
        each(key, cursor.value()?)?;
        is_first = false;
    }
    Ok(())
}

/// The elements of an array.
pub(super) fn elements(array: &str) -> Result<Vec<&str>> {
    let mut cursor = Cursor::new(array);
    cursor.expect(b'[')?;
    let mut elements = Vec::new();
    while cursor.next_part(elements.is_empty(), b']')? {
        elements.push(cursor.value()?);
    }
    Ok(elements)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_checked() {
        for json in ["1", " {\"a\": [1, 2, {}]} ", "\"\\ud800\"", "-0.0e+5", "[]", "null"] {
            check(json).unwrap();
        }
        for wrong in ["", "{", "[1,]", "{\"a\"}", "1 2", "01", "1.", "nul", "'a'", "\"\n\"", "NaN", "[1}"] {
            assert!(check(wrong).is_err(), "{wrong}");
        }
        let deep = "[".repeat(1_000_000) + &"]".repeat(1_000_000);
        check(&deep).unwrap();
        assert_eq!(elements(&deep).unwrap()[0].len(), deep.len() - 2);
    }

    #[test]
    fn json_parts_keep_their_text() {
        let mut found = Vec::new();
        members("{\"a\" : [1.50,  {\"x\":\"]}\"}] , \"b\\n\":-1e5, \"a\":null}", |key, value| {
            found.push((key.into_owned(), value));
            Ok(())
        })
        .unwrap();
        let expected = [("a", "[1.50,  {\"x\":\"]}\"}]"), ("b\n", "-1e5"), ("a", "null")];
        assert_eq!(found, expected.map(|(key, value)| (key.to_string(), value)));
        let mut written = String::new();
        quote("a\"\\\n\u{1}é", &mut written);
        assert_eq!(written, "\"a\\\"\\\\\\n\\u0001é\"");
        assert_eq!(unquote(&written).unwrap(), "a\"\\\n\u{1}é");
    }
}
