//! `TStatus`: the outcome of a call, with errors as Hive's clients expect them.

use harrier_error::{SqlError, SqlState};
use harrier_thrift::ThriftValue;

use super::metadata::hive_schema;

/// `TStatusCode`.
const SUCCESS: i32 = 0;
const ERROR: i32 = 3;

/// Hive's SQLSTATEs and numbers of errors, for those that clients look at.
const NO_SUCH_TABLE: (&str, i32) = ("42S02", 10001);
const NO_SUCH_DATABASE: (&str, i32) = ("42000", 10072);
const SYNTAX_ERROR: (&str, i32) = ("42000", 40000);
const NO_SUCH_COLUMN: (&str, i32) = ("42000", 10004);
const NO_SUCH_FUNCTION: (&str, i32) = ("42000", 10011);

pub(super) fn success() -> ThriftValue {
    ThriftValue::Struct(vec![(1, ThriftValue::I32(SUCCESS))])
}

/// An error as clients see it: SQLSTATE, Hive's number, message.
pub(super) struct ClientError {
    pub sqlstate: String,
    pub code: i32,
    pub message: String,
}

impl From<&SqlError> for ClientError {
    fn from(failure: &SqlError) -> Self {
        let (sqlstate, code) = numbers(failure);
        Self { sqlstate: sqlstate.to_string(), code, message: message(failure) }
    }
}

/// The status of a call that failed.
pub(super) fn failure_status(failure: &SqlError) -> ThriftValue {
    let ClientError { sqlstate, code, message } = ClientError::from(failure);
    let information = ThriftValue::List(vec![ThriftValue::text(format!("SQLSTATE {}", failure.sqlstate))]);
    ThriftValue::Struct(vec![
        (1, ThriftValue::I32(ERROR)),
        (2, information),
        (3, ThriftValue::text(sqlstate)),
        (4, ThriftValue::I32(code)),
        (5, ThriftValue::text(message)),
    ])
}

/// A response that consists of its status.
pub(super) fn response(result: Result<(), SqlError>) -> ThriftValue {
    let status = result.map_or_else(|failure| failure_status(&failure), |()| success());
    ThriftValue::Struct(vec![(1, status)])
}

fn numbers(failure: &SqlError) -> (&str, i32) {
    match failure.sqlstate {
        SqlState::UNDEFINED_TABLE => NO_SUCH_TABLE,
        SqlState::INVALID_SCHEMA_NAME => NO_SUCH_DATABASE,
        SqlState::SYNTAX_ERROR => SYNTAX_ERROR,
        SqlState::UNDEFINED_COLUMN | SqlState::AMBIGUOUS_COLUMN => NO_SUCH_COLUMN,
        SqlState::UNDEFINED_FUNCTION => NO_SUCH_FUNCTION,
        _ => (failure.sqlstate.as_str(), 1),
    }
}

/// The message, with Hive's words in front where clients search for them: PyHive's `has_table` looks for
/// `SemanticException` and `Table not found`.
fn message(failure: &SqlError) -> String {
    const COMPILING: &str = "Error while compiling statement: FAILED:";
    let text = &failure.message;
    let mut message = match failure.sqlstate {
        SqlState::UNDEFINED_TABLE => {
            // Hive has the name in quotes, and PyHive looks for it without.
            let (name, code) = (name_of(text), NO_SUCH_TABLE.1);
            format!(
                "{COMPILING} SemanticException [Error {code}]: Table not found {name}: Table not found '{name}'"
            )
        }
        SqlState::INVALID_SCHEMA_NAME => {
            let (name, code) = (name_of(text), NO_SUCH_DATABASE.1);
            format!("{COMPILING} SemanticException [Error {code}]: Database does not exist: {name}")
        }
        SqlState::UNDEFINED_COLUMN => {
            let (name, code) = (name_of(text), NO_SUCH_COLUMN.1);
            let words = "Invalid table alias or column reference";
            format!("{COMPILING} SemanticException [Error {code}]: {words} '{name}': {text}")
        }
        SqlState::UNDEFINED_FUNCTION => {
            let code = NO_SUCH_FUNCTION.1;
            let name = text.strip_prefix("function ").and_then(|rest| rest.split([' ', '(']).next());
            let name = name.unwrap_or(text);
            format!("{COMPILING} SemanticException [Error {code}]: Invalid function {name}: {text}")
        }
        SqlState::SYNTAX_ERROR => format!("{COMPILING} ParseException {text}"),
        SqlState::QUERY_CANCELED => format!("Query was CANCELED: {text}"),
        state if state.class() == "42" => format!("{COMPILING} SemanticException {text}"),
        _ => text.clone(),
    };
    for (name, text) in [("DETAIL", &failure.detail), ("HINT", &failure.hint)] {
        if let Some(text) = text {
            message.push_str(&format!("\n{name}:  {text}"));
        }
    }
    message
}

/// The name in an error's quotes, with Hive's name of the schema.
fn name_of(text: &str) -> String {
    let quoted = text.split_once('"').and_then(|(_, rest)| rest.rsplit_once('"'));
    let name = quoted.map_or(text, |(name, _)| name).replace('"', "");
    match name.split_once('.') {
        Some((schema, rest)) => format!("{}.{rest}", hive_schema(schema)),
        None => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_have_the_words_that_clients_search_for() {
        let missing = SqlError::new(SqlState::UNDEFINED_TABLE, "relation \"s.t\" does not exist");
        let error = ClientError::from(&missing);
        assert_eq!((error.sqlstate.as_str(), error.code), ("42S02", 10001));
        assert_eq!(
            error.message,
            "Error while compiling statement: FAILED: SemanticException [Error 10001]: Table not found s.t: Table \
             not found 's.t'"
        );
        assert_eq!(name_of("relation \"\"public\".\"t\"\" does not exist"), "default.t");
        let other = SqlError::new(SqlState::QUERY_CANCELED, "canceling statement").with_hint("Wait.");
        let error = ClientError::from(&other);
        assert_eq!((error.sqlstate.as_str(), error.code), ("57014", 1));
        assert_eq!(error.message, "Query was CANCELED: canceling statement\nHINT:  Wait.");
    }
}
