//! Comparison of answers as text, with a published one or another engine's.
//!
//! Numbers printed with a fraction may differ by half a unit of the second decimal plus a millionth of their
//! value (at most 99). That is at least as strict as every rule of the TPC-H specification (2.1.3.5: sums
//! within 100, averages and ratios within 1 % after rounding to hundredths). Everything else must be equal;
//! blanks around a value are ignored (2.1.3.4; the published answers have none), and NULL equals the empty
//! string.

/// Rows of an answer, in order.
pub type Rows = Vec<Vec<Option<String>>>;

/// Compares two answers. Errors: the first difference, as a message.
pub fn compare(expected: &Rows, actual: &Rows) -> Result<(), String> {
    if expected.len() != actual.len() {
        return Err(format!("{} rows instead of {}", actual.len(), expected.len()));
    }
    for (number, (expected, actual)) in expected.iter().zip(actual).enumerate() {
        if expected.len() != actual.len() {
            return Err(format!("{} columns instead of {}", actual.len(), expected.len()));
        }
        for (column, (expected, actual)) in expected.iter().zip(actual).enumerate() {
            let (expected, actual) = (text(expected), text(actual));
            if !equal(expected, actual) {
                return Err(format!(
                    "row {}, column {}: \"{actual}\" instead of \"{expected}\"",
                    number + 1,
                    column + 1
                ));
            }
        }
    }
    Ok(())
}

/// Compares the answers of two engines: like [`compare`], but rows that are equal in the query's sort order
/// may be swapped.
pub fn compare_engines(expected: &Rows, actual: &Rows) -> Result<(), String> {
    compare(expected, actual).or_else(|difference| {
        let sorted = |rows: &Rows| {
            let mut rows = rows.clone();
            rows.sort();
            rows
        };
        compare(&sorted(expected), &sorted(actual)).map_err(|_| difference)
    })
}

fn text(cell: &Option<String>) -> &str {
    cell.as_deref().unwrap_or_default().trim()
}

fn equal(expected: &str, actual: &str) -> bool {
    if expected == actual {
        return true;
    }
    let (Some(e), Some(a)) = (number(expected), number(actual)) else {
        return false;
    };
    let slack = if expected.contains(['.', 'e', 'E']) { 0.005 + (e.abs() * 1e-6).min(99.0) } else { 0.0 };
    (e - a).abs() <= slack
}

/// Parses only what looks like a number: not `nan`, not `infinity`.
pub fn number(text: &str) -> Option<f64> {
    text.starts_with(|c: char| c.is_ascii_digit() || c == '-')
        .then(|| text.parse().ok())
        .flatten()
        .filter(|n: &f64| n.is_finite())
}

/// Parses the rows of CSV text after its header line (RFC 4180: fields in double quotes may contain commas,
/// line breaks and doubled quotes).
pub fn from_csv(csv: &str) -> Rows {
    let mut rows: Rows = Vec::new();
    let mut row = Vec::new();
    let mut field = String::new();
    let mut quoted = false;
    let mut characters = csv.chars().peekable();
    while let Some(c) = characters.next() {
        match c {
            '"' if quoted && characters.peek() == Some(&'"') => {
                characters.next();
                field.push('"');
            }
            '"' => quoted = !quoted,
            ',' if !quoted => row.push(Some(std::mem::take(&mut field))),
            '\n' if !quoted => {
                row.push(Some(std::mem::take(&mut field)));
                rows.push(std::mem::take(&mut row));
            }
            '\r' if !quoted => {}
            c => field.push(c),
        }
    }
    if !field.is_empty() || !row.is_empty() {
        row.push(Some(field));
        rows.push(row);
    }
    if !rows.is_empty() {
        rows.remove(0);
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::Workload;

    #[test]
    fn values_are_compared_by_type() {
        let check = |expected, actual, same| assert_eq!(equal(expected, actual), same, "{expected} {actual}");
        check("25.52", "25.522005853257337", true);
        check("0.03", "0.0344358904066548", true);
        check("0.03", "0.0351", false);
        check("348406.02", "348406.0542857143", true);
        check("348406.02", "348407", false);
        check("56586554400.73", "56586554500.73", false);
        check("1478493", "1478493.0", true);
        check("1478493", "1478493.5", false);
        check("13", "13", true);
        check("nan", "0", false);
        check("a", "b", false);
        check("323.00", "323", true);
    }

    #[test]
    fn answers_are_compared_in_order() {
        let rows = |csv| from_csv(csv);
        let expected = rows("a,b\n1,x\n2,\"y, \"\"z\"\"\n2\"\n");
        assert_eq!(expected[1][1].as_deref(), Some("y, \"z\"\n2"));
        assert_eq!(compare(&expected, &expected), Ok(()));
        assert!(compare(&expected, &rows("a,b\n2,\"y, \"\"z\"\"\n2\"\n1,x\n")).is_err());
        let ties = [rows("a,b\n2,x\n1,x\n"), rows("a,b\n1,x\n2,x\n"), rows("a,b\n1,x\n1,x\n")];
        assert_eq!(compare_engines(&ties[0], &ties[1]), Ok(()));
        assert!(compare_engines(&ties[0], &ties[2]).is_err());
        assert_eq!(compare(&expected, &rows("a,b\n1,x\n")), Err("1 rows instead of 2".to_owned()));
        assert_eq!(compare(&vec![vec![Some(String::new())]], &vec![vec![None]]), Ok(()));
    }

    #[test]
    fn published_answers_can_be_read() {
        for query in Workload::new("tpch", 1.0).queries {
            let rows = from_csv(query.answer.unwrap());
            assert!(!rows.is_empty(), "{}", query.name);
            assert!(rows.iter().all(|row| row.len() == rows[0].len()), "{}", query.name);
        }
    }
}
