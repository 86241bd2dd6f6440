//! A statement that writes into a table's folder, from its beginning to its being shown or given up.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt, TryStreamExt};
use harrier_storage::UnderWay;
use object_store::{ObjectStore, ObjectStoreExt};
use tokio::runtime::Handle;

use crate::object_store::control::Root;
use crate::object_store::lock::Lock;
use crate::object_store::publish::{Published, Work, publish};
use crate::object_store::recover::recover;
use crate::object_store::repeating::Repeating;
use crate::object_store::{At, Error, Result, Step};

/// It is said so often in a lease that a statement lives.
const LIVES: u32 = 6;

/// A statement that writes. Dropped, it takes back what it has staged, in the background.
#[derive(Debug)]
pub struct Statement {
    root: Root,
    id: String,
    living: Repeating,
    given_up: GivenUp,
    /// What is staged is to be completed, or is gone.
    is_over: bool,
}

impl Root {
    /// Begins a statement called `id`, which nobody else is: a name that may be a part of a file's.
    ///
    /// Errors: nothing can be written beside the table; its store has no conditional puts (`NoConditions`).
    pub async fn begin(&self, id: &str) -> Result<Statement> {
        if self.control().await?.top().is_none() {
            self.check_conditions(id).await?;
        }
        let owner = self.owner_path(id);
        self.staging.put_whole(&owner, Bytes::new()).await.at("write to", &owner)?;
        let root = self.clone();
        let living = Repeating::every(self.staging.lease() / LIVES, move |count| {
            let (root, owner) = (root.clone(), owner.clone());
            async move {
                if let Err(error) = root.staging.put_whole(&owner, count.to_string().into()).await {
                    tracing::debug!(%error, "could not say that a statement lives");
                }
                true
            }
        });
        let given_up = GivenUp::default();
        Ok(Statement { root: self.clone(), id: id.to_string(), living, given_up, is_over: false })
    }
}

/// Says from elsewhere that a statement is not wanted any more.
#[derive(Debug, Clone, Default)]
pub struct GivenUp(Arc<AtomicBool>);

impl GivenUp {
    /// The statement fails, if it is not decided yet.
    pub fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Statement {
    /// By which it can be given up while it is being published.
    pub fn given_up(&self) -> GivenUp {
        self.given_up.clone()
    }

    /// Shows what `work` says. Either all of it happens, or nothing has (then this fails), unless
    /// [`crate::object_store::Error::is_undone`] says no.
    pub fn publish(self, work: &Work) -> BoxFuture<'_, Result<Published>> {
        self.publish_in_steps(work, &|_| {})
    }

    /// The same; calls `step` with the name of what was done after each thing that a crash may come after.
    pub fn publish_in_steps<'a>(self, work: &'a Work, step: Step<'a>) -> BoxFuture<'a, Result<Published>> {
        self.published(work, step).boxed()
    }

    async fn published(mut self, work: &Work, step: Step<'_>) -> Result<Published> {
        // Broken off, what is staged may be decided: it is for the next one to find out.
        self.is_over = true;
        let published = self.publish_locked(work, step).await;
        self.living.end().await;
        match &published {
            Ok(_) => self.clean(work).await,
            Err(error) if error.is_undone() => take_back(&self.root, &self.id).await,
            // What is left is for who completes it.
            Err(_) => {}
        }
        published
    }

    async fn publish_locked(&self, work: &Work, step: Step<'_>) -> Result<Published> {
        let lock = Lock::acquire(&self.root, &self.id).await?;
        step("locked");
        let published = async {
            // What fails of others is nothing of this one.
            recover(&self.root, &lock, &self.id, step).await.map_err(Error::of_others)?;
            let is_given_up = || self.given_up.0.load(Ordering::Relaxed);
            publish(&self.root, &lock, &self.id, work, &is_given_up, step).await
        };
        let published = published.await;
        match &published {
            // The next one sees the journal; until the lease is over it need not look.
            Err(error) if !error.is_undone() => drop(lock),
            _ => {
                lock.release().await;
                step("released");
            }
        }
        published
    }

    /// Takes back what it has staged.
    pub async fn give_up(mut self) {
        self.is_over = true;
        self.living.end().await;
        take_back(&self.root, &self.id).await;
    }

    /// Removes what was to be known of files that are shown. What stays is swept by the next statement.
    async fn clean(&self, work: &Work) {
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
                self.root.staging.take_back(&folder).await?;
                self.root.store().delete(&owner).await
            }
        };
        if let Err(error) = cleaned.await {
            tracing::debug!(%error, "records of a statement stay; the next one removes them");
        }
    }
}

async fn take_back(root: &Root, id: &str) {
    let taken = async {
        root.staging.take_back(&root.statement_path(id)).await?;
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
        let mut living = std::mem::take(&mut self.living);
        if let Ok(runtime) = Handle::try_current() {
            let under_way = UnderWay::begin();
            drop(runtime.spawn(async move {
                living.end().await;
                take_back(&root, &id).await;
                drop(under_way);
            }));
        }
    }
}
