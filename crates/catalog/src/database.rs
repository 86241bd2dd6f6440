//! Connections to the catalog's database, and its two SQL dialects.
//!
//! Upper layers write SQL as text, with literals made here, and read rows as plain cells: a commit of ten
//! thousand files is a few multi-row statements, and both databases run the same code.
//!
//! Cancellation: dropping a `Session` rolls back.

pub(crate) mod bulk;
pub(crate) mod fence;
pub(crate) mod retry;

use std::fmt::Write as _;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, SystemTime};

use backon::{ConstantBuilder, Retryable};
use futures::TryStreamExt;
use harrier_error::{SqlError, SqlState};
use nix::unistd::{Uid, User};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions, PgRow, PgValueFormat};
use sqlx::sqlite::{
    SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteRow, SqliteSynchronous,
};
use sqlx::{
    AssertSqlSafe, ConnectOptions, Connection as _, Decode, PgConnection, PgPool, Postgres, Row as _, Sqlite,
    SqlitePool, TypeInfo, ValueRef,
};
use tokio::time::Instant;

use crate::database::fence::Fence;
use crate::database::retry::retry_if_lost;
use crate::error::Error::Refused;
use crate::error::{Error, Result};
use crate::model::files::Cell;
use crate::model::identity::Place;

/// How long SQLite waits for another process's lock. Longer than any commit should take.
const BUSY_TIMEOUT: Duration = Duration::from_secs(30);

/// Retry interval where SQLite does not wait for a lock itself.
const BUSY_DELAY: Duration = Duration::from_millis(10);

/// How long a statement waits for one of the connections below, and for a server that does not respond.
/// Commits of one process queue for them.
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(60);
/// Interval between connection attempts to an unreachable server.
const CONNECT_WAIT: Duration = Duration::from_millis(200);
/// Read-only connections to PostgreSQL.
const POSTGRES_READERS_MAX: u32 = 6;
/// Connections to PostgreSQL for commits: while one commits, the other has begun and waits for its lock.
const POSTGRES_WRITERS_MAX: u32 = 2;
/// Read-only connections to SQLite. Commits have their own connection, so that those of one process queue in
/// order instead of polling for the lock.
const SQLITE_READERS_MAX: u32 = 4;
/// Bytes of SQL at which a multi-row statement is ended and the next begun: large enough that the round trip
/// does not matter, small enough to be parsed in little memory.
const STATEMENT_BYTES: usize = 256 * 1024;

/// Maximum length of an SQLite query whose plan is cached. A connection caches a hundred of them.
const PREPARED_BYTES_MAX: usize = 4096;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dialect {
    Sqlite,
    Postgres,
}

#[derive(Debug, Clone)]
pub(crate) enum Database {
    Sqlite {
        path: String,
        /// The open file: its device and inode.
        file: Option<(u64, u64)>,
        /// The folder of the file; absolute.
        folder: String,
        readers: SqlitePool,
        writer: SqlitePool,
        /// It has a write-ahead log, in a folder in which this process may not create files.
        is_foreign: bool,
    },
    Postgres {
        readers: PgPool,
        writers: PgPool,
        /// This process's right to write.
        fence: Option<Fence>,
    },
}

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

impl Database {
    /// Connects. `create` creates the file of an SQLite database if there is none; nothing is written to it.
    /// With a `fence`, which is for PostgreSQL only, nothing is written unless this process holds it.
    pub async fn connect(url: &str, create: bool, fence: Option<&Fence>) -> Result<Self> {
        if let Some(path) = url.strip_prefix("sqlite:") {
            return sqlite(path.strip_prefix("//").unwrap_or(path), create).await;
        }
        if url.starts_with("postgres://") || url.starts_with("postgresql://") {
            return postgres(url, fence).await;
        }
        let scheme = url.split_once(':').map_or(url, |(scheme, _)| scheme);
        Err(Error::Unsupported(format!(
            "catalog \"{scheme}:…\" is of no known kind: sqlite:PATH and postgres://HOST/DATABASE are"
        )))
    }

