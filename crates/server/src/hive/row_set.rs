//! `TRowSet`: rows on the wire, in columns, or row by row for clients of old protocol versions.

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use arrow::datatypes::{
    ArrowNativeType, ArrowPrimitiveType, DataType, Field, Float32Type, Float64Type, Int8Type, Int16Type,
    Int32Type, Int64Type, SchemaRef,
};
use bytes::{BufMut, Bytes, BytesMut};
use harrier_error::SqlError;
use harrier_thrift::{ThriftValue, Type};

use super::hive_type::{HiveType, TypeId};
use super::nested_text::NestedText;
use super::value_text::{TextColumn, cast_to};
use crate::pg::zone::Zone;

/// `HIVE_CLI_SERVICE_PROTOCOL_V6`, the first with columns.
const FIRST_WITH_COLUMNS: i64 = 5;

/// The alternatives of the union `TColumn`; those of `TColumnValue` for single values have the same numbers
/// but for bytes, which are a string there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wire {
    Bool = 1,
    Byte = 2,
    I16 = 3,
    I32 = 4,
    I64 = 5,
    Double = 6,
    Text = 7,
    Binary = 8,
}

impl Wire {
    fn of(id: TypeId) -> Self {
        match id {
            TypeId::Boolean => Self::Bool,
            TypeId::TinyInt => Self::Byte,
            TypeId::SmallInt => Self::I16,
            TypeId::Int => Self::I32,
            TypeId::BigInt => Self::I64,
            TypeId::Float | TypeId::Double => Self::Double,
            TypeId::Binary => Self::Binary,
            TypeId::String
            | TypeId::Timestamp
            | TypeId::Array
            | TypeId::Map
            | TypeId::Struct
            | TypeId::Decimal
            | TypeId::Null
            | TypeId::Date
            | TypeId::Varchar
            | TypeId::Char => Self::Text,
        }
    }

    fn item(self) -> Type {
        match self {
            Self::Bool => Type::Bool,
            Self::Byte => Type::Byte,
            Self::I16 => Type::I16,
            Self::I32 => Type::I32,
            Self::I64 => Type::I64,
            Self::Double => Type::Double,
            Self::Text | Self::Binary => Type::Binary,
        }
    }
}

/// Encodes batches, whose first row is number `start`, as a `TRowSet` for clients of this protocol version.
///
/// Errors: a value cannot be sent (XX000).
pub(super) fn row_set(
    schema: &SchemaRef,
    batches: &[RecordBatch],
    start: u64,
    zone: Zone,
    protocol: i64,
) -> Result<ThriftValue, SqlError> {
    let mut columns = Vec::with_capacity(schema.fields().len());
    for (number, field) in schema.fields().iter().enumerate() {
        let arrays: Vec<_> = batches.iter().map(|batch| ArrayRef::clone(batch.column(number))).collect();
        columns.push(column(field, &arrays, zone, protocol < FIRST_WITH_COLUMNS)?);
    }
    let mut fields = vec![(1, ThriftValue::I64(i64::try_from(start).unwrap_or(i64::MAX)))];
    if protocol >= FIRST_WITH_COLUMNS {
        fields.push((2, ThriftValue::EmptyList(Type::Struct)));
        fields.push((3, ThriftValue::List(columns.into_iter().map(Column::into_value).collect())));
    } else {
        let count = batches.iter().map(RecordBatch::num_rows).sum();
        fields.push((2, ThriftValue::List((0..count).map(|row| row_value(&columns, row)).collect())));
    }
    Ok(ThriftValue::Struct(fields))
}

/// An encoded column.
struct Column {
    wire: Wire,
    /// The values, one after the other.
    values: Bytes,
    rows: usize,
    /// Where each value begins, for rows.
    starts: Option<Vec<usize>>,
    /// Bits of rows that are NULL, the lowest first.
    nulls: Bytes,
}

