//! Ownership of data folders. A catalog claims the folder that its files are written to: a marker file in it
//! holds the catalog's identity, and no other catalog writes to the folder or vacuums it.
//!
//! ```text
//!   no marker ──────────────────────────────────────────► claimed
//!   ours, the catalog where it was ─────────────────────► as it is
//!   ours, the catalog renamed or restored at its place ─► claimed again
//!   ours, another file: a copy ─┬─ the folder lies in the catalog's own, so it was copied too ─► claimed under a new identity
//!                               └─ elsewhere: it is the original's ─► 55000
//!   another catalog's ──────────────────────────────────► 55000
//! ```
//!
//! Errors: 55000 with a hint; the store's errors; 25006 if the catalog must be changed but cannot be. Crash:
//! the catalog is changed first, and the next writer completes the claim.

use datafusion::error::{DataFusionError, Result};
use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::object_store::{Error as StoreError, ObjectStoreExt, PutMode, PutOptions};
use harrier_catalog::{Catalog, Identity, MARKER, Marker, Place};
use harrier_error::{SqlError, SqlState};
use harrier_exec::data_files::location::locate;
use harrier_sqlstate::IntoDataFusionError;

use crate::warehouse::explain;

/// Two processes of one warehouse may claim its folder concurrently.
const ATTEMPTS_MAX: usize = 5;

/// The decision about a folder.
#[derive(Debug, PartialEq, Eq)]
enum Claim {
    /// The folder is this catalog's.
    Own,
    /// Claim it under this identity.
    Take(Identity),
    /// The folder belongs to the catalog of which this one is a copy.
    Original,
    /// The folder belongs to another catalog.
    Foreign,
}

/// `stored`: the catalog's identity. `root`: the folder, with a trailing `/`.
fn decide(stored: Option<&Identity>, place: &Place, root: &str, marker: Option<&Marker>) -> Claim {
    let is_known = |marker: &Marker| {
        stored.is_some_and(|stored| stored.has_been(&marker.warehouse))
            || place.is_of(&marker.place, &marker.file)
    };
    if marker.is_some_and(|marker| !is_known(marker)) {
        return Claim::Foreign;
    }
    let Some(stored) = stored else { return Claim::Take(Identity::new(place)) };
    let is_beside = place
        .folder
        .as_ref()
        .is_some_and(|folder| root.strip_prefix(folder.as_str()).is_some_and(|below| below.starts_with('/')));
    match marker {
        Some(marker) if stored.is_at(place) && *marker == Marker::of(stored) => Claim::Own,
        _ if place.is_of(&stored.place, &stored.file) => Claim::Take(stored.moved_to(place)),
        _ if is_beside => Claim::Take(stored.of_copy(place)),
        _ => Claim::Original,
    }
}

/// Claims a catalog's data folder. To be called before files are written to it, and before it is vacuumed.
pub(crate) async fn claim(catalog: &Catalog, runtime: &RuntimeEnv) -> Result<Identity> {
    for _ in 0..ATTEMPTS_MAX {
        let place = catalog.place().await.map_err(explain)?;
        let stored = catalog.identity().await.map_err(explain)?;
        let root = catalog.head().await.map_err(explain)?.data_path.clone();
        let marker = read_marker(&root, runtime).await?;
        let identity = match (decide(stored.as_ref(), &place, &root, marker.as_ref()), stored) {
            (Claim::Own, Some(stored)) => return Ok(stored),
            (Claim::Take(identity), stored) => {
                if marker.is_none() {
                    check_parents(&root, &identity, runtime).await?;
                }
                let set = catalog.set_identity(stored.as_ref(), &identity, &root).await.map_err(explain)?;
                if set != identity {
                    continue;
                }
                identity
            }
            (Claim::Original, _) => return Err(owned_by_original(&root, marker.as_ref())),
            (Claim::Foreign | Claim::Own, _) => return Err(foreign(&root, marker.as_ref())),
        };
        let mode = if marker.is_none() { PutMode::Create } else { PutMode::Overwrite };
        if write_marker(&root, &Marker::of(&identity), mode, runtime).await? {
            return Ok(identity);
        }
    }
    Err(SqlError::new(
        SqlState::SERIALIZATION_FAILURE,
        "the data folder of the warehouse is being claimed by other processes",
    )
    .into_datafusion())
}

