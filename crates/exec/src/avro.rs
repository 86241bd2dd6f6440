//! Avro files: what DataFusion reads, and writing them, for tables of files and for COPY.
//!
//! Files are object container files. Their columns, and what is in nested ones, are unions with null. Avro has no integers of 8 and 16
//! bits and none without a sign: these are written as what holds them.

use std::collections::HashMap;
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow_avro::compression::CompressionCodec;
use datafusion::catalog::Session;
use datafusion::common::{GetExt, Result, Statistics};
use datafusion::datasource::file_format::avro::AvroFormat as AvroFiles;
use datafusion::datasource::file_format::file_compression_type::FileCompressionType;
use datafusion::datasource::file_format::{FileFormat, FileFormatFactory};
use datafusion::datasource::physical_plan::{FileScanConfig, FileSinkConfig, FileSource};
use datafusion::datasource::sink::DataSinkExec;
use datafusion::datasource::table_schema::TableSchema;
use datafusion::object_store::{ObjectMeta, ObjectStore};
use datafusion::physical_expr::LexRequirement;
use datafusion::physical_plan::ExecutionPlan;

mod encode;

use crate::encoded::{EncodedSink, Encoding};
use crate::sqlstate::{CodedError, SqlState};
pub(crate) use encode::{encode, written_schema};

const EXTENSION: &str = "avro";

/// Makes [`AvroFormat`]s of options.
#[derive(Debug, Default)]
pub struct AvroFormatFactory;

impl FileFormatFactory for AvroFormatFactory {
    fn create(&self, _: &dyn Session, options: &HashMap<String, String>) -> Result<Arc<dyn FileFormat>> {
        let mut format = AvroFormat::default();
        for (name, value) in options {
            match name.strip_prefix("format.").unwrap_or(name) {
                "compression" => format.compression = Codec::of(value)?,
                // The planner of COPY reads it.
                "execution.keep_partition_by_columns" => {}
                other => {
                    let message = format!("Avro has no option \"{other}\"");
                    return Err(CodedError::new(SqlState::INVALID_PARAMETER_VALUE, message).into());
                }
            }
        }
        Ok(Arc::new(format))
    }

    fn default(&self) -> Arc<dyn FileFormat> {
        Arc::new(AvroFormat::default())
    }
}

impl GetExt for AvroFormatFactory {
    fn get_ext(&self) -> String {
        EXTENSION.to_string()
    }
}

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

/// Reads Avro as DataFusion does, and writes it.
#[derive(Debug, Default)]
pub struct AvroFormat {
    compression: Codec,
    files: AvroFiles,
}

impl AvroFormat {
    /// How what it writes is compressed.
    pub fn compression(&self) -> Codec {
        self.compression
    }
}

#[async_trait]
impl FileFormat for AvroFormat {
    fn get_ext(&self) -> String {
        EXTENSION.to_string()
    }

    fn get_ext_with_compression(&self, _: &FileCompressionType) -> Result<String> {
        Ok(EXTENSION.to_string())
    }

    fn compression_type(&self) -> Option<FileCompressionType> {
        None
    }

    async fn infer_schema(
        &self,
        state: &dyn Session,
        store: &Arc<dyn ObjectStore>,
        objects: &[ObjectMeta],
    ) -> Result<SchemaRef> {
        self.files.infer_schema(state, store, objects).await
    }

    async fn infer_stats(
        &self,
        state: &dyn Session,
        store: &Arc<dyn ObjectStore>,
        table_schema: SchemaRef,
        object: &ObjectMeta,
    ) -> Result<Statistics> {
        self.files.infer_stats(state, store, table_schema, object).await
    }

    async fn create_physical_plan(
        &self,
        state: &dyn Session,
        conf: FileScanConfig,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        self.files.create_physical_plan(state, conf).await
    }

    async fn create_writer_physical_plan(
        &self,
        input: Arc<dyn ExecutionPlan>,
        _: &dyn Session,
        conf: FileSinkConfig,
        order: Option<LexRequirement>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let sink = Arc::new(EncodedSink::try_new(conf, Encoding::Avro(self.compression))?);
        Ok(Arc::new(DataSinkExec::new(input, sink, order)))
    }

    fn file_source(&self, table_schema: TableSchema) -> Arc<dyn FileSource> {
        self.files.file_source(table_schema)
    }
}
