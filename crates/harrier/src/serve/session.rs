//! A session of the engine as the server sees it: statements run where the engine's threads are, not where
//! clients are waited for.
//!
//! Parsing and planning do not yield, nor need the first operator of a plan: a statement does that on a
//! thread of its own, so that others have their share of the processors meanwhile. What its operators spawn
//! runs on the threads that all statements share.

use std::any::Any;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::{SystemTime, UNIX_EPOCH};

use arrow::array::{ArrayRef, RecordBatch};
use arrow::datatypes::DataType;
use datafusion::common::ScalarValue;
use datafusion::error::Result as DataFusionResult;
use datafusion::execution::SendableRecordBatchStream;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use futures::{FutureExt, Stream, StreamExt, TryStreamExt};
use harrier_engine::{
    CopyIn, CopyInRows, CopyOut, Cursor, Engine, ParsedStatement, PreparedStatement, StatementKind,
    Surroundings, Written,
};
use harrier_error::{SqlError, SqlState};
use harrier_exec::frontend::client::{Admit, Admitted};
use harrier_functions::parse::interval::IntervalStyle;
use harrier_resources::cancellation::{CancelOnDrop, Canceled};
use harrier_resources::statement_limits::StatementLimits;
use harrier_server::backend::{
    self, Backend, CopyInto, CursorKind, Description, Discard, Done, Identity, IntervalText, KeptRows, Kind,
    Named, Outcome, Part, Session, Statement, TimeLimits, TransactionState,
};
use harrier_server::registry::{Phase, Registry, StatementEntry};
use harrier_sql::parser::cursor;
use harrier_sql::splitter;
use harrier_sqlstate::external;
use parking_lot::RwLock;
use tokio::runtime::Handle;
use tokio::sync::{Mutex, mpsc, oneshot};
use tokio::task::{JoinError, JoinHandle};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::locks::Locks;
use super::operate::Controls;
use super::queues::RoleQueues;
use super::watching::Watched;

/// Batches, or pieces of text, that are ready before they are asked for.
const AHEAD: usize = 2;

/// The one database, which also goes by the name of every role.
pub(super) const DATABASE: &str = "warehouse";

/// Opens sessions of one engine.
pub(super) struct Sessions {
    pub(super) engine: Engine,
    pub(super) threads: Threads,
    pub(super) surroundings: Arc<dyn Surroundings>,
    pub(super) queues: RoleQueues,
    /// Put before what the client asks to set.
    pub(super) settings: RwLock<Vec<(String, String)>>,
    /// Whether sessions are let in.
    pub(super) controls: Arc<Controls>,
    pub(super) registry: Arc<Registry>,
    pub(super) locks: Arc<Locks>,
}

