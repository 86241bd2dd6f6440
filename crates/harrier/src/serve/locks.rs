//! Advisory locks between sessions of this server, with PostgreSQL's functions. They lock nothing in the
//! warehouse, and other servers do not share them.
//!
//! # Invariants
//! A lock is held by one session exclusively, or shared by several. A request waits behind all earlier
//! conflicting requests.
//!
//! # Order of calls
//! [`Locks::release_transaction`] after a statement outside of a transaction, and after a transaction;
//! [`Locks::release_all`] when the session ends.
//!
//! # Memory bound
//! [`LOCKS_MAX`] locks over all sessions (53200).
//!
//! # Errors
//! 40P01: deadlock, the sessions in the way wait for the caller; 55P03: `lock_timeout` has expired.
//!
//! # Cancellation
//! Dropping the future of [`Locks::lock`] withdraws the request.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use arrow::datatypes::DataType;
use datafusion::common::ScalarValue;
use datafusion::error::Result;
use futures::FutureExt;
use harrier_engine::AdvisoryLock;
use harrier_engine::{Caller, SqlState, WaitingFunction};
use harrier_error::SqlError;
use parking_lot::Mutex;
use tokio::sync::oneshot;

/// Maximum number of locks held by all sessions.
const LOCKS_MAX: usize = 1 << 20;

/// Maximum wait of `pg_sleep`, about a year.
const SLEEP_MAX: Duration = Duration::from_secs(366 * 24 * 60 * 60);

/// Key of a lock: one 64-bit number, or two 32-bit numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Key {
    One(i64),
    Two(i32, i32),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Mode {
    Shared,
    Exclusive,
}

impl Mode {
    fn is_compatible(self, other: Self) -> bool {
        self == Self::Shared && other == Self::Shared
    }
}

/// Lifetime of a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Scope {
    Session,
    Transaction,
}

/// The advisory locks of one server.
#[derive(Debug, Default)]
pub(super) struct Locks(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    keys: BTreeMap<Key, State>,
    /// Keys that a session holds or waits for.
    of_sessions: BTreeMap<i32, BTreeSet<Key>>,
    last_request: u64,
    lock_count: usize,
}

#[derive(Debug, Default)]
struct State {
    /// Acquisition count of each holder.
    holders: BTreeMap<(i32, Mode, Scope), u64>,
    waiting: VecDeque<Request>,
}

#[derive(Debug)]
struct Request {
    number: u64,
    session: i32,
    mode: Mode,
    scope: Scope,
    granted: oneshot::Sender<()>,
}

impl State {
    /// Whether another session holds it in a mode that conflicts with `mode`.
    fn conflicts(&self, session: i32, mode: Mode) -> bool {
        self.holders.keys().any(|(holder, held, _)| *holder != session && !held.is_compatible(mode))
    }

    fn holds(&self, session: i32, mode: Mode) -> bool {
        self.holders.keys().any(|(holder, held, _)| *holder == session && *held >= mode)
    }

    /// Whether `session` can acquire it now. `before`: earlier requests; a session that already holds the
    /// lock ignores them.
    fn can_acquire<'w>(
        &self,
        session: i32,
        mode: Mode,
        mut before: impl Iterator<Item = &'w Request>,
    ) -> bool {
        if self.conflicts(session, mode) {
            return false;
        }
        self.holds(session, mode)
            || !before.any(|request| request.session != session && !request.mode.is_compatible(mode))
    }

    /// Sessions that block the request at `at`.
    fn blockers(&self, at: usize) -> BTreeSet<i32> {
        let Some(request) = self.waiting.get(at) else { return BTreeSet::new() };
        let others =
            |session: &i32, mode: Mode| *session != request.session && !mode.is_compatible(request.mode);
        let holders = self.holders.keys().filter(|(session, mode, _)| others(session, *mode));
        let before = self.waiting.iter().take(at).filter(|before| others(&before.session, before.mode));
        holders.map(|(session, ..)| *session).chain(before.map(|before| before.session)).collect()
    }
}

impl Inner {
    fn acquire(&mut self, key: Key, session: i32, mode: Mode, scope: Scope) {
        let holders = &mut self.keys.entry(key).or_default().holders;
        let count = holders.entry((session, mode, scope)).or_insert_with(|| {
            self.lock_count += 1;
            0
        });
        *count += 1;
        self.of_sessions.entry(session).or_default().insert(key);
    }

