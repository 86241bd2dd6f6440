//! Adapter from the server's sessions to the engine's: runs statements on the engine's threads, apart from
//! client I/O.
//!
//! Parsing and planning do not yield, nor need the first operator of a plan: they run on a thread per
//! statement, so that other statements get their share of the CPUs. Tasks spawned by operators run on the
//! threads that all statements share.

use std::any::Any;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;

use arrow::array::{ArrayRef, RecordBatch};
use arrow::datatypes::DataType;
use datafusion::common::ScalarValue;
use datafusion::error::Result as DataFusionResult;
use datafusion::execution::SendableRecordBatchStream;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use futures::{FutureExt, Stream, StreamExt, TryStreamExt};
use harrier_engine::{CopyIn, CopyInRows, CopyOut, Engine, ParsedStatement, ScrollableRows, ServerContext};
use harrier_error::{SqlError, SqlState};
use harrier_exec::frontend::admission::{Admit, Admitted};
use harrier_functions::parse::interval::IntervalStyle;
use harrier_resources::cancellation::{CancelFlag, CancelOnDrop};
use harrier_resources::statement_limits::StatementLimits;
use harrier_server::backend::{
    self, Backend, BackendResponse, BackendSession, BackendStatement, BufferedRows, CopyInto, IntervalText,
};
use harrier_server::registry::{Phase, Registry, StatementEntry};
use harrier_session_api::command::{Discard, SessionCommand};
use harrier_session_api::named_objects::NamedObjects;
use harrier_session_api::session::{SessionIdentity, TimeLimits, TransactionState};
use harrier_session_api::statement::{Completion, Description, StatementPart};
use harrier_sql::parser::session_command;
use harrier_sql::splitter;
use harrier_sqlstate::external;
use parking_lot::RwLock;
use tokio::runtime::Handle;
use tokio::sync::{Mutex, mpsc, oneshot};
use tokio::task::{JoinError, JoinHandle};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::locks::Locks;
use super::operate::Controls;
use super::plan_probe::PlanProbe;
use super::queues::RoleQueues;

/// Batches, or pieces of text, prefetched ahead of the client.
const PREFETCH: usize = 2;

/// The only database; the name of every role is an alias.
pub(super) const DATABASE: &str = "warehouse";

/// Opens sessions of one engine.
pub(super) struct Sessions {
    pub(super) engine: Engine,
    pub(super) threads: Threads,
    pub(super) surroundings: Arc<dyn ServerContext>,
    pub(super) queues: RoleQueues,
    /// Applied before the client's startup settings.
    pub(super) settings: RwLock<Vec<(String, String)>>,
    /// Decides about admission of sessions.
    pub(super) controls: Arc<Controls>,
    pub(super) registry: Arc<Registry>,
    pub(super) locks: Arc<Locks>,
}

impl Sessions {
    fn boxed_open(
        &self,
        identity: SessionIdentity,
        mut settings: Vec<(String, String)>,
    ) -> BoxFuture<'_, Result<Arc<dyn BackendSession>, SqlError>> {
        async move {
            let SessionIdentity { role, database, process, .. } = &identity;
            let access = self.engine.access().await;
            let access = access.map_err(|error| SqlError { is_fatal: true, ..with_context(error) })?;
            self.controls.admit(access.is_superuser(role), *process, &mut settings)?;
            self.registry.check_audit().map_err(|failure| SqlError { is_fatal: true, ..failure })?;
            if database != DATABASE && database != role {
                return Err(SqlError::fatal(
                    SqlState::INVALID_CATALOG_NAME,
                    format!("database \"{database}\" does not exist"),
                )
                .with_hint(format!("there is one, called \"{DATABASE}\"")));
            }
            let is_superuser = access.is_superuser(role);
            let denied = |(name, _): &&(String, String)| !harrier_engine::settings::is_for_everybody(name);
            if !is_superuser && let Some((name, _)) = settings.iter().find(denied) {
                let message = format!("permission denied to set parameter \"{name}\"");
                return Err(SqlError::fatal(SqlState::INSUFFICIENT_PRIVILEGE, message));
            }
            let session = self.engine.session();
            session.set_superuser(is_superuser);
            let process = *process;
            let mut own = access.settings_of(role);
            own.retain(|(name, value)| match session.validate_setting(name, value) {
                Ok(_) => true,
                Err(error) => {
                    // As in PostgreSQL: otherwise the role could not log in to mend it.
                    tracing::warn!(role, name, %error, "a role's setting is left out");
                    false
                }
            });
            let settings: Vec<_> = self.settings.read().iter().cloned().chain(own).chain(settings).collect();
            session
                .begin(identity, Arc::clone(&self.surroundings), &settings)
                .map_err(|error| SqlError { is_fatal: true, ..with_context(error) })?;
            Ok(Arc::new(EngineSession {
                process,
                locks: Arc::clone(&self.locks),
                session: Arc::new(session),
                threads: self.threads.clone(),
                running: Arc::default(),
                queues: self.queues.clone(),
                registry: Arc::clone(&self.registry),
            }) as _)
        }
        .boxed()
    }
}

