//! The classic commit protocol, as in Hive: files are written into a staging folder and renamed three times.
//!
//! ```text
//!  written by tasks ──────► task commit ─────► job commit ─────► move task
//!  .staging/_task_tmp       .staging/_tmp      .staging/done     the table's folder
//!                   one file     all files at once     one folder of each
//!                   after the    (a folder)            table partition, 15 at
//!                   other, in                          a time
//!                   each task
//! ```
//!
//! On HDFS and local disks one call renames a folder. S3 has no folders: each object is copied and deleted,
//! as Hadoop's S3 client does, 10 copies of a folder concurrently. The concurrency of renames is Hive's
//! default: a task commits its files one after the other (`FileSinkOperator.closeOp`), the move task loads 15
//! table partitions concurrently (`hive.load.dynamic.partitions.thread`).
//!
//! Omitted, in favour of this way: the checks of Hadoop's clients before and after each rename (whether the
//! target and its folder exist), Hive's own search for duplicate files, the registration of table partitions,
//! and the deletion of the replaced files.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use arrow::array::{Array, AsArray};
use arrow::datatypes::{Field, Schema};
use datafusion::common::{DFSchema, DataFusionError, Result};
use datafusion::logical_expr::{LogicalPlan, LogicalPlanBuilder, col};
use datafusion::parquet::arrow::PARQUET_FIELD_ID_META_KEY;
use datafusion::physical_plan::{ExecutionPlan, collect};
use datafusion::prelude::ParquetReadOptions;
use futures::{StreamExt, TryStreamExt};
use harrier_engine::{Session, SqlError};
use harrier_exec::data_files::{
    FileRecord, FileShape, PartitionFolder, ReplacedFiles, WriteFormat, WriteSpec,
};
use harrier_exec::distribution::logical_planner::WriteFiles;
use prost::Message;

use super::places::Place;

/// Table partitions that Hive's move task loads concurrently.
const MOVES_MAX: usize = 15;

/// As in the engine's own tables.
const ROW_GROUP_ROWS: usize = 122_880 * 4;
const TARGET_FILE_BYTES: u64 = 512 << 20;

const TASK: &str = ".staging/_task_tmp";
const JOB: &str = ".staging/_tmp";
const DONE: &str = ".staging/done";

/// A staged write.
pub struct StagedWrite<'a> {
    pub session: &'a Session,
    /// Folder of the rows that `select` calls `store_sales`.
    pub source: &'a Path,
    /// Query of the rows; its last two columns are the keys of the table partition and of the file.
    pub select: &'a str,
    /// The table's folder, a path or a URL.
    pub folder: String,
    pub compression: &'a str,
}

impl StagedWrite<'_> {
    /// Builds the plan that writes the files, as for INSERT.
    pub async fn plan(&self) -> Result<Arc<dyn ExecutionPlan>, SqlError> {
        self.build_plan().await.map_err(harrier_engine::sql_error)
    }

    async fn build_plan(&self) -> Result<Arc<dyn ExecutionPlan>> {
        let context = self.session.context();
        let source = format!("{}/", std::path::absolute(self.source)?.display());
        context.register_parquet("store_sales", source, ParquetReadOptions::default()).await?;
        let rows = context.sql(self.select).await?.into_unoptimized_plan();
        let schema = file_schema(rows.schema());
        let keys = ["part_key", "file_key"];
        let columns = schema.fields().iter().map(|field| col(field.name().as_str()));
        let folders = keys.iter().enumerate().map(|(at, key)| col(*key).alias(format!("_harrier_key_{at}")));
        let input = LogicalPlanBuilder::from(rows).project(columns.chain(folders))?.build()?;
        let spec = WriteSpec {
            folder: format!("{}/{TASK}/", self.folder),
            name: "000000_0".to_owned(),
            table: "store_sales".to_owned(),
            schema: Arc::new(schema),
            partition: keys.iter().map(|key| PartitionFolder { name: (*key).to_owned() }).collect(),
            sort: Vec::new(),
            replaces: false,
            shape: FileShape {
                compression: self.compression.to_owned(),
                row_group_rows: ROW_GROUP_ROWS,
                target_file_bytes: TARGET_FILE_BYTES,
            },
            own_shapes: BTreeMap::new(),
            one_writer: false,
            format: WriteFormat::Parquet,
            staging: None,
            replaced_files: ReplacedFiles::default(),
        };
        let plan: LogicalPlan = WriteFiles::plan(input, Arc::new(spec))?;
        context.state().create_physical_plan(&plan).await
    }

    /// Writes the files; returns their paths below the task folder.
    pub async fn write(&self, plan: Arc<dyn ExecutionPlan>) -> Result<Vec<String>, SqlError> {
        let batches =
            collect(plan, self.session.context().task_ctx()).await.map_err(harrier_engine::sql_error)?;
        let mut files = Vec::new();
        for batch in &batches {
            let records = batch.column(0).as_binary::<i32>();
            for row in (0..records.len()).filter(|row| records.is_valid(*row)) {
                let record = FileRecord::decode(records.value(row))
                    .map_err(|error| harrier_engine::sql_error(DataFusionError::External(Box::new(error))))?;
                files.push(record.path);
            }
        }
        Ok(files)
    }
}

