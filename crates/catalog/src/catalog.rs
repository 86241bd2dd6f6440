//! The handle of a warehouse's catalog: how it is opened, its connections and caches, and what is read from
//! it.
//!
//! Files beside this one, and the rooms above, add to its API: `commit.rs`, `maintenance/`.
//!
//! Invariants: a committed snapshot always reads the same until it expires. Snapshots are numbered without
//! gaps. Between two consecutive snapshots lies exactly one transaction, applied atomically.
//!
//! Order of calls: `open` or `create`; `head` (or `at`) for the state; `data` for the files of a table; a
//! `Transaction` on the state; `commit`. Many tasks and processes may call all of it concurrently.
//!
//! Memory bound: a state contains every schema, table, column and view of the warehouse; the states of the
//! last `STATES_MAX` schema versions are cached. `data` has every file of one table; its cache is bounded as
//! described in `snapshot/cache.rs`.
//!
//! Errors: see `Error`. Cancellation: a dropped future has no effect, but a commit that was already sent may
//! have happened. Crash: the database rolls back uncommitted changes.

pub(crate) mod access;
pub(crate) mod analysis;
pub(crate) mod column_stats;
pub(crate) mod column_versions;
pub(crate) mod identity;
pub(crate) mod sequences;
pub(crate) mod writers;

use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};

use crate::access::Access;
use crate::database::Database;
use crate::database::commit_hook::Hook;
use crate::database::errors::is_transient;
use crate::database::fence::Fence;
use crate::database::retry::retry_if_lost;
use crate::error::{Error, Result};
use crate::layout;
use crate::layout::inlined;
use crate::model::files::TableData;
use crate::model::identity::Identity;
use crate::model::ids::{ObjectId, SnapshotId};
use crate::model::state::{Column, State, Table};
use crate::snapshot::cache::{Cache, CachedData};
use crate::snapshot::head::{self, Head, Settings, SnapshotInfo};
use crate::snapshot::history::{self, History};
use crate::snapshot::table_stats::{self, TableSize, TableStats};
use crate::snapshot::{objects, table_data};

/// Cached states for `head` and `at`, by schema version. A handful, for time travel statements.
const STATES_MAX: usize = 8;
/// Attempts of `create` if another program creates the tables concurrently.
const CREATE_ATTEMPTS_MAX: usize = 5;

/// A warehouse's catalog. Cheap to clone; clones share connections.
#[derive(Clone)]
pub struct Catalog {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub database: Database,
    states: Mutex<Vec<(Settings, Arc<State>)>>,
    pub cache: Cache,
    pub history: History,
    /// Access control state, as last read.
    pub access: Mutex<Option<Arc<Access>>>,
    pub has_access: AtomicBool,
    /// Whether the table of writers is known to exist.
    pub has_writers: AtomicBool,
    pub hook: Mutex<Option<Hook>>,
}

impl std::fmt::Debug for Catalog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Catalog").field("database", &self.inner.database.name()).finish_non_exhaustive()
    }
}

impl Catalog {
    /// Opens the catalog at `sqlite:PATH` or `postgres://HOST/DATABASE`. Creates nothing: `Error::NotFound`
    /// if there is no warehouse.
    pub async fn open(url: &str) -> Result<Self> {
        Self::open_fenced(url, None).await
    }

    /// Closes all connections, also of clones, and waits for that, before the database is copied or removed.
    /// Without it they close on their own shortly after the last clone is dropped. Later calls fail.
    pub async fn close(&self) {
        self.inner.database.close().await;
    }

    /// Like [`open`](Self::open), for a process that commits only while `fence` allows it.
    pub async fn open_fenced(url: &str, fence: Option<&Fence>) -> Result<Self> {
        let database = Database::connect(url, false, fence).await?;
        if !database.has_warehouse().await? {
            return Err(Error::NotFound(format!(
                "there is no warehouse in {}: it has no DuckLake tables",
                database.name()
            )));
        }
        let catalog = Self::new(database);
        // Reports unsupported contents early.
        retry_if_lost(|| async { head::head(&mut catalog.inner.database.read().await?, None).await }).await?;
        Ok(catalog)
    }

    /// Opens the catalog, and creates it if there is none. `data_path` is the location of data files; it ends
    /// in `/` and is stored as given.
    pub async fn create(url: &str, data_path: &str) -> Result<Self> {
        Self::create_fenced(url, data_path, None).await
    }

