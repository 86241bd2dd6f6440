//! The list of known differences (`tests/regress/differences.tsv`), and the counts in its README.

use std::collections::BTreeMap;

use super::script::Statement;

/// A difference, found or listed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub file: String,
    pub line: usize,
    /// Hash of the statement's text, and its index among the equal statements of its file, from 1.
    pub hash: String,
    pub turn: usize,
    pub class: String,
    /// The kind of [`super::compare::Difference`].
    pub kind: String,
    /// Beginning of the statement.
    pub text: String,
}

impl Entry {
    pub fn of(file: &str, statement: &Statement, turn: usize, class: String, kind: String) -> Self {
        let text: String = statement.text.split_whitespace().collect::<Vec<_>>().join(" ");
        let text = text.chars().take(70).collect();
        Self { file: file.to_string(), line: statement.line, hash: statement.hash(), turn, class, kind, text }
    }

    fn key(&self) -> (String, String, usize) {
        (self.file.clone(), self.hash.clone(), self.turn)
    }

    fn place(&self) -> String {
        format!("{}:{} ({}, {}) {}", self.file, self.line, self.class, self.kind, self.text)
    }
}

const HEAD: &str = "# Where Harrier differs from PostgreSQL; README.md says how this is made and what the columns are.\n\
    # file:line\tstatement\tclass\tkind\ttext\n";

/// Panics: a line is not in the form of [`write`].
pub fn read(text: &str) -> Vec<Entry> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let entry = |line: &str| {
        let mut fields = line.splitn(5, '\t').map(str::to_string);
        let (place, statement) = (fields.next()?, fields.next()?);
        let ((file, line), (hash, turn)) = (place.split_once(':')?, statement.split_once('.')?);
        Some(Entry {
            file: file.to_string(),
            line: line.parse().ok()?,
            hash: hash.to_string(),
            turn: turn.parse().ok()?,
            class: fields.next()?,
            kind: fields.next()?,
            text: fields.next()?,
        })
    };
    lines.map(|line| entry(line).unwrap_or_else(|| panic!("no difference: {line}"))).collect()
}

pub fn write(entries: &[Entry]) -> String {
    let lines = entries.iter().map(|entry| {
        let Entry { file, line, hash, turn, class, kind, text } = entry;
        format!("{file}:{line}\t{hash}.{turn}\t{class}\t{kind}\t{text}\n")
    });
    HEAD.to_string() + &lines.collect::<String>()
}

/// Differences that are not listed as found, and listed entries that were not found, one line each. `varies`:
/// whether the differences of a class are optional.
pub fn disagreements(found: &[Entry], listed: &[Entry], varies: impl Fn(&str) -> bool) -> Vec<String> {
    let by_key = |entries: &[Entry]| -> BTreeMap<_, _> {
        entries.iter().map(|entry| (entry.key(), entry.clone())).collect()
    };
    let (found, listed) = (by_key(found), by_key(listed));
    let mut lines = Vec::new();
    for (key, entry) in &found {
        match listed.get(key) {
            None if varies(&entry.class) => {}
            None => lines.push(format!("not listed: {}", entry.place())),
            Some(known) if varies(&known.class) => {}
            Some(known) if (&known.class, &known.kind) != (&entry.class, &entry.kind) => {
                lines.push(format!("listed as {}, {}: {}", known.class, known.kind, entry.place()));
            }
            Some(_) => {}
        }
    }
    let stale = listed.iter().filter(|(key, entry)| !found.contains_key(key) && !varies(&entry.class));
    lines.extend(stale.map(|(_, entry)| format!("listed, and no longer there: {}", entry.place())));
    lines
}

/// Statements of a file, and those left out.
#[derive(Debug, Clone, Copy, Default)]
pub struct Counts {
    pub run: usize,
    pub left_out: usize,
}

/// Tables for the README: one line per file, and one per class with its reason.
pub fn tables(counts: &[(String, Counts)], entries: &[Entry], reasons: &[(String, String)]) -> String {
    let mut text = String::from("| file | run | equal | differ | left out |\n|---|--:|--:|--:|--:|\n");
    let mut total = [0; 4];
    for (file, counts) in counts {
        let differ = entries.iter().filter(|entry| entry.file == *file).count();
        let numbers = [counts.run, counts.run - differ, differ, counts.left_out];
        total.iter_mut().zip(numbers).for_each(|(total, number)| *total += number);
        let [run, equal, differ, left_out] = numbers;
        text.push_str(&format!("| {file} | {run} | {equal} | {differ} | {left_out} |\n"));
    }
    let [run, equal, differ, left_out] = total;
    text.push_str(&format!("| **all** | **{run}** | **{equal}** | **{differ}** | **{left_out}** |\n\n"));
    text.push_str("| class | statements | why |\n|---|--:|---|\n");
    for (class, reason) in reasons {
        let count = entries.iter().filter(|entry| entry.class == *class).count();
        if count > 0 {
            text.push_str(&format!("| {class} | {count} | {reason} |\n"));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(hash: &str, class: &str, kind: &str) -> Entry {
        let text = "select 1;".to_string();
        let [hash, class, kind] = [hash, class, kind].map(str::to_string);
        Entry { file: "f".to_string(), line: 3, hash, turn: 1, class, kind, text }
    }

    #[test]
    fn unlisted_and_stale_differences_are_reported() {
        let listed = [entry("a", "x", "rows"), entry("b", "x", "rows"), entry("r", "random", "rows")];
        assert_eq!(read(&write(&listed)), listed);
        let count = |found: &[Entry]| disagreements(found, &listed, |class| class == "random").len();
        assert_eq!(count(&listed), 0);
        assert_eq!(count(&listed[..2]), 0, "what varies may be the same once");
        assert_eq!(count(&listed[1..]), 1, "a listed one is gone");
        assert_eq!(count(&[listed[0].clone(), entry("b", "x", "names")]), 1, "one is another");
        assert_eq!(count(&[listed.as_slice(), &[entry("c", "x", "rows")]].concat()), 1, "one is new");
    }
}