/// Schema of the files, with Parquet's field ids.
fn file_schema(schema: &DFSchema) -> Schema {
    let fields: Vec<Field> = schema
        .fields()
        .iter()
        .enumerate()
        .map(|(at, field)| {
            let id = (PARQUET_FIELD_ID_META_KEY.to_owned(), (at + 1).to_string());
            Field::new(field.name(), field.data_type().clone(), true).with_metadata([id].into())
        })
        .collect();
    Schema::new(fields)
}

/// Renames `files` of table `name` from the task folder in three steps into the table's folder.
pub async fn rename_three_times(place: &Place, name: &str, files: &[String]) -> Result<(), SqlError> {
    rename_files(place, name, files).await.map_err(harrier_engine::sql_error)
}

async fn rename_files(place: &Place, name: &str, files: &[String]) -> Result<()> {
    let mut tasks: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for file in files {
        tasks.entry(task_of(file)).or_default().push(file);
    }
    let commits = tasks.into_values().map(|files| async move {
        for file in files {
            place.rename_file(&format!("{name}/{TASK}/{file}"), &format!("{name}/{JOB}/{file}")).await?;
        }
        Ok::<_, DataFusionError>(())
    });
    futures::future::try_join_all(commits).await?;
    place.rename_folder(&format!("{name}/{JOB}"), &format!("{name}/{DONE}")).await?;
    let mut partitions: Vec<&str> = files.iter().filter_map(|file| Some(file.split_once('/')?.0)).collect();
    partitions.sort_unstable();
    partitions.dedup();
    futures::stream::iter(partitions)
        .map(|partition| async move {
            place.rename_folder(&format!("{name}/{DONE}/{partition}"), &format!("{name}/{partition}")).await
        })
        .buffer_unordered(MOVES_MAX)
        .try_for_each(|()| async { Ok(()) })
        .await
}

/// Returns the writer's part of a file name, `<statement>-<task>-<output partition>-<number>.parquet` without
/// the number.
fn task_of(file: &str) -> &str {
    let name = file.rsplit_once('/').map_or(file, |(_, name)| name);
    name.rsplit_once('-').map_or(name, |(writer, _)| writer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_names_contain_their_writer() {
        assert_eq!(task_of("part_key=1/file_key=0/000000_0-0-1-17.parquet"), "000000_0-0-1");
        assert_eq!(task_of("x"), "x");
    }

    #[tokio::test]
    async fn files_are_published_without_leftovers() {
        let folder = tempfile::tempdir().unwrap();
        let files = ["p=1/f=0/q-0-0-0.parquet", "p=1/f=1/q-0-1-0.parquet", "p=2/f=0/q-0-0-1.parquet"];
        for file in files {
            let path = folder.path().join("t").join(TASK).join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "").unwrap();
        }
        let place = Place::Local(folder.path().to_path_buf());
        let named = files.map(str::to_owned);
        rename_three_times(&place, "t", &named).await.map_err(|error| error.message).unwrap();
        let mut found = place.files("t").await.unwrap();
        found.sort();
        assert_eq!(found, named);
    }
}
