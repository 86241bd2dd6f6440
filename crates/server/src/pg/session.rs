//! The conversation with one client that has come in: one message after the other, until it leaves or is sent away.
//!
//! # Transactions
//! A statement alone is its own transaction. Several in one simple query, or between two Syncs, are one: it is opened before
//! the first and committed after the last, unless one of them fails. Whether an Execute is alone is seen from the message
//! behind it, which is therefore waited for.
//!
//! # Errors
//! After an error in the extended protocol messages are left unread until Sync. A fatal error ends the conversation.
//!
//! # Cancellation
//! While a statement runs, its client is watched: one that has gone cancels it, as do its time limit, a cancel request and whoever
//! ends the session.

use std::collections::HashMap;
use std::future::Future;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use arrow::array::ArrayRef;
use arrow::datatypes::DataType;
use bytes::Bytes;
use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use tokio::sync::{mpsc, watch};
use tokio::time::sleep_until;

use super::io::Io;
use super::messages::{self, Bind, Message, Target};
use super::own::{self, Count, Own};
use super::portal::{OpenRows, Portal, PortalState, Prepared};
use super::rows::{self, Zone};
use super::types::{self, PgType};
use super::values;
use crate::backend::{Description, Done, Failure, Kind, Outcome, Part, Session, Statement, TransactionState};
use crate::registry::{Activity, Phase, Registry, SessionGuard, StatementEntry, Stop};

/// Bytes of a text from which parsing it is long.
const LONG_TEXT_BYTES: usize = 64 << 10;

/// Prepared statements and portals of a session, at most.
const NAMES_MAX: usize = 10_000;

/// Why something was not done.
pub(super) enum Trouble {
    /// The client is told.
    Failed(Failure),
    /// Nobody is there to be told.
    Gone(io::Error),
}

impl From<Failure> for Trouble {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

impl From<io::Error> for Trouble {
    fn from(error: io::Error) -> Self {
        Self::Gone(error)
    }
}

type Stops = watch::Receiver<(u64, Option<Stop>)>;

/// What a session ends with when somebody ends it.
pub(super) fn terminated() -> Failure {
    Failure::fatal("57P01", "terminating connection due to administrator command")
}

/// Does `work` unless it is interrupted.
async fn until<T>(
    io: &mut Io,
    stops: &mut Stops,
    deadline: Option<Instant>,
    work: impl Future<Output = T>,
) -> Result<T, Trouble> {
    tokio::pin!(work);
    let timer = async {
        match deadline {
            Some(deadline) => sleep_until(deadline.into()).await,
            None => std::future::pending().await,
        }
    };
    tokio::pin!(timer);
    loop {
        tokio::select! {
            biased;
            value = &mut work => return Ok(value),
            stop = stopped(stops) => match stop {
                Stop::Statement => {
                    return Err(Failure::new("57014", "canceling statement due to user request").into());
                }
                Stop::Session => return Err(terminated().into()),
                Stop::Drain => {}
            },
            () = &mut timer => {
                return Err(Failure::new("57014", "canceling statement due to statement timeout").into());
            }
            error = io.watch() => return Err(error.into()),
        }
    }
}

/// The next thing that the session is asked to stop.
async fn stopped(stops: &mut Stops) -> Stop {
    loop {
        if stops.changed().await.is_err() {
            return std::future::pending().await;
        }
        if let Some(stop) = stops.borrow_and_update().1 {
            return stop;
        }
    }
}

/// Sends what was written, unless that is interrupted: a client that does not read holds nothing up for ever.
async fn send(io: &mut Io, stops: &mut Stops, deadline: Option<Instant>) -> Result<(), Trouble> {
    let timer = async {
        match deadline {
            Some(deadline) => sleep_until(deadline.into()).await,
            None => std::future::pending().await,
        }
    };
    tokio::pin!(timer);
    let sent = async {
        let flushed = io.flush();
        tokio::pin!(flushed);
        loop {
            tokio::select! {
                biased;
                sent = &mut flushed => return Ok(sent?),
                stop = stopped(stops) => match stop {
                    // What was begun to be sent cannot be taken back: the connection is of no more use.
                    Stop::Session => return Err(io::Error::from(io::ErrorKind::ConnectionAborted).into()),
                    Stop::Statement => return Err(io::Error::from(io::ErrorKind::ConnectionAborted).into()),
                    Stop::Drain => {}
                },
                () = &mut timer => return Err(io::Error::from(io::ErrorKind::TimedOut).into()),
            }
        }
    };
    sent.await
}

/// One client's session.
pub(super) struct Conversation {
    pub(super) io: Io,
    session: Arc<dyn Session>,
    registry: Arc<Registry>,
    guard: SessionGuard,
    stops: Stops,
    statements: HashMap<String, Arc<Prepared>>,
    portals: HashMap<String, Portal>,
    cursors: HashMap<String, Cursor>,
    /// A transaction that the client did not open is open.
    is_implicit: bool,
    /// Messages are left unread until Sync.
    is_skipping: bool,
    /// Of the parameters that the client was told.
    version: u64,
    told: HashMap<&'static str, String>,
    zone: Zone,
}

struct Cursor {
    rows: OpenRows,
    is_held: bool,
}

impl Conversation {
    pub(super) fn new(
        io: Io,
        session: Arc<dyn Session>,
        registry: Arc<Registry>,
        guard: SessionGuard,
    ) -> Self {
        let stops = guard.entry.listen();
        Self {
            io,
            session,
            registry,
            guard,
            stops,
            statements: HashMap::new(),
            portals: HashMap::new(),
            cursors: HashMap::new(),
            is_implicit: false,
            is_skipping: false,
            version: 0,
            told: HashMap::new(),
            zone: Zone::named("UTC"),
        }
    }

