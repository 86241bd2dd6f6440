//! Formats of new data files.
//!
//! Parquet is encoded inline. Other formats are encoded by their own task (ORC and Avro on a thread) behind a
//! bounded queue; closing waits for it, and dropping an encoder ends it.

use std::sync::Arc;

use bytes::Bytes;
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::Schema;
use datafusion::common::config::CsvOptions;
use datafusion::common::file_options::csv_writer::CsvWriterOptions;
use datafusion::common::parsers::CompressionTypeVariant;
use datafusion::common::runtime::SpawnedTask;
use datafusion::common::{DataFusionError, Result, internal_datafusion_err};
use datafusion::datasource::file_format::csv::CsvSerializer;
use datafusion::datasource::file_format::file_compression_type::FileCompressionType;
use datafusion::datasource::file_format::write::BatchSerializer;
use datafusion::parquet::arrow::async_writer::AsyncFileWriter;
use datafusion::parquet::file::metadata::ParquetMetaData;
use futures::StreamExt;
use futures::stream::BoxStream;
use tokio::sync::mpsc;

use super::checksum::ParquetWriter;
use crate::formats::avro;
use crate::formats::delimited::{self, Lines};
use crate::formats::orc;
use crate::formats::text_scan::json_sink::JsonRows;
use crate::formats::threaded_encoder::Encoding;

/// Capacity of the queue, in batches or encoded pieces.
const QUEUE: usize = 4;

/// The format of a new file.
#[derive(Clone, Debug, PartialEq)]
pub enum WriteFormat {
    /// With the compression of the [`super::WriteSpec`].
    Parquet,
    Csv(Box<CsvOptions>),
    /// JSON lines.
    Json(CompressionTypeVariant),
    Orc(orc::Codec),
    Avro(avro::Codec),
    /// Hive's text format.
    Delimited(delimited::Layout),
}

impl WriteFormat {
    /// The file name extension, without the dot.
    pub fn extension(&self) -> String {
        match self {
            Self::Parquet => "parquet".to_string(),
            Self::Csv(options) => format!("csv{}", suffix(options.compression)),
            Self::Json(compression) => format!("json{}", suffix(*compression)),
            Self::Orc(_) => "orc".to_string(),
            Self::Avro(_) => "avro".to_string(),
            Self::Delimited(_) => delimited::EXTENSION.to_string(),
        }
    }

    /// Checks the columns before anything is written.
    ///
    /// Errors: the format does not support a type or a name (0A000).
    pub fn check(&self, schema: &Schema) -> Result<()> {
        match self {
            Self::Orc(codec) => codec.written_schema(schema).map(drop),
            Self::Avro(codec) => codec.written_schema(schema).map(drop),
            Self::Delimited(_) => delimited::check(schema),
            Self::Parquet | Self::Csv(_) | Self::Json(_) => Ok(()),
        }
    }

    /// Begins a non-Parquet file that is written to `sink`.
    pub(super) fn begin<S: AsyncFileWriter + 'static>(&self, schema: &Schema, sink: S) -> Result<Encoder<S>> {
        let (input, task) = match self {
            Self::Csv(options) => {
                let writer = CsvWriterOptions::try_from(options.as_ref())?.writer_options;
                let header = writer.header();
                let serializer = CsvSerializer::new().with_builder(writer).with_header(header);
                text(Arc::new(serializer), options.compression, sink)?
            }
            Self::Json(compression) => text(Arc::new(JsonRows), *compression, sink)?,
            Self::Delimited(layout) => {
                delimited::check(schema)?;
                let lines = Arc::new(Lines(layout.clone()));
                text(lines, CompressionTypeVariant::UNCOMPRESSED, sink)?
            }
            Self::Orc(codec) => on_thread(*codec, schema, sink)?,
            Self::Avro(codec) => on_thread(*codec, schema, sink)?,
            Self::Parquet => return Err(internal_datafusion_err!("Parquet has a writer of its own")),
        };
        Ok(Encoder::Queued { input, task })
    }
}

fn suffix(compression: CompressionTypeVariant) -> &'static str {
    match compression {
        CompressionTypeVariant::GZIP => ".gz",
        CompressionTypeVariant::BZIP2 => ".bz2",
        CompressionTypeVariant::XZ => ".xz",
        CompressionTypeVariant::ZSTD => ".zst",
        CompressionTypeVariant::UNCOMPRESSED => "",
    }
}

