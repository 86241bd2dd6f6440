//! Schema merging for tables with files of several writers: each column gets one type for the values of all
//! files.
//!
//! Merging is lossless except for two pairs: integers beyond 2^53 are rounded if another file has
//! floating-point numbers, as in every SQL expression with both, and timestamps outside the range of
//! nanoseconds (before 1677, after 2262) are an error if another file has nanoseconds.
//!
//! | types | merged type |
//! |---|---|
//! | texts of several layouts, and dictionaries of them | text; views, if one file has them |
//! | bytes of several layouts | bytes, likewise |
//! | integers of several widths | the smallest width that holds all |
//! | integers and floating-point numbers | `DOUBLE` |
//! | decimals | the most digits before and after the point |
//! | timestamps of one zone | the finest unit |
//! | NULL and any other | the other |
//! | lists and structs | merged element and field types |
//!
//! A column that a file lacks is NULL there. Arrow's own merge handles only equal types and NULL.

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Fields, Schema, TimeUnit};
use datafusion::common::Result;

use harrier_error::{SqlError, SqlState};

/// The most digits of 128-bit and 256-bit decimals.
const DECIMAL_DIGITS_MAX: [u8; 2] = [38, 76];

/// Digits of a 64-bit integer.
const WHOLE_DIGITS: u8 = 20;

/// Merges schemas, with the columns of the first one in front.
///
/// Errors: a column has incompatible types (42804).
pub(crate) fn merge(schemas: impl IntoIterator<Item = Schema>) -> Result<Schema> {
    let mut schemas = schemas.into_iter();
    let Some(first) = schemas.next() else { return Ok(Schema::empty()) };
    let mut metadata = first.metadata;
    let mut fields: Vec<FieldRef> = first.fields.iter().map(Arc::clone).collect();
    for schema in schemas {
        fields = merge_fields(fields, &schema.fields)
            .map_err(|name| {
                let message =
                    format!("column \"{name}\" has types in the files of a table that are not of one kind");
                SqlError::new(SqlState::DATATYPE_MISMATCH, message)
            })
            .map_err(harrier_sqlstate::external)?;
        for (key, value) in schema.metadata {
            metadata.entry(key).or_insert(value);
        }
    }
    Ok(Schema::new_with_metadata(fields, metadata))
}

/// Errors: the name of a field with incompatible types.
fn merge_fields(mut fields: Vec<FieldRef>, others: &Fields) -> std::result::Result<Vec<FieldRef>, String> {
    let mut places: HashMap<String, usize> = HashMap::with_capacity(fields.len());
    for (at, field) in fields.iter().enumerate() {
        places.entry(field.name().clone()).or_insert(at);
    }
    let mut is_in_both = vec![false; fields.len()];
    for other in others {
        match places.get(other.name()) {
            Some(at) => {
                let merged = merge_field(&fields[*at], other).ok_or_else(|| other.name().clone())?;
                fields[*at] = Arc::new(merged);
                is_in_both[*at] = true;
            }
            None => {
                places.insert(other.name().clone(), fields.len());
                fields.push(Arc::clone(other));
                is_in_both.push(false);
            }
        }
    }
    for (field, is_in_both) in fields.iter_mut().zip(is_in_both) {
        if !is_in_both {
            *field = nullable(field);
        }
    }
    Ok(fields)
}

/// The same field, nullable.
pub(crate) fn nullable(field: &FieldRef) -> FieldRef {
    match field.is_nullable() {
        true => Arc::clone(field),
        false => Arc::new(field.as_ref().clone().with_nullable(true)),
    }
}

fn merge_field(one: &Field, other: &Field) -> Option<Field> {
    let kind = common_type(one.data_type(), other.data_type())?;
    let is_nullable = one.is_nullable() || other.is_nullable();
    Some(one.clone().with_data_type(kind).with_nullable(is_nullable))
}

