//! Statements that a client has prepared, and results that it takes piece by piece.

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch};
use futures::StreamExt;
use futures::stream::BoxStream;

use super::own::Own;
use super::reply::{Column, Reply};
use super::rows::{self, Zone};
use super::types::PgType;
use crate::backend::{Description, Failure, Statement};
use crate::registry::{Registry, StatementEntry};

/// Rows that are written before it is looked whether they are to be sent.
const ROWS_AT_ONCE: usize = 1024;

/// A statement that Parse has named.
pub(crate) enum Prepared {
    Empty,
    Sql {
        statement: Statement,
        description: Description,
        /// The types of the parameters as the client knows them.
        types: Vec<PgType>,
    },
    Own {
        own: Own,
        text: String,
        /// Of the query of a cursor.
        description: Description,
        types: Vec<PgType>,
    },
}

/// A statement with its values.
pub(crate) struct Portal {
    pub(crate) prepared: Arc<Prepared>,
    pub(crate) values: Vec<ArrayRef>,
    pub(crate) formats: Vec<i16>,
    pub(crate) state: PortalState,
}

pub(crate) enum PortalState {
    New,
    Open(Box<OpenRows>),
    Done,
}

/// A result that has rows left.
pub(crate) struct OpenRows {
    pub(crate) entry: Arc<StatementEntry>,
    pub(crate) columns: Vec<Column>,
    pub(crate) tag: &'static str,
    stream: Option<BoxStream<'static, Result<RecordBatch, Failure>>>,
    batch: Option<RecordBatch>,
    /// The row of `batch` that comes next.
    at: usize,
    pub(crate) sent: u64,
    registry: Arc<Registry>,
}

impl Drop for OpenRows {
    fn drop(&mut self) {
        // Not that of a failure, which is told before.
        self.registry.end(&self.entry, None);
    }
}

impl OpenRows {
    pub(crate) fn new(
        registry: Arc<Registry>,
        entry: Arc<StatementEntry>,
        columns: Vec<Column>,
        tag: &'static str,
        stream: BoxStream<'static, Result<RecordBatch, Failure>>,
    ) -> Self {
        Self { entry, columns, tag, stream: Some(stream), batch: None, at: 0, sent: 0, registry }
    }

    /// Whether there are rows that can be written without waiting.
    pub(crate) fn has_ready(&self) -> bool {
        self.batch.is_some()
    }

    /// Waits for the next rows; false at the end.
    pub(crate) async fn next(&mut self) -> Result<bool, Failure> {
        while self.batch.is_none() {
            let Some(stream) = &mut self.stream else {
                return Ok(false);
            };
            match stream.next().await {
                Some(batch) => {
                    self.batch = Some(batch?).filter(|batch| batch.num_rows() > 0);
                    self.at = 0;
                }
                None => self.stream = None,
            }
        }
        Ok(true)
    }

    /// Writes some of the rows that are ready, `rows_max` at most, and says how many.
    pub(crate) fn put(&mut self, rows_max: usize, zone: Zone, reply: &mut Reply) -> Result<usize, Failure> {
        let Some(batch) = &self.batch else {
            return Ok(0);
        };
        let count = (batch.num_rows() - self.at).min(rows_max).min(ROWS_AT_ONCE);
        rows::put_rows(batch, self.at, self.at + count, &self.columns, zone, &mut reply.0)?;
        self.pass(count);
        Ok(count)
    }

    /// Leaves out some of the rows that are ready, `rows_max` at most, and says how many.
    pub(crate) fn skip(&mut self, rows_max: usize) -> usize {
        let Some(batch) = &self.batch else {
            return 0;
        };
        let count = (batch.num_rows() - self.at).min(rows_max);
        self.pass(count);
        count
    }

    fn pass(&mut self, count: usize) {
        self.at += count;
        self.sent += count as u64;
        if self.batch.as_ref().is_some_and(|batch| self.at >= batch.num_rows()) {
            self.batch = None;
        }
    }

    /// What is told at the end: EXPLAIN and SHOW have no counts.
    pub(crate) fn complete(&self) -> String {
        match self.tag {
            "EXPLAIN" | "SHOW" | "CALL" => self.tag.to_string(),
            "INSERT" => format!("INSERT 0 {}", self.sent),
            tag => format!("{tag} {}", self.sent),
        }
    }
}
