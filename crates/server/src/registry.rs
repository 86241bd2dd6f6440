//! Registry of sessions and statements, for cancel requests, system views and pages.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime};

use harrier_error::{SqlError, SqlState};
use harrier_session_api::query_profile::{Memory, QueryProfile};
use parking_lot::{Mutex, RwLock};
use tokio::sync::{mpsc, watch};

use crate::probe::Probe;
use crate::trace_parent::TraceParent;

use crate::audit::{self, Audit, Event, StatementOutcome, Subject};

/// Maximum finished statements remembered.
const FINISHED_MAX: usize = 500;

/// Maximum bytes of a statement's text.
const TEXT_BYTES_MAX: usize = 64 << 10;

/// Faster statements' profiles are dropped, unless somebody has viewed them.
const PROFILE_DURATION_MIN: Duration = Duration::from_millis(5);

/// Maximum memory for profiles of finished statements; the oldest is evicted first.
const PROFILE_BYTES_MAX: usize = 32 << 20;

/// Minimum interval between two refreshes of a running statement's profile.
const REFRESH_INTERVAL: Duration = Duration::from_millis(500);

/// Timeout of a refresh.
const REFRESH_TIMEOUT: Duration = Duration::from_secs(2);

/// Upper bounds of the histogram's classes for statement durations, in milliseconds; one more class is above
/// the last.
pub const DURATIONS_MS: [u64; 17] =
    [1, 2, 5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 30_000, 60_000, 300_000, 1_800_000];

/// The sessions and statements of one server.
#[derive(Debug, Default)]
pub struct Registry {
    sessions: Mutex<BTreeMap<i32, Arc<SessionEntry>>>,
    finished: Mutex<Finished>,
    last_session: AtomicI32,
    last_statement: AtomicU64,
    totals: Totals,
    audit: RwLock<Option<Arc<Audit>>>,
    /// Receives finished statements.
    listener: OnceLock<mpsc::Sender<Arc<StatementEntry>>>,
}

/// The last finished statements, the oldest first.
#[derive(Debug, Default)]
struct Finished {
    statements: VecDeque<Arc<StatementEntry>>,
    /// Memory of their [`QueryProfile`]s.
    profile_bytes: usize,
}

/// Counters since the server started.
#[derive(Debug, Default)]
pub struct Totals {
    pub sessions: AtomicU64,
    pub refused: AtomicU64,
    pub statements: AtomicU64,
    pub failures: AtomicU64,
    pub cancels: AtomicU64,
    pub rows: AtomicU64,
    pub bytes: AtomicU64,
    /// Bytes read from files.
    pub read_bytes: AtomicU64,
    /// Bytes moved between ranks.
    pub moved_bytes: AtomicU64,
    pub spilled_bytes: AtomicU64,
    /// Statements retried after the loss of a rank.
    pub retried: AtomicU64,
    /// Statements dropped because the exporter's queue was full.
    pub dropped_exports: AtomicU64,
    /// Total of all finished statements.
    pub running_us: AtomicU64,
    /// Histogram of finished statements' durations: see [`DURATIONS_MS`].
    pub durations: [AtomicU64; DURATIONS_MS.len() + 1],
}

/// A session's activity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Activity {
    Idle,
    Active,
    IdleInTransaction,
    IdleInFailedTransaction,
}

impl Activity {
    /// The name in pg_stat_activity.
    pub fn name(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Active => "active",
            Self::IdleInTransaction => "idle in transaction",
            Self::IdleInFailedTransaction => "idle in transaction (aborted)",
        }
    }
}

/// A stop request to a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// Cancels the running statement; no effect on an idle session.
    Statement,
    /// Terminates the session.
    Session,
    /// Terminates the session once its transaction ends: the server is stopping.
    Drain,
}

/// A client's session.
#[derive(Debug)]
pub struct SessionEntry {
    pub id: i32,
    /// Secret key of cancel requests.
    pub secret: i32,
    pub role: String,
    pub database: String,
    pub client: Option<SocketAddr>,
    pub since: SystemTime,
    application: Mutex<String>,
    activity: Mutex<(Activity, SystemTime)>,
    statement: Mutex<Option<Arc<StatementEntry>>>,
    /// It survives a drain of the server.
    is_operator: AtomicBool,
    stop: watch::Sender<(u64, Option<Stop>)>,
}

/// A statement's phase.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    Parsing,
    /// Waits in a resource queue.
    Queued,
    Planning,
    Running,
    Done,
    Failed,
    Canceled,
}

