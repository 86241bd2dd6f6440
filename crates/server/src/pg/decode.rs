//! Decoders of PostgreSQL's binary values into Arrow arrays, for a parameter or a column of a COPY.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, ArrowPrimitiveType, AsArray, BinaryBuilder, BooleanBuilder, FixedSizeBinaryBuilder,
    ListArray, PrimitiveBuilder, StringArray, StringBuilder,
};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{
    DataType, Date32Type, Field, Float32Type, Float64Type, Int16Type, Int32Type, Int64Type,
    IntervalMonthDayNano, IntervalMonthDayNanoType, Time64MicrosecondType, TimestampMicrosecondType,
};
use arrow::error::ArrowError;
use bytes::BytesMut;

use super::text;
use super::types;

/// Maximum dimensions of a client's array, as in PostgreSQL.
const DIMENSIONS_MAX: i32 = 6;

/// Decodes one value after the other.
pub(super) trait Decode: Send {
    fn null(&mut self);

    /// `None`: the bytes are invalid, and the decoder is unusable from then on.
    fn value(&mut self, bytes: &[u8]) -> Option<()>;

    /// All values so far; the next value begins another array.
    fn finish(&mut self) -> Option<ArrayRef>;
}

/// A decoder for values of this type with space for `capacity` values or more; `None` if there is none.
/// Numbers decode to text, since their scale is not known in advance.
pub(super) fn decoder(oid: u32, capacity: usize) -> Option<Box<dyn Decode>> {
    fn fixed_width<T: ArrowPrimitiveType>(
        capacity: usize,
        read: impl Fn(&[u8]) -> Option<T::Native> + Send + 'static,
    ) -> Option<Box<dyn Decode>>
    where
        PrimitiveBuilder<T>: Send,
    {
        let builder = PrimitiveBuilder::<T>::with_capacity(capacity);
        Some(Box::new(Fixed { builder, read }))
    }
    fn texts(
        capacity: usize,
        read: impl Fn(&[u8], &mut StringBuilder) -> Option<()> + Send + 'static,
    ) -> Option<Box<dyn Decode>> {
        Some(Box::new(Texts { builder: StringBuilder::with_capacity(capacity, 16 * capacity), read }))
    }
    let oids = |bytes: &[u8]| Some(i64::from(u32::from_be_bytes(bytes.try_into().ok()?)));
    match oid {
        types::BOOL => Some(Box::new(BooleanBuilder::with_capacity(capacity))),
        types::INT2 => {
            fixed_width::<Int16Type>(capacity, |bytes| Some(i16::from_be_bytes(bytes.try_into().ok()?)))
        }
        types::INT4 => fixed_width::<Int32Type>(capacity, i32_of),
        types::OID
        | types::REGPROC
        | types::REGCLASS
        | types::REGTYPE
        | types::REGNAMESPACE
        | types::REGROLE => fixed_width::<Int64Type>(capacity, oids),
        types::INT8 => fixed_width::<Int64Type>(capacity, i64_of),
        types::FLOAT4 => {
            fixed_width::<Float32Type>(capacity, |bytes| Some(f32::from_bits(i32_of(bytes)? as u32)))
        }
        types::FLOAT8 => {
            fixed_width::<Float64Type>(capacity, |bytes| Some(f64::from_bits(i64_of(bytes)? as u64)))
        }
        types::BYTEA => Some(Box::new(BinaryBuilder::with_capacity(capacity, 16 * capacity))),
        types::DATE => {
            fixed_width::<Date32Type>(capacity, |bytes| i32_of(bytes)?.checked_add(text::EPOCH_DAYS))
        }
        types::TIME => fixed_width::<Time64MicrosecondType>(capacity, |bytes| {
            i64_of(bytes).filter(|us| (0..=text::DAY_US).contains(us))
        }),
        types::TIMESTAMP | types::TIMESTAMPTZ => {
            let builder = PrimitiveBuilder::<TimestampMicrosecondType>::with_capacity(capacity);
            let zone = (oid == types::TIMESTAMPTZ).then(|| Arc::from("+00:00"));
            let builder = builder.with_timezone_opt::<Arc<str>>(zone);
            let read = |bytes: &[u8]| i64_of(bytes)?.checked_add(text::EPOCH_US);
            Some(Box::new(Fixed { builder, read }))
        }
        types::INTERVAL => fixed_width::<IntervalMonthDayNanoType>(capacity, |bytes| {
            let (us, rest) = bytes.split_at_checked(8)?;
            let (days, months) = rest.split_at_checked(4)?;
            let nanoseconds = i64_of(us)?.checked_mul(1000)?;
            Some(IntervalMonthDayNano::new(i32_of(months)?, i32_of(days)?, nanoseconds))
        }),
        types::NUMERIC => texts(capacity, |bytes, out| {
            out.append_value(text::numeric_text(bytes)?);
            Some(())
        }),
        types::UUID => {
            Some(Box::new(Uuids(FixedSizeBinaryBuilder::with_capacity(capacity, UUID_BYTES as i32))))
        }
        types::JSONB => texts(capacity, |bytes, out| {
            out.append_value(std::str::from_utf8(bytes.strip_prefix(&[1])?).ok()?);
            Some(())
        }),
        types::TEXT
        | types::VARCHAR
        | types::BPCHAR
        | types::NAME
        | types::CHAR
        | types::JSON
        | types::UNKNOWN
        | 0 => texts(capacity, |bytes, out| {
            out.append_value(std::str::from_utf8(bytes).ok()?);
            Some(())
        }),
        _ => {
            let item = types::item_of(oid)?;
            let items = decoder(item, capacity)?;
            Some(Box::new(Lists { item, items, lengths: vec![], valid: vec![] }))
        }
    }
}

