//! Removal of a process's folder that is locked through a file inside it.

use std::fs::{self, File};
use std::io;
use std::path::Path;

/// Removes a folder. The file `name`, which holds the lock, goes last: until then no other process takes the
/// folder for abandoned, and one that does later still finds the file. The file is closed before it is
/// removed, since NFS renames a removed open file within its folder, and the folder would stay. A missing
/// folder is no error.
///
/// Errors: the first one. The other entries are removed all the same; the lock is kept if an entry other than
/// its own file could not be removed.
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
