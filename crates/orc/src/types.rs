//! Maps Arrow types to ORC types and creates their column writers.

use arrow::datatypes::{DataType, Field, Schema};

use crate::column::{Column, Content};
use crate::error::{Error, Result};
use crate::proto::{Type, TypeKind};

/// Checks that columns can be written.
///
/// Errors: [`Error::Type`].
pub fn check(schema: &Schema) -> Result<()> {
    columns(schema).map(drop)
}

/// The root of a file's columns, and their types in pre-order.
pub(crate) fn columns(schema: &Schema) -> Result<(Column, Vec<Type>)> {
    let mut types = Vec::new();
    let root = column(String::new(), &DataType::Struct(schema.fields().clone()), &mut types)?;
    Ok((root, types))
}

/// `name` is qualified by the parent columns.
fn column(name: String, kind: &DataType, types: &mut Vec<Type>) -> Result<Column> {
    let id = types.len();
    let mut own = Type::default();
    types.push(Type::default());
    let inner =
        |field: &Field, name: &str, types: &mut Vec<Type>| column(name.to_string(), field.data_type(), types);
    let mut children = Vec::new();
    let (orc, content) = match kind {
        DataType::Boolean => (TypeKind::Boolean, Content::booleans()),
        DataType::Int8 => (TypeKind::Byte, Content::bytes()),
        DataType::Int16 | DataType::UInt8 => (TypeKind::Short, Content::integers()),
        DataType::Int32 | DataType::UInt16 => (TypeKind::Int, Content::integers()),
        DataType::Int64 | DataType::UInt32 | DataType::UInt64 => (TypeKind::Long, Content::integers()),
        DataType::Float32 => (TypeKind::Float, Content::floats()),
        DataType::Float64 => (TypeKind::Double, Content::floats()),
        DataType::Decimal32(precision, scale)
        | DataType::Decimal64(precision, scale)
        | DataType::Decimal128(precision, scale)
            if *scale >= 0 && *scale as u8 <= *precision =>
        {
            own.precision = Some(u32::from(*precision));
            own.scale = Some(*scale as u32);
            (TypeKind::Decimal, Content::decimals(*scale as u32))
        }
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => (TypeKind::String, Content::texts()),
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView | DataType::FixedSizeBinary(_) => {
            (TypeKind::Binary, Content::binaries())
        }
        DataType::Date32 => (TypeKind::Date, Content::days()),
        DataType::Timestamp(unit, None) => (TypeKind::Timestamp, Content::times(*unit)),
        DataType::Timestamp(unit, Some(_)) => (TypeKind::TimestampInstant, Content::times(*unit)),
        DataType::Dictionary(_, value) => {
            types.pop();
            return column(name, value, types);
        }
        DataType::Struct(fields) => {
            for field in fields {
                let child = if id == 0 { field.name().clone() } else { format!("{name}.{}", field.name()) };
                children.push(inner(field, &child, types)?);
                own.field_names.push(field.name().clone());
            }
            (TypeKind::Struct, Content::Struct)
        }
        DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _) => {
            children.push(inner(item, &format!("{name}._elem"), types)?);
            (TypeKind::List, Content::lists())
        }
        DataType::Map(entries, _) => {
            let DataType::Struct(fields) = entries.data_type() else {
                return Err(Error::Type { column: name, kind: kind.clone() });
            };
            for (field, part) in fields.iter().zip(["_key", "_value"]) {
                children.push(inner(field, &format!("{name}.{part}"), types)?);
            }
            (TypeKind::Map, Content::maps())
        }
        other => return Err(Error::Type { column: name, kind: other.clone() }),
    };
    own.kind = Some(orc.into());
    own.subtypes = children.iter().map(|child| child.id).collect();
    types[id] = own;
    Ok(Column::new(id as u32, name, content, children))
}
