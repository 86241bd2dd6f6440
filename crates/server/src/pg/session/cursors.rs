//! Cursors, and what else is about the conversation and no statement of the engine.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::SystemTime;

use arrow::array::ArrayRef;
use bytes::Bytes;
use harrier_error::{SqlError, SqlState};

use super::super::own::Own;
use super::super::portal::{OpenRows, Prepared};
use super::super::reply::Column;
use super::super::rows;
use super::super::scroll::{Order, Rows, Scroll};
use super::interrupt::{send, until};
use super::{
    Conversation, Cursor, LONG_TEXT_BYTES, NAMES_MAX, Trouble, failed_transaction, failure_of, shift,
};
use crate::backend::{Count, CursorKind, CursorStatement, Discard, Named, Part, Step, TransactionState};

/// Rows of a cursor that goes back that are written before it is looked whether they are to be sent.
const ROWS_AT_ONCE: u64 = 1024;

impl Conversation {
    pub(super) fn cursor(&mut self, name: &str) -> Result<&mut Cursor, SqlError> {
        let missing =
            || SqlError::new(SqlState::INVALID_CURSOR_NAME, format!("cursor \"{name}\" does not exist"));
        self.cursors.get_mut(name).ok_or_else(missing)
    }

    /// Tells the session what the client has given names, if a statement may ask for that.
    pub(super) fn tell_named(&self, text: &str) {
        let asks = |name: &str| {
            text.as_bytes().windows(name.len()).any(|part| part.eq_ignore_ascii_case(name.as_bytes()))
        };
        if text.len() > LONG_TEXT_BYTES || !(asks("pg_cursors") || asks("pg_prepared_statements")) {
            return;
        }
        let named = |(name, (prepared, since)): (&String, &(Arc<Prepared>, SystemTime))| {
            let text = match prepared.as_ref() {
                Prepared::Sql { statement, .. } => statement.text.clone(),
                Prepared::Own { text, .. } => text.clone(),
                Prepared::Empty => String::new(),
            };
            Named { name: name.clone(), text, since: *since, cursor: None }
        };
        // That without a name is nobody's to find.
        let statements = self.statements.iter().filter(|(name, _)| !name.is_empty()).map(named);
        let cursors = self.cursors.iter().map(|(name, cursor)| Named {
            name: name.clone(),
            text: cursor.text.clone(),
            since: cursor.since,
            cursor: Some(CursorKind {
                is_held: cursor.is_held,
                is_binary: cursor.is_binary,
                is_scrollable: cursor.scroll.is_some(),
            }),
        });
        self.session.set_named(statements.chain(cursors).collect());
    }

    /// What a client is told of the rows that FETCH brings. `formats`: none are said in the simple protocol.
    pub(super) fn cursor_columns(
        &mut self,
        name: &str,
        formats: Option<&[i16]>,
    ) -> Result<Vec<Column>, SqlError> {
        let cursor = self.cursor(name)?;
        let own = [i16::from(cursor.is_binary)];
        rows::formatted(cursor.rows.feed.columns.clone(), formats.unwrap_or(&own))
    }

