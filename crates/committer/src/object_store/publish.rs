//! Publishes a statement's staged files: plans the actions, writes the journal, performs it.

use std::collections::BTreeSet;

use bytes::Bytes;
use futures::{FutureExt, StreamExt, TryStreamExt};
use harrier_storage::Staged;
use object_store::path::Path;
use object_store::{Error as StoreError, ObjectMeta, ObjectStore, ObjectStoreExt};

use crate::object_store::journal::{Action, FileVersion, Journal};
use crate::object_store::lock::Lock;
use crate::object_store::perform::{FOLDERS_MAX, perform};
use crate::object_store::root::{Root, child};
use crate::object_store::staged_placement::place;
use crate::object_store::{At, Error, Published, Result, Step, Work};
use crate::work::{FolderChange, Replacement};

/// Commits and performs `work`. The lock is held, and other statements are recovered.
pub(crate) async fn publish(
    root: &Root,
    lock: &Lock,
    id: &str,
    work: &Work,
    is_given_up: &(dyn Fn() -> bool + Send + Sync),
    step: Step<'_>,
) -> Result<Published> {
    check_staged(root, id, work).await?;
    let (journal, published) = lock.run_while_held(plan(root, id, work).boxed()).await?;
    step("planned");
    if journal.actions.is_empty() {
        return Ok(published);
    }
    if is_given_up() {
        return Err(Error::Canceled { path: root.table.to_string() });
    }
    commit(root, lock, &journal).await?;
    step("decided");
    perform(root, lock, &journal, false, step).await?;
    Journal::remove(root, lock.number()).await?;
    step("forgotten");
    Ok(published)
}

/// Errors: others took this statement for dead (`LeaseExpired`).
async fn check_staged(root: &Root, id: &str, work: &Work) -> Result<()> {
    if work.files.is_empty() {
        return Ok(());
    }
    let folder = root.statement_path(id);
    let there: BTreeSet<String> = match root.store().list(Some(&folder)).try_collect::<Vec<_>>().await {
        Ok(found) => found.into_iter().map(|file| file.location.to_string()).collect(),
        Err(StoreError::NotFound { .. }) => BTreeSet::new(),
        Err(error) => return Err(error).at("list", &folder),
    };
    let is_marked = there.contains(child(&folder, harrier_storage::DISCARDED).as_ref());
    match !is_marked && work.files.iter().all(|file| there.contains(&file.staged.staged)) {
        true => Ok(()),
        false => Err(Error::LeaseExpired { path: root.table.to_string() }),
    }
}

async fn plan(root: &Root, id: &str, work: &Work) -> Result<(Journal, Published)> {
    let planned: Vec<_> = work
        .by_folder()
        .into_iter()
        .map(|(folder, change)| plan_folder(root, folder, change).boxed())
        .collect();
    let actions: Vec<Option<Action>> =
        futures::stream::iter(planned).buffered(FOLDERS_MAX).try_collect().await?;
    let actions: Vec<Action> = actions.into_iter().flatten().collect();
    let is_seen = |action: &&Action| action.removed.len() + usize::from(action.staged.is_some()) > 1;
    let non_atomic_folders = actions.iter().filter(is_seen).map(|action| action.folder.clone()).collect();
    Ok((Journal { actions, id: id.to_string() }, Published { non_atomic_folders }))
}

