//! The tables of DuckLake 1.0, as DuckDB creates them in each database, and the version of Harrier's
//! additions.
//!
//! DuckLake does not describe tables, tags and options of other programs; Harrier's have their own version:
//! [`OWN`]. A catalog records its version, and the Harrier that wrote it last. A later Harrier upgrades it
//! within its first commit, so that the upgrade is atomic; a read-only one changes nothing. An earlier one
//! rejects it and names the Harrier that wrote it.

pub(crate) mod changes;
pub(crate) mod identity;
pub(crate) mod inlined;
pub(crate) mod sequences;

use std::collections::BTreeMap;

use harrier_error::{SqlError, SqlState};
use uuid::Uuid;

use crate::database::session::Session;
use crate::database::sql::{Dialect, text};
use crate::error::{Error, Result};
use crate::layout::identity::rows;
use crate::model::identity::Identity;
use crate::model::values;

/// The version of DuckLake's layout that is written, and the only one that is read.
pub(crate) const VERSION: &str = "1.0";

/// The version of Harrier's additions. 0: not recorded, as in catalogs made before it was introduced, and
/// DuckDB's. 1: the current one.
pub const OWN: i64 = 1;

/// The keys of `ducklake_metadata` for the versions.
const OWN_KEY: &str = "harrier_layout";
const PROGRAM_KEY: &str = "harrier_version";
pub(crate) const KEYS: [&str; 2] = [OWN_KEY, PROGRAM_KEY];

/// The version of this program.
pub const PROGRAM: &str = env!("CARGO_PKG_VERSION");

/// Reads the version of a catalog from its settings.
///
/// Errors: it is newer than this program supports (0A000).
pub(crate) fn check(settings: &BTreeMap<String, String>) -> Result<i64> {
    let Some(found) = settings.get(OWN_KEY) else { return Ok(0) };
    let version: i64 = found.parse().map_err(|_| {
        Error::Corrupt(format!("the catalog says \"{found}\" of the version of Harrier's layout"))
    })?;
    check_version(version, settings.get(PROGRAM_KEY).map(String::as_str))?;
    Ok(version)
}

/// Errors: `version` is newer than this program supports (0A000). `program`: the Harrier that wrote it.
pub fn check_version(version: i64, program: Option<&str>) -> Result<()> {
    if version <= OWN {
        return Ok(());
    }
    let program = program.unwrap_or("of a later version");
    let message = format!(
        "the warehouse was written by Harrier {program}, in version {version} of its layout; this is Harrier {PROGRAM}, \
         which knows version {OWN}"
    );
    Err(Error::Refused(Box::new(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message)))
        .with_hint(format!("open it with Harrier {program} or a later one")))
}

/// The statements that upgrade a catalog to the current version, written by this program; none if it is
/// current.
pub(crate) fn upgrade(settings: &BTreeMap<String, String>) -> Result<Vec<String>> {
    let version = check(settings)?;
    // Migrations from earlier versions belong here, step by step.
    if version == OWN && settings.get(PROGRAM_KEY).is_some_and(|program| program == PROGRAM) {
        return Ok(Vec::new());
    }
    tracing::info!(
        from = version,
        to = OWN,
        program = PROGRAM,
        "the catalog gets the layout of this version"
    );
    let keys = KEYS.map(|key| format!("'{key}'")).join(", ");
    Ok(vec![
        format!("DELETE FROM ducklake_metadata WHERE \"scope\" IS NULL AND \"key\" IN ({keys})"),
        format!(
            "INSERT INTO ducklake_metadata (\"key\", \"value\", \"scope\", scope_id) VALUES {}",
            version_rows()
        ),
    ])
}

/// The rows of `ducklake_metadata` for the versions.
pub(crate) fn version_rows() -> String {
    format!("('{OWN_KEY}', '{OWN}', NULL, NULL), ('{PROGRAM_KEY}', '{PROGRAM}', NULL, NULL)")
}

