//! The cancellation flag of a statement, polled by code that computes without yielding.
//!
//! Dropping a stream cancels work that awaits. Work inside one poll continues: a nested-loop join whose
//! condition rejects almost all pairs, a function over a batch of long texts, an optimizer rule. Such code
//! polls the statement's flag, [`CancelFlag`], which another thread sets.
//!
//! - The code that runs a statement creates its flag and sets it as [`CancelFlag::current`] while the
//!   statement is planned and started.
//! - In the process that took the statement, its memory pool holds the flag
//!   ([`crate::statement_memory::cancel_flag`]), and so does the account of its functions
//!   ([`crate::value_account`]). A slice on another rank has its own flag, which the call that delivered the
//!   slice sets when it ends.
//!
//! Errors: code that finds the flag set fails with 57014.

use std::future::Future;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, LazyLock};

use datafusion::common::Result;
use harrier_error::{SqlError, SqlState};
use harrier_sqlstate::IntoDataFusionError;
use tokio::runtime::Handle;

use crate::worker_handover;

tokio::task_local! {
    static CURRENT: CancelFlag;
}

const RUNS: u8 = 0;

/// Why a statement was canceled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Reason {
    /// Canceled by a request, or it has ended.
    Request = 1,
    /// The statement timeout expired.
    Timeout = 2,
}

/// The cancellation flag of one statement. Cheap to clone; once set, it stays set.
#[derive(Debug, Clone, Default)]
pub struct CancelFlag(Arc<AtomicU8>);

impl CancelFlag {
    /// The flag of the statement being planned or started in this task, inside [`CancelFlag::scope`].
    pub fn current() -> Option<Self> {
        CURRENT.try_with(Self::clone).ok()
    }

    /// Runs `work` with this as the current flag.
    pub fn scope<F: Future>(&self, work: F) -> impl Future<Output = F::Output> + use<F> {
        CURRENT.scope(self.clone(), work)
    }

    /// Sets the flag; the first reason wins.
    pub fn set(&self, reason: Reason) {
        let _ = self.0.compare_exchange(RUNS, reason as u8, Ordering::Relaxed, Ordering::Relaxed);
    }

    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed) != RUNS
    }

    /// Polls the flag, and periodically lets the other tasks of this thread run ([`worker_handover`]).
    ///
    /// Errors: the statement was canceled (57014).
    pub fn check(&self) -> Result<()> {
        worker_handover::hand_over();
        let message = match self.0.load(Ordering::Relaxed) {
            RUNS => return Ok(()),
            reason if reason == Reason::Timeout as u8 => "canceling statement due to statement timeout",
            _ => "canceling statement due to user request",
        };
        Err(SqlError::new(SqlState::QUERY_CANCELED, message).into_datafusion())
    }

    /// Returns a guard that sets the flag when dropped.
    pub fn cancel_on_drop(&self) -> CancelOnDrop {
        CancelOnDrop(Some(self.clone()))
    }
}

/// Polls the flag of the statement being planned in this task, if there is one.
///
/// Errors: it was canceled (57014).
pub fn check_current() -> Result<()> {
    CURRENT.try_with(CancelFlag::check).unwrap_or(Ok(()))
}

/// Cancels a statement when dropped.
#[derive(Debug)]
pub struct CancelOnDrop(Option<CancelFlag>);

impl CancelOnDrop {
    /// Disarms the guard.
    pub fn disarm(mut self) {
        self.0 = None;
    }
}

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        if let Some(canceled) = &self.0 {
            canceled.set(Reason::Request);
        }
    }
}

/// A runtime on a dedicated thread without compute tasks, so that setting a flag never waits behind the code
/// that polls it. One per process, created on first use.
pub fn dedicated_runtime() -> &'static Handle {
    static RUNTIME: LazyLock<Handle> = LazyLock::new(|| {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("harrier-aside")
            .enable_all()
            .build()
            .expect("a thread can be started");
        let handle = runtime.handle().clone();
        // It lives as long as the process.
        std::mem::forget(runtime);
        handle
    });
    &RUNTIME
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn cancellation_flag_is_task_local() {
        let canceled = CancelFlag::default();
        let seen = canceled.scope(async { (CancelFlag::current().is_some(), check_current().is_ok()) }).await;
        assert_eq!(seen, (true, true));
        drop(canceled.cancel_on_drop());
        let given_up = canceled.scope(async { check_current() }).await.unwrap_err();
        assert_eq!(harrier_sqlstate::of(&given_up), SqlState::QUERY_CANCELED);
        assert!(CancelFlag::current().is_none() && check_current().is_ok());
        let kept = CancelFlag::default();
        kept.cancel_on_drop().disarm();
        assert!(!kept.is_set());
    }
}
