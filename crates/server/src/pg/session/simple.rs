//! The simple protocol: a text of statements, run one after the other.

use std::sync::Arc;

use harrier_error::SqlError;
use harrier_session_api::command::SessionCommand;
use harrier_session_api::cursor::CursorStatement;
use harrier_session_api::statement::{Description, StatementKind};

use super::super::portal::Prepared;
use super::run::ClientStatement;
use super::{ClientSession, RequestError, shift, split};

/// The parameter that determines how date literals are parsed.
const DATE_STYLE: &str = "DateStyle";

impl ClientSession {
    pub(super) async fn query(&mut self, text: &str) -> Result<(), RequestError> {
        self.portals.remove("");
        self.statements.remove("");
        let style = self.session.parameter(DATE_STYLE);
        let mut parsed = Vec::new();
        let (registry, session) = (Arc::clone(&self.registry), Arc::clone(&self.guard.entry));
        for part in split(&*self.session, text) {
            let shifted = |failure: SqlError| {
                registry.record_rejected(&session, &part.text, &failure);
                shift(failure, part.offset)
            };
            let read = self.parse_client_statement(&part.text).await.map_err(|error| match error {
                RequestError::Failed(failure) => RequestError::Failed(shifted(failure)),
                gone => gone,
            })?;
            let (description, types) = (Description::default(), vec![]);
            let prepared = match read {
                ClientStatement::SessionCommand(command) => {
                    Prepared::SessionCommand { command, text: part.text.clone(), description, types }
                }
                ClientStatement::Sql(statement) => {
                    Prepared::Sql { statement, description, types, declared_types: vec![] }
                }
            };
            parsed.push((part.offset, prepared));
        }
        if parsed.is_empty() {
            self.io.reply.empty_query();
            return Ok(());
        }
        let many = parsed.len() > 1;
        for (offset, prepared) in parsed {
            let done = match self.parse_again(prepared, style.as_deref()).await {
                Ok(prepared) => self.simple(prepared, many).await,
                Err(error) => Err(error),
            };
            if let Err(error) = done {
                let error = match error {
                    RequestError::Failed(failure) => RequestError::Failed(shift(failure, offset)),
                    gone => gone,
                };
                self.report(Err(error))?;
                return self.end_implicit().await;
            }
            self.report_parameters();
        }
        self.end_implicit().await
    }

    /// Parses a statement again if earlier ones have changed the date order; `style` is the one at the first
    /// parse.
    async fn parse_again(
        &mut self,
        prepared: Prepared,
        style: Option<&str>,
    ) -> Result<Prepared, RequestError> {
        match prepared {
            Prepared::Sql { statement, description, types, declared_types }
                if self.session.parameter(DATE_STYLE).as_deref() != style =>
            {
                let statement = self.parse_statement(&statement.text).await?;
                Ok(Prepared::Sql { statement, description, types, declared_types })
            }
            other => Ok(other),
        }
    }

    pub(super) async fn simple(&mut self, prepared: Prepared, many: bool) -> Result<(), RequestError> {
        let statement = match prepared {
            Prepared::SessionCommand { command, text, .. } => {
                if let SessionCommand::Cursor(CursorStatement::Fetch { name, is_move: false, .. }) = &command
                {
                    let columns = self.cursor_columns(name, None)?;
                    self.io.reply.columns(&columns);
                }
                return self.run_session_command(command, &text, &[], None).await;
            }
            Prepared::Sql { statement, .. } => statement,
            Prepared::Empty => return Ok(()),
        };
        match statement.kind {
            _ if many => self.join_implicit(&statement).await?,
            StatementKind::Begin | StatementKind::Control => self.make_explicit(&statement)?,
            StatementKind::Plain | StatementKind::Alone => {}
        }
        let open = self.start(&statement, &[], &[], true, None).await?;
        match open {
            Some(rows) => self.send_remaining(rows).await,
            None => Ok(()),
        }
    }
}
