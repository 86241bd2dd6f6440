//! Snapshots of a session's temporary tables and views, for rollback of a transaction or to a savepoint.
//!
//! No other session sees these tables, so a copy of the whole set suffices. It shares rows instead of copying
//! them.

use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::catalog::{MemTable, TableProvider};
use parking_lot::Mutex;

/// Tables and views by name, with the rows of in-memory tables.
#[derive(Debug, Clone, Default)]
pub(crate) struct TemporaryState(Vec<(String, Arc<dyn TableProvider>, Vec<Vec<RecordBatch>>)>);

impl TemporaryState {
    pub(super) async fn add(&mut self, name: String, table: Arc<dyn TableProvider>) {
        let mut rows = Vec::new();
        if let Some(table) = table.downcast_ref::<MemTable>() {
            for partition in &table.batches {
                rows.push(partition.read().await.clone());
            }
        }
        self.0.push((name, table, rows));
    }

    /// Restores the tables' rows; returns the tables.
    pub(super) async fn restore(self) -> Vec<(String, Arc<dyn TableProvider>)> {
        let mut restored = Vec::with_capacity(self.0.len());
        for (name, table, rows) in self.0 {
            if let Some(table) = table.downcast_ref::<MemTable>() {
                for (partition, rows) in table.batches.iter().zip(rows) {
                    *partition.write().await = rows;
                }
            }
            restored.push((name, table));
        }
        restored
    }
}

/// The states at the beginning of the open transaction and at its savepoints.
#[derive(Debug, Default)]
pub(crate) struct TemporaryStates(Mutex<Vec<(Option<String>, TemporaryState)>>);

impl TemporaryStates {
    /// To be called when a transaction has begun. BEGIN within one changes nothing.
    pub(crate) fn begin(&self, state: TemporaryState) {
        let mut states = self.0.lock();
        if states.is_empty() {
            states.push((None, state));
        }
    }

    pub(crate) fn savepoint(&self, name: &str, state: TemporaryState) {
        self.0.lock().push((Some(name.to_string()), state));
    }

    pub(crate) fn release(&self, name: &str) {
        let mut states = self.0.lock();
        if let Some(at) = place(&states, name) {
            states.truncate(at);
        }
    }

    /// The state at a savepoint, which stays.
    pub(crate) fn roll_back_to(&self, name: &str) -> Option<TemporaryState> {
        let mut states = self.0.lock();
        let at = place(&states, name)?;
        states.truncate(at + 1);
        states.last().map(|(_, state)| state.clone())
    }

    /// The state at the beginning of the transaction, which has ended.
    pub(crate) fn end(&self) -> Option<TemporaryState> {
        std::mem::take(&mut *self.0.lock()).into_iter().next().map(|(_, state)| state)
    }
}

fn place(states: &[(Option<String>, TemporaryState)], name: &str) -> Option<usize> {
    states.iter().rposition(|(known, _)| known.as_deref() == Some(name))
}
