//! What of the suite is no SQL of a warehouse: rules by which statements are left out, and tables made fit,
//! for both servers alike.

use super::script::{Part, Statement};

/// Types of columns in the suite's tables that Harrier has none of; their values are made texts.
const AS_TEXT: [&str; 3] = ["name", "point", "path"];

/// Beginnings of statements that say how to compute or store something, and not what: plans, statistics,
/// indexes.
const ABOUT_HOW: [&str; 17] = [
    "explain",
    "analyze",
    "vacuum",
    "create index",
    "create unique index",
    "drop index",
    "reindex",
    "cluster",
    "create statistics",
    "alter table % parallel_workers",
    "set enable_",
    "set local enable_",
    "reset enable_",
    "set % parallel",
    "set % mem",
    "set % collapse_limit",
    "reset % parallel",
];

/// Beginnings of statements of the setup that only a few files need, all of them about PostgreSQL's own
/// extension.
const NOT_SET_UP: [&str; 5] = ["grant", "set", "create type", "create function", "create operator class"];

/// The suite's tables: without those that inherit from others, with columns of types that both servers have.
pub fn adapted(parts: Vec<Part>) -> Vec<Part> {
    let (parts, _) = kept(parts);
    let mut without: Vec<String> = Vec::new();
    let mut adapted = Vec::new();
    for part in parts {
        let Part::Statement(mut statement) = part else {
            adapted.push(part);
            continue;
        };
        let words = words(&statement.text);
        let begins = |beginning: &str| words.join(" ").starts_with(beginning);
        if NOT_SET_UP.iter().any(|beginning| begins(beginning)) {
            continue;
        }
        if begins("create table") && words.iter().any(|word| word == "inherits") {
            without.push(words[2].clone());
        }
        if words.iter().any(|word| without.contains(word)) {
            continue;
        }
        if begins("create table") {
            statement.text = with_texts(&statement.text);
        }
        adapted.push(Part::Statement(statement));
    }
    adapted
}

/// What is run of a file, and how many statements are left out.
pub fn kept(parts: Vec<Part>) -> (Vec<Part>, usize) {
    let is_statement = |part: &&Part| matches!(part, Part::Statement(_));
    let before = parts.iter().filter(is_statement).count();
    let kept: Vec<Part> = parts
        .into_iter()
        .filter(|part| match part {
            Part::Statement(statement) => !is_about_how(statement),
            // What would print otherwise than the comparison expects; \d prints what is PostgreSQL's own.
            Part::Command(command) => {
                let word = command.split_whitespace().next().unwrap_or_default();
                matches!(word, "\\set" | "\\unset" | "\\getenv") && !command.contains("VERBOSITY")
            }
        })
        .collect();
    let left_out = before - kept.iter().filter(is_statement).count();
    (kept, left_out)
}

fn is_about_how(statement: &Statement) -> bool {
    let text = words(&statement.text).join(" ");
    ABOUT_HOW.iter().any(|beginning| match beginning.split_once(" % ") {
        Some((first, word)) => {
            text.starts_with(&format!("{first} ")) && text.lines().next().unwrap_or_default().contains(word)
        }
        None => text.starts_with(beginning),
    })
}

/// In lower case.
fn words(text: &str) -> Vec<String> {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    text.split(|c| !is_part(c)).filter(|word| !word.is_empty()).map(str::to_lowercase).collect()
}

/// A definition of a table, with a column on each line, with texts for what Harrier has no type for.
fn with_texts(text: &str) -> String {
    let line = |line: &str| {
        let trimmed = line.trim_end();
        let body = trimmed.trim_end_matches([',', ')', ';']);
        let last = body.split(|c: char| c.is_whitespace() || c == '(').next_back().unwrap_or_default();
        let is_type = body.trim_start() != last && AS_TEXT.contains(&last);
        match is_type {
            true => format!("{}text{}", &body[..body.len() - last.len()], &trimmed[body.len()..]),
            false => trimmed.to_string(),
        }
    };
    text.lines().map(line).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::regress::script;

    #[test]
    fn tables_have_types_that_both_have() {
        let check = |text: &str, expected: &str| assert_eq!(with_texts(text), expected);
        check(
            "CREATE TABLE t (\n\tname \ttext,\n\ts\tname,\n\tl point\n);",
            "CREATE TABLE t (\n\tname \ttext,\n\ts\ttext,\n\tl text\n);",
        );
        check("CREATE TABLE POINT_TBL(f1 point);", "CREATE TABLE POINT_TBL(f1 text);");
    }

    #[test]
    fn what_is_about_how_is_left_out() {
        let check = |text: &str, expected: usize| assert_eq!(kept(script::parts(text)).1, expected, "{text}");
        check("explain (costs off) select 1; select 1;", 1);
        check("set enable_hashjoin to off; set work_mem = '64kB'; set local max_parallel_workers = 1;", 3);
        check("set extra_float_digits = 0; select memory from t;", 0);
    }
}
