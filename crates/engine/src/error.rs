//! SQL errors as users see them: a SQLSTATE and one message, optionally with detail, hint and position.
//!
//! DataFusion's errors are nested and prefixed for developers. [`SqlError`] takes the innermost cause as its
//! message, in PostgreSQL's style (lower case, no full stop), and keeps the rest as detail or hint.

mod similar_names;

use std::borrow::Cow;
use std::error::Error;

use datafusion::arrow::error::ArrowError;
use datafusion::common::{Diagnostic, Location, SchemaError};
use datafusion::error::DataFusionError;
use datafusion::object_store;
use datafusion::parquet::errors::ParquetError;
use datafusion::sql::sqlparser::parser::ParserError;
use harrier_error::{SqlError, SqlState};
use harrier_sqlstate::{RemoteError, date_style_hint};

/// Qualifiers that the planner adds to unqualified table names, without and with a warehouse.
const DEFAULT_PREFIXES: [&str; 2] = ["datafusion.public.", "warehouse.main."];

/// Converts `error` of the statement `sql`, with its position in the text if known.
pub fn in_statement(error: &DataFusionError, sql: &str) -> SqlError {
    let parts = Parts::of(error);
    let position = match parts.place {
        Position::Unknown => None,
        Position::At(location) => offset_of(sql, location),
        Position::End => Some(sql.trim_end().chars().count() + 1),
    };
    // Restore file URLs as the user wrote them.
    let message = harrier_storage::without_profiles(&parts.message);
    let detail = parts.detail.map(|detail| harrier_storage::without_profiles(&detail));
    SqlError { detail, hint: parts.hint, position, ..SqlError::new(harrier_sqlstate::of(error), message) }
}

/// Converts `error` without a statement text for positions.
pub fn sql_error(error: DataFusionError) -> SqlError {
    in_statement(&error, "")
}

/// Whether Harrier itself raised `error`, so that its text needs no cleaning.
pub(crate) fn is_coded(error: &DataFusionError) -> bool {
    match error {
        DataFusionError::Context(_, inner) | DataFusionError::Diagnostic(_, inner) => is_coded(inner),
        DataFusionError::External(inner) => inner.is::<SqlError>(),
        _ => false,
    }
}

/// Position of an error in the statement's text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Position {
    Unknown,
    At(Location),
    End,
}

struct Parts {
    message: String,
    detail: Option<String>,
    hint: Option<String>,
    place: Position,
}

