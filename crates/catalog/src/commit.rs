//! A commit: one database transaction that checks for conflicts, gives out numbers, and writes the next
//! snapshot.
//!
//! ```text
//!   lock ─► read the newest snapshot ─► conflicts ─► draft (SQL as text) ─► run it ─► COMMIT
//!     ▲                                     │                                │          │ connection lost
//!     │                                     ▼                                ▼          ▼
//!     │                                  Conflict                         an error    was it committed? ─► Unknown
//!     │  number taken, deadlock, connection lost                             │          │ no
//!     └───────────────── wait, from the start ◄──────────────────────────────┴──────────┘
//! ```
//!
//! Invariants: nothing is written before all conflicts are checked; the snapshot's row is written in the same
//! database transaction as all that it made.
//!
//! Crash: the database rolls back. A connection lost while COMMIT is on its way leaves the outcome open; the
//! snapshot carries the transaction's id, so that it can be looked up.

mod draft;

pub(crate) use draft::flatten;

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBuilder};

use crate::catalog::Catalog;
use crate::conflicts;
use crate::database::{failed, has_no_space, is_lost, is_transient};
use crate::error::{Error, Result};
use crate::files::TableChanges;
use crate::load;
use crate::retry::reconnect_backoff;
use crate::state::{ObjectId, SnapshotId};
use crate::transaction::Transaction;
use crate::{access, writers};
use draft::Draft;

/// How often a commit is tried while its number is taken, which only programs that take no lock cause.
const ATTEMPTS_MAX: usize = 30;
/// How often the outcome of a commit is looked up before it is given up as unknown.
const LOOKUPS_MAX: usize = 5;
/// What DuckDB keeps in the catalog at most unless told otherwise; 0 would mean that it keeps no rows there.
const INLINING_OPTION: &str = "data_inlining_row_limit";

/// What is written beside a snapshot.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CommitNote {
    pub author: Option<String>,
    pub message: Option<String>,
    /// The role that owns the schemas, tables and views that the commit makes.
    pub owner: Option<String>,
}

/// A commit that has happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Committed {
    pub snapshot: SnapshotId,
    /// Whether schemas, tables or views (or options) were changed.
    pub state_changed: bool,
    /// Numbers of new schemas, tables and views, by those they had in the transaction.
    pub objects: BTreeMap<ObjectId, ObjectId>,
}

/// Where a commit is, for tests that disturb it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Before the statement of this number, from 0.
    Statement(usize),
    BeforeCommit,
    AfterCommit,
}

/// What a test does at a step. An error there counts as the statement's, or as that of COMMIT.
pub type Hook =
    Arc<dyn Fn(Step) -> Pin<Box<dyn Future<Output = Result<(), sqlx::Error>> + Send>> + Send + Sync>;

/// `wanted`: whether an attempt that has come to nothing is to be followed by another one.
pub(crate) async fn commit(
    catalog: &Catalog,
    transaction: &Transaction,
    note: &CommitNote,
    wanted: &(dyn Fn() -> bool + Send + Sync),
) -> Result<Committed> {
    if transaction.is_empty() {
        let objects = BTreeMap::new();
        return Ok(Committed { snapshot: transaction.base.snapshot, state_changed: false, objects });
    }
    verify(transaction)?;
    // What was begun in one term of this process is not done in a later one: whoever served between has
    // another picture of it.
    let term = catalog.inner.database.term();
    let mut reconnects = reconnect_backoff().build();
    let mut collisions = collision_backoff().build();
    loop {
        let error = match attempt_commit(catalog, transaction, note, term).await {
            Err(error) if wanted() => error,
            outcome => return outcome,
        };
        // It is known not to have happened: else the error would be another one.
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

/// The waits after collisions with other programs, which are to meet each other no more.
fn collision_backoff() -> ExponentialBuilder {
    ExponentialBuilder::default()
        .with_min_delay(Duration::from_millis(5))
        .with_max_delay(Duration::from_millis(250))
        .with_max_times(ATTEMPTS_MAX - 1)
        .with_jitter()
}

/// Whether these are changes of rows at all.
pub(crate) fn is_idle(changes: &TableChanges) -> bool {
    *changes == TableChanges { since: changes.since, ..TableChanges::default() }
}

/// What a caller must not hand in.
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
        let head = load::head(&mut session, None).await?;
        conflicts::check(&mut session, transaction, &head).await?;
        writers::end(&mut session, &transaction.writers).await?;
        let mut draft = Draft::new(session.dialect(), transaction, &head);
        draft.statements = head.settings.upgrade()?;
        draft.state(&mut session).await?;
        draft.sequences(&mut session).await?;
        draft.data(&mut session).await?;
        if !draft.objects.is_empty() && access::has_tables(&mut session).await? {
            draft.owners(note)?;
        }
        let committed = draft.finish(note)?;
        for (number, statement) in draft.statements.into_iter().enumerate() {
            at(Step::Statement(number)).await.map_err(failed)?;
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

/// COMMIT has failed: it may have happened all the same.
async fn after_failure(
    catalog: &Catalog,
    transaction: &Transaction,
    committed: Committed,
    error: sqlx::Error,
) -> Result<Committed> {
    if has_no_space(&error) {
        return Err(failed(error));
    }
    tracing::warn!(%error, transaction = %transaction.id, "a commit failed; looking up whether it happened");
    let extra = extra(transaction);
    let waits = ExponentialBuilder::default().with_min_delay(Duration::from_millis(5)).with_factor(4.0);
    let mut waits = waits.with_max_delay(Duration::from_millis(500)).with_max_times(LOOKUPS_MAX - 1).build();
    let unreadable = loop {
        // The lock of a commit: what still runs in the server on the lost connection ends before this is
        // answered.
        let found = async {
            let mut session = catalog.inner.database.lock().await?;
            load::find_transaction(&mut session, transaction.base.snapshot, &extra).await
        };
        match found.await {
            Ok(Some(snapshot)) => return Ok(Committed { snapshot, ..committed }),
            Ok(None) => return Err(failed(error)),
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

/// `commit_extra_info`.
fn extra(transaction: &Transaction) -> String {
    format!("{{\"harrier_transaction\":\"{}\"}}", transaction.id)
}
