//! ORC format, for external tables and COPY.
//!
//! Columns are matched by name, or by position in files of old Hive versions, which name them `_col0`,
//! `_col1`, …. Timestamps have microseconds. A scan is split between stripes.
//!
//! Files are read by a library, and written by the crate `orc` (docs/decisions/0034-own-orc-writer.md).

use std::error::Error;
use std::io::ErrorKind;
use std::sync::Arc;

use datafusion::arrow::datatypes::{Schema, SchemaRef};
use datafusion::arrow::error::ArrowError;
use datafusion::catalog::Session;
use datafusion::common::stats::Precision;
use datafusion::common::{DataFusionError, Result, Statistics};
use datafusion::datasource::physical_plan::{FileSinkConfig, FileSource};
use datafusion::datasource::sink::DataSink;
use datafusion::datasource::table_schema::TableSchema;
use datafusion::object_store::{ObjectMeta, ObjectStore};
use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt, TryStreamExt};
use orc_rust::error::OrcError;

mod encode;
mod exact;
mod footer;
mod source;

use crate::formats::format_adapter::{Files, FilesFactory, FilesSource, OwnFormat};
use crate::formats::merged_schemas::merge;
use crate::formats::threaded_encoder;
use harrier_error::{SqlError, SqlState};
use harrier_sqlstate::IntoDataFusionError;
pub use source::Stripes;

/// The ORC format.
pub type OrcFormat = Files<Codec>;
/// Factory of [`OrcFormat`].
pub type OrcFormatFactory = FilesFactory<Codec>;
/// A scan of ORC files.
pub type OrcSource = FilesSource<Stripes>;

/// The types of a file's columns by ORC's names, in order.
///
/// Errors: the file cannot be read, or is not ORC.
pub fn column_types(mut file: std::fs::File) -> Result<Vec<String>, OrcError> {
    let metadata = orc_rust::reader::metadata::read_metadata(&mut file)?;
    Ok(metadata.root_data_type().children().iter().map(|column| name_of(column.data_type())).collect())
}

fn name_of(kind: &orc_rust::schema::DataType) -> String {
    use orc_rust::schema::DataType;
    match kind {
        DataType::List { child, .. } => format!("LIST<{}>", name_of(child)),
        DataType::Map { key, value, .. } => format!("MAP<{}, {}>", name_of(key), name_of(value)),
        DataType::Struct { children, .. } => {
            let parts = children.iter().map(|part| format!("{}: {}", part.name(), name_of(part.data_type())));
            format!("STRUCT<{}>", parts.collect::<Vec<_>>().join(", "))
        }
        kind => kind.to_string(),
    }
}

/// Compression of the streams of a file.
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
    /// Its name, as parsed by [`Codec::of`].
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Zlib => "zlib",
            Self::Snappy => "snappy",
            Self::Lz4 => "lz4",
            Self::Zstd => "zstd",
        }
    }

    /// Errors: the name is unknown (22023).
    pub fn of(name: &str) -> Result<Self> {
        Ok(match name.to_ascii_lowercase().as_str() {
            "none" | "uncompressed" | "" => Self::None,
            "zlib" | "gzip" | "gz" => Self::Zlib,
            "snappy" => Self::Snappy,
            "lz4" => Self::Lz4,
            "zstd" | "zst" => Self::Zstd,
            other => {
                let message = format!("ORC is not compressed by \"{other}\"");
                return Err(SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message)
                    .with_hint("none, zlib, snappy, lz4 or zstd")
                    .into_datafusion());
            }
        })
    }
}

impl OwnFormat for Codec {
    const NAME: &'static str = "ORC";
    const EXTENSION: &'static str = "orc";

    fn set(&mut self, name: &str, value: &str) -> Result<bool> {
        match name {
            "compression" => *self = Self::of(value)?,
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
        async move {
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
            Ok(Arc::new(merge(schemas)?))
        }
        .boxed()
    }

    fn infer_stats<'a>(
        &'a self,
        store: &'a Arc<dyn ObjectStore>,
        table_schema: SchemaRef,
        object: &'a ObjectMeta,
    ) -> BoxFuture<'a, Result<Statistics>> {
        async move {
            let reader = source::open(Arc::clone(store), object.clone()).await?;
            let rows = reader.file_metadata().number_of_rows() as usize;
            Ok(Statistics::new_unknown(&table_schema)
                .with_num_rows(Precision::Exact(rows))
                .with_total_byte_size(Precision::Inexact(object.size as usize)))
        }
        .boxed()
    }

    fn source(&self, table_schema: TableSchema) -> Arc<dyn FileSource> {
        Arc::new(OrcSource::new(table_schema, Stripes))
    }

    fn sink(&self, config: FileSinkConfig) -> Result<Arc<dyn DataSink>> {
        threaded_encoder::sink(config, *self)
    }
}

/// Maps an error of the library to its SQLSTATE.
fn explain(error: OrcError) -> DataFusionError {
    let mut cause: Option<&(dyn Error + 'static)> = Some(&error);
    while let Some(present) = cause {
        if let Some(own) = present.downcast_ref::<SqlError>() {
            return own.clone().into_datafusion();
        }
        if let Some(io) = present.downcast_ref::<std::io::Error>()
            && !matches!(
                io.kind(),
                ErrorKind::UnexpectedEof | ErrorKind::InvalidInput | ErrorKind::InvalidData
            )
        {
            // The source of an I/O error skips the error that it wraps.
            if let Some(own) = io.source().and_then(|error| error.downcast_ref::<SqlError>()) {
                return own.clone().into_datafusion();
            }
            if harrier_sqlstate::of_std(io) == Some(SqlState::SERIALIZATION_FAILURE) {
                return SqlError::new(SqlState::SERIALIZATION_FAILURE, io.to_string()).into_datafusion();
            }
            return DataFusionError::IoError(std::io::Error::new(io.kind(), io.to_string()));
        }
        cause = present.source();
    }
    let (state, message) = match &error {
        OrcError::DecodeTimestamp { .. } => {
            (SqlState::DATETIME_FIELD_OVERFLOW, "timestamp of an ORC file out of range")
        }
        OrcError::UnsupportedTypeVariant { .. } | OrcError::MismatchedSchema { .. } => {
            (SqlState::FEATURE_NOT_SUPPORTED, "a type of an ORC file is not supported")
        }
        _ => (SqlState::DATA_CORRUPTED, "invalid ORC data"),
    };
    SqlError::new(state, message).with_detail(error.to_string()).into_datafusion()
}

/// The same for an error of reading rows.
fn explain_rows(error: ArrowError) -> DataFusionError {
    match error {
        ArrowError::ExternalError(source) => match source.downcast::<OrcError>() {
            Ok(error) => explain(*error),
            Err(source) => ArrowError::ExternalError(source).into(),
        },
        error => error.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn row_errors_have_sqlstates() {
        let state = |error| harrier_sqlstate::of(&explain_rows(ArrowError::ExternalError(Box::new(error))));
        let time = |nanoseconds: u64| {
            let to_time_unit = datafusion::arrow::datatypes::TimeUnit::Microsecond;
            orc_rust::error::DecodeTimestampSnafu { seconds: 1_i64, nanoseconds, to_time_unit }.build()
        };
        assert_eq!(state(time(1000)), SqlState::DATETIME_FIELD_OVERFLOW);
        let other = orc_rust::error::OutOfSpecSnafu { msg: "no" }.build();
        assert_eq!(state(other), SqlState::DATA_CORRUPTED);
    }
}
