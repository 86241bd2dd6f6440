//! The part of a session that belongs to its warehouse: names, the open transaction, temporary tables,
//! sequences.

use std::sync::Arc;

use datafusion::error::Result;
use parking_lot::Mutex;

use crate::warehouse::deferred_access::Deferred;
use crate::warehouse::name_resolver::Names;
use crate::warehouse::sequences::session_values::SessionSequences;
use crate::warehouse::temporary_snapshots::OwnStates;
use crate::warehouse::transaction::{Control, Transactions};

/// The tables of a session that stay.
pub(crate) struct WarehouseSession {
    pub(crate) names: Arc<Names>,
    pub(crate) transactions: Transactions,
    /// Statements about the access to what the open transaction has made: they are run when that is
    /// committed.
    pub(crate) deferred: Mutex<Deferred>,
    /// What tables of the session alone were before the open transaction, for when that is rolled back.
    pub(crate) own_states: OwnStates,
    pub(crate) sequences: SessionSequences,
}

impl WarehouseSession {
    /// Has what tables of the session alone are now come back when the transaction that begins is rolled
    /// back.
    pub(crate) async fn begin_own(&self) -> Result<()> {
        self.own_states.begin(self.names.own_state().await?);
        Ok(())
    }

    /// The same for a part of the transaction.
    pub(crate) async fn control_own(&self, control: &Control) -> Result<()> {
        match control {
            Control::Begin { .. } => self.begin_own().await,
            Control::Savepoint(name) => {
                self.own_states.savepoint(name, self.names.own_state().await?);
                Ok(())
            }
            Control::Release(name) => {
                self.own_states.release(name);
                Ok(())
            }
            Control::RollbackTo(name) => match self.own_states.roll_back_to(name) {
                Some(state) => self.names.restore_own(state).await,
                None => Ok(()),
            },
            _ => Ok(()),
        }
    }

    /// To be called when a transaction has ended.
    pub(crate) async fn end_own(&self, is_committed: bool) -> Result<()> {
        match self.own_states.end() {
            Some(state) if !is_committed => self.names.restore_own(state).await,
            _ => Ok(()),
        }
    }
}
