//! Operations: statements, and calls for metadata, with their state and rows.
//!
//! ```text
//! PENDING ──turn──► RUNNING ──first rows, or the end──► FINISHED
//!    │                 └── error, cancel, time limit ──► ERROR, CANCELED, TIMEDOUT
//!    └─ cancel ─► CANCELED
//! ```
//!
//! A statement with rows is FINISHED when its first rows are there, as the client begins to fetch then; it
//! goes on in the background. An error after that is reported by `FetchResults`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use arrow::array::RecordBatch;
use arrow::datatypes::{Schema, SchemaRef};
use futures::StreamExt;
use harrier_error::{SqlError, SqlState};
use harrier_session_api::statement::Completion;
use parking_lot::Mutex;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use super::handle::Handle;
use super::lane::Lane;
use super::result_rows::{Orientation, Part, ResultRows, size_of_rows};
use crate::backend::{BackendResponse, BufferedRows};
use crate::execution::{
    ListedStatement, canceled_error, client_gone_error, next_stop, parse_single, statement_timeout,
    timeout_error,
};

/// Batches that a statement is ahead of its client.
const BATCHES_AHEAD: usize = 2;

/// `TOperationType`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    ExecuteStatement = 0,
    GetTypeInfo = 1,
    GetCatalogs = 2,
    GetSchemas = 3,
    GetTables = 4,
    GetTableTypes = 5,
    GetColumns = 6,
    GetFunctions = 7,
}

/// `TOperationState`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    Running = 1,
    Finished = 2,
    Canceled = 3,
    Error = 5,
    Pending = 7,
    TimedOut = 8,
}

impl State {
    pub fn has_ended(self) -> bool {
        !matches!(self, Self::Pending | Self::Running)
    }
}

/// How far an operation is.
#[derive(Clone)]
pub(super) struct Progress {
    pub state: State,
    /// `None` as long as it is unknown; without columns there is no result set.
    pub columns: Option<Option<SchemaRef>>,
    /// Whether there will be rows; `None` as long as the statement has not been parsed.
    pub has_rows: Option<bool>,
    pub failure: Option<SqlError>,
    /// Whether its first rows are there.
    pub has_begun: bool,
    /// Whether all rows have been handed over.
    is_complete: bool,
    /// Rows that were written.
    pub modified: i64,
    pub completed: Option<SystemTime>,
}

pub(super) struct Operation {
    pub handle: Handle,
    pub kind: Kind,
    pub started: SystemTime,
    progress: watch::Sender<Progress>,
    canceled: CancellationToken,
    rows: tokio::sync::Mutex<ResultRows>,
    /// Notices and warnings, which clients fetch as the log.
    log: Mutex<Vec<String>>,
    used: Mutex<Instant>,
    /// The client has seen the end of the rows.
    is_read: AtomicBool,
}

/// A statement to run.
pub(super) struct Request {
    pub text: String,
    /// Zero: no limit but the session's.
    pub timeout: Duration,
    /// After this time without a fetch rows go into a buffer.
    pub buffer_after: Duration,
}

impl Operation {
    fn new(kind: Kind, progress: Progress, rows: ResultRows) -> Arc<Self> {
        Arc::new(Self {
            handle: Handle::new(),
            kind,
            started: SystemTime::now(),
            progress: watch::Sender::new(progress),
            canceled: CancellationToken::new(),
            rows: tokio::sync::Mutex::new(rows),
            log: Mutex::default(),
            used: Mutex::new(Instant::now()),
            is_read: AtomicBool::new(false),
        })
    }

    /// Runs a statement in the background, when it is its turn.
    pub fn start(lane: Arc<Lane>, request: Request) -> Arc<Self> {
        let (sender, source) = mpsc::channel(BATCHES_AHEAD);
        let progress = Progress {
            state: State::Pending,
            columns: None,
            has_rows: None,
            failure: None,
            has_begun: false,
            is_complete: false,
            modified: 0,
            completed: None,
        };
        let operation = Self::new(Kind::ExecuteStatement, progress, ResultRows::new(source));
        let run = tokio::spawn(Arc::clone(&operation).run(lane, request, sender));
        let watched = Arc::clone(&operation);
        tokio::spawn(async move {
            if let Err(error) = run.await {
                watched.end(
                    Err(SqlError::new(SqlState::INTERNAL_ERROR, format!("the statement ended: {error}"))),
                    false,
                );
            }
        });
        operation
    }

    /// A finished operation with these rows.
    pub fn with_rows(kind: Kind, rows: RecordBatch) -> Arc<Self> {
        let (sender, source) = mpsc::channel(1);
        let columns = Some(Some(rows.schema()));
        drop(sender.try_send(Ok(Part::Batch(rows))));
        let completed = Some(SystemTime::now());
        let progress = Progress {
            state: State::Finished,
            columns,
            has_rows: Some(true),
            failure: None,
            has_begun: true,
            is_complete: true,
            modified: 0,
            completed,
        };
        Self::new(kind, progress, ResultRows::new(source))
    }

