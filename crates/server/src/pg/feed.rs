//! The rows of a result on their way to a client: one batch at a time, of which some rows are written and
//! others wait.

use arrow::array::RecordBatch;
use bytes::Bytes;
use futures::StreamExt;
use futures::stream::BoxStream;
use harrier_error::SqlError;

use super::reply::{Column, Reply};
use super::rows::{Batch, Zone};

/// Rows that are written before it is looked whether they are to be sent.
const ROWS_AT_ONCE: usize = 1024;

pub(crate) type Batches = BoxStream<'static, Result<RecordBatch, SqlError>>;

/// What is left of a result.
pub(crate) struct Feed {
    pub(crate) columns: Vec<Column>,
    stream: Option<Batches>,
    batch: Option<Batch>,
    /// The row of `batch` that comes next.
    at: usize,
    pub(crate) sent: u64,
}

impl Feed {
    pub(crate) fn new(columns: Vec<Column>, stream: Batches) -> Self {
        Self { columns, stream: Some(stream), batch: None, at: 0, sent: 0 }
    }

    /// Whether there are rows that can be written without waiting.
    pub(crate) fn has_ready(&self) -> bool {
        self.batch.is_some()
    }

    /// Waits for the next rows; false at the end.
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

    /// Waits for the next rows as they come, to be kept; `None` at the end. Not to be mixed with
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

    /// Writes some of the rows that are ready, `rows_max` at most, and says how many. `kind` and `head`: see
    /// [`Batch::put`].
    pub(crate) fn put(
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
        batch.put((self.at, self.at + count), kind, head, formats, zone, &mut reply.0)?;
        self.pass(count);
        Ok(count)
    }

    /// Leaves out some of the rows that are ready, `rows_max` at most, and says how many.
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

    /// Ends what makes the rows, and forgets those that are there.
    pub(crate) fn give_up(&mut self) {
        self.stream = None;
        self.batch = None;
    }
}
