//! Arguments of backslash commands, parsed as psql does: separated by blanks, quoted where they contain some,
//! with variables interpolated outside of quotes.

use crate::variables::Variables;

/// Splits `text` into words.
///
/// Errors: an unterminated quote, as a message for the user.
pub(crate) fn words(text: &str, variables: &Variables) -> Result<Vec<String>, String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut rest = text;
    while let Some(next) = rest.chars().next() {
        if next.is_whitespace() {
            words.extend(word.take());
            rest = &rest[next.len_utf8()..];
            continue;
        }
        let word = word.get_or_insert_default();
        rest = match next {
            '\'' | '"' => push_quoted(rest, next, word)?,
            ':' => match variables.value(rest) {
                Some((value, length)) => {
                    word.push_str(&value);
                    &rest[length..]
                }
                None => {
                    word.push(':');
                    &rest[1..]
                }
            },
            other => {
                word.push(other);
                &rest[other.len_utf8()..]
            }
        };
    }
    words.extend(word);
    Ok(words)
}

/// Appends a quoted string to `word` and returns the rest; a doubled quote stands for one.
fn push_quoted<'t>(text: &'t str, quote: char, word: &mut String) -> Result<&'t str, String> {
    let mut letters = text.char_indices().skip(1).peekable();
    while let Some((at, letter)) = letters.next() {
        if letter != quote {
            word.push(letter);
        } else if letters.next_if(|(_, next)| *next == quote).is_some() {
            word.push(quote);
        } else {
            return Ok(&text[at + 1..]);
        }
    }
    Err("unterminated quoted string".to_string())
}

/// Translates `\copy` into COPY; file names need no quotes there.
///
/// Errors: a syntax error, or PROGRAM, as messages for the user.
pub(crate) fn copy(text: &str) -> Result<String, String> {
    let unfit = || "\\copy takes a table or a query in parentheses, then from or to, then a file".to_string();
    let (at, word) = direction(text).ok_or_else(unfit)?;
    let (source, behind) = (text[..at].trim(), text[at + word.len()..].trim_start());
    let (place, options) = match behind.strip_prefix('\'') {
        Some(_) => {
            let mut name = String::new();
            let rest = push_quoted(behind, '\'', &mut name)?;
            (file(&name), rest)
        }
        None => {
            let end = behind.find(char::is_whitespace).unwrap_or(behind.len());
            let (name, rest) = behind.split_at(end);
            match name.to_ascii_lowercase().as_str() {
                "" => return Err(unfit()),
                "program" => return Err("\\copy takes no program".to_string()),
                "stdin" | "pstdin" => ("STDIN".to_string(), rest),
                "stdout" | "pstdout" => ("STDOUT".to_string(), rest),
                _ => (file(name), rest),
            }
        }
    };
    Ok(format!("COPY {source} {word} {place} {}", options.trim()).trim_end().to_string())
}

fn file(name: &str) -> String {
    format!("'{}'", name.replace('\'', "''"))
}

/// Finds the `from` or `to` outside of parentheses and quotes.
fn direction(text: &str) -> Option<(usize, &str)> {
    let (mut depth, mut quote, mut start) = (0_usize, None, None);
    for (at, letter) in text.char_indices().chain([(text.len(), ' ')]) {
        let is_word = depth == 0 && quote.is_none() && (letter.is_alphanumeric() || letter == '_');
        if !is_word && let Some(from) = start.take() {
            let word = &text[from..at];
            if letter.is_whitespace() && ["from", "to"].iter().any(|way| word.eq_ignore_ascii_case(way)) {
                return Some((from, word));
            }
        }
        match (quote, letter) {
            (Some(open), _) if open == letter => quote = None,
            (Some(_), _) => {}
            (None, '\'' | '"') => quote = Some(letter),
            (None, '(') => depth += 1,
            (None, ')') => depth = depth.saturating_sub(1),
            (None, _) if is_word => {
                start.get_or_insert(at);
            }
            (None, _) => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_commands() {
        let mut variables = Variables::default();
        variables.set("x", "a b".to_string()).unwrap();
        for (text, expected) in [
            ("", &[][..]),
            ("  one 'two  three' \"four\"five ", &["one", "two  three", "fourfive"]),
            ("'it''s' ''", &["it's", ""]),
            (":x ':x' :'x' :y a:", &["a b", ":x", "'a b'", ":y", "a:"]),
        ] {
            assert_eq!(words(text, &variables).unwrap(), expected, "{text}");
        }
        assert!(words("'open", &variables).is_err());
    }

    #[test]
    fn copies_of_files() {
        for (text, expected) in [
            ("t from x.csv", "COPY t from 'x.csv'"),
            (
                "t (a, \"from\") FROM 'x y.csv' with (format csv)",
                "COPY t (a, \"from\") FROM 'x y.csv' with (format csv)",
            ),
            (
                "(select a from t where b = ' to ') to it's.csv csv header",
                "COPY (select a from t where b = ' to ') to 'it''s.csv' csv header",
            ),
            ("s.t to stdout", "COPY s.t to STDOUT"),
        ] {
            assert_eq!(copy(text).as_deref(), Ok(expected));
        }
        for text in ["t", "t from", "t from program 'ls'", "(select 1 from t)"] {
            assert!(copy(text).is_err(), "{text}");
        }
    }
}
