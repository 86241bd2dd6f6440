//! The lock of a table's folder, and the statements that are writing to it.
//!
//! Both are in a control folder: `.harrier-<name>` beside the table's, or `.harrier` in it if the parent is
//! not writable or the table is a mount point. It holds `lock`, `turn` (a queue for the next holder), and a
//! folder for each statement, with a file `owner` that the statement's process keeps locked while it lives.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

use nix::fcntl::{Flock, FlockArg};

use crate::local::mounts::is_mount_point;
use crate::local::publish::publish;
use crate::local::recover::{needs_recovery, recover, remove_statement};
use crate::local::{At, Error, Published, Result, Work};

const LOCK: &str = "lock";
const TURN: &str = "turn";
pub(crate) const OWNER: &str = "owner";
const INSIDE: &str = ".harrier";

/// A table's folder.
#[derive(Debug, Clone)]
pub struct Root {
    /// Canonical: symbolic links resolved.
    pub(crate) path: PathBuf,
    control: PathBuf,
}

/// A shared lock: while it lives nothing is published or removed below the folder.
#[derive(Debug)]
pub struct ReadGuard(#[allow(dead_code, reason = "unlocks when dropped")] Flock<File>);

/// A writing statement. Dropping it removes what it has staged.
#[derive(Debug)]
pub struct Statement {
    root: Root,
    /// Empty: nothing to remove.
    staging: PathBuf,
    owner: Option<Flock<File>>,
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

    /// Waits until no statement is publishing, and holds off further ones. Completes committed statements of
    /// dead processes, if this process has permission.
    ///
    /// Errors: the lock cannot be opened, or recovery fails.
    pub fn read(&self) -> Result<ReadGuard> {
        let lock = self.lock(FlockArg::LockShared)?;
        if !needs_recovery(&self.control)? {
            return Ok(ReadGuard(lock));
        }
        drop(lock);
        match self.clear(&|_| {}) {
            Ok(exclusive) => drop(exclusive),
            // Each folder by itself is consistent all the same.
            Err(Error::Io { error, .. } | Error::Unfinished { error, .. })
                if matches!(
                    error.kind(),
                    io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem
                ) => {}
            Err(error) => return Err(error),
        }
        Ok(ReadGuard(self.lock(FlockArg::LockShared)?))
    }

    /// Begins a statement with the unique `id`, which must be valid in a file name. Cleans up after dead
    /// statements.
    pub fn begin(&self, id: &str) -> Result<Statement> {
        self.begin_in_steps(id, &|_| {})
    }

    /// The same; calls `step` as [`Statement::publish_in_steps`] does.
    pub fn begin_in_steps(&self, id: &str, step: &dyn Fn(&'static str)) -> Result<Statement> {
        // Cleanup holds the lock exclusively, so it never sees a statement that has no owner file only
        // because it is just beginning.
        drop(self.clear(step)?);
        let lock = self.lock(FlockArg::LockShared)?;
        let staging = self.control.join(id);
        fs::create_dir(&staging).at("make", &staging)?;
        let mut statement = Statement { root: self.clone(), staging, owner: None };
        let file = statement.staging.join(OWNER);
        let owner = File::create_new(&file).at("make", &file)?;
        let owner = Flock::lock(owner, FlockArg::LockExclusiveNonblock).map_err(|(_, error)| error);
        statement.owner = Some(owner.at("lock", &file)?);
        drop(lock);
        Ok(statement)
    }

    /// Takes the exclusive lock, and completes or rolls back dead statements.
    pub(crate) fn clear(&self, step: &dyn Fn(&'static str)) -> Result<Flock<File>> {
        let lock = self.lock(FlockArg::LockExclusive)?;
        recover(&self.control, step)?;
        Ok(lock)
    }

    /// Takes the lock in turn: a waiting writer blocks new readers, so that a stream of readers never starves
    /// it.
    fn lock(&self, how: FlockArg) -> Result<Flock<File>> {
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

impl Statement {
    /// The statement's staging folder, for [`crate::local::StagingPaths::of`] on every process that writes
    /// for it.
    pub fn staging(&self) -> &Path {
        &self.staging
    }

    /// Commits and publishes `work`. Either all of it happens or nothing (then this fails), unless
    /// [`Error::is_undone`] returns false.
    pub fn publish(self, work: &Work) -> Result<Published> {
        self.publish_in_steps(work, &|_| {})
    }

    /// The same; calls `step` with the name of each completed action after which a crash may come.
    pub fn publish_in_steps(mut self, work: &Work, step: &dyn Fn(&'static str)) -> Result<Published> {
        let lock = self.root.clear(step)?;
        let published = publish(&self.root, &self.staging, work, step);
        if let Err(error) = &published
            && !error.is_undone()
        {
            // The rest is to be completed, not rolled back.
            self.staging = PathBuf::new();
        }
        // Under the lock, so that nobody checks the owner file while the folder is being removed.
        self.clean_up();
        drop(lock);
        published
    }

    fn clean_up(&mut self) {
        let (staging, owner) = (std::mem::take(&mut self.staging), self.owner.take());
        if staging.as_os_str().is_empty() {
            return;
        }
        if let Err(error) = remove_statement(&staging, owner) {
            tracing::warn!(%error, "files that were staged could not all be removed; the next statement will");
        }
    }
}

impl Drop for Statement {
    fn drop(&mut self) {
        self.clean_up();
    }
}
