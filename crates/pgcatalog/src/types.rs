//! Map between Arrow types and PostgreSQL types, and PostgreSQL's type names.

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Field, FieldRef, IntervalUnit, TimeUnit};

/// Key in a field's metadata for the name of its PostgreSQL type (`oid`, `name`, `int2vector`, …), where the
/// Arrow type does not determine it.
pub const TYPE_KEY: &str = "pg.type";

/// The type modifier of an unmodified type.
pub const NO_MODIFIER: i32 = -1;

/// Name, oid, array oid, and SQL name if different.
const TYPES: [(&str, u32, u32, &str); 39] = [
    ("bool", 16, 1000, "boolean"),
    ("bytea", 17, 1001, ""),
    ("char", 18, 1002, "\"char\""),
    ("name", 19, 1003, ""),
    ("int8", 20, 1016, "bigint"),
    ("int2", 21, 1005, "smallint"),
    ("int2vector", 22, 1006, ""),
    ("int4", 23, 1007, "integer"),
    ("regproc", 24, 1008, ""),
    ("text", 25, 1009, ""),
    ("oid", 26, 1028, ""),
    ("tid", 27, 1010, ""),
    ("xid", 28, 1011, ""),
    ("oidvector", 30, 1013, ""),
    ("json", 114, 199, ""),
    ("pg_node_tree", 194, 0, ""),
    ("float4", 700, 1021, "real"),
    ("float8", 701, 1022, "double precision"),
    ("inet", 869, 1041, ""),
    ("aclitem", 1033, 1034, ""),
    ("bpchar", 1042, 1014, "character"),
    ("varchar", 1043, 1015, "character varying"),
    ("date", 1082, 1182, ""),
    ("time", 1083, 1183, "time without time zone"),
    ("timestamp", 1114, 1115, "timestamp without time zone"),
    ("timestamptz", 1184, 1185, "timestamp with time zone"),
    ("interval", 1186, 1187, ""),
    ("timetz", 1266, 1270, "time with time zone"),
    ("bit", 1560, 1561, ""),
    ("varbit", 1562, 1563, "bit varying"),
    ("numeric", 1700, 1231, ""),
    ("uuid", 2950, 2951, ""),
    ("regclass", 2205, 2210, ""),
    ("regtype", 2206, 2211, ""),
    ("pg_lsn", 3220, 3221, ""),
    ("jsonb", 3802, 3807, ""),
    ("regnamespace", 4089, 4090, ""),
    ("regrole", 4096, 4097, ""),
    ("void", 2278, 0, ""),
];

/// Domains of `information_schema`, reported to clients as their base types, as in PostgreSQL.
const DOMAINS: [(&str, &str); 5] = [
    ("sql_identifier", "name"),
    ("character_data", "varchar"),
    ("yes_or_no", "varchar"),
    ("cardinal_number", "int4"),
    ("time_stamp", "timestamptz"),
];

/// The oid and type modifier for an Arrow type. This is the only such map.
///
/// Structs and maps are `json`, their text format; nested lists have the type of a list; unknown types are
/// `text`.
pub fn postgres_type(data_type: &DataType) -> (u32, i32) {
    let name = match data_type {
        DataType::Boolean => "bool",
        DataType::Int8 | DataType::Int16 | DataType::UInt8 => "int2",
        DataType::Int32 | DataType::UInt16 => "int4",
        DataType::Int64 | DataType::UInt32 => "int8",
        DataType::UInt64 => return (1700, numeric_modifier(20, 0)),
        DataType::Float16 | DataType::Float32 => "float4",
        DataType::Float64 => "float8",
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View | DataType::Null => "text",
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView | DataType::FixedSizeBinary(_) => {
            "bytea"
        }
        DataType::Date32 => "date",
        DataType::Date64 | DataType::Timestamp(_, None) => "timestamp",
        DataType::Timestamp(_, Some(_)) => "timestamptz",
        DataType::Time32(_) | DataType::Time64(_) => "time",
        DataType::Interval(_) | DataType::Duration(_) => "interval",
        DataType::Decimal32(precision, scale)
        | DataType::Decimal64(precision, scale)
        | DataType::Decimal128(precision, scale)
        | DataType::Decimal256(precision, scale) => return (1700, numeric_modifier(*precision, *scale)),
        DataType::Dictionary(_, values) => return postgres_type(values),
        DataType::RunEndEncoded(_, values) => return postgres_type_of_field(values),
        DataType::List(item)
        | DataType::LargeList(item)
        | DataType::ListView(item)
        | DataType::LargeListView(item)
        | DataType::FixedSizeList(item, _) => {
            let (oid, modifier) = postgres_type_of_field(item);
            return (array_of(oid).unwrap_or(oid), modifier);
        }
        DataType::Struct(_) | DataType::Map(..) | DataType::Union(..) => "json",
    };
    (oid_of(name).unwrap_or(25), NO_MODIFIER)
}