// Methods are written out to keep compile times low: docs/decisions/0025-boxed-futures-behind-traits.md
impl Backend for Sessions {
    fn open<'a: 'f, 'f>(
        &'a self,
        identity: SessionIdentity,
        settings: Vec<(String, String)>,
    ) -> BoxFuture<'f, Result<Arc<dyn BackendSession>, SqlError>> {
        self.boxed_open(identity, settings)
    }
}

/// Runtimes of statements.
#[derive(Debug, Clone)]
pub(super) struct Threads {
    /// Shared by all statements.
    pub(super) shared: Handle,
    /// Provides a blocking thread per statement.
    pub(super) own: Handle,
}

impl Threads {
    /// Runs `work` on a separate thread, with this cancellation flag. Dropping the guard cancels it, without
    /// a value, and sets the flag for code that does not yield.
    fn spawn<T: Send + 'static>(
        &self,
        canceled: &CancelFlag,
        work: impl Future<Output = T> + Send + 'static,
    ) -> (JoinHandle<Option<T>>, Guard) {
        let given_up = CancellationToken::new();
        let guard = Guard { canceled: canceled.cancel_on_drop(), _given_up: given_up.clone().drop_guard() };
        let work = canceled.scope(work);
        let shared = self.shared.clone();
        let task = self.own.spawn_blocking(move || {
            shared.block_on(async move {
                tokio::select! {
                    biased;
                    () = given_up.cancelled() => None,
                    done = work => Some(done),
                }
            })
        });
        (task, guard)
    }
}

/// Cancels the work on its thread when dropped.
struct Guard {
    // Dropped first: the flag must be set before the task is canceled.
    canceled: CancelOnDrop,
    _given_up: DropGuard,
}

struct EngineSession {
    /// Number of the session.
    process: i32,
    locks: Arc<Locks>,
    session: Arc<harrier_engine::Session>,
    threads: Threads,
    /// Held by the running statement. A canceled one holds it until its thread has released the session, so
    /// that its last actions do not affect the next transaction.
    running: Arc<Mutex<()>>,
    queues: RoleQueues,
    registry: Arc<Registry>,
}

impl Drop for EngineSession {
    fn drop(&mut self) {
        self.locks.release_all(self.process);
    }
}

/// A statement that waits for admission to the gang.
struct GangAdmission {
    queues: RoleQueues,
    entry: Arc<StatementEntry>,
    registry: Arc<Registry>,
}

impl Admit for GangAdmission {
    fn admit(&self, bytes: u64) -> BoxFuture<'static, datafusion::error::Result<Admitted>> {
        let (queues, entry) = (self.queues.clone(), Arc::clone(&self.entry));
        async move {
            let place = queues.of_role(&entry.role).await.map_err(|error| external(with_context(error)))?;
            let admitted = queues.queues().admit(&place.queue, bytes as f64, place.memory, &entry);
            let ticket = admitted.await.map_err(external)?;
            entry.set_on_gang();
            let memory_bytes = Some(place.memory).filter(|bytes| *bytes > 0);
            let limits = StatementLimits { memory_bytes, ..StatementLimits::default() };
            Ok(Admitted { turn: Some(Box::new(ticket)), limits })
        }
        .boxed()
    }

    fn notify_retry(&self, reason: &str) {
        let StatementEntry { id, session, .. } = &*self.entry;
        // Prefixed once for each process that the error has passed.
        let reason = reason.trim_start_matches("External error: ");
        tracing::warn!(statement = id, session, reason, "a statement is run once more");
        self.entry.count_retry();
        self.registry.totals().retried.fetch_add(1, Ordering::Relaxed);
    }
}

