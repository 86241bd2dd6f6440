//! The lock of a table, built on conditional puts alone.
//!
//! The lock is the file `lock-N` of the highest number: held if `N` is odd, free if it is even. To acquire
//! it, a statement puts the next odd number, and holds the lock if no higher one exists afterwards; to
//! release it, it puts the next even one, and removes those below. A number is never put twice while it
//! counts: only numbers below the highest are removed. A holder rewrites its file six times in a lease. A
//! file that has not changed for a whole lease, by the observer's clock, belongs to a dead holder: its lock
//! is taken over.
//!
//! Invariant: a holder that has not confirmed its lock for half a lease stops ([`Lock::check`]). So no clocks
//! are compared, and they may differ in speed by a half.
//!
//! Requests of such a holder may still arrive at the store later. The journal, which commits a statement,
//! therefore carries the number of the lock and is put only if absent, and whoever takes a lock over puts an
//! empty one first: exactly one of both exists, and it stays. This is fencing.

use std::sync::Arc;
use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBuilder};
use bytes::Bytes;
use futures::future::BoxFuture;
use futures::{StreamExt, TryStreamExt};
use object_store::{Error as StoreError, ObjectMeta, ObjectStore};
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::object_store::periodic_task::PeriodicTask;
use crate::object_store::root::{Control, Root};
use crate::object_store::{At, Error, Result};

/// The longest pause between polls of a lock that another statement holds.
pub(crate) const POLL_MAX: Duration = Duration::from_millis(250);

/// Renewals per lease.
const RENEWALS_PER_LEASE: u32 = 6;

/// The last observed state of a lock, and since when it has been the same.
#[derive(Debug, Default)]
pub(crate) struct LockObserver(Option<(u64, ObjectMeta, Option<Instant>)>);

impl LockObserver {
    /// Observes the lock; returns whether it has not changed for a whole lease.
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

/// The backoff between polls of a lock that another statement holds. It never ends.
pub(crate) fn poll_backoff() -> impl Iterator<Item = Duration> + Send {
    ExponentialBuilder::default()
        .with_min_delay(Duration::from_millis(20))
        .with_max_delay(POLL_MAX)
        .without_max_times()
        .build()
}

/// The held lock. Dropping it does not release it: others wait for the lease.
#[derive(Debug)]
pub(crate) struct Lock {
    root: Root,
    number: u64,
    /// Numbers that do not count any more.
    superseded: Vec<u64>,
    /// When it was last confirmed to be held: the time before the request.
    confirmed_at: Arc<Mutex<Instant>>,
    renewal: PeriodicTask,
}

impl Lock {
    /// Waits for the lock. Cancel-safe, except that others may have to wait for a lease.
    pub(crate) async fn acquire(root: &Root, id: &str) -> Result<Self> {
        Self::acquire_observed(root, id, &mut LockObserver::default()).await
    }

    /// The same with an earlier observation of the lock.
    pub(crate) async fn acquire_observed(root: &Root, id: &str, observer: &mut LockObserver) -> Result<Self> {
        let mut backoff = poll_backoff();
        let mut control = root.control().await?;
        loop {
            let next = match control.top() {
                None => Some(1),
                Some((number, _)) if number % 2 == 0 => Some(number + 1),
                Some((number, lock)) => {
                    observer.is_stale(number, lock, root.staging.lease()).then_some(number + 2)
                }
            };
            let asked = Instant::now();
            if let Some(next) = next
                && put(root, next, id).await?
            {
                control = root.control().await?;
                if is_top(&control, next) {
                    let superseded: Vec<u64> =
                        control.locks.keys().copied().filter(|number| *number < next).collect();
                    let lock = Self::start(root, next, superseded, id, asked);
                    lock.fence_off().await?;
                    return Ok(lock);
                }
                remove(root, vec![next]).await;
            } else {
                tokio::time::sleep(backoff.next().unwrap_or(POLL_MAX)).await;
                control = root.control().await?;
            }
        }
    }

    fn start(root: &Root, number: u64, superseded: Vec<u64>, id: &str, asked: Instant) -> Self {
        let confirmed_at = Arc::new(Mutex::new(asked));
        let (own, id, confirmed_again) = (root.clone(), id.to_string(), Arc::clone(&confirmed_at));
        let renewal = PeriodicTask::spawn(root.staging.lease() / RENEWALS_PER_LEASE, move |count| {
            let (root, confirmed_at) = (own.clone(), Arc::clone(&confirmed_again));
            let content = format!("{id} {count}");
            async move { renew(&root, number, content, &confirmed_at).await }
        });
        Self { root: root.clone(), number, superseded, confirmed_at, renewal }
    }

    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Fences off earlier holders: none of them can write a journal from now on.
    async fn fence_off(&self) -> Result<()> {
        for number in self.superseded.iter().filter(|number| *number % 2 == 1) {
            let path = self.root.journal_path(*number);
            self.root.staging.put_if_absent(&path, Bytes::new()).await.at("write to", &path)?;
        }
        Ok(())
    }

    /// Errors: the lease may have expired (`LeaseExpired`).
    pub(crate) fn check(&self) -> Result<()> {
        match self.confirmed_at.lock().elapsed() < self.root.staging.lease() / 2 {
            true => Ok(()),
            false => Err(Error::LeaseExpired { path: self.root.table.to_string() }),
        }
    }

    /// Runs `work` while the lock is certainly held.
    pub(crate) async fn run_while_held<T>(&self, work: BoxFuture<'_, Result<T>>) -> Result<T> {
        let lost = async {
            loop {
                if let Err(error) = self.check() {
                    return error;
                }
                let until = *self.confirmed_at.lock() + self.root.staging.lease() / 2;
                tokio::time::sleep_until(until).await;
            }
        };
        tokio::select! {
            done = work => done,
            error = lost => Err(error),
        }
    }

    /// Releases the lock. If that fails, others wait for the lease.
    pub(crate) async fn release(mut self) {
        self.renewal.stop().await;
        let mut superseded = std::mem::take(&mut self.superseded);
        superseded.push(self.number);
        match put(&self.root, self.number + 1, "").await {
            Ok(_) => remove(&self.root, superseded).await,
            Err(error) => {
                tracing::warn!(%error, "a lock could not be given back; it is free when its lease is over")
            }
        }
    }
}

fn is_top(control: &Control, number: u64) -> bool {
    control.top().is_some_and(|(top, _)| top == number)
}

/// Puts a number; false if it exists already.
async fn put(root: &Root, number: u64, id: &str) -> Result<bool> {
    let path = root.lock_path(number);
    root.staging.put_if_absent(&path, Bytes::copy_from_slice(id.as_bytes())).await.at("write to", &path)
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

/// Renews the lease; returns whether to go on renewing.
async fn renew(root: &Root, number: u64, content: String, confirmed_at: &Mutex<Instant>) -> bool {
    let path = root.lock_path(number);
    let asked = Instant::now();
    let renewed = async {
        root.staging.put_atomic(&path, content.into()).await.at("write to", &path)?;
        root.control().await
    };
    match renewed.await {
        Ok(control) if is_top(&control, number) => {
            *confirmed_at.lock() = asked;
            true
        }
        Ok(_) => false,
        Err(error) => {
            tracing::debug!(%error, "a lock could not be renewed");
            true
        }
    }
}
