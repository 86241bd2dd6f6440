//! Arrays, maps and structs as text, in the form of Hive's `DelimitedJSONSerDe`: JSON, but for bytes and
//! numbers that are not finite.

use arrow::array::{Array, ArrayRef, AsArray, OffsetSizeTrait};
use arrow::buffer::OffsetBuffer;
use arrow::datatypes::{DataType, Field};
use bytes::{BufMut, BytesMut};
use harrier_error::SqlError;

use super::value_text::{TextColumn, cast_to};
use crate::pg::zone::Zone;

/// A column of nested values, or of values inside of them.
pub(super) struct NestedText {
    array: ArrayRef,
    kind: Kind,
}

enum Kind {
    List {
        offsets: Vec<usize>,
        items: Box<NestedText>,
    },
    Map {
        offsets: Vec<usize>,
        keys: Box<NestedText>,
        values: Box<NestedText>,
    },
    Struct(Vec<(String, NestedText)>),
    Bytes,
    /// In quotes, and escaped.
    Quoted(TextColumn),
    Plain(TextColumn),
}

impl NestedText {
    pub fn new(field: &Field, array: &ArrayRef, zone: Zone) -> Result<Self, SqlError> {
        let kind = match field.data_type() {
            DataType::List(item) => {
                let list = array.as_list::<i32>();
                Self::list(item, list.offsets(), list.values(), zone)?
            }
            DataType::LargeList(item) => {
                let list = array.as_list::<i64>();
                Self::list(item, list.offsets(), list.values(), zone)?
            }
            DataType::FixedSizeList(item, _) | DataType::ListView(item) | DataType::LargeListView(item) => {
                let wanted = DataType::LargeList(item.clone());
                let field = field.clone().with_data_type(wanted.clone());
                return Self::new(&field, &cast_to(array, &wanted)?, zone);
            }
            DataType::Map(..) => {
                let map = array.as_map();
                let fields = map.entries().fields();
                let keys = Box::new(Self::new(&fields[0], &slice(map.keys(), map.offsets()), zone)?);
                let values = Box::new(Self::new(&fields[1], &slice(map.values(), map.offsets()), zone)?);
                Kind::Map { offsets: positions(map.offsets()), keys, values }
            }
            DataType::Struct(fields) => {
                let columns = array.as_struct().columns();
                let columns = fields
                    .iter()
                    .zip(columns)
                    .map(|(field, column)| Ok((field.name().clone(), Self::new(field, column, zone)?)));
                Kind::Struct(columns.collect::<Result<_, SqlError>>()?)
            }
            DataType::Dictionary(_, values) => {
                let field = field.clone().with_data_type(values.as_ref().clone());
                return Self::new(&field, &cast_to(array, values)?, zone);
            }
            DataType::Binary
            | DataType::LargeBinary
            | DataType::BinaryView
            | DataType::FixedSizeBinary(_)
                if !super::hive_type::is_uuid(field) =>
            {
                let array = cast_to(array, &DataType::Binary)?;
                return Ok(Self { array, kind: Kind::Bytes });
            }
            kind => {
                let is_plain = kind.is_numeric() || matches!(kind, DataType::Boolean | DataType::Null);
                let column = TextColumn::new(field, array, zone)?;
                if is_plain { Kind::Plain(column) } else { Kind::Quoted(column) }
            }
        };
        Ok(Self { array: ArrayRef::clone(array), kind })
    }

    fn list<O: OffsetSizeTrait>(
        item: &Field,
        offsets: &OffsetBuffer<O>,
        values: &ArrayRef,
        zone: Zone,
    ) -> Result<Kind, SqlError> {
        let items = Box::new(Self::new(item, &slice(values, offsets), zone)?);
        Ok(Kind::List { offsets: positions(offsets), items })
    }

