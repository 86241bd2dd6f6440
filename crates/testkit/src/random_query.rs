//! Random SQL queries with plain DataFusion as the oracle: each seed is one query, and a printed seed replays
//! it.
//!
//! The queries read the tables of [`data`], and their result is one multiset of rows, or one list if they are
//! ordered: floating-point numbers are small multiples of 1/4, whose sums are exact in every order; limits
//! require an order by every column; window functions that distinguish peers are ordered by every column of
//! their input. They also run without an error: no division, no narrowing cast, no overflow. A query that the
//! oracle rejects nevertheless is counted and skipped.
//!
//! A query that differs is shrunk, as long as the smaller one still differs, before it is reported.

mod data;
mod generator;
mod query;

use std::fmt;
use std::ops::Range;
use std::path::Path;

use crate::plain::Plain;
use crate::rows::{self, Order, Rows};

use query::Query;

/// Maximum number of runs to shrink a failing query.
const SHRINK_RUNS_MAX: usize = 400;

/// Maximum number of failing queries to shrink: one bug fails many of them.
const SHRUNK_QUERIES_MAX: usize = 3;

/// Tolerance of averages of the same numbers.
const TOLERANCE: f64 = 1e-9;

/// One random query.
#[derive(Debug, Clone)]
pub struct RandomQuery {
    seed: u64,
    query: Query,
}

impl RandomQuery {
    /// The query of a seed; stable as long as the generator is not changed.
    pub fn new(seed: u64) -> Self {
        Self { seed, query: generator::query(seed) }
    }

    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// The statement, without a semicolon.
    pub fn sql(&self) -> String {
        self.query.to_string()
    }
}

/// Writes the tables of the queries, as Parquet with one folder per table and several files in each.
///
/// Errors: the folder cannot be written.
pub fn write_tables(folder: &Path) -> Result<(), String> {
    data::write(folder)
}

/// A query whose result differs from the oracle's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    pub seed: u64,
    /// The smallest query found that still differs.
    pub sql: String,
    /// The difference, or the error, of that query.
    pub reason: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "seed {}\n{}\n{}", self.seed, self.sql, self.reason)
    }
}

/// Results of a range of seeds.
#[derive(Debug, Default)]
pub struct Report {
    /// Number of queries whose results were compared.
    pub compared: usize,
    /// Number of queries that returned rows.
    pub with_rows: usize,
    /// Queries that the oracle rejected, with its message.
    pub skipped: Vec<(u64, String)>,
    pub failures: Vec<Failure>,
}

/// Runs the queries of the seeds with `run` and compares with the oracle. `run` returns the rows, or an error
/// message, in which case the query counts as failed.
pub fn check(seeds: Range<u64>, oracle: &Plain, mut run: impl FnMut(&str) -> Result<Rows, String>) -> Report {
    let mut report = Report::default();
    for seed in seeds {
        let query = generator::query(seed);
        match compare(&query, oracle, &mut run) {
            Outcome::Same { rows } => {
                report.compared += 1;
                report.with_rows += usize::from(rows > 0);
            }
            Outcome::Refused(message) => report.skipped.push((seed, message)),
            Outcome::Different(reason) => {
                report.compared += 1;
                let (query, reason) = match report.failures.len() < SHRUNK_QUERIES_MAX {
                    true => shrink(query, reason, oracle, &mut run),
                    false => (query, reason),
                };
                report.failures.push(Failure { seed, sql: query.to_string(), reason });
            }
        }
    }
    report
}

enum Outcome {
    Same {
        rows: usize,
    },
    /// Rejected by the oracle.
    Refused(String),
    Different(String),
}

fn compare(query: &Query, oracle: &Plain, run: &mut impl FnMut(&str) -> Result<Rows, String>) -> Outcome {
    let sql = query.to_string();
    let expected = match oracle.run(&sql) {
        Ok(rows) => rows,
        Err(message) => return Outcome::Refused(message),
    };
    let order = match query.is_ordered() {
        true => Order::Exact,
        false => Order::Any,
    };
    match run(&sql) {
        Err(message) => Outcome::Different(message),
        Ok(actual) => match rows::compare(&expected, &actual, order, TOLERANCE) {
            Ok(()) => Outcome::Same { rows: expected.rows.len() },
            Err(difference) => Outcome::Different(difference),
        },
    }
}

