//! Writes rows to new data files, each once and at its final path, or staged if others list the folder.
//!
//! File names contain the statement, the task of its slice, the output partition and a number, so they are
//! unique and no rename is needed. Nothing refers to a file before the statement commits. A writer that fails
//! or is dropped removes its files; files of a dead rank are found by the statement's name.
//!
//! The input is sorted by partition key, so one file is open at a time, whatever the number of table
//! partitions. Finished files are closed in the background, a few at a time: closing is a round trip on
//! object stores, and an fsync on disks.

use std::fmt;
use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, BinaryBuilder, BooleanArray, Int64Array, RecordBatch, StringArray,
    new_null_array,
};
use datafusion::arrow::compute::{CastOptions, cast_with_options, filter_record_batch, partition};
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::common::{DataFusionError, Result, exec_datafusion_err, internal_datafusion_err};
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::parquet::arrow::arrow_writer::ArrowWriterOptions;
use datafusion::parquet::arrow::async_writer::AsyncFileWriter;
use datafusion::parquet::basic::Compression;
use datafusion::parquet::file::properties::WriterProperties;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::{
    Distribution, EquivalenceProperties, LexOrdering, OrderingRequirements, PhysicalExpr, PhysicalSortExpr,
};
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::metrics::{
    BaselineMetrics, ExecutionPlanMetricsSet, MetricBuilder, MetricsSet,
};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, Partitioning, PlanProperties,
};
use datafusion_distributed::DistributedTaskContext;
use futures::StreamExt;
use harrier_error::{SqlError, SqlState};
use harrier_functions::hash::bucket::murmur3;
use harrier_functions::uuid_text;
use harrier_sqlstate::IntoDataFusionError;
use parking_lot::Mutex;
use prost::Message;

use super::checksum::ParquetWriter;
use super::column_stats::{self, Nans, text_of};
use super::destination::{
    CreatedFiles, StagedOutput, StagingPlace, Store, Tail, TailWriter, Upload, cannot_stage,
    cannot_stage_in_store,
};
use super::file_record::{FileRecord, PartitionValue};
use super::interval_parquet::{has_uuids, parquet_schema};
use super::timestamp_range::check_years;
use super::timestamp_seconds::declared_schema;
use super::write_format::{Encoder, WriteFormat};
use crate::data_files::write_spec::{FileShape, PartitionFolder, WriteSpec};
use crate::formats::interval_encoding::{encode_intervals, file_schema};

/// Files of one output partition closed concurrently.
const CLOSING_MAX: usize = 16;

/// A row group is flushed at this many bytes in memory, regardless of its rows.
const ROW_GROUP_BYTES_MAX: usize = 128 << 20;

/// Rows per page, the least that a lookup decodes of a column: a fifth of the default of Parquet's libraries.
const PAGE_ROWS: usize = 4096;

/// Bytes of a column's dictionary, which a lookup decodes completely. With the usual megabyte, every value of
/// a key would get an entry, and decoding them would dominate the scan.
const DICTIONARY_BYTES_MAX: usize = 256 << 10;

/// Casts fail on overflow instead of returning NULL.
pub(super) const EXACT: CastOptions<'static> =
    CastOptions { safe: false, format_options: datafusion::arrow::util::display::FormatOptions::new() };

/// N → N output partitions: writes every row, yields `record` (a [`FileRecord`], one per file), or `file` and
/// `row` (the position of a replaced row) and `rewritten` (whether a new version of it was written).
#[derive(Debug)]
pub struct WriteFilesExec {
    input: Arc<dyn ExecutionPlan>,
    spec: Arc<WriteSpec>,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

impl WriteFilesExec {
    pub fn new(input: Arc<dyn ExecutionPlan>, spec: Arc<WriteSpec>) -> Self {
        let partitions = input.output_partitioning().partition_count();
        let properties = PlanProperties::new(
            EquivalenceProperties::new(output_schema()),
            Partitioning::UnknownPartitioning(partitions),
            EmissionType::Both,
            Boundedness::Bounded,
        );
        Self { input, spec, properties: Arc::new(properties), metrics: ExecutionPlanMetricsSet::new() }
    }

