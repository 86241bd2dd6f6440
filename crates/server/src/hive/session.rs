//! Sessions, and the site that has all of them.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use harrier_error::{SqlError, SqlState};
use harrier_session_api::session::{SessionIdentity, TransactionState};
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::configuration::Hive;
use super::ends::Ends;
use super::handle::{Guid, Handle};
use super::lane::Lane;
use super::operation::Operation;
use crate::auth::Attempt;
use crate::execution::{stopping_error, terminated_error};
use crate::registry::{SessionGuard, Stop};

/// The interval of checks for open sessions while draining.
const DRAIN_INTERVAL: Duration = Duration::from_millis(20);

/// A drain waits so long for a client to fetch its next rows.
const UNREAD_PATIENCE: Duration = Duration::from_secs(10);

/// All sessions.
pub(super) struct Site {
    pub hive: Hive,
    sessions: Mutex<HashMap<Guid, Arc<Session>>>,
    is_draining: AtomicBool,
}

/// A client's session.
pub(super) struct Session {
    pub handle: Handle,
    pub role: String,
    /// The protocol version that both sides speak.
    pub protocol: i64,
    pub lane: Arc<Lane>,
    operations: Mutex<HashMap<Guid, Arc<Operation>>>,
    used: Mutex<Instant>,
    /// Calls being answered.
    calls: std::sync::atomic::AtomicUsize,
    ended: CancellationToken,
}

/// A session in use: it is not idle.
pub(super) struct Call(pub Arc<Session>);

impl Drop for Call {
    fn drop(&mut self) {
        *self.0.used.lock() = Instant::now();
        self.0.calls.fetch_sub(1, Ordering::AcqRel);
    }
}

fn invalid_session(handle: Option<&Handle>) -> SqlError {
    let name = handle.map(Handle::name).unwrap_or_default();
    SqlError::new(SqlState::PROTOCOL_VIOLATION, format!("Invalid SessionHandle: SessionHandle [{name}]"))
        .with_hint("The session has ended; connect again.")
}

fn invalid_operation(handle: Option<&Handle>) -> SqlError {
    let name = handle.map(Handle::name).unwrap_or_default();
    SqlError::new(
        SqlState::INVALID_CURSOR_NAME,
        format!("Invalid OperationHandle: OperationHandle [getHandleIdentifier()={name}]"),
    )
}

impl Site {
    pub fn new(hive: Hive) -> Self {
        Self { hive, sessions: Mutex::default(), is_draining: AtomicBool::new(false) }
    }

    /// Authenticates a client by what it has sent. Returns its role.
    pub async fn authenticate(
        &self,
        ends: &Ends,
        user: &str,
        password: Option<&str>,
    ) -> Result<String, SqlError> {
        let attempt = Attempt {
            user,
            password,
            database: &self.hive.database,
            client: ends.client,
            server: ends.server,
            is_encrypted: ends.is_encrypted,
            certificate: ends.certificate.as_deref(),
        };
        let registry = &self.hive.registry;
        let result = self.hive.authenticate.authenticate(&attempt).await;
        result.inspect_err(|failure| {
            registry.totals().refused.fetch_add(1, Ordering::Relaxed);
            registry.refuse(user, attempt.database, Some(ends.client), failure);
        })
    }

    /// Opens a session for an authenticated role.
    pub async fn open(
        &self,
        role: &str,
        ends: &Ends,
        protocol: i64,
        settings: Vec<(String, String)>,
    ) -> Result<Arc<Session>, SqlError> {
        if self.is_draining() {
            return Err(stopping_error());
        }
        let registry = &self.hive.registry;
        let database = self.hive.database.as_str();
        let process = registry.next_session();
        let secret = Uuid::new_v4().as_u128() as i32;
        // Registered before it is open, so that terminating all sessions finds it.
        let guard: SessionGuard = registry.enter(process, secret, role, database, Some(ends.client));
        if registry.sessions().len() > self.hive.limits.sessions_max {
            registry.totals().refused.fetch_add(1, Ordering::Relaxed);
            return Err(SqlError::fatal(SqlState::TOO_MANY_CONNECTIONS, "sorry, too many clients already"));
        }
        let identity = SessionIdentity {
            role: role.to_string(),
            database: database.to_string(),
            process,
            client: Some(ends.client),
            server: Some(ends.server),
        };
        let all = self.hive.settings.iter().cloned().chain(settings).collect();
        let backend = self.hive.backend.open(identity, all).await?;
        guard.entry.set_application(&backend.parameter("application_name").unwrap_or_default());
        let session = Arc::new(Session {
            handle: Handle::new(),
            role: role.to_string(),
            protocol,
            lane: Arc::new(Lane::new(backend, guard, Arc::clone(registry))),
            operations: Mutex::default(),
            used: Mutex::new(Instant::now()),
            calls: Default::default(),
            ended: CancellationToken::new(),
        });
        self.sessions.lock().insert(session.handle.guid, Arc::clone(&session));
        Ok(session)
    }

