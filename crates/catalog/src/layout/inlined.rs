//! Inlined rows: the table for each schema version of a user's table, and the encoding of its cells.
//!
//! Cells look the same to callers in either database: signed integers of up to 64 bits, and booleans as 0 and
//! 1, are `Integer`; blobs are `Blob`; everything else is `Text`.

use crate::database::sql::{self, Dialect};
use crate::error::{Error, Result};
use crate::model::files::Cell;
use crate::model::ids::ObjectId;
use crate::model::state::Table;
use crate::model::types::ColumnType;

/// Names of DuckLake's own columns, in such tables and in files.
const RESERVED: &[&str] = &[
    "row_id",
    "begin_snapshot",
    "end_snapshot",
    "_ducklake_internal_snapshot_id",
    "_ducklake_internal_row_id",
];
/// Maximum number of columns in PostgreSQL (1600) and SQLite (2000), less DuckLake's three.
const POSTGRES_COLUMNS_MAX: usize = 1597;
const SQLITE_COLUMNS_MAX: usize = 1997;
/// PostgreSQL truncates longer names, and two might collide.
const POSTGRES_NAME_BYTES_MAX: usize = 63;

pub(crate) fn data_table(table: ObjectId, schema_version: i64) -> String {
    format!("ducklake_inlined_data_{table}_{schema_version}")
}

pub(crate) fn delete_table(table: ObjectId) -> String {
    format!("ducklake_inlined_delete_{table}")
}

/// Whether the database can have a table with these columns beside DuckLake's.
pub(crate) fn fits(dialect: Dialect, table: &Table) -> bool {
    let (columns_max, name_bytes_max) = limits(dialect);
    let mut names: Vec<String> = table.columns.iter().map(|column| column.name.to_lowercase()).collect();
    let fit = table.columns.len() <= columns_max
        && names.iter().all(|name| !RESERVED.contains(&name.as_str()) && !name.contains('\0'))
        && table.columns.iter().all(|column| !column.name.is_empty() && column.name.len() <= name_bytes_max);
    names.sort();
    // SQLite's names are case-insensitive.
    fit && names.windows(2).all(|pair| pair[0] != pair[1])
}

/// Maximum number of columns, and maximum length of their names.
pub(crate) fn limits(dialect: Dialect) -> (usize, usize) {
    match dialect {
        Dialect::Sqlite => (SQLITE_COLUMNS_MAX, usize::MAX),
        Dialect::Postgres => (POSTGRES_COLUMNS_MAX, POSTGRES_NAME_BYTES_MAX),
    }
}

/// `CREATE TABLE` for rows with these columns.
pub(crate) fn create<'a>(
    dialect: Dialect,
    name: &str,
    columns: impl IntoIterator<Item = (&'a str, ColumnType)>,
) -> Result<String> {
    let mut definition = format!(
        "CREATE TABLE IF NOT EXISTS {name} (row_id BIGINT, begin_snapshot BIGINT, end_snapshot BIGINT"
    );
    for (column, kind) in columns {
        definition += &format!(", {} {}", sql::name(column)?, column_type(dialect, kind));
    }
    Ok(definition + ")")
}

pub(crate) fn create_deletes(name: &str) -> String {
    format!("CREATE TABLE IF NOT EXISTS {name} (file_id BIGINT, row_id BIGINT, begin_snapshot BIGINT)")
}

fn column_type(dialect: Dialect, kind: ColumnType) -> String {
    use ColumnType::*;
    let name = match (dialect, kind) {
        (Dialect::Sqlite, Boolean | Int8 | Int16 | Int32 | Int64 | UInt8 | UInt16 | UInt32) => "BIGINT",
        (Dialect::Sqlite, Blob) => "BLOB",
        (Dialect::Sqlite, _) => "VARCHAR",
        (Dialect::Postgres, Boolean) => "BOOLEAN",
        (Dialect::Postgres, Int8 | Int16) => "SMALLINT",
        (Dialect::Postgres, Int32 | UInt8 | UInt16) => "INTEGER",
        (Dialect::Postgres, Int64 | UInt32) => "BIGINT",
        (Dialect::Postgres, Float32) => "REAL",
        (Dialect::Postgres, Float64) => "DOUBLE PRECISION",
        (Dialect::Postgres, Decimal { precision, scale }) => return format!("DECIMAL({precision},{scale})"),
        (Dialect::Postgres, Time) => "TIME",
        (Dialect::Postgres, TimeTz) => "TIME WITH TIME ZONE",
        (Dialect::Postgres, Interval) => "INTERVAL",
        (Dialect::Postgres, Uuid) => "UUID",
        (Dialect::Postgres, Varchar | Json | Blob) => "BYTEA",
        (Dialect::Postgres, _) => "VARCHAR",
    };
    name.to_string()
}

