//! Encoding of ORC and Avro files on a dedicated thread.

use std::fmt;
use std::io::{self, Write};
use std::sync::Arc;

use bytes::Bytes;
use datafusion::arrow::datatypes::{Schema, SchemaRef};
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::common::runtime::SpawnedTask;
use datafusion::common::{DataFusionError, Result};
use datafusion::datasource::file_format::write::demux::DemuxedStreamReceiver;
use datafusion::datasource::physical_plan::FileSinkConfig;
use datafusion::datasource::sink::DataSink;
use datafusion::execution::TaskContext;
use datafusion::object_store::ObjectStore;
use datafusion::object_store::buffered::BufWriter;
use datafusion::object_store::path::Path;
use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::io::AsyncWriteExt;
use tokio::sync::mpsc::{self, Receiver};
use tokio::task::JoinSet;

use crate::formats::format_adapter::{EncodedSink, FilesSink, OwnSink};

/// Queue capacity, in encoded pieces.
const QUEUE: usize = 8;

/// The format and compression of a file, as its codec.
pub(crate) trait Encoding: Copy + fmt::Debug + Send + Sync + 'static {
    /// The name of a sink, for display and for ranks.
    const SINK: &'static str;

    /// The compression's name.
    fn codec_name(self) -> &'static str;

    /// The schema as it is written.
    ///
    /// Errors: a type or a name cannot be written (0A000).
    fn written_schema(self, schema: &Schema) -> Result<SchemaRef>;

    /// Encodes one file with columns of [`Encoding::written_schema`]; returns the number of rows. Blocks.
    fn encode(
        self,
        batches: Receiver<RecordBatch>,
        output: mpsc::Sender<Bytes>,
        schema: &SchemaRef,
    ) -> Result<u64>;
}

/// A sink that writes rows to files as DataFusion's demuxer distributes them.
///
/// Errors: a type or a name cannot be written (0A000).
pub(crate) fn sink<E: Encoding>(config: FileSinkConfig, encoding: E) -> Result<Arc<dyn DataSink>> {
    let keys: Vec<&String> = config.table_partition_cols.iter().map(|(name, _)| name).collect();
    let all = config.output_schema().fields().iter();
    let own = all.filter(|field| config.keep_partition_by_columns || !keys.contains(&field.name()));
    let own = Schema::new(own.cloned().collect::<Vec<_>>());
    let schema = encoding.written_schema(&own)?;
    Ok(Arc::new(FilesSink::new(config, EncodedFiles { encoding, schema })))
}

#[derive(Debug)]
struct EncodedFiles<E> {
    encoding: E,
    /// The schema as it is encoded.
    schema: SchemaRef,
}

impl<E: Encoding> fmt::Display for EncodedFiles<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}(compression={:?})", E::SINK, self.encoding)
    }
}

impl<E: Encoding> OwnSink for EncodedFiles<E> {
    fn encode(&self) -> Option<EncodedSink> {
        Some(EncodedSink { kind: E::SINK, bytes: self.encoding.codec_name().as_bytes().to_vec() })
    }

    fn write<'a>(
        &'a self,
        _: &'a Arc<TaskContext>,
        demux: SpawnedTask<Result<()>>,
        mut files: DemuxedStreamReceiver,
        store: Arc<dyn ObjectStore>,
    ) -> BoxFuture<'a, Result<u64>> {
        async move {
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
        .boxed()
    }
}

/// Writes one file, encoded on a dedicated thread.
async fn write_file<E: Encoding>(
    store: Arc<dyn ObjectStore>,
    path: Path,
    batches: Receiver<RecordBatch>,
    schema: SchemaRef,
    encoding: E,
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

/// The receiver of encoded bytes, as a blocking writer.
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