    /// Grants all requests that can be granted, in order, and removes unused keys.
    fn grant(&mut self, key: Key) {
        loop {
            let Some(state) = self.keys.get_mut(&key) else { return };
            let ready = (0..state.waiting.len()).find(|at| {
                let request = &state.waiting[*at];
                state.can_acquire(request.session, request.mode, state.waiting.iter().take(*at))
            });
            let Some(request) = ready.and_then(|at| state.waiting.remove(at)) else {
                if state.holders.is_empty() && state.waiting.is_empty() {
                    self.keys.remove(&key);
                }
                return;
            };
            self.acquire(key, request.session, request.mode, request.scope);
            if request.granted.send(()).is_err() {
                // The request was canceled.
                self.release_one(key, request.session, request.mode, request.scope);
            }
        }
    }

    /// Reverts one [`Self::take`]; false if there was none.
    fn release_one(&mut self, key: Key, session: i32, mode: Mode, scope: Scope) -> bool {
        let Some(state) = self.keys.get_mut(&key) else { return false };
        let Some(count) = state.holders.get_mut(&(session, mode, scope)) else { return false };
        *count -= 1;
        if *count == 0 {
            state.holders.remove(&(session, mode, scope));
            self.lock_count -= 1;
        }
        true
    }

    /// Releases all locks of a session with a matching scope, whatever their counts.
    fn release(&mut self, session: i32, matches: impl Fn(Scope) -> bool) {
        let keys: Vec<Key> = self.of_sessions.get(&session).into_iter().flatten().copied().collect();
        for key in keys {
            let Some(state) = self.keys.get_mut(&key) else { continue };
            let before = state.holders.len();
            state.holders.retain(|(holder, _, scope), _| *holder != session || !matches(*scope));
            self.lock_count -= before - state.holders.len();
            let stays = state.holders.keys().any(|(holder, ..)| *holder == session)
                || state.waiting.iter().any(|request| request.session == session);
            if !stays && let Some(keys) = self.of_sessions.get_mut(&session) {
                keys.remove(&key);
            }
            self.grant(key);
        }
        if self.of_sessions.get(&session).is_some_and(BTreeSet::is_empty) {
            self.of_sessions.remove(&session);
        }
    }

    /// Whether the last request for `key` waits for its own session.
    fn is_deadlock(&self, key: Key) -> bool {
        let Some(state) = self.keys.get(&key) else { return false };
        let Some(at) = state.waiting.len().checked_sub(1) else { return false };
        let asking = state.waiting[at].session;
        let mut seen = BTreeSet::new();
        let mut next: Vec<i32> = state.blockers(at).into_iter().collect();
        while let Some(session) = next.pop() {
            if session == asking {
                return true;
            }
            if !seen.insert(session) {
                continue;
            }
            for key in self.of_sessions.get(&session).into_iter().flatten() {
                let Some(state) = self.keys.get(key) else { continue };
                for (at, _) in
                    state.waiting.iter().enumerate().filter(|(_, request)| request.session == session)
                {
                    next.extend(state.blockers(at));
                }
            }
        }
        false
    }

    fn withdraw(&mut self, key: Key, number: u64) {
        if let Some(state) = self.keys.get_mut(&key) {
            state.waiting.retain(|request| request.number != number);
        }
        self.grant(key);
    }
}

/// Pending request, withdrawn on drop.
struct PendingRequest {
    locks: Arc<Locks>,
    key: Key,
    number: u64,
    granted: Option<oneshot::Receiver<()>>,
    /// Releases the lock if it was granted but not yet reported.
    acquisition: (i32, Mode, Scope),
}

impl Drop for PendingRequest {
    fn drop(&mut self) {
        let Some(mut granted) = self.granted.take() else { return };
        let mut inner = self.locks.0.lock();
        match granted.try_recv() {
            Ok(()) => {
                let (session, mode, scope) = self.acquisition;
                inner.release_one(self.key, session, mode, scope);
                inner.grant(self.key);
            }
            Err(_) => inner.withdraw(self.key, self.number),
        }
    }
}

fn sql_error(state: SqlState, message: &str) -> datafusion::error::DataFusionError {
    harrier_sqlstate::external(SqlError::new(state, message))
}

impl Locks {
    fn check_room(inner: &Inner) -> Result<()> {
        match inner.lock_count < LOCKS_MAX {
            true => Ok(()),
            false => Err(sql_error(SqlState::OUT_OF_MEMORY, "too many advisory locks")),
        }
    }

