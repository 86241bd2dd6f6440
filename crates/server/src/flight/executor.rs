//! Execution of a statement on a leased session: listed while it runs, cancelable at any time, and cleaned up
//! afterwards.
//!
//! Cancellation: execution ends early when its session gets a stop request, when its token is canceled (the
//! client no longer wants its rows), or when the session's `statement_timeout` expires. The running future is
//! dropped then, which cancels it.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use arrow::array::{Array, ArrayRef};
use arrow::datatypes::{DataType, Schema};
use bytes::Bytes;
use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use harrier_error::{SqlError, SqlState};
use harrier_session_api::session::TransactionState;
use harrier_session_api::statement::{Completion, Description, StatementKind};
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use super::consumer::{Consumer, Discard};
use super::encode::wire_schema;
use super::login::Lease;
use crate::backend::{BackendResponse, BackendSession, BackendStatement, CopyFromClient, CopyInto};
use crate::execution::{
    ListedStatement, canceled_error, client_gone_error, next_stop, parse_single, statement_timeout,
    timeout_error,
};
use crate::registry::{Registry, StatementEntry, Stop};

/// Inputs of a statement beside its text.
#[derive(Default)]
pub(super) struct StatementInputs<'a> {
    /// Parsed by this session.
    pub parsed: Option<BackendStatement>,
    pub values: &'a [ArrayRef],
    /// The row description sent to the client when it prepared the statement.
    pub expected: Option<&'a Schema>,
    /// The input of COPY.
    pub input: Option<BoxStream<'a, Result<Bytes, SqlError>>>,
    /// May begin and end transactions, on the protocol's request.
    pub is_control: bool,
}

/// Executes statements, one after the other, on a session.
pub(super) struct Executor {
    lease: Lease,
    registry: Arc<Registry>,
    stops: watch::Receiver<(u64, Option<Stop>)>,
    canceled: CancellationToken,
}

impl Executor {
    pub fn new(lease: Lease, registry: Arc<Registry>, canceled: CancellationToken) -> Self {
        let stops = lease.hosted.guard.entry.listen();
        lease.hosted.set_current(&canceled);
        Self { lease, registry, stops, canceled }
    }

    pub fn session(&self) -> &Arc<dyn BackendSession> {
        &self.lease.hosted.session
    }

    pub fn session_id(&self) -> i32 {
        self.lease.hosted.guard.entry.id
    }

    /// Executes a statement to its end. Its session is cleaned up afterwards, also on failure.
    pub async fn run(
        &mut self,
        text: &str,
        given: StatementInputs<'_>,
        consumer: &mut dyn Consumer,
    ) -> Result<Completion, SqlError> {
        let hosted = Arc::clone(&self.lease.hosted);
        let listed = ListedStatement::begin(&self.registry, &hosted.guard.entry, &hosted.session, text);
        let timeout = statement_timeout(&*hosted.session);
        let is_side = self.lease.is_side;
        let result = {
            let work = work(&*hosted.session, text, given, is_side, &listed.entry, consumer);
            tokio::select! {
                biased;
                failure = next_stop(&mut self.stops) => Err(failure),
                () = self.canceled.cancelled() => Err(canceled_error()),
                () = tokio::time::sleep(timeout), if !timeout.is_zero() => Err(timeout_error()),
                result = work => result,
            }
        };
        let settled = hosted.session.settle().await;
        let result = result.and_then(|done| settled.map(|()| done));
        listed.end(result.as_ref().err());
        if let Ok(done) = &result {
            self.lease.ran(text, &done.tag);
        }
        result
    }

    /// Describes a statement's parameters and rows. `None`: the text is empty.
    pub async fn describe(
        &mut self,
        text: &str,
    ) -> Result<Option<(BackendStatement, Description)>, SqlError> {
        let session = Arc::clone(self.session());
        let parsed = parse_single(&*session, text);
        let Some(statement) = self.unless_stopped(parsed).await? else { return Ok(None) };
        let description = self.unless_stopped(session.describe(&statement, &[])).await?;
        Ok(Some((statement, description)))
    }

    async fn unless_stopped<T>(
        &mut self,
        work: impl Future<Output = Result<T, SqlError>>,
    ) -> Result<T, SqlError> {
        tokio::select! {
            biased;
            failure = next_stop(&mut self.stops) => Err(failure),
            () = self.canceled.cancelled() => Err(client_gone_error()),
            done = work => done,
        }
    }

    /// Executes a statement of the protocol itself, such as COMMIT.
    pub async fn run_control(&mut self, text: &str) -> Result<Completion, SqlError> {
        self.run(text, StatementInputs { is_control: true, ..StatementInputs::default() }, &mut Discard).await
    }

