//! COPY: rows that the client sends, or gets, as text or in binary.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use arrow::array::RecordBatch;
use bytes::Bytes;
use futures::StreamExt;
use futures::future::BoxFuture;
use harrier_error::{SqlError, SqlState};
use tokio::sync::mpsc;

use super::super::copy::{HEADER, Reader, TRAILER};
use super::super::feed::Feed;
use super::super::messages::{self, Message};
use super::super::rows;
use super::interrupt::{interrupted, send, until};
use super::{Conversation, Trouble};
use crate::backend::{CopyIn, CopyInto, CopyOut, Done};
use crate::registry::StatementEntry;

/// What takes the rows of a COPY FROM.
enum Intake {
    Text(mpsc::Sender<Bytes>),
    Binary(Box<Reader>, mpsc::Sender<RecordBatch>),
}

impl Intake {
    /// Hands on what a client has sent; waits until it is wanted.
    ///
    /// Errors: it is not in the format that it should be.
    async fn feed(&mut self, data: Bytes) -> Result<(), SqlError> {
        match self {
            // What takes them ends by itself, and tells why.
            Self::Text(input) => drop(input.send(data).await),
            Self::Binary(reader, input) => {
                reader.feed(&data);
                while let Some(batch) = reader.next_full()? {
                    if input.send(batch).await.is_err() {
                        break;
                    }
                }
            }
        }
        Ok(())
    }

    /// Hands on what is left at the end.
    ///
    /// Errors: it is not whole.
    async fn end(&mut self) -> Result<(), SqlError> {
        if let Self::Binary(reader, input) = self
            && let Some(batch) = reader.end()?
        {
            drop(input.send(batch).await);
        }
        Ok(())
    }
}

impl Conversation {
    pub(super) async fn copy_in(
        &mut self,
        copy: CopyIn,
        entry: &StatementEntry,
        deadline: Option<Instant>,
    ) -> Result<Done, Trouble> {
        let CopyIn { table, schema, input, done } = copy;
        let (mut intake, is_binary) = match input {
            CopyInto::Text(input) => (Intake::Text(input), false),
            CopyInto::Rows(input) => match Reader::new(table, Arc::clone(&schema)) {
                Ok(reader) => (Intake::Binary(Box::new(reader), input), true),
                Err(failure) => {
                    drop(done);
                    return Err(failure.into());
                }
            },
        };
        self.io.reply.copy_in(schema.fields().len(), is_binary);
        let mut running = Some(done);
        send(&mut self.io, &mut self.stops, deadline, |_| running = None).await?;
        let Some(mut done) = running else {
            return Err(
                SqlError::new(SqlState::QUERY_CANCELED, "canceling statement due to user request").into()
            );
        };
        match self.take_rows(&mut intake, &mut done, entry, deadline).await {
            Ok(None) => {
                drop(intake);
                Ok(until(&mut self.io, &mut self.stops, deadline, done).await??)
            }
            Ok(Some(done)) => Ok(done),
            Err(trouble) => {
                // Before the input, whose end would be taken for that of the rows.
                drop(done);
                Err(trouble)
            }
        }
    }

