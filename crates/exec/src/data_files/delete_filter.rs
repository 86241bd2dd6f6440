//! Filters deleted rows out of scans of data files (merge-on-read).

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::{Arc, OnceLock};

use datafusion::arrow::array::{AsArray, BooleanArray, BooleanBufferBuilder, RecordBatch};
use datafusion::arrow::compute::filter_record_batch;
use datafusion::arrow::datatypes::{Int64Type, SchemaRef};
use datafusion::catalog::memory::DataSourceExec;
use datafusion::common::{ColumnStatistics, Result, Statistics, internal_datafusion_err, internal_err};
use datafusion::config::ConfigOptions;
use datafusion::datasource::physical_plan::FileScanConfig;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::functions::core::file_row_index;
use datafusion::parquet::arrow::{ParquetRecordBatchStreamBuilder, ProjectionMask};
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::projection::{ProjectionExpr, ProjectionExprs};
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr, ScalarFunctionExpr};
use datafusion::physical_plan::execution_plan::CardinalityEffect;
use datafusion::physical_plan::filter_pushdown::{FilterDescription, FilterPushdownPhase};
use datafusion::physical_plan::metrics::{
    BaselineMetrics, ExecutionPlanMetricsSet, MetricsSet, RecordOutput,
};
use datafusion::physical_plan::statistics::{ChildStats, StatisticsArgs};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, PlanProperties,
};
use datafusion_distributed::{DistributedLeafExec, DistributedTaskContext};
use futures::{StreamExt, TryStreamExt};
use tokio::sync::OnceCell;

use super::interval_parquet::reading_bytes;
use super::location::locate;

/// The scan's column with the data file of each row, by its number in the catalog: the last column of the
/// input.
pub const FILE_COLUMN: &str = "_harrier_file";
/// The column with the position of a row in its file, from 0.
pub const ROW_COLUMN: &str = "_harrier_row";

/// The deleted rows of one data file: the union of both.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DeletedRows {
    /// Positions in the file, ascending.
    pub rows: Vec<i64>,
    pub stored: Option<StoredDeletes>,
}

/// A delete file: lists the positions of deleted rows in a column `pos`.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredDeletes {
    pub location: String,
    pub bytes: u64,
    /// Ignores rows deleted by later snapshots, if the file records snapshots.
    pub snapshot_max: Option<i64>,
}

/// N → N output partitions: filters the deleted rows out of a scan of Parquet files.
///
/// The input is a scan whose last column is [`FILE_COLUMN`], which the output omits; with `places` the output
/// keeps it, followed by [`ROW_COLUMN`]. The file reader generates row numbers; that is set up when the scan
/// begins, because a serialized plan cannot express it. The same step makes the reader return intervals as
/// bytes, which is why every scan of intervals is below this operator.
#[derive(Debug)]
pub struct LiveRowsExec {
    input: Arc<dyn ExecutionPlan>,
    deleted: Arc<BTreeMap<i64, DeletedRows>>,
    places: bool,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
    /// Shared by all output partitions, because they share the files between them at run time.
    row_numbered: OnceLock<Arc<dyn ExecutionPlan>>,
    loaded: Arc<HashMap<i64, OnceCell<Vec<i64>>>>,
}

impl LiveRowsExec {
    /// Errors: the input is not such a scan.
    pub fn try_new(
        input: Arc<dyn ExecutionPlan>,
        deleted: Arc<BTreeMap<i64, DeletedRows>>,
        places: bool,
    ) -> Result<Self> {
        let schema = input.schema();
        let columns = schema.fields().len();
        if columns == 0 || schema.field(columns - 1).name() != FILE_COLUMN {
            return internal_err!("a scan of live rows needs the column {FILE_COLUMN}");
        }
        let schema = output_schema(&schema, places)?;
        let properties = PlanProperties::new(
            EquivalenceProperties::new(schema),
            input.output_partitioning().clone().to_unknown(),
            input.pipeline_behavior(),
            input.boundedness(),
        );
        let loaded = deleted.keys().map(|file| (*file, OnceCell::new())).collect();
        Ok(Self {
            input,
            deleted,
            places,
            properties: Arc::new(properties),
            metrics: ExecutionPlanMetricsSet::new(),
            row_numbered: OnceLock::new(),
            loaded: Arc::new(loaded),
        })
    }

