//! Hive's types, and which of them an Arrow type is sent as.

use arrow::datatypes::{DataType, Field, Fields, IntervalUnit};
use harrier_thrift::ThriftValue;

use crate::pg::types::TYPE_KEY;

/// `TTypeId`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
pub(super) enum TypeId {
    Boolean = 0,
    TinyInt = 1,
    SmallInt = 2,
    Int = 3,
    BigInt = 4,
    Float = 5,
    Double = 6,
    String = 7,
    Timestamp = 8,
    Binary = 9,
    Array = 10,
    Map = 11,
    Struct = 12,
    Decimal = 15,
    Null = 16,
    Date = 17,
    Varchar = 18,
    Char = 19,
}

/// The type of a column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct HiveType {
    pub id: TypeId,
    /// Precision and scale of a decimal.
    pub decimal: Option<(u8, i8)>,
    /// Characters of a varchar or char.
    length: Option<i32>,
    /// As in DDL: `array<int>`.
    pub name: String,
}

/// Maximum digits of Hive's decimals.
const PRECISION_MAX: u8 = 38;

/// Whether values are UUIDs.
pub(super) fn is_uuid(field: &Field) -> bool {
    matches!(field.data_type(), DataType::FixedSizeBinary(16))
        && field.extension_type_name() == Some("arrow.uuid")
}

impl HiveType {
    pub fn of(field: &Field) -> Self {
        Self::of_name(field).unwrap_or_else(|| Self::of_data_type(field))
    }

    /// The type that a field's metadata names, where its Arrow type is wider.
    fn of_name(field: &Field) -> Option<Self> {
        let name = field.metadata().get(TYPE_KEY)?;
        let of = |id, length, name: String| Some(Self { id, decimal: None, length, name });
        match (name.as_str(), field.data_type()) {
            ("int2", DataType::Int32 | DataType::Int64) => of(TypeId::SmallInt, None, "smallint".to_string()),
            ("int4", DataType::Int64) => of(TypeId::Int, None, "int".to_string()),
            (name, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View) => {
                let (name, size) = name.split_once('(')?;
                let length: i32 = size.strip_suffix(')')?.parse().ok()?;
                match name {
                    "varchar" => of(TypeId::Varchar, Some(length), format!("varchar({length})")),
                    "bpchar" => of(TypeId::Char, Some(length), format!("char({length})")),
                    _ => None,
                }
            }
            _ => None,
        }
    }

    fn of_data_type(field: &Field) -> Self {
        let simple =
            |id: TypeId, name: &str| Self { id, decimal: None, length: None, name: name.to_string() };
        match field.data_type() {
            DataType::Null => simple(TypeId::Null, "void"),
            DataType::Boolean => simple(TypeId::Boolean, "boolean"),
            DataType::Int8 => simple(TypeId::TinyInt, "tinyint"),
            DataType::Int16 | DataType::UInt8 => simple(TypeId::SmallInt, "smallint"),
            DataType::Int32 | DataType::UInt16 => simple(TypeId::Int, "int"),
            DataType::Int64 | DataType::UInt32 => simple(TypeId::BigInt, "bigint"),
            DataType::UInt64 => Self::decimal(20, 0),
            DataType::Float16 | DataType::Float32 => simple(TypeId::Float, "float"),
            DataType::Float64 => simple(TypeId::Double, "double"),
            DataType::Decimal32(precision, scale)
            | DataType::Decimal64(precision, scale)
            | DataType::Decimal128(precision, scale)
            | DataType::Decimal256(precision, scale) => Self::decimal(*precision, *scale),
            DataType::Date32 | DataType::Date64 => simple(TypeId::Date, "date"),
            DataType::Timestamp(..) => simple(TypeId::Timestamp, "timestamp"),
            DataType::FixedSizeBinary(_) if is_uuid(field) => simple(TypeId::String, "string"),
            DataType::Binary
            | DataType::LargeBinary
            | DataType::BinaryView
            | DataType::FixedSizeBinary(_) => simple(TypeId::Binary, "binary"),
            DataType::List(item)
            | DataType::LargeList(item)
            | DataType::FixedSizeList(item, _)
            | DataType::ListView(item)
            | DataType::LargeListView(item) => {
                simple(TypeId::Array, &format!("array<{}>", Self::of(item).name))
            }
            DataType::Struct(fields) => simple(TypeId::Struct, &structure(fields)),
            DataType::Map(entries, _) => match entries.data_type() {
                DataType::Struct(pair) if pair.len() == 2 => simple(
                    TypeId::Map,
                    &format!("map<{},{}>", Self::of(&pair[0]).name, Self::of(&pair[1]).name),
                ),
                _ => simple(TypeId::String, "string"),
            },
            DataType::Dictionary(_, values) => Self::of(&Field::new("", values.as_ref().clone(), true)),
            // Their text is PostgreSQL's: Hive has no intervals of months, days and microseconds at once.
            DataType::Interval(
                IntervalUnit::YearMonth | IntervalUnit::DayTime | IntervalUnit::MonthDayNano,
            )
            | _ => simple(TypeId::String, "string"),
        }
    }