/// Takes the first smaller query that still differs, repeatedly.
fn shrink(
    mut query: Query,
    mut reason: String,
    oracle: &Plain,
    run: &mut impl FnMut(&str) -> Result<Rows, String>,
) -> (Query, String) {
    let mut runs = 0;
    'smaller: loop {
        let size = query.to_string().len();
        for candidate in query.smaller() {
            if candidate.to_string().len() >= size {
                continue;
            }
            runs += 1;
            if runs > SHRINK_RUNS_MAX {
                break 'smaller;
            }
            if let Outcome::Different(difference) = compare(&candidate, oracle, run) {
                (query, reason) = (candidate, difference);
                continue 'smaller;
            }
        }
        break;
    }
    (query, reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn oracle() -> (tempfile::TempDir, Plain) {
        let folder = tempfile::tempdir().unwrap();
        write_tables(folder.path()).unwrap();
        let oracle = Plain::open(folder.path()).unwrap();
        (folder, oracle)
    }

    #[test]
    fn a_seed_is_one_query() {
        for seed in 0..50 {
            assert_eq!(RandomQuery::new(seed).sql(), RandomQuery::new(seed).sql());
        }
        assert_ne!(RandomQuery::new(1).sql(), RandomQuery::new(2).sql());
    }

    /// Number of window functions that distinguish equal rows, in each select list of a query.
    fn distinguishing_windows(sql: &str) -> Vec<usize> {
        let telling = ["row_number() over", "rows between", "lag(", "lead(", "first_value(", "last_value("];
        // By depth of parentheses: the select list at that depth.
        let (mut lists, mut open, mut depth) = (Vec::new(), vec![0], 0);
        for (at, sign) in sql.char_indices() {
            let rest = &sql[at..];
            match sign {
                '(' => depth += 1,
                ')' => depth -= 1,
                _ if rest.starts_with("select ") => lists.push(std::mem::take(&mut open[depth])),
                // Frames are in parentheses of their own.
                _ if rest.starts_with("rows between") => open[depth - 1] += 1,
                _ if telling.iter().any(|call| rest.starts_with(call)) => open[depth] += 1,
                _ => {}
            }
            open.resize(open.len().max(depth + 1), 0);
        }
        lists.extend(open);
        lists
    }

    #[test]
    fn queries_have_one_distinguishing_window() {
        assert_eq!(
            distinguishing_windows(
                "select lag(a, 1) over (order by a), (select row_number() over (order by b))"
            )
            .into_iter()
            .max(),
            Some(1)
        );
        let two = "select lag(a, 1) over (order by a), sum(a) over (order by a rows between 1 preceding and current row)";
        assert_eq!(distinguishing_windows(two).into_iter().max(), Some(2));
        for seed in 0..3000 {
            let sql = RandomQuery::new(seed).sql();
            assert!(distinguishing_windows(&sql).into_iter().all(|count| count <= 1), "seed {seed}: {sql}");
        }
    }

    /// The queries are useful only if most run, most of these return rows, and all return the same rows
    /// twice.
    #[test]
    fn plain_datafusion_agrees_with_itself() {
        let (_folder, oracle) = oracle();
        let report = check(0..200, &oracle, |sql| oracle.run(sql));
        assert_eq!(report.failures, []);
        assert!(report.skipped.len() <= 10, "{:#?}", report.skipped);
        assert!(report.with_rows >= 120, "{}", report.with_rows);
    }

    #[test]
    fn a_failing_query_is_made_smaller() {
        let (_folder, oracle) = oracle();
        // A wrong engine: it drops a row of every query with a sum.
        let wrong = |sql: &str| {
            let mut rows = oracle.run(sql)?;
            if sql.contains("sum(") {
                rows.rows.pop();
            }
            Ok(rows)
        };
        let report = check(0..60, &oracle, wrong);
        assert!(!report.failures.is_empty());
        for failure in &report.failures {
            assert!(failure.sql.contains("sum("), "{failure}");
            let before = RandomQuery::new(failure.seed).sql().len();
            assert!(failure.sql.len() <= before, "{failure}");
        }
        let shortest = report.failures.iter().map(|f| f.sql.len()).min();
        assert!(shortest < Some(120), "{:#?}", report.failures);
    }
}