/// Plans the actions for a folder; `None` for no change.
///
/// Errors: a file to be replaced has changed (`Conflict`).
async fn plan_folder(
    root: &Root,
    folder: &str,
    change: FolderChange<'_, Staged, ObjectMeta>,
) -> Result<Option<Action>> {
    let whole = root.folder(folder);
    assert!(change.files.len() <= 1, "a folder has two files of one statement");
    let file = change.files.first();
    let own = file.map(|file| child(&whole, &file.name));
    let conflict = || Error::Conflict { path: whole.to_string() };
    let gone: Vec<ObjectMeta> = match change.replacement {
        Replacement::None => vec![],
        Replacement::All => {
            root.list(&whole).await?.into_iter().filter(|file| is_visible(&whole, file)).collect()
        }
        Replacement::Files(merged) => {
            let present = root.list(&whole).await?;
            if !merged.iter().all(|file| present.contains(file)) {
                return Err(conflict());
            }
            merged.into_iter().cloned().collect()
        }
    };
    let name = match (&own, file.map(|file| file.staged.bound.as_str()).filter(|bound| !bound.is_empty())) {
        (None, _) => None,
        // The file to replace was chosen when this one was begun.
        (Some(_), Some(bound)) => {
            let is_there = gone.iter().any(|file| file.location.as_ref() == bound);
            if !is_there && own.as_ref().is_some_and(|own| place(&gone, own).is_some()) {
                return Err(conflict());
            }
            Some(bound.to_string())
        }
        (Some(own), None) => Some(place(&gone, own).map_or(own, |file| &file.location).to_string()),
    };
    let removed: Vec<FileVersion> = gone
        .iter()
        .filter(|file| Some(file.location.as_ref()) != name.as_deref())
        .map(FileVersion::from)
        .collect();
    let staged = file.map(|file| file.staged.clone());
    let is_some = staged.is_some() || !removed.is_empty();
    if is_some {
        root.staging.check_writable(&whole).await.at("write to", &whole)?;
    }
    Ok(is_some.then(|| Action { folder: whole.to_string(), removed, staged, name: name.unwrap_or_default() }))
}

/// Whether readers of the folder see a file: those in subfolders do not count unless these are named after
/// keys.
fn is_visible(folder: &Path, file: &ObjectMeta) -> bool {
    let below = file.location.prefix_match(folder);
    below.is_some_and(|parts| parts.filter(|part| !part.as_ref().contains('=')).count() <= 1)
}

/// Writes the journal: the commit point.
///
/// Errors: nothing is committed, or (`Unknown`) it may be.
async fn commit(root: &Root, lock: &Lock, journal: &Journal) -> Result<()> {
    let path = root.journal_path(lock.number());
    lock.check()?;
    match root.staging.put_if_absent(&path, journal.bytes()).await {
        Ok(true) => Ok(()),
        // Another statement has taken the lock over and fenced this one off, or an earlier attempt whose
        // response was lost has arrived.
        Ok(false) => compare_stored(root, &path, journal, not_found(&path)).await,
        Err(error) => resolve_outcome(root, lock, &path, journal, error).await,
    }
}

/// Resolves the outcome of a journal whose put failed with `error` and may still arrive.
async fn resolve_outcome(
    root: &Root,
    lock: &Lock,
    path: &Path,
    journal: &Journal,
    error: StoreError,
) -> Result<()> {
    match root.staging.put_if_absent(path, Bytes::new()).await {
        // It cannot arrive any more. Nor did it exist, unless somebody else has held the lock since,
        // performed it and removed it.
        Ok(true) => match root.control().await {
            Ok(control) if control.top().is_some_and(|(top, _)| top == lock.number()) => {
                Err(error).at("write to", path)
            }
            _ => Err(Error::Unknown { path: path.to_string(), error }),
        },
        Ok(false) => compare_stored(root, path, journal, error).await,
        Err(_) => Err(Error::Unknown { path: path.to_string(), error }),
    }
}

/// Whether the journal at this path is this one; `error` is returned if that is not known.
async fn compare_stored(root: &Root, path: &Path, journal: &Journal, error: StoreError) -> Result<()> {
    let read = async { root.store().get(path).await?.bytes().await };
    match read.await {
        Ok(bytes) if bytes == journal.bytes() => Ok(()),
        Ok(_) => Err(Error::LeaseExpired { path: root.table.to_string() }),
        Err(other) => {
            tracing::debug!(%other, "what became of a journal is not known");
            Err(Error::Unknown { path: path.to_string(), error })
        }
    }
}

fn not_found(path: &Path) -> StoreError {
    let source = "there was a journal, which cannot be read".into();
    StoreError::NotFound { path: path.to_string(), source }
}
