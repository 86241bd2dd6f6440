//! Encoding of batches as Flight messages, in sizes and types that every client supports.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, GenericListArray, OffsetSizeTrait, RecordBatch, RecordBatchOptions,
};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef};
use arrow::error::ArrowError;
use arrow::ipc::writer::{DictionaryTracker, IpcDataGenerator, IpcWriteContext, IpcWriteOptions};
use arrow_flight::{FlightData, SchemaAsIpc};
use harrier_error::{SqlError, SqlState};

/// Target size of a message split from a larger batch. Clients accept 4 MiB by default.
const MESSAGE_BYTES: usize = 2 << 20;

/// Larger batches are split: a message's overhead is less than a MiB.
const MESSAGE_BYTES_MAX: usize = 3 << 20;

/// Maximum text bytes of an array on the wire: its offsets have 32 bits.
const TEXT_BYTES_MAX: usize = 1 << 30;

/// The schema on the wire. Views and dictionaries are expanded: not all clients support them, and both may
/// refer to much larger buffers than their values.
pub(super) fn wire_schema(schema: &Schema) -> SchemaRef {
    let fields = schema.fields().iter().map(wire_field);
    Arc::new(Schema::new_with_metadata(fields.collect::<Vec<_>>(), schema.metadata().clone()))
}

fn wire_field(field: &FieldRef) -> FieldRef {
    let wired = wire_type(field.data_type());
    if wired == *field.data_type() {
        Arc::clone(field)
    } else {
        let renewed = Field::new(field.name(), wired, field.is_nullable());
        Arc::new(renewed.with_metadata(field.metadata().clone()))
    }
}

fn wire_type(data_type: &DataType) -> DataType {
    match data_type {
        DataType::Utf8View => DataType::Utf8,
        DataType::BinaryView => DataType::Binary,
        DataType::Dictionary(_, values) => wire_type(values),
        DataType::List(field) => DataType::List(wire_field(field)),
        DataType::LargeList(field) => DataType::LargeList(wire_field(field)),
        DataType::FixedSizeList(field, size) => DataType::FixedSizeList(wire_field(field), *size),
        DataType::Struct(fields) => DataType::Struct(fields.iter().map(wire_field).collect()),
        DataType::Map(entries, is_sorted) => DataType::Map(wire_field(entries), *is_sorted),
        other => other.clone(),
    }
}

/// Encodes the batches of one result.
pub(super) struct Encoder {
    schema: SchemaRef,
    generator: IpcDataGenerator,
    dictionaries: DictionaryTracker,
    context: IpcWriteContext,
    options: IpcWriteOptions,
}

impl Encoder {
    /// `schema`: on the wire.
    pub fn new(schema: SchemaRef) -> Self {
        let mut context = IpcWriteContext::default();
        // Messages of a result have about the same size: allocates the next one's memory at once.
        context.set_reserve_scratch(true);
        Self {
            schema,
            generator: IpcDataGenerator::default(),
            dictionaries: DictionaryTracker::new(false),
            context,
            options: IpcWriteOptions::default(),
        }
    }

    /// The schema message, which begins a result.
    pub fn schema_message(&self) -> FlightData {
        SchemaAsIpc::new(&self.schema, &self.options).into()
    }

    /// Encodes a batch as one or more messages, in order.
    pub fn encode(&mut self, batch: &RecordBatch) -> Result<Vec<FlightData>, SqlError> {
        let mut messages = Vec::with_capacity(1);
        self.encode_into(batch, &mut messages)?;
        Ok(messages)
    }

    fn encode_into(&mut self, batch: &RecordBatch, messages: &mut Vec<FlightData>) -> Result<(), SqlError> {
        if batch.columns().iter().map(text_bytes).sum::<usize>() > TEXT_BYTES_MAX {
            if batch.num_rows() < 2 {
                return Err(SqlError::new(
                    SqlState::PROGRAM_LIMIT_EXCEEDED,
                    "a row is too large for a message of Flight",
                ));
            }
            let half = batch.num_rows() / 2;
            self.encode_into(&batch.slice(0, half), messages)?;
            return self.encode_into(&batch.slice(half, batch.num_rows() - half), messages);
        }
        let batch = on_wire(batch, &self.schema).map_err(unencodable)?;
        self.split(&batch, messages).map_err(unencodable)
    }

    fn split(&mut self, batch: &RecordBatch, messages: &mut Vec<FlightData>) -> Result<(), ArrowError> {
        let mut bytes = 0;
        for column in batch.columns() {
            bytes += column.to_data().get_slice_memory_size()?;
        }
        let rows = batch.num_rows();
        if bytes <= MESSAGE_BYTES_MAX || rows < 2 {
            let (dictionaries, message) =
                self.generator.encode(batch, &mut self.dictionaries, &self.options, &mut self.context)?;
            messages.extend(dictionaries.into_iter().map(FlightData::from));
            messages.push(message.into());
            return Ok(());
        }
        // Splits evenly by rows; a part with the large rows is split again.
        let rows_per_message = rows.div_ceil(bytes.div_ceil(MESSAGE_BYTES)).min(rows - 1);
        let mut from = 0;
        while from < rows {
            let length = rows_per_message.min(rows - from);
            self.split(&batch.slice(from, length), messages)?;
            from += length;
        }
        Ok(())
    }
}

fn on_wire(batch: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch, ArrowError> {
    let is_equal = |(field, column): (&FieldRef, &ArrayRef)| field.data_type() == column.data_type();
    if schema.fields().iter().zip(batch.columns()).all(is_equal) {
        return Ok(batch.clone());
    }
    let columns = schema.fields().iter().zip(batch.columns());
    let columns = columns.map(|(field, column)| cast(column, field.data_type())).collect::<Result<_, _>>()?;
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options)
}