impl Sessions {
    fn boxed_open(&self, identity: Identity) -> BoxFuture<'_, Result<Arc<dyn Session>, SqlError>> {
        async move {
            let Identity { role, database, client, mut settings, process } = identity;
            let access = self.engine.access().await;
            let access = access.map_err(|error| SqlError { is_fatal: true, ..with_context(error) })?;
            self.controls.admit(access.is_superuser(&role), process, &mut settings)?;
            self.registry.check_audit().map_err(|failure| SqlError { is_fatal: true, ..failure })?;
            if database != DATABASE && database != role {
                return Err(SqlError::fatal(
                    SqlState::INVALID_CATALOG_NAME,
                    format!("database \"{database}\" does not exist"),
                )
                .with_hint(format!("there is one, called \"{DATABASE}\"")));
            }
            let is_superuser = access.is_superuser(&role);
            let denied = |(name, _): &&(String, String)| !harrier_engine::settings::is_for_everybody(name);
            if !is_superuser && let Some((name, _)) = settings.iter().find(denied) {
                let message = format!("permission denied to set parameter \"{name}\"");
                return Err(SqlError::fatal(SqlState::INSUFFICIENT_PRIVILEGE, message));
            }
            let session = self.engine.session();
            session.set_superuser(is_superuser);
            let identity = harrier_engine::Identity { role, database, process, client, server: None };
            let mut own = access.settings_of(&identity.role);
            own.retain(|(name, value)| match session.checked_setting(name, value) {
                Ok(_) => true,
                Err(error) => {
                    // As PostgreSQL: who can log in can mend it.
                    tracing::warn!(role = identity.role, name, %error, "a role's setting is left out");
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

// Methods are written out for the compiler's sake: docs/decisions/0025-boxed-futures-behind-traits.md
impl Backend for Sessions {
    fn open<'a: 'f, 'f>(&'a self, identity: Identity) -> BoxFuture<'f, Result<Arc<dyn Session>, SqlError>> {
        self.boxed_open(identity)
    }
}

/// Where statements run.
#[derive(Debug, Clone)]
pub(super) struct Threads {
    /// What all statements share.
    pub(super) shared: Handle,
    /// Has a thread for each statement that asks for one.
    pub(super) own: Handle,
}

impl Threads {
    /// Does `work` on a thread of its own, for the statement of this flag. It ends, without a value, when the
    /// guard is dropped, which sets the flag for what does not hear of that.
    fn spawn<T: Send + 'static>(
        &self,
        canceled: &Canceled,
        work: impl Future<Output = T> + Send + 'static,
    ) -> (JoinHandle<Option<T>>, Guard) {
        let given_up = CancellationToken::new();
        let guard = Guard { canceled: canceled.when_dropped(), _given_up: given_up.clone().drop_guard() };
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

/// What is done on a thread is given up when this is dropped.
struct Guard {
    // The first to be dropped: who is told to end shall find it set.
    canceled: CancelOnDrop,
    _given_up: DropGuard,
}

struct EngineSession {
    /// The number of the session.
    process: i32,
    locks: Arc<Locks>,
    session: Arc<harrier_engine::Session>,
    threads: Threads,
    /// Held by the statement that runs. One that was given up holds it until its thread has let go of the
    /// session, so that what it does last is not done to the transaction of the next one.
    running: Arc<Mutex<()>>,
    queues: RoleQueues,
    registry: Arc<Registry>,
}

impl Drop for EngineSession {
    fn drop(&mut self) {
        self.locks.release_all(self.process);
    }
}

/// A statement that waits for its turn on the gang.
struct Turn {
    queues: RoleQueues,
    entry: Arc<StatementEntry>,
    registry: Arc<Registry>,
}

impl Admit for Turn {
    fn admit(&self, bytes: u64) -> BoxFuture<'static, datafusion::error::Result<Admitted>> {
        let (queues, entry) = (self.queues.clone(), Arc::clone(&self.entry));
        async move {
            let place = queues.of_role(&entry.role).await.map_err(|error| external(with_context(error)))?;
            let admitted = queues.queues().admit(&place.queue, bytes as f64, place.memory, &entry);
            let ticket = admitted.await.map_err(external)?;
            entry.set_on_gang();
            let memory_bytes = Some(place.memory).filter(|bytes| *bytes > 0);
            let limits = StatementLimits { memory_bytes, spill_bytes: None };
            Ok(Admitted { turn: Some(Box::new(ticket)), limits })
        }
        .boxed()
    }

    fn repeated(&self, reason: &str) {
        let StatementEntry { id, session, .. } = &*self.entry;
        // Once for each process that the error has come through.
        let reason = reason.trim_start_matches("External error: ");
        tracing::warn!(statement = id, session, reason, "a statement is run once more");
        self.entry.count_retry();
        self.registry.totals().retried.fetch_add(1, Ordering::Relaxed);
    }
}

/// The line of a COPY, which the engine tells as a detail, is its context to clients.
pub(super) fn with_context(mut error: SqlError) -> SqlError {
    let is_context = |text: &String| text.starts_with("COPY ") && text.contains(", line ");
    if error.detail.as_ref().is_some_and(is_context) {
        error.context = error.detail.take();
    }
    error
}

impl EngineSession {
    /// Does `work` on a thread of statements, when the one before has ended. Dropping the future ends it.
    async fn there<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, SqlError>> + Send + 'static,
    ) -> Result<T, SqlError> {
        self.there_for(&Canceled::default(), work).await
    }

    /// The same for a statement, which may go on when that is done.
    async fn there_for<T: Send + 'static>(
        &self,
        canceled: &Canceled,
        work: impl Future<Output = Result<T, SqlError>> + Send + 'static,
    ) -> Result<T, SqlError> {
        let (task, guard) = self.threads.spawn(canceled, alone(&self.running, work));
        let done = task.await;
        guard.canceled.keep();
        match done {
            Ok(Some(done)) => done.map_err(with_context),
            Ok(None) => Err(SqlError::new(SqlState::INTERNAL_ERROR, "the statement was ended")),
            Err(error) => Err(broken(&error)),
        }
    }

    fn boxed_parse<'a>(&'a self, text: &'a str) -> BoxFuture<'a, Result<Statement, SqlError>> {
        async move {
            let whole = splitter::StatementText { text: text.to_string(), line: 1 };
            let session = Arc::clone(&self.session);
            let parsed = self.there(async move { session.parse(whole) }).await?;
            let kind = match parsed.kind() {
                StatementKind::Plain => Kind::Plain,
                StatementKind::Begin => Kind::Begin,
                StatementKind::Control => Kind::Control,
                StatementKind::Alone => Kind::Alone,
            };
            let tag = parsed.tag();
            let inner: Arc<dyn Any + Send + Sync> = Arc::new(parsed);
            Ok(Statement { text: text.to_string(), inner, tag, kind })
        }
        .boxed()
    }

    fn boxed_describe<'a>(
        &'a self,
        statement: &'a Statement,
        types: &'a [Option<DataType>],
    ) -> BoxFuture<'a, Result<Description, SqlError>> {
        async move {
            let parsed = parsed(statement)?;
            let session = Arc::clone(&self.session);
            let types = types.to_vec();
            let statement = Arc::clone(&parsed);
            let described = self.there(async move { session.describe(&parsed, &types).await }).await?;
            let columns = described.columns.map(|schema| statement.named(&schema));
            Ok(Description { parameters: described.parameters, names: described.names, columns })
        }
        .boxed()
    }

    fn boxed_execute<'a>(
        &'a self,
        statement: &'a Statement,
        values: &'a [ArrayRef],
        entry: &'a Arc<StatementEntry>,
    ) -> BoxFuture<'a, Result<Outcome, SqlError>> {
        async move {
            self.registry.check_audit()?;
            let mut parsed = parsed(statement)?;
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
            session.set_admission(Arc::new(Turn { queues, entry: Arc::clone(entry), registry }));
            let entry = Arc::clone(entry);
            let threads = self.threads.clone();
            let text = statement.text.clone();
            let named = Arc::clone(&parsed);
            let canceled = Canceled::default();
            let outcome = self
                .there_for(&canceled, async move {
                    let outcome = session.execute(&parsed).await?;
                    entry.set_phase(Phase::Running);
                    if let Some(progress) = outcome.progress() {
                        entry.set_probe(Arc::new(Watched(progress.clone())));
                    }
                    // What only has to be waited for is waited for here.
                    Ok(match outcome {
                        harrier_engine::Outcome::Write(write) => Ran::Written(write.finish().await?),
                        other => Ran::Started(other),
                    })
                })
                .await?;
            Ok(match outcome {
                Ran::Written(written) => Outcome::Done(done(written)),
                Ran::Started(harrier_engine::Outcome::Command { tag, warnings, notices }) => {
                    let starts =
                        statement.text.get(..5).is_some_and(|word| word.eq_ignore_ascii_case("start"));
                    let tag = if starts && tag == "BEGIN" { "START TRANSACTION".to_string() } else { tag };
                    Outcome::Done(Done { tag, warnings, notices })
                }
                Ran::Started(harrier_engine::Outcome::Rows { schema, stream, .. }) => Outcome::Rows {
                    schema: named.named(&schema),
                    rows: batches(&threads, &canceled, stream, text),
                },
                Ran::Started(harrier_engine::Outcome::CopyIn(CopyIn { input, write, table, schema })) => {
                    let (input, done) = (
                        CopyInto::Text(input),
                        finished(&threads, &canceled, alone(&self.running, write.finish())),
                    );
                    Outcome::CopyIn(backend::CopyIn { table, schema, input, done })
                }
                Ran::Started(harrier_engine::Outcome::CopyInRows(CopyInRows {
                    input,
                    write,
                    table,
                    schema,
                })) => {
                    let (input, done) = (
                        CopyInto::Rows(input),
                        finished(&threads, &canceled, alone(&self.running, write.finish())),
                    );
                    Outcome::CopyIn(backend::CopyIn { table, schema, input, done })
                }
                Ran::Started(harrier_engine::Outcome::CopyOut(copy)) => {
                    Outcome::CopyOut(text_of(&threads, &canceled, copy))
                }
                Ran::Started(harrier_engine::Outcome::CopyOutRows { schema, stream, .. }) => {
                    Outcome::CopyOut(backend::CopyOut::Rows {
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
                Discard::Temporary => self.there(async move { session.discard_temporary().await }).await,
                Discard::Sequences => {
                    session.discard_sequences();
                    Ok(())
                }
                Discard::All => {
                    self.locks.release_all(self.process);
                    self.there(async move { session.discard().await }).await
                }
            }
        }
        .boxed()
    }

    fn boxed_settle(&self) -> BoxFuture<'_, Result<(), SqlError>> {
        async move {
            if self.session.transaction() == harrier_engine::TransactionState::Idle {
                self.locks.ended(self.process);
            }
            self.session.settle().await.map_err(with_context)
        }
        .boxed()
    }
}

fn broken(error: &JoinError) -> SqlError {
    let message = if error.is_panic() { "the statement panicked" } else { "the statement was ended" };
    SqlError::new(SqlState::INTERNAL_ERROR, message)
}

/// What a stream gives, made on the threads of statements ahead of being asked for. It ends at its first
/// error.
fn ahead<T: Send + 'static>(
    threads: &Threads,
    canceled: &Canceled,
    mut stream: impl Stream<Item = Result<T, SqlError>> + Send + Unpin + 'static,
) -> BoxStream<'static, Result<T, SqlError>> {
    let (sender, mut receiver) = mpsc::channel(AHEAD);
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
                // A panic closes the channel too, and is no end.
                Some(Poll::Ready(Err(error))) => {
                    task = None;
                    Poll::Ready(Some(Err(broken(&error))))
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

/// The batches of a statement, made ahead.
fn batches(
    threads: &Threads,
    canceled: &Canceled,
    stream: SendableRecordBatchStream,
    text: String,
) -> BoxStream<'static, Result<RecordBatch, SqlError>> {
    ahead(threads, canceled, stream.map_err(move |error| harrier_engine::in_statement(&error, &text)))
}

