//! A session's transactions: every statement runs in one, either its own or the one that BEGIN opened.
//!
//! Isolation as in HAWQ: in a read committed transaction each statement reads the snapshot committed when it
//! began; in a serializable one all statements read the snapshot of the first. Read uncommitted is read
//! committed, and repeatable read is serializable, except for the names shown to clients. All see the
//! transaction's own changes.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;

use datafusion::error::{DataFusionError, Result};
use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::sql::sqlparser::ast::{
    self, TransactionAccessMode, TransactionIsolationLevel, TransactionMode,
};
use harrier_catalog::{Catalog, CommitNote, Error, Transaction};
use harrier_error::{SqlError, SqlState};
use harrier_functions::datetime::transaction_time::BlockStart;
use harrier_sql::identifier::plain;
use harrier_sqlstate::IntoDataFusionError;
use harrier_storage::PendingWork;
use tokio::sync::Mutex;

use super::{Warehouse, explain};
use crate::warehouse::dml::writer_registration::Writers;
use crate::warehouse::dml::written_files::WrittenFiles;
use crate::warehouse::name_resolver::NameResolver;
use crate::warehouse::snapshot::StatementSnapshot;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Isolation {
    ReadUncommitted,
    ReadCommitted,
    RepeatableRead,
    Serializable,
}

impl Isolation {
    /// The name in parameters and SHOW.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::ReadUncommitted => "read uncommitted",
            Self::ReadCommitted => "read committed",
            Self::RepeatableRead => "repeatable read",
            Self::Serializable => "serializable",
        }
    }

    /// Whether each statement reads a new snapshot.
    fn refreshes_snapshot(self) -> bool {
        matches!(self, Self::ReadUncommitted | Self::ReadCommitted)
    }

    /// Parses the standard's four names.
    pub(crate) fn of_name(name: &str) -> Self {
        match name {
            "read uncommitted" => Self::ReadUncommitted,
            "repeatable read" => Self::RepeatableRead,
            "serializable" => Self::Serializable,
            _ => Self::ReadCommitted,
        }
    }
}

/// A transaction control statement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Control {
    Begin {
        isolation: Option<Isolation>,
        read_only: Option<bool>,
    },
    Commit {
        chain: bool,
    },
    Rollback {
        chain: bool,
    },
    Savepoint(String),
    Release(String),
    RollbackTo(String),
    SetTransaction {
        isolation: Option<Isolation>,
        read_only: Option<bool>,
    },
    /// For later transactions.
    SetCharacteristics {
        isolation: Option<Isolation>,
        read_only: Option<bool>,
    },
}

impl Control {
    /// The transaction control in `statement`; `None` for other statements.
    pub(crate) fn of(statement: &ast::Statement) -> Option<Self> {
        Some(match statement {
            ast::Statement::StartTransaction { modes, .. } => {
                Self::Begin { isolation: isolation_in(modes), read_only: read_only_in(modes) }
            }
            ast::Statement::Commit { chain, .. } => Self::Commit { chain: *chain },
            ast::Statement::Rollback { chain, savepoint: None } => Self::Rollback { chain: *chain },
            ast::Statement::Rollback { savepoint: Some(name), .. } => Self::RollbackTo(plain(name)),
            ast::Statement::Savepoint { name } => Self::Savepoint(plain(name)),
            ast::Statement::ReleaseSavepoint { name } => Self::Release(plain(name)),
            ast::Statement::Set(ast::Set::SetTransaction { modes, session, .. }) => {
                let (isolation, read_only) = (isolation_in(modes), read_only_in(modes));
                match session {
                    true => Self::SetCharacteristics { isolation, read_only },
                    false => Self::SetTransaction { isolation, read_only },
                }
            }
            _ => return None,
        })
    }
}

fn isolation_in(modes: &[TransactionMode]) -> Option<Isolation> {
    modes.iter().rev().find_map(|mode| match mode {
        TransactionMode::IsolationLevel(level) => Some(match level {
            TransactionIsolationLevel::ReadUncommitted => Isolation::ReadUncommitted,
            TransactionIsolationLevel::ReadCommitted => Isolation::ReadCommitted,
            TransactionIsolationLevel::RepeatableRead => Isolation::RepeatableRead,
            _ => Isolation::Serializable,
        }),
        TransactionMode::AccessMode(_) => None,
    })
}

fn read_only_in(modes: &[TransactionMode]) -> Option<bool> {
    modes.iter().rev().find_map(|mode| match mode {
        TransactionMode::AccessMode(mode) => Some(*mode == TransactionAccessMode::ReadOnly),
        TransactionMode::IsolationLevel(_) => None,
    })
}

