//! Runner of `.slt` files (sqllogictest) against the real binary under any [`Configuration`].
//!
//! In the files: `statement ok`, `statement error (42601)` compares by SQLSTATE, `query IRT rowsort` with the
//! column letters of [`Type`], `skipif`/`onlyif` with the configuration's name or one of its labels, `$NAME`
//! after `control substitution on`. Null is written `NULL`, the empty string `(empty)`.
//!
//! With the variable `HARRIER_SLT_UPDATE=1` the files are rewritten with the binary's results.

use std::env;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sqllogictest::{ColumnType, DB, DBOutput, QueryExpect, Record, Runner, SortMode};

use crate::rows::Cell;
use crate::session::{Answer, Configuration, Failure, LOST, Session};

/// The type of a column, as one letter in a `query` record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Type {
    /// B
    Boolean,
    /// I: signed and unsigned integers.
    Integer,
    /// R: floating-point numbers and decimals.
    Real,
    /// T
    Text,
    /// D
    Date,
    /// P: timestamps.
    Timestamp,
    /// `?`: every other type; in a file: any type.
    Other,
}

impl Type {
    fn of_arrow(name: &str) -> Self {
        let starts = |prefixes: &[&str]| prefixes.iter().any(|prefix| name.starts_with(prefix));
        match () {
            () if name == "Boolean" => Self::Boolean,
            () if starts(&["Int8", "Int16", "Int32", "Int64", "UInt"]) => Self::Integer,
            () if starts(&["Float", "Decimal"]) => Self::Real,
            () if starts(&["Utf8", "LargeUtf8"]) => Self::Text,
            () if starts(&["Date"]) => Self::Date,
            () if starts(&["Timestamp"]) => Self::Timestamp,
            () => Self::Other,
        }
    }
}

impl ColumnType for Type {
    fn from_char(value: char) -> Option<Self> {
        Some(match value {
            'B' => Self::Boolean,
            'I' => Self::Integer,
            'R' => Self::Real,
            'T' => Self::Text,
            'D' => Self::Date,
            'P' => Self::Timestamp,
            '?' => Self::Other,
            _ => return None,
        })
    }

    fn to_char(&self) -> char {
        match self {
            Self::Boolean => 'B',
            Self::Integer => 'I',
            Self::Real => 'R',
            Self::Text => 'T',
            Self::Date => 'D',
            Self::Timestamp => 'P',
            Self::Other => '?',
        }
    }
}

/// A process shared by several files in turn, since a gang takes time to start.
#[derive(Clone)]
struct Process {
    configuration: Configuration,
    /// `None` until the first statement, and after the process was lost.
    session: Arc<Mutex<Option<Session>>>,
}

