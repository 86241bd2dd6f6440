//! Preparation and execution of prepared statements.

use arrow::array::{ArrayRef, RecordBatch};
use bytes::Bytes;
use harrier_error::{SqlError, SqlState};
use harrier_session_api::statement::{Completion, Description};
use parking_lot::Mutex;

use super::consumer::Consumer;
use super::executor::{Executor, StatementInputs, row_count};
use super::placeholders::number_placeholders;
use super::prepared::Prepared;

/// Prepares a statement on the session of a turn. Its parameters may be question marks.
pub(super) async fn prepare(
    executor: &mut Executor,
    text: String,
    transaction: Option<Bytes>,
) -> Result<Prepared, SqlError> {
    let text = number_placeholders(&text).into_owned();
    let (parsed, description) = match executor.describe(&text).await {
        Ok(Some((statement, description))) => (Some(statement), Some(description)),
        Ok(None) => (None, Some(Description::default())),
        // The bound values will determine the parameter types.
        Err(failure) if failure.sqlstate == SqlState::INDETERMINATE_DATATYPE => (None, None),
        Err(failure) => return Err(failure),
    };
    let session = executor.session_id();
    Ok(Prepared { text, transaction, session, parsed, description, bound: Mutex::new(None) })
}

/// Executes a prepared statement once without parameters, or once per row of them.
pub(super) async fn run(
    prepared: &Prepared,
    executor: &mut Executor,
    parameters: Option<&RecordBatch>,
    consumer: &mut dyn Consumer,
) -> Result<i64, SqlError> {
    let parameters = parameters.filter(|parameters| parameters.num_columns() > 0);
    let Some(parameters) = parameters else {
        prepared.check_count(0)?;
        return Ok(row_count(&run_once(prepared, executor, &[], consumer).await?));
    };
    prepared.check_count(parameters.num_columns())?;
    let columns = prepared.cast(parameters)?;
    let mut count = 0;
    for row in 0..parameters.num_rows() {
        let values: Vec<ArrayRef> = columns.iter().map(|column| column.slice(row, 1)).collect();
        count += row_count(&run_once(prepared, executor, &values, consumer).await?);
    }
    Ok(count)
}

async fn run_once(
    prepared: &Prepared,
    executor: &mut Executor,
    values: &[ArrayRef],
    consumer: &mut dyn Consumer,
) -> Result<Completion, SqlError> {
    let parsed = prepared.parsed.clone().filter(|_| executor.session_id() == prepared.session);
    let expected = prepared.description.as_ref().and_then(|description| description.columns.as_deref());
    executor
        .run(
            &prepared.text,
            StatementInputs { parsed, values, expected, ..StatementInputs::default() },
            consumer,
        )
        .await
}