    pub fn dialect(&self) -> Dialect {
        match self {
            Self::Sqlite { .. } => Dialect::Sqlite,
            Self::Postgres { .. } => Dialect::Postgres,
        }
    }

    /// Runs one query in autocommit. It is retried if the connection is lost, so it may run twice.
    pub async fn query(&self, sql: String) -> Result<Vec<Row>> {
        match self {
            Self::Sqlite { path, is_foreign: true, .. } => foreign(path).await?.query(sql).await,
            Self::Sqlite { path, file, readers, .. } => {
                check_in_place(path, *file)?;
                cached_query(sql)
                    .fetch_all(readers)
                    .await
                    .map_err(map_error)?
                    .iter()
                    .map(sqlite_row)
                    .collect()
            }
            Self::Postgres { readers, .. } => {
                let ask = || async {
                    let mut connection = acquire(|| readers.acquire()).await?;
                    let sql = sqlx::raw_sql(AssertSqlSafe(sql.clone()));
                    sql.fetch_all(&mut *connection).await.map_err(map_error)
                };
                retry_if_lost(ask).await?.iter().map(postgres_row).collect()
            }
        }
    }

    /// Whether a table exists, in a query of its own.
    pub async fn has_table(&self, name: &str) -> Result<bool> {
        Ok(!self.query(has_table(self.dialect(), name)?).await?.is_empty())
    }

    /// A read transaction, all of it as of one moment.
    pub async fn read(&self) -> Result<Session> {
        match self {
            Self::Sqlite { path, is_foreign: true, .. } => foreign(path).await,
            Self::Sqlite { path, file, readers, .. } => {
                check_in_place(path, *file)?;
                Ok(Session::Sqlite(readers.begin().await.map_err(map_error)?))
            }
            Self::Postgres { readers, .. } => Ok(Session::Postgres(
                begin_postgres(readers, "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY").await?,
            )),
        }
    }

    /// A write transaction. Only one at a time is between `write` and its end, across all processes.
    ///
    /// Errors: another server has taken over.
    pub async fn write(&self) -> Result<Session> {
        self.write_in(self.term()).await
    }

    /// Like [`write`](Self::write), for a term that may have ended.
    pub async fn write_in(&self, term: Option<i64>) -> Result<Session> {
        let mut session = self.lock().await?;
        if let (Self::Postgres { fence: Some(fence), .. }, Some(term)) = (self, term) {
            fence.check(&mut session, term).await?;
        }
        Ok(session)
    }

    /// The term in which this process writes now; `None` without a fence.
    pub fn term(&self) -> Option<i64> {
        match self {
            Self::Postgres { fence: Some(fence), .. } => Some(fence.term()),
            _ => None,
        }
    }

    /// A transaction that may write, concurrently with others.
    pub async fn begin(&self) -> Result<Session> {
        match self {
            // Its log may contain commits that the file does not, which the writer cannot see: it would treat
            // them as lost.
            Self::Sqlite { path, is_foreign: true, .. } => Err(Error::ReadOnly(format!(
                "the catalog can only be read: no file can be made beside \"{path}\""
            ))),
            Self::Sqlite { path, file, writer, .. } => {
                check_in_place(path, *file)?;
                Ok(Session::Sqlite(writer.begin_with("BEGIN IMMEDIATE").await.map_err(map_error)?))
            }
            Self::Postgres { writers, .. } => Ok(Session::Postgres(
                begin_postgres(writers, "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE").await?,
            )),
        }
    }

    /// Like [`begin`](Self::begin) in the current term, for writes other than commits. It does not block
    /// commits.
    ///
    /// Errors: another server has taken over.
    pub async fn begin_in_term(&self) -> Result<Session> {
        let mut session = self.begin().await?;
        if let (Self::Postgres { fence: Some(fence), .. }, Some(term)) = (self, self.term()) {
            fence.check(&mut session, term).await?;
        }
        Ok(session)
    }

