//! Wire format of errors between ranks, with their SQLSTATE.

use datafusion::error::DataFusionError;
use harrier_error::SqlState;
use harrier_interconnect::{Failure, StreamError};
use harrier_sqlstate::RemoteError;

/// The failure sent to the opener of a stream when its producer fails.
pub fn to_failure(error: &DataFusionError) -> Failure {
    Failure::new(harrier_sqlstate::of(error), error.strip_backtrace())
}

/// The error that an operator above a motion returns.
pub fn from_stream(error: StreamError) -> DataFusionError {
    let (sqlstate, rank) = match &error {
        StreamError::Failed { rank, failure } => (failure.sqlstate, *rank),
        StreamError::Lost { rank, .. } => (SqlState::CRASH_SHUTDOWN, *rank),
        StreamError::Malformed { rank, .. } => (SqlState::DATA_CORRUPTED, *rank),
        _ => return harrier_sqlstate::remote(SqlState::INTERNAL_ERROR, error.to_string()),
    };
    RemoteError::new(sqlstate, error.to_string()).on_rank(rank as u32).into()
}
