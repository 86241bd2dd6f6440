//! Scan of Avro files, block by block.
//!
//! The library stops silently in the middle of a truncated file, accepts blocks whose end is not where they
//! say, and blocks with a wrong number of rows. So blocks are located here, each with its row count, its
//! bytes and the sync marker after them, and passed to the library one at a time, which must find that many
//! rows.
//!
//! Memory bound: an encoded block, its decompressed bytes, at most [`DECODED_BYTES_MAX`], and its rows.
//! Blocks are decompressed here, as the library has no limit.

use std::io::{Cursor, Read};
use std::sync::Arc;

use bytes::{Buf, Bytes, BytesMut};
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::{DataType, Schema, SchemaRef};
use datafusion::arrow_avro::compression::CompressionCodec;
use datafusion::arrow_avro::reader::{ReaderBuilder, read_header_info};
use datafusion::common::{DataFusionError, Result};
use datafusion::datasource::file_format::file_compression_type::FileCompressionType;
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::{FileOpenFuture, FileOpener};
use datafusion::object_store::{ObjectStore, ObjectStoreExt};
use datafusion::physical_expr_adapter::{BatchAdapter, BatchAdapterFactory};
use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt};

use crate::formats::compression;
use crate::formats::damaged_files;
use crate::formats::format_adapter::OwnScan;
use harrier_error::{SqlError, SqlState};
use harrier_sqlstate::IntoDataFusionError;

/// The longest valid header.
const HEADER_BYTES_MAX: usize = 64 << 20;
/// Bytes of a block's row count and size.
const NUMBER_BYTES_MAX: usize = 10;
const MARKER_BYTES: usize = 16;
/// A block with more rows is invalid: its offsets would overflow.
const ROWS_MAX: u64 = i32::MAX as u64;
/// A block that decompresses to more is invalid.
const DECODED_BYTES_MAX: u64 = 256 << 20;

/// The opener of files.
#[derive(Debug, Clone, Copy)]
pub struct Blocks;

impl OwnScan for Blocks {
    const NAME: &'static str = "avro";
    const CUTS_FILES: bool = false;

    fn opener(
        &self,
        store: Arc<dyn ObjectStore>,
        file_schema: &SchemaRef,
        columns: &[usize],
        batch_rows: usize,
    ) -> Result<Arc<dyn FileOpener>> {
        let schema = Arc::new(file_schema.project(columns)?);
        Ok(Arc::new(AvroOpener { store, schema, batch_rows }))
    }
}

struct AvroOpener {
    store: Arc<dyn ObjectStore>,
    /// The projected columns.
    schema: SchemaRef,
    batch_rows: usize,
}

impl FileOpener for AvroOpener {
    fn open(&self, file: PartitionedFile) -> Result<FileOpenFuture> {
        let store = Arc::clone(&self.store);
        let (schema, batch_rows) = (Arc::clone(&self.schema), self.batch_rows);
        Ok(async move {
            let location = file.object_meta.location;
            let name = location.filename().unwrap_or_default().to_string();
            let object = store.get(&location).await?;
            let bytes = object.meta.size;
            let reading =
                BlockReader::open(compression::pieces(object), bytes, schema, batch_rows, name).await?;
            let batches = futures::stream::try_unfold(reading, |mut reading| async move {
                Ok(reading.next().await?.map(|batch| (batch, reading)))
            });
            Ok(batches.boxed())
        }
        .boxed())
    }
}

/// A scan of one file.
struct BlockReader {
    input: BoxStream<'static, Result<Bytes>>,
    /// Bytes received and not consumed.
    present: BytesMut,
    /// Total bytes of the file.
    bytes: u64,
    ended: bool,
    /// Prepended to each block for the library: the header with codec null, except for Snappy.
    header: Bytes,
    codec: Option<CompressionCodec>,
    marker: [u8; MARKER_BYTES],
    /// Indexes in the file of the projected columns; `None`: all, in order.
    columns: Option<Vec<usize>>,
    adapter: BatchAdapter,
    batch_rows: usize,
    /// Remaining rows of the current block.
    rows: Option<RecordBatch>,
    name: String,
}

