//! Comparison of a page's expected output with the actual output.
//!
//! They must be equal, byte for byte except for trailing blanks, and except:
//!
//! - a line `…` of the page matches any number of lines, and `…` within a line any text;
//! - times with fractions of a second, durations, names of data files and of backups, the password of the
//!   monitoring pages, and words that the page marks as varying. In such an output columns may have other
//!   widths.

use std::sync::LazyLock;

use regex::Regex;

/// Patterns of text that varies between runs, and their placeholders.
const KINDS: [(&str, &str); 5] = [
    (
        r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d\.\d+(?:\+00(?::00)?|Z)?",
        r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:\.\d+)?(?:\+00(?::00)?|Z)?",
    ),
    (r"\b\d+\.\d+ (?:ms|s)\b", r"\d+(?:\.\d+)? (?:ns|µs|ms|s)"),
    (r"\b[0-9a-f]{32}\b", r"[0-9a-f]{32}"),
    (r"\b\d{8}-\d{6}-\d{6}-", r"\d{8}-\d{6}-\d{6}-"),
    (r"\bharrier:\w{24}@", r"harrier:\w{24}@"),
];

static KIND: LazyLock<Regex> = LazyLock::new(|| {
    let all: Vec<String> = KINDS.iter().map(|(found, _)| format!("({found})")).collect();
    Regex::new(&all.join("|")).unwrap()
});

/// Errors: a description of the difference.
pub fn compare(expected: &str, actual: &str, varies: &[String]) -> Result<(), String> {
    if let Some(word) = varies.iter().find(|word| !expected.contains(word.as_str())) {
        return Err(format!("{word} is said to vary, and is not there"));
    }
    let is_loose = !varies.is_empty() || KIND.is_match(expected);
    let patterns: Vec<Line> = lines(expected).iter().map(|line| Line::of(line, varies, is_loose)).collect();
    match fits(&patterns, &lines(actual)) {
        true => Ok(()),
        false => {
            Err(format!("the page says\n{}\nand what is printed is\n{}", quote(expected), quote(actual)))
        }
    }
}

fn quote(text: &str) -> String {
    lines(text).iter().map(|line| format!("  | {line}\n")).collect()
}

/// Lines without trailing blanks, and without empty lines at both ends.
fn lines(text: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = text.lines().map(str::trim_end).collect();
    while lines.last().is_some_and(|line| line.is_empty()) {
        lines.pop();
    }
    let empty = lines.iter().take_while(|line| line.is_empty()).count();
    lines.split_off(empty)
}

/// A line of expected output.
enum Line {
    Any,
    Of(Regex),
}

impl Line {
    fn of(line: &str, varies: &[String], is_loose: bool) -> Self {
        if line.trim() == "…" {
            return Self::Any;
        }
        let mut pattern = String::from("^");
        let mut rest = 0;
        for found in KIND.captures_iter(line) {
            let whole = found.get(0).expect("a match");
            let kind = (0..KINDS.len()).find(|kind| found.get(kind + 1).is_some()).expect("one of them");
            pattern += &plain(&line[rest..whole.start()], varies, is_loose);
            pattern += KINDS[kind].1;
            rest = whole.end();
        }
        pattern += &plain(&line[rest..], varies, is_loose);
        pattern += if is_loose { " *$" } else { "$" };
        Self::Of(Regex::new(&pattern).expect("made of escaped text"))
    }
}

