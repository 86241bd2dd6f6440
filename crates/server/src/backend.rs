//! What a server serves: sessions that run statements, seen without the engine behind them.

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

/// Rows of a prepared statement are not what its client knows them as: a table was altered meanwhile.
pub(crate) fn changed_result() -> SqlError {
    SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, "cached plan must not change result type")
}

/// The function of PostgreSQL's that fails so, where a client goes by it: pgjdbc prepares a statement again.
pub(crate) fn routine(error: &SqlError) -> Option<&'static str> {
    (*error == changed_result()).then_some("RevalidateCachedQuery")
}

/// Who opened a session, after it was checked that it may.
#[derive(Debug, Clone)]
pub struct Identity {
    pub role: String,
    pub database: String,
    pub client: Option<SocketAddr>,
    /// What the client asked to set when it came, such as `application_name` or `TimeZone`.
    pub settings: Vec<(String, String)>,
    /// The number that `pg_backend_pid()` tells and a cancel request names.
    pub process: i32,
}

/// Opens sessions.
#[async_trait]
pub trait Backend: Send + Sync + 'static {
    /// Errors: a setting is unknown or not allowed; there is no such database (3D000).
    async fn open(&self, identity: Identity) -> Result<Arc<dyn Session>, SqlError>;
}

/// One statement of a longer text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    pub text: String,
    /// How many characters of the whole text come before it.
    pub offset: usize,
}

/// A statement that was parsed by a session, as that wants to have it.
#[derive(Clone)]
pub struct Statement {
    pub text: String,
    /// What was parsed, for the session alone.
    pub inner: Arc<dyn Any + Send + Sync>,
    /// What PostgreSQL says when a statement that returns rows is done: `SELECT`, `SHOW`, `EXPLAIN`.
    pub tag: &'static str,
    pub kind: Kind,
}

/// A statement about a cursor of the client.
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
    /// What PostgreSQL says when it is done, without counts.
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

/// Where FETCH goes from the row of a cursor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// To the rows behind it; no row is that row itself once more.
    Forward(Count),
    /// To the rows before it, the next one first.
    Backward(Count),
    /// To one row, counted from 1; from -1 where the last is meant.
    Absolute(i64),
    /// To the row that is so many behind it.
    Relative(i64),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Count {
    Rows(u64),
    All,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// It can be in a transaction with others.
    Plain,
    /// It opens a transaction.
    Begin,
    /// It ends or marks one.
    Control,
    /// It cannot be in a transaction that is not its own.
    Alone,
}

/// How long a session may do what; none for no limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TimeLimits {
    pub statement: Option<Duration>,
    pub idle: Option<Duration>,
    pub idle_in_transaction: Option<Duration>,
}

/// Of a statement with parameters, before it runs.
#[derive(Debug, Clone, Default)]
pub struct Description {
    /// Of `$1`, `$2`, …
    pub parameters: Vec<DataType>,
    /// The same types by PostgreSQL's names, where those of Arrow do not say which they are, such as `oid`.
    /// There may be fewer.
    pub names: Vec<Option<String>>,
    /// `None`: it returns no rows.
    pub columns: Option<SchemaRef>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TransactionState {
    /// None is open.
    Idle,
    Open,
    /// One is open, and can only be rolled back.
    Failed,
}

/// What a statement gives back.
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

/// Rows for the client to copy. Dropping the stream cancels the statement.
pub enum CopyOut {
    Text {
        columns: usize,
        text: BoxStream<'static, Result<Bytes, SqlError>>,
        /// To be called after the last text.
        done: BoxFuture<'static, Result<Done, SqlError>>,
    },
    /// To be sent in binary.
    Rows { schema: SchemaRef, rows: BoxStream<'static, Result<RecordBatch, SqlError>> },
}

/// The client is to send rows.
pub struct CopyIn {
    /// Where they go, for errors.
    pub table: String,
    /// Of the columns that there have to be values for.
    pub schema: SchemaRef,
    pub input: CopyInto,
    /// Runs the statement, while `input` is fed and until that was dropped.
    pub done: BoxFuture<'static, Result<Done, SqlError>>,
}

/// What takes rows that a client sends.
pub enum CopyInto {
    /// As text, cut anywhere.
    Text(mpsc::Sender<Bytes>),
    /// Read from their binary form, with the columns of [`CopyIn::schema`].
    Rows(mpsc::Sender<RecordBatch>),
}

/// The end of a statement without rows.
#[derive(Debug, Clone, Default)]
pub struct Done {
    /// As PostgreSQL's, such as `INSERT 0 3`.
    pub tag: String,
    pub notices: Vec<String>,
    pub warnings: Vec<String>,
}

/// What a client has given a name: a statement of the protocol, or a cursor.
#[derive(Debug, Clone)]
pub struct Named {
    pub name: String,
    pub text: String,
    pub since: SystemTime,
    /// Of a cursor; `None` for a statement.
    pub cursor: Option<CursorKind>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CursorKind {
    /// It outlives its transaction.
    pub is_held: bool,
    pub is_binary: bool,
    /// FETCH may go back.
    pub is_scrollable: bool,
}

/// What a session is to forget.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Discard {
    /// Every parameter has the value it had in the beginning; prepared statements, tables and locks of the
    /// session are gone.
    All,
    /// Its tables and views are gone.
    Temporary,
    /// No sequence has given it a value.
    Sequences,
}

/// An interval of months, days and microseconds as text.
pub type IntervalText = fn(i32, i32, i64) -> String;

/// Rows of a result that are read again, from any place.
pub trait KeptRows: Send {
    /// How many there are.
    fn rows(&self) -> u64;

