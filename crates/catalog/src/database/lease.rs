//! Leader election of servers on one catalog: a lease in the database, and a term that every commit verifies
//! (`fence.rs`).
//!
//! ```text
//!   standby ── lease free or expired ──► holder of term n ── renewed in time ──► holder of term n
//!      ▲                                     │ not renewed, or another server holds term n+1
//!      └─────────────────────────────────────┘
//! ```
//!
//! # Invariants
//! - Terms only grow. A commit of a fenced process locks the row of its term for sharing, so no later term
//!   begins before it has ended, and fails if a later term has begun.
//! - Only the clock of the database determines whether a lease has expired.
//! - The heartbeat and the term are rows of separate tables: a long commit does not block the heartbeat.
//!
//! # Errors
//! A commit without the right to it is [`Error::ReadOnly`]; it has no effect.
//!
//! # Crash
//! A holder that has died, was stopped or is cut off is replaced when its lease has expired. Its successor
//! terminates its connections, with their open transactions and locks.

use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::database::Database;
use crate::database::errors::is_transient;
use crate::database::fence::{APPLICATION, Fence};
use crate::database::sql::{Dialect, text};
use crate::error::{Error, Result};

/// Attempts to create the tables if another process creates them concurrently.
const CREATE_ATTEMPTS_MAX: usize = 5;

/// The holder of the lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    pub term: i64,
    pub name: String,
    /// Whether it has been renewed in time.
    pub is_alive: bool,
}

/// A process's handle of the lease. Its connections are separate from those of commits, which may have to
/// wait.
pub struct Lease {
    database: Database,
    fence: Fence,
}

impl Lease {
    /// Opens the database and creates the lease's tables in it.
    ///
    /// Errors: it cannot be reached, or is not PostgreSQL.
    pub async fn open(url: &str, fence: Fence) -> Result<Self> {
        let database = Database::connect(url, false, Some(&fence)).await?;
        if database.dialect() != Dialect::Postgres {
            return Err(Error::Unsupported(
                "servers that take over from one another need their catalog in PostgreSQL".to_string(),
            ));
        }
        let lease = Self { database, fence };
        for attempt in 1.. {
            match lease.make_tables().await {
                Err(error) if is_transient(&error) && attempt < CREATE_ATTEMPTS_MAX => {}
                made => {
                    made?;
                    break;
                }
            }
        }
        Ok(lease)
    }

    async fn make_tables(&self) -> Result<()> {
        let mut session = self.database.begin().await?;
        for statement in [
            "CREATE TABLE IF NOT EXISTS harrier_term (id INTEGER PRIMARY KEY, term BIGINT NOT NULL)",
            "CREATE TABLE IF NOT EXISTS harrier_lease \
             (id INTEGER PRIMARY KEY, holder TEXT NOT NULL, renewed_until TIMESTAMPTZ NOT NULL)",
            "INSERT INTO harrier_term VALUES (1, 0) ON CONFLICT DO NOTHING",
            "INSERT INTO harrier_lease VALUES (1, '', '-infinity') ON CONFLICT DO NOTHING",
        ] {
            session.execute(statement).await?;
        }
        session.commit().await.map_err(Error::Database)
    }

    /// Acquires the lease if it is free, for `time` unless renewed. Returns the new term. Terminates the last
    /// holder's connections to the database.
    pub async fn acquire(&self, time: Duration) -> Result<Option<i64>> {
        let mut session = self.database.begin().await?;
        let name = text(&self.fence.name)?;
        // Of concurrent attempts, one locks the row, and the others find it renewed. If this process acquired
        // it without receiving the answer, it acquires it again.
        let free = format!("renewed_until < clock_timestamp() OR holder = {name}");
        let last = session
            .query(format!("SELECT holder FROM harrier_lease WHERE {free} FOR UPDATE SKIP LOCKED"))
            .await?;
        let Some(last) = last.first() else {
            session.rollback().await;
            return Ok(None);
        };
        let last = last.text(0)?;
        if !last.is_empty() && last != *self.fence.name {
            self.end_connections(&last).await?;
        }
        let ms = time.as_millis();
        // Waits for commits of the last term that still run.
        let term =
            session.query("UPDATE harrier_term SET term = term + 1 RETURNING term").await?[0].integer(0)?;
        session
            .execute(format!(
                "UPDATE harrier_lease SET holder = {name}, \
                 renewed_until = clock_timestamp() + interval '{ms} milliseconds'"
            ))
            .await?;
        session.commit().await.map_err(Error::Database)?;
        self.fence.term.store(term, Ordering::Release);
        Ok(Some(term))
    }

    /// Terminates the connections of a holder: their open transactions hold locks that this one waits for,
    /// and the server may never notice that the client is gone.
    async fn end_connections(&self, holder: &str) -> Result<()> {
        let application = text(&format!("{APPLICATION}{holder}"))?;
        let ended = self
            .database
            .query(format!(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = left({application}, 63) \
                 AND datname = current_database() AND usename = current_user"
            ))
            .await?;
        if !ended.is_empty() {
            tracing::info!(holder, connections = ended.len(), "ended what the last holder had open");
        }
        Ok(())
    }

    /// Extends the lease by `time` from now. False: this process has lost it; its fence is closed then.
    pub async fn renew(&self, time: Duration) -> Result<bool> {
        let (term, ms, name) = (self.fence.term(), time.as_millis(), text(&self.fence.name)?);
        let renewed = self
            .database
            .query(format!(
                "UPDATE harrier_lease SET renewed_until = clock_timestamp() + interval '{ms} milliseconds' \
                 WHERE holder = {name} AND (SELECT term FROM harrier_term) = {term} RETURNING 1"
            ))
            .await?;
        if renewed.is_empty() {
            self.fence.close();
        }
        Ok(!renewed.is_empty())
    }

    /// Releases the lease for immediate takeover. Call it when nothing is being committed any more.
    pub async fn release(&self) -> Result<()> {
        self.fence.close();
        let name = text(&self.fence.name)?;
        let sql =
            format!("UPDATE harrier_lease SET renewed_until = '-infinity' WHERE holder = {name} RETURNING 1");
        self.database.query(sql).await.map(drop)
    }

    /// The current or last holder; `None`: there never was one.
    pub async fn holder(&self) -> Result<Option<Holder>> {
        let rows = self
            .database
            .query(
                "SELECT term, holder, renewed_until >= clock_timestamp() FROM harrier_term, harrier_lease"
                    .to_string(),
            )
            .await?;
        let Some(row) = rows.first().filter(|row| row.text(1).is_ok_and(|name| !name.is_empty())) else {
            return Ok(None);
        };
        Ok(Some(Holder { term: row.integer(0)?, name: row.text(1)?, is_alive: row.flag(2)? }))
    }
}
