//! Implicit transactions, which group statements that arrive together.

use harrier_error::{SqlError, SqlState};
use harrier_session_api::session::TransactionState;
use harrier_session_api::statement::StatementKind;

use super::super::words;
use super::interrupt::{next_stop, run_interruptible, terminated_error};
use super::{ClientSession, RequestError, failure_of};
use crate::backend::BackendStatement;
use crate::registry::Stop;

impl ClientSession {
    /// Begins an implicit transaction.
    pub(super) async fn begin_implicit(&mut self) -> Result<(), RequestError> {
        if self.session.transaction() == TransactionState::Idle {
            self.control("BEGIN").await?;
            self.is_implicit = true;
        }
        Ok(())
    }

    /// Ends the implicit transaction.
    pub(super) async fn end_implicit(&mut self) -> Result<(), RequestError> {
        if !std::mem::take(&mut self.is_implicit) {
            return Ok(());
        }
        match self.session.transaction() {
            TransactionState::Idle => Ok(()),
            TransactionState::Open => self.control("COMMIT").await,
            TransactionState::Failed => self.control("ROLLBACK").await,
        }
    }

    pub(super) async fn control(&mut self, text: &str) -> Result<(), RequestError> {
        let statement = self.session.parse(text).await?;
        let entry = self.registry.begin(&self.guard.entry, text);
        let work = self.session.execute(&statement, &[], &entry);
        let outcome = run_interruptible(&mut self.io, &mut self.stops, None, work).await;
        let outcome = outcome.and_then(|outcome| Ok(outcome.map(drop)?));
        self.registry.end(&entry, failure_of(&outcome));
        outcome
    }

    /// Lets a statement join the implicit transaction.
    pub(super) async fn join_implicit(&mut self, statement: &BackendStatement) -> Result<(), RequestError> {
        match statement.kind {
            StatementKind::Plain => self.begin_implicit().await,
            StatementKind::Begin | StatementKind::Control => Ok(self.make_explicit(statement)?),
            StatementKind::Alone => {
                let words = statement.text.split_whitespace().next().unwrap_or_default().to_uppercase();
                let message = format!("{words} cannot be executed from a function or multi-command string");
                Err(SqlError::new(SqlState::ACTIVE_TRANSACTION, message).into())
            }
        }
    }

    /// Handles a transaction statement inside an implicit transaction; called before it runs. BEGIN turns the
    /// implicit transaction into an explicit one with all its changes; a misplaced statement raises a
    /// warning.
    ///
    /// Errors: it requires an explicit transaction (25P01).
    pub(super) fn make_explicit(&mut self, statement: &BackendStatement) -> Result<(), SqlError> {
        let state = self.session.transaction();
        let is_begun = state != TransactionState::Idle && !self.is_implicit;
        let words: Vec<String> = words::words(&statement.text).map(str::to_ascii_lowercase).collect();
        let first = words.first().map_or("", String::as_str);
        let ends = matches!(first, "commit" | "end" | "rollback" | "abort")
            && !words.iter().any(|word| word == "to");
        let is_chained = words.ends_with(&["and".to_string(), "chain".to_string()]);
        if statement.kind == StatementKind::Control && !is_begun && (!ends || is_chained) {
            let words = if ends { &words[..] } else { &words[..words.len().min(1)] };
            let message =
                format!("{} can only be used in transaction blocks", words.join(" ").to_uppercase());
            return Err(SqlError::new(SqlState::NO_ACTIVE_TRANSACTION, message));
        }
        self.is_implicit = false;
        let warning = match statement.kind {
            StatementKind::Begin if is_begun && state == TransactionState::Open => {
                SqlError::new(SqlState::ACTIVE_TRANSACTION, "there is already a transaction in progress")
            }
            StatementKind::Control if !is_begun => {
                SqlError::new(SqlState::NO_ACTIVE_TRANSACTION, "there is no transaction in progress")
            }
            _ => return Ok(()),
        };
        self.io.reply.notice("WARNING", &warning);
        Ok(())
    }

    /// Whether only Sync follows the current message.
    pub(super) async fn is_last(&mut self) -> Result<bool, RequestError> {
        if self.is_implicit {
            return Ok(false);
        }
        loop {
            if let Some(next) = self.io.input.first() {
                return Ok(*next == b'S');
            }
            self.io.take_ready().await?;
            if self.io.input.is_empty() {
                self.flush().await?;
                let Self { io, stops, .. } = self;
                tokio::select! {
                    filled = io.fill() => filled?,
                    stop = next_stop(stops) => if stop == Stop::Session {
                        return Err(terminated_error().into());
                    },
                }
            }
        }
    }
}
