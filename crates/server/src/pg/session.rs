//! The conversation with one client that has come in: one message after the other, until it leaves or is sent
//! away.
//!
//! # Transactions
//! A statement alone is its own transaction. Several in one simple query, or between two Syncs, are one: it
//! is opened before the first and committed after the last, unless one of them fails. Whether an Execute is
//! alone is seen from the message behind it, which is therefore waited for.
//!
//! # Errors
//! An error is sent at once, whoever asked for what is behind it: a client that flushes waits for it and
//! sends no Sync before. After one in the extended protocol messages are left unread until Sync. A fatal
//! error ends the conversation.
//!
//! # Cancellation
//! While a statement runs, its client is watched: one that has gone cancels it, as do its time limit, a
//! cancel request and whoever ends the session.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use super::io::Io;
use super::messages::{self, Message, Target};
use super::portal::{OpenRows, Portal, Prepared};
use super::rows::Zone;
use super::scroll::Scroll;
use crate::backend::{Part, Session, TransactionState};
use crate::registry::{Activity, Registry, SessionGuard, Stop};

mod copy;
mod cursors;
mod extended;
mod implicit;
mod interrupt;
mod run;
mod simple;

use harrier_error::{SqlError, SqlState};
pub(super) use interrupt::terminated;
use interrupt::{Stops, expiry, flush, stopped};

/// Bytes of a text from which cutting it into statements is long.
const LONG_TEXT_BYTES: usize = 64 << 10;

/// Prepared statements and portals of a session, at most.
const NAMES_MAX: usize = 10_000;

/// Why something was not done.
pub(super) enum Trouble {
    /// The client is told.
    Failed(SqlError),
    /// Nobody is there to be told.
    Gone(io::Error),
}

impl From<SqlError> for Trouble {
    fn from(failure: SqlError) -> Self {
        Self::Failed(failure)
    }
}

impl From<io::Error> for Trouble {
    fn from(error: io::Error) -> Self {
        Self::Gone(error)
    }
}

/// One client's session.
pub(super) struct Conversation {
    pub(super) io: Io,
    session: Arc<dyn Session>,
    registry: Arc<Registry>,
    guard: SessionGuard,
    stops: Stops,
    statements: HashMap<String, (Arc<Prepared>, SystemTime)>,
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
    /// Its rows are in binary where the client says nothing of that.
    is_binary: bool,
    /// The rows that were had, of one that goes back.
    scroll: Option<Scroll>,
    text: String,
    since: SystemTime,
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
                    self.flush().await?;
                }
            }
        }
    }

    /// Waits for the client, for as long as it may be idle.
    async fn wait(&mut self) -> Result<(), Trouble> {
        let limits = self.session.time_limits();
        let state = self.session.transaction();
        let (limit, code, message) = match state {
            TransactionState::Idle => (
                limits.idle,
                SqlState::IDLE_SESSION_TIMEOUT,
                "terminating connection due to idle-session timeout",
            ),
            _ => (
                limits.idle_in_transaction,
                SqlState::IDLE_IN_TRANSACTION_SESSION_TIMEOUT,
                "terminating connection due to idle-in-transaction timeout",
            ),
        };
        let deadline = limit.map(|limit| Instant::now() + limit);
        self.guard.entry.set_activity(match state {
            TransactionState::Idle => Activity::Idle,
            TransactionState::Open => Activity::IdleInTransaction,
            TransactionState::Failed => Activity::IdleInFailedTransaction,
        });
        let timer = expiry(deadline);
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
                () = &mut timer => return Err(SqlError::fatal(code, message).into()),
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
            _ => Err(SqlError::fatal(SqlState::PROTOCOL_VIOLATION, "unexpected message").into()),
        };
        if let Err(trouble) = done {
            self.is_skipping = true;
            self.report(Err(trouble))?;
            return self.flush().await;
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

    fn fail(&mut self, failure: SqlError) -> Result<(), Trouble> {
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
        flush(&mut self.io, &mut self.stops).await
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
                "TimeZone" => self.zone = Zone::named(&value).with_intervals(self.zone.intervals()),
                "IntervalStyle" => self.zone = self.zone.with_intervals(self.session.interval_text()),
                _ => {}
            }
            self.io.reply.parameter(name, &value);
            self.told.insert(name, value);
        }
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

fn failed_transaction() -> SqlError {
    let message = "current transaction is aborted, commands ignored until end of transaction block";
    SqlError::new(SqlState::FAILED_TRANSACTION, message)
}

/// The position of a failure in a longer text.
fn shift(failure: SqlError, offset: usize) -> SqlError {
    SqlError { position: failure.position.map(|position| position + offset), ..failure }
}

fn failure_of<T>(done: &Result<T, Trouble>) -> Option<(SqlState, String)> {
    match done {
        Ok(_) => None,
        Err(Trouble::Failed(failure)) => Some((failure.sqlstate, failure.message.clone())),
        Err(Trouble::Gone(_)) => Some((SqlState::QUERY_CANCELED, "the client has gone".to_string())),
    }
}
