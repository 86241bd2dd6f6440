//! Avro format, for external tables and COPY.
//!
//! Files are object container files. All columns, also nested ones, are unions with null. Avro has no 8-bit,
//! 16-bit or unsigned integers: these are written as a wider type.

use std::sync::Arc;

use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow_avro::compression::CompressionCodec;
use datafusion::arrow_avro::reader::read_header_info;
use datafusion::catalog::Session;
use datafusion::common::Result;
use datafusion::datasource::file_format::FileFormat;
use datafusion::datasource::file_format::avro::AvroFormat as AvroFiles;
use datafusion::datasource::physical_plan::{FileSinkConfig, FileSource};
use datafusion::datasource::sink::DataSink;
use datafusion::datasource::table_schema::TableSchema;
use datafusion::object_store::{ObjectMeta, ObjectStore, ObjectStoreExt};
use futures::FutureExt;
use futures::future::BoxFuture;
use serde_json::Value;

mod blocks;
mod encode;

use crate::formats::damaged_files;
use crate::formats::format_adapter::{Files, FilesFactory, FilesSource, OwnFormat};
use crate::formats::threaded_encoder;
use harrier_error::{SqlError, SqlState};
use harrier_sqlstate::IntoDataFusionError;

pub use blocks::Blocks;
pub(crate) use blocks::columns_of;

/// Bytes of a file searched for invalid types.
const HEADER_BYTES: u64 = 1 << 20;

/// The Avro format.
pub type AvroFormat = Files<Codec>;
/// Factory of [`AvroFormat`].
pub type AvroFormatFactory = FilesFactory<Codec>;
/// A scan of Avro files.
pub type AvroSource = FilesSource<Blocks>;

/// Compression of blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Codec {
    None,
    /// Supported by every reader.
    #[default]
    Deflate,
    Snappy,
    Zstd,
    Bzip2,
    Xz,
}

impl Codec {
    /// Its name, as parsed by [`Codec::of`].
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

    /// Errors: the name is unknown (22023).
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
                return Err(SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message)
                    .with_hint("null, deflate, snappy, zstandard, bzip2 or xz")
                    .into_datafusion());
            }
        })
    }

    /// The library's codec.
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
            // Read by the planner of COPY.
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
        async move {
            match AvroFiles.infer_schema(state, store, objects).await {
                Ok(schema) => Ok(schema),
                // The library reports a recursive type as an undefined name, because the outer type is not
                // complete yet.
                Err(error) => match recursive_type(store, objects).await {
                    Some((file, name)) => {
                        let message = format!("Avro file \"{file}\" has a recursive type");
                        let detail = format!("Values of type \"{name}\" are in such values.");
                        Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message)
                            .with_detail(detail)
                            .into_datafusion())
                    }
                    None => Err(error),
                },
            }
        }
        .boxed()
    }

    fn source(&self, table_schema: TableSchema) -> Arc<dyn FileSource> {
        Arc::new(AvroSource::new(table_schema, Blocks))
    }

    fn sink(&self, config: FileSinkConfig) -> Result<Arc<dyn DataSink>> {
        threaded_encoder::sink(config, *self)
    }
}

/// Finds the first file with a recursive type, and the type's name.
async fn recursive_type(store: &Arc<dyn ObjectStore>, objects: &[ObjectMeta]) -> Option<(String, String)> {
    for object in objects {
        let bytes = store.get_range(&object.location, 0..object.size.min(HEADER_BYTES)).await.ok()?;
        let name = object.location.filename().unwrap_or_default().to_string();
        let schema = damaged_files::read(&name, || {
            Ok(read_header_info(&bytes[..]).ok().and_then(|header| header.writer_schema().ok()))
        });
        let schema: Value = serde_json::from_str(&schema.ok()??.json_string).ok()?;
        if let Some(kind) = within_itself(&schema, &mut vec![]) {
            return Some((name, kind));
        }
    }
    None
}

/// The name of a recursive type; `outer` has the names of enclosing types.
fn within_itself(schema: &Value, outer: &mut Vec<String>) -> Option<String> {
    let short = |name: &str| name.rsplit('.').next().unwrap_or_default().to_string();
    match schema {
        Value::String(name) => outer.contains(&short(name)).then(|| name.clone()),
        Value::Array(kinds) => kinds.iter().find_map(|kind| within_itself(kind, outer)),
        Value::Object(object) => {
            let name = object.get("name").and_then(Value::as_str).map(short);
            let is_record = object.get("type").and_then(Value::as_str) == Some("record");
            let depth = outer.len();
            outer.extend(name.filter(|_| is_record));
            let fields = object.get("fields").and_then(Value::as_array).into_iter().flatten();
            let fields = fields.filter_map(|field| field.get("type"));
            let parts = ["type", "items", "values"].into_iter().filter_map(|part| object.get(part));
            let found = fields.chain(parts).find_map(|part| within_itself(part, outer));
            outer.truncate(depth);
            found
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recursive_types_are_detected() {
        for (schema, expected) in [
            (r#"{"type":"record","name":"n","fields":[{"name":"next","type":["null","n"]}]}"#, Some("n")),
            (
                r#"{"type":"record","name":"a.r","fields":[{"name":"l","type":{"type":"array","items":"a.r"}}]}"#,
                Some("a.r"),
            ),
            (
                r#"{"type":"record","name":"r","fields":[{"name":"m","type":{"type":"record","name":"i",
                "fields":[{"name":"x","type":{"type":"map","values":"r"}}]}}]}"#,
                Some("r"),
            ),
            (
                r#"{"type":"record","name":"r","fields":[{"name":"i","type":{"type":"record","name":"i",
                "fields":[]}},{"name":"j","type":"i"}]}"#,
                None,
            ),
        ] {
            let schema = serde_json::from_str(schema).unwrap();
            assert_eq!(within_itself(&schema, &mut vec![]).as_deref(), expected, "{schema}");
        }
    }
}
