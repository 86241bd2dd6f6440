//! Scan of Arrow IPC files and streams, message by message.
//!
//! The library trusts lengths and offsets in messages: on a damaged file it panics, or allocates what a
//! length says. So messages are located here, by the footer of a file or sequentially in a stream, and
//! validated before the library decodes them.
//!
//! Memory bound: an encoded message and its rows. Their buffers' lengths are known in advance and limited to
//! the process's memory.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::buffer::Buffer;
use datafusion::arrow::datatypes::{
    DECIMAL32_MAX_PRECISION, DECIMAL64_MAX_PRECISION, DECIMAL128_MAX_PRECISION, DECIMAL256_MAX_PRECISION,
    DataType, Schema, SchemaRef,
};
use datafusion::arrow::ipc::convert::fb_to_schema;
use datafusion::arrow::ipc::reader::FileDecoder;
use datafusion::arrow::ipc::{
    self, Block, Message, MessageHeader, MetadataVersion, root_as_footer, root_as_message,
};
use datafusion::common::{DataFusionError, Result, resources_datafusion_err};
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::{FileOpenFuture, FileOpener};
use datafusion::execution::memory_pool::MemoryLimit;
use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::object_store::{ObjectMeta, ObjectStore, ObjectStoreExt};
use datafusion::physical_expr_adapter::{BatchAdapter, BatchAdapterFactory};
use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt};

use super::footer;
use crate::formats::avro::columns_of;
use crate::formats::compression;
use crate::formats::damaged_files;
use crate::formats::format_adapter::OwnScan;

/// Precedes the metadata of a message, except in legacy files.
const CONTINUATION: [u8; 4] = [0xff; 4];
/// Precedes the bytes of a compressed buffer: its uncompressed length.
const LENGTH_BYTES: usize = 8;
/// A message with more rows is invalid: its text offsets would overflow.
const ROWS_MAX: i64 = i32::MAX as i64;

/// The opener of files: reads the messages that begin in the requested range.
#[derive(Debug, Clone, Copy)]
pub struct Batches {
    /// The most bytes that one message decompresses to.
    bytes_max: u64,
}

impl Batches {
    /// Limits messages to the memory of the process.
    pub fn within(runtime: &RuntimeEnv) -> Self {
        let bytes_max = match runtime.memory_pool.memory_limit() {
            MemoryLimit::Finite(bytes) => bytes as u64,
            MemoryLimit::Infinite | MemoryLimit::Unknown => u64::from(u32::MAX),
        };
        Self { bytes_max }
    }
}

impl OwnScan for Batches {
    const NAME: &'static str = "arrow";
    const CUTS_FILES: bool = true;

    fn opener(
        &self,
        store: Arc<dyn ObjectStore>,
        file_schema: &SchemaRef,
        columns: &[usize],
        batch_rows: usize,
    ) -> Result<Arc<dyn FileOpener>> {
        let schema = Arc::new(file_schema.project(columns)?);
        Ok(Arc::new(ArrowOpener { store, schema, batch_rows, bytes_max: self.bytes_max }))
    }
}

struct ArrowOpener {
    store: Arc<dyn ObjectStore>,
    /// The projected columns.
    schema: SchemaRef,
    batch_rows: usize,
    bytes_max: u64,
}

impl FileOpener for ArrowOpener {
    fn open(&self, file: PartitionedFile) -> Result<FileOpenFuture> {
        let store = Arc::clone(&self.store);
        let (schema, batch_rows, bytes_max) = (Arc::clone(&self.schema), self.batch_rows, self.bytes_max);
        Ok(async move {
            let Some(messages) = Messages::open(store, file).await? else {
                return Ok(futures::stream::empty().boxed());
            };
            let name = messages.name.clone();
            let reading = MessageReader::new(messages, schema, batch_rows, bytes_max)?;
            let batches = futures::stream::try_unfold(reading, |mut reading| async move {
                Ok(reading.next().await?.map(|batch| (batch, reading)))
            });
            Ok(damaged_files::stream(name, batches.boxed()))
        }
        .boxed())
    }
}

/// Infers the columns of a file or stream.
pub(super) async fn schema_of(store: Arc<dyn ObjectStore>, file: ObjectMeta) -> Result<Schema> {
    let messages = Messages::open(store, PartitionedFile::from(file)).await?;
    Ok(messages.map_or_else(Schema::empty, |messages| messages.schema))
}

