//! Decodes a batch from a received block without copying: every Arrow buffer is a slice of the block.
//!
//! The layout is that of [`crate::encode`]. Each buffer keeps the block alive and reports its own length as
//! its capacity, so operators that account memory per buffer count only that buffer and not the whole block.
//!
//! Errors: a payload that does not fit the schema (lengths, offsets, UTF-8, keys) is rejected with
//! [`ArrowError::IpcError`] or the constructor's own error; nothing is read outside the block.

use crate::limits::BUFFER_ALIGNMENT_BYTES;
use arrow::array::*;
use arrow::buffer::{BooleanBuffer, Buffer, NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow::datatypes::*;
use arrow::error::ArrowError;
use bytes::Bytes;
use std::sync::Arc;

/// Decodes one payload of `rows` rows with `schema`.
pub fn decode(schema: &SchemaRef, rows: usize, payload: &Bytes) -> Result<RecordBatch, ArrowError> {
    let mut reader = Reader::new(payload)?;
    let columns =
        schema.fields().iter().map(|field| reader.array(field.data_type())).collect::<Result<Vec<_>, _>>()?;
    reader.finish()?;
    RecordBatch::try_new_with_options(
        schema.clone(),
        columns,
        &RecordBatchOptions::new().with_row_count(Some(rows)),
    )
}

fn malformed_error(what: impl std::fmt::Display) -> ArrowError {
    ArrowError::IpcError(format!("malformed block: {what}"))
}

struct Reader<'a> {
    payload: &'a Bytes,
    /// Offset of the next buffer in the payload, before alignment.
    at: usize,
    /// End of the buffers and start of the footer.
    buffers_end: usize,
    /// Offset of the next word.
    word_at: usize,
    words_end: usize,
}

impl<'a> Reader<'a> {
    fn new(payload: &'a Bytes) -> Result<Self, ArrowError> {
        let words_end = payload.len().checked_sub(8).ok_or_else(|| malformed_error("no footer"))?;
        let count = u64::from_le_bytes(payload[words_end..].try_into().expect("eight bytes")) as usize;
        let buffers_end = count
            .checked_mul(8)
            .and_then(|bytes| words_end.checked_sub(bytes))
            .ok_or_else(|| malformed_error("footer longer than the block"))?;
        Ok(Reader { payload, at: 0, buffers_end, word_at: buffers_end, words_end })
    }

    fn word(&mut self) -> Result<usize, ArrowError> {
        if self.word_at == self.words_end {
            return Err(malformed_error("footer too short"));
        }
        let bytes = self.payload[self.word_at..self.word_at + 8].try_into().expect("eight bytes");
        self.word_at += 8;
        usize::try_from(u64::from_le_bytes(bytes)).map_err(malformed_error)
    }

    fn finish(&self) -> Result<(), ArrowError> {
        if self.word_at != self.words_end {
            return Err(malformed_error("footer too long"));
        }
        Ok(())
    }

    /// The next buffer; its length is the next word.
    fn buffer(&mut self) -> Result<Buffer, ArrowError> {
        let len = self.word()?;
        let from = self.at.next_multiple_of(BUFFER_ALIGNMENT_BYTES);
        let to = from
            .checked_add(len)
            .filter(|to| *to <= self.buffers_end)
            .ok_or_else(|| malformed_error("buffer reaches past the block"))?;
        self.at = to;
        if len == 0 {
            return Ok(Buffer::from_vec(Vec::<u128>::new()));
        }
        Ok(Buffer::from(self.payload.slice(from..to)))
    }

    /// The next buffer as exactly `len` values.
    fn values<T: ArrowNativeType>(&mut self, len: usize) -> Result<ScalarBuffer<T>, ArrowError> {
        let buffer = self.buffer()?;
        if Some(buffer.len()) != len.checked_mul(size_of::<T>()) {
            return Err(malformed_error(format_args!("buffer of {} bytes for {len} values", buffer.len())));
        }
        Ok(ScalarBuffer::new(buffer, 0, len))
    }

