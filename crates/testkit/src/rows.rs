//! Results as text cells: read from the binary's CSV or from batches, and compared with a readable
//! difference.
//!
//! A cell is the text that `--format csv` prints for the value, or `None` for null. Numbers are compared by
//! value, everything else by text.

use std::fmt::Write;

use datafusion::arrow::array::{Array, RecordBatch};
use datafusion::arrow::datatypes::Schema;
use datafusion::arrow::error::ArrowError;
use datafusion::arrow::util::display::{ArrayFormatter, DurationFormat, FormatOptions};

/// Rows of each side shown in a difference.
const DIFFERENCE_ROWS_MAX: usize = 10;

/// A value as text; `None` for null.
pub type Cell = Option<String>;

/// A result: column names, and rows with one cell per column.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rows {
    pub columns: Vec<String>,
    pub rows: Vec<Vec<Cell>>,
}

/// Whether the order of the rows is part of the result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// Compared row by row.
    Exact,
    /// Compared as multisets.
    Any,
}

impl Rows {
    /// Parses CSV (RFC 4180) with a header line; an empty field without quotes is null.
    ///
    /// Errors: an unterminated quoted field, a row with another number of fields than the header.
    pub fn from_csv(text: &str) -> Result<Self, String> {
        let mut records = csv_records(text)?.into_iter();
        let columns = records.next().unwrap_or_default();
        let columns: Vec<String> = columns.into_iter().map(Option::unwrap_or_default).collect();
        let rows: Vec<Vec<Cell>> = records.collect();
        for (i, row) in rows.iter().enumerate() {
            if row.len() != columns.len() {
                return Err(format!("row {} has {} fields, the header {}", i + 1, row.len(), columns.len()));
            }
        }
        Ok(Self { columns, rows })
    }

    /// Formats batches of one schema, with timestamps as the binary prints them.
    pub fn from_batches(schema: &Schema, batches: &[RecordBatch]) -> Result<Self, ArrowError> {
        const TIMESTAMP: Option<&str> = Some("%Y-%m-%d %H:%M:%S%.f");
        let options = FormatOptions::new()
            .with_display_error(false)
            .with_datetime_format(TIMESTAMP)
            .with_timestamp_format(TIMESTAMP)
            .with_timestamp_tz_format(Some("%Y-%m-%d %H:%M:%S%.f%:z"))
            .with_time_format(Some("%H:%M:%S%.f"))
            .with_duration_format(DurationFormat::Pretty);
        let columns = schema.fields().iter().map(|f| f.name().clone()).collect();
        let mut rows = Vec::new();
        for batch in batches {
            let formatters = batch
                .columns()
                .iter()
                .map(|column| {
                    let formatter = ArrayFormatter::try_new(column.as_ref(), &options)?;
                    Ok((formatter, column.logical_nulls()))
                })
                .collect::<Result<Vec<_>, ArrowError>>()?;
            for row in 0..batch.num_rows() {
                let cells = formatters.iter().map(|(formatter, nulls)| {
                    match nulls.as_ref().is_some_and(|nulls| nulls.is_null(row)) {
                        true => Ok(None),
                        false => formatter.value(row).try_to_string().map(Some),
                    }
                });
                rows.push(cells.collect::<Result<Vec<_>, _>>()?);
            }
        }
        Ok(Self { columns, rows })
    }
}

/// Compares two results; column names are ignored. `tolerance` is relative: 1e-9 accepts another summation
/// order of floating-point numbers.
///
/// Errors: the difference, as a message.
pub fn compare(expected: &Rows, actual: &Rows, order: Order, tolerance: f64) -> Result<(), String> {
    if expected.columns.len() != actual.columns.len() {
        return Err(format!(
            "{} columns instead of {}: {} instead of {}",
            actual.columns.len(),
            expected.columns.len(),
            actual.columns.join(", "),
            expected.columns.join(", ")
        ));
    }
    let same = |a: &&[Cell], b: &&[Cell]| same_row(a, b, tolerance);
    let expected_rows: Vec<&[Cell]> = expected.rows.iter().map(Vec::as_slice).collect();
    let actual_rows: Vec<&[Cell]> = actual.rows.iter().map(Vec::as_slice).collect();
    if expected_rows.len() == actual_rows.len()
        && expected_rows.iter().zip(&actual_rows).all(|(a, b)| same(a, b))
    {
        return Ok(());
    }
    let (missing, unexpected) = difference(expected_rows.clone(), actual_rows.clone(), tolerance);
    if missing.is_empty() && unexpected.is_empty() {
        if order == Order::Any {
            return Ok(());
        }
        let first = expected_rows.iter().zip(&actual_rows).position(|(a, b)| !same(a, b)).unwrap_or_default();
        return Err(format!(
            "the same rows in another order, from row {} on:\n  expected {}\n  actual   {}",
            first + 1,
            show(expected_rows[first]),
            show(actual_rows[first])
        ));
    }
    let mut text = format!(
        "{} rows instead of {}; of these {} missing and {} unexpected\n  columns {}",
        actual_rows.len(),
        expected_rows.len(),
        missing.len(),
        unexpected.len(),
        expected.columns.join(" | ")
    );
    for (sign, rows) in [('-', missing), ('+', unexpected)] {
        for row in rows.iter().take(DIFFERENCE_ROWS_MAX) {
            let _ = write!(text, "\n  {sign} {}", show(row));
        }
        if rows.len() > DIFFERENCE_ROWS_MAX {
            let _ = write!(text, "\n  {sign} … {} more", rows.len() - DIFFERENCE_ROWS_MAX);
        }
    }
    Err(text)
}

