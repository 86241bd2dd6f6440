//! Advisory locks: numbers that sessions of this server lock for one another, as PostgreSQL's functions of
//! that name do. They lock nothing of the warehouse, and other servers know nothing of them.
//!
//! # Invariants
//! A lock is held by one session alone, or shared by several. Who asks waits behind all who asked before and
//! want what does not go with it.
//!
//! # Order of calls
//! [`Locks::ended`] when a statement has ended outside of a transaction, or a transaction has;
//! [`Locks::release_all`] when the session has.
//!
//! # Memory bound
//! [`LOCKS_MAX`] locks of all sessions (53200).
//!
//! # Errors
//! 40P01: those who would be waited for wait for the caller; 55P03: `lock_timeout` has passed.
//!
//! # Cancellation
//! Dropping the future of [`Locks::lock`] takes the wish back.

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

/// Locks that all sessions may hold together.
const LOCKS_MAX: usize = 1 << 20;

/// `pg_sleep` waits no longer than this, which is a year.
const SLEEP_MAX: Duration = Duration::from_secs(366 * 24 * 60 * 60);

/// What is locked: one number of eight bytes, or two of four.
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
    fn goes_with(self, other: Self) -> bool {
        self == Self::Shared && other == Self::Shared
    }
}

/// Until when a lock is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Scope {
    Session,
    Transaction,
}

/// The locks of one server.
#[derive(Debug, Default)]
pub(super) struct Locks(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    keys: BTreeMap<Key, State>,
    /// Which keys a session holds or waits for.
    of_sessions: BTreeMap<i32, BTreeSet<Key>>,
    last_wish: u64,
    held: usize,
}

#[derive(Debug, Default)]
struct State {
    /// How often each session has taken it.
    holders: BTreeMap<(i32, Mode, Scope), u64>,
    waiting: VecDeque<Wish>,
}

#[derive(Debug)]
struct Wish {
    number: u64,
    session: i32,
    mode: Mode,
    scope: Scope,
    granted: oneshot::Sender<()>,
}

impl State {
    /// Whether others than `session` hold it in a way that does not go with `mode`.
    fn is_held_against(&self, session: i32, mode: Mode) -> bool {
        self.holders.keys().any(|(holder, held, _)| *holder != session && !held.goes_with(mode))
    }

    fn holds(&self, session: i32, mode: Mode) -> bool {
        self.holders.keys().any(|(holder, held, _)| *holder == session && *held >= mode)
    }

    /// Whether `session` may have it now. `before`: wishes that were there before; who holds it already need
    /// not mind them.
    fn may_have<'w>(&self, session: i32, mode: Mode, mut before: impl Iterator<Item = &'w Wish>) -> bool {
        if self.is_held_against(session, mode) {
            return false;
        }
        self.holds(session, mode) || !before.any(|wish| wish.session != session && !wish.mode.goes_with(mode))
    }

    /// Sessions that have to do something before the wish at `at` is granted.
    fn in_the_way(&self, at: usize) -> BTreeSet<i32> {
        let Some(wish) = self.waiting.get(at) else { return BTreeSet::new() };
        let others = |session: &i32, mode: Mode| *session != wish.session && !mode.goes_with(wish.mode);
        let holders = self.holders.keys().filter(|(session, mode, _)| others(session, *mode));
        let before = self.waiting.iter().take(at).filter(|before| others(&before.session, before.mode));
        holders.map(|(session, ..)| *session).chain(before.map(|before| before.session)).collect()
    }
}

impl Inner {
    fn take(&mut self, key: Key, session: i32, mode: Mode, scope: Scope) {
        let holders = &mut self.keys.entry(key).or_default().holders;
        let count = holders.entry((session, mode, scope)).or_insert_with(|| {
            self.held += 1;
            0
        });
        *count += 1;
        self.of_sessions.entry(session).or_default().insert(key);
    }