    /// Like [`create`](Self::create), for a process that writes only while `fence` allows it.
    pub async fn create_fenced(url: &str, data_path: &str, fence: Option<&Fence>) -> Result<Self> {
        let database = Database::connect(url, true, fence).await?;
        let mut attempt = 1;
        while !database.has_warehouse().await? {
            match make(&database, data_path).await {
                Ok(()) => break,
                Err(error) if is_transient(&error) && attempt < CREATE_ATTEMPTS_MAX => attempt += 1,
                Err(error) => return Err(error),
            }
        }
        drop(database);
        Self::open_fenced(url, fence).await
    }

    fn new(database: Database) -> Self {
        let inner = Inner {
            database,
            states: Mutex::new(Vec::new()),
            cache: Cache::default(),
            history: History::default(),
            access: Mutex::new(None),
            has_access: AtomicBool::new(false),
            has_writers: AtomicBool::new(false),
            hook: Mutex::new(None),
        };
        Self { inner: Arc::new(inner) }
    }

    /// The state at the newest snapshot. One small query if no schema, table or view has changed since the
    /// last call.
    pub async fn head(&self) -> Result<Arc<State>> {
        self.state(None).await
    }

    /// The state at a past snapshot; `Error::NotFound` if it is unknown or has expired.
    pub async fn at(&self, snapshot: SnapshotId) -> Result<Arc<State>> {
        self.state(Some(snapshot)).await
    }

    /// The state at the newest snapshot not younger than a time such as `2026-11-22 07:30:28+01`; without a
    /// zone, UTC.
    pub async fn at_time(&self, time: &str) -> Result<Arc<State>> {
        let at = || async { head::snapshot_at(&mut self.inner.database.read().await?, time).await };
        let snapshot = retry_if_lost(at).await?;
        self.state(Some(snapshot)).await
    }

    async fn state(&self, snapshot: Option<SnapshotId>) -> Result<Arc<State>> {
        let rows = self.inner.database.query(head::head_query(snapshot)).await?;
        let head = head::read_head(&rows, snapshot)?;
        if snapshot.is_none() {
            self.verify_history(&head).await?;
        }
        let generation = self.inner.history.generation();
        if let Some(state) = self.cached_state(&head) {
            return Ok(state);
        }
        let read = || async {
            let mut session = self.inner.database.read().await?;
            let head = head::head(&mut session, snapshot).await?;
            let state = Arc::new(objects::state(&mut session, &head, self.inner.database.folder()).await?);
            Ok((head, state))
        };
        let (head, state) = retry_if_lost(read).await?;
        if snapshot.is_none() {
            self.verify_history(&head).await?;
        }
        if self.inner.history.generation() == generation {
            self.cache_state(&head, &state);
        }
        Ok(state)
    }

    /// The cached state of this snapshot, or of another with the same schemas, tables and views.
    fn cached_state(&self, head: &Head) -> Option<Arc<State>> {
        let mut states = self.inner.states.lock().unwrap_or_else(PoisonError::into_inner);
        let same = |(settings, state): &(Settings, Arc<State>)| {
            state.schema_version == head.schema_version && *settings == head.settings
        };
        let place = states.iter().position(same)?;
        let (settings, mut state) = states.remove(place);
        if (state.snapshot, state.time) != (head.snapshot, head.time) {
            state = Arc::new(State { snapshot: head.snapshot, time: head.time, ..State::clone(&state) });
        }
        states.push((settings, Arc::clone(&state)));
        Some(state)
    }

    fn cache_state(&self, head: &Head, state: &Arc<State>) {
        let mut states = self.inner.states.lock().unwrap_or_else(PoisonError::into_inner);
        states.push((head.settings.clone(), Arc::clone(state)));
        if states.len() > STATES_MAX {
            states.remove(0);
        }
    }

    /// Counts the histories of the catalog seen so far: it may have been restored to an earlier state.
    pub fn histories(&self) -> u64 {
        self.inner.history.generation()
    }

    /// Verifies that the newest snapshot continues the known history, and invalidates all caches if it does
    /// not.
    async fn verify_history(&self, head: &Head) -> Result<()> {
        if !self.inner.history.verify(&self.inner.database, head).await? {
            self.invalidate_caches();
        }
        Ok(())
    }

