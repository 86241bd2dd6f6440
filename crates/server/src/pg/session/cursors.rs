//! Cursors and other session commands.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::SystemTime;

use arrow::array::ArrayRef;
use bytes::Bytes;
use harrier_error::{SqlError, SqlState};
use harrier_session_api::command::{Discard, SessionCommand};
use harrier_session_api::cursor::{Count, CursorKind, CursorStatement, Step};
use harrier_session_api::named_objects::{self, NamedObjects, PreparedStatement};
use harrier_session_api::session::TransactionState;
use harrier_session_api::statement::StatementPart;

use super::super::portal::{OpenRows, Prepared};
use super::super::reply::Column;
use super::super::rows;
use super::super::scroll::{Order, Rows, Scroll};
use super::interrupt::{run_interruptible, send};
use super::{
    ClientSession, Cursor, LONG_TEXT_BYTES, NAMES_MAX, RequestError, failed_transaction, failure_of, shift,
};

/// Rows of a scrollable cursor written between two checks of the send buffer.
const ROWS_AT_ONCE: u64 = 1024;

impl ClientSession {
    pub(super) fn cursor(&mut self, name: &str) -> Result<&mut Cursor, SqlError> {
        let missing =
            || SqlError::new(SqlState::INVALID_CURSOR_NAME, format!("cursor \"{name}\" does not exist"));
        self.cursors.get_mut(name).ok_or_else(missing)
    }

    /// Passes the client's prepared statements and cursors to the session, if the text may query them.
    pub(super) fn set_named_objects(&self, text: &str) {
        let asks = |name: &str| {
            text.as_bytes().windows(name.len()).any(|part| part.eq_ignore_ascii_case(name.as_bytes()))
        };
        if text.len() > LONG_TEXT_BYTES || !(asks("pg_cursors") || asks("pg_prepared_statements")) {
            return;
        }
        let named = |(name, (prepared, since)): (&String, &(Arc<Prepared>, SystemTime))| {
            let text = match prepared.as_ref() {
                Prepared::Sql { statement, .. } => statement.text.clone(),
                Prepared::SessionCommand { text, .. } => text.clone(),
                Prepared::Empty => String::new(),
            };
            PreparedStatement { name: name.clone(), text, since: *since, is_of_sql: false }
        };
        // The unnamed statement is not listed.
        let statements = self.statements.iter().filter(|(name, _)| !name.is_empty()).map(named);
        let cursors = self.cursors.iter().map(|(name, cursor)| named_objects::Cursor {
            name: name.clone(),
            text: cursor.text.clone(),
            kind: CursorKind {
                is_held: cursor.is_held,
                is_binary: cursor.is_binary,
                is_scrollable: cursor.scroll.is_some(),
            },
            since: cursor.since,
        });
        self.session
            .set_named_objects(NamedObjects { prepared: statements.collect(), cursors: cursors.collect() });
    }

    /// The row description of a FETCH. `formats`: empty in the simple protocol.
    pub(super) fn cursor_columns(
        &mut self,
        name: &str,
        formats: Option<&[i16]>,
    ) -> Result<Vec<Column>, SqlError> {
        let cursor = self.cursor(name)?;
        let declared = [i16::from(cursor.is_binary)];
        rows::with_formats(cursor.rows.stream.columns.clone(), formats.unwrap_or(&declared))
    }

