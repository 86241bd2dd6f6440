//! Shows what a statement has staged: finds out what is to be done, writes the journal, does what is in it.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use futures::{FutureExt, StreamExt, TryStreamExt};
use harrier_storage::{Shown, Staged};
use object_store::path::Path;
use object_store::{Error as StoreError, ObjectMeta, ObjectStore, ObjectStoreExt};

use crate::object_store::control::{Root, child};
use crate::object_store::journal::{Action, Journal, Seen, unfinished};
use crate::object_store::lock::Lock;
use crate::object_store::placing::place;
use crate::object_store::{At, Error, Result, Step};

/// Folders that are changed at the same time.
const FOLDERS_MAX: usize = 16;

/// A file that was staged, and is complete.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StagedFile {
    /// What [`harrier_storage::StagedWriter::finish`] has said.
    pub staged: Staged,
    /// Below the table's folder: `""`, or `k=v/…`.
    pub folder: String,
    /// As it is to be called there, if it takes no other file's place.
    pub name: String,
}

/// A file that others of its folder are merged with, as it was when it was read.
#[derive(Debug, Clone, PartialEq)]
pub struct Merged {
    /// Below the table's folder: `""`, or `k=v/…`.
    pub folder: String,
    pub file: ObjectMeta,
}

/// What a statement comes to. No folder has more than one of the files.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Work {
    pub files: Vec<StagedFile>,
    /// The folders get `files` instead of what they have.
    pub overwrite: bool,
    /// Folders that an overwriting statement has no files for, and empties.
    pub emptied: Vec<String>,
    /// The folders get `files` instead of these.
    pub merged: Vec<Merged>,
}

/// What there is to tell of a statement that was shown.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Published {
    /// Folders in which a reader could for a moment see only some of the files that there were before.
    pub one_by_one: Vec<String>,
}

/// What a folder gets and loses.
#[derive(Default)]
struct Change<'a> {
    file: Option<&'a StagedFile>,
    merged: Vec<&'a ObjectMeta>,
}

/// Decides and does what `work` says. The lock is held, and nothing is left of others.
pub(crate) async fn publish(
    root: &Root,
    lock: &Lock,
    id: &str,
    work: &Work,
    is_given_up: &(dyn Fn() -> bool + Send + Sync),
    step: Step<'_>,
) -> Result<Published> {
    check_staged(root, id, work).await?;
    let (journal, published) = lock.under(plan(root, id, work).boxed()).await?;
    step("planned");
    if journal.actions.is_empty() {
        return Ok(published);
    }
    if is_given_up() {
        return Err(Error::GivenUp { path: root.table.to_string() });
    }
    decide(root, lock, &journal).await?;
    step("decided");
    perform(root, lock, &journal, false, step).await?;
    Journal::forget(root, lock.number()).await?;
    step("forgotten");
    Ok(published)
}

/// Errors: others have taken this statement for dead (`TakenBack`).
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
    let is_marked = there.contains(child(&folder, harrier_storage::TAKEN_BACK).as_ref());
    match !is_marked && work.files.iter().all(|file| there.contains(&file.staged.staged)) {
        true => Ok(()),
        false => Err(Error::TakenBack { path: root.table.to_string() }),
    }
}

async fn plan(root: &Root, id: &str, work: &Work) -> Result<(Journal, Published)> {
    let mut changes: BTreeMap<&str, Change<'_>> = BTreeMap::new();
    for folder in &work.emptied {
        changes.entry(folder.trim_end_matches('/')).or_default();
    }
    for merged in &work.merged {
        changes.entry(merged.folder.trim_end_matches('/')).or_default().merged.push(&merged.file);
    }
    for file in &work.files {
        let change = changes.entry(file.folder.trim_end_matches('/')).or_default();
        assert!(change.file.replace(file).is_none(), "a folder has two files of one statement");
    }
    let planned: Vec<_> = changes
        .into_iter()
        .map(|(folder, change)| plan_folder(root, work.overwrite, folder, change).boxed())
        .collect();
    let actions: Vec<Option<Action>> =
        futures::stream::iter(planned).buffered(FOLDERS_MAX).try_collect().await?;
    let actions: Vec<Action> = actions.into_iter().flatten().collect();
    let is_seen = |action: &&Action| action.removed.len() + usize::from(action.shown.is_some()) > 1;
    let one_by_one = actions.iter().filter(is_seen).map(|action| action.folder.clone()).collect();
    Ok((Journal { actions, id: id.to_string() }, Published { one_by_one }))
}

