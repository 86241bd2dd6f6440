//! Who is here and what runs: the sessions and statements of a server, for cancel requests, views and pages.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime};

use harrier_error::{SqlError, SqlState};
use parking_lot::{Mutex, RwLock};
use tokio::sync::{mpsc, watch};

use crate::telemetry::TraceParent;
use crate::work::{Memory, Probe, Work};

use crate::audit::{self, Audit, Event, Ran, Subject};

/// Statements that have ended are remembered until this many others have.
const FINISHED_MAX: usize = 500;

/// Bytes of a statement's text that are kept.
const TEXT_BYTES_MAX: usize = 64 << 10;

/// Of a statement that took less, nobody wants to know what its operators did, unless somebody has looked.
const WORK_MIN: Duration = Duration::from_millis(5);

/// What statements that have ended did is kept in so much memory; the oldest is forgotten first.
const WORK_BYTES_MAX: usize = 32 << 20;

/// A statement that runs is looked at no more often, however many watch it.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// How long a look may take.
const LOOK_PATIENCE: Duration = Duration::from_secs(2);

/// Upper bounds of the classes that durations of statements are counted in, in milliseconds; above the last
/// is one more.
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
    /// Who is told of statements that have ended.
    listener: OnceLock<mpsc::Sender<Arc<StatementEntry>>>,
}

/// The last statements that have ended, the oldest first.
#[derive(Debug, Default)]
struct Finished {
    statements: VecDeque<Arc<StatementEntry>>,
    /// That their [`Work`] takes.
    work_bytes: usize,
}

/// What was counted since the server began.
#[derive(Debug, Default)]
pub struct Totals {
    pub sessions: AtomicU64,
    pub refused: AtomicU64,
    pub statements: AtomicU64,
    pub failures: AtomicU64,
    pub cancels: AtomicU64,
    pub rows: AtomicU64,
    pub bytes: AtomicU64,
    /// From files.
    pub read_bytes: AtomicU64,
    /// Between ranks.
    pub moved_bytes: AtomicU64,
    pub spilled_bytes: AtomicU64,
    /// Statements that were run once more after the loss of a rank.
    pub retried: AtomicU64,
    /// Statements that nobody could be told of, because too many had ended before.
    pub untold: AtomicU64,
    /// Of all statements that have ended.
    pub running_us: AtomicU64,
    /// Statements that have ended, by how long they took: see [`DURATIONS_MS`].
    pub durations: [AtomicU64; DURATIONS_MS.len() + 1],
}

/// What a session is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Activity {
    Idle,
    Active,
    IdleInTransaction,
    IdleInFailedTransaction,
}

impl Activity {
    /// As pg_stat_activity says it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Active => "active",
            Self::IdleInTransaction => "idle in transaction",
            Self::IdleInFailedTransaction => "idle in transaction (aborted)",
        }
    }
}

/// Why a session has to stop what it does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// The statement that runs is canceled; nothing happens to a session that is idle.
    Statement,
    /// The session ends: somebody ended it.
    Session,
    /// The session ends when its transaction has: the server is stopping.
    Drain,
}

/// A client's session.
#[derive(Debug)]
pub struct SessionEntry {
    pub id: i32,
    /// What a cancel request has to know.
    pub secret: i32,
    pub role: String,
    pub database: String,
    pub client: Option<SocketAddr>,
    pub since: SystemTime,
    application: Mutex<String>,
    activity: Mutex<(Activity, SystemTime)>,
    statement: Mutex<Option<Arc<StatementEntry>>>,
    /// It stays when the server is drained.
    is_operator: AtomicBool,
    stop: watch::Sender<(u64, Option<Stop>)>,
}

/// How far a statement is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    Parsing,
    /// It waits for its turn in a resource queue.
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

/// A statement that runs or has run.
#[derive(Debug)]
pub struct StatementEntry {
    pub id: u64,
    pub session: i32,
    pub role: String,
    pub database: String,
    /// The beginning, if it is very long: see `text_bytes`.
    pub text: String,
    /// Of the whole text.
    pub text_bytes: usize,
    /// What it is a part of, if its text says so.
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
    /// Until it has ended.
    probe: Option<Arc<dyn Probe>>,
    work: Option<Arc<Work>>,
    looked: Option<Instant>,
    /// Of memory, of all processes together: known when it has ended.
    peak_bytes: u64,
    failure: Option<(SqlState, String)>,
    ran: Option<Duration>,
    /// Whether it ran on the gang.
    on_gang: bool,
    /// How often a part of it was run once more after the loss of a rank.
    retries: u64,
}

impl Registry {
    pub fn totals(&self) -> &Totals {
        &self.totals
    }

    /// Has what happens from now on written to a log, or not any more.
    pub fn set_audit(&self, audit: Option<Arc<Audit>>) {
        *self.audit.write() = audit;
    }

    pub fn audit(&self) -> Option<Arc<Audit>> {
        self.audit.read().clone()
    }