    /// Talks until the client has gone.
    pub(super) async fn run(&mut self) {
        self.tell_parameters();
        self.ready();
        let ended = match self.flush().await {
            Ok(()) => self.talk().await,
            gone => gone,
        };
        match ended {
            Ok(()) => {}
            Err(Trouble::Gone(error)) => {
                tracing::debug!(session = self.guard.entry.id, %error, "a client has gone")
            }
            Err(Trouble::Failed(failure)) => {
                self.io.reply.failure(&failure);
                let _ = tokio::time::timeout(Duration::from_secs(1), self.io.flush()).await;
            }
        }
    }

    async fn talk(&mut self) -> Result<(), Trouble> {
        loop {
            let kind = self.io.input.first().copied();
            match messages::next(&mut self.io.input, true) {
                Ok(Some(Message::Terminate)) => return Ok(()),
                Ok(Some(message)) => self.message(message).await?,
                Ok(None) => self.wait().await?,
                Err(failure) if failure.is_fatal => return Err(failure.into()),
                Err(failure) => {
                    self.fail(failure)?;
                    match kind {
                        Some(b'Q') => self.ready(),
                        _ => self.is_skipping = true,
                    }
                }
            }
        }
    }

    /// Waits for the client, for as long as it may be idle.
    async fn wait(&mut self) -> Result<(), Trouble> {
        let limits = self.session.time_limits();
        let state = self.session.transaction();
        let (limit, code, message) = match state {
            TransactionState::Idle => {
                (limits.idle, "57P05", "terminating connection due to idle-session timeout")
            }
            _ => (
                limits.idle_in_transaction,
                "25P03",
                "terminating connection due to idle-in-transaction timeout",
            ),
        };
        let deadline = limit.map(|limit| Instant::now() + limit);
        self.guard.entry.set_activity(match state {
            TransactionState::Idle => Activity::Idle,
            TransactionState::Open => Activity::IdleInTransaction,
            TransactionState::Failed => Activity::IdleInFailedTransaction,
        });
        let timer = async {
            match deadline {
                Some(deadline) => sleep_until(deadline.into()).await,
                None => std::future::pending().await,
            }
        };
        tokio::pin!(timer);
        loop {
            match self.guard.entry.asked() {
                Some(Stop::Session) => return Err(terminated().into()),
                Some(Stop::Drain) if state == TransactionState::Idle => return Err(terminated().into()),
                _ => {}
            }
            tokio::select! {
                biased;
                filled = self.io.fill() => {
                    filled?;
                    break;
                }
                _ = stopped(&mut self.stops) => {}
                () = &mut timer => return Err(Failure::fatal(code, message).into()),
            }
        }
        self.guard.entry.set_activity(Activity::Active);
        Ok(())
    }

    async fn message(&mut self, message: Message) -> Result<(), Trouble> {
        match message {
            Message::Sync => return self.sync().await,
            _ if self.is_skipping => return Ok(()),
            Message::Query(text) => {
                let done = self.query(&text).await;
                self.report(done)?;
                self.ready();
                return self.flush().await;
            }
            Message::Flush => return self.flush().await,
            // What a client still sends of a COPY that has failed already.
            Message::CopyData(_) | Message::CopyDone | Message::CopyFail(_) => return Ok(()),
            _ => {}
        }
        let done = match message {
            Message::Parse { name, text, types } => self.parse(name, &text, types).await,
            Message::Bind(bind) => self.bind(bind),
            Message::Describe { target, name } => self.describe(target, &name),
            Message::Execute { portal, rows_max } => self.execute(portal, rows_max).await,
            Message::Close { target, name } => {
                match target {
                    Target::Statement => drop(self.statements.remove(&name)),
                    Target::Portal => {
                        self.portals.remove(&name);
                        self.cursors.remove(&name);
                    }
                }
                self.io.reply.close_complete();
                Ok(())
            }
            _ => Err(Failure::fatal("08P01", "unexpected message").into()),
        };
        if let Err(trouble) = done {
            self.is_skipping = true;
            self.report(Err(trouble))?;
        }
        if self.io.is_full() { self.flush().await } else { Ok(()) }
    }

