//! Folders of processes, which hold an exclusive lock on a file in them as long as they live, removed.

use std::fs::{self, File};
use std::io;
use std::path::Path;

/// Removes a folder, and in it last the file `name`, which `lock` is on, so that until then nobody takes the
/// folder for abandoned, and whoever does so later still finds that file. It is closed first: on NFS a file
/// that is removed while it is open gets another name in its folder, and the folder stays. That there is no
/// such folder any more is no error.
///
/// Errors: the first one. What else could be removed is; the lock is kept if anything but its own file could
/// not.
pub fn remove(folder: &Path, name: &str, lock: &mut Option<File>) -> io::Result<()> {
    let or_gone = |result: io::Result<()>| match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result,
    };
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) => return or_gone(Err(error)),
    };
    let mut removed = Ok(());
    for entry in entries.filter(|entry| !entry.as_ref().is_ok_and(|entry| entry.file_name() == name)) {
        let own = entry.and_then(|entry| match entry.file_type()?.is_dir() {
            true => fs::remove_dir_all(entry.path()),
            false => fs::remove_file(entry.path()),
        });
        removed = removed.and(or_gone(own));
    }
    removed?;
    drop(lock.take());
    or_gone(fs::remove_file(folder.join(name)))?;
    or_gone(fs::remove_dir(folder))
}