    /// The session of a handle. `role`: that of the connection, if it has been authenticated.
    ///
    /// Errors: there is none (08P01), or it has been terminated (57P01).
    pub fn find(&self, handle: Option<Handle>, role: Option<&str>) -> Result<Call, SqlError> {
        let found = handle.and_then(|handle| {
            let session = self.sessions.lock().get(&handle.guid).cloned()?;
            let is_own = role.is_none_or(|role| role == session.role);
            (is_own && session.handle.is_same(&handle)).then_some(session)
        });
        let session = found.ok_or_else(|| invalid_session(handle.as_ref()))?;
        if session.lane.guard.entry.requested_stop() == Some(Stop::Session) {
            self.end(&session);
            return Err(terminated_error());
        }
        session.calls.fetch_add(1, Ordering::AcqRel);
        Ok(Call(session))
    }

    /// The operation of a handle, and its session.
    ///
    /// Errors: there is none (34000).
    pub fn operation(
        &self,
        handle: Option<Handle>,
        role: Option<&str>,
    ) -> Result<(Call, Arc<Operation>), SqlError> {
        let found = handle.and_then(|handle| {
            let sessions: Vec<_> = self.sessions.lock().values().cloned().collect();
            sessions.into_iter().find_map(|session| {
                let operation = session.operations.lock().get(&handle.guid).cloned()?;
                let is_own = role.is_none_or(|role| role == session.role);
                (is_own && operation.handle.is_same(&handle)).then_some((session, operation))
            })
        });
        let (session, operation) = found.ok_or_else(|| invalid_operation(handle.as_ref()))?;
        operation.touch();
        Ok((self.find(Some(session.handle), role)?, operation))
    }

    /// Ends a session: cancels its statements, and rolls back an open transaction.
    pub fn end(&self, session: &Session) {
        self.sessions.lock().remove(&session.handle.guid);
        session.ended.cancel();
        let operations = std::mem::take(&mut *session.operations.lock());
        operations.values().for_each(|operation| operation.cancel());
    }

    /// Ends a session by its name, if it is still there.
    pub fn end_named(&self, guid: &Guid) {
        let session = self.sessions.lock().get(guid).cloned();
        if let Some(session) = session {
            self.end(&session);
        }
    }

    pub fn is_draining(&self) -> bool {
        self.is_draining.load(Ordering::Acquire)
    }

    /// Rejects new sessions, and returns when all statements and transactions have ended.
    pub async fn drain(&self) {
        self.is_draining.store(true, Ordering::Release);
        loop {
            let sessions: Vec<_> = self.sessions.lock().values().cloned().collect();
            if sessions.is_empty() {
                return;
            }
            sessions.iter().filter(|session| session.is_at_rest()).for_each(|session| self.end(session));
            tokio::time::sleep(DRAIN_INTERVAL).await;
        }
    }

    /// Ends terminated and idle sessions, and closes idle operations.
    pub fn sweep(&self) {
        let limits = &self.hive.limits;
        let sessions: Vec<_> = self.sessions.lock().values().cloned().collect();
        for session in sessions {
            let stop = session.lane.guard.entry.requested_stop();
            let is_drained = stop == Some(Stop::Drain) && session.is_at_rest();
            let is_idle = session.calls.load(Ordering::Acquire) == 0
                && session.used.lock().elapsed() > limits.idle
                && session.lane.is_free();
            if stop == Some(Stop::Session) || is_drained || is_idle {
                self.end(&session);
                continue;
            }
            let idle: Vec<_> = {
                let mut operations = session.operations.lock();
                operations
                    .extract_if(|_, operation| {
                        operation.progress().state.has_ended() && operation.idle() > limits.idle_operation
                    })
                    .collect()
            };
            idle.iter().for_each(|(_, operation)| operation.cancel());
        }
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        for session in self.sessions.get_mut().values() {
            session.ended.cancel();
            session.operations.lock().values().for_each(|operation| operation.cancel());
        }
    }
}

impl Session {
    /// Whether nothing runs, not even for rows that are left to fetch, and no transaction is open.
    fn is_at_rest(&self) -> bool {
        self.calls.load(Ordering::Acquire) == 0
            && self.lane.is_free()
            && self.lane.backend.transaction() == TransactionState::Idle
            && self.operations.lock().values().all(|it| it.is_read() || it.idle() > UNREAD_PATIENCE)
    }

    /// Ready when the session ends.
    pub fn end_token(&self) -> CancellationToken {
        self.ended.clone()
    }

    /// Lists an operation.
    ///
    /// Errors: there are too many (53400).
    pub fn add(&self, operation: &Arc<Operation>, most: usize) -> Result<(), SqlError> {
        let mut operations = self.operations.lock();
        if operations.len() >= most || self.ended.is_cancelled() {
            operation.cancel();
            return Err(SqlError::new(
                SqlState::CONFIGURATION_LIMIT_EXCEEDED,
                "too many operations of the session are not closed",
            )
            .with_hint("Close statements that are not needed any more."));
        }
        operations.insert(operation.handle.guid, Arc::clone(operation));
        Ok(())
    }

    /// Closes an operation: its statement is canceled, its rows are dropped.
    pub fn close(&self, operation: &Operation) {
        self.operations.lock().remove(&operation.handle.guid);
        operation.cancel();
    }
}