/// Moves the line of a COPY, which the engine reports as a detail, to the context.
pub(super) fn with_context(mut error: SqlError) -> SqlError {
    let is_context = |text: &String| text.starts_with("COPY ") && text.contains(", line ");
    if error.detail.as_ref().is_some_and(is_context) {
        error.context = error.detail.take();
    }
    error
}

impl EngineSession {
    /// Runs `work` on a statement thread, after the previous one has ended. Dropping the future cancels it.
    async fn run<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, SqlError>> + Send + 'static,
    ) -> Result<T, SqlError> {
        self.run_part(&CancelFlag::default(), work).await
    }

    /// Like [`Self::run`], for a statement whose stream may outlive `work`.
    async fn run_part<T: Send + 'static>(
        &self,
        canceled: &CancelFlag,
        work: impl Future<Output = Result<T, SqlError>> + Send + 'static,
    ) -> Result<T, SqlError> {
        let (task, guard) = self.threads.spawn(canceled, exclusively(&self.running, work));
        let done = task.await;
        guard.canceled.disarm();
        match done {
            Ok(Some(done)) => done.map_err(with_context),
            Ok(None) => Err(SqlError::new(SqlState::INTERNAL_ERROR, "the statement was ended")),
            Err(error) => Err(join_error(&error)),
        }
    }

    fn boxed_parse<'a>(&'a self, text: &'a str) -> BoxFuture<'a, Result<BackendStatement, SqlError>> {
        async move {
            let whole = splitter::StatementText { text: text.to_string(), line: 1 };
            let session = Arc::clone(&self.session);
            let parsed = self.run(async move { session.parse(whole) }).await?;
            let (kind, tag, has_rows) = (parsed.kind(), parsed.tag(), parsed.has_rows());
            let inner: Arc<dyn Any + Send + Sync> = Arc::new(parsed);
            Ok(BackendStatement { text: text.to_string(), inner, tag, kind, has_rows })
        }
        .boxed()
    }

    fn boxed_describe<'a>(
        &'a self,
        statement: &'a BackendStatement,
        types: &'a [Option<DataType>],
    ) -> BoxFuture<'a, Result<Description, SqlError>> {
        async move {
            let parsed = downcast(statement)?;
            let session = Arc::clone(&self.session);
            let types = types.to_vec();
            let statement = Arc::clone(&parsed);
            let description = self.run(async move { session.describe(&parsed, &types).await }).await?;
            let columns = description.columns.as_ref().map(|schema| statement.rename_columns(schema));
            Ok(Description { columns, ..description })
        }
        .boxed()
    }

    fn boxed_execute<'a>(
        &'a self,
        statement: &'a BackendStatement,
        values: &'a [ArrayRef],
        entry: &'a Arc<StatementEntry>,
    ) -> BoxFuture<'a, Result<BackendResponse, SqlError>> {
        async move {
            self.registry.check_audit()?;
            let mut parsed = downcast(statement)?;
            if !values.is_empty() {
                let scalar = |value: &ArrayRef| {
                    ScalarValue::try_from_array(value, 0)
                        .map_err(|error| with_context(harrier_engine::in_statement(&error, &statement.text)))
                };
                let values = values.iter().map(scalar).collect::<Result<Vec<_>, _>>()?;
                parsed = Arc::new(parsed.with_values(values));
            }
            let session = Arc::clone(&self.session);
            let (queues, registry) = (self.queues.clone(), Arc::clone(&self.registry));
            session.set_admission(Arc::new(GangAdmission { queues, entry: Arc::clone(entry), registry }));
            let entry = Arc::clone(entry);
            let threads = self.threads.clone();
            let text = statement.text.clone();
            let named = Arc::clone(&parsed);
            let canceled = CancelFlag::default();
            let outcome = self
                .run_part(&canceled, async move {
                    let outcome = session.execute(&parsed).await?;
                    entry.set_phase(Phase::Running);
                    if let Some(progress) = outcome.progress() {
                        entry.set_probe(Arc::new(PlanProbe(progress.clone())));
                    }
                    // Statements without rows are awaited here.
                    Ok(match outcome {
                        harrier_engine::Outcome::Write(write) => Execution::Written(write.finish().await?),
                        other => Execution::Started(other),
                    })
                })
                .await?;
            Ok(match outcome {
                Execution::Written(completion) => BackendResponse::Done(completion),
                Execution::Started(harrier_engine::Outcome::Command(mut completion)) => {
                    let starts =
                        statement.text.get(..5).is_some_and(|word| word.eq_ignore_ascii_case("start"));
                    if starts && completion.tag == "BEGIN" {
                        completion.tag = "START TRANSACTION".to_string();
                    }
                    BackendResponse::Done(completion)
                }
                Execution::Started(harrier_engine::Outcome::Rows { schema, stream, .. }) => {
                    BackendResponse::Rows {
                        schema: named.rename_columns(&schema),
                        rows: batches(&threads, &canceled, stream, text),
                    }
                }
                Execution::Started(harrier_engine::Outcome::CopyIn(CopyIn {
                    input,
                    write,
                    table,
                    schema,
                })) => {
                    let (input, done) = (
                        CopyInto::Text(input),
                        copy_completion(&threads, &canceled, exclusively(&self.running, write.finish())),
                    );
                    BackendResponse::CopyIn(backend::CopyFromClient { table, schema, input, done })
                }
                Execution::Started(harrier_engine::Outcome::CopyInRows(CopyInRows {
                    input,
                    write,
                    table,
                    schema,
                })) => {
                    let (input, done) = (
                        CopyInto::Rows(input),
                        copy_completion(&threads, &canceled, exclusively(&self.running, write.finish())),
                    );
                    BackendResponse::CopyIn(backend::CopyFromClient { table, schema, input, done })
                }
                Execution::Started(harrier_engine::Outcome::CopyOut(copy)) => {
                    BackendResponse::CopyOut(text_of(&threads, &canceled, copy))
                }
                Execution::Started(harrier_engine::Outcome::CopyOutRows { schema, stream, .. }) => {
                    BackendResponse::CopyOut(backend::CopyToClient::Rows {
                        schema,
                        rows: batches(&threads, &canceled, stream, text),
                    })
                }
                _ => {
                    return Err(SqlError::new(
                        SqlState::FEATURE_NOT_SUPPORTED,
                        "the statement cannot be run here",
                    ));
                }
            })
        }
        .boxed()
    }

    fn boxed_discard(&self, what: Discard) -> BoxFuture<'_, Result<(), SqlError>> {
        async move {
            let session = Arc::clone(&self.session);
            match what {
                Discard::Plans => Ok(()),
                Discard::Temporary => self.run(async move { session.discard_temporary().await }).await,
                Discard::Sequences => {
                    session.discard_sequences();
                    Ok(())
                }
                Discard::All => {
                    self.locks.release_all(self.process);
                    self.run(async move { session.discard().await }).await
                }
            }
        }
        .boxed()
    }

    fn boxed_settle(&self) -> BoxFuture<'_, Result<(), SqlError>> {
        async move {
            if self.session.transaction() == TransactionState::Idle {
                self.locks.release_transaction(self.process);
            }
            self.session.settle().await.map_err(with_context)
        }
        .boxed()
    }
}