impl Column {
    fn into_value(self) -> ThriftValue {
        let mut list = BytesMut::with_capacity(self.values.len() + 5);
        list.put_u8(self.wire.item() as u8);
        list.put_i32(self.rows as i32);
        list.put_slice(&self.values);
        let column = ThriftValue::Struct(vec![
            (1, ThriftValue::Encoded(Type::List, list.freeze())),
            (2, ThriftValue::Binary(self.nulls)),
        ]);
        ThriftValue::Struct(vec![(self.wire as i16, column)])
    }

    /// The encoded value of a row; none without starts.
    fn value(&self, row: usize) -> Bytes {
        let starts = self.starts.as_deref().unwrap_or_default();
        let start = starts.get(row).copied().unwrap_or(self.values.len());
        self.values.slice(start..starts.get(row + 1).copied().unwrap_or(self.values.len()))
    }

    fn is_null(&self, row: usize) -> bool {
        self.nulls[row / 8] >> (row % 8) & 1 == 1
    }
}

/// A `TRow`.
fn row_value(columns: &[Column], row: usize) -> ThriftValue {
    let value = |column: &Column| {
        let wire = if column.wire == Wire::Binary { Wire::Text } else { column.wire };
        let fields = if column.is_null(row) {
            Vec::new()
        } else {
            vec![(1, ThriftValue::Encoded(wire.item(), column.value(row)))]
        };
        ThriftValue::Struct(vec![(wire as i16, ThriftValue::Struct(fields))])
    };
    ThriftValue::Struct(vec![(1, ThriftValue::List(columns.iter().map(value).collect()))])
}

fn column(field: &Field, arrays: &[ArrayRef], zone: Zone, has_starts: bool) -> Result<Column, SqlError> {
    let (field, arrays) = flat(field, arrays)?;
    let wire = Wire::of(HiveType::of(&field).id);
    let rows = arrays.iter().map(|array| array.len()).sum();
    let mut values = BytesMut::new();
    let mut starts = has_starts.then(|| Vec::with_capacity(rows));
    // One byte at least, as Hive sends.
    let mut nulls = vec![0; rows.div_ceil(8).max(1)];
    let mut row = 0;
    for array in &arrays {
        let logical = array.logical_nulls();
        for at in (0..array.len()).filter(|at| logical.as_ref().is_some_and(|nulls| nulls.is_null(*at))) {
            nulls[(row + at) / 8] |= 1 << ((row + at) % 8);
        }
        row += array.len();
        write(&field, array, wire, zone, &mut values, &mut starts)?;
    }
    Ok(Column { wire, values: values.freeze(), rows, starts, nulls: nulls.into() })
}

/// Expands dictionaries, and texts that are views or have wide offsets.
fn flat(field: &Field, arrays: &[ArrayRef]) -> Result<(Field, Vec<ArrayRef>), SqlError> {
    let wanted = match field.data_type() {
        DataType::Dictionary(_, values) => {
            let arrays = arrays.iter().map(|array| cast_to(array, values)).collect::<Result<Vec<_>, _>>()?;
            return flat(&field.clone().with_data_type(values.as_ref().clone()), &arrays);
        }
        DataType::Utf8View | DataType::LargeUtf8 => DataType::Utf8,
        DataType::FixedSizeBinary(_) if super::hive_type::is_uuid(field) => field.data_type().clone(),
        DataType::BinaryView | DataType::LargeBinary | DataType::FixedSizeBinary(_) => DataType::Binary,
        other => other.clone(),
    };
    let arrays = arrays.iter().map(|array| cast_to(array, &wanted)).collect::<Result<_, _>>()?;
    Ok((field.clone().with_data_type(wanted), arrays))
}

