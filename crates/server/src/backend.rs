//! The interface to the engine: sessions that run statements.

use std::any::Any;
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch};
use arrow::datatypes::{DataType, SchemaRef};
use async_trait::async_trait;
use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use harrier_error::{SqlError, SqlState};
use harrier_session_api::command::{Discard, SessionCommand};
use harrier_session_api::named_objects::NamedObjects;
use harrier_session_api::session::{SessionIdentity, TimeLimits, TransactionState};
use harrier_session_api::statement::{Completion, Description, StatementKind, StatementPart};
use tokio::sync::mpsc;

use crate::registry::StatementEntry;

/// The error when a prepared statement's result type has changed, after an ALTER TABLE.
pub(crate) fn changed_result() -> SqlError {
    SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, "cached plan must not change result type")
}

/// The PostgreSQL function in an error's routine field, where a client depends on it: pgjdbc then prepares
/// the statement again.
pub(crate) fn routine(error: &SqlError) -> Option<&'static str> {
    (*error == changed_result()).then_some("RevalidateCachedQuery")
}

/// Opens sessions.
#[async_trait]
pub trait Backend: Send + Sync + 'static {
    /// `settings`: parameters from the startup message, such as `application_name` or `TimeZone`.
    ///
    /// Errors: a setting is unknown or not allowed; there is no such database (3D000).
    async fn open(
        &self,
        identity: SessionIdentity,
        settings: Vec<(String, String)>,
    ) -> Result<Arc<dyn BackendSession>, SqlError>;
}

/// A parsed statement.
#[derive(Clone)]
pub struct BackendStatement {
    pub text: String,
    /// The session's own representation.
    pub inner: Arc<dyn Any + Send + Sync>,
    /// The command tag of a statement with rows: `SELECT`, `SHOW`, `EXPLAIN`.
    pub tag: &'static str,
    pub kind: StatementKind,
    /// Whether it returns rows, as far as its text tells.
    pub has_rows: bool,
}

/// The result of a statement.
pub enum BackendResponse {
    /// Dropping the stream cancels the statement.
    Rows {
        schema: SchemaRef,
        rows: BoxStream<'static, Result<RecordBatch, SqlError>>,
    },
    CopyOut(CopyToClient),
    CopyIn(CopyFromClient),
    Done(Completion),
}

/// The output of COPY. Dropping the stream cancels the statement.
pub enum CopyToClient {
    Text {
        columns: usize,
        text: BoxStream<'static, Result<Bytes, SqlError>>,
        /// Awaited after the last text.
        done: BoxFuture<'static, Result<Completion, SqlError>>,
    },
    /// To be encoded in binary.
    Rows { schema: SchemaRef, rows: BoxStream<'static, Result<RecordBatch, SqlError>> },
}

/// A COPY that waits for the client's rows.
pub struct CopyFromClient {
    /// The target, for errors.
    pub table: String,
    /// The columns that need values.
    pub schema: SchemaRef,
    pub input: CopyInto,
    /// Runs the statement, while `input` is fed and until it is dropped.
    pub done: BoxFuture<'static, Result<Completion, SqlError>>,
}

/// The channel for a client's rows.
pub enum CopyInto {
    /// Text, split anywhere.
    Text(mpsc::Sender<Bytes>),
    /// Rows decoded from binary, with the columns of [`CopyFromClient::schema`].
    Rows(mpsc::Sender<RecordBatch>),
}

/// Formats an interval of months, days and microseconds.
pub type IntervalText = fn(i32, i32, i64) -> String;

/// A buffered result with random access.
pub trait BufferedRows: Send {
    /// Number of rows.
    fn rows(&self) -> u64;

    /// Appends rows.
    ///
    /// Errors: out of memory and disk space (53200, 53100).
    fn push(&mut self, batch: RecordBatch) -> BoxFuture<'_, Result<(), SqlError>>;

    /// A batch that contains row number `row`, counted from 0, and the number of its first row.
    ///
    /// Errors: the rows cannot be read back; out of memory (53200).
    fn batch(&mut self, row: u64) -> BoxFuture<'_, Result<(u64, RecordBatch), SqlError>>;
}

/// A client's session; runs one statement at a time. All methods are cancel-safe: dropping a statement's
/// future cancels it.
#[async_trait]
pub trait BackendSession: Send + Sync + 'static {
    /// Splits a text into statements at semicolons; omits empty ones.
    fn split(&self, text: &str) -> Vec<StatementPart>;

    /// Parses one statement. The time grows with the text, so it does not run on the threads that serve
    /// clients.
    async fn parse(&self, text: &str) -> Result<BackendStatement, SqlError>;

    /// Parses a statement that the server runs itself; `None` for others, of which only the first word is
    /// read. The time grows with the text.
    ///
    /// Errors: a syntax error (42601), or both SCROLL and NO SCROLL (42P11).
    fn command(&self, _: &str) -> Result<Option<SessionCommand>, SqlError> {
        Ok(None)
    }

    /// Describes a statement's parameters and rows. `types`: parameter types that the client declared.
    async fn describe(
        &self,
        statement: &BackendStatement,
        types: &[Option<DataType>],
    ) -> Result<Description, SqlError>;

    /// Executes a statement up to its first rows. `values`: its parameters, arrays of one row. Reports
    /// progress to `entry`.
    async fn execute(
        &self,
        statement: &BackendStatement,
        values: &[ArrayRef],
        entry: &Arc<StatementEntry>,
    ) -> Result<BackendResponse, SqlError>;

    fn transaction(&self) -> TransactionState;

    /// Fails an open transaction after an error outside of the engine.
    fn fail(&self);

    /// The value of a parameter, as in SHOW.
    fn parameter(&self, name: &str) -> Option<String>;

    /// Resets session state.
    async fn discard(&self, what: Discard) -> Result<(), SqlError>;

    /// Creates a row buffer for the last executed statement, within its limits.
    ///
    /// Errors: not supported (0A000).
    fn row_buffer(&self) -> Result<Box<dyn BufferedRows>, SqlError> {
        Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, "cursors go forward only"))
    }

    /// The output format of intervals; `None` for the style `postgres`.
    fn interval_text(&self) -> Option<IntervalText> {
        None
    }

    /// Converts a date or timestamp from the session's style to ISO 8601; `None` if the text needs no change.
    fn time_text(&self, _text: &str, _wanted: &DataType) -> Option<String> {
        None
    }

    /// The reported parameters (ParameterStatus), if any may have changed since `version`; with the current
    /// version.
    fn parameter_status(&self, version: u64) -> Option<(u64, Vec<(&'static str, String)>)>;

    fn time_limits(&self) -> TimeLimits;

    /// Sets the client's prepared statements and cursors, before a statement that may query them.
    fn set_named_objects(&self, _: NamedObjects) {}

    /// Cleans up after a statement that has ended and been dropped.
    async fn settle(&self) -> Result<(), SqlError>;
}
