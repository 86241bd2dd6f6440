//! Avro files, for tables of files and for COPY.
//!
//! Files are object container files. Their columns, and what is in nested ones, are unions with null. Avro has no integers of 8 and 16
//! bits and none without a sign: these are written as what holds them.

use std::sync::Arc;

use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow_avro::compression::CompressionCodec;
use datafusion::catalog::Session;
use datafusion::common::Result;
use datafusion::datasource::file_format::FileFormat;
use datafusion::datasource::file_format::avro::AvroFormat as AvroFiles;
use datafusion::datasource::physical_plan::{FileSinkConfig, FileSource};
use datafusion::datasource::sink::DataSink;
use datafusion::datasource::table_schema::TableSchema;
use datafusion::object_store::{ObjectMeta, ObjectStore};
use futures::future::BoxFuture;

mod blocks;
mod encode;

use crate::encoded::{self, Encoding};
use crate::file_formats::{Files, FilesFactory, FilesSource, OwnFormat};
use crate::sqlstate::{CodedError, SqlState};
pub(crate) use encode::{encode, written_schema};

pub use blocks::Blocks;
pub(crate) use blocks::columns_of;

/// Reads Avro, and writes it.
pub type AvroFormat = Files<Codec>;
/// Makes [`AvroFormat`]s of options.
pub type AvroFormatFactory = FilesFactory<Codec>;
/// A scan of Avro files.
pub type AvroSource = FilesSource<Blocks>;

/// How the blocks of a file are compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Codec {
    None,
    /// What every reader has beside none.
    #[default]
    Deflate,
    Snappy,
    Zstd,
    Bzip2,
    Xz,
}

impl Codec {
    /// Its name, as [`Codec::of`] knows it.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "null",
            Self::Deflate => "deflate",
            Self::Snappy => "snappy",
            Self::Zstd => "zstandard",
            Self::Bzip2 => "bzip2",
            Self::Xz => "xz",
        }
    }

    /// Errors: there is none of this name (22023).
    pub fn of(name: &str) -> Result<Self> {
        Ok(match name.to_ascii_lowercase().as_str() {
            "null" | "none" | "uncompressed" | "" => Self::None,
            "deflate" | "zlib" | "gzip" | "gz" => Self::Deflate,
            "snappy" => Self::Snappy,
            "zstandard" | "zstd" | "zst" => Self::Zstd,
            "bzip2" | "bz2" => Self::Bzip2,
            "xz" => Self::Xz,
            other => {
                let message = format!("Avro is not compressed by \"{other}\"");
                return Err(CodedError::new(SqlState::INVALID_PARAMETER_VALUE, message)
                    .with_hint("null, deflate, snappy, zstandard, bzip2 or xz")
                    .into());
            }
        })
    }

    /// As the library names it.
    fn codec(self) -> Option<CompressionCodec> {
        match self {
            Self::None => None,
            Self::Deflate => Some(CompressionCodec::Deflate),
            Self::Snappy => Some(CompressionCodec::Snappy),
            Self::Zstd => Some(CompressionCodec::ZStandard),
            Self::Bzip2 => Some(CompressionCodec::Bzip2),
            Self::Xz => Some(CompressionCodec::Xz),
        }
    }
}

impl OwnFormat for Codec {
    const NAME: &'static str = "Avro";
    const EXTENSION: &'static str = "avro";

    fn set(&mut self, name: &str, value: &str) -> Result<bool> {
        match name {
            "compression" => *self = Self::of(value)?,
            // The planner of COPY reads it.
            "execution.keep_partition_by_columns" => {}
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn infer_schema<'a>(
        &'a self,
        state: &'a dyn Session,
        store: &'a Arc<dyn ObjectStore>,
        objects: &'a [ObjectMeta],
    ) -> BoxFuture<'a, Result<SchemaRef>> {
        AvroFiles.infer_schema(state, store, objects)
    }

    fn source(&self, table_schema: TableSchema) -> Arc<dyn FileSource> {
        Arc::new(AvroSource::new(table_schema, Blocks))
    }

    fn sink(&self, config: FileSinkConfig) -> Result<Arc<dyn DataSink>> {
        encoded::sink(config, Encoding::Avro(*self))
    }
}