/// The common type of both; `None`: there is none.
fn common_type(one: &DataType, other: &DataType) -> Option<DataType> {
    use DataType as T;
    Some(match (one, other) {
        _ if one == other => one.clone(),
        (T::Null, kind) | (kind, T::Null) => kind.clone(),
        (T::Dictionary(_, one), T::Dictionary(_, other)) => common_type(one, other)?,
        (T::Dictionary(_, values), kind) | (kind, T::Dictionary(_, values)) => common_type(values, kind)?,
        _ if one.is_string() && other.is_string() => match (one, other) {
            (T::Utf8View, _) | (_, T::Utf8View) => T::Utf8View,
            _ => T::LargeUtf8,
        },
        _ if one.is_binary() && other.is_binary() => match (one, other) {
            (T::BinaryView, _) | (_, T::BinaryView) => T::BinaryView,
            (T::FixedSizeBinary(_), kind) | (kind, T::FixedSizeBinary(_))
                if !matches!(kind, T::LargeBinary) =>
            {
                T::Binary
            }
            _ => T::LargeBinary,
        },
        _ if one.is_integer() && other.is_integer() => common_integer(one, other)?,
        _ if one.is_numeric() && other.is_numeric() => match (decimal(one), decimal(other)) {
            _ if one.is_floating() || other.is_floating() => T::Float64,
            (Some(one), Some(other)) => common_decimal(one, other)?,
            _ => return None,
        },
        (T::Timestamp(unit, zone), T::Timestamp(other, same)) if zone == same => {
            T::Timestamp(finest(*unit, *other), zone.clone())
        }
        (T::Date32, T::Date64) | (T::Date64, T::Date32) => T::Date64,
        (T::List(one), T::List(other)) => T::List(Arc::new(merge_field(one, other)?)),
        (T::List(one) | T::LargeList(one), T::List(other) | T::LargeList(other)) => {
            T::LargeList(Arc::new(merge_field(one, other)?))
        }
        (T::Struct(one), T::Struct(other)) => {
            T::Struct(merge_fields(one.iter().map(Arc::clone).collect(), other).ok()?.into())
        }
        _ => return None,
    })
}

fn common_integer(one: &DataType, other: &DataType) -> Option<DataType> {
    let bits = |kind: &DataType| kind.primitive_width().map(|bytes| 8 * bytes);
    let (mut width, is_signed) = (bits(one)?.max(bits(other)?), |kind: &DataType| kind.is_signed_integer());
    if is_signed(one) != is_signed(other) {
        let unsigned = if is_signed(one) { other } else { one };
        // One more bit for the sign.
        width = width.max(2 * bits(unsigned)?);
    }
    Some(match (is_signed(one) || is_signed(other), width) {
        (true, 8) => DataType::Int8,
        (true, 16) => DataType::Int16,
        (true, 32) => DataType::Int32,
        (true, 64) => DataType::Int64,
        (true, _) => DataType::Decimal128(WHOLE_DIGITS, 0),
        (false, 8) => DataType::UInt8,
        (false, 16) => DataType::UInt16,
        (false, 32) => DataType::UInt32,
        (false, _) => DataType::UInt64,
    })
}

/// Precision and scale of a decimal or an integer.
fn decimal(kind: &DataType) -> Option<(u8, i8)> {
    match kind {
        DataType::Decimal32(digits, scale)
        | DataType::Decimal64(digits, scale)
        | DataType::Decimal128(digits, scale)
        | DataType::Decimal256(digits, scale) => Some((*digits, *scale)),
        kind if kind.is_integer() => Some((WHOLE_DIGITS, 0)),
        _ => None,
    }
}

fn common_decimal((one, one_scale): (u8, i8), (other, other_scale): (u8, i8)) -> Option<DataType> {
    let scale = one_scale.max(other_scale);
    let before = |digits: u8, scale: i8| i32::from(digits) - i32::from(scale);
    let digits = before(one, one_scale).max(before(other, other_scale)) + i32::from(scale);
    let digits = u8::try_from(digits).ok()?;
    let [narrow, wide] = DECIMAL_DIGITS_MAX;
    match digits {
        _ if digits <= narrow => Some(DataType::Decimal128(digits, scale)),
        _ if digits <= wide => Some(DataType::Decimal256(digits, scale)),
        _ => None,
    }
}