impl Parts {
    fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), detail: None, hint: None, place: Position::Unknown }
    }

    fn of(error: &DataFusionError) -> Self {
        match error {
            DataFusionError::Context(_, inner) => Self::of(inner),
            DataFusionError::Shared(inner) => Self::of(inner),
            DataFusionError::Diagnostic(diagnostic, inner) => Self::of(inner).with_diagnostic(diagnostic),
            DataFusionError::Collection(errors) => match errors.as_slice() {
                [first, ..] => Self::of(first),
                [] => Self::new("unknown error"),
            },
            DataFusionError::SQL(error, _) => Self::of_parser(error),
            DataFusionError::SchemaError(error, _) => Self::of_schema(error),
            DataFusionError::Plan(text) => Self::of_plan(text),
            DataFusionError::Configuration(text) => Self::of_configuration(text),
            DataFusionError::NotImplemented(text) if is_unplanned(text, &SUBQUERIES) => {
                let mut parts = Self::new("this correlated subquery is not supported");
                parts.hint = Some("a join with a GROUP BY may say the same".to_string());
                parts
            }
            DataFusionError::NotImplemented(text) if is_unplanned(text, &["WindowFunction"]) => {
                let mut parts = Self::new("window functions are not allowed here");
                parts.hint = Some("a subquery can have them in its SELECT".to_string());
                parts
            }
            DataFusionError::NotImplemented(text) if text.contains("Unsupported CAST from ") => {
                Self::of_types(text).unwrap_or_else(|| Self::of_text(text))
            }
            DataFusionError::NotImplemented(text) => {
                let mut parts = Self::of_text(text);
                if !["support", "implement"].iter().any(|word| parts.message.contains(word)) {
                    parts.message.push_str(" is not supported");
                }
                parts
            }
            DataFusionError::Internal(text) if text.contains("in BETWEEN expression") => {
                Self::of_types(text).unwrap_or_else(|| Self::of_text(text))
            }
            DataFusionError::Internal(text)
                if harrier_sqlstate::of(error) == SqlState::FEATURE_NOT_SUPPORTED =>
            {
                Self::of_text(text)
            }
            DataFusionError::Internal(text) | DataFusionError::Ffi(text) => {
                let mut parts = Self::of_text(text);
                parts.message = format!("internal error: {}", parts.message);
                parts.hint =
                    Some("this is a bug in the engine; please report it with the statement".to_string());
                parts
            }
            DataFusionError::ExecutionJoin(_) => Self::new("internal error: a task of the statement failed"),
            DataFusionError::ResourcesExhausted(text) => Self::of_resources(text),
            DataFusionError::Execution(text) => Self::of_execution(text),
            DataFusionError::Substrait(text) => Self::of_text(text),
            DataFusionError::ArrowError(error, _) => Self::of_std(error.as_ref()),
            DataFusionError::ParquetError(error) => Self::of_std(error.as_ref()),
            DataFusionError::ObjectStore(error) => Self::of_std(error.as_ref()),
            DataFusionError::IoError(error) => Self::of_std(error),
            DataFusionError::External(error) => Self::of_std(error.as_ref()),
        }
    }

    /// Converts any error type: SQL errors keep their text, wrappers are unwrapped, others are cleaned.
    fn of_std(error: &(dyn Error + 'static)) -> Self {
        if let Some(error) = error.downcast_ref::<DataFusionError>() {
            return Self::of(error);
        }
        if let Some(error) = error.downcast_ref::<std::sync::Arc<DataFusionError>>() {
            return Self::of(error);
        }
        if let Some(error) = error.downcast_ref::<SqlError>() {
            return Self {
                message: error.message.clone(),
                detail: error.detail.clone(),
                hint: error.hint.clone(),
                place: Position::Unknown,
            };
        }
        if let Some(error) = error.downcast_ref::<RemoteError>() {
            return Self::of_remote(error);
        }
        if let Some(error) = error.downcast_ref::<ArrowError>() {
            return match error {
                ArrowError::ExternalError(inner) => Self::of_std(inner.as_ref()),
                ArrowError::IoError(_, inner) => Self::of_std(inner),
                ArrowError::DivideByZero => Self::new("division by zero"),
                other => Self::of_text(&other.to_string()),
            };
        }
        if let Some(error) = error.downcast_ref::<ParquetError>() {
            return match error {
                ParquetError::External(inner) => Self::of_std(inner.as_ref()),
                other => {
                    let text = other.to_string();
                    // The store of the data was unreachable, which is no error of the data.
                    let state = harrier_sqlstate::of_std(other);
                    if state == Some(SqlState::IO_ERROR) {
                        return Self::of_text(&text);
                    }
                    if state == Some(SqlState::UNDEFINED_FILE)
                        && let Some(path) = between(&text, "Object at location ", " not found")
                    {
                        return Self::new(format!("file \"{path}\" does not exist"));
                    }
                    let mut parts = Self::new("invalid Parquet data");
                    parts.detail = Some(Self::of_text(&text).message);
                    parts
                }
            };
        }
        if let Some(error) = error.downcast_ref::<object_store::Error>() {
            return Self::of_object_store(error);
        }
        if let Some(error) = error.downcast_ref::<std::io::Error>() {
            return match error.get_ref() {
                Some(inner) => Self::of_std(inner),
                None => Self::of_text(&without_errno(&error.to_string())),
            };
        }
        Self::of_text(&error.to_string())
    }

    /// An error of another rank, whose text tells what the error itself would tell here.
    fn of_remote(error: &RemoteError) -> Self {
        let text = error.message.as_str();
        let file = between(text, "Object at location ", " not found");
        let mut parts = match (error.sqlstate, file) {
            (SqlState::DIVISION_BY_ZERO, _) => Self::new("division by zero"),
            (SqlState::UNDEFINED_FILE, Some(path)) => Self::new(format!("file \"{path}\" does not exist")),
            (SqlState::OUT_OF_MEMORY | SqlState::DISK_FULL, _) if text.contains("Resources exhausted: ") => {
                Self::of_resources(text)
            }
            _ => Self::of_text(text),
        };
        let place = error.rank.map(|rank| format!("on rank {rank}"));
        parts.detail = match (parts.detail, place) {
            (Some(detail), Some(place)) => Some(format!("{detail}; {place}")),
            (detail, place) => detail.or(place),
        };
        parts
    }

    fn of_object_store(error: &object_store::Error) -> Self {
        use object_store::Error as E;
        match error {
            E::NotFound { path, .. } => Self::new(format!("file \"{path}\" does not exist")),
            E::AlreadyExists { path, .. } => Self::new(format!("file \"{path}\" already exists")),
            E::PermissionDenied { path, source } | E::Unauthenticated { path, source } => {
                let mut parts = match path.as_str() {
                    "" => Self::new("permission denied"),
                    path => Self::new(format!("permission denied for file \"{path}\"")),
                };
                // Answer of the store; no kernel error is involved.
                parts.detail =
                    (!is_kernel_error(source.as_ref())).then(|| clean(&source.to_string()).into_owned());
                parts
            }
            // The local file system's private error type wraps the kernel's error and names the file in its
            // own text: use both.
            E::Generic { source, .. } => {
                let mut message = clean(&source.to_string()).into_owned();
                if let Some(cause) = source.source() {
                    let cause = clean(&without_errno(&cause.to_string())).into_owned();
                    let cause_lower = cause.to_lowercase();
                    if let Some(at) = message.to_lowercase().find(&cause_lower) {
                        message.truncate(at);
                        message = message.trim_end_matches([':', ' ']).to_string();
                    }
                    message = format!("{message}: {cause}");
                }
                Self::of_text(&message)
            }
            other => Self::of_text(&other.to_string()),
        }
    }

    /// Parses `Expected: end of statement, found: x at Line: 1, Column: 8` and similar messages.
    fn of_parser(error: &ParserError) -> Self {
        let text = match error {
            ParserError::RecursionLimitExceeded => {
                let mut parts = Self::new("statement is nested too deeply");
                parts.hint = Some("raise datafusion.sql_parser.recursion_limit if it has to be".to_string());
                return parts;
            }
            ParserError::TokenizerError(text) | ParserError::ParserError(text) => text,
        };
        let (text, place) = split_location(text);
        let Some((expected, found)) =
            text.strip_prefix("Expected: ").and_then(|rest| rest.rsplit_once(", found: "))
        else {
            let mut parts = Self::of_text(text);
            parts.place = place;
            return parts;
        };
        let is_end = found == "EOF";
        let mut parts = Self::new(if is_end {
            "syntax error at end of input".to_string()
        } else {
            format!("syntax error at or near \"{found}\"")
        });
        // Words of statements of other databases, which the parser knows.
        let is_ours = |word: &&str| !["CONNECTOR", "ICEBERG"].contains(word);
        let expected: Vec<&str> = expected.split(" or ").filter(is_ours).collect();
        parts.detail = Some(format!("expected {}", expected.join(" or ")));
        parts.place = if is_end { Position::End } else { place };
        parts
    }

    fn of_schema(error: &SchemaError) -> Self {
        match error {
            SchemaError::FieldNotFound { field, .. } => {
                // Only the text contains the closest field name, and whether one differs by case alone.
                let text = error.to_string();
                let name = match &field.relation {
                    Some(relation) => format!("{relation}.{}", field.name),
                    None => format!("\"{}\"", field.name),
                };
                let mut parts = Self::new(format!("column {name} does not exist"));
                parts.hint = if text.contains("Column names are case sensitive") {
                    between(&text, "refer to the ", " column").map(|name| {
                        format!("names without double quotes are read in lower case; write {name}")
                    })
                } else {
                    between(&text, "Did you mean '", "'?")
                        .map(|name| format!("perhaps you meant to reference the column {name}"))
                };
                parts
            }
            SchemaError::AmbiguousReference { field } => {
                Self::new(format!("column reference \"{}\" is ambiguous", field.name))
            }
            SchemaError::DuplicateUnqualifiedField { name }
            | SchemaError::DuplicateQualifiedField { name, .. } => {
                Self::new(format!("column name \"{name}\" specified more than once"))
            }
        }
    }

    fn of_plan(text: &str) -> Self {
        if let Some(call) = between(text, "No function matches the given name and argument types '", "'") {
            let call = similar_names::with_sql_types(similar_names::name_of(call));
            let mut parts = Self::new(format!("function {call} does not exist"));
            parts.detail = text
                .split_once("Candidate functions:")
                .map(|(_, list)| list.split_whitespace().collect::<Vec<_>>().join(" "))
                .and_then(|candidates| similar_names::candidates(&candidates))
                .map(|candidates| format!("candidates: {candidates}"));
            parts.hint = Some(
                "no function of this name takes these types; explicit casts of the arguments may help"
                    .to_string(),
            );
            return parts;
        }
        if let Some(parts) = Self::of_types(text) {
            return parts;
        }
        for operation in ["arithmetic expression ", "comparison operation "] {
            if let Some(types) = between(text, operation, " to valid types") {
                return Self::of_missing_operator(types);
            }
            if let Some((_, types)) = text.split_once(operation)
                && text.contains("Cannot infer common argument type")
            {
                return Self::of_missing_operator(types);
            }
        }
        if let Some(name) = between(text, "column \"", "\" must appear in the GROUP BY") {
            return Self::new(format!(
                "column \"{name}\" must appear in the GROUP BY clause or be used in an aggregate function"
            ));
        }
        if let Some(row) = between(text, "across values list: got ", " but expected") {
            return Self::new(match row.ends_with("in row 0") {
                // Row 0 can mismatch only with the INSERT's target columns.
                true => "INSERT has another number of expressions than of target columns",
                false => "VALUES lists must all be the same length",
            });
        }
        if text.contains("refers to a non existent column") {
            return Self::new("INSERT has more expressions than target columns");
        }
        if text.contains("Column count doesn't match insert query") {
            return Self::new("INSERT has another number of expressions than of target columns");
        }
        if let Some(name) = between(text, "'", "' is not a variable which can be viewed") {
            return Self::of_missing_setting(name);
        }
        if let Some(name) = between(text, "Invalid function '", "'") {
            let mut parts = Self::new(format!("function {} does not exist", similar_names::name_of(name)));
            let similar = between(text, "Did you mean '", "'?")
                .filter(|meant| similar_names::is_similar(name, meant))
                .map(|name| format!("perhaps you meant the function {name}"));
            parts.hint = Some(similar.unwrap_or_else(|| "SHOW FUNCTIONS lists the functions".to_string()));
            return parts;
        }
        if let Some((_, extension)) = text.split_once("There is no registered file format with ext ") {
            let extension = extension.split_whitespace().next().unwrap_or_default();
            let mut parts = Self::new(format!("the extension \"{extension}\" says no format of files"));
            parts.hint = Some(
                "say FORMAT; CSV and JSON are compressed by COMPRESSION gzip, bzip2, xz or zstd beside it"
                    .to_string(),
            );
            return parts;
        }
        let table_function = between(text, "able function '", "' not found");
        if let Some(name) = table_function {
            return Self::new(format!("table function {name} does not exist"));
        }
        if let Some(name) = between(text, "table '", "' not found") {
            return Self::of_missing_table(name);
        }
        if let Some(name) = between(text, "failed to resolve schema: ", "\n")
            .or_else(|| text.strip_prefix("failed to resolve schema: "))
        {
            return Self::new(format!("schema \"{name}\" does not exist"));
        }
        if let Some(name) = text.strip_prefix("failed to resolve catalog: ") {
            return Self::new(format!("catalog \"{name}\" does not exist"));
        }
        if let Some(name) = between(text, "'", "' is not a variable or a viable config parameter")
            .or_else(|| between(text, "Unknown runtime configuration: ", "\n"))
            .or_else(|| text.strip_prefix("Unknown runtime configuration: "))
        {
            return Self::of_missing_setting(name);
        }
        Self::of_text(text)
    }

    fn of_missing_operator(types: &str) -> Self {
        let types = similar_names::with_sql_types(types.trim());
        let mut parts = Self::new(format!("operator does not exist: {types}"));
        parts.hint = Some("explicit casts of the operands may help".to_string());
        parts
    }

    /// Types that do not go together, in words of PostgreSQL's.
    fn of_types(text: &str) -> Option<Self> {
        let named = |before: &str, after: &str| {
            let printed = match after {
                "" => text.split_once(before)?.1.lines().next()?,
                after => between(text, before, after)?,
            };
            // Of a list, the first: the others have it, too, or are of no other kind.
            let first = printed.split(", ").next().unwrap_or(printed);
            similar_names::sql_type(printed.trim()).or_else(|| similar_names::sql_type(first.trim()))
        };
        let missing = |left: String, operator: &str, right: String| {
            Self::of_missing_operator(&format!("{left} {operator} {right}"))
        };
        let unmatched = |what: &str, one: String, other: String| {
            Self::new(format!("{what} types {one} and {other} cannot be matched"))
        };
        if text.contains("Unsupported CAST from ") {
            let (from, to) = (named("CAST from ", " to ")?, named(" to ", "")?);
            return Some(Self::new(format!("cannot cast type {from} to {to}")));
        }
        if text.contains("Cannot automatically convert ") {
            let (from, to) = (named("automatically convert ", " to ")?, named(" to ", "")?);
            return Some(Self::new(format!("cannot cast type {from} to {to}")));
        }
        if text.contains("no valid cast exists") {
            let (from, to) = (named("data of type ", " for field")?, named("for field of type ", "")?);
            return Some(Self::new(format!("cannot cast type {from} to {to}")));
        }
        if text.contains("Inconsistent data type across values list") {
            return Some(unmatched("VALUES", named("Was ", " but found ")?, named(" but found ", "")?));
        }
        if text.contains("Incompatible inputs for Union") {
            let one = named("Previous inputs were of type ", ", but got")?;
            return Some(unmatched("UNION", one, named("got incompatible type ", " on column")?));
        }
        if text.contains("in CASE WHEN expression") {
            if text.contains("and when (") {
                return Some(missing(named("case (", ") and when")?, "=", named("and when (", ") to")?));
            }
            return Some(unmatched("CASE", named("then (", ") and else")?, named("and else (", ") to")?));
        }
        if text.contains("in BETWEEN expression") {
            let (value, bound) = (named("coerce types ", " and ")?, named(" and ", " in BETWEEN")?);
            return Some(missing(value, ">=", bound));
        }
        if text.contains("an not find compatible types to compare ") {
            let (value, listed) = (named("to compare ", " with [")?, named(" with [", "]")?);
            return Some(missing(value, "=", listed));
        }
        None
    }

    fn of_missing_table(name: &str) -> Self {
        let short = DEFAULT_PREFIXES.iter().find_map(|prefix| name.strip_prefix(prefix)).unwrap_or(name);
        let short = short.strip_prefix("datafusion.").or(short.strip_prefix("warehouse.")).unwrap_or(short);
        if let Some((short, past)) = short.split_once(harrier_sql::parser::as_of::AS_OF_MARK) {
            return Self::new(format!("relation \"{short}\" does not exist as of {past}"));
        }
        let mut parts = Self::new(format!("relation \"{short}\" does not exist"));
        let extension = short.rsplit('.').next().unwrap_or_default();
        if short.contains('.') && harrier_sql::file_names::is_file_extension(extension) {
            parts.hint = Some(format!("to read a file, put its name in single quotes: '{short}'"));
        }
        parts
    }

    fn of_missing_setting(name: &str) -> Self {
        let mut parts = Self::new(format!("unrecognized configuration parameter \"{name}\""));
        parts.hint = Some("SHOW ALL lists the parameters".to_string());
        parts
    }

    fn of_configuration(text: &str) -> Self {
        // Names are not always complete, but always quoted.
        if ["not find config", "not found on"].iter().any(|phrase| text.contains(phrase)) {
            return Self::of_missing_setting(between(text, "\"", "\"").unwrap_or_default());
        }
        if text.contains("unable to get file extension") {
            let mut parts = Self::new("neither a format nor an extension says how to write the files");
            parts.hint = Some("FORMAT csv, json, parquet, orc, avro, arrow or text".to_string());
            return parts;
        }
        Self::of_text(text)
    }

    fn of_execution(text: &str) -> Self {
        if let Some(format) = text.strip_prefix("Unable to find factory for ") {
            let mut parts = Self::new(format!("unknown file format \"{format}\""));
            parts.hint =
                Some("available formats: PARQUET, ORC, CSV, JSON, AVRO, ARROW, TEXTFILE".to_string());
            return parts;
        }
        for (kind, called) in [("Table", "relation"), ("View", "relation"), ("Schema", "schema")] {
            let begins = format!("{kind} '");
            let Some(name) = text.strip_prefix(begins.as_str()).and_then(|rest| rest.split('\'').next())
            else {
                continue;
            };
            if text.contains("already exists") {
                return Self::new(format!("{called} \"{name}\" already exists"));
            }
            if text.contains("doesn't exist") {
                return Self::new(format!("{called} \"{name}\" does not exist"));
            }
        }
        Self::of_text(text)
    }

    fn of_resources(text: &str) -> Self {
        let text = clean(text);
        if harrier_sqlstate::of(&DataFusionError::ResourcesExhausted(text.to_string())) == SqlState::DISK_FULL
        {
            let mut parts = Self::new("the limit on temporary files is reached");
            parts.detail = Some(text.into_owned());
            parts.hint = Some("SET datafusion.runtime.max_temp_directory_size = '…' raises it".to_string());
            return parts;
        }
        let mut parts = Self::new("out of memory");
        parts.detail = Some(text.into_owned());
        parts.hint = Some(
            "raise --memory or the limit of statements (harrier.statement_memory), or lower --threads"
                .to_string(),
        );
        parts
    }

    /// Unstructured text: the first line is the message; the other lines are detail, as is the row that a
    /// reader could not parse.
    fn of_text(text: &str) -> Self {
        let text = clean(text);
        let (first, rest) = text
            .split_once('\n')
            .or_else(|| {
                let at = text.find(". Row data: ")?;
                Some((&text[..at], &text[at + 2..]))
            })
            .unwrap_or((&text, ""));
        let first = without_debug(first);
        if let Some((state, words)) = harrier_sqlstate::bad_text(first) {
            let text = words.split('"').nth(1).unwrap_or_default();
            let hint = (state == SqlState::DATETIME_FIELD_OVERFLOW).then(|| date_style_hint(text)).flatten();
            let mut parts = Self::new(words);
            parts.hint = hint.map(str::to_string);
            return parts;
        }
        let mut parts = Self::new(first.trim_end().trim_end_matches('.'));
        let rest = rest.trim();
        if !rest.is_empty() {
            parts.detail = Some(rest.to_string());
        }
        parts
    }

    fn with_diagnostic(mut self, diagnostic: &Diagnostic) -> Self {
        if self.place == Position::Unknown
            && let Some(span) = diagnostic.span
        {
            self.place = Position::At(span.start);
        }
        let texts = |texts: Vec<&str>| (!texts.is_empty()).then(|| texts.join("; "));
        let helps = texts(diagnostic.helps.iter().map(|h| h.message.as_str()).collect());
        let notes = texts(
            // The message of a missing operator already contains the types.
            diagnostic
                .notes
                .iter()
                .map(|n| n.message.as_str())
                .filter(|n| !n.starts_with("has type"))
                .collect(),
        );
        if self.hint.is_none() {
            self.hint = helps.map(|help| clean(&help).into_owned());
        }
        if self.detail.is_none() && self.hint.is_none() {
            self.detail = notes.map(|note| clean(&note).into_owned());
        }
        self
    }
}