/// The text of a COPY, made ahead, and its end after that.
fn text_of(threads: &Threads, canceled: &Canceled, copy: CopyOut) -> backend::CopyOut {
    let columns = copy.columns();
    let (tell, told) = oneshot::channel();
    let pieces = futures::stream::unfold((copy, tell), |(mut copy, tell)| async move {
        match copy.next().await.transpose() {
            Some(piece) => Some((piece, (copy, tell))),
            None => {
                // Nobody waits for the tag of a statement that was given up.
                let _ = tell.send(copy.tag());
                None
            }
        }
    });
    let done = async move {
        let tag =
            told.await.map_err(|_| SqlError::new(SqlState::INTERNAL_ERROR, "the statement was ended"))?;
        Ok(Done { tag, ..Done::default() })
    };
    let text = ahead(threads, canceled, pieces.boxed());
    backend::CopyOut::Text { columns, text, done: done.boxed() }
}

/// Does `work` while nothing else is done that holds `running`.
fn alone<T, F: Future<Output = T>>(running: &Arc<Mutex<()>>, work: F) -> impl Future<Output = T> + use<T, F> {
    let running = Arc::clone(running);
    async move {
        let _held = running.lock_owned().await;
        work.await
    }
}

/// What runs a COPY FROM while it is fed.
fn finished(
    threads: &Threads,
    canceled: &Canceled,
    write: impl Future<Output = Result<Written, SqlError>> + Send + 'static,
) -> BoxFuture<'static, Result<Done, SqlError>> {
    let (finished, guard) = threads.spawn(canceled, write);
    let ended = async move {
        let _guard = guard;
        match finished.await {
            Ok(Some(written)) => written.map(done).map_err(with_context),
            Ok(None) => Err(SqlError::new(SqlState::INTERNAL_ERROR, "the statement was ended")),
            Err(error) => Err(broken(&error)),
        }
    };
    ended.boxed()
}

