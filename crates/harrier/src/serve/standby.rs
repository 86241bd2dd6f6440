//! Standby protocol: of several servers of one warehouse, one serves and the others wait to take over.
//!
//! Lease and fence belong to the catalog (`harrier-catalog`); this module decides when to request them.
//! `docs/decisions/0014-…` has the reasons.
//!
//! # Invariants
//! A server stops serving before its lease expires, by its own clock and counted from before its renewal.
//! Independent of its clock, its commits fail once another server has taken over.

use std::time::Duration;

use harrier_engine::{Fence, Lease};
use tokio::time::{Instant, sleep, sleep_until, timeout, timeout_at};

/// Interval of a standby's attempts to take over.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// Timeout of one attempt.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(5);

/// Renewals of a lease per lease time.
const RENEWALS: u32 = 5;

/// Retry delay after a failed renewal.
const RETRY_PAUSE: Duration = Duration::from_millis(200);

/// State of this server in the standby group.
pub(super) struct Standby {
    catalog: String,
    time: Duration,
    fence: Fence,
    lease: Option<Lease>,
    /// When this server must have stopped serving.
    deadline: Instant,
    next: Instant,
    /// The last error, so that it is logged once.
    trouble: String,
}

impl Standby {
    /// `time`: duration of a lease.
    pub(super) fn new(catalog: String, time: Duration, fence: Fence) -> Self {
        let now = Instant::now();
        Self { catalog, time, fence, lease: None, deadline: now, next: now, trouble: String::new() }
    }

    /// The name of the current lease holder, if alive.
    ///
    /// Errors: the catalog cannot be reached, or does not support leases.
    pub(super) async fn holder(&mut self) -> Result<Option<String>, harrier_engine::CatalogError> {
        let holder = self.lease().await?.holder().await?;
        Ok(holder.filter(|holder| holder.is_alive).map(|holder| holder.name))
    }

    async fn lease(&mut self) -> Result<&Lease, harrier_engine::CatalogError> {
        if self.lease.is_none() {
            self.lease = Some(Lease::open(&self.catalog, self.fence.clone()).await?);
        }
        Ok(self.lease.as_ref().expect("it was just opened"))
    }

    /// Waits until this server acquires the lease; returns the term. Cancel-safe.
    pub(super) async fn take(&mut self) -> i64 {
        loop {
            let requested = Instant::now();
            let time = self.time;
            let taken = timeout(ATTEMPT_TIMEOUT, async { self.lease().await?.acquire(time).await }).await;
            match taken {
                Ok(Ok(Some(term))) => {
                    self.trouble.clear();
                    self.set_deadlines(requested);
                    return term;
                }
                Ok(Ok(None)) => self.trouble.clear(),
                Ok(Err(error)) => self.warn_once(error.to_string()),
                Err(_) => self.warn_once("the catalog does not answer".to_string()),
            }
            sleep(POLL_INTERVAL).await;
        }
    }

    /// Renews the lease until that fails; returns the reason. Cancel-safe, but must be called again soon.
    pub(super) async fn hold(&mut self) -> String {
        loop {
            sleep_until(self.next).await;
            let requested = Instant::now();
            let (time, deadline) = (self.time, self.deadline);
            match timeout_at(deadline, async { self.lease().await?.renew(time).await }).await {
                Ok(Ok(true)) => {
                    self.trouble.clear();
                    self.set_deadlines(requested);
                }
                Ok(Ok(false)) => return "another server has taken over".to_string(),
                Ok(Err(error)) if Instant::now() < deadline => {
                    self.warn_once(error.to_string());
                    self.next = (Instant::now() + RETRY_PAUSE).min(deadline);
                }
                _ => {
                    self.fence.close();
                    let reason =
                        if self.trouble.is_empty() { "the catalog does not answer" } else { &self.trouble };
                    return format!("the lease was not renewed in time: {reason}");
                }
            }
        }
    }

    /// Releases the lease, so that another server takes over at once.
    pub(super) async fn give_up(&mut self) {
        self.fence.close();
        let given = timeout(ATTEMPT_TIMEOUT, async { self.lease().await?.release().await }).await;
        if let Ok(Err(error)) = given {
            tracing::warn!(%error, "the lease could not be given up; it runs out by itself");
        }
    }

    fn set_deadlines(&mut self, requested: Instant) {
        self.deadline = requested + self.time * 9 / 10;
        self.next = requested + self.time / RENEWALS;
    }

    fn warn_once(&mut self, trouble: String) {
        if trouble != self.trouble {
            tracing::warn!(trouble, "cannot ask for the lease");
        }
        self.trouble = trouble;
    }
}
