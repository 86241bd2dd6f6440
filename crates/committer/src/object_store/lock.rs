//! The lock of a table, which is one by nothing but puts that fail where there is something already.
//!
//! It is the file `lock-N` of the highest number: held if `N` is odd, free if it is even. Who wants it puts
//! the next odd number, and has it if nothing higher is there afterwards; who gives it back puts the next
//! even one, and removes those below. A number is never put twice while it counts: only numbers below the
//! highest are removed. A holder writes its file anew six times in a lease. One whose file has looked the
//! same for all of a lease to somebody who watches, by that one's clock, is dead: its lock is taken over.
//!
//! Invariant: a holder that has not seen its lock to be the highest for half a lease does nothing more
//! ([`Lock::check`]). So no clocks are compared, and they may differ in speed by a half.
//!
//! What such a holder has asked of the store before may be done later all the same. The journal, by which a
//! statement is decided, therefore has the number of the lock and is put only where there is none, and who
//! takes a lock over puts an empty one: one of both is there, and it stays.

use std::sync::Arc;
use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBuilder};
use bytes::Bytes;
use futures::future::BoxFuture;
use futures::{StreamExt, TryStreamExt};
use object_store::{Error as StoreError, ObjectMeta, ObjectStore};
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::object_store::control::{Control, Root, Since};
use crate::object_store::repeating::Repeating;
use crate::object_store::{At, Error, Result};

/// The longest wait between two looks at a lock that another statement holds.
pub(crate) const POLL_MAX: Duration = Duration::from_millis(250);

/// A lease is renewed so often.
const RENEWED: u32 = 6;

/// What a lock looked like, and since when.
#[derive(Debug, Default)]
pub(crate) struct Watched(Option<(u64, ObjectMeta, Option<Since>)>);

impl Watched {
    /// Looks again; whether it has looked the same for all of a lease.
    pub(crate) fn is_stale(&mut self, number: u64, lock: &ObjectMeta, lease: Duration) -> bool {
        if let Some((known, file, Some(since))) = &self.0
            && *known == number
            && file == lock
        {
            return since.elapsed() > lease;
        }
        self.0 = Some((number, lock.clone(), Some(Instant::now())));
        false
    }
}

/// The waits between looks at a lock that another statement holds. They never end.
pub(crate) fn poll_backoff() -> impl Iterator<Item = Duration> + Send {
    ExponentialBuilder::default()
        .with_min_delay(Duration::from_millis(20))
        .with_max_delay(POLL_MAX)
        .without_max_times()
        .build()
}

/// The lock, held. Dropped, it is not given back: others wait for the lease.
#[derive(Debug)]
pub(crate) struct Lock {
    root: Root,
    number: u64,
    /// Those that do not count any more.
    below: Vec<u64>,
    /// When it was last seen to be held: the time before the store was asked.
    seen: Arc<Mutex<Instant>>,
    renewing: Repeating,
}

impl Lock {
    /// Waits for the lock. Cancel-safe, but for a lease that others may have to wait.
    pub(crate) async fn acquire(root: &Root, id: &str) -> Result<Self> {
        Self::acquire_watched(root, id, &mut Watched::default()).await
    }

    /// The same for who has seen it before.
    pub(crate) async fn acquire_watched(root: &Root, id: &str, watched: &mut Watched) -> Result<Self> {
        let mut backoff = poll_backoff();
        let mut control = root.control().await?;
        loop {
            let next = match control.top() {
                None => Some(1),
                Some((number, _)) if number % 2 == 0 => Some(number + 1),
                Some((number, lock)) => {
                    watched.is_stale(number, lock, root.staging.lease()).then_some(number + 2)
                }
            };
            let asked = Instant::now();
            if let Some(next) = next
                && put(root, next, id).await?
            {
                control = root.control().await?;
                if is_top(&control, next) {
                    let below: Vec<u64> =
                        control.locks.keys().copied().filter(|number| *number < next).collect();
                    let lock = Self::held(root, next, below, id, asked);
                    lock.shut_out().await?;
                    return Ok(lock);
                }
                remove(root, vec![next]).await;
            } else {
                tokio::time::sleep(backoff.next().unwrap_or(POLL_MAX)).await;
                control = root.control().await?;
            }
        }
    }

