//! Commits: one database transaction that checks for conflicts, allocates ids, and writes the next snapshot.
//!
//! ```text
//!   lock ─► read the newest snapshot ─► conflicts ─► draft (SQL as text) ─► run it ─► COMMIT
//!     ▲                                     │                                │          │ connection lost
//!     │                                     ▼                                ▼          ▼
//!     │                                  Conflict                         an error    was it committed? ─► Unknown
//!     │  number taken, deadlock, connection lost                             │          │ no
//!     └───────────────── backoff, then retry ◄───────────────────────────────┴──────────┘
//! ```
//!
//! Invariants: nothing is written before all conflicts are checked; the snapshot's row is written in the same
//! database transaction as all of its changes.
//!
//! Crash: the database rolls back. If the connection is lost during COMMIT the outcome is unknown; the
//! snapshot contains the transaction's id, so that it can be looked up.

pub(crate) mod conflicts;
mod draft;
pub(crate) mod stats;

use std::collections::BTreeMap;
use std::sync::PoisonError;
use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBuilder};

use crate::access::store;
use crate::catalog::{Catalog, writers};
use crate::database::commit_hook::{Hook, Step};
use crate::database::errors::{has_no_space, is_lost, is_transient, map_error};
use crate::database::retry::{reconnect_backoff, retry_if_lost};
use crate::error::{Error, Result};
use crate::model::transaction::{CommitNote, Committed, Transaction};
use crate::snapshot::head;
use draft::Draft;

/// Attempts of a commit while its snapshot number is taken, which only programs that take no lock cause.
const ATTEMPTS_MAX: usize = 30;
/// Attempts to look up the outcome of a commit before it is reported as unknown.
const LOOKUPS_MAX: usize = 5;

impl Catalog {
    /// Rebases a transaction onto the newest snapshot, for the next statement of a read committed
    /// transaction. Without changes of its own, or without other commits, it costs no more than `head`.
    ///
    /// Errors: `Error::Conflict` if its commit would fail because of other commits; the transaction is then
    /// unchanged.
    pub async fn rebase(&self, transaction: &mut Transaction) -> Result<()> {
        let newest = self.head().await?;
        let base = &transaction.base;
        let is_newer = (newest.snapshot, newest.time) != (base.snapshot, base.time);
        if is_newer && transaction.may_conflict() {
            let check = || async {
                let mut session = self.inner.database.read().await?;
                // It may be newer still: a conflict with that counts as well.
                let head = head::head(&mut session, None).await?;
                conflicts::check_newer(&mut session, transaction, &head).await
            };
            retry_if_lost(check).await?;
        }
        transaction.rebase(newest);
        Ok(())
    }

    /// Makes everything the transaction did visible atomically, as the next snapshot; or fails and changes
    /// nothing. Not cancel-safe: a dropped call may have committed. An empty transaction returns the snapshot
    /// it began with.
    pub async fn commit(&self, transaction: &Transaction, note: &CommitNote) -> Result<Committed> {
        self.commit_while(transaction, note, &|| true).await
    }

    /// Like [`commit`](Self::commit), for a caller that may stop waiting while the commit runs: a failed
    /// attempt (connection lost, number taken) is retried only while `should_retry` returns true.
    pub async fn commit_while(
        &self,
        transaction: &Transaction,
        note: &CommitNote,
        should_retry: &(dyn Fn() -> bool + Send + Sync),
    ) -> Result<Committed> {
        commit(self, transaction, note, should_retry).await
    }

    /// For tests: a callback before each statement of a commit, before its end, and after it.
    #[doc(hidden)]
    pub fn set_hook(&self, hook: Option<Hook>) {
        *self.inner.hook.lock().unwrap_or_else(PoisonError::into_inner) = hook;
    }
}

/// `should_retry`: whether a failed attempt is to be retried.
async fn commit(
    catalog: &Catalog,
    transaction: &Transaction,
    note: &CommitNote,
    should_retry: &(dyn Fn() -> bool + Send + Sync),
) -> Result<Committed> {
    if transaction.is_empty() {
        let objects = BTreeMap::new();
        return Ok(Committed { snapshot: transaction.base.snapshot, state_changed: false, objects });
    }
    verify(transaction)?;
    // A transaction begun in one term is not committed in a later one: the holder in between has a different
    // view of it.
    let term = catalog.inner.database.term();
    let mut reconnects = reconnect_backoff().build();
    let mut collisions = collision_backoff().build();
    loop {
        let error = match attempt_commit(catalog, transaction, note, term).await {
            Err(error) if should_retry() => error,
            outcome => return outcome,
        };
        // It is known not to have happened: otherwise the error would be `Unknown`.
        let wait = match &error {
            error if is_lost(error) => reconnects.next(),
            error if is_transient(error) => collisions.next(),
            _ => None,
        };
        let Some(wait) = wait else { return Err(error) };
        tracing::debug!(?wait, %error, "a commit is retried: its connection was lost, or another program has committed meanwhile");
        tokio::time::sleep(wait).await;
    }
}

