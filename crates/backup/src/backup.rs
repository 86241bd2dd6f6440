//! Makes a backup: the catalog as of one moment, and the files that it names and no earlier backup has.
//!
//! ```text
//!   lock ─► VACUUM lease ─► catalog copied ─► files copied ─► all fsynced ─► manifest ─► old ones removed
//!                            ▲                 │ one is gone
//!                            └─────────────────┘ retry from the current snapshot
//! ```

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{Seek, SeekFrom};

use futures::StreamExt;
use harrier_catalog::{Catalog, CopiedFile, CopySummary, Identity};
use harrier_error::SqlState;

use crate::catalog_lines::CatalogWriter;
use crate::copy::{self, Sources};
use crate::manifest::Parts;
use crate::read_lease::ReadLease;
use crate::store::Reader;
use crate::target::{FILES, Lock, Target, catalog_name, id_of, manifest_name};
use crate::{Error, FILES_AT_ONCE, Manifest, Result, Stored, retention};

/// Attempts at copying the catalog if VACUUM removes files meanwhile.
const ATTEMPTS_MAX: usize = 5;

/// Progress is recorded after this many bytes.
const PROGRESS_BYTES: u64 = 256 << 20;

/// A finished backup.
#[derive(Debug)]
pub struct Backup {
    /// Its manifest.
    pub manifest: Manifest,
    /// Number of files copied, and their bytes.
    pub copied: (usize, u64),
    /// Number of files that were already there, and their bytes.
    pub skipped: (usize, u64),
    /// Numbers of backups removed, and of files that only they referenced.
    pub removed: (usize, usize),
}

/// Makes a backup of a warehouse at `target`, a path or a URL. `keep`: number of backups to retain; `None`
/// keeps all. `tell` receives progress messages for the user.
///
/// Errors: as of [`Error`]; `target` contains something else (55000), or another process writes there
/// (55006). Nothing is removed before the new backup is complete.
pub async fn backup(
    catalog: &Catalog,
    target: &str,
    keep: Option<usize>,
    tell: &(dyn Fn(&str) + Sync),
) -> Result<Backup> {
    let Some(identity) = catalog.identity().await? else {
        let message = "the warehouse has no identity yet, and its catalog can only be read";
        return Err(Error::refusal(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, message)
            .with_hint("write something into the warehouse with this version of Harrier first"));
    };
    let (target, lock) = Target::open_to_write(target, &identity.id).await?;
    let made = backup_into(catalog, &identity, &target, keep, tell).await;
    Lock::release(lock).await;
    made
}

async fn backup_into(
    catalog: &Catalog,
    identity: &Identity,
    target: &Target,
    keep: Option<usize>,
    tell: &(dyn Fn(&str) + Sync),
) -> Result<Backup> {
    let lease = ReadLease::begin(catalog).await?;
    if lease.is_none() {
        tell(
            "the catalog can only be read: VACUUM is not told of this backup, and may take files away from it",
        );
    }
    let made = backup_with_retries(catalog, identity, target, tell).await;
    if let Some(lease) = lease {
        lease.end().await;
    }
    let mut made = made?;
    if let Some(keep) = keep {
        made.removed = retention::prune(target, identity, keep.max(1)).await?;
    }
    Ok(made)
}

/// Errors: a file is missing that the current catalog still names.
async fn backup_with_retries(
    catalog: &Catalog,
    identity: &Identity,
    target: &Target,
    tell: &(dyn Fn(&str) + Sync),
) -> Result<Backup> {
    let mut missed = BTreeSet::new();
    for attempt in 1.. {
        let (copied, file) = copy_catalog(catalog).await?;
        if copied.identity.as_ref().is_none_or(|now| now.id != identity.id) {
            return Err(Error::refusal(
                SqlState::SERIALIZATION_FAILURE,
                "the catalog was replaced while it was copied",
            ));
        }
        if let Some(lost) = copied.files.iter().find(|file| missed.contains(&file.source)) {
            return Err(Error::Missing { place: lost.source.clone() });
        }
        let snapshot = copied.snapshot;
        match copy_snapshot(copied, file, identity, target).await {
            Err(Error::Missing { place }) if attempt < ATTEMPTS_MAX => {
                tell(&format!(
                    "file \"{place}\" of snapshot {snapshot} is not there any more; beginning anew"
                ));
                missed.insert(place);
            }
            made => return made,
        }
    }
    unreachable!("every attempt but the last one may be followed by another")
}

