//! Files of COPY … TO a folder, written on every rank.
//!
//! ```text
//!   rows on rank 0 ──► sink ──► staging folder ──┐
//!   rows on rank 1 ──► sink ──► staging folder ──┼─► gather: names of files ──► PublishFilesExec ──► count
//!   rows on rank 2 ──► sink ──► staging folder ──┘   on the coordinator, which makes the staging folder
//! ```
//!
//! Each output partition has a sink of its own, as DataFusion has one for all rows. The staging folder is in
//! the target, with a name that readers skip. [`PublishFilesExec`] only hands the files to the statement,
//! which publishes them after its last check (`formats/atomic_sinks.rs`).
//!
//! Errors, cancellation: a writer that fails or is dropped removes its files. What is complete, and what a
//! dead rank has written, is removed with the staging folder.
//!
//! Crash: if the coordinator dies, the staging folder stays.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, AsArray, RecordBatch, StringArray, UInt64Array};
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef, UInt64Type};
use datafusion::common::{DataFusionError, Result, internal_datafusion_err};
use datafusion::datasource::file_format::csv::CsvSink;
use datafusion::datasource::file_format::json::JsonSink;
use datafusion::datasource::file_format::parquet::ParquetSink;
use datafusion::datasource::physical_plan::{FileSink, FileSinkConfig};
use datafusion::datasource::sink::{DataSink, DataSinkExec};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::object_store::local::LocalFileSystem;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr};
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::empty::EmptyExec;
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType, replace_children_if_necessary};
use datafusion::physical_plan::metrics::MetricsSet;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, Distribution, ExecutionPlan, ExecutionPlanProperties, Partitioning,
    PlanProperties, execute_input_stream,
};
use futures::{StreamExt, TryStreamExt};

use crate::formats::atomic_sinks::{AtomicSinkFiles, Files, StagedFile, StagingPlace, with_cause};
use crate::formats::format_adapter::FilesSink;

/// What staging folders' names begin with: readers of a folder skip hidden names.
const STAGING: &str = ".harrier-copy-";

/// Has every rank write the files of a COPY to a local folder, if `plan` is one whose rows come from several
/// output partitions in no order. Any other plan is returned as it is.
pub fn on_all_ranks(
    plan: Arc<dyn ExecutionPlan>,
    partitions: usize,
    is_distributed: impl Fn(&Arc<dyn ExecutionPlan>) -> bool,
) -> Result<Arc<dyn ExecutionPlan>> {
    let Some(copy) = plan.downcast_ref::<DataSinkExec>() else { return Ok(plan) };
    let Some(config) = config_of(copy.sink()) else { return Ok(plan) };
    let Some(staging) = staging_of(config)? else { return Ok(plan) };
    let rows = match copy.input().downcast_ref::<CoalescePartitionsExec>() {
        Some(gather) if gather.fetch().is_none() => Arc::clone(gather.input()),
        None if copy.input().output_ordering().is_none() && is_distributed(copy.input()) => {
            Arc::clone(copy.input())
        }
        _ => return Ok(plan),
    };
    // The files of a folder of a key are written by one rank.
    let key = |name: &String| -> Result<Arc<dyn PhysicalExpr>> {
        Ok(Arc::new(Column::new_with_schema(name, &rows.schema())?))
    };
    let keys = config.table_partition_cols.iter().map(|(name, _)| key(name)).collect::<Result<Vec<_>>>()?;
    let rows: Arc<dyn ExecutionPlan> = match keys.is_empty() {
        true => rows,
        false => Arc::new(RepartitionExec::try_new(rows, Partitioning::Hash(keys, partitions))?),
    };
    let written = Arc::new(StagedFilesExec::new(rows, Arc::new(without_rows(copy)?), staging.clone()));
    let gathered = Arc::new(CoalescePartitionsExec::new(written));
    Ok(Arc::new(PublishFilesExec::new(gathered, staging)))
}