/// Randomized backoff after collisions with other programs.
fn collision_backoff() -> ExponentialBuilder {
    ExponentialBuilder::default()
        .with_min_delay(Duration::from_millis(5))
        .with_max_delay(Duration::from_millis(250))
        .with_max_times(ATTEMPTS_MAX - 1)
        .with_jitter()
}

/// Rejects transactions that a caller must not commit.
fn verify(transaction: &Transaction) -> Result<()> {
    let state = &transaction.state;
    for (schema, name) in state
        .tables
        .values()
        .map(|table| (table.schema, &table.name))
        .chain(state.views.values().map(|view| (view.schema, &view.name)))
        .chain(state.sequences.values().map(|sequence| (sequence.schema, &sequence.name)))
    {
        if !state.schemas.contains_key(&schema) {
            return Err(Error::Corrupt(format!("the transaction leaves \"{name}\" without its schema")));
        }
    }
    for (id, schema) in &state.schemas {
        if let Some(before) = transaction.base.schemas.get(id)
            && (before.name != schema.name || before.path != schema.path)
        {
            return Err(Error::Unsupported(format!(
                "schema \"{}\" cannot be renamed: the DuckLake layout has no place for it",
                before.name
            )));
        }
    }
    Ok(())
}

async fn attempt_commit(
    catalog: &Catalog,
    transaction: &Transaction,
    note: &CommitNote,
    term: Option<i64>,
) -> Result<Committed> {
    let mut session = catalog.inner.database.write_in(term).await?;
    let hook = catalog.inner.hook.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let at = async |step| match &hook {
        Some(hook) => hook(step).await,
        None => Ok(()),
    };
    let work = async {
        let head = head::head(&mut session, None).await?;
        conflicts::check(&mut session, transaction, &head).await?;
        writers::end(&mut session, &transaction.writers).await?;
        let mut draft = Draft::new(session.dialect(), transaction, &head);
        draft.statements = head.settings.upgrade()?;
        draft.state(&mut session).await?;
        draft.sequences(&mut session).await?;
        draft.data(&mut session).await?;
        if !draft.objects.is_empty() && store::has_tables(&mut session).await? {
            draft.owners(note)?;
        }
        let committed = draft.finish(note)?;
        for (number, statement) in draft.statements.into_iter().enumerate() {
            at(Step::Statement(number)).await.map_err(map_error)?;
            session.execute(statement).await?;
        }
        Ok(committed)
    };
    let committed = match work.await {
        Ok(committed) => committed,
        Err(error) => {
            session.rollback().await;
            return Err(error);
        }
    };
    let outcome = match at(Step::BeforeCommit).await {
        Ok(()) => session.commit().await,
        Err(error) => {
            // Its connection is needed to look up the outcome.
            drop(session);
            Err(error)
        }
    };
    let outcome = match outcome {
        Ok(()) => at(Step::AfterCommit).await,
        error => error,
    };
    match outcome {
        Ok(()) => Ok(committed),
        Err(error) => after_failure(catalog, transaction, committed, error).await,
    }
}

/// Determines the outcome after COMMIT has failed: it may have happened all the same.
async fn after_failure(
    catalog: &Catalog,
    transaction: &Transaction,
    committed: Committed,
    error: sqlx::Error,
) -> Result<Committed> {
    if has_no_space(&error) {
        return Err(map_error(error));
    }
    tracing::warn!(%error, transaction = %transaction.id, "a commit failed; looking up whether it happened");
    let extra = transaction.extra_info();
    let waits = ExponentialBuilder::default().with_min_delay(Duration::from_millis(5)).with_factor(4.0);
    let mut waits = waits.with_max_delay(Duration::from_millis(500)).with_max_times(LOOKUPS_MAX - 1).build();
    let unreadable = loop {
        // Takes the commit lock: a statement that still runs in the server on the lost connection ends before
        // this is granted.
        let found = async {
            let mut session = catalog.inner.database.lock().await?;
            head::find_transaction(&mut session, transaction.base.snapshot, &extra).await
        };
        match found.await {
            Ok(Some(snapshot)) => return Ok(Committed { snapshot, ..committed }),
            Ok(None) => return Err(map_error(error)),
            Err(unreadable) => match waits.next() {
                Some(wait) => tokio::time::sleep(wait).await,
                None => break unreadable,
            },
        }
    };
    let source = match unreadable {
        Error::Database(source) => Some(source),
        _ => Some(error),
    };
    Err(Error::Unknown { transaction: transaction.id.to_string(), source })
}
