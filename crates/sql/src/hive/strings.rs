//! The values of string literals.
//!
//! Source: `BaseSemanticAnalyzer.unescapeSQLString` of Hive 4.0.1.

/// The value of a literal in either quotes, or of several without anything between them: `'a''b'` is `ab`.
/// Before `%` and `_` a backslash stays, for LIKE.
pub(super) fn value(literal: &str) -> String {
    let mut value = String::with_capacity(literal.len());
    let mut signs = literal.chars().peekable();
    while let Some(quote) = signs.next() {
        while let Some(sign) = signs.next() {
            if sign == quote {
                break;
            }
            if sign != '\\' {
                value.push(sign);
                continue;
            }
            let rest: String = signs.clone().take(5).collect();
            if let Some(code) = rest.strip_prefix('u').and_then(|code| code.get(..4))
                && let Some(decoded) = u32::from_str_radix(code, 16).ok().and_then(char::from_u32)
            {
                value.push(decoded);
                signs.nth(4);
                continue;
            }
            // Octal, up to \177.
            if let Some(code) = rest.get(..3)
                && code.starts_with(['0', '1'])
                && let Ok(decoded) = u8::from_str_radix(code, 8)
                && !code.starts_with('+')
            {
                value.push(char::from(decoded));
                signs.nth(2);
                continue;
            }
            match signs.next() {
                Some('0') => value.push('\0'),
                Some('b') => value.push('\u{8}'),
                Some('n') => value.push('\n'),
                Some('r') => value.push('\r'),
                Some('t') => value.push('\t'),
                Some('Z') => value.push('\u{1a}'),
                Some(pattern @ ('%' | '_')) => value.extend(['\\', pattern]),
                Some(other) => value.push(other),
                None => {}
            }
        }
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_are_hives() {
        for (literal, expected) in [
            (r"'a'", "a"),
            (r"'it''s'", "its"),
            (r#""it's""#, "it's"),
            (r"'\u0041\u00e9\101\t\\'", "AéA\t\\"),
            (r"'a\%b\_\q'", "a\\%b\\_q"),
            (r"'\0\b'", "\0\u{8}"),
        ] {
            assert_eq!(value(literal), expected, "{literal}");
        }
    }
}
