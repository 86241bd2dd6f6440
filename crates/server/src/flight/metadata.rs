//! Catalog metadata, queried by SQL on `information_schema`, so that clients see only what their role may
//! see; and server metadata.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use arrow::array::{AsArray, RecordBatch};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use arrow_flight::sql::metadata::{
    GetTablesBuilder, SqlInfoData, SqlInfoDataBuilder, XdbcTypeInfo, XdbcTypeInfoData,
    XdbcTypeInfoDataBuilder,
};
use arrow_flight::sql::{
    CommandGetCatalogs, CommandGetDbSchemas, CommandGetTableTypes, CommandGetTables, Nullable, Searchable,
    SqlInfo, SqlNullOrdering, SqlSupportedCaseSensitivity, SqlSupportedTransaction,
    SqlTransactionIsolationLevel, XdbcDataType, XdbcDatetimeSubcode,
};
use harrier_error::{SqlError, SqlState};

use super::consumer::Collect;
use super::executor::{Executor, StatementInputs};
use super::ingest::quote_identifier;

/// Flight's table types by their names in `information_schema`.
const TABLE_TYPES: [(&str, &str); 4] = [
    ("BASE TABLE", "TABLE"),
    ("VIEW", "VIEW"),
    ("LOCAL TEMPORARY", "LOCAL TEMPORARY"),
    ("FOREIGN", "FOREIGN TABLE"),
];

/// Built-in schemas; their tables have a separate type, which tools hide.
const SYSTEM_SCHEMAS: [&str; 3] = ["information_schema", "pg_catalog", "sys"];

pub(super) async fn catalogs(
    executor: &mut Executor,
    command: CommandGetCatalogs,
) -> Result<RecordBatch, SqlError> {
    let mut builder = command.into_builder();
    for row in query(executor, "SELECT DISTINCT catalog_name FROM information_schema.schemata").await? {
        builder.append(&row[0]);
    }
    builder.build().map_err(unbuildable)
}

pub(super) async fn schemas(
    executor: &mut Executor,
    command: CommandGetDbSchemas,
) -> Result<RecordBatch, SqlError> {
    let mut text = "SELECT DISTINCT catalog_name, schema_name FROM information_schema.schemata".to_string();
    let conditions = conditions([
        ("catalog_name", "=", command.catalog.as_deref()),
        ("schema_name", "LIKE", command.db_schema_filter_pattern.as_deref()),
    ]);
    text.push_str(&conditions);
    let mut builder = command.into_builder();
    for row in query(executor, &text).await? {
        builder.append(&row[0], &row[1]);
    }
    builder.build().map_err(unbuildable)
}

pub(super) async fn tables(
    executor: &mut Executor,
    command: CommandGetTables,
) -> Result<RecordBatch, SqlError> {
    let mut text =
        "SELECT table_catalog, table_schema, table_name, table_type FROM information_schema.tables"
            .to_string();
    let conditions = conditions([
        ("table_catalog", "=", command.catalog.as_deref()),
        ("table_schema", "LIKE", command.db_schema_filter_pattern.as_deref()),
        ("table_name", "LIKE", command.table_name_filter_pattern.as_deref()),
    ]);
    text.push_str(&conditions);
    let wanted = command.table_types.clone();
    let include_schema = command.include_schema;
    let mut builder: GetTablesBuilder = command.into_builder();
    for row in query(executor, &text).await? {
        let [catalog, schema, table, kind] = &row[..] else { continue };
        let kind = table_type(schema, kind);
        if !wanted.is_empty() && !wanted.contains(&kind) {
            continue;
        }
        let columns = if include_schema {
            match columns(executor, &[catalog, schema, table]).await? {
                Some(columns) => columns,
                None => continue,
            }
        } else {
            Schema::empty()
        };
        builder.append(catalog, schema, table, kind, &columns).map_err(unbuildable)?;
    }
    builder.build().map_err(unbuildable)
}

pub(super) fn table_types(command: CommandGetTableTypes) -> Result<RecordBatch, SqlError> {
    let mut builder = command.into_builder();
    for (_, kind) in TABLE_TYPES {
        builder.append(kind);
    }
    for kind in ["SYSTEM TABLE", "SYSTEM VIEW"] {
        builder.append(kind);
    }
    builder.build().map_err(unbuildable)
}