    fn held(root: &Root, number: u64, below: Vec<u64>, id: &str, asked: Instant) -> Self {
        let seen = Arc::new(Mutex::new(asked));
        let (own, id, seen_again) = (root.clone(), id.to_string(), Arc::clone(&seen));
        let renewing = Repeating::every(root.staging.lease() / RENEWED, move |count| {
            let (root, seen) = (own.clone(), Arc::clone(&seen_again));
            let content = format!("{id} {count}");
            async move { renew(&root, number, content, &seen).await }
        });
        Self { root: root.clone(), number, below, seen, renewing }
    }

    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Sees to it that no holder before this one writes a journal from now on.
    async fn shut_out(&self) -> Result<()> {
        for number in self.below.iter().filter(|number| *number % 2 == 1) {
            let path = self.root.journal_path(*number);
            self.root.staging.put_new(&path, Bytes::new()).await.at("write to", &path)?;
        }
        Ok(())
    }

    /// Errors: it may be another's (`TakenBack`).
    pub(crate) fn check(&self) -> Result<()> {
        match self.seen.lock().elapsed() < self.root.staging.lease() / 2 {
            true => Ok(()),
            false => Err(Error::TakenBack { path: self.root.table.to_string() }),
        }
    }

    /// Does `work` as long as the lock is held for sure.
    pub(crate) async fn under<T>(&self, work: BoxFuture<'_, Result<T>>) -> Result<T> {
        let lost = async {
            loop {
                if let Err(error) = self.check() {
                    return error;
                }
                let until = *self.seen.lock() + self.root.staging.lease() / 2;
                tokio::time::sleep_until(until).await;
            }
        };
        tokio::select! {
            done = work => done,
            error = lost => Err(error),
        }
    }

    /// Gives it back. If that fails, others wait for the lease.
    pub(crate) async fn release(mut self) {
        self.renewing.end().await;
        let mut below = std::mem::take(&mut self.below);
        below.push(self.number);
        match put(&self.root, self.number + 1, "").await {
            Ok(_) => remove(&self.root, below).await,
            Err(error) => {
                tracing::warn!(%error, "a lock could not be given back; it is free when its lease is over")
            }
        }
    }
}

fn is_top(control: &Control, number: u64) -> bool {
    control.top().is_some_and(|(top, _)| top == number)
}

/// Puts a number; false if somebody else has.
async fn put(root: &Root, number: u64, id: &str) -> Result<bool> {
    let path = root.lock_path(number);
    root.staging.put_new(&path, Bytes::copy_from_slice(id.as_bytes())).await.at("write to", &path)
}

/// Removes numbers that do not count any more.
async fn remove(root: &Root, numbers: Vec<u64>) {
    let paths = numbers.into_iter().map(|number| Ok(root.lock_path(number))).collect::<Vec<_>>();
    let removed = root.store().delete_stream(futures::stream::iter(paths).boxed());
    if let Err(error) = removed.try_collect::<Vec<_>>().await
        && !matches!(error, StoreError::NotFound { .. })
    {
        tracing::debug!(%error, "an old lock stays");
    }
}

/// Whether it may be held on.
async fn renew(root: &Root, number: u64, content: String, seen: &Mutex<Instant>) -> bool {
    let path = root.lock_path(number);
    let asked = Instant::now();
    let renewed = async {
        root.staging.put_whole(&path, content.into()).await.at("write to", &path)?;
        root.control().await
    };
    match renewed.await {
        Ok(control) if is_top(&control, number) => {
            *seen.lock() = asked;
            true
        }
        Ok(_) => false,
        Err(error) => {
            tracing::debug!(%error, "a lock could not be renewed");
            true
        }
    }
}
