//! Map from Arrow types to PostgreSQL's oids, for row and parameter descriptions.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, IntervalUnit, TimeUnit};

/// A PostgreSQL type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PgType {
    pub(crate) oid: u32,
    /// The size of its values; -1 if variable.
    pub(crate) bytes: i16,
    /// The type modifier, from the parentheses after its name; -1 for none.
    pub(crate) modifier: i32,
}

pub(crate) const BOOL: u32 = 16;
pub(crate) const BYTEA: u32 = 17;
pub(crate) const CHAR: u32 = 18;
pub(crate) const NAME: u32 = 19;
pub(crate) const INT8: u32 = 20;
pub(crate) const INT2: u32 = 21;
pub(crate) const INT2VECTOR: u32 = 22;
pub(crate) const INT4: u32 = 23;
pub(crate) const REGPROC: u32 = 24;
pub(crate) const TEXT: u32 = 25;
pub(crate) const OID: u32 = 26;
pub(crate) const OIDVECTOR: u32 = 30;
pub(crate) const JSON: u32 = 114;
pub(crate) const FLOAT4: u32 = 700;
pub(crate) const FLOAT8: u32 = 701;
pub(crate) const UNKNOWN: u32 = 705;
pub(crate) const BPCHAR: u32 = 1042;
pub(crate) const VARCHAR: u32 = 1043;
pub(crate) const DATE: u32 = 1082;
pub(crate) const TIME: u32 = 1083;
pub(crate) const TIMESTAMP: u32 = 1114;
pub(crate) const TIMESTAMPTZ: u32 = 1184;
pub(crate) const INTERVAL: u32 = 1186;
pub(crate) const NUMERIC: u32 = 1700;
pub(crate) const REGCLASS: u32 = 2205;
pub(crate) const REGTYPE: u32 = 2206;
pub(crate) const VOID: u32 = 2278;
pub(crate) const UUID: u32 = 2950;
pub(crate) const JSONB: u32 = 3802;
pub(crate) const REGNAMESPACE: u32 = 4089;
pub(crate) const REGROLE: u32 = 4096;

/// Precision and scale of an unconstrained NUMERIC.
pub(super) const NUMERIC_PRECISION: u8 = 38;
const NUMERIC_SCALE: i8 = 10;

/// Key in a field's metadata for the name of its PostgreSQL type, where the Arrow type does not determine it.
pub(crate) const TYPE_KEY: &str = "pg.type";

/// Types that a field may name, with the size of their values.
const NAMED: [(&str, u32, i16); 32] = [
    ("bool", BOOL, 1),
    ("bytea", BYTEA, -1),
    ("char", CHAR, 1),
    ("name", NAME, 64),
    ("int8", INT8, 8),
    ("int2", INT2, 2),
    ("int2vector", INT2VECTOR, -1),
    ("int4", INT4, 4),
    ("regproc", REGPROC, 4),
    ("text", TEXT, -1),
    ("oid", OID, 4),
    ("oidvector", OIDVECTOR, -1),
    ("json", JSON, -1),
    ("pg_node_tree", 194, -1),
    ("float4", FLOAT4, 4),
    ("float8", FLOAT8, 8),
    ("bpchar", BPCHAR, -1),
    ("varchar", VARCHAR, -1),
    ("date", DATE, 4),
    ("time", TIME, 8),
    ("timestamp", TIMESTAMP, 8),
    ("timestamptz", TIMESTAMPTZ, 8),
    ("interval", INTERVAL, 16),
    ("bit", 1560, -1),
    ("varbit", 1562, -1),
    ("uuid", UUID, 16),
    ("regclass", REGCLASS, 4),
    ("regtype", REGTYPE, 4),
    ("jsonb", JSONB, -1),
    ("regnamespace", REGNAMESPACE, 4),
    ("regrole", REGROLE, 4),
    ("void", VOID, 4),
];

