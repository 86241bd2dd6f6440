//! The tables and views of a session alone in its transactions: where one is undone, or a part of it, they
//! are what they were.
//!
//! No other session sees them, so that a picture of all of them does. Rows are shared with it, not copied.

use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::catalog::{MemTable, TableProvider};
use parking_lot::Mutex;

/// Tables and views by their names, with the rows of those that are in memory.
#[derive(Debug, Clone, Default)]
pub(crate) struct OwnState(Vec<(String, Arc<dyn TableProvider>, Vec<Vec<RecordBatch>>)>);

impl OwnState {
    pub(super) async fn add(&mut self, name: String, table: Arc<dyn TableProvider>) {
        let mut rows = Vec::new();
        if let Some(table) = table.downcast_ref::<MemTable>() {
            for partition in &table.batches {
                rows.push(partition.read().await.clone());
            }
        }
        self.0.push((name, table, rows));
    }

    /// The same tables with the rows that they had.
    pub(super) async fn restored(self) -> Vec<(String, Arc<dyn TableProvider>)> {
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

/// What they were when the open transaction began, and at its savepoints.
#[derive(Debug, Default)]
pub(crate) struct OwnStates(Mutex<Vec<(Option<String>, OwnState)>>);

impl OwnStates {
    /// To be called when a transaction has begun. BEGIN within one changes nothing.
    pub(crate) fn begin(&self, state: OwnState) {
        let mut states = self.0.lock();
        if states.is_empty() {
            states.push((None, state));
        }
    }

    pub(crate) fn savepoint(&self, name: &str, state: OwnState) {
        self.0.lock().push((Some(name.to_string()), state));
    }

    pub(crate) fn release(&self, name: &str) {
        let mut states = self.0.lock();
        if let Some(at) = place(&states, name) {
            states.truncate(at);
        }
    }

    /// What they were at a savepoint, which stays.
    pub(crate) fn roll_back_to(&self, name: &str) -> Option<OwnState> {
        let mut states = self.0.lock();
        let at = place(&states, name)?;
        states.truncate(at + 1);
        states.last().map(|(_, state)| state.clone())
    }

    /// What they were when the transaction began, which has ended.
    pub(crate) fn end(&self) -> Option<OwnState> {
        std::mem::take(&mut *self.0.lock()).into_iter().next().map(|(_, state)| state)
    }
}

fn place(states: &[(Option<String>, OwnState)], name: &str) -> Option<usize> {
    states.iter().rposition(|(known, _)| known.as_deref() == Some(name))
}