    /// Whether sessions and statements may begin: what happens has to be written to the audit log, if there
    /// is one.
    ///
    /// Errors: it cannot be (58030).
    pub fn check_audit(&self) -> Result<(), SqlError> {
        self.audit.read().as_ref().map_or(Ok(()), |audit| audit.check())
    }

    /// To be told of a client that could not prove who it is.
    pub fn refuse(&self, role: &str, database: &str, client: Option<SocketAddr>, failure: &SqlError) {
        if let Some(audit) = &*self.audit.read() {
            let subject = Subject { session: None, role, database, client, application: "" };
            audit.session(Event::AuthenticationFailed, subject, Some(failure));
        }
    }

    /// A number for a session that is about to be.
    pub fn next_session(&self) -> i32 {
        self.last_session.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// The session is listed until the guard is dropped.
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
        let ran = Ran {
            id: statement.id,
            text: &statement.text,
            failure: failure.as_ref().map(|(state, _)| *state),
            rows: statement.rows.load(Ordering::Relaxed),
            took: statement.elapsed(),
        };
        audit.statement(session.subject(&application), ran);
    }

    /// All sessions, by number.
    pub fn sessions(&self) -> Vec<Arc<SessionEntry>> {
        self.sessions.lock().values().cloned().collect()
    }

    pub fn session(&self, id: i32) -> Option<Arc<SessionEntry>> {
        self.sessions.lock().get(&id).cloned()
    }

    /// Statements that run or wait, then those that have ended, the latest first.
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

    /// What a cancel request does: nothing, unless its secret is the session's.
    pub fn cancel(&self, id: i32, secret: i32) {
        if let Some(session) = self.session(id).filter(|session| session.secret == secret) {
            session.stop(Stop::Statement);
        }
    }

    /// Lists a statement of a session as the one that it runs, without the secrets in it.
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

    /// Takes a text that has been parsed, or not, off the list.
    pub fn end_parsing(&self, session: &SessionEntry, statement: &StatementEntry) {
        session.statement.lock().take_if(|listed| listed.id == statement.id);
    }

