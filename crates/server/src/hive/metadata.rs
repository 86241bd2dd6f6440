//! Calls for metadata: queries on `information_schema`, so that clients see only what their role may see.
//! Patterns are compared here.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::compute::cast;
use arrow::datatypes::DataType;
use futures::StreamExt;
use harrier_error::{SqlError, SqlState};

use super::columns::{Cell, Kind, batch};
use super::lane::Lane;
use super::pattern::Pattern;
use crate::backend::BackendResponse;
use crate::execution::{ListedStatement, next_stop, parse_single};

/// Hive's name of the schema that is there from the beginning, and PostgreSQL's.
const DEFAULT: (&str, &str) = ("default", "public");

/// PostgreSQL's own schemas, which Hive's clients have no use for.
const HIDDEN_SCHEMAS: [&str; 3] = ["information_schema", "pg_catalog", "pg_toast"];

/// Numbers of `java.sql.Types` by Hive's names, and the size that `GetColumns` has without a length.
const TYPES: [(&str, i32, Option<i32>); 15] = [
    ("boolean", 16, None),
    ("tinyint", -6, Some(3)),
    ("smallint", 5, Some(5)),
    ("int", 4, Some(10)),
    ("bigint", -5, Some(19)),
    ("float", 6, Some(7)),
    ("double", 8, Some(15)),
    ("string", 12, Some(i32::MAX)),
    ("varchar", 12, None),
    ("char", 1, None),
    ("date", 91, Some(10)),
    ("timestamp", 93, Some(29)),
    ("binary", -2, Some(i32::MAX)),
    ("decimal", 3, Some(38)),
    ("array", 2003, None),
];

/// Hive's names of PostgreSQL's types, by their internal names; others are sent as text.
const HIVE_NAMES: [(&str, &str); 12] = [
    ("bool", "boolean"),
    ("int2", "smallint"),
    ("int4", "int"),
    ("int8", "bigint"),
    ("float4", "float"),
    ("float8", "double"),
    ("numeric", "decimal"),
    ("date", "date"),
    ("timestamp", "timestamp"),
    ("timestamptz", "timestamp"),
    ("bytea", "binary"),
    ("bpchar", "char"),
];

/// `columnNullable` and `columnNoNulls` of JDBC.
const NULLABLE: i32 = 1;
const NO_NULLS: i32 = 0;

/// Hive's name of a schema.
pub(super) fn hive_schema(schema: &str) -> &str {
    if schema == DEFAULT.1 { DEFAULT.0 } else { schema }
}

/// The schema of a name of Hive's.
pub(super) fn own_schema(schema: &str) -> &str {
    if schema.eq_ignore_ascii_case(DEFAULT.0) { DEFAULT.1 } else { schema }
}

/// A pattern of a request: `None` and, of schemas, an empty text fit all.
fn schema_pattern(text: Option<&str>) -> Pattern {
    Pattern::new(text.filter(|text| !text.is_empty()).unwrap_or("%"))
}

/// Runs a query in the session. Returns its rows as text. It comes to its end, or is stopped, also if nobody
/// waits for it any more.
async fn query(lane: &Arc<Lane>, text: &'static str) -> Result<Vec<Vec<Option<String>>>, SqlError> {
    let lane = Arc::clone(lane);
    let run = tokio::spawn(async move {
        let _turn = lane.turn().await;
        let mut stops = lane.guard.entry.listen();
        let listed = ListedStatement::begin(&lane.registry, &lane.guard.entry, &lane.backend, text);
        let result = tokio::select! {
            biased;
            failure = next_stop(&mut stops) => Err(failure),
            rows = rows_of(&lane, text, &listed) => rows,
        };
        let settled = lane.backend.settle().await;
        let result = result.and_then(|rows| settled.map(|()| rows));
        listed.end(result.as_ref().err());
        result
    });
    run.await.map_err(|error| {
        SqlError::new(SqlState::INTERNAL_ERROR, format!("a query of the catalog ended: {error}"))
    })?
}

