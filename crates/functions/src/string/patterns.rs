//! Escapes of PostgreSQL's regular expressions that the engine of ours does not have, or spells otherwise:
//! `\\m` and `\\M` (begin and end of a word), `\\y` and `\\Y` (either, neither), `\\Z` (end of the text), and
//! `[[:<:]]` and `[[:>:]]`.

use std::borrow::Cow;

/// The pattern in the syntax of the crate `regex`. What both have is as it was.
pub fn of_postgres(pattern: &str) -> Cow<'_, str> {
    const BRACKETS: [(&str, &str); 2] = [("[[:<:]]", r"\b{start}"), ("[[:>:]]", r"\b{end}")];
    const ESCAPES: [(char, &str); 5] =
        [('m', r"\b{start}"), ('M', r"\b{end}"), ('y', r"\b"), ('Y', r"\B"), ('Z', r"\z")];
    let is_plain = !pattern.contains('\\') && !BRACKETS.iter().any(|(own, _)| pattern.contains(own));
    if is_plain {
        return Cow::Borrowed(pattern);
    }
    let mut written = String::with_capacity(pattern.len());
    let mut rest = pattern;
    let mut depth = 0_usize;
    while let Some(letter) = rest.chars().next() {
        if depth == 0
            && let Some((own, other)) = BRACKETS.iter().find(|(own, _)| rest.starts_with(own))
        {
            written.push_str(other);
            rest = &rest[own.len()..];
            continue;
        }
        rest = &rest[letter.len_utf8()..];
        match letter {
            '\\' => {
                let Some(escaped) = rest.chars().next() else {
                    written.push(letter);
                    break;
                };
                rest = &rest[escaped.len_utf8()..];
                match ESCAPES.iter().find(|(own, _)| *own == escaped && depth == 0) {
                    Some((_, other)) => written.push_str(other),
                    None => written.extend([letter, escaped]),
                }
            }
            '[' => {
                depth += 1;
                written.push(letter);
                // A bracket that comes first is one of the characters.
                if depth == 1 {
                    let first = rest.strip_prefix('^').unwrap_or(rest);
                    let taken = rest.len() - first.len() + usize::from(first.starts_with(']'));
                    written.push_str(&rest[..taken]);
                    rest = &rest[taken..];
                }
            }
            ']' => {
                depth = depth.saturating_sub(1);
                written.push(letter);
            }
            _ => written.push(letter),
        }
    }
    Cow::Owned(written)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_of_words_are_respelled() {
        for (pattern, expected) in [
            ("a.c", "a.c"),
            (r"\mabc\M", r"\b{start}abc\b{end}"),
            (r"\yab\Y\Z", r"\bab\B\z"),
            (r"\\m\d\A", r"\\m\d\A"),
            (r"[[:<:]]ab[[:>:]]", r"\b{start}ab\b{end}"),
            (r"[\w]\m", r"[\w]\b{start}"),
            (r"[]\y]\y", r"[]\y]\b"),
            (r"[^]]\y", r"[^]]\b"),
            (r"[[:alpha:]]\m", r"[[:alpha:]]\b{start}"),
            ("\\", "\\"),
            (r"é\m", r"é\b{start}"),
        ] {
            assert_eq!(of_postgres(pattern), expected);
            assert_eq!(of_postgres(&of_postgres(pattern)), expected);
        }
    }
}