    pub fn spec(&self) -> &Arc<WriteSpec> {
        &self.spec
    }

    fn key(&self, at: usize) -> Arc<dyn PhysicalExpr> {
        let schema = self.input.schema();
        Arc::new(Column::new(schema.field(at).name(), at))
    }

    fn partition_columns(&self) -> std::ops::Range<usize> {
        let columns = self.spec.schema.fields().len();
        columns..columns + self.spec.partition.len()
    }
}

/// The output schema of [`WriteFilesExec`].
pub(crate) fn output_schema() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new("record", DataType::Binary, true),
        Field::new("file", DataType::Int64, true),
        Field::new("row", DataType::Int64, true),
        Field::new("rewritten", DataType::Boolean, true),
    ]))
}

impl DisplayAs for WriteFilesExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WriteFilesExec: table={}", self.spec.table)?;
        match self.spec.format {
            WriteFormat::Parquet => write!(f, ", compression={}", self.spec.shape.compression)?,
            _ => write!(f, ", format={}", self.spec.format.extension())?,
        }
        if self.spec.partition.is_empty() {
            return Ok(());
        }
        let name = |key: &PartitionFolder| match key.name.as_str() {
            "" => "table partition".to_string(),
            name => name.to_string(),
        };
        let keys: Vec<String> = self.spec.partition.iter().map(name).collect();
        write!(f, ", partition=[{}]", keys.join(", "))
    }
}

impl ExecutionPlan for WriteFilesExec {
    crate::one_input!("WriteFilesExec", input, |own, input| Self::new(input, Arc::clone(&own.spec)));

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    /// Rows of one table partition go to one writer, so that it gets no more files than needed.
    fn required_input_distribution(&self) -> Vec<Distribution> {
        let keys: Vec<_> = self.partition_columns().map(|at| self.key(at)).collect();
        vec![match (self.spec.one_writer, keys.is_empty()) {
            (true, _) => Distribution::SinglePartition,
            (false, true) => Distribution::UnspecifiedDistribution,
            (false, false) => Distribution::KeyPartitioned(keys),
        }]
    }

    fn required_input_ordering(&self) -> Vec<Option<OrderingRequirements>> {
        let keys = self.partition_columns().map(|at| PhysicalSortExpr::new_default(self.key(at)));
        let sort = self.spec.sort.iter().map(|(at, descending, nulls_first)| {
            let options = datafusion::arrow::compute::SortOptions {
                descending: *descending,
                nulls_first: *nulls_first,
            };
            PhysicalSortExpr::new(self.key(*at), options)
        });
        vec![LexOrdering::new(keys.chain(sort)).map(OrderingRequirements::from)]
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        vec![false]
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let input = self.input.execute(partition, Arc::clone(&context))?;
        let task = DistributedTaskContext::from_ctx(&context).task_index;
        let writing = PartitionWriter::new(
            input,
            Arc::clone(&self.spec),
            format!("{}-{task}-{partition}", self.spec.name),
            &context,
            Counters::new(&self.metrics, partition),
        )?;
        let batches = futures::stream::try_unfold(writing, |mut writing| async move {
            Ok(writing.step().await?.map(|batch| (batch, writing)))
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(output_schema(), batches)))
    }
}

fn properties_of(shape: &FileShape) -> Result<WriterProperties> {
    Ok(WriterProperties::builder()
        .set_compression(compression_of(&shape.compression)?)
        .set_max_row_group_row_count(Some(shape.row_group_rows.max(1)))
        .set_data_page_row_count_limit(PAGE_ROWS)
        .set_dictionary_page_size_limit(DICTIONARY_BYTES_MAX)
        .set_created_by(format!("Harrier {}", env!("CARGO_PKG_VERSION")))
        .build())
}