async fn rows_of(
    lane: &Lane,
    text: &str,
    listed: &ListedStatement,
) -> Result<Vec<Vec<Option<String>>>, SqlError> {
    let mut found = Vec::new();
    let Some(statement) = parse_single(&*lane.backend, text).await? else { return Ok(found) };
    let BackendResponse::Rows { mut rows, .. } = lane.backend.execute(&statement, &[], &listed.entry).await?
    else {
        return Ok(found);
    };
    while let Some(batch) = rows.next().await {
        let batch = batch?;
        let texts = batch.columns().iter().map(|column| cast(column, &DataType::Utf8));
        let texts = texts.collect::<Result<Vec<_>, _>>().map_err(|error| {
            SqlError::new(SqlState::INTERNAL_ERROR, format!("an answer could not be built: {error}"))
        })?;
        let value = |column: &arrow::array::ArrayRef, row: usize| {
            (!column.is_null(row)).then(|| column.as_string::<i32>().value(row).to_string())
        };
        found.extend((0..batch.num_rows()).map(|row| texts.iter().map(|text| value(text, row)).collect()));
    }
    Ok(found)
}

fn text(cell: Option<&Option<String>>) -> &str {
    cell.and_then(|cell| cell.as_deref()).unwrap_or_default()
}

fn number(cell: Option<&Option<String>>) -> Option<i32> {
    text(cell).parse().ok()
}

/// Whether a schema of this name exists, for this role.
pub(super) async fn has_schema(lane: &Arc<Lane>, name: &str) -> Result<bool, SqlError> {
    let rows = query(lane, "SELECT schema_name FROM information_schema.schemata").await?;
    Ok(rows.iter().any(|row| text(row.first()) == name))
}

pub(super) fn catalogs() -> Result<RecordBatch, SqlError> {
    batch(&[("TABLE_CAT", Kind::Text)], &[])
}

pub(super) fn table_types() -> Result<RecordBatch, SqlError> {
    batch(&[("TABLE_TYPE", Kind::Text)], &["TABLE", "VIEW"].map(|name| vec![Cell::from(name)]))
}

pub(super) async fn schemas(lane: &Arc<Lane>, pattern: Option<&str>) -> Result<RecordBatch, SqlError> {
    let pattern = schema_pattern(pattern);
    let rows = query(lane, "SELECT DISTINCT schema_name FROM information_schema.schemata ORDER BY 1").await?;
    let names = rows.iter().map(|row| hive_schema(text(row.first())));
    let names = names.filter(|name| !HIDDEN_SCHEMAS.contains(name) && pattern.matches(name));
    let rows: Vec<_> = names.map(|name| vec![Cell::from(name), Cell::from("")]).collect();
    batch(&[("TABLE_SCHEM", Kind::Text), ("TABLE_CATALOG", Kind::Text)], &rows)
}

/// Comments by schema, relation, and number of the column; 0 for the relation's own.
async fn comments(lane: &Arc<Lane>) -> Result<BTreeMap<(String, String, i32), String>, SqlError> {
    let rows = query(
        lane,
        "SELECT n.nspname, c.relname, d.objsubid, d.description FROM pg_catalog.pg_description d \
         JOIN pg_catalog.pg_class c ON c.oid = d.objoid JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace",
    )
    .await?;
    let comment = |row: &Vec<Option<String>>| {
        let key = (text(row.first()).to_string(), text(row.get(1)).to_string(), number(row.get(2))?);
        Some((key, text(row.get(3)).to_string()))
    };
    Ok(rows.iter().filter_map(comment).collect())
}

fn comment(
    comments: &BTreeMap<(String, String, i32), String>,
    schema: &str,
    table: &str,
    column: i32,
) -> Cell {
    comments
        .get(&(schema.to_string(), table.to_string(), column))
        .map_or(Cell::Null, |it| Cell::from(it.as_str()))
}

