//! Rewrites parameters written `?`, as in JDBC and ODBC, to PostgreSQL's `$1`, `$2`, …

use std::borrow::Cow;

/// Numbers the question marks of a statement, except in literals, identifiers and comments; `??` is the
/// operator `?`. A statement with `$1` is left unchanged.
pub(super) fn number_placeholders(text: &str) -> Cow<'_, str> {
    if !text.contains('?') {
        return Cow::Borrowed(text);
    }
    let mut written = String::with_capacity(text.len() + 16);
    let mut count = 0;
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let passed = match first {
            '\'' | '"' => quoted_length(rest, first),
            '-' if rest.starts_with("--") => rest.find('\n').unwrap_or(rest.len()),
            '/' if rest.starts_with("/*") => comment_length(rest),
            '$' => match dollar_quoted_length(rest) {
                Some(length) => length,
                None if rest[1..].starts_with(|letter: char| letter.is_ascii_digit()) => {
                    return Cow::Borrowed(text);
                }
                None => 1,
            },
            '?' if rest.starts_with("??") => {
                written.push('?');
                rest = &rest[2..];
                continue;
            }
            '?' => {
                count += 1;
                written.push_str(&format!("${count}"));
                rest = &rest[1..];
                continue;
            }
            // An identifier may contain a dollar sign.
            letter if letter.is_alphabetic() || letter == '_' => {
                let ends = |c: char| !(c.is_alphanumeric() || c == '_' || c == '$');
                rest.find(ends).unwrap_or(rest.len())
            }
            other => other.len_utf8(),
        };
        written.push_str(&rest[..passed]);
        rest = &rest[passed..];
    }
    Cow::Owned(written)
}

/// The length of a quoted text; a doubled quote is a literal quote.
fn quoted_length(text: &str, quote: char) -> usize {
    let mut from = 1;
    while let Some(at) = text[from..].find(quote) {
        from += at + 1;
        if !text[from..].starts_with(quote) {
            return from;
        }
        from += 1;
    }
    text.len()
}

/// The length of a comment, nested ones included.
fn comment_length(text: &str) -> usize {
    let (mut depth, mut at) = (0, 0);
    while at < text.len() {
        let rest = &text[at..];
        match rest {
            _ if rest.starts_with("/*") => {
                depth += 1;
                at += 2;
            }
            _ if rest.starts_with("*/") => {
                depth -= 1;
                at += 2;
                if depth == 0 {
                    return at;
                }
            }
            _ => at += rest.chars().next().map_or(1, char::len_utf8),
        }
    }
    text.len()
}

/// The length of a dollar-quoted literal, if one begins here.
fn dollar_quoted_length(text: &str) -> Option<usize> {
    let tag = text[1..].find('$')? + 2;
    let is_name = text[1..tag - 1].chars().all(|letter| letter.is_alphanumeric() || letter == '_');
    if !is_name || text[1..].starts_with(|letter: char| letter.is_ascii_digit()) {
        return None;
    }
    Some(text[tag..].find(&text[..tag]).map_or(text.len(), |at| tag + at + tag))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn question_marks_get_numbers() {
        for (text, expected) in [
            ("SELECT ?, a FROM t WHERE b = ? LIMIT ?", "SELECT $1, a FROM t WHERE b = $2 LIMIT $3"),
            ("SELECT '?', 'it''s ?', \"a?\", ?", "SELECT '?', 'it''s ?', \"a?\", $1"),
            ("SELECT ? -- ?\n, /* ? /* ? */ ? */ ?", "SELECT $1 -- ?\n, /* ? /* ? */ ? */ $2"),
            ("SELECT $$?$$, $x$ ? $x$, ?", "SELECT $$?$$, $x$ ? $x$, $1"),
            ("SELECT a ?? b, ?", "SELECT a ? b, $1"),
            ("SELECT $1, a ? b", "SELECT $1, a ? b"),
            ("SELECT a$1 FROM t WHERE c = ?", "SELECT a$1 FROM t WHERE c = $1"),
            ("SELECT 'open ?", "SELECT 'open ?"),
            ("SELECT 1", "SELECT 1"),
        ] {
            assert_eq!(number_placeholders(text), expected);
        }
    }
}
