//! The 22 queries of TPC-H, their published answers at scale 1, and the specification's comparison rules.
//!
//! Source: the TPC-H specification, clauses 2.4 (queries), 2.3 (validation) and 2.1.3.5 (precision);
//! `tests/tpch/README.md` names the source of the figures.

use crate::rows::Rows;

/// The tables, as folders of the data.
pub const TABLES: [&str; 8] =
    ["customer", "lineitem", "nation", "orders", "part", "partsupp", "region", "supplier"];

/// Allowed deviation from the published value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Precision {
    /// Values of single columns, counts, sums of quantities: equal (clause 2.1.3.5 a, comments 2 and 4).
    Exact,
    /// Sums: within 100 (clause 2.1.3.5 c, comment 3).
    Sum,
    /// Ratios and averages: rounded to hundredths within 1 % (clause 2.1.3.5 b and d).
    Ratio,
    /// Ratios of sums: both of the above (clause 2.1.3.5, comment 1).
    SumRatio,
}

/// One query.
#[derive(Debug, Clone, Copy)]
pub struct Query {
    /// 1 to 22.
    pub number: usize,
    /// One statement with the validation parameters, ending with a semicolon.
    pub sql: &'static str,
    answer: &'static str,
    precisions: &'static [Precision],
}

use Precision::{Exact, Ratio, Sum, SumRatio};

macro_rules! query {
    ($number:literal, $file:literal, $precisions:expr) => {
        Query {
            number: $number,
            sql: include_str!(concat!("../../../tests/tpch/", $file, ".sql")),
            answer: include_str!(concat!("../../../tests/tpch/answers/", $file, ".csv")),
            precisions: &$precisions,
        }
    };
}

static QUERIES: [Query; 22] = [
    query!(1, "q01", [Exact, Exact, Exact, Sum, Sum, Sum, Ratio, Ratio, Ratio, Exact]),
    query!(2, "q02", [Exact; 8]),
    query!(3, "q03", [Exact, Sum, Exact, Exact]),
    query!(4, "q04", [Exact; 2]),
    query!(5, "q05", [Exact, Sum]),
    query!(6, "q06", [Sum]),
    query!(7, "q07", [Exact, Exact, Exact, Sum]),
    query!(8, "q08", [Exact, SumRatio]),
    query!(9, "q09", [Exact, Exact, Sum]),
    query!(10, "q10", [Exact, Exact, Sum, Exact, Exact, Exact, Exact, Exact]),
    query!(11, "q11", [Exact, Sum]),
    query!(12, "q12", [Exact; 3]),
    query!(13, "q13", [Exact; 2]),
    query!(14, "q14", [SumRatio]),
    query!(15, "q15", [Exact, Exact, Exact, Exact, Sum]),
    query!(16, "q16", [Exact; 4]),
    query!(17, "q17", [SumRatio]),
    query!(18, "q18", [Exact; 6]),
    query!(19, "q19", [Sum]),
    query!(20, "q20", [Exact; 2]),
    query!(21, "q21", [Exact; 2]),
    query!(22, "q22", [Exact, Exact, Sum]),
];

/// The queries, 1 to 22.
pub fn queries() -> &'static [Query; 22] {
    &QUERIES
}

/// The query with a number from 1 to 22. Panics for any other number.
pub fn query(number: usize) -> &'static Query {
    &QUERIES[number - 1]
}

/// The published answer to a query at scale 1, in the query's order.
pub fn answer(number: usize) -> Rows {
    Rows::from_csv(query(number).answer).expect("the answers are CSV")
}

/// Compares a result at scale 1 with the published answer, row by row: every query's order is total on its
/// answer.
///
/// Errors: the first cells that differ, as a message.
pub fn compare(number: usize, actual: &Rows) -> Result<(), String> {
    compare_rows(query(number).precisions, &answer(number), actual)
}