    /// Deleted rows by number of the data file.
    pub fn deleted_rows(&self) -> &BTreeMap<i64, DeletedRows> {
        &self.deleted
    }

    /// Whether the output has row positions.
    pub fn places(&self) -> bool {
        self.places
    }

    /// The input with generated row numbers.
    fn with_row_numbers(&self, context: &Arc<TaskContext>) -> Result<Arc<dyn ExecutionPlan>> {
        if let Some(row_numbered) = self.row_numbered.get() {
            return Ok(Arc::clone(row_numbered));
        }
        let row_numbered = number_rows(&part_of_task(&self.input, context), context)?;
        Ok(Arc::clone(self.row_numbered.get_or_init(|| row_numbered)))
    }
}

trait ToUnknownPartitioning {
    /// Unknown partitioning with the same number of output partitions.
    fn to_unknown(self) -> Self;
}

impl ToUnknownPartitioning for datafusion::physical_plan::Partitioning {
    fn to_unknown(self) -> Self {
        Self::UnknownPartitioning(self.partition_count())
    }
}

fn output_schema(input: &SchemaRef, places: bool) -> Result<SchemaRef> {
    use datafusion::arrow::datatypes::{DataType, Field, Schema};
    let mut fields: Vec<_> = input.fields().iter().cloned().collect();
    match places {
        true => fields.push(Arc::new(Field::new(ROW_COLUMN, DataType::Int64, true))),
        false => drop(fields.pop()),
    }
    Ok(Arc::new(Schema::new_with_metadata(fields, input.metadata().clone())))
}

/// The part of the scan for this task: on the coordinator a plan still holds the parts of all tasks.
fn part_of_task(input: &Arc<dyn ExecutionPlan>, context: &Arc<TaskContext>) -> Arc<dyn ExecutionPlan> {
    let Some(leaf) = input.downcast_ref::<DistributedLeafExec>() else {
        return Arc::clone(input);
    };
    let task = DistributedTaskContext::from_ctx(context);
    match leaf.variants().get(task.task_index) {
        Some(part) if task.task_count > 1 => Arc::clone(part),
        _ => Arc::clone(leaf.original()),
    }
}

/// Adds the row number in the file to `scan` as one more column.
fn number_rows(scan: &Arc<dyn ExecutionPlan>, context: &TaskContext) -> Result<Arc<dyn ExecutionPlan>> {
    let config = scan
        .downcast_ref::<DataSourceExec>()
        .and_then(|scan| scan.data_source().downcast_ref::<FileScanConfig>())
        .ok_or_else(|| {
            internal_datafusion_err!("live rows of {}, which is not a scan of files", scan.name())
        })?;
    let schema = scan.schema();
    let number = ScalarFunctionExpr::try_new(
        file_row_index(),
        vec![],
        &schema,
        Arc::clone(context.session_config().options()),
    )?;
    let own = schema.fields().iter().enumerate().map(|(at, field)| {
        ProjectionExpr::new(Arc::new(Column::new(field.name(), at)), field.name().clone())
    });
    let projection =
        ProjectionExprs::new(own.chain([ProjectionExpr::new(Arc::new(number), ROW_COLUMN.to_string())]));
    let source = config
        .file_source
        .try_pushdown_projection(&projection)?
        .ok_or_else(|| internal_datafusion_err!("a scan that cannot number its rows"))?;
    let mut row_numbered = config.clone();
    row_numbered.file_source = reading_bytes(source, &config.object_store_url, context)?;
    Ok(DataSourceExec::from_data_source(row_numbered))
}

impl DisplayAs for LiveRowsExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LiveRowsExec: files with deleted rows={}", self.deleted.len())?;
        if self.places { write!(f, ", with places") } else { Ok(()) }
    }
}