    /// Grants what can be granted, the first wishes first, and forgets what nobody holds or wants.
    fn settle(&mut self, key: Key) {
        loop {
            let Some(state) = self.keys.get_mut(&key) else { return };
            let ready = (0..state.waiting.len()).find(|at| {
                let wish = &state.waiting[*at];
                state.may_have(wish.session, wish.mode, state.waiting.iter().take(*at))
            });
            let Some(wish) = ready.and_then(|at| state.waiting.remove(at)) else {
                if state.holders.is_empty() && state.waiting.is_empty() {
                    self.keys.remove(&key);
                }
                return;
            };
            self.take(key, wish.session, wish.mode, wish.scope);
            if wish.granted.send(()).is_err() {
                // Nobody waits for it any more.
                self.give_back(key, wish.session, wish.mode, wish.scope);
            }
        }
    }

    /// Undoes one [`Self::take`]; false if there was none.
    fn give_back(&mut self, key: Key, session: i32, mode: Mode, scope: Scope) -> bool {
        let Some(state) = self.keys.get_mut(&key) else { return false };
        let Some(count) = state.holders.get_mut(&(session, mode, scope)) else { return false };
        *count -= 1;
        if *count == 0 {
            state.holders.remove(&(session, mode, scope));
            self.held -= 1;
        }
        true
    }

    /// Forgets all of a session that is held so, whatever the count.
    fn release(&mut self, session: i32, is_meant: impl Fn(Scope) -> bool) {
        let keys: Vec<Key> = self.of_sessions.get(&session).into_iter().flatten().copied().collect();
        for key in keys {
            let Some(state) = self.keys.get_mut(&key) else { continue };
            let before = state.holders.len();
            state.holders.retain(|(holder, _, scope), _| *holder != session || !is_meant(*scope));
            self.held -= before - state.holders.len();
            let stays = state.holders.keys().any(|(holder, ..)| *holder == session)
                || state.waiting.iter().any(|wish| wish.session == session);
            if !stays && let Some(keys) = self.of_sessions.get_mut(&session) {
                keys.remove(&key);
            }
            self.settle(key);
        }
        if self.of_sessions.get(&session).is_some_and(BTreeSet::is_empty) {
            self.of_sessions.remove(&session);
        }
    }

    /// Whether the last wish for `key` waits for its own session.
    fn is_deadlock(&self, key: Key) -> bool {
        let Some(state) = self.keys.get(&key) else { return false };
        let Some(at) = state.waiting.len().checked_sub(1) else { return false };
        let asking = state.waiting[at].session;
        let mut seen = BTreeSet::new();
        let mut next: Vec<i32> = state.in_the_way(at).into_iter().collect();
        while let Some(session) = next.pop() {
            if session == asking {
                return true;
            }
            if !seen.insert(session) {
                continue;
            }
            for key in self.of_sessions.get(&session).into_iter().flatten() {
                let Some(state) = self.keys.get(key) else { continue };
                for (at, _) in state.waiting.iter().enumerate().filter(|(_, wish)| wish.session == session) {
                    next.extend(state.in_the_way(at));
                }
            }
        }
        false
    }

    fn forget_wish(&mut self, key: Key, number: u64) {
        if let Some(state) = self.keys.get_mut(&key) {
            state.waiting.retain(|wish| wish.number != number);
        }
        self.settle(key);
    }
}

/// Takes a wish back when nobody waits for it any more.
struct Waiting {
    locks: Arc<Locks>,
    key: Key,
    number: u64,
    granted: Option<oneshot::Receiver<()>>,
    /// What was granted is given back if nobody has heard of it.
    asked: (i32, Mode, Scope),
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let Some(mut granted) = self.granted.take() else { return };
        let mut inner = self.locks.0.lock();
        match granted.try_recv() {
            Ok(()) => {
                let (session, mode, scope) = self.asked;
                inner.give_back(self.key, session, mode, scope);
                inner.settle(self.key);
            }
            Err(_) => inner.forget_wish(self.key, self.number),
        }
    }
}

fn coded(state: SqlState, message: &str) -> datafusion::error::DataFusionError {
    harrier_sqlstate::external(SqlError::new(state, message))
}