impl Phase {
    pub fn name(self) -> &'static str {
        match self {
            Self::Parsing => "parsing",
            Self::Queued => "queued",
            Self::Planning => "planning",
            Self::Running => "running",
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Canceled => "canceled",
        }
    }
}

/// A running or finished statement.
#[derive(Debug)]
pub struct StatementEntry {
    pub id: u64,
    pub session: i32,
    pub role: String,
    pub database: String,
    /// Truncated if very long: see `text_bytes`.
    pub text: String,
    /// Of the whole text.
    pub text_bytes: usize,
    /// The caller's span, from the text.
    pub trace: Option<TraceParent>,
    pub since: SystemTime,
    started: Instant,
    inner: Mutex<StatementInner>,
    pub rows: AtomicU64,
    pub bytes: AtomicU64,
}

#[derive(Debug, Default)]
struct StatementInner {
    phase: Option<Phase>,
    queue: Option<String>,
    queued: Duration,
    /// Until the statement ends.
    probe: Option<Arc<dyn Probe>>,
    profile: Option<Arc<QueryProfile>>,
    refreshed: Option<Instant>,
    /// Peak memory over all processes; known after the end.
    peak_bytes: u64,
    failure: Option<(SqlState, String)>,
    duration: Option<Duration>,
    /// Whether it ran on the gang.
    on_gang: bool,
    /// Number of retries after the loss of a rank.
    retries: u64,
}

impl Registry {
    pub fn totals(&self) -> &Totals {
        &self.totals
    }

    /// Sets the audit log of future events; `None` disables auditing.
    pub fn set_audit(&self, audit: Option<Arc<Audit>>) {
        *self.audit.write() = audit;
    }

    pub fn audit(&self) -> Option<Arc<Audit>> {
        self.audit.read().clone()
    }

    /// Checks that new sessions and statements can be audited, if auditing is enabled.
    ///
    /// Errors: they cannot (58030).
    pub fn check_audit(&self) -> Result<(), SqlError> {
        self.audit.read().as_ref().map_or(Ok(()), |audit| audit.check())
    }

    /// Records a failed authentication.
    pub fn refuse(&self, role: &str, database: &str, client: Option<SocketAddr>, failure: &SqlError) {
        if let Some(audit) = &*self.audit.read() {
            let subject = Subject { session: None, role, database, client, application: "" };
            audit.session(Event::AuthenticationFailed, subject, Some(failure));
        }
    }