    /// A transaction that blocks commits, to inspect the outcome of one.
    pub async fn lock(&self) -> Result<Session> {
        let mut session = self.begin().await?;
        match self {
            Self::Sqlite { .. } => Ok(session),
            Self::Postgres { .. } => {
                // DuckDB takes no lock, but has to insert into this table to commit: it waits at its insert,
                // and then finds its number taken.
                if session.has_table("ducklake_snapshot").await? {
                    // A server may take long to notice that the lock holder is gone.
                    let ms = ACQUIRE_TIMEOUT.as_millis();
                    let lock = "LOCK TABLE ducklake_snapshot IN SHARE ROW EXCLUSIVE MODE";
                    session.execute(format!("SET LOCAL lock_timeout = {ms}; {lock}")).await?;
                }
                Ok(session)
            }
        }
    }

    /// Whether the tables of a warehouse exist.
    pub async fn has_warehouse(&self) -> Result<bool> {
        self.has_table("ducklake_metadata").await
    }

    /// Closes all connections. With the last one SQLite removes the files beside its database, by name.
    pub async fn close(&self) {
        match self {
            Self::Sqlite { readers, writer, .. } => {
                readers.close().await;
                writer.close().await;
            }
            Self::Postgres { readers, writers, .. } => {
                readers.close().await;
                writers.close().await;
            }
        }
    }

    /// The folder of the catalog, if it is a file; without a trailing `/`.
    pub fn folder(&self) -> Option<&str> {
        match self {
            Self::Sqlite { folder, .. } => Some(folder),
            Self::Postgres { .. } => None,
        }
    }

    /// Its current location.
    pub async fn place(&self) -> Result<Place> {
        let Self::Sqlite { path, .. } = self else {
            let mut session = self.read().await?;
            let sql = "SELECT oid::bigint, datname::text FROM pg_database WHERE datname = current_database()";
            let rows = session.query(sql).await?;
            let row = rows.first().ok_or_else(|| Error::Corrupt("the database has no name".to_string()))?;
            let (number, database) = (row.integer(0)?, row.text(1)?);
            drop(session);
            // Without the permission to query it, only the database's name distinguishes it.
            let sql = "SELECT system_identifier::text FROM pg_control_system()".to_string();
            let system = match self.query(sql).await {
                Ok(rows) => rows.first().map_or(Ok(String::new()), |row| row.text(0))?,
                Err(_) => String::new(),
            };
            let file = if system.is_empty() { String::new() } else { format!("{system}.{number}-") };
            return Ok(Place { name: format!("postgres:{system}/{database}"), file, folder: None });
        };
        Ok(Place::of_file(Path::new(path)))
    }

    /// Its location, without a password.
    pub fn name(&self) -> String {
        match self {
            Self::Sqlite { path, .. } => path.clone(),
            Self::Postgres { readers, .. } => {
                let options = readers.connect_options();
                format!(
                    "{} on {}",
                    options.get_database().unwrap_or(options.get_username()),
                    options.get_host()
                )
            }
        }
    }
}

