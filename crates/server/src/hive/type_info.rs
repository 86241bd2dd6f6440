//! `GetTypeInfo`: the types, with what JDBC and ODBC ask of each.

use arrow::array::RecordBatch;
use harrier_error::SqlError;

use super::columns::{Cell, Kind, batch};

const COLUMNS: [(&str, Kind); 18] = [
    ("TYPE_NAME", Kind::Text),
    ("DATA_TYPE", Kind::Int),
    ("PRECISION", Kind::Int),
    ("LITERAL_PREFIX", Kind::Text),
    ("LITERAL_SUFFIX", Kind::Text),
    ("CREATE_PARAMS", Kind::Text),
    ("NULLABLE", Kind::Small),
    ("CASE_SENSITIVE", Kind::Bool),
    ("SEARCHABLE", Kind::Small),
    ("UNSIGNED_ATTRIBUTE", Kind::Bool),
    ("FIXED_PREC_SCALE", Kind::Bool),
    ("AUTO_INCREMENT", Kind::Bool),
    ("LOCAL_TYPE_NAME", Kind::Text),
    ("MINIMUM_SCALE", Kind::Small),
    ("MAXIMUM_SCALE", Kind::Small),
    ("SQL_DATA_TYPE", Kind::Int),
    ("SQL_DATETIME_SUB", Kind::Int),
    ("NUM_PREC_RADIX", Kind::Int),
];

/// Names, numbers of `java.sql.Types`, and digits of numbers.
const TYPES: [(&str, i32, Option<i32>); 18] = [
    ("VOID", 0, None),
    ("BOOLEAN", 16, None),
    ("TINYINT", -6, Some(3)),
    ("SMALLINT", 5, Some(5)),
    ("INT", 4, Some(10)),
    ("BIGINT", -5, Some(19)),
    ("FLOAT", 6, Some(7)),
    ("DOUBLE", 8, Some(15)),
    ("STRING", 12, None),
    ("CHAR", 1, None),
    ("VARCHAR", 12, None),
    ("DATE", 91, None),
    ("TIMESTAMP", 93, None),
    ("BINARY", -2, None),
    ("DECIMAL", 3, Some(38)),
    ("ARRAY", 2003, None),
    ("MAP", 2000, None),
    ("STRUCT", 2002, None),
];

/// `typeNullable`, `typeSearchable` and `typePredNone` of JDBC.
const NULLABLE: i32 = 1;
const SEARCHABLE: i32 = 3;
const NOT_SEARCHABLE: i32 = 0;

pub(super) fn type_info() -> Result<RecordBatch, SqlError> {
    let row = |(name, number, precision): (&str, i32, Option<i32>)| {
        let is_nested = matches!(name, "ARRAY" | "MAP" | "STRUCT");
        vec![
            Cell::from(name),
            Cell::Int(number),
            precision.into(),
            Cell::Null,
            Cell::Null,
            Cell::Null,
            Cell::Int(NULLABLE),
            Cell::Bool(matches!(name, "STRING" | "VARCHAR" | "CHAR")),
            Cell::Int(if is_nested { NOT_SEARCHABLE } else { SEARCHABLE }),
            Cell::Bool(precision.is_none()),
            Cell::Bool(false),
            Cell::Bool(false),
            Cell::Null,
            Cell::Int(0),
            Cell::Int(if name == "DECIMAL" { 38 } else { 0 }),
            Cell::Null,
            Cell::Null,
            precision.map(|_| 10).into(),
        ]
    };
    batch(&COLUMNS, &TYPES.map(row))
}