/// A cell as a literal.
pub(crate) fn literal(dialect: Dialect, kind: ColumnType, cell: &Cell) -> Result<String> {
    let bytes = |bytes: &[u8]| match dialect {
        Dialect::Sqlite => format!("X'{}'", sql::hex(bytes)),
        Dialect::Postgres => format!("'\\x{}'::bytea", sql::hex(bytes)),
    };
    Ok(match (dialect, cell) {
        (_, Cell::Null) => "NULL".to_string(),
        (Dialect::Postgres, Cell::Integer(value)) if kind == ColumnType::Boolean => {
            sql::boolean(*value != 0).to_string()
        }
        (Dialect::Postgres, Cell::Integer(value)) => format!("'{value}'"),
        (Dialect::Sqlite, Cell::Integer(value)) => value.to_string(),
        (_, Cell::Blob(value)) => bytes(value),
        (Dialect::Postgres, Cell::Text(value)) if column_type(dialect, kind) == "BYTEA" => {
            bytes(value.as_bytes())
        }
        // A literal ends at this character.
        (Dialect::Sqlite, Cell::Text(value)) if value.contains('\0') => {
            format!("CAST({} AS TEXT)", bytes(value.as_bytes()))
        }
        (_, Cell::Text(value)) => sql::text(value)?,
    })
}

/// Converts a cell of the database into the form for callers.
pub(crate) fn decode(dialect: Dialect, kind: ColumnType, cell: Cell) -> Result<Cell> {
    use ColumnType::*;
    Ok(match (kind, cell) {
        (_, Cell::Null) => Cell::Null,
        (Boolean | Int8 | Int16 | Int32 | Int64 | UInt8 | UInt16 | UInt32, Cell::Text(value)) => {
            let number = match value.as_str() {
                "true" => Some(1),
                "false" => Some(0),
                other => other.parse().ok(),
            };
            number.map(Cell::Integer).ok_or_else(|| {
                Error::Corrupt(format!("the catalog keeps \"{value}\" in a column of type {kind}"))
            })?
        }
        (Boolean | Int8 | Int16 | Int32 | Int64 | UInt8 | UInt16 | UInt32, cell) => cell,
        (Blob, Cell::Text(value)) => Cell::Blob(value.into_bytes()),
        (Blob, cell) => cell,
        (_, Cell::Blob(bytes)) => Cell::Text(String::from_utf8(bytes).map_err(|_| {
            Error::Corrupt(format!("the catalog keeps bytes that are no text in a column of type {kind}"))
        })?),
        (_, Cell::Integer(value)) => Cell::Text(value.to_string()),
        (Float32 | Float64, Cell::Text(value)) if dialect == Dialect::Postgres => {
            Cell::Text(match value.as_str() {
                "NaN" => "nan".to_string(),
                "Infinity" => "inf".to_string(),
                "-Infinity" => "-inf".to_string(),
                _ => value,
            })
        }
        // "1 year 2 mons +3 days": DuckDB and Arrow only know the word month.
        (Interval, Cell::Text(value)) if dialect == Dialect::Postgres => {
            let word = |word: &str| match word {
                "mon" => "month".to_string(),
                "mons" => "months".to_string(),
                _ => word.trim_start_matches('+').to_string(),
            };
            Cell::Text(value.split(' ').map(word).collect::<Vec<_>>().join(" "))
        }
        (_, cell) => cell,
    })
}
