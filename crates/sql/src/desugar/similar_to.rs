//! `SIMILAR TO` as a regular expression; the planner would take its pattern for one.

/// Converts a pattern of SIMILAR TO; `None` if the escape is longer than one character.
pub(super) fn regex_of_similar(pattern: &str, escape: Option<&str>) -> Option<String> {
    let escape = match escape {
        None => Some('\\'),
        Some("") => None,
        Some(text) => {
            let mut letters = text.chars();
            let letter = letters.next();
            if letters.next().is_some() {
                return None;
            }
            letter
        }
    };
    let mut regex = String::from("^(?:");
    let mut letters = pattern.chars();
    let mut in_brackets = false;
    while let Some(letter) = letters.next() {
        match letter {
            _ if Some(letter) == escape => literal(letters.next()?, &mut regex),
            _ if in_brackets => {
                in_brackets = letter != ']';
                match letter {
                    '[' | '\\' | '&' | '~' => literal(letter, &mut regex),
                    _ => regex.push(letter),
                }
            }
            '[' => {
                in_brackets = true;
                regex.push(letter);
            }
            // Wildcards match any characters, including line breaks.
            '%' => regex.push_str("(?s:.*)"),
            '_' => regex.push_str("(?s:.)"),
            '(' => regex.push_str("(?:"),
            '.' | '^' | '$' | '\\' => literal(letter, &mut regex),
            _ => regex.push(letter),
        }
    }
    regex.push_str(")$");
    Some(regex)
}

/// A regular expression whose capture group is the result of `substring(text FROM pattern FOR escape)`: the
/// part between two escapes that a `"` follows, or else the whole text. `None` for an invalid pattern.
pub(super) fn regex_of_part(pattern: &str, escape: &str) -> Option<String> {
    let parts: Vec<&str> = match escape.is_empty() {
        true => vec![pattern],
        false => pattern.split(&format!("{escape}\"")).collect(),
    };
    let inner = |part: &str| {
        let regex = regex_of_similar(part, Some(escape))?;
        Some(regex.strip_prefix('^')?.strip_suffix('$')?.to_string())
    };
    match parts.as_slice() {
        [whole] => Some(format!("^({})$", inner(whole)?)),
        // The text before the part matches non-greedily, as in PostgreSQL.
        [before, part, after] => {
            let before = inner(before)?.replace("(?s:.*)", "(?s:.*?)");
            Some(format!("^{before}({}){}$", inner(part)?, inner(after)?))
        }
        _ => None,
    }
}

fn literal(letter: char, regex: &mut String) {
    if !letter.is_alphanumeric() {
        regex.push('\\');
    }
    regex.push(letter);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_become_regular_expressions() {
        let check = |pattern: &str, escape: Option<&str>, expected: &str| {
            assert_eq!(regex_of_similar(pattern, escape).as_deref(), Some(expected), "{pattern}");
        };
        check("%(b|d)%", None, "^(?:(?s:.*)(?:b|d)(?s:.*))$");
        check("a_c.", None, r"^(?:a(?s:.)c\.)$");
        check(r"\%[^a-c]+", None, r"^(?:\%[^a-c]+)$");
        check("#_#%", Some("#"), r"^(?:_\%)$".replace("_", r"\_").as_str());
        check(r"\w", Some(""), r"^(?:\\w)$");
        assert_eq!(regex_of_similar("a", Some("ab")), None);
        let part = regex_of_part("%#\"o_b#\"%", "#");
        assert_eq!(part.as_deref(), Some("^(?:(?s:.*?))((?:o(?s:.)b))(?:(?s:.*))$"));
        assert_eq!(regex_of_part("a%", "#").as_deref(), Some("^((?:a(?s:.*)))$"));
        assert_eq!(regex_of_part("a#\"b", "#"), None);
    }
}