impl Locks {
    fn check_room(inner: &Inner) -> Result<()> {
        match inner.held < LOCKS_MAX {
            true => Ok(()),
            false => Err(coded(SqlState::OUT_OF_MEMORY, "too many advisory locks")),
        }
    }

    /// Takes a lock if nobody is in the way; tells whether it did.
    fn try_lock(&self, key: Key, session: i32, mode: Mode, scope: Scope) -> Result<bool> {
        let mut inner = self.0.lock();
        Self::check_room(&inner)?;
        let state = inner.keys.entry(key).or_default();
        let may = state.may_have(session, mode, state.waiting.iter());
        if may {
            inner.take(key, session, mode, scope);
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
            if state.may_have(session, mode, state.waiting.iter()) {
                inner.take(key, session, mode, scope);
                return Ok(());
            }
            inner.last_wish += 1;
            let number = inner.last_wish;
            let (granted, heard) = oneshot::channel();
            if let Some(state) = inner.keys.get_mut(&key) {
                state.waiting.push_back(Wish { number, session, mode, scope, granted });
            }
            inner.of_sessions.entry(session).or_default().insert(key);
            if inner.is_deadlock(key) {
                inner.forget_wish(key, number);
                return Err(coded(SqlState::DEADLOCK_DETECTED, "deadlock detected"));
            }
            let asked = (session, mode, scope);
            Waiting { locks: Arc::clone(&self), key, number, granted: Some(heard), asked }
        };
        let Some(granted) = &mut waiting.granted else { return Ok(()) };
        let heard = match timeout {
            Some(timeout) => match tokio::time::timeout(timeout, granted).await {
                Ok(heard) => heard,
                Err(_) => {
                    return Err(coded(
                        SqlState::LOCK_NOT_AVAILABLE,
                        "canceling statement due to lock timeout",
                    ));
                }
            },
            None => granted.await,
        };
        match heard {
            Ok(()) => {
                waiting.granted = None;
                Ok(())
            }
            Err(_) => Err(coded(SqlState::INTERNAL_ERROR, "a lock was forgotten")),
        }
    }

    /// Gives back a lock of the session, once; tells whether there was one.
    fn unlock(&self, key: Key, session: i32, mode: Mode) -> bool {
        let mut inner = self.0.lock();
        let done = inner.give_back(key, session, mode, Scope::Session);
        inner.settle(key);
        done
    }

    /// Gives back all locks of a session but those of its transaction.
    fn unlock_all(&self, session: i32) {
        self.0.lock().release(session, |scope| scope == Scope::Session);
    }

    /// To be called when a session is in no transaction any more.
    pub(super) fn ended(&self, session: i32) {
        let mut inner = self.0.lock();
        if inner.of_sessions.contains_key(&session) {
            inner.release(session, |scope| scope == Scope::Transaction);
        }
    }

    /// To be called when a session has ended, or forgets everything.
    pub(super) fn release_all(&self, session: i32) {
        self.0.lock().release(session, |_| true);
    }

    /// All locks that are held or waited for, for `pg_locks`.
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
            all.extend(state.waiting.iter().map(|wish| one(key, wish.session, wish.mode, false)));
        }
        all
    }
}