    /// `formats`: of the rows of FETCH, as [`Self::cursor_columns`] has them.
    pub(super) async fn own(
        &mut self,
        own: Own,
        text: &str,
        values: &[ArrayRef],
        formats: Option<&[i16]>,
    ) -> Result<(), Trouble> {
        if self.session.transaction() == TransactionState::Failed {
            return Err(failed_transaction().into());
        }
        let tag = own.tag();
        match own {
            Own::Cursor(CursorStatement::Declare { name, query, kind }) => {
                let rows =
                    self.declare(&name, &query, kind.is_held, values).await.map_err(
                        |trouble| match trouble {
                            Trouble::Failed(failure) => Trouble::Failed(shift(failure, query.offset)),
                            gone => gone,
                        },
                    )?;
                let scroll = match kind.is_scrollable {
                    true => Some(Scroll::new(self.session.keep_rows()?)),
                    false => None,
                };
                let CursorKind { is_held, is_binary, .. } = kind;
                let (text, since) = (text.to_string(), SystemTime::now());
                self.cursors.insert(name, Cursor { rows, is_held, is_binary, scroll, text, since });
            }
            Own::Cursor(CursorStatement::Fetch { name, step, is_move }) => {
                return self.fetch(&name, step, is_move, formats).await;
            }
            Own::Cursor(CursorStatement::Close(None)) => self.cursors.clear(),
            Own::Cursor(CursorStatement::Close(Some(name))) => {
                self.cursor(&name)?;
                self.cursors.remove(&name);
            }
            Own::DiscardAll => {
                if self.session.transaction() == TransactionState::Open {
                    let message = "DISCARD ALL cannot run inside a transaction block";
                    return Err(SqlError::new(SqlState::ACTIVE_TRANSACTION, message).into());
                }
                self.cursors.clear();
                self.portals.clear();
                self.statements.clear();
                self.session.discard(Discard::All).await?;
                self.tell_parameters();
            }
            Own::DiscardTemporary => self.session.discard(Discard::Temporary).await?,
            Own::DiscardSequences => self.session.discard(Discard::Sequences).await?,
            Own::Deallocate(None) => {
                self.statements.clear();
                self.control(text).await?;
            }
            Own::Deallocate(Some(name)) => {
                if self.statements.remove(&name).is_none() {
                    self.control(text).await?;
                }
            }
            Own::Nothing(_) => {}
            Own::Checkpoint => {
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
        query: &Part,
        is_held: bool,
        values: &[ArrayRef],
    ) -> Result<OpenRows, Trouble> {
        let query = query.text.as_str();
        // As PostgreSQL, which has read all of a statement before it looks at what is there.
        let statement = self.parsed(query).await.inspect_err(|trouble| {
            if let Trouble::Failed(failure) = trouble {
                self.registry.never_ran(&self.guard.entry, query, failure);
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
        // They would have written before anybody fetches.
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
    ) -> Result<(), Trouble> {
        let columns = self.cursor_columns(name, formats)?;
        let Some(mut cursor) = self.cursors.remove(name) else {
            return Ok(());
        };
        cursor.rows.feed.columns = columns;
        let done = match cursor.scroll.is_some() {
            true => self.fetch_anywhere(&mut cursor, step, is_move).await,
            false => self.fetch_forward(&mut cursor.rows, step, is_move).await,
        };
        let count = match done {
            Ok(count) => count,
            Err(trouble) => {
                let done: Result<(), Trouble> = Err(trouble);
                self.registry.end(&cursor.rows.entry, failure_of(&done));
                return done;
            }
        };
        let verb = if is_move { "MOVE" } else { "FETCH" };
        self.io.reply.complete(&format!("{verb} {count}"));
        self.cursors.insert(name.to_string(), cursor);
        Ok(())
    }

    /// FETCH of a cursor whose rows are not kept; returns how many rows it went to.
    async fn fetch_forward(
        &mut self,
        rows: &mut OpenRows,
        step: Step,
        is_move: bool,
    ) -> Result<u64, Trouble> {
        let here = rows.feed.sent;
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
        let before = rows.feed.sent;
        match is_move {
            false => self.send_rows(rows, limit(wanted)).await.map(drop)?,
            true => self.pass_rows(rows, limit(wanted)).await?,
        }
        Ok(rows.feed.sent - before)
    }

    /// FETCH of a cursor that goes back; returns how many rows it went to.
    async fn fetch_anywhere(
        &mut self,
        cursor: &mut Cursor,
        step: Step,
        is_move: bool,
    ) -> Result<u64, Trouble> {
        let deadline = self.deadline();
        let Cursor { rows, scroll: Some(scroll), .. } = cursor else { return Ok(0) };
        let found = scroll.go(step, &mut rows.feed);
        let Rows { first, count, order } = until(&mut self.io, &mut self.stops, deadline, found).await??;
        let mut left = if is_move { 0 } else { count };
        let mut at = first;
        while left > 0 {
            let loaded = scroll.load(at, &rows.feed.columns);
            let (begin, batch) = until(&mut self.io, &mut self.stops, deadline, loaded).await??;
            let from = (at - begin) as usize;
            // Backward they are written one by one.
            let here = match order {
                Order::Forward => left.min((batch.rows - from) as u64).min(ROWS_AT_ONCE),
                Order::Backward => 1,
            };
            let formats = rows.feed.columns.iter().map(|column| column.format);
            let before = self.io.reply.0.len();
            let part = (from, from + here as usize);
            batch.put(part, b'D', &mut Bytes::new(), formats, self.zone, &mut self.io.reply.0)?;
            rows.entry.rows.fetch_add(here, Ordering::Relaxed);
            rows.entry.bytes.fetch_add((self.io.reply.0.len() - before) as u64, Ordering::Relaxed);
            left -= here;
            at = match order {
                Order::Forward => at + here,
                Order::Backward => at.saturating_sub(here),
            };
            if self.io.is_full() {
                let give_up = |failure: &SqlError| rows.give_up(failure);
                send(&mut self.io, &mut self.stops, deadline, give_up).await?;
            }
        }
        Ok(count)
    }

    pub(super) async fn pass_rows(&mut self, rows: &mut OpenRows, rows_max: usize) -> Result<(), Trouble> {
        let mut left = rows_max;
        while left > 0 && until(&mut self.io, &mut self.stops, None, rows.feed.next()).await?? {
            left -= rows.feed.skip(left);
        }
        Ok(())
    }
}