fn join_error(error: &JoinError) -> SqlError {
    let message = if error.is_panic() { "the statement panicked" } else { "the statement was ended" };
    SqlError::new(SqlState::INTERNAL_ERROR, message)
}

/// Prefetches a stream on the statement threads. It ends at its first error.
fn prefetch<T: Send + 'static>(
    threads: &Threads,
    canceled: &CancelFlag,
    mut stream: impl Stream<Item = Result<T, SqlError>> + Send + Unpin + 'static,
) -> BoxStream<'static, Result<T, SqlError>> {
    let (sender, mut receiver) = mpsc::channel(PREFETCH);
    let (task, guard) = threads.spawn(canceled, async move {
        while let Some(item) = stream.next().await {
            let is_end = item.is_err();
            if sender.send(item.map_err(with_context)).await.is_err() || is_end {
                return;
            }
        }
    });
    let mut task = Some(task);
    let made = futures::stream::poll_fn(move |context| {
        let _ = &guard;
        match receiver.poll_recv(context) {
            Poll::Ready(None) => match task.as_mut().map(|task| task.poll_unpin(context)) {
                // A panic also closes the channel, and is not a normal end.
                Some(Poll::Ready(Err(error))) => {
                    task = None;
                    Poll::Ready(Some(Err(join_error(&error))))
                }
                Some(Poll::Pending) => Poll::Pending,
                _ => {
                    task = None;
                    Poll::Ready(None)
                }
            },
            other => other,
        }
    });
    made.boxed()
}