/// Subqueries that the optimizer has made no join of, without which they cannot be run.
const SUBQUERIES: [&str; 3] = ["ScalarSubquery", "InSubquery", "Exists"];

/// Whether an expression of one of these kinds stands where it cannot be computed.
fn is_unplanned(text: &str, kinds: &[&str]) -> bool {
    text.split_once("does not support logical expression ")
        .is_some_and(|(_, rest)| kinds.iter().any(|kind| rest.starts_with(kind)))
}

/// Component prefixes, removed however many there are.
const PREFIXES: &[&str] = &[
    "Error during planning: ",
    "Arrow error: ",
    "Parquet error: ",
    "Object Store error: ",
    "Object store error: ",
    "IO error: ",
    "Io error: ",
    "SQL error: ",
    "This feature is not implemented: ",
    "Internal error: ",
    "Invalid or Unsupported Configuration: ",
    "Schema error: ",
    "Execution error: ",
    "ExecutionJoin error: ",
    "Resources exhausted: ",
    "External error: ",
    "External: ",
    "DataFusion error: ",
    "Substrait error: ",
    "FFI error: ",
    "Compute error: ",
    "Cast error: ",
    "Parser error: ",
    "Csv error: ",
    "Json error: ",
    "Avro error: ",
    "Ipc error: ",
    "Memory error: ",
    "Invalid argument error: ",
    "Parquet argument error: ",
    "Arithmetic overflow: ",
    "Not yet implemented: ",
    "Generic LocalFileSystem error: ",
    "Generic files error: ",
    "Error parsing column: ",
    "EOF: ",
    "General: ",
    "NYI: ",
];