    /// Tells the client of a failure. Only what ends the conversation is left.
    fn report(&mut self, done: Result<(), Trouble>) -> Result<(), Trouble> {
        match done {
            Err(Trouble::Failed(failure)) => self.fail(failure),
            other => other,
        }
    }

    fn fail(&mut self, failure: Failure) -> Result<(), Trouble> {
        if failure.is_fatal {
            return Err(failure.into());
        }
        self.session.fail();
        self.io.reply.failure(&failure);
        Ok(())
    }

    fn ready(&mut self) {
        // Without a transaction nothing of it is left to be taken.
        if self.session.transaction() != TransactionState::Open {
            self.portals.clear();
            self.cursors.retain(|_, cursor| cursor.is_held);
        }
        self.io.reply.ready(self.session.transaction());
    }

    async fn flush(&mut self) -> Result<(), Trouble> {
        send(&mut self.io, &mut self.stops, None).await
    }

    async fn sync(&mut self) -> Result<(), Trouble> {
        self.is_skipping = false;
        let ended = self.end_implicit().await;
        self.report(ended)?;
        self.ready();
        self.flush().await
    }

    /// Tells the client of parameters that have changed.
    fn tell_parameters(&mut self) {
        let Some((version, parameters)) = self.session.reported(self.version) else {
            return;
        };
        self.version = version;
        for (name, value) in parameters {
            if self.told.get(name) == Some(&value) {
                continue;
            }
            match name {
                "application_name" => self.guard.entry.set_application(&value),
                "TimeZone" => self.zone = Zone::named(&value),
                _ => {}
            }
            self.io.reply.parameter(name, &value);
            self.told.insert(name, value);
        }
    }

    /// Opens a transaction for statements that belong together.
    async fn begin_implicit(&mut self) -> Result<(), Trouble> {
        if self.session.transaction() == TransactionState::Idle {
            self.control("BEGIN").await?;
            self.is_implicit = true;
        }
        Ok(())
    }

    /// Ends the transaction that the client did not open.
    async fn end_implicit(&mut self) -> Result<(), Trouble> {
        if !std::mem::take(&mut self.is_implicit) {
            return Ok(());
        }
        match self.session.transaction() {
            TransactionState::Idle => Ok(()),
            TransactionState::Open => self.control("COMMIT").await,
            TransactionState::Failed => self.control("ROLLBACK").await,
        }
    }

    async fn control(&mut self, text: &str) -> Result<(), Trouble> {
        let statement = self.session.parse(text)?;
        let entry = self.registry.begin(&self.guard.entry, text);
        let work = self.session.execute(&statement, &[], &entry);
        let outcome = until(&mut self.io, &mut self.stops, None, work).await;
        let outcome = outcome.and_then(|outcome| Ok(outcome.map(drop)?));
        self.registry.end(&entry, failure_of(&outcome));
        outcome
    }

    // The simple protocol.

    async fn query(&mut self, text: &str) -> Result<(), Trouble> {
        self.portals.remove("");
        self.statements.remove("");
        let mut parsed = Vec::new();
        for part in split(&*self.session, text) {
            let shifted = |failure: Failure| shift(failure, part.offset);
            let prepared = match own::parse(&part.text).map_err(shifted)? {
                Some(own) => {
                    let description = Description { parameters: vec![], columns: None };
                    Prepared::Own { own, text: part.text.clone(), description, types: vec![] }
                }
                None => {
                    let statement = parse(&*self.session, &part.text).map_err(shifted)?;
                    let description = Description { parameters: vec![], columns: None };
                    Prepared::Sql { statement, description, types: vec![] }
                }
            };
            parsed.push((part.offset, prepared));
        }
        if parsed.is_empty() {
            self.io.reply.empty_query();
            return Ok(());
        }
        let many = parsed.len() > 1;
        for (offset, prepared) in parsed {
            if let Err(trouble) = self.simple(prepared, many).await {
                let trouble = match trouble {
                    Trouble::Failed(failure) => Trouble::Failed(shift(failure, offset)),
                    gone => gone,
                };
                self.report(Err(trouble))?;
                return self.end_implicit().await;
            }
            self.tell_parameters();
        }
        self.end_implicit().await
    }

