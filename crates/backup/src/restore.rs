//! Restores a backup into a new warehouse, which may run beside the original.
//!
//! ```text
//!   place is empty ─► marker: being restored ─► files copied, verified
//!     ─► catalog loaded under a temporary name ─► rename ─► marker: own
//! ```
//!
//! Until the rename there is no warehouse, and an attempt to create one there reports the restore by its
//! marker. A restore that broke off is started over by the next one, once its process is known to have ended.

use std::io::{self, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use futures::{StreamExt, TryStreamExt};
use harrier_catalog::{Identity, MARKER, Marker, Place as CatalogPlace, check_version, copy_in, process};
use harrier_error::SqlState;
use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, RenameFlags, renameat2};

use crate::copy::{self, difference};
use crate::store::{Store, local};
use crate::target::{FILES, Target, check_outside};
use crate::{Error, FILES_AT_ONCE, Manifest, Result, Stored, catalog_lines};

/// Text of a marker during a restore; followed by the backup's id, a space, and the process.
const RESTORING: &str = "being restored from backup ";
const BY: &str = " by process ";

/// The folder of the data files in a warehouse's folder.
const DATA_FOLDER: &str = "data";

/// Suffix of an incomplete catalog file.
const PARTIAL: &str = ".restoring";

/// The destination of a restore.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The database of its catalog: `sqlite:PATH` or `postgres://…`.
    pub catalog: String,
    /// Location of its files, a path or a URL; `None`: beside an SQLite catalog.
    pub data: Option<String>,
}

/// A restored warehouse.
#[derive(Debug)]
pub struct Restored {
    /// The backup that was restored.
    pub manifest: Manifest,
    /// Location of its files; ends in `/`.
    pub data: String,
}

/// Restores the backup `id`, or the newest one. `place` is empty or does not exist.
///
/// Errors: the destination is not empty (55000, 42P07); the backup is damaged, or of a later version (0A000).
/// The original warehouse is not touched.
pub async fn restore(target: &str, id: Option<&str>, place: &Place) -> Result<Restored> {
    let target = Target::open(target).await?;
    let manifest = target.manifest_or_newest(id).await?;
    check_version(manifest.layout, Some(&manifest.harrier))?;
    let catalog = CatalogFile::of(&place.catalog)?;
    if let Some(catalog) = &catalog {
        catalog.check_free(place.data.is_none())?;
    }
    let (root, data) = data_folder(place, catalog.as_ref())?;
    check_free(&data).await?;

    let id = Identity::new(&CatalogPlace { name: String::new(), file: String::new(), folder: None }).id;
    let mark = Marker {
        warehouse: id.clone(),
        place: format!("{RESTORING}{}{BY}{}", manifest.id, process::current()),
        file: String::new(),
    };
    data.put(MARKER, mark.text().into_bytes()).await?;
    copy_files(&manifest, &target.store, &data).await?;
    let identity =
        put_catalog(&manifest, &target.store, &place.catalog, catalog.as_ref(), (&root, &id)).await?;
    // The next writer would do it, too: the marker already has the identity.
    data.put(MARKER, Marker::of(&identity).text().into_bytes()).await?;
    data.sync_names().await?;
    Ok(Restored { manifest, data: root })
}

/// The data folder, as the path recorded in the catalog, and as a store.
fn data_folder(place: &Place, catalog: Option<&CatalogFile>) -> Result<(String, Store)> {
    let wanted = match (&place.data, catalog) {
        (Some(data), _) => data.clone(),
        (None, Some(catalog)) => catalog.folder().join(DATA_FOLDER).display().to_string(),
        (None, None) => {
            return Err(Error::refusal(
                SqlState::INVALID_PARAMETER_VALUE,
                "a warehouse in a database server needs a place for its data files",
            )
            .with_hint("--data DIR, or --data s3://BUCKET/PREFIX/"));
        }
    };
    let mut root = match local(&wanted) {
        None => wanted,
        Some(folder) => {
            let made = std::fs::create_dir_all(&folder).and_then(|()| std::fs::canonicalize(&folder));
            made.map_err(|error| Error::io("make folder", &wanted, error))?.display().to_string()
        }
    };
    if !root.ends_with('/') {
        root.push('/');
    }
    let store = Store::open(&root)?;
    Ok((root, store))
}

