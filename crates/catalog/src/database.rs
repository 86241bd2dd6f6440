//! Connections to the catalog's database.
//!
//! Upper layers write SQL as text, with literals made in `sql.rs`, and read rows as plain cells: a commit of
//! ten thousand files is a few multi-row statements, and both databases run the same code.
//!
//! Cancellation: dropping a `Session` rolls back.

pub(crate) mod bulk;
pub(crate) mod commit_hook;
pub(crate) mod errors;
pub(crate) mod fence;
pub(crate) mod lease;
pub(crate) mod retry;
pub(crate) mod session;
pub(crate) mod sql;

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use backon::{ConstantBuilder, Retryable};
use harrier_error::{SqlError, SqlState};
use nix::unistd::{Uid, User};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous};
use sqlx::{AssertSqlSafe, ConnectOptions, Connection as _, PgConnection, PgPool, Postgres, SqlitePool};
use tokio::time::Instant;

use crate::database::errors::{BUSY_TIMEOUT, is_busy, map_error, postgres_code, sqlite_code};
use crate::database::fence::Fence;
use crate::database::retry::retry_if_lost;
use crate::database::session::{IdleFile, Row, Session, cached_query, postgres_row, sqlite_row};
use crate::database::sql::{Dialect, table_query};
use crate::error::Error::Refused;
use crate::error::{Error, Result};
use crate::model::identity::Place;

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
        Ok(!self.query(table_query(self.dialect(), name)?).await?.is_empty())
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
