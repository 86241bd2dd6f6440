//! The target of backups: its owner, its list of backups, and its lock.

use std::collections::HashMap;
use std::fs::TryLockError;

use harrier_catalog::{MARKER, Marker, process};
use harrier_error::SqlState;
use uuid::Uuid;

use crate::manifest::{Manifest, Owner};
use crate::store::{Store, is_temporary};
use crate::{Error, Result, Stored};

const OWNER: &str = "_harrier_backup";
const LOCK: &str = "lock";
/// Files copied by a backup that has not finished.
const PROGRESS: &str = "unfinished.json";
pub(crate) const BACKUPS: &str = "backups/";
pub(crate) const CATALOGS: &str = "catalogs/";
pub(crate) const FILES: &str = "files/";

pub(crate) fn manifest_name(id: &str) -> String {
    format!("{BACKUPS}{id}.json")
}

pub(crate) fn catalog_name(id: &str) -> String {
    format!("{CATALOGS}{id}.jsonl.zst")
}

/// Whether this is a backup id: the time in digits, and the snapshot.
pub(crate) fn is_id(name: &str) -> bool {
    let parts: Vec<&str> = name.split('-').collect();
    let digits = |part: &&str| !part.is_empty() && part.bytes().all(|digit| digit.is_ascii_digit());
    parts.len() == 4 && parts.iter().all(digits) && parts[0].len() == 8 && parts[1].len() == 6
}

/// The id of a backup made at a time such as `2026-11-22 07:30:28.649688+00`. Later backups have greater ids.
pub(crate) fn id_of(time: &str, snapshot: i64) -> String {
    let mut digits: String =
        time.chars().take_while(|sign| *sign != '+').filter(char::is_ascii_digit).collect();
    while digits.len() < 20 {
        digits.push('0');
    }
    format!("{}-{}-{}-{snapshot}", &digits[..8], &digits[8..14], &digits[14..20])
}

/// One backup of a target.
#[derive(Debug)]
pub struct BackupEntry {
    /// Its id.
    pub id: String,
    /// Its manifest, or the reason why it cannot be read.
    pub manifest: Result<Manifest>,
}

/// The backups at a target, oldest first.
///
/// Errors: there are none (55000); it cannot be read.
pub async fn list(target: &str) -> Result<Vec<BackupEntry>> {
    Target::open(target).await?.backups().await
}

pub(crate) struct Target {
    pub store: Store,
    pub owner: Owner,
}

impl Target {
    /// Opens a target that has backups.
    pub async fn open(target: &str) -> Result<Self> {
        let store = Store::open(target)?;
        let Some(owner) = owner(&store).await? else {
            return Err(Error::refusal(
                SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE,
                format!("there are no backups in \"{}\"", store.display_name("")),
            ));
        };
        Ok(Self { store, owner })
    }

    /// Opens a target for writing and locks it: it has backups of this warehouse, or is empty.
    ///
    /// Errors: it contains something else (55000); it is locked (55006).
    pub async fn open_to_write(target: &str, warehouse: &str) -> Result<(Self, Lock)> {
        let store = Store::open(target)?;
        check_outside(&store).await?;
        match owner(&store).await? {
            Some(found) if found.warehouse != warehouse => return Err(foreign(&store, &found)),
            Some(_) => {}
            None => check_empty(&store).await?,
        }
        let lock = Lock::acquire(&store).await?;
        match Self::prepare(store, warehouse).await {
            Ok(target) => Ok((target, lock)),
            Err(error) => {
                lock.release().await;
                Err(error)
            }
        }
    }

    async fn prepare(store: Store, warehouse: &str) -> Result<Self> {
        store.sweep().await?;
        let owner = match owner(&store).await? {
            Some(owner) if owner.warehouse == warehouse => owner,
            Some(other) => return Err(foreign(&store, &other)),
            None => {
                check_empty(&store).await?;
                let owner = Owner::new(warehouse);
                store.put(OWNER, owner.to_bytes()).await?;
                owner
            }
        };
        Ok(Self { store, owner })
    }

    /// Its backups, oldest first.
    pub async fn backups(&self) -> Result<Vec<BackupEntry>> {
        let mut listed = Vec::new();
        for id in self.ids().await? {
            let manifest = self.manifest(&id).await;
            listed.push(BackupEntry { id, manifest });
        }
        Ok(listed)
    }

    /// The ids of its backups, oldest first.
    pub async fn ids(&self) -> Result<Vec<String>> {
        let names = self.store.list(BACKUPS).await?;
        let id = |name: &String| {
            let id = name.strip_prefix(BACKUPS)?.strip_suffix(".json")?;
            is_id(id).then(|| id.to_string())
        };
        Ok(names.keys().filter_map(id).collect())
    }