impl BlockReader {
    /// Reads the header.
    async fn open(
        input: BoxStream<'static, Result<Bytes>>,
        bytes: u64,
        schema: SchemaRef,
        batch_rows: usize,
        name: String,
    ) -> Result<Self> {
        let (mut input, mut present) = (input, BytesMut::new());
        let mut tried = 0;
        let header = loop {
            let came = input.next().await.transpose()?;
            let ended = came.is_none();
            present.extend_from_slice(&came.unwrap_or_default());
            // Parsing restarts every time, so double the buffer.
            if !ended && present.len() < tried * 2 {
                continue;
            }
            tried = present.len();
            match damaged_files::read(&name, || read_header_info(&present[..]).map_err(foreign)) {
                Ok(header) => break header,
                Err(error) if ended || present.len() > HEADER_BYTES_MAX => {
                    return Err(damaged_files::error(&name, error.strip_backtrace()));
                }
                Err(_) => {}
            }
        };
        let marker = header.sync();
        let codec = header.compression().ok().flatten();
        let plain = match codec {
            None | Some(CompressionCodec::Snappy) => None,
            Some(_) => header.writer_schema().ok().map(|schema| plain_header(&schema.json_string, &marker)),
        };
        let length = header.header_len() as usize;
        if length > present.len() {
            return Err(damaged_files::error(&name, "it ends in its header"));
        }
        let header = present.split_to(length).freeze();
        let header = plain.unwrap_or(header);
        let whole: SchemaRef =
            damaged_files::read(&name, || Ok(ReaderBuilder::new().build(&header[..])?.schema()))?;
        let columns = columns_of(&schema, &whole);
        let read = match &columns {
            Some(columns) => Arc::new(whole.project(columns)?),
            None => Arc::clone(&whole),
        };
        // The library cannot decode them.
        if let Some(field) = read.fields().iter().find(|field| has_empty_record(field.data_type())) {
            let message = format!("Avro file \"{name}\" has a record without fields");
            let detail = format!("It is in column \"{}\".", field.name());
            return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message)
                .with_detail(detail)
                .into_datafusion());
        }
        let adapter = BatchAdapterFactory::new(schema).make_adapter(&read)?;
        let (ended, rows) = (false, None);
        Ok(Self {
            input,
            present,
            bytes,
            ended,
            header,
            codec,
            marker,
            columns,
            adapter,
            batch_rows,
            rows,
            name,
        })
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
            if !self.next_block().await? {
                return Ok(None);
            }
        }
    }

    /// Reads a block; `false` at the end.
    async fn next_block(&mut self) -> Result<bool> {
        self.fill(2 * NUMBER_BYTES_MAX).await?;
        if self.present.is_empty() {
            return Ok(false);
        }
        let cut = || damaged_files::error(&self.name, "it ends within a block");
        let (count, first) = number(&self.present).ok_or_else(cut)?;
        let (size, second) = number(&self.present[first..]).ok_or_else(cut)?;
        let begin = first + second;
        let wrong =
            |what: &str, number: i64| damaged_files::error(&self.name, format!("a block of {number} {what}"));
        let count = u64::try_from(count)
            .ok()
            .filter(|count| *count <= ROWS_MAX)
            .ok_or_else(|| wrong("rows", count))?;
        let size = u64::try_from(size)
            .ok()
            .filter(|size| *size <= self.bytes)
            .ok_or_else(|| wrong("bytes", size))?;
        let end = begin + size as usize;
        self.fill(end + MARKER_BYTES).await?;
        if self.present.len() < end + MARKER_BYTES {
            return Err(damaged_files::error(&self.name, "it ends within a block"));
        }
        let block = self.present.split_to(end + MARKER_BYTES).freeze();
        if block[end..] != self.marker {
            return Err(damaged_files::error(&self.name, "no marker is behind a block"));
        }
        if count > 0 {
            self.rows = Some(self.decode(&block[begin..end], count as usize)?);
        } else if size > 0 {
            return Err(damaged_files::error(&self.name, "a block of no rows has bytes"));
        }
        Ok(true)
    }

    fn decode(&self, block: &[u8], count: usize) -> Result<RecordBatch> {
        let plain = self.decompress(block)?;
        let block = plain.as_deref().unwrap_or(block);
        let mut numbers = Vec::with_capacity(2 * NUMBER_BYTES_MAX);
        put_number(&mut numbers, count as u64);
        put_number(&mut numbers, block.len() as u64);
        let batch = damaged_files::read(&self.name, || {
            let mut builder = ReaderBuilder::new().with_batch_size(count);
            if let Some(columns) = &self.columns {
                builder = builder.with_projection(columns.clone());
            }
            let mut reader = builder.build(
                self.header.clone().chain(&numbers[..]).chain(block).chain(&self.marker[..]).reader(),
            )?;
            // Another call would look for rows after the last one forever.
            Ok(reader.next().transpose()?)
        })
        .map_err(|error| damaged_files::error(&self.name, error.strip_backtrace()))?;
        let rows = batch.as_ref().map_or(0, RecordBatch::num_rows);
        match batch.filter(|_| rows == count) {
            Some(batch) => self.adapter.adapt_batch(&batch),
            None => Err(damaged_files::error(&self.name, format!("{rows} rows are in a block of {count}"))),
        }
    }

    /// Decompresses a block; `None`: it is uncompressed, or the library decompresses it.
    fn decompress(&self, block: &[u8]) -> Result<Option<Vec<u8>>> {
        let Some(codec) = self.codec else { return Ok(None) };
        let too_large = || {
            let message = format!(
                "a block of file \"{}\" is more than {} megabytes without compression",
                self.name,
                DECODED_BYTES_MAX >> 20
            );
            SqlError::new(SqlState::PROGRAM_LIMIT_EXCEEDED, message)
        };
        let input: Box<dyn Read + Send + '_> = match codec {
            CompressionCodec::Snappy => {
                // Snappy starts with the uncompressed length.
                let length = block.iter().take(5).enumerate();
                let length = length.map(|(at, byte)| (u64::from(byte & 0x7f) << (7 * at), byte & 0x80 == 0));
                let mut decoded = 0;
                for (part, is_last) in length {
                    decoded |= part;
                    if is_last {
                        break;
                    }
                }
                return if decoded > DECODED_BYTES_MAX {
                    Err(too_large().into_datafusion())
                } else {
                    Ok(None)
                };
            }
            CompressionCodec::Deflate => Box::new(flate2::bufread::DeflateDecoder::new(block)),
            CompressionCodec::ZStandard => reader(FileCompressionType::ZSTD, block)?,
            CompressionCodec::Bzip2 => reader(FileCompressionType::BZIP2, block)?,
            CompressionCodec::Xz => reader(FileCompressionType::XZ, block)?,
        };
        let mut decoded = Vec::new();
        let read = damaged_files::read(&self.name, || {
            Ok(input.take(DECODED_BYTES_MAX + 1).read_to_end(&mut decoded)?)
        });
        let read = read.map_err(|error| damaged_files::error(&self.name, error.strip_backtrace()))?;
        if read as u64 > DECODED_BYTES_MAX {
            return Err(too_large().into_datafusion());
        }
        Ok(Some(decoded))
    }

    /// Buffers at least `bytes` bytes, or up to the end of the file.
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