/// Checks whether `limited` is a valid LIMIT `limit` of `all`: the right number of rows, each of them in
/// `all`. For queries whose order does not decide which of some equal rows come before the limit.
pub fn compare_limited(all: &Rows, limited: &Rows, limit: usize, tolerance: f64) -> Result<(), String> {
    let wanted = all.rows.len().min(limit);
    if limited.rows.len() != wanted {
        return Err(format!(
            "{} rows instead of {wanted}, the limit being {limit} of {}",
            limited.rows.len(),
            all.rows.len()
        ));
    }
    let all_rows = all.rows.iter().map(Vec::as_slice).collect();
    let limited_rows = limited.rows.iter().map(Vec::as_slice).collect();
    let (_, unexpected) = difference(all_rows, limited_rows, tolerance);
    match unexpected.first() {
        None => Ok(()),
        Some(row) => Err(format!(
            "{} rows are not in the result without the limit, the first is\n  + {}",
            unexpected.len(),
            show(row)
        )),
    }
}

/// The rows of `expected` that `actual` lacks, and vice versa, as multisets.
fn difference<'a>(
    mut expected: Vec<&'a [Cell]>,
    mut actual: Vec<&'a [Cell]>,
    tolerance: f64,
) -> (Vec<&'a [Cell]>, Vec<&'a [Cell]>) {
    expected.sort_by_cached_key(|row| sort_key(row));
    actual.sort_by_cached_key(|row| sort_key(row));
    let (mut missing, mut unexpected) = (Vec::new(), Vec::new());
    let (mut e, mut a) = (expected.into_iter().peekable(), actual.into_iter().peekable());
    loop {
        match (e.peek(), a.peek()) {
            (Some(x), Some(y)) => {
                if same_row(x, y, tolerance) {
                    e.next();
                    a.next();
                } else if sort_key(x) < sort_key(y) {
                    missing.extend(e.next());
                } else {
                    unexpected.extend(a.next());
                }
            }
            (Some(_), None) => missing.extend(e.next()),
            (None, Some(_)) => unexpected.extend(a.next()),
            (None, None) => break,
        }
    }
    // Numbers that differ within the tolerance may have sorted their rows differently.
    missing.retain(|x: &&[Cell]| {
        let twin = unexpected.iter().position(|y| same_row(x, y, tolerance));
        twin.map(|twin| unexpected.swap_remove(twin)).is_none()
    });
    (missing, unexpected)
}

/// Sorts by the exact cells first, so that rows whose inexact numbers differ slightly still align.
fn sort_key(row: &[Cell]) -> (Vec<Option<&str>>, Vec<i64>, Vec<&str>) {
    let (mut exact, mut rounded, mut texts) = (Vec::new(), Vec::new(), Vec::new());
    for cell in row {
        let cell = cell.as_deref();
        let number = cell.filter(|text| !is_integer(text)).and_then(|text| text.parse::<f64>().ok());
        match number {
            Some(number) => {
                rounded.push((number * 16.0).round() as i64);
                texts.extend(cell);
            }
            None => exact.push(cell),
        }
    }
    (exact, rounded, texts)
}

fn same_row(a: &[Cell], b: &[Cell], tolerance: f64) -> bool {
    a.len() == b.len()
        && a.iter().zip(b).all(|(a, b)| match (a, b) {
            (Some(a), Some(b)) => same_cell(a, b, tolerance),
            (a, b) => a == b,
        })
}

fn same_cell(a: &str, b: &str, tolerance: f64) -> bool {
    if a == b {
        return true;
    }
    if is_integer(a) && is_integer(b) {
        return false;
    }
    let (tolerance, least) =
        if is_cut_off(a, b) { (tolerance.max(QUOTIENT_TOLERANCE), 1.0) } else { (tolerance, 1e-6) };
    match (a.parse::<f64>(), b.parse::<f64>()) {
        (Ok(a), Ok(b)) if a.is_nan() || b.is_nan() => a.is_nan() && b.is_nan(),
        (Ok(a), Ok(b)) => a == b || (a - b).abs() <= tolerance * a.abs().max(b.abs()).max(least),
        _ => false,
    }
}

/// Tolerance of values computed from quotients that plain DataFusion truncates after the sixth digit.
const QUOTIENT_TOLERANCE: f64 = 2e-6;