/// Errors: the data folder contains files that are not left over from a finished restore process (55000,
/// 55006).
async fn check_free(data: &Store) -> Result<()> {
    if let Some(mark) = data.get(MARKER).await? {
        let mark = Marker::parse(&String::from_utf8_lossy(&mark));
        let place = mark.map(|mark| mark.place).unwrap_or_default();
        return match place.strip_prefix(RESTORING).and_then(|rest| rest.split_once(BY)) {
            Some((_, process)) if process::has_ended(process) => Ok(()),
            Some((id, _)) => {
                let message = format!("backup {id} is being restored into \"{}\"", data.display_name(""));
                Err(Error::refusal(SqlState::OBJECT_IN_USE, message)
                    .with_hint("if that process has ended on another host, remove what it has left, or name another place"))
            }
            None => Err(Error::refusal(
                SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE,
                format!("\"{}\" has the data of a warehouse", data.display_name("")),
            )
            .with_hint("a restore needs a place that is empty, or not there")),
        };
    }
    check_outside(data).await?;
    match data.list("").await?.into_keys().next() {
        None => Ok(()),
        Some(other) => {
            let message = format!("\"{}\" is not empty: there is \"{other}\"", data.display_name(""));
            Err(Error::refusal(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, message)
                .with_hint("a restore needs a place that is empty, or not there"))
        }
    }
}

async fn copy_files(manifest: &Manifest, from: &Store, to: &Store) -> Result<()> {
    // Files of a restore that broke off.
    to.sweep().await?;
    for file in &manifest.files {
        if file.name.split('/').any(|part| matches!(part, "" | "." | "..")) || file.name == MARKER {
            return Err(Error::damage(
                &manifest.id,
                format!("names a file that cannot be: \"{}\"", file.name),
            ));
        }
    }
    let copies = manifest.files.iter().map(|file| async move {
        let name = format!("{FILES}{}", file.name);
        let reader = from.reader(&name).await?;
        copy::copy(reader, &from.display_name(&name), to, &file.name, |found| difference(found, file)).await
    });
    let copied = futures::stream::iter(copies).buffer_unordered(FILES_AT_ONCE);
    let _: Vec<Stored> = copied.try_collect().await?;
    to.sync_names().await
}

/// Loads the catalog. When this returns the warehouse exists.
async fn put_catalog(
    manifest: &Manifest,
    from: &Store,
    url: &str,
    file: Option<&CatalogFile>,
    (data, id): (&str, &str),
) -> Result<Identity> {
    let copy = fetch(&manifest.catalog, from).await?;
    let display_name = from.display_name(&manifest.catalog.name);
    let lines = catalog_lines::read_lines(copy).map_err(|error| Error::io("read", &display_name, error))?;
    let identity = |place: &CatalogPlace| Identity {
        id: id.to_string(),
        former: manifest.former.iter().chain([&manifest.warehouse]).cloned().collect(),
        // The file keeps its identity under its final name.
        place: file.map_or_else(|| place.name.clone(), CatalogFile::place_name),
        file: place.file.clone(),
    };
    let partial = file.map(CatalogFile::begin).transpose()?;
    let made = std::sync::Mutex::new(None);
    let keep = |place: &CatalogPlace| {
        let identity = identity(place);
        *made.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Some(identity.clone());
        identity
    };
    let snapshot = copy_in(partial.as_deref().unwrap_or(url), lines, data, keep).await?;
    if snapshot != manifest.snapshot {
        return Err(Error::damage(
            display_name,
            format!("is of snapshot {snapshot}, not of {}", manifest.snapshot),
        ));
    }
    if let Some(file) = file {
        file.finish()?;
    }
    let identity = made.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    identity.ok_or_else(|| Error::refusal(SqlState::INTERNAL_ERROR, "a catalog was made without an identity"))
}

