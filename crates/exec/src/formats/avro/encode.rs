//! Avro encoder.
//!
//! Memory bound: the rows of one block, in Arrow and encoded, and the batch that they come from.

use std::collections::{HashMap, HashSet};
use std::io::BufWriter;
use std::sync::Arc;

use bytes::Bytes;
use datafusion::arrow::array::{ArrayRef, RecordBatch, UInt32Array};
use datafusion::arrow::compute::{CastOptions, can_cast_types, cast_with_options, concat_batches, take};
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Fields, Schema, SchemaRef, TimeUnit};
use datafusion::arrow::error::ArrowError;
use datafusion::arrow_avro::errors::AvroError;
use datafusion::arrow_avro::schema::{AVRO_NAME_METADATA_KEY, AVRO_ROOT_RECORD_DEFAULT_NAME};
use datafusion::arrow_avro::writer::format::AvroOcfFormat;
use datafusion::arrow_avro::writer::{AvroWriter, WriterBuilder};
use datafusion::common::{DataFusionError, Result};
use tokio::sync::mpsc::{self, Receiver};

use super::Codec;
use crate::formats::threaded_encoder::{Encoding, Pieces};
use harrier_error::{SqlError, SqlState};
use harrier_sqlstate::IntoDataFusionError;

/// Rows per block, as many as batches have.
const BLOCK_ROWS: usize = 8192;
/// The size of a block before compression: long rows make shorter blocks, of one row at least.
const BLOCK_BYTES: usize = 4 << 20;
/// The library writes numbers byte by byte.
const BUFFER_BYTES: usize = 64 << 10;

const EXACT: CastOptions<'static> =
    CastOptions { safe: false, format_options: datafusion::arrow::util::display::FormatOptions::new() };

/// Names that records and other named types cannot have, as they are type names already.
const RESERVED: &[&str] = &[
    "null",
    "boolean",
    "int",
    "long",
    "float",
    "double",
    "bytes",
    "string",
    "record",
    "error",
    "enum",
    "array",
    "map",
    "fixed",
    "union",
    AVRO_ROOT_RECORD_DEFAULT_NAME,
];

impl Encoding for Codec {
    const SINK: &'static str = "AvroSink";

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

/// The schema as the library encodes it.
///
/// Errors: a type or name is not supported by Avro (0A000).
fn written_schema(schema: &Schema) -> Result<SchemaRef> {
    let mut names = Names::default();
    schema.fields().iter().for_each(|field| names.register(field));
    let mut fields = Vec::with_capacity(schema.fields().len());
    for field in schema.fields() {
        check_name(field.name(), field.name())?;
        let encoded = names.encode_field(field, field.name())?;
        if !can_cast_types(field.data_type(), encoded.data_type()) {
            return Err(unsupported_type(field.name(), field.data_type()));
        }
        fields.push(encoded);
    }
    let schema = Schema::new(fields);
    // Runs the library's own checks before there is a file.
    begin(std::io::sink(), &schema, Codec::None)
        .map_err(|error| {
            SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, "the columns cannot be written to an Avro file")
                .with_detail(error.to_string())
        })
        .map_err(harrier_sqlstate::external)?;
    Ok(Arc::new(schema))
}

/// Names in use by types: records and fixed-length bytes. By default the library names a type after its
/// column, and makes repeated names distinct.
#[derive(Default)]
struct Names(HashSet<String>);

impl Names {
    fn register(&mut self, field: &Field) {
        self.0.insert(field.name().clone());
        match field.data_type() {
            DataType::Struct(fields) => fields.iter().for_each(|field| self.register(field)),
            DataType::List(field)
            | DataType::LargeList(field)
            | DataType::FixedSizeList(field, _)
            | DataType::Map(field, _) => self.register(field),
            _ => {}
        }
    }

