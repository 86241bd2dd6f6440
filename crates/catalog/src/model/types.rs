//! Column types, as DuckLake names them.

use std::fmt;
use std::str::FromStr;

/// A column's type. Nested types have child columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ColumnType {
    Boolean,
    Int8,
    Int16,
    Int32,
    Int64,
    Int128,
    UInt8,
    UInt16,
    UInt32,
    UInt64,
    UInt128,
    Float32,
    Float64,
    Decimal { precision: u8, scale: u8 },
    Time,
    TimeTz,
    Date,
    Timestamp,
    TimestampTz,
    TimestampS,
    TimestampMs,
    TimestampNs,
    Interval,
    Varchar,
    Blob,
    Json,
    Uuid,
    Struct,
    List,
    Map,
}

const NAMES: &[(ColumnType, &str)] = &[
    (ColumnType::Boolean, "boolean"),
    (ColumnType::Int8, "int8"),
    (ColumnType::Int16, "int16"),
    (ColumnType::Int32, "int32"),
    (ColumnType::Int64, "int64"),
    (ColumnType::Int128, "int128"),
    (ColumnType::UInt8, "uint8"),
    (ColumnType::UInt16, "uint16"),
    (ColumnType::UInt32, "uint32"),
    (ColumnType::UInt64, "uint64"),
    (ColumnType::UInt128, "uint128"),
    (ColumnType::Float32, "float32"),
    (ColumnType::Float64, "float64"),
    (ColumnType::Time, "time"),
    (ColumnType::TimeTz, "timetz"),
    (ColumnType::Date, "date"),
    (ColumnType::Timestamp, "timestamp"),
    (ColumnType::TimestampTz, "timestamptz"),
    (ColumnType::TimestampS, "timestamp_s"),
    (ColumnType::TimestampMs, "timestamp_ms"),
    (ColumnType::TimestampNs, "timestamp_ns"),
    (ColumnType::Interval, "interval"),
    (ColumnType::Varchar, "varchar"),
    (ColumnType::Blob, "blob"),
    (ColumnType::Json, "json"),
    (ColumnType::Uuid, "uuid"),
    (ColumnType::Struct, "struct"),
    (ColumnType::List, "list"),
    (ColumnType::Map, "map"),
];

impl fmt::Display for ColumnType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Self::Decimal { precision, scale } = self {
            return write!(f, "decimal({precision},{scale})");
        }
        let (_, name) = NAMES.iter().find(|(kind, _)| kind == self).expect("every other type has a name");
        f.write_str(name)
    }
}

/// A type that DuckLake has and Harrier does not support (`variant`, `geometry`), or not a type at all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownType(pub String);

impl FromStr for ColumnType {
    type Err = UnknownType;

    fn from_str(text: &str) -> Result<Self, UnknownType> {
        let unknown = || UnknownType(text.to_string());
        if let Some(inside) = text.strip_prefix("decimal(").and_then(|rest| rest.strip_suffix(')')) {
            let (precision, scale) = inside.split_once(',').ok_or_else(unknown)?;
            let part = |text: &str| text.trim().parse().map_err(|_| unknown());
            return Ok(Self::Decimal { precision: part(precision)?, scale: part(scale)? });
        }
        NAMES.iter().find(|(_, name)| *name == text).map(|(kind, _)| *kind).ok_or_else(unknown)
    }
}

impl ColumnType {
    /// Whether the type consists of child columns.
    pub fn is_nested(self) -> bool {
        matches!(self, Self::Struct | Self::List | Self::Map)
    }

    /// Whether every value of `self` is one of `wider`, so that a column may be retyped without rewriting its
    /// files.
    pub fn widens_to(self, wider: Self) -> bool {
        use ColumnType::*;
        matches!(
            (self, wider),
            (Int8, Int16 | Int32 | Int64)
                | (Int16, Int32 | Int64)
                | (Int32, Int64)
                | (UInt8, UInt16 | UInt32 | UInt64)
                | (UInt16, UInt32 | UInt64)
                | (UInt32, UInt64)
                | (Float32, Float64)
        )
    }
}