struct Counters {
    baseline: BaselineMetrics,
    files: datafusion::physical_plan::metrics::Count,
    bytes: datafusion::physical_plan::metrics::Count,
    rows: datafusion::physical_plan::metrics::Count,
}

impl Counters {
    fn new(metrics: &ExecutionPlanMetricsSet, partition: usize) -> Self {
        Self {
            baseline: BaselineMetrics::new(metrics, partition),
            files: MetricBuilder::new(metrics).counter("files_written", partition),
            bytes: MetricBuilder::new(metrics).counter("bytes_written", partition),
            rows: MetricBuilder::new(metrics).counter("rows_written", partition),
        }
    }
}

/// The writer of one output partition.
struct PartitionWriter {
    input: SendableRecordBatchStream,
    spec: Arc<WriteSpec>,
    /// The schema declared in files: seconds become microseconds, as Parquet has no seconds.
    declared_schema: SchemaRef,
    /// The schema of the encoder: warehouse files store intervals as bytes. Folders that others list have no
    /// intervals in Parquet, since their readers would lose the months.
    file_schema: SchemaRef,
    /// Prefix of its file names.
    name: String,
    store: Store,
    stage: StagingPlace,
    open: Option<OpenFile>,
    records: Vec<FileRecord>,
    created: CreatedFiles,
    /// Files begun so far.
    files: usize,
    reservation: MemoryReservation,
    counters: Counters,
    done: bool,
}

impl PartitionWriter {
    fn new(
        input: SendableRecordBatchStream,
        spec: Arc<WriteSpec>,
        name: String,
        context: &TaskContext,
        counters: Counters,
    ) -> Result<Self> {
        let store = Store::open(&spec.folder, context)?;
        let stage = StagingPlace::of(&spec, &store)?;
        let reservation = MemoryConsumer::new("WriteFiles").register(context.memory_pool());
        let declared_schema = match &spec.format {
            WriteFormat::Parquet => declared_schema(&spec.schema),
            _ => Arc::clone(&spec.schema),
        };
        let file_schema = match (&spec.format, &spec.staging) {
            (WriteFormat::Parquet, None) => file_schema(&declared_schema),
            _ => Arc::clone(&declared_schema),
        };
        Ok(Self {
            input,
            declared_schema,
            file_schema,
            created: CreatedFiles::new(store.clone(), Vec::new()),
            store,
            stage,
            spec,
            name,
            open: None,
            records: Vec::new(),
            files: 0,
            reservation,
            counters,
            done: false,
        })
    }

    /// Advances; yields replaced positions, and finally the records of all files.
    async fn step(&mut self) -> Result<Option<RecordBatch>> {
        if self.done {
            return Ok(None);
        }
        while let Some(batch) = self.input.next().await {
            let batch = batch?;
            let replaced = self.take(batch).await?;
            if replaced.as_ref().is_some_and(|replaced| replaced.num_rows() > 0) {
                return Ok(replaced);
            }
        }
        self.finish_file().await?;
        while !self.created.closing.is_empty() {
            self.close_one().await?;
        }
        self.done = true;
        self.created.paths.clear();
        let mut records = BinaryBuilder::new();
        for record in &self.records {
            records.append_value(record.encode_to_vec());
        }
        let records: ArrayRef = Arc::new(records.finish());
        let none = new_null_array(&DataType::Int64, records.len());
        let rewritten = new_null_array(&DataType::Boolean, records.len());
        Ok(Some(RecordBatch::try_new(output_schema(), vec![records, Arc::clone(&none), none, rewritten])?))
    }

