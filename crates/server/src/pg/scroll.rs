//! Scrollable cursors: fetched rows are buffered so that FETCH can move in both directions.
//!
//! # Memory bound
//! The session's buffer in memory and on disk ([`BufferedRows`]), and one encodable batch.

use harrier_error::SqlError;
use harrier_session_api::cursor::{Count, Step};

use super::reply::Column;
use super::result_stream::ResultStream;
use super::rows::Batch;
use crate::backend::BufferedRows;

/// A cursor's position in its result, and the rows buffered so far.
pub(crate) struct Scroll {
    buffer: Box<dyn BufferedRows>,
    /// All rows are buffered.
    is_complete: bool,
    /// The current row, counted from 1; 0 before the first, and the number of rows plus one after the last.
    at: u64,
    /// The last batch written from, and the number of its first row from 0.
    loaded: Option<(u64, Batch)>,
}

/// Fetch order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    Forward,
    Backward,
}

/// A range of rows to fetch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Rows {
    /// The first row to fetch, counted from 0.
    pub(crate) first: u64,
    pub(crate) count: u64,
    pub(crate) order: Order,
}

const NONE: Rows = Rows { first: 0, count: 0, order: Order::Forward };

impl Scroll {
    pub(crate) fn new(buffer: Box<dyn BufferedRows>) -> Self {
        Self { buffer, is_complete: false, at: 0, loaded: None }
    }

    /// Moves the cursor, buffering new rows of `stream`; returns the rows on the way. Positions follow
    /// PostgreSQL (`DoPortalRunFetch` in its pquery.c): a move past the end stops after the last row, or
    /// before the first.
    ///
    /// Errors: those of execution and of buffering.
    pub(crate) async fn fetch(&mut self, step: Step, stream: &mut ResultStream) -> Result<Rows, SqlError> {
        match step {
            Step::Forward(Count::Rows(0)) | Step::Relative(0) => {
                let is_row = (1..=self.buffer.rows()).contains(&self.at);
                Ok(if is_row { Rows { first: self.at - 1, count: 1, order: Order::Forward } } else { NONE })
            }
            Step::Forward(count) => {
                let wanted = match count {
                    Count::Rows(rows) => self.at.saturating_add(rows),
                    Count::All => u64::MAX,
                };
                self.buffer_until(wanted, stream).await?;
                let (first, rows) = (self.at, self.buffer.rows());
                self.at = wanted.min(rows + 1);
                Ok(Rows { first, count: self.at.min(rows).saturating_sub(first), order: Order::Forward })
            }
            Step::Backward(count) => {
                let back = match count {
                    Count::Rows(rows) => rows,
                    Count::All => u64::MAX,
                };
                let before = self.at;
                self.at = before.saturating_sub(back);
                let count = before.saturating_sub(self.at.max(1));
                Ok(match count {
                    0 => NONE,
                    count => Rows { first: before - 2, count, order: Order::Backward },
                })
            }
            Step::Relative(rows) if rows > 0 => {
                let wanted = self.at.saturating_add(rows.unsigned_abs());
                self.move_to(wanted, stream).await
            }
            Step::Absolute(row) if row > 0 => self.move_to(row.unsigned_abs(), stream).await,
            Step::Relative(rows) => self.move_to(self.at.saturating_sub(rows.unsigned_abs()), stream).await,
            Step::Absolute(0) => self.move_to(0, stream).await,
            Step::Absolute(row) => {
                self.buffer_until(u64::MAX, stream).await?;
                self.move_to((self.buffer.rows() + 1).saturating_sub(row.unsigned_abs()), stream).await
            }
        }
    }

    /// Moves to one row, counted from 1.
    async fn move_to(&mut self, row: u64, stream: &mut ResultStream) -> Result<Rows, SqlError> {
        self.buffer_until(row, stream).await?;
        let rows = self.buffer.rows();
        self.at = row.min(rows + 1);
        Ok(match self.at {
            0 => NONE,
            at if at > rows => NONE,
            at => Rows { first: at - 1, count: 1, order: Order::Forward },
        })
    }

    /// Waits until this many rows are buffered, or all.
    async fn buffer_until(&mut self, rows: u64, stream: &mut ResultStream) -> Result<(), SqlError> {
        while !self.is_complete && self.buffer.rows() < rows {
            match stream.next_batch().await? {
                Some(batch) => self.buffer.push(batch).await?,
                None => self.is_complete = true,
            }
        }
        Ok(())
    }

    /// The batch that contains a row, counted from 0, and the number of its first row. `columns`: the row
    /// description.
    pub(crate) async fn load(&mut self, row: u64, columns: &[Column]) -> Result<(u64, &Batch), SqlError> {
        let is_there = |(first, batch): &(u64, Batch)| (*first..first + batch.rows as u64).contains(&row);
        let loaded = match self.loaded.take().filter(is_there) {
            Some(loaded) => loaded,
            None => {
                let (first, batch) = self.buffer.batch(row).await?;
                (first, Batch::new(&batch, columns)?)
            }
        };
        let (first, batch) = self.loaded.insert(loaded);
        Ok((*first, batch))
    }
}
