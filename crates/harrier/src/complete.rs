//! Completion in the shell: keywords, tables, columns and functions; meta commands; file names inside quotes.

use std::collections::BTreeSet;
use std::sync::Arc;

use datafusion::prelude::SessionContext;
use datafusion::sql::sqlparser::keywords::ALL_KEYWORDS;
use parking_lot::RwLock;
use rustyline::completion::{Completer, FilenameCompleter, Pair};
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::validate::Validator;
use rustyline::{Context, Helper};

use crate::meta;

/// Keywords offered; the parser knows hundreds more that no statement here uses.
const KEYWORDS: &[&str] = &[
    "ALL",
    "ANALYZE",
    "AND",
    "AS",
    "ASC",
    "BETWEEN",
    "BY",
    "CASE",
    "CAST",
    "COPY",
    "COUNT",
    "CREATE",
    "CROSS",
    "CURRENT_DATE",
    "DATE",
    "DEALLOCATE",
    "DESC",
    "DESCRIBE",
    "DISTINCT",
    "DROP",
    "ELSE",
    "END",
    "EXCEPT",
    "EXECUTE",
    "EXISTS",
    "EXPLAIN",
    "EXTERNAL",
    "EXTRACT",
    "FALSE",
    "FILTER",
    "FROM",
    "FULL",
    "GROUP",
    "GROUPING",
    "HAVING",
    "IF",
    "IN",
    "INNER",
    "INSERT",
    "INTERSECT",
    "INTERVAL",
    "INTO",
    "IS",
    "JOIN",
    "LATERAL",
    "LEFT",
    "LIKE",
    "LIMIT",
    "LOCATION",
    "NATURAL",
    "NOT",
    "NULL",
    "NULLS",
    "OFFSET",
    "ON",
    "OPTIONS",
    "OR",
    "ORDER",
    "OUTER",
    "OVER",
    "PARQUET",
    "PARTITION",
    "PARTITIONED",
    "PREPARE",
    "RECURSIVE",
    "REPLACE",
    "RESET",
    "RIGHT",
    "ROLLUP",
    "ROWS",
    "SCHEMA",
    "SELECT",
    "SEMI",
    "SET",
    "SHOW",
    "STORED",
    "TABLE",
    "TABLES",
    "THEN",
    "TIMESTAMP",
    "TO",
    "TRUE",
    "UNION",
    "USING",
    "VALUES",
    "VERBOSE",
    "VIEW",
    "WHEN",
    "WHERE",
    "WINDOW",
    "WITH",
];

/// Names visible in a session at the time of [`Names::load`].
#[derive(Debug, Default)]
pub(crate) struct Names {
    relations: BTreeSet<String>,
    columns: BTreeSet<String>,
    functions: BTreeSet<String>,
}

impl Names {
    /// Collects the names of all catalogs in memory. Opens no file.
    pub(crate) async fn load(context: &SessionContext) -> Self {
        let mut names = Self::default();
        let state = context.state();
        names.functions.extend(state.scalar_functions().keys().cloned());
        names.functions.extend(state.aggregate_functions().keys().cloned());
        names.functions.extend(state.window_functions().keys().cloned());
        names.functions.extend(state.table_functions().keys().cloned());
        for catalog in context.catalog_names() {
            let Some(catalog) = context.catalog(&catalog) else {
                continue;
            };
            for schema_name in catalog.schema_names() {
                let Some(schema) = catalog.schema(&schema_name) else {
                    continue;
                };
                for table in schema.table_names() {
                    if let Ok(Some(provider)) = schema.table(&table).await {
                        let schema = provider.schema();
                        let fields = schema.fields().iter();
                        names.columns.extend(fields.map(|field| quote_name(field.name())));
                    }
                    names.relations.insert(quote_name(&table));
                }
                names.relations.insert(quote_name(&schema_name));
            }
        }
        names
    }
}

/// Quotes a name if SQL requires it.
fn quote_name(name: &str) -> String {
    let is_plain = name.starts_with(|c: char| c.is_ascii_lowercase() || c == '_')
        && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
        && !ALL_KEYWORDS.contains(&name.to_uppercase().as_str());
    if is_plain { name.to_string() } else { format!("\"{}\"", name.replace('"', "\"\"")) }
}

/// Completion callbacks for rustyline.
pub(crate) struct ShellHelper {
    pub(crate) names: Arc<RwLock<Names>>,
    files: FilenameCompleter,
}

impl ShellHelper {
    pub(crate) fn new(names: Arc<RwLock<Names>>) -> Self {
        Self { names, files: FilenameCompleter::new() }
    }
}

impl Helper for ShellHelper {}
impl Highlighter for ShellHelper {}
impl Validator for ShellHelper {}
impl Hinter for ShellHelper {
    type Hint = String;
}

