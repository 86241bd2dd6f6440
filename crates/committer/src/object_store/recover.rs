//! Completes, or takes back, what statements have left whose processes died.

use std::collections::BTreeSet;
use std::time::Duration;

use futures::FutureExt;
use object_store::ObjectStoreExt;

use crate::object_store::control::Root;
use crate::object_store::journal::Journal;
use crate::object_store::lock::Lock;
use crate::object_store::publish::perform;
use crate::object_store::{At, Result, Step};

/// A statement whose owner was not written anew for so many leases is dead. It is written six times in each.
const DEAD: u32 = 5;
/// How long an empty journal stays.
const VOIDS_STAY: Duration = Duration::from_secs(24 * 60 * 60);

/// Completes decided statements, and takes back what others have staged, if they are dead; not the statement
/// `own`. To be called under the lock.
pub(crate) async fn recover(root: &Root, lock: &Lock, own: &str, step: Step<'_>) -> Result<()> {
    // Looked at under the lock, after its file was written: the newest there is.
    let control = root.control().await?;
    let mut completed = BTreeSet::new();
    for number in &control.journals {
        if let Some(journal) = Journal::read(root, *number).await? {
            perform(root, lock, &journal, true, step).await?;
            Journal::forget(root, *number).await?;
            step("completed");
            completed.insert(journal.id);
        }
    }
    let dead = root.staging.lease() * DEAD;
    let all: BTreeSet<&String> = control.statements.iter().chain(control.owners.keys()).collect();
    for id in all.into_iter().filter(|id| *id != own) {
        let is_alive = control.owners.get(id).is_some_and(|owner| control.is_young(owner, dead));
        if is_alive && !completed.contains(id) {
            continue;
        }
        let folder = root.statement_path(id);
        lock.check()?;
        lock.under(async { root.staging.take_back(&folder).await.at("remove", &folder) }.boxed()).await?;
        if control.owners.contains_key(id) {
            let owner = root.owner_path(id);
            drop(root.store().delete(&owner).await);
        }
        step("swept");
    }
    // What is empty keeps out what was asked of the store before it was put, and a process may have stood
    // still for long before it asks.
    let late = dead.max(root.staging.late());
    let unfinished = control.unfinished.iter().filter(|file| !control.is_young(file, late));
    let voids = control.voids.iter().filter(|file| !control.is_young(file, late.max(VOIDS_STAY)));
    for file in unfinished.chain(voids) {
        drop(root.store().delete(&file.location).await);
    }
    Ok(())
}
