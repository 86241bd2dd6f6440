//! `SIMILAR TO` as a regular expression: the planner takes its pattern for one.

/// The regular expression that a pattern of SIMILAR TO is; `None` where its escape is not one letter.
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
            // They are for any letters, line breaks too.
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
    }
}
