//! File writer: header, stripes, footer and postscript.

use std::io::Write;

use arrow::datatypes::{DataType, SchemaRef};
use arrow::record_batch::RecordBatch;
use prost::Message;

use crate::chunks::{CHUNK_BYTES, Codec, PackedStream, Packer, Stream};
use crate::column::{Column, FinishedColumn};
use crate::error::{Error, Result};
use crate::proto::{
    self, Footer, Metadata, PostScript, RowIndex, RowIndexEntry, StreamKind, StripeFooter, StripeInformation,
    StripeStatistics,
};
use crate::types;

const MAGIC: &str = "ORC";
/// The format version: Hive 0.12, which every reader since understands.
const VERSION: [u32; 2] = [0, 12];
/// The number of early writers' bugs that this file does not have: all numbered ones.
const WRITER_VERSION: u32 = 9;
/// The stripe's size is checked after this many rows.
const PIECE_ROWS: usize = 1024;

/// Options of a file.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    pub codec: Codec,
    /// Uncompressed bytes of a stripe, index included, after which it is written; 64 MiB by default.
    pub stripe_bytes: usize,
    /// Rows of a row group, one or more; 10 000 by default.
    pub group_rows: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self { codec: Codec::default(), stripe_bytes: 64 << 20, group_rows: 10_000 }
    }
}

/// Writes one file. Blocks when its output does; dropping it writes nothing.
pub struct Writer<W> {
    output: W,
    schema: SchemaRef,
    options: Options,
    packer: Packer,
    root: Column,
    types: Vec<proto::Type>,
    /// Bytes written.
    offset: u64,
    rows_in_group: usize,
    rows_in_stripe: u64,
    rows: u64,
    stripes: Vec<StripeInformation>,
    stripe_statistics: Vec<StripeStatistics>,
}

impl<W: Write> Writer<W> {
    /// Errors: a column has a type that cannot be written; errors of the output.
    pub fn new(output: W, schema: SchemaRef, options: Options) -> Result<Self> {
        let options = Options { group_rows: options.group_rows.max(1), ..options };
        let (root, types) = types::columns(&schema)?;
        let mut writer = Self {
            output,
            schema,
            packer: Packer::new(options.codec)?,
            options,
            root,
            types,
            offset: 0,
            rows_in_group: 0,
            rows_in_stripe: 0,
            rows: 0,
            stripes: Vec::new(),
            stripe_statistics: Vec::new(),
        };
        writer.append(MAGIC.as_bytes())?;
        Ok(writer)
    }

