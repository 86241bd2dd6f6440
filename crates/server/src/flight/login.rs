//! Logins, and the backend sessions on which a client's statements run.
//!
//! A client has a token, and for it one session, like a connection of the PostgreSQL protocol. Flight clients
//! run several statements concurrently, though: they request metadata while a statement's rows arrive, or
//! read the rows of two statements in turn. So:
//!
//! ```text
//! statement ─┬─ in a transaction ──► the session of the transaction, one statement at a time
//!            └─ in none ──┬─ the client's session is free ──► use it
//!                         ├─ SQL has opened a transaction on it ──► wait for it
//!                         └─ it is busy ──► a temporary session with the same settings
//! ```
//!
//! A protocol transaction takes the client's session if that is free, or else one of its own. Successful SET
//! statements are recorded and replayed on further sessions; those of a transaction once it has committed.
//!
//! A login ends when the client closes it, after its idle timeout, some time after its connection is lost, or
//! when its session is terminated. Its transactions are rolled back then.

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use bytes::Bytes;
use harrier_error::{SqlError, SqlState};
use harrier_session_api::session::{SessionIdentity, TransactionState};
use parking_lot::Mutex;
use tokio::sync::{Notify, OwnedMutexGuard, OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::{CancellationToken, DropGuard};
use uuid::Uuid;

use super::configuration::Flight;
use super::connection::{Connection, Peer};
use super::consumer::Rows;
use super::prepared::Prepared;
use crate::auth::Attempt;
use crate::backend::BackendSession;
use crate::execution::{parse_single, stopping_error, terminated_error};
use crate::registry::{SessionGuard, Stop};

/// Maximum recorded settings of a client. There are fewer parameters; a client with many spellings of them
/// loses the oldest.
const SETTINGS_MAX: usize = 256;

/// All logins.
pub(super) struct Site {
    pub flight: Flight,
    logins: Mutex<HashMap<String, Arc<Login>>>,
    is_draining: AtomicBool,
    /// Statements and transactions in progress.
    open: AtomicUsize,
    ended: Notify,
}

/// An authenticated client.
pub(super) struct Login {
    /// Secret.
    token: String,
    role: String,
    database: String,
    client: SocketAddr,
    application: String,
    /// Without a user or token; lives as long as its connection.
    is_anonymous: bool,
    main: Arc<HostedSession>,
    sides: Arc<Semaphore>,
    connection: Mutex<Weak<Connection>>,
    /// Statements that run or send rows.
    active: AtomicUsize,
    has_ended: AtomicBool,
    inner: Mutex<Inner>,
}

struct Inner {
    used: Instant,
    settings: VecDeque<(String, String)>,
    transactions: HashMap<Bytes, Transaction>,
    savepoints: HashMap<Bytes, Savepoint>,
    prepared: HashMap<Bytes, Arc<Prepared>>,
    results: HashMap<Bytes, PendingResult>,
}

struct Transaction {
    hosted: Arc<HostedSession>,
    settings: Vec<String>,
    /// Counts as open for the site, and keeps its session's permit.
    _open: Open,
    _side: Option<OwnedSemaphorePermit>,
}

#[derive(Clone)]
pub(super) struct Savepoint {
    pub transaction: Bytes,
    pub name: String,
}

/// Rows waiting to be fetched, or being sent.
struct PendingResult {
    rows: Option<(Rows, DropGuard)>,
    canceled: CancellationToken,
    session: i32,
    since: Instant,
}

/// A backend session, listed in the registry.
pub(super) struct HostedSession {
    pub session: Arc<dyn BackendSession>,
    pub guard: SessionGuard,
    busy: Arc<tokio::sync::Mutex<()>>,
    /// SQL has opened a transaction that outlives its statement.
    is_in_transaction: AtomicBool,
    /// A protocol transaction uses the session.
    is_claimed: AtomicBool,
    /// Cancels the current or last statement.
    current: Mutex<CancellationToken>,
}

impl HostedSession {
    pub fn set_current(&self, canceled: &CancellationToken) {
        *self.current.lock() = canceled.clone();
    }
}

/// The right to run a statement on a session.
pub(super) struct Lease {
    pub hosted: Arc<HostedSession>,
    /// The session ends with the statement.
    pub is_side: bool,
    transaction: Option<Bytes>,
    login: Arc<Login>,
    side: Option<OwnedSemaphorePermit>,
    _open: Open,
    _busy: OwnedMutexGuard<()>,
}

impl Lease {
    /// Records the effects of a successful statement.
    pub fn ran(&self, text: &str, tag: &str) {
        if matches!(tag, "SET" | "RESET" | "DISCARD ALL") {
            let mut inner = self.login.inner.lock();
            match &self.transaction {
                None => inner.record_setting(text),
                Some(id) => {
                    if let Some(transaction) = inner.transactions.get_mut(id) {
                        transaction.settings.push(text.to_string());
                    }
                }
            }
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let is_in_transaction = self.hosted.session.transaction() != TransactionState::Idle;
        self.hosted.is_in_transaction.store(is_in_transaction, Ordering::Release);
        self.login.active.fetch_sub(1, Ordering::AcqRel);
        self.login.inner.lock().used = Instant::now();
    }
}

/// Delays a draining site's stop.
struct Open(Arc<Site>);

impl Open {
    fn new(site: &Arc<Site>) -> Self {
        site.open.fetch_add(1, Ordering::AcqRel);
        Self(Arc::clone(site))
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        if self.0.open.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.ended.notify_waiters();
        }
    }
}

impl Site {
    pub fn new(flight: Flight) -> Self {
        Self {
            flight,
            logins: Mutex::default(),
            is_draining: AtomicBool::new(false),
            open: AtomicUsize::new(0),
            ended: Notify::new(),
        }
    }

    /// Logs a client in. Returns its token.
    pub async fn log_in(
        self: &Arc<Self>,
        attempt: Attempt<'_>,
        application: &str,
        peer: &Peer,
    ) -> Result<Arc<Login>, SqlError> {
        let refused = || self.flight.registry.totals().refused.fetch_add(1, Ordering::Relaxed);
        if self.is_draining() {
            refused();
            return Err(stopping_error());
        }
        if self.logins.lock().len() >= self.flight.limits.sessions_max {
            refused();
            return Err(SqlError::fatal(SqlState::TOO_MANY_CONNECTIONS, "sorry, too many clients already"));
        }
        let role = self.flight.authenticate.authenticate(&attempt).await.inspect_err(|failure| {
            refused();
            self.flight.registry.refuse(attempt.user, attempt.database, Some(attempt.client), failure);
        })?;
        let is_anonymous = attempt.password.is_none() && attempt.user.is_empty();
        let main = self.host(&role, attempt.database, application, peer.address).await?;
        let login = Arc::new(Login {
            token: format!("{}{}", Uuid::new_v4().simple(), Uuid::new_v4().simple()),
            role,
            database: attempt.database.to_string(),
            client: peer.address,
            application: application.to_string(),
            is_anonymous,
            main,
            sides: Arc::new(Semaphore::new(self.flight.limits.statements_beside_max)),
            connection: Mutex::new(Arc::downgrade(&peer.connection)),
            active: AtomicUsize::new(0),
            has_ended: AtomicBool::new(false),
            inner: Mutex::new(Inner {
                used: Instant::now(),
                settings: VecDeque::new(),
                transactions: HashMap::new(),
                savepoints: HashMap::new(),
                prepared: HashMap::new(),
                results: HashMap::new(),
            }),
        });
        self.logins.lock().insert(login.token.clone(), Arc::clone(&login));
        self.watch(&login);
        Ok(login)
    }

    /// Finds the login of a token from this peer.
    pub fn find(&self, token: &str, peer: &Peer) -> Option<Arc<Login>> {
        let login = self.logins.lock().get(token).filter(|login| !login.is_anonymous).cloned()?;
        *login.connection.lock() = Arc::downgrade(&peer.connection);
        login.inner.lock().used = Instant::now();
        Some(login)
    }

    /// The login of a connection without a user.
    pub async fn anonymous(
        self: &Arc<Self>,
        database: &str,
        application: &str,
        peer: &Peer,
    ) -> Result<Arc<Login>, SqlError> {
        let mut token = peer.connection.anonymous.lock().await;
        let login = token.as_ref().and_then(|token| self.logins.lock().get(token).cloned());
        if let Some(login) = login.filter(|login| !login.has_ended()) {
            login.inner.lock().used = Instant::now();
            return Ok(login);
        }
        let attempt = Attempt {
            user: "",
            password: None,
            database,
            client: peer.address,
            server: peer.server,
            is_encrypted: peer.is_encrypted,
            certificate: peer.certificate.as_deref(),
        };
        let login = self.log_in(attempt, application, peer).await?;
        *token = Some(login.token.clone());
        Ok(login)
    }

    /// Ends a login: cancels running statements, and rolls back open transactions.
    pub fn end(&self, login: &Login) {
        if !login.has_ended.swap(true, Ordering::AcqRel) {
            self.logins.lock().remove(&login.token);
            let (transactions, results) = {
                let mut inner = login.inner.lock();
                inner.prepared.clear();
                inner.savepoints.clear();
                (std::mem::take(&mut inner.transactions), std::mem::take(&mut inner.results))
            };
            for held in results.values() {
                held.canceled.cancel();
            }
            login.main.current.lock().cancel();
            for transaction in transactions.values() {
                transaction.hosted.current.lock().cancel();
            }
        }
    }

    pub fn is_draining(&self) -> bool {
        self.is_draining.load(Ordering::Acquire)
    }

    /// Rejects new clients, and returns when all statements and transactions have ended.
    pub async fn drain(&self) {
        self.is_draining.store(true, Ordering::Release);
        loop {
            let ended = self.ended.notified();
            tokio::pin!(ended);
            ended.as_mut().enable();
            // Statements that began before the drain was visible are counted by now.
            if self.open.load(Ordering::Acquire) == 0 {
                break;
            }
            ended.await;
        }
        let logins: Vec<_> = self.logins.lock().values().cloned().collect();
        for login in logins {
            self.end(&login);
        }
    }

    /// Ends logins and results past their timeouts.
    pub fn sweep(&self) {
        let limits = &self.flight.limits;
        let logins: Vec<_> = self.logins.lock().values().cloned().collect();
        for login in logins {
            let (idle, left) = {
                let mut inner = login.inner.lock();
                let is_stale =
                    |held: &PendingResult| held.rows.is_some() && held.since.elapsed() > limits.result;
                let left: Vec<_> = inner.results.extract_if(|_, held| is_stale(held)).collect();
                (inner.used.elapsed(), left)
            };
            // Dropping them cancels running statements.
            drop(left);
            if login.active.load(Ordering::Acquire) > 0 {
                continue;
            }
            let is_connected = login.connection.lock().strong_count() > 0;
            let grace = if login.is_anonymous { Duration::ZERO } else { limits.disconnected };
            let is_drained =
                login.main.guard.entry.requested_stop() == Some(Stop::Drain) && login.is_at_rest();
            if idle > limits.idle || (!is_connected && idle > grace) || is_drained {
                self.end(&login);
            }
        }
    }

    async fn host(
        &self,
        role: &str,
        database: &str,
        application: &str,
        client: SocketAddr,
    ) -> Result<Arc<HostedSession>, SqlError> {
        let registry = &self.flight.registry;
        let process = registry.next_session();
        let identity = SessionIdentity {
            role: role.to_string(),
            database: database.to_string(),
            process,
            client: Some(client),
            server: None,
        };
        let settings = vec![("application_name".to_string(), application.to_string())];
        let secret = Uuid::new_v4().as_u128() as i32;
        // Registered before it is open, so that terminating all sessions finds it.
        let guard = registry.enter(process, secret, role, database, Some(client));
        let session = self.flight.backend.open(identity, settings).await?;
        guard.entry.set_application(application);
        Ok(Arc::new(HostedSession {
            session,
            guard,
            busy: Arc::default(),
            is_in_transaction: AtomicBool::new(false),
            is_claimed: AtomicBool::new(false),
            current: Mutex::new(CancellationToken::new()),
        }))
    }

    /// Ends a login when its session is terminated. Running statements are notified separately.
    fn watch(self: &Arc<Self>, login: &Arc<Login>) {
        let mut stops = login.main.guard.entry.listen();
        let (site, login) = (Arc::downgrade(self), Arc::downgrade(login));
        tokio::spawn(async move {
            while stops.changed().await.is_ok() {
                let asked = stops.borrow_and_update().1;
                let (Some(site), Some(login)) = (site.upgrade(), login.upgrade()) else { return };
                if asked == Some(Stop::Session) {
                    site.end(&login);
                    return;
                }
                if asked == Some(Stop::Drain) && login.is_at_rest() {
                    site.end(&login);
                    return;
                }
            }
        });
    }

    /// Finds a session for a statement, as described above.
    ///
    /// Errors: 25P01 there is no such transaction; 55006 its session is busy, and stays so for longer than a
    /// prompt client needs; 53300 too many statements of the client run; 57P01, 57P03 the session, or the
    /// server, ends.
    pub async fn lease(
        self: &Arc<Self>,
        login: &Arc<Login>,
        transaction: Option<&Bytes>,
    ) -> Result<Lease, SqlError> {
        if login.has_ended() {
            return Err(terminated_error());
        }
        if let Some(id) = transaction.filter(|id| !id.is_empty()) {
            let hosted = login.transaction(id)?;
            let lease = self.wait_for(login, &hosted, Some(id)).await?;
            // It may have ended during the wait.
            login.transaction(id)?;
            return if hosted.guard.entry.requested_stop() == Some(Stop::Session) {
                Err(terminated_error())
            } else {
                Ok(lease)
            };
        }
        let main = &login.main;
        let open = Open::new(self);
        if main.is_in_transaction.load(Ordering::Acquire) && !main.is_claimed.load(Ordering::Acquire) {
            return self.wait_for(login, main, None).await;
        }
        if self.is_draining() || main.guard.entry.requested_stop() == Some(Stop::Drain) {
            return Err(stopping_error());
        }
        if !main.is_claimed.load(Ordering::Acquire) {
            // A canceled statement is about to free the session.
            let is_ending = main.current.lock().is_cancelled();
            let busy = if is_ending {
                let lock = Arc::clone(&main.busy).lock_owned();
                tokio::time::timeout(self.flight.limits.busy, lock).await.ok()
            } else {
                Arc::clone(&main.busy).try_lock_owned().ok()
            };
            match busy {
                // A transaction may have begun meanwhile.
                Some(busy) if !main.is_claimed.load(Ordering::Acquire) => {
                    return Ok(self.new_lease(login, main, None, None, busy));
                }
                _ if main.is_in_transaction.load(Ordering::Acquire)
                    && !main.is_claimed.load(Ordering::Acquire) =>
                {
                    return self.wait_for(login, main, None).await;
                }
                _ => {}
            }
        }
        let permit = Arc::clone(&login.sides).acquire_owned();
        let side = match tokio::time::timeout(self.flight.limits.busy, permit).await {
            Ok(Ok(side)) => side,
            _ => {
                return Err(SqlError::new(
                    SqlState::TOO_MANY_CONNECTIONS,
                    "too many statements of this connection run at once",
                )
                .with_hint("Read the rows of others to their end, or cancel them."));
            }
        };
        let hosted = self.host(&login.role, &login.database, &login.application, login.client).await?;
        let busy = Arc::clone(&hosted.busy).lock_owned().await;
        let lease = self.new_lease(login, &hosted, None, Some(side), busy);
        drop(open);
        let settings: Vec<_> = login.inner.lock().settings.iter().map(|(_, text)| text.clone()).collect();
        for text in settings {
            let registry = Arc::clone(&self.flight.registry);
            let entry = registry.begin(&hosted.guard.entry, &text);
            let set = async {
                match parse_single(&*hosted.session, &text).await? {
                    Some(statement) => hosted.session.execute(&statement, &[], &entry).await.map(drop),
                    None => Ok(()),
                }
            };
            let set = set.await;
            let settled = hosted.session.settle().await;
            let result = set.and(settled);
            registry.end(&entry, result.as_ref().err().map(|it| (it.sqlstate, it.message.clone())));
            result?;
        }
        Ok(lease)
    }

    async fn wait_for(
        self: &Arc<Self>,
        login: &Arc<Login>,
        hosted: &Arc<HostedSession>,
        transaction: Option<&Bytes>,
    ) -> Result<Lease, SqlError> {
        // Results not yet fetched are dropped, like those of PostgreSQL's unnamed portal.
        let session = hosted.guard.entry.id;
        let is_left = |held: &PendingResult| held.rows.is_some() && held.session == session;
        let left: Vec<_> = login.inner.lock().results.extract_if(|_, held| is_left(held)).collect();
        drop(left);
        let busy = Arc::clone(&hosted.busy).lock_owned();
        match tokio::time::timeout(self.flight.limits.busy, busy).await {
            Ok(busy) => Ok(self.new_lease(login, hosted, transaction.cloned(), None, busy)),
            Err(_) => Err(SqlError::new(
                SqlState::OBJECT_IN_USE,
                "rows of another statement of this transaction are still being read",
            )
            .with_hint("Read them to their end first, or use another connection.")),
        }
    }

    fn new_lease(
        self: &Arc<Self>,
        login: &Arc<Login>,
        hosted: &Arc<HostedSession>,
        transaction: Option<Bytes>,
        side: Option<OwnedSemaphorePermit>,
        busy: OwnedMutexGuard<()>,
    ) -> Lease {
        login.active.fetch_add(1, Ordering::AcqRel);
        Lease {
            hosted: Arc::clone(hosted),
            is_side: side.is_some(),
            transaction,
            login: Arc::clone(login),
            side,
            _open: Open::new(self),
            _busy: busy,
        }
    }

    /// Assigns a lease's session, after BEGIN, to a new transaction. Returns its handle.
    pub fn claim(self: &Arc<Self>, lease: &mut Lease) -> Bytes {
        let id = handle();
        lease.hosted.is_claimed.store(true, Ordering::Release);
        let transaction = Transaction {
            hosted: Arc::clone(&lease.hosted),
            settings: Vec::new(),
            _open: Open::new(self),
            _side: lease.side.take(),
        };
        let login = Arc::clone(&lease.login);
        login.inner.lock().transactions.insert(id.clone(), transaction);
        id
    }
}

/// An unguessable handle.
pub(super) fn handle() -> Bytes {
    Bytes::copy_from_slice(Uuid::new_v4().as_bytes())
}

impl Inner {
    /// Records a setting; replaces an earlier one of the same name.
    fn record_setting(&mut self, text: &str) {
        let words = text.trim().trim_end_matches(';');
        let lower = words.to_ascii_lowercase();
        if lower == "discard all" || lower == "reset all" {
            self.settings.clear();
            return;
        }
        let end = [lower.find('='), lower.find(" to ")].into_iter().flatten().min().unwrap_or(lower.len());
        let name = lower[..end].split_whitespace().collect::<Vec<_>>().join(" ");
        self.settings.retain(|(held, _)| *held != name);
        self.settings.push_back((name, words.to_string()));
        if self.settings.len() > SETTINGS_MAX {
            self.settings.pop_front();
        }
    }
}

impl Login {
    pub fn token(&self) -> &str {
        &self.token
    }

    pub fn database(&self) -> &str {
        &self.database
    }

    /// The value of a parameter in the client's session.
    pub fn parameter(&self, name: &str) -> Option<String> {
        self.main.session.parameter(name)
    }

    /// Whether nothing runs and no transaction is open.
    fn is_at_rest(&self) -> bool {
        self.active.load(Ordering::Acquire) == 0
            && !self.main.is_in_transaction.load(Ordering::Acquire)
            && self.inner.lock().transactions.is_empty()
    }

    fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::Acquire)
    }

    fn transaction(&self, id: &Bytes) -> Result<Arc<HostedSession>, SqlError> {
        let inner = self.inner.lock();
        let transaction = inner.transactions.get(id).map(|transaction| Arc::clone(&transaction.hosted));
        transaction.ok_or_else(|| {
            SqlError::new(SqlState::NO_ACTIVE_TRANSACTION, "there is no such transaction, or it has ended")
        })
    }

    /// The transaction that a prepared statement runs in: the one that it was prepared in. If that has ended,
    /// the currently open one, since ADBC prepares a cursor's statement once and reuses it in later
    /// transactions; its execute calls name none. With none open, it runs in its own.
    pub fn transaction_of(&self, prepared: &Prepared) -> Option<Bytes> {
        let id = prepared.transaction.as_ref()?;
        let inner = self.inner.lock();
        if inner.transactions.contains_key(id) || inner.transactions.len() > 1 {
            Some(id.clone())
        } else {
            inner.transactions.keys().next().cloned()
        }
    }

    /// The transaction of an ingestion that names none: the open one, if there is exactly one. ADBC's driver
    /// never names it, although its connections are in a transaction unless the user asks for autocommit.
    pub fn only_transaction(&self) -> Option<Bytes> {
        let inner = self.inner.lock();
        let mut open = inner.transactions.keys();
        open.next().filter(|_| inner.transactions.len() == 1).cloned()
    }

    /// Removes an ended transaction. `is_committed`: keeps its settings.
    pub fn release(&self, id: &Bytes, is_committed: bool) {
        let mut inner = self.inner.lock();
        inner.savepoints.retain(|_, savepoint| savepoint.transaction != *id);
        let Some(transaction) = inner.transactions.remove(id) else { return };
        transaction.hosted.is_claimed.store(false, Ordering::Release);
        if is_committed {
            for text in &transaction.settings {
                inner.record_setting(text);
            }
        }
        drop(inner);
    }

    pub fn add_savepoint(&self, transaction: &Bytes, name: &str) -> Bytes {
        let id = handle();
        let savepoint = Savepoint { transaction: transaction.clone(), name: name.to_string() };
        self.inner.lock().savepoints.insert(id.clone(), savepoint);
        id
    }

    pub fn savepoint(&self, id: &Bytes) -> Result<Savepoint, SqlError> {
        let savepoint = self.inner.lock().savepoints.get(id).cloned();
        savepoint.ok_or_else(|| {
            SqlError::new(SqlState::INVALID_SAVEPOINT, "there is no such savepoint, or it was released")
        })
    }

    pub fn remove_savepoint(&self, id: &Bytes) {
        self.inner.lock().savepoints.remove(id);
    }

    /// Stores a prepared statement. Returns its handle.
    pub fn prepare(&self, prepared: Prepared, most: usize) -> Result<Bytes, SqlError> {
        let mut inner = self.inner.lock();
        if inner.prepared.len() >= most {
            let hint = "Close those that are not needed any more.";
            return Err(SqlError::new(
                SqlState::CONFIGURATION_LIMIT_EXCEEDED,
                "too many prepared statements",
            )
            .with_hint(hint));
        }
        let id = handle();
        inner.prepared.insert(id.clone(), Arc::new(prepared));
        Ok(id)
    }

    pub fn prepared_statement(&self, id: &Bytes) -> Result<Arc<Prepared>, SqlError> {
        let prepared = self.inner.lock().prepared.get(id).cloned();
        prepared.ok_or_else(|| {
            SqlError::new(
                SqlState::INVALID_STATEMENT_NAME,
                "there is no such prepared statement, or it was closed",
            )
        })
    }

    pub fn close_prepared(&self, id: &Bytes) {
        self.inner.lock().prepared.remove(id);
    }

    /// Stores rows until the client fetches them. Returns their handle.
    pub fn store_result(
        &self,
        rows: Rows,
        canceled: CancellationToken,
        guard: DropGuard,
        session: i32,
        most: usize,
    ) -> Bytes {
        let id = handle();
        let held = PendingResult { rows: Some((rows, guard)), canceled, session, since: Instant::now() };
        let mut inner = self.inner.lock();
        let left = inner.results.iter().filter(|(_, held)| held.rows.is_some());
        let oldest = if left.clone().count() >= most {
            left.min_by_key(|(_, held)| held.since).map(|(id, _)| id.clone())
        } else {
            None
        };
        let oldest = oldest.and_then(|id| inner.results.remove(&id));
        inner.results.insert(id.clone(), held);
        drop(inner);
        // Dropping them cancels a running statement.
        drop(oldest);
        id
    }

    /// Takes the rows of a ticket; works once.
    pub fn take_result(&self, id: &Bytes) -> Result<(Rows, DropGuard), SqlError> {
        let mut inner = self.inner.lock();
        let rows = inner.results.get_mut(id).and_then(|held| held.rows.take());
        rows.ok_or_else(|| {
            SqlError::new(
                SqlState::INVALID_CURSOR_NAME,
                "there are no such rows: they were read before, or not asked for in time",
            )
        })
    }

    /// Removes a ticket whose rows have been sent.
    pub fn remove_result(&self, id: &Bytes) {
        self.inner.lock().results.remove(id);
    }

    /// Cancels the statement of a ticket. Returns false for an unknown ticket.
    pub fn cancel(&self, id: &Bytes) -> bool {
        let held = {
            let mut inner = self.inner.lock();
            match inner.results.get(id) {
                Some(held) if held.rows.is_none() => Err(held.canceled.clone()),
                _ => Ok(inner.results.remove(id)),
            }
        };
        match held {
            Err(canceled) => {
                canceled.cancel();
                true
            }
            Ok(held) => held.is_some(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_of_the_same_name_replace_each_other() {
        let mut inner = Inner {
            used: Instant::now(),
            settings: VecDeque::new(),
            transactions: HashMap::new(),
            savepoints: HashMap::new(),
            prepared: HashMap::new(),
            results: HashMap::new(),
        };
        for text in
            ["SET  search_path = a", "set timezone TO 'UTC'", "SET search_path=b, c;", "RESET timezone"]
        {
            inner.record_setting(text);
        }
        let texts: Vec<_> = inner.settings.iter().map(|(_, text)| text.as_str()).collect();
        assert_eq!(texts, ["set timezone TO 'UTC'", "SET search_path=b, c", "RESET timezone"]);
        inner.record_setting("DISCARD ALL");
        assert!(inner.settings.is_empty());
    }
}