/// `text` without backtrace, prefixes and leading capital letter.
fn clean(text: &str) -> Cow<'_, str> {
    let mut text = text.split(DataFusionError::BACK_TRACE_SEP).next().unwrap_or_default().trim();
    while let Some(rest) = PREFIXES.iter().find_map(|noise| text.strip_prefix(noise)) {
        text = rest.trim_start();
    }
    let mut chars = text.chars();
    match (chars.next(), chars.next()) {
        // A second capital means an abbreviation or a type such as CSV or UInt8, which keep their case.
        (Some(first), Some(second)) if first.is_uppercase() && !second.is_uppercase() => {
            let first_word = text.split([' ', '(', '<']).next().unwrap_or_default();
            if first_word.chars().skip(1).any(|c| c.is_uppercase() || c.is_ascii_digit()) {
                return Cow::Borrowed(text);
            }
            Cow::Owned(first.to_lowercase().chain(text.chars().skip(1)).collect())
        }
        _ => Cow::Borrowed(text),
    }
}

/// `text` without the trailing parsed expression of some messages.
fn without_debug(text: &str) -> &str {
    let is_debug = text.contains("Span(Location(") || text.contains("ValueWithSpan {");
    match text.find(" {") {
        Some(brace) if is_debug => text[..brace].rsplit_once(' ').map_or(text, |(message, _)| message),
        _ => text,
    }
}

