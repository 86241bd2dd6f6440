//! Trace context in a statement's comment, and masking of literals.

use std::fmt::Write;

/// Bytes at the start and end of a statement that are searched for the comment.
const COMMENT_WITHIN: usize = 4096;

/// The caller's span in W3C Trace Context format (section 3.2, `traceparent`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceParent {
    pub trace_id: [u8; 16],
    pub span_id: [u8; 8],
    /// The caller samples this trace.
    pub is_sampled: bool,
}

impl TraceParent {
    /// Extracts it from a comment `/*…,traceparent='00-…-…-01',…*/`, as sqlcommenter appends to statements.
    /// `None`: missing or malformed.
    pub fn in_comment(text: &str) -> Option<Self> {
        let bytes = text.as_bytes();
        let tail = &bytes[bytes.len().saturating_sub(COMMENT_WITHIN)..];
        let head = &bytes[..bytes.len().min(COMMENT_WITHIN)];
        Self::find(tail).or_else(|| Self::find(head))
    }

    /// Finds the last one.
    fn find(bytes: &[u8]) -> Option<Self> {
        const KEY: &[u8] = b"traceparent=";
        let at = bytes.windows(KEY.len()).rposition(|window| window == KEY)?;
        let before = &bytes[..at];
        let opened = before.windows(2).rposition(|window| window == b"/*")?;
        // Text outside of a comment is ignored.
        if before[opened..].windows(2).any(|window| window == b"*/") {
            return None;
        }
        let value = bytes[at + KEY.len()..].trim_ascii_start();
        let value = value.strip_prefix(b"'").unwrap_or(value);
        Self::parse(value)
    }

    /// Two digits of a version, 32 of the trace, 16 of the span, two of flags, separated by dashes.
    fn parse(value: &[u8]) -> Option<Self> {
        let version = hex::<1>(value.get(..2)?)?[0];
        let dashes = [2, 35, 52].iter().all(|at| value.get(*at) == Some(&b'-'));
        let trace_id = hex::<16>(value.get(3..35)?)?;
        let span_id = hex::<8>(value.get(36..52)?)?;
        let flags = hex::<1>(value.get(53..55)?)?[0];
        // Later versions may append fields; this one has none.
        let has_more = value.get(55).is_some_and(|byte| byte.is_ascii_alphanumeric() || *byte == b'-');
        let is_valid = dashes && version != 0xff && !(version == 0 && has_more);
        let is_known = trace_id != [0; 16] && span_id != [0; 8];
        (is_valid && is_known).then_some(Self { trace_id, span_id, is_sampled: flags & 1 == 1 })
    }
}

/// Lower case only, as the standard requires.
fn hex<const N: usize>(digits: &[u8]) -> Option<[u8; N]> {
    let value = |digit: u8| match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    };
    let mut bytes = [0; N];
    if digits.len() != 2 * N {
        return None;
    }
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks(2)) {
        *byte = value(pair[0])? << 4 | value(pair[1])?;
    }
    Some(bytes)
}

/// In lower case.
pub(crate) fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Replaces every literal by a question mark, and removes comments. A truncated text ends in one.
pub(crate) fn mask_literals(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    let mut is_in_word = false;
    while let Some(first) = rest.chars().next() {
        let (taken, put): (usize, &str) = match first {
            '\'' => (quoted_length(rest, '\'', has_escapes(&out)), "?"),
            '"' => {
                let end = quoted_length(rest, '"', false);
                (end, &rest[..end])
            }
            '$' if !is_in_word && dollar_quoted_length(rest).is_some() => {
                (dollar_quoted_length(rest).unwrap_or(1), "?")
            }
            '-' if rest.starts_with("--") => (rest.find('\n').unwrap_or(rest.len()), ""),
            '/' if rest.starts_with("/*") => (comment_length(rest), ""),
            '0'..='9' if !is_in_word => {
                let ends =
                    |(_, char): &(usize, char)| !char.is_alphanumeric() && *char != '.' && *char != '_';
                (rest.char_indices().find(ends).map_or(rest.len(), |(at, _)| at), "?")
            }
            other => (other.len_utf8(), &rest[..other.len_utf8()]),
        };
        // The letter before a quote is part of the literal.
        if put == "?"
            && first == '\''
            && out.ends_with(['E', 'e', 'B', 'b', 'X', 'x', 'N', 'n'])
            && is_in_word
        {
            let before = out.chars().rev().nth(1);
            if before.is_none_or(|before| !before.is_alphanumeric() && before != '_') {
                out.pop();
            }
        }
        is_in_word = put.len() == taken && (first.is_alphanumeric() || first == '_' || first == '$');
        out.push_str(put);
        rest = &rest[taken..];
    }
    out.trim().to_string()
}

/// Whether a literal after this prefix has backslash escapes.
fn has_escapes(before: &str) -> bool {
    let mut last = before.chars().rev();
    last.next().is_some_and(|char| char == 'E' || char == 'e')
        && last.next().is_none_or(|char| !char.is_alphanumeric() && char != '_')
}