    async fn simple(&mut self, prepared: Prepared, many: bool) -> Result<(), Trouble> {
        let statement = match prepared {
            Prepared::Own { own, text, .. } => {
                let rows = matches!(own, Own::Fetch { is_move: false, .. });
                if let (true, Own::Fetch { name, .. }) = (rows, &own) {
                    let columns = self.cursor(name)?.rows.columns.clone();
                    self.io.reply.columns(&columns);
                }
                return self.own(own, &text, &[]).await;
            }
            Prepared::Sql { statement, .. } => statement,
            Prepared::Empty => return Ok(()),
        };
        if many {
            self.join_implicit(&statement).await?;
        }
        let open = self.start(&statement, &[], &[], true).await?;
        match open {
            Some(rows) => self.rest(rows).await,
            None => Ok(()),
        }
    }

    /// Has a statement run together with those before and behind it.
    async fn join_implicit(&mut self, statement: &Statement) -> Result<(), Trouble> {
        match statement.kind {
            Kind::Plain => self.begin_implicit().await,
            Kind::Begin if self.is_implicit => {
                // From now on the transaction is the client's; it is committed first, as nothing can open it twice.
                self.end_implicit().await
            }
            Kind::Begin | Kind::Control => {
                self.is_implicit = false;
                Ok(())
            }
            Kind::Alone => {
                let words = statement.text.split_whitespace().next().unwrap_or_default().to_uppercase();
                let message = format!("{words} cannot be executed from a function or multi-command string");
                Err(Failure::new("25001", message).into())
            }
        }
    }

    // Both protocols.

    /// Runs a statement. Returns its rows, if it has any; else all was told.
    async fn start(
        &mut self,
        statement: &Statement,
        values: &[ArrayRef],
        formats: &[i16],
        tells_columns: bool,
    ) -> Result<Option<OpenRows>, Trouble> {
        let deadline = self.session.time_limits().statement.map(|limit| Instant::now() + limit);
        self.stops.mark_unchanged();
        if self.guard.entry.asked() == Some(Stop::Session) {
            return Err(terminated().into());
        }
        let entry = self.registry.begin(&self.guard.entry, &statement.text);
        let work = self.session.execute(statement, values, &entry);
        let outcome = until(&mut self.io, &mut self.stops, deadline, work).await;
        let done = match outcome {
            Ok(Ok(Outcome::Rows { schema, rows })) => {
                entry.set_phase(Phase::Running);
                match rows::columns(&schema, formats) {
                    Ok(columns) => {
                        if tells_columns {
                            self.io.reply.columns(&columns);
                        }
                        return Ok(Some(OpenRows::new(
                            Arc::clone(&self.registry),
                            entry,
                            columns,
                            statement.tag,
                            rows,
                        )));
                    }
                    Err(failure) => Err(failure.into()),
                }
            }
            Ok(Ok(Outcome::Done(done))) => Ok(done),
            Ok(Ok(Outcome::CopyIn { columns, input, done })) => {
                entry.set_phase(Phase::Running);
                self.copy_in(columns, input, done, &entry, deadline).await
            }
            Ok(Ok(Outcome::CopyOut { columns, text, done })) => {
                entry.set_phase(Phase::Running);
                self.copy_out(columns, text, done, &entry, deadline).await
            }
            Ok(Err(failure)) => Err(failure.into()),
            Err(trouble) => Err(trouble),
        };
        let done = settled(&*self.session, done).await;
        self.registry.end(&entry, failure_of(&done));
        let done = done?;
        for notice in &done.notices {
            self.io.reply.notice("NOTICE", &Failure::new("00000", notice.as_str()));
        }
        for warning in &done.warnings {
            self.io.reply.notice("WARNING", &Failure::new("01000", warning.as_str()));
        }
        self.io.reply.complete(&done.tag);
        Ok(None)
    }

    /// Sends all rows that are left, and ends the statement.
    async fn rest(&mut self, mut rows: OpenRows) -> Result<(), Trouble> {
        let sent = self.send_rows(&mut rows, usize::MAX).await;
        if sent.is_err() {
            self.registry.end(&rows.entry, failure_of(&sent));
        }
        let tag = rows.complete();
        drop(rows);
        settled(&*self.session, sent).await?;
        self.io.reply.complete(&tag);
        Ok(())
    }

    /// Sends rows, `rows_max` at most; true if that were all.
    async fn send_rows(&mut self, rows: &mut OpenRows, rows_max: usize) -> Result<bool, Trouble> {
        let deadline = self.session.time_limits().statement.map(|limit| Instant::now() + limit);
        let mut left = rows_max;
        loop {
            if !rows.has_ready() && !until(&mut self.io, &mut self.stops, deadline, rows.next()).await?? {
                return Ok(true);
            }
            if left == 0 {
                return Ok(false);
            }
            let before = self.io.reply.0.len();
            let count = rows.put(left, self.zone, &mut self.io.reply)?;
            left -= count;
            rows.entry.rows.fetch_add(count as u64, Ordering::Relaxed);
            rows.entry.bytes.fetch_add((self.io.reply.0.len() - before) as u64, Ordering::Relaxed);
            if self.io.is_full() {
                send(&mut self.io, &mut self.stops, deadline).await?;
            }
        }
    }