    /// Allocates a session id.
    pub fn next_session(&self) -> i32 {
        self.last_session.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Lists a session until the guard is dropped.
    pub fn enter(
        self: &Arc<Self>,
        id: i32,
        secret: i32,
        role: &str,
        database: &str,
        client: Option<SocketAddr>,
    ) -> SessionGuard {
        let now = SystemTime::now();
        let entry = Arc::new(SessionEntry {
            id,
            secret,
            role: role.to_string(),
            database: database.to_string(),
            client,
            since: now,
            application: Mutex::default(),
            activity: Mutex::new((Activity::Idle, now)),
            statement: Mutex::default(),
            is_operator: AtomicBool::new(false),
            stop: watch::Sender::new((0, None)),
        });
        self.write_session(Event::Connect, &entry);
        self.totals.sessions.fetch_add(1, Ordering::Relaxed);
        self.sessions.lock().insert(id, Arc::clone(&entry));
        SessionGuard { registry: Arc::clone(self), entry }
    }

    fn write_session(&self, event: Event, session: &SessionEntry) {
        if let Some(audit) = &*self.audit.read() {
            let application = session.application();
            audit.session(event, session.subject(&application), None);
        }
    }

    fn write_statement(&self, statement: &StatementEntry) {
        let audit = self.audit.read();
        let Some((audit, session)) = audit.as_ref().zip(self.session(statement.session)) else {
            return;
        };
        let (application, failure) = (session.application(), statement.failure());
        let outcome = StatementOutcome {
            id: statement.id,
            text: &statement.text,
            failure: failure.as_ref().map(|(state, _)| *state),
            rows: statement.rows.load(Ordering::Relaxed),
            duration: statement.execution_time(),
        };
        audit.statement(session.subject(&application), outcome);
    }

    /// All sessions, by number.
    pub fn sessions(&self) -> Vec<Arc<SessionEntry>> {
        self.sessions.lock().values().cloned().collect()
    }

    pub fn session(&self, id: i32) -> Option<Arc<SessionEntry>> {
        self.sessions.lock().get(&id).cloned()
    }

    /// Running and queued statements, then finished ones, the latest first.
    pub fn statements(&self) -> Vec<Arc<StatementEntry>> {
        let mut all: Vec<_> =
            self.sessions().iter().filter_map(|session| session.statement.lock().clone()).collect();
        let finished = self.finished.lock();
        let running: Vec<u64> = all.iter().map(|statement| statement.id).collect();
        all.extend(finished.statements.iter().rev().filter(|ended| !running.contains(&ended.id)).cloned());
        all
    }

    pub fn statement(&self, id: u64) -> Option<Arc<StatementEntry>> {
        self.statements().into_iter().find(|statement| statement.id == id)
    }

    /// Handles a cancel request: ignored unless its secret is the session's.
    pub fn cancel(&self, id: i32, secret: i32) {
        if let Some(session) = self.session(id).filter(|session| session.secret == secret) {
            session.stop(Stop::Statement);
        }
    }

    /// Lists a session's running statement, with secrets masked.
    pub fn begin(&self, session: &SessionEntry, text: &str) -> Arc<StatementEntry> {
        let entry = self.entry(session, text, Phase::Planning);
        self.totals.statements.fetch_add(1, Ordering::Relaxed);
        *session.statement.lock() = Some(Arc::clone(&entry));
        entry
    }

    /// Lists a text while it is parsed: see [`Registry::end_parsing`].
    pub fn begin_parsing(&self, session: &SessionEntry, text: &str) -> Arc<StatementEntry> {
        let entry = self.entry(session, text, Phase::Parsing);
        *session.statement.lock() = Some(Arc::clone(&entry));
        entry
    }

    /// Removes a parsed, or unparsable, text from the list.
    pub fn end_parsing(&self, session: &SessionEntry, statement: &StatementEntry) {
        session.statement.lock().take_if(|listed| listed.id == statement.id);
    }

    /// Lists a statement that failed to parse or plan.
    pub fn record_rejected(&self, session: &SessionEntry, text: &str, failure: &SqlError) {
        let entry = self.entry(session, text, Phase::Planning);
        self.totals.statements.fetch_add(1, Ordering::Relaxed);
        self.end(&entry, Some((failure.sqlstate, failure.message.clone())));
    }

    fn entry(&self, session: &SessionEntry, text: &str, phase: Phase) -> Arc<StatementEntry> {
        let id = self.last_statement.fetch_add(1, Ordering::Relaxed) + 1;
        let trace = self.listener.get().and_then(|_| TraceParent::in_comment(text));
        let mut text = text.trim();
        let text_bytes = text.len();
        if text.len() > TEXT_BYTES_MAX {
            let end = (0..=TEXT_BYTES_MAX).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
            text = &text[..end];
        }
        Arc::new(StatementEntry {
            id,
            session: session.id,
            role: session.role.clone(),
            database: session.database.clone(),
            text: audit::mask(text),
            text_bytes,
            trace,
            since: SystemTime::now(),
            started: Instant::now(),
            inner: Mutex::new(StatementInner { phase: Some(phase), ..StatementInner::default() }),
            rows: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
        })
    }

    /// Ends a statement; called once. `failure`: SQLSTATE and message.
    pub fn end(&self, statement: &Arc<StatementEntry>, failure: Option<(SqlState, String)>) {
        {
            let mut inner = statement.inner.lock();
            if inner.duration.is_some() {
                return;
            }
            let duration = statement.started.elapsed();
            inner.duration = Some(duration);
            // Drops the probe and its resources.
            let probe = inner.probe.take();
            inner.peak_bytes = probe.as_ref().map_or(0, |probe| sum(&probe.memory()).1);
            if let Some(probe) = probe
                && is_profile_kept(duration, inner.profile.is_some())
            {
                let profile = probe.snapshot();
                if !profile.is_empty() {
                    inner.profile = Some(Arc::new(profile));
                }
            }
            inner.phase = Some(match &failure {
                None => Phase::Done,
                Some((state, _)) if *state == SqlState::QUERY_CANCELED => Phase::Canceled,
                Some(_) => Phase::Failed,
            });
            let counter = match inner.phase {
                Some(Phase::Failed) => Some(&self.totals.failures),
                Some(Phase::Canceled) => Some(&self.totals.cancels),
                _ => None,
            };
            if let Some(counter) = counter {
                counter.fetch_add(1, Ordering::Relaxed);
            }
            inner.failure =
                failure.map(|(state, message)| (state, audit::mask_message(&message, &statement.text)));
        }
        self.write_statement(statement);
        let us = statement.started.elapsed().as_micros() as u64;
        let class = DURATIONS_MS.partition_point(|bound| bound * 1_000 < us);
        self.totals.durations[class].fetch_add(1, Ordering::Relaxed);
        self.totals.running_us.fetch_add(us, Ordering::Relaxed);
        self.totals.rows.fetch_add(statement.rows.load(Ordering::Relaxed), Ordering::Relaxed);
        self.totals.bytes.fetch_add(statement.bytes.load(Ordering::Relaxed), Ordering::Relaxed);
        if let Some(work) = statement.profile() {
            self.totals.read_bytes.fetch_add(work.read_bytes(), Ordering::Relaxed);
            self.totals.moved_bytes.fetch_add(work.moved_bytes(), Ordering::Relaxed);
            self.totals.spilled_bytes.fetch_add(work.spilled_bytes(), Ordering::Relaxed);
        }
        self.finished.lock().push(Arc::clone(statement));
        if let Some(listener) = self.listener.get()
            && listener.try_send(Arc::clone(statement)).is_err()
        {
            self.totals.dropped_exports.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Sends every statement that ends from now on to the channel, unless it is full. The first listener
    /// stays; later ones are ignored.
    pub fn set_listener(&self, listener: mpsc::Sender<Arc<StatementEntry>>) {
        let _ = self.listener.set(listener);
    }
}

impl Finished {
    fn push(&mut self, statement: Arc<StatementEntry>) {
        self.profile_bytes += statement.profile().map_or(0, |profile| profile.memory_bytes());
        self.statements.push_back(statement);
        if self.statements.len() > FINISHED_MAX
            && let Some(oldest) = self.statements.pop_front()
        {
            self.profile_bytes -= oldest.drop_profile();
        }
        let mut oldest = self.statements.iter();
        while self.profile_bytes > PROFILE_BYTES_MAX
            && let Some(statement) = oldest.next()
        {
            self.profile_bytes -= statement.drop_profile();
        }
    }
}

/// Removes a session from the list when dropped.
#[derive(Debug)]
pub struct SessionGuard {
    registry: Arc<Registry>,
    pub entry: Arc<SessionEntry>,
}

impl Drop for SessionGuard {
    fn drop(&mut self) {
        self.registry.write_session(Event::Disconnect, &self.entry);
        self.registry.sessions.lock().remove(&self.entry.id);
    }
}

impl SessionEntry {
    fn subject<'a>(&'a self, application: &'a str) -> Subject<'a> {
        let Self { id, role, database, client, .. } = self;
        Subject { session: Some(*id), role, database, client: *client, application }
    }

    pub fn application(&self) -> String {
        self.application.lock().clone()
    }

    pub fn set_application(&self, name: &str) {
        *self.application.lock() = name.to_string();
    }

    /// Its activity, and since when.
    pub fn activity(&self) -> (Activity, SystemTime) {
        *self.activity.lock()
    }

    pub fn set_activity(&self, activity: Activity) {
        let mut held = self.activity.lock();
        if held.0 != activity {
            *held = (activity, SystemTime::now());
        }
    }

    /// Whether it survives a drain of the server.
    pub fn is_operator(&self) -> bool {
        self.is_operator.load(Ordering::Relaxed)
    }

    pub fn set_operator(&self) {
        self.is_operator.store(true, Ordering::Relaxed);
    }

    /// The running or last statement.
    pub fn statement(&self) -> Option<Arc<StatementEntry>> {
        self.statement.lock().clone()
    }

    /// Sends a stop request to the session.
    pub fn stop(&self, stop: Stop) {
        self.stop.send_modify(|(count, requested)| {
            *count += 1;
            // Termination is final.
            if !matches!(requested, Some(Stop::Session)) {
                *requested = Some(stop);
            }
        });
    }

    /// Subscribes to stop requests.
    pub fn listen(&self) -> watch::Receiver<(u64, Option<Stop>)> {
        let mut receiver = self.stop.subscribe();
        receiver.mark_unchanged();
        receiver
    }

    /// The last stop request.
    pub fn requested_stop(&self) -> Option<Stop> {
        self.stop.borrow().1
    }
}

impl StatementEntry {
    pub fn phase(&self) -> Phase {
        self.inner.lock().phase.unwrap_or(Phase::Planning)
    }

    /// A queued statement stays so until the queue sets it to planning; running is ignored before.
    pub fn set_phase(&self, phase: Phase) {
        let mut inner = self.inner.lock();
        if inner.phase == Some(Phase::Queued) && phase == Phase::Running {
            return;
        }
        if inner.phase == Some(Phase::Queued) && phase != Phase::Queued {
            inner.queued = self.started.elapsed();
        }
        if inner.duration.is_none() {
            inner.phase = Some(phase);
        }
    }

    /// Its resource queue.
    pub fn queue(&self) -> Option<String> {
        self.inner.lock().queue.clone()
    }

    pub fn set_queue(&self, queue: &str) {
        self.inner.lock().queue = Some(queue.to_string());
    }

    /// Time waited in its queue.
    pub fn queue_wait(&self) -> Duration {
        let inner = self.inner.lock();
        if inner.phase == Some(Phase::Queued) { self.started.elapsed() } else { inner.queued }
    }

    /// Sets the source of its profile.
    pub fn set_probe(&self, probe: Arc<dyn Probe>) {
        let mut inner = self.inner.lock();
        if inner.duration.is_none() {
            inner.probe = Some(probe);
        }
    }

    /// The current profile without a refresh; final after the end.
    pub fn profile(&self) -> Option<Arc<QueryProfile>> {
        self.inner.lock().profile.clone()
    }

    /// Refreshes the profile; final after the end.
    pub async fn refresh_profile(&self) -> Option<Arc<QueryProfile>> {
        let probe = {
            let mut inner = self.inner.lock();
            let is_fresh = inner.refreshed.is_some_and(|refreshed| refreshed.elapsed() < REFRESH_INTERVAL);
            match &inner.probe {
                Some(probe) if !is_fresh => {
                    let probe = Arc::clone(probe);
                    inner.refreshed = Some(Instant::now());
                    probe
                }
                _ => return inner.profile.clone(),
            }
        };
        let profile = match tokio::time::timeout(REFRESH_TIMEOUT, probe.refresh()).await {
            Ok(profile) => profile,
            // Ranks that compute without a pause may be late; the plan is known locally.
            Err(_) => probe.snapshot(),
        };
        let mut inner = self.inner.lock();
        // The final profile is not overwritten.
        if !profile.is_empty() && inner.duration.is_none() {
            inner.profile = Some(Arc::new(profile));
        }
        inner.profile.clone()
    }

    /// Reserved bytes over all processes, and the sum of each one's peak, as known locally: on the gang, as
    /// of the last refresh. Zero after the end, with the final peak.
    pub fn memory(&self) -> (u64, u64) {
        let probe = {
            let inner = self.inner.lock();
            match &inner.probe {
                Some(probe) => Arc::clone(probe),
                None => return (0, inner.peak_bytes),
            }
        };
        sum(&probe.memory())
    }

    /// Drops the profile; returns the memory freed.
    fn drop_profile(&self) -> usize {
        self.inner.lock().profile.take().map_or(0, |profile| profile.memory_bytes())
    }

    pub fn is_on_gang(&self) -> bool {
        self.inner.lock().on_gang
    }

    pub fn set_on_gang(&self) {
        self.inner.lock().on_gang = true;
    }

    /// Number of retries because a rank was lost before its first row.
    pub fn retries(&self) -> u64 {
        self.inner.lock().retries
    }

    pub fn count_retry(&self) {
        self.inner.lock().retries += 1;
    }

    /// SQLSTATE and message of its error.
    pub fn failure(&self) -> Option<(SqlState, String)> {
        self.inner.lock().failure.clone()
    }

    /// Execution time so far, or in total.
    pub fn execution_time(&self) -> Duration {
        self.inner.lock().duration.unwrap_or_else(|| self.started.elapsed())
    }

    pub fn has_ended(&self) -> bool {
        self.inner.lock().duration.is_some()
    }
}

/// Current and peak bytes.
fn sum(memory: &[Memory]) -> (u64, u64) {
    let add = |(bytes, peak): (u64, u64), memory: &Memory| (bytes + memory.bytes, peak + memory.peak_bytes);
    memory.iter().fold((0, 0), add)
}

/// Whether a finished statement's profile is kept.
fn is_profile_kept(duration: Duration, was_viewed: bool) -> bool {
    duration >= PROFILE_DURATION_MIN || was_viewed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fast_statements_have_no_profile() {
        assert!(!is_profile_kept(PROFILE_DURATION_MIN - Duration::from_nanos(1), false));
        assert!(is_profile_kept(PROFILE_DURATION_MIN, false) && is_profile_kept(Duration::ZERO, true));
    }
}
