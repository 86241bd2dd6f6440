//! The lock of a table's folder, and the statements that are about to write into it.
//!
//! Both are in a folder of their own: `.harrier-<name>` beside the table's, or `.harrier` in it where there
//! is no writing beside it or where something else is mounted. In it are `lock`, `turn` (who is next to have
//! it), and a folder for each statement, with a file `owner` that the statement's process has locked as long
//! as it lives.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

use nix::fcntl::{Flock, FlockArg};

use crate::local::mounts::is_mount_point;
use crate::local::publish::{Published, Work, publish};
use crate::local::recover::{is_left, leave, recover};
use crate::local::{At, Error, Result};

const LOCK: &str = "lock";
const TURN: &str = "turn";
pub(crate) const OWNER: &str = "owner";
const INSIDE: &str = ".harrier";

/// A table's folder.
#[derive(Debug, Clone)]
pub struct Root {
    /// Without links.
    pub(crate) path: PathBuf,
    control: PathBuf,
}

/// As long as it lives nothing is shown or taken away below the folder.
#[derive(Debug)]
pub struct Reading(#[allow(dead_code, reason = "unlocks when dropped")] Flock<File>);

/// A statement that writes. Dropped, it takes back what it has staged.
#[derive(Debug)]
pub struct Statement {
    root: Root,
    /// Empty: nothing is to be taken back.
    staging: PathBuf,
    owner: Option<Flock<File>>,
}

impl Root {
    /// The folder, if anybody has ever written into it by this crate. Who lists another one need not ask.
    pub fn find(folder: &Path) -> Result<Option<Self>> {
        let path = match fs::canonicalize(folder) {
            Ok(path) => path,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error).at("open", folder),
        };
        for control in [Some(path.join(INSIDE)), beside(&path)].into_iter().flatten() {
            if control.join(LOCK).exists() {
                return Ok(Some(Self { path, control }));
            }
        }
        Ok(None)
    }

    /// The folder, made if there is none, with its lock.
    pub fn create(folder: &Path) -> Result<Self> {
        fs::create_dir_all(folder).at("make", folder)?;
        if let Some(found) = Self::find(folder)? {
            return Ok(found);
        }
        let path = fs::canonicalize(folder).at("open", folder)?;
        let made = match (beside(&path), is_mount_point(&path).at("open", &path)?) {
            (Some(control), false) => make(&control).map(|()| control),
            _ => Err(io::ErrorKind::PermissionDenied.into()),
        };
        let control = match made {
            Ok(control) => control,
            Err(error) => match error.kind() {
                io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                    let inside = path.join(INSIDE);
                    make(&inside).at("make", &inside)?;
                    inside
                }
                _ => return Err(error).at("make", &path),
            },
        };
        Ok(Self { path, control })
    }

    /// Without links.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Waits until nobody shows anything, and keeps it so. What a statement has left unfinished is completed,
    /// if this process may.
    ///
    /// Errors: the lock cannot be opened, or what is left cannot be completed.
    pub fn read(&self) -> Result<Reading> {
        let lock = self.lock(FlockArg::LockShared)?;
        if !is_left(&self.control)? {
            return Ok(Reading(lock));
        }
        drop(lock);
        match self.clear(&|_| {}) {
            Ok(exclusive) => drop(exclusive),
            // Each folder by itself is whole all the same.
            Err(Error::Io { error, .. } | Error::Unfinished { error, .. })
                if matches!(
                    error.kind(),
                    io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem
                ) => {}
            Err(error) => return Err(error),
        }
        Ok(Reading(self.lock(FlockArg::LockShared)?))
    }

    /// Begins a statement called `id`, which nobody else is: a name that may be a part of a file's. Clears up
    /// after those that died.
    pub fn begin(&self, id: &str) -> Result<Statement> {
        self.begin_in_steps(id, &|_| {})
    }

    /// The same; calls `step` as [`Statement::publish_in_steps`] does.
    pub fn begin_in_steps(&self, id: &str, step: &dyn Fn(&'static str)) -> Result<Statement> {
        // Who clears up holds it exclusively, and so never sees a statement without an owner that is only
        // beginning.
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

    /// Takes the lock for writing, and completes or takes back what dead statements have left.
    pub(crate) fn clear(&self, step: &dyn Fn(&'static str)) -> Result<Flock<File>> {
        let lock = self.lock(FlockArg::LockExclusive)?;
        recover(&self.control, step)?;
        Ok(lock)
    }

    /// Waits its turn: who waits to write lets nobody in any more that wants to read, so that many who read
    /// never shut it out.
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
    // Who may read may read whole: a shared lock needs no writing. An exclusive one does, on NFS.
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

fn beside(path: &Path) -> Option<PathBuf> {
    let name = path.file_name()?.to_str()?;
    Some(path.with_file_name(format!("{INSIDE}-{name}")))
}

fn make(control: &Path) -> io::Result<()> {
    match fs::create_dir(control) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    // The lock is what the folder is known by: last.
    for name in [TURN, LOCK] {
        OpenOptions::new().write(true).create(true).truncate(false).open(control.join(name))?;
    }
    Ok(())
}

impl Statement {
    /// The statement's own folder, for [`crate::local::Places::of`] on every process that writes for it.
    pub fn staging(&self) -> &Path {
        &self.staging
    }

    /// Shows what `work` says. Either all of it happens, or nothing has (then this fails), unless
    /// [`Error::has_happened`].
    pub fn publish(self, work: &Work) -> Result<Published> {
        self.publish_in_steps(work, &|_| {})
    }

    /// The same; calls `step` with the name of what was done after each thing that a crash may come after.
    pub fn publish_in_steps(mut self, work: &Work, step: &dyn Fn(&'static str)) -> Result<Published> {
        let lock = self.root.clear(step)?;
        let published = publish(&self.root, &self.staging, work, step);
        if let Err(error) = &published
            && error.has_happened()
        {
            // What is left is to be completed, not taken back.
            self.staging = PathBuf::new();
        }
        // Under the lock, so that nobody looks whether the owner of the folder lives while it goes.
        self.leave();
        drop(lock);
        published
    }

    fn leave(&mut self) {
        let (staging, owner) = (std::mem::take(&mut self.staging), self.owner.take());
        if staging.as_os_str().is_empty() {
            return;
        }
        if let Err(error) = leave(&staging, owner) {
            tracing::warn!(%error, "files that were staged could not all be removed; the next statement will");
        }
    }
}

impl Drop for Statement {
    fn drop(&mut self) {
        self.leave();
    }
}