fn text<S: AsyncFileWriter + 'static>(
    serializer: Arc<dyn BatchSerializer>,
    compression: CompressionTypeVariant,
    sink: S,
) -> Result<(Input, SpawnedTask<Result<()>>)> {
    let (sender, receiver) = mpsc::channel(QUEUE);
    let pieces =
        FileCompressionType::from(compression).convert_to_compress_stream(receiver_stream(receiver))?;
    let task = async move {
        let mut sink = sink;
        write_all(pieces, &mut sink).await?;
        Ok(sink.complete().await?)
    };
    Ok((Input::Text { serializer, sender, is_started: false }, SpawnedTask::spawn(task)))
}

fn on_thread<E: Encoding, S: AsyncFileWriter + 'static>(
    encoding: E,
    schema: &Schema,
    sink: S,
) -> Result<(Input, SpawnedTask<Result<()>>)> {
    let schema = encoding.written_schema(schema)?;
    let (rows, batches) = mpsc::channel(QUEUE);
    let (pieces, encoded) = mpsc::channel(QUEUE);
    let encode = SpawnedTask::spawn_blocking(move || encoding.encode(batches, pieces, &schema));
    let task = async move {
        let mut sink = sink;
        write_all(receiver_stream(encoded), &mut sink).await?;
        encode.join_unwind().await.map_err(|error| DataFusionError::ExecutionJoin(Box::new(error)))??;
        Ok(sink.complete().await?)
    };
    Ok((Input::Batches(rows), SpawnedTask::spawn(task)))
}

fn receiver_stream(receiver: mpsc::Receiver<Bytes>) -> BoxStream<'static, Result<Bytes>> {
    futures::stream::unfold(receiver, |mut receiver| async move {
        let piece = receiver.recv().await?;
        Some((Ok(piece), receiver))
    })
    .boxed()
}

async fn write_all<S: AsyncFileWriter>(
    mut pieces: BoxStream<'static, Result<Bytes>>,
    sink: &mut S,
) -> Result<()> {
    while let Some(piece) = pieces.next().await {
        sink.write(piece?).await?;
    }
    Ok(())
}

/// A writer of rows to one file.
pub(super) enum Encoder<S: AsyncFileWriter> {
    Parquet(Box<ParquetWriter<S>>),
    Queued { input: Input, task: SpawnedTask<Result<()>> },
}

/// The input queue of a file's task.
pub(super) enum Input {
    Text { serializer: Arc<dyn BatchSerializer>, sender: mpsc::Sender<Bytes>, is_started: bool },
    Batches(mpsc::Sender<RecordBatch>),
}

impl<S: AsyncFileWriter> Encoder<S> {
    pub(super) async fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        let (input, task) = match self {
            Self::Parquet(writer) => return Ok(writer.write(batch).await?),
            Self::Queued { input, task } => (input, task),
        };
        let is_taken = match input {
            Input::Text { serializer, sender, is_started } => {
                let text = serializer.serialize(batch.clone(), !*is_started)?;
                *is_started = true;
                sender.send(text).await.is_ok()
            }
            Input::Batches(sender) => sender.send(batch.clone()).await.is_ok(),
        };
        match is_taken {
            true => Ok(()),
            // The task has ended early, which means that it failed.
            false => match task.join_unwind_mut().await {
                Ok(Err(error)) => Err(error),
                Ok(Ok(())) => Err(internal_datafusion_err!("a file was complete before its rows were")),
                Err(error) => Err(DataFusionError::ExecutionJoin(Box::new(error))),
            },
        }
    }

    /// Bytes in memory.
    pub(super) fn memory_size(&self) -> usize {
        match self {
            Self::Parquet(writer) => writer.memory_size(),
            Self::Queued { .. } => 0,
        }
    }

    /// Bytes still to be written.
    pub(super) fn in_progress_size(&self) -> usize {
        match self {
            Self::Parquet(writer) => writer.in_progress_size(),
            Self::Queued { .. } => 0,
        }
    }

    pub(super) async fn flush(&mut self) -> Result<()> {
        match self {
            Self::Parquet(writer) => Ok(writer.flush().await?),
            Self::Queued { .. } => Ok(()),
        }
    }

    /// Completes the file; returns the footer of a Parquet file.
    pub(super) async fn close(self) -> Result<Option<ParquetMetaData>> {
        match self {
            Self::Parquet(writer) => Ok(Some(writer.close().await?)),
            Self::Queued { input, task } => {
                drop(input);
                task.join_unwind()
                    .await
                    .map_err(|error| DataFusionError::ExecutionJoin(Box::new(error)))??;
                Ok(None)
            }
        }
    }
}