/// What is to be done to a folder; `None` for nothing.
///
/// Errors: what is to be replaced is not what it was (`Conflict`).
async fn plan_folder(
    root: &Root,
    overwrite: bool,
    folder: &str,
    change: Change<'_>,
) -> Result<Option<Action>> {
    let whole = root.folder(folder);
    let own = change.file.map(|file| child(&whole, &file.name));
    let conflict = || Error::Conflict { path: whole.to_string() };
    let gone: Vec<ObjectMeta> = match (overwrite, change.merged.is_empty()) {
        (false, true) => vec![],
        (true, _) => root.list(&whole).await?.into_iter().filter(|file| is_read(&whole, file)).collect(),
        (false, false) => {
            let present = root.list(&whole).await?;
            if !change.merged.iter().all(|file| present.contains(file)) {
                return Err(conflict());
            }
            change.merged.into_iter().cloned().collect()
        }
    };
    let name =
        match (&own, change.file.map(|file| file.staged.bound.as_str()).filter(|bound| !bound.is_empty())) {
            (None, _) => None,
            // The one that it takes the place of was chosen when it was begun.
            (Some(_), Some(bound)) => {
                let is_there = gone.iter().any(|file| file.location.as_ref() == bound);
                if !is_there && own.as_ref().is_some_and(|own| place(&gone, own).is_some()) {
                    return Err(conflict());
                }
                Some(bound.to_string())
            }
            (Some(own), None) => Some(place(&gone, own).map_or(own, |file| &file.location).to_string()),
        };
    let removed: Vec<Seen> =
        gone.iter().filter(|file| Some(file.location.as_ref()) != name.as_deref()).map(Seen::from).collect();
    let shown = change.file.map(|file| file.staged.clone());
    let is_some = shown.is_some() || !removed.is_empty();
    if is_some {
        root.staging.check_writable(&whole).await.at("write to", &whole)?;
    }
    Ok(is_some.then(|| Action { folder: whole.to_string(), removed, shown, name: name.unwrap_or_default() }))
}

/// Whether a file is one of the folder's for who reads it: what is in folders below is not, if they are not
/// named after keys.
fn is_read(folder: &Path, file: &ObjectMeta) -> bool {
    let below = file.location.prefix_match(folder);
    below.is_some_and(|parts| parts.filter(|part| !part.as_ref().contains('=')).count() <= 1)
}

/// Writes the journal: the moment of the commit.
///
/// Errors: nothing is decided, or (`Unknown`) it may be.
async fn decide(root: &Root, lock: &Lock, journal: &Journal) -> Result<()> {
    let path = root.journal_path(lock.number());
    lock.check()?;
    match root.staging.put_new(&path, journal.bytes()).await {
        Ok(true) => Ok(()),
        // Another one has taken the lock over and shut this one out, or an attempt was heard that nobody knew
        // of.
        Ok(false) => what_is_there(root, &path, journal, not_found(&path)).await,
        Err(error) => find_out(root, lock, &path, journal, error).await,
    }
}

/// What became of a journal that was put with an `error`, and may still come.
async fn find_out(root: &Root, lock: &Lock, path: &Path, journal: &Journal, error: StoreError) -> Result<()> {
    match root.staging.put_new(path, Bytes::new()).await {
        // It cannot come any more. Nor was it there, if nobody else has had the lock, who may have done what
        // is in it and removed it.
        Ok(true) => match root.control().await {
            Ok(control) if control.top().is_some_and(|(top, _)| top == lock.number()) => {
                Err(error).at("write to", path)
            }
            _ => Err(Error::Unknown { path: path.to_string(), error }),
        },
        Ok(false) => what_is_there(root, path, journal, error).await,
        Err(_) => Err(Error::Unknown { path: path.to_string(), error }),
    }
}

/// Whether what is at the place of a journal is this one; `error`: what is said if that is not known.
async fn what_is_there(root: &Root, path: &Path, journal: &Journal, error: StoreError) -> Result<()> {
    let read = async { root.store().get(path).await?.bytes().await };
    match read.await {
        Ok(bytes) if bytes == journal.bytes() => Ok(()),
        Ok(_) => Err(Error::TakenBack { path: root.table.to_string() }),
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

/// Does what is in a journal; `again` if some of it may have been done.
pub(crate) async fn perform(
    root: &Root,
    lock: &Lock,
    journal: &Journal,
    again: bool,
    step: Step<'_>,
) -> Result<()> {
    let folders: Vec<_> =
        journal.actions.iter().map(|action| one(root, lock, action, again, step).boxed()).collect();
    let all = futures::stream::iter(folders).buffer_unordered(FOLDERS_MAX).try_collect::<Vec<()>>();
    let done = lock.under(all.boxed());
    done.await.map(drop).map_err(|error| match error {
        Error::Store { path, error, .. } => Error::Unfinished { path, error },
        Error::TakenBack { path } => {
            let source = "the lock was lost".into();
            Error::Unfinished { path, error: StoreError::Generic { store: "lock", source } }
        }
        other => other,
    })
}

async fn one(root: &Root, lock: &Lock, action: &Action, again: bool, step: Step<'_>) -> Result<()> {
    let folder = Path::parse(&action.folder).unwrap_or_default();
    if !action.removed.is_empty() {
        let mut removed = action.removed.clone();
        if again {
            let present: Vec<Seen> = root.list(&folder).await?.iter().map(Seen::from).collect();
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
    let Some(staged) = &action.shown else { return Ok(()) };
    let name = Path::parse(&action.name).unwrap_or_default();
    lock.check()?;
    match root.staging.show(staged, &name).await.at("show", &name)? {
        Shown::Now => step("shown"),
        Shown::Gone => {
            let there = root.store().head(&name).await;
            if !there.is_ok_and(|there| there.size == staged.bytes) {
                if !again {
                    let source = "it is not where it was staged any more".into();
                    return Err(unfinished(&name, StoreError::Generic { store: "folders", source }));
                }
                tracing::warn!(%name, "a file that was shown has been changed or removed since");
            }
        }
    }
    Ok(())
}
