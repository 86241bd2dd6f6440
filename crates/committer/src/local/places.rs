//! Where the files of a statement are staged: out of sight of who lists the table, and in reach of one rename
//! of where they will be.
//!
//! That is the statement's folder beside the table's. Table partitions on other mounts, as folders that are
//! mount points or links, have a folder `.harrier-<id>` on theirs: beside the folder, or in it if it is the
//! top of its mount. Those are written down before they are made, so that they are found if their makers die.
//!
//! Staged files end in [`STAGED`]: some readers, DuckDB's `**` among them, look into hidden folders.

use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::local::mounts::{is_mount_point, mount_of, sync};
use crate::local::{At, Result};

/// The end of staged files' names.
pub const STAGED: &str = ".staged";

/// In a statement's folder: where files of folders on the same mount are staged.
pub(crate) const FILES: &str = "files";
/// In a statement's folder: links to the folders that it has made elsewhere.
pub(crate) const ELSEWHERE: &str = "elsewhere";

/// The places of one statement; every process that writes for it has one of these.
#[derive(Debug, Clone)]
pub struct Places {
    root: PathBuf,
    staging: PathBuf,
    id: String,
    mount: u64,
}

/// What a folder of the table is, for one that wants to write into it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Place {
    /// On the mount of the statement's folder.
    Home,
    /// On another one, on which this folder is the statement's; the table's folder is no mount point.
    Beside(PathBuf),
    /// On another one whose top it is; in it is the statement's folder.
    Inside(PathBuf),
}

impl Places {
    /// For the table in `root`, with what [`crate::local::Statement::staging`] says.
    pub fn of(root: &Path, staging: &Path) -> Result<Self> {
        let mount = mount_of(staging).at("open", staging)?;
        let id = staging.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Ok(Self { root: root.to_path_buf(), staging: staging.to_path_buf(), id, mount })
    }

    /// Where a file named `name`, to be shown in `folder` below the table's (`""`, or `k=v/…`), is to be
    /// written; the folders that it will be in are made.
    pub fn staged(&self, folder: &str, name: &str) -> Result<PathBuf> {
        let place = match self.place(folder)? {
            Place::Home => {
                // Not made if it is gone: the statement has been given up.
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

    /// Where the statement may make folders that are to be exchanged with, or to become, the table's folder.
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

    /// Makes a folder elsewhere, after it is written down.
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
        // A link, because it is whole or not there.
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