/// Begins a transaction of PostgreSQL.
async fn begin_postgres(pool: &PgPool, begin: &'static str) -> Result<sqlx::Transaction<'static, Postgres>> {
    acquire(|| pool.begin_with(begin)).await
}

/// Acquires a connection from a pool of PostgreSQL. A pool retries while a server refuses connections, or
/// reports that it is starting up; this also retries if its socket does not exist, or a proxy in front closes
/// connections.
async fn acquire<T, F: Future<Output = Result<T, sqlx::Error>>>(ask: impl Fn() -> F) -> Result<T> {
    let deadline = Instant::now() + ACQUIRE_TIMEOUT;
    loop {
        match ask().await {
            Err(error @ sqlx::Error::Io(_)) if Instant::now() + CONNECT_WAIT < deadline => {
                tracing::debug!(%error, "the catalog cannot be reached; trying again");
                tokio::time::sleep(CONNECT_WAIT).await;
            }
            outcome => return outcome.map_err(map_error),
        }
    }
}

/// Configures a pool to keep idle and old connections open. The reaper sometimes miscounts idle connections,
/// and then blocks a thread for ever, even when the process exits (launchbadge/sqlx#3645, fixed by
/// launchbadge/sqlx#4289, which is not released yet).
fn without_reaper<DB: sqlx::Database>(options: sqlx::pool::PoolOptions<DB>) -> sqlx::pool::PoolOptions<DB> {
    options.idle_timeout(None).max_lifetime(None)
}

async fn sqlite(path: &str, create: bool) -> Result<Database> {
    let file = Path::new(path);
    if file.is_dir() {
        return Err(Error::NotFound(format!("\"{path}\" is a folder, not an SQLite database")));
    }
    if !file.exists() {
        if !create {
            return Err(Error::NotFound(format!(
                "there is no warehouse at \"{path}\": the file does not exist"
            )));
        }
        let parent = file.parent().filter(|parent| !parent.as_os_str().is_empty());
        if parent.is_some_and(|parent| !parent.is_dir()) {
            return Err(Error::NotFound(format!("cannot create \"{path}\": its folder does not exist")));
        }
    }
    let mut options = SqliteConnectOptions::new()
        .filename(path)
        .create_if_missing(create)
        .busy_timeout(BUSY_TIMEOUT)
        .disable_statement_logging();
    let folder = file.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if create && !file.exists() && is_local(folder) {
        // The mode is stored in the file.
        options = options.journal_mode(SqliteJournalMode::Wal).synchronous(SqliteSynchronous::Full);
    }
    let is_foreign = !is_writable(folder) && has_write_ahead_log(file);
    if is_foreign {
        // Nothing may write with it, and `foreign` reads.
        options = options.immutable(true);
    }
    let pool = |connections| {
        without_reaper(SqlitePoolOptions::new())
            .max_connections(connections)
            .acquire_timeout(ACQUIRE_TIMEOUT)
            .test_before_acquire(false)
    };
    // Several processes may create it concurrently. The change to a write-ahead log upgrades a read lock to a
    // write lock, and if another connection does the same, SQLite returns busy at once: it waits only where
    // neither would have to give way.
    let began = Instant::now();
    let connect = || pool(1).connect_with(options.clone());
    let writer = connect
        .retry(ConstantBuilder::default().with_delay(BUSY_DELAY).without_max_times())
        .when(|error| is_busy(error) && began.elapsed() < BUSY_TIMEOUT)
        .await
        .map_err(|error| not_sqlite(path, error))?;
    let readers = pool(SQLITE_READERS_MAX).connect_lazy_with(options);
    let folder = std::fs::canonicalize(folder).unwrap_or_else(|_| folder.to_path_buf()).display().to_string();
    let file = file_at(path);
    Ok(Database::Sqlite { path: path.to_string(), file, folder, readers, writer, is_foreign })
}

/// The device and inode of a file.
fn file_at(path: &str) -> Option<(u64, u64)> {
    std::fs::metadata(path).ok().map(|file| (file.dev(), file.ino()))
}

/// Checks that the path still refers to the open file: connections stay at the file that they have opened,
/// and writes to a replaced file would be lost.
///
/// Errors: another file is there (55000).
fn check_in_place(path: &str, opened: Option<(u64, u64)>) -> Result<()> {
    match (opened, file_at(path)) {
        (Some(opened), Some(now)) if opened != now => {
            let message = format!("the catalog at \"{path}\" was replaced while it was open");
            Err(Refused(Box::new(SqlError::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, message)))
                .with_hint("end this process, and start it again: it opens the file that is there now"))
        }
        _ => Ok(()),
    }
}

/// Begins a read transaction on a database with a write-ahead log in a folder where this process may not
/// create files.
///
/// While other processes have it open, the log and its shared memory are files beside it, and suffice for
/// reading. Otherwise it is read as an immutable file, and every query checks afterwards that it has not
/// changed.
async fn foreign(path: &str) -> Result<Session> {
    let idle_file = IdleFile::inspect(path)?;
    let options = SqliteConnectOptions::new()
        .filename(path)
        .read_only(true)
        .immutable(!idle_file.has_log)
        .busy_timeout(BUSY_TIMEOUT)
        .disable_statement_logging();
    let pool = without_reaper(SqlitePoolOptions::new()).max_connections(1).connect_lazy_with(options);
    let transaction = pool.begin().await.map_err(map_error)?;
    Ok(match idle_file.has_log {
        true => Session::Sqlite(transaction),
        false => Session::IdleFile(transaction, idle_file),
    })
}