impl ExecutionPlan for LiveRowsExec {
    crate::one_input!("LiveRowsExec", input);

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn with_new_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let input = children.swap_remove(0);
        Ok(Arc::new(Self::try_new(input, Arc::clone(&self.deleted), self.places)?))
    }

    /// Rows are numbered as files are read, so no repartitioning may come between.
    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        vec![false]
    }

    fn cardinality_effect(&self) -> CardinalityEffect {
        CardinalityEffect::LowerEqual
    }

    fn child_stats_requests(&self, partition: Option<usize>) -> Vec<ChildStats> {
        vec![ChildStats::At(partition)]
    }

    /// The planner of the scan has already subtracted the deleted rows from its statistics.
    fn statistics_from_inputs(
        &self,
        inputs: &[Arc<Statistics>],
        _: &StatisticsArgs,
    ) -> Result<Arc<Statistics>> {
        let [input] = inputs else { return internal_err!("statistics of {} inputs", inputs.len()) };
        let mut statistics = input.as_ref().clone().to_inexact();
        // Only the row number is not a column of the input.
        statistics.column_statistics.resize_with(self.schema().fields().len(), ColumnStatistics::new_unknown);
        Ok(Arc::new(statistics))
    }

    fn gather_filters_for_pushdown(
        &self,
        _phase: FilterPushdownPhase,
        parent_filters: Vec<Arc<dyn PhysicalExpr>>,
        _config: &ConfigOptions,
    ) -> Result<FilterDescription> {
        FilterDescription::from_children(parent_filters, &self.children())
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let metrics = BaselineMetrics::new(&self.metrics, partition);
        let input = self.with_row_numbers(&context)?.execute(partition, Arc::clone(&context))?;
        let live = LiveRowFilter {
            deleted: Arc::clone(&self.deleted),
            loaded: Arc::clone(&self.loaded),
            context,
            schema: self.schema(),
        };
        let batches = input.then(move |batch| {
            let live = live.clone();
            async move { live.filter(batch?).await }
        });
        let batches = batches
            .map_ok(move |batch| batch.record_output(&metrics))
            .try_filter(|batch| std::future::ready(batch.num_rows() > 0));
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), batches)))
    }
}

#[derive(Clone)]
struct LiveRowFilter {
    deleted: Arc<BTreeMap<i64, DeletedRows>>,
    loaded: Arc<HashMap<i64, OnceCell<Vec<i64>>>>,
    context: Arc<TaskContext>,
    schema: SchemaRef,
}

impl LiveRowFilter {
    /// Filters `batch`, whose last two columns are file and row.
    async fn filter(&self, batch: RecordBatch) -> Result<RecordBatch> {
        let columns = batch.num_columns();
        let files = batch.column(columns - 2).as_primitive::<Int64Type>().clone();
        let rows = batch.column(columns - 1).as_primitive::<Int64Type>().clone();
        let mut keep: Option<BooleanBufferBuilder> = None;
        let mut start = 0;
        // Rows of one file are contiguous.
        while start < files.len() {
            let file = files.value(start);
            let end = (start..files.len()).find(|at| files.value(*at) != file).unwrap_or(files.len());
            if let Some(deleted) = self.load(file).await? {
                let places = &rows.values()[start..end];
                mark_live(places, deleted, start, batch.num_rows(), &mut keep);
            }
            start = end;
        }
        let output: Vec<usize> = (0..self.schema.fields().len()).collect();
        let batch = batch.project(&output)?.with_schema(Arc::clone(&self.schema))?;
        Ok(match keep {
            Some(mut keep) => filter_record_batch(&batch, &BooleanArray::new(keep.finish(), None))?,
            None => batch,
        })
    }

    /// Loads the deleted rows of a file, ascending; `None` if there are none.
    async fn load(&self, file: i64) -> Result<Option<&[i64]>> {
        let (Some(deleted), Some(cell)) = (self.deleted.get(&file), self.loaded.get(&file)) else {
            return Ok(None);
        };
        let rows = cell.get_or_try_init(|| async { read_deleted(deleted, &self.context).await }).await?;
        Ok(Some(rows))
    }
}

