//! A statement from its start to its last row, in both protocols.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use arrow::array::ArrayRef;
use arrow::datatypes::Schema;
use bytes::Bytes;
use harrier_error::{SqlError, SqlState};

use super::super::feed::Feed;
use super::super::own::{self, Own};
use super::super::portal::{Expected, OpenRows};
use super::super::rows;
use super::interrupt::{send, terminated, until};
use super::{Conversation, LONG_TEXT_BYTES, Trouble, failure_of, settled};
use crate::backend::{Kind, Outcome, Statement};
use crate::registry::{Phase, Stop};

/// A statement of a client.
pub(super) enum Read {
    Own(Own),
    Sql(Statement),
}

impl Conversation {
    /// Reads a statement, whoever is to do it.
    pub(super) async fn read(&mut self, text: &str) -> Result<Read, Trouble> {
        let cursor = |text: &str| match text.len() < LONG_TEXT_BYTES {
            true => self.session.cursor(text),
            false => tokio::task::block_in_place(|| self.session.cursor(text)),
        };
        if let Some(own) = own::parse(text, cursor)? {
            return Ok(Read::Own(own));
        }
        self.parsed(text).await.map(Read::Sql)
    }

    /// Parses a statement, which is listed meanwhile and may be canceled.
    pub(super) async fn parsed(&mut self, text: &str) -> Result<Statement, Trouble> {
        let deadline = self.deadline();
        self.stops.mark_unchanged();
        if self.guard.entry.asked() == Some(Stop::Session) {
            return Err(terminated().into());
        }
        let entry = self.registry.begin_parsing(&self.guard.entry, text);
        let parse = self.session.parse(text);
        let done = match until(&mut self.io, &mut self.stops, deadline, parse).await {
            Ok(parsed) => parsed.map_err(Trouble::from),
            Err(trouble) => Err(trouble),
        };
        self.registry.end_parsing(&self.guard.entry, &entry);
        done
    }

    /// Runs a statement. Returns its rows, if it has any; else all was told.
    ///
    /// Errors: its columns are not as `expected` (0A000); those of running it.
    pub(super) async fn start(
        &mut self,
        statement: &Statement,
        values: &[ArrayRef],
        formats: &[i16],
        tells_columns: bool,
        expected: Option<Expected<'_>>,
    ) -> Result<Option<OpenRows>, Trouble> {
        let deadline = self.deadline();
        self.tell_named(&statement.text);
        self.stops.mark_unchanged();
        if self.guard.entry.asked() == Some(Stop::Session) {
            return Err(terminated().into());
        }
        let entry = self.registry.begin(&self.guard.entry, &statement.text);
        let work = self.session.execute(statement, values, &entry);
        let outcome = until(&mut self.io, &mut self.stops, deadline, work).await;
        if let Ok(Ok(_)) = &outcome {
            entry.set_phase(Phase::Running);
        }
        let done = match outcome {
            Ok(Ok(Outcome::Rows { schema, rows })) => {
                let checked = match expected {
                    Some(expected) => self.check_columns(statement, &schema, expected, deadline).await,
                    None => Ok(()),
                };
                match checked.and_then(|()| Ok(rows::columns(&schema, formats)?)) {
                    Ok(columns) => {
                        if tells_columns {
                            self.io.reply.columns(&columns);
                        }
                        let feed = Feed::new(columns, rows);
                        let registry = Arc::clone(&self.registry);
                        return Ok(Some(OpenRows::new(registry, entry, statement.tag, feed)));
                    }
                    Err(trouble) => {
                        drop(rows);
                        Err(trouble)
                    }
                }
            }
            Ok(Ok(Outcome::Done(done))) => Ok(done),
            Ok(Ok(Outcome::CopyIn(copy))) => self.copy_in(copy, &entry, deadline).await,
            Ok(Ok(Outcome::CopyOut(copy))) => self.copy_out(copy, &entry, deadline).await,
            Ok(Err(failure)) => Err(failure.into()),
            Err(trouble) => Err(trouble),
        };
        let done = settled(&*self.session, done).await;
        self.registry.end(&entry, failure_of(&done));
        let done = done?;
        for notice in &done.notices {
            self.io.reply.notice("NOTICE", &SqlError::new(SqlState::SUCCESSFUL_COMPLETION, notice.as_str()));
        }
        // Of transactions it was warned before: only here it is known which of them the client has opened.
        let is_warned = matches!(statement.kind, Kind::Begin | Kind::Control);
        for warning in done.warnings.iter().filter(|_| !is_warned) {
            self.io.reply.notice("WARNING", &SqlError::new(SqlState::WARNING, warning.as_str()));
        }
        self.io.reply.complete(&done.tag);
        Ok(None)
    }

    /// Errors: the statement would be described otherwise now than it was (0A000).
    async fn check_columns(
        &mut self,
        statement: &Statement,
        schema: &Schema,
        expected: Expected<'_>,
        deadline: Option<Instant>,
    ) -> Result<(), Trouble> {
        let described = rows::columns(expected.columns, &[])?;
        if rows::columns(schema, &[])? == described {
            return Ok(());
        }
        // With values in the places of parameters, types may differ from what is described, too.
        let again = self.session.describe(statement, expected.given);
        let again = until(&mut self.io, &mut self.stops, deadline, again).await?;
        let columns = again.ok().and_then(|description| description.columns);
        match columns.map(|columns| rows::columns(&columns, &[])).transpose()? {
            Some(columns) if columns == described => Ok(()),
            _ => Err(crate::backend::changed_result().into()),
        }
    }

    /// When a statement that begins now is to have ended.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.session.time_limits().statement.map(|limit| Instant::now() + limit)
    }

    /// Sends all rows that are left, and ends the statement.
    pub(super) async fn rest(&mut self, mut rows: OpenRows) -> Result<(), Trouble> {
        let sent = self.send_rows(&mut rows, usize::MAX).await;
        if sent.is_err() {
            self.registry.end(&rows.entry, failure_of(&sent));
        }
        let tag = rows.complete();
        drop(rows);
        settled(&*self.session, sent).await?;
        self.io.reply.complete(&tag);
        Ok(())
    }

    /// Sends rows, `rows_max` at most; true if that were all.
    pub(super) async fn send_rows(&mut self, rows: &mut OpenRows, rows_max: usize) -> Result<bool, Trouble> {
        let deadline = self.deadline();
        let mut left = rows_max;
        loop {
            if !rows.feed.has_ready() {
                let next = rows.feed.next();
                if !until(&mut self.io, &mut self.stops, deadline, next).await?? {
                    return Ok(true);
                }
            }
            if left == 0 {
                return Ok(false);
            }
            let before = self.io.reply.0.len();
            let count = rows.feed.put(left, b'D', &mut Bytes::new(), self.zone, &mut self.io.reply)?;
            left -= count;
            rows.entry.rows.fetch_add(count as u64, Ordering::Relaxed);
            rows.entry.bytes.fetch_add((self.io.reply.0.len() - before) as u64, Ordering::Relaxed);
            if self.io.is_full() {
                let give_up = |failure: &SqlError| rows.give_up(failure);
                send(&mut self.io, &mut self.stops, deadline, give_up).await?;
            }
        }
    }
}
