//! The message loop of one authenticated client, until it leaves or the server ends the session.
//!
//! # Transactions
//! A single statement is its own transaction. Several in one simple query, or between two Syncs, share an
//! implicit transaction: it begins before the first and commits after the last, unless one of them fails. The
//! next message shows whether an Execute is alone, so the session waits for it.
//!
//! # Errors
//! An error is sent at once, without waiting for Sync: a client that flushes waits for it and sends no Sync
//! before. After an error in the extended protocol, messages are skipped until Sync. A fatal error ends the
//! session.
//!
//! # Cancellation
//! While a statement runs, its client is watched: a disconnect cancels it, as do its time limit, a cancel
//! request and the end of the session.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use super::io::Io;
use super::messages::{self, Message, Target};
use super::portal::{OpenRows, Portal, Prepared};
use super::scroll::Scroll;
use super::zone::Zone;
use crate::backend::BackendSession;
use crate::registry::{Activity, Registry, SessionGuard, Stop};

mod copy;
mod cursors;
mod extended;
mod implicit;
mod interrupt;
mod run;
mod simple;

use harrier_error::{SqlError, SqlState};
use harrier_session_api::session::TransactionState;
use harrier_session_api::statement::StatementPart;
pub(super) use interrupt::terminated_error;
use interrupt::{Stops, expiry, flush, next_stop};

/// Texts of at least this many bytes are split off the async threads.
const LONG_TEXT_BYTES: usize = 64 << 10;

/// Maximum number of prepared statements and portals in a session.
const NAMES_MAX: usize = 10_000;

/// Why a request failed.
pub(super) enum RequestError {
    /// An error to report to the client.
    Failed(SqlError),
    /// The client has disconnected.
    Disconnected(io::Error),
}

impl From<SqlError> for RequestError {
    fn from(failure: SqlError) -> Self {
        Self::Failed(failure)
    }
}

impl From<io::Error> for RequestError {
    fn from(error: io::Error) -> Self {
        Self::Disconnected(error)
    }
}

/// A client's session.
pub(super) struct ClientSession {
    pub(super) io: Io,
    session: Arc<dyn BackendSession>,
    registry: Arc<Registry>,
    guard: SessionGuard,
    stops: Stops,
    statements: HashMap<String, (Arc<Prepared>, SystemTime)>,
    portals: HashMap<String, Portal>,
    cursors: HashMap<String, Cursor>,
    /// An implicit transaction is open.
    is_implicit: bool,
    /// Messages are skipped until Sync.
    is_skipping: bool,
    /// Version of the parameters last reported to the client.
    version: u64,
    reported: HashMap<&'static str, String>,
    zone: Zone,
}

struct Cursor {
    rows: OpenRows,
    is_held: bool,
    /// Binary output unless the client requests a format.
    is_binary: bool,
    /// The buffered rows of a scrollable cursor.
    scroll: Option<Scroll>,
    text: String,
    since: SystemTime,
}