impl Process {
    fn new(configuration: &Configuration) -> Self {
        Self { configuration: configuration.clone(), session: Arc::default() }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Session>> {
        self.session.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn answer(&self, sql: &str) -> Result<Answer, Failure> {
        let mut session = self.lock();
        let running = match &mut *session {
            Some(running) => running,
            none => none.insert(Session::start(&self.configuration)?),
        };
        let answer = running.run(sql);
        if answer.as_ref().is_err_and(|failure| failure.sqlstate == LOST) {
            *session = None;
        }
        answer
    }

    /// Removes the settings, tables, views and sequences that a file left behind. If that fails, the next
    /// file gets a new process.
    fn tidy(&self) {
        let is_running = self.lock().is_some();
        // In a warehouse a file may leave more behind, such as a transaction.
        if is_running && (self.forget().is_err() || self.configuration.warehouse.is_some()) {
            *self.lock() = None;
        }
    }

    fn forget(&self) -> Result<(), Failure> {
        self.answer("RESET ALL")?;
        let tables = self.answer(
            "SELECT table_type, table_schema, table_name FROM information_schema.tables \
             WHERE table_schema NOT IN ('information_schema', 'pg_catalog')",
        )?;
        let Answer::Rows { rows, .. } = tables else { return Ok(()) };
        for row in rows {
            let kind = if row[0].as_deref() == Some("VIEW") { "VIEW" } else { "TABLE" };
            let [schema, name] =
                [&row[1], &row[2]].map(|name| name.as_deref().unwrap_or_default().replace('"', "\"\""));
            match schema.starts_with("pg_temp_") {
                true => self.answer(&format!("DROP {kind} \"{name}\""))?,
                false => self.answer(&format!("DROP {kind} \"{schema}\".\"{name}\""))?,
            };
        }
        if self.configuration.warehouse.is_none() {
            return Ok(());
        }
        // Sequences owned by columns were dropped with their tables.
        let sequences =
            self.answer("SELECT sequence_schema, sequence_name FROM information_schema.sequences")?;
        let Answer::Rows { rows, .. } = sequences else { return Ok(()) };
        for row in rows {
            let [schema, name] =
                [&row[0], &row[1]].map(|name| name.as_deref().unwrap_or_default().replace('"', "\"\""));
            self.answer(&format!("DROP SEQUENCE \"{schema}\".\"{name}\""))?;
        }
        Ok(())
    }
}

impl DB for Process {
    type Error = Failure;
    type ColumnType = Type;

    fn run(&mut self, sql: &str) -> Result<DBOutput<Type>, Failure> {
        Ok(output(self.answer(sql)?))
    }

    fn engine_name(&self) -> &str {
        "harrier"
    }

    fn error_sql_state(failure: &Failure) -> Option<String> {
        Some(failure.sqlstate.clone())
    }
}

fn output(answer: Answer) -> DBOutput<Type> {
    match answer {
        // Tags end in the number of rows, if any, such as "INSERT 0 3".
        Answer::Command(tag) => DBOutput::StatementComplete(
            tag.rsplit(' ').next().and_then(|n| n.parse().ok()).unwrap_or_default(),
        ),
        Answer::Rows { types, rows, .. } => DBOutput::Rows {
            types: types.iter().map(|name| Type::of_arrow(name)).collect(),
            rows: rows.into_iter().map(|row| row.into_iter().map(cell).collect()).collect(),
        },
    }
}

fn cell(value: Cell) -> String {
    match value {
        None => "NULL".to_owned(),
        Some(text) if text.is_empty() => "(empty)".to_owned(),
        Some(text) => text,
    }
}

/// Whether the numbers of columns are equal, and each type is that of the file, or `?` in the file.
#[allow(clippy::ptr_arg, reason = "the signature is the runner's")]
fn same_types(actual: &Vec<Type>, expected: &Vec<Type>) -> bool {
    actual.len() == expected.len() && actual.iter().zip(expected).all(|(a, e)| a == e || *e == Type::Other)
}

/// Parameters of a run.
#[derive(Debug, Clone)]
pub struct Run<'a> {
    pub configuration: &'a Configuration,
    /// Labels for `skipif` and `onlyif`, in addition to the configuration's name.
    pub labels: &'a [&'a str],
    /// Values of `$NAME`.
    pub variables: &'a [(&'a str, &'a str)],
}

impl Run<'_> {
    /// Runs one file in a new process of its own.
    ///
    /// Errors: the first record that differs, with file, line and both results.
    pub fn file(&self, path: &Path) -> Result<(), String> {
        self.file_in(&Process::new(self.configuration), path)
    }

    fn file_in(&self, process: &Process, path: &Path) -> Result<(), String> {
        let mut runner = Runner::new(|| async { Ok(process.clone()) });
        runner.with_column_validator(same_types);
        runner.add_label(&self.configuration.name);
        for label in self.labels {
            runner.add_label(label);
        }
        for (name, value) in self.variables {
            runner.set_var((*name).to_owned(), (*value).to_owned());
        }
        if env::var_os("HARRIER_SLT_UPDATE").is_some() {
            return futures::executor::block_on(runner.update_test_file(
                path,
                " ",
                sqllogictest::default_validator,
                sqllogictest::default_normalizer,
                same_types,
            ))
            .map_err(|e| e.to_string());
        }
        runner.run_file(path).map_err(|e| format!("[{}] {}", self.configuration.name, e.display(false)))
    }

    /// Runs files in turn in one process. Tables, views and settings that a file leaves behind are removed
    /// before the next one; its prepared statements are not. Every `connection` of a file is the one session
    /// of the process.
    ///
    /// Errors: those of all files that failed, or that there is no file.
    pub fn files(&self, files: &[PathBuf]) -> Result<(), String> {
        if files.is_empty() {
            return Err("there is no .slt file to run".to_owned());
        }
        let process = Process::new(self.configuration);
        let failures: Vec<String> = files
            .iter()
            .filter_map(|file| {
                let result = self.file_in(&process, file);
                process.tidy();
                result.err()
            })
            .collect();
        match failures.is_empty() {
            true => Ok(()),
            false => Err(failures.join("\n\n")),
        }
    }

    /// [`Run::files`] with every `.slt` file below a folder, sorted by name.
    ///
    /// Errors: those of [`Run::files`], or that the folder cannot be read.
    pub fn folder(&self, folder: &Path) -> Result<(), String> {
        self.files(&files(folder)?)
    }
}