/// Whether an error, or one of its causes, comes from this host's file system.
fn is_kernel_error(error: &(dyn std::error::Error + 'static)) -> bool {
    let mut next = Some(error);
    while let Some(error) = next {
        if error.is::<std::io::Error>() {
            return true;
        }
        next = error.source();
    }
    false
}

/// The kernel's message without Rust's ` (os error 28)`.
fn without_errno(text: &str) -> String {
    match text.rfind(" (os error ") {
        Some(at) => text[..at].to_string(),
        None => text.to_string(),
    }
}

fn between<'a>(text: &'a str, before: &str, after: &str) -> Option<&'a str> {
    let start = text.find(before)? + before.len();
    let length = text[start..].find(after)?;
    Some(&text[start..start + length])
}

/// Splits ` at Line: 1, Column: 8` off the end of a parser message.
fn split_location(text: &str) -> (&str, Position) {
    let Some((message, location)) = text.rsplit_once(" at Line: ") else {
        return (text, Position::Unknown);
    };
    let place = location
        .split_once(", Column: ")
        .and_then(|(line, column)| {
            Some(Position::At(Location {
                line: line.trim().parse().ok()?,
                column: column.trim().parse().ok()?,
            }))
        })
        .unwrap_or(Position::Unknown);
    (message, place)
}