/// [`postgres_type`] of a field, whose metadata may be more precise: [`TYPE_KEY`], or UUID bytes.
pub fn postgres_type_of_field(field: &Field) -> (u32, i32) {
    if let Some(declared) = field.metadata().get(TYPE_KEY).and_then(|name| parse_type_name(name)) {
        return declared;
    }
    match (field.data_type(), field.extension_type_name()) {
        (DataType::FixedSizeBinary(16), Some("arrow.uuid")) => (2950, NO_MODIFIER),
        (data_type, _) => postgres_type(data_type),
    }
}

/// The oid and type modifier of a type name in a field's metadata, with an optional length in parentheses, as
/// in `varchar(5)`.
fn parse_type_name(name: &str) -> Option<(u32, i32)> {
    let Some((name, size)) = name.split_once('(') else {
        return oid_of(name).map(|oid| (oid, NO_MODIFIER));
    };
    let size: i32 = size.strip_suffix(')')?.parse().ok()?;
    let modifier = match name {
        // PostgreSQL includes the length field's own four bytes.
        "varchar" | "bpchar" => size.checked_add(4)?,
        _ => size,
    };
    Some((oid_of(name)?, modifier))
}

fn numeric_modifier(precision: u8, scale: i8) -> i32 {
    // PostgreSQL stores an eleven-bit scale, which may be negative, plus an offset of four.
    ((i32::from(precision) << 16) | (i32::from(scale) & 0x7ff)) + 4
}

/// The oid of a type by its name in `pg_type`; array names begin with `_`.
pub fn oid_of(name: &str) -> Option<u32> {
    let name = DOMAINS.iter().find(|(domain, _)| *domain == name).map_or(name, |(_, base)| base);
    let find = |name: &str| TYPES.iter().find(|known| known.0 == name);
    find(name).map(|known| known.1).or_else(|| find(name.strip_prefix('_')?).map(|known| known.2))
}

/// The array type of a type. An array type is its own, since dimensions are not part of a type.
pub fn array_of(oid: u32) -> Option<u32> {
    TYPES.iter().find(|known| known.1 == oid || known.2 == oid).map(|known| known.2)
}

/// The SQL name of a type: `numeric(12,2)`, `timestamp without time zone`, `text[]`. `None` for types that
/// Harrier does not have.
pub fn format_type(oid: u32, modifier: i32) -> Option<String> {
    if oid == 0 {
        return None;
    }
    let (known, array) = TYPES.iter().find_map(|known| {
        (known.1 == oid).then_some((known, "")).or((known.2 == oid).then_some((known, "[]")))
    })?;
    let word = if known.3.is_empty() { known.0 } else { known.3 };
    let text = match (known.0, modifier) {
        (_, ..0) => word.to_string(),
        ("numeric", _) => {
            let scale = (((modifier - 4) & 0x7ff) ^ 1024) - 1024;
            format!("numeric({},{scale})", (modifier - 4) >> 16 & 0xffff)
        }
        ("varchar" | "bpchar", _) => format!("{word}({})", modifier - 4),
        ("bit" | "varbit", _) => format!("{word}({modifier})"),
        ("time" | "timestamp" | "timetz" | "timestamptz", _) => {
            word.replacen(' ', &format!("({modifier}) "), 1)
        }
        _ => word.to_string(),
    };
    // Distinguishes the catalogs' `"char"` from character(1).
    let text =
        if known.0 == "bpchar" && modifier < 0 && array.is_empty() { "character".to_string() } else { text };
    Some(text + array)
}