/// Bytes through the closing quote; a doubled one does not close.
fn quoted_length(text: &str, quote: char, has_escapes: bool) -> usize {
    let mut chars = text.char_indices().skip(1).peekable();
    while let Some((at, char)) = chars.next() {
        if char == '\\' && has_escapes {
            chars.next();
        } else if char == quote {
            if chars.peek().is_none_or(|(_, next)| *next != quote) {
                return at + quote.len_utf8();
            }
            chars.next();
        }
    }
    text.len()
}

/// Bytes of `$tag$ … $tag$`, if the text begins with one.
fn dollar_quoted_length(text: &str) -> Option<usize> {
    let end = text[1..].find('$')? + 2;
    let tag = &text[..end];
    let name = &tag[1..end - 1];
    let is_tag = name.chars().all(|char| char.is_alphanumeric() || char == '_')
        && !name.starts_with(|char: char| char.is_ascii_digit());
    let closes = text[end..].find(tag).map_or(text.len(), |at| end + at + tag.len());
    is_tag.then_some(closes)
}

/// Bytes of a comment, nested ones included.
fn comment_length(text: &str) -> usize {
    let (mut depth, mut at) = (0, 0);
    let bytes = text.as_bytes();
    while at + 1 < bytes.len() {
        match &bytes[at..at + 2] {
            b"/*" => (depth, at) = (depth + 1, at + 2),
            b"*/" => {
                (depth, at) = (depth - 1, at + 2);
                if depth == 0 {
                    return at;
                }
            }
            _ => at += 1,
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    #[test]
    fn the_callers_span_is_found_in_a_comment() {
        let expected = TraceParent {
            trace_id: 0x0af7_6519_16cd_43dd_8448_eb21_1c80_319c_u128.to_be_bytes(),
            span_id: 0xb7ad_6b71_6920_3331_u64.to_be_bytes(),
            is_sampled: true,
        };
        for text in [
            format!("SELECT 1 /*traceparent='{GOOD}'*/"),
            format!("SELECT 1 /*action='a%20b',traceparent='{GOOD}',tracestate='x%3D1'*/;"),
            format!("/* traceparent='{GOOD}' */ SELECT 1"),
            format!("SELECT '{}' /*traceparent='{GOOD}'*/", "x".repeat(100_000)),
            format!("/*traceparent={GOOD}*/ SELECT '{}'", "ü".repeat(100_000)),
            format!("SELECT 1 /*traceparent='01{}-more'*/", &GOOD[2..]),
        ] {
            assert_eq!(TraceParent::in_comment(&text), Some(expected), "{}", &text[..60.min(text.len())]);
        }
        let unsampled = format!("SELECT 1 /*traceparent='{}00'*/", &GOOD[..53]);
        assert!(!TraceParent::in_comment(&unsampled).unwrap().is_sampled);
        for text in [
            format!("SELECT 'traceparent=''{GOOD}'''"),
            format!("/* a */ SELECT 'traceparent={GOOD}'"),
            format!("SELECT 1 /*traceparent='{}'*/", GOOD.to_uppercase()),
            format!("SELECT 1 /*traceparent='{GOOD}-more'*/"),
            format!("SELECT 1 /*traceparent='ff{}'*/", &GOOD[2..]),
            format!("SELECT 1 /*traceparent='00-{}-b7ad6b7169203331-01'*/", "0".repeat(32)),
            format!("SELECT 1 /*traceparent='{}'*/", &GOOD[..50]),
            "SELECT 1 /*traceparent=".to_string(),
            String::new(),
        ] {
            assert_eq!(TraceParent::in_comment(&text), None, "{text}");
        }
    }

    #[test]
    fn values_are_masked_and_names_are_not() {
        for (text, expected) in [
            ("SELECT 1", "SELECT ?"),
            (
                "SELECT a1, t2.b FROM t2 WHERE c = 'x''y' AND d > 1.5e3",
                "SELECT a1, t2.b FROM t2 WHERE c = ? AND d > ?",
            ),
            ("SELECT E'a\\'b', 'c\\', e", "SELECT ?, ?, e"),
            ("SELECT \"1 'x\" FROM \"t'\"", "SELECT \"1 'x\" FROM \"t'\""),
            ("SELECT $1, $$a 'b'$$, $q$c$$d$q$ + 2", "SELECT $1, ?, ? + ?"),
            ("SELECT 1 -- secret 2\n, 3 /* a /* b */ 4 */ + 5", "SELECT ? \n, ?  + ?"),
            ("SELECT 'cut off", "SELECT ?"),
            ("SELECT date'2020-01-01', 0xff, 1_000", "SELECT date?, ?, ?"),
            ("ALTER ROLE ada PASSWORD 'sécret'", "ALTER ROLE ada PASSWORD ?"),
            ("SELECT größe FROM t", "SELECT größe FROM t"),
            ("", ""),
        ] {
            assert_eq!(mask_literals(text), expected, "{text}");
        }
    }
}
