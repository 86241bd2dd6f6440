//! Classes of differences from PostgreSQL, each with a reason and matching rules
//! (`tests/regress/classes.txt`).

use std::collections::HashSet;

use super::compare::Difference;
use super::script::Statement;

/// A class of differences.
pub struct Class {
    pub name: String,
    pub reason: String,
    /// Whether two runs of one server may differ: its differences are optional.
    pub varies: bool,
    rules: Vec<Vec<Condition>>,
}

enum Condition {
    /// The statement reads an object that an earlier differing statement has changed.
    Follows,
    File(String),
    Kind(String),
    Text(String),
    HarrierMessage(String),
    PostgresMessage(String),
}

/// Parses the file: `name: reason`, followed by indented rules. A rule is a list of conditions between ` & `:
/// `follows`, or a LIKE pattern with `%` on `file`, `kind` (see [`Difference`]), `text` (the statement),
/// `said` (Harrier's message) or `wanted` (PostgreSQL's). `(varies)` at the end of a reason is not part of
/// it.
///
/// Panics: a line has none of these forms.
pub fn read(text: &str) -> Vec<Class> {
    let mut classes: Vec<Class> = Vec::new();
    for line in text.lines().filter(|line| !line.trim().is_empty() && !line.starts_with('#')) {
        if line.starts_with(' ') {
            let rule = line.trim().split(" & ").map(condition).collect();
            classes.last_mut().expect("a class before its rules").rules.push(rule);
            continue;
        }
        let (name, reason) = line.split_once(": ").unwrap_or_else(|| panic!("no class: {line}"));
        let varies = reason.ends_with(" (varies)");
        let reason = reason.trim_end_matches(" (varies)").to_string();
        classes.push(Class { name: name.to_string(), reason, varies, rules: Vec::new() });
    }
    classes
}

fn condition(text: &str) -> Condition {
    if text == "follows" {
        return Condition::Follows;
    }
    let (what, pattern) = text.split_once('=').unwrap_or_else(|| panic!("no condition: {text}"));
    let pattern = pattern.to_string();
    match what {
        "file" => Condition::File(pattern),
        "kind" => Condition::Kind(pattern),
        "text" => Condition::Text(pattern),
        "said" => Condition::HarrierMessage(pattern),
        "wanted" => Condition::PostgresMessage(pattern),
        _ => panic!("no condition: {text}"),
    }
}

/// Classifies the differences of a file, statement by statement.
#[derive(Default)]
pub struct Classifier {
    /// Names of objects created or changed by statements that differed.
    spoiled: HashSet<String>,
}

impl Classifier {
    /// Name of the first class with a matching rule, or `other`.
    pub fn class(
        &mut self,
        classes: &[Class],
        file: &str,
        statement: &Statement,
        difference: &Difference,
    ) -> String {
        let text = plain(&statement.text);
        let words: Vec<&str> = text
            .split(|c: char| !(c.is_alphanumeric() || c == '_'))
            .filter(|word| !word.is_empty())
            .collect();
        let follows =
            difference.kind.starts_with("25P02 ") || words.iter().any(|word| self.spoiled.contains(*word));
        let holds = |condition: &Condition| match condition {
            Condition::Follows => follows,
            Condition::File(pattern) => like(file, pattern),
            Condition::Kind(pattern) => like(&plain(&difference.kind), pattern),
            Condition::Text(pattern) => like(&text, pattern),
            Condition::HarrierMessage(pattern) => like(&plain(&difference.message), pattern),
            Condition::PostgresMessage(pattern) => like(&plain(&difference.expected), pattern),
        };
        let matching_class =
            classes.iter().find(|class| class.rules.iter().any(|rule| rule.iter().all(holds)));
        // A statement that fails on both servers changes nothing.
        let is_failure = |code: &str| code != "ok" && code.len() == 5;
        let fails_twice =
            difference.kind.split_once(' ').is_some_and(|(a, b)| is_failure(a) && is_failure(b));
        if let Some(name) = changed_object(&words).filter(|_| !fails_twice) {
            self.spoiled.insert(name.to_string());
        }
        matching_class.map_or("other", |class| class.name.as_str()).to_string()
    }
}

/// Name of the object that a statement creates or changes.
fn changed_object<'a>(words: &[&'a str]) -> Option<&'a str> {
    const BETWEEN: [&str; 22] = [
        "temp",
        "temporary",
        "table",
        "view",
        "recursive",
        "materialized",
        "function",
        "type",
        "domain",
        "or",
        "replace",
        "into",
        "if",
        "not",
        "exists",
        "only",
        "sequence",
        "aggregate",
        "cast",
        "operator",
        "unlogged",
        "rule",
    ];
    let first = *words.first()?;
    let is_change =
        ["create", "insert", "update", "delete", "alter", "copy", "merge", "truncate", "prepare", "declare"];
    let name = match is_change.contains(&first) {
        true => words[1..].iter().find(|word| !BETWEEN.contains(word) && **word != "from"),
        // SELECT INTO creates a table.
        false if first == "select" => {
            let into = words.iter().position(|word| *word == "into")?;
            words[into + 1..].iter().find(|word| !BETWEEN.contains(word))
        }
        false => None,
    };
    name.copied().filter(|name| !name.is_empty())
}

/// Lower case, single spaces.
fn plain(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ").to_lowercase()
}

/// Matches a text against a LIKE pattern in which `%` is any text.
fn like(text: &str, pattern: &str) -> bool {
    let pattern = pattern.to_lowercase();
    let mut parts = pattern.split('%');
    let Some(mut rest) = parts.next().and_then(|first| text.strip_prefix(first)) else { return false };
    let parts: Vec<&str> = parts.collect();
    let Some((last, between)) = parts.split_last() else { return rest.is_empty() };
    for part in between {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_match_their_differences() {
        let classes = read("a: because\n  text=%lateral% & kind=0A000 %\nb: else (varies)\n  follows\n");
        let mut classifier = Classifier::default();
        let mut class = |text: &str, kind: &str| {
            let statement = Statement { line: 1, text: text.to_string(), data: String::new() };
            let difference =
                Difference { kind: kind.to_string(), message: String::new(), expected: String::new() };
            classifier.class(&classes, "f", &statement, &difference)
        };
        assert_eq!(class("select LATERAL x", "0A000 ok"), "a");
        assert_eq!(class("select * from t", "0A000 ok"), "other");
        assert_eq!(class("create temp table t(a int)", "0A000 ok"), "other");
        assert_eq!(class("select * from t", "0A000 ok"), "b");
        assert!(classes[1].varies && classes[1].reason == "else");
    }

    #[test]
    fn patterns_match_as_like() {
        assert!(like("select a from b", "select%from%"));
        assert!(like("ab", "ab") && like("ab", "%") && like("aab", "%ab"));
        assert!(!like("ab", "a") && !like("select a", "%from%"));
    }
}