    /// Adds rows behind all others.
    ///
    /// Errors: there is no room for them, neither in memory nor on disk (53200, 53100).
    fn push(&mut self, batch: RecordBatch) -> BoxFuture<'_, Result<(), SqlError>>;

    /// Some rows in which that with the number `row` is, counted from 0, and the number of their first.
    ///
    /// Errors: they cannot be read back; there is no room to do so (53200).
    fn batch(&mut self, row: u64) -> BoxFuture<'_, Result<(u64, RecordBatch), SqlError>>;
}

/// One client's statements, one at a time. All methods are cancel-safe: a statement whose future is dropped
/// is given up.
#[async_trait]
pub trait Session: Send + Sync + 'static {
    /// The statements of a text, cut at the semicolons between them; empty ones are left out.
    fn split(&self, text: &str) -> Vec<Part>;

    /// One statement. It takes a time that grows with the text, and is not done on the threads that clients
    /// are served on.
    async fn parse(&self, text: &str) -> Result<Statement, SqlError>;

    /// What a statement that begins with DECLARE, FETCH, MOVE or CLOSE says of a cursor; `None` for others.
    /// It takes a time that grows with the text.
    ///
    /// Errors: it is one and wrong (42601), or says SCROLL and NO SCROLL (42P11).
    fn cursor(&self, _: &str) -> Result<Option<CursorStatement>, SqlError> {
        Ok(None)
    }

    /// What a statement expects and returns. `types`: what the client says of its parameters.
    async fn describe(
        &self,
        statement: &Statement,
        types: &[Option<DataType>],
    ) -> Result<Description, SqlError>;

    /// Runs a statement as far as its first rows. `values`: of its parameters, arrays of one row.
    /// `entry` is told what becomes known on the way.
    async fn execute(
        &self,
        statement: &Statement,
        values: &[ArrayRef],
        entry: &Arc<StatementEntry>,
    ) -> Result<Outcome, SqlError>;

    fn transaction(&self) -> TransactionState;

    /// To be called when something else than a statement of the engine has failed: an open transaction has
    /// failed with it.
    fn fail(&self);

    /// The value of a parameter, as SHOW shows it.
    fn parameter(&self, name: &str) -> Option<String>;

    /// Forgets what belongs to the session.
    async fn discard(&self, what: Discard) -> Result<(), SqlError>;

    /// A place for the rows of the statement that was executed last, within its limits.
    ///
    /// Errors: there is none (0A000).
    fn keep_rows(&self) -> Result<Box<dyn KeptRows>, SqlError> {
        Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, "cursors go forward only"))
    }

    /// How intervals are written as text; `None` for PostgreSQL's own style.
    fn interval_text(&self) -> Option<IntervalText> {
        None
    }

    /// The text of a day or a moment, as the session reads it, in ISO 8601; `None` where that is the text as
    /// it is.
    fn time_text(&self, _text: &str, _wanted: &DataType) -> Option<String> {
        None
    }

    /// The parameters that clients want to hear of, if any may have changed since `version`; with the present
    /// version.
    fn reported(&self, version: u64) -> Option<(u64, Vec<(&'static str, String)>)>;

    fn time_limits(&self) -> TimeLimits;

    /// To be called before a statement that may ask for them: what the client has given names.
    fn set_named(&self, _: Vec<Named>) {}

    /// To be called when a statement has ended and everything of it was dropped.
    async fn settle(&self) -> Result<(), SqlError>;
}