    /// The library's form of `field`, which is `column` or nested in it.
    fn encode_field(&mut self, field: &Field, column: &str) -> Result<Field> {
        let kind = match field.data_type() {
            // NULL columns without a declared type.
            DataType::Null | DataType::Utf8View => DataType::Utf8,
            DataType::BinaryView => DataType::Binary,
            DataType::Int8 | DataType::Int16 | DataType::UInt8 | DataType::UInt16 => DataType::Int32,
            DataType::UInt32 | DataType::UInt64 => DataType::Int64,
            DataType::Float16 => DataType::Float32,
            DataType::Date64 => DataType::Date32,
            DataType::Time32(_) => DataType::Time32(TimeUnit::Millisecond),
            DataType::Time64(_) => DataType::Time64(TimeUnit::Microsecond),
            DataType::Timestamp(unit, zone) => {
                let unit = if *unit == TimeUnit::Second { TimeUnit::Millisecond } else { *unit };
                DataType::Timestamp(unit, zone.as_ref().map(|_| "+00:00".into()))
            }
            DataType::Decimal32(precision, scale)
            | DataType::Decimal64(precision, scale)
            | DataType::Decimal128(precision, scale)
                if *scale >= 0 && *scale as u8 <= *precision =>
            {
                DataType::Decimal128(*precision, *scale)
            }
            DataType::Decimal256(precision, scale) if *scale >= 0 && *scale as u8 <= *precision => {
                DataType::Decimal256(*precision, *scale)
            }
            DataType::Dictionary(_, value) => {
                return self.encode_field(&field.clone().with_data_type(value.as_ref().clone()), column);
            }
            DataType::Struct(fields) if !fields.is_empty() => {
                for field in fields {
                    check_name(field.name(), column)?;
                }
                DataType::Struct(
                    fields
                        .iter()
                        .map(|field| self.encode_child(field, column))
                        .collect::<Result<Fields>>()?,
                )
            }
            DataType::List(item) | DataType::FixedSizeList(item, _) => {
                DataType::List(self.encode_child(item, column)?)
            }
            DataType::LargeList(item) => DataType::LargeList(self.encode_child(item, column)?),
            DataType::Map(entries, sorted) => {
                let DataType::Struct(parts) = entries.data_type() else {
                    return Err(unsupported_type(column, field.data_type()));
                };
                let [key, value] = &parts[..] else {
                    return Err(unsupported_type(column, field.data_type()));
                };
                if !key.data_type().is_string() {
                    return Err(unsupported_type(column, field.data_type()));
                }
                let key = Arc::new(Field::new("key", DataType::Utf8, false));
                let value = Arc::new(self.encode_field(&value.as_ref().clone().with_name("value"), column)?);
                let entries = Field::new("entries", DataType::Struct(Fields::from(vec![key, value])), false);
                DataType::Map(Arc::new(entries), *sorted)
            }
            kind @ (DataType::Boolean
            | DataType::Int32
            | DataType::Int64
            | DataType::Float32
            | DataType::Float64
            | DataType::Utf8
            | DataType::LargeUtf8
            | DataType::Binary
            | DataType::LargeBinary
            | DataType::FixedSizeBinary(_)
            | DataType::Date32) => kind.clone(),
            other => return Err(unsupported_type(column, other)),
        };
        let has_name = matches!(kind, DataType::Struct(_) | DataType::FixedSizeBinary(_));
        let encoded = Field::new(field.name(), kind, true);
        Ok(match has_name && RESERVED.contains(&field.name().as_str()) {
            true => {
                let name = self.unused_name(field.name());
                encoded.with_metadata(HashMap::from([(AVRO_NAME_METADATA_KEY.to_string(), name)]))
            }
            false => encoded,
        })
    }

    fn encode_child(&mut self, field: &FieldRef, column: &str) -> Result<FieldRef> {
        self.encode_field(field, column).map(Arc::new)
    }

    /// An unused name for a type that cannot be called `name`.
    fn unused_name(&mut self, name: &str) -> String {
        let mut number = 1;
        loop {
            let free = format!("{name}_{number}");
            if self.0.insert(free.clone()) {
                return free;
            }
            number += 1;
        }
    }
}

/// Errors: a column, or a nested field of `column`, has a name that Avro does not allow (0A000).
fn check_name(name: &str, column: &str) -> Result<()> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    if name.bytes().all(is_plain) && name.bytes().next().is_some_and(|first| !first.is_ascii_digit()) {
        return Ok(());
    }
    let message = match name == column {
        true => format!("a column called \"{name}\" cannot be written to an Avro file"),
        false => format!("\"{name}\" in column \"{column}\" cannot be written to an Avro file"),
    };
    Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message)
        .with_hint("Avro's names have letters from A to Z, digits and _ only: SELECT … AS another name")
        .into_datafusion())
}

fn unsupported_type(column: &str, kind: &DataType) -> DataFusionError {
    let message = format!("column \"{column}\" of type {kind} cannot be written to an Avro file");
    SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message).with_hint("CAST it to TEXT").into_datafusion()
}