/// The node of a sink without its rows, which is how sinks are sent to ranks.
pub(crate) fn without_rows(copy: &DataSinkExec) -> Result<DataSinkExec> {
    let empty = Arc::new(EmptyExec::new(Arc::clone(copy.sink().schema())));
    let alone = replace_children_if_necessary(Arc::new(copy.clone()), vec![empty])?;
    alone.downcast_ref().cloned().ok_or_else(|| internal_datafusion_err!("a sink became something else"))
}

/// The same of a sink that has no node yet.
pub(crate) fn sink_without_rows(sink: Arc<dyn DataSink>) -> Arc<DataSinkExec> {
    let empty = Arc::new(EmptyExec::new(Arc::clone(sink.schema())));
    Arc::new(DataSinkExec::new(empty, sink, None))
}

/// The configuration of a sink that can be sent to ranks.
pub(crate) fn config_of(sink: &dyn DataSink) -> Option<&FileSinkConfig> {
    if let Some(own) = sink.downcast_ref::<FilesSink>() {
        return own.own().encode().map(|_| own.config());
    }
    sink.downcast_ref::<CsvSink>()
        .map(FileSink::config)
        .or_else(|| sink.downcast_ref::<JsonSink>().map(FileSink::config))
        .or_else(|| sink.downcast_ref::<ParquetSink>().map(FileSink::config))
}

/// `None`: the target is a file, or in a store.
fn staging_of(config: &FileSinkConfig) -> Result<Option<StagingPlace>> {
    let [target] = &config.table_paths[..] else { return Ok(None) };
    let is_local = config.object_store_url.as_str().starts_with("file:");
    // The demuxer writes one file only where it has no keys.
    let is_file =
        config.file_output_mode.single_file_output(target) && config.table_partition_cols.is_empty();
    if !is_local || is_file {
        return Ok(None);
    }
    let folder = LocalFileSystem::new().path_to_filesystem(target.prefix())?;
    let root = folder.join(format!("{STAGING}{}", uuid::Uuid::new_v4().simple()));
    Ok(Some(StagingPlace { folder, root }))
}

/// N → N output partitions: writes the rows to staged files, and yields a row for each file. See the module.
#[derive(Debug)]
pub struct StagedFilesExec {
    input: Arc<dyn ExecutionPlan>,
    /// The node of the sink, without its rows.
    sink: Arc<DataSinkExec>,
    staging: StagingPlace,
    properties: Arc<PlanProperties>,
}

impl StagedFilesExec {
    pub(crate) fn new(input: Arc<dyn ExecutionPlan>, sink: Arc<DataSinkExec>, staging: StagingPlace) -> Self {
        let partitions = input.output_partitioning().partition_count();
        let properties = Arc::new(properties(record_schema(), partitions));
        Self { input, sink, staging, properties }
    }

    pub(crate) fn sink(&self) -> &Arc<DataSinkExec> {
        &self.sink
    }

    pub(crate) fn staging(&self) -> &StagingPlace {
        &self.staging
    }
}

fn properties(schema: SchemaRef, partitions: usize) -> PlanProperties {
    PlanProperties::new(
        EquivalenceProperties::new(schema),
        Partitioning::UnknownPartitioning(partitions),
        EmissionType::Final,
        Boundedness::Bounded,
    )
}

/// `rows`: of all files of the output partition, in the row of the first.
fn record_schema() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new("path", DataType::Utf8, false),
        Field::new("staged", DataType::Utf8, false),
        Field::new("rows", DataType::UInt64, false),
    ]))
}

impl DisplayAs for StagedFilesExec {
    fn fmt_as(&self, kind: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StagedFilesExec: sink=")?;
        self.sink.sink().fmt_as(kind, f)
    }
}