/// Copies the catalog into an unnamed temporary file. It is read at once, so that a slow target does not
/// block commits.
async fn copy_catalog(catalog: &Catalog) -> Result<(CopySummary, File)> {
    let unwritten = |error| Error::io("write", std::env::temp_dir().display().to_string(), error);
    let mut lines = CatalogWriter::new(tempfile::tempfile().map_err(unwritten)?).map_err(unwritten)?;
    let copied = catalog.copy_out(&mut |line| lines.write(&line)).await?;
    let mut file = lines.finish().map_err(unwritten)?;
    file.seek(SeekFrom::Start(0)).map_err(unwritten)?;
    Ok((copied, file))
}

async fn copy_snapshot(
    copied: CopySummary,
    file: File,
    identity: &Identity,
    target: &Target,
) -> Result<Backup> {
    let id = id_of(&copied.copied, copied.snapshot);
    let known = target.existing_files().await?;
    let there = target.store.list(FILES).await?;
    let (mut skipped, mut wanted) = (Vec::new(), Vec::new());
    for file in &copied.files {
        let stored = known.get(&file.name).filter(|stored| {
            let has_its_length = there.get(&format!("{FILES}{}", file.name)) == Some(&stored.bytes);
            has_its_length && file.bytes.is_none_or(|bytes| bytes == stored.bytes)
        });
        match stored {
            Some(stored) => skipped.push(stored.clone()),
            None => wanted.push(file),
        }
    }
    let written = copy_files(&wanted, target).await?;
    let count = |files: &[Stored]| (files.len(), files.iter().map(|file| file.bytes).sum());
    let (copied_count, skipped_count) = (count(&written), count(&skipped));
    let name = catalog_name(&id);
    let catalog = copy::copy(Reader::of(file, &name), &name, &target.store, &name, |_| None).await?;
    target.store.sync_names().await?;
    let manifest = Manifest::new(Parts {
        id: id.clone(),
        identity: identity.clone(),
        layout: copied.layout,
        snapshot: copied.snapshot,
        snapshot_time: copied.time,
        time: copied.copied,
        catalog,
        files: written.into_iter().chain(skipped).collect(),
    });
    target.store.put(&manifest_name(&id), manifest.to_bytes()).await?;
    target.store.sync_names().await?;
    target.clear_progress().await?;
    Ok(Backup { manifest, copied: copied_count, skipped: skipped_count, removed: (0, 0) })
}

/// Copies files and records progress periodically: the backup after an interrupted one does not copy them
/// again.
async fn copy_files(wanted: &[&CopiedFile], target: &Target) -> Result<Vec<Stored>> {
    let sources = Sources::of(wanted.iter().map(|file| file.source.as_str()))?;
    let copies = wanted.iter().map(|file| copy_file(file, &sources, target));
    let mut copies = futures::stream::iter(copies).buffer_unordered(FILES_AT_ONCE);
    let mut written: Vec<Stored> = Vec::new();
    let (mut bytes, mut files, mut missing) = (0, 0, None);
    while let Some(copied) = copies.next().await {
        match copied {
            Ok(stored) => {
                bytes += stored.bytes;
                written.push(stored);
            }
            // The next attempt needs the other files, too.
            Err(error @ Error::Missing { .. }) => missing = missing.or(Some(error)),
            Err(error) => {
                // Recording progress only helps the next backup; report the original error.
                if let Err(error) = target.record_progress(&written).await {
                    tracing::debug!(%error, "what has been copied is not written down");
                }
                return Err(error);
            }
        }
        // Only after half as many files again: the list is rewritten as a whole.
        if bytes >= PROGRESS_BYTES && written.len() >= files + files / 2 {
            target.record_progress(&written).await?;
            (bytes, files) = (0, written.len());
        }
    }
    match missing {
        None => Ok(written),
        Some(error) => {
            target.record_progress(&written).await?;
            Err(error)
        }
    }
}

async fn copy_file(file: &CopiedFile, sources: &Sources, target: &Target) -> Result<Stored> {
    let reader = sources.reader(&file.source).await?;
    let expected = |stored: &Stored| {
        let bytes = file.bytes.filter(|bytes| *bytes != stored.bytes)?;
        Some(format!("has {} bytes, and {bytes} by the catalog", stored.bytes))
    };
    let name = format!("{FILES}{}", file.name);
    let stored = copy::copy(reader, &file.source, &target.store, &name, expected).await?;
    Ok(Stored { name: file.name.clone(), ..stored })
}