fn done(written: Written) -> Done {
    Done { tag: written.tag, notices: written.notice.into_iter().collect(), ..Done::default() }
}

// Methods are written out for the compiler's sake: docs/decisions/0025-boxed-futures-behind-traits.md
impl Session for EngineSession {
    fn cursor(&self, text: &str) -> Result<Option<backend::CursorStatement>, SqlError> {
        match cursor::read(text) {
            Ok(statement) => Ok(statement.map(about_cursor)),
            Err(error) => Err(harrier_engine::in_statement(&error, text)),
        }
    }

    fn split(&self, text: &str) -> Vec<Part> {
        let mut parts = Vec::new();
        let (mut rest, mut offset) = (text, 0);
        for statement in splitter::split(text) {
            // The text of a statement stands in the whole as it is.
            let at = rest.find(&statement.text).unwrap_or(0);
            offset += rest[..at].chars().count();
            parts.push(Part { text: statement.text.clone(), offset });
            offset += statement.text.chars().count();
            rest = &rest[(at + statement.text.len()).min(rest.len())..];
        }
        parts
    }

    fn parse<'a: 'f, 'b: 'f, 'f>(&'a self, text: &'b str) -> BoxFuture<'f, Result<Statement, SqlError>> {
        self.boxed_parse(text)
    }