    /// Acquires a lock without waiting; returns whether it did.
    fn try_lock(&self, key: Key, session: i32, mode: Mode, scope: Scope) -> Result<bool> {
        let mut inner = self.0.lock();
        Self::check_room(&inner)?;
        let state = inner.keys.entry(key).or_default();
        let may = state.can_acquire(session, mode, state.waiting.iter());
        if may {
            inner.acquire(key, session, mode, scope);
        }
        Ok(may)
    }

    /// Waits for a lock.
    async fn lock(
        self: Arc<Self>,
        key: Key,
        session: i32,
        mode: Mode,
        scope: Scope,
        timeout: Option<Duration>,
    ) -> Result<()> {
        let mut waiting = {
            let mut inner = self.0.lock();
            Self::check_room(&inner)?;
            let state = inner.keys.entry(key).or_default();
            if state.can_acquire(session, mode, state.waiting.iter()) {
                inner.acquire(key, session, mode, scope);
                return Ok(());
            }
            inner.last_request += 1;
            let number = inner.last_request;
            let (granted, receiver) = oneshot::channel();
            if let Some(state) = inner.keys.get_mut(&key) {
                state.waiting.push_back(Request { number, session, mode, scope, granted });
            }
            inner.of_sessions.entry(session).or_default().insert(key);
            if inner.is_deadlock(key) {
                inner.withdraw(key, number);
                return Err(sql_error(SqlState::DEADLOCK_DETECTED, "deadlock detected"));
            }
            let acquisition = (session, mode, scope);
            PendingRequest { locks: Arc::clone(&self), key, number, granted: Some(receiver), acquisition }
        };
        let Some(granted) = &mut waiting.granted else { return Ok(()) };
        let receiver = match timeout {
            Some(timeout) => match tokio::time::timeout(timeout, granted).await {
                Ok(receiver) => receiver,
                Err(_) => {
                    return Err(sql_error(
                        SqlState::LOCK_NOT_AVAILABLE,
                        "canceling statement due to lock timeout",
                    ));
                }
            },
            None => granted.await,
        };
        match receiver {
            Ok(()) => {
                waiting.granted = None;
                Ok(())
            }
            Err(_) => Err(sql_error(SqlState::INTERNAL_ERROR, "a lock was forgotten")),
        }
    }

    /// Releases one acquisition of a session lock; returns whether there was one.
    fn unlock(&self, key: Key, session: i32, mode: Mode) -> bool {
        let mut inner = self.0.lock();
        let done = inner.release_one(key, session, mode, Scope::Session);
        inner.grant(key);
        done
    }

    /// Releases all session-level locks of a session.
    fn unlock_all(&self, session: i32) {
        self.0.lock().release(session, |scope| scope == Scope::Session);
    }

    /// Releases transaction locks; call it when a session leaves its transaction.
    pub(super) fn release_transaction(&self, session: i32) {
        let mut inner = self.0.lock();
        if inner.of_sessions.contains_key(&session) {
            inner.release(session, |scope| scope == Scope::Transaction);
        }
    }

    /// Releases all locks; call it at the end of a session, or at DISCARD ALL.
    pub(super) fn release_all(&self, session: i32) {
        self.0.lock().release(session, |_| true);
    }

    /// All locks held or waited for, for `pg_locks`.
    pub(super) fn list(&self) -> Vec<AdvisoryLock> {
        let inner = self.0.lock();
        let one = |key: &Key, process: i32, mode: Mode, granted: bool| {
            let (class, object, kind) = match *key {
                Key::One(key) => ((key >> 32) as u32, key as u32, 1),
                Key::Two(class, object) => (class as u32, object as u32, 2),
            };
            AdvisoryLock { class, object, kind, process, is_exclusive: mode == Mode::Exclusive, granted }
        };
        let mut all = Vec::new();
        for (key, state) in &inner.keys {
            let holders: BTreeSet<(i32, Mode)> =
                state.holders.keys().map(|(session, mode, _)| (*session, *mode)).collect();
            all.extend(holders.into_iter().map(|(session, mode)| one(key, session, mode, true)));
            all.extend(state.waiting.iter().map(|request| one(key, request.session, request.mode, false)));
        }
        all
    }
}

/// Errors: one of two keys exceeds 32 bits (42883), for which PostgreSQL has no function.
fn key_of(values: &[ScalarValue]) -> Result<Key> {
    match values {
        [ScalarValue::Int64(Some(class)), ScalarValue::Int64(Some(object))] => {
            match (i32::try_from(*class), i32::try_from(*object)) {
                (Ok(class), Ok(object)) => Ok(Key::Two(class, object)),
                _ => Err(sql_error(
                    SqlState::UNDEFINED_FUNCTION,
                    "advisory locks of two keys take keys of type integer, not bigint",
                )),
            }
        }
        [ScalarValue::Int64(Some(key))] => Ok(Key::One(*key)),
        _ => Err(sql_error(SqlState::INTERNAL_ERROR, "an advisory lock without a key")),
    }
}