    /// Runs a session command. `formats`: of the rows of FETCH, as for [`Self::cursor_columns`].
    pub(super) async fn run_session_command(
        &mut self,
        command: SessionCommand,
        text: &str,
        values: &[ArrayRef],
        formats: Option<&[i16]>,
    ) -> Result<(), RequestError> {
        if self.session.transaction() == TransactionState::Failed {
            return Err(failed_transaction().into());
        }
        let tag = command.tag();
        match command {
            SessionCommand::Cursor(CursorStatement::Declare { name, query, kind }) => {
                let rows =
                    self.declare(&name, &query, kind.is_held, values).await.map_err(|error| match error {
                        RequestError::Failed(failure) => RequestError::Failed(shift(failure, query.offset)),
                        gone => gone,
                    })?;
                let scroll = match kind.is_scrollable {
                    true => Some(Scroll::new(self.session.row_buffer()?)),
                    false => None,
                };
                let CursorKind { is_held, is_binary, .. } = kind;
                let (text, since) = (text.to_string(), SystemTime::now());
                self.cursors.insert(name, Cursor { rows, is_held, is_binary, scroll, text, since });
            }
            SessionCommand::Cursor(CursorStatement::Fetch { name, step, is_move }) => {
                return self.fetch(&name, step, is_move, formats).await;
            }
            SessionCommand::Cursor(CursorStatement::Close(None)) => self.cursors.clear(),
            SessionCommand::Cursor(CursorStatement::Close(Some(name))) => {
                self.cursor(&name)?;
                self.cursors.remove(&name);
            }
            SessionCommand::Discard(Discard::All) => {
                if self.session.transaction() == TransactionState::Open {
                    let message = "DISCARD ALL cannot run inside a transaction block";
                    return Err(SqlError::new(SqlState::ACTIVE_TRANSACTION, message).into());
                }
                self.cursors.clear();
                self.portals.clear();
                self.statements.clear();
                self.session.discard(Discard::All).await?;
                self.report_parameters();
            }
            SessionCommand::Discard(what) => self.session.discard(what).await?,
            SessionCommand::Deallocate(None) => {
                self.statements.clear();
                self.control(text).await?;
            }
            SessionCommand::Deallocate(Some(name)) => {
                if self.statements.remove(&name).is_none() {
                    self.control(text).await?;
                }
            }
            // There are no notifications; LISTEN and NOTIFY are refused when they are parsed.
            SessionCommand::Listen | SessionCommand::Notify | SessionCommand::Unlisten => {}
            SessionCommand::Checkpoint => {
                if self.session.parameter("is_superuser").as_deref() != Some("on") {
                    let message = "permission denied to execute CHECKPOINT command";
                    return Err(SqlError::new(SqlState::INSUFFICIENT_PRIVILEGE, message)
                        .with_detail("Only roles with the SUPERUSER attribute may execute this command.")
                        .into());
                }
            }
        }
        self.io.reply.complete(tag);
        Ok(())
    }

    pub(super) async fn declare(
        &mut self,
        name: &str,
        query: &StatementPart,
        is_held: bool,
        values: &[ArrayRef],
    ) -> Result<OpenRows, RequestError> {
        let query = query.text.as_str();
        // PostgreSQL parses the whole statement before it checks for existing cursors.
        let statement = self.parse_statement(query).await.inspect_err(|error| {
            if let RequestError::Failed(failure) = error {
                self.registry.record_rejected(&self.guard.entry, query, failure);
            }
        })?;
        if self.session.transaction() == TransactionState::Idle && !is_held {
            let message = "DECLARE CURSOR can only be used in transaction blocks";
            return Err(SqlError::new(SqlState::NO_ACTIVE_TRANSACTION, message).into());
        }
        if self.cursors.contains_key(name) {
            return Err(SqlError::new(
                SqlState::DUPLICATE_CURSOR,
                format!("cursor \"{name}\" already exists"),
            )
            .into());
        }
        if self.cursors.len() >= NAMES_MAX {
            return Err(SqlError::new(SqlState::PROGRAM_LIMIT_EXCEEDED, "too many cursors").into());
        }
        // They would write before the first FETCH.
        if matches!(statement.tag, "INSERT" | "UPDATE" | "DELETE" | "MERGE") {
            let message = format!("a cursor is for a query, and not for {}", statement.tag);
            return Err(SqlError::new(SqlState::SYNTAX_ERROR, message).into());
        }
        match self.start(&statement, values, &[], false, None).await? {
            Some(rows) => Ok(rows),
            None => {
                Err(SqlError::new(SqlState::SYNTAX_ERROR, "a cursor is for a query that returns rows").into())
            }
        }
    }

