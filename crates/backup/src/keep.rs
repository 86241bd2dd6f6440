//! Old backups are removed, and the files that only they had.
//!
//! First what says that they are there, then the rest: what is stopped on the way is gone on with by the next
//! one. Nothing else that lies at the target is touched, whatever it is.

use std::collections::HashSet;

use futures::{StreamExt, TryStreamExt};
use harrier_catalog::Identity;

use crate::target::{CATALOGS, FILES, Target, catalog_name, is_file_of, is_id, manifest_name};
use crate::{FILES_AT_ONCE, Result};

/// Leaves the newest `keep` backups. Returns how many went, and how many files with them.
///
/// Errors: one that is to stay cannot be read, so that nobody knows what it needs; nothing is removed then.
pub(crate) async fn keep(target: &Target, identity: &Identity, keep: usize) -> Result<(usize, usize)> {
    let ids = target.ids().await?;
    let (old, kept) = ids.split_at(ids.len().saturating_sub(keep));
    let mut needed = HashSet::new();
    for id in kept {
        needed.extend(target.manifest(id).await?.files.into_iter().map(|file| file.name));
    }
    let mut had = HashSet::new();
    for id in old {
        // What one that cannot be read has had is known by its name alone.
        if let Ok(manifest) = target.manifest(id).await {
            had.extend(manifest.files.into_iter().map(|file| file.name));
        }
    }
    for id in old {
        target.store.delete(&manifest_name(id)).await?;
    }
    target.store.settle().await?;
    for name in target.store.list(CATALOGS).await?.into_keys() {
        let id = name.strip_prefix(CATALOGS).and_then(|name| name.strip_suffix(".jsonl.zst"));
        if id.is_some_and(|id| is_id(id) && !kept.iter().any(|kept| kept == id) && catalog_name(id) == name) {
            target.store.delete(&name).await?;
        }
    }
    let files = target.store.list(FILES).await?;
    let unneeded = files.into_keys().filter(|name| {
        name.strip_prefix(FILES)
            .is_some_and(|own| !needed.contains(own) && (had.contains(own) || is_file_of(own, identity)))
    });
    let removals = unneeded.map(|name| async move { target.store.delete(&name).await });
    let removed: Vec<()> =
        futures::stream::iter(removals).buffer_unordered(FILES_AT_ONCE).try_collect().await?;
    Ok((old.len(), removed.len()))
}