/// PostgreSQL's functions of advisory locks, and `pg_sleep`.
pub(super) fn functions(locks: &Arc<Locks>) -> Vec<WaitingFunction> {
    use {Mode::*, Scope::*};
    let keys = || vec![vec![DataType::Int64], vec![DataType::Int64, DataType::Int64]];
    let lock = |name, mode, scope| {
        let locks = Arc::clone(locks);
        let call = move |caller: Caller, values: Vec<ScalarValue>| {
            let locks = Arc::clone(&locks);
            async move {
                let key = key_of(&values)?;
                locks.lock(key, caller.process, mode, scope, caller.lock_timeout).await?;
                Ok(None)
            }
            .boxed()
        };
        WaitingFunction { name, arguments: keys(), returns_boolean: false, call: Arc::new(call) }
    };
    let try_lock = |name, mode, scope| {
        let locks = Arc::clone(locks);
        let call = move |caller: Caller, values: Vec<ScalarValue>| {
            let done = key_of(&values).and_then(|key| locks.try_lock(key, caller.process, mode, scope));
            std::future::ready(done.map(Some)).boxed()
        };
        WaitingFunction { name, arguments: keys(), returns_boolean: true, call: Arc::new(call) }
    };
    let unlock = |name, mode| {
        let locks = Arc::clone(locks);
        let call = move |caller: Caller, values: Vec<ScalarValue>| {
            let done = key_of(&values).map(|key| Some(locks.unlock(key, caller.process, mode)));
            std::future::ready(done).boxed()
        };
        WaitingFunction { name, arguments: keys(), returns_boolean: true, call: Arc::new(call) }
    };
    let unlock_all = {
        let locks = Arc::clone(locks);
        let call = move |caller: Caller, _: Vec<ScalarValue>| {
            locks.unlock_all(caller.process);
            std::future::ready(Ok(None)).boxed()
        };
        let name = "pg_advisory_unlock_all";
        WaitingFunction { name, arguments: vec![vec![]], returns_boolean: false, call: Arc::new(call) }
    };
    vec![
        lock("pg_advisory_lock", Exclusive, Session),
        lock("pg_advisory_lock_shared", Shared, Session),
        lock("pg_advisory_xact_lock", Exclusive, Transaction),
        lock("pg_advisory_xact_lock_shared", Shared, Transaction),
        try_lock("pg_try_advisory_lock", Exclusive, Session),
        try_lock("pg_try_advisory_lock_shared", Shared, Session),
        try_lock("pg_try_advisory_xact_lock", Exclusive, Transaction),
        try_lock("pg_try_advisory_xact_lock_shared", Shared, Transaction),
        unlock("pg_advisory_unlock", Exclusive),
        unlock("pg_advisory_unlock_shared", Shared),
        unlock_all,
        sleep(),
    ]
}

fn sleep() -> WaitingFunction {
    let call = |_: Caller, values: Vec<ScalarValue>| {
        let seconds = match values.first() {
            Some(ScalarValue::Float64(Some(seconds))) => *seconds,
            _ => 0.0,
        };
        async move {
            // NaN and negative times mean no wait.
            let time = Duration::try_from_secs_f64(seconds.max(0.0)).unwrap_or(SLEEP_MAX);
            tokio::time::sleep(time.min(SLEEP_MAX)).await;
            Ok(None)
        }
        .boxed()
    };
    let arguments = vec![vec![DataType::Float64]];
    WaitingFunction { name: "pg_sleep", arguments, returns_boolean: false, call: Arc::new(call) }
}

#[cfg(test)]
mod tests {

    use super::*;

    const KEY: Key = Key::One(7);

    async fn lock(locks: &Arc<Locks>, key: Key, session: i32, mode: Mode) -> Result<(), String> {
        let done = Arc::clone(locks).lock(key, session, mode, Scope::Session, None).await;
        done.map_err(|error| harrier_sqlstate::of(&error).to_string())
    }

    fn try_lock(locks: &Arc<Locks>, session: i32, mode: Mode) -> bool {
        locks.try_lock(KEY, session, mode, Scope::Session).unwrap()
    }

