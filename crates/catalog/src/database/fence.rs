//! The right of a process to write, which every commit verifies (`lease.rs` acquires it).
//!
//! A commit of a fenced process locks the row of its term for sharing, so no later term begins before it has
//! ended, and fails if a later term has begun.
//!
//! # Errors
//! A commit without the right to it is [`Error::ReadOnly`]; it has no effect.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use crate::database::session::Session;
use crate::error::{Error, Result};

/// Prefix of the application name of a server's connections, followed by its name.
pub(super) const APPLICATION: &str = "harrier ";

/// The right of this process to commit. Shared by clones.
#[derive(Clone)]
pub struct Fence {
    /// The term; 0: this process has none.
    pub(super) term: Arc<AtomicI64>,
    pub(super) name: Arc<str>,
}

impl fmt::Debug for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fence({}, term {})", self.name, self.term())
    }
}

impl Fence {
    /// For a process with this unique name. It has no right yet.
    pub fn new(name: impl Into<Arc<str>>) -> Self {
        Self { term: Arc::default(), name: name.into() }
    }

    /// The term in which this process may commit; 0: it may not.
    pub fn term(&self) -> i64 {
        self.term.load(Ordering::Acquire)
    }

    /// Revokes the right at once, whatever the database says.
    pub fn close(&self) {
        self.term.store(0, Ordering::Release);
    }

    /// The application name of this process's connections.
    pub(crate) fn application(&self) -> String {
        format!("{APPLICATION}{}", self.name)
    }

    /// Checks, inside a transaction that is about to write, that this process holds this term, and locks that
    /// until the transaction's end.
    pub(crate) async fn check(&self, session: &mut Session, term: i64) -> Result<()> {
        let held = format!("SELECT 1 FROM harrier_term WHERE term = {term} FOR SHARE");
        if term == 0 || term != self.term() || session.query(held).await?.is_empty() {
            return Err(Error::ReadOnly("nothing can be written: another server has taken over".to_string()));
        }
        Ok(())
    }
}
