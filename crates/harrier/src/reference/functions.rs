//! Reference page of functions, with examples that are run.

mod texts;

use std::collections::{BTreeMap, BTreeSet};

use arrow::datatypes::DataType;
use datafusion::logical_expr::{Signature, TypeSignature};
use harrier_engine::Session;

use super::page::{Page, code, codes};
use super::scratch;
use texts::{GROUPS, HIDDEN, HIDDEN_PREFIXES};

/// Objects used by the examples.
const OBJECTS: [&str; 4] = [
    "CREATE SEQUENCE ids START 100",
    "CREATE TABLE shelf (id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, height INTEGER DEFAULT 30)",
    "CREATE VIEW tall AS SELECT id FROM shelf WHERE height > 100",
    "CREATE INDEX shelf_height ON shelf (height)",
];

/// Maximum number of functions without an example: those that change a server, and those of recovery, which
/// Harrier does not have.
const WITHOUT_EXAMPLE_MAX: usize = 10;

/// Functions on one topic.
struct Group {
    title: &'static str,
    introduction: &'static str,
    /// FROM clause for examples that are expressions.
    from: &'static str,
    functions: &'static [Entry],
}

/// A documented function, or syntax that is called like one.
struct Entry {
    name: &'static str,
    /// A part of a sentence.
    about: &'static str,
    /// An expression, or a whole query.
    example: &'static str,
}

const fn entry(name: &'static str, about: &'static str, example: &'static str) -> Entry {
    Entry { name, about, example }
}

/// A function registered in the session.
struct Registered {
    /// Its names, including aliases.
    names: BTreeSet<String>,
    /// Its argument types, if the signature is exact.
    arguments: Option<String>,
}

/// Errors: an example fails; a function is described twice, or more functions than [`WITHOUT_EXAMPLE_MAX`]
/// have none.
pub(super) async fn page(session: &Session) -> Result<String, String> {
    for made in OBJECTS {
        scratch::run(session, made).await?;
    }
    let registered = registered_functions(session);
    let mut page = Page::new(
        "Functions",
        "This page lists the functions of SQL by what they are about, with an example of each and its result.",
    );
    page.paragraph(
        "Results are as `harrier sql --format csv` prints them; clients of a server get PostgreSQL's forms. Several rows \
         are divided by semicolons. Names in one cell mean the same function. `\\df` of the shell lists all \
         functions, [Limits](limits.md) those of PostgreSQL that are missing.",
    );
    let mut described = BTreeSet::new();
    let (mut wrong, mut without_example) = (Vec::new(), 0);
    for group in GROUPS {
        page.heading(2, group.title);
        if !group.introduction.is_empty() {
            page.paragraph(group.introduction);
        }
        let mut rows = Vec::new();
        for known in group.functions {
            if !described.insert(known.name.to_string()) {
                wrong.push(format!("{} is described twice", known.name));
            }
            let own = registered.get(known.name);
            let names: Vec<&str> = own.into_iter().flat_map(|own| &own.names).map(String::as_str).collect();
            described.extend(names.iter().map(|name| name.to_string()));
            let is_statement = known.example.starts_with("SELECT ");
            let sql = match is_statement {
                true => known.example.to_string(),
                false => format!("SELECT {} {}", known.example, group.from),
            };
            let rows_of_answer = match known.example {
                "" => {
                    without_example += 1;
                    Vec::new()
                }
                _ => match scratch::run(session, sql.trim_end()).await {
                    Ok(answer) => answer.rows,
                    Err(message) => {
                        wrong.push(message);
                        continue;
                    }
                },
            };
            let call = match own.and_then(|own| own.arguments.as_deref()) {
                // Keywords such as CURRENT_DATE are called without parentheses.
                Some("") if !known.example.contains("()") => known.name.to_string(),
                Some(arguments) => format!("{}({arguments})", known.name),
                None => known.name.to_string(),
            };
            let others = names.into_iter().filter(|name| *name != known.name);
            let rows_of_answer: Vec<String> = rows_of_answer.iter().map(|row| format_row(row)).collect();
            rows.push([
                codes([call.as_str()].into_iter().chain(others)),
                known.about.to_string(),
                code(known.example),
                code(&rows_of_answer.join("; ")),
            ]);
        }
        rows.sort();
        page.table(["function", "gives", "example", "result"], rows);
    }
    let is_hidden =
        |name: &str| HIDDEN.contains(&name) || HIDDEN_PREFIXES.iter().any(|prefix| name.starts_with(prefix));
    let others: Vec<&str> = registered
        .iter()
        .filter(|(name, own)| {
            !described.contains(*name) && own.names.iter().all(|name| !described.contains(name))
        })
        .map(|(name, _)| name.as_str())
        .filter(|name| !is_hidden(name) && !is_of_type(name))
        .collect();
    without_example += others.len();
    if without_example > WITHOUT_EXAMPLE_MAX {
        wrong.push(format!("{without_example} functions have no example, among them {others:?}"));
    }
    if !wrong.is_empty() {
        return Err(wrong.join("\n"));
    }
    Ok(page.finish())
}