/// Array types: the oid of the array, and that of its element.
const ARRAYS: [(u32, u32); 25] = [
    (1000, BOOL),
    (1001, BYTEA),
    (1002, CHAR),
    (1003, NAME),
    (1005, INT2),
    (1007, INT4),
    (1008, REGPROC),
    (1016, INT8),
    (1009, TEXT),
    (1028, OID),
    (199, JSON),
    (1021, FLOAT4),
    (1022, FLOAT8),
    (1014, BPCHAR),
    (1015, VARCHAR),
    (1182, DATE),
    (1183, TIME),
    (1115, TIMESTAMP),
    (1185, TIMESTAMPTZ),
    (1187, INTERVAL),
    (1231, NUMERIC),
    (2210, REGCLASS),
    (2211, REGTYPE),
    (2951, UUID),
    (3807, JSONB),
];

impl PgType {
    const fn new(oid: u32, bytes: i16) -> Self {
        Self { oid, bytes, modifier: -1 }
    }

    /// The PostgreSQL type of an Arrow type.
    pub(crate) fn of(data_type: &DataType) -> Self {
        match data_type {
            DataType::Boolean => Self::new(BOOL, 1),
            DataType::Int8 | DataType::UInt8 | DataType::Int16 => Self::new(INT2, 2),
            DataType::UInt16 | DataType::Int32 => Self::new(INT4, 4),
            DataType::UInt32 | DataType::Int64 => Self::new(INT8, 8),
            DataType::UInt64 => Self::numeric(20, 0),
            DataType::Float16 | DataType::Float32 => Self::new(FLOAT4, 4),
            DataType::Float64 => Self::new(FLOAT8, 8),
            DataType::Binary
            | DataType::LargeBinary
            | DataType::BinaryView
            | DataType::FixedSizeBinary(_) => Self::new(BYTEA, -1),
            DataType::Date32 => Self::new(DATE, 4),
            DataType::Date64 | DataType::Timestamp(_, None) => Self::new(TIMESTAMP, 8),
            DataType::Timestamp(_, Some(_)) => Self::new(TIMESTAMPTZ, 8),
            DataType::Time32(_) | DataType::Time64(_) => Self::new(TIME, 8),
            DataType::Interval(_) | DataType::Duration(_) => Self::new(INTERVAL, 16),
            DataType::Decimal32(precision, scale)
            | DataType::Decimal64(precision, scale)
            | DataType::Decimal128(precision, scale)
            | DataType::Decimal256(precision, scale) => Self::numeric(*precision, *scale),
            DataType::List(item)
            | DataType::LargeList(item)
            | DataType::ListView(item)
            | DataType::LargeListView(item)
            | DataType::FixedSizeList(item, _) => Self::array(item),
            DataType::Struct(_) | DataType::Map(_, _) => Self::new(JSON, -1),
            DataType::Dictionary(_, value) => Self::of(value),
            DataType::RunEndEncoded(_, value) => Self::of(value.data_type()),
            _ => Self::new(TEXT, -1),
        }
    }

    /// The PostgreSQL type of a field, whose metadata may be more precise than its type.
    pub(crate) fn of_field(field: &Field) -> Self {
        if let Some(named) = field.metadata().get(TYPE_KEY).and_then(|name| Self::from_name(name)) {
            return named;
        }
        let is_uuid = field.extension_type_name() == Some("arrow.uuid");
        match field.data_type() {
            DataType::FixedSizeBinary(16) if is_uuid => Self::new(UUID, 16),
            other => Self::of(other),
        }
    }

    /// A type by its name; an array's name has the prefix `_`, and others may have a length in parentheses:
    /// `varchar(5)`.
    pub(super) fn from_name(name: &str) -> Option<Self> {
        if let Some((name, size)) = name.split_once('(') {
            let named = Self::from_name(name)?;
            let size: i32 = size.strip_suffix(')')?.parse().ok()?;
            let modifier = match named.oid {
                // The modifier includes the length field's own four bytes.
                VARCHAR | BPCHAR => size.checked_add(4)?,
                _ => size,
            };
            return Some(Self { modifier, ..named });
        }
        let find = |name: &str| NAMED.iter().find(|known| known.0 == name);
        if let Some((_, oid, bytes)) = find(name) {
            return Some(Self::new(*oid, *bytes));
        }
        let (_, item, _) = find(name.strip_prefix('_')?)?;
        let array = ARRAYS.iter().find(|(_, of)| of == item);
        array.map(|(array, _)| Self::new(*array, -1))
    }

    fn numeric(precision: u8, scale: i8) -> Self {
        let modifier = ((i32::from(precision) << 16) | (i32::from(scale) & 0x7ff)) + 4;
        Self { oid: NUMERIC, bytes: -1, modifier }
    }