/// Name, and columns with the types of PostgreSQL.
pub(crate) const TABLES: &[(&str, &str)] = &[
    (
        "ducklake_metadata",
        "\"key\" VARCHAR NOT NULL, \"value\" VARCHAR NOT NULL, \"scope\" VARCHAR, scope_id BIGINT",
    ),
    (
        "ducklake_snapshot",
        "snapshot_id BIGINT PRIMARY KEY, snapshot_time TIMESTAMPTZ, schema_version BIGINT, next_catalog_id BIGINT, \
         next_file_id BIGINT",
    ),
    (
        "ducklake_snapshot_changes",
        "snapshot_id BIGINT PRIMARY KEY, changes_made VARCHAR, author VARCHAR, commit_message VARCHAR, \
         commit_extra_info VARCHAR",
    ),
    (
        "ducklake_schema",
        "schema_id BIGINT PRIMARY KEY, schema_uuid UUID, begin_snapshot BIGINT, end_snapshot BIGINT, \
         schema_name VARCHAR, path VARCHAR, path_is_relative BOOLEAN",
    ),
    (
        "ducklake_table",
        "table_id BIGINT, table_uuid UUID, begin_snapshot BIGINT, end_snapshot BIGINT, schema_id BIGINT, \
         table_name VARCHAR, path VARCHAR, path_is_relative BOOLEAN",
    ),
    (
        "ducklake_view",
        "view_id BIGINT, view_uuid UUID, begin_snapshot BIGINT, end_snapshot BIGINT, schema_id BIGINT, \
         view_name VARCHAR, dialect VARCHAR, \"sql\" VARCHAR, column_aliases VARCHAR",
    ),
    (
        "ducklake_tag",
        "object_id BIGINT, begin_snapshot BIGINT, end_snapshot BIGINT, \"key\" VARCHAR, \"value\" VARCHAR",
    ),
    (
        "ducklake_column_tag",
        "table_id BIGINT, column_id BIGINT, begin_snapshot BIGINT, end_snapshot BIGINT, \"key\" VARCHAR, \
         \"value\" VARCHAR",
    ),
    (
        "ducklake_data_file",
        "data_file_id BIGINT PRIMARY KEY, table_id BIGINT, begin_snapshot BIGINT, end_snapshot BIGINT, \
         file_order BIGINT, path VARCHAR, path_is_relative BOOLEAN, file_format VARCHAR, record_count BIGINT, \
         file_size_bytes BIGINT, footer_size BIGINT, row_id_start BIGINT, partition_id BIGINT, \
         encryption_key VARCHAR, mapping_id BIGINT, partial_max BIGINT",
    ),
    (
        "ducklake_file_column_stats",
        "data_file_id BIGINT, table_id BIGINT, column_id BIGINT, column_size_bytes BIGINT, value_count BIGINT, \
         null_count BIGINT, min_value VARCHAR, max_value VARCHAR, contains_nan BOOLEAN, extra_stats VARCHAR",
    ),
    (
        "ducklake_file_variant_stats",
        "data_file_id BIGINT, table_id BIGINT, column_id BIGINT, variant_path VARCHAR, shredded_type VARCHAR, \
         column_size_bytes BIGINT, value_count BIGINT, null_count BIGINT, min_value VARCHAR, max_value VARCHAR, \
         contains_nan BOOLEAN, extra_stats VARCHAR",
    ),
    (
        "ducklake_delete_file",
        "delete_file_id BIGINT PRIMARY KEY, table_id BIGINT, begin_snapshot BIGINT, end_snapshot BIGINT, \
         data_file_id BIGINT, path VARCHAR, path_is_relative BOOLEAN, format VARCHAR, delete_count BIGINT, \
         file_size_bytes BIGINT, footer_size BIGINT, encryption_key VARCHAR, partial_max BIGINT",
    ),
    (
        "ducklake_column",
        "column_id BIGINT, begin_snapshot BIGINT, end_snapshot BIGINT, table_id BIGINT, column_order BIGINT, \
         column_name VARCHAR, column_type VARCHAR, initial_default VARCHAR, default_value VARCHAR, \
         nulls_allowed BOOLEAN, parent_column BIGINT, default_value_type VARCHAR, default_value_dialect VARCHAR",
    ),
    (
        "ducklake_table_stats",
        "table_id BIGINT, record_count BIGINT, next_row_id BIGINT, file_size_bytes BIGINT",
    ),
    (
        "ducklake_table_column_stats",
        "table_id BIGINT, column_id BIGINT, contains_null BOOLEAN, contains_nan BOOLEAN, min_value VARCHAR, \
         max_value VARCHAR, extra_stats VARCHAR",
    ),
    (
        "ducklake_partition_info",
        "partition_id BIGINT, table_id BIGINT, begin_snapshot BIGINT, end_snapshot BIGINT",
    ),
    (
        "ducklake_partition_column",
        "partition_id BIGINT, table_id BIGINT, partition_key_index BIGINT, column_id BIGINT, \"transform\" VARCHAR",
    ),
    (
        "ducklake_file_partition_value",
        "data_file_id BIGINT, table_id BIGINT, partition_key_index BIGINT, partition_value VARCHAR",
    ),
    (
        "ducklake_files_scheduled_for_deletion",
        "data_file_id BIGINT, path VARCHAR, path_is_relative BOOLEAN, schedule_start TIMESTAMPTZ",
    ),
    ("ducklake_inlined_data_tables", "table_id BIGINT, table_name VARCHAR, schema_version BIGINT"),
    ("ducklake_column_mapping", "mapping_id BIGINT, table_id BIGINT, \"type\" VARCHAR"),
    (
        "ducklake_name_mapping",
        "mapping_id BIGINT, column_id BIGINT, source_name VARCHAR, target_field_id BIGINT, parent_column BIGINT, \
         is_partition BOOLEAN",
    ),
    ("ducklake_schema_versions", "begin_snapshot BIGINT, schema_version BIGINT, table_id BIGINT"),
    (
        "ducklake_macro",
        "schema_id BIGINT, macro_id BIGINT, macro_name VARCHAR, begin_snapshot BIGINT, end_snapshot BIGINT",
    ),
    (
        "ducklake_macro_impl",
        "macro_id BIGINT, impl_id BIGINT, dialect VARCHAR, \"sql\" VARCHAR, \"type\" VARCHAR",
    ),
    (
        "ducklake_macro_parameters",
        "macro_id BIGINT, impl_id BIGINT, column_id BIGINT, parameter_name VARCHAR, parameter_type VARCHAR, \
         default_value VARCHAR, default_value_type VARCHAR",
    ),
    ("ducklake_sort_info", "sort_id BIGINT, table_id BIGINT, begin_snapshot BIGINT, end_snapshot BIGINT"),
    (
        "ducklake_sort_expression",
        "sort_id BIGINT, table_id BIGINT, sort_key_index BIGINT, expression VARCHAR, dialect VARCHAR, \
         sort_direction VARCHAR, null_order VARCHAR",
    ),
];

