//! Receivers of a statement's rows: they discard, collect or forward them to the client.

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use arrow_flight::FlightData;
use async_trait::async_trait;
use harrier_error::{SqlError, SqlState};
use tokio::sync::{mpsc, oneshot};
use tonic::Status;

use super::encode::{Encoder, wire_schema};
use super::status::status;
use crate::execution::client_gone_error;

/// Receives the rows of a statement.
#[async_trait]
pub(super) trait Consumer: Send {
    /// Called before the rows, and again before those of a further execution of the same statement.
    async fn begin(&mut self, schema: &SchemaRef) -> Result<(), SqlError>;

    /// Returns when it can accept more.
    async fn take(&mut self, batch: RecordBatch) -> Result<(), SqlError>;
}

/// Discards unwanted rows.
pub(super) struct Discard;

#[async_trait]
impl Consumer for Discard {
    async fn begin(&mut self, _: &SchemaRef) -> Result<(), SqlError> {
        Ok(())
    }

    async fn take(&mut self, _: RecordBatch) -> Result<(), SqlError> {
        Ok(())
    }
}

/// Collects rows of the catalog, which are few.
#[derive(Default)]
pub(super) struct Collect(pub Vec<RecordBatch>);

#[async_trait]
impl Consumer for Collect {
    async fn begin(&mut self, _: &SchemaRef) -> Result<(), SqlError> {
        Ok(())
    }

    async fn take(&mut self, batch: RecordBatch) -> Result<(), SqlError> {
        self.0.push(batch);
        Ok(())
    }
}

/// Rows on their way to a client: their schema on the wire, then messages, as many ahead as the channel
/// holds. `None` marks the end; without it the statement has panicked.
pub(super) struct Rows {
    pub schema: SchemaRef,
    pub messages: mpsc::Receiver<Result<Option<FlightData>, Status>>,
}

/// Encoded messages buffered ahead of the client.
const MESSAGES_AHEAD: usize = 4;

/// Encodes rows for a client, and signals when the first are ready.
pub(super) struct Forward {
    started: Option<oneshot::Sender<Result<Rows, SqlError>>>,
    encoder: Option<(SchemaRef, Encoder)>,
    messages: Option<mpsc::Sender<Result<Option<FlightData>, Status>>>,
}

impl Forward {
    pub fn new(started: oneshot::Sender<Result<Rows, SqlError>>) -> Self {
        Self { started: Some(started), encoder: None, messages: None }
    }

    /// Reports the statement's outcome to the client. Called once its session is free again, so that the
    /// client's next statement finds it free.
    pub async fn finish(mut self, result: Result<(), SqlError>) {
        match (self.started.take(), self.messages.take(), result) {
            (Some(started), _, Err(failure)) => drop(started.send(Err(failure))),
            (Some(started), _, Ok(())) => {
                // Without rows the client gets an empty result with no columns.
                let schema = SchemaRef::new(arrow::datatypes::Schema::empty());
                let (sender, messages) = mpsc::channel(2);
                let first = Encoder::new(Arc::clone(&schema)).schema_message();
                drop(sender.try_send(Ok(Some(first))));
                drop(sender.try_send(Ok(None)));
                drop(started.send(Ok(Rows { schema, messages })));
            }
            (None, Some(messages), result) => {
                drop(messages.send(result.map(|()| None).map_err(|failure| status(&failure))).await);
            }
            (None, None, _) => {}
        }
    }

    async fn send(&self, message: FlightData) -> Result<(), SqlError> {
        match &self.messages {
            Some(messages) => messages.send(Ok(Some(message))).await.map_err(|_| client_gone_error()),
            None => Err(client_gone_error()),
        }
    }
}

#[async_trait]
impl Consumer for Forward {
    async fn begin(&mut self, schema: &SchemaRef) -> Result<(), SqlError> {
        if let Some((first, _)) = &self.encoder {
            return if first.fields() == schema.fields() {
                Ok(())
            } else {
                Err(SqlError::new(
                    SqlState::FEATURE_NOT_SUPPORTED,
                    "rows for several sets of parameters have to be of the same types",
                ))
            };
        }
        let wire = wire_schema(schema);
        let encoder = Encoder::new(Arc::clone(&wire));
        let first = encoder.schema_message();
        self.encoder = Some((Arc::clone(schema), encoder));
        let (sender, messages) = mpsc::channel(MESSAGES_AHEAD);
        self.messages = Some(sender);
        self.send(first).await?;
        match self.started.take() {
            Some(started) => {
                started.send(Ok(Rows { schema: wire, messages })).map_err(|_| client_gone_error())
            }
            None => Err(client_gone_error()),
        }
    }

    async fn take(&mut self, batch: RecordBatch) -> Result<(), SqlError> {
        let Some((_, encoder)) = &mut self.encoder else { return Err(client_gone_error()) };
        for message in encoder.encode(&batch)? {
            self.send(message).await?;
        }
        Ok(())
    }
}
