//! Cursors that go back: the rows that were had of a result are kept, and FETCH goes from row to row among
//! them.
//!
//! # Memory bound
//! What the session keeps in memory and on disk for a statement ([`KeptRows`]), and one batch that is ready
//! to be written.

use harrier_error::SqlError;

use super::feed::Feed;
use super::reply::Column;
use super::rows::Batch;
use crate::backend::{Count, KeptRows, Step};

/// Where a cursor is in its result, and the rows that it had so far.
pub(crate) struct Scroll {
    kept: Box<dyn KeptRows>,
    /// All rows are kept.
    is_whole: bool,
    /// The row where it is, counted from 1; 0 before the first, and one more than there are behind the last.
    at: u64,
    /// The batch that was written of last, and the number of its first row from 0.
    loaded: Option<(u64, Batch)>,
}

/// In which order rows are fetched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    Forward,
    Backward,
}

/// Rows that FETCH goes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Rows {
    /// The one that is fetched first, counted from 0.
    pub(crate) first: u64,
    pub(crate) count: u64,
    pub(crate) order: Order,
}

const NONE: Rows = Rows { first: 0, count: 0, order: Order::Forward };

impl Scroll {
    pub(crate) fn new(kept: Box<dyn KeptRows>) -> Self {
        Self { kept, is_whole: false, at: 0, loaded: None }
    }

    /// Goes on, with rows of `feed` that were not had yet; returns the rows on the way. Positions are
    /// PostgreSQL's (`DoPortalRunFetch` in its pquery.c): whoever asks for more rows than there are is behind
    /// the last, or before the first.
    ///
    /// Errors: those of the result, and of keeping it.
    pub(crate) async fn go(&mut self, step: Step, feed: &mut Feed) -> Result<Rows, SqlError> {
        match step {
            Step::Forward(Count::Rows(0)) | Step::Relative(0) => {
                let is_row = (1..=self.kept.rows()).contains(&self.at);
                Ok(if is_row { Rows { first: self.at - 1, count: 1, order: Order::Forward } } else { NONE })
            }
            Step::Forward(count) => {
                let wanted = match count {
                    Count::Rows(rows) => self.at.saturating_add(rows),
                    Count::All => u64::MAX,
                };
                self.have(wanted, feed).await?;
                let (first, rows) = (self.at, self.kept.rows());
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
                self.to(wanted, feed).await
            }
            Step::Absolute(row) if row > 0 => self.to(row.unsigned_abs(), feed).await,
            Step::Relative(rows) => self.to(self.at.saturating_sub(rows.unsigned_abs()), feed).await,
            Step::Absolute(0) => self.to(0, feed).await,
            Step::Absolute(row) => {
                self.have(u64::MAX, feed).await?;
                self.to((self.kept.rows() + 1).saturating_sub(row.unsigned_abs()), feed).await
            }
        }
    }

    /// Goes to one row, counted from 1.
    async fn to(&mut self, row: u64, feed: &mut Feed) -> Result<Rows, SqlError> {
        self.have(row, feed).await?;
        let rows = self.kept.rows();
        self.at = row.min(rows + 1);
        Ok(match self.at {
            0 => NONE,
            at if at > rows => NONE,
            at => Rows { first: at - 1, count: 1, order: Order::Forward },
        })
    }

    /// Waits until so many rows are kept, or all.
    async fn have(&mut self, rows: u64, feed: &mut Feed) -> Result<(), SqlError> {
        while !self.is_whole && self.kept.rows() < rows {
            match feed.next_batch().await? {
                Some(batch) => self.kept.push(batch).await?,
                None => self.is_whole = true,
            }
        }
        Ok(())
    }

    /// The batch in which a row is, counted from 0, and the number of its first. `columns`: what the client
    /// was told of them.
    pub(crate) async fn load(&mut self, row: u64, columns: &[Column]) -> Result<(u64, &Batch), SqlError> {
        let is_there = |(first, batch): &(u64, Batch)| (*first..first + batch.rows as u64).contains(&row);
        let loaded = match self.loaded.take().filter(is_there) {
            Some(loaded) => loaded,
            None => {
                let (first, batch) = self.kept.batch(row).await?;
                (first, Batch::new(&batch, columns)?)
            }
        };
        let (first, batch) = self.loaded.insert(loaded);
        Ok((*first, batch))
    }
}