    async fn run(
        self: Arc<Self>,
        lane: Arc<Lane>,
        request: Request,
        sender: mpsc::Sender<Result<Part, SqlError>>,
    ) {
        let turn = tokio::select! {
            biased;
            () = self.canceled.cancelled() => return self.end(Err(canceled_error()), false),
            turn = lane.turn() => turn,
        };
        self.progress.send_modify(|progress| progress.state = State::Running);
        let mut stops = lane.guard.entry.listen();
        let limit = statement_timeout(&*lane.backend);
        let listed = ListedStatement::begin(&lane.registry, &lane.guard.entry, &lane.backend, &request.text);
        let mut delivery = Delivery {
            sender,
            buffer: None,
            buffer_after: request.buffer_after,
            waiting: lane.waiting(),
            lane: Arc::clone(&lane),
        };
        let mut is_late = false;
        let result = tokio::select! {
            biased;
            failure = next_stop(&mut stops) => Err(failure),
            () = self.canceled.cancelled() => Err(canceled_error()),
            () = self.wait_for_limit(request.timeout), if !request.timeout.is_zero() => {
                is_late = true;
                Err(timeout_error())
            }
            () = tokio::time::sleep(limit), if !limit.is_zero() => {
                is_late = true;
                Err(timeout_error())
            }
            result = self.work(&lane, &request.text, &listed, &mut delivery) => result,
        };
        let settled = lane.backend.settle().await;
        let result = result.and_then(|done| settled.map(|()| done));
        listed.end(result.as_ref().err());
        // The next statement may begin before the last rows are fetched.
        drop((listed, turn));
        let Delivery { sender, buffer, .. } = delivery;
        let last = match &result {
            Err(failure) => Some(Err(failure.clone())),
            Ok(_) => buffer.map(|buffer| Ok(Part::Buffer(buffer))),
        };
        self.end(result, is_late);
        if let Some(last) = last {
            tokio::select! {
                // Its rows are incomplete then.
                () = self.canceled.cancelled() => self.end(Err(canceled_error()), false),
                _ = sender.send(last) => {}
            }
        }
    }

    /// Waits for a client's own limit, which is on the time to the first rows.
    async fn wait_for_limit(&self, limit: Duration) {
        tokio::time::sleep(limit).await;
        if self.progress.borrow().has_begun {
            std::future::pending::<()>().await;
        }
    }

    async fn work(
        &self,
        lane: &Lane,
        text: &str,
        listed: &ListedStatement,
        delivery: &mut Delivery,
    ) -> Result<Completion, SqlError> {
        let Some(statement) = parse_single(&*lane.backend, text).await? else {
            return Err(SqlError::new(SqlState::SYNTAX_ERROR, "the statement is empty"));
        };
        self.progress.send_modify(|progress| progress.has_rows = Some(statement.has_rows));
        match lane.backend.execute(&statement, &[], &listed.entry).await? {
            BackendResponse::Rows { schema, mut rows } => {
                self.progress.send_modify(|progress| progress.columns = Some(Some(schema)));
                while let Some(batch) = rows.next().await {
                    let batch = batch?;
                    listed.entry.rows.fetch_add(batch.num_rows() as u64, Ordering::Relaxed);
                    listed.entry.bytes.fetch_add(size_of_rows(&batch) as u64, Ordering::Relaxed);
                    self.set_finished();
                    delivery.deliver(batch).await?;
                }
                Ok(Completion::default())
            }
            BackendResponse::Done(done) => Ok(done),
            BackendResponse::CopyIn(_) | BackendResponse::CopyOut(_) => Err(SqlError::new(
                SqlState::FEATURE_NOT_SUPPORTED,
                "COPY from or to the client is not supported over HiveServer2",
            )
            .with_hint("Name a file, or use a client of PostgreSQL.")),
        }
    }

    fn set_finished(&self) {
        self.progress.send_if_modified(|progress| {
            let changes = !progress.state.has_ended();
            if changes {
                progress.state = State::Finished;
                progress.has_begun = true;
                progress.completed = Some(SystemTime::now());
            }
            changes
        });
    }

    /// `is_late`: its time was up.
    fn end(&self, result: Result<Completion, SqlError>, is_late: bool) {
        if let Ok(done) = &result {
            let mut log = self.log.lock();
            log.extend(done.notices.iter().map(|text| format!("NOTICE: {text}")));
            log.extend(done.warnings.iter().map(|text| format!("WARNING: {text}")));
        }
        self.progress.send_modify(|progress| {
            progress.is_complete = true;
            progress.columns.get_or_insert(None);
            progress.completed.get_or_insert_with(SystemTime::now);
            match result {
                Ok(done) => {
                    progress.state = State::Finished;
                    progress.modified = modified_rows(&done.tag);
                }
                Err(failure) => {
                    progress.state = match failure.sqlstate {
                        _ if is_late => State::TimedOut,
                        SqlState::QUERY_CANCELED => State::Canceled,
                        _ => State::Error,
                    };
                    progress.failure = Some(failure);
                }
            }
        });
    }