impl Completer for ShellHelper {
    type Candidate = Pair;

    fn complete(
        &self,
        line: &str,
        position: usize,
        _: &Context<'_>,
    ) -> rustyline::Result<(usize, Vec<Pair>)> {
        let before = &line[..position];
        let is_file_command = ["\\i ", "\\o "].iter().any(|command| before.trim_start().starts_with(command));
        if is_file_command || before.matches('\'').count() % 2 == 1 {
            return self.files.complete_path(line, position);
        }
        Ok(complete(&self.names.read(), before))
    }
}

/// Returns the start of the word before the cursor, and its completions.
fn complete(names: &Names, before: &str) -> (usize, Vec<Pair>) {
    let start = before
        .rfind(|c: char| !(c.is_alphanumeric() || c == '_' || c == '"' || c == '\\' || c == '?'))
        .map_or(0, |at| at + before[at..].chars().next().map_or(1, char::len_utf8));
    let word = &before[start..];
    let mut pairs = Vec::new();
    let mut add = |text: String| {
        if !pairs.iter().any(|pair: &Pair| pair.replacement == text) {
            pairs.push(Pair { display: text.clone(), replacement: text });
        }
    };
    if word.starts_with('\\') {
        for (name, ..) in meta::COMMANDS {
            if name.starts_with(word) {
                add((*name).to_string());
            }
        }
        return (start, pairs);
    }
    let is_after_dot = before[..start].ends_with('.');
    if word.is_empty() && !is_after_dot {
        let after = before.trim_end().rsplit(char::is_whitespace).next().unwrap_or_default();
        let wants_relation = ["from", "join", "into", "table", "describe", "\\d"]
            .iter()
            .any(|keyword| after.eq_ignore_ascii_case(keyword));
        if wants_relation {
            names.relations.iter().cloned().for_each(add);
        }
        return (start, pairs);
    }
    let matching = |name: &&String| {
        let plain = name.trim_start_matches('"');
        let typed = word.trim_start_matches('"');
        plain.get(..typed.len()).is_some_and(|beginning| beginning.eq_ignore_ascii_case(typed))
    };
    names.relations.iter().filter(matching).cloned().for_each(&mut add);
    names.columns.iter().filter(matching).cloned().for_each(&mut add);
    if is_after_dot {
        return (start, pairs);
    }
    for keyword in KEYWORDS {
        if keyword.len() >= word.len() && keyword[..word.len()].eq_ignore_ascii_case(word) {
            // Follows the case of the typed word.
            let is_lower = word.chars().any(char::is_lowercase);
            add(if is_lower { keyword.to_lowercase() } else { (*keyword).to_string() });
        }
    }
    names.functions.iter().filter(matching).cloned().for_each(&mut add);
    (start, pairs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_completed() {
        let set = |names: &[&str]| names.iter().map(|name| name.to_string()).collect();
        let names = Names {
            relations: set(&["lineitem", "orders", "\"Odd\""]),
            columns: set(&["l_orderkey", "l_tax"]),
            functions: set(&["log10", "lower"]),
        };
        let cases: &[(&str, usize, &[&str])] = &[
            ("sel", 0, &["select"]),
            ("SEL", 0, &["SELECT"]),
            ("select * from ", 14, &["\"Odd\"", "lineitem", "orders"]),
            (
                "select * from o",
                14,
                &["\"Odd\"", "orders", "offset", "on", "options", "or", "order", "outer", "over"],
            ),
            ("select l_", 7, &["l_orderkey", "l_tax"]),
            ("select (lo", 8, &["location", "log10", "lower"]),
            ("select lineitem.l", 16, &["lineitem", "l_orderkey", "l_tax"]),
            ("select 1 + ", 11, &[]),
            ("\\ti", 0, &["\\timing"]),
            ("\\d ", 3, &["\"Odd\"", "lineitem", "orders"]),
            (
                "select é o",
                10,
                &["\"Odd\"", "orders", "offset", "on", "options", "or", "order", "outer", "over"],
            ),
        ];
        for (line, start, expected) in cases {
            let (at, pairs) = complete(&names, line);
            let got: Vec<_> = pairs.iter().map(|pair| pair.replacement.as_str()).collect();
            assert_eq!((at, got.as_slice()), (*start, *expected), "{line:?}");
        }
    }

    #[test]
    fn completed_names_are_quoted_if_necessary() {
        for (name, expected) in [
            ("abc_1", "abc_1"),
            ("Abc", "\"Abc\""),
            ("a b", "\"a b\""),
            ("1a", "\"1a\""),
            ("select", "\"select\""),
            ("a\"b", "\"a\"\"b\""),
        ] {
            assert_eq!(quote_name(name), expected);
        }
    }
}