    #[test]
    fn a_lock_is_for_one_session_or_shared() {
        let locks = Arc::new(Locks::default());
        assert!(try_lock(&locks, 1, Mode::Exclusive));
        assert!(try_lock(&locks, 1, Mode::Exclusive) && try_lock(&locks, 1, Mode::Shared));
        assert!(!try_lock(&locks, 2, Mode::Shared));
        assert!(locks.try_lock(Key::Two(0, 7), 2, Mode::Exclusive, Scope::Session).unwrap());
        assert!(locks.unlock(KEY, 1, Mode::Exclusive) && !locks.unlock(KEY, 2, Mode::Exclusive));
        assert!(!try_lock(&locks, 2, Mode::Shared));
        assert!(locks.unlock(KEY, 1, Mode::Exclusive));
        assert!(try_lock(&locks, 2, Mode::Shared) && !try_lock(&locks, 3, Mode::Exclusive));
        locks.release_all(1);
        locks.release_all(2);
        assert!(locks.list().is_empty());
        assert!(locks.0.lock().keys.is_empty() && locks.0.lock().of_sessions.is_empty());
        assert_eq!(locks.0.lock().lock_count, 0);
    }

    #[test]
    fn transaction_locks_are_released_at_its_end() {
        let locks = Arc::new(Locks::default());
        assert!(locks.try_lock(KEY, 1, Mode::Exclusive, Scope::Transaction).unwrap());
        locks.unlock_all(1);
        assert!(!locks.unlock(KEY, 1, Mode::Exclusive));
        assert!(!try_lock(&locks, 2, Mode::Shared));
        locks.release_transaction(1);
        assert!(try_lock(&locks, 2, Mode::Shared));
    }

    #[tokio::test]
    async fn requests_are_granted_in_order() {
        let locks = Arc::new(Locks::default());
        lock(&locks, KEY, 1, Mode::Shared).await.unwrap();
        let mut second = Box::pin(lock(&locks, KEY, 2, Mode::Exclusive));
        let mut third = Box::pin(lock(&locks, KEY, 3, Mode::Shared));
        assert!(second.as_mut().now_or_never().is_none());
        // It is compatible with the holder, but not with the earlier request.
        assert!(third.as_mut().now_or_never().is_none());
        assert!(!try_lock(&locks, 4, Mode::Shared));
        assert_eq!(locks.list().iter().filter(|lock| lock.granted).count(), 1);
        assert!(locks.unlock(KEY, 1, Mode::Shared));
        second.await.unwrap();
        assert!(third.as_mut().now_or_never().is_none());
        locks.release_all(2);
        third.await.unwrap();
    }

    #[tokio::test]
    async fn canceled_lock_requests_do_not_block() {
        let locks = Arc::new(Locks::default());
        lock(&locks, KEY, 1, Mode::Shared).await.unwrap();
        let mut second = Box::pin(lock(&locks, KEY, 2, Mode::Exclusive));
        let mut third = Box::pin(lock(&locks, KEY, 3, Mode::Shared));
        assert!(second.as_mut().now_or_never().is_none() && third.as_mut().now_or_never().is_none());
        drop(second);
        third.await.unwrap();
        // Also a request that was granted.
        let mut fourth = Box::pin(lock(&locks, KEY, 4, Mode::Exclusive));
        assert!(fourth.as_mut().now_or_never().is_none());
        locks.release_all(1);
        locks.release_all(3);
        drop(fourth);
        assert!(try_lock(&locks, 5, Mode::Exclusive));
    }

    #[tokio::test]
    async fn a_deadlock_is_reported() {
        let locks = Arc::new(Locks::default());
        let other = Key::One(8);
        lock(&locks, KEY, 1, Mode::Exclusive).await.unwrap();
        lock(&locks, other, 2, Mode::Exclusive).await.unwrap();
        let mut first = Box::pin(lock(&locks, other, 1, Mode::Exclusive));
        assert!(first.as_mut().now_or_never().is_none());
        assert_eq!(lock(&locks, KEY, 2, Mode::Exclusive).await, Err("40P01".to_string()));
        locks.release_all(2);
        first.await.unwrap();
    }

    #[tokio::test]
    async fn a_lock_timeout_is_reported() {
        let locks = Arc::new(Locks::default());
        lock(&locks, KEY, 1, Mode::Exclusive).await.unwrap();
        let limit = Some(Duration::from_millis(10));
        let waiting = Arc::clone(&locks).lock(KEY, 2, Mode::Shared, Scope::Session, limit);
        assert_eq!(harrier_sqlstate::of(&waiting.await.unwrap_err()).as_str(), "55P03");
        locks.release_all(1);
        assert!(try_lock(&locks, 3, Mode::Exclusive));
    }
}
