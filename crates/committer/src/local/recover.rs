//! Crash recovery: completes or rolls back statements of dead processes.

use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};

use crate::local::journal::Journal;
use crate::local::perform::{RETIRED, finish, perform};
use crate::local::root::Root;
use crate::local::staging_paths::{ELSEWHERE, FILES};
use crate::local::{At, Result};

/// In a statement's folder: its process keeps it locked while it lives.
pub(crate) const OWNER: &str = "owner";

/// No listing takes longer. Only names stay that long: the content is gone or in the new folder.
const LISTING_MAX: Duration = Duration::from_secs(60);

/// Whether a statement is committed and not completed. Call it under the lock, while nobody is completing it.
pub(crate) fn needs_recovery(control: &Path) -> Result<bool> {
    for staging in fs::read_dir(control).at("list", control)? {
        let staging = staging.at("list", control)?.path();
        if staging.is_dir() && Journal::read(&staging)?.is_some() {
            return Ok(true);
        }
    }
    Ok(false)
}

impl Root {
    /// Takes the exclusive lock, and completes or rolls back dead statements.
    pub(crate) fn clear(&self, step: &dyn Fn(&'static str)) -> Result<Flock<File>> {
        let lock = self.lock(FlockArg::LockExclusive)?;
        recover(&self.control, step)?;
        Ok(lock)
    }
}

/// Completes committed statements and removes the staged files of others, if their processes are dead. Call
/// it under the exclusive lock.
fn recover(control: &Path, step: &dyn Fn(&'static str)) -> Result<()> {
    for staging in fs::read_dir(control).at("list", control)? {
        let staging = staging.at("list", control)?.path();
        if !staging.is_dir() || is_alive(&staging)? {
            continue;
        }
        if let Some(journal) = Journal::read(&staging)? {
            perform(&journal, step)?;
            finish(&journal, &staging)?;
            step("completed");
        }
        remove_statement(&staging, None)?;
        step("swept");
    }
    Ok(())
}

/// Whether the process of a statement lives: it holds the lock of its owner file.
fn is_alive(staging: &Path) -> Result<bool> {
    let path = staging.join(OWNER);
    let file = match File::open(&path) {
        Ok(file) => file,
        // It died right after it began, or is about to end.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) if error.kind() == io::ErrorKind::StaleNetworkFileHandle && !path.exists() => {
            return Ok(false);
        }
        Err(error) => return Err(error).at("open", &path),
    };
    match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
        Ok(_) => Ok(false),
        Err((_, Errno::EWOULDBLOCK)) => Ok(true),
        // Removed concurrently on another host.
        Err((_, Errno::ESTALE)) if !path.exists() => Ok(false),
        Err((_, error)) => Err(error).at("lock", &path),
    }
}

/// Removes the folder of a completed or rolled-back statement; exchanged folders only after no reader can be
/// listing them.
///
/// `owner`: the locked owner file of a statement of this process. It stays locked until everything else is
/// removed, so that nobody takes the statement for dead meanwhile, and is closed before it is removed: NFS
/// and many FUSE file systems rename a file that is removed while open, and the folder would stay. After that
/// another process may remove the rest as well.
pub(crate) fn remove_statement(staging: &Path, owner: Option<Flock<File>>) -> Result<()> {
    let retired = staging.join(RETIRED);
    match fs::metadata(&retired).and_then(|metadata| metadata.modified()) {
        // A clock that was set back makes it older, or keeps it longer.
        Ok(at) if at.elapsed().is_ok_and(|age| age < LISTING_MAX) => remove(&staging.join(FILES)),
        Ok(_) => sweep(staging, owner),
        Err(error) if error.kind() == io::ErrorKind::NotFound => sweep(staging, owner),
        Err(error) => Err(error).at("open", &retired),
    }
}

/// Removes the staged files of a statement.
fn sweep(staging: &Path, owner: Option<Flock<File>>) -> Result<()> {
    let list = staging.join(ELSEWHERE);
    match fs::read_dir(&list) {
        Ok(links) => {
            for link in links {
                let link = link.at("list", &list)?.path();
                let place = fs::read_link(&link).at("read", &link)?;
                remove(&place)?;
            }
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error).at("list", &list),
    }
    if owner.is_some() {
        remove_all_but_owner(staging)?;
        drop(owner);
    }
    remove(staging)
}

fn remove_all_but_owner(staging: &Path) -> Result<()> {
    for entry in fs::read_dir(staging).at("list", staging)? {
        let entry = entry.at("list", staging)?;
        let path = entry.path();
        match entry.file_type().at("open", &path)?.is_dir() {
            true => remove(&path)?,
            false if entry.file_name() == OWNER => {}
            false => fs::remove_file(&path).at("remove", &path)?,
        }
    }
    Ok(())
}

fn remove(folder: &Path) -> Result<()> {
    // Ranks of an aborted statement may still be creating files.
    for _ in 0..10 {
        match fs::remove_dir_all(folder) {
            Ok(()) => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::NotFound && !folder.exists() => return Ok(()),
            Err(error)
                if matches!(error.kind(), io::ErrorKind::DirectoryNotEmpty | io::ErrorKind::NotFound) => {}
            Err(error) => return Err(error).at("remove", folder),
        }
    }
    fs::remove_dir_all(folder).at("remove", folder)
}