    /// Lists a statement that never ran: it cannot be parsed, or planned.
    pub fn never_ran(&self, session: &SessionEntry, text: &str, failure: &SqlError) {
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

    /// To be called once, when a statement has ended; `failure`: SQLSTATE and message.
    pub fn end(&self, statement: &Arc<StatementEntry>, failure: Option<(SqlState, String)>) {
        {
            let mut inner = statement.inner.lock();
            if inner.ran.is_some() {
                return;
            }
            let ran = statement.started.elapsed();
            inner.ran = Some(ran);
            // With the probe goes what it holds on to.
            let probe = inner.probe.take();
            inner.peak_bytes = probe.as_ref().map_or(0, |probe| sum(&probe.memory()).1);
            if let Some(probe) = probe
                && is_work_kept(ran, inner.work.is_some())
            {
                let work = probe.told();
                if !work.is_empty() {
                    inner.work = Some(Arc::new(work));
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
        if let Some(work) = statement.work() {
            self.totals.read_bytes.fetch_add(work.read_bytes(), Ordering::Relaxed);
            self.totals.moved_bytes.fetch_add(work.moved_bytes(), Ordering::Relaxed);
            self.totals.spilled_bytes.fetch_add(work.spilled_bytes(), Ordering::Relaxed);
        }
        self.finished.lock().push(Arc::clone(statement));
        if let Some(listener) = self.listener.get()
            && listener.try_send(Arc::clone(statement)).is_err()
        {
            self.totals.untold.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Every statement that ends from now on is sent there, unless it is full. There can be one listener; a
    /// second is not heard of.
    pub fn tell(&self, listener: mpsc::Sender<Arc<StatementEntry>>) {
        let _ = self.listener.set(listener);
    }
}

impl Finished {
    fn push(&mut self, statement: Arc<StatementEntry>) {
        self.work_bytes += statement.work().map_or(0, |work| work.held_bytes());
        self.statements.push_back(statement);
        if self.statements.len() > FINISHED_MAX
            && let Some(oldest) = self.statements.pop_front()
        {
            self.work_bytes -= oldest.forget_work();
        }
        let mut oldest = self.statements.iter();
        while self.work_bytes > WORK_BYTES_MAX
            && let Some(statement) = oldest.next()
        {
            self.work_bytes -= statement.forget_work();
        }
    }
}

/// Takes a session off the list when it is dropped.
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

    /// What it does, and since when.
    pub fn activity(&self) -> (Activity, SystemTime) {
        *self.activity.lock()
    }

    pub fn set_activity(&self, activity: Activity) {
        let mut held = self.activity.lock();
        if held.0 != activity {
            *held = (activity, SystemTime::now());
        }
    }

    /// Whether it stays when the server is drained.
    pub fn is_operator(&self) -> bool {
        self.is_operator.load(Ordering::Relaxed)
    }

    pub fn set_operator(&self) {
        self.is_operator.store(true, Ordering::Relaxed);
    }

    /// The statement that runs, or ran last.
    pub fn statement(&self) -> Option<Arc<StatementEntry>> {
        self.statement.lock().clone()
    }

    /// Asks the session to stop something.
    pub fn stop(&self, stop: Stop) {
        self.stop.send_modify(|(count, asked)| {
            *count += 1;
            // An end is not taken back.
            if !matches!(asked, Some(Stop::Session)) {
                *asked = Some(stop);
            }
        });
    }

    /// Hears of what the session is asked to stop from now on.
    pub fn listen(&self) -> watch::Receiver<(u64, Option<Stop>)> {
        let mut receiver = self.stop.subscribe();
        receiver.mark_unchanged();
        receiver
    }

    /// What it was asked last.
    pub fn asked(&self) -> Option<Stop> {
        self.stop.borrow().1
    }
}

impl StatementEntry {
    pub fn phase(&self) -> Phase {
        self.inner.lock().phase.unwrap_or(Phase::Planning)
    }

    /// A statement that waits in a queue does so until the queue says that it is planned; that it runs is not
    /// heard before.
    pub fn set_phase(&self, phase: Phase) {
        let mut inner = self.inner.lock();
        if inner.phase == Some(Phase::Queued) && phase == Phase::Running {
            return;
        }
        if inner.phase == Some(Phase::Queued) && phase != Phase::Queued {
            inner.queued = self.started.elapsed();
        }
        if inner.ran.is_none() {
            inner.phase = Some(phase);
        }
    }

    /// The resource queue that it belongs to.
    pub fn queue(&self) -> Option<String> {
        self.inner.lock().queue.clone()
    }

    pub fn set_queue(&self, queue: &str) {
        self.inner.lock().queue = Some(queue.to_string());
    }

    /// How long it has waited in its queue.
    pub fn queued(&self) -> Duration {
        let inner = self.inner.lock();
        if inner.phase == Some(Phase::Queued) { self.started.elapsed() } else { inner.queued }
    }

    /// From now on the statement can be looked at.
    pub fn set_probe(&self, probe: Arc<dyn Probe>) {
        let mut inner = self.inner.lock();
        if inner.ran.is_none() {
            inner.probe = Some(probe);
        }
    }

    /// What is known of what it does without asking anybody; of one that has ended, what it did.
    pub fn work(&self) -> Option<Arc<Work>> {
        self.inner.lock().work.clone()
    }

    /// What it does now; of one that has ended, what it did.
    pub async fn look(&self) -> Option<Arc<Work>> {
        let probe = {
            let mut inner = self.inner.lock();
            let is_fresh = inner.looked.is_some_and(|looked| looked.elapsed() < LOOK_EVERY);
            match &inner.probe {
                Some(probe) if !is_fresh => {
                    let probe = Arc::clone(probe);
                    inner.looked = Some(Instant::now());
                    probe
                }
                _ => return inner.work.clone(),
            }
        };
        let work = match tokio::time::timeout(LOOK_PATIENCE, probe.look()).await {
            Ok(work) => work,
            // Ranks that compute without a pause may be late; what the plan is, is known here.
            Err(_) => probe.told(),
        };
        let mut inner = self.inner.lock();
        // Its end has the last word.
        if !work.is_empty() && inner.ran.is_none() {
            inner.work = Some(Arc::new(work));
        }
        inner.work.clone()
    }

    /// Bytes of memory that it has reserved on all processes together, and the sum of the most that each had
    /// at once, as far as that is known here: of a statement on the gang, when it was looked at last. Nothing
    /// is left of one that has ended.
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

    /// Returns how much memory it gave back.
    fn forget_work(&self) -> usize {
        self.inner.lock().work.take().map_or(0, |work| work.held_bytes())
    }

    pub fn is_on_gang(&self) -> bool {
        self.inner.lock().on_gang
    }

    pub fn set_on_gang(&self) {
        self.inner.lock().on_gang = true;
    }

    /// How often a part of it was run once more, because a rank was lost before its first row.
    pub fn retries(&self) -> u64 {
        self.inner.lock().retries
    }

    pub fn count_retry(&self) {
        self.inner.lock().retries += 1;
    }

    /// SQLSTATE and message, if it failed.
    pub fn failure(&self) -> Option<(SqlState, String)> {
        self.inner.lock().failure.clone()
    }

    /// How long it ran, or runs until now.
    pub fn elapsed(&self) -> Duration {
        self.inner.lock().ran.unwrap_or_else(|| self.started.elapsed())
    }

    pub fn has_ended(&self) -> bool {
        self.inner.lock().ran.is_some()
    }
}

/// Bytes now, and at most.
fn sum(memory: &[Memory]) -> (u64, u64) {
    let add = |(bytes, peak): (u64, u64), memory: &Memory| (bytes + memory.bytes, peak + memory.peak_bytes);
    memory.iter().fold((0, 0), add)
}

/// Whether it is remembered what a statement that took so long did.
fn is_work_kept(ran: Duration, is_looked_at: bool) -> bool {
    ran >= WORK_MIN || is_looked_at
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_fast_statements_nothing_is_kept() {
        assert!(!is_work_kept(WORK_MIN - Duration::from_nanos(1), false));
        assert!(is_work_kept(WORK_MIN, false) && is_work_kept(Duration::ZERO, true));
    }
}