    /// Errors: it does not exist, is damaged, or of a later format.
    pub async fn manifest(&self, id: &str) -> Result<Manifest> {
        let name = manifest_name(id);
        let place = self.store.display_name(&name);
        let bytes = self.store.get(&name).await?.ok_or_else(|| Error::Missing { place: place.clone() })?;
        let manifest = Manifest::parse(&bytes, &place)?;
        let is_its_own = manifest.id == id
            && manifest.warehouse == self.owner.warehouse
            && manifest.catalog.name == catalog_name(id);
        match is_its_own {
            true => Ok(manifest),
            false => Err(Error::damage(place, "is of another backup")),
        }
    }

    /// Files already copied, by name: those of the newest readable backup, and those of an unfinished one.
    pub async fn existing_files(&self) -> Result<HashMap<String, Stored>> {
        let mut known = Vec::new();
        for id in self.ids().await?.iter().rev() {
            match self.manifest(id).await {
                Ok(manifest) => {
                    known = manifest.files;
                    break;
                }
                // `check` reports it.
                Err(error @ Error::Damaged { .. }) => tracing::warn!(%error, "a backup is passed over"),
                Err(error) => return Err(error),
            }
        }
        let mut known: HashMap<String, Stored> =
            known.into_iter().map(|stored| (stored.name.clone(), stored)).collect();
        known.extend(self.progress().await?);
        Ok(known)
    }

    /// Records the files copied by an unfinished backup, in addition to those recorded before.
    pub async fn record_progress(&self, files: &[Stored]) -> Result<()> {
        if files.is_empty() {
            return Ok(());
        }
        let mut all = self.progress().await?;
        all.extend(files.iter().map(|file| (file.name.clone(), file.clone())));
        let all: Vec<Stored> = all.into_values().collect();
        self.store.put(PROGRESS, serde_json::to_vec(&all).unwrap_or_default()).await
    }

    async fn progress(&self) -> Result<HashMap<String, Stored>> {
        let noted = self.store.get(PROGRESS).await?.unwrap_or_default();
        let noted: Vec<Stored> = serde_json::from_slice(&noted).unwrap_or_default();
        Ok(noted.into_iter().map(|stored| (stored.name.clone(), stored)).collect())
    }

    pub async fn clear_progress(&self) -> Result<()> {
        self.store.delete(PROGRESS).await
    }

    /// The backup with this id, or the newest one.
    ///
    /// Errors: there is none (22023).
    pub async fn manifest_or_newest(&self, id: Option<&str>) -> Result<Manifest> {
        let ids = self.ids().await?;
        let found = match id {
            Some(id) => ids.iter().find(|known| *known == id),
            None => ids.last(),
        };
        let Some(found) = found else {
            let place = self.store.display_name("");
            return Err(match id {
                Some(id) => Error::refusal(
                    SqlState::INVALID_PARAMETER_VALUE,
                    format!("there is no backup \"{id}\" in \"{place}\""),
                )
                .with_hint(format!("harrier backup --list {place}")),
                None => Error::refusal(
                    SqlState::INVALID_PARAMETER_VALUE,
                    format!("no backup in \"{place}\" has come to its end"),
                ),
            });
        };
        self.manifest(found).await
    }
}

async fn owner(store: &Store) -> Result<Option<Owner>> {
    match store.get(OWNER).await? {
        Some(bytes) => Owner::parse(&bytes, &store.display_name(OWNER)).map(Some),
        None => Ok(None),
    }
}

/// Errors: it is not empty (55000).
async fn check_empty(store: &Store) -> Result<()> {
    match store.list("").await?.into_keys().find(|name| name != LOCK && !is_temporary(name)) {
        None => Ok(()),
        Some(other) => {
            let place = store.display_name("");
            let message = format!("\"{place}\" is neither empty nor has backups: there is \"{other}\"");
            Err(Error::refusal(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, message)
                .with_hint("name a place of its own for backups"))
        }
    }
}

fn foreign(store: &Store, owner: &Owner) -> Error {
    let message = format!(
        "the backups in \"{}\" are those of another warehouse, {}",
        store.display_name(""),
        owner.warehouse
    );
    Error::refusal(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, message).with_hint(
        "name another place for those of this one; a warehouse that was copied or restored is another one",
    )
}

