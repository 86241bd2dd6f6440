//! Writes ORC files.

use std::fmt;
use std::io::{self, Write};
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use datafusion::arrow::compute::{CastOptions, cast_with_options};
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::common::runtime::SpawnedTask;
use datafusion::common::{DataFusionError, Result};
use datafusion::datasource::file_format::write::demux::DemuxedStreamReceiver;
use datafusion::datasource::physical_plan::{FileSink, FileSinkConfig};
use datafusion::datasource::sink::DataSink;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::object_store::ObjectStore;
use datafusion::object_store::buffered::BufWriter;
use datafusion::object_store::path::Path;
use datafusion::physical_plan::metrics::MetricsSet;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType};
use orc_rust::ArrowWriterBuilder;
use orc_rust::compression::CompressionType;
use orc_rust::error::OrcError;
use tokio::io::AsyncWriteExt;
use tokio::sync::mpsc::{self, Receiver};
use tokio::task::JoinSet;

use super::{Codec, explain};
use crate::sqlstate::{CodedError, SqlState};

/// Encoded pieces that wait to be written.
const QUEUE: usize = 8;

const EXACT: CastOptions<'static> =
    CastOptions { safe: false, format_options: datafusion::arrow::util::display::FormatOptions::new() };

/// Writes rows into ORC files, as DataFusion deals them out.
pub(super) struct OrcSink {
    config: FileSinkConfig,
    compression: Codec,
    /// As the library encodes the columns.
    schema: SchemaRef,
}

impl OrcSink {
    /// Errors: a column has a type that cannot be written (0A000).
    pub(super) fn try_new(config: FileSinkConfig, compression: Codec) -> Result<Self> {
        let keys: Vec<&String> = config.table_partition_cols.iter().map(|(name, _)| name).collect();
        let all = config.output_schema();
        let own = all
            .fields()
            .iter()
            .filter(|field| config.keep_partition_by_columns || !keys.contains(&field.name()));
        let fields: Vec<Field> = own.map(|field| encoded(field)).collect::<Result<_>>()?;
        Ok(Self { config, compression, schema: Arc::new(Schema::new(fields)) })
    }
}

/// A column as the library encodes it.
pub(super) fn encoded(field: &Field) -> Result<Field> {
    let kind = match field.data_type() {
        DataType::Utf8View | DataType::Utf8 => DataType::Utf8,
        DataType::BinaryView | DataType::Binary | DataType::FixedSizeBinary(_) => DataType::Binary,
        DataType::LargeUtf8 => DataType::LargeUtf8,
        DataType::LargeBinary => DataType::LargeBinary,
        DataType::UInt8 => DataType::Int16,
        DataType::UInt16 => DataType::Int32,
        DataType::UInt32 | DataType::UInt64 => DataType::Int64,
        DataType::Timestamp(unit, Some(_)) => DataType::Timestamp(*unit, Some("UTC".into())),
        DataType::Dictionary(_, value) => {
            return encoded(&field.clone().with_data_type(value.as_ref().clone()));
        }
        kind @ (DataType::Boolean
        | DataType::Int8
        | DataType::Int16
        | DataType::Int32
        | DataType::Int64
        | DataType::Float32
        | DataType::Float64
        | DataType::Date32
        | DataType::Timestamp(_, None)) => kind.clone(),
        other => {
            let message =
                format!("column \"{}\" of type {other} cannot be written to an ORC file", field.name());
            return Err(CodedError::new(SqlState::FEATURE_NOT_SUPPORTED, message)
                .with_hint("decimals as DOUBLE or TEXT; Parquet keeps every type")
                .into());
        }
    };
    Ok(Field::new(field.name(), kind, true))
}

impl fmt::Debug for OrcSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OrcSink").finish()
    }
}

impl DisplayAs for OrcSink {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OrcSink(compression={:?})", self.compression)
    }
}

#[async_trait]
impl DataSink for OrcSink {
    fn metrics(&self) -> Option<MetricsSet> {
        None
    }

