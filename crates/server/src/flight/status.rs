//! Conversion of errors to gRPC statuses: the closest code; the rest goes into the message and trailers.

use harrier_error::{SqlError, SqlState};
use tonic::metadata::{MetadataMap, MetadataValue};
use tonic::{Code, Status};

/// Maximum size of a status message. Clients reject trailers over 8 KiB by default; non-ASCII bytes count
/// threefold there.
const MESSAGE_BYTES_MAX: usize = 2000;

/// The status of an error. Its SQLSTATE is at the end of the message's first line and in the trailer
/// `sqlstate`; detail and hint follow on separate lines, as psql prints them.
pub(super) fn status(failure: &SqlError) -> Status {
    let mut message = format!("{} (SQLSTATE {})", truncate(&failure.message), failure.sqlstate);
    for (name, text) in [("DETAIL", &failure.detail), ("HINT", &failure.hint)] {
        if let Some(text) = text {
            message = format!("{message}\n{name}:  {text}");
        }
    }
    let mut trailers = MetadataMap::new();
    if let Ok(state) = MetadataValue::try_from(failure.sqlstate.as_str()) {
        trailers.insert("sqlstate", state);
    }
    if let Some(position) = failure.position {
        trailers.insert("position", MetadataValue::from(position));
    }
    Status::with_metadata(code(failure.sqlstate), truncate(&message), trailers)
}

/// `map_err(to_status)` in a handler.
pub(super) fn to_status(failure: SqlError) -> Status {
    status(&failure)
}

fn truncate(text: &str) -> &str {
    &text[..text.floor_char_boundary(MESSAGE_BYTES_MAX)]
}

fn code(sqlstate: SqlState) -> Code {
    match sqlstate {
        SqlState::QUERY_CANCELED => Code::Cancelled,
        SqlState::INSUFFICIENT_PRIVILEGE => Code::PermissionDenied,
        SqlState::UNDEFINED_TABLE
        | SqlState::UNDEFINED_COLUMN
        | SqlState::UNDEFINED_OBJECT
        | SqlState::UNDEFINED_FUNCTION
        | SqlState::INVALID_CATALOG_NAME
        | SqlState::INVALID_SCHEMA_NAME
        | SqlState::INVALID_STATEMENT_NAME
        | SqlState::INVALID_CURSOR_NAME => Code::NotFound,
        SqlState::DUPLICATE_DATABASE
        | SqlState::DUPLICATE_SCHEMA
        | SqlState::DUPLICATE_TABLE
        | SqlState::DUPLICATE_OBJECT
        | SqlState::DUPLICATE_COLUMN
        | SqlState::DUPLICATE_FUNCTION
        | SqlState::UNIQUE_VIOLATION => Code::AlreadyExists,
        _ => match sqlstate.class() {
            "0A" => Code::Unimplemented,
            "22" | "42" | "08" => Code::InvalidArgument,
            "28" => Code::Unauthenticated,
            "40" => Code::Aborted,
            "53" | "54" => Code::ResourceExhausted,
            "57" | "58" => Code::Unavailable,
            "23" | "25" | "2B" | "2D" | "3B" | "44" | "55" => Code::FailedPrecondition,
            "XX" => Code::Internal,
            _ => Code::Unknown,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_are_complete_and_bounded() {
        let failure =
            SqlError::new(SqlState::UNDEFINED_TABLE, "relation \"x\" does not exist").with_hint("Create it.");
        let status = super::status(&failure);
        assert_eq!(status.code(), Code::NotFound);
        assert_eq!(status.message(), "relation \"x\" does not exist (SQLSTATE 42P01)\nHINT:  Create it.");
        assert_eq!(status.metadata().get("sqlstate").unwrap(), "42P01");
        let long = super::status(&SqlError::new(SqlState::INVALID_TEXT_REPRESENTATION, "ß".repeat(5000)));
        assert!(long.message().len() <= MESSAGE_BYTES_MAX);
        assert_eq!(super::status(&SqlError::new(SqlState::SUCCESSFUL_COMPLETION, "")).code(), Code::Unknown);
    }
}