    /// Writes a batch; returns the positions of the rows that it replaces.
    async fn take(&mut self, batch: RecordBatch) -> Result<Option<RecordBatch>> {
        let columns = self.spec.schema.fields().len() + self.spec.partition.len();
        if !self.spec.replaces {
            self.write(&batch).await?;
            return Ok(None);
        }
        let file = Arc::clone(batch.column(columns + 1));
        let row = Arc::clone(batch.column(columns + 2));
        let rewritten = is_true(batch.column(columns))?;
        let written = filter_record_batch(&batch, &rewritten)?;
        self.write(&written).await?;
        let none = new_null_array(&DataType::Binary, batch.num_rows());
        let places = RecordBatch::try_new(output_schema(), vec![none, file, row, Arc::new(rewritten)])?;
        let has_place: BooleanArray = places.column(1).logical_nulls().map_or_else(
            || vec![true; places.num_rows()].into(),
            |nulls| BooleanArray::new(nulls.inner().clone(), None),
        );
        Ok(Some(filter_record_batch(&places, &has_place)?))
    }

    async fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        if batch.num_rows() == 0 {
            return Ok(());
        }
        let columns = self.spec.schema.fields().len();
        let keys = &batch.columns()[columns..columns + self.spec.partition.len()];
        if keys.is_empty() {
            return self.append(batch, &[]).await;
        }
        let texts = keys.iter().map(|key| text_of(key)).collect::<Result<Vec<_>>>()?;
        for range in partition(keys)?.ranges() {
            let key: Vec<Option<String>> = texts.iter().map(|texts| text_at(texts, range.start)).collect();
            self.append(&batch.slice(range.start, range.len()), &key).await?;
        }
        Ok(())
    }

    /// Appends rows of one table partition.
    async fn append(&mut self, batch: &RecordBatch, key: &[Option<String>]) -> Result<()> {
        if self.open.as_ref().is_some_and(|open| open.key != key) {
            self.finish_file().await?;
        }
        let mut open = match self.open.take() {
            Some(open) => open,
            None => self.begin_file(key).await?,
        };
        let target_file_bytes = self.shape_of(key).target_file_bytes;
        let batch = self.fit(batch)?;
        let timer = self.counters.baseline.elapsed_compute().timer();
        open.nans.update(batch.columns());
        open.rows += batch.num_rows() as i64;
        open.writer.write(&batch).await.map_err(|error| self.store.explain(error))?;
        drop(timer);
        self.counters.rows.add(batch.num_rows());
        let full = open.writer.memory_size() > ROW_GROUP_BYTES_MAX
            || self.reservation.try_resize(open.writer.memory_size()).is_err();
        if full {
            open.writer.flush().await.map_err(|error| self.store.explain(error))?;
            self.reservation.try_resize(open.writer.memory_size())?;
        }
        let bytes = open.tail.lock().bytes + open.writer.in_progress_size() as u64;
        self.open = Some(open);
        if bytes >= target_file_bytes {
            self.finish_file().await?;
        }
        Ok(())
    }

    fn shape_of(&self, key: &[Option<String>]) -> &FileShape {
        let own = key.first().and_then(|value| self.spec.own_shapes.get(value.as_deref()?));
        own.unwrap_or(&self.spec.shape)
    }

    /// Projects a batch to the file's columns and types.
    fn fit(&self, batch: &RecordBatch) -> Result<RecordBatch> {
        let schema = &self.spec.schema;
        let mut columns = Vec::with_capacity(schema.fields().len());
        let told = self.declared_schema.fields().iter().map(|field| field.data_type());
        let in_file = self.file_schema.fields().iter().map(|field| field.data_type());
        for (((field, told), kind), column) in
            schema.fields().iter().zip(told).zip(in_file).zip(batch.columns())
        {
            if !field.is_nullable() && column.logical_null_count() > 0 {
                return Err(SqlError::new(
                    SqlState::NOT_NULL_VIOLATION,
                    format!(
                        "null value in column \"{}\" of relation \"{}\" violates not-null constraint",
                        field.name(),
                        self.spec.table
                    ),
                )
                .into_datafusion());
            }
            let mut column = Arc::clone(column);
            if *told == uuid_text::STORED && column.data_type().is_string() {
                column = uuid_text::to_bytes(&column)?;
            }
            for kind in [field.data_type(), told] {
                if column.data_type() != kind {
                    column = cast_with_options(&column, kind, &EXACT)?;
                }
            }
            if matches!(self.stage, StagingPlace::None) {
                check_years(&column, field.name())?;
            }
            columns.push(match told == kind {
                true => column,
                false => encode_intervals(&column, field.name())?,
            });
        }
        let rows = datafusion::arrow::array::RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        Ok(RecordBatch::try_new_with_options(Arc::clone(&self.file_schema), columns, &rows)?)
    }

    async fn begin_file(&mut self, key: &[Option<String>]) -> Result<OpenFile> {
        let (mut folder, mut prefix) = (String::new(), String::new());
        for (level, value) in self.spec.partition.iter().zip(key) {
            if level.name.is_empty() {
                // Negative: in no table partition; the number is the next partition id at that time.
                prefix = match value.as_ref().map(|value| encode(value)) {
                    None => String::new(),
                    Some(value) => match value.strip_prefix('-') {
                        Some(count) => format!("n{count}-"),
                        None => format!("p{value}-"),
                    },
                };
                continue;
            }
            folder.push_str(&match &self.stage {
                // The catalog stores the value.
                StagingPlace::None => short_partition_folder(&level.name, value.as_deref()),
                _ => partition_folder(&level.name, value.as_deref()),
            });
            folder.push('/');
        }
        let name = format!("{prefix}{}-{}.{}", self.name, self.files, self.spec.format.extension());
        let path = format!("{folder}{name}");
        self.files += 1;
        let tail = Arc::new(Mutex::new(Tail::default()));
        let (sink, staged) = match &self.stage {
            StagingPlace::None => {
                self.created.paths.push(path.clone());
                (self.store.create(&path).await?, StagedOutput::Nothing)
            }
            StagingPlace::Local(places) => {
                let staged = places.staging_path(&folder, &name).map_err(|error| cannot_stage(&error))?;
                let staged = staged
                    .into_os_string()
                    .into_string()
                    .map_err(|_| internal_datafusion_err!("a path is no text"))?;
                // Joining an absolute path to a folder keeps it.
                self.created.paths.push(staged.clone());
                (self.store.create(&staged).await?, StagedOutput::File(staged))
            }
            StagingPlace::Store(placing) => {
                let writer = placing.begin(&folder, &name).await;
                let writer = writer.map_err(|error| cannot_stage_in_store(&error))?;
                let finished = Arc::default();
                let sink: Box<dyn AsyncFileWriter> =
                    Box::new(Upload { writer, finished: Arc::clone(&finished) });
                (sink, StagedOutput::Upload(finished))
            }
        };
        let sink = TailWriter { sink, tail: Arc::clone(&tail) };
        let writer = match &self.spec.format {
            WriteFormat::Parquet => {
                let mut options = ArrowWriterOptions::new()
                    .with_properties(properties_of(self.shape_of(key))?)
                    .with_skip_arrow_metadata(true);
                if self.file_schema != self.declared_schema || has_uuids(&self.declared_schema) {
                    options = options.with_parquet_schema(parquet_schema(&self.declared_schema)?);
                }
                let schema = Arc::clone(&self.file_schema);
                // Checksums would make the footers of a folder's files differ, which other readers may mind.
                let has_sum = matches!(self.stage, StagingPlace::None);
                Encoder::Parquet(Box::new(ParquetWriter::try_new(sink, schema, options, has_sum)?))
            }
            other => other.begin(&self.spec.schema, sink)?,
        };
        let nans = Nans::new(&self.spec.schema);
        Ok(OpenFile { writer, path, staged, key: key.to_vec(), rows: 0, nans, tail })
    }

    async fn finish_file(&mut self) -> Result<()> {
        let Some(open) = self.open.take() else {
            return Ok(());
        };
        self.reservation.free();
        while self.created.closing.len() >= CLOSING_MAX {
            self.close_one().await?;
        }
        let store = self.store.clone();
        let schema = Arc::clone(&self.declared_schema);
        self.created
            .closing
            .spawn(async move { open.close(&schema).await.map_err(|error| store.explain(error)) });
        Ok(())
    }

    async fn close_one(&mut self) -> Result<()> {
        let closed = self.created.closing.join_next().await;
        let record = closed
            .ok_or_else(|| internal_datafusion_err!("no file is being closed"))?
            .map_err(|error| exec_datafusion_err!("closing a file: {error}"))??;
        self.counters.files.add(1);
        self.counters.bytes.add(record.bytes as usize);
        self.records.push(record);
        Ok(())
    }
}

