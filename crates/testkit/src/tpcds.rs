//! The queries of TPC-DS, and its data made by the binary.
//!
//! All 99 queries and, where the specification gives a query a second part, that part too: 103 statements.
//! `tests/tpcds/README.md` says where they come from. At a small scale many of them return few rows or none;
//! what is tested with them is that one rank, several ranks and plain DataFusion return the same.

use std::path::Path;
use std::process::Command;

use crate::binary;
use crate::rows::{self, Order, Rows};

/// The scale the tests use: every table has rows, and all queries together take a minute.
pub const SCALE: f64 = 0.01;

/// Two sums of the same floating-point numbers in another order are this close.
const TOLERANCE: f64 = 1e-9;

/// One query.
#[derive(Debug, Clone, Copy)]
pub struct Query {
    /// As `q01`, or `q14b` for the second part of a query that has two.
    pub name: &'static str,
    /// One statement, ending with a semicolon.
    pub sql: &'static str,
}

macro_rules! query {
    ($name:literal) => {
        Query { name: $name, sql: include_str!(concat!("../../../tests/tpcds/", $name, ".sql")) }
    };
}

static QUERIES: &[Query] = &[
    query!("q01"),
    query!("q02"),
    query!("q03"),
    query!("q04"),
    query!("q05"),
    query!("q06"),
    query!("q07"),
    query!("q08"),
    query!("q09"),
    query!("q10"),
    query!("q11"),
    query!("q12"),
    query!("q13"),
    query!("q14"),
    query!("q14b"),
    query!("q15"),
    query!("q16"),
    query!("q17"),
    query!("q18"),
    query!("q19"),
    query!("q20"),
    query!("q21"),
    query!("q22"),
    query!("q23"),
    query!("q23a"),
    query!("q24"),
    query!("q24b"),
    query!("q25"),
    query!("q26"),
    query!("q27"),
    query!("q28"),
    query!("q29"),
    query!("q30"),
    query!("q31"),
    query!("q32"),
    query!("q33"),
    query!("q34"),
    query!("q35"),
    query!("q36"),
    query!("q37"),
    query!("q38"),
    query!("q39"),
    query!("q39b"),
    query!("q40"),
    query!("q41"),
    query!("q42"),
    query!("q43"),
    query!("q44"),
    query!("q45"),
    query!("q46"),
    query!("q47"),
    query!("q48"),
    query!("q49"),
    query!("q50"),
    query!("q51"),
    query!("q52"),
    query!("q53"),
    query!("q54"),
    query!("q55"),
    query!("q56"),
    query!("q57"),
    query!("q58"),
    query!("q59"),
    query!("q60"),
    query!("q61"),
    query!("q62"),
    query!("q63"),
    query!("q64"),
    query!("q65"),
    query!("q66"),
    query!("q67"),
    query!("q68"),
    query!("q69"),
    query!("q70"),
    query!("q71"),
    query!("q72"),
    query!("q73"),
    query!("q74"),
    query!("q75"),
    query!("q76"),
    query!("q77"),
    query!("q78"),
    query!("q79"),
    query!("q80"),
    query!("q81"),
    query!("q82"),
    query!("q83"),
    query!("q84"),
    query!("q85"),
    query!("q86"),
    query!("q87"),
    query!("q88"),
    query!("q89"),
    query!("q90"),
    query!("q91"),
    query!("q92"),
    query!("q93"),
    query!("q94"),
    query!("q95"),
    query!("q96"),
    query!("q97"),
    query!("q98"),
    query!("q99"),
];

/// The queries, in order.
pub fn queries() -> &'static [Query] {
    QUERIES
}

impl Query {
    /// The query without its limit, and the limit: what comes before a limit is open where rows are equal in
    /// the order, and without it the result is one multiset. `None` for a query without a limit.
    pub fn unlimited(&self) -> Option<(String, usize)> {
        let (before, limit) = self.sql.trim_end().strip_suffix(';')?.rsplit_once("\nlimit ")?;
        Some((format!("{before};"), limit.parse().ok()?))
    }

    /// Compares what `run` returns for the query with what `oracle` returns for it: without the limit as
    /// multisets, and with it as rows of the unlimited result.
    ///
    /// Errors: of either of the two, prefixed with its name, or the difference.
    pub fn check(
        &self,
        mut oracle: impl FnMut(&str) -> Result<Rows, String>,
        mut run: impl FnMut(&str) -> Result<Rows, String>,
    ) -> Result<Rows, String> {
        let unlimited = self.unlimited();
        let sql = unlimited.as_ref().map_or(self.sql, |(sql, _)| sql);
        let expected = oracle(sql).map_err(|e| format!("oracle: {e}"))?;
        let actual = run(sql)?;
        rows::compare(&expected, &actual, Order::Any, TOLERANCE)?;
        if let Some((_, limit)) = unlimited {
            rows::compare_limited(&expected, &run(self.sql)?, limit, TOLERANCE)?;
        }
        Ok(expected)
    }
}

/// Makes the data with `harrier generate tpcds`, as Parquet with one folder per table. What is there already
/// is kept.
///
/// Errors: the binary is not there, or what it printed.
pub fn generate(folder: &Path, scale: f64) -> Result<(), String> {
    let output = Command::new(binary::harrier()?)
        .args(["generate", "tpcds", "--scale", &scale.to_string(), "--out"])
        .arg(folder)
        .output()
        .map_err(|e| e.to_string())?;
    match output.status.success() {
        true => Ok(()),
        false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_99_queries_are_there() {
        for number in 1..=99 {
            let name = format!("q{number:02}");
            assert!(queries().iter().any(|query| query.name == name), "{name}");
        }
        for query in queries() {
            assert_eq!(query.sql.matches(';').count(), 1, "{}", query.name);
            assert!(query.sql.ends_with(";\n"), "{}", query.name);
        }
    }

    #[test]
    fn limits_are_split_off() {
        let limited: Vec<_> = queries().iter().filter_map(Query::unlimited).collect();
        assert!(limited.iter().all(|(_, limit)| *limit == 100));
        assert!(limited.len() > 80, "{}", limited.len());
    }
}