/// `kinds`: names of types of tables; empty for all.
pub(super) async fn tables(
    lane: &Arc<Lane>,
    schema: Option<&str>,
    table: Option<&str>,
    kinds: &[String],
) -> Result<RecordBatch, SqlError> {
    let (schemas, tables) = (schema_pattern(schema), Pattern::new(table.unwrap_or("%")));
    let comments = comments(lane).await?;
    let rows = query(
        lane,
        "SELECT table_schema, table_name, table_type FROM information_schema.tables \
         WHERE table_schema NOT IN ('pg_catalog', 'information_schema') ORDER BY table_schema, table_name",
    )
    .await?;
    let wanted: Vec<_> = kinds.iter().filter_map(|kind| hive_kind(kind)).collect();
    let mut found = Vec::new();
    for row in &rows {
        let (schema, name) = (text(row.first()), text(row.get(1)));
        let kind = if text(row.get(2)).ends_with("VIEW") { "VIEW" } else { "TABLE" };
        let is_wanted = wanted.is_empty() || wanted.contains(&kind);
        if is_wanted && schemas.matches(hive_schema(schema)) && tables.matches(name) {
            let remarks = comment(&comments, schema, name, 0);
            let named = [Cell::from(""), Cell::from(hive_schema(schema)), Cell::from(name), Cell::from(kind)];
            found.push(named.into_iter().chain([remarks]).collect());
        }
    }
    const COLUMNS: [(&str, Kind); 10] = [
        ("TABLE_CAT", Kind::Text),
        ("TABLE_SCHEM", Kind::Text),
        ("TABLE_NAME", Kind::Text),
        ("TABLE_TYPE", Kind::Text),
        ("REMARKS", Kind::Text),
        ("TYPE_CAT", Kind::Text),
        ("TYPE_SCHEM", Kind::Text),
        ("TYPE_NAME", Kind::Text),
        ("SELF_REFERENCING_COL_NAME", Kind::Text),
        ("REF_GENERATION", Kind::Text),
    ];
    batch(&COLUMNS, &found)
}

/// The kind of table that a client asks for: Hive's own names, and JDBC's. Others are ignored, as in Hive.
fn hive_kind(kind: &str) -> Option<&'static str> {
    match kind.to_ascii_uppercase().as_str() {
        "VIEW" | "VIRTUAL_VIEW" => Some("VIEW"),
        "TABLE" | "MANAGED_TABLE" | "EXTERNAL_TABLE" => Some("TABLE"),
        _ => None,
    }
}

const COLUMN_COLUMNS: [(&str, Kind); 23] = [
    ("TABLE_CAT", Kind::Text),
    ("TABLE_SCHEM", Kind::Text),
    ("TABLE_NAME", Kind::Text),
    ("COLUMN_NAME", Kind::Text),
    ("DATA_TYPE", Kind::Int),
    ("TYPE_NAME", Kind::Text),
    ("COLUMN_SIZE", Kind::Int),
    ("BUFFER_LENGTH", Kind::Tiny),
    ("DECIMAL_DIGITS", Kind::Int),
    ("NUM_PREC_RADIX", Kind::Int),
    ("NULLABLE", Kind::Int),
    ("REMARKS", Kind::Text),
    ("COLUMN_DEF", Kind::Text),
    ("SQL_DATA_TYPE", Kind::Int),
    ("SQL_DATETIME_SUB", Kind::Int),
    ("CHAR_OCTET_LENGTH", Kind::Int),
    ("ORDINAL_POSITION", Kind::Int),
    ("IS_NULLABLE", Kind::Text),
    ("SCOPE_CATALOG", Kind::Text),
    ("SCOPE_SCHEMA", Kind::Text),
    ("SCOPE_TABLE", Kind::Text),
    ("SOURCE_DATA_TYPE", Kind::Small),
    ("IS_AUTO_INCREMENT", Kind::Text),
];