/// The folder name of a NULL value.
pub const NULL_FOLDER: &str = "__HIVE_DEFAULT_PARTITION__";

/// The folder name of a table partition: `name=value`.
pub fn partition_folder(name: &str, value: Option<&str>) -> String {
    let value = value.map_or_else(|| NULL_FOLDER.to_string(), encode);
    format!("{}={value}", encode(name))
}

/// The longest encoded column or value in a folder name from which nobody reads the value: file systems limit
/// names to 255 bytes, object stores all folders together to 1024.
const FOLDER_PART_BYTES_MAX: usize = 120;

/// The same where the catalog stores the value: long names are truncated, with a hash appended.
fn short_partition_folder(name: &str, value: Option<&str>) -> String {
    let value = value.map_or_else(|| NULL_FOLDER.to_string(), truncate_encoded);
    format!("{}={value}", truncate_encoded(name))
}

/// Truncates the encoded `text` to [`FOLDER_PART_BYTES_MAX`] bytes at a character boundary.
fn truncate_encoded(text: &str) -> String {
    let encoded = encode(text);
    if encoded.len() <= FOLDER_PART_BYTES_MAX {
        return encoded;
    }
    let hash = format!("~{:08x}", murmur3(text.as_bytes()));
    let mut short = String::new();
    for letter in text.chars() {
        let letter = encode(letter.encode_utf8(&mut [0; 4]));
        if short.len() + letter.len() + hash.len() > FOLDER_PART_BYTES_MAX {
            break;
        }
        short.push_str(&letter);
    }
    short + &hash
}

