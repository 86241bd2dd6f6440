//! Rules that skip statements of the suite not about a warehouse's SQL, and adapt its tables, equally for
//! both servers.

use super::script::{Part, Statement};

/// Types without an equivalent in Harrier; their columns become TEXT.
const TEXT_TYPES: [&str; 3] = ["name", "point", "path"];

/// Prefixes of statements about plans, statistics and indexes, which are skipped.
const PHYSICAL: [&str; 17] = [
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

/// Prefixes of setup statements needed by few files, all about PostgreSQL's extensibility.
const SKIPPED_SETUP: [&str; 5] = ["grant", "set", "create type", "create function", "create operator class"];

/// Adapts the suite's tables: no inheritance, and types that both servers have.
pub fn adapt_tables(parts: Vec<Part>) -> Vec<Part> {
    let (parts, _) = filter_statements(parts);
    let mut without: Vec<String> = Vec::new();
    let mut result = Vec::new();
    for part in parts {
        let Part::Statement(mut statement) = part else {
            result.push(part);
            continue;
        };
        let words = words(&statement.text);
        let begins = |beginning: &str| words.join(" ").starts_with(beginning);
        if SKIPPED_SETUP.iter().any(|beginning| begins(beginning)) {
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
        result.push(Part::Statement(statement));
    }
    result
}

/// Filters a file; returns the statements to run and the number skipped.
pub fn filter_statements(parts: Vec<Part>) -> (Vec<Part>, usize) {
    let is_statement = |part: &&Part| matches!(part, Part::Statement(_));
    let before = parts.iter().filter(is_statement).count();
    let kept: Vec<Part> = parts
        .into_iter()
        .filter(|part| match part {
            Part::Statement(statement) => !is_physical(statement),
            // Output that the comparison cannot parse, such as `\d` with PostgreSQL's internals.
            Part::Command(command) => {
                let word = command.split_whitespace().next().unwrap_or_default();
                matches!(word, "\\set" | "\\unset" | "\\getenv") && !command.contains("VERBOSITY")
            }
        })
        .collect();
    let left_out = before - kept.iter().filter(is_statement).count();
    (kept, left_out)
}

fn is_physical(statement: &Statement) -> bool {
    let text = words(&statement.text).join(" ");
    PHYSICAL.iter().any(|beginning| match beginning.split_once(" % ") {
        Some((first, word)) => {
            text.starts_with(&format!("{first} ")) && text.lines().next().unwrap_or_default().contains(word)
        }
        None => text.starts_with(beginning),
    })
}

/// Words in lower case.
fn words(text: &str) -> Vec<String> {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    text.split(|c| !is_part(c)).filter(|word| !word.is_empty()).map(str::to_lowercase).collect()
}

/// Replaces unsupported types by TEXT in a table definition with one column per line.
fn with_texts(text: &str) -> String {
    let line = |line: &str| {
        let trimmed = line.trim_end();
        let body = trimmed.trim_end_matches([',', ')', ';']);
        let last = body.split(|c: char| c.is_whitespace() || c == '(').next_back().unwrap_or_default();
        let is_type = body.trim_start() != last && TEXT_TYPES.contains(&last);
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
    fn tables_use_types_of_both_servers() {
        let check = |text: &str, expected: &str| assert_eq!(with_texts(text), expected);
        check(
            "CREATE TABLE t (\n\tname \ttext,\n\ts\tname,\n\tl point\n);",
            "CREATE TABLE t (\n\tname \ttext,\n\ts\ttext,\n\tl text\n);",
        );
        check("CREATE TABLE POINT_TBL(f1 point);", "CREATE TABLE POINT_TBL(f1 text);");
    }

    #[test]
    fn statements_about_plans_are_skipped() {
        let check = |text: &str, expected: usize| {
            assert_eq!(filter_statements(script::parts(text)).1, expected, "{text}")
        };
        check("explain (costs off) select 1; select 1;", 1);
        check("set enable_hashjoin to off; set work_mem = '64kB'; set local max_parallel_workers = 1;", 3);
        check("set extra_float_digits = 0; select memory from t;", 0);
    }
}
