//! What becomes of temporary tables when a transaction has been committed: `ON COMMIT DELETE ROWS` and `ON
//! COMMIT DROP`.
//!
//! Outside of a transaction that a client has opened, every statement is one. What its end does to the tables
//! of the session is done before the next statement, which is the first that could see it.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use datafusion::catalog::TableProvider;
use parking_lot::Mutex;

/// What is done to a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AtCommit {
    DeleteRows,
    Drop,
}

/// The tables of a session that something is done to.
#[derive(Debug, Default)]
pub(crate) struct AtCommits(Mutex<Vec<(String, Weak<dyn TableProvider>, AtCommit)>>);

impl AtCommits {
    /// To be called when a table was made.
    pub(crate) fn add(&self, name: &str, table: &Arc<dyn TableProvider>, what: AtCommit) {
        self.0.lock().push((name.to_string(), Arc::downgrade(table), what));
    }

    /// The tables that are there still, with what is done to them: none that was dropped, and another made of
    /// its name. Those that are dropped now, or were, are forgotten.
    pub(super) fn due(
        &self,
        own: &HashMap<String, Arc<dyn TableProvider>>,
    ) -> Vec<(String, Arc<dyn TableProvider>, AtCommit)> {
        let mut all = self.0.lock();
        let mut due = Vec::new();
        all.retain(|(name, table, what)| {
            // One that a rollback has taken away may come back with the savepoint before it.
            let Some(table) = table.upgrade() else { return false };
            if own.get(name).is_some_and(|own| Arc::ptr_eq(own, &table)) {
                due.push((name.clone(), table, *what));
                return *what != AtCommit::Drop;
            }
            false
        });
        due
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.lock().is_empty()
    }
}