/// Formats a CSV row: unquoted if it is one value.
fn format_row(row: &str) -> String {
    let inner = row.strip_prefix('"').and_then(|row| row.strip_suffix('"'));
    match (row, inner) {
        ("", _) => "NULL".to_string(),
        (_, Some(inner)) if !inner.replace("\"\"", "").contains('"') => inner.replace("\"\"", "\""),
        (row, _) => row.to_string(),
    }
}

/// Input and output functions of types: `regclassin`, `xidin`.
fn is_of_type(name: &str) -> bool {
    let of = name.strip_suffix("in").or_else(|| name.strip_suffix("out"));
    of.is_some_and(|of| of.starts_with("reg") && !of.contains('_') || of == "oid" || of == "xid")
}

/// All registered functions, keyed by each of their names.
fn registered_functions(session: &Session) -> BTreeMap<String, Registered> {
    let state = session.context().state();
    let mut own: BTreeMap<(&str, String), (BTreeSet<String>, Option<String>)> = BTreeMap::new();
    let mut add = |kind: &'static str, name: &str, key: &str, signature: Option<&Signature>| {
        let arguments = signature.and_then(arguments);
        let entry = own.entry((kind, name.to_string())).or_insert_with(|| (BTreeSet::new(), arguments));
        entry.0.insert(key.to_string());
    };
    for (key, function) in state.scalar_functions() {
        add("scalar", function.name(), key, Some(function.signature()));
    }
    for (key, function) in state.aggregate_functions() {
        add("aggregate", function.name(), key, Some(function.signature()));
    }
    for (key, function) in state.window_functions() {
        add("window", function.name(), key, Some(function.signature()));
    }
    for key in state.table_functions().keys() {
        add("table", key, key, None);
    }
    let mut all = BTreeMap::new();
    for (names, arguments) in own.into_values() {
        for name in &names {
            all.insert(name.clone(), Registered { names: names.clone(), arguments: arguments.clone() });
        }
    }
    all
}

/// Argument types of a function with exactly one signature.
fn arguments(signature: &Signature) -> Option<String> {
    match &signature.type_signature {
        TypeSignature::Nullary => Some(String::new()),
        TypeSignature::Exact(types) => {
            let names: Option<Vec<&str>> = types.iter().map(sql_name).collect();
            names.map(|names| names.join(", "))
        }
        _ => None,
    }
}

fn sql_name(kind: &DataType) -> Option<&'static str> {
    Some(match kind {
        DataType::Boolean => "boolean",
        DataType::Int16 => "smallint",
        DataType::Int32 => "integer",
        DataType::Int64 => "bigint",
        DataType::Float32 => "real",
        DataType::Float64 => "double precision",
        DataType::Utf8 | DataType::Utf8View | DataType::LargeUtf8 => "text",
        DataType::Binary | DataType::BinaryView => "bytea",
        DataType::Date32 => "date",
        DataType::Time64(_) => "time",
        DataType::Timestamp(_, None) => "timestamp",
        DataType::Timestamp(_, Some(_)) => "timestamptz",
        DataType::Interval(_) => "interval",
        _ => return None,
    })
}