/// Takes over the data folder for this catalog, whichever catalog owned it.
pub(crate) async fn adopt(catalog: &Catalog, runtime: &RuntimeEnv) -> Result<()> {
    let place = catalog.place().await.map_err(explain)?;
    let stored = catalog.identity().await.map_err(explain)?;
    let root = catalog.head().await.map_err(explain)?.data_path.clone();
    let identity = match &stored {
        Some(stored) => stored.moved_to(&place),
        None => Identity::new(&place),
    };
    let set = catalog.set_identity(stored.as_ref(), &identity, &root).await.map_err(explain)?;
    write_marker(&root, &Marker::of(&set), PutMode::Overwrite, runtime).await?;
    Ok(())
}

/// Changes a catalog's data folder, if the files in the new one are its own.
pub(crate) async fn move_to(catalog: &Catalog, root: &str, runtime: &RuntimeEnv) -> Result<()> {
    let place = catalog.place().await.map_err(explain)?;
    let stored = catalog.identity().await.map_err(explain)?;
    let before = catalog.head().await.map_err(explain)?.data_path.clone();
    let marker = read_marker(root, runtime).await?;
    let (Some(stored), Some(marker)) = (&stored, &marker) else { return Err(elsewhere(&before, root)) };
    if !stored.has_been(&marker.warehouse) {
        return Err(elsewhere(&before, root));
    }
    let identity = match place.is_of(&stored.place, &stored.file) {
        true => stored.moved_to(&place),
        false => stored.of_copy(&place),
    };
    let set = catalog.set_identity(Some(stored), &identity, root).await.map_err(explain)?;
    write_marker(root, &Marker::of(&set), PutMode::Overwrite, runtime).await?;
    Ok(())
}

/// Checks that a new catalog may use a folder for its data.
///
/// Errors: the folder is another catalog's, or inside one that is.
pub(crate) async fn check_free(root: &str, place: Option<&Place>, runtime: &RuntimeEnv) -> Result<()> {
    let marker = read_marker(root, runtime).await?;
    let is_own = |marker: &Marker| place.is_some_and(|place| place.is_of(&marker.place, &marker.file));
    match &marker {
        Some(marker) if !is_own(marker) => Err(foreign(root, Some(marker))),
        Some(_) => Ok(()),
        None => check_above(root, &|_| false, runtime).await,
    }
}

async fn check_parents(root: &str, identity: &Identity, runtime: &RuntimeEnv) -> Result<()> {
    check_above(root, &|marker| identity.has_been(&marker.warehouse), runtime).await
}

/// Errors: a parent folder is another catalog's, whose VACUUM would find files of this one.
async fn check_above(
    root: &str,
    is_own: &(dyn Fn(&Marker) -> bool + Sync),
    runtime: &RuntimeEnv,
) -> Result<()> {
    let first = root
        .find("://")
        .map_or(1, |at| root[at + 3..].find('/').map_or(root.len(), |slash| at + 3 + slash + 1));
    let mut folder = root;
    while folder.len() > first {
        folder = &folder[..=folder[..folder.len() - 1].rfind('/').unwrap_or(0)];
        if let Some(marker) =
            read_marker(folder, runtime).await.ok().flatten().filter(|marker| !is_own(marker))
        {
            return Err(foreign(folder, Some(&marker)));
        }
    }
    Ok(())
}

/// Reads the marker of a folder; `None` if there is none.
async fn read_marker(root: &str, runtime: &RuntimeEnv) -> Result<Option<Marker>> {
    let location = format!("{root}{MARKER}");
    let (store, path) = locate(&location)?;
    let store = runtime.object_store(&store)?;
    let bytes = match store.get(&path).await {
        Ok(found) => found.bytes().await?,
        // Without permission to list, a store does not reveal whether the file exists.
        Err(StoreError::NotFound { .. } | StoreError::PermissionDenied { .. }) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let marker = std::str::from_utf8(&bytes).ok().and_then(Marker::parse);
    marker.map(Some).ok_or_else(|| {
        SqlError::new(SqlState::DATA_CORRUPTED, format!("\"{location}\" does not say whose folder it is in"))
            .with_hint("CALL adopt_data_folder() writes it anew, if no other warehouse has its files there")
            .into_datafusion()
    })
}

/// Writes the marker. Returns false if it was to be created but exists.
async fn write_marker(root: &str, marker: &Marker, mode: PutMode, runtime: &RuntimeEnv) -> Result<bool> {
    let location = format!("{root}{MARKER}");
    let (store, path) = locate(&location)?;
    let store = runtime.object_store(&store)?;
    let text = marker.text().into_bytes();
    let options = PutOptions { mode, ..PutOptions::default() };
    match store.put_opts(&path, text.clone().into(), options).await {
        Ok(_) => Ok(true),
        Err(StoreError::AlreadyExists { .. } | StoreError::Precondition { .. }) => Ok(false),
        // Not every store supports conditional puts; the marker was looked up before.
        Err(StoreError::NotImplemented { .. } | StoreError::NotSupported { .. }) => {
            store.put(&path, text.into()).await?;
            Ok(true)
        }
        Err(error) => Err(error.into()),
    }
}

fn prerequisite_error(message: String, hint: String) -> DataFusionError {
    SqlError::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, message).with_hint(hint).into_datafusion()
}

