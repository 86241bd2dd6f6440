//! Registry of writers of uncommitted files, so that garbage collection does not remove those files.
//!
//! A statement that writes files is registered by the prefix of its file names, from before the first of them
//! is created until the end of its transaction. DuckLake has no table for it: it is in a table of Harrier's
//! own, created with the first file.
//!
//! ```text
//!   register_writer ─► files ─► renew_writers, periodically ─┬─► commit: removes the name, or fails
//!                                                            ├─► unregister_writers: rolled back
//!                                                            └─► process ended or silent: dropped
//! ```
//!
//! # Invariants
//! - A transaction whose writers are no longer registered does not commit (40001): its files may be gone.
//! - A sweep lists the files first, then the writers, then the paths referenced by snapshots. The writer of
//!   a listed file was registered before the file was created; if it no longer is, its transaction has ended,
//!   and its files are referenced or garbage.
//! - Only the clock of the database determines how long a writer has been silent.
//!
//! Crash: a writer on this host whose process has ended is removed at once, another after [`SILENCE`].
//!
//! A long reader of a snapshot's files, such as a backup, is registered in the same way, before it reads the
//! file list. A sweep lists expired files before it lists the registered names, so no unlisted reader uses a
//! file that it finds.
//!
//! Other programs that write into the warehouse are not registered here; only the age of their files protects
//! those.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::time::Duration;

use uuid::Uuid;

use crate::catalog::Catalog;
use crate::database::errors::is_transient;
use crate::database::retry::retry_if_lost;
use crate::database::session::Session;
use crate::database::sql::{Dialect, text};
use crate::error::{Error, Result};

const TABLE: &str = "harrier_writer";

/// Silence after which a writer is removed.
pub const SILENCE: Duration = Duration::from_secs(120);

/// Name prefix of long readers of a snapshot's files, such as backups. While one is registered, files of
/// snapshots that have expired since are not removed.
const READER: &str = "reader-";

/// A unique name for a long reader of a snapshot's files. It is registered, renewed and ended like a
/// writer's.
pub fn reader_name() -> String {
    format!("{READER}{}", Uuid::new_v4().simple())
}

/// Whether this is the name of a reader.
pub fn is_reader(name: &str) -> bool {
    name.starts_with(READER)
}

/// Attempts to create the table if another process creates it concurrently.
const ATTEMPTS_MAX: usize = 5;

impl Catalog {
    /// Registers a writer. False: it cannot be, since the database does not allow creating the table; then
    /// the age of its files has to protect them.
    pub async fn register_writer(&self, name: &str) -> Result<bool> {
        for attempt in 1.. {
            match self.create_writers_table().await {
                Err(error) if is_transient(&error) && attempt < ATTEMPTS_MAX => {}
                Err(Error::ReadOnly(reason)) => {
                    tracing::warn!(reason, "nobody can be told of files that are being written");
                    return Ok(false);
                }
                outcome => {
                    outcome?;
                    break;
                }
            }
        }
        let (name, process) = (text(name)?, text(&process::current())?);
        // It may already be registered by an unacknowledged attempt.
        self.change(&|now| {
            format!(
                "INSERT INTO {TABLE} VALUES ({name}, {process}, {now}) ON CONFLICT (name) DO UPDATE SET seen = excluded.seen"
            )
        })
        .await?;
        Ok(true)
    }

