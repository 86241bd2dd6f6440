//! Retention: removes old backups and the files that only they reference.
//!
//! Manifests are deleted first, then files, so the next backup finishes an interrupted run. Nothing else at
//! the target is touched.

use std::collections::HashSet;

use futures::{StreamExt, TryStreamExt};
use harrier_catalog::Identity;

use crate::target::{CATALOGS, FILES, Target, catalog_name, is_file_of, is_id, manifest_name};
use crate::{FILES_AT_ONCE, Result};

/// Keeps the newest `keep` backups. Returns the numbers of removed backups and files.
///
/// Errors: a backup to be kept cannot be read, so its files are unknown; nothing is removed.
pub(crate) async fn prune(target: &Target, identity: &Identity, keep: usize) -> Result<(usize, usize)> {
    let ids = target.ids().await?;
    let (old, retained) = ids.split_at(ids.len().saturating_sub(keep));
    let mut needed = HashSet::new();
    for id in retained {
        needed.extend(target.manifest(id).await?.files.into_iter().map(|file| file.name));
    }
    let mut referenced = HashSet::new();
    for id in old {
        // Files of an unreadable backup are recognized by their names alone.
        if let Ok(manifest) = target.manifest(id).await {
            referenced.extend(manifest.files.into_iter().map(|file| file.name));
        }
    }
    for id in old {
        target.store.delete(&manifest_name(id)).await?;
    }
    target.store.sync_names().await?;
    for name in target.store.list(CATALOGS).await?.into_keys() {
        let id = name.strip_prefix(CATALOGS).and_then(|name| name.strip_suffix(".jsonl.zst"));
        if id.is_some_and(|id| {
            is_id(id) && !retained.iter().any(|other| other == id) && catalog_name(id) == name
        }) {
            target.store.delete(&name).await?;
        }
    }
    let files = target.store.list(FILES).await?;
    let unneeded = files.into_keys().filter(|name| {
        name.strip_prefix(FILES).is_some_and(|own| {
            !needed.contains(own) && (referenced.contains(own) || is_file_of(own, identity))
        })
    });
    let removals = unneeded.map(|name| async move { target.store.delete(&name).await });
    let removed: Vec<()> =
        futures::stream::iter(removals).buffer_unordered(FILES_AT_ONCE).try_collect().await?;
    Ok((old.len(), removed.len()))
}