    /// Nested arrays have the type of the innermost values, as in PostgreSQL.
    fn array(item: &Field) -> Self {
        let value = Self::of_field(item);
        let oid = ARRAYS.iter().find(|(array, of)| *of == value.oid || *array == value.oid);
        Self { oid: oid.map_or(1009, |(array, _)| *array), bytes: -1, modifier: value.modifier }
    }
}

/// The element type of an array type, if it is one.
pub(crate) fn item_of(oid: u32) -> Option<u32> {
    match oid {
        INT2VECTOR => return Some(INT2),
        OIDVECTOR => return Some(OID),
        _ => {}
    }
    ARRAYS.iter().find(|(array, _)| *array == oid).map(|(_, item)| *item)
}

/// Whether a numeric type has the default precision and scale.
pub(super) fn is_any_numeric(data_type: &DataType) -> bool {
    *data_type == DataType::Decimal128(NUMERIC_PRECISION, NUMERIC_SCALE)
}

/// The Arrow type of a parameter; `None` if it is unspecified or unknown.
pub(crate) fn arrow_type(oid: u32) -> Option<DataType> {
    Some(match oid {
        BOOL => DataType::Boolean,
        INT2 => DataType::Int16,
        INT4 => DataType::Int32,
        INT8 | OID | REGPROC | REGCLASS | REGTYPE | REGNAMESPACE | REGROLE => DataType::Int64,
        FLOAT4 => DataType::Float32,
        FLOAT8 => DataType::Float64,
        TEXT | VARCHAR | BPCHAR | NAME | CHAR | JSON | JSONB => DataType::Utf8,
        BYTEA => DataType::Binary,
        DATE => DataType::Date32,
        TIME => DataType::Time64(TimeUnit::Microsecond),
        TIMESTAMP => DataType::Timestamp(TimeUnit::Microsecond, None),
        TIMESTAMPTZ => DataType::Timestamp(TimeUnit::Microsecond, Some("+00:00".into())),
        INTERVAL => DataType::Interval(IntervalUnit::MonthDayNano),
        // The scale of a value is not known in advance.
        NUMERIC => DataType::Decimal128(NUMERIC_PRECISION, NUMERIC_SCALE),
        _ => match item_of(oid) {
            Some(item) => DataType::List(Arc::new(Field::new_list_field(arrow_type(item)?, true))),
            None => return None,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_may_name_their_types() {
        let field = |data_type, name: &str| {
            let metadata = [(TYPE_KEY.to_string(), name.to_string())];
            PgType::of_field(&Field::new("a", data_type, true).with_metadata(metadata.into()))
        };
        let list = |item| DataType::List(Arc::new(Field::new_list_field(item, true)));
        assert_eq!(field(DataType::Int32, "oid"), PgType::new(OID, 4));
        assert_eq!(field(DataType::Utf8, "name"), PgType::new(NAME, 64));
        assert_eq!(field(list(DataType::Int16), "int2vector"), PgType::new(INT2VECTOR, -1));
        assert_eq!(field(list(DataType::Int32), "_oid"), PgType::new(1028, -1));
        assert_eq!(field(DataType::Int32, "nosuch"), PgType::new(INT4, 4));
        assert_eq!(field(DataType::Utf8, "varchar(5)"), PgType { oid: VARCHAR, bytes: -1, modifier: 9 });
    }

    #[test]
    fn types_have_numbers() {
        let list = |item| DataType::List(Arc::new(Field::new_list_field(item, true)));
        let cases = [
            (DataType::Int32, INT4, -1),
            (DataType::Utf8View, TEXT, -1),
            (DataType::Decimal128(15, 2), NUMERIC, ((15 << 16) | 2) + 4),
            (list(DataType::Int64), 1016, -1),
            (list(list(DataType::Int64)), 1016, -1),
            (list(DataType::Utf8), 1009, -1),
            (DataType::Dictionary(Box::new(DataType::Int8), Box::new(DataType::Date32)), DATE, -1),
        ];
        for (data_type, oid, modifier) in cases {
            let found = PgType::of(&data_type);
            assert_eq!((found.oid, found.modifier), (oid, modifier), "{data_type}");
        }
    }
}
