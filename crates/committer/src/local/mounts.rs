//! Mounts and file system capabilities of a folder.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, OFlag, RenameFlags, renameat2};

/// The mount ID of `folder`: renames and hard links cannot cross mounts, even of the same file system.
pub(crate) fn mount_of(folder: &Path) -> io::Result<u64> {
    // O_PATH needs no permission to list the folder.
    let open = OpenOptions::new().read(true).custom_flags(OFlag::O_PATH.bits()).open(folder)?;
    let told = fs::read_to_string(format!("/proc/self/fdinfo/{}", open.as_raw_fd()))?;
    let id = told.lines().find_map(|line| line.strip_prefix("mnt_id:")?.trim().parse().ok());
    id.ok_or_else(|| io::Error::other("the system does not tell the mount of a folder"))
}

/// Whether `folder`, a canonical path, is a mount point.
pub(crate) fn is_mount_point(folder: &Path) -> io::Result<bool> {
    match folder.parent() {
        Some(parent) => Ok(mount_of(parent)? != mount_of(folder)?),
        None => Ok(true),
    }
}

/// Atomically swaps the names of two folders or files.
pub(crate) fn exchange(a: &Path, b: &Path) -> io::Result<()> {
    renameat2(AT_FDCWD, a, AT_FDCWD, b, RenameFlags::RENAME_EXCHANGE).map_err(io::Error::from)
}

/// Whether folders in `place` can be exchanged; tries it with two temporary ones.
pub(crate) fn can_exchange(place: &Path) -> io::Result<bool> {
    let pair = [place.join("try-a"), place.join("try-b")];
    for folder in &pair {
        match fs::create_dir(folder) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
    }
    let done = exchange(&pair[0], &pair[1]);
    for folder in &pair {
        fs::remove_dir(folder)?;
    }
    match done {
        Ok(()) => Ok(true),
        Err(error) => match error.raw_os_error().map(Errno::from_raw) {
            Some(Errno::EINVAL | Errno::ENOSYS | Errno::EOPNOTSUPP) => Ok(false),
            _ => Err(error),
        },
    }
}

/// Makes the directory entries of a folder durable.
pub(crate) fn sync(folder: &Path) -> io::Result<()> {
    match File::open(folder)?.sync_all() {
        // Some file systems cannot sync a folder and need not.
        Err(error) if error.raw_os_error() == Some(Errno::EINVAL as i32) => Ok(()),
        other => other,
    }
}