    /// Writes rows whose column types match the file's; names are ignored.
    ///
    /// Errors: the batch has other columns; a value cannot be written; errors of the output.
    pub fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        let types = |schema: &SchemaRef| -> Vec<DataType> {
            schema.fields().iter().map(|field| field.data_type().clone()).collect()
        };
        let found = batch.schema();
        if !std::sync::Arc::ptr_eq(&found, &self.schema) && types(&found) != types(&self.schema) {
            return Err(Error::Schema {
                expected: DataType::Struct(self.schema.fields().clone()),
                found: DataType::Struct(found.fields().clone()),
            });
        }
        let mut at = 0;
        while at < batch.num_rows() {
            let rows =
                (batch.num_rows() - at).min(PIECE_ROWS).min(self.options.group_rows - self.rows_in_group);
            if self.rows_in_group == 0 {
                self.root.begin_group();
            }
            let piece = batch.slice(at, rows);
            self.root.write_rows(piece.columns(), rows)?;
            at += rows;
            self.rows_in_group += rows;
            self.rows_in_stripe += rows as u64;
            if self.rows_in_group == self.options.group_rows {
                self.root.end_group();
                self.rows_in_group = 0;
            }
            if self.root.size() >= self.options.stripe_bytes {
                self.end_stripe()?;
            }
        }
        Ok(())
    }

    /// Writes the last stripe and the footer; returns the flushed output.
    pub fn finish(mut self) -> Result<W> {
        if self.rows_in_stripe > 0 {
            self.end_stripe()?;
        }
        let content_length = self.offset;
        let metadata = Metadata { stripe_stats: std::mem::take(&mut self.stripe_statistics) };
        let metadata_length = self.append_message(&metadata)?;
        let mut statistics = Vec::new();
        self.root.statistics(&mut statistics);
        let footer = Footer {
            header_length: Some(MAGIC.len() as u64),
            content_length: Some(content_length),
            stripes: std::mem::take(&mut self.stripes),
            types: std::mem::take(&mut self.types),
            number_of_rows: Some(self.rows),
            statistics,
            row_index_stride: Some(self.options.group_rows as u32),
            calendar: Some(proto::PROLEPTIC_GREGORIAN),
            software_version: Some(concat!("harrier ", env!("CARGO_PKG_VERSION")).to_string()),
        };
        let footer_length = self.append_message(&footer)?;
        let postscript = PostScript {
            footer_length: Some(footer_length),
            compression: Some(self.options.codec.number()),
            compression_block_size: (self.options.codec != Codec::None).then_some(CHUNK_BYTES as u64),
            version: VERSION.to_vec(),
            metadata_length: Some(metadata_length),
            writer_version: Some(WRITER_VERSION),
            magic: Some(MAGIC.to_string()),
        }
        .encode_to_vec();
        self.append(&postscript)?;
        self.append(&[postscript.len() as u8])?;
        self.output.flush()?;
        Ok(self.output)
    }

    fn end_stripe(&mut self) -> Result<()> {
        if self.rows_in_group > 0 {
            self.root.end_group();
            self.rows_in_group = 0;
        }
        let mut columns = Vec::new();
        self.root.finish(&mut columns);
        let (mut indexes, mut data) = (Vec::new(), Vec::new());
        let mut footer = StripeFooter { writer_timezone: Some("UTC".to_string()), ..Default::default() };
        let mut statistics = StripeStatistics::default();
        for FinishedColumn { id, encoding, streams, groups, statistics: of_stripe } in columns {
            let mut packed: Vec<(StreamKind, PackedStream)> = Vec::new();
            for (kind, stream) in streams {
                packed.push((kind, self.packer.pack(stream)?));
            }
            let mut index = RowIndex::default();
            for (marks, statistics) in groups {
                let mut positions = Vec::new();
                for (kind, mark) in marks {
                    if let Some((_, stream)) = packed.iter().find(|(of, _)| *of == kind) {
                        stream.position(mark, &mut positions);
                    }
                }
                index.entry.push(RowIndexEntry { positions, statistics: Some(statistics) });
            }
            let index = self.pack_message(&index)?;
            footer.streams.push(stream(StreamKind::RowIndex, id, index.len));
            indexes.push(index);
            data.extend(packed.into_iter().map(|(kind, packed)| (kind, id, packed)));
            footer.columns.push(encoding);
            statistics.col_stats.push(of_stripe);
        }
        let offset = self.offset;
        for index in indexes {
            self.append_packed(index)?;
        }
        let index_length = self.offset - offset;
        for (kind, id, packed) in data {
            footer.streams.push(stream(kind, id, packed.len));
            self.append_packed(packed)?;
        }
        let data_length = self.offset - offset - index_length;
        let footer_length = self.append_message(&footer)?;
        self.stripes.push(StripeInformation {
            offset: Some(offset),
            index_length: Some(index_length),
            data_length: Some(data_length),
            footer_length: Some(footer_length),
            number_of_rows: Some(self.rows_in_stripe),
        });
        self.stripe_statistics.push(statistics);
        self.rows += std::mem::take(&mut self.rows_in_stripe);
        Ok(())
    }

    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.output.write_all(bytes)?;
        self.offset += bytes.len() as u64;
        Ok(())
    }

    fn append_packed(&mut self, packed: PackedStream) -> Result<()> {
        packed.pieces.iter().try_for_each(|piece| self.append(piece))
    }

    fn pack_message(&mut self, message: &impl Message) -> Result<PackedStream> {
        let mut bytes = Stream::default();
        bytes.extend(&message.encode_to_vec());
        Ok(self.packer.pack(bytes)?)
    }

    /// Appends a message; returns its length in bytes.
    fn append_message(&mut self, message: &impl Message) -> Result<u64> {
        let packed = self.pack_message(message)?;
        let length = packed.len;
        self.append_packed(packed)?;
        Ok(length)
    }
}

fn stream(kind: StreamKind, column: u32, length: u64) -> proto::Stream {
    proto::Stream { kind: Some(kind.into()), column: Some(column), length: Some(length) }
}
