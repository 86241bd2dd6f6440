//! Staging paths of a statement: hidden from readers of the table, and one rename away from the final paths.
//!
//! The default is the statement's folder in the control folder. Table partitions on other mounts (mount
//! points or links) have a folder `.harrier-<id>` on their mount: beside the partition, or in it if it is the
//! top of its mount. These are recorded before they are created, so that recovery finds them.
//!
//! Staged files end in [`STAGED`]: some readers, DuckDB's `**` among them, look into hidden folders.

use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::local::mounts::{is_mount_point, mount_of, sync};
use crate::local::{At, Result};

/// Suffix of staged files.
pub const STAGED: &str = ".staged";

/// In a statement's folder: staged files of folders on the same mount.
pub(crate) const FILES: &str = "files";
/// In a statement's folder: links to its staging folders on other mounts.
pub(crate) const ELSEWHERE: &str = "elsewhere";

/// The staging paths of one statement; every process that writes for it has its own instance.
#[derive(Debug, Clone)]
pub struct StagingPaths {
    root: PathBuf,
    staging: PathBuf,
    id: String,
    mount: u64,
}

/// The staging place of a folder of the table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Place {
    /// On the mount of the statement's folder.
    Home,
    /// On another mount, in this folder; the table's folder is no mount point.
    Beside(PathBuf),
    /// On another mount whose top is the table's folder; the staging folder is in it.
    Inside(PathBuf),
}

impl StagingPaths {
    /// For the table in `root` and the folder of [`crate::local::Statement::staging`].
    pub fn of(root: &Path, staging: &Path) -> Result<Self> {
        let mount = mount_of(staging).at("open", staging)?;
        let id = staging.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Ok(Self { root: root.to_path_buf(), staging: staging.to_path_buf(), id, mount })
    }

    /// The path at which to write a file that is to be published as `name` in `folder` below the table's
    /// (`""`, or `k=v/…`). Creates its parent folders.
    pub fn staging_path(&self, folder: &str, name: &str) -> Result<PathBuf> {
        let place = match self.place(folder)? {
            Place::Home => {
                // Not created if it is gone: the statement has been aborted.
                fs::metadata(&self.staging).at("open", &self.staging)?;
                let files = self.staging.join(FILES).join(folder);
                fs::create_dir_all(&files).at("make", &files)?;
                files
            }
            Place::Beside(place) | Place::Inside(place) => {
                self.make(&place)?;
                place
            }
        };
        Ok(place.join(format!("{name}{STAGED}")))
    }

    pub(crate) fn folder(&self, folder: &str) -> PathBuf {
        match folder {
            "" => self.root.clone(),
            folder => self.root.join(folder.trim_end_matches('/')),
        }
    }

    /// The place for folders that will be exchanged with, or renamed to, the table's folder.
    pub(crate) fn place(&self, folder: &str) -> Result<Place> {
        let wanted = self.folder(folder);
        let mut existing = wanted.as_path();
        let real = loop {
            match fs::canonicalize(existing) {
                Ok(real) => break real,
                Err(error) if error.kind() == io::ErrorKind::NotFound && existing != self.root => {
                    existing = existing.parent().unwrap_or(&self.root);
                }
                Err(error) => return Err(error).at("open", existing),
            }
        };
        if mount_of(&real).at("open", &real)? == self.mount {
            return Ok(Place::Home);
        }
        let own = format!(".harrier-{}", self.id);
        if existing == wanted && !is_mount_point(&real).at("open", &real)? {
            return Ok(Place::Beside(real.with_file_name(own)));
        }
        Ok(Place::Inside(real.join(own)))
    }

    /// Creates a folder on another mount, after recording it.
    pub(crate) fn make(&self, place: &Path) -> Result<()> {
        if place.is_dir() {
            return Ok(());
        }
        let list = self.staging.join(ELSEWHERE);
        match fs::create_dir(&list) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(error).at("make", &list);
            }
            _ => {}
        }
        // A link, because it is created atomically.
        let link = list.join(format!("{:016x}", hash(place)));
        match std::os::unix::fs::symlink(place, &link) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(error).at("make", &link);
            }
            _ => {}
        }
        sync(&list).at("write", &list)?;
        match fs::create_dir(place) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error).at("make", place),
            _ => Ok(()),
        }
    }
}

/// FNV-1a: the same in every process.
fn hash(path: &Path) -> u64 {
    let bytes = path.as_os_str().as_bytes();
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3))
}
