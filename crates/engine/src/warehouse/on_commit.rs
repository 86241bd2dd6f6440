//! `ON COMMIT DELETE ROWS` and `ON COMMIT DROP` of temporary tables.
//!
//! Outside a transaction block every statement is a transaction. Its commit actions run before the next
//! statement, which is the first that could see their effect.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use datafusion::catalog::TableProvider;
use parking_lot::Mutex;

/// The commit action of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OnCommitAction {
    DeleteRows,
    Drop,
}

/// The session's tables with commit actions.
#[derive(Debug, Default)]
pub(crate) struct OnCommitActions(Mutex<Vec<(String, Weak<dyn TableProvider>, OnCommitAction)>>);

impl OnCommitActions {
    /// Registers a new table.
    pub(crate) fn add(&self, name: &str, table: &Arc<dyn TableProvider>, what: OnCommitAction) {
        self.0.lock().push((name.to_string(), Arc::downgrade(table), what));
    }

    /// Returns the tables that still exist, with their actions; a table that was dropped and recreated under
    /// its name is not among them. Forgets tables that are dropped now or were before.
    pub(super) fn due(
        &self,
        own: &HashMap<String, Arc<dyn TableProvider>>,
    ) -> Vec<(String, Arc<dyn TableProvider>, OnCommitAction)> {
        let mut all = self.0.lock();
        let mut due = Vec::new();
        all.retain(|(name, table, what)| {
            // A table removed by a rollback may come back with an earlier savepoint.
            let Some(table) = table.upgrade() else { return false };
            if own.get(name).is_some_and(|own| Arc::ptr_eq(own, &table)) {
                due.push((name.clone(), table, *what));
                return *what != OnCommitAction::Drop;
            }
            false
        });
        due
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.lock().is_empty()
    }
}