    fn decimal(precision: u8, scale: i8) -> Self {
        if precision > PRECISION_MAX || scale < 0 {
            // More digits than a client's type has.
            return Self { id: TypeId::String, decimal: None, length: None, name: "string".to_string() };
        }
        let name = format!("decimal({precision},{scale})");
        Self { id: TypeId::Decimal, decimal: Some((precision, scale)), length: None, name }
    }

    /// A `TTypeDesc` of one primitive entry, also for nested types: Hive's JDBC driver reads no other.
    pub fn description(&self) -> ThriftValue {
        let qualifier =
            |name, value| (ThriftValue::text(name), ThriftValue::Struct(vec![(1, ThriftValue::I32(value))]));
        let mut qualifiers = Vec::new();
        if let Some((precision, scale)) = self.decimal {
            qualifiers.push(qualifier("precision", i32::from(precision)));
            qualifiers.push(qualifier("scale", i32::from(scale)));
        }
        qualifiers.extend(self.length.map(|length| qualifier("characterMaximumLength", length)));
        let mut entry = vec![(1, ThriftValue::I32(self.id as i32))];
        if !qualifiers.is_empty() {
            entry.push((2, ThriftValue::Struct(vec![(1, ThriftValue::Map(qualifiers))])));
        }
        let entry = ThriftValue::Struct(vec![(1, ThriftValue::Struct(entry))]);
        ThriftValue::Struct(vec![(1, ThriftValue::List(vec![entry]))])
    }
}

fn structure(fields: &Fields) -> String {
    let fields: Vec<_> =
        fields.iter().map(|field| format!("{}:{}", field.name(), HiveType::of(field).name)).collect();
    format!("struct<{}>", fields.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_have_hives_names() {
        let name = |kind: DataType| HiveType::of(&Field::new("", kind, true)).name;
        assert_eq!(name(DataType::Decimal128(12, 2)), "decimal(12,2)");
        assert_eq!(name(DataType::Decimal256(60, 2)), "string");
        let fields = Fields::from(vec![
            Field::new("x", DataType::Int32, true),
            Field::new("y", DataType::new_list(DataType::Utf8View, true), true),
        ]);
        assert_eq!(name(DataType::Struct(fields)), "struct<x:int,y:array<string>>");
        assert_eq!(name(DataType::Dictionary(DataType::Int32.into(), DataType::Utf8.into())), "string");
    }

    #[test]
    fn metadata_names_narrower_types() {
        let named = |kind: DataType, name: &str| {
            let metadata = [(TYPE_KEY.to_string(), name.to_string())].into();
            HiveType::of(&Field::new("", kind, true).with_metadata(metadata))
        };
        assert_eq!(named(DataType::Int64, "int4").name, "int");
        assert_eq!(named(DataType::Utf8View, "varchar(7)").name, "varchar(7)");
        assert_eq!(named(DataType::Utf8, "bpchar(3)").id, TypeId::Char);
        assert_eq!(named(DataType::Utf8, "json").name, "string");
        assert_eq!(named(DataType::Int64, "oid").name, "bigint");
    }

    #[test]
    fn decimals_have_their_qualifiers() {
        let kind = HiveType::of(&Field::new("", DataType::Decimal128(12, 2), true));
        let description = kind.description();
        let entry = description.field(1).unwrap().items()[0].field(1).unwrap().clone();
        assert_eq!(entry.field(1), Some(&ThriftValue::I32(15)));
        let Some(ThriftValue::Map(qualifiers)) = entry.field(2).unwrap().field(1) else {
            panic!("no qualifiers")
        };
        assert_eq!(
            qualifiers[0],
            (ThriftValue::text("precision"), ThriftValue::Struct(vec![(1, ThriftValue::I32(12))]))
        );
        assert_eq!(
            qualifiers[1],
            (ThriftValue::text("scale"), ThriftValue::Struct(vec![(1, ThriftValue::I32(2))]))
        );
    }
}