    /// Takes rows from the client until that has sent all and all was handed on (then `None`), or the
    /// statement has ended before.
    async fn take_rows(
        &mut self,
        intake: &mut Intake,
        done: &mut BoxFuture<'static, Result<Done, SqlError>>,
        entry: &StatementEntry,
        deadline: Option<Instant>,
    ) -> Result<Option<Done>, Trouble> {
        loop {
            let Some(message) = messages::next(&mut self.io.input, true)? else {
                let Self { io, stops, .. } = self;
                tokio::select! {
                    biased;
                    // It has failed, or wants no more.
                    ended = &mut *done => return Ok(Some(ended?)),
                    filled = io.fill() => filled?,
                    failure = interrupted(stops, deadline) => return Err(failure.into()),
                }
                continue;
            };
            match message {
                Message::CopyData(data) if data.is_empty() => {}
                Message::CopyData(data) => {
                    entry.bytes.fetch_add(data.len() as u64, Ordering::Relaxed);
                    if let Some(ended) = self.hand_on(intake.feed(data), done, deadline).await? {
                        return Ok(Some(ended));
                    }
                }
                Message::CopyDone => return self.hand_on(intake.end(), done, deadline).await,
                Message::CopyFail(reason) => {
                    return Err(SqlError::new(
                        SqlState::QUERY_CANCELED,
                        format!("COPY from stdin failed: {reason}"),
                    )
                    .into());
                }
                Message::Flush | Message::Sync => {}
                _ => {
                    return Err(SqlError::fatal(
                        SqlState::PROTOCOL_VIOLATION,
                        "unexpected message during COPY from stdin",
                    )
                    .into());
                }
            }
        }
    }

    /// Does `work`, unless the statement ends before, or is interrupted.
    async fn hand_on(
        &mut self,
        work: impl Future<Output = Result<(), SqlError>>,
        done: &mut BoxFuture<'static, Result<Done, SqlError>>,
        deadline: Option<Instant>,
    ) -> Result<Option<Done>, Trouble> {
        let either = async {
            tokio::select! {
                biased;
                ended = done => ended.map(Some),
                handed = work => handed.map(|()| None),
            }
        };
        Ok(until(&mut self.io, &mut self.stops, deadline, either).await??)
    }

    pub(super) async fn copy_out(
        &mut self,
        copy: CopyOut,
        entry: &StatementEntry,
        deadline: Option<Instant>,
    ) -> Result<Done, Trouble> {
        let (columns, mut text, done) = match copy {
            CopyOut::Text { columns, text, done } => (columns, Some(text), done),
            CopyOut::Rows { schema, rows } => {
                let columns = rows::columns(&schema, &[1])?;
                return self.copy_rows(Feed::new(columns, rows), entry, deadline).await;
            }
        };
        self.io.reply.copy_out(columns, false);
        while let Some(stream) = &mut text {
            let next = stream.next();
            let Some(piece) = until(&mut self.io, &mut self.stops, deadline, next).await? else {
                break;
            };
            let piece = piece?;
            entry.bytes.fetch_add(piece.len() as u64, Ordering::Relaxed);
            // A message of a row each, as clients expect it that count rows by messages.
            for line in piece.split_inclusive(|byte| *byte == b'\n') {
                self.io.reply.copy_data(line);
                if self.io.is_full() {
                    send(&mut self.io, &mut self.stops, deadline, |_| text = None).await?;
                }
            }
        }
        drop(text);
        let done = until(&mut self.io, &mut self.stops, deadline, done).await??;
        self.io.reply.copy_done();
        Ok(done)
    }

    /// Rows in binary, a message each: the header comes with the first, as clients expect it.
    async fn copy_rows(
        &mut self,
        mut feed: Feed,
        entry: &StatementEntry,
        deadline: Option<Instant>,
    ) -> Result<Done, Trouble> {
        self.io.reply.copy_out(feed.columns.len(), true);
        let mut head = Bytes::from_static(HEADER);
        while feed.has_ready() || until(&mut self.io, &mut self.stops, deadline, feed.next()).await?? {
            let before = self.io.reply.0.len();
            let count = feed.put(usize::MAX, b'd', &mut head, self.zone, &mut self.io.reply)?;
            entry.rows.fetch_add(count as u64, Ordering::Relaxed);
            entry.bytes.fetch_add((self.io.reply.0.len() - before) as u64, Ordering::Relaxed);
            if self.io.is_full() {
                send(&mut self.io, &mut self.stops, deadline, |_| feed.give_up()).await?;
            }
        }
        self.io.reply.copy_data(&[&head[..], TRAILER].concat());
        self.io.reply.copy_done();
        Ok(Done { tag: format!("COPY {}", feed.sent), ..Done::default() })
    }
}
