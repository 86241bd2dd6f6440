//! Pending writes: they run when their command tag is requested.

use std::sync::Arc;

use datafusion::arrow::array::AsArray;
use datafusion::arrow::datatypes::UInt64Type;
use datafusion::error::Result;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use futures::future::BoxFuture;
use futures::{FutureExt, TryStreamExt};
use harrier_session_api::statement::Completion;

use crate::SqlError;
use crate::external::hive::FolderWrite;
use crate::runtime::progress::PlanProgress;
use crate::statement::auto_analyze::AutoAnalyze;
use crate::statement::copy::check::CopyCheck;
use crate::warehouse::dml::PendingWrite;
use crate::warehouse::session::WarehouseSession;

/// A COPY, INSERT, UPDATE or DELETE that runs when [`Write::finish`] is called.
pub struct Write {
    pub(crate) verb: &'static str,
    pub(crate) text: String,
    pub(crate) stream: SendableRecordBatchStream,
    /// Publishes the staged files of a folder write.
    pub(crate) folder: Option<FolderWrite>,
    pub progress: PlanProgress,
    /// Applies the rows of a change to the warehouse.
    pub(crate) pending: Option<(PendingWrite, Arc<WarehouseSession>, Arc<TaskContext>)>,
    /// Runs after the changes are committed.
    pub(crate) auto_analyze: Option<AutoAnalyze>,
    pub(crate) check: CopyCheck,
    pub(crate) abort_guard: AbortGuard,
}

impl Write {
    /// Runs the statement to its end. Dropping the future cancels it.
    pub fn finish(self) -> BoxFuture<'static, Result<Completion, SqlError>> {
        async move { Ok(self.run().await?.0) }.boxed()
    }

    /// Runs the statement to its end, and also returns the number of rows in its tag.
    pub(crate) async fn run(self) -> Result<(Completion, u64), SqlError> {
        // Drop the staged files after their writer: variables drop in reverse order of binding.
        let Self { folder, .. } = self;
        let Self { verb, text, pending, auto_analyze, check, mut abort_guard, stream, .. } = self;
        let outcome = match (pending, folder) {
            (None, None) => check.check(Self::count(stream).await).await,
            (None, Some(folder)) => match check.check(stream.try_collect::<Vec<_>>().await).await {
                Ok((batches, skipped)) => {
                    let published = folder.publish(batches).await;
                    published.map(|(rows, notice)| (rows, skipped.or(notice)))
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
                abort_guard.disarm();
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
        abort_guard.disarm();
        // The 0 stands for the row identifier (OID) of older PostgreSQL versions.
        let zero = if verb == "INSERT" { " 0" } else { "" };
        let completion = Completion::new(format!("{verb}{zero} {rows}"));
        Ok((completion.with_notices(notice.into_iter().collect()), rows))
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

/// Drop guard: marks the transaction that BEGIN opened as failed if dropped while armed, when a statement is
/// abandoned.
pub(crate) struct AbortGuard(pub(crate) Option<Arc<WarehouseSession>>);

impl AbortGuard {
    pub(crate) fn disarm(&mut self) {
        self.0 = None;
    }
}

impl Drop for AbortGuard {
    fn drop(&mut self) {
        if let Some(warehouse) = &self.0 {
            warehouse.transactions.mark_failed();
        }
    }
}