impl ClientSession {
    pub(super) fn new(
        io: Io,
        session: Arc<dyn BackendSession>,
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
            reported: HashMap::new(),
            zone: Zone::from_name("UTC"),
        }
    }

    /// Runs the message loop until the client disconnects.
    pub(super) async fn run(&mut self) {
        self.report_parameters();
        self.ready();
        let ended = match self.flush().await {
            Ok(()) => self.talk().await,
            gone => gone,
        };
        match ended {
            Ok(()) => {}
            Err(RequestError::Disconnected(error)) => {
                tracing::debug!(session = self.guard.entry.id, %error, "a client has gone")
            }
            Err(RequestError::Failed(failure)) => {
                self.io.reply.failure(&failure);
                let _ = tokio::time::timeout(Duration::from_secs(1), self.io.flush()).await;
            }
        }
    }

    async fn talk(&mut self) -> Result<(), RequestError> {
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

    /// Waits for the client, within its idle timeout.
    async fn wait(&mut self) -> Result<(), RequestError> {
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
            match self.guard.entry.requested_stop() {
                Some(Stop::Session) => return Err(terminated_error().into()),
                Some(Stop::Drain) if state == TransactionState::Idle => return Err(terminated_error().into()),
                _ => {}
            }
            tokio::select! {
                biased;
                filled = self.io.fill() => {
                    filled?;
                    break;
                }
                _ = next_stop(&mut self.stops) => {}
                () = &mut timer => return Err(SqlError::fatal(code, message).into()),
            }
        }
        self.guard.entry.set_activity(Activity::Active);
        Ok(())
    }

    async fn message(&mut self, message: Message) -> Result<(), RequestError> {
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
            // The rest of a COPY that has failed.
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
        if let Err(error) = done {
            self.is_skipping = true;
            self.report(Err(error))?;
            return self.flush().await;
        }
        if self.io.is_full() { self.flush().await } else { Ok(()) }
    }

    /// Reports an error to the client. Returns only errors that end the session.
    fn report(&mut self, done: Result<(), RequestError>) -> Result<(), RequestError> {
        match done {
            Err(RequestError::Failed(failure)) => self.fail(failure),
            other => other,
        }
    }

    fn fail(&mut self, failure: SqlError) -> Result<(), RequestError> {
        if failure.is_fatal {
            return Err(failure.into());
        }
        self.session.fail();
        self.io.reply.failure(&failure);
        Ok(())
    }

    fn ready(&mut self) {
        // Without a transaction its rows are gone.
        if self.session.transaction() != TransactionState::Open {
            self.portals.clear();
            self.cursors.retain(|_, cursor| cursor.is_held);
        }
        self.io.reply.ready(self.session.transaction());
    }

    async fn flush(&mut self) -> Result<(), RequestError> {
        flush(&mut self.io, &mut self.stops).await
    }

    async fn sync(&mut self) -> Result<(), RequestError> {
        self.is_skipping = false;
        let ended = self.end_implicit().await;
        self.report(ended)?;
        self.ready();
        self.flush().await
    }

    /// Reports changed parameters to the client.
    fn report_parameters(&mut self) {
        let Some((version, parameters)) = self.session.parameter_status(self.version) else {
            return;
        };
        self.version = version;
        for (name, value) in parameters {
            if self.reported.get(name) == Some(&value) {
                continue;
            }
            match name {
                "application_name" => self.guard.entry.set_application(&value),
                "TimeZone" => self.zone = Zone::from_name(&value).with_intervals(self.zone.intervals()),
                "IntervalStyle" => self.zone = self.zone.with_intervals(self.session.interval_text()),
                _ => {}
            }
            self.io.reply.parameter(name, &value);
            self.reported.insert(name, value);
        }
    }
}

fn split(session: &dyn BackendSession, text: &str) -> Vec<StatementPart> {
    match text.len() < LONG_TEXT_BYTES {
        true => session.split(text),
        false => tokio::task::block_in_place(|| session.split(text)),
    }
}

/// Waits for a statement's cleanup, and returns its outcome.
async fn settle_with<T>(
    session: &dyn BackendSession,
    done: Result<T, RequestError>,
) -> Result<T, RequestError> {
    match (done, session.settle().await) {
        (Ok(_), Err(failure)) => Err(failure.into()),
        (done, _) => done,
    }
}

fn failed_transaction() -> SqlError {
    let message = "current transaction is aborted, commands ignored until end of transaction block";
    SqlError::new(SqlState::FAILED_TRANSACTION, message)
}

/// Shifts the position of an error in a longer text.
fn shift(failure: SqlError, offset: usize) -> SqlError {
    SqlError { position: failure.position.map(|position| position + offset), ..failure }
}

fn failure_of<T>(done: &Result<T, RequestError>) -> Option<(SqlState, String)> {
    match done {
        Ok(_) => None,
        Err(RequestError::Failed(failure)) => Some((failure.sqlstate, failure.message.clone())),
        Err(RequestError::Disconnected(_)) => {
            Some((SqlState::QUERY_CANCELED, "the client has gone".to_string()))
        }
    }
}
