//! Execution of a statement from start to last row, in both protocols.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use arrow::array::ArrayRef;
use arrow::datatypes::Schema;
use bytes::Bytes;
use harrier_error::{SqlError, SqlState};
use harrier_session_api::command::SessionCommand;
use harrier_session_api::statement::StatementKind;

use super::super::portal::{Expected, OpenRows};
use super::super::result_stream::ResultStream;
use super::super::rows;
use super::interrupt::{run_interruptible, send, terminated_error};
use super::{ClientSession, LONG_TEXT_BYTES, RequestError, failure_of, settle_with};
use crate::backend::{BackendResponse, BackendStatement};
use crate::registry::{Phase, Stop};

/// A client's statement.
pub(super) enum ClientStatement {
    SessionCommand(SessionCommand),
    Sql(BackendStatement),
}

impl ClientSession {
    /// Parses a statement or session command.
    pub(super) async fn parse_client_statement(
        &mut self,
        text: &str,
    ) -> Result<ClientStatement, RequestError> {
        let command = match text.len() < LONG_TEXT_BYTES {
            true => self.session.command(text),
            false => tokio::task::block_in_place(|| self.session.command(text)),
        };
        match command? {
            Some(command @ (SessionCommand::Listen | SessionCommand::Notify)) => {
                let message = format!("{} is not supported", command.tag());
                Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message).into())
            }
            Some(command) => Ok(ClientStatement::SessionCommand(command)),
            None => self.parse_statement(text).await.map(ClientStatement::Sql),
        }
    }

    /// Parses a statement; while parsing, it is listed and can be canceled.
    pub(super) async fn parse_statement(&mut self, text: &str) -> Result<BackendStatement, RequestError> {
        let deadline = self.deadline();
        self.stops.mark_unchanged();
        if self.guard.entry.requested_stop() == Some(Stop::Session) {
            return Err(terminated_error().into());
        }
        let entry = self.registry.begin_parsing(&self.guard.entry, text);
        let parse = self.session.parse(text);
        let done = match run_interruptible(&mut self.io, &mut self.stops, deadline, parse).await {
            Ok(parsed) => parsed.map_err(RequestError::from),
            Err(error) => Err(error),
        };
        self.registry.end_parsing(&self.guard.entry, &entry);
        done
    }

    /// Executes a statement. Returns its rows, if any; otherwise its completion has been reported.
    ///
    /// Errors: its columns differ from `expected` (0A000); those of execution.
    pub(super) async fn start(
        &mut self,
        statement: &BackendStatement,
        values: &[ArrayRef],
        formats: &[i16],
        tells_columns: bool,
        expected: Option<Expected<'_>>,
    ) -> Result<Option<OpenRows>, RequestError> {
        let deadline = self.deadline();
        self.set_named_objects(&statement.text);
        self.stops.mark_unchanged();
        if self.guard.entry.requested_stop() == Some(Stop::Session) {
            return Err(terminated_error().into());
        }
        let entry = self.registry.begin(&self.guard.entry, &statement.text);
        let work = self.session.execute(statement, values, &entry);
        let outcome = run_interruptible(&mut self.io, &mut self.stops, deadline, work).await;
        if let Ok(Ok(_)) = &outcome {
            entry.set_phase(Phase::Running);
        }
        let done = match outcome {
            Ok(Ok(BackendResponse::Rows { schema, rows })) => {
                let checked = match expected {
                    Some(expected) => self.check_columns(statement, &schema, expected, deadline).await,
                    None => Ok(()),
                };
                match checked.and_then(|()| Ok(rows::columns(&schema, formats)?)) {
                    Ok(columns) => {
                        if tells_columns {
                            self.io.reply.columns(&columns);
                        }
                        let stream = ResultStream::new(columns, rows);
                        let registry = Arc::clone(&self.registry);
                        return Ok(Some(OpenRows::new(registry, entry, statement.tag, stream)));
                    }
                    Err(error) => {
                        drop(rows);
                        Err(error)
                    }
                }
            }
            Ok(Ok(BackendResponse::Done(done))) => Ok(done),
            Ok(Ok(BackendResponse::CopyIn(copy))) => self.copy_in(copy, &entry, deadline).await,
            Ok(Ok(BackendResponse::CopyOut(copy))) => self.copy_out(copy, &entry, deadline).await,
            Ok(Err(failure)) => Err(failure.into()),
            Err(error) => Err(error),
        };
        let done = settle_with(&*self.session, done).await;
        self.registry.end(&entry, failure_of(&done));
        let done = done?;
        for notice in &done.notices {
            self.io.reply.notice("NOTICE", &SqlError::new(SqlState::SUCCESSFUL_COMPLETION, notice.as_str()));
        }
        // Transaction statements have warned before: only here is it known whether the transaction is
        // implicit.
        let is_warned = matches!(statement.kind, StatementKind::Begin | StatementKind::Control);
        for warning in done.warnings.iter().filter(|_| !is_warned) {
            self.io.reply.notice("WARNING", &SqlError::new(SqlState::WARNING, warning.as_str()));
        }
        self.io.reply.complete(&done.tag);
        Ok(None)
    }

    /// Errors: the statement's description has changed (0A000).
    async fn check_columns(
        &mut self,
        statement: &BackendStatement,
        schema: &Schema,
        expected: Expected<'_>,
        deadline: Option<Instant>,
    ) -> Result<(), RequestError> {
        let described = rows::columns(expected.columns, &[])?;
        if rows::columns(schema, &[])? == described {
            return Ok(());
        }
        // With bound values, types may differ from the description, too.
        let again = self.session.describe(statement, expected.declared_types);
        let again = run_interruptible(&mut self.io, &mut self.stops, deadline, again).await?;
        let columns = again.ok().and_then(|description| description.columns);
        match columns.map(|columns| rows::columns(&columns, &[])).transpose()? {
            Some(columns) if columns == described => Ok(()),
            _ => Err(crate::backend::changed_result().into()),
        }
    }

    /// The deadline of a statement that begins now.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.session.time_limits().statement.map(|limit| Instant::now() + limit)
    }

    /// Sends all remaining rows, and ends the statement.
    pub(super) async fn send_remaining(&mut self, mut rows: OpenRows) -> Result<(), RequestError> {
        let sent = self.send_rows(&mut rows, usize::MAX).await;
        if sent.is_err() {
            self.registry.end(&rows.entry, failure_of(&sent));
        }
        let tag = rows.complete();
        drop(rows);
        settle_with(&*self.session, sent).await?;
        self.io.reply.complete(&tag);
        Ok(())
    }

    /// Sends up to `rows_max` rows; true if the result is complete.
    pub(super) async fn send_rows(
        &mut self,
        rows: &mut OpenRows,
        rows_max: usize,
    ) -> Result<bool, RequestError> {
        let deadline = self.deadline();
        let mut left = rows_max;
        loop {
            if !rows.stream.has_ready() {
                let next = rows.stream.next();
                if !run_interruptible(&mut self.io, &mut self.stops, deadline, next).await?? {
                    return Ok(true);
                }
            }
            if left == 0 {
                return Ok(false);
            }
            let before = self.io.reply.0.len();
            let count =
                rows.stream.write_rows(left, b'D', &mut Bytes::new(), self.zone, &mut self.io.reply)?;
            left -= count;
            rows.entry.rows.fetch_add(count as u64, Ordering::Relaxed);
            rows.entry.bytes.fetch_add((self.io.reply.0.len() - before) as u64, Ordering::Relaxed);
            if self.io.is_full() {
                let give_up = |failure: &SqlError| rows.abort(failure);
                send(&mut self.io, &mut self.stops, deadline, give_up).await?;
            }
        }
    }
}