    async fn copy_in(
        &mut self,
        columns: usize,
        input: mpsc::Sender<Bytes>,
        mut done: BoxFuture<'static, Result<Done, Failure>>,
        entry: &StatementEntry,
        deadline: Option<Instant>,
    ) -> Result<Done, Trouble> {
        self.io.reply.copy_in(columns);
        send(&mut self.io, &mut self.stops, deadline).await?;
        loop {
            let Some(message) = messages::next(&mut self.io.input, true)? else {
                let Self { io, stops, .. } = self;
                let timer = async {
                    match deadline {
                        Some(deadline) => sleep_until(deadline.into()).await,
                        None => std::future::pending().await,
                    }
                };
                tokio::select! {
                    biased;
                    // It has failed, or wants no more.
                    ended = &mut done => return Ok(ended?),
                    filled = io.fill() => filled?,
                    stop = stopped(stops) => match stop {
                        Stop::Statement => {
                            return Err(Failure::new("57014", "canceling statement due to user request").into());
                        }
                        Stop::Session => return Err(terminated().into()),
                        Stop::Drain => {}
                    },
                    () = timer => {
                        let message = "canceling statement due to statement timeout";
                        return Err(Failure::new("57014", message).into());
                    }
                }
                continue;
            };
            match message {
                Message::CopyData(data) if data.is_empty() => {}
                Message::CopyData(data) => {
                    entry.bytes.fetch_add(data.len() as u64, Ordering::Relaxed);
                    let fed = async {
                        tokio::select! {
                            biased;
                            ended = &mut done => Some(ended),
                            _ = input.send(data) => None,
                        }
                    };
                    if let Some(ended) = until(&mut self.io, &mut self.stops, deadline, fed).await? {
                        return Ok(ended?);
                    }
                }
                Message::CopyDone => {
                    drop(input);
                    return Ok(until(&mut self.io, &mut self.stops, deadline, done).await??);
                }
                Message::CopyFail(reason) => {
                    // Before the input, whose end would be taken for that of the rows.
                    drop(done);
                    return Err(Failure::new("57014", format!("COPY from stdin failed: {reason}")).into());
                }
                Message::Flush | Message::Sync => {}
                _ => {
                    drop(done);
                    return Err(Failure::fatal("08P01", "unexpected message during COPY from stdin").into());
                }
            }
        }
    }

    async fn copy_out(
        &mut self,
        columns: usize,
        mut text: BoxStream<'static, Result<Bytes, Failure>>,
        done: BoxFuture<'static, Result<Done, Failure>>,
        entry: &StatementEntry,
        deadline: Option<Instant>,
    ) -> Result<Done, Trouble> {
        self.io.reply.copy_out(columns);
        while let Some(piece) = until(&mut self.io, &mut self.stops, deadline, text.next()).await? {
            let piece = piece?;
            entry.bytes.fetch_add(piece.len() as u64, Ordering::Relaxed);
            // A message of a row each, as clients expect it that count rows by messages.
            for line in piece.split_inclusive(|byte| *byte == b'\n') {
                self.io.reply.copy_data(line);
                if self.io.is_full() {
                    send(&mut self.io, &mut self.stops, deadline).await?;
                }
            }
        }
        drop(text);
        let done = until(&mut self.io, &mut self.stops, deadline, done).await??;
        self.io.reply.copy_done();
        Ok(done)
    }

    // The extended protocol.

    async fn parse(&mut self, name: String, text: &str, types: Vec<u32>) -> Result<(), Trouble> {
        if !name.is_empty() && self.statements.contains_key(&name) {
            let message = format!("prepared statement \"{name}\" already exists");
            return Err(Failure::new("42P05", message).into());
        }
        self.statements.remove(&name);
        if self.statements.len() >= NAMES_MAX {
            return Err(Failure::new("54000", "too many prepared statements").into());
        }
        let mut parts = split(&*self.session, text).into_iter();
        let prepared = match (parts.next(), parts.next()) {
            (None, _) => Prepared::Empty,
            (_, Some(_)) => {
                let message = "cannot insert multiple commands into a prepared statement";
                return Err(Failure::new("42601", message).into());
            }
            (Some(part), None) => self.prepare(&part.text, types).await.map_err(|trouble| match trouble {
                Trouble::Failed(failure) => Trouble::Failed(shift(failure, part.offset)),
                gone => gone,
            })?,
        };
        self.statements.insert(name, Arc::new(prepared));
        self.io.reply.parse_complete();
        Ok(())
    }