pub(super) async fn columns(
    lane: &Arc<Lane>,
    schema: Option<&str>,
    table: Option<&str>,
    column: Option<&str>,
) -> Result<RecordBatch, SqlError> {
    let (schemas, tables) = (schema_pattern(schema), Pattern::new(table.unwrap_or("%")));
    let names = Pattern::sql(column.unwrap_or("%"), true);
    let comments = comments(lane).await?;
    let rows = query(
        lane,
        "SELECT table_schema, table_name, column_name, udt_name, character_maximum_length, numeric_precision, \
         numeric_scale, is_nullable, column_default, ordinal_position, is_identity \
         FROM information_schema.columns WHERE table_schema NOT IN ('pg_catalog', 'information_schema') \
         ORDER BY table_schema, table_name, ordinal_position",
    )
    .await?;
    let mut found = Vec::new();
    for row in &rows {
        let [schema, table, name] = [0, 1, 2].map(|at| text(row.get(at)));
        if schemas.matches(hive_schema(schema)) && tables.matches(table) && names.matches(name) {
            found.push(column_row(row, &comments));
        }
    }
    batch(&COLUMN_COLUMNS, &found)
}

fn column_row(row: &[Option<String>], comments: &BTreeMap<(String, String, i32), String>) -> Vec<Cell> {
    let [schema, table, name, udt] = [0, 1, 2, 3].map(|at| text(row.get(at)));
    let [length, precision, scale] = [4, 5, 6].map(|at| number(row.get(at)));
    let position = number(row.get(9)).unwrap_or(0);
    let kind = hive_name(udt, length);
    let base = kind.split('<').next().unwrap_or_default();
    let (data_type, size) = TYPES
        .iter()
        .find(|(name, ..)| *name == base)
        .map_or((12, None), |(_, number, size)| (*number, *size));
    let is_decimal = base == "decimal";
    let is_number = size.is_some() && (2..=8).contains(&data_type) || matches!(data_type, -6 | -5);
    let size = match base {
        "decimal" => precision,
        "varchar" | "char" => length,
        _ => size,
    };
    let digits = match base {
        "decimal" => scale,
        "float" | "double" => size,
        "timestamp" => Some(9),
        "boolean" | "tinyint" | "smallint" | "int" | "bigint" => Some(0),
        _ => None,
    };
    let is_nullable = text(row.get(7)) != "NO";
    let shown = if kind.contains('<') { kind } else { kind.to_ascii_uppercase() };
    vec![
        Cell::Null,
        Cell::from(hive_schema(schema)),
        Cell::from(table),
        Cell::from(name),
        Cell::Int(data_type),
        Cell::Text(shown),
        size.into(),
        Cell::Null,
        digits.into(),
        (is_number || is_decimal).then_some(10).into(),
        Cell::Int(if is_nullable { NULLABLE } else { NO_NULLS }),
        comment(comments, schema, table, position),
        row.get(8).and_then(|it| it.as_deref()).map_or(Cell::Null, Cell::from),
        Cell::Null,
        Cell::Null,
        Cell::Null,
        Cell::Int(position),
        Cell::from(if is_nullable { "YES" } else { "NO" }),
        Cell::Null,
        Cell::Null,
        Cell::Null,
        Cell::Null,
        Cell::from(if text(row.get(10)) == "YES" { "YES" } else { "NO" }),
    ]
}

/// Hive's name of a type, from PostgreSQL's internal one.
fn hive_name(udt: &str, length: Option<i32>) -> String {
    if let Some(item) = udt.strip_prefix('_') {
        return format!("array<{}>", hive_name(item, None));
    }
    match udt {
        "varchar" if length.is_some() => "varchar".to_string(),
        _ => HIVE_NAMES.iter().find(|(name, _)| *name == udt).map_or("string", |(_, hive)| hive).to_string(),
    }
}