/// The batches of a statement, prefetched.
fn batches(
    threads: &Threads,
    canceled: &CancelFlag,
    stream: SendableRecordBatchStream,
    text: String,
) -> BoxStream<'static, Result<RecordBatch, SqlError>> {
    prefetch(threads, canceled, stream.map_err(move |error| harrier_engine::in_statement(&error, &text)))
}

/// The text of a COPY, prefetched, followed by its completion.
fn text_of(threads: &Threads, canceled: &CancelFlag, copy: CopyOut) -> backend::CopyToClient {
    let columns = copy.columns();
    let (sender, receiver) = oneshot::channel();
    let pieces = futures::stream::unfold((copy, sender), |(mut copy, sender)| async move {
        match copy.next().await.transpose() {
            Some(piece) => Some((piece, (copy, sender))),
            None => {
                // Nobody waits for the tag of a canceled statement.
                let _ = sender.send(copy.tag());
                None
            }
        }
    });
    let done = async move {
        let tag =
            receiver.await.map_err(|_| SqlError::new(SqlState::INTERNAL_ERROR, "the statement was ended"))?;
        Ok(Completion::new(tag))
    };
    let text = prefetch(threads, canceled, pieces.boxed());
    backend::CopyToClient::Text { columns, text, done: done.boxed() }
}

/// Runs `work` while holding `running`.
fn exclusively<T, F: Future<Output = T>>(
    running: &Arc<Mutex<()>>,
    work: F,
) -> impl Future<Output = T> + use<T, F> {
    let running = Arc::clone(running);
    async move {
        let _held = running.lock_owned().await;
        work.await
    }
}

/// Completion of a COPY FROM that is being fed.
fn copy_completion(
    threads: &Threads,
    canceled: &CancelFlag,
    write: impl Future<Output = Result<Completion, SqlError>> + Send + 'static,
) -> BoxFuture<'static, Result<Completion, SqlError>> {
    let (finished, guard) = threads.spawn(canceled, write);
    let ended = async move {
        let _guard = guard;
        match finished.await {
            Ok(Some(completion)) => completion.map_err(with_context),
            Ok(None) => Err(SqlError::new(SqlState::INTERNAL_ERROR, "the statement was ended")),
            Err(error) => Err(join_error(&error)),
        }
    };
    ended.boxed()
}

// Methods are written out to keep compile times low: docs/decisions/0025-boxed-futures-behind-traits.md
impl BackendSession for EngineSession {
    fn command(&self, text: &str) -> Result<Option<SessionCommand>, SqlError> {
        session_command::parse_text(text).map_err(|error| harrier_engine::in_statement(&error, text))
    }

    fn split(&self, text: &str) -> Vec<StatementPart> {
        let mut parts = Vec::new();
        let (mut rest, mut offset) = (text, 0);
        for statement in splitter::split_in(text, self.session.settings().dialect) {
            // The text of a statement is a substring of the whole.
            let at = rest.find(&statement.text).unwrap_or(0);
            offset += rest[..at].chars().count();
            parts.push(StatementPart { text: statement.text.clone(), offset });
            offset += statement.text.chars().count();
            rest = &rest[(at + statement.text.len()).min(rest.len())..];
        }
        parts
    }

