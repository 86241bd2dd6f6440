//! A session's transaction: every statement is in one, its own unless BEGIN opened one before it.
//!
//! Isolation, as HAWQ has it: in a read committed transaction each statement sees what was committed when it
//! began; in a serializable one all see what was committed when the first began. Read uncommitted is read
//! committed and repeatable read is serializable, but for their names, which clients ask for. Both see the
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
use crate::warehouse::name_resolver::Names;
use crate::warehouse::snapshot::Sight;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Isolation {
    ReadUncommitted,
    ReadCommitted,
    RepeatableRead,
    Serializable,
}

impl Isolation {
    /// As parameters and SHOW have it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::ReadUncommitted => "read uncommitted",
            Self::ReadCommitted => "read committed",
            Self::RepeatableRead => "repeatable read",
            Self::Serializable => "serializable",
        }
    }

    /// Whether each statement sees what others have committed before it.
    fn looks_again(self) -> bool {
        matches!(self, Self::ReadUncommitted | Self::ReadCommitted)
    }

    /// By any of the four names of the standard.
    pub(crate) fn of_name(name: &str) -> Self {
        match name {
            "read uncommitted" => Self::ReadUncommitted,
            "repeatable read" => Self::RepeatableRead,
            "serializable" => Self::Serializable,
            _ => Self::ReadCommitted,
        }
    }
}

/// A statement about the transaction itself.
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
    /// For the transactions that come.
    SetCharacteristics {
        isolation: Option<Isolation>,
        read_only: Option<bool>,
    },
}

impl Control {
    /// What `statement` says about the transaction, if that is what it is about.
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

/// The transactions of one session, one after the other.
#[derive(Debug)]
pub(crate) struct Transactions {
    warehouse: Arc<Warehouse>,
    names: Arc<Names>,
    runtime: Arc<RuntimeEnv>,
    inner: Mutex<Inner>,
    /// A statement of the open transaction has failed.
    failed: AtomicBool,
    /// BEGIN has opened a transaction.
    explicit: AtomicBool,
    /// When BEGIN has, for the functions of the session.
    start: BlockStart,
    defaults: parking_lot::Mutex<Defaults>,
}

/// What transactions are that do not say it of themselves.
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
    /// By BEGIN.
    explicit: bool,
    start: SystemTime,
    isolation: Isolation,
    read_only: bool,
    /// `None` while there is no warehouse.
    work: Option<Transaction>,
    savepoints: Vec<(String, Option<Transaction>)>,
    /// Every file the transaction has written, whether it still refers to it or not.
    written: WrittenFiles,
    /// Who writes them, for VACUUM.
    writers: Writers,
}

impl Transactions {
    pub(crate) fn new(
        warehouse: Arc<Warehouse>,
        names: Arc<Names>,
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

    /// To be called when a statement was given up, at whatever step.
    pub(crate) fn give_up(&self) {
        if self.explicit.load(Ordering::Relaxed) {
            self.failed.store(true, Ordering::Relaxed);
        }
    }

    /// Whether BEGIN has opened a transaction that has not ended.
    pub(crate) fn is_open(&self) -> bool {
        self.explicit.load(Ordering::Relaxed)
    }

    /// For transactions that begin from now on.
    pub(crate) fn set_defaults(&self, defaults: Defaults) {
        *self.defaults.lock() = defaults;
    }

    fn defaults(&self) -> Defaults {
        *self.defaults.lock()
    }

    /// The isolation of the present transaction, or of those that come, as SHOW says it.
    pub(crate) async fn isolation(&self) -> &'static str {
        let inner = self.inner.lock().await;
        let open = inner.open.as_ref().filter(|open| open.explicit);
        open.map_or(self.defaults().isolation, |open| open.isolation).name()
    }

    /// Whether the present transaction, or those that come, may change nothing.
    pub(crate) async fn is_read_only(&self) -> bool {
        let inner = self.inner.lock().await;
        let open = inner.open.as_ref().filter(|open| open.explicit);
        open.map_or(self.defaults().read_only, |open| open.read_only)
    }