    /// Executes several statements atomically: in the open transaction, or in one of their own.
    pub async fn run_atomically<'a, T>(
        &'a mut self,
        work: impl for<'b> FnOnce(&'b mut Self) -> BoxFuture<'b, Result<T, SqlError>>,
    ) -> Result<T, SqlError> {
        if self.session().transaction() != TransactionState::Idle {
            return work(self).await;
        }
        self.run_control("BEGIN").await?;
        let result = work(self).await;
        let end = match &result {
            Ok(_) => self.run_control("COMMIT").await,
            Err(_) => {
                // A client that cancels the work does not want to keep the transaction open.
                self.canceled = CancellationToken::new();
                self.run_control("ROLLBACK").await
            }
        };
        match (result, end) {
            (Ok(value), Ok(_)) => Ok(value),
            (Ok(_), Err(failure)) | (Err(failure), _) => Err(failure),
        }
    }
}

async fn work(
    session: &dyn BackendSession,
    text: &str,
    given: StatementInputs<'_>,
    is_side: bool,
    entry: &Arc<StatementEntry>,
    consumer: &mut dyn Consumer,
) -> Result<Completion, SqlError> {
    let parsed = match given.parsed {
        Some(parsed) => Some(parsed),
        None => parse_single(session, text).await?,
    };
    let Some(statement) = parsed else { return Ok(Completion::default()) };
    let is_control = matches!(statement.kind, StatementKind::Begin | StatementKind::Control);
    if is_control && is_side && !given.is_control {
        return Err(SqlError::new(
            SqlState::OBJECT_IN_USE,
            "rows of another statement of this connection are still being read",
        )
        .with_hint("Read them to the end first, or use another connection."));
    }
    match session.execute(&statement, given.values, entry).await? {
        BackendResponse::Rows { schema, mut rows } => {
            if let Some(expected) = given.expected {
                check_columns(session, &statement, &schema, expected).await?;
            }
            consumer.begin(&schema).await?;
            let mut count = 0;
            while let Some(batch) = rows.next().await {
                let batch = batch?;
                count += batch.num_rows();
                entry.rows.fetch_add(batch.num_rows() as u64, Ordering::Relaxed);
                let bytes: usize =
                    batch.columns().iter().map(|it| it.to_data().get_slice_memory_size().unwrap_or(0)).sum();
                entry.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
                consumer.take(batch).await?;
            }
            Ok(Completion { tag: format!("{} {count}", statement.tag), ..Completion::default() })
        }
        BackendResponse::Done(done) => Ok(done),
        BackendResponse::CopyIn(CopyFromClient { input, done, .. }) => match (given.input, input) {
            (Some(source), CopyInto::Text(input)) => feed(source, input, done).await,
            _ => Err(SqlError::new(
                SqlState::FEATURE_NOT_SUPPORTED,
                "cannot copy from the client over Flight SQL",
            )
            .with_hint("Use bulk ingestion, which sends Arrow batches.")),
        },
        BackendResponse::CopyOut(_) => {
            Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, "cannot copy to the client over Flight SQL")
                .with_hint("Select the rows, which arrive as Arrow batches."))
        }
    }
}

/// Errors: the statement's description has changed (0A000).
async fn check_columns(
    session: &dyn BackendSession,
    statement: &BackendStatement,
    schema: &Schema,
    expected: &Schema,
) -> Result<(), SqlError> {
    let of = |schema: &Schema| -> Vec<(String, DataType)> {
        let schema = wire_schema(schema);
        schema.fields().iter().map(|field| (field.name().clone(), field.data_type().clone())).collect()
    };
    let described = of(expected);
    if of(schema) == described {
        return Ok(());
    }
    // With bound values, types may differ from the description, too.
    let again = session.describe(statement, &[]).await.ok().and_then(|description| description.columns);
    match again {
        Some(columns) if of(&columns) == described => Ok(()),
        _ => Err(crate::backend::changed_result()),
    }
}

/// Feeds a COPY's input. If the input fails, drops the statement, which never sees an end of input.
async fn feed(
    mut source: BoxStream<'_, Result<Bytes, SqlError>>,
    input: mpsc::Sender<Bytes>,
    mut done: BoxFuture<'static, Result<Completion, SqlError>>,
) -> Result<Completion, SqlError> {
    let fed = {
        let feeding = async {
            while let Some(bytes) = source.next().await {
                if input.send(bytes?).await.is_err() {
                    break;
                }
            }
            Ok::<(), SqlError>(())
        };
        tokio::select! {
            biased;
            result = &mut done => return result,
            fed = feeding => fed,
        }
    };
    if let Err(failure) = fed {
        drop(done);
        return Err(failure);
    }
    drop(input);
    done.await
}

/// The number of affected rows, from the command tag.
pub(super) fn row_count(done: &Completion) -> i64 {
    done.tag.rsplit(' ').next().and_then(|number| number.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_read() {
        let count = |tag: &str| row_count(&Completion { tag: tag.to_string(), ..Completion::default() });
        assert_eq!((count("INSERT 0 3"), count("CREATE TABLE"), count("")), (3, 0, 0));
    }
}