/// The transactions of one session, in sequence.
#[derive(Debug)]
pub(crate) struct Transactions {
    warehouse: Arc<Warehouse>,
    names: Arc<NameResolver>,
    runtime: Arc<RuntimeEnv>,
    inner: Mutex<Inner>,
    /// A statement of the open transaction has failed.
    failed: AtomicBool,
    /// BEGIN has opened a transaction.
    explicit: AtomicBool,
    /// The time of BEGIN, for the session's functions.
    start: BlockStart,
    defaults: parking_lot::Mutex<Defaults>,
}

/// Defaults of transactions that do not specify them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Defaults {
    pub isolation: Isolation,
    pub read_only: bool,
}

#[derive(Debug)]
struct Inner {
    open: Option<Open>,
}

#[derive(Debug)]
struct Open {
    /// Opened by BEGIN.
    explicit: bool,
    start: SystemTime,
    isolation: Isolation,
    read_only: bool,
    /// `None` before the warehouse is created.
    work: Option<Transaction>,
    savepoints: Vec<(String, Option<Transaction>)>,
    /// Every file the transaction has written, whether it still references it or not.
    written: WrittenFiles,
    /// The transaction's writers, registered so that VACUUM spares their files.
    writers: Writers,
}

impl Transactions {
    pub(crate) fn new(
        warehouse: Arc<Warehouse>,
        names: Arc<NameResolver>,
        runtime: Arc<RuntimeEnv>,
        start: BlockStart,
    ) -> Self {
        let defaults = Defaults { isolation: Isolation::ReadCommitted, read_only: false };
        Self {
            warehouse,
            names,
            runtime,
            inner: Mutex::new(Inner { open: None }),
            defaults: parking_lot::Mutex::new(defaults),
            failed: AtomicBool::new(false),
            explicit: AtomicBool::new(false),
            start,
        }
    }

    /// Marks the open transaction as failed after a canceled statement, at whatever step.
    pub(crate) fn mark_failed(&self) {
        if self.explicit.load(Ordering::Relaxed) {
            self.failed.store(true, Ordering::Relaxed);
        }
    }

    /// Whether a transaction block is open.
    pub(crate) fn is_open(&self) -> bool {
        self.explicit.load(Ordering::Relaxed)
    }

    /// Sets the defaults of later transactions.
    pub(crate) fn set_defaults(&self, defaults: Defaults) {
        *self.defaults.lock() = defaults;
    }

    fn defaults(&self) -> Defaults {
        *self.defaults.lock()
    }

