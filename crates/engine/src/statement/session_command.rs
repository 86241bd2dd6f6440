//! DISCARD and DEALLOCATE, of a session that has no client: a server runs the commands of its clients itself,
//! for it keeps more of theirs.

use datafusion::error::Result;
use harrier_error::{SqlError, SqlState};
use harrier_session_api::command::{Discard, SessionCommand};
use harrier_sqlstate::IntoDataFusionError;

use crate::session::Session;
use crate::statement::outcome::{Outcome, command};

impl Session {
    /// Errors: the command is about what only a client's connection has (0A000); there is no such prepared
    /// statement (26000); DISCARD ALL is in a transaction that BEGIN has opened (25001).
    pub(crate) async fn run_session_command(&self, session_command: &SessionCommand) -> Result<Outcome> {
        let unsupported =
            |message: String| Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message).into_datafusion());
        match session_command {
            SessionCommand::Discard(what) => self.run_discard(*what).await?,
            SessionCommand::Deallocate(name) => self.prepared_statements().deallocate(name.as_deref())?,
            SessionCommand::Cursor(_) => {
                let message = "cursors are for clients of harrier serve that speak PostgreSQL's protocol";
                return unsupported(message.to_string());
            }
            SessionCommand::Listen | SessionCommand::Notify => {
                return unsupported(format!("{} is not supported", session_command.tag()));
            }
            SessionCommand::Unlisten | SessionCommand::Checkpoint => {
                let tag = session_command.tag();
                return unsupported(format!(
                    "{tag} is for clients of harrier serve that speak PostgreSQL's protocol"
                ));
            }
        }
        Ok(command(session_command.tag()))
    }

    async fn run_discard(&self, what: Discard) -> Result<()> {
        match what {
            Discard::All => {
                if self.warehouse().is_some_and(|warehouse| warehouse.transactions.is_open()) {
                    let message = "DISCARD ALL cannot run inside a transaction block";
                    return Err(SqlError::new(SqlState::ACTIVE_TRANSACTION, message).into_datafusion());
                }
                self.discard().await.map_err(IntoDataFusionError::into_datafusion)
            }
            Discard::Temporary => {
                self.discard_temporary().await.map_err(IntoDataFusionError::into_datafusion)
            }
            Discard::Sequences => {
                self.discard_sequences();
                Ok(())
            }
            Discard::Plans => Ok(()),
        }
    }
}