    fn describe<'a: 'f, 'b: 'f, 'c: 'f, 'f>(
        &'a self,
        statement: &'b Statement,
        types: &'c [Option<DataType>],
    ) -> BoxFuture<'f, Result<Description, SqlError>> {
        self.boxed_describe(statement, types)
    }

    fn execute<'a: 'f, 'b: 'f, 'c: 'f, 'd: 'f, 'f>(
        &'a self,
        statement: &'b Statement,
        values: &'c [ArrayRef],
        entry: &'d Arc<StatementEntry>,
    ) -> BoxFuture<'f, Result<Outcome, SqlError>> {
        self.boxed_execute(statement, values, entry)
    }

    fn transaction(&self) -> TransactionState {
        match self.session.transaction() {
            harrier_engine::TransactionState::Idle => TransactionState::Idle,
            harrier_engine::TransactionState::Open => TransactionState::Open,
            harrier_engine::TransactionState::Failed => TransactionState::Failed,
        }
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

    fn keep_rows(&self) -> Result<Box<dyn KeptRows>, SqlError> {
        let kept = self.session.keep_rows().map_err(with_context)?;
        Ok(Box::new(EngineRows { rows: 0, kept: Arc::new(Mutex::new(kept)), threads: self.threads.clone() }))
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

    fn reported(&self, version: u64) -> Option<(u64, Vec<(&'static str, String)>)> {
        self.session.reported_parameters(version)
    }

    fn time_limits(&self) -> TimeLimits {
        let harrier_engine::TimeLimits { statement, idle, idle_in_transaction } = self.session.time_limits();
        TimeLimits { statement, idle, idle_in_transaction }
    }

    fn set_named(&self, named: Vec<Named>) {
        let us =
            |since: SystemTime| since.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros() as i64);
        let mut told = harrier_engine::Named::default();
        for Named { name, text, since, cursor } in named {
            let since = us(since);
            match cursor {
                None => told.prepared.push(PreparedStatement { name, text, since, is_of_sql: false }),
                Some(CursorKind { is_held, is_binary, is_scrollable }) => {
                    told.cursors.push(Cursor { name, text, is_held, is_binary, is_scrollable, since });
                }
            }
        }
        self.session.set_named(told);
    }

    fn settle<'a: 'f, 'f>(&'a self) -> BoxFuture<'f, Result<(), SqlError>> {
        self.boxed_settle()
    }
}