/// Percent-encodes all but letters, digits and a few symbols. `:` is encoded as in Hive and Spark: HDFS
/// rejects it.
fn encode(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    text.bytes()
        .map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect()
}

fn text_at(texts: &StringArray, at: usize) -> Option<String> {
    texts.is_valid(at).then(|| texts.value(at).to_string())
}

fn is_true(column: &ArrayRef) -> Result<BooleanArray> {
    let marks = column.as_boolean_opt().ok_or_else(|| {
        internal_datafusion_err!("the mark of a row to be written is {}", column.data_type())
    })?;
    Ok(match marks.null_count() {
        0 => marks.clone(),
        _ => datafusion::arrow::compute::prep_null_mask_filter(marks),
    })
}

/// Checks a Parquet codec; `name` may have a level in parentheses.
///
/// Errors: it is unknown (22023).
pub fn check_compression(name: &str) -> Result<()> {
    compression_of(name).map(drop)
}

fn compression_of(name: &str) -> Result<Compression> {
    name.parse().map_err(|_| {
        SqlError::new(SqlState::INVALID_PARAMETER_VALUE, format!("unknown compression \"{name}\""))
            .with_hint(
                "one of uncompressed, snappy, gzip, zstd, lz4, lz4_raw, brotli; gzip has levels to 9, brotli to 11, zstd to 22",
            )
            .into_datafusion()
    })
}

struct OpenFile {
    writer: Encoder<TailWriter>,
    path: String,
    staged: StagedOutput,
    key: Vec<Option<String>>,
    rows: i64,
    nans: Nans,
    tail: Arc<Mutex<Tail>>,
}