/// The `.slt` files below a folder, sorted.
///
/// Errors: a folder that cannot be read.
pub fn files(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let error = |e: std::io::Error| format!("{}: {e}", folder.display());
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(error)? {
        let path = entry.map_err(error)?.path();
        if path.is_dir() {
            found.extend(files(&path)?);
        } else if path.extension().is_some_and(|extension| extension == "slt") {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

/// Keywords of statements whose rows are ordered without ORDER BY: set-returning functions in the select
/// list, RETURNING, and lists of the session. (Plain VALUES is ordered, too.)
const ORDERED: &[&str] = &[
    "order by",
    "unnest(",
    "generate_series(",
    "generate_subscripts(",
    "regexp_split_to_table(",
    "regexp_matches(",
    "nextval(",
    "returning",
    "execute ",
    "explain ",
    "show ",
    "describe ",
];

/// The queries of a file that expect several rows in an order that nothing guarantees: neither `rowsort` nor
/// ORDER BY. They pass until batches or ranks arrive in another order.
///
/// Errors: a file that cannot be parsed.
pub fn unordered_queries(path: &Path) -> Result<Vec<String>, String> {
    let records = sqllogictest::parse_file::<Type>(path).map_err(|e| e.to_string())?;
    let unordered = records.into_iter().filter_map(|record| match record {
        Record::Query {
            loc,
            sql,
            expected: QueryExpect::Results { sort_mode: None | Some(SortMode::NoSort), results, .. },
            ..
        } => {
            let words = sql.split_whitespace().collect::<Vec<_>>().join(" ").to_lowercase();
            let is_ordered = words.starts_with("values") || ORDERED.iter().any(|word| words.contains(word));
            let is_one_row = results.iter().all(|row| *row == results[0]);
            (!is_ordered && !is_one_row).then(|| format!("{loc}: {sql}"))
        }
        _ => None,
    });
    Ok(unordered.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_of_several_rows_have_an_order() {
        let mut file = tempfile::NamedTempFile::with_suffix(".slt").unwrap();
        let record = |sort: &str, sql: &str, rows: &str| format!("query I {sort}\n{sql}\n----\n{rows}\n\n");
        let records = [
            record("", "SELECT a FROM t", "1\n2"),
            record("", "SELECT a FROM t", "1\n1"),
            record("", "SELECT a FROM t", "1"),
            record("rowsort", "SELECT a FROM t", "1\n2"),
            record("", "SELECT a FROM t ORDER\nBY a", "1\n2"),
        ];
        std::io::Write::write_all(&mut file, records.concat().as_bytes()).unwrap();
        let found = unordered_queries(file.path()).unwrap();
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].ends_with(":1: SELECT a FROM t"), "{found:?}");
    }

    #[test]
    fn types_are_letters() {
        let letter = |name| Type::of_arrow(name).to_char();
        assert_eq!(letter("Int64"), 'I');
        assert_eq!(letter("UInt8"), 'I');
        assert_eq!(letter("Interval(MonthDayNano)"), '?');
        assert_eq!(letter("Decimal128(10, 2)"), 'R');
        assert_eq!(letter("Utf8View"), 'T');
        assert_eq!(letter("Timestamp(Nanosecond, None)"), 'P');
        assert_eq!(letter("List(Int64)"), '?');
        for letter in "BIRTDP?".chars() {
            assert_eq!(Type::from_char(letter).unwrap().to_char(), letter);
        }
    }

    #[test]
    fn declared_types_are_checked() {
        let of = |letters: &str| -> Vec<Type> { letters.chars().filter_map(Type::from_char).collect() };
        let same = |actual: &str, expected: &str| same_types(&of(actual), &of(expected));
        assert!(same("ITR", "ITR") && same("ITR", "I?R") && same("", ""));
        assert!(!same("ITR", "ITI") && !same("?", "I"));
        assert!(!same("IT", "I") && !same("I", "IT") && !same("I", ""));
    }

    #[test]
    fn null_and_empty_are_distinguished() {
        let answer = Answer::Rows {
            columns: vec!["a".into()],
            types: vec!["Utf8".into()],
            rows: vec![vec![None], vec![Some(String::new())], vec![Some("x".into())]],
        };
        let DBOutput::Rows { rows, .. } = output(answer) else {
            panic!("rows");
        };
        assert_eq!(rows, [["NULL"], ["(empty)"], ["x"]]);
    }

    #[test]
    fn tags_carry_a_count() {
        for (tag, count) in [("INSERT 0 3", 3), ("CREATE TABLE", 0), ("SET", 0)] {
            let DBOutput::StatementComplete(n) = output(Answer::Command(tag.into())) else {
                panic!("a command");
            };
            assert_eq!(n, count, "{tag}");
        }
    }
}