/// The state of a database file that no process has open.
pub(crate) struct IdleFile {
    path: String,
    has_log: bool,
    changed: Option<SystemTime>,
    bytes: u64,
}

impl IdleFile {
    fn inspect(path: &str) -> Result<Self> {
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

/// Whether a folder is on a local file system: only there can processes share the memory that a write-ahead
/// log needs; if unsure, it is not used.
fn is_local(folder: &Path) -> bool {
    use nix::sys::statfs::{
        BTRFS_SUPER_MAGIC, EXT4_SUPER_MAGIC, F2FS_SUPER_MAGIC, OVERLAYFS_SUPER_MAGIC, TMPFS_MAGIC,
        XFS_SUPER_MAGIC,
    };
    let local = [
        BTRFS_SUPER_MAGIC,
        EXT4_SUPER_MAGIC,
        F2FS_SUPER_MAGIC,
        OVERLAYFS_SUPER_MAGIC,
        TMPFS_MAGIC,
        XFS_SUPER_MAGIC,
    ];
    nix::sys::statfs::statfs(folder).is_ok_and(|found| local.contains(&found.filesystem_type()))
}

fn is_writable(folder: &Path) -> bool {
    nix::unistd::access(folder, nix::unistd::AccessFlags::W_OK).is_ok()
}

/// Whether a database's header says that it uses a write-ahead log.
fn has_write_ahead_log(path: &Path) -> bool {
    let mut header = [0; 20];
    let read =
        std::fs::File::open(path).and_then(|mut file| std::io::Read::read_exact(&mut file, &mut header));
    read.is_ok() && header[18] == 2
}

/// The error of opening a file that is not an SQLite database.
fn not_sqlite(path: &str, error: sqlx::Error) -> Error {
    match sqlite_code(&error) {
        Some(26) => Error::NotFound(format!("\"{path}\" is not an SQLite database")),
        Some(14) => Error::ReadOnly(format!("cannot open \"{path}\": no permission to read or to create it")),
        _ => map_error(error),
    }
}

/// Whether the URL of a database, or the environment, names the user; otherwise it is the current system
/// user, as with PostgreSQL's own clients.
fn names_user(url: &str) -> bool {
    let place = url.split_once("://").map_or(url, |(_, place)| place);
    let (authority, rest) = place.split_at(place.find(['/', '?']).unwrap_or(place.len()));
    let parameters = rest.split_once('?').map_or("", |(_, parameters)| parameters);
    authority.contains('@')
        || parameters.split('&').any(|parameter| parameter.starts_with("user="))
        || std::env::var_os("PGUSER").is_some()
}

async fn postgres(url: &str, fence: Option<&Fence>) -> Result<Database> {
    let options: PgConnectOptions = url.parse().map_err(Error::Database)?;
    let mut options = options.disable_statement_logging();
    if !names_user(url)
        && let Ok(Some(user)) = User::from_uid(Uid::effective())
    {
        options = options.username(&user.name);
    }
    if let Some(fence) = fence {
        options = options.application_name(&fence.application());
    }
    // The first connection, made here without a pool's retries, distinguishes a missing database from an
    // unreachable one.
    match PgConnection::connect_with(&options).await {
        Ok(connection) => drop(connection.close().await),
        Err(error) if postgres_code(&error) == Some(SqlState::INVALID_CATALOG_NAME) => {
            return Err(Error::NotFound(format!("there is no warehouse: {error}")));
        }
        Err(error) => return Err(map_error(error)),
    }
    let pool = |connections| {
        without_reaper(PgPoolOptions::new())
            .max_connections(connections)
            .acquire_timeout(ACQUIRE_TIMEOUT)
            .after_connect(|connection, _| {
                Box::pin(async move {
                    // The text format of other types and the parsing of literals must not depend on the
                    // server's settings.
                    let settings = "SET TimeZone = 'UTC'; SET DateStyle = 'ISO, YMD'; SET IntervalStyle = 'postgres'; \
                        SET extra_float_digits = 1; SET standard_conforming_strings = on; SET bytea_output = 'hex'; \
                        SET client_min_messages = warning";
                    sqlx::raw_sql(settings).execute(connection).await?;
                    Ok(())
                })
            })
            .connect_lazy_with(options.clone())
    };
    Ok(Database::Postgres {
        readers: pool(POSTGRES_READERS_MAX),
        writers: pool(POSTGRES_WRITERS_MAX),
        fence: fence.cloned(),
    })
}

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
        let dialect = match self {
            Self::Sqlite(_) | Self::IdleFile(..) => Dialect::Sqlite,
            Self::Postgres(_) => Dialect::Postgres,
        };
        Ok(!self.query(has_table(dialect, name)?).await?.is_empty())
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

fn has_table(dialect: Dialect, name: &str) -> Result<String> {
    let name = text(name)?;
    Ok(match dialect {
        Dialect::Sqlite => format!("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = {name}"),
        Dialect::Postgres => format!("SELECT 1 WHERE to_regclass({name}) IS NOT NULL"),
    })
}

/// A query of SQLite whose plan is cached, unless it is too long to be repeated.
fn cached_query(sql: String) -> sqlx::query::Query<'static, Sqlite, sqlx::sqlite::SqliteArguments> {
    let is_short = sql.len() <= PREPARED_BYTES_MAX;
    sqlx::query(AssertSqlSafe(sql)).persistent(is_short)
}

fn sqlite_row(row: &SqliteRow) -> Result<Row> {
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
fn postgres_row(row: &PgRow) -> Result<Row> {
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

/// A boolean column as 0, 1 or NULL. SQLite has no booleans: DuckDB stores numbers, other programs perhaps
/// words.
pub(crate) fn flag(column: &str) -> String {
    format!("CASE WHEN {column} THEN 1 WHEN NOT {column} THEN 0 END")
}

/// A text literal for both databases. Neither can store NUL in text.
pub(crate) fn text(value: &str) -> Result<String> {
    if value.contains('\0') {
        return Err(Error::Unsupported(
            "text with a character of code 0 cannot be kept in the catalog".to_string(),
        ));
    }
    Ok(format!("'{}'", value.replace('\'', "''")))
}

pub(crate) fn optional_text(value: Option<&str>) -> Result<String> {
    value.map_or_else(|| Ok("NULL".to_string()), text)
}

pub(crate) fn optional(value: Option<i64>) -> String {
    value.map_or_else(|| "NULL".to_string(), |value| value.to_string())
}

pub(crate) fn boolean(value: bool) -> &'static str {
    if value { "TRUE" } else { "FALSE" }
}

pub(crate) fn optional_boolean(value: Option<bool>) -> &'static str {
    value.map_or("NULL", boolean)
}

/// A quoted identifier.
pub(crate) fn name(value: &str) -> Result<String> {
    if value.contains('\0') {
        return Err(Error::Unsupported(
            "a name with a character of code 0 cannot be kept in the catalog".to_string(),
        ));
    }
    Ok(format!("\"{}\"", value.replace('"', "\"\"")))
}

/// The condition for rows visible at a snapshot.
pub(crate) fn visible(alias: &str, snapshot: i64) -> String {
    format!(
        "{alias}begin_snapshot <= {snapshot} AND ({alias}end_snapshot IS NULL OR {alias}end_snapshot > {snapshot})"
    )
}

/// `1, 2, 3`; if empty `NULL`, which `IN` never matches.
pub(crate) fn list<T: std::fmt::Display>(values: impl IntoIterator<Item = T>) -> String {
    let mut out = String::new();
    for value in values {
        let _ = write!(out, "{}{value}", if out.is_empty() { "" } else { ", " });
    }
    if out.is_empty() { "NULL".to_string() } else { out }
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut out, byte| {
        let _ = write!(out, "{byte:02X}");
        out
    })
}

