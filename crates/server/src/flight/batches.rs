//! Batches that a client sends.

use arrow::array::RecordBatch;
use arrow_flight::decode::FlightRecordBatchStream;
use arrow_flight::error::FlightError;
use arrow_flight::sql::server::PeekableFlightDataStream;
use futures::future::ready;
use futures::{StreamExt, TryStreamExt};
use harrier_error::{SqlError, SqlState};

/// A client's batches.
pub(super) type BatchStream = FlightRecordBatchStream;

/// The batches of a request. Skips messages without a batch, such as those with only a descriptor.
pub(super) fn decode_batches(stream: PeekableFlightDataStream) -> BatchStream {
    let has_batch = |message: &Result<arrow_flight::FlightData, _>| {
        ready(message.as_ref().map_or(true, |message| !message.data_header.is_empty()))
    };
    FlightRecordBatchStream::new_from_flight_data(stream.filter(has_batch).map_err(FlightError::from))
}

/// The error of an undecodable client stream.
pub(super) fn unreadable(error: FlightError) -> SqlError {
    match error {
        FlightError::Tonic(status) => SqlError::new(
            SqlState::CONNECTION_FAILURE,
            format!("the client stopped sending: {}", status.message()),
        ),
        other => SqlError::new(
            SqlState::PROTOCOL_VIOLATION,
            format!("what the client sent is not a stream of batches: {other}"),
        ),
    }
}

/// Concatenates all batches of a request. `bytes_max`: fails with 54000 beyond.
pub(super) async fn collect(
    mut sent: BatchStream,
    bytes_max: usize,
) -> Result<Option<RecordBatch>, SqlError> {
    let (mut batches, mut bytes) = (Vec::new(), 0);
    while let Some(batch) = sent.try_next().await.map_err(unreadable)? {
        bytes += batch.get_array_memory_size();
        if bytes > bytes_max {
            return Err(SqlError::new(
                SqlState::PROGRAM_LIMIT_EXCEEDED,
                format!("parameters are larger than {bytes_max} bytes"),
            ));
        }
        batches.push(batch);
    }
    let Some(schema) = sent.schema().filter(|schema| !schema.fields().is_empty()) else { return Ok(None) };
    arrow::compute::concat_batches(schema, &batches).map(Some).map_err(|error| {
        SqlError::new(SqlState::PROTOCOL_VIOLATION, format!("parameters do not fit together: {error}"))
    })
}
