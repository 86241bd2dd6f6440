//! The part of a session that belongs to its warehouse: names, the open transaction, temporary tables,
//! sequences.

use std::sync::Arc;

use datafusion::error::Result;
use parking_lot::Mutex;

use crate::warehouse::deferred_access::DeferredAccess;
use crate::warehouse::name_resolver::NameResolver;
use crate::warehouse::sequences::session_values::SessionSequences;
use crate::warehouse::temporary_snapshots::TemporaryStates;
use crate::warehouse::transaction::{Control, Transactions};

/// The warehouse part of a session.
pub(crate) struct WarehouseSession {
    pub(crate) names: Arc<NameResolver>,
    pub(crate) transactions: Transactions,
    /// Access statements on objects created by the open transaction, to be run when it commits.
    pub(crate) deferred: Mutex<DeferredAccess>,
    /// Saved temporary tables, for rollback of the open transaction.
    pub(crate) temporary_states: TemporaryStates,
    pub(crate) sequences: SessionSequences,
}

impl WarehouseSession {
    /// Saves the temporary tables at the beginning of a transaction, so that a rollback restores them.
    pub(crate) async fn begin_temporary(&self) -> Result<()> {
        self.temporary_states.begin(self.names.temporary_state().await?);
        Ok(())
    }

    /// The same for savepoints.
    pub(crate) async fn control_temporary(&self, control: &Control) -> Result<()> {
        match control {
            Control::Begin { .. } => self.begin_temporary().await,
            Control::Savepoint(name) => {
                self.temporary_states.savepoint(name, self.names.temporary_state().await?);
                Ok(())
            }
            Control::Release(name) => {
                self.temporary_states.release(name);
                Ok(())
            }
            Control::RollbackTo(name) => match self.temporary_states.roll_back_to(name) {
                Some(state) => self.names.restore_temporary(state).await,
                None => Ok(()),
            },
            _ => Ok(()),
        }
    }

    /// To be called when a transaction has ended.
    pub(crate) async fn end_temporary(&self, is_committed: bool) -> Result<()> {
        match self.temporary_states.end() {
            Some(state) if !is_committed => self.names.restore_temporary(state).await,
            _ => Ok(()),
        }
    }
}