/// Pattern for text without varying parts.
fn plain(text: &str, varies: &[String], is_loose: bool) -> String {
    static BLANKS: LazyLock<Regex> = LazyLock::new(|| Regex::new(r" +").unwrap());
    static RULES: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"(?:\\-){3,}").unwrap());
    // Placeholder characters that occur on no page and need no escaping.
    const VARIES: char = '\u{1}';
    const ANY: char = '\u{2}';
    let mut text = text.replace('…', &ANY.to_string());
    let mut words: Vec<&String> = varies.iter().collect();
    // The word may be part of another.
    words.sort_by_key(|word| std::cmp::Reverse(word.len()));
    for word in words {
        text = without_word(&text, word, VARIES);
    }
    let mut pattern = regex::escape(&text);
    if is_loose {
        let blanks = |found: &regex::Captures| {
            if found.get(0).is_some_and(|all| all.start() == 0) { " *" } else { " +" }
        };
        pattern = BLANKS.replace_all(&pattern, blanks).into_owned();
        pattern = RULES.replace_all(&pattern, "-+").into_owned();
    }
    pattern.replace(VARIES, r"\S+").replace(ANY, ".*")
}

/// Replaces `word` by `sign` where it stands alone.
fn without_word(text: &str, word: &str, sign: char) -> String {
    let (mut done, mut rest) = (String::new(), text);
    while let Some(at) = rest.find(word) {
        let (before, after) = (&rest[..at], &rest[at + word.len()..]);
        let is_in_word = |sign: Option<char>| sign.is_some_and(char::is_alphanumeric);
        done += before;
        match is_in_word(done.chars().last()) || is_in_word(after.chars().next()) {
            true => done += word,
            false => done.push(sign),
        }
        rest = after;
    }
    done + rest
}

fn fits(patterns: &[Line], lines: &[&str]) -> bool {
    match patterns {
        [] => lines.is_empty(),
        [Line::Any, rest @ ..] => (0..=lines.len()).any(|skipped| fits(rest, &lines[skipped..])),
        [Line::Of(pattern), rest @ ..] => {
            lines.first().is_some_and(|line| pattern.is_match(line)) && fits(rest, &lines[1..])
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_same(expected: &str, actual: &str) -> bool {
        compare(expected, actual, &[]).is_ok()
    }

    #[test]
    fn text_is_compared_exactly() {
        assert!(is_same("a | b\n---+---\n", "a | b  \n---+---\n\n"));
        assert!(!is_same("a | b", "a |  b"));
        assert!(!is_same("a\n----", "a\n---"));
        assert!(!is_same("a", "a\nb"));
        assert!(!is_same("a.c", "abc"));
        assert!(!is_same("", "a"));
    }

    #[test]
    fn ellipsis_matches_any_text() {
        assert!(is_same("a\n…\nd", "a\nb\nc\nd"));
        assert!(is_same("…\nd", "d"));
        assert!(!is_same("a\n…\nd", "a\nb\nc"));
        assert!(is_same("a …, c", "a b, c"));
        assert!(!is_same("a …, c", "a b; c"));
    }

    #[test]
    fn times_and_durations_match_any_other() {
        let table = |width: usize, at: &str, n: u8| {
            format!("{:width$} | n\n{}-+--\n {at} | {n}\n", "at", "-".repeat(width))
        };
        let page = table(28, "2026-11-29 12:23:58.7019+00", 1);
        assert!(is_same(&page, &table(30, "2026-11-29 13:00:00.000001+00", 1)));
        assert!(!is_same(&page, &table(30, "2026-11-29 13:00:00.000001+00", 2)));
        assert!(!is_same(&page, &table(30, "yesterday", 1)));
        assert!(is_same("took 1.5 s", "took 20.25 ms"));
        assert!(!is_same("took 1 s", "took 2 s"));
        assert!(is_same("at 2026-01-01", "at 2026-01-01") && !is_same("at 2026-01-01", "at 2026-01-02"));
    }

    #[test]
    fn words_marked_as_varying_match_any_word() {
        let varies = ["9271".to_owned(), "92".to_owned()];
        assert!(compare("0 | 9271 | 2 | 92", "0 | 10 | 2 | 7", &varies).is_ok());
        assert!(compare("0 | 9271 | 2 | 92", "0 | 10 | 3 | 7", &varies).is_err());
        assert!(compare("9271 | 92", "9270 | 1", &varies[1..]).is_err());
        assert!(compare("0 | 1", "0 | 1", &varies).unwrap_err().contains("9271 is said to vary"));
    }
}