    async fn prepare(&mut self, text: &str, oids: Vec<u32>) -> Result<Prepared, Trouble> {
        if let Some(own) = own::parse(text)? {
            let mut description = Description { parameters: vec![], columns: None };
            let mut types = vec![];
            if let Own::Declare { query, .. } = &own {
                let inner = Box::pin(self.prepare(query, oids)).await?;
                if let Prepared::Sql { description: found, types: known, .. } = inner {
                    description.parameters = found.parameters;
                    types = known;
                }
            }
            return Ok(Prepared::Own { own, text: text.to_string(), description, types });
        }
        let statement = parse(&*self.session, text)?;
        let is_control = matches!(statement.kind, Kind::Begin | Kind::Control);
        if is_control {
            let description = Description { parameters: vec![], columns: None };
            return Ok(Prepared::Sql { statement, description, types: vec![] });
        }
        if self.session.transaction() == TransactionState::Failed {
            return Err(failed_transaction().into());
        }
        let known: Vec<Option<DataType>> = oids.iter().map(|oid| types::arrow_type(*oid)).collect();
        let described = self.session.describe(&statement, &known);
        let description = until(&mut self.io, &mut self.stops, None, described).await??;
        let types = description
            .parameters
            .iter()
            .enumerate()
            .map(|(at, data_type)| match oids.get(at).copied().unwrap_or(0) {
                0 | types::UNKNOWN => PgType::of(data_type),
                oid => PgType { oid, ..PgType::of(data_type) },
            })
            .collect();
        Ok(Prepared::Sql { statement, description, types })
    }

    fn bind(&mut self, bind: Bind) -> Result<(), Trouble> {
        let Bind { portal, statement, formats, values, result_formats } = bind;
        let prepared = self.prepared(&statement)?;
        let (expected, types): (&[DataType], &[PgType]) = match prepared.as_ref() {
            Prepared::Sql { description, types, .. } | Prepared::Own { description, types, .. } => {
                (&description.parameters, types)
            }
            Prepared::Empty => (&[], &[]),
        };
        if values.len() != expected.len() {
            let message = format!(
                "bind message supplies {} parameters, but prepared statement \"{statement}\" requires {}",
                values.len(),
                expected.len()
            );
            return Err(Failure::new("08P01", message).into());
        }
        if formats.len() > 1 && formats.len() != values.len() {
            let message = format!(
                "bind message has {} parameter formats but {} parameters",
                formats.len(),
                values.len()
            );
            return Err(Failure::new("08P01", message).into());
        }
        if self.session.transaction() == TransactionState::Failed
            && !matches!(prepared.as_ref(), Prepared::Sql { statement, .. } if statement.kind == Kind::Control)
        {
            return Err(failed_transaction().into());
        }
        if !portal.is_empty() && self.portals.contains_key(&portal) {
            return Err(Failure::new("42P03", format!("cursor \"{portal}\" already exists")).into());
        }
        if self.portals.len() >= NAMES_MAX {
            return Err(Failure::new("54000", "too many portals").into());
        }
        let values = values
            .iter()
            .enumerate()
            .map(|(at, value)| {
                let is_binary = formats.get(at).or(formats.first()).is_some_and(|format| *format == 1);
                values::value(value.as_deref(), is_binary, types[at].oid, &expected[at], at + 1)
            })
            .collect::<Result<Vec<_>, _>>()?;
        let state = PortalState::New;
        self.portals.insert(portal, Portal { prepared, values, formats: result_formats, state });
        self.io.reply.bind_complete();
        Ok(())
    }

    fn prepared(&self, name: &str) -> Result<Arc<Prepared>, Failure> {
        self.statements.get(name).cloned().ok_or_else(|| {
            let message = match name.is_empty() {
                true => "unnamed prepared statement does not exist".to_string(),
                false => format!("prepared statement \"{name}\" does not exist"),
            };
            Failure::new("26000", message)
        })
    }

    fn cursor(&mut self, name: &str) -> Result<&mut Cursor, Failure> {
        let missing = || Failure::new("34000", format!("cursor \"{name}\" does not exist"));
        self.cursors.get_mut(name).ok_or_else(missing)
    }

