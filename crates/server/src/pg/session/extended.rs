//! The extended protocol: prepared statements, portals, and results in pieces.

use std::sync::Arc;
use std::time::SystemTime;

use arrow::datatypes::DataType;
use harrier_error::{SqlError, SqlState};
use harrier_session_api::command::SessionCommand;
use harrier_session_api::cursor::{Count, CursorStatement, Step};
use harrier_session_api::session::TransactionState;
use harrier_session_api::statement::{Description, StatementKind};

use super::super::messages::{Bind, Target};
use super::super::portal::{Expected, Portal, PortalState, Prepared};
use super::super::types::{self, PgType};
use super::super::{rows, values};
use super::interrupt::run_interruptible;
use super::run::ClientStatement;
use super::{
    ClientSession, NAMES_MAX, RequestError, failed_transaction, failure_of, settle_with, shift, split,
};

impl ClientSession {
    pub(super) async fn parse(
        &mut self,
        name: String,
        text: &str,
        types: Vec<u32>,
    ) -> Result<(), RequestError> {
        if !name.is_empty() && self.statements.contains_key(&name) {
            let message = format!("prepared statement \"{name}\" already exists");
            return Err(SqlError::new(SqlState::DUPLICATE_PREPARED_STATEMENT, message).into());
        }
        self.statements.remove(&name);
        if self.statements.len() >= NAMES_MAX {
            return Err(
                SqlError::new(SqlState::PROGRAM_LIMIT_EXCEEDED, "too many prepared statements").into()
            );
        }
        let mut parts = split(&*self.session, text).into_iter();
        let prepared = match (parts.next(), parts.next()) {
            (None, _) => Prepared::Empty,
            (_, Some(_)) => {
                let message = "cannot insert multiple commands into a prepared statement";
                return Err(SqlError::new(SqlState::SYNTAX_ERROR, message).into());
            }
            (Some(part), None) => self.prepare(&part.text, types).await.map_err(|error| match error {
                RequestError::Failed(failure) => {
                    self.registry.record_rejected(&self.guard.entry, &part.text, &failure);
                    RequestError::Failed(shift(failure, part.offset))
                }
                gone => gone,
            })?,
        };
        self.statements.insert(name, (Arc::new(prepared), SystemTime::now()));
        self.io.reply.parse_complete();
        Ok(())
    }

    pub(super) async fn prepare(&mut self, text: &str, oids: Vec<u32>) -> Result<Prepared, RequestError> {
        let statement = match self.parse_client_statement(text).await? {
            ClientStatement::Sql(statement) => statement,
            ClientStatement::SessionCommand(command) => {
                let mut description = Description::default();
                let mut types = vec![];
                if let SessionCommand::Cursor(CursorStatement::Declare { query, .. }) = &command {
                    let inner = Box::pin(self.prepare(&query.text, oids)).await;
                    let inner = inner.map_err(|error| match error {
                        RequestError::Failed(failure) => RequestError::Failed(shift(failure, query.offset)),
                        gone => gone,
                    })?;
                    if let Prepared::Sql { description: found, types: known, .. } = inner {
                        description.parameters = found.parameters;
                        types = known;
                    }
                }
                return Ok(Prepared::SessionCommand { command, text: text.to_string(), description, types });
            }
        };
        let is_control = matches!(statement.kind, StatementKind::Begin | StatementKind::Control);
        if is_control {
            let description = Description::default();
            return Ok(Prepared::Sql { statement, description, types: vec![], declared_types: vec![] });
        }
        if self.session.transaction() == TransactionState::Failed {
            return Err(failed_transaction().into());
        }
        let declared_types: Vec<Option<DataType>> = oids.iter().map(|oid| types::arrow_type(*oid)).collect();
        let described = self.session.describe(&statement, &declared_types);
        let description = run_interruptible(&mut self.io, &mut self.stops, None, described).await??;
        let types = description
            .parameters
            .iter()
            .enumerate()
            .map(|(at, data_type)| match oids.get(at).copied().unwrap_or(0) {
                0 | types::UNKNOWN => {
                    let name = description.names.get(at).and_then(Option::as_deref);
                    name.and_then(PgType::from_name).unwrap_or_else(|| PgType::of(data_type))
                }
                oid => PgType { oid, ..PgType::of(data_type) },
            })
            .collect();
        Ok(Prepared::Sql { statement, description, types, declared_types })
    }