/// Creates the tables and snapshot 0, which contains the schema `main`.
pub(crate) async fn create(session: &mut Session, data_path: &str, identity: &Identity) -> Result<()> {
    if !data_path.ends_with('/') {
        return Err(Error::Unsupported(format!("the data path \"{data_path}\" does not end in /")));
    }
    create_tables(session).await?;
    let path = text(data_path)?;
    let program = text(&format!("Harrier {PROGRAM}"))?;
    let time = text(&values::format_time(values::now()))?;
    let uuid = Uuid::new_v4();
    for statement in [
        format!(
            "INSERT INTO ducklake_metadata (\"key\", \"value\", \"scope\", scope_id) VALUES \
             ('version', '{VERSION}', NULL, NULL), ('created_by', {program}, NULL, NULL), \
             ('data_path', {path}, NULL, NULL), ('encrypted', 'false', NULL, NULL), {}, {}",
            version_rows(),
            rows(identity)?
        ),
        format!(
            "INSERT INTO ducklake_snapshot (snapshot_id, snapshot_time, schema_version, next_catalog_id, next_file_id) \
             VALUES (0, {time}, 0, 1, 0)"
        ),
        "INSERT INTO ducklake_snapshot_changes (snapshot_id, changes_made) VALUES (0, 'created_schema:\"main\"')"
            .to_string(),
        format!(
            "INSERT INTO ducklake_schema (schema_id, schema_uuid, begin_snapshot, end_snapshot, schema_name, path, \
             path_is_relative) VALUES (0, '{uuid}', 0, NULL, 'main', 'main/', TRUE)"
        ),
    ] {
        session.execute(statement).await?;
    }
    Ok(())
}

/// Creates DuckLake's tables, empty.
pub(crate) async fn create_tables(session: &mut Session) -> Result<()> {
    for (table, columns) in TABLES {
        session.execute(format!("CREATE TABLE {table} ({})", map_types(session.dialect(), columns))).await?;
    }
    Ok(())
}

/// Maps column types: in SQLite, which has no types, DuckDB stores booleans as numbers, and other types as
/// text.
fn map_types(dialect: Dialect, columns: &str) -> String {
    match dialect {
        Dialect::Postgres => columns.to_string(),
        Dialect::Sqlite => columns
            .replace(" TIMESTAMPTZ", " VARCHAR")
            .replace(" UUID", " VARCHAR")
            .replace(" BOOLEAN", " BIGINT"),
    }
}