/// Casts decoded values to type `wanted`.
///
/// Errors: a value is out of range or invalid. With `safe` it becomes NULL instead.
pub(super) fn cast_to(found: &ArrayRef, wanted: &DataType, safe: bool) -> Result<ArrayRef, ArrowError> {
    if found.data_type() == wanted {
        return Ok(Arc::clone(found));
    }
    let options = CastOptions { safe, ..CastOptions::default() };
    if let DataType::FixedSizeBinary(16) = found.data_type() {
        let uuids = found.as_fixed_size_binary();
        let mut written = BytesMut::new();
        let texts = uuids.iter().map(|uuid| {
            written.clear();
            text::uuid(&mut written, uuid?);
            Some(String::from_utf8_lossy(&written).into_owned())
        });
        let texts: StringArray = texts.collect();
        return cast_with_options(&texts, wanted, &options);
    }
    cast_with_options(found, wanted, &options)
}

fn i32_of(bytes: &[u8]) -> Option<i32> {
    Some(i32::from_be_bytes(bytes.try_into().ok()?))
}

fn i64_of(bytes: &[u8]) -> Option<i64> {
    Some(i64::from_be_bytes(bytes.try_into().ok()?))
}

struct Fixed<T: ArrowPrimitiveType, R> {
    builder: PrimitiveBuilder<T>,
    read: R,
}

impl<T: ArrowPrimitiveType, R: Fn(&[u8]) -> Option<T::Native> + Send> Decode for Fixed<T, R>
where
    PrimitiveBuilder<T>: Send,
{
    fn null(&mut self) {
        self.builder.append_null();
    }

    fn value(&mut self, bytes: &[u8]) -> Option<()> {
        self.builder.append_value((self.read)(bytes)?);
        Some(())
    }

    fn finish(&mut self) -> Option<ArrayRef> {
        Some(Arc::new(self.builder.finish()))
    }
}

struct Texts<R> {
    builder: StringBuilder,
    read: R,
}