fn text_of_interval(style: IntervalStyle, months: i32, days: i32, us: i64) -> String {
    let mut text = String::new();
    // Into a text nothing fails to be written.
    let _ = style.write(&mut text, months, days, us);
    text
}

/// Rows that are kept where statements run, whose threads may wait for disks.
struct EngineRows {
    rows: u64,
    kept: Arc<Mutex<harrier_engine::KeptRows>>,
    threads: Threads,
}

impl EngineRows {
    /// Does `work` with the rows, on a thread of its own.
    async fn there<T: Send + 'static>(
        &self,
        work: impl for<'k> FnOnce(&'k mut harrier_engine::KeptRows) -> BoxFuture<'k, DataFusionResult<T>>
        + Send
        + 'static,
    ) -> Result<T, SqlError> {
        let kept = Arc::clone(&self.kept);
        let (task, _guard) =
            self.threads.spawn(&Canceled::default(), async move { work(&mut *kept.lock().await).await });
        match task.await {
            Ok(Some(done)) => done.map_err(|error| with_context(harrier_engine::in_statement(&error, ""))),
            Ok(None) => Err(SqlError::new(SqlState::INTERNAL_ERROR, "the statement was ended")),
            Err(error) => Err(broken(&error)),
        }
    }
}

impl KeptRows for EngineRows {
    fn rows(&self) -> u64 {
        self.rows
    }

    fn push(&mut self, batch: RecordBatch) -> BoxFuture<'_, Result<(), SqlError>> {
        async move {
            let rows =
                self.there(|kept| async move { kept.push(batch).map(|()| kept.rows()) }.boxed()).await?;
            self.rows = rows as u64;
            Ok(())
        }
        .boxed()
    }

    fn batch(&mut self, row: u64) -> BoxFuture<'_, Result<(u64, RecordBatch), SqlError>> {
        async move {
            let (first, batch) = self.there(move |kept| kept.batch(row as usize).boxed()).await?;
            Ok((first as u64, batch))
        }
        .boxed()
    }
}

/// How far a statement ran on its own threads.
#[allow(clippy::large_enum_variant)] // One is made for a statement.
enum Ran {
    Written(Written),
    Started(harrier_engine::Outcome),
}

/// What a statement says of a cursor, as the server has it.
fn about_cursor(statement: cursor::CursorStatement) -> backend::CursorStatement {
    let count = |count: cursor::Count| match count {
        cursor::Count::Rows(rows) => backend::Count::Rows(rows),
        cursor::Count::All => backend::Count::All,
    };
    match statement {
        cursor::CursorStatement::Declare(declare) => backend::CursorStatement::Declare {
            name: declare.name,
            query: Part { text: declare.query, offset: declare.offset },
            kind: CursorKind {
                is_held: declare.is_held,
                is_binary: declare.is_binary,
                is_scrollable: declare.scrolls,
            },
        },
        cursor::CursorStatement::Fetch { name, step, is_move } => backend::CursorStatement::Fetch {
            name,
            step: match step {
                cursor::Step::Forward(rows) => backend::Step::Forward(count(rows)),
                cursor::Step::Backward(rows) => backend::Step::Backward(count(rows)),
                cursor::Step::Absolute(row) => backend::Step::Absolute(row),
                cursor::Step::Relative(rows) => backend::Step::Relative(rows),
            },
            is_move,
        },
        cursor::CursorStatement::Close(name) => backend::CursorStatement::Close(name),
    }
}

fn parsed(statement: &Statement) -> Result<Arc<ParsedStatement>, SqlError> {
    Arc::clone(&statement.inner)
        .downcast::<ParsedStatement>()
        .map_err(|_| SqlError::new(SqlState::INTERNAL_ERROR, "the statement was parsed by another session"))
}
