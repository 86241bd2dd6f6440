//! Encodes rows as ORC.

use std::sync::Arc;

use bytes::Bytes;
use datafusion::arrow::compute::{CastOptions, cast_with_options};
use datafusion::arrow::datatypes::{DataType, Field, SchemaRef};
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::common::{DataFusionError, Result};
use orc_rust::ArrowWriterBuilder;
use orc_rust::compression::CompressionType;
use orc_rust::error::OrcError;
use tokio::sync::mpsc::{self, Receiver};

use super::{Codec, explain};
use crate::encoded::Pieces;
use crate::sqlstate::{CodedError, SqlState};

const EXACT: CastOptions<'static> =
    CastOptions { safe: false, format_options: datafusion::arrow::util::display::FormatOptions::new() };

/// A column as the library encodes it.
pub(super) fn encoded(field: &Field) -> Result<Field> {
    let kind = match field.data_type() {
        DataType::Utf8View | DataType::Utf8 => DataType::Utf8,
        DataType::BinaryView | DataType::Binary | DataType::FixedSizeBinary(_) => DataType::Binary,
        DataType::LargeUtf8 => DataType::LargeUtf8,
        DataType::LargeBinary => DataType::LargeBinary,
        DataType::UInt8 => DataType::Int16,
        DataType::UInt16 => DataType::Int32,
        DataType::UInt32 | DataType::UInt64 => DataType::Int64,
        DataType::Timestamp(unit, Some(_)) => DataType::Timestamp(*unit, Some("UTC".into())),
        DataType::Dictionary(_, value) => {
            return encoded(&field.clone().with_data_type(value.as_ref().clone()));
        }
        kind @ (DataType::Boolean
        | DataType::Int8
        | DataType::Int16
        | DataType::Int32
        | DataType::Int64
        | DataType::Float32
        | DataType::Float64
        | DataType::Date32
        | DataType::Timestamp(_, None)) => kind.clone(),
        other => {
            let message =
                format!("column \"{}\" of type {other} cannot be written to an ORC file", field.name());
            return Err(CodedError::new(SqlState::FEATURE_NOT_SUPPORTED, message)
                .with_hint("CAST it to TEXT, or decimals to DOUBLE")
                .into());
        }
    };
    Ok(Field::new(field.name(), kind, true))
}

/// Returns the number of rows.
pub(crate) fn encode(
    mut batches: Receiver<RecordBatch>,
    output: mpsc::Sender<Bytes>,
    schema: &SchemaRef,
    compression: Codec,
) -> Result<u64> {
    let mut builder = ArrowWriterBuilder::new(Pieces(output), Arc::clone(schema));
    let compression = match compression {
        Codec::None => None,
        Codec::Zlib => Some(CompressionType::Zlib),
        Codec::Snappy => Some(CompressionType::Snappy),
        Codec::Lz4 => Some(CompressionType::Lz4),
        Codec::Zstd => Some(CompressionType::Zstd),
    };
    if let Some(compression) = compression {
        builder = builder.with_compression(compression);
    }
    let mut writer = builder.try_build().map_err(explain)?;
    let mut rows = 0;
    while let Some(batch) = batches.blocking_recv() {
        let columns = schema
            .fields()
            .iter()
            .zip(batch.columns())
            .map(|(field, column)| cast_with_options(column, field.data_type(), &EXACT))
            .collect::<Result<_, _>>()?;
        writer.write(&RecordBatch::try_new(Arc::clone(schema), columns)?).map_err(unfit)?;
        rows += batch.num_rows() as u64;
    }
    writer.close().map_err(explain)?;
    Ok(rows)
}

/// What is not about the file is about a value.
fn unfit(error: OrcError) -> DataFusionError {
    match error {
        OrcError::IoError { .. } => explain(error),
        error => {
            CodedError::new(SqlState::DATETIME_FIELD_OVERFLOW, "a value cannot be written to an ORC file")
                .with_detail(error.to_string())
                .into()
        }
    }
}
