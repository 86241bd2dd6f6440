//! Comparison of two engines' answers as text, where neither is known to be right.
//!
//! Numbers with a fraction are the same up to their sixth digit, or up to their fourth place behind the
//! point: engines give their decimals different numbers of places. Everything else must be equal; NULL equals
//! the empty string, and the `T` in a point in time equals a blank.

use std::cmp::Ordering;

use crate::answers::{Rows, number};

/// Numbers with a fraction may differ by this part of themselves.
const DIGITS: f64 = 1e-6;
/// Or by this.
const PLACES: f64 = 1e-4;

/// What of two answers to the same statement has to be the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Same {
    /// All rows, in order.
    RowsInOrder,
    /// All rows, in any order.
    Rows,
    /// The number of rows: the statement leaves open which.
    Count,
}

/// Compares two answers. Errors: the first difference, as a message.
pub fn compare(expected: &Rows, actual: &Rows, same: Same) -> Result<(), String> {
    if expected.len() != actual.len() {
        return Err(format!("{} rows instead of {}", actual.len(), expected.len()));
    }
    let (columns, found) = (expected.first().map_or(0, Vec::len), actual.first().map_or(0, Vec::len));
    if columns != found {
        return Err(format!("{found} columns instead of {columns}"));
    }
    let rows = |rows: &Rows| rows.iter().map(|row| row.iter().map(cell).collect()).collect::<Vec<Vec<_>>>();
    let (mut expected, mut actual) = (rows(expected), rows(actual));
    match same {
        Same::Count => return Ok(()),
        Same::RowsInOrder => {}
        Same::Rows => {
            let order = Order::new(columns, [&expected, &actual]);
            expected.sort_by(|a, b| order.compare(a, b));
            actual.sort_by(|a, b| order.compare(a, b));
        }
    }
    for (number, (expected, actual)) in expected.iter().zip(&actual).enumerate() {
        if let Some(column) = (0..columns).find(|at| !is_same(&expected[*at], &actual[*at])) {
            return Err(format!(
                "row {}, column {}: \"{}\" instead of \"{}\"",
                number + 1,
                column + 1,
                actual[column],
                expected[column]
            ));
        }
    }
    Ok(())
}

/// Whether every row of `part` is one of `whole`, each at most as often as there.
pub fn is_part(part: &Rows, whole: &Rows) -> bool {
    let whole: Vec<Vec<String>> = whole.iter().map(|row| row.iter().map(cell).collect()).collect();
    let mut is_taken = vec![false; whole.len()];
    part.iter().all(|row| {
        let row: Vec<String> = row.iter().map(cell).collect();
        let fits = |at: &usize| {
            let other = &whole[*at];
            !is_taken[*at] && row.len() == other.len() && row.iter().zip(other).all(|(a, b)| is_same(a, b))
        };
        let place = (0..whole.len()).find(fits);
        place.inspect(|at| is_taken[*at] = true).is_some()
    })
}

/// The statement without the limit at its end; `None` if there is none.
pub fn without_limit(sql: &str) -> Option<&str> {
    let text = sql.trim_end().trim_end_matches(';');
    let start = text.rfind("limit ")?;
    let count = text[start + "limit ".len()..].trim();
    let is_number = !count.is_empty() && count.bytes().all(|byte| byte.is_ascii_digit());
    let is_word = text[..start].ends_with(char::is_whitespace);
    (is_number && is_word).then(|| text[..start].trim_end())
}

fn cell(cell: &Option<String>) -> String {
    let text = cell.as_deref().unwrap_or_default().trim();
    let is_time = text.len() >= 19 && text.as_bytes()[10] == b'T' && text.as_bytes()[13] == b':';
    if is_time { text.replacen('T', " ", 1) } else { text.to_owned() }
}

fn has_fraction(text: &str) -> bool {
    text.contains(['.', 'e', 'E']) && number(text).is_some()
}

fn is_same(expected: &str, actual: &str) -> bool {
    if expected == actual {
        return true;
    }
    match Option::zip(number(expected), number(actual)) {
        Some((e, a)) if has_fraction(expected) || has_fraction(actual) => {
            (e - a).abs() <= (e.abs() * DIGITS).max(PLACES)
        }
        _ => false,
    }
}

