//! Performs the actions of a journal, or those that a dead process has left.

use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::local::entries::entries;
use crate::local::journal::{Action, EntryRecord, Exchange, Journal, Kind, Move, Replace, path};
use crate::local::mounts::{exchange, sync};
use crate::local::{Error, Result};

/// In a statement's folder: it is completed, and has left folders that readers may be listing.
pub(crate) const RETIRED: &str = "retired";

/// Removes a performed journal first, so that nothing is repeated. Exchanged folders stay for readers that
/// are listing them.
pub(crate) fn finish(journal: &Journal, staging: &Path) -> Result<()> {
    let exchanged = |action: &Action| matches!(action.kind, Some(Kind::Exchange(_)));
    let finish = || -> io::Result<()> {
        if journal.actions.iter().any(exchanged) {
            fs::File::create(staging.join(RETIRED))?;
        }
        Journal::remove(staging)
    };
    finish().map_err(|error| Error::Unfinished { path: staging.to_path_buf(), error })
}

/// Performs a journal's actions, or those that remain.
pub(crate) fn perform(journal: &Journal, step: &dyn Fn(&'static str)) -> Result<()> {
    for Action { kind } in &journal.actions {
        let (done, at) = match kind {
            Some(Kind::Move(action)) => (rename(action, step), &action.to),
            Some(Kind::Place(action)) => (place(action, step), &action.to),
            Some(Kind::Exchange(action)) => (swap(action, step), &action.folder),
            Some(Kind::Replace(action)) => (replace(action, step), &action.folder),
            None => continue,
        };
        done.map_err(|error| Error::Unfinished { path: path(at), error })?;
    }
    Ok(())
}

/// Renames a file to its final name, unless that was done.
fn rename(action: &Move, step: &dyn Fn(&'static str)) -> io::Result<()> {
    let (from, to) = (path(&action.from), path(&action.to));
    let folder = to.parent().unwrap_or(&to);
    if !exists(&from)? {
        return sync(folder);
    }
    make_folders(folder)?;
    step("folder");
    fs::rename(&from, &to)?;
    step("renamed");
    sync(folder)
}

fn place(action: &Move, step: &dyn Fn(&'static str)) -> io::Result<()> {
    let (from, to) = (path(&action.from), path(&action.to));
    let above = to.parent().unwrap_or(&to);
    if !exists(&from)? {
        return sync(above);
    }
    make_folders(above)?;
    step("folder");
    match fs::rename(&from, &to) {
        Ok(()) => step("placed"),
        // Somebody else has created it concurrently.
        Err(error) if already_exists(&error) => {
            move_entries(&from, &to)?;
            fs::remove_dir(&from)?;
            sync(&to)?;
        }
        Err(error) => return Err(error),
    }
    sync(above)
}

fn swap(action: &Exchange, step: &dyn Fn(&'static str)) -> io::Result<()> {
    let (folder, ready) = (path(&action.folder), path(&action.ready));
    let is_new = |path: &Path| match fs::symlink_metadata(path) {
        Ok(metadata) => Ok(metadata.ino() == action.inode),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    };
    if is_new(&ready)? {
        exchange(&folder, &ready)?;
        step("exchanged");
    } else if !is_new(&folder)? {
        let text = "the folder that was made ready is gone, and so is the one it was to replace";
        return Err(io::Error::other(text));
    }
    if let Some(above) = folder.parent() {
        sync(above)?;
    }
    if exists(&ready)? {
        empty_old_folder(&ready, &folder, &action.old_entries)?;
        step("brought over");
    }
    sync(&folder)
}

/// Moves files that others have put into `old`, a folder exchanged for `new`, to `new`. Recorded entries keep
/// their names in `old`, because a reader may be listing it, but are truncated unless they are linked into
/// `new`, too.
fn empty_old_folder(old: &Path, new: &Path, seen: &[EntryRecord]) -> io::Result<()> {
    for entry in entries(old)? {
        let own = old.join(&entry.name);
        let known = seen.iter().find(|seen| seen.name == entry.name.as_bytes());
        let target = new.join(&entry.name);
        match known {
            Some(known) if known.inode == entry.inode => {
                let stays = fs::symlink_metadata(&target).is_ok_and(|there| there.ino() == entry.inode);
                match (stays, entry.is_folder) {
                    (true, _) => {}
                    (false, true) => truncate_all(&own)?,
                    (false, false) => truncate(&own)?,
                }
            }
            // Truncated before.
            Some(_) if fs::symlink_metadata(&own).is_ok_and(|there| there.is_file() && there.len() == 0) => {}
            _ => move_entry(&own, &target, entry.is_folder)?,
        }
    }
    Ok(())
}

/// Replaces a file by an empty one atomically.
fn truncate(file: &Path) -> io::Result<()> {
    let folder = file.parent().unwrap_or(file);
    let nothing = folder.with_file_name("nothing");
    fs::File::create(&nothing)?;
    fs::rename(&nothing, file)
}

fn truncate_all(folder: &Path) -> io::Result<()> {
    for entry in entries(folder)? {
        let own = folder.join(&entry.name);
        match entry.is_folder {
            true => truncate_all(&own)?,
            false => truncate(&own)?,
        }
    }
    Ok(())
}

/// Moves the entries of `from` to `to`.
fn move_entries(from: &Path, to: &Path) -> io::Result<()> {
    for entry in entries(from)? {
        move_entry(&from.join(&entry.name), &to.join(&entry.name), entry.is_folder)?;
    }
    Ok(())
}

fn move_entry(own: &Path, target: &Path, is_folder: bool) -> io::Result<()> {
    match fs::rename(own, target) {
        Ok(()) => Ok(()),
        // A folder of this name exists in both.
        Err(error) if is_folder && already_exists(&error) => {
            move_entries(own, target)?;
            fs::remove_dir(own)
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

fn replace(action: &Replace, step: &dyn Fn(&'static str)) -> io::Result<()> {
    let folder = path(&action.folder);
    for seen in &action.removed {
        let own = folder.join(path(&seen.name));
        match fs::symlink_metadata(&own) {
            Ok(metadata) if metadata.ino() == seen.inode && metadata.is_dir() => fs::remove_dir_all(&own)?,
            Ok(metadata) if metadata.ino() == seen.inode => fs::remove_file(&own)?,
            _ => {}
        }
        step("removed");
    }
    for action in &action.moves {
        rename(action, step)?;
    }
    sync(&folder)
}

/// Creates a folder and its ancestors durably.
fn make_folders(folder: &Path) -> io::Result<()> {
    if folder.is_dir() {
        return Ok(());
    }
    if let Some(above) = folder.parent() {
        make_folders(above)?;
        match fs::create_dir(folder) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        sync(above)?;
    }
    Ok(())
}

fn exists(path: &Path) -> io::Result<bool> {
    match fs::symlink_metadata(path) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// The target exists, or a folder to be removed is not empty.
fn already_exists(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::DirectoryNotEmpty | io::ErrorKind::AlreadyExists)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// File-by-file replacement keeps a file that somebody else has put in the place of a removed one.
    #[test]
    fn replacements_of_removed_files_stay() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str| folder.path().join(name);
        let removed = ["old", "replaced", "gone"].map(|name| {
            fs::write(file(name), name).unwrap();
            EntryRecord {
                name: name.as_bytes().to_vec(),
                inode: fs::symlink_metadata(file(name)).unwrap().ino(),
            }
        });
        fs::write(file("new"), "new").unwrap();
        fs::rename(file("new"), file("replaced")).unwrap();
        fs::remove_file(file("gone")).unwrap();
        let action = Replace {
            folder: crate::local::journal::bytes(folder.path()),
            removed: removed.to_vec(),
            moves: Vec::new(),
        };
        for _ in 0..2 {
            replace(&action, &|_| {}).unwrap();
            assert!(!file("old").exists() && !file("gone").exists());
            assert_eq!(fs::read_to_string(file("replaced")).unwrap(), "new");
        }
    }
}