/// Whether a type contains records without fields.
fn has_empty_record(kind: &DataType) -> bool {
    match kind {
        DataType::Struct(fields) => {
            fields.is_empty() || fields.iter().any(|field| has_empty_record(field.data_type()))
        }
        DataType::List(item) | DataType::Map(item, _) => has_empty_record(item.data_type()),
        DataType::Union(variants, _) => variants.iter().any(|(_, field)| has_empty_record(field.data_type())),
        _ => false,
    }
}

fn reader(compression: FileCompressionType, block: &[u8]) -> Result<Box<dyn Read + Send>> {
    compression.convert_read(Cursor::new(block.to_vec()))
}

/// The header of an uncompressed file with this schema.
fn plain_header(schema: &str, marker: &[u8; MARKER_BYTES]) -> Bytes {
    let mut header = b"Obj\x01".to_vec();
    put_number(&mut header, 1);
    for text in ["avro.schema", schema] {
        put_number(&mut header, text.len() as u64);
        header.extend_from_slice(text.as_bytes());
    }
    put_number(&mut header, 0);
    header.extend_from_slice(marker);
    header.into()
}

/// Encodes a number for [`number`].
fn put_number(bytes: &mut Vec<u8>, number: u64) {
    let mut rest = number << 1;
    while rest >= 0x80 {
        bytes.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    bytes.push(rest as u8);
}

fn foreign(error: impl std::error::Error + Send + Sync + 'static) -> DataFusionError {
    DataFusionError::External(Box::new(error))
}

/// Indexes of the scan's columns in a file; `None` if they are identical. Without any column, all are read to
/// count rows.
pub(crate) fn columns_of(read: &Schema, whole: &Schema) -> Option<Vec<usize>> {
    if read.fields().is_empty() {
        return None;
    }
    let places =
        read.fields().iter().filter_map(|field| whole.index_of(field.name()).ok()).collect::<Vec<_>>();
    (!places.iter().copied().eq(0..whole.fields().len()) && !places.is_empty()).then_some(places)
}

/// Decodes an Avro varint and its length; `None` if truncated or too long.
fn number(bytes: &[u8]) -> Option<(i64, usize)> {
    let mut value = 0u64;
    for (at, byte) in bytes.iter().take(NUMBER_BYTES_MAX).enumerate() {
        value |= u64::from(byte & 0x7f).checked_shl(at as u32 * 7)?;
        if byte & 0x80 == 0 {
            return Some((((value >> 1) as i64) ^ -((value & 1) as i64), at + 1));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::AsArray;
    use datafusion::arrow::datatypes::{DataType, Field, Int32Type};

    use super::*;

    const MARKER: &[u8] = b"0123456789abcdef";

    /// A file of single-integer rows, with the given bytes after its header.
    fn file(blocks: &[&[u8]]) -> Vec<u8> {
        compressed_file("null", blocks)
    }

    fn compressed_file(codec: &str, blocks: &[&[u8]]) -> Vec<u8> {
        let schema = br#"{"type":"record","name":"r","fields":[{"name":"a","type":"int"}]}"#;
        let mut file = b"Obj\x01\x04\x16avro.schema".to_vec();
        file.extend([((schema.len() as u8) << 1) | 0x80, (schema.len() >> 6) as u8]);
        file.extend_from_slice(schema);
        file.extend_from_slice(b"\x14avro.codec");
        put_number(&mut file, codec.len() as u64);
        file.extend_from_slice(codec.as_bytes());
        file.push(0);
        file.extend_from_slice(MARKER);
        file.extend(blocks.concat());
        file
    }

    async fn read(file: &[u8]) -> Result<Vec<i32>> {
        let pieces: Vec<Result<Bytes>> =
            file.chunks(7).map(|piece| Ok(Bytes::copy_from_slice(piece))).collect();
        let input = futures::stream::iter(pieces).boxed();
        let schema = Arc::new(Schema::new(vec![Field::new("a", DataType::Int32, true)]));
        let mut reading = BlockReader::open(input, file.len() as u64, schema, 1, "f".to_string()).await?;
        let mut values = Vec::new();
        while let Some(batch) = reading.next().await? {
            assert_eq!(batch.num_rows(), 1);
            values.push(batch.column(0).as_primitive::<Int32Type>().value(0));
        }
        Ok(values)
    }

    #[tokio::test]
    async fn malformed_blocks_are_refused() {
        let block = b"\x04\x04\x0e\x10".as_slice();
        assert_eq!(read(&file(&[block, MARKER, block, MARKER])).await.unwrap(), [7, 8, 7, 8]);
        assert_eq!(read(&file(&[])).await.unwrap(), [0; 0]);
        for (what, blocks) in [
            ("cut in a block", vec![block, MARKER, &block[..3]]),
            ("cut in a number", vec![block, MARKER, b"\x84"]),
            ("cut in a marker", vec![block, &MARKER[..7]]),
            ("another marker", vec![block, b"XXXXXXXXXXXXXXXX", block, MARKER]),
            ("rows without bytes", vec![b"\x06\x00", MARKER]),
            ("too few rows", vec![b"\x06\x04\x0e\x10", MARKER]),
            ("bytes without rows", vec![b"\x00\x02\x0e", MARKER]),
            ("less than no rows", vec![b"\x03\x04\x0e\x10", MARKER]),
            ("more bytes than there are", vec![b"\x04\xfe\xff\xff\xff\x0f\x0e\x10", MARKER]),
            ("a number without end", vec![b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x02", MARKER]),
        ] {
            let error = read(&file(&blocks)).await.unwrap_err();
            assert_eq!(harrier_sqlstate::of(&error), SqlState::DATA_CORRUPTED, "{what}: {error}");
        }
        for length in [0, 3, 20, 100] {
            let error = read(&file(&[])[..length]).await.unwrap_err();
            assert_eq!(harrier_sqlstate::of(&error), SqlState::DATA_CORRUPTED, "{length}: {error}");
        }
    }

    #[tokio::test]
    async fn decompressed_blocks_are_bounded() {
        let deflated = |bytes: &[u8]| {
            let mut input = flate2::bufread::DeflateEncoder::new(bytes, flate2::Compression::fast());
            let mut block = Vec::new();
            input.read_to_end(&mut block).unwrap();
            let mut numbers = b"\x04".to_vec();
            put_number(&mut numbers, block.len() as u64);
            compressed_file("deflate", &[&numbers, &block, MARKER])
        };
        assert_eq!(read(&deflated(b"\x0e\x10")).await.unwrap(), [7, 8]);
        for (what, file, state) in [
            ("rows left over", deflated(b"\x0e"), SqlState::DATA_CORRUPTED),
            ("cut", compressed_file("deflate", &[b"\x04\x02\x00", MARKER]), SqlState::DATA_CORRUPTED),
            (
                "too large",
                deflated(&vec![0; DECODED_BYTES_MAX as usize + 1]),
                SqlState::PROGRAM_LIMIT_EXCEEDED,
            ),
            (
                "too large for Snappy",
                compressed_file("snappy", &[b"\x04\x0c\xff\xff\xff\xff\x0f\x00", MARKER]),
                SqlState::PROGRAM_LIMIT_EXCEEDED,
            ),
        ] {
            let error = read(&file).await.unwrap_err();
            assert_eq!(harrier_sqlstate::of(&error), state, "{what}: {error}");
        }
    }
}
