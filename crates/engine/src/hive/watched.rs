//! The files of object stores that a statement reads, which others may overwrite by their names while it does.
//!
//! A file that is overwritten on a disk is gone for who opens it by its old name. In a store the new one has that name, and who has
//! read a part of the old one may read the rest of the new one. So when all is read it is looked at once more what was read.

use std::sync::Arc;

use datafusion::datasource::physical_plan::FileScanConfig;
use datafusion::datasource::source::DataSourceExec;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::SendableRecordBatchStream;
use datafusion::object_store::ObjectMeta;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::StreamExt;
use harrier_exec::sqlstate::{CodedError, SqlState};
use harrier_exec::table_files::cannot_stage_in_store;
use harrier_store_folders::{Root, Settled};
use parking_lot::Mutex;

/// What one statement reads; an extension of its session's settings.
#[derive(Debug, Default)]
pub(crate) struct Watched(Mutex<Vec<Table>>);

#[derive(Debug)]
struct Table {
    root: Root,
    settled: Settled,
    files: Vec<ObjectMeta>,
}

impl Watched {
    /// Adds what a scan reads of a table that was listed when it was `settled`.
    pub(crate) fn add(&self, root: Root, settled: Settled, scan: &Arc<dyn ExecutionPlan>) {
        let mut files = Vec::new();
        files_of(scan, &mut files);
        self.0.lock().push(Table { root, settled, files });
    }

    /// The same rows, with an error at their end, or instead of another one, if what was read was overwritten meanwhile (40001).
    pub(crate) fn checked(&self, rows: SendableRecordBatchStream) -> SendableRecordBatchStream {
        let tables = std::mem::take(&mut *self.0.lock());
        if tables.is_empty() {
            return rows;
        }
        let schema = rows.schema();
        let state = Some((rows, tables));
        let checked = futures::stream::try_unfold(state, |state| async move {
            let Some((mut rows, tables)) = state else { return Ok::<_, DataFusionError>(None) };
            match rows.next().await {
                Some(Ok(batch)) => Ok(Some((batch, Some((rows, tables))))),
                Some(Err(error)) => Err(match check(&tables).await {
                    Err(overwritten) => overwritten,
                    Ok(()) => error,
                }),
                None => check(&tables).await.map(|()| None),
            }
        });
        Box::pin(RecordBatchStreamAdapter::new(schema, checked))
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

async fn check(tables: &[Table]) -> Result<()> {
    for table in tables {
        if let Some(path) = table.overwritten().await.map_err(|error| cannot_stage_in_store(&error))? {
            let message = format!("file \"{path}\" was overwritten by another statement while it was read");
            return Err(CodedError::new(SqlState::SERIALIZATION_FAILURE, message)
                .with_hint("The statement can be tried again.")
                .into());
        }
    }
    Ok(())
}

impl Table {
    async fn overwritten(&self) -> harrier_store_folders::Result<Option<String>> {
        if self.files.is_empty() || self.root.is_settled(self.settled).await? {
            return Ok(None);
        }
        let now: std::collections::HashMap<_, _> =
            self.root.list_table().await?.into_iter().map(|file| (file.location.clone(), file)).collect();
        let is_other = |file: &&ObjectMeta| {
            now.get(&file.location)
                .is_some_and(|now| (now.size, now.last_modified) != (file.size, file.last_modified))
        };
        Ok(self.files.iter().find(is_other).map(|file| file.location.to_string()))
    }
}