/// The storage type of a PostgreSQL type in the catalogs. Oids are `Int32`: all are below 2³¹.
pub(crate) fn arrow_type(name: &str) -> DataType {
    if let Some(item) = name.strip_prefix('_') {
        return DataType::List(Arc::new(Field::new_list_field(arrow_type(item), true)));
    }
    match name {
        "bool" => DataType::Boolean,
        "int2" => DataType::Int16,
        "int4" | "cardinal_number" | "oid" | "regproc" | "regtype" | "regclass" => DataType::Int32,
        "int8" => DataType::Int64,
        "float4" => DataType::Float32,
        "float8" | "numeric" => DataType::Float64,
        "bytea" => DataType::Binary,
        "timestamptz" | "time_stamp" => DataType::Timestamp(TimeUnit::Microsecond, Some("+00:00".into())),
        "interval" => DataType::Interval(IntervalUnit::MonthDayNano),
        "int2vector" => arrow_type("_int2"),
        "oidvector" => arrow_type("_oid"),
        _ => DataType::Utf8,
    }
}

/// Key in a result field's metadata for its relation and column: `16385:2`.
pub const ORIGIN_KEY: &str = "pg.origin";

/// A field with a PostgreSQL type name that its Arrow type does not determine.
pub fn named_field(field: Field, name: &str) -> Field {
    let mut metadata = field.metadata().clone();
    metadata.insert(TYPE_KEY.to_string(), name.to_string());
    field.with_metadata(metadata)
}

/// Types stored as text but with another binary format: clients get them as text.
const REPORTED_AS_TEXT: [&str; 5] = ["aclitem", "inet", "pg_lsn", "tid", "xid"];

/// A field of a system catalog, with the PostgreSQL type in its metadata where the Arrow type does not
/// determine it.
pub(crate) fn catalog_field(name: &str, type_name: &str, nullable: bool) -> FieldRef {
    let field = Field::new(name, arrow_type(type_name), nullable);
    if REPORTED_AS_TEXT.contains(&type_name.trim_start_matches('_')) {
        return Arc::new(field);
    }
    let inferred = postgres_type(field.data_type()).0;
    Arc::new(match oid_of(type_name) {
        Some(oid) if oid != inferred => {
            let base =
                DOMAINS.iter().find(|(domain, _)| *domain == type_name).map_or(type_name, |(_, base)| base);
            field.with_metadata(HashMap::from([(TYPE_KEY.to_string(), base.to_string())]))
        }
        _ => field,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_written_as_postgresql_does() {
        let written = |data_type: DataType| {
            let (oid, modifier) = postgres_type(&data_type);
            format_type(oid, modifier).unwrap()
        };
        let list = |item| DataType::List(Arc::new(Field::new_list_field(item, true)));
        for (data_type, expected) in [
            (DataType::Boolean, "boolean"),
            (DataType::UInt8, "smallint"),
            (DataType::UInt16, "integer"),
            (DataType::UInt32, "bigint"),
            (DataType::UInt64, "numeric(20,0)"),
            (DataType::Decimal128(12, 2), "numeric(12,2)"),
            (DataType::Decimal128(5, -2), "numeric(5,-2)"),
            (DataType::Timestamp(TimeUnit::Nanosecond, None), "timestamp without time zone"),
            (DataType::Timestamp(TimeUnit::Second, Some("UTC".into())), "timestamp with time zone"),
            (list(DataType::Utf8View), "text[]"),
            (list(list(DataType::Int32)), "integer[]"),
            (list(DataType::Decimal128(12, 2)), "numeric(12,2)[]"),
            (DataType::Dictionary(Box::new(DataType::Int8), Box::new(DataType::Utf8)), "text"),
            (DataType::FixedSizeBinary(16), "bytea"),
            (DataType::Struct(vec![Field::new("a", DataType::Int8, true)].into()), "json"),
            (DataType::Null, "text"),
        ] {
            assert_eq!(written(data_type), expected);
        }
        let uuid = Field::new("u", DataType::FixedSizeBinary(16), true)
            .with_metadata(HashMap::from([("ARROW:extension:name".to_string(), "arrow.uuid".to_string())]));
        assert_eq!(postgres_type_of_field(&uuid), (2950, NO_MODIFIER));
        let type_of =
            |name: &str| postgres_type_of_field(&named_field(Field::new("a", DataType::Utf8, true), name));
        assert_eq!(type_of("varchar(10)"), (1043, 14));
        assert_eq!(type_of("varchar"), (1043, NO_MODIFIER));
        assert_eq!(type_of("timestamptz(3)"), (1184, 3));
        assert_eq!(type_of("varchar(10"), (25, NO_MODIFIER));
        assert_eq!(format_type(1184, 3).unwrap(), "timestamp(3) with time zone");
        assert_eq!(format_type(1043, 14).unwrap(), "character varying(10)");
    }
}