pub(crate) fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let bytes = text.as_bytes();
    if !bytes.len().is_multiple_of(2) {
        return None;
    }
    bytes.chunks_exact(2).map(|pair| u8::try_from(digit(pair[0])? * 16 + digit(pair[1])?).ok()).collect()
}

/// Rows to insert into one table, in statements of bounded size.
pub(crate) struct Rows {
    head: String,
    open: String,
    statements: Vec<String>,
}

impl Rows {
    pub fn into(table: &str, columns: &str) -> Self {
        Self {
            head: format!("INSERT INTO {table} ({columns}) VALUES "),
            open: String::new(),
            statements: Vec::new(),
        }
    }

    /// Adds a row of comma-separated literals.
    pub fn add(&mut self, row: &str) {
        let before = if self.open.is_empty() { self.head.as_str() } else { ", " };
        self.open.reserve(before.len() + row.len() + 2);
        self.open.push_str(before);
        self.open.push('(');
        self.open.push_str(row);
        self.open.push(')');
        if self.open.len() >= STATEMENT_BYTES {
            self.statements.push(std::mem::take(&mut self.open));
        }
    }

    pub fn finish(mut self) -> Vec<String> {
        if !self.open.is_empty() {
            self.statements.push(self.open);
        }
        self.statements
    }
}

