//! Random SQL statements for differential testing against another engine: each seed is one statement, and a
//! printed seed replays it.
//!
//! The statements read or change the tables of [`tables`]. Their answers are deterministic in SQL: a limit
//! requires an order by every column, functions that distinguish peers require a total order, order-sensitive
//! aggregates an order of their own; sums are exact; nothing divides by zero or overflows.
//!
//! REAL and DOUBLE PRECISION contain values that distinguish them from each other, and from INT and NUMERIC.
//!
//! A statement whose answers differ is shrunk, as long as the answers of the smaller one still differ, before
//! it is reported.

mod aggregates;
mod bytes;
mod changes;
mod choices;
mod expressions;
mod guards;
mod intervals;
mod lists;
mod maker;
mod numbers;
mod orders;
mod queries;
mod rewrites;
mod scope;

use choices::Choices;
use maker::Maker;

pub use rewrites::{Rewrite, shrink_rewrite};

/// Maximum number of runs to shrink a failing statement.
const SHRINK_RUNS_MAX: usize = 400;

/// Rows as text, NULL is `None`.
pub type Rows = Vec<Vec<Option<String>>>;

/// Rows, or SQLSTATE and message.
pub type Answer = Result<Rows, (String, String)>;

/// One random statement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Statement {
    pub sql: String,
    /// Query to read the changed table afterwards; `None` for a query.
    pub check: Option<String>,
    /// Whether the order of the rows is part of the answer.
    pub is_ordered: bool,
}

/// Comparison of two engines' answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    Same,
    /// Both reject it, or the oracle does, with its SQLSTATE and message.
    Invalid(String),
    /// The engine does not support it (0A000), with its message.
    Unsupported(String),
    Different(String),
}

impl Statement {
    /// The statement of a seed; stable as long as the generator is not changed.
    pub fn new(seed: u64) -> Self {
        Self::made_from(&mut Choices::of_seed(seed))
    }

    fn made_from(choices: &mut Choices) -> Self {
        match choices.choose(12) {
            10 | 11 => changes::statement(choices),
            8 | 9 => lists::statement(&mut Maker::new(choices)),
            _ => queries::statement(choices),
        }
    }
}

/// The smallest statement found for the choices of `seed` for which `differs` holds.
pub fn shrink(seed: u64, mut differs: impl FnMut(&Statement) -> bool) -> Statement {
    let mut choices = Choices::of_seed(seed);
    Statement::made_from(&mut choices);
    let made_from = |numbers: &[u32]| Statement::made_from(&mut Choices::of_numbers(numbers.to_vec()));
    let smallest =
        choices::shrink(choices.into_numbers(), SHRINK_RUNS_MAX, |numbers| differs(&made_from(numbers)));
    made_from(&smallest)
}

/// Statements that create the tables. `options` is appended to each CREATE TABLE.
pub fn tables(options: &str) -> Vec<String> {
    vec![
        format!(
            "CREATE TABLE a (id INT, k INT, n NUMERIC(8,2), s TEXT, d DATE, f BOOLEAN, r REAL, \
             x DOUBLE PRECISION, i INTERVAL, y BYTEA){options}"
        ),
        "INSERT INTO a VALUES \
         (1, 1, 1.50, 'a', '2024-01-31', true, 16777216, 16777217, '1 day', '\\x61'), \
         (2, 2, NULL, 'b', '2024-02-29', false, 0.1, 0.1, '1 month', '\\x00ff'), \
         (3, 2, -2.25, NULL, NULL, NULL, '-0', 'NaN', NULL, '')"
            .to_owned(),
        "INSERT INTO a VALUES (4, NULL, 0.00, '', '1999-12-31', true, 'NaN', 1e10, '01:02:03', NULL), \
         (5, 3, 1.50, 'ab', '2024-02-29', NULL, 'Infinity', 0, '3 days 04:05:06.5', '\\x6162')"
            .to_owned(),
        "INSERT INTO a VALUES \
         (6, 5, 10.00, 'a', '2024-03-01', false, 1e10, 'Infinity', '1 month', '\\x61'), \
         (7, NULL, NULL, NULL, NULL, true, NULL, NULL, NULL, '\\xff')"
            .to_owned(),
        format!(
            "CREATE TABLE b (id INT, k INT, n NUMERIC(8,2), s TEXT, t TIMESTAMP, f BOOLEAN, r REAL, \
             x DOUBLE PRECISION, i INTERVAL, y BYTEA){options}"
        ),
        "INSERT INTO b VALUES \
         (1, 2, 2.50, 'b', '2024-02-29 12:30:00', false, 2.5, 16777216, '1 day', '\\x61'), \
         (2, 2, 1.50, 'abc', '2024-02-29 23:59:59', true, 16777216, '-0', '1 year 2 months 7 days', NULL)"
            .to_owned(),
        "INSERT INTO b VALUES (3, 4, NULL, 'a', NULL, NULL, 0.1, 0.1, NULL, '\\x6162'), \
         (4, NULL, -1.00, 'b', '2024-01-01 00:00:00', true, NULL, '-Infinity', '01:02:03', '\\xdeadbeef'), \
         (5, 3, 3.00, NULL, '1999-12-31 00:00:01', NULL, 'NaN', 'NaN', '0', '')"
            .to_owned(),
        "INSERT INTO b VALUES \
         (6, 1, 0.25, '', '2024-03-01 00:00:00', false, 0, NULL, '3 days 04:05:06.5', '\\x00ff')"
            .to_owned(),
        format!("CREATE TABLE c (id INT, k INT, s TEXT){options}"),
        "INSERT INTO c VALUES (1, 1, 'a'), (2, 2, 'b')".to_owned(),
        "INSERT INTO c VALUES (3, 3, 'c')".to_owned(),
        format!("CREATE TABLE e (id INT, k INT, n NUMERIC(8,2), s TEXT){options}"),
        format!("CREATE TABLE h (id INT, u INT[], w TEXT[]){options}"),
        "INSERT INTO h VALUES (1, ARRAY[1, 2, 2], ARRAY['a', NULL]), (2, ARRAY[0], NULL), (3, NULL, ARRAY['b'])"
            .to_owned(),
        "INSERT INTO h VALUES (4, ARRAY[5, NULL], ARRAY['', 'ab', 'a']), (5, ARRAY[3], ARRAY['c'])".to_owned(),
    ]
}