fn table_type(schema: &str, kind: &str) -> String {
    if SYSTEM_SCHEMAS.contains(&schema) {
        return if kind.ends_with("VIEW") { "SYSTEM VIEW" } else { "SYSTEM TABLE" }.to_string();
    }
    let known = TABLE_TYPES.into_iter().find(|(name, _)| *name == kind);
    known.map_or(kind, |(_, kind)| kind).to_string()
}

/// The columns of a table. `None`: it was dropped meanwhile.
async fn columns(executor: &mut Executor, name: &[&String]) -> Result<Option<Schema>, SqlError> {
    let name = name.iter().map(quote_identifier).collect::<Vec<_>>().join(".");
    match executor.describe(&format!("SELECT * FROM {name}")).await {
        Ok(described) => {
            let columns = described.and_then(|(_, description)| description.columns);
            Ok(columns.map(|columns| super::encode::wire_schema(&columns).as_ref().clone()))
        }
        Err(failure) if failure.sqlstate == SqlState::UNDEFINED_TABLE => Ok(None),
        // A role may see the name of a table that it may not read.
        Err(failure) if failure.sqlstate == SqlState::INSUFFICIENT_PRIVILEGE => Ok(Some(Schema::empty())),
        Err(failure) => Err(failure),
    }
}

fn conditions<const N: usize>(wanted: [(&str, &str, Option<&str>); N]) -> String {
    let wanted = wanted.into_iter().filter_map(|(column, operator, value)| {
        Some(format!("{column} {operator} '{}'", value?.replace('\'', "''")))
    });
    let wanted = wanted.collect::<Vec<_>>().join(" AND ");
    if wanted.is_empty() { wanted } else { format!(" WHERE {wanted}") }
}

/// The rows of a query as text; NULL is empty.
async fn query(executor: &mut Executor, text: &str) -> Result<Vec<Vec<String>>, SqlError> {
    let mut collected = Collect::default();
    executor.run(text, StatementInputs::default(), &mut collected).await?;
    let mut rows = Vec::new();
    for batch in &collected.0 {
        let columns = batch.columns().iter().map(|column| cast(column, &DataType::Utf8));
        let columns = columns.collect::<Result<Vec<_>, _>>().map_err(|error| unbuildable(error.into()))?;
        for row in 0..batch.num_rows() {
            let values = columns.iter().map(|column| column.as_string::<i32>().value(row).to_string());
            rows.push(values.collect());
        }
    }
    Ok(rows)
}

pub(super) fn unbuildable(error: arrow_flight::error::FlightError) -> SqlError {
    SqlError::new(SqlState::INTERNAL_ERROR, format!("an answer could not be built: {error}"))
}

/// Keys are not reported here: the result is empty.
pub(super) fn primary_keys() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new("catalog_name", DataType::Utf8, true),
        Field::new("db_schema_name", DataType::Utf8, true),
        Field::new("table_name", DataType::Utf8, false),
        Field::new("column_name", DataType::Utf8, false),
        Field::new("key_sequence", DataType::Int32, false),
        Field::new("key_name", DataType::Utf8, true),
    ]))
}

/// Empty like [`primary_keys`]; also for exported and imported keys.
pub(super) fn foreign_keys() -> SchemaRef {
    let mut fields = Vec::new();
    for side in ["pk", "fk"] {
        for (name, is_nullable) in
            [("catalog_name", true), ("db_schema_name", true), ("table_name", false), ("column_name", false)]
        {
            fields.push(Field::new(format!("{side}_{name}"), DataType::Utf8, is_nullable));
        }
    }
    fields.push(Field::new("key_sequence", DataType::Int32, false));
    fields.push(Field::new("fk_key_name", DataType::Utf8, true));
    fields.push(Field::new("pk_key_name", DataType::Utf8, true));
    fields.push(Field::new("update_rule", DataType::UInt8, false));
    fields.push(Field::new("delete_rule", DataType::UInt8, false));
    Arc::new(Schema::new(fields))
}