impl ExecutionPlan for StagedFilesExec {
    crate::one_input!("StagedFilesExec", input, |own, input| Self::new(
        input,
        Arc::clone(&own.sink),
        own.staging.clone()
    ));

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        vec![false]
    }

    fn metrics(&self) -> Option<MetricsSet> {
        self.sink.sink().metrics()
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let schema = Arc::clone(self.sink.sink().schema());
        let mut rows =
            execute_input_stream(Arc::clone(&self.input), schema, partition, Arc::clone(&context))?;
        let (sink, staging) = (Arc::clone(&self.sink), self.staging.clone());
        let written = async move {
            // Without rows there is no file.
            let first = loop {
                match rows.try_next().await? {
                    None => return Ok(RecordBatch::new_empty(record_schema())),
                    Some(batch) if batch.num_rows() > 0 => break batch,
                    Some(_) => {}
                }
            };
            let rows_schema = rows.schema();
            let all = futures::stream::iter([Ok(first)]).chain(rows);
            let all = Box::pin(RecordBatchStreamAdapter::new(rows_schema, all));
            let folder = staging.folder.clone();
            let (context, files) = AtomicSinkFiles::in_staging(&context, staging)?;
            let written = sink.sink().write_all(all, &context).await;
            let target = folder.display().to_string();
            let count = written.map_err(|error| with_cause(error, &target, Some(&folder)))?;
            records(&files.release()?, count)
        };
        Ok(Box::pin(RecordBatchStreamAdapter::new(record_schema(), futures::stream::once(written))))
    }
}

fn records(files: &[StagedFile], count: u64) -> Result<RecordBatch> {
    let text = |path: &Path| {
        path.to_str().map(str::to_string).ok_or_else(|| internal_datafusion_err!("a path is no text"))
    };
    let paths = files.iter().map(|file| text(&file.path)).collect::<Result<Vec<_>>>()?;
    let staged = files.iter().map(|file| text(&file.staged)).collect::<Result<Vec<_>>>()?;
    let rows = (0..files.len()).map(|at| if at == 0 { count } else { 0 });
    let columns: Vec<ArrayRef> = vec![
        Arc::new(StringArray::from(paths)),
        Arc::new(StringArray::from(staged)),
        Arc::new(UInt64Array::from_iter_values(rows)),
    ];
    Ok(RecordBatch::try_new(record_schema(), columns)?)
}

/// N → 1: hands the staged files to the statement, and yields the number of their rows. Runs on the
/// coordinator, with the context of [`AtomicSinkFiles::of`].
#[derive(Debug)]
pub struct PublishFilesExec {
    input: Arc<dyn ExecutionPlan>,
    staging: StagingPlace,
    properties: Arc<PlanProperties>,
}

impl PublishFilesExec {
    fn new(input: Arc<dyn ExecutionPlan>, staging: StagingPlace) -> Self {
        Self { input, staging, properties: Arc::new(properties(count_schema(), 1)) }
    }
}

/// As of [`DataSinkExec`].
fn count_schema() -> SchemaRef {
    Arc::new(Schema::new(vec![Field::new("count", DataType::UInt64, false)]))
}

impl DisplayAs for PublishFilesExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PublishFilesExec")
    }
}

impl ExecutionPlan for PublishFilesExec {
    crate::one_input!("PublishFilesExec", input, |own, input| Self::new(input, own.staging.clone()));

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn required_input_distribution(&self) -> Vec<Distribution> {
        vec![Distribution::SinglePartition]
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        vec![false]
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let files = context
            .session_config()
            .get_extension::<Files>()
            .ok_or_else(|| internal_datafusion_err!("files that no statement publishes"))?;
        files.begin_staging(&self.staging).map_err(DataFusionError::IoError)?;
        let mut records = self.input.execute(partition, context)?;
        let count = async move {
            let mut count = 0;
            while let Some(batch) = records.try_next().await? {
                let [paths, staged] = [0, 1].map(|at| batch.column(at).as_string::<i32>());
                for (path, staged) in paths.iter().zip(staged).filter_map(|(path, staged)| path.zip(staged)) {
                    files.add_staged(StagedFile { path: path.into(), staged: staged.into() })?;
                }
                count += batch.column(2).as_primitive::<UInt64Type>().values().iter().sum::<u64>();
            }
            let column: ArrayRef = Arc::new(UInt64Array::from(vec![count]));
            Ok(RecordBatch::try_new(count_schema(), vec![column])?)
        };
        Ok(Box::pin(RecordBatchStreamAdapter::new(count_schema(), futures::stream::once(count))))
    }
}
