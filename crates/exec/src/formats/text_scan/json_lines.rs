//! Scan of JSON files.
//!
//! DataFusion's reader truncates the fraction of a number in an integer column, and reads a number out of the
//! range of a float as infinity or zero. Here such numbers are read as their text, and are values of the type
//! or an error. In a text column a number, or `true`, is read as its text.

use std::sync::Arc;

use bytes::{Buf, Bytes};
use datafusion::arrow::array::{
    Array, ArrayRef, ArrowPrimitiveType, AsArray, ListArray, MapArray, PrimitiveArray, RecordBatch,
    RecordBatchOptions, StringArray, StructArray,
};
use datafusion::arrow::datatypes::{
    DataType, Field, FieldRef, Fields, Int8Type, Int16Type, Int32Type, Int64Type, Schema, SchemaRef,
    UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use datafusion::arrow::json::ReaderBuilder;
use datafusion::arrow::json::reader::Decoder;
use datafusion::common::parsers::CompressionTypeVariant;
use datafusion::common::{DataFusionError, Result, internal_datafusion_err};
use datafusion::datasource::listing::{FileRange, PartitionedFile};
use datafusion::datasource::physical_plan::{FileOpenFuture, FileOpener};
use datafusion::object_store::{GetOptions, GetRange, ObjectMeta, ObjectStore, ObjectStoreExt};
use futures::{FutureExt, StreamExt};

use super::json_records::{self, Records};
use super::{RECORD_BYTES_MAX, compression_of, too_long};
use crate::formats::compression;
use crate::formats::format_adapter::OwnScan;
use harrier_error::{SqlError, SqlState};
use harrier_functions::parse::float;
use harrier_sqlstate::IntoDataFusionError;

/// Bytes read at once to find the end of a line.
const PIECE_BYTES: u64 = 1 << 16;

/// The opener of files.
#[derive(Debug, Clone)]
pub struct JsonLines {
    pub compression: CompressionTypeVariant,
}

impl OwnScan for JsonLines {
    const NAME: &'static str = "json";
    const CUTS_FILES: bool = true;

    fn opener(
        &self,
        store: Arc<dyn ObjectStore>,
        file_schema: &SchemaRef,
        columns: &[usize],
        batch_rows: usize,
    ) -> Result<Arc<dyn FileOpener>> {
        let schema = Arc::new(file_schema.project(columns)?);
        Ok(Arc::new(JsonOpener { store, schema, batch_rows, compression: self.compression }))
    }
}

struct JsonOpener {
    store: Arc<dyn ObjectStore>,
    schema: SchemaRef,
    batch_rows: usize,
    compression: CompressionTypeVariant,
}

impl FileOpener for JsonOpener {
    fn open(&self, file: PartitionedFile) -> Result<FileOpenFuture> {
        let store = Arc::clone(&self.store);
        let (schema, batch_rows, compression) = (Arc::clone(&self.schema), self.batch_rows, self.compression);
        Ok(async move {
            let meta = file.object_meta;
            let compression = compression_of(compression.into(), &meta);
            let range = match compression.is_compressed() {
                // A compressed file cannot be split: its first range reads all of it.
                true if file.range.as_ref().is_some_and(|range| range.start > 0) => {
                    return Ok(futures::stream::empty().boxed());
                }
                true => None,
                false => match file.range {
                    Some(range) if !json_records::is_lines(&store, &meta).await? => {
                        if range.start > 0 {
                            return Ok(futures::stream::empty().boxed());
                        }
                        None
                    }
                    range => range,
                },
            };
            let (begin, end) = match range {
                Some(FileRange { start, end }) => {
                    (first_line(&store, &meta, start).await?, first_line(&store, &meta, end).await?)
                }
                None => (0, meta.size),
            };
            if begin >= end {
                return Ok(futures::stream::empty().boxed());
            }
            let is_whole = begin == 0 && end == meta.size;
            let options = GetOptions {
                range: (!is_whole).then_some(GetRange::Bounded(begin..end)),
                ..GetOptions::default()
            };
            let name = meta.location.filename().unwrap_or_default().to_string();
            let bytes = compression::pieces(store.get_opts(&meta.location, options).await?);
            let bytes = compression::decompress(bytes, compression, &name);
            let records = match begin {
                0 => Records::new(bytes, name.clone()),
                _ => Records::within(bytes, name.clone()),
            };
            let reading = JsonReader::new(records, schema, batch_rows, name)?;
            let batches = futures::stream::try_unfold(reading, |mut reading| async move {
                Ok(reading.next().await?.map(|batch| (batch, reading)))
            });
            Ok(batches.boxed())
        }
        .boxed())
    }
}

/// The start of the first line at or after `from`; the end of the file, if there is none.
async fn first_line(store: &Arc<dyn ObjectStore>, file: &ObjectMeta, from: i64) -> Result<u64> {
    let from = u64::try_from(from).map_err(|_| internal_datafusion_err!("a range before a file"))?;
    if from == 0 {
        return Ok(0);
    }
    let mut at = from.min(file.size) - 1;
    while at < file.size {
        let end = (at + PIECE_BYTES).min(file.size);
        let piece = store.get_range(&file.location, at..end).await?;
        if let Some(found) = memchr::memchr(b'\n', &piece) {
            return Ok(at + found as u64 + 1);
        }
        at = end;
    }
    Ok(file.size)
}

/// A scan of one file.
struct JsonReader {
    records: Records,
    present: Bytes,
    decoder: Decoder,
    schema: SchemaRef,
    /// For errors.
    name: String,
    ended: bool,
    /// Bytes since the current record began.
    record_bytes: usize,
}

impl JsonReader {
    fn new(records: Records, schema: SchemaRef, batch_rows: usize, name: String) -> Result<Self> {
        let fields = schema.fields().iter().map(reader_field).collect::<Fields>();
        let decoder = ReaderBuilder::new(Arc::new(Schema::new(fields)))
            .with_batch_size(batch_rows)
            .with_coerce_primitive(true)
            .build_decoder()?;
        Ok(Self { records, present: Bytes::new(), decoder, schema, name, ended: false, record_bytes: 0 })
    }

    /// Returns the next rows; `None` at the end.
    async fn next(&mut self) -> Result<Option<RecordBatch>> {
        while !self.ended {
            if self.present.is_empty() {
                match self.records.next().await? {
                    Some(piece) => self.present = piece,
                    None => {
                        self.ended = true;
                        break;
                    }
                }
            }
            let rows = self.decoder.len();
            let taken = self.decoder.decode(&self.present)?;
            self.present.advance(taken);
            self.record_bytes = if self.decoder.len() == rows { self.record_bytes + taken } else { 0 };
            if self.record_bytes > RECORD_BYTES_MAX {
                return Err(too_long(&self.name));
            }
            // It consumes at most a batch.
            if !self.present.is_empty() {
                break;
            }
        }
        let Some(batch) = self.decoder.flush()? else { return Ok(None) };
        let columns = batch.columns().iter().zip(self.schema.fields());
        let columns =
            columns.map(|(column, field)| self.convert_column(column, field)).collect::<Result<Vec<_>>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        Ok(Some(RecordBatch::try_new_with_options(Arc::clone(&self.schema), columns, &options)?))
    }

    /// Converts a column read with [`reader_field`] to its type.
    fn convert_column(&self, column: &ArrayRef, field: &FieldRef) -> Result<ArrayRef> {
        let kind = field.data_type();
        if !has_numbers(kind) {
            return Ok(Arc::clone(column));
        }
        Ok(match kind {
            DataType::Int8 => self.convert_integers::<Int8Type>(column, field)?,
            DataType::Int16 => self.convert_integers::<Int16Type>(column, field)?,
            DataType::Int32 => self.convert_integers::<Int32Type>(column, field)?,
            DataType::Int64 => self.convert_integers::<Int64Type>(column, field)?,
            DataType::UInt8 => self.convert_integers::<UInt8Type>(column, field)?,
            DataType::UInt16 => self.convert_integers::<UInt16Type>(column, field)?,
            DataType::UInt32 => self.convert_integers::<UInt32Type>(column, field)?,
            DataType::UInt64 => self.convert_integers::<UInt64Type>(column, field)?,
            DataType::Float32 | DataType::Float64 => self.convert_floats(column, field)?,
            DataType::List(item) => {
                let list = column.as_list::<i32>();
                let values = self.convert_column(list.values(), item)?;
                let (offsets, nulls) = (list.offsets().clone(), list.nulls().cloned());
                Arc::new(ListArray::try_new(Arc::clone(item), offsets, values, nulls)?)
            }
            DataType::Struct(fields) => {
                let own = column.as_struct();
                Arc::new(self.fields(own, fields)?)
            }
            DataType::Map(entry, sorted) => {
                let map = column.as_map();
                let DataType::Struct(fields) = entry.data_type() else {
                    return Err(internal_datafusion_err!("a map without entries"));
                };
                let entries = self.fields(map.entries(), fields)?;
                let (offsets, nulls) = (map.offsets().clone(), map.nulls().cloned());
                Arc::new(MapArray::try_new(Arc::clone(entry), offsets, entries, nulls, *sorted)?)
            }
            other => return Err(internal_datafusion_err!("numbers in {other}")),
        })
    }

    fn fields(&self, own: &StructArray, fields: &Fields) -> Result<StructArray> {
        let columns = own.columns().iter().zip(fields);
        let columns =
            columns.map(|(column, field)| self.convert_column(column, field)).collect::<Result<Vec<_>>>()?;
        Ok(StructArray::try_new_with_length(fields.clone(), columns, own.nulls().cloned(), own.len())?)
    }

    fn convert_integers<T: ArrowPrimitiveType>(&self, column: &ArrayRef, field: &FieldRef) -> Result<ArrayRef>
    where
        T::Native: TryFrom<i128>,
    {
        let texts: &StringArray = column.as_string();
        let values = texts.iter().map(|text| {
            let Some(text) = text else { return Ok(None) };
            let value = parse_integer(text).ok_or_else(|| {
                let state = SqlState::INVALID_TEXT_REPRESENTATION;
                self.misfit(
                    state,
                    format!("invalid input syntax for type {}: \"{text}\"", sql_type_name(field)),
                    field,
                )
            })?;
            let value = T::Native::try_from(value).map_err(|_| {
                let message = format!("value \"{text}\" is out of range for type {}", sql_type_name(field));
                self.misfit(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, message, field)
            })?;
            Ok(Some(value))
        });
        Ok(Arc::new(values.collect::<Result<PrimitiveArray<T>>>()?))
    }

    fn convert_floats(&self, column: &ArrayRef, field: &FieldRef) -> Result<ArrayRef> {
        let texts: &StringArray = column.as_string();
        float::parse(texts, field.data_type()).map_err(|misfit| {
            let text = texts.value(misfit.row);
            let error = match misfit.is_out_of_range {
                true => float::out_of_range(text, field.data_type()),
                false => SqlError::new(
                    SqlState::INVALID_TEXT_REPRESENTATION,
                    format!("invalid input syntax for type {}: \"{text}\"", sql_type_name(field)),
                ),
            };
            self.misfit(error.sqlstate, error.message, field)
        })
    }

    fn misfit(&self, state: SqlState, message: String, field: &Field) -> DataFusionError {
        let detail = format!("file \"{}\", key \"{}\"", self.name, field.name());
        SqlError::new(state, message).with_detail(detail).into_datafusion()
    }
}

/// The SQL type name for errors.
fn sql_type_name(field: &Field) -> String {
    match field.data_type() {
        DataType::Int16 => "smallint".to_string(),
        DataType::Int32 => "integer".to_string(),
        DataType::Int64 => "bigint".to_string(),
        DataType::Float32 => "real".to_string(),
        DataType::Float64 => "double precision".to_string(),
        other => other.to_string(),
    }
}

/// Parses an integer written as `12`, `12.0` or `1.2e1`.
fn parse_integer(text: &str) -> Option<i128> {
    let text = text.trim();
    if let Ok(value) = text.parse() {
        return Some(value);
    }
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, exponent.parse::<i32>().ok()?),
        None => (text, 0),
    };
    let (digits, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    if !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let fraction = fraction.trim_end_matches('0');
    // Digits after the point; a negative number means zeros before it.
    let behind = i32::try_from(fraction.len()).ok()?.checked_sub(exponent)?;
    let value: i128 = format!("{digits}{fraction}").parse().ok()?;
    match u32::try_from(behind) {
        _ if value == 0 => Some(0),
        Ok(0) => Some(value),
        Ok(behind) => {
            let unit = 10i128.checked_pow(behind)?;
            (value % unit == 0).then(|| value / unit)
        }
        Err(_) => value.checked_mul(10i128.checked_pow(behind.unsigned_abs())?),
    }
}