    pub(super) async fn fetch(
        &mut self,
        name: &str,
        step: Step,
        is_move: bool,
        formats: Option<&[i16]>,
    ) -> Result<(), RequestError> {
        let columns = self.cursor_columns(name, formats)?;
        let Some(mut cursor) = self.cursors.remove(name) else {
            return Ok(());
        };
        cursor.rows.stream.columns = columns;
        let done = match cursor.scroll.is_some() {
            true => self.fetch_anywhere(&mut cursor, step, is_move).await,
            false => self.fetch_forward(&mut cursor.rows, step, is_move).await,
        };
        let count = match done {
            Ok(count) => count,
            Err(error) => {
                let done: Result<(), RequestError> = Err(error);
                self.registry.end(&cursor.rows.entry, failure_of(&done));
                return done;
            }
        };
        let verb = if is_move { "MOVE" } else { "FETCH" };
        self.io.reply.complete(&format!("{verb} {count}"));
        self.cursors.insert(name.to_string(), cursor);
        Ok(())
    }

    /// FETCH from a forward-only cursor; returns the number of rows moved.
    async fn fetch_forward(
        &mut self,
        rows: &mut OpenRows,
        step: Step,
        is_move: bool,
    ) -> Result<u64, RequestError> {
        let here = rows.stream.sent;
        let (passed, wanted) = match step {
            Step::Forward(Count::Rows(count)) => (0, count),
            Step::Forward(Count::All) => (0, u64::MAX),
            Step::Relative(count) if count > 0 => (count as u64 - 1, 1),
            Step::Absolute(row) if row > 0 && row as u64 > here => (row as u64 - 1 - here, 1),
            _ => {
                let failure =
                    SqlError::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, "cursor can only scan forward")
                        .with_hint("Declare it with SCROLL option to enable backward scan.");
                return Err(failure.into());
            }
        };
        let limit = |count: u64| usize::try_from(count).unwrap_or(usize::MAX);
        self.pass_rows(rows, limit(passed)).await?;
        let before = rows.stream.sent;
        match is_move {
            false => self.send_rows(rows, limit(wanted)).await.map(drop)?,
            true => self.pass_rows(rows, limit(wanted)).await?,
        }
        Ok(rows.stream.sent - before)
    }

    /// FETCH from a scrollable cursor; returns the number of rows moved.
    async fn fetch_anywhere(
        &mut self,
        cursor: &mut Cursor,
        step: Step,
        is_move: bool,
    ) -> Result<u64, RequestError> {
        let deadline = self.deadline();
        let Cursor { rows, scroll: Some(scroll), .. } = cursor else { return Ok(0) };
        let found = scroll.fetch(step, &mut rows.stream);
        let Rows { first, count, order } =
            run_interruptible(&mut self.io, &mut self.stops, deadline, found).await??;
        let mut left = if is_move { 0 } else { count };
        let mut at = first;
        while left > 0 {
            let loaded = scroll.load(at, &rows.stream.columns);
            let (begin, batch) = run_interruptible(&mut self.io, &mut self.stops, deadline, loaded).await??;
            let from = (at - begin) as usize;
            // Backward, rows are written one by one.
            let here = match order {
                Order::Forward => left.min((batch.rows - from) as u64).min(ROWS_AT_ONCE),
                Order::Backward => 1,
            };
            let formats = rows.stream.columns.iter().map(|column| column.format);
            let before = self.io.reply.0.len();
            let part = (from, from + here as usize);
            batch.write_rows(part, b'D', &mut Bytes::new(), formats, self.zone, &mut self.io.reply.0)?;
            rows.entry.rows.fetch_add(here, Ordering::Relaxed);
            rows.entry.bytes.fetch_add((self.io.reply.0.len() - before) as u64, Ordering::Relaxed);
            left -= here;
            at = match order {
                Order::Forward => at + here,
                Order::Backward => at.saturating_sub(here),
            };
            if self.io.is_full() {
                let give_up = |failure: &SqlError| rows.abort(failure);
                send(&mut self.io, &mut self.stops, deadline, give_up).await?;
            }
        }
        Ok(count)
    }

    pub(super) async fn pass_rows(
        &mut self,
        rows: &mut OpenRows,
        rows_max: usize,
    ) -> Result<(), RequestError> {
        let mut left = rows_max;
        while left > 0 && run_interruptible(&mut self.io, &mut self.stops, None, rows.stream.next()).await?? {
            left -= rows.stream.skip(left);
        }
        Ok(())
    }
}
