//! Errors of the two databases: what callers can do about them.

use std::io::ErrorKind;
use std::time::Duration;

use harrier_error::{SqlError, SqlState};

use crate::error::Error;
use crate::error::Error::Refused;

/// How long SQLite waits for another process's lock. Longer than any commit should take.
pub(super) const BUSY_TIMEOUT: Duration = Duration::from_secs(30);

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
pub(super) fn is_busy(error: &sqlx::Error) -> bool {
    matches!(sqlite_code(error), Some(5 | 6))
}

/// SQLite's primary result code; 13 for every form of a full disk.
pub(super) fn sqlite_code(error: &sqlx::Error) -> Option<i32> {
    let code = sqlite_extended_code(error)?;
    Some(if code == SHARED_MEMORY_SIZE { 13 } else { code & 0xff })
}

fn sqlite_extended_code(error: &sqlx::Error) -> Option<i32> {
    let database = error.as_database_error()?.try_downcast_ref::<sqlx::sqlite::SqliteError>()?;
    use sqlx::error::DatabaseError;
    database.code()?.parse().ok()
}

pub(super) fn postgres_code(error: &sqlx::Error) -> Option<SqlState> {
    let database = error.as_database_error()?.try_downcast_ref::<sqlx::postgres::PgDatabaseError>()?;
    SqlState::parse(database.code())
}

/// Whether the connection to a server was lost: the server ended, or closed its connections. A server that
/// does not listen is retried where connections are made (`database.rs`).
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