    /// Invalidates all caches, after a change of history.
    fn invalidate_caches(&self) {
        self.inner.states.lock().unwrap_or_else(PoisonError::into_inner).clear();
        self.inner.cache.invalidate();
        *self.inner.access.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Every file and inlined row of a table in a state.
    ///
    /// Errors: `Error::Conflict` if the catalog was restored to an earlier state since the state was read,
    /// and differs.
    pub async fn data_in(&self, state: &State, table: &Table) -> Result<Arc<TableData>> {
        self.data_at(table, state.snapshot, Some(state.time)).await
    }

    /// Every file and inlined row of a table at a snapshot.
    pub async fn data(&self, table: &Table, snapshot: SnapshotId) -> Result<Arc<TableData>> {
        self.data_at(table, snapshot, None).await
    }

    async fn data_at(
        &self,
        table: &Table,
        snapshot: SnapshotId,
        time: Option<i64>,
    ) -> Result<Arc<TableData>> {
        if table.id < 0 {
            return Ok(Arc::new(TableData { table: table.id, snapshot, ..TableData::default() }));
        }
        let known = &self.inner.cache;
        let generation = self.inner.history.generation();
        let newest = self.inner.history.newest().max(snapshot);
        let is_it = |found: &CachedData| time.is_none_or(|time| time == found.time);
        let before = match known.data(table.id, snapshot).filter(is_it) {
            Some(found) if found.compared_at >= newest => return Ok(found.data),
            Some(found) => Some(found.data),
            None => known.data_before(table.id, snapshot).map(|found| found.data),
        };
        let read = || async {
            let mut session = self.inner.database.read().await?;
            let head = head::head(&mut session, Some(snapshot)).await?;
            if time.is_some_and(|time| time != head.time) {
                return Err(history::lost_snapshot(snapshot));
            }
            let data = table_data::load(&mut session, table.id, snapshot, before.as_deref()).await?;
            Ok((head.time, Arc::new(data)))
        };
        let (time, data) = retry_if_lost(read).await.map_err(|error| match error {
            Error::Unsupported(reason) => Error::Unsupported(format!("table \"{}\": {reason}", table.name)),
            other => other,
        })?;
        if self.inner.history.generation() == generation {
            known.put_data(CachedData { data: Arc::clone(&data), time, compared_at: newest });
        }
        Ok(data)
    }

    /// Sets the cache size for files, inlined rows and statistics, bytes.
    pub fn set_cache_bytes_max(&self, bytes: usize) {
        self.inner.cache.set_bytes_max(bytes);
    }

    /// The current sizes of all tables that have files.
    pub async fn sizes(&self) -> Result<BTreeMap<ObjectId, TableSize>> {
        retry_if_lost(|| async { table_stats::sizes(&mut self.inner.database.read().await?).await }).await
    }

    /// Statistics of a table and its columns; `None` if no row was ever inserted.
    pub async fn table_stats(&self, table: ObjectId) -> Result<Option<TableStats>> {
        retry_if_lost(|| async {
            table_stats::table_stats(&mut self.inner.database.read().await?, table).await
        })
        .await
    }

    /// The table's columns at a snapshot, for files and rows written then.
    pub async fn columns_at(&self, table: ObjectId, snapshot: SnapshotId) -> Result<Vec<Column>> {
        if let Some(known) = self.inner.cache.columns.get(&(table, snapshot)) {
            return Ok(Vec::clone(&known));
        }
        let generation = self.inner.history.generation();
        let read =
            || async { objects::columns_at(&mut self.inner.database.read().await?, table, snapshot).await };
        let columns = retry_if_lost(read).await?;
        if self.inner.history.generation() == generation {
            self.inner.cache.columns.put((table, snapshot), Arc::new(columns.clone()));
        }
        Ok(columns)
    }

    /// All snapshots that have not expired, oldest first.
    pub async fn snapshots(&self) -> Result<Vec<SnapshotInfo>> {
        retry_if_lost(|| async { head::snapshots(&mut self.inner.database.read().await?, "").await }).await
    }

    /// Whether the catalog can store rows of this table inline. It cannot if columns have names that DuckLake
    /// uses, or that differ in case only, or if there are too many of them.
    pub fn can_inline(&self, table: &Table) -> bool {
        inlined::fits(self.inner.database.dialect(), table)
    }
}

/// Creates the tables, unless they exist by then.
async fn make(database: &Database, data_path: &str) -> Result<()> {
    let place = database.place().await?;
    let mut session = database.write().await?;
    if !session.has_table("ducklake_metadata").await? {
        let identity = Identity::new(&place);
        layout::create(&mut session, data_path, &identity).await?;
        session.commit().await?;
        tracing::info!(catalog = database.name(), data_path, "created a warehouse");
    }
    Ok(())
}