    /// The isolation level of the current transaction, or of later ones, as shown by SHOW.
    pub(crate) async fn isolation(&self) -> &'static str {
        let inner = self.inner.lock().await;
        let open = inner.open.as_ref().filter(|open| open.explicit);
        open.map_or(self.defaults().isolation, |open| open.isolation).name()
    }

    /// Whether the current transaction, or later ones, are read-only.
    pub(crate) async fn is_read_only(&self) -> bool {
        let inner = self.inner.lock().await;
        let open = inner.open.as_ref().filter(|open| open.explicit);
        open.map_or(self.defaults().read_only, |open| open.read_only)
    }

    /// Whether a statement of the transaction has failed, so that it can only be rolled back.
    pub(crate) fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Relaxed)
    }

    /// Prepares every other statement: sets its snapshot. To be called before it.
    ///
    /// Errors: the transaction has failed before (25P02); its changes conflict with committed ones (40001),
    /// which marks it as failed; the catalog cannot be read.
    pub(crate) async fn begin_statement(&self) -> Result<()> {
        if self.has_failed() {
            return Err(SqlError::new(
                SqlState::FAILED_TRANSACTION,
                "current transaction is aborted, commands ignored until end of transaction block",
            )
            .into_datafusion());
        }
        let mut inner = self.inner.lock().await;
        let Defaults { isolation, read_only } = self.defaults();
        // Left by a canceled statement.
        if let Some(left) = inner.open.take_if(|open| !open.explicit) {
            self.discard(left.written).await;
        }
        let catalog = self.warehouse.open().await?;
        self.load_access(catalog.as_ref()).await?;
        let open = inner.open.get_or_insert_with(|| Open::new(false, isolation, read_only));
        let is_new = open.work.is_none() || open.isolation.refreshes_snapshot();
        if let (Some(catalog), true) = (&catalog, is_new) {
            match &mut open.work {
                Some(work) => catalog.rebase(work).await.map_err(|error| self.fail_on_conflict(error))?,
                None => open.work = Some(Transaction::new(catalog.head().await.map_err(explain)?)),
            }
        }
        self.publish_snapshot(&catalog, open);
        Ok(())
    }

    /// Marks the transaction as failed if it conflicts with others.
    fn fail_on_conflict(&self, error: Error) -> DataFusionError {
        if matches!(error, Error::Conflict(_)) {
            self.mark_failed();
        }
        explain(error)
    }

    /// Loads the privileges of the session's role. The system may do everything.
    async fn load_access(&self, catalog: Option<&Catalog>) -> Result<()> {
        let role = self.names.role();
        if role.is_system() {
            return Ok(());
        }
        role.set_access(match catalog {
            Some(catalog) => catalog.access().await.map_err(explain)?,
            None => Arc::default(),
        });
        Ok(())
    }

    /// The catalog for changes of access rights, which are no part of the transaction but are rejected in a
    /// read-only one.
    ///
    /// Errors: the transaction is read-only (25006).
    pub(crate) async fn catalog_for_access(&self) -> Result<Catalog> {
        let inner = self.inner.lock().await;
        match inner.open.as_ref().is_some_and(|open| open.read_only) {
            true => Err(read_only()),
            false => self.warehouse.create().await,
        }
    }

    fn publish_snapshot(&self, catalog: &Option<Catalog>, open: &Open) {
        let (viewer, asker) = (self.names.role().viewer(), self.names.role().asker());
        let snapshot = match &open.work {
            Some(work) => StatementSnapshot {
                catalog: catalog.clone(),
                state: Some(Arc::new(work.state.clone())),
                data: Arc::new(work.data.clone()),
                values: Arc::new(work.values.clone()),
                viewer,
                asker,
                shows_main: false,
            },
            None => StatementSnapshot { viewer, asker, ..StatementSnapshot::default() },
        };
        self.names.set_snapshot(snapshot);
    }

    /// Changes the current statement's transaction. Creates the warehouse if necessary.
    pub(crate) async fn change<R>(&self, change: impl FnOnce(&mut Transaction) -> Result<R>) -> Result<R> {
        let mut inner = self.inner.lock().await;
        let open = inner.open.as_mut().ok_or_else(no_statement)?;
        if open.read_only {
            return Err(read_only());
        }
        let catalog = self.warehouse.create().await?;
        if open.work.is_none() {
            open.work = Some(Transaction::new(catalog.head().await.map_err(explain)?));
        }
        let work = open.work.as_mut().ok_or_else(no_statement)?;
        let before = work.clone();
        let result = change(work);
        if result.is_err() {
            *work = before;
        }
        self.publish_snapshot(&Some(catalog), open);
        result
    }

    /// Registers a writer whose files have `name` in their names: VACUUM spares them until the transaction
    /// has ended. To be called before the statement writes. `folder`: where its files are looked up if the
    /// statement fails; `None` if it records each file before writing it.
    ///
    /// Errors: the transaction is read-only (25006); the data folder is another warehouse's (55000); the
    /// catalog cannot be written.
    pub(crate) async fn register_writer(&self, name: &str, folder: Option<String>) -> Result<()> {
        let mut inner = self.inner.lock().await;
        let open = inner.open.as_mut().ok_or_else(no_statement)?;
        if open.read_only {
            return Err(read_only());
        }
        let catalog = self.warehouse.create().await?;
        self.warehouse.claim(&catalog).await?;
        open.writers.begin(&catalog, name).await.map_err(explain)?;
        if let Some(folder) = folder {
            open.written.begin(name, folder);
        }
        Ok(())
    }

    /// Records all files that the current statement has written under a name, so that they are removed if the
    /// transaction does not commit.
    pub(crate) async fn record_files(&self, name: &str, files: impl IntoIterator<Item = String>) {
        if let Some(open) = self.inner.lock().await.open.as_mut() {
            open.written.finish(name, files);
        }
    }

    /// Records a file that is about to be written.
    pub(crate) async fn record_file(&self, file: String) {
        if let Some(open) = self.inner.lock().await.open.as_mut() {
            open.written.add(file);
        }
    }

    /// Ends a statement begun with [`Self::begin_statement`]: commits unless BEGIN opened the transaction. To
    /// be called after its work is done.
    ///
    /// Errors: those of the commit.
    pub(crate) async fn end_statement(&self) -> Result<()> {
        let mut inner = self.inner.lock().await;
        match &inner.open {
            Some(open) if !open.explicit => {
                let open = inner.open.take().ok_or_else(no_statement)?;
                self.commit(open).await
            }
            _ => Ok(()),
        }
    }

    /// Rolls back a failed statement's own transaction, or marks the one that BEGIN opened as failed.
    pub(crate) async fn fail_statement(&self) {
        let mut inner = self.inner.lock().await;
        match &inner.open {
            Some(open) if open.explicit => self.failed.store(true, Ordering::Relaxed),
            _ => {
                if let Some(open) = inner.open.take() {
                    self.discard(open.written).await;
                }
            }
        }
    }

    /// Runs a transaction control statement; returns its tag, and a warning for the user.
    pub(crate) async fn control(&self, control: Control) -> (Result<&'static str>, Option<&'static str>) {
        let mut inner = self.inner.lock().await;
        let mut warning = None;
        let tag = self.run_control(&mut inner, control, &mut warning).await;
        let block = inner.open.as_ref().filter(|open| open.explicit);
        self.explicit.store(block.is_some(), Ordering::Relaxed);
        self.start.set(block.map(|block| block.start));
        (tag, warning)
    }

    async fn run_control(
        &self,
        inner: &mut Inner,
        control: Control,
        warning: &mut Option<&'static str>,
    ) -> Result<&'static str> {
        let failed = self.has_failed();
        let explicit = inner.open.as_ref().is_some_and(|open| open.explicit);
        let aborted = || {
            SqlError::new(
                SqlState::FAILED_TRANSACTION,
                "current transaction is aborted, commands ignored until end of transaction block",
            )
        };
        match control {
            Control::Begin { .. } if explicit => {
                if failed {
                    return Err(aborted().into_datafusion());
                }
                *warning = Some("there is already a transaction in progress");
                Ok("BEGIN")
            }
            Control::Begin { isolation, read_only } => {
                let isolation = isolation.unwrap_or(self.defaults().isolation);
                let read_only = read_only.unwrap_or(self.defaults().read_only);
                inner.open = Some(Open::new(true, isolation, read_only));
                Ok("BEGIN")
            }
            Control::Commit { chain } => {
                let Some(open) = inner.open.take_if(|open| open.explicit) else {
                    *warning = Some("there is no transaction in progress");
                    return Ok("COMMIT");
                };
                self.failed.store(false, Ordering::Relaxed);
                if chain {
                    inner.open = Some(Open::new(true, open.isolation, open.read_only));
                }
                if failed {
                    self.discard(open.written).await;
                    return Ok("ROLLBACK");
                }
                self.commit(open).await?;
                Ok("COMMIT")
            }
            Control::Rollback { chain } => {
                self.failed.store(false, Ordering::Relaxed);
                let Some(open) = inner.open.take() else {
                    *warning = Some("there is no transaction in progress");
                    return Ok("ROLLBACK");
                };
                if chain {
                    inner.open = Some(Open::new(true, open.isolation, open.read_only));
                }
                self.discard(open.written).await;
                Ok("ROLLBACK")
            }
            Control::Savepoint(_) | Control::Release(_) | Control::RollbackTo(_) if !explicit => {
                Err(SqlError::new(
                    SqlState::NO_ACTIVE_TRANSACTION,
                    "savepoints can only be used in transaction blocks",
                )
                .into_datafusion())
            }
            Control::Savepoint(_) | Control::Release(_) if failed => Err(aborted().into_datafusion()),
            Control::Savepoint(name) => {
                if let Some(open) = &mut inner.open {
                    let work = open.work.clone();
                    open.savepoints.push((name, work));
                }
                Ok("SAVEPOINT")
            }
            Control::Release(name) => {
                let open = inner.open.as_mut().ok_or_else(no_statement)?;
                let at = open.savepoint(&name)?;
                open.savepoints.truncate(at);
                Ok("RELEASE")
            }
            Control::RollbackTo(name) => {
                let open = inner.open.as_mut().ok_or_else(no_statement)?;
                let at = open.savepoint(&name)?;
                open.savepoints.truncate(at + 1);
                open.work = match open.savepoints[at].1.clone() {
                    // The savepoint precedes the first statement that read a snapshot: that snapshot stays,
                    // changes since then do not.
                    None if !open.isolation.refreshes_snapshot() => {
                        open.work.as_ref().map(|work| Transaction::new(Arc::clone(&work.base)))
                    }
                    work => work,
                };
                self.failed.store(false, Ordering::Relaxed);
                Ok("ROLLBACK")
            }
            // It sets session parameters, which has already been done.
            Control::SetCharacteristics { .. } => Ok("SET"),
            Control::SetTransaction { isolation, read_only } => {
                if failed {
                    return Err(aborted().into_datafusion());
                }
                match inner.open.as_mut().filter(|open| open.explicit) {
                    Some(open)
                        if open.work.is_some() && isolation.is_some_and(|level| level != open.isolation) =>
                    {
                        return Err(SqlError::new(
                            SqlState::ACTIVE_TRANSACTION,
                            "SET TRANSACTION ISOLATION LEVEL must be called before any query",
                        )
                        .into_datafusion());
                    }
                    Some(open) => {
                        open.isolation = isolation.unwrap_or(open.isolation);
                        open.read_only = read_only.unwrap_or(open.read_only);
                    }
                    None => *warning = Some("SET TRANSACTION can only be used in transaction blocks"),
                }
                Ok("SET")
            }
        }
    }

    /// Commits; removes written files that are no longer referenced. A commit that has begun completes even
    /// if its caller is canceled, but is not retried then.
    async fn commit(&self, open: Open) -> Result<()> {
        // Dropped last when the transaction ends: after its files are removed.
        let Open { work: Some(mut work), written, mut writers, .. } = open else {
            return Ok(());
        };
        work.writers = writers.names();
        let kept = referenced_files(&work);
        if work.is_empty() {
            self.discard(written).await;
            return Ok(());
        }
        let Some(catalog) = self.warehouse.open().await? else {
            return Err(no_statement());
        };
        let owner = self.names.role().viewer().name().map(str::to_string);
        let note = CommitNote { owner, ..CommitNote::default() };
        let waiting = Arc::new(());
        let waiter = Arc::downgrade(&waiting);
        let committing =
            tokio::spawn(
                async move { catalog.commit_while(&work, &note, &|| waiter.strong_count() > 0).await },
            );
        let committed = committing.await;
        drop(waiting);
        match committed {
            Ok(Ok(_)) => {
                writers.clear();
                self.discard(written.except(&kept)).await;
                Ok(())
            }
            // Unknown whether the files are referenced.
            Ok(Err(error @ Error::Unknown { .. })) => Err(explain(error)),
            Ok(Err(error)) => {
                self.discard(written).await;
                Err(explain(error))
            }
            Err(error) => Err(DataFusionError::Internal(format!("the commit was cut off: {error}"))),
        }
    }

    /// Removes unreferenced files. Files that cannot be removed are left to VACUUM.
    async fn discard(&self, files: WrittenFiles) {
        files.remove(&self.runtime).await;
    }
}