    pub fn progress(&self) -> Progress {
        self.progress.borrow().clone()
    }

    /// Waits until a condition holds, or for a time. Returns the progress then.
    pub async fn wait(&self, most: Duration, is_enough: impl Fn(&Progress) -> bool) -> Progress {
        let mut receiver = self.progress.subscribe();
        let waited = tokio::time::timeout(most, receiver.wait_for(|progress| is_enough(progress)));
        drop(waited.await);
        self.progress()
    }

    /// The columns of its rows; without any for a statement that has none. Waits until they are known.
    ///
    /// Errors: it has failed.
    pub async fn columns(&self) -> Result<SchemaRef, SqlError> {
        let mut receiver = self.progress.subscribe();
        let known = receiver.wait_for(|progress| progress.columns.is_some() || progress.state.has_ended());
        let progress = known.await.map_err(|_| client_gone_error())?.clone();
        match (progress.columns.flatten(), progress.failure) {
            (Some(columns), _) => Ok(columns),
            (None, Some(failure)) => Err(failure),
            (None, None) => Ok(Arc::new(Schema::empty())),
        }
    }

    /// The next rows, and the number of the first one; none at the end.
    ///
    /// Errors: those of the statement.
    pub async fn fetch(
        &self,
        orientation: Orientation,
        most: usize,
    ) -> Result<(u64, Vec<RecordBatch>), SqlError> {
        let fetched = self.rows.lock().await.fetch(orientation, most).await;
        self.touch();
        let (start, batches) = fetched?;
        self.is_read.store(batches.is_empty(), Ordering::Relaxed);
        if batches.is_empty() {
            // Also a statement that has panicked hands over no more rows.
            let mut receiver = self.progress.subscribe();
            let complete = receiver.wait_for(|progress| progress.is_complete).await;
            if let Some(failure) = complete.map_err(|_| client_gone_error())?.failure.clone() {
                return Err(failure);
            }
        }
        Ok((start, batches))
    }

    /// Takes the lines of the log since the last time.
    pub fn take_log(&self) -> Vec<String> {
        std::mem::take(&mut self.log.lock())
    }

    /// Cancels the statement, also while its rows are being read.
    pub fn cancel(&self) {
        self.canceled.cancel();
    }

    /// Whether nothing is left to fetch.
    pub fn is_read(&self) -> bool {
        let progress = self.progress.borrow();
        progress.failure.is_some() || progress.columns == Some(None) || self.is_read.load(Ordering::Relaxed)
    }

    pub fn touch(&self) {
        *self.used.lock() = Instant::now();
    }

    /// Time since the last call.
    pub fn idle(&self) -> Duration {
        self.used.lock().elapsed()
    }
}

/// Hands rows to the client. If nobody fetches them while another statement of the session waits, or for
/// some time, the rest goes into a buffer, and the statement can end.
struct Delivery {
    sender: mpsc::Sender<Result<Part, SqlError>>,
    buffer: Option<Box<dyn BufferedRows>>,
    buffer_after: Duration,
    waiting: watch::Receiver<usize>,
    lane: Arc<Lane>,
}

impl Delivery {
    async fn deliver(&mut self, batch: RecordBatch) -> Result<(), SqlError> {
        if let Some(buffer) = &mut self.buffer {
            return buffer.push(batch).await;
        }
        tokio::select! {
            biased;
            place = self.sender.reserve() => {
                place.map_err(|_| client_gone_error())?.send(Ok(Part::Batch(batch)));
                return Ok(());
            }
            _ = self.waiting.wait_for(|count| *count > 0) => {}
            () = tokio::time::sleep(self.buffer_after) => {}
        }
        let mut buffer = self.lane.backend.row_buffer()?;
        buffer.push(batch).await?;
        self.buffer = Some(buffer);
        Ok(())
    }
}

/// The number of rows in a command tag such as `INSERT 0 3`.
fn modified_rows(tag: &str) -> i64 {
    let (command, rest) = tag.split_once(' ').unwrap_or((tag, ""));
    match command {
        "INSERT" | "UPDATE" | "DELETE" | "MERGE" | "COPY" => {
            rest.rsplit(' ').next().and_then(|number| number.parse().ok()).unwrap_or(0)
        }
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_have_numbers_of_rows() {
        assert_eq!(modified_rows("INSERT 0 3"), 3);
        assert_eq!(modified_rows("DELETE 7"), 7);
        assert_eq!(modified_rows("CREATE TABLE"), 0);
        assert_eq!(modified_rows(""), 0);
    }
}