impl OpenFile {
    async fn close(self, schema: &Schema) -> Result<FileRecord> {
        let footer = self.writer.close().await?;
        let (staged, upload) = match self.staged {
            StagedOutput::Nothing => (None, None),
            StagedOutput::File(path) => (Some(path), None),
            StagedOutput::Upload(finished) => (None, finished.lock().take()),
        };
        let stats = match (footer, &staged, &upload) {
            (Some(footer), None, None) => column_stats::of_file(&footer, schema, &self.nans)?,
            // Nobody stores them.
            _ => vec![],
        };
        let (bytes, footer_bytes) = self.tail.lock().sizes();
        let partition = self.key.into_iter().map(|value| PartitionValue { value }).collect();
        Ok(FileRecord {
            path: self.path,
            rows: self.rows,
            bytes,
            footer_bytes,
            partition,
            stats,
            staged,
            upload,
        })
    }
}

/// Writes deleted rows of one data file to `location` as a delete file; returns the sizes of the file and its
/// footer, in bytes.
pub async fn write_delete_file(
    location: &str,
    data_file: &str,
    rows: &[i64],
    context: &TaskContext,
) -> Result<(i64, i64)> {
    let field = |name: &str, kind: DataType, id: &str| {
        Field::new(name, kind, true).with_metadata(
            [(datafusion::parquet::arrow::PARQUET_FIELD_ID_META_KEY.to_string(), id.to_string())].into(),
        )
    };
    // The column ids that Iceberg reserves.
    let schema = Arc::new(Schema::new(vec![
        field("file_path", DataType::Utf8, "2147483646"),
        field("pos", DataType::Int64, "2147483645"),
    ]));
    let (folder, name) =
        location.rsplit_once('/').ok_or_else(|| internal_datafusion_err!("no folder in {location}"))?;
    let store = Store::open(&format!("{folder}/"), context)?;
    let tail = Arc::new(Mutex::new(Tail::default()));
    let sink = TailWriter { sink: store.create(name).await?, tail: Arc::clone(&tail) };
    let mut created = CreatedFiles::new(store.clone(), vec![name.to_string()]);
    let written = async {
        let properties = WriterProperties::builder().set_compression(Compression::SNAPPY).build();
        let options = ArrowWriterOptions::new().with_properties(properties).with_skip_arrow_metadata(true);
        let mut writer = ParquetWriter::try_new(sink, Arc::clone(&schema), options, true)?;
        let paths: StringArray = std::iter::repeat_n(Some(data_file), rows.len()).collect();
        let rows = Int64Array::from(rows.to_vec());
        writer.write(&RecordBatch::try_new(schema, vec![Arc::new(paths), Arc::new(rows)])?).await?;
        writer.close().await?;
        Ok::<_, DataFusionError>(())
    };
    written.await.map_err(|error| store.explain(error))?;
    created.paths.clear();
    let sizes = tail.lock().sizes();
    Ok(sizes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_are_encoded() {
        assert_eq!(encode("ev en/"), "ev%20en%2F");
        assert_eq!(encode("2024-01-15"), "2024-01-15");
        assert_eq!(encode("ä=%"), "%C3%A4%3D%25");
    }

    #[test]
    fn long_folders_are_shortened() {
        assert_eq!(short_partition_folder("ä", Some("b c")), partition_folder("ä", Some("b c")));
        assert_eq!(short_partition_folder("k", None), partition_folder("k", None));
        let fits = "z".repeat(FOLDER_PART_BYTES_MAX);
        assert_eq!(truncate_encoded(&fits), fits);
        let (one, other) = (format!("{fits}1"), format!("{fits}2"));
        assert!(
            truncate_encoded(&one).len() == FOLDER_PART_BYTES_MAX
                && truncate_encoded(&one) != truncate_encoded(&other)
        );
        // A letter encoded in six bytes is not split.
        let letters = truncate_encoded(&"ä".repeat(FOLDER_PART_BYTES_MAX));
        let (letters, hash) = letters.split_once('~').unwrap();
        assert_eq!((letters, hash.len()), ("%C3%A4".repeat(18).as_str(), 8));
    }
}
