//! Performs the actions of a journal, or those that a dead process has left.

use futures::{FutureExt, StreamExt, TryStreamExt};
use harrier_storage::PublishOutcome;
use object_store::path::Path;
use object_store::{Error as StoreError, ObjectStore, ObjectStoreExt};

use crate::object_store::journal::{Action, FileVersion, Journal, unfinished_error};
use crate::object_store::lock::Lock;
use crate::object_store::root::Root;
use crate::object_store::{At, Error, Result, Step};

/// Folders changed concurrently.
pub(crate) const FOLDERS_MAX: usize = 16;

/// Performs a journal; `again` if some of it may have been done.
pub(crate) async fn perform(
    root: &Root,
    lock: &Lock,
    journal: &Journal,
    again: bool,
    step: Step<'_>,
) -> Result<()> {
    let folders: Vec<_> =
        journal.actions.iter().map(|action| apply(root, lock, action, again, step).boxed()).collect();
    let all = futures::stream::iter(folders).buffer_unordered(FOLDERS_MAX).try_collect::<Vec<()>>();
    let done = lock.run_while_held(all.boxed());
    done.await.map(drop).map_err(|error| match error {
        Error::Store { path, error, .. } => Error::Unfinished { path, error },
        Error::LeaseExpired { path } => {
            let source = "the lock was lost".into();
            Error::Unfinished { path, error: StoreError::Generic { store: "lock", source } }
        }
        other => other,
    })
}

async fn apply(root: &Root, lock: &Lock, action: &Action, again: bool, step: Step<'_>) -> Result<()> {
    let folder = Path::parse(&action.folder).unwrap_or_default();
    if !action.removed.is_empty() {
        let mut removed = action.removed.clone();
        if again {
            let present: Vec<FileVersion> = root.list(&folder).await?.iter().map(FileVersion::from).collect();
            removed.retain(|seen| present.contains(seen));
        }
        lock.check()?;
        let paths = removed.iter().map(|seen| Path::parse(&seen.path).map_err(StoreError::from));
        let paths = futures::stream::iter(paths.collect::<Vec<_>>()).boxed();
        let mut deleting = root.store().delete_stream(paths);
        while let Some(deleted) = deleting.next().await {
            match deleted {
                Ok(_) | Err(StoreError::NotFound { .. }) => step("removed"),
                Err(error) => return Err(error).at("remove files of", &folder),
            }
        }
    }
    let Some(staged) = &action.staged else { return Ok(()) };
    let name = Path::parse(&action.name).unwrap_or_default();
    lock.check()?;
    match root.staging.publish(staged, &name).await.at("show", &name)? {
        PublishOutcome::Published => step("shown"),
        PublishOutcome::Gone => {
            let there = root.store().head(&name).await;
            if !there.is_ok_and(|there| there.size == staged.bytes) {
                if !again {
                    let source = "it is not where it was staged any more".into();
                    return Err(unfinished_error(&name, StoreError::Generic { store: "folders", source }));
                }
                tracing::warn!(%name, "a file that was shown has been changed or removed since");
            }
        }
    }
    Ok(())
}
