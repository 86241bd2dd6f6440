//! Of several servers of one warehouse, one serves and the others wait to take over: this server's part in
//! it.
//!
//! The lease and the fence are the catalog's (`harrier-catalog`); this is when they are asked for.
//! `docs/decisions/0014-…` says why.
//!
//! # Invariants
//! A server stops serving before its lease has run out, by its own clock and counted from before it was
//! renewed. Whatever its clock does, its commits fail once another one has taken over.

use std::time::Duration;

use harrier_engine::{Fence, Lease};
use tokio::time::{Instant, sleep, sleep_until, timeout, timeout_at};

/// How often a standby looks whether it can take over.
const LOOK: Duration = Duration::from_millis(500);

/// How long one look may take.
const LOOK_MAX: Duration = Duration::from_secs(5);

/// How often a lease is renewed in its time.
const RENEWALS: u32 = 5;

/// The pause after a renewal that has failed.
const AGAIN: Duration = Duration::from_millis(200);

/// This server's part.
pub(super) struct Standby {
    catalog: String,
    time: Duration,
    fence: Fence,
    lease: Option<Lease>,
    /// When this server has to have stopped serving.
    deadline: Instant,
    next: Instant,
    /// The last trouble, so that it is told once.
    trouble: String,
}

impl Standby {
    /// `time`: how long a lease is good.
    pub(super) fn new(catalog: String, time: Duration, fence: Fence) -> Self {
        let now = Instant::now();
        Self { catalog, time, fence, lease: None, deadline: now, next: now, trouble: String::new() }
    }

    /// Who serves, if it is known.
    ///
    /// Errors: the catalog cannot be reached, or cannot have a lease.
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

    /// Waits until this server may serve; returns the term. May be dropped and called again.
    pub(super) async fn take(&mut self) -> i64 {
        loop {
            let asked = Instant::now();
            let time = self.time;
            let taken = timeout(LOOK_MAX, async { self.lease().await?.take(time).await }).await;
            match taken {
                Ok(Ok(Some(term))) => {
                    self.trouble.clear();
                    self.renewed(asked);
                    return term;
                }
                Ok(Ok(None)) => self.trouble.clear(),
                Ok(Err(error)) => self.tell(error.to_string()),
                Err(_) => self.tell("the catalog does not answer".to_string()),
            }
            sleep(LOOK).await;
        }
    }

    /// Renews the lease for as long as that can be done; returns why it cannot any more. May be dropped and
    /// called again, soon.
    pub(super) async fn hold(&mut self) -> String {
        loop {
            sleep_until(self.next).await;
            let asked = Instant::now();
            let (time, deadline) = (self.time, self.deadline);
            match timeout_at(deadline, async { self.lease().await?.renew(time).await }).await {
                Ok(Ok(true)) => {
                    self.trouble.clear();
                    self.renewed(asked);
                }
                Ok(Ok(false)) => return "another server has taken over".to_string(),
                Ok(Err(error)) if Instant::now() < deadline => {
                    self.tell(error.to_string());
                    self.next = (Instant::now() + AGAIN).min(deadline);
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

    /// Lets another server take over at once.
    pub(super) async fn give_up(&mut self) {
        self.fence.close();
        let given = timeout(LOOK_MAX, async { self.lease().await?.give_up().await }).await;
        if let Ok(Err(error)) = given {
            tracing::warn!(%error, "the lease could not be given up; it runs out by itself");
        }
    }

    fn renewed(&mut self, asked: Instant) {
        self.deadline = asked + self.time * 9 / 10;
        self.next = asked + self.time / RENEWALS;
    }

    fn tell(&mut self, trouble: String) {
        if trouble != self.trouble {
            tracing::warn!(trouble, "cannot ask for the lease");
        }
        self.trouble = trouble;
    }
}