fn compare_rows(precisions: &[Precision], expected: &Rows, actual: &Rows) -> Result<(), String> {
    if actual.columns.len() != precisions.len() {
        return Err(format!("{} columns instead of {}", actual.columns.len(), precisions.len()));
    }
    if actual.rows.len() != expected.rows.len() {
        return Err(format!("{} rows instead of {}", actual.rows.len(), expected.rows.len()));
    }
    for (i, (published, row)) in expected.rows.iter().zip(&actual.rows).enumerate() {
        for (j, precision) in precisions.iter().enumerate() {
            let published = published[j].as_deref().unwrap_or_default();
            let actual = row[j].as_deref().unwrap_or("NULL");
            if !precision.accepts(published, actual) {
                return Err(format!(
                    "row {}, column {}: \"{actual}\" instead of \"{published}\" ({precision:?})",
                    i + 1,
                    expected.columns[j]
                ));
            }
        }
    }
    Ok(())
}

impl Precision {
    fn accepts(self, published: &str, actual: &str) -> bool {
        if self == Exact {
            return canonical(published) == canonical(actual);
        }
        let (Ok(v), Ok(r)) = (published.parse::<f64>(), actual.parse::<f64>()) else {
            return false;
        };
        let sum = (r - v).abs() <= 100.0;
        let rounded = (r * 100.0).round() / 100.0;
        // The last bit of a binary fraction must not decide: 0.99 * 0.03 and 0.0297 are the same bound.
        let slack = 1e-9 * v.abs();
        let ratio = 0.99 * v - slack <= rounded && rounded <= 1.01 * v + slack;
        match self {
            Exact => unreachable!("handled above"),
            Sum => sum,
            Ratio => ratio,
            SumRatio => sum && ratio,
        }
    }
}

/// Normalizes a value: strips blanks around it (clause 2.1.3.4 e) and trailing zeros of a decimal fraction.
fn canonical(value: &str) -> &str {
    let value = value.trim();
    match value.split_once('.') {
        Some((whole, fraction))
            if !fraction.is_empty()
                && whole.trim_start_matches('-').bytes().all(|b| b.is_ascii_digit())
                && fraction.bytes().all(|b| b.is_ascii_digit()) =>
        {
            value.trim_end_matches('0').trim_end_matches('.')
        }
        _ => value,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_answer_accepts_itself() {
        for query in queries() {
            let answer = answer(query.number);
            assert_eq!(answer.columns.len(), query.precisions.len(), "q{}", query.number);
            assert!(!answer.rows.is_empty(), "q{}", query.number);
            if let Err(e) = compare(query.number, &answer) {
                panic!("q{}: {e}", query.number);
            }
        }
    }

    #[test]
    fn every_query_names_its_answers_columns() {
        for query in queries() {
            for column in answer(query.number).columns {
                assert!(query.sql.contains(&column), "q{} {column}", query.number);
            }
        }
    }

    #[test]
    fn precision_is_the_specifications() {
        let check = |precision: Precision, published, actual, accepted| {
            assert_eq!(precision.accepts(published, actual), accepted, "{precision:?} {published} {actual}");
        };
        check(Exact, "323.00", "323", true);
        check(Exact, "1478493", "1478494", false);
        check(Exact, "Supplier#1", "Supplier#1  ", true);
        check(Exact, "1.10", "1.1", true);
        check(Exact, "100", "1", false);
        check(Sum, "5000.00", "5100", true);
        check(Sum, "5000.00", "5100.01", false);
        check(Sum, "5000.00", "", false);
        check(Ratio, "0.03", "0.0344358904066548", true);
        check(Ratio, "0.03", "0.0351", false);
        check(Ratio, "38273.13", "38273.129734621674", true);
        check(Ratio, "38273.13", "38700", false);
        check(SumRatio, "348406.02", "348406.0542857143", true);
        check(SumRatio, "348406.02", "348506.1", false);
    }

    #[test]
    fn a_missing_row_is_a_difference() {
        let mut answer = answer(5);
        answer.rows.pop();
        assert_eq!(compare(5, &answer), Err("4 rows instead of 5".to_owned()));
    }
}
