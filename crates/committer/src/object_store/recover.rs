//! Crash recovery: completes or rolls back statements of dead processes.

use std::collections::BTreeSet;
use std::time::Duration;

use futures::FutureExt;
use object_store::ObjectStoreExt;

use crate::object_store::journal::Journal;
use crate::object_store::lock::Lock;
use crate::object_store::perform::perform;
use crate::object_store::root::Root;
use crate::object_store::{At, Result, Step};

/// A statement whose heartbeat is this many leases old is dead. It is written six times in each.
const DEAD_LEASES: u32 = 5;
/// Retention of empty journals.
const VOIDS_RETENTION: Duration = Duration::from_secs(24 * 60 * 60);

/// Completes committed statements of dead processes, and removes what uncommitted ones have staged; skips the
/// statement `own`. Call it under the lock.
pub(crate) async fn recover(root: &Root, lock: &Lock, own: &str, step: Step<'_>) -> Result<()> {
    // Listed under the lock, after the lock file was written: the newest state.
    let control = root.control().await?;
    let mut completed = BTreeSet::new();
    for number in &control.journals {
        if let Some(journal) = Journal::read(root, *number).await? {
            perform(root, lock, &journal, true, step).await?;
            Journal::remove(root, *number).await?;
            step("completed");
            completed.insert(journal.id);
        }
    }
    let dead = root.staging.lease() * DEAD_LEASES;
    let all: BTreeSet<&String> = control.statements.iter().chain(control.owners.keys()).collect();
    for id in all.into_iter().filter(|id| *id != own) {
        let is_alive = control.owners.get(id).is_some_and(|owner| control.is_young(owner, dead));
        if is_alive && !completed.contains(id) {
            continue;
        }
        let folder = root.statement_path(id);
        lock.check()?;
        lock.run_while_held(async { root.staging.discard(&folder).await.at("remove", &folder) }.boxed())
            .await?;
        if control.owners.contains_key(id) {
            let owner = root.owner_path(id);
            drop(root.store().delete(&owner).await);
        }
        step("swept");
    }
    // Empty journals fence off late requests, and a process may have been suspended for long before it sends
    // one.
    let late = dead.max(root.staging.request_age_max());
    let unfinished = control.unfinished.iter().filter(|file| !control.is_young(file, late));
    let voids = control.voids.iter().filter(|file| !control.is_young(file, late.max(VOIDS_RETENTION)));
    for file in unfinished.chain(voids) {
        drop(root.store().delete(&file.location).await);
    }
    Ok(())
}