/// The server's properties.
pub(super) fn sql_info() -> &'static Result<SqlInfoData, SqlError> {
    static INFO: LazyLock<Result<SqlInfoData, SqlError>> = LazyLock::new(|| {
        let mut builder = SqlInfoDataBuilder::new();
        builder.append(SqlInfo::FlightSqlServerName, "Harrier");
        builder.append(SqlInfo::FlightSqlServerVersion, env!("CARGO_PKG_VERSION"));
        // Version of the columnar format that arrow-rs writes.
        builder.append(SqlInfo::FlightSqlServerArrowVersion, "1.5");
        builder.append(SqlInfo::FlightSqlServerReadOnly, false);
        builder.append(SqlInfo::FlightSqlServerSql, true);
        builder.append(SqlInfo::FlightSqlServerSubstrait, false);
        builder.append(SqlInfo::FlightSqlServerTransaction, SqlSupportedTransaction::Savepoint as i32);
        builder.append(SqlInfo::FlightSqlServerCancel, true);
        builder.append(SqlInfo::FlightSqlServerBulkIngestion, true);
        builder.append(SqlInfo::FlightSqlServerIngestTransactionsSupported, true);
        builder.append(SqlInfo::FlightSqlServerStatementTimeout, 0i32);
        builder.append(SqlInfo::FlightSqlServerTransactionTimeout, 0i32);
        builder.append(SqlInfo::SqlDdlCatalog, false);
        builder.append(SqlInfo::SqlDdlSchema, true);
        builder.append(SqlInfo::SqlDdlTable, true);
        let lower = SqlSupportedCaseSensitivity::SqlCaseSensitivityLowercase as i32;
        builder.append(SqlInfo::SqlIdentifierCase, lower);
        builder.append(SqlInfo::SqlIdentifierQuoteChar, "\"");
        let exact = SqlSupportedCaseSensitivity::SqlCaseSensitivityUnknown as i32;
        builder.append(SqlInfo::SqlQuotedIdentifierCase, exact);
        builder.append(SqlInfo::SqlAllTablesAreSelectable, false);
        builder.append(SqlInfo::SqlNullOrdering, SqlNullOrdering::SqlNullsSortedHigh as i32);
        builder.append(SqlInfo::SqlSearchStringEscape, "\\");
        builder.append(SqlInfo::SqlExtraNameCharacters, "$");
        builder.append(SqlInfo::SqlSupportsColumnAliasing, true);
        builder.append(SqlInfo::SqlNullPlusNullIsNull, true);
        builder.append(SqlInfo::SqlSupportsConvert, BTreeMap::<i32, Vec<i32>>::new());
        builder.append(SqlInfo::SqlSupportsTableCorrelationNames, true);
        builder.append(SqlInfo::SqlSupportsDifferentTableCorrelationNames, false);
        builder.append(SqlInfo::SqlSupportsExpressionsInOrderBy, true);
        builder.append(SqlInfo::SqlSupportsOrderByUnrelated, true);
        // GROUP BY of unselected columns, and without columns.
        builder.append(SqlInfo::SqlSupportedGroupBy, 0b11i32);
        builder.append(SqlInfo::SqlSupportsLikeEscapeClause, true);
        builder.append(SqlInfo::SqlSupportsNonNullableColumns, true);
        builder.append(SqlInfo::SqlSchemaTerm, "schema");
        builder.append(SqlInfo::SqlProcedureTerm, "function");
        builder.append(SqlInfo::SqlCatalogTerm, "database");
        builder.append(SqlInfo::SqlCatalogAtStart, true);
        builder.append(SqlInfo::SqlSelectForUpdateSupported, false);
        builder.append(SqlInfo::SqlStoredProceduresSupported, false);
        // In comparisons, EXISTS and IN.
        builder.append(SqlInfo::SqlSupportedSubqueries, 0b111i32);
        builder.append(SqlInfo::SqlCorrelatedSubqueriesSupported, true);
        // UNION and UNION ALL.
        builder.append(SqlInfo::SqlSupportedUnions, 0b11i32);
        let isolation = SqlTransactionIsolationLevel::SqlTransactionRepeatableRead as i32;
        builder.append(SqlInfo::SqlDefaultTransactionIsolation, isolation);
        builder.append(SqlInfo::SqlTransactionsSupported, true);
        builder.append(SqlInfo::SqlSupportedTransactionsIsolationLevels, 1i32 << isolation);
        builder.append(SqlInfo::SqlDataDefinitionCausesTransactionCommit, false);
        builder.append(SqlInfo::SqlDataDefinitionsInTransactionsIgnored, false);
        builder.append(SqlInfo::SqlBatchUpdatesSupported, true);
        builder.append(SqlInfo::SqlSavepointsSupported, true);
        builder.append(SqlInfo::SqlNamedParametersSupported, false);
        builder.build().map_err(unbuildable)
    });
    &INFO
}