/// Iterator over the record batch and dictionary messages of a file, with their bytes.
struct Messages {
    schema: Schema,
    version: MetadataVersion,
    name: String,
    place: Place,
}

enum Place {
    /// The blocks listed in the footer of a file.
    File { store: Arc<dyn ObjectStore>, file: ObjectMeta, blocks: std::vec::IntoIter<Block> },
    /// A whole stream.
    Stream(StreamBytes),
}

impl Messages {
    /// Reads the schema. `None`: no message begins in the requested range.
    async fn open(store: Arc<dyn ObjectStore>, file: PartitionedFile) -> Result<Option<Self>> {
        let (range, file) = (file.range, file.object_meta);
        let name = file.location.filename().unwrap_or_default().to_string();
        if let Some(footer) = footer(&store, &file).await? {
            let (schema, version, mut blocks, rows) = damaged_files::read(&name, || {
                let footer = root_as_footer(&footer)
                    .map_err(|error| damaged_files::error(&name, error.to_string()))?;
                let schema = footer
                    .schema()
                    .ok_or_else(|| damaged_files::error(&name, "its footer tells no columns"))?;
                let dictionaries = footer.dictionaries().iter().flatten().copied().collect::<Vec<_>>();
                let rows = footer.recordBatches().iter().flatten().copied().collect::<Vec<_>>();
                Ok((fb_to_schema(schema), footer.version(), dictionaries, rows))
            })?;
            let begins_here = |block: &Block| {
                range.as_ref().is_none_or(|range| (range.start..range.end).contains(&block.offset()))
            };
            blocks.extend(rows.into_iter().filter(begins_here));
            for block in &blocks {
                let end = block.offset().checked_add(i64::from(block.metaDataLength()));
                let end = end.and_then(|end| end.checked_add(block.bodyLength()));
                let parts = [block.offset(), block.metaDataLength().into(), block.bodyLength()];
                let is_within =
                    end.and_then(|end| u64::try_from(end).ok()).is_some_and(|end| end <= file.size);
                if !is_within || parts.iter().any(|part| *part < 0) {
                    return Err(damaged_files::error(&name, "a message is not within the file"));
                }
            }
            check_columns(&schema, &name)?;
            let blocks = blocks.into_iter();
            return Ok(Some(Self { schema, version, name, place: Place::File { store, file, blocks } }));
        }
        // The message boundaries of a stream are unknown: its first range reads all of it.
        if range.is_some_and(|range| range.start > 0) {
            return Ok(None);
        }
        let bytes = file.size;
        let input = compression::pieces(store.get(&file.location).await?);
        let mut stream =
            StreamBytes { input, present: BytesMut::new(), bytes, ended: false, name: name.clone() };
        let Some((_, message)) = stream.next().await? else {
            return Err(damaged_files::error(&name, "it has no columns"));
        };
        let (schema, version) = damaged_files::read(&name, || {
            let message = read_message(&message, &name)?;
            let schema =
                message.header_as_schema().ok_or_else(|| damaged_files::error(&name, "it has no columns"))?;
            Ok((fb_to_schema(schema), message.version()))
        })?;
        check_columns(&schema, &name)?;
        Ok(Some(Self { schema, version, name, place: Place::Stream(stream) }))
    }

    /// Returns the next message; `None` at the end.
    async fn next(&mut self) -> Result<Option<(Block, Bytes)>> {
        match &mut self.place {
            Place::Stream(stream) => stream.next().await,
            Place::File { store, file, blocks } => {
                let Some(block) = blocks.next() else { return Ok(None) };
                let begin = block.offset() as u64;
                let length = block.metaDataLength() as u64 + block.bodyLength() as u64;
                let bytes = match length {
                    // Stores reject empty ranges.
                    0 => Bytes::new(),
                    _ => store.get_range(&file.location, begin..begin + length).await?,
                };
                Ok(Some((block, bytes)))
            }
        }
    }
}

/// An incremental reader of a stream.
struct StreamBytes {
    input: BoxStream<'static, Result<Bytes>>,
    /// Bytes received and not consumed.
    present: BytesMut,
    /// Total bytes of the stream.
    bytes: u64,
    ended: bool,
    name: String,
}