    fn parse<'a: 'f, 'b: 'f, 'f>(
        &'a self,
        text: &'b str,
    ) -> BoxFuture<'f, Result<BackendStatement, SqlError>> {
        self.boxed_parse(text)
    }

    fn describe<'a: 'f, 'b: 'f, 'c: 'f, 'f>(
        &'a self,
        statement: &'b BackendStatement,
        types: &'c [Option<DataType>],
    ) -> BoxFuture<'f, Result<Description, SqlError>> {
        self.boxed_describe(statement, types)
    }

    fn execute<'a: 'f, 'b: 'f, 'c: 'f, 'd: 'f, 'f>(
        &'a self,
        statement: &'b BackendStatement,
        values: &'c [ArrayRef],
        entry: &'d Arc<StatementEntry>,
    ) -> BoxFuture<'f, Result<BackendResponse, SqlError>> {
        self.boxed_execute(statement, values, entry)
    }

    fn transaction(&self) -> TransactionState {
        self.session.transaction()
    }

    fn fail(&self) {
        self.session.fail_transaction();
    }

    fn parameter(&self, name: &str) -> Option<String> {
        self.session.parameter(name)
    }

    fn discard<'a: 'f, 'f>(&'a self, what: Discard) -> BoxFuture<'f, Result<(), SqlError>> {
        self.boxed_discard(what)
    }

    fn row_buffer(&self) -> Result<Box<dyn BufferedRows>, SqlError> {
        let spool = self.session.scrollable_rows().map_err(with_context)?;
        Ok(Box::new(EngineRows {
            rows: 0,
            spool: Arc::new(Mutex::new(spool)),
            threads: self.threads.clone(),
        }))
    }

    fn interval_text(&self) -> Option<IntervalText> {
        match self.session.settings().interval_style {
            IntervalStyle::Postgres => None,
            IntervalStyle::PostgresVerbose => {
                Some(|months, days, us| text_of_interval(IntervalStyle::PostgresVerbose, months, days, us))
            }
            IntervalStyle::SqlStandard => {
                Some(|months, days, us| text_of_interval(IntervalStyle::SqlStandard, months, days, us))
            }
            IntervalStyle::Iso8601 => {
                Some(|months, days, us| text_of_interval(IntervalStyle::Iso8601, months, days, us))
            }
        }
    }

    fn time_text(&self, text: &str, wanted: &DataType) -> Option<String> {
        self.session.time_text(text, wanted)
    }

    fn parameter_status(&self, version: u64) -> Option<(u64, Vec<(&'static str, String)>)> {
        self.session.reported_parameters(version)
    }

    fn time_limits(&self) -> TimeLimits {
        self.session.time_limits()
    }

    fn set_named_objects(&self, named: NamedObjects) {
        self.session.set_named_objects(named);
    }

    fn settle<'a: 'f, 'f>(&'a self) -> BoxFuture<'f, Result<(), SqlError>> {
        self.boxed_settle()
    }
}

fn text_of_interval(style: IntervalStyle, months: i32, days: i32, us: i64) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = style.write(&mut text, months, days, us);
    text
}

/// Spooled rows, accessed on statement threads, which may block on disks.
struct EngineRows {
    rows: u64,
    spool: Arc<Mutex<ScrollableRows>>,
    threads: Threads,
}

impl EngineRows {
    /// Runs `work` with the rows on a separate thread.
    async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut ScrollableRows) -> BoxFuture<'_, DataFusionResult<T>> + Send + 'static,
    ) -> Result<T, SqlError> {
        let spool = Arc::clone(&self.spool);
        let (task, _guard) =
            self.threads.spawn(&CancelFlag::default(), async move { work(&mut *spool.lock().await).await });
        match task.await {
            Ok(Some(done)) => done.map_err(|error| with_context(harrier_engine::in_statement(&error, ""))),
            Ok(None) => Err(SqlError::new(SqlState::INTERNAL_ERROR, "the statement was ended")),
            Err(error) => Err(join_error(&error)),
        }
    }
}

impl BufferedRows for EngineRows {
    fn rows(&self) -> u64 {
        self.rows
    }

    fn push(&mut self, batch: RecordBatch) -> BoxFuture<'_, Result<(), SqlError>> {
        async move {
            let rows =
                self.run(|spool| async move { spool.push(batch).map(|()| spool.rows()) }.boxed()).await?;
            self.rows = rows as u64;
            Ok(())
        }
        .boxed()
    }

    fn batch(&mut self, row: u64) -> BoxFuture<'_, Result<(u64, RecordBatch), SqlError>> {
        async move {
            let (first, batch) = self.run(move |spool| spool.batch(row as usize).boxed()).await?;
            Ok((first as u64, batch))
        }
        .boxed()
    }
}

/// Result of the part that runs on the statement's thread.
#[allow(clippy::large_enum_variant)] // One value per statement.
enum Execution {
    Written(Completion),
    Started(harrier_engine::Outcome),
}

fn downcast(statement: &BackendStatement) -> Result<Arc<ParsedStatement>, SqlError> {
    Arc::clone(&statement.inner)
        .downcast::<ParsedStatement>()
        .map_err(|_| SqlError::new(SqlState::INTERNAL_ERROR, "the statement was parsed by another session"))
}