/// Maps a statement's error, as far as a caller can react to it.
pub(crate) fn map_error(error: sqlx::Error) -> Error {
    if sqlite_extended_code(&error).is_some_and(|code| LOCKING_CODES.contains(&code)) {
        return Refused(Box::new(SqlError::new(
            SqlState::IO_ERROR,
            "the file system that the catalog is on has no locks",
        )))
        .with_detail(error.to_string())
        .with_hint(WITHOUT_LOCKS_HINT);
    }
    match sqlite_code(&error) {
        Some(8) => return Error::ReadOnly(format!("the catalog can only be read: {error}")),
        Some(14) => {
            return Error::ReadOnly(format!("the catalog's folder cannot be written: {error}"));
        }
        Some(26) => return Error::NotFound(format!("the catalog is not an SQLite database: {error}")),
        Some(11) => return Error::Corrupt(format!("the catalog database is damaged: {error}")),
        // After the busy timeout.
        _ if is_busy(&error) => {
            let seconds = BUSY_TIMEOUT.as_secs();
            let message = format!("could not lock the catalog: another process has held it for {seconds} s");
            return Refused(Box::new(SqlError::new(SqlState::LOCK_NOT_AVAILABLE, message)))
                .with_detail(error.to_string())
                .with_hint(
                    "a process that is stopped in the middle of a commit goes on with SIGCONT, or ends; where there is none, \
                     the file system may have no locks: mount it with them (Lustre: -o flock), or keep the catalog elsewhere",
                );
        }
        Some(13) => return is_full(&error),
        _ => {}
    }
    match postgres_code(&error) {
        Some(SqlState::DISK_FULL) => is_full(&error),
        Some(SqlState::LOCK_NOT_AVAILABLE) => {
            let message = "could not lock the catalog: another process holds it";
            Refused(Box::new(SqlError::new(SqlState::LOCK_NOT_AVAILABLE, message)))
                .with_detail(error.to_string())
        }
        Some(SqlState::READ_ONLY | SqlState::INSUFFICIENT_PRIVILEGE) => {
            Error::ReadOnly(format!("the catalog can only be read: {error}"))
        }
        _ => Error::Database(error),
    }
}

fn is_full(error: &sqlx::Error) -> Error {
    Refused(Box::new(SqlError::new(SqlState::DISK_FULL, "no space is left for the catalog")))
        .with_detail(error.to_string())
}

/// Whether a commit failed because the disk is full. It has not happened then: its partial writes are not
/// part of the database.
pub(crate) fn has_no_space(error: &sqlx::Error) -> bool {
    sqlite_code(error) == Some(13) || postgres_code(error) == Some(SqlState::DISK_FULL)
}

/// The index of SQLite's log in shared memory could not grow: its disk is full.
const SHARED_MEMORY_SIZE: i32 = 4874;