    async fn create_writers_table(&self) -> Result<()> {
        // The table is never dropped.
        if self.inner.has_writers.load(Ordering::Relaxed) {
            return Ok(());
        }
        if self.inner.database.has_table(TABLE).await? {
            self.inner.has_writers.store(true, Ordering::Relaxed);
            return Ok(());
        }
        self.change(&|_| {
            format!(
                "CREATE TABLE IF NOT EXISTS {TABLE} (name TEXT PRIMARY KEY, process TEXT NOT NULL, seen BIGINT NOT NULL)"
            )
        })
        .await?;
        self.inner.has_writers.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Renews writers. Call it more often than every [`SILENCE`].
    pub async fn renew_writers(&self, names: &BTreeSet<String>) -> Result<()> {
        let names = texts(names)?;
        self.change(&|now| format!("UPDATE {TABLE} SET seen = {now} WHERE name IN ({names})")).await
    }

    /// Removes writers that were rolled back. Call it when their files are removed.
    pub async fn unregister_writers(&self, names: &BTreeSet<String>) -> Result<()> {
        let names = texts(names)?;
        self.change(&|_| format!("DELETE FROM {TABLE} WHERE name IN ({names})")).await
    }

    /// Runs one statement, which gets the database's expression for the current time; it may run twice.
    async fn change(&self, statement: &(dyn Fn(&str) -> String + Sync)) -> Result<()> {
        retry_if_lost(|| async {
            let mut session = self.inner.database.begin().await?;
            session.execute(statement(now(session.dialect()))).await?;
            session.commit().await.map_err(Error::Database)
        })
        .await
    }

    /// Removes writers that are silent or whose process has ended: they can no longer commit. Returns the
    /// names of all others.
    pub async fn expire_and_list_writers(&self) -> Result<BTreeSet<String>> {
        if !self.inner.has_writers.load(Ordering::Relaxed) && !self.inner.database.has_table(TABLE).await? {
            return Ok(BTreeSet::new());
        }
        retry_if_lost(|| self.remove_expired_and_list()).await
    }

    async fn remove_expired_and_list(&self) -> Result<BTreeSet<String>> {
        let mut session = self.inner.database.begin().await?;
        let mut ended = BTreeSet::new();
        for row in session.query(format!("SELECT DISTINCT process FROM {TABLE}")).await? {
            let process = row.text(0)?;
            if process::has_ended(&process) {
                ended.insert(process);
            }
        }
        let (now, silence) = (now(session.dialect()), SILENCE.as_secs());
        let ended = match ended.is_empty() {
            true => String::new(),
            false => format!(" OR process IN ({})", texts(&ended)?),
        };
        session.execute(format!("DELETE FROM {TABLE} WHERE seen < {now} - {silence}{ended}")).await?;
        let rows = session.query(format!("SELECT name FROM {TABLE}")).await?;
        let names = rows.iter().map(|row| row.text(0)).collect::<Result<_>>()?;
        session.commit().await.map_err(Error::Database)?;
        Ok(names)
    }
}

/// Removes the writers of a transaction that is about to commit.
///
/// Errors: one of them was removed before.
pub(crate) async fn end(session: &mut Session, names: &BTreeSet<String>) -> Result<()> {
    if names.is_empty() {
        return Ok(());
    }
    let removed = session.execute(format!("DELETE FROM {TABLE} WHERE name IN ({})", texts(names)?)).await?;
    if removed != names.len() as u64 {
        return Err(Error::Conflict(format!(
            "the files of this transaction may have been swept: nothing was heard of it for {} s",
            SILENCE.as_secs()
        )));
    }
    Ok(())
}

/// Seconds since 1970 by the database's clock.
fn now(dialect: Dialect) -> &'static str {
    match dialect {
        Dialect::Sqlite => "CAST(strftime('%s', 'now') AS INTEGER)",
        Dialect::Postgres => "CAST(floor(extract(epoch FROM clock_timestamp())) AS BIGINT)",
    }
}

fn texts(names: &BTreeSet<String>) -> Result<String> {
    Ok(names.iter().map(|name| text(name)).collect::<Result<Vec<_>>>()?.join(", "))
}

/// Process identities, to detect that a process of this host has ended.
pub mod process {
    use std::fs;

    /// This process: its pid namespace, its pid, and its start time, since pids are reused.
    pub fn current() -> String {
        let pid = std::process::id();
        format!("{} {pid} {}", boot_and_pid_namespace(), start_ticks(&pid.to_string()).unwrap_or_default())
    }

    /// Whether that process is known to have ended. Unknown for processes of other hosts.
    pub fn has_ended(process: &str) -> bool {
        let mut fields = process.rsplitn(3, ' ');
        let (Some(since), Some(pid), Some(of)) = (fields.next(), fields.next(), fields.next()) else {
            return false;
        };
        let here = boot_and_pid_namespace();
        of == here && !since.is_empty() && start_ticks(pid).is_none_or(|start_ticks| start_ticks != since)
    }

    /// This boot of this host, and its pid namespace.
    fn boot_and_pid_namespace() -> String {
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let space = fs::read_link("/proc/self/ns/pid").unwrap_or_default();
        format!("{} {}", boot.trim(), space.display())
    }

    /// Clock ticks from boot to the start of a process; `None` if there is no such process, or it is a
    /// zombie.
    fn start_ticks(pid: &str) -> Option<String> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name before may contain any character, brackets too; the state is the first field after it, the
        // start time the 20th.
        let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
        let state = fields.next()?;
        let start_ticks = fields.nth(18)?;
        (state != "Z" && state != "X").then(|| start_ticks.to_string())
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn has_ended_once_the_process_exits() {
            assert!(!has_ended(&current()));
            let mut child = std::process::Command::new("sleep").arg("600").spawn().unwrap();
            let of_child =
                |start_ticks: &str| format!("{} {} {start_ticks}", boot_and_pid_namespace(), child.id());
            let known = of_child(&start_ticks(&child.id().to_string()).unwrap());
            let earlier = of_child("1");
            assert!(!has_ended(&known));
            assert!(has_ended(&earlier), "another process had the number before");
            child.kill().unwrap();
            child.wait().unwrap();
            assert!(has_ended(&known));
        }

        #[test]
        fn processes_of_other_hosts_have_not_ended() {
            assert!(!has_ended("0a7c pid:[1] 1 77"));
            assert!(!has_ended(""));
            assert!(!has_ended("1 2"));
        }
    }
}
