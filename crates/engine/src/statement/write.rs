//! Statements that write rows: they run when somebody asks for their tag.

use std::sync::Arc;

use datafusion::arrow::array::AsArray;
use datafusion::arrow::datatypes::UInt64Type;
use datafusion::error::Result;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use futures::future::BoxFuture;
use futures::{FutureExt, TryStreamExt};

use crate::SqlError;
use crate::external::hive::FolderWrite;
use crate::runtime::progress::Progress;
use crate::statement::auto_analyze::AutoAnalyze;
use crate::statement::copy::check::CopyCheck;
use crate::warehouse::dml::PendingWrite;
use crate::warehouse::session::WarehouseSession;

/// A COPY, INSERT, UPDATE or DELETE that runs when [`Write::finish`] is called.
pub struct Write {
    pub(crate) verb: &'static str,
    pub(crate) text: String,
    pub(crate) stream: SendableRecordBatchStream,
    /// What the rows come to, if they are those of files that are to be shown in a folder.
    pub(crate) folder: Option<FolderWrite>,
    pub progress: Progress,
    /// What the rows come to, if they are those of a statement that changes the warehouse.
    pub(crate) pending: Option<(PendingWrite, Arc<WarehouseSession>, Arc<TaskContext>)>,
    /// What is done when the changes are committed.
    pub(crate) auto_analyze: Option<AutoAnalyze>,
    pub(crate) check: CopyCheck,
    pub(crate) unfinished: Unfinished,
}

/// What there is to tell of a statement that has written rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Written {
    /// PostgreSQL's, such as `COPY 5`.
    pub tag: String,
    /// What the user should know beside it.
    pub notice: Option<String>,
}

impl Write {
    /// Runs the statement to its end. Dropping the future cancels it.
    pub fn finish(self) -> BoxFuture<'static, Result<Written, SqlError>> {
        self.finished().boxed()
    }

    async fn finished(self) -> Result<Written, SqlError> {
        // The files that are staged go after what writes them: what is bound last is dropped first.
        let Self { folder, .. } = self;
        let Self { verb, text, pending, auto_analyze, check, mut unfinished, stream, .. } = self;
        let outcome = match (pending, folder) {
            (None, None) => check.check(Self::count(stream).await).await,
            (None, Some(folder)) => match check.check(stream.try_collect::<Vec<_>>().await).await {
                Ok((batches, counted)) => {
                    let shown = folder.publish(batches).await;
                    shown.map(|(rows, shown)| (rows, counted.or(shown)))
                }
                Err(error) => {
                    folder.abort().await;
                    Err(error)
                }
            },
            (Some((pending, warehouse, context)), _) => {
                let changed = async {
                    let (batches, notice) = check.check(stream.try_collect::<Vec<_>>().await).await?;
                    let rows = pending.apply(batches, &warehouse.transactions, &context).await?;
                    warehouse.transactions.end_statement().await?;
                    Ok((rows, notice))
                };
                let changed = changed.await;
                unfinished.disarm();
                match (&changed, auto_analyze) {
                    (Err(_), _) => warehouse.transactions.fail_statement().await,
                    (Ok((rows, _)), Some(analyze)) if !warehouse.transactions.is_open() => {
                        analyze.run(*rows).await
                    }
                    _ => {}
                }
                changed
            }
        };
        let (rows, notice) = outcome.map_err(|error| crate::error::in_statement(&error, &text))?;
        unfinished.disarm();
        // The 0 is what is left of the row identifiers that PostgreSQL once had.
        let zero = if verb == "INSERT" { " 0" } else { "" };
        Ok(Written { tag: format!("{verb}{zero} {rows}"), notice })
    }

    async fn count(stream: SendableRecordBatchStream) -> Result<u64> {
        let batches: Vec<_> = stream.try_collect().await?;
        let rows = batches
            .iter()
            .filter_map(|batch| batch.columns().first()?.as_primitive_opt::<UInt64Type>())
            .flat_map(|counts| (0..counts.len()).map(|row| counts.value(row)))
            .sum();
        Ok(rows)
    }
}

/// Marks the transaction that BEGIN opened as failed if this is dropped armed: a statement of it was given
/// up.
pub(crate) struct Unfinished(pub(crate) Option<Arc<WarehouseSession>>);

impl Unfinished {
    pub(crate) fn disarm(&mut self) {
        self.0 = None;
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        if let Some(warehouse) = &self.0 {
            warehouse.transactions.mark_failed();
        }
    }
}
