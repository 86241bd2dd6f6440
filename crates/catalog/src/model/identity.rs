//! The identity of a warehouse: it stays when the catalog is moved, and a copy gets its own.
//!
//! It is stored in the catalog (`layout/identity.rs`), with the catalog's location at the time of writing.
//! Writers of data files also store it in the data folder, so that a folder belongs to one catalog.
//!
//! # Invariants
//! - `data_path` is absolute, as DuckDB requires. If it is inside the folder of an SQLite catalog it means
//!   that folder wherever it is now.
//! - The names of data files begin with a prefix of the identity under which they were written: the current
//!   one, or a former one of the catalog.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::UNIX_EPOCH;

use uuid::Uuid;

/// Number of hexadecimal digits of an identity that prefix file names.
const PREFIX_DIGITS: usize = 12;

/// The current location of a catalog, which distinguishes it from its copies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// `HOST:PATH` of an SQLite file, `postgres:SYSTEM/DATABASE` of a database.
    pub name: String,
    /// The inode of the SQLite file and its birth time, or the oid of the database: a renamed one keeps them,
    /// a copy has others. Empty without the permission to query them.
    pub file: String,
    /// The folder of the SQLite file: absolute, without a trailing `/`.
    pub folder: Option<String>,
}

impl Place {
    /// For an SQLite file, which need not exist yet.
    pub fn of_file(path: &Path) -> Self {
        let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf());
        let folder = absolute.parent().unwrap_or(Path::new("/"));
        let folder = std::fs::canonicalize(folder).unwrap_or_else(|_| folder.to_path_buf());
        let name = absolute.file_name().unwrap_or_default().to_string_lossy();
        let host = nix::sys::utsname::uname();
        let host = host.as_ref().map_or(Default::default(), |system| system.nodename().to_string_lossy());
        let file = std::fs::metadata(path).map_or_else(
            |_| String::new(),
            |metadata| {
                let born = metadata.created().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
                format!(
                    "{}-{}",
                    metadata.ino(),
                    born.map_or(String::new(), |born| born.as_nanos().to_string())
                )
            },
        );
        Self {
            name: format!("{host}:{}/{name}", folder.display()),
            file,
            folder: Some(folder.display().to_string()),
        }
    }

    /// Whether the catalog recorded there is the one here: at the same place, or the same file renamed.
    pub fn is_of(&self, name: &str, file: &str) -> bool {
        self.name == name || is_same_file(&self.file, file)
    }

    /// The same file under the same path, possibly seen from another host.
    fn is_at(&self, name: &str, file: &str) -> bool {
        self.name == name || is_same_file(&self.file, file) && path_in(&self.name) == path_in(name)
    }
}

/// The path in the name of a place.
fn path_in(name: &str) -> &str {
    name.split_once(':').map_or(name, |(_, path)| path)
}

/// Not every file system records birth times.
fn is_same_file(one: &str, other: &str) -> bool {
    match (one.split_once('-'), other.split_once('-')) {
        (Some((one, born)), Some((other, also))) => {
            one == other && (born == also || born.is_empty() || also.is_empty())
        }
        _ => false,
    }
}

/// The identity of a warehouse.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// 32 hexadecimal digits.
    pub id: String,
    /// The identities of the catalogs that this is a copy of.
    pub former: Vec<String>,
    /// The name of the catalog's [`Place`] when this was written.
    pub place: String,
    /// See [`Self::place`].
    pub file: String,
}

impl Identity {
    /// Creates a new identity.
    pub fn new(place: &Place) -> Self {
        let id = Uuid::new_v4().simple().to_string();
        Self { id, former: Vec::new(), place: place.name.clone(), file: place.file.clone() }
    }

    /// Creates the identity of a copy, which records this one.
    pub fn of_copy(&self, place: &Place) -> Self {
        let former = self.former.iter().chain([&self.id]).cloned().collect();
        Self { former, ..Self::new(place) }
    }

    /// The same identity at another place.
    pub fn moved_to(&self, place: &Place) -> Self {
        Self { place: place.name.clone(), file: place.file.clone(), ..self.clone() }
    }

    /// Whether it is or was `id`.
    pub fn has_been(&self, id: &str) -> bool {
        self.id == id || self.former.iter().any(|former| former == id)
    }

    /// Whether the catalog is still where it was when this was written.
    pub fn is_at(&self, place: &Place) -> bool {
        place.is_at(&self.place, &self.file)
    }

    /// Whether a name is that of a writer of this warehouse.
    pub fn is_of_writer(&self, name: &str) -> bool {
        let is_writer = name.len() == WRITER_DIGITS && name.bytes().all(|digit| digit.is_ascii_hexdigit());
        is_writer && self.former.iter().chain([&self.id]).any(|id| name.starts_with(prefix(id)))
    }
}

