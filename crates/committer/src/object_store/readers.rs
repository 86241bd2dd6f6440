//! Readers of a table's folder: they wait until no statement is publishing, and look again when they have
//! listed.

use futures::FutureExt;
use futures::future::BoxFuture;

use crate::object_store::lock::{Lock, LockObserver, POLL_MAX, poll_backoff};
use crate::object_store::recover::recover;
use crate::object_store::root::{Control, Root};
use crate::object_store::{Error, Result};

/// The state of the lock before a reader lists the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LockState {
    /// The lock's number; `None` if there never was one.
    number: Option<u64>,
    /// When the lock of a stalled holder was written: the holder may come back.
    held_since: Option<i64>,
    /// The control folder cannot be read.
    is_unreadable: bool,
}

impl LockState {
    /// Whether nothing was ever published here: the locks of past statements stay.
    pub fn never_published(self) -> bool {
        !self.is_unreadable && self.number.is_none()
    }

    /// Whether the control folder is unreadable, so that only the files themselves can be checked.
    pub fn is_unreadable(self) -> bool {
        self.is_unreadable
    }
}

impl Control {
    /// The state if no statement is publishing.
    fn settled_state(&self) -> Option<LockState> {
        let state = self.state();
        (state.held_since.is_none() && self.journals.is_empty()).then_some(state)
    }

    fn state(&self) -> LockState {
        let held = self.top().filter(|(number, _)| number % 2 == 1);
        LockState {
            number: self.top().map(|(number, _)| number),
            held_since: held.map(|(_, lock)| lock.last_modified.timestamp_micros()),
            is_unreadable: false,
        }
    }
}

impl Root {
    /// Waits until no statement is publishing; completes committed statements of dead processes, if this
    /// process has permission.
    ///
    /// Errors: the control folder cannot be read, or recovery fails.
    pub fn wait_until_settled(&self) -> BoxFuture<'_, Result<LockState>> {
        self.poll_until_settled().boxed()
    }

    async fn poll_until_settled(&self) -> Result<LockState> {
        let mut observer = LockObserver::default();
        let mut backoff = poll_backoff();
        loop {
            let control = match self.control().await {
                // Each folder by itself is consistent all the same.
                Err(error) if error.is_denied() => {
                    return Ok(LockState { number: None, held_since: None, is_unreadable: true });
                }
                control => control?,
            };
            if let Some(settled) = control.settled_state() {
                return Ok(settled);
            }
            let needs_recovery = match control.top() {
                Some((number, lock)) if number % 2 == 1 => {
                    observer.is_stale(number, lock, self.staging.lease())
                }
                _ => true,
            };
            if needs_recovery {
                if control.journals.is_empty() {
                    // Its holder died before it committed, or is fenced off: writers will clean up.
                    return Ok(control.state());
                }
                match self.complete(&mut observer).await {
                    Ok(()) => continue,
                    Err(error) if error.is_denied() => return Ok(control.state()),
                    Err(error) => return Err(error),
                }
            }
            tokio::time::sleep(backoff.next().unwrap_or(POLL_MAX)).await;
        }
    }

    /// Whether nothing was published since, as far as this process can see.
    pub fn is_unchanged(&self, since: LockState) -> BoxFuture<'_, Result<bool>> {
        let look = async move {
            match self.control().await {
                Err(error) if error.is_denied() => Ok(true),
                control => {
                    let control = control?;
                    Ok(control.state() == since
                        && (since.held_since.is_none() || control.journals.is_empty()))
                }
            }
        };
        look.boxed()
    }

    async fn complete(&self, observer: &mut LockObserver) -> Result<()> {
        let lock = Lock::acquire_observed(self, "reader", observer).await?;
        let recovered = recover(self, &lock, "", &|_| {}).await;
        lock.release().await;
        // The failure is not one of the reading statement.
        recovered.map_err(Error::for_other_statement)
    }
}
