//! A backup is made: the catalog as of one moment, and the files that it names and that no earlier backup
//! has.
//!
//! ```text
//!   lock ─► told to VACUUM ─► catalog copied ─► files copied ─► catalog and files on the disk ─► manifest ─► old ones removed
//!                                  ▲                 │ one is gone
//!                                  └─────────────────┘ from the snapshot that there is now
//! ```

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{Seek, SeekFrom};

use futures::StreamExt;
use harrier_catalog::{Catalog, Copied, CopiedFile, Identity};
use harrier_error::SqlState;

use crate::copying::{self, Sources};
use crate::hold::Hold;
use crate::lines::Lines;
use crate::manifest::Parts;
use crate::store::Reader;
use crate::target::{FILES, Lock, Target, catalog_name, id_of, manifest_name};
use crate::{Error, FILES_AT_ONCE, Manifest, Result, Stored, keep};

/// How often the catalog is copied anew because files of it were taken away meanwhile.
const ATTEMPTS_MAX: usize = 5;

/// After so many bytes it is written down which files have been copied.
const NOTED_BYTES: u64 = 256 << 20;

/// A backup that was made.
#[derive(Debug)]
pub struct Backup {
    /// It.
    pub manifest: Manifest,
    /// Files that were copied, and their bytes.
    pub copied: (usize, u64),
    /// The same of those that were there.
    pub skipped: (usize, u64),
    /// Backups that were removed, and files that only they had.
    pub removed: (usize, usize),
}

/// Makes a backup of a warehouse at `target`, a path or a URL. `keep`: how many backups are to be left there
/// afterwards; of all if `None`. `tell`: is told of what a person may want to know meanwhile.
///
/// Errors: as of [`Error`]; in `target` is something else (55000), or somebody writes there (55006). Nothing
/// is removed before the new backup is there.
pub async fn backup(
    catalog: &Catalog,
    target: &str,
    keep: Option<usize>,
    tell: &(dyn Fn(&str) + Sync),
) -> Result<Backup> {
    let Some(identity) = catalog.identity().await? else {
        let message = "the warehouse has no identity yet, and its catalog can only be read";
        return Err(Error::refused(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, message)
            .with_hint("write something into the warehouse with this version of Harrier first"));
    };
    let (target, lock) = Target::open_to_write(target, &identity.id).await?;
    let made = in_target(catalog, &identity, &target, keep, tell).await;
    Lock::give_back(lock).await;
    made
}

async fn in_target(
    catalog: &Catalog,
    identity: &Identity,
    target: &Target,
    keep: Option<usize>,
    tell: &(dyn Fn(&str) + Sync),
) -> Result<Backup> {
    let hold = Hold::begin(catalog).await?;
    if hold.is_none() {
        tell(
            "the catalog can only be read: VACUUM is not told of this backup, and may take files away from it",
        );
    }
    let made = from_some_snapshot(catalog, identity, target, tell).await;
    if let Some(hold) = hold {
        hold.end().await;
    }
    let mut made = made?;
    if let Some(keep) = keep {
        made.removed = keep::keep(target, identity, keep.max(1)).await?;
    }
    Ok(made)
}

/// Errors: a file is missing that the catalog still names.
async fn from_some_snapshot(
    catalog: &Catalog,
    identity: &Identity,
    target: &Target,
    tell: &(dyn Fn(&str) + Sync),
) -> Result<Backup> {
    let mut missed = BTreeSet::new();
    for attempt in 1.. {
        let (copied, file) = copy_catalog(catalog).await?;
        if copied.identity.as_ref().is_none_or(|now| now.id != identity.id) {
            return Err(Error::refused(
                SqlState::SERIALIZATION_FAILURE,
                "the catalog was replaced while it was copied",
            ));
        }
        if let Some(lost) = copied.files.iter().find(|file| missed.contains(&file.source)) {
            return Err(Error::Missing { place: lost.source.clone() });
        }
        let snapshot = copied.snapshot;
        match of_snapshot(copied, file, identity, target).await {
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

/// The copy of the catalog, in a file without a name. It is read at once, so that nobody waits for a slow
/// target before he can commit.
async fn copy_catalog(catalog: &Catalog) -> Result<(Copied, File)> {
    let unwritten = |error| Error::io("write", std::env::temp_dir().display().to_string(), error);
    let mut lines = Lines::new(tempfile::tempfile().map_err(unwritten)?).map_err(unwritten)?;
    let copied = catalog.copy_out(&mut |line| lines.put(&line)).await?;
    let mut file = lines.finish().map_err(unwritten)?;
    file.seek(SeekFrom::Start(0)).map_err(unwritten)?;
    Ok((copied, file))
}

async fn of_snapshot(copied: Copied, file: File, identity: &Identity, target: &Target) -> Result<Backup> {
    let id = id_of(&copied.copied, copied.snapshot);
    let known = target.known().await?;
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
    let catalog = copying::copy(Reader::of(file, &name), &name, &target.store, &name, |_| None).await?;
    target.store.settle().await?;
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
    target.store.settle().await?;
    target.forget_written().await?;
    Ok(Backup { manifest, copied: copied_count, skipped: skipped_count, removed: (0, 0) })
}

/// Copies files, and writes down now and then which have been: a backup after one that broke off does not
/// copy them again.
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
            // The others are needed by the next attempt, too.
            Err(error @ Error::Missing { .. }) => missing = missing.or(Some(error)),
            Err(error) => {
                // It helps the next one; why this one failed is what matters.
                if let Err(error) = target.note_written(&written).await {
                    tracing::debug!(%error, "what has been copied is not written down");
                }
                return Err(error);
            }
        }
        // Each time a half more: the list is written as a whole.
        if bytes >= NOTED_BYTES && written.len() >= files + files / 2 {
            target.note_written(&written).await?;
            (bytes, files) = (0, written.len());
        }
    }
    match missing {
        None => Ok(written),
        Some(error) => {
            target.note_written(&written).await?;
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
    let stored = copying::copy(reader, &file.source, &target.store, &name, expected).await?;
    Ok(Stored { name: file.name.clone(), ..stored })
}