    fn describe(&mut self, target: Target, name: &str) -> Result<(), Trouble> {
        let (prepared, formats) = match target {
            Target::Statement => (self.prepared(name)?, vec![]),
            Target::Portal => match self.portals.get(name) {
                Some(portal) => (Arc::clone(&portal.prepared), portal.formats.clone()),
                // A cursor of SQL is a portal too.
                None if self.cursors.contains_key(name) => {
                    let columns = self.cursor(name)?.rows.columns.clone();
                    self.io.reply.columns(&columns);
                    return Ok(());
                }
                None => {
                    return Err(Failure::new("34000", format!("portal \"{name}\" does not exist")).into());
                }
            },
        };
        if target == Target::Statement {
            match prepared.as_ref() {
                Prepared::Sql { types, .. } | Prepared::Own { types, .. } => self.io.reply.parameters(types),
                Prepared::Empty => self.io.reply.parameters(&[]),
            }
        }
        match prepared.as_ref() {
            Prepared::Sql { description: Description { columns: Some(schema), .. }, .. } => {
                let columns = rows::columns(schema, &formats)?;
                self.io.reply.columns(&columns);
            }
            Prepared::Own { own: Own::Fetch { name, is_move: false, .. }, .. } => {
                let columns = self.cursor(name)?.rows.columns.clone();
                self.io.reply.columns(&columns);
            }
            _ => self.io.reply.no_data(),
        }
        Ok(())
    }

    async fn execute(&mut self, name: String, rows_max: usize) -> Result<(), Trouble> {
        let missing = || Failure::new("34000", format!("portal \"{name}\" does not exist"));
        if !self.portals.contains_key(&name) && self.cursors.contains_key(&name) {
            let count = if rows_max == 0 { Count::All } else { Count::Rows(rows_max) };
            return self.fetch(&name, count, false).await;
        }
        // Taken out while it runs; what fails is not put back.
        let mut portal = self.portals.remove(&name).ok_or_else(missing)?;
        let prepared = Arc::clone(&portal.prepared);
        let state = std::mem::replace(&mut portal.state, PortalState::Done);
        let mut rows = match (state, prepared.as_ref()) {
            (PortalState::Open(rows), _) => *rows,
            (_, Prepared::Empty) => {
                self.io.reply.empty_query();
                self.portals.insert(name, portal);
                return Ok(());
            }
            (PortalState::New, Prepared::Own { own, text, .. }) => {
                self.own(own.clone(), text, &portal.values).await?;
                self.tell_parameters();
                return Ok(());
            }
            (PortalState::New, Prepared::Sql { statement, .. }) => {
                if matches!(statement.kind, Kind::Begin | Kind::Control) {
                    self.join_implicit(statement).await?;
                } else if statement.kind == Kind::Plain && !self.is_last().await? {
                    self.begin_implicit().await?;
                }
                let started = self.start(statement, &portal.values, &portal.formats, false).await?;
                self.tell_parameters();
                match started {
                    Some(rows) => rows,
                    None => {
                        self.portals.insert(name, portal);
                        return Ok(());
                    }
                }
            }
            (PortalState::Done, Prepared::Sql { statement, .. }) => {
                self.io.reply.complete(&format!("{} 0", statement.tag));
                self.portals.insert(name, portal);
                return Ok(());
            }
            (PortalState::Done, Prepared::Own { own, .. }) => {
                self.io.reply.complete(own.tag());
                return Ok(());
            }
        };
        if rows_max == 0 {
            self.rest(rows).await?;
        } else {
            match self.send_rows(&mut rows, rows_max).await {
                Ok(true) => {
                    self.io.reply.complete(&rows.complete());
                    drop(rows);
                    settled(&*self.session, Ok(())).await?;
                }
                Ok(false) => {
                    self.io.reply.suspended();
                    portal.state = PortalState::Open(Box::new(rows));
                }
                Err(trouble) => {
                    let done: Result<(), Trouble> = Err(trouble);
                    self.registry.end(&rows.entry, failure_of(&done));
                    return done;
                }
            }
        }
        self.portals.insert(name, portal);
        Ok(())
    }

    /// Whether nothing but Sync comes behind the present message.
    async fn is_last(&mut self) -> Result<bool, Trouble> {
        if self.is_implicit {
            return Ok(false);
        }
        loop {
            if let Some(next) = self.io.input.first() {
                return Ok(*next == b'S');
            }
            self.io.take_ready().await?;
            if self.io.input.is_empty() {
                self.flush().await?;
                let Self { io, stops, .. } = self;
                tokio::select! {
                    filled = io.fill() => filled?,
                    stop = stopped(stops) => if stop == Stop::Session {
                        return Err(terminated().into());
                    },
                }
            }
        }
    }

    // Cursors, and what else is about the conversation.

