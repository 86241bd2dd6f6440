//! A result on its way to a client: one batch at a time, partly written.

use arrow::array::RecordBatch;
use bytes::Bytes;
use futures::StreamExt;
use futures::stream::BoxStream;
use harrier_error::SqlError;

use super::reply::{Column, Reply};
use super::rows::Batch;
use super::zone::Zone;

/// Rows written between two checks of the send buffer.
const ROWS_AT_ONCE: usize = 1024;

pub(crate) type Batches = BoxStream<'static, Result<RecordBatch, SqlError>>;

/// The unsent part of a result.
pub(crate) struct ResultStream {
    pub(crate) columns: Vec<Column>,
    stream: Option<Batches>,
    batch: Option<Batch>,
    /// The next row of `batch`.
    at: usize,
    pub(crate) sent: u64,
}

impl ResultStream {
    pub(crate) fn new(columns: Vec<Column>, stream: Batches) -> Self {
        Self { columns, stream: Some(stream), batch: None, at: 0, sent: 0 }
    }

    /// Whether rows can be written without waiting.
    pub(crate) fn has_ready(&self) -> bool {
        self.batch.is_some()
    }

    /// Waits for the next rows; false at the end of the result.
    pub(crate) async fn next(&mut self) -> Result<bool, SqlError> {
        while self.batch.is_none() {
            let Some(stream) = &mut self.stream else {
                return Ok(false);
            };
            match stream.next().await {
                Some(batch) => {
                    let batch = batch?;
                    if batch.num_rows() > 0 {
                        self.batch = Some(Batch::new(&batch, &self.columns)?);
                    }
                    self.at = 0;
                }
                None => self.stream = None,
            }
        }
        Ok(true)
    }

    /// Waits for the next batch, for the caller to buffer; `None` at the end. Must not be mixed with
    /// [`Self::next`].
    pub(crate) async fn next_batch(&mut self) -> Result<Option<RecordBatch>, SqlError> {
        let Some(stream) = &mut self.stream else {
            return Ok(None);
        };
        let next = stream.next().await.transpose()?;
        if next.is_none() {
            self.stream = None;
        }
        Ok(next)
    }

    /// Writes up to `rows_max` of the ready rows, and returns their number. `kind` and `head`: see
    /// [`Batch::write_rows`].
    pub(crate) fn write_rows(
        &mut self,
        rows_max: usize,
        kind: u8,
        head: &mut Bytes,
        zone: Zone,
        reply: &mut Reply,
    ) -> Result<usize, SqlError> {
        let Some(batch) = &self.batch else {
            return Ok(0);
        };
        let count = (batch.rows - self.at).min(rows_max).min(ROWS_AT_ONCE);
        let formats = self.columns.iter().map(|column| column.format);
        batch.write_rows((self.at, self.at + count), kind, head, formats, zone, &mut reply.0)?;
        self.pass(count);
        Ok(count)
    }

    /// Skips up to `rows_max` of the ready rows, and returns their number.
    pub(crate) fn skip(&mut self, rows_max: usize) -> usize {
        let Some(batch) = &self.batch else {
            return 0;
        };
        let count = (batch.rows - self.at).min(rows_max);
        self.pass(count);
        count
    }

    fn pass(&mut self, count: usize) {
        self.at += count;
        self.sent += count as u64;
        if self.batch.as_ref().is_some_and(|batch| self.at >= batch.rows) {
            self.batch = None;
        }
    }

    /// Cancels execution and drops the ready rows.
    pub(crate) fn cancel(&mut self) {
        self.stream = None;
        self.batch = None;
    }
}