/// Appends the values of an array; zero, or an empty text, for NULL.
fn write(
    field: &Field,
    array: &ArrayRef,
    wire: Wire,
    zone: Zone,
    out: &mut BytesMut,
    starts: &mut Option<Vec<usize>>,
) -> Result<(), SqlError> {
    match wire {
        Wire::Bool => {
            let values = array.as_boolean();
            each(array, out, starts, |row, out| out.put_u8(u8::from(values.value(row))), |out| out.put_u8(0));
        }
        Wire::Byte => numbers::<Int8Type>(array, out, starts, |value, out| out.put_i8(value))?,
        Wire::I16 => numbers::<Int16Type>(array, out, starts, |value, out| out.put_i16(value))?,
        Wire::I32 => numbers::<Int32Type>(array, out, starts, |value, out| out.put_i32(value))?,
        Wire::I64 => numbers::<Int64Type>(array, out, starts, |value, out| out.put_i64(value))?,
        Wire::Double if matches!(field.data_type(), DataType::Float64) => {
            numbers::<Float64Type>(array, out, starts, |value, out| out.put_f64(value))?;
        }
        // The double with the same text, as in Hive, so that 0.1 stays 0.1.
        Wire::Double => numbers::<Float32Type>(array, out, starts, |value, out| {
            out.put_f64(value.to_string().parse().unwrap_or(f64::from(value)));
        })?,
        Wire::Binary => {
            let values = array.as_binary::<i32>();
            let value = |row, out: &mut BytesMut| {
                let value: &[u8] = values.value(row);
                out.put_i32(value.len() as i32);
                out.put_slice(value);
            };
            each(array, out, starts, value, |out| out.put_i32(0));
        }
        Wire::Text if field.data_type().is_nested() => {
            let nested = NestedText::new(field, array, zone)?;
            texts(array, out, starts, |row, out| nested.write(row, out));
        }
        Wire::Text => {
            let column = TextColumn::new(field, array, zone)?;
            texts(array, out, starts, |row, out| column.write(row, out));
        }
    }
    Ok(())
}

fn each(
    array: &ArrayRef,
    out: &mut BytesMut,
    starts: &mut Option<Vec<usize>>,
    value: impl Fn(usize, &mut BytesMut),
    null: impl Fn(&mut BytesMut),
) {
    let is_all_null = array.data_type().is_null();
    for row in 0..array.len() {
        if let Some(starts) = starts {
            starts.push(out.len());
        }
        if is_all_null || array.is_null(row) { null(out) } else { value(row, out) }
    }
}

fn texts(
    array: &ArrayRef,
    out: &mut BytesMut,
    starts: &mut Option<Vec<usize>>,
    value: impl Fn(usize, &mut BytesMut),
) {
    let text = |row, out: &mut BytesMut| {
        let start = out.len();
        out.put_i32(0);
        value(row, out);
        let length = (out.len() - start - 4) as i32;
        out[start..start + 4].copy_from_slice(&length.to_be_bytes());
    };
    each(array, out, starts, text, |out| out.put_i32(0));
}