    async fn own(&mut self, own: Own, text: &str, values: &[ArrayRef]) -> Result<(), Trouble> {
        if self.session.transaction() == TransactionState::Failed {
            return Err(failed_transaction().into());
        }
        let tag = own.tag();
        match own {
            Own::Declare { name, query, is_held } => self.declare(name, &query, is_held, values).await?,
            Own::Fetch { name, count, is_move } => return self.fetch(&name, count, is_move).await,
            Own::Close(None) => self.cursors.clear(),
            Own::Close(Some(name)) => {
                self.cursor(&name)?;
                self.cursors.remove(&name);
            }
            Own::DiscardAll => {
                if self.session.transaction() == TransactionState::Open {
                    let message = "DISCARD ALL cannot run inside a transaction block";
                    return Err(Failure::new("25001", message).into());
                }
                self.cursors.clear();
                self.portals.clear();
                self.statements.clear();
                self.session.discard().await?;
                self.tell_parameters();
            }
            Own::Deallocate(None) => {
                self.statements.clear();
                self.control(text).await?;
            }
            Own::Deallocate(Some(name)) => {
                if self.statements.remove(&name).is_none() {
                    self.control(text).await?;
                }
            }
            Own::Nothing(_) => {}
        }
        self.io.reply.complete(tag);
        Ok(())
    }

    async fn declare(
        &mut self,
        name: String,
        query: &str,
        is_held: bool,
        values: &[ArrayRef],
    ) -> Result<(), Trouble> {
        if self.session.transaction() == TransactionState::Idle && !is_held {
            let message = "DECLARE CURSOR can only be used in transaction blocks";
            return Err(Failure::new("25P01", message).into());
        }
        if self.cursors.contains_key(&name) {
            return Err(Failure::new("42P03", format!("cursor \"{name}\" already exists")).into());
        }
        if self.cursors.len() >= NAMES_MAX {
            return Err(Failure::new("54000", "too many cursors").into());
        }
        let statement = parse(&*self.session, query)?;
        match self.start(&statement, values, &[], false).await? {
            Some(rows) => {
                self.cursors.insert(name, Cursor { rows, is_held });
                Ok(())
            }
            None => Err(Failure::new("42601", "a cursor is for a query that returns rows").into()),
        }
    }

    async fn fetch(&mut self, name: &str, count: Count, is_move: bool) -> Result<(), Trouble> {
        self.cursor(name)?;
        let Some(mut cursor) = self.cursors.remove(name) else {
            return Ok(());
        };
        let rows_max = match count {
            Count::Rows(rows) => rows,
            Count::All => usize::MAX,
        };
        let before = cursor.rows.sent;
        let done = match is_move {
            false => self.send_rows(&mut cursor.rows, rows_max).await.map(drop),
            true => self.pass_rows(&mut cursor.rows, rows_max).await,
        };
        if done.is_err() {
            self.registry.end(&cursor.rows.entry, failure_of(&done));
            return done;
        }
        let verb = if is_move { "MOVE" } else { "FETCH" };
        self.io.reply.complete(&format!("{verb} {}", cursor.rows.sent - before));
        self.cursors.insert(name.to_string(), cursor);
        Ok(())
    }

    async fn pass_rows(&mut self, rows: &mut OpenRows, rows_max: usize) -> Result<(), Trouble> {
        let mut left = rows_max;
        while left > 0 && until(&mut self.io, &mut self.stops, None, rows.next()).await?? {
            left -= rows.skip(left);
        }
        Ok(())
    }
}

/// Parses a statement. A long one takes its time, which others are not to wait for.
fn parse(session: &dyn Session, text: &str) -> Result<Statement, Failure> {
    match text.len() < LONG_TEXT_BYTES {
        true => session.parse(text),
        false => tokio::task::block_in_place(|| session.parse(text)),
    }
}

fn split(session: &dyn Session, text: &str) -> Vec<Part> {
    match text.len() < LONG_TEXT_BYTES {
        true => session.split(text),
        false => tokio::task::block_in_place(|| session.split(text)),
    }
}

/// What came of a statement, when everything of it was dropped.
async fn settled<T>(session: &dyn Session, done: Result<T, Trouble>) -> Result<T, Trouble> {
    match (done, session.settle().await) {
        (Ok(_), Err(failure)) => Err(failure.into()),
        (done, _) => done,
    }
}

fn failed_transaction() -> Failure {
    let message = "current transaction is aborted, commands ignored until end of transaction block";
    Failure::new("25P02", message)
}

/// The position of a failure in a longer text.
fn shift(failure: Failure, offset: usize) -> Failure {
    Failure { position: failure.position.map(|position| position + offset), ..failure }
}

fn failure_of<T>(done: &Result<T, Trouble>) -> Option<(String, String)> {
    match done {
        Ok(_) => None,
        Err(Trouble::Failed(failure)) => Some((failure.sqlstate.clone(), failure.message.clone())),
        Err(Trouble::Gone(_)) => Some(("57014".to_string(), "the client has gone".to_string())),
    }
}