/// Compares the answer of an engine with the oracle's.
pub fn compare(statement: &Statement, oracle: &Answer, engine: &Answer) -> Outcome {
    match (oracle, engine) {
        (Err((code, message)), _) => Outcome::Invalid(format!("{code} {message}")),
        (Ok(_), Err((code, message))) if code == "0A000" => Outcome::Unsupported(message.clone()),
        (Ok(expected), Err((code, message))) => Outcome::Different(format!(
            "error {code} {message}\nexpected {}",
            text(&comparable(statement, expected))
        )),
        (Ok(expected), Ok(actual)) => {
            let (expected, actual) = (comparable(statement, expected), comparable(statement, actual));
            match expected == actual {
                true => Outcome::Same,
                false => {
                    Outcome::Different(format!("expected {}\nactual   {}", text(&expected), text(&actual)))
                }
            }
        }
    }
}

/// Normalizes rows: sorted unless order is part of the answer, numbers without trailing zeros.
fn comparable(statement: &Statement, rows: &Rows) -> Rows {
    let mut rows: Rows =
        rows.iter().map(|row| row.iter().map(|value| value.as_deref().map(normalize)).collect()).collect();
    if !statement.is_ordered {
        rows.sort();
    }
    rows
}

fn normalize(value: &str) -> String {
    let digits = value.strip_prefix('-').unwrap_or(value);
    let is_number = digits.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    match is_number {
        true if digits.contains('.') => {
            let short = value.trim_end_matches('0').trim_end_matches('.');
            if short == "-0" { "0".to_owned() } else { short.to_owned() }
        }
        // -0 and 0 are equal.
        _ if value == "-0" => "0".to_owned(),
        _ => value.to_owned(),
    }
}

fn text(rows: &Rows) -> String {
    let row = |row: &Vec<Option<String>>| {
        row.iter().map(|value| value.as_deref().unwrap_or("NULL")).collect::<Vec<_>>().join(",")
    };
    format!("{} rows: {}", rows.len(), rows.iter().map(row).collect::<Vec<_>>().join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_is_one_statement() {
        for seed in 0..200 {
            assert_eq!(Statement::new(seed), Statement::new(seed));
        }
        assert_ne!(Statement::new(1), Statement::new(2));
    }

    #[test]
    fn row_order_is_compared_under_order_by() {
        let mut statement = Statement { sql: String::new(), check: None, is_ordered: false };
        let rows = |values: &[&str]| Ok(values.iter().map(|value| vec![Some((*value).to_owned())]).collect());
        assert_eq!(compare(&statement, &rows(&["1.50", "2"]), &rows(&["2", "1.5"])), Outcome::Same);
        statement.is_ordered = true;
        assert!(matches!(compare(&statement, &rows(&["1", "2"]), &rows(&["2", "1"])), Outcome::Different(_)));
        assert!(matches!(compare(&statement, &rows(&["1"]), &rows(&["1", "1"])), Outcome::Different(_)));
    }
}