/// A lock could not be taken, released or inspected, for reasons other than another holder:
/// SQLITE_IOERR_UNLOCK, _RDLOCK, _CHECKRESERVEDLOCK, _LOCK and _SHMLOCK.
const LOCKING_CODES: [i32; 5] = [2058, 2314, 3594, 3850, 5130];

const WITHOUT_LOCKS_HINT: &str = "mount it with locks (Lustre: -o flock), or keep the catalog elsewhere: \
    --catalog sqlite:PATH on a local disk, or --catalog postgres://HOST/DATABASE";

/// Whether another connection holds a lock that SQLite needs.
fn is_busy(error: &sqlx::Error) -> bool {
    matches!(sqlite_code(error), Some(5 | 6))
}

/// SQLite's primary result code; 13 for every form of a full disk.
fn sqlite_code(error: &sqlx::Error) -> Option<i32> {
    let code = sqlite_extended_code(error)?;
    Some(if code == SHARED_MEMORY_SIZE { 13 } else { code & 0xff })
}

fn sqlite_extended_code(error: &sqlx::Error) -> Option<i32> {
    let database = error.as_database_error()?.try_downcast_ref::<sqlx::sqlite::SqliteError>()?;
    use sqlx::error::DatabaseError;
    database.code()?.parse().ok()
}

fn postgres_code(error: &sqlx::Error) -> Option<SqlState> {
    let database = error.as_database_error()?.try_downcast_ref::<sqlx::postgres::PgDatabaseError>()?;
    SqlState::parse(database.code())
}

/// Whether the connection to a server was lost: the server ended, or closed its connections. A server that
/// does not listen is retried where connections are made ([`acquire`]).
pub(crate) fn is_lost(error: &Error) -> bool {
    let Error::Database(error) = error else { return false };
    match error {
        sqlx::Error::Io(error) => matches!(
            error.kind(),
            ErrorKind::BrokenPipe
                | ErrorKind::ConnectionAborted
                | ErrorKind::ConnectionReset
                | ErrorKind::NotConnected
                | ErrorKind::TimedOut
                | ErrorKind::UnexpectedEof
        ),
        // 57P01, 57P02, 57P03: shutting down, a backend crashed, starting up. 08: the connection.
        _ => {
            postgres_code(error).is_some_and(|code| code.as_str().starts_with("57P0") || code.class() == "08")
        }
    }
}

/// Whether retrying the commit from its start may succeed: its number was taken (DuckDB takes no lock), or
/// the server chose it as a deadlock victim.
pub(crate) fn is_transient(error: &Error) -> bool {
    let Error::Database(error) = error else { return false };
    if let Some(code) = postgres_code(error) {
        // A table created concurrently by another process conflicts by its oid, its name, or its type's name.
        return matches!(
            code,
            SqlState::UNIQUE_VIOLATION
                | SqlState::SERIALIZATION_FAILURE
                | SqlState::DEADLOCK_DETECTED
                | SqlState::DUPLICATE_TABLE
                | SqlState::DUPLICATE_OBJECT
        );
    }
    // SQLite: another process has created the same row, table or number.
    matches!(sqlite_code(error), Some(19))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literals_are_quoted() {
        for (value, expected) in [("", "''"), ("a'b", "'a''b'"), ("''", "''''''"), ("\\'; --", "'\\''; --'")]
        {
            assert_eq!(text(value).unwrap(), expected);
        }
        assert!(matches!(text("a\0b"), Err(Error::Unsupported(_))));
        assert_eq!(name("a\"b").unwrap(), "\"a\"\"b\"");
    }

    #[test]
    fn hex_goes_both_ways() {
        assert_eq!(from_hex(&hex(&[0, 255, 16])), Some(vec![0, 255, 16]));
        assert_eq!(from_hex("abc"), None);
        assert_eq!(from_hex("zz"), None);
    }

    #[test]
    fn rows_are_split_over_statements() {
        let mut rows = Rows::into("t", "a");
        let row = "1".repeat(STATEMENT_BYTES / 2);
        for _ in 0..3 {
            rows.add(&row);
        }
        assert_eq!(rows.finish().len(), 2);
        assert!(Rows::into("t", "a").finish().is_empty());
    }
}