impl StreamBytes {
    async fn next(&mut self) -> Result<Option<(Block, Bytes)>> {
        self.fill(4).await?;
        if self.present.is_empty() {
            return Ok(None);
        }
        let begin = if self.present.starts_with(&CONTINUATION) { 8 } else { 4 };
        self.fill(begin).await?;
        let cut = || damaged_files::error(&self.name, "it ends within a message");
        let length = self.present.get(begin - 4..begin).and_then(|length| length.try_into().ok());
        let length = i32::from_le_bytes(length.ok_or_else(cut)?);
        if length == 0 {
            return Ok(None);
        }
        let whole = usize::try_from(length).ok().map(|length| begin + length);
        let metadata = whole
            .filter(|whole| *whole as u64 <= self.bytes)
            .ok_or_else(|| damaged_files::error(&self.name, format!("a message of {length} bytes")))?;
        self.fill(metadata).await?;
        let head = self.present.get(..metadata);
        let head = head.ok_or_else(|| damaged_files::error(&self.name, "it ends within a message"))?;
        let body = read_message(head, &self.name)?.bodyLength();
        let end = usize::try_from(body).ok().and_then(|body| metadata.checked_add(body));
        let end = end
            .filter(|end| *end as u64 <= self.bytes)
            .ok_or_else(|| damaged_files::error(&self.name, format!("a message of {body} bytes")))?;
        self.fill(end).await?;
        if self.present.len() < end {
            return Err(damaged_files::error(&self.name, "it ends within a message"));
        }
        let block = Block::new(0, metadata as i32, body);
        Ok(Some((block, self.present.split_to(end).freeze())))
    }

    /// Buffers at least `bytes` bytes, or up to the end of the stream.
    async fn fill(&mut self, bytes: usize) -> Result<()> {
        while !self.ended && self.present.len() < bytes {
            match self.input.next().await.transpose()? {
                Some(piece) => self.present.extend_from_slice(&piece),
                None => self.ended = true,
            }
        }
        Ok(())
    }
}

/// Parses a message that follows its length.
fn read_message<'a>(bytes: &'a [u8], name: &str) -> Result<Message<'a>> {
    let begin = if bytes.starts_with(&CONTINUATION) { 8 } else { 4 };
    let metadata = bytes.get(begin..).ok_or_else(|| damaged_files::error(name, "a message without bytes"))?;
    root_as_message(metadata).map_err(|error| damaged_files::error(name, error.to_string()))
}

/// A scan of one file.
struct MessageReader {
    messages: Messages,
    decoder: FileDecoder,
    adapter: BatchAdapter,
    batch_rows: usize,
    bytes_max: u64,
    /// Remaining rows of the current message.
    rows: Option<RecordBatch>,
}

impl MessageReader {
    fn new(messages: Messages, schema: SchemaRef, batch_rows: usize, bytes_max: u64) -> Result<Self> {
        let whole: SchemaRef = Arc::new(messages.schema.clone());
        let mut decoder = FileDecoder::new(Arc::clone(&whole), messages.version);
        let columns = match schema.fields().is_empty() {
            true => Some(vec![]),
            false => columns_of(&schema, &whole),
        };
        let read = match &columns {
            Some(columns) => Arc::new(whole.project(columns)?),
            None => whole,
        };
        if let Some(columns) = columns {
            decoder = decoder.with_projection(columns);
        }
        let adapter = BatchAdapterFactory::new(schema).make_adapter(&read)?;
        Ok(Self { messages, decoder, adapter, batch_rows, bytes_max, rows: None })
    }

    /// Returns the next rows; `None` at the end.
    async fn next(&mut self) -> Result<Option<RecordBatch>> {
        loop {
            if let Some(rows) = self.rows.take() {
                let (count, most) = (rows.num_rows(), self.batch_rows);
                if count > most {
                    self.rows = Some(rows.slice(most, count - most));
                    return Ok(Some(rows.slice(0, most)));
                }
                return Ok(Some(rows));
            }
            let Some((block, bytes)) = self.messages.next().await? else { return Ok(None) };
            let batch = self.decode(&block, bytes)?;
            self.rows = batch.map(|batch| self.adapter.adapt_batch(&batch)).transpose()?;
        }
    }

