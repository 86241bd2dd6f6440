//! ORC encoder.

use std::io::{self, BufWriter};
use std::sync::Arc;

use bytes::Bytes;
use datafusion::arrow::compute::{CastOptions, cast_with_options};
use datafusion::arrow::datatypes::{Field, Schema, SchemaRef};
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::common::{DataFusionError, Result, internal_datafusion_err};
use harrier_orc::{Error, Options, Writer};
use tokio::sync::mpsc::{self, Receiver};

use super::Codec;
use crate::formats::threaded_encoder::{Encoding, Pieces};
use harrier_error::{SqlError, SqlState};
use harrier_sqlstate::IntoDataFusionError;

/// Bytes per write to the output.
const BUFFER_BYTES: usize = 256 << 10;

const EXACT: CastOptions<'static> =
    CastOptions { safe: false, format_options: datafusion::arrow::util::display::FormatOptions::new() };

impl Encoding for Codec {
    const SINK: &'static str = "OrcSink";

    fn codec_name(self) -> &'static str {
        self.name()
    }

    fn written_schema(self, schema: &Schema) -> Result<SchemaRef> {
        written_schema(schema)
    }

    fn encode(
        self,
        batches: Receiver<RecordBatch>,
        output: mpsc::Sender<Bytes>,
        schema: &SchemaRef,
    ) -> Result<u64> {
        encode(batches, output, schema, self)
    }
}

/// The schema as it is written.
///
/// Errors: a type is not supported by the format (0A000).
fn written_schema(schema: &Schema) -> Result<SchemaRef> {
    harrier_orc::check(schema).map_err(explain)?;
    let fields =
        schema.fields().iter().map(|field| Field::new(field.name(), field.data_type().clone(), true));
    Ok(Arc::new(Schema::new(fields.collect::<Vec<_>>())))
}

/// Returns the number of rows. Memory bound: a stripe and a batch.
///
/// Errors: a value is out of the format's range (22003, 22008); the receiver of the bytes is gone.
fn encode(
    mut batches: Receiver<RecordBatch>,
    output: mpsc::Sender<Bytes>,
    schema: &SchemaRef,
    compression: Codec,
) -> Result<u64> {
    let codec = match compression {
        Codec::None => harrier_orc::Codec::None,
        Codec::Zlib => harrier_orc::Codec::Zlib,
        Codec::Snappy => harrier_orc::Codec::Snappy,
        Codec::Lz4 => harrier_orc::Codec::Lz4,
        Codec::Zstd => harrier_orc::Codec::Zstd,
    };
    let output = BufWriter::with_capacity(BUFFER_BYTES, Pieces(output));
    let options = Options { codec, ..Options::default() };
    let mut writer = Writer::new(output, Arc::clone(schema), options).map_err(explain)?;
    let mut rows = 0;
    while let Some(batch) = batches.blocking_recv() {
        let columns = schema
            .fields()
            .iter()
            .zip(batch.columns())
            .map(|(field, column)| cast_with_options(column, field.data_type(), &EXACT))
            .collect::<Result<_, _>>()?;
        writer.write(&RecordBatch::try_new(Arc::clone(schema), columns)?).map_err(explain)?;
        rows += batch.num_rows() as u64;
    }
    writer.finish().map_err(explain)?;
    Ok(rows)
}

fn explain(error: Error) -> DataFusionError {
    let message = error.to_string();
    match error {
        Error::Type { .. } => SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message)
            .with_hint("CAST it to TEXT")
            .into_datafusion(),
        Error::Number { .. } => SqlError::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, message)
            .with_detail("the largest integer of an ORC file is 9223372036854775807")
            .into_datafusion(),
        Error::Time { .. } => SqlError::new(SqlState::DATETIME_FIELD_OVERFLOW, message)
            .with_detail("the format has no fractions of the last second before 1970-01-01 in UTC")
            .into_datafusion(),
        Error::Arrow(error) => error.into(),
        Error::Io(error) => DataFusionError::IoError(io::Error::new(error.kind(), error)),
        other => internal_datafusion_err!("{other}"),
    }
}
