//! Of several servers on one catalog, which one may commit: a lease in the database, and a term that every
//! commit has to show.
//!
//! ```text
//!   standby ── nobody holds the lease, or it has run out ──► holder of term n ── renewed in time ──► holder of term n
//!      ▲                                                          │ not renewed, or term n+1 is somebody's
//!      └──────────────────────────────────────────────────────────┘
//! ```
//!
//! # Invariants
//! - Terms only grow. A commit of a fenced process locks the row of its term for sharing, so no later term
//!   begins before it has ended, and fails when a later term has begun.
//! - Whether a lease has run out is told by the clock of the database, and by no other.
//! - The heartbeat and the term are rows of tables of their own: a commit that takes long holds no heartbeat
//!   up.
//!
//! # Errors
//! A commit without the right to it is [`Error::ReadOnly`]; nothing of it is seen.
//!
//! # Crash
//! A holder that has gone, was stopped or is cut off is followed by another when its lease has run out. What
//! it left in the database (connections, open transactions, their locks) is ended by the next one.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use crate::database::{Database, Dialect, Session, is_transient, text};
use crate::error::{Error, Result};

/// How often the tables are tried to be made when another process makes them too.
const CREATE_ATTEMPTS_MAX: usize = 5;

/// What connections of a server say that they are, with its name behind it.
const APPLICATION: &str = "harrier ";

/// The right of this process to commit. Clones share it.
#[derive(Clone)]
pub struct Fence {
    /// The term; 0: this process has none.
    term: Arc<AtomicI64>,
    name: Arc<str>,
}

impl fmt::Debug for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fence({}, term {})", self.name, self.term())
    }
}

impl Fence {
    /// Of a process that is called so, by a name that no other has. It has no right yet.
    pub fn new(name: impl Into<Arc<str>>) -> Self {
        Self { term: Arc::default(), name: name.into() }
    }

    /// The term in which this process may commit; 0: it may not.
    pub fn term(&self) -> i64 {
        self.term.load(Ordering::Acquire)
    }

    /// Takes the right away, at once and whatever the database says.
    pub fn close(&self) {
        self.term.store(0, Ordering::Release);
    }

    /// What the connections of this process call themselves.
    pub(crate) fn application(&self) -> String {
        format!("{APPLICATION}{}", self.name)
    }

    /// Checks, inside of a transaction that is about to write, that this process may, by the right of this
    /// term; and that stays so until its end.
    pub(crate) async fn check(&self, session: &mut Session, term: i64) -> Result<()> {
        let held = format!("SELECT 1 FROM harrier_term WHERE term = {term} FOR SHARE");
        if term == 0 || term != self.term() || session.query(held).await?.is_empty() {
            return Err(Error::ReadOnly("nothing can be written: another server has taken over".to_string()));
        }
        Ok(())
    }
}

/// Who holds the lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    pub term: i64,
    pub name: String,
    /// Whether it has been renewed in time.
    pub is_alive: bool,
}

/// A process's way to the lease. Its connections are not those of commits, which may have to wait.
pub struct Lease {
    database: Database,
    fence: Fence,
}

impl Lease {
    /// Opens the database and makes the tables of the lease in it.
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

    /// Becomes the holder if nobody is: for so long, unless it is renewed. Returns the new term. What the
    /// last holder still has open in the database is ended.
    pub async fn take(&self, time: Duration) -> Result<Option<i64>> {
        let mut session = self.database.begin().await?;
        let name = text(&self.fence.name)?;
        // Of several that try, one locks the row, and the others find it renewed. What this process has taken
        // without hearing of it is taken again.
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

    /// A transaction that it has open holds locks that this one waits for, and its end may never be heard of.
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

    /// Stays the holder for so long from now on. False: this process is not any more; its fence is closed
    /// then.
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

    /// Lets the next one take over at once. To be called when nothing is committed any more.
    pub async fn give_up(&self) -> Result<()> {
        self.fence.close();
        let name = text(&self.fence.name)?;
        let sql =
            format!("UPDATE harrier_lease SET renewed_until = '-infinity' WHERE holder = {name} RETURNING 1");
        self.database.query(sql).await.map(drop)
    }

    /// Who holds it, or did last; `None`: nobody ever did.
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
