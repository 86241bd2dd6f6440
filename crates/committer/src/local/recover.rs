//! Completes, or takes back, what statements have left whose processes died.

use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};

use crate::local::control::OWNER;
use crate::local::journal::Journal;
use crate::local::places::{ELSEWHERE, FILES};
use crate::local::publish::{finish, perform};
use crate::local::{At, Result};

/// In a statement's folder: it is done, and has left folders that somebody may be listing.
pub(crate) const RETIRED: &str = "retired";

/// Nobody lists a folder for longer. Names are all that stays so long: the content is gone, or in the new
/// folder.
const LISTING_MAX: Duration = Duration::from_secs(60);

/// Whether a statement has been decided and not been completed. To be asked under the lock, when nobody is
/// about to complete it.
pub(crate) fn is_left(control: &Path) -> Result<bool> {
    for staging in fs::read_dir(control).at("list", control)? {
        let staging = staging.at("list", control)?.path();
        if staging.is_dir() && Journal::read(&staging)?.is_some() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Completes decided statements and removes what others have staged, if their processes are dead. To be
/// called under the exclusive lock.
pub(crate) fn recover(control: &Path, step: &dyn Fn(&'static str)) -> Result<()> {
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
        leave(&staging, None)?;
        step("swept");
    }
    Ok(())
}

/// Whether the process of a statement lives: it has the file locked that is its own.
fn is_alive(staging: &Path) -> Result<bool> {
    let path = staging.join(OWNER);
    let file = match File::open(&path) {
        Ok(file) => file,
        // It died when it had just begun, or is about to be gone.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) if error.kind() == io::ErrorKind::StaleNetworkFileHandle && !path.exists() => {
            return Ok(false);
        }
        Err(error) => return Err(error).at("open", &path),
    };
    match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
        Ok(_) => Ok(false),
        Err((_, Errno::EWOULDBLOCK)) => Ok(true),
        // Removed meanwhile on another host.
        Err((_, Errno::ESTALE)) if !path.exists() => Ok(false),
        Err((_, error)) => Err(error).at("lock", &path),
    }
}

/// Removes what a statement has left that is done, or was given up: folders that it has exchanged only when
/// nobody lists them any more.
///
/// `owner`: the file of a statement of this process, locked. It stays so until all else is gone, so that
/// nobody takes the statement for dead that is still removing, and is closed before it is removed: on NFS,
/// and on many file systems in user space, a file that is removed while it is open gets another name in its
/// folder, and the folder stays. From then on another process may remove the rest as well.
pub(crate) fn leave(staging: &Path, owner: Option<Flock<File>>) -> Result<()> {
    let retired = staging.join(RETIRED);
    match fs::metadata(&retired).and_then(|metadata| metadata.modified()) {
        // A clock that was set back makes it older, or lets it stay for longer.
        Ok(at) if at.elapsed().is_ok_and(|age| age < LISTING_MAX) => remove(&staging.join(FILES)),
        Ok(_) => sweep(staging, owner),
        Err(error) if error.kind() == io::ErrorKind::NotFound => sweep(staging, owner),
        Err(error) => Err(error).at("open", &retired),
    }
}

/// Removes what a statement has staged.
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
    // Ranks of a statement that was given up may still be making files.
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
