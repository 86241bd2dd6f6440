//! ORC files: a format beside those that DataFusion has, for tables of files and for COPY.
//!
//! Columns are found by their names, or by their places in files of old versions of Hive, which name them `_col0`, `_col1`, ….
//! Timestamps have microseconds. A scan is cut between stripes.
//!
//! What is written has no decimal and no nested columns: the library does not encode them (0A000).

use std::collections::HashMap;
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::datatypes::{Schema, SchemaRef};
use datafusion::catalog::Session;
use datafusion::common::stats::Precision;
use datafusion::common::{DataFusionError, GetExt, Result, Statistics};
use datafusion::datasource::file_format::file_compression_type::FileCompressionType;
use datafusion::datasource::file_format::{FileFormat, FileFormatFactory};
use datafusion::datasource::physical_plan::{FileScanConfig, FileSinkConfig, FileSource};
use datafusion::datasource::sink::DataSinkExec;
use datafusion::datasource::source::DataSourceExec;
use datafusion::datasource::table_schema::TableSchema;
use datafusion::object_store::{ObjectMeta, ObjectStore};
use datafusion::physical_expr::LexRequirement;
use datafusion::physical_plan::ExecutionPlan;
use futures::{StreamExt, TryStreamExt};
use orc_rust::error::OrcError;

mod encode;
mod source;

use crate::encoded::{EncodedSink, Encoding};
use crate::sqlstate::{CodedError, SqlState};
pub(crate) use encode::encode;
pub use source::OrcSource;

const EXTENSION: &str = "orc";

/// Makes [`OrcFormat`]s of options.
#[derive(Debug, Default)]
pub struct OrcFormatFactory;

impl FileFormatFactory for OrcFormatFactory {
    fn create(&self, _: &dyn Session, options: &HashMap<String, String>) -> Result<Arc<dyn FileFormat>> {
        let mut format = OrcFormat::default();
        for (name, value) in options {
            match name.strip_prefix("format.").unwrap_or(name) {
                "compression" => format.compression = Codec::of(value)?,
                other => {
                    let message = format!("ORC has no option \"{other}\"");
                    return Err(CodedError::new(SqlState::INVALID_PARAMETER_VALUE, message).into());
                }
            }
        }
        Ok(Arc::new(format))
    }

    fn default(&self) -> Arc<dyn FileFormat> {
        Arc::new(OrcFormat::default())
    }
}

impl GetExt for OrcFormatFactory {
    fn get_ext(&self) -> String {
        EXTENSION.to_string()
    }
}

/// How the streams of a file are compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Codec {
    None,
    Zlib,
    Snappy,
    Lz4,
    #[default]
    Zstd,
}

impl Codec {
    /// Its name, as [`Codec::of`] knows it.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Zlib => "zlib",
            Self::Snappy => "snappy",
            Self::Lz4 => "lz4",
            Self::Zstd => "zstd",
        }
    }

    /// Errors: there is none of this name (22023).
    pub fn of(name: &str) -> Result<Self> {
        Ok(match name.to_ascii_lowercase().as_str() {
            "none" | "uncompressed" | "" => Self::None,
            "zlib" | "gzip" | "gz" => Self::Zlib,
            "snappy" => Self::Snappy,
            "lz4" => Self::Lz4,
            "zstd" | "zst" => Self::Zstd,
            other => {
                let message = format!("ORC is not compressed by \"{other}\"");
                return Err(CodedError::new(SqlState::INVALID_PARAMETER_VALUE, message)
                    .with_hint("none, zlib, snappy, lz4 or zstd")
                    .into());
            }
        })
    }
}

/// Reads and writes ORC.
#[derive(Debug, Clone, Default)]
pub struct OrcFormat {
    compression: Codec,
}

impl OrcFormat {
    /// How what it writes is compressed.
    pub fn compression(&self) -> Codec {
        self.compression
    }
}

/// The columns of a file as they are written.
///
/// Errors: one has a type that cannot be (0A000).
pub(crate) fn written_schema(schema: &Schema) -> Result<SchemaRef> {
    let fields = schema.fields().iter().map(|field| encode::encoded(field)).collect::<Result<Vec<_>>>()?;
    Ok(Arc::new(Schema::new(fields)))
}

#[async_trait]
impl FileFormat for OrcFormat {
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
        let concurrency = state.config_options().execution.meta_fetch_concurrency.into();
        let schemas: Vec<Schema> = futures::stream::iter(objects.to_vec())
            .map(|object| async move {
                let reader = source::open(Arc::clone(store), object).await?;
                let schema = reader.schema();
                Ok::<_, DataFusionError>(Schema::new(schema.fields().clone()))
            })
            .buffered(concurrency)
            .try_collect()
            .await?;
        Ok(Arc::new(Schema::try_merge(schemas)?))
    }

    async fn infer_stats(
        &self,
        _: &dyn Session,
        store: &Arc<dyn ObjectStore>,
        table_schema: SchemaRef,
        object: &ObjectMeta,
    ) -> Result<Statistics> {
        let reader = source::open(Arc::clone(store), object.clone()).await?;
        let rows = reader.file_metadata().number_of_rows() as usize;
        Ok(Statistics::new_unknown(&table_schema)
            .with_num_rows(Precision::Exact(rows))
            .with_total_byte_size(Precision::Inexact(object.size as usize)))
    }

    async fn create_physical_plan(
        &self,
        _: &dyn Session,
        conf: FileScanConfig,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(DataSourceExec::from_data_source(conf))
    }

    async fn create_writer_physical_plan(
        &self,
        input: Arc<dyn ExecutionPlan>,
        _: &dyn Session,
        conf: FileSinkConfig,
        order: Option<LexRequirement>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let sink = Arc::new(EncodedSink::try_new(conf, Encoding::Orc(self.compression))?);
        Ok(Arc::new(DataSinkExec::new(input, sink, order)))
    }

    fn file_source(&self, table_schema: TableSchema) -> Arc<dyn FileSource> {
        Arc::new(OrcSource::new(table_schema))
    }
}

/// An error of the library with its SQLSTATE.
fn explain(error: OrcError) -> DataFusionError {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(&error);
    while let Some(present) = cause {
        if let Some(io) = present.downcast_ref::<std::io::Error>()
            && io.kind() != std::io::ErrorKind::UnexpectedEof
        {
            return DataFusionError::IoError(std::io::Error::new(io.kind(), io.to_string()));
        }
        cause = present.source();
    }
    CodedError::new(SqlState::DATA_CORRUPTED, "invalid ORC data").with_detail(error.to_string()).into()
}
