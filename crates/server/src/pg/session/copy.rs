//! COPY between the client and the engine, as text or in binary.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use arrow::array::RecordBatch;
use bytes::Bytes;
use futures::StreamExt;
use futures::future::BoxFuture;
use harrier_error::{SqlError, SqlState};
use harrier_session_api::statement::Completion;
use tokio::sync::mpsc;

use super::super::copy::{HEADER, Reader, TRAILER};
use super::super::messages::{self, Message};
use super::super::result_stream::ResultStream;
use super::super::rows;
use super::interrupt::{next_interruption, run_interruptible, send};
use super::{ClientSession, RequestError};
use crate::backend::{CopyFromClient, CopyInto, CopyToClient};
use crate::registry::StatementEntry;

/// The consumer of a COPY FROM's rows.
enum CopyInput {
    Text(mpsc::Sender<Bytes>),
    Binary(Box<Reader>, mpsc::Sender<RecordBatch>),
}

impl CopyInput {
    /// Forwards the client's data; waits for the consumer (backpressure).
    ///
    /// Errors: the data is not in the declared format.
    async fn push(&mut self, data: Bytes) -> Result<(), SqlError> {
        match self {
            // The consumer has ended, and reports why itself.
            Self::Text(input) => drop(input.send(data).await),
            Self::Binary(reader, input) => {
                reader.push(&data);
                while let Some(batch) = reader.next_full()? {
                    if input.send(batch).await.is_err() {
                        break;
                    }
                }
            }
        }
        Ok(())
    }

    /// Forwards the rest at the end.
    ///
    /// Errors: the data is truncated.
    async fn end(&mut self) -> Result<(), SqlError> {
        if let Self::Binary(reader, input) = self
            && let Some(batch) = reader.end()?
        {
            drop(input.send(batch).await);
        }
        Ok(())
    }
}

impl ClientSession {
    pub(super) async fn copy_in(
        &mut self,
        copy: CopyFromClient,
        entry: &StatementEntry,
        deadline: Option<Instant>,
    ) -> Result<Completion, RequestError> {
        let CopyFromClient { table, schema, input, done } = copy;
        let (mut copy_input, is_binary) = match input {
            CopyInto::Text(input) => (CopyInput::Text(input), false),
            CopyInto::Rows(input) => match Reader::new(table, Arc::clone(&schema)) {
                Ok(reader) => (CopyInput::Binary(Box::new(reader), input), true),
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
        match self.receive_rows(&mut copy_input, &mut done, entry, deadline).await {
            Ok(None) => {
                drop(copy_input);
                Ok(run_interruptible(&mut self.io, &mut self.stops, deadline, done).await??)
            }
            Ok(Some(done)) => Ok(done),
            Err(error) => {
                // Dropped before the input, whose end would look like the end of the rows.
                drop(done);
                Err(error)
            }
        }
    }

    /// Forwards rows from the client until all are forwarded (then `None`), or the statement ends earlier.
    async fn receive_rows(
        &mut self,
        copy_input: &mut CopyInput,
        done: &mut BoxFuture<'static, Result<Completion, SqlError>>,
        entry: &StatementEntry,
        deadline: Option<Instant>,
    ) -> Result<Option<Completion>, RequestError> {
        loop {
            let Some(message) = messages::next(&mut self.io.input, true)? else {
                let Self { io, stops, .. } = self;
                tokio::select! {
                    biased;
                    // It has failed, or needs no more rows.
                    ended = &mut *done => return Ok(Some(ended?)),
                    filled = io.fill() => filled?,
                    failure = next_interruption(stops, deadline) => return Err(failure.into()),
                }
                continue;
            };
            match message {
                Message::CopyData(data) if data.is_empty() => {}
                Message::CopyData(data) => {
                    entry.bytes.fetch_add(data.len() as u64, Ordering::Relaxed);
                    if let Some(ended) = self.forward(copy_input.push(data), done, deadline).await? {
                        return Ok(Some(ended));
                    }
                }
                Message::CopyDone => return self.forward(copy_input.end(), done, deadline).await,
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

    /// Runs `work`, unless the statement ends or is interrupted first.
    async fn forward(
        &mut self,
        work: impl Future<Output = Result<(), SqlError>>,
        done: &mut BoxFuture<'static, Result<Completion, SqlError>>,
        deadline: Option<Instant>,
    ) -> Result<Option<Completion>, RequestError> {
        let either = async {
            tokio::select! {
                biased;
                ended = done => ended.map(Some),
                handed = work => handed.map(|()| None),
            }
        };
        Ok(run_interruptible(&mut self.io, &mut self.stops, deadline, either).await??)
    }

    pub(super) async fn copy_out(
        &mut self,
        copy: CopyToClient,
        entry: &StatementEntry,
        deadline: Option<Instant>,
    ) -> Result<Completion, RequestError> {
        let (columns, mut text, done) = match copy {
            CopyToClient::Text { columns, text, done } => (columns, Some(text), done),
            CopyToClient::Rows { schema, rows } => {
                let columns = rows::columns(&schema, &[1])?;
                return self.copy_rows(ResultStream::new(columns, rows), entry, deadline).await;
            }
        };
        self.io.reply.copy_out(columns, false);
        while let Some(stream) = &mut text {
            let next = stream.next();
            let Some(piece) = run_interruptible(&mut self.io, &mut self.stops, deadline, next).await? else {
                break;
            };
            let piece = piece?;
            entry.bytes.fetch_add(piece.len() as u64, Ordering::Relaxed);
            // One message per row: some clients count rows by messages.
            for line in piece.split_inclusive(|byte| *byte == b'\n') {
                self.io.reply.copy_data(line);
                if self.io.is_full() {
                    send(&mut self.io, &mut self.stops, deadline, |_| text = None).await?;
                }
            }
        }
        drop(text);
        let done = run_interruptible(&mut self.io, &mut self.stops, deadline, done).await??;
        self.io.reply.copy_done();
        Ok(done)
    }

    /// Sends rows in binary, one message each: the header comes with the first, as clients expect.
    async fn copy_rows(
        &mut self,
        mut stream: ResultStream,
        entry: &StatementEntry,
        deadline: Option<Instant>,
    ) -> Result<Completion, RequestError> {
        self.io.reply.copy_out(stream.columns.len(), true);
        let mut head = Bytes::from_static(HEADER);
        while stream.has_ready()
            || run_interruptible(&mut self.io, &mut self.stops, deadline, stream.next()).await??
        {
            let before = self.io.reply.0.len();
            let count = stream.write_rows(usize::MAX, b'd', &mut head, self.zone, &mut self.io.reply)?;
            entry.rows.fetch_add(count as u64, Ordering::Relaxed);
            entry.bytes.fetch_add((self.io.reply.0.len() - before) as u64, Ordering::Relaxed);
            if self.io.is_full() {
                send(&mut self.io, &mut self.stops, deadline, |_| stream.cancel()).await?;
            }
        }
        self.io.reply.copy_data(&[&head[..], TRAILER].concat());
        self.io.reply.copy_done();
        Ok(Completion { tag: format!("COPY {}", stream.sent), ..Completion::default() })
    }
}