impl<R: Fn(&[u8], &mut StringBuilder) -> Option<()> + Send> Decode for Texts<R> {
    fn null(&mut self) {
        self.builder.append_null();
    }

    fn value(&mut self, bytes: &[u8]) -> Option<()> {
        (self.read)(bytes, &mut self.builder)
    }

    fn finish(&mut self) -> Option<ArrayRef> {
        Some(Arc::new(self.builder.finish()))
    }
}

impl Decode for BooleanBuilder {
    fn null(&mut self) {
        self.append_null();
    }

    fn value(&mut self, bytes: &[u8]) -> Option<()> {
        match bytes {
            [value] => self.append_value(*value != 0),
            _ => return None,
        }
        Some(())
    }

    fn finish(&mut self) -> Option<ArrayRef> {
        Some(Arc::new(BooleanBuilder::finish(self)))
    }
}

impl Decode for BinaryBuilder {
    fn null(&mut self) {
        self.append_null();
    }

    fn value(&mut self, bytes: &[u8]) -> Option<()> {
        self.append_value(bytes);
        Some(())
    }

    fn finish(&mut self) -> Option<ArrayRef> {
        Some(Arc::new(BinaryBuilder::finish(self)))
    }
}

const UUID_BYTES: usize = 16;

struct Uuids(FixedSizeBinaryBuilder);

impl Decode for Uuids {
    fn null(&mut self) {
        self.0.append_null();
    }

    fn value(&mut self, bytes: &[u8]) -> Option<()> {
        self.0.append_value(bytes).ok()
    }

    fn finish(&mut self) -> Option<ArrayRef> {
        Some(Arc::new(self.0.finish()))
    }
}

/// One-dimensional arrays.
struct Lists {
    item: u32,
    items: Box<dyn Decode>,
    /// The number of values in each array.
    lengths: Vec<usize>,
    valid: Vec<bool>,
}

fn part<'b>(bytes: &mut &'b [u8], count: usize) -> Option<&'b [u8]> {
    let (part, rest) = bytes.split_at_checked(count)?;
    *bytes = rest;
    Some(part)
}

fn number(bytes: &mut &[u8]) -> Option<i32> {
    i32_of(part(bytes, 4)?)
}

impl Decode for Lists {
    fn null(&mut self) {
        self.lengths.push(0);
        self.valid.push(false);
    }

    fn value(&mut self, mut bytes: &[u8]) -> Option<()> {
        let dimensions = number(&mut bytes)?;
        let (_flags, item) = (number(&mut bytes)?, number(&mut bytes)? as u32);
        if item != self.item || !(0..=DIMENSIONS_MAX).contains(&dimensions) {
            return None;
        }
        let mut count = 0;
        match dimensions {
            0 => {}
            1 => {
                count = usize::try_from(number(&mut bytes)?).ok()?;
                let _lower_bound = number(&mut bytes)?;
            }
            // PostgreSQL's type does not determine the Arrow type of nested arrays.
            _ => return None,
        }
        // Each value takes at least four bytes.
        if count > bytes.len() / 4 {
            return None;
        }
        for _ in 0..count {
            match number(&mut bytes)? {
                -1 => self.items.null(),
                length => self.items.value(part(&mut bytes, usize::try_from(length).ok()?)?)?,
            }
        }
        if !bytes.is_empty() {
            return None;
        }
        self.lengths.push(count);
        self.valid.push(true);
        Some(())
    }

    fn finish(&mut self) -> Option<ArrayRef> {
        let values = self.items.finish()?;
        let item = Arc::new(Field::new_list_field(values.data_type().clone(), true));
        let offsets = OffsetBuffer::from_lengths(std::mem::take(&mut self.lengths));
        let nulls = NullBuffer::from(std::mem::take(&mut self.valid));
        let nulls = (nulls.null_count() > 0).then_some(nulls);
        Some(Arc::new(ListArray::try_new(item, offsets, values, nulls).ok()?))
    }
}
