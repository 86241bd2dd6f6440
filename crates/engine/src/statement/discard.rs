//! DISCARD, of a session that has no client: a server answers its clients itself, for it keeps more of
//! theirs.

use datafusion::error::Result;
use datafusion::sql::sqlparser::ast::DiscardObject;
use harrier_error::{SqlError, SqlState};
use harrier_sqlstate::IntoDataFusionError;

use crate::session::Session;
use crate::statement::outcome::{Outcome, command};

impl Session {
    /// Errors: ALL is in a transaction that BEGIN has opened (25001).
    pub(crate) async fn run_discard(&self, object: &DiscardObject) -> Result<Outcome> {
        let tag = match object {
            DiscardObject::ALL => {
                if self.warehouse().is_some_and(|warehouse| warehouse.transactions.is_open()) {
                    let message = "DISCARD ALL cannot run inside a transaction block";
                    return Err(SqlError::new(SqlState::ACTIVE_TRANSACTION, message).into_datafusion());
                }
                self.discard().await.map_err(IntoDataFusionError::into_datafusion)?;
                "DISCARD ALL"
            }
            DiscardObject::TEMP => {
                self.discard_temporary().await.map_err(IntoDataFusionError::into_datafusion)?;
                "DISCARD TEMP"
            }
            DiscardObject::SEQUENCES => {
                self.discard_sequences();
                "DISCARD SEQUENCES"
            }
            // Plans are not kept.
            DiscardObject::PLANS => "DISCARD PLANS",
        };
        Ok(command(tag))
    }
}