fn begin<W: std::io::Write>(output: W, schema: &Schema, codec: Codec) -> Result<AvroWriter<W>, AvroError> {
    WriterBuilder::new(schema.clone()).with_compression(codec.codec()).build::<W, AvroOcfFormat>(output)
}

/// Returns the number of rows.
fn encode(
    mut batches: Receiver<RecordBatch>,
    output: mpsc::Sender<Bytes>,
    schema: &SchemaRef,
    codec: Codec,
) -> Result<u64> {
    let output = BufWriter::with_capacity(BUFFER_BYTES, Pieces(output));
    let mut writer = begin(output, schema, codec).map_err(explain)?;
    // Rows of the current block.
    let mut waiting = Vec::new();
    let mut waiting_rows = 0;
    let mut rows = 0;
    while let Some(batch) = batches.blocking_recv() {
        let count = batch.num_rows();
        rows += count as u64;
        if count == 0 {
            continue;
        }
        let columns = schema.fields().iter().zip(batch.columns());
        let columns = columns.map(|(field, column)| cast_with_options(column, field.data_type(), &EXACT));
        let columns = columns.collect::<Result<_, _>>()?;
        let batch = RecordBatch::try_new(Arc::clone(schema), columns)?;
        let row_bytes = (bytes_of(&batch) / count).max(1);
        let block_rows = (BLOCK_BYTES / row_bytes).clamp(1, BLOCK_ROWS);
        let mut at = 0;
        while at < count {
            let taken = block_rows.saturating_sub(waiting_rows).max(1).min(count - at);
            waiting.push(batch.slice(at, taken));
            waiting_rows += taken;
            at += taken;
            if waiting_rows >= block_rows {
                write_block(&mut writer, schema, &mut waiting)?;
                waiting_rows = 0;
            }
        }
    }
    if !waiting.is_empty() {
        write_block(&mut writer, schema, &mut waiting)?;
    }
    writer.finish().map_err(explain)?;
    Ok(rows)
}

fn write_block<W: std::io::Write>(
    writer: &mut AvroWriter<W>,
    schema: &SchemaRef,
    waiting: &mut Vec<RecordBatch>,
) -> Result<()> {
    let block = concat_batches(schema, waiting.iter())?;
    waiting.clear();
    let all = UInt32Array::from_iter_values(0..block.num_rows() as u32);
    let whole = |column: &ArrayRef| match column.data_type().is_nested() {
        // The library misreads the bits of booleans in sliced lists: copying them removes the slices.
        true => take(column, &all, None),
        false => Ok(Arc::clone(column)),
    };
    let columns = block.columns().iter().map(whole).collect::<Result<_, _>>()?;
    writer.write(&RecordBatch::try_new(Arc::clone(schema), columns)?).map_err(explain)
}

fn bytes_of(batch: &RecordBatch) -> usize {
    let bytes = |column: &ArrayRef| {
        let size = column.to_data().get_slice_memory_size();
        size.unwrap_or_else(|_| column.get_array_memory_size())
    };
    batch.columns().iter().map(bytes).sum()
}