/// Whether a type contains integers or floats, which are read as text.
fn has_numbers(kind: &DataType) -> bool {
    match kind {
        kind if kind.is_integer() => true,
        DataType::Float32 | DataType::Float64 => true,
        DataType::List(item) => has_numbers(item.data_type()),
        DataType::Struct(fields) => fields.iter().any(|field| has_numbers(field.data_type())),
        DataType::Map(entry, _) => match entry.data_type() {
            DataType::Struct(fields) => fields.iter().any(|field| has_numbers(field.data_type())),
            _ => false,
        },
        _ => false,
    }
}

/// The reader's form of a field: integers and floats are text.
fn reader_field(field: &FieldRef) -> FieldRef {
    if !has_numbers(field.data_type()) {
        return Arc::clone(field);
    }
    let all = |fields: &Fields| fields.iter().map(reader_field).collect::<Fields>();
    let kind = match field.data_type() {
        DataType::List(item) => DataType::List(reader_field(item)),
        DataType::Struct(fields) => DataType::Struct(all(fields)),
        DataType::Map(entry, sorted) => DataType::Map(reader_field(entry), *sorted),
        _ => DataType::Utf8,
    };
    Arc::new(field.as_ref().clone().with_data_type(kind))
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::datatypes::Float32Type;

    use super::*;

    #[test]
    fn integers_and_floats_are_distinguished() {
        for (text, expected) in [
            ("12", Some(12)),
            ("-9223372036854775808", Some(i64::MIN.into())),
            ("18446744073709551615", Some(u64::MAX.into())),
            ("12.0", Some(12)),
            ("-0.0", Some(0)),
            ("1.2e1", Some(12)),
            ("120e-1", Some(12)),
            ("1E3", Some(1000)),
            ("1.5", None),
            ("-2.9", None),
            ("125e-2", None),
            ("1e99", None),
            ("true", None),
            ("", None),
            ("1.", Some(1)),
            ("1.x", None),
        ] {
            assert_eq!(parse_integer(text), expected, "{text}");
        }
    }

    #[tokio::test]
    async fn numbers_are_lossless() {
        let item = Arc::new(Field::new_list_field(DataType::Int32, true));
        let fields = vec![
            Field::new("n", DataType::Int64, true),
            Field::new("l", DataType::List(Arc::clone(&item)), true),
            Field::new("s", DataType::Struct(vec![Field::new("x", DataType::Int16, true)].into()), true),
            Field::new("t", DataType::Utf8, true),
            Field::new("f", DataType::Float32, true),
        ];
        let schema: SchemaRef = Arc::new(Schema::new(fields));
        let read = |text: &'static str| {
            let pieces = text.as_bytes().chunks(5).map(|piece| Ok(Bytes::from_static(piece)));
            let bytes = futures::stream::iter(pieces.collect::<Vec<_>>()).boxed();
            let records = Records::new(bytes, "f".to_string());
            JsonReader::new(records, Arc::clone(&schema), 2, "f".to_string()).unwrap()
        };
        let mut reading = read(concat!(
            "\u{feff}{\"n\":9007199254740993,\"l\":[1,null],\"s\":{\"x\":-1},\"t\":\"a\"}\n",
            "{\"n\":2.0,\"l\":null,\"t\":1.50,\"f\":-1.5e3}\n",
            "{\"s\":null,\"t\":true}\n",
        ));
        let first = reading.next().await.unwrap().unwrap();
        let numbers: Vec<_> = first.column(0).as_primitive::<Int64Type>().iter().collect();
        assert_eq!(numbers, [Some(9_007_199_254_740_993), Some(2)]);
        let list = first.column(1).as_list::<i32>().value(0);
        assert_eq!(list.as_primitive::<Int32Type>().iter().collect::<Vec<_>>(), [Some(1), None]);
        assert!(first.column(1).is_null(1) && first.column(2).is_null(1));
        assert_eq!(first.column(3).as_string::<i32>().value(1), "1.50");
        let floats: Vec<_> = first.column(4).as_primitive::<Float32Type>().iter().collect();
        assert_eq!(floats, [None, Some(-1500.0)]);
        let second = reading.next().await.unwrap().unwrap();
        assert_eq!((second.num_rows(), second.column(3).as_string::<i32>().value(0)), (1, "true"));
        assert!(reading.next().await.unwrap().is_none());
        for (text, state) in [
            ("{\"n\":1.5}\n", SqlState::INVALID_TEXT_REPRESENTATION),
            ("{\"l\":[1,2.5]}\n", SqlState::INVALID_TEXT_REPRESENTATION),
            ("{\"s\":{\"x\":1e-1}}\n", SqlState::INVALID_TEXT_REPRESENTATION),
            ("{\"s\":{\"x\":40000}}\n", SqlState::NUMERIC_VALUE_OUT_OF_RANGE),
            ("{\"f\":1e40}\n", SqlState::NUMERIC_VALUE_OUT_OF_RANGE),
            ("{\"f\":1e-60}\n", SqlState::NUMERIC_VALUE_OUT_OF_RANGE),
            ("{\"f\":\"x\"}\n", SqlState::INVALID_TEXT_REPRESENTATION),
        ] {
            let error = read(text).next().await.unwrap_err();
            assert_eq!(harrier_sqlstate::of(&error), state, "{text}");
        }
    }
}
