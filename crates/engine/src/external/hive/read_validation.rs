//! Validation of reads from object stores, where other writers may overwrite files during a statement.
//!
//! On a disk, a reader keeps the old file after it is replaced under its name. In a store, a reader that has
//! read part of the old object may read the rest from the new one. So the versions of all files are checked
//! again after they have been read.

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::datasource::physical_plan::FileScanConfig;
use datafusion::datasource::source::DataSourceExec;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::SendableRecordBatchStream;
use datafusion::object_store::ObjectMeta;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::StreamExt;
use harrier_committer::object_store::{LockState, Root};
use harrier_error::{SqlError, SqlState};
use harrier_exec::data_files::cannot_stage_in_store;
use harrier_sqlstate::IntoDataFusionError;
use parking_lot::Mutex;

/// The read set of one statement: an extension of its session's settings.
#[derive(Debug, Default)]
pub(crate) struct ReadSet(Mutex<Vec<Table>>);

#[derive(Debug)]
struct Table {
    root: Root,
    settled: LockState,
    files: Vec<ObjectMeta>,
}

impl ReadSet {
    /// Adds the files of a scan, whose table was listed in the state `settled`.
    pub(crate) fn add(&self, root: Root, settled: LockState, scan: &Arc<dyn ExecutionPlan>) {
        let mut files = Vec::new();
        files_of(scan, &mut files);
        self.0.lock().push(Table { root, settled, files });
    }

    /// Errors: a file was overwritten during the read (40001).
    pub(crate) async fn verify(&self) -> Result<()> {
        let tables = std::mem::take(&mut *self.0.lock());
        check(&tables, Missing::Fine).await
    }

    /// Passes rows through; fails at their end, or instead of another error, if a file was overwritten during
    /// the read (40001).
    pub(crate) fn validate_stream(&self, rows: SendableRecordBatchStream) -> SendableRecordBatchStream {
        let tables = std::mem::take(&mut *self.0.lock());
        if tables.is_empty() {
            return rows;
        }
        let schema = rows.schema();
        let state = Some((rows, tables));
        let validated = futures::stream::try_unfold(state, |state| async move {
            let Some((mut rows, tables)) = state else { return Ok::<_, DataFusionError>(None) };
            match rows.next().await {
                Some(Ok(batch)) => Ok(Some((batch, Some((rows, tables))))),
                Some(Err(error)) => Err(match check(&tables, Missing::Changed).await {
                    Err(overwritten) => overwritten,
                    Ok(()) => error,
                }),
                None => check(&tables, Missing::Fine).await.map(|()| None),
            }
        });
        Box::pin(RecordBatchStreamAdapter::new(schema, validated))
    }
}

fn files_of(plan: &Arc<dyn ExecutionPlan>, files: &mut Vec<ObjectMeta>) {
    if let Some(source) = plan.downcast_ref::<DataSourceExec>()
        && let Some(config) = source.data_source().downcast_ref::<FileScanConfig>()
    {
        let groups = config.file_groups.iter().flat_map(|group| group.iter());
        files.extend(groups.map(|file| file.object_meta.clone()));
    }
    for child in plan.children() {
        files_of(child, files);
    }
}

/// Meaning of a missing file for a statement that was to read it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Missing {
    /// It was fully read before.
    Fine,
    /// It may be the cause of the statement's error.
    Changed,
}

async fn check(tables: &[Table], missing: Missing) -> Result<()> {
    for table in tables {
        let changed = table.find_changed(missing).await.map_err(|error| cannot_stage_in_store(&error))?;
        if let Some(path) = changed {
            let message = format!("file \"{path}\" was changed by another statement while it was read");
            return Err(SqlError::new(SqlState::SERIALIZATION_FAILURE, message)
                .with_hint("The statement can be tried again.")
                .into_datafusion());
        }
    }
    Ok(())
}

impl Table {
    async fn find_changed(
        &self,
        missing: Missing,
    ) -> harrier_committer::object_store::Result<Option<String>> {
        let may_trust = !self.settled.is_unreadable();
        if self.files.is_empty() || may_trust && self.root.is_unchanged(self.settled).await? {
            return Ok(None);
        }
        let now: HashMap<_, _> =
            self.root.list_table().await?.into_iter().map(|file| (file.location.clone(), file)).collect();
        let is_changed = |file: &&ObjectMeta| match now.get(&file.location) {
            Some(now) => (now.size, now.last_modified) != (file.size, file.last_modified),
            None => missing == Missing::Changed,
        };
        Ok(self.files.iter().find(is_changed).map(|file| file.location.to_string()))
    }
}
