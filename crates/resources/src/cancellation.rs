//! The flag of a statement that has been given up, for what computes without a pause.
//!
//! Dropping a stream ends what waits. What is inside of one poll goes on: the loops of a join whose condition
//! takes next to none of the pairs that it looks at, a function over a batch of long texts, a rule of the
//! planner. Such code looks at the flag of its statement, [`Canceled`], which somebody sets from another
//! thread.
//!
//! - Who runs a statement makes its flag, and has it known as [`Canceled::current`] while the statement is
//!   planned and begun.
//! - In the process that took the statement its pool of memory has the flag
//!   ([`crate::statement_memory::canceled`]), and the account of its functions ([`crate::value_account`]). A
//!   part on another rank has a flag of its own, which the call that brought the part sets when it ends.
//!
//! Errors: what finds the flag set fails with 57014.

use std::future::Future;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, LazyLock};

use datafusion::common::Result;
use harrier_error::{SqlError, SqlState};
use harrier_sqlstate::IntoDataFusionError;
use tokio::runtime::Handle;

use crate::worker_handover;

tokio::task_local! {
    static CURRENT: Canceled;
}

const RUNS: u8 = 0;

/// Why a statement was given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Reason {
    /// Somebody wants no more of it, or it has ended.
    Request = 1,
    /// It has had its time.
    Timeout = 2,
}

/// The flag of one statement. Cheap to clone; once set, it stays so.
#[derive(Debug, Clone, Default)]
pub struct Canceled(Arc<AtomicU8>);

impl Canceled {
    /// That of the statement which is planned or begun here, inside of [`Canceled::scope`].
    pub fn current() -> Option<Self> {
        CURRENT.try_with(Self::clone).ok()
    }

    /// Does `work` with this as the flag of its statement.
    pub fn scope<F: Future>(&self, work: F) -> impl Future<Output = F::Output> + use<F> {
        CURRENT.scope(self.clone(), work)
    }

    /// The first reason stays.
    pub fn set(&self, reason: Reason) {
        let _ = self.0.compare_exchange(RUNS, reason as u8, Ordering::Relaxed, Ordering::Relaxed);
    }

    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed) != RUNS
    }

    /// Looks at the flag, and now and then lets the other tasks of this thread go on ([`worker_handover`]).
    ///
    /// Errors: the statement has been given up (57014).
    pub fn check(&self) -> Result<()> {
        worker_handover::hand_over();
        let message = match self.0.load(Ordering::Relaxed) {
            RUNS => return Ok(()),
            reason if reason == Reason::Timeout as u8 => "canceling statement due to statement timeout",
            _ => "canceling statement due to user request",
        };
        Err(SqlError::new(SqlState::QUERY_CANCELED, message).into_datafusion())
    }

    /// Sets it when what is returned is dropped.
    pub fn when_dropped(&self) -> CancelOnDrop {
        CancelOnDrop(Some(self.clone()))
    }
}

/// Looks at the flag of the statement that is planned here, if there is one.
///
/// Errors: it has been given up (57014).
pub fn check_current() -> Result<()> {
    CURRENT.try_with(Canceled::check).unwrap_or(Ok(()))
}

/// Gives a statement up when it is dropped.
#[derive(Debug)]
pub struct CancelOnDrop(Option<Canceled>);

impl CancelOnDrop {
    /// Drops it without that.
    pub fn keep(mut self) {
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

/// A runtime on a thread of its own that nothing computes on, so that what sets flags is never behind what
/// looks at them. One for the process, made when it is first asked for.
pub fn aside() -> &'static Handle {
    static ASIDE: LazyLock<Handle> = LazyLock::new(|| {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("harrier-aside")
            .enable_all()
            .build()
            .expect("a thread can be started");
        let handle = runtime.handle().clone();
        // It ends with the process.
        std::mem::forget(runtime);
        handle
    });
    &ASIDE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_flag_of_a_statement_is_found_where_it_is_planned() {
        let canceled = Canceled::default();
        let seen = canceled.scope(async { (Canceled::current().is_some(), check_current().is_ok()) }).await;
        assert_eq!(seen, (true, true));
        drop(canceled.when_dropped());
        let given_up = canceled.scope(async { check_current() }).await.unwrap_err();
        assert_eq!(harrier_sqlstate::of(&given_up), SqlState::QUERY_CANCELED);
        assert!(Canceled::current().is_none() && check_current().is_ok());
        let kept = Canceled::default();
        kept.when_dropped().keep();
        assert!(!kept.is_set());
    }
}