/// Errors: the location is a warehouse's data folder, or inside one, where VACUUM would remove files (55000).
pub(crate) async fn check_outside(store: &Store) -> Result<()> {
    let (root, inside) = match store {
        Store::Folder(folder) => ("/".to_string(), folder.display().to_string()),
        Store::Objects { prefix, url, .. } => (url.clone(), prefix.clone()),
    };
    let above = Store::open(&root)?;
    let inside = inside.trim_matches('/');
    // The root of a store may be a data folder, too.
    let ends = [0].into_iter().chain(inside.match_indices('/').map(|(at, _)| at)).chain([inside.len()]);
    for end in ends {
        let name = if end == 0 { MARKER.to_string() } else { format!("{}/{MARKER}", &inside[..end]) };
        if let Some(marker) = above.get(&name).await.ok().flatten() {
            let marker = Marker::parse(&String::from_utf8_lossy(&marker));
            let owner = marker.map_or_else(
                || "a warehouse".to_string(),
                |marker| format!("the warehouse whose catalog is {}", marker.place),
            );
            let message = format!("\"{}\" lies in the data folder of {owner}", store.display_name(""));
            return Err(Error::refusal(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, message)
                .with_hint("name a place outside of it"));
        }
    }
    Ok(())
}

/// The write lock of a target. In a folder it ends with its process; in an object store it is an object that
/// names its owner.
pub(crate) enum Lock {
    Folder { _file: std::fs::File },
    Objects { store: Store },
}

impl Lock {
    /// Errors: it is locked (55006).
    pub async fn acquire(store: &Store) -> Result<Self> {
        if let Store::Folder(folder) = store {
            let place = store.display_name(LOCK);
            std::fs::create_dir_all(folder)
                .map_err(|error| Error::io("make folder", store.display_name(""), error))?;
            let file =
                std::fs::OpenOptions::new().create(true).truncate(false).write(true).open(folder.join(LOCK));
            let file = file.map_err(|error| Error::io("open", &place, error))?;
            return match file.try_lock() {
                Ok(()) => Ok(Self::Folder { _file: file }),
                Err(TryLockError::WouldBlock) => {
                    let message =
                        format!("another process writes backups into \"{}\"", store.display_name(""));
                    Err(Error::refusal(SqlState::OBJECT_IN_USE, message))
                }
                Err(TryLockError::Error(error)) => Err(Error::io("lock", place, error)),
            };
        }
        // The random line distinguishes processes with the same id.
        let own = format!("{}\n{}\n", process::current(), Uuid::new_v4().simple());
        for _ in 0..2 {
            if store.put_new(LOCK, own.clone().into_bytes()).await? {
                return Ok(Self::Objects { store: store.clone() });
            }
            let Some(found) = store.get(LOCK).await? else { continue };
            let found = String::from_utf8_lossy(&found).into_owned();
            if !found.lines().next().is_some_and(process::has_ended) {
                break;
            }
            store.delete(LOCK).await?;
        }
        let message = format!("another process writes backups into \"{}\"", store.display_name(""));
        let hint = format!("if it has ended on another host, remove \"{}\"", store.display_name(LOCK));
        Err(Error::refusal(SqlState::OBJECT_IN_USE, message).with_hint(hint))
    }

    pub async fn release(self) {
        if let Self::Objects { store } = self
            && let Err(error) = store.delete(LOCK).await
        {
            tracing::warn!(%error, "the lock of the backups stays");
        }
    }
}

/// Whether a name below the files folder is that of a data or delete file of this warehouse, or of its
/// temporary file.
pub(crate) fn is_file_of(name: &str, identity: &harrier_catalog::Identity) -> bool {
    let own = name.rsplit('/').next().unwrap_or(name);
    let is_data = own.ends_with(".parquet") || is_temporary(own);
    let is_of_duckdb = own.strip_prefix("ducklake-").is_some_and(|rest| rest.len() >= 36);
    is_data && (is_of_duckdb || own.split(['-', '.']).any(|part| identity.is_of_writer(part)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_backups_are_in_the_order_of_time() {
        let first = id_of("2026-11-22 07:30:28+00", 5);
        let second = id_of("2026-11-22 07:30:28.000001+00", 4);
        let third = id_of("2026-11-22 07:30:28.649688+00", 4);
        assert_eq!(third, "20261122-073028-649688-4");
        assert!(first < second && second < third, "{first} {second} {third}");
        for id in [&first, &second, &third] {
            assert!(is_id(id), "{id}");
        }
        for other in [
            "",
            "20261122-073028-649688",
            "20261122-073028-649688-x",
            "../20261122-073028-649688-4",
            "2026-073028-649688-4",
        ] {
            assert!(!is_id(other), "{other}");
        }
    }
}
