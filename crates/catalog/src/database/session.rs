//! One transaction of the database, and the rows of its results.
//!
//! Cancellation: dropping a `Session` rolls back.

use std::path::Path;
use std::time::SystemTime;

use futures::TryStreamExt;
use sqlx::postgres::{PgRow, PgValueFormat};
use sqlx::sqlite::SqliteRow;
use sqlx::{AssertSqlSafe, Decode, Postgres, Row as _, Sqlite, TypeInfo, ValueRef};

use crate::database::errors::map_error;
use crate::database::sql::{Dialect, from_hex, table_query, text};
use crate::error::{Error, Result};
use crate::model::files::Cell;

/// Maximum length of an SQLite query whose plan is cached. A connection caches a hundred of them.
const PREPARED_BYTES_MAX: usize = 4096;

/// One database transaction.
pub(crate) enum Session {
    Sqlite(sqlx::Transaction<'static, Sqlite>),
    /// On a database file without writers, as long as there are none.
    IdleFile(sqlx::Transaction<'static, Sqlite>, IdleFile),
    Postgres(sqlx::Transaction<'static, Postgres>),
}

/// A row of a result.
#[derive(Debug)]
pub(crate) struct Row(Vec<Cell>);

impl Session {
    pub fn dialect(&self) -> Dialect {
        match self {
            Self::Sqlite(_) | Self::IdleFile(..) => Dialect::Sqlite,
            Self::Postgres(_) => Dialect::Postgres,
        }
    }

    pub async fn query(&mut self, sql: impl Into<String>) -> Result<Vec<Row>> {
        let sql = sql.into();
        match self {
            Self::Sqlite(transaction) => {
                let rows = cached_query(sql).fetch_all(&mut **transaction).await.map_err(map_error)?;
                rows.iter().map(sqlite_row).collect()
            }
            Self::IdleFile(transaction, idle_file) => {
                let rows = cached_query(sql).fetch_all(&mut **transaction).await;
                // The error matters less than the change of the file.
                idle_file.check()?;
                rows.map_err(map_error)?.iter().map(sqlite_row).collect()
            }
            Self::Postgres(transaction) => {
                let rows = sqlx::raw_sql(AssertSqlSafe(sql))
                    .fetch_all(&mut **transaction)
                    .await
                    .map_err(map_error)?;
                rows.iter().map(postgres_row).collect()
            }
        }
    }

    /// Streams the rows of a result, for results too large to buffer.
    pub async fn each(
        &mut self,
        sql: impl Into<String>,
        mut with: impl FnMut(Row) -> Result<()>,
    ) -> Result<()> {
        let sql = sql.into();
        match self {
            Self::Sqlite(transaction) => {
                let mut rows = cached_query(sql).fetch(&mut **transaction);
                while let Some(row) = rows.try_next().await.map_err(map_error)? {
                    with(sqlite_row(&row)?)?;
                }
            }
            Self::IdleFile(transaction, idle_file) => {
                let mut rows = cached_query(sql).fetch(&mut **transaction);
                while let Some(row) = rows.try_next().await.map_err(map_error)? {
                    with(sqlite_row(&row)?)?;
                }
                idle_file.check()?;
            }
            Self::Postgres(transaction) => {
                let sql = sqlx::raw_sql(AssertSqlSafe(sql));
                let mut rows = sql.fetch(&mut **transaction);
                while let Some(row) = rows.try_next().await.map_err(map_error)? {
                    with(postgres_row(&row)?)?;
                }
            }
        }
        Ok(())
    }

    /// Returns the number of affected rows.
    pub async fn execute(&mut self, sql: impl Into<String>) -> Result<u64> {
        let sql = sqlx::raw_sql(AssertSqlSafe(sql.into()));
        match self {
            Self::Sqlite(transaction) | Self::IdleFile(transaction, _) => {
                Ok(sql.execute(&mut **transaction).await.map_err(map_error)?.rows_affected())
            }
            Self::Postgres(transaction) => {
                Ok(sql.execute(&mut **transaction).await.map_err(map_error)?.rows_affected())
            }
        }
    }

    pub async fn commit(self) -> Result<(), sqlx::Error> {
        match self {
            Self::Sqlite(transaction) | Self::IdleFile(transaction, _) => transaction.commit().await,
            Self::Postgres(transaction) => transaction.commit().await,
        }
    }

    /// Rolls back. Dropping does the same, but on a busy runtime later, while others may wait for its lock.
    pub async fn rollback(self) {
        let outcome = match self {
            Self::Sqlite(transaction) | Self::IdleFile(transaction, _) => transaction.rollback().await,
            Self::Postgres(transaction) => transaction.rollback().await,
        };
        if let Err(error) = outcome {
            tracing::debug!(%error, "a transaction of the catalog ended with its connection");
        }
    }

    pub async fn has_table(&mut self, name: &str) -> Result<bool> {
        let sql = table_query(self.dialect(), name)?;
        Ok(!self.query(sql).await?.is_empty())
    }

    /// Whether a table has a column of this exact name.
    pub async fn has_column(&mut self, table: &str, column: &str) -> Result<bool> {
        let (table, column) = (text(table)?, text(column)?);
        let sql = match self.dialect() {
            Dialect::Sqlite => format!("SELECT 1 FROM pragma_table_info({table}) WHERE name = {column}"),
            Dialect::Postgres => format!(
                "SELECT 1 FROM pg_attribute WHERE attrelid = to_regclass({table}) AND attname = {column} AND attnum > 0"
            ),
        };
        Ok(!self.query(sql).await?.is_empty())
    }
}

/// The state of a database file that no process has open.
pub(crate) struct IdleFile {
    path: String,
    pub(super) has_log: bool,
    changed: Option<SystemTime>,
    bytes: u64,
}

impl IdleFile {
    pub(super) fn inspect(path: &str) -> Result<Self> {
        let metadata = std::fs::metadata(path).map_err(|error| map_error(sqlx::Error::Io(error)))?;
        let has_log = Path::new(&format!("{path}-wal")).exists();
        Ok(Self { path: path.to_string(), has_log, changed: metadata.modified().ok(), bytes: metadata.len() })
    }

    /// Errors: a writer has appeared.
    fn check(&self) -> Result<()> {
        let now = Self::inspect(&self.path)?;
        if !now.has_log && now.changed == self.changed && now.bytes == self.bytes {
            return Ok(());
        }
        let message =
            "the catalog was opened by somebody who writes while it was read: run the statement again";
        Err(map_error(sqlx::Error::Protocol(message.to_string())))
    }
}

/// A query of SQLite whose plan is cached, unless it is too long to be repeated.
pub(super) fn cached_query(
    sql: String,
) -> sqlx::query::Query<'static, Sqlite, sqlx::sqlite::SqliteArguments> {
    let is_short = sql.len() <= PREPARED_BYTES_MAX;
    sqlx::query(AssertSqlSafe(sql)).persistent(is_short)
}

pub(super) fn sqlite_row(row: &SqliteRow) -> Result<Row> {
    let cell = |index| {
        let value = row.try_get_raw(index).map_err(map_error)?;
        if value.is_null() {
            return Ok(Cell::Null);
        }
        let kind = value.type_info().name().to_string();
        let unreadable = |error| Error::Corrupt(format!("a value of the catalog cannot be read: {error}"));
        match kind.as_str() {
            "INTEGER" => <i64 as Decode<Sqlite>>::decode(value).map(Cell::Integer).map_err(unreadable),
            "REAL" => <f64 as Decode<Sqlite>>::decode(value)
                .map(|real| Cell::Text(real.to_string()))
                .map_err(unreadable),
            "BLOB" => <Vec<u8> as Decode<Sqlite>>::decode(value).map(Cell::Blob).map_err(unreadable),
            _ => <String as Decode<Sqlite>>::decode(value).map(Cell::Text).map_err(unreadable),
        }
    };
    Ok(Row((0..row.len()).map(cell).collect::<Result<_>>()?))
}

/// `raw_sql` uses the simple query protocol, so every value arrives as text.
pub(super) fn postgres_row(row: &PgRow) -> Result<Row> {
    let cell = |index| {
        let value = row.try_get_raw(index).map_err(map_error)?;
        if value.is_null() {
            return Ok(Cell::Null);
        }
        let unreadable = |error: &dyn std::fmt::Display| {
            Error::Corrupt(format!("a value of the catalog cannot be read: {error}"))
        };
        if value.format() != PgValueFormat::Text {
            return Err(unreadable(&"it came in binary"));
        }
        let written = value.as_str().map_err(|error| unreadable(&error))?;
        match value.type_info().name() {
            "INT2" | "INT4" | "INT8" => {
                written.parse().map(Cell::Integer).map_err(|error| unreadable(&error))
            }
            "BOOL" => Ok(Cell::Integer(i64::from(written == "t"))),
            "BYTEA" => {
                let bytes = written.strip_prefix("\\x").and_then(from_hex);
                bytes.map(Cell::Blob).ok_or_else(|| unreadable(&"bytes are not in hex"))
            }
            _ => Ok(Cell::Text(written.to_string())),
        }
    };
    Ok(Row((0..row.len()).map(cell).collect::<Result<_>>()?))
}

impl Row {
    pub fn integer(&self, index: usize) -> Result<i64> {
        self.optional_integer(index)?.ok_or_else(|| self.type_error(index, "a number"))
    }

    pub fn optional_integer(&self, index: usize) -> Result<Option<i64>> {
        match self.0.get(index) {
            Some(Cell::Integer(value)) => Ok(Some(*value)),
            Some(Cell::Null) => Ok(None),
            // SQLite stores the value given to an untyped column.
            Some(Cell::Text(value)) => {
                value.parse().map(Some).map_err(|_| self.type_error(index, "a number"))
            }
            _ => Err(self.type_error(index, "a number")),
        }
    }

    pub fn text(&self, index: usize) -> Result<String> {
        self.optional_text(index)?.ok_or_else(|| self.type_error(index, "text"))
    }

    pub fn optional_text(&self, index: usize) -> Result<Option<String>> {
        match self.0.get(index) {
            Some(Cell::Text(value)) => Ok(Some(value.clone())),
            Some(Cell::Integer(value)) => Ok(Some(value.to_string())),
            Some(Cell::Null) => Ok(None),
            _ => Err(self.type_error(index, "text")),
        }
    }

    /// A column built by `flag`.
    pub fn flag(&self, index: usize) -> Result<bool> {
        Ok(self.optional_flag(index)?.unwrap_or(false))
    }

    pub fn optional_flag(&self, index: usize) -> Result<Option<bool>> {
        Ok(self.optional_integer(index)?.map(|value| value != 0))
    }

    /// Like `optional_text`, without a copy.
    pub fn into_text(mut self, index: usize) -> Result<Option<String>> {
        match self.0.get_mut(index) {
            Some(Cell::Text(value)) => Ok(Some(std::mem::take(value))),
            _ => self.optional_text(index),
        }
    }

    pub fn into_cells(self) -> Vec<Cell> {
        self.0
    }

    fn type_error(&self, index: usize, wanted: &str) -> Error {
        Error::Corrupt(format!("the catalog has {:?} where {wanted} belongs", self.0.get(index)))
    }
}
