//! Hints about functions: whether a name can be meant by another, and which arguments functions take.

use datafusion::arrow::datatypes::DataType;
use harrier_pgcatalog::{NO_MODIFIER, format_type, postgres_type};

/// Whether `meant` may be what somebody wanted who wrote `given`: one letter of four is another, missing,
/// added or has changed places with the next, and short names begin alike.
pub(super) fn is_similar(given: &str, meant: &str) -> bool {
    /// Names up to this length begin with the same two letters.
    const SHORT: usize = 4;
    let letters = |name: &str| name.to_lowercase().chars().collect::<Vec<char>>();
    let (given, meant) = (letters(given), letters(meant));
    let longest = given.len().max(meant.len());
    let begins_alike = longest > SHORT || given.iter().take(2).eq(meant.iter().take(2));
    begins_alike && distance(&given, &meant) <= (given.len().min(meant.len()) / 4).max(1)
}

/// The number of letters that are replaced, added, left out or swapped with the next one.
fn distance(one: &[char], other: &[char]) -> usize {
    let width = other.len() + 1;
    let mut rows = vec![(0..width).collect::<Vec<usize>>()];
    for (at, letter) in one.iter().enumerate() {
        let above = &rows[at];
        let mut row = vec![at + 1];
        for (place, found) in other.iter().enumerate() {
            let replaced = above[place] + usize::from(letter != found);
            let mut least = replaced.min(above[place + 1] + 1).min(row[place] + 1);
            if at > 0 && place > 0 && *letter == other[place - 1] && one[at - 1] == *found {
                least = least.min(rows[at - 1][place - 1] + 1);
            }
            row.push(least);
        }
        rows.push(row);
    }
    rows[one.len()][other.len()]
}

/// The planner's names of types, and what they are called here.
const TYPES: &[(&str, &str)] = &[
    ("Binary", "bytea"),
    ("BinaryView", "bytea"),
    ("Boolean", "boolean"),
    ("Date32", "date"),
    ("Decimal", "numeric"),
    ("Float32", "real"),
    ("Float64", "double precision"),
    ("Int16", "smallint"),
    ("Int32", "integer"),
    ("Int64", "bigint"),
    ("Integer", "integer"),
    ("LargeBinary", "bytea"),
    ("LargeUtf8", "text"),
    ("String", "text"),
    ("Utf8", "text"),
    ("Utf8View", "text"),
];

/// Arguments of functions of which the planner tells none.
const ARGUMENTS: &[(&str, &[&str])] = &[
    ("avg", &["number", "interval"]),
    ("bit_count", &["bytea"]),
    ("concat", &["any, …"]),
    ("date_trunc", &["text, timestamp", "text, interval"]),
    ("left", &["text, integer"]),
    ("right", &["text, integer"]),
    ("strpos", &["text, text"]),
    ("substr", &["text, integer", "text, integer, integer"]),
    ("sum", &["number", "interval"]),
    ("to_hex", &["integer", "bigint"]),
];

/// The name under which a function was called: calls may be rewritten to a function of our own.
pub(super) fn name_of(name: &str) -> &str {
    name.trim_start_matches('_').strip_prefix("harrier_").unwrap_or(name)
}

/// The planner's list of candidates in words of SQL; `None`: it tells no types.
pub(super) fn candidates(list: &str) -> Option<String> {
    const UNTOLD: [&str; 6] = ["UserDefined", "Coercible", "Uniform", "Variadic", "Comparable", "FieldsSig"];
    if UNTOLD.iter().any(|word| list.contains(word)) {
        let name = list.split('(').next()?.trim();
        let (_, arguments) = ARGUMENTS.iter().find(|(known, _)| *known == name)?;
        let calls: Vec<String> = arguments.iter().map(|arguments| format!("{name}({arguments})")).collect();
        return Some(calls.join(" "));
    }
    let list = list.replace("NullAry()", "").replace("Numeric(1)", "number").replace("Any", "any");
    Some(with_sql_types(&list))
}

/// A text with the planner's names of types, with those of SQL instead.
pub(super) fn with_sql_types(list: &str) -> String {
    let mut told = String::with_capacity(list.len());
    let mut rest = list;
    while let Some(letter) = rest.chars().next() {
        let word = rest.find(|letter: char| !letter.is_ascii_alphanumeric()).unwrap_or(rest.len());
        if word == 0 {
            told.push(letter);
            rest = &rest[letter.len_utf8()..];
            continue;
        }
        let whole = word + parentheses(&rest[word..]);
        if let Some(name) = sql_type(&rest[..whole]) {
            told.push_str(&name);
            rest = &rest[whole..];
            continue;
        }
        let found = TYPES.iter().find(|(known, _)| *known == &rest[..word]);
        told.push_str(found.map_or(&rest[..word], |(_, name)| name));
        rest = &rest[word..];
    }
    told
}

/// The name in SQL of a type as the planner prints it: `Timestamp(ns, "UTC")`.
pub(super) fn sql_type(printed: &str) -> Option<String> {
    let is_type = printed.starts_with(|letter: char| letter.is_ascii_uppercase());
    let kind = is_type.then(|| printed.parse::<DataType>().ok()).flatten()?;
    match kind {
        DataType::Struct(_) => Some("record".to_string()),
        kind => format_type(postgres_type(&kind).0, NO_MODIFIER),
    }
}

/// The length of the parentheses by which `text` begins, with all in them; 0 for none.
fn parentheses(text: &str) -> usize {
    let mut depth = 0;
    for (at, letter) in text.char_indices() {
        match letter {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return if letter == ')' { at + 1 } else { 0 };
        }
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn similar_names_are_suggested() {
        for (given, meant) in [
            ("floorr", "floor"),
            ("ifnul", "ifnull"),
            ("coun", "count"),
            ("nvll", "nvl"),
            ("SUBSTRIG", "substring"),
        ] {
            assert!(is_similar(given, meant), "{given} {meant}");
        }
        for (given, meant) in [
            ("if", "sin"),
            ("iff", "pi"),
            ("len", "ln"),
            ("lag", "log"),
            ("pg_sleep", "pg_typeof"),
            ("getdate", "get_byte"),
            ("listagg", "list_avg"),
        ] {
            assert!(!is_similar(given, meant), "{given} {meant}");
        }
    }

    #[test]
    fn candidates_have_types_of_sql() {
        for (list, expected) in [
            ("sum(UserDefined)", Some("sum(number) sum(interval)")),
            ("array_length(UserDefined)", None),
            ("now(NullAry())", Some("now()")),
            ("round(Float32, Int32) round(Float32)", Some("round(real, integer) round(real)")),
            ("ln(Float64/Float32)", Some("ln(double precision/real)")),
            ("lower(String)", Some("lower(text)")),
            ("abs(Numeric(1))", Some("abs(number)")),
        ] {
            assert_eq!(candidates(list).as_deref(), expected, "{list}");
        }
        assert_eq!(with_sql_types("f(Utf8View, Int64)"), "f(text, bigint)");
        assert_eq!(with_sql_types("int64_of(Decimal128(3, 2))"), "int64_of(numeric)");
        assert_eq!(
            with_sql_types("f(Timestamp(ns, \"UTC\"), List(Int64), Numeric(1), é)"),
            "f(timestamp with time zone, bigint[], Numeric(1), é)"
        );
    }
}
