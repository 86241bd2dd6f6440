//! Files that a library encodes on a thread of its own, one piece after the other: ORC and Avro.

use std::fmt;
use std::io::{self, Write};
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use datafusion::arrow::datatypes::{Schema, SchemaRef};
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
use tokio::io::AsyncWriteExt;
use tokio::sync::mpsc::{self, Receiver};
use tokio::task::JoinSet;

use crate::{avro, orc};

/// Encoded pieces that wait to be written.
const QUEUE: usize = 8;

/// What a file is, and how it is compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Encoding {
    Orc(orc::Codec),
    Avro(avro::Codec),
}

impl Encoding {
    /// The columns of a file as they are written.
    ///
    /// Errors: one has a type, or a name, that cannot be written (0A000).
    pub(crate) fn written_schema(self, schema: &Schema) -> Result<SchemaRef> {
        match self {
            Self::Orc(_) => orc::written_schema(schema),
            Self::Avro(_) => avro::written_schema(schema),
        }
    }

    /// Encodes one file with columns as [`Encoding::written_schema`] has them; returns the number of rows. Blocks.
    pub(crate) fn encode(
        self,
        batches: Receiver<RecordBatch>,
        output: mpsc::Sender<Bytes>,
        schema: &SchemaRef,
    ) -> Result<u64> {
        match self {
            Self::Orc(codec) => orc::encode(batches, output, schema, codec),
            Self::Avro(codec) => avro::encode(batches, output, schema, codec),
        }
    }
}

/// Writes rows into files, as DataFusion deals them out.
pub(crate) struct EncodedSink {
    config: FileSinkConfig,
    encoding: Encoding,
    /// As the library encodes the columns.
    schema: SchemaRef,
}

impl EncodedSink {
    /// Errors: a column has a type, or a name, that cannot be written (0A000).
    pub(crate) fn try_new(config: FileSinkConfig, encoding: Encoding) -> Result<Self> {
        let keys: Vec<&String> = config.table_partition_cols.iter().map(|(name, _)| name).collect();
        let all = config.output_schema().fields().iter();
        let own = all.filter(|field| config.keep_partition_by_columns || !keys.contains(&field.name()));
        let own = Schema::new(own.cloned().collect::<Vec<_>>());
        let schema = encoding.written_schema(&own)?;
        Ok(Self { config, encoding, schema })
    }
}

impl fmt::Debug for EncodedSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EncodedSink").field("encoding", &self.encoding).finish()
    }
}

impl DisplayAs for EncodedSink {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.encoding {
            Encoding::Orc(codec) => write!(f, "OrcSink(compression={codec:?})"),
            Encoding::Avro(codec) => write!(f, "AvroSink(compression={codec:?})"),
        }
    }
}

#[async_trait]
impl DataSink for EncodedSink {
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
impl FileSink for EncodedSink {
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
            writing.spawn(write_file(store, path, batches, schema, self.encoding));
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
    encoding: Encoding,
) -> Result<u64> {
    let mut output = BufWriter::new(store, path);
    let (sender, mut pieces) = mpsc::channel(QUEUE);
    let encoded = SpawnedTask::spawn_blocking(move || encoding.encode(batches, sender, &schema));
    while let Some(piece) = pieces.recv().await {
        output.put(piece).await?;
    }
    let rows =
        encoded.join_unwind().await.map_err(|error| DataFusionError::ExecutionJoin(Box::new(error)))??;
    output.shutdown().await?;
    Ok(rows)
}

/// Where what was encoded goes.
pub(crate) struct Pieces(pub mpsc::Sender<Bytes>);

impl Write for Pieces {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let sent = self.0.blocking_send(Bytes::copy_from_slice(bytes));
        sent.map(|()| bytes.len()).map_err(|_| io::ErrorKind::BrokenPipe.into())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