pub(super) async fn functions(lane: &Arc<Lane>, name: Option<&str>) -> Result<RecordBatch, SqlError> {
    let pattern = Pattern::sql(name.unwrap_or("%"), false);
    let rows = query(lane, "SELECT DISTINCT proname FROM pg_catalog.pg_proc ORDER BY 1").await?;
    let names = rows.iter().map(|row| text(row.first())).filter(|name| pattern.matches(name));
    let row = |name: &str| {
        let named = [Cell::Null, Cell::Null, Cell::from(name), Cell::from("")];
        named.into_iter().chain([Cell::Int(1), Cell::from(name)]).collect()
    };
    let rows: Vec<Vec<Cell>> = names.map(row).collect();
    const COLUMNS: [(&str, Kind); 6] = [
        ("FUNCTION_CAT", Kind::Text),
        ("FUNCTION_SCHEM", Kind::Text),
        ("FUNCTION_NAME", Kind::Text),
        ("REMARKS", Kind::Text),
        ("FUNCTION_TYPE", Kind::Int),
        ("SPECIFIC_NAME", Kind::Text),
    ];
    batch(&COLUMNS, &rows)
}

/// Names in this call are names, not patterns.
pub(super) async fn primary_keys(
    lane: &Arc<Lane>,
    schema: Option<&str>,
    table: Option<&str>,
) -> Result<RecordBatch, SqlError> {
    let rows = query(
        lane,
        "SELECT k.table_schema, k.table_name, k.column_name, k.ordinal_position, k.constraint_name \
         FROM information_schema.key_column_usage k JOIN information_schema.table_constraints c \
         ON c.constraint_schema = k.constraint_schema AND c.constraint_name = k.constraint_name \
         AND c.table_name = k.table_name WHERE c.constraint_type = 'PRIMARY KEY' \
         ORDER BY k.table_schema, k.table_name, k.column_name",
    )
    .await?;
    let mut found = Vec::new();
    for row in &rows {
        let [in_schema, name, column] = [0, 1, 2].map(|at| text(row.get(at)));
        let is_schema = schema.is_none_or(|it| it.is_empty() || own_schema(it) == in_schema);
        if is_schema && table.is_none_or(|it| it.eq_ignore_ascii_case(name)) {
            let named =
                [Cell::from(""), Cell::from(hive_schema(in_schema)), Cell::from(name), Cell::from(column)];
            let key = [number(row.get(3)).into(), Cell::from(text(row.get(4)))];
            found.push(named.into_iter().chain(key).collect());
        }
    }
    const COLUMNS: [(&str, Kind); 6] = [
        ("TABLE_CAT", Kind::Text),
        ("TABLE_SCHEM", Kind::Text),
        ("TABLE_NAME", Kind::Text),
        ("COLUMN_NAME", Kind::Text),
        ("KEY_SEQ", Kind::Int),
        ("PK_NAME", Kind::Text),
    ];
    batch(&COLUMNS, &found)
}

/// There are no foreign keys.
pub(super) fn cross_reference() -> Result<RecordBatch, SqlError> {
    const COLUMNS: [(&str, Kind); 14] = [
        ("PKTABLE_CAT", Kind::Text),
        ("PKTABLE_SCHEM", Kind::Text),
        ("PKTABLE_NAME", Kind::Text),
        ("PKCOLUMN_NAME", Kind::Text),
        ("FKTABLE_CAT", Kind::Text),
        ("FKTABLE_SCHEM", Kind::Text),
        ("FKTABLE_NAME", Kind::Text),
        ("FKCOLUMN_NAME", Kind::Text),
        // Hive's spelling.
        ("KEQ_SEQ", Kind::Int),
        ("UPDATE_RULE", Kind::Int),
        ("DELETE_RULE", Kind::Int),
        ("FK_NAME", Kind::Text),
        ("PK_NAME", Kind::Text),
        ("DEFERRABILITY", Kind::Int),
    ];
    batch(&COLUMNS, &[])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_have_hives_names() {
        assert_eq!(hive_name("int4", None), "int");
        assert_eq!(hive_name("_float8", None), "array<double>");
        assert_eq!(hive_name("varchar", Some(3)), "varchar");
        assert_eq!(hive_name("varchar", None), "string");
        assert_eq!(hive_name("uuid", None), "string");
    }

    #[test]
    fn the_schema_public_is_hives_default() {
        assert_eq!((hive_schema("public"), hive_schema("sales")), ("default", "sales"));
        assert_eq!((own_schema("Default"), own_schema("sales")), ("public", "sales"));
    }
}