    fn schema(&self) -> &SchemaRef {
        self.config.output_schema()
    }

    async fn write_all(&self, data: SendableRecordBatchStream, context: &Arc<TaskContext>) -> Result<u64> {
        FileSink::write_all(self, data, context).await
    }
}

#[async_trait]
impl FileSink for OrcSink {
    fn config(&self) -> &FileSinkConfig {
        &self.config
    }

    async fn spawn_writer_tasks_and_join(
        &self,
        _: &Arc<TaskContext>,
        demux: SpawnedTask<Result<()>>,
        mut files: DemuxedStreamReceiver,
        store: Arc<dyn ObjectStore>,
    ) -> Result<u64> {
        let mut writing: JoinSet<Result<u64>> = JoinSet::new();
        while let Some((path, batches)) = files.recv().await {
            let (store, schema) = (Arc::clone(&store), Arc::clone(&self.schema));
            writing.spawn(write_file(store, path, batches, schema, self.compression));
        }
        let mut rows = 0;
        while let Some(written) = writing.join_next().await {
            rows += written.map_err(|error| DataFusionError::ExecutionJoin(Box::new(error)))??;
        }
        demux.join_unwind().await.map_err(|error| DataFusionError::ExecutionJoin(Box::new(error)))??;
        Ok(rows)
    }
}

/// Writes one file; the library encodes on a thread of its own.
async fn write_file(
    store: Arc<dyn ObjectStore>,
    path: Path,
    batches: Receiver<RecordBatch>,
    schema: SchemaRef,
    compression: Codec,
) -> Result<u64> {
    let mut output = BufWriter::new(store, path);
    let (sender, mut pieces) = mpsc::channel(QUEUE);
    let encoding = SpawnedTask::spawn_blocking(move || encode(batches, sender, &schema, compression));
    while let Some(piece) = pieces.recv().await {
        output.put(piece).await?;
    }
    let rows =
        encoding.join_unwind().await.map_err(|error| DataFusionError::ExecutionJoin(Box::new(error)))??;
    output.shutdown().await?;
    Ok(rows)
}

/// Returns the number of rows.
pub(crate) fn encode(
    mut batches: Receiver<RecordBatch>,
    output: mpsc::Sender<Bytes>,
    schema: &SchemaRef,
    compression: Codec,
) -> Result<u64> {
    let mut builder = ArrowWriterBuilder::new(Pieces(output), Arc::clone(schema));
    let compression = match compression {
        Codec::None => None,
        Codec::Zlib => Some(CompressionType::Zlib),
        Codec::Snappy => Some(CompressionType::Snappy),
        Codec::Lz4 => Some(CompressionType::Lz4),
        Codec::Zstd => Some(CompressionType::Zstd),
    };
    if let Some(compression) = compression {
        builder = builder.with_compression(compression);
    }
    let mut writer = builder.try_build().map_err(explain)?;
    let mut rows = 0;
    while let Some(batch) = batches.blocking_recv() {
        let columns = schema
            .fields()
            .iter()
            .zip(batch.columns())
            .map(|(field, column)| cast_with_options(column, field.data_type(), &EXACT))
            .collect::<Result<_, _>>()?;
        writer.write(&RecordBatch::try_new(Arc::clone(schema), columns)?).map_err(unfit)?;
        rows += batch.num_rows() as u64;
    }
    writer.close().map_err(explain)?;
    Ok(rows)
}

/// What is not about the file is about a value.
fn unfit(error: OrcError) -> DataFusionError {
    match error {
        OrcError::IoError { .. } => explain(error),
        error => {
            CodedError::new(SqlState::DATETIME_FIELD_OVERFLOW, "a value cannot be written to an ORC file")
                .with_detail(error.to_string())
                .into()
        }
    }
}

/// Where what was encoded goes.
struct Pieces(mpsc::Sender<Bytes>);

impl Write for Pieces {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let sent = self.0.blocking_send(Bytes::copy_from_slice(bytes));
        sent.map(|()| bytes.len()).map_err(|_| io::ErrorKind::BrokenPipe.into())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