    /// Whether a statement of the transaction has failed, so that it can only be rolled back.
    pub(crate) fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Relaxed)
    }

    /// To be called before every other statement: shows it what it may see.
    ///
    /// Errors: the transaction has failed already (25P02); what others have committed conflicts with its
    /// changes (40001), after which it has failed; the catalog cannot be read.
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
        // Left by a statement that was given up.
        if let Some(left) = inner.open.take_if(|open| !open.explicit) {
            self.discard(left.written).await;
        }
        let catalog = self.warehouse.open().await?;
        self.look_at_access(catalog.as_ref()).await?;
        let open = inner.open.get_or_insert_with(|| Open::new(false, isolation, read_only));
        let is_new = open.work.is_none() || open.isolation.looks_again();
        if let (Some(catalog), true) = (&catalog, is_new) {
            match &mut open.work {
                Some(work) => catalog.rebase(work).await.map_err(|error| self.refuse(error))?,
                None => open.work = Some(Transaction::new(catalog.head().await.map_err(explain)?)),
            }
        }
        self.show(&catalog, open);
        Ok(())
    }

    /// A transaction that conflicts with others has failed before its statement began.
    fn refuse(&self, error: Error) -> DataFusionError {
        if matches!(error, Error::Conflict(_)) {
            self.give_up();
        }
        explain(error)
    }

    /// Finds out what the session's role may do now. Whoever has the warehouse itself open may everything.
    async fn look_at_access(&self, catalog: Option<&Catalog>) -> Result<()> {
        let role = self.names.role();
        if role.is_system() {
            return Ok(());
        }
        role.look(match catalog {
            Some(catalog) => catalog.access().await.map_err(explain)?,
            None => Arc::default(),
        });
        Ok(())
    }

    /// The catalog, for a change of who may do what: that is no part of the transaction, and yet a change.
    ///
    /// Errors: the transaction is read-only (25006).
    pub(crate) async fn catalog_for_access(&self) -> Result<Catalog> {
        let inner = self.inner.lock().await;
        match inner.open.as_ref().is_some_and(|open| open.read_only) {
            true => Err(read_only()),
            false => self.warehouse.create().await,
        }
    }

    fn show(&self, catalog: &Option<Catalog>, open: &Open) {
        let (viewer, asker) = (self.names.role().viewer(), self.names.role().asker());
        let sight = match &open.work {
            Some(work) => Sight {
                catalog: catalog.clone(),
                state: Some(Arc::new(work.state.clone())),
                data: Arc::new(work.data.clone()),
                values: Arc::new(work.values.clone()),
                viewer,
                asker,
                says_main: false,
            },
            None => Sight { viewer, asker, ..Sight::default() },
        };
        self.names.look(sight);
    }

    /// Changes the transaction of the present statement. Makes the warehouse if there is none yet.
    pub(crate) async fn change<R>(&self, change: impl FnOnce(&mut Transaction) -> Result<R>) -> Result<R> {
        let mut inner = self.inner.lock().await;
        let open = inner.open.as_mut().ok_or_else(outside)?;
        if open.read_only {
            return Err(read_only());
        }
        let catalog = self.warehouse.create().await?;
        if open.work.is_none() {
            open.work = Some(Transaction::new(catalog.head().await.map_err(explain)?));
        }
        let work = open.work.as_mut().ok_or_else(outside)?;
        let before = work.clone();
        let result = change(work);
        if result.is_err() {
            *work = before;
        }
        self.show(&Some(catalog), open);
        result
    }

    /// To be called before the present statement writes files whose names have `name` in them: nobody sweeps
    /// them until the transaction has ended. `folder`: where they are looked for if the statement fails;
    /// `None`: it tells each of them before it is written.
    ///
    /// Errors: the transaction is read-only (25006); the data folder is another warehouse's (55000); the
    /// catalog cannot be written.
    pub(crate) async fn register_writer(&self, name: &str, folder: Option<String>) -> Result<()> {
        let mut inner = self.inner.lock().await;
        let open = inner.open.as_mut().ok_or_else(outside)?;
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

    /// Notes all files that the present statement has written under a name, so that they go if the
    /// transaction does not commit.
    pub(crate) async fn wrote_all(&self, name: &str, files: impl IntoIterator<Item = String>) {
        if let Some(open) = self.inner.lock().await.open.as_mut() {
            open.written.finish(name, files);
        }
    }

    /// Notes a file that is about to be written.
    pub(crate) async fn will_write(&self, file: String) {
        if let Some(open) = self.inner.lock().await.open.as_mut() {
            open.written.add(file);
        }
    }

    /// To be called after every statement that [`Self::begin_statement`] was called for, when its work is
    /// done: commits unless BEGIN opened the transaction.
    ///
    /// Errors: those of the commit.
    pub(crate) async fn end_statement(&self) -> Result<()> {
        let mut inner = self.inner.lock().await;
        match &inner.open {
            Some(open) if !open.explicit => {
                let open = inner.open.take().ok_or_else(outside)?;
                self.commit(open).await
            }
            _ => Ok(()),
        }
    }

    /// To be called when a statement has failed: undoes its own transaction, or marks the one BEGIN opened.
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

    /// Runs a statement about the transaction; returns its tag, and what the user is to be told beside.
    pub(crate) async fn control(&self, control: Control) -> (Result<&'static str>, Option<&'static str>) {
        let mut inner = self.inner.lock().await;
        let mut warning = None;
        let tag = self.controlled(&mut inner, control, &mut warning).await;
        let block = inner.open.as_ref().filter(|open| open.explicit);
        self.explicit.store(block.is_some(), Ordering::Relaxed);
        self.start.set(block.map(|block| block.start));
        (tag, warning)
    }

    async fn controlled(
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
                let open = inner.open.as_mut().ok_or_else(outside)?;
                let at = open.savepoint(&name)?;
                open.savepoints.truncate(at);
                Ok("RELEASE")
            }
            Control::RollbackTo(name) => {
                let open = inner.open.as_mut().ok_or_else(outside)?;
                let at = open.savepoint(&name)?;
                open.savepoints.truncate(at + 1);
                open.work = match open.savepoints[at].1.clone() {
                    // Set before the first statement that looked: the snapshot of that one stays, what it
                    // changed does not.
                    None if !open.isolation.looks_again() => {
                        open.work.as_ref().map(|work| Transaction::new(Arc::clone(&work.base)))
                    }
                    work => work,
                };
                self.failed.store(false, Ordering::Relaxed);
                Ok("ROLLBACK")
            }
            // It sets parameters of the session, which is done by then.
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

    /// Commits; what the transaction has written and does not refer to is removed. A commit that has begun is
    /// seen through, even if nobody waits for it any more, but not begun anew then.
    async fn commit(&self, open: Open) -> Result<()> {
        // What is left of them when the transaction has ended goes last: after the files.
        let Open { work: Some(mut work), written, mut writers, .. } = open else {
            return Ok(());
        };
        work.writers = writers.names();
        let kept = referred(&work);
        if work.is_empty() {
            self.discard(written).await;
            return Ok(());
        }
        let Some(catalog) = self.warehouse.open().await? else {
            return Err(outside());
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
                writers.committed();
                self.discard(written.without(&kept)).await;
                Ok(())
            }
            // Nobody knows whether the files are referred to.
            Ok(Err(error @ Error::Unknown { .. })) => Err(explain(error)),
            Ok(Err(error)) => {
                self.discard(written).await;
                Err(explain(error))
            }
            Err(error) => Err(DataFusionError::Internal(format!("the commit was cut off: {error}"))),
        }
    }

    /// Removes files that nothing refers to. One that stays is swept later.
    async fn discard(&self, files: WrittenFiles) {
        files.remove(&self.runtime).await;
    }
}

/// A session that ends in a transaction leaves nothing of it.
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

/// The files that a transaction's changes refer to.
fn referred(work: &Transaction) -> BTreeSet<String> {
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

fn outside() -> DataFusionError {
    DataFusionError::Internal("there is no statement to change the warehouse in".to_string())
}