fn numbers<T: ArrowPrimitiveType>(
    array: &ArrayRef,
    out: &mut BytesMut,
    starts: &mut Option<Vec<usize>>,
    put: impl Fn(T::Native, &mut BytesMut),
) -> Result<(), SqlError> {
    let array = cast_to(array, &T::DATA_TYPE)?;
    let values = array.as_primitive::<T>();
    out.reserve(values.len() * T::Native::get_byte_width());
    if starts.is_none() && values.null_count() == 0 {
        values.values().iter().for_each(|value| put(*value, out));
        return Ok(());
    }
    each(&array, out, starts, |row, out| put(values.value(row), out), |out| put(T::default_value(), out));
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{BooleanArray, Decimal128Array, DictionaryArray, Float32Array, Int64Array, NullArray};
    use arrow::array::{StringArray, StringViewArray, TimestampMicrosecondArray};
    use harrier_thrift::{DecodeLimits, Message};

    use super::*;

    const V6: i64 = 5;

    /// Encodes, and decodes as a client does.
    fn row_set_of(columns: Vec<(&str, ArrayRef)>, protocol: i64) -> ThriftValue {
        let columns = columns.into_iter().map(|(name, array)| (name, array, true));
        let batch = RecordBatch::try_from_iter_with_nullable(columns).unwrap();
        // In two parts, the second one sliced.
        let parts = [batch.slice(0, 1), batch.slice(1, batch.num_rows() - 1)];
        let zone = Zone::from_name("Asia/Kolkata");
        let rows = row_set(&batch.schema(), &parts, 7, zone, protocol).unwrap();
        let mut out = BytesMut::new();
        Message::call("m", 0, rows).encode(&mut out);
        Message::decode(&out, DecodeLimits { bytes: 1 << 20, values: 1 << 16 }).unwrap().0.request()
    }

    fn column_of(rows: &ThriftValue, number: usize, alternative: i16) -> (Vec<ThriftValue>, Bytes) {
        let column =
            rows.field(3).unwrap().items()[number].field(alternative).expect("the alternative").clone();
        (column.field(1).unwrap().items().to_vec(), column.field(2).unwrap().bytes().unwrap().clone())
    }

    #[test]
    fn columns_are_sent_with_their_nulls() {
        let days = TimestampMicrosecondArray::from(vec![Some(0), None, Some(1_500_000)]);
        let rows = row_set_of(
            vec![
                ("i", Arc::new(Int64Array::from(vec![Some(1), None, Some(-3)]))),
                ("b", Arc::new(BooleanArray::from(vec![true, false, true]))),
                ("f", Arc::new(Float32Array::from(vec![0.1, 1.0, f32::INFINITY]))),
                ("s", Arc::new(StringViewArray::from(vec![Some("a"), None, Some("")]))),
                ("n", Arc::new(NullArray::new(3))),
                (
                    "d",
                    Arc::new(Decimal128Array::from(vec![150, -5, 0]).with_precision_and_scale(9, 2).unwrap()),
                ),
                ("t", Arc::new(days.clone())),
                ("z", Arc::new(days.with_timezone("UTC"))),
                ("k", Arc::new(["x", "y", "x"].into_iter().collect::<DictionaryArray<Int32Type>>())),
            ],
            V6,
        );
        assert_eq!(rows.field(1), Some(&ThriftValue::I64(7)));
        let (values, nulls) = column_of(&rows, 0, 5);
        assert_eq!(
            (values, &nulls[..]),
            (vec![ThriftValue::I64(1), ThriftValue::I64(0), ThriftValue::I64(-3)], &[0b010][..])
        );
        assert_eq!(column_of(&rows, 1, 1).0, [true, false, true].map(ThriftValue::Bool));
        assert_eq!(column_of(&rows, 2, 6).0, [0.1, 1.0, f64::INFINITY].map(ThriftValue::Double));
        let texts = |texts: [&str; 3]| texts.map(ThriftValue::text).to_vec();
        assert_eq!(column_of(&rows, 3, 7), (texts(["a", "", ""]), Bytes::from_static(&[0b010])));
        assert_eq!(column_of(&rows, 4, 7), (texts(["", "", ""]), Bytes::from_static(&[0b111])));
        assert_eq!(column_of(&rows, 5, 7).0, texts(["1.50", "-0.05", "0.00"]));
        assert_eq!(column_of(&rows, 6, 7).0, texts(["1970-01-01 00:00:00", "", "1970-01-01 00:00:01.5"]));
        assert_eq!(column_of(&rows, 7, 7).0, texts(["1970-01-01 05:30:00", "", "1970-01-01 05:30:01.5"]));
        assert_eq!(column_of(&rows, 8, 7).0, texts(["x", "y", "x"]));
    }

    #[test]
    fn old_clients_get_rows() {
        let rows = row_set_of(
            vec![
                ("i", Arc::new(Int64Array::from(vec![Some(1), None]))),
                ("s", Arc::new(StringArray::from(vec!["a", "bc"]))),
            ],
            0,
        );
        let cells = |row: usize| rows.field(2).unwrap().items()[row].field(1).unwrap().items().to_vec();
        assert_eq!(cells(0)[0].field(5).unwrap().field(1), Some(&ThriftValue::I64(1)));
        assert_eq!(cells(1)[0].field(5).unwrap().field(1), None);
        assert_eq!(cells(0)[1].field(7).unwrap().field(1), Some(&ThriftValue::text("a")));
        assert_eq!(cells(1)[1].field(7).unwrap().field(1), Some(&ThriftValue::text("bc")));
    }
}