/// Errors: of two numbers one has more than four bytes (42883), for which PostgreSQL has no function.
fn key_of(values: &[ScalarValue]) -> Result<Key> {
    match values {
        [ScalarValue::Int64(Some(class)), ScalarValue::Int64(Some(object))] => {
            match (i32::try_from(*class), i32::try_from(*object)) {
                (Ok(class), Ok(object)) => Ok(Key::Two(class, object)),
                _ => Err(coded(
                    SqlState::UNDEFINED_FUNCTION,
                    "advisory locks of two keys take keys of type integer, not bigint",
                )),
            }
        }
        [ScalarValue::Int64(Some(key))] => Ok(Key::One(*key)),
        _ => Err(coded(SqlState::INTERNAL_ERROR, "an advisory lock without a key")),
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
        WaitingFunction { name, arguments: keys(), tells: false, call: Arc::new(call) }
    };
    let try_lock = |name, mode, scope| {
        let locks = Arc::clone(locks);
        let call = move |caller: Caller, values: Vec<ScalarValue>| {
            let done = key_of(&values).and_then(|key| locks.try_lock(key, caller.process, mode, scope));
            std::future::ready(done.map(Some)).boxed()
        };
        WaitingFunction { name, arguments: keys(), tells: true, call: Arc::new(call) }
    };
    let unlock = |name, mode| {
        let locks = Arc::clone(locks);
        let call = move |caller: Caller, values: Vec<ScalarValue>| {
            let done = key_of(&values).map(|key| Some(locks.unlock(key, caller.process, mode)));
            std::future::ready(done).boxed()
        };
        WaitingFunction { name, arguments: keys(), tells: true, call: Arc::new(call) }
    };
    let unlock_all = {
        let locks = Arc::clone(locks);
        let call = move |caller: Caller, _: Vec<ScalarValue>| {
            locks.unlock_all(caller.process);
            std::future::ready(Ok(None)).boxed()
        };
        let name = "pg_advisory_unlock_all";
        WaitingFunction { name, arguments: vec![vec![]], tells: false, call: Arc::new(call) }
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
            // What is no time, or in the past, is none.
            let time = Duration::try_from_secs_f64(seconds.max(0.0)).unwrap_or(SLEEP_MAX);
            tokio::time::sleep(time.min(SLEEP_MAX)).await;
            Ok(None)
        }
        .boxed()
    };
    let arguments = vec![vec![DataType::Float64]];
    WaitingFunction { name: "pg_sleep", arguments, tells: false, call: Arc::new(call) }
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
        assert_eq!(locks.0.lock().held, 0);
    }

    #[test]
    fn those_of_a_transaction_end_with_it() {
        let locks = Arc::new(Locks::default());
        assert!(locks.try_lock(KEY, 1, Mode::Exclusive, Scope::Transaction).unwrap());
        locks.unlock_all(1);
        assert!(!locks.unlock(KEY, 1, Mode::Exclusive));
        assert!(!try_lock(&locks, 2, Mode::Shared));
        locks.ended(1);
        assert!(try_lock(&locks, 2, Mode::Shared));
    }

    #[tokio::test]
    async fn wishes_are_granted_in_their_order() {
        let locks = Arc::new(Locks::default());
        lock(&locks, KEY, 1, Mode::Shared).await.unwrap();
        let mut second = Box::pin(lock(&locks, KEY, 2, Mode::Exclusive));
        let mut third = Box::pin(lock(&locks, KEY, 3, Mode::Shared));
        assert!(second.as_mut().now_or_never().is_none());
        // It would go with what is held, and not with who came before.
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
    async fn a_wish_that_was_given_up_holds_nobody_up() {
        let locks = Arc::new(Locks::default());
        lock(&locks, KEY, 1, Mode::Shared).await.unwrap();
        let mut second = Box::pin(lock(&locks, KEY, 2, Mode::Exclusive));
        let mut third = Box::pin(lock(&locks, KEY, 3, Mode::Shared));
        assert!(second.as_mut().now_or_never().is_none() && third.as_mut().now_or_never().is_none());
        drop(second);
        third.await.unwrap();
        // One that was granted, too.
        let mut fourth = Box::pin(lock(&locks, KEY, 4, Mode::Exclusive));
        assert!(fourth.as_mut().now_or_never().is_none());
        locks.release_all(1);
        locks.release_all(3);
        drop(fourth);
        assert!(try_lock(&locks, 5, Mode::Exclusive));
    }

    #[tokio::test]
    async fn who_waits_in_a_circle_is_told() {
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
    async fn who_waits_too_long_is_told() {
        let locks = Arc::new(Locks::default());
        lock(&locks, KEY, 1, Mode::Exclusive).await.unwrap();
        let limit = Some(Duration::from_millis(10));
        let waiting = Arc::clone(&locks).lock(KEY, 2, Mode::Shared, Scope::Session, limit);
        assert_eq!(harrier_sqlstate::of(&waiting.await.unwrap_err()).as_str(), "55P03");
        locks.release_all(1);
        assert!(try_lock(&locks, 3, Mode::Exclusive));
    }
}
