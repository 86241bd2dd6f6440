//! The interface to the engine: sessions that run statements.

use std::any::Any;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use arrow::array::{ArrayRef, RecordBatch};
use arrow::datatypes::{DataType, SchemaRef};
use async_trait::async_trait;
use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use harrier_error::{SqlError, SqlState};
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

/// An authenticated client that opens a session.
#[derive(Debug, Clone)]
pub struct Identity {
    pub role: String,
    pub database: String,
    pub client: Option<SocketAddr>,
    /// Parameters from the startup message, such as `application_name` or `TimeZone`.
    pub settings: Vec<(String, String)>,
    /// The backend process id, for `pg_backend_pid()` and cancel requests.
    pub process: i32,
}

/// Opens sessions.
#[async_trait]
pub trait Backend: Send + Sync + 'static {
    /// Errors: a setting is unknown or not allowed; there is no such database (3D000).
    async fn open(&self, identity: Identity) -> Result<Arc<dyn Session>, SqlError>;
}

/// A statement of a longer text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    pub text: String,
    /// Characters of the whole text before it.
    pub offset: usize,
}

/// A parsed statement.
#[derive(Clone)]
pub struct Statement {
    pub text: String,
    /// The session's own representation.
    pub inner: Arc<dyn Any + Send + Sync>,
    /// The command tag of a statement with rows: `SELECT`, `SHOW`, `EXPLAIN`.
    pub tag: &'static str,
    pub kind: Kind,
}

/// A statement about a client's cursor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CursorStatement {
    Declare {
        name: String,
        query: Part,
        kind: CursorKind,
    },
    Fetch {
        name: String,
        step: Step,
        /// MOVE, which returns no rows.
        is_move: bool,
    },
    /// `None`: all cursors.
    Close(Option<String>),
}

impl CursorStatement {
    /// The command tag, without counts.
    pub(crate) fn tag(&self) -> &'static str {
        match self {
            Self::Declare { .. } => "DECLARE CURSOR",
            Self::Fetch { is_move: false, .. } => "FETCH",
            Self::Fetch { is_move: true, .. } => "MOVE",
            Self::Close(Some(_)) => "CLOSE CURSOR",
            Self::Close(None) => "CLOSE CURSOR ALL",
        }
    }
}

/// A move of a cursor, relative to its current row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// To the following rows; zero rows fetches the current row again.
    Forward(Count),
    /// To the preceding rows, the nearest first.
    Backward(Count),
    /// To one row, counted from 1, or from -1 at the end.
    Absolute(i64),
    /// To the row at this distance.
    Relative(i64),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Count {
    Rows(u64),
    All,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// May run in a transaction with others.
    Plain,
    /// Begins a transaction.
    Begin,
    /// Ends a transaction, or sets a savepoint.
    Control,
    /// Must not run inside a transaction block.
    Alone,
}

/// Timeouts of a session; `None` for no limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TimeLimits {
    pub statement: Option<Duration>,
    pub idle: Option<Duration>,
    pub idle_in_transaction: Option<Duration>,
}

/// A statement's description before it runs.
#[derive(Debug, Clone, Default)]
pub struct Description {
    /// Types of `$1`, `$2`, …
    pub parameters: Vec<DataType>,
    /// PostgreSQL's type names where the Arrow types do not determine them, such as `oid`. May be shorter.
    pub names: Vec<Option<String>>,
    /// `None`: it returns no rows.
    pub columns: Option<SchemaRef>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TransactionState {
    /// No transaction is open.
    Idle,
    Open,
    /// A transaction is open, and can only be rolled back.
    Failed,
}

/// The result of a statement.
pub enum Outcome {
    /// Dropping the stream cancels the statement.
    Rows {
        schema: SchemaRef,
        rows: BoxStream<'static, Result<RecordBatch, SqlError>>,
    },
    CopyOut(CopyOut),
    CopyIn(CopyIn),
    Done(Done),
}

/// The output of COPY. Dropping the stream cancels the statement.
pub enum CopyOut {
    Text {
        columns: usize,
        text: BoxStream<'static, Result<Bytes, SqlError>>,
        /// Awaited after the last text.
        done: BoxFuture<'static, Result<Done, SqlError>>,
    },
    /// To be encoded in binary.
    Rows { schema: SchemaRef, rows: BoxStream<'static, Result<RecordBatch, SqlError>> },
}

/// A COPY that waits for the client's rows.
pub struct CopyIn {
    /// The target, for errors.
    pub table: String,
    /// The columns that need values.
    pub schema: SchemaRef,
    pub input: CopyInto,
    /// Runs the statement, while `input` is fed and until it is dropped.
    pub done: BoxFuture<'static, Result<Done, SqlError>>,
}

/// The channel for a client's rows.
pub enum CopyInto {
    /// Text, split anywhere.
    Text(mpsc::Sender<Bytes>),
    /// Rows decoded from binary, with the columns of [`CopyIn::schema`].
    Rows(mpsc::Sender<RecordBatch>),
}

/// The completion of a statement without rows.
#[derive(Debug, Clone, Default)]
pub struct Done {
    /// The command tag, such as `INSERT 0 3`.
    pub tag: String,
    pub notices: Vec<String>,
    pub warnings: Vec<String>,
}

/// A prepared statement of the protocol, or a cursor.
#[derive(Debug, Clone)]
pub struct ClientObject {
    pub name: String,
    pub text: String,
    pub since: SystemTime,
    /// `None` for a prepared statement.
    pub cursor: Option<CursorKind>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CursorKind {
    /// WITH HOLD: outlives its transaction.
    pub is_held: bool,
    pub is_binary: bool,
    /// SCROLL: FETCH may go backward.
    pub is_scrollable: bool,
}

/// What DISCARD resets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Discard {
    /// Resets all parameters, and drops prepared statements, temporary tables and locks.
    All,
    /// Drops temporary tables and views.
    Temporary,
    /// Forgets the last values of sequences.
    Sequences,
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
pub trait Session: Send + Sync + 'static {
    /// Splits a text into statements at semicolons; omits empty ones.
    fn split(&self, text: &str) -> Vec<Part>;

    /// Parses one statement. The time grows with the text, so it does not run on the threads that serve
    /// clients.
    async fn parse(&self, text: &str) -> Result<Statement, SqlError>;

    /// Parses a statement that begins with DECLARE, FETCH, MOVE or CLOSE; `None` for others. The time grows
    /// with the text.
    ///
    /// Errors: a syntax error (42601), or both SCROLL and NO SCROLL (42P11).
    fn cursor(&self, _: &str) -> Result<Option<CursorStatement>, SqlError> {
        Ok(None)
    }

    /// Describes a statement's parameters and rows. `types`: parameter types that the client declared.
    async fn describe(
        &self,
        statement: &Statement,
        types: &[Option<DataType>],
    ) -> Result<Description, SqlError>;

    /// Executes a statement up to its first rows. `values`: its parameters, arrays of one row. Reports
    /// progress to `entry`.
    async fn execute(
        &self,
        statement: &Statement,
        values: &[ArrayRef],
        entry: &Arc<StatementEntry>,
    ) -> Result<Outcome, SqlError>;

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
    fn set_client_objects(&self, _: Vec<ClientObject>) {}

    /// Cleans up after a statement that has ended and been dropped.
    async fn settle(&self) -> Result<(), SqlError>;
}