/// The SQL types, for tools that create tables.
pub(super) fn xdbc_types() -> &'static Result<XdbcTypeInfoData, SqlError> {
    static TYPES: LazyLock<Result<XdbcTypeInfoData, SqlError>> = LazyLock::new(|| {
        use XdbcDataType as Xdbc;
        use XdbcDatetimeSubcode as Subcode;
        // Name, type, precision in digits or bits or bytes, radix, quote, parameters, subcode.
        let rows = [
            ("boolean", Xdbc::XdbcBit, Some(1), None, None, None, None),
            ("smallint", Xdbc::XdbcSmallint, Some(16), Some(2), None, None, None),
            ("integer", Xdbc::XdbcInteger, Some(32), Some(2), None, None, None),
            ("bigint", Xdbc::XdbcBigint, Some(64), Some(2), None, None, None),
            ("real", Xdbc::XdbcReal, Some(24), Some(2), None, None, None),
            ("double precision", Xdbc::XdbcDouble, Some(53), Some(2), None, None, None),
            ("numeric", Xdbc::XdbcNumeric, Some(76), Some(10), None, Some("precision,scale"), None),
            ("text", Xdbc::XdbcLongvarchar, None, None, Some("'"), None, None),
            ("varchar", Xdbc::XdbcVarchar, None, None, Some("'"), Some("length"), None),
            ("bytea", Xdbc::XdbcVarbinary, None, None, Some("'"), None, None),
            ("date", Xdbc::XdbcDate, Some(10), None, Some("'"), None, Some(Subcode::XdbcSubcodeYear)),
            ("time", Xdbc::XdbcTime, Some(15), None, Some("'"), None, Some(Subcode::XdbcSubcodeTime)),
            (
                "timestamp",
                Xdbc::XdbcTimestamp,
                Some(26),
                None,
                Some("'"),
                None,
                Some(Subcode::XdbcSubcodeTimestamp),
            ),
            (
                "timestamp with time zone",
                Xdbc::XdbcTimestamp,
                Some(32),
                None,
                Some("'"),
                None,
                Some(Subcode::XdbcSubcodeTimestampWithTimezone),
            ),
            ("interval", Xdbc::XdbcInterval, Some(49), None, Some("'"), None, None),
        ];
        let mut builder = XdbcTypeInfoDataBuilder::new();
        for (name, data_type, size, radix, quote, parameters, subcode) in rows {
            let is_datetime = subcode.is_some();
            let parameters: Option<&str> = parameters;
            builder.append(XdbcTypeInfo {
                type_name: name.to_string(),
                data_type,
                column_size: size,
                literal_prefix: quote.map(str::to_string),
                literal_suffix: quote.map(str::to_string),
                create_params: parameters.map(|it| it.split(',').map(str::to_string).collect()),
                nullable: Nullable::NullabilityNullable,
                case_sensitive: quote.is_some() && matches!(name, "text" | "varchar"),
                searchable: Searchable::Full,
                unsigned_attribute: radix.map(|_| false),
                fixed_prec_scale: false,
                auto_increment: radix.map(|_| false),
                local_type_name: Some(name.to_string()),
                minimum_scale: (name == "numeric").then_some(0),
                maximum_scale: (name == "numeric").then_some(76),
                sql_data_type: if is_datetime { Xdbc::XdbcDatetime } else { data_type },
                datetime_subcode: subcode,
                num_prec_radix: radix,
                interval_precision: None,
            });
        }
        builder.build().map_err(unbuildable)
    });
    &TYPES
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_patterns_are_quoted() {
        assert_eq!(conditions([("a", "=", None), ("b", "LIKE", None)]), "");
        let text = conditions([("a", "=", Some("it's")), ("b", "LIKE", Some("x%"))]);
        assert_eq!(text, " WHERE a = 'it''s' AND b LIKE 'x%'");
    }

    #[test]
    fn constant_answers_can_be_built() {
        assert!(sql_info().as_ref().is_ok_and(|info| info.record_batch([0, 8]).unwrap().num_rows() == 2));
        assert!(xdbc_types().as_ref().is_ok_and(|types| types.record_batch(-5).unwrap().num_rows() == 1));
        let names =
            |schema: SchemaRef| schema.fields().iter().map(|it| it.name().clone()).collect::<Vec<_>>();
        assert_eq!(
            names(primary_keys()),
            ["catalog_name", "db_schema_name", "table_name", "column_name", "key_sequence", "key_name"]
        );
        assert_eq!(foreign_keys().fields().len(), 13);
        assert_eq!(table_type("pg_catalog", "VIEW"), "SYSTEM VIEW");
        assert_eq!(table_type("public", "BASE TABLE"), "TABLE");
    }
}