/// Removes the files of an open transaction when its session ends.
impl Drop for Transactions {
    fn drop(&mut self) {
        let Some(Open { written, writers, .. }) = self.inner.get_mut().open.take() else { return };
        let Some(left) = written.remove_local() else { return };
        let Ok(handle) = tokio::runtime::Handle::try_current() else { return };
        let (runtime, pending_work) = (Arc::clone(&self.runtime), PendingWork::begin());
        handle.spawn(async move {
            left.remove(&runtime).await;
            drop((writers, pending_work));
        });
    }
}

impl Open {
    fn new(explicit: bool, isolation: Isolation, read_only: bool) -> Self {
        Self {
            explicit,
            start: SystemTime::now(),
            isolation,
            read_only,
            work: None,
            savepoints: Vec::new(),
            written: WrittenFiles::default(),
            writers: Writers::default(),
        }
    }

    fn savepoint(&self, name: &str) -> Result<usize> {
        self.savepoints.iter().rposition(|(known, _)| known == name).ok_or_else(|| {
            SqlError::new(SqlState::INVALID_SAVEPOINT, format!("savepoint \"{name}\" does not exist"))
                .into_datafusion()
        })
    }
}

/// The files that a transaction's changes reference.
fn referenced_files(work: &Transaction) -> BTreeSet<String> {
    let mut files = BTreeSet::new();
    for (id, changes) in &work.data {
        let Some(table) = work.state.tables.get(id) else { continue };
        let folder = work.state.table_path(table);
        files.extend(changes.added.iter().map(|file| file.path.below(&folder)));
        files
            .extend(changes.added.iter().flat_map(|file| &file.deletes).map(|file| file.path.below(&folder)));
        files.extend(changes.deleted.values().filter_map(|deletes| match deletes {
            harrier_catalog::files::NewDeletes::File { file, .. } => Some(file.path.below(&folder)),
            harrier_catalog::files::NewDeletes::Inline(_) => None,
        }));
    }
    files
}

fn read_only() -> DataFusionError {
    let message = "cannot change the warehouse in a read-only transaction";
    SqlError::new(SqlState::READ_ONLY, message).into_datafusion()
}

fn no_statement() -> DataFusionError {
    DataFusionError::Internal("there is no statement to change the warehouse in".to_string())
}