    fn bits(&mut self, len: usize) -> Result<BooleanBuffer, ArrowError> {
        let buffer = self.buffer()?;
        if buffer.len() != len.div_ceil(8) {
            return Err(malformed_error(format_args!("bitmap of {} bytes for {len} rows", buffer.len())));
        }
        Ok(BooleanBuffer::new(buffer, 0, len))
    }

    /// Rejects offsets on which `OffsetBuffer::new` would panic.
    fn check_offsets<O: OffsetSizeTrait>(offsets: &[O], child_len: usize) -> Result<(), ArrowError> {
        let ordered = offsets.windows(2).fold(true, |ordered, pair| ordered & (pair[0] <= pair[1]));
        if !ordered || offsets[0] != O::zero() || offsets[offsets.len() - 1].as_usize() != child_len {
            return Err(malformed_error("offsets out of order"));
        }
        Ok(())
    }

    /// Length and validity of the next array.
    fn head(&mut self) -> Result<(usize, Option<NullBuffer>), ArrowError> {
        let len = self.word()?;
        let nulls = match self.word()? {
            0 => None,
            _ => Some(NullBuffer::new(self.bits(len)?)),
        };
        Ok((len, nulls))
    }

    fn array(&mut self, data_type: &DataType) -> Result<ArrayRef, ArrowError> {
        let (len, nulls) = self.head()?;
        macro_rules! primitive {
            ($t:ty) => {
                Ok(Arc::new(
                    PrimitiveArray::<$t>::try_new(self.values(len)?, nulls)?
                        .with_data_type(data_type.clone()),
                ))
            };
        }
        macro_rules! dictionary {
            ($t:ty, $value_type:expr) => {{
                let keys = PrimitiveArray::<$t>::try_new(self.values(len)?, nulls)?;
                let values = self.array($value_type)?;
                Ok(Arc::new(DictionaryArray::<$t>::try_new(keys, values)?))
            }};
        }
        downcast_primitive! {
            data_type => (primitive),
            DataType::Null => Ok(Arc::new(NullArray::new(len))),
            DataType::Boolean => Ok(Arc::new(BooleanArray::new(self.bits(len)?, nulls))),
            DataType::Utf8 => self.byte_array::<Utf8Type>(len, nulls),
            DataType::LargeUtf8 => self.byte_array::<LargeUtf8Type>(len, nulls),
            DataType::Binary => self.byte_array::<BinaryType>(len, nulls),
            DataType::LargeBinary => self.byte_array::<LargeBinaryType>(len, nulls),
            DataType::Utf8View => self.view_array::<StringViewType>(len, nulls),
            DataType::BinaryView => self.view_array::<BinaryViewType>(len, nulls),
            DataType::FixedSizeBinary(width) => {
                let buffer = self.buffer()?;
                if buffer.len() != len * *width as usize {
                    return Err(malformed_error("fixed-size values do not fill their rows"));
                }
                Ok(Arc::new(FixedSizeBinaryArray::try_new_with_len(*width, buffer, nulls, len)?))
            }
            DataType::List(field) => self.list::<i32>(field, len, nulls),
            DataType::LargeList(field) => self.list::<i64>(field, len, nulls),
            DataType::Map(field, ordered) => {
                let offsets = self.values::<i32>(len + 1)?;
                let entries = self.array(field.data_type())?;
                Self::check_offsets(&offsets, entries.len())?;
                let entries = entries.as_struct().clone();
                Ok(Arc::new(MapArray::try_new(
                    field.clone(), OffsetBuffer::new(offsets), entries, nulls, *ordered)?))
            }
            DataType::ListView(field) => self.list_view::<i32>(field, len, nulls),
            DataType::LargeListView(field) => self.list_view::<i64>(field, len, nulls),
            DataType::FixedSizeList(field, width) => {
                let values = self.array(field.data_type())?;
                Ok(Arc::new(FixedSizeListArray::try_new_with_length(field.clone(), *width, values, nulls, len)?))
            }
            DataType::Struct(fields) => {
                let columns =
                    fields.iter().map(|field| self.array(field.data_type())).collect::<Result<Vec<_>, _>>()?;
                Ok(Arc::new(StructArray::try_new_with_length(fields.clone(), columns, nulls, len)?))
            }
            DataType::Dictionary(key, value) => {
                downcast_integer! {
                    key.as_ref() => (dictionary, value),
                    other => Err(malformed_error(format_args!("dictionary key of type {other}"))),
                }
            }
            DataType::RunEndEncoded(run_ends, values) => match run_ends.data_type() {
                DataType::Int16 => self.run_array::<Int16Type>(values, len),
                DataType::Int32 => self.run_array::<Int32Type>(values, len),
                DataType::Int64 => self.run_array::<Int64Type>(values, len),
                other => Err(malformed_error(format_args!("run ends of type {other}"))),
            },
            DataType::Union(fields, mode) => {
                let type_ids = self.values::<i8>(len)?;
                let offsets = match mode {
                    UnionMode::Dense => Some(self.values::<i32>(len)?),
                    UnionMode::Sparse => None,
                };
                let children =
                    fields.iter().map(|(_, field)| self.array(field.data_type())).collect::<Result<Vec<_>, _>>()?;
                Ok(Arc::new(UnionArray::try_new(fields.clone(), type_ids, offsets, children)?))
            }
            other => Err(ArrowError::NotYetImplemented(format!("a motion cannot carry the type {other}"))),
        }
    }