    /// Decodes a message; `None` if it is a dictionary.
    fn decode(&mut self, block: &Block, bytes: Bytes) -> Result<Option<RecordBatch>> {
        let name = &self.messages.name;
        let body = bytes.get(block.metaDataLength() as usize..).unwrap_or_default();
        let message = read_message(&bytes[..bytes.len() - body.len()], name)?;
        let is_dictionary = message.header_type() == MessageHeader::DictionaryBatch;
        let batch = match message.header_type() {
            MessageHeader::DictionaryBatch => message.header_as_dictionary_batch().and_then(|own| own.data()),
            _ => message.header_as_record_batch(),
        };
        if let Some(batch) = batch {
            check(&batch, body, self.bytes_max, name)?;
        }
        let buffer = Buffer::from(bytes.clone());
        let decoded = damaged_files::read(name, || match is_dictionary {
            true => Ok(self.decoder.read_dictionary(block, &buffer).map(|()| None)?),
            false => Ok(self.decoder.read_record_batch(block, &buffer)?),
        });
        decoded.map_err(|error| match harrier_sqlstate::of(&error) {
            harrier_error::SqlState::FEATURE_NOT_SUPPORTED => error,
            _ => damaged_files::error(name, error.strip_backtrace()),
        })
    }
}

/// Errors: columns have unsupported types, which the library would accept until their rows are formatted
/// (XX001).
fn check_columns(schema: &Schema, name: &str) -> Result<()> {
    let wrong = schema.flattened_fields().into_iter().find(|field| !has_sizes(field.data_type()));
    match wrong {
        Some(field) => Err(damaged_files::error(name, format!("a column of type {:?}", field.data_type()))),
        None => Ok(()),
    }
}

fn has_sizes(data_type: &DataType) -> bool {
    let is_decimal = |precision: u8, scale: i8, most: u8| {
        (1..=most).contains(&precision) && i16::from(scale).unsigned_abs() <= u16::from(precision)
    };
    match data_type {
        DataType::Decimal32(precision, scale) => is_decimal(*precision, *scale, DECIMAL32_MAX_PRECISION),
        DataType::Decimal64(precision, scale) => is_decimal(*precision, *scale, DECIMAL64_MAX_PRECISION),
        DataType::Decimal128(precision, scale) => is_decimal(*precision, *scale, DECIMAL128_MAX_PRECISION),
        DataType::Decimal256(precision, scale) => is_decimal(*precision, *scale, DECIMAL256_MAX_PRECISION),
        DataType::FixedSizeBinary(size) | DataType::FixedSizeList(_, size) => *size >= 0,
        _ => true,
    }
}

/// Errors: buffers exceed their message (XX001), or the available memory (53200).
fn check(batch: &ipc::RecordBatch<'_>, body: &[u8], bytes_max: u64, name: &str) -> Result<()> {
    let wrong = |what: &str| -> DataFusionError { damaged_files::error(name, what) };
    let is_count = |count: i64| (0..=ROWS_MAX).contains(&count);
    if !is_count(batch.length()) {
        return Err(wrong("a message of more rows than there can be"));
    }
    for node in batch.nodes().iter().flatten() {
        if !is_count(node.length()) || !is_count(node.null_count()) {
            return Err(wrong("a column of more values than there can be"));
        }
    }
    let counts = batch.variadicBufferCounts();
    if counts.iter().flatten().any(|count| !is_count(count)) {
        return Err(wrong("a column of more buffers than there can be"));
    }
    let mut decompressed = 0u64;
    for buffer in batch.buffers().iter().flatten() {
        let begin = usize::try_from(buffer.offset()).ok();
        let end = begin.zip(usize::try_from(buffer.length()).ok());
        let end = end.and_then(|(begin, length)| begin.checked_add(length));
        let bytes = begin.zip(end).and_then(|(begin, end)| body.get(begin..end));
        let bytes = bytes.ok_or_else(|| wrong("a buffer is not within its message"))?;
        if batch.compression().is_none() || bytes.is_empty() {
            continue;
        }
        let length = bytes.get(..LENGTH_BYTES).and_then(|length| length.try_into().ok());
        let length = length.ok_or_else(|| wrong("a compressed buffer without its length"))?;
        // -1: not compressed.
        decompressed = decompressed.saturating_add(i64::from_le_bytes(length).max(0) as u64);
    }
    if decompressed > bytes_max {
        return Err(resources_datafusion_err!(
            "a message of file \"{name}\" is {decompressed} bytes without compression"
        ));
    }
    Ok(())
}
