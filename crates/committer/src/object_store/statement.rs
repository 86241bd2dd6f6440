//! A writing statement, from its beginning to its commit or rollback.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt, TryStreamExt};
use harrier_storage::PendingWork;
use object_store::{ObjectStore, ObjectStoreExt};
use tokio::runtime::Handle;

use crate::object_store::lock::Lock;
use crate::object_store::periodic_task::PeriodicTask;
use crate::object_store::publish::publish;
use crate::object_store::recover::recover;
use crate::object_store::root::Root;
use crate::object_store::{At, Error, Published, Result, Step, Work};

/// Heartbeats per lease.
const HEARTBEATS_PER_LEASE: u32 = 6;

/// A writing statement. Dropping it removes what it has staged, in the background.
#[derive(Debug)]
pub struct Statement {
    root: Root,
    id: String,
    heartbeat: PeriodicTask,
    cancel_flag: WriteCancelFlag,
    /// The staged files are to be completed, or are gone.
    is_over: bool,
}

impl Root {
    /// Begins a statement with the unique `id`, which must be valid in a file name.
    ///
    /// Errors: the control folder cannot be written; the store has no conditional puts (`NoConditions`).
    pub async fn begin(&self, id: &str) -> Result<Statement> {
        if self.control().await?.top().is_none() {
            self.check_conditions(id).await?;
        }
        let owner = self.owner_path(id);
        self.staging.put_atomic(&owner, Bytes::new()).await.at("write to", &owner)?;
        let root = self.clone();
        let heartbeat = PeriodicTask::spawn(self.staging.lease() / HEARTBEATS_PER_LEASE, move |count| {
            let (root, owner) = (root.clone(), owner.clone());
            async move {
                if let Err(error) = root.staging.put_atomic(&owner, count.to_string().into()).await {
                    tracing::debug!(%error, "could not say that a statement lives");
                }
                true
            }
        });
        let cancel_flag = WriteCancelFlag::default();
        Ok(Statement { root: self.clone(), id: id.to_string(), heartbeat, cancel_flag, is_over: false })
    }
}

/// Cancels a statement from another task.
#[derive(Debug, Clone, Default)]
pub struct WriteCancelFlag(Arc<AtomicBool>);

impl WriteCancelFlag {
    /// Fails the statement if it is not committed yet.
    pub fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Statement {
    /// The flag that cancels it while it is being published.
    pub fn cancel_flag(&self) -> WriteCancelFlag {
        self.cancel_flag.clone()
    }

    /// Commits and publishes `work`. Either all of it happens or nothing (then this fails), unless
    /// [`crate::object_store::Error::is_undone`] returns false.
    pub fn publish(self, work: &Work) -> BoxFuture<'_, Result<Published>> {
        self.publish_in_steps(work, &|_| {})
    }

    /// The same; calls `step` with the name of each completed action after which a crash may come.
    pub fn publish_in_steps<'a>(self, work: &'a Work, step: Step<'a>) -> BoxFuture<'a, Result<Published>> {
        self.run_publish(work, step).boxed()
    }

    async fn run_publish(mut self, work: &Work, step: Step<'_>) -> Result<Published> {
        // If this is dropped midway, the statement may be committed: recovery finds out.
        self.is_over = true;
        let published = self.publish_locked(work, step).await;
        self.heartbeat.stop().await;
        match &published {
            Ok(_) => self.remove_records(work).await,
            Err(error) if error.is_undone() => roll_back(&self.root, &self.id).await,
            // Recovery completes the rest.
            Err(_) => {}
        }
        published
    }

    async fn publish_locked(&self, work: &Work, step: Step<'_>) -> Result<Published> {
        let lock = Lock::acquire(&self.root, &self.id).await?;
        step("locked");
        let published = async {
            // A failure to recover others is not one of this statement.
            recover(&self.root, &lock, &self.id, step).await.map_err(Error::for_other_statement)?;
            let is_given_up = || self.cancel_flag.0.load(Ordering::Relaxed);
            publish(&self.root, &lock, &self.id, work, &is_given_up, step).await
        };
        let published = published.await;
        match &published {
            // The next statement sees the journal; until the lease has expired it need not look.
            Err(error) if !error.is_undone() => drop(lock),
            _ => {
                lock.release().await;
                step("released");
            }
        }
        published
    }

    /// Removes what it has staged.
    pub async fn abort(mut self) {
        self.is_over = true;
        self.heartbeat.stop().await;
        roll_back(&self.root, &self.id).await;
    }

    /// Removes the records of published files. The next statement sweeps what stays.
    async fn remove_records(&self, work: &Work) {
        let folder = self.root.statement_path(&self.id);
        let owner = self.root.owner_path(&self.id);
        let cleaned = async {
            if self.root.staging.binds_names() {
                let records =
                    work.files.iter().map(|file| object_store::path::Path::parse(&file.staged.staged));
                let records = records.map(|path| path.map_err(Into::into)).chain([Ok(owner)]);
                let records = futures::stream::iter(records.collect::<Vec<_>>()).boxed();
                self.root.store().delete_stream(records).try_collect::<Vec<_>>().await.map(drop)
            } else {
                self.root.staging.discard(&folder).await?;
                self.root.store().delete(&owner).await
            }
        };
        if let Err(error) = cleaned.await {
            tracing::debug!(%error, "records of a statement stay; the next one removes them");
        }
    }
}

async fn roll_back(root: &Root, id: &str) {
    let taken = async {
        root.staging.discard(&root.statement_path(id)).await?;
        root.store().delete(&root.owner_path(id)).await
    };
    if let Err(error) = taken.await {
        tracing::warn!(%error, "files that were staged could not all be removed; the next statement will");
    }
}

impl Drop for Statement {
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        let (root, id) = (self.root.clone(), self.id.clone());
        let mut heartbeat = std::mem::take(&mut self.heartbeat);
        if let Ok(runtime) = Handle::try_current() {
            let pending_work = PendingWork::begin();
            drop(runtime.spawn(async move {
                heartbeat.stop().await;
                roll_back(&root, &id).await;
                drop(pending_work);
            }));
        }
    }
}
