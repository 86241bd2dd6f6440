//! Errors on their way between ranks, with their SQLSTATE.

use datafusion::error::DataFusionError;
use harrier_error::SqlState;
use harrier_interconnect::{Failure, StreamError};
use harrier_sqlstate::RemoteError;

/// What the opener of a stream is told when its producer failed.
pub fn to_failure(error: &DataFusionError) -> Failure {
    Failure::new(harrier_sqlstate::of(error), error.strip_backtrace())
}

/// What an operator above a motion sees of its end.
pub fn from_stream(error: StreamError) -> DataFusionError {
    let (sqlstate, rank) = match &error {
        StreamError::Failed { rank, failure } => (failure.sqlstate, *rank),
        StreamError::Lost { rank, .. } => (SqlState::CRASH_SHUTDOWN, *rank),
        StreamError::Malformed { rank, .. } => (SqlState::DATA_CORRUPTED, *rank),
        _ => return harrier_sqlstate::remote(SqlState::INTERNAL_ERROR, error.to_string()),
    };
    RemoteError::new(sqlstate, error.to_string()).on_rank(rank as u32).into()
}