/// Clears the bits, from `start` on, of `places` that are in `deleted`. Both are ascending.
fn mark_live(
    places: &[i64],
    deleted: &[i64],
    start: usize,
    length: usize,
    keep: &mut Option<BooleanBufferBuilder>,
) {
    let (Some(first), Some(last)) = (places.first(), places.last()) else {
        return;
    };
    let from = deleted.partition_point(|row| row < first);
    let to = deleted.partition_point(|row| row <= last);
    let mut at = 0;
    for row in &deleted[from..to] {
        at += places[at..].partition_point(|place| place < row);
        if places.get(at) == Some(row) {
            keep.get_or_insert_with(|| {
                let mut all = BooleanBufferBuilder::new(length);
                all.append_n(length, true);
                all
            })
            .set_bit(start + at, false);
        }
    }
}

/// The column of delete files and data files with the snapshot of a row.
const SNAPSHOT_COLUMN: &str = "_ducklake_internal_snapshot_id";

/// Reads all rows that `deleted` lists, ascending.
pub async fn read_deleted(deleted: &DeletedRows, context: &TaskContext) -> Result<Vec<i64>> {
    let mut rows = deleted.rows.clone();
    if let Some(stored) = &deleted.stored {
        rows.extend(read_deletes(stored, context).await?);
    }
    rows.sort_unstable();
    rows.dedup();
    Ok(rows)
}

#[allow(deprecated, reason = "what replaces it is an example to be copied")]
async fn read_deletes(stored: &StoredDeletes, context: &TaskContext) -> Result<Vec<i64>> {
    let (store, path) = locate(&stored.location)?;
    let store = context.runtime_env().object_store(&store)?;
    let reader = datafusion::parquet::arrow::async_reader::ParquetObjectReader::new(store, path)
        .with_file_size(stored.bytes);
    let builder = ParquetRecordBatchStreamBuilder::new(reader).await?;
    let wanted: Vec<usize> = builder
        .parquet_schema()
        .columns()
        .iter()
        .enumerate()
        .filter(|(_, column)| {
            column.name() == "pos" || stored.snapshot_max.is_some() && column.name() == SNAPSHOT_COLUMN
        })
        .map(|(at, _)| at)
        .collect();
    let mask = ProjectionMask::leaves(builder.parquet_schema(), wanted);
    let mut batches = builder.with_projection(mask).build()?;
    let mut rows = Vec::new();
    while let Some(batch) = batches.try_next().await? {
        let places = batch
            .column_by_name("pos")
            .and_then(|places| places.as_primitive_opt::<Int64Type>())
            .ok_or_else(|| {
                internal_datafusion_err!("{} has no column pos of whole numbers", stored.location)
            })?;
        let snapshots =
            batch.column_by_name(SNAPSHOT_COLUMN).and_then(|column| column.as_primitive_opt::<Int64Type>());
        rows.extend((0..places.len()).filter_map(|at| {
            let counts = match (snapshots, stored.snapshot_max) {
                (Some(snapshots), Some(max)) => snapshots.value(at) <= max,
                _ => true,
            };
            counts.then(|| places.value(at))
        }));
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deleted_positions_are_filtered() {
        let cases: [(&[i64], &[i64], Option<&[bool]>); 6] = [
            (&[0, 1, 2], &[], None),
            (&[0, 1, 2], &[7], None),
            (&[5, 6, 9], &[7, 8], None),
            (&[0, 1, 2], &[1], Some(&[true, false, true])),
            (&[5, 6, 9], &[0, 5, 7, 9, 11], Some(&[false, true, false])),
            (&[], &[1], None),
        ];
        for (places, deleted, expected) in cases {
            let mut keep = None;
            mark_live(places, deleted, 0, places.len(), &mut keep);
            let kept = keep.map(|mut keep| BooleanArray::new(keep.finish(), None));
            let kept = kept.map(|kept| kept.iter().map(|bit| bit.unwrap()).collect::<Vec<_>>());
            assert_eq!(kept.as_deref(), expected, "{places:?} without {deleted:?}");
        }
    }
}