    pub fn write(&self, row: usize, out: &mut BytesMut) {
        if self.array.is_null(row) || self.array.data_type().is_null() {
            return out.put_slice(b"null");
        }
        match &self.kind {
            Kind::List { offsets, items } => {
                out.put_u8(b'[');
                for at in offsets[row]..offsets[row + 1] {
                    if at > offsets[row] {
                        out.put_u8(b',');
                    }
                    items.write(at, out);
                }
                out.put_u8(b']');
            }
            Kind::Map { offsets, keys, values } => {
                out.put_u8(b'{');
                for at in offsets[row]..offsets[row + 1] {
                    if at > offsets[row] {
                        out.put_u8(b',');
                    }
                    keys.write(at, out);
                    out.put_u8(b':');
                    values.write(at, out);
                }
                out.put_u8(b'}');
            }
            Kind::Struct(columns) => {
                out.put_u8(b'{');
                for (number, (name, column)) in columns.iter().enumerate() {
                    if number > 0 {
                        out.put_u8(b',');
                    }
                    write_quoted(out, name);
                    out.put_u8(b':');
                    column.write(row, out);
                }
                out.put_u8(b'}');
            }
            Kind::Bytes => {
                let bytes = self.array.as_binary::<i32>().value(row);
                out.put_slice(String::from_utf8_lossy(bytes).as_bytes());
            }
            Kind::Quoted(column) => {
                let mut value = BytesMut::new();
                column.write(row, &mut value);
                write_quoted(out, &String::from_utf8_lossy(&value));
            }
            Kind::Plain(column) => column.write(row, out),
        }
    }
}

/// Where the values of each row begin and end in what [`slice`] gives.
fn positions<O: OffsetSizeTrait>(offsets: &OffsetBuffer<O>) -> Vec<usize> {
    let first = offsets[0].as_usize();
    offsets.iter().map(|offset| offset.as_usize() - first).collect()
}

/// The values that these rows have: others of the array need no cast.
fn slice<O: OffsetSizeTrait>(values: &ArrayRef, offsets: &OffsetBuffer<O>) -> ArrayRef {
    let (first, end) = (offsets[0].as_usize(), offsets[offsets.len() - 1].as_usize());
    values.slice(first, end - first)
}

/// Writes a JSON string.
fn write_quoted(out: &mut BytesMut, text: &str) {
    out.put_u8(b'"');
    for character in text.chars() {
        match character {
            '"' => out.put_slice(b"\\\""),
            '\\' => out.put_slice(b"\\\\"),
            '\n' => out.put_slice(b"\\n"),
            '\r' => out.put_slice(b"\\r"),
            '\t' => out.put_slice(b"\\t"),
            '\u{8}' => out.put_slice(b"\\b"),
            '\u{c}' => out.put_slice(b"\\f"),
            control if u32::from(control) < 0x20 => {
                out.put_slice(format!("\\u{:04x}", u32::from(control)).as_bytes());
            }
            other => out.put_slice(other.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    out.put_u8(b'"');
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{BinaryArray, Int32Builder, RecordBatch};
    use arrow::array::{
        Float64Array, Int32Array, ListArray, MapBuilder, StringArray, StringBuilder, StructArray,
    };
    use arrow::datatypes::Int32Type;

    use super::*;

    fn texts(array: ArrayRef) -> Vec<String> {
        let batch = RecordBatch::try_from_iter_with_nullable([("c", array, true)]).unwrap();
        let field = batch.schema().field(0).clone();
        let nested = NestedText::new(&field, batch.column(0), Zone::from_name("UTC")).unwrap();
        let text = |row| {
            let mut out = BytesMut::new();
            nested.write(row, &mut out);
            String::from_utf8(out.to_vec()).unwrap()
        };
        (0..batch.num_rows()).map(text).collect()
    }

    #[test]
    fn nested_values_are_json() {
        let lists = ListArray::from_iter_primitive::<Int32Type, _, _>([
            Some(vec![Some(1), None, Some(3)]),
            None,
            Some(vec![]),
        ]);
        assert_eq!(texts(Arc::new(lists.clone())), ["[1,null,3]", "null", "[]"]);
        assert_eq!(texts(Arc::new(lists.slice(1, 2))), ["null", "[]"]);
        let structs = StructArray::from(vec![
            (
                Arc::new(Field::new("x", DataType::Int32, true)),
                Arc::new(Int32Array::from(vec![1])) as ArrayRef,
            ),
            (
                Arc::new(Field::new("y", DataType::Utf8, true)),
                Arc::new(StringArray::from(vec!["a\"b\\c\n\u{1}"])),
            ),
            (Arc::new(Field::new("z", DataType::Binary, true)), Arc::new(BinaryArray::from_vec(vec![b"b"]))),
            (Arc::new(Field::new("d", DataType::Float64, true)), Arc::new(Float64Array::from(vec![2.0]))),
        ]);
        assert_eq!(texts(Arc::new(structs)), [r#"{"x":1,"y":"a\"b\\c\n\u0001","z":b,"d":2.0}"#]);
        let mut maps = MapBuilder::new(None, StringBuilder::new(), Int32Builder::new());
        maps.keys().append_value("k");
        maps.values().append_value(1);
        maps.append(true).unwrap();
        assert_eq!(texts(Arc::new(maps.finish())), [r#"{"k":1}"#]);
    }
}