fn foreign(root: &str, marker: Option<&Marker>) -> DataFusionError {
    let owner = marker.map_or("elsewhere", |marker| marker.place.as_str());
    prerequisite_error(
        format!("the data folder \"{root}\" is that of the warehouse whose catalog is {owner}"),
        format!(
            "name another folder with --data; if that warehouse is no more, remove \"{root}{MARKER}\" first"
        ),
    )
}

fn owned_by_original(root: &str, marker: Option<&Marker>) -> DataFusionError {
    let owner = marker.map_or("elsewhere", |marker| marker.place.as_str());
    prerequisite_error(
        format!("the catalog is a copy, and the data folder \"{root}\" is that of the catalog at {owner}"),
        "copy the data folder too and name the copy with --data; or, if that catalog is no more: CALL adopt_data_folder()"
            .to_string(),
    )
}

fn elsewhere(root: &str, asked: &str) -> DataFusionError {
    prerequisite_error(
        format!("the warehouse has its data in \"{root}\" and not in \"{asked}\""),
        "leave --data out; a data folder that was moved or copied is taken with the file in it that says whose it is"
            .to_string(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(name: &str, file: &str, folder: Option<&str>) -> Place {
        Place { name: name.to_string(), file: file.to_string(), folder: folder.map(str::to_string) }
    }

    #[test]
    fn a_folder_is_claimed_by_one() {
        let here = place("host:/a/catalog.sqlite", "7-9", Some("/a"));
        let own = Identity::new(&here);
        let marker = Marker::of(&own);
        // Unchanged; without a marker; the catalog renamed, restored at its place, or seen from another host.
        assert_eq!(decide(Some(&own), &here, "/a/data/", Some(&marker)), Claim::Own);
        assert_eq!(decide(Some(&own), &here, "s3://b/", None), Claim::Take(own.clone()));
        let renamed = place("host:/b/catalog.sqlite", "7-9", Some("/b"));
        assert_eq!(
            decide(Some(&own), &renamed, "s3://b/", Some(&marker)),
            Claim::Take(own.moved_to(&renamed))
        );
        let restored = place("host:/a/catalog.sqlite", "8-1", Some("/a"));
        assert_eq!(decide(Some(&own), &restored, "s3://b/", Some(&marker)), Claim::Own);
        let mounted = place("other:/a/catalog.sqlite", "7-", Some("/a"));
        assert_eq!(decide(Some(&own), &mounted, "s3://b/", Some(&marker)), Claim::Own);
        // A copy, with its files and without.
        let copy = place("host:/c/catalog.sqlite", "8-1", Some("/c"));
        let Claim::Take(taken) = decide(Some(&own), &copy, "/c/data/", Some(&marker)) else { panic!() };
        assert!(taken.id != own.id && taken.has_been(&own.id) && taken.is_at(&copy));
        for root in ["/a/data/", "s3://b/", "/cc/data/"] {
            assert_eq!(decide(Some(&own), &copy, root, Some(&marker)), Claim::Original, "{root}");
            assert_eq!(decide(Some(&own), &copy, root, None), Claim::Original, "{root}");
        }
        // The copy was stopped before it wrote its marker.
        assert_eq!(decide(Some(&taken), &copy, "/c/data/", Some(&marker)), Claim::Take(taken.clone()));
        // Another catalog, and one of an earlier version.
        let other = Marker::of(&Identity::new(&copy));
        assert_eq!(decide(Some(&own), &here, "s3://b/", Some(&other)), Claim::Foreign);
        assert_eq!(decide(None, &here, "s3://b/", Some(&other)), Claim::Foreign);
        assert!(matches!(decide(None, &here, "s3://b/", None), Claim::Take(_)));
        // Another catalog was at this place before.
        assert!(matches!(decide(Some(&own), &copy, "/c/data/", Some(&other)), Claim::Take(_)));
    }
}