/// Size in bytes of the view arrays' values when expanded, as a lower bound.
fn text_bytes(array: &ArrayRef) -> usize {
    // The length is the lower half of a view.
    let lengths = |views: &[u128]| views.iter().map(|view| *view as u32 as usize).sum();
    match array.data_type() {
        DataType::Utf8View => lengths(array.as_string_view().views()),
        DataType::BinaryView => lengths(array.as_binary_view().views()),
        DataType::List(_) => of_list(array.as_list::<i32>()),
        DataType::LargeList(_) => of_list(array.as_list::<i64>()),
        DataType::FixedSizeList(_, _) => text_bytes(array.as_fixed_size_list().values()),
        DataType::Struct(_) => array.as_struct().columns().iter().map(text_bytes).sum(),
        DataType::Map(_, _) => array.as_map().entries().columns().iter().map(text_bytes).sum(),
        _ => 0,
    }
}

fn of_list<O: OffsetSizeTrait>(list: &GenericListArray<O>) -> usize {
    let (from, to) = (list.value_offsets()[0], list.value_offsets()[list.len()]);
    text_bytes(&list.values().slice(from.as_usize(), (to - from).as_usize()))
}

fn unencodable(error: ArrowError) -> SqlError {
    SqlError::new(SqlState::INTERNAL_ERROR, format!("rows could not be encoded: {error}"))
}

#[cfg(test)]
mod tests {
    use arrow::array::{DictionaryArray, Int32Array, ListArray, StringArray, StringViewArray};
    use arrow::datatypes::Int32Type;
    use arrow_flight::decode::FlightRecordBatchStream;
    use futures::TryStreamExt;

    use super::*;

    async fn round_trip(batches: &[RecordBatch]) -> (Vec<usize>, RecordBatch) {
        let schema = wire_schema(&batches[0].schema());
        let mut encoder = Encoder::new(Arc::clone(&schema));
        let mut messages = vec![encoder.schema_message()];
        for batch in batches {
            messages.extend(encoder.encode(batch).unwrap());
        }
        let sizes = messages.iter().map(|message| message.data_body.len()).collect();
        let stream = futures::stream::iter(messages.into_iter().map(Ok));
        let decoded: Vec<RecordBatch> =
            FlightRecordBatchStream::new_from_flight_data(stream).try_collect().await.unwrap();
        (sizes, arrow::compute::concat_batches(&schema, &decoded).unwrap())
    }

    #[tokio::test]
    async fn view_and_dictionary_types_are_expanded() {
        let words = ["short", "a string that does not fit into a view", ""];
        let views: ArrayRef = Arc::new(StringViewArray::from(words.to_vec()));
        let keys = Int32Array::from(vec![Some(1), None, Some(0)]);
        let values = Arc::new(StringViewArray::from(vec!["a", "b"]));
        let dictionary: ArrayRef = Arc::new(DictionaryArray::<Int32Type>::new(keys, values));
        let list = ListArray::new(
            Arc::new(Field::new_list_field(DataType::Utf8View, true)),
            arrow::buffer::OffsetBuffer::from_lengths([1, 0, 2]),
            Arc::clone(&views),
            None,
        );
        let batch = RecordBatch::try_from_iter([
            ("views", views),
            ("dictionary", dictionary),
            ("list", Arc::new(list) as ArrayRef),
        ]);
        let (_, decoded) = round_trip(&[batch.unwrap()]).await;
        assert_eq!(decoded.column(0).as_ref(), &StringArray::from(words.to_vec()));
        assert_eq!(decoded.column(1).as_ref(), &StringArray::from(vec![Some("b"), None, Some("a")]));
        let expected = DataType::List(Arc::new(Field::new_list_field(DataType::Utf8, true)));
        assert_eq!(decoded.column(2).data_type(), &expected);
    }

    #[tokio::test]
    async fn large_batches_are_split_by_sliced_size() {
        let numbers: ArrayRef = Arc::new(Int32Array::from_iter_values(0..4_000_000));
        let batch = RecordBatch::try_from_iter([("n", numbers)]).unwrap();
        let (sizes, decoded) = round_trip(std::slice::from_ref(&batch)).await;
        assert!(sizes[1..].iter().all(|size| (1 << 20..=MESSAGE_BYTES_MAX).contains(size)), "{sizes:?}");
        assert_eq!(decoded, batch);
        let (sizes, decoded) = round_trip(&[batch.slice(1000, 500_000)]).await;
        assert_eq!((sizes.len(), decoded), (2, batch.slice(1000, 500_000)));
        // One row is much larger than all others.
        let mut words = vec!["x".to_string(); 1000];
        words[500] = "y".repeat(8 << 20);
        let words: ArrayRef = Arc::new(StringArray::from(words));
        let batch = RecordBatch::try_from_iter([("w", words)]).unwrap();
        let (sizes, decoded) = round_trip(std::slice::from_ref(&batch)).await;
        assert_eq!(sizes.iter().filter(|size| **size > MESSAGE_BYTES_MAX).count(), 1);
        assert_eq!(decoded, batch);
    }

    #[tokio::test]
    async fn rows_without_columns_are_counted() {
        let options = RecordBatchOptions::new().with_row_count(Some(7));
        let batch = RecordBatch::try_new_with_options(Arc::new(Schema::empty()), vec![], &options).unwrap();
        assert_eq!(round_trip(&[batch]).await.1.num_rows(), 7);
    }
}