/// The 1-based character offset of a 1-based line and column; `None` if outside the text.
fn offset_of(sql: &str, location: Location) -> Option<usize> {
    let line = usize::try_from(location.line).ok()?.checked_sub(1)?;
    let column = usize::try_from(location.column).ok()?.checked_sub(1)?;
    let mut lines = sql.split('\n');
    let before: usize = lines.by_ref().take(line).map(|line| line.chars().count() + 1).sum();
    let length = lines.next()?.chars().count();
    (column <= length).then_some(before + column + 1)
}

#[cfg(test)]
mod tests {
    use datafusion::common::Span;

    use super::*;

    #[test]
    fn messages_are_cleaned() {
        for (text, expected) in [
            ("Error during planning: Arrow error: Something", "something"),
            ("External error: Execution error: Foo bar", "foo bar"),
            ("CSV is odd", "CSV is odd"),
            ("UInt8 is odd", "UInt8 is odd"),
            ("Int64(1) is odd", "Int64(1) is odd"),
            ("Émile", "émile"),
            ("", ""),
            ("already clean", "already clean"),
            ("Plan\n\nbacktrace: 0: std", "plan"),
        ] {
            assert_eq!(clean(text), expected, "{text:?}");
        }
    }

    #[test]
    fn errors_are_mapped_for_users() {
        use DataFusionError as E;
        let parser = |text: &str| E::SQL(Box::new(ParserError::ParserError(text.into())), None);
        let cases: Vec<(E, &str)> = vec![
            (
                parser("Expected: end of statement, found: foo at Line: 1, Column: 10"),
                "ERROR 42601: syntax error at or near \"foo\"\n\
                 LINE 1: select 1 foo\n\
                 \x20                ^\n\
                 DETAIL: expected end of statement",
            ),
            (
                parser("Expected: an expression, found: EOF"),
                "ERROR 42601: syntax error at end of input\n\
                 LINE 1: select 1 foo\n\
                 \x20                   ^\n\
                 DETAIL: expected an expression",
            ),
            (
                E::Plan("table 'datafusion.public.foo' not found".into()).with_diagnostic(
                    Diagnostic::new_error(
                        "table 'foo' not found",
                        Some(Span::new(Location { line: 1, column: 10 }, Location { line: 1, column: 13 })),
                    ),
                ),
                "ERROR 42P01: relation \"foo\" does not exist\n\
                 LINE 1: select 1 foo\n\
                 \x20                ^",
            ),
            (
                E::Plan("Invalid function 'floorr'.\nDid you mean 'floor'?".into()),
                "ERROR 42883: function floorr does not exist\n\
                 HINT: perhaps you meant the function floor",
            ),
            (
                E::Plan("Invalid function 'pg_sleep'.\nDid you mean 'pg_typeof'?".into()),
                "ERROR 42883: function pg_sleep does not exist\n\
                 HINT: SHOW FUNCTIONS lists the functions",
            ),
            (
                parser("Expected: one of VIEW or CONNECTOR or ICEBERG or SCHEMA, found: foo"),
                "ERROR 42601: syntax error at or near \"foo\"\n\
                 DETAIL: expected one of VIEW or SCHEMA",
            ),
            (E::ArrowError(Box::new(ArrowError::DivideByZero), None), "ERROR 22012: division by zero"),
            (
                RemoteError::new(SqlState::DIVISION_BY_ZERO, "Arrow error: Divide by zero error").on_rank(2).into(),
                "ERROR 22012: division by zero\nDETAIL: on rank 2",
            ),
            (
                RemoteError::new(
                    SqlState::INVALID_TEXT_REPRESENTATION,
                    "Arrow error: Cast error: Cannot cast string 'x' to value of Int32 type",
                )
                .on_rank(1)
                .into(),
                "ERROR 22P02: invalid input syntax for type integer: \"x\"\nDETAIL: on rank 1",
            ),
            (
                E::NotImplemented("Unsupported CAST from List(Boolean) to Date32".into()),
                "ERROR 42846: cannot cast type boolean[] to date",
            ),
            (
                E::Plan("Failed to coerce then (Int64, Int64) and else (Boolean) to common types in CASE WHEN expression".into()),
                "ERROR 42804: CASE types bigint and boolean cannot be matched",
            ),
            (
                E::Internal("Failed to coerce types Int64 and Boolean in BETWEEN expression".into()),
                "ERROR 42883: operator does not exist: bigint >= boolean\n\
                 HINT: explicit casts of the operands may help",
            ),
            (
                E::Internal("Odd".into()),
                "ERROR XX000: internal error: odd\n\
                 HINT: this is a bug in the engine; please report it with the statement",
            ),
            (E::IoError(std::io::Error::from_raw_os_error(28)), "ERROR 53100: no space left on device"),
            (
                E::ParquetError(Box::new(ParquetError::General(
                    "Failed to fetch metadata for file a.parquet: Object Store error: Object at location /a.parquet \
                     not found: No such file or directory (os error 2)"
                        .into(),
                ))),
                "ERROR 58P01: file \"/a.parquet\" does not exist",
            ),
            (
                RemoteError::new(SqlState::DIVISION_BY_ZERO, "division by zero").on_rank(2).into(),
                "ERROR 22012: division by zero\nDETAIL: on rank 2",
            ),
        ];
        for (error, expected) in cases {
            let sql = "select 1 foo";
            assert_eq!(in_statement(&error, sql).report(Some(sql)), expected);
        }
    }

    #[test]
    fn places_are_counted_in_characters() {
        let sql = "é\n  ü x";
        let at = |line, column| offset_of(sql, Location { line, column });
        assert_eq!(at(1, 1), Some(1));
        assert_eq!(at(2, 1), Some(3));
        assert_eq!(at(2, 5), Some(7));
        assert_eq!(at(2, 9), None);
        assert_eq!(at(3, 1), None);
        assert_eq!(at(0, 1), None);
    }
}