/// Number of hexadecimal digits of a writer's name.
const WRITER_DIGITS: usize = 32;

fn prefix(id: &str) -> &str {
    id.get(..PREFIX_DIGITS).unwrap_or(id)
}

/// A unique writer name, for the files of one statement. `warehouse`: the identity of the catalog; abandoned
/// files of a catalog without one cannot be attributed to it.
pub fn writer_name(warehouse: Option<&str>) -> String {
    let random = Uuid::new_v4().simple().to_string();
    match warehouse {
        Some(id) => format!("{}{}", prefix(id), &random[prefix(id).len().min(WRITER_DIGITS)..]),
        None => random,
    }
}

/// The current location of data files. `stored`: the path in the catalog. `place`: the catalog's location
/// when that was written, if recorded. `folder`: its current folder. A data folder inside the catalog's
/// folder moves with the catalog, unless it was left behind.
pub(crate) fn data_path_now(stored: &str, place: Option<&str>, folder: Option<&str>) -> String {
    let Some(folder) = folder else { return stored.to_string() };
    let below = match place {
        Some(place) => {
            let before = path_in(place).rsplit_once('/').map_or("", |(folder, _)| folder);
            stored.strip_prefix(before).and_then(|below| below.strip_prefix('/')).filter(|_| before != folder)
        }
        // Catalogs of earlier versions do not record their location. The folder beside its catalog has this
        // name.
        None => stored.ends_with("/data/").then_some("data/"),
    };
    let moved = below.map(|below| format!("{folder}/{below}"));
    moved.filter(|moved| Path::new(moved).is_dir()).unwrap_or_else(|| stored.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identity_survives_a_rename_but_not_a_copy() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        std::fs::write(path("a"), "x").unwrap();
        let first = Place::of_file(&path("a"));
        std::fs::copy(path("a"), path("b")).unwrap();
        let copy = Place::of_file(&path("b"));
        std::fs::rename(path("a"), path("c")).unwrap();
        let renamed = Place::of_file(&path("c"));
        assert!(renamed.is_of(&first.name, &first.file) && !renamed.is_at(&first.name, &first.file));
        assert!(!copy.is_of(&first.name, &first.file));
        // Another file at the same place, as after a restore; the same file seen from another host.
        std::fs::rename(path("b"), path("a")).unwrap();
        assert!(Place::of_file(&path("a")).is_of(&first.name, &first.file));
        let elsewhere =
            Place { name: renamed.name.replacen(path_in(&renamed.name), "", 1) + "x", ..renamed.clone() };
        assert!(elsewhere.is_of(&renamed.name, &renamed.file));
        let other_host = Place { name: format!("other:{}", path_in(&renamed.name)), ..renamed.clone() };
        assert!(other_host.is_at(&renamed.name, &renamed.file));
    }

    #[test]
    fn writers_are_identified_by_catalog_identity() {
        let identity = Identity::new(&Place::of_file(Path::new("/lake/catalog.sqlite")));
        let copy = identity.of_copy(&Place::of_file(Path::new("/copy/catalog.sqlite")));
        let name = writer_name(Some(&identity.id));
        assert_eq!(name.len(), WRITER_DIGITS);
        assert_ne!(name, writer_name(Some(&identity.id)));
        assert!(identity.is_of_writer(&name) && copy.is_of_writer(&name));
        assert!(!identity.is_of_writer(&writer_name(Some(&copy.id))));
        assert!(!identity.is_of_writer(&writer_name(None)));
        assert!(!identity.is_of_writer(&name[..31]) && !identity.is_of_writer(&format!("{}x", &name[..31])));
        assert!(copy.has_been(&identity.id) && !identity.has_been(&copy.id));
    }

    #[test]
    fn a_folder_moves_with_its_catalog() {
        let folder = tempfile::tempdir().unwrap();
        let here = folder.path().display().to_string();
        std::fs::create_dir(folder.path().join("data")).unwrap();
        let moved = |stored: &str, place: Option<&str>| data_path_now(stored, place, Some(&here));
        let place = Some("host:/a/lake/catalog.sqlite");
        assert_eq!(moved("/a/lake/data/", place), format!("{here}/data/"));
        // Left behind, in another folder, in a store.
        for stored in ["/a/lake/files/", "/a/lakes/data/", "s3://a/lake/data/"] {
            assert_eq!(moved(stored, place), stored);
        }
        assert_eq!(data_path_now("/a/lake/data/", Some("postgres:1/2"), None), "/a/lake/data/");
        let same = format!("host:{here}/catalog.sqlite");
        assert_eq!(moved(&format!("{here}/elsewhere/"), Some(&same)), format!("{here}/elsewhere/"));
        // A catalog of an earlier version.
        assert_eq!(moved("/a/lake/data/", None), format!("{here}/data/"));
        assert_eq!(moved("/a/lake/files/", None), "/a/lake/files/");
    }
}