    pub(super) fn bind(&mut self, bind: Bind) -> Result<(), RequestError> {
        let Bind { portal, statement, formats, values, result_formats } = bind;
        let prepared = self.prepared_statement(&statement)?;
        let (expected, types): (&[DataType], &[PgType]) = match prepared.as_ref() {
            Prepared::Sql { description, types, .. }
            | Prepared::SessionCommand { description, types, .. } => (&description.parameters, types),
            Prepared::Empty => (&[], &[]),
        };
        if values.len() != expected.len() {
            let message = format!(
                "bind message supplies {} parameters, but prepared statement \"{statement}\" requires {}",
                values.len(),
                expected.len()
            );
            return Err(SqlError::new(SqlState::PROTOCOL_VIOLATION, message).into());
        }
        if formats.len() > 1 && formats.len() != values.len() {
            let message = format!(
                "bind message has {} parameter formats but {} parameters",
                formats.len(),
                values.len()
            );
            return Err(SqlError::new(SqlState::PROTOCOL_VIOLATION, message).into());
        }
        if self.session.transaction() == TransactionState::Failed
            && !matches!(prepared.as_ref(), Prepared::Sql { statement, .. } if statement.kind == StatementKind::Control)
        {
            return Err(failed_transaction().into());
        }
        if !portal.is_empty() && self.portals.contains_key(&portal) {
            return Err(SqlError::new(
                SqlState::DUPLICATE_CURSOR,
                format!("cursor \"{portal}\" already exists"),
            )
            .into());
        }
        if self.portals.len() >= NAMES_MAX {
            return Err(SqlError::new(SqlState::PROGRAM_LIMIT_EXCEEDED, "too many portals").into());
        }
        let time = |text: &str, wanted: &DataType| self.session.time_text(text, wanted);
        let values = values
            .iter()
            .enumerate()
            .map(|(at, value)| {
                let is_binary = formats.get(at).or(formats.first()).is_some_and(|format| *format == 1);
                values::decode_parameter(
                    value.as_deref(),
                    is_binary,
                    types[at].oid,
                    &expected[at],
                    at + 1,
                    &time,
                )
            })
            .collect::<Result<Vec<_>, _>>()?;
        let state = PortalState::New;
        self.portals.insert(portal, Portal { prepared, values, formats: result_formats, state });
        self.io.reply.bind_complete();
        Ok(())
    }

    pub(super) fn prepared_statement(&self, name: &str) -> Result<Arc<Prepared>, SqlError> {
        self.statements.get(name).map(|(prepared, _)| Arc::clone(prepared)).ok_or_else(|| {
            let message = match name.is_empty() {
                true => "unnamed prepared statement does not exist".to_string(),
                false => format!("prepared statement \"{name}\" does not exist"),
            };
            SqlError::new(SqlState::INVALID_STATEMENT_NAME, message)
        })
    }