/// The copy of the catalog, verified by its checksum, in an unnamed temporary file.
async fn fetch(catalog: &Stored, from: &Store) -> Result<std::fs::File> {
    use std::io::Write as _;
    let unwritten = |error: io::Error| Error::io("write", std::env::temp_dir().display().to_string(), error);
    let mut file = tempfile::tempfile().map_err(unwritten)?;
    let reader = from.reader(&catalog.name).await?;
    let found = copy::read_with_checksum(reader, &catalog.name, async |part| {
        file.write_all(&part).map_err(unwritten)
    })
    .await?;
    if let Some(what) = difference(&found, catalog) {
        return Err(Error::damage(from.display_name(&catalog.name), what));
    }
    file.seek(SeekFrom::Start(0)).map_err(unwritten)?;
    Ok(file)
}

/// The file of an SQLite catalog.
struct CatalogFile(PathBuf);

impl CatalogFile {
    /// `None` for a database server.
    fn of(url: &str) -> Result<Option<Self>> {
        let Some(path) = url.strip_prefix("sqlite:") else { return Ok(None) };
        let path = path.strip_prefix("//").unwrap_or(path);
        let absolute = std::path::absolute(path).map_err(|error| Error::io("find", path, error))?;
        Ok(Some(Self(absolute)))
    }

    fn folder(&self) -> &Path {
        self.0.parent().unwrap_or(Path::new("/"))
    }

    fn display_name(&self) -> String {
        self.0.display().to_string()
    }

    fn partial(&self) -> PathBuf {
        PathBuf::from(format!("{}{PARTIAL}", self.display_name()))
    }

    /// The place as [`CatalogPlace::of_file`] formats it.
    fn place_name(&self) -> String {
        CatalogPlace::of_file(&self.0).name
    }

    /// Creates its folder. `has_data`: data files go there, too.
    ///
    /// Errors: a catalog exists (42P07); where data files go, there is anything that no restore has left
    /// (55000).
    fn check_free(&self, has_data: bool) -> Result<()> {
        const HINT: &str = "a restore needs a place that is empty, or not there";
        let folder = self.folder().display().to_string();
        if self.0.exists() {
            return Err(Error::refusal(
                SqlState::DUPLICATE_TABLE,
                format!("there is a warehouse in \"{folder}\" already"),
            )
            .with_hint(HINT));
        }
        let listed = || {
            std::fs::create_dir_all(self.folder())?;
            std::fs::read_dir(self.folder())?
                .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
                .collect::<io::Result<Vec<String>>>()
        };
        let names = listed().map_err(|error| Error::io("make folder", &folder, error))?;
        let partial = self.partial();
        let partial = partial.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let other = names.iter().find(|name| !name.starts_with(&partial) && *name != DATA_FOLDER);
        match other.filter(|_| has_data) {
            None => Ok(()),
            Some(other) => {
                let message = format!("\"{folder}\" is not empty: there is \"{other}\"");
                Err(Error::refusal(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, message).with_hint(HINT))
            }
        }
    }

    /// Creates the temporary database to fill, empty.
    fn begin(&self) -> Result<String> {
        let partial = self.partial().display().to_string();
        for end in ["", "-wal", "-shm", "-journal"] {
            match std::fs::remove_file(format!("{partial}{end}")) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(Error::io("remove", format!("{partial}{end}"), error));
                }
                _ => {}
            }
        }
        Ok(format!("sqlite:{partial}"))
    }

    /// Renames it to its final name.
    fn finish(&self) -> Result<()> {
        let partial = self.partial();
        let named = || {
            std::fs::File::open(&partial)?.sync_all()?;
            // Do not replace one that was created meanwhile.
            match renameat2(AT_FDCWD, &partial, AT_FDCWD, &self.0, RenameFlags::RENAME_NOREPLACE) {
                // The file system has no RENAME_NOREPLACE; `check_free` has looked before.
                Err(Errno::EINVAL | Errno::ENOSYS) => std::fs::rename(&partial, &self.0)?,
                renamed => renamed?,
            }
            std::fs::File::open(self.folder())?.sync_all()
        };
        named().map_err(|error| Error::io("write", self.display_name(), error))
    }
}