    fn byte_array<T: ByteArrayType>(
        &mut self,
        len: usize,
        nulls: Option<NullBuffer>,
    ) -> Result<ArrayRef, ArrowError> {
        let offsets = self.values::<T::Offset>(len + 1)?;
        let values = self.buffer()?;
        Self::check_offsets(&offsets, values.len())?;
        Ok(Arc::new(GenericByteArray::<T>::try_new(OffsetBuffer::new(offsets), values, nulls)?))
    }

    fn view_array<T: ByteViewType>(
        &mut self,
        len: usize,
        nulls: Option<NullBuffer>,
    ) -> Result<ArrayRef, ArrowError> {
        let views = self.values::<u128>(len)?;
        let data = self.buffer()?;
        let data = if data.is_empty() { vec![] } else { vec![data] };
        Ok(Arc::new(GenericByteViewArray::<T>::try_new(views, data, nulls)?))
    }

    fn list<O: OffsetSizeTrait>(
        &mut self,
        field: &FieldRef,
        len: usize,
        nulls: Option<NullBuffer>,
    ) -> Result<ArrayRef, ArrowError> {
        let offsets = self.values::<O>(len + 1)?;
        let values = self.array(field.data_type())?;
        Self::check_offsets(&offsets, values.len())?;
        Ok(Arc::new(GenericListArray::<O>::try_new(
            field.clone(),
            OffsetBuffer::new(offsets),
            values,
            nulls,
        )?))
    }

    fn list_view<O: OffsetSizeTrait>(
        &mut self,
        field: &FieldRef,
        len: usize,
        nulls: Option<NullBuffer>,
    ) -> Result<ArrayRef, ArrowError> {
        let offsets = self.values::<O>(len)?;
        let sizes = self.values::<O>(len)?;
        let values = self.array(field.data_type())?;
        Ok(Arc::new(GenericListViewArray::<O>::try_new(field.clone(), offsets, sizes, values, nulls)?))
    }

    fn run_array<R: RunEndIndexType>(
        &mut self,
        values: &FieldRef,
        len: usize,
    ) -> Result<ArrayRef, ArrowError> {
        let ends = self.buffer()?;
        if !ends.len().is_multiple_of(size_of::<R::Native>()) {
            return Err(malformed_error("run ends are cut off"));
        }
        let count = ends.len() / size_of::<R::Native>();
        let ends = PrimitiveArray::<R>::try_new(ScalarBuffer::new(ends, 0, count), None)?;
        let values = self.array(values.data_type())?;
        let array = RunArray::<R>::try_new(&ends, &values)?;
        if array.len() != len {
            return Err(malformed_error("runs do not cover their rows"));
        }
        Ok(Arc::new(array))
    }
}