    pub(super) fn describe(&mut self, target: Target, name: &str) -> Result<(), RequestError> {
        let (prepared, formats) = match target {
            Target::Statement => (self.prepared_statement(name)?, vec![]),
            Target::Portal => match self.portals.get(name) {
                Some(portal) => (Arc::clone(&portal.prepared), portal.formats.clone()),
                // An SQL cursor is a portal too.
                None if self.cursors.contains_key(name) => {
                    let columns = self.cursor_columns(name, None)?;
                    self.io.reply.columns(&columns);
                    return Ok(());
                }
                None => {
                    return Err(SqlError::new(
                        SqlState::INVALID_CURSOR_NAME,
                        format!("portal \"{name}\" does not exist"),
                    )
                    .into());
                }
            },
        };
        if target == Target::Statement {
            match prepared.as_ref() {
                Prepared::Sql { types, .. } | Prepared::SessionCommand { types, .. } => {
                    self.io.reply.parameters(types)
                }
                Prepared::Empty => self.io.reply.parameters(&[]),
            }
        }
        match prepared.as_ref() {
            Prepared::Sql { description: Description { columns: Some(schema), .. }, .. } => {
                let columns = rows::columns(schema, &formats)?;
                self.io.reply.columns(&columns);
            }
            Prepared::SessionCommand {
                command: SessionCommand::Cursor(CursorStatement::Fetch { name, is_move: false, .. }),
                ..
            } => {
                let columns = self.cursor_columns(name, Some(&formats))?;
                self.io.reply.columns(&columns);
            }
            _ => self.io.reply.no_data(),
        }
        Ok(())
    }

    pub(super) async fn execute(&mut self, name: String, rows_max: usize) -> Result<(), RequestError> {
        let missing =
            || SqlError::new(SqlState::INVALID_CURSOR_NAME, format!("portal \"{name}\" does not exist"));
        if !self.portals.contains_key(&name) && self.cursors.contains_key(&name) {
            let count = if rows_max == 0 { Count::All } else { Count::Rows(rows_max as u64) };
            return self.fetch(&name, Step::Forward(count), false, None).await;
        }
        // Removed while it runs; a failed portal is not put back.
        let mut portal = self.portals.remove(&name).ok_or_else(missing)?;
        let prepared = Arc::clone(&portal.prepared);
        let state = std::mem::replace(&mut portal.state, PortalState::Done);
        let mut rows = match (state, prepared.as_ref()) {
            (PortalState::Open(rows), _) => *rows,
            (_, Prepared::Empty) => {
                self.io.reply.empty_query();
                self.portals.insert(name, portal);
                return Ok(());
            }
            (PortalState::New, Prepared::SessionCommand { command, text, .. }) => {
                self.run_session_command(command.clone(), text, &portal.values, Some(&portal.formats))
                    .await?;
                self.report_parameters();
                return Ok(());
            }
            (PortalState::New, Prepared::Sql { statement, description, declared_types, .. }) => {
                if matches!(statement.kind, StatementKind::Begin | StatementKind::Control) {
                    self.join_implicit(statement).await?;
                } else if statement.kind == StatementKind::Plain && !self.is_last().await? {
                    self.begin_implicit().await?;
                }
                let expected =
                    description.columns.as_deref().map(|columns| Expected { columns, declared_types });
                let started = self.start(statement, &portal.values, &portal.formats, false, expected).await?;
                self.report_parameters();
                match started {
                    Some(rows) => rows,
                    None => {
                        self.portals.insert(name, portal);
                        return Ok(());
                    }
                }
            }
            (PortalState::Done, Prepared::Sql { statement, .. }) => {
                let zero = if statement.tag == "INSERT" { "0 0" } else { "0" };
                self.io.reply.complete(&format!("{} {zero}", statement.tag));
                self.portals.insert(name, portal);
                return Ok(());
            }
            (PortalState::Done, Prepared::SessionCommand { command, .. }) => {
                self.io.reply.complete(command.tag());
                return Ok(());
            }
        };
        if rows_max == 0 {
            self.send_remaining(rows).await?;
        } else {
            match self.send_rows(&mut rows, rows_max).await {
                Ok(true) => {
                    self.io.reply.complete(&rows.complete());
                    drop(rows);
                    settle_with(&*self.session, Ok(())).await?;
                }
                Ok(false) => {
                    self.io.reply.portal_suspended();
                    portal.state = PortalState::Open(Box::new(rows));
                }
                Err(error) => {
                    let done: Result<(), RequestError> = Err(error);
                    self.registry.end(&rows.entry, failure_of(&done));
                    return done;
                }
            }
        }
        self.portals.insert(name, portal);
        Ok(())
    }
}