fn finest(one: TimeUnit, other: TimeUnit) -> TimeUnit {
    let order = [TimeUnit::Nanosecond, TimeUnit::Microsecond, TimeUnit::Millisecond];
    order.into_iter().find(|unit| [one, other].contains(unit)).unwrap_or(TimeUnit::Second)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dictionary(values: DataType) -> DataType {
        DataType::Dictionary(Box::new(DataType::Int32), Box::new(values))
    }

    #[test]
    fn types_fit_all_values() {
        use DataType as T;
        let second = T::Timestamp(TimeUnit::Second, None);
        let micros = T::Timestamp(TimeUnit::Microsecond, None);
        let list = |kind: T| T::List(Arc::new(Field::new("item", kind, true)));
        let field = |name: &str, kind: T| Field::new(name, kind, true);
        for (one, other, expected) in [
            (T::Utf8, T::LargeUtf8, T::LargeUtf8),
            (dictionary(T::Utf8), T::Utf8View, T::Utf8View),
            (dictionary(T::Utf8), T::Utf8, T::Utf8),
            (T::Null, T::Date32, T::Date32),
            (T::Int16, T::Int64, T::Int64),
            (T::UInt8, T::Int8, T::Int16),
            (T::UInt32, T::Int8, T::Int64),
            (T::UInt64, T::Int8, T::Decimal128(20, 0)),
            (T::UInt16, T::UInt64, T::UInt64),
            (T::Int32, T::Float32, T::Float64),
            (T::Decimal128(10, 2), T::Decimal128(9, 4), T::Decimal128(12, 4)),
            (T::Decimal128(38, 0), T::Decimal128(38, 10), T::Decimal256(48, 10)),
            (T::Decimal128(10, 2), T::Int32, T::Decimal128(22, 2)),
            (second, micros.clone(), micros),
            (T::FixedSizeBinary(4), T::Binary, T::Binary),
            (list(T::Int8), list(T::Int32), list(T::Int32)),
            (
                T::Struct(vec![field("a", T::Int8)].into()),
                T::Struct(vec![field("b", T::Utf8), field("a", T::Int16)].into()),
                T::Struct(vec![field("a", T::Int16), field("b", T::Utf8)].into()),
            ),
        ] {
            assert_eq!(common_type(&one, &other), Some(expected.clone()), "{one} {other}");
            if !matches!(expected, T::Struct(_)) {
                assert_eq!(common_type(&other, &one), Some(expected), "{other} {one}");
            }
        }
        let zoned = T::Timestamp(TimeUnit::Second, Some("UTC".into()));
        for (one, other) in [
            (T::Utf8, T::Int32),
            (T::Boolean, T::Int8),
            (T::Date32, T::Utf8),
            (zoned, T::Timestamp(TimeUnit::Second, None)),
        ] {
            assert_eq!(common_type(&one, &other), None, "{one} {other}");
        }
    }

    #[test]
    fn merged_schemas_have_columns_of_all_files() {
        let schema = |fields: &[(&str, DataType, bool)]| {
            let fields =
                fields.iter().map(|(name, kind, nullable)| Field::new(*name, kind.clone(), *nullable));
            Schema::new(fields.collect::<Vec<_>>())
        };
        let one = schema(&[("a", DataType::Int32, false), ("b", DataType::Utf8, false)]);
        let other = schema(&[("c", DataType::Date32, true), ("a", DataType::Int64, true)]);
        let expected = schema(&[
            ("a", DataType::Int64, true),
            ("b", DataType::Utf8, true),
            ("c", DataType::Date32, true),
        ]);
        assert_eq!(merge([one.clone(), other]).unwrap(), expected);
        let wrong = schema(&[("b", DataType::Boolean, true)]);
        assert_eq!(harrier_sqlstate::of(&merge([one, wrong]).unwrap_err()).as_str(), "42804");
    }
}