/// Order in which two answers with the same rows have them at the same places: columns whose numbers may
/// differ a little come last.
struct Order {
    /// Columns, and whether they are compared as numbers.
    columns: Vec<(usize, bool)>,
}

impl Order {
    fn new(columns: usize, answers: [&Vec<Vec<String>>; 2]) -> Self {
        let is_number = |column: usize| {
            let mut cells = answers.iter().flat_map(|rows| rows.iter()).filter_map(|row| row.get(column));
            cells.any(|cell| has_fraction(cell))
        };
        let mut columns: Vec<(usize, bool)> =
            (0..columns).map(|column| (column, is_number(column))).collect();
        columns.sort_by_key(|(_, is_number)| *is_number);
        Self { columns }
    }

    fn compare(&self, a: &[String], b: &[String]) -> Ordering {
        let value = |text: &str| number(text).unwrap_or(f64::NEG_INFINITY);
        let of_column = |&(column, is_number): &(usize, bool)| match (a.get(column), b.get(column)) {
            (Some(a), Some(b)) if is_number => value(a).total_cmp(&value(b)),
            (a, b) => a.cmp(&b),
        };
        self.columns.iter().map(of_column).find(|order| order.is_ne()).unwrap_or(Ordering::Equal)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(text: &str) -> Rows {
        let cell = |cell: &str| (cell != "null").then(|| cell.to_owned());
        text.lines().map(|line| line.split(',').map(cell).collect()).collect()
    }

    #[test]
    fn values_are_compared_by_type() {
        let check =
            |expected, actual, same| assert_eq!(is_same(expected, actual), same, "{expected} {actual}");
        check("1234567.5", "1234567.9", true);
        check("1234567.5", "1234570.5", false);
        check("0.333333", "0.3333333333", true);
        check("0.333333", "0.3339", false);
        check("25", "25.000", true);
        check("1234567", "1234568", false);
        check("a", "b", false);
        check("", "0.0", false);
    }

    #[test]
    fn rows_may_have_another_order() {
        // What is sorted first by its text would pair 9.5 with 10.25.
        let (one, other) = (rows("10.25,a\n9.5,a\n1,null"), rows("1.0,\n9.50,a\n10.250000001,a"));
        assert_eq!(compare(&one, &other, Same::Rows), Ok(()));
        assert!(compare(&one, &other, Same::RowsInOrder).is_err());
        assert_eq!(compare(&one, &one, Same::RowsInOrder), Ok(()));
        let third = rows("1.0,\n9.50,b\n10.25,a");
        assert!(compare(&one, &third, Same::Rows).is_err());
        assert_eq!(compare(&one, &third, Same::Count), Ok(()));
        let fewer = compare(&one, &rows("1,a"), Same::Count);
        assert_eq!(fewer, Err("1 rows instead of 3".to_owned()));
        assert!(compare(&rows("1,a"), &rows("1"), Same::Rows).is_err());
        let times = [rows("2026-07-01T00:00:05"), rows("2026-07-01 00:00:05")];
        assert_eq!(compare(&times[0], &times[1], Same::RowsInOrder), Ok(()));
    }

    #[test]
    fn subsets_of_rows_are_accepted() {
        let whole = rows("1,a\n2,b\n2,b\n3.5,c");
        for (part, is_one) in
            [("2,b\n2,b", true), ("3.50,c\n1,a", true), ("1,a\n1,a", false), ("4,d", false), ("1", false)]
        {
            assert_eq!(is_part(&rows(part), &whole), is_one, "{part}");
        }
    }

    #[test]
    fn limits_at_the_end_are_taken_off() {
        assert_eq!(without_limit("select a\norder by a\nlimit 100;\n"), Some("select a\norder by a"));
        for sql in
            ["select 1;", "select (select a limit 1)", "select a limit 10 offset 5;", "select nolimit 1"]
        {
            assert_eq!(without_limit(sql), None, "{sql}");
        }
    }
}