fn explain(error: AvroError) -> DataFusionError {
    ArrowError::from(error).into()
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use datafusion::arrow::array::{AsArray, BooleanArray, Int64Array, ListArray, StringArray, StructArray};
    use datafusion::arrow::buffer::OffsetBuffer;
    use datafusion::arrow::datatypes::IntervalUnit;
    use datafusion::arrow_avro::reader::ReaderBuilder;

    use super::*;

    fn encode_file(batches: Vec<RecordBatch>, codec: Codec) -> Vec<u8> {
        let schema = written_schema(&batches[0].schema()).unwrap();
        let (rows, received) = mpsc::channel(batches.len());
        batches.into_iter().for_each(|batch| rows.try_send(batch).unwrap());
        drop(rows);
        let (pieces, mut encoded) = mpsc::channel::<Bytes>(1);
        let reading = std::thread::spawn(move || {
            let mut file = Vec::new();
            while let Some(piece) = encoded.blocking_recv() {
                file.extend_from_slice(&piece);
            }
            file
        });
        encode(received, pieces, &schema, codec).unwrap();
        reading.join().unwrap()
    }

    fn decode_file(file: &[u8]) -> RecordBatch {
        let reader = ReaderBuilder::new().with_batch_size(1 << 20).build(Cursor::new(file)).unwrap();
        let schema = reader.schema();
        let batches = reader.collect::<Result<Vec<_>, _>>().unwrap();
        concat_batches(&schema, &batches).unwrap()
    }

    #[test]
    fn codecs_and_blocks() {
        let batch = |from: i64, to: i64| {
            let numbers = Int64Array::from_iter((from..to).map(|n| (n % 7 > 0).then_some(n)));
            let texts = StringArray::from_iter_values((from..to).map(|n| format!("text {n}")));
            let columns: [(&str, ArrayRef); 2] = [("n", Arc::new(numbers)), ("t", Arc::new(texts))];
            RecordBatch::try_from_iter(columns).unwrap()
        };
        for codec in [Codec::None, Codec::Deflate, Codec::Snappy, Codec::Zstd, Codec::Bzip2, Codec::Xz] {
            assert_eq!(Codec::of(codec.name()).unwrap(), codec);
            let back = decode_file(&encode_file(vec![batch(0, 3), batch(3, 3), batch(3, 20_000)], codec));
            assert_eq!(back.columns(), batch(0, 20_000).columns(), "{codec:?}");
        }
        assert_eq!(decode_file(&encode_file(vec![batch(0, 0)], Codec::Deflate)).num_rows(), 0);
        let long = |n: i64| format!("{n}").repeat(BLOCK_BYTES);
        let texts: ArrayRef = Arc::new(StringArray::from_iter_values((0..3).map(long)));
        let rows = RecordBatch::try_from_iter([("t", Arc::clone(&texts))]).unwrap();
        let back = decode_file(&encode_file(vec![rows], Codec::Snappy));
        assert_eq!(back.column(0), &texts);
    }

    #[test]
    fn booleans_in_parts_of_lists() {
        let flags = BooleanArray::from_iter((0..64).map(|n| Some(n % 3 == 0)));
        let item = Arc::new(Field::new("item", DataType::Boolean, true));
        let offsets = OffsetBuffer::from_lengths([2, 3, 0, 1]);
        let lists: ArrayRef = Arc::new(ListArray::new(item, offsets, Arc::new(flags.slice(5, 6)), None));
        let rows = RecordBatch::try_from_iter([("l", lists)]).unwrap();
        let back = decode_file(&encode_file(vec![rows.slice(1, 3)], Codec::None));
        let lists = back.column(0).as_list::<i32>();
        let flags = |row: usize| lists.value(row).as_boolean().values().iter().collect::<Vec<_>>();
        assert_eq!(flags(0), [false, false, true]);
        assert_eq!(flags(1), [false; 0]);
        assert_eq!(flags(2), [false]);
    }

    #[test]
    fn record_names_are_unique() {
        let records = ["int", "int_1", "topLevelRecord", "x"].map(|name| {
            let part: ArrayRef = Arc::new(Int64Array::from(vec![1]));
            let field = Arc::new(Field::new("a", DataType::Int64, true));
            (name, Arc::new(StructArray::from(vec![(field, part)])) as ArrayRef)
        });
        let file = encode_file(vec![RecordBatch::try_from_iter(records).unwrap()], Codec::None);
        let text = String::from_utf8_lossy(&file);
        // Names of a column and of its type.
        for (name, count) in
            [("int", 1), ("int_2", 1), ("int_1", 2), ("topLevelRecord", 2), ("topLevelRecord_1", 1), ("x", 2)]
        {
            assert_eq!(text.matches(&format!("\"name\":\"{name}\"")).count(), count, "{name}: {text}");
        }
        assert_eq!(decode_file(&file).num_columns(), 4);
    }

    #[test]
    fn unsupported_schemas_are_rejected() {
        for (name, kind) in [
            ("i", DataType::Interval(IntervalUnit::MonthDayNano)),
            ("d", DataType::Duration(TimeUnit::Second)),
            ("größe", DataType::Int32),
            ("1a", DataType::Int32),
            ("", DataType::Int32),
            ("n", DataType::Decimal128(5, -2)),
            ("s", DataType::Struct(Fields::empty())),
        ] {
            let error = written_schema(&Schema::new(vec![Field::new(name, kind, true)])).unwrap_err();
            assert_eq!(harrier_sqlstate::of(&error), SqlState::FEATURE_NOT_SUPPORTED, "{error}");
        }
    }
}
