//! A table's folder, its control folder, and the lock.
//!
//! The control folder is `.harrier-<name>` beside the table's, or `.harrier` in it if the parent is not
//! writable or the table is a mount point. It holds `lock`, `turn` (a queue for the next holder), and a
//! folder for each statement, with a file `owner` that the statement's process keeps locked while it lives.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

use nix::fcntl::{Flock, FlockArg};

use crate::local::mounts::is_mount_point;
use crate::local::{At, Error, Result};

const LOCK: &str = "lock";
const TURN: &str = "turn";
const INSIDE: &str = ".harrier";

/// A table's folder.
#[derive(Debug, Clone)]
pub struct Root {
    /// Canonical: symbolic links resolved.
    pub(crate) path: PathBuf,
    pub(crate) control: PathBuf,
}

impl Root {
    /// Finds the folder if this crate has ever written to it. Readers of other folders need no lock.
    pub fn find(folder: &Path) -> Result<Option<Self>> {
        let path = match fs::canonicalize(folder) {
            Ok(path) => path,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error).at("open", folder),
        };
        for control in [Some(path.join(INSIDE)), control_beside(&path)].into_iter().flatten() {
            if control.join(LOCK).exists() {
                return Ok(Some(Self { path, control }));
            }
        }
        Ok(None)
    }

    /// Opens the folder, creating it and its lock if needed.
    pub fn create(folder: &Path) -> Result<Self> {
        fs::create_dir_all(folder).at("make", folder)?;
        if let Some(found) = Self::find(folder)? {
            return Ok(found);
        }
        let path = fs::canonicalize(folder).at("open", folder)?;
        let made = match (control_beside(&path), is_mount_point(&path).at("open", &path)?) {
            (Some(control), false) => create_control(&control).map(|()| control),
            _ => Err(io::ErrorKind::PermissionDenied.into()),
        };
        let control = match made {
            Ok(control) => control,
            Err(error) => match error.kind() {
                io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                    let inside = path.join(INSIDE);
                    create_control(&inside).at("make", &inside)?;
                    inside
                }
                _ => return Err(error).at("make", &path),
            },
        };
        Ok(Self { path, control })
    }

    /// The canonical path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Takes the lock in turn: a waiting writer blocks new readers, so that a stream of readers never starves
    /// it.
    pub(crate) fn lock(&self, how: FlockArg) -> Result<Flock<File>> {
        let turn = self.control.join(TURN);
        let turn = match lock(&turn, FlockArg::LockExclusive) {
            Err(Error::Io { error, .. })
                if matches!(
                    error.kind(),
                    io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem
                ) =>
            {
                lock(&turn, FlockArg::LockShared)?
            }
            turn => turn?,
        };
        let lock = lock(&self.control.join(LOCK), how);
        drop(turn);
        lock
    }
}

fn lock(path: &Path, how: FlockArg) -> Result<Flock<File>> {
    // Read permission suffices for reading: a shared lock needs no write access. An exclusive one does, on
    // NFS.
    let writes = matches!(how, FlockArg::LockExclusive);
    let mut waiting = OpenOptions::new().read(true).write(writes).open(path).at("open", path)?;
    loop {
        match Flock::lock(waiting, how) {
            Ok(lock) => return Ok(lock),
            Err((file, nix::errno::Errno::EINTR)) => waiting = file,
            Err((_, error)) => return Err(error).at("lock", path),
        }
    }
}

fn control_beside(path: &Path) -> Option<PathBuf> {
    let name = path.file_name()?.to_str()?;
    Some(path.with_file_name(format!("{INSIDE}-{name}")))
}

fn create_control(control: &Path) -> io::Result<()> {
    match fs::create_dir(control) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    // The lock marks the folder as complete, so it is created last.
    for name in [TURN, LOCK] {
        OpenOptions::new().write(true).create(true).truncate(false).open(control.join(name))?;
    }
    Ok(())
}