/// Whether one of two numbers has the fractional digits of a decimal quotient, and the other those of plain
/// DataFusion's truncated one.
fn is_cut_off(a: &str, b: &str) -> bool {
    let digits = |cell: &str| cell.split_once('.').map_or(0, |(_, fraction)| fraction.len());
    let (few, many) = (digits(a).min(digits(b)), digits(a).max(digits(b)));
    (6..16).contains(&few) && many >= 16
}

fn is_integer(cell: &str) -> bool {
    let digits = cell.strip_prefix('-').unwrap_or(cell);
    !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
}

fn show(row: &[Cell]) -> String {
    let cells = row.iter().map(|cell| cell.as_deref().unwrap_or("NULL"));
    cells.collect::<Vec<_>>().join(" | ")
}

fn csv_records(text: &str) -> Result<Vec<Vec<Cell>>, String> {
    let mut records = Vec::new();
    let mut record = Vec::new();
    // `None` until the field has a character or a quote.
    let mut field: Cell = None;
    let mut characters = text.chars().peekable();
    while let Some(c) = characters.next() {
        match c {
            '"' if field.is_none() => {
                let text = field.insert(String::new());
                loop {
                    match characters.next() {
                        Some('"') if characters.peek() == Some(&'"') => {
                            characters.next();
                            text.push('"');
                        }
                        Some('"') => break,
                        Some(c) => text.push(c),
                        None => {
                            let row = records.len();
                            return Err(format!("the quoted field in row {row} does not end"));
                        }
                    }
                }
            }
            ',' => record.push(field.take()),
            '\r' if characters.peek() == Some(&'\n') => {}
            '\n' => {
                record.push(field.take());
                records.push(std::mem::take(&mut record));
            }
            c => field.get_or_insert_default().push(c),
        }
    }
    if field.is_some() || !record.is_empty() {
        record.push(field);
        records.push(record);
    }
    Ok(records)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(text: &str) -> Rows {
        Rows::from_csv(text).unwrap()
    }

    #[test]
    fn csv_is_read() {
        let read = rows("a,b\n1,\"x,\"\"y\"\"\nz\"\n,\"\"\n");
        let text = |text: &str| Some(text.to_owned());
        assert_eq!(read.columns, ["a", "b"]);
        assert_eq!(read.rows, [[text("1"), text("x,\"y\"\nz")], [None, text("")]]);
        assert_eq!(rows("a\n1").rows, [[text("1")]]);
        assert!(Rows::from_csv("a,b\n1\n").is_err());
        assert!(Rows::from_csv("a\n\"1\n").is_err());
    }

    #[test]
    fn row_order_is_compared_on_request() {
        let (a, b) = (rows("x,y\n1,a\n2,b\n"), rows("x,y\n2,b\n1,a\n"));
        assert!(compare(&a, &b, Order::Any, 0.0).is_ok());
        let error = compare(&a, &b, Order::Exact, 0.0).unwrap_err();
        assert!(error.contains("another order, from row 1"), "{error}");
    }

    #[test]
    fn rows_are_a_multiset() {
        let (a, b) = (rows("x\n1\n1\n2\n"), rows("x\n1\n2\n2\n"));
        let error = compare(&a, &b, Order::Any, 0.0).unwrap_err();
        assert!(error.contains("- 1") && error.contains("+ 2"), "{error}");
    }

    #[test]
    fn tolerance_is_for_inexact_numbers() {
        let (a, b) = (rows("x\n1.0000000001\n5\n"), rows("x\n5\n1\n"));
        assert!(compare(&a, &b, Order::Any, 1e-9).is_ok());
        assert!(compare(&a, &b, Order::Any, 1e-12).is_err());
        let (a, b) = (rows("x\n1000000000001\n"), rows("x\n1000000000002\n"));
        assert!(compare(&a, &b, Order::Any, 1e-3).is_err());
        assert!(compare(&rows("x\nNaN\n"), &rows("x\nNaN\n"), Order::Any, 0.0).is_ok());
        assert!(compare(&rows("x\n1.50\n"), &rows("x\n1.5\n"), Order::Any, 0.0).is_ok());
    }

    #[test]
    fn quotients_may_be_cut_off() {
        let same = |a: &str, b: &str| same_cell(a, b, 1e-9);
        assert!(same("60.566666", "60.56666666666666666667"));
        assert!(same("98.59920900", "98.59920967514136837100"));
        assert!(same("0.012345", "0.01234567901234567901"));
        assert!(!same("60.5666", "60.56666666666666666667"));
        assert!(!same("60.566666", "60.5667"));
        assert!(!same("60.566666", "60.56766666666666666667"));
    }

    #[test]
    fn a_limit_chooses_among_equal_rows() {
        let all = rows("x\n1\n2\n3\n");
        assert!(compare_limited(&all, &rows("x\n3\n1\n"), 2, 0.0).is_ok());
        assert!(compare_limited(&all, &rows("x\n3\n3\n"), 2, 0.0).is_err());
        assert!(compare_limited(&all, &rows("x\n3\n"), 2, 0.0).is_err());
    }
}
