//! Shows what a statement has staged: prepares, writes the journal, does what is in it.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use crate::local::control::Root;
use crate::local::journal::{Action, Exchange, Journal, Kind, Move, Replace, Seen, path};
use crate::local::mounts::{exchange, sync};
use crate::local::places::Places;
use crate::local::prepare::{Goes, Preparing, entries};
use crate::local::recover::RETIRED;
use crate::local::{Error, Result};

/// A file that was staged, complete and on the disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StagedFile {
    /// Where [`Places::staged`] has put it.
    pub staged: PathBuf,
    /// Below the table's folder: `""`, or `k=v/…`.
    pub folder: String,
    /// As it is to be called there.
    pub name: String,
}

/// A file that others of its folder are merged with, as it was when it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Merged {
    /// Below the table's folder: `""`, or `k=v/…`.
    pub folder: String,
    pub name: String,
    pub bytes: u64,
    pub modified: SystemTime,
}

/// What a statement comes to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Work {
    pub files: Vec<StagedFile>,
    /// The folders get `files` instead of what they have.
    pub overwrite: bool,
    /// Folders that an overwriting statement has no files for, and empties.
    pub emptied: Vec<String>,
    /// The folders get `files` instead of these.
    pub merged: Vec<Merged>,
}

/// What a folder gets and loses.
#[derive(Default)]
struct Change<'a> {
    files: Vec<&'a StagedFile>,
    merged: Vec<&'a Merged>,
}

/// What there is to tell of a statement that was shown.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Published {
    /// Folders in which a reader could for a moment see some of the statement's files only.
    pub one_by_one: Vec<PathBuf>,
}

pub(crate) fn publish(
    root: &Root,
    staging: &Path,
    work: &Work,
    step: &dyn Fn(&'static str),
) -> Result<Published> {
    let mut folders: BTreeMap<&str, Change<'_>> = BTreeMap::new();
    for folder in &work.emptied {
        folders.entry(folder.trim_end_matches('/')).or_default();
    }
    for merged in &work.merged {
        folders.entry(merged.folder.trim_end_matches('/')).or_default().merged.push(merged);
    }
    for file in &work.files {
        folders.entry(file.folder.trim_end_matches('/')).or_default().files.push(file);
    }
    let places = Places::of(root.path(), staging)?;
    let mut preparing = Preparing {
        places,
        staging,
        goes: Goes::Nothing,
        exchanges: HashMap::new(),
        actions: Vec::new(),
        one_by_one: Vec::new(),
    };
    for (folder, change) in folders {
        preparing.goes = match (work.overwrite, change.merged.is_empty()) {
            (true, _) => Goes::All,
            (false, true) => Goes::Nothing,
            (false, false) => Goes::Merged(change.merged),
        };
        preparing.folder(folder, &change.files)?;
        step("prepared");
    }
    let Preparing { actions, one_by_one, .. } = preparing;
    if actions.is_empty() {
        return Ok(Published::default());
    }
    let journal = Journal { actions };
    journal.write(staging)?;
    step("decided");
    perform(&journal, step)?;
    finish(&journal, staging)?;
    step("forgotten");
    Ok(Published { one_by_one })
}

/// The journal is done: it goes first, so that nothing is done again. Folders that were exchanged stay for
/// who is listing them.
pub(crate) fn finish(journal: &Journal, staging: &Path) -> Result<()> {
    let exchanged = |action: &Action| matches!(action.kind, Some(Kind::Exchange(_)));
    let finish = || -> io::Result<()> {
        if journal.actions.iter().any(exchanged) {
            fs::File::create(staging.join(RETIRED))?;
        }
        Journal::forget(staging)
    };
    finish().map_err(|error| Error::Unfinished { path: staging.to_path_buf(), error })
}

/// Does what is in a journal, or what is left of it.
pub(crate) fn perform(journal: &Journal, step: &dyn Fn(&'static str)) -> Result<()> {
    for Action { kind } in &journal.actions {
        let (done, at) = match kind {
            Some(Kind::Move(one)) => (rename(one, step), &one.to),
            Some(Kind::Place(one)) => (place(one, step), &one.to),
            Some(Kind::Exchange(one)) => (swap(one, step), &one.folder),
            Some(Kind::Replace(one)) => (replace(one, step), &one.folder),
            None => continue,
        };
        done.map_err(|error| Error::Unfinished { path: path(at), error })?;
    }
    Ok(())
}

/// Makes a file's name its own, unless that was done.
fn rename(one: &Move, step: &dyn Fn(&'static str)) -> io::Result<()> {
    let (from, to) = (path(&one.from), path(&one.to));
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

fn place(one: &Move, step: &dyn Fn(&'static str)) -> io::Result<()> {
    let (from, to) = (path(&one.from), path(&one.to));
    let above = to.parent().unwrap_or(&to);
    if !exists(&from)? {
        return sync(above);
    }
    make_folders(above)?;
    step("folder");
    match fs::rename(&from, &to) {
        Ok(()) => step("placed"),
        // Somebody else has made it meanwhile.
        Err(error) if is_there(&error) => {
            bring_over(&from, &to)?;
            fs::remove_dir(&from)?;
            sync(&to)?;
        }
        Err(error) => return Err(error),
    }
    sync(above)
}

fn swap(one: &Exchange, step: &dyn Fn(&'static str)) -> io::Result<()> {
    let (folder, ready) = (path(&one.folder), path(&one.ready));
    let is_new = |path: &Path| match fs::symlink_metadata(path) {
        Ok(metadata) => Ok(metadata.ino() == one.inode),
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
        hollow(&ready, &folder, &one.seen)?;
        step("brought over");
    }
    sync(&folder)
}

/// Takes what others have put into `old`, a folder that `new` was exchanged for, into that. What was seen
/// keeps its name in `old`, because somebody may be listing it at this moment, but not its content, unless
/// that is in `new`, too.
fn hollow(old: &Path, new: &Path, seen: &[Seen]) -> io::Result<()> {
    for entry in entries(old)? {
        let own = old.join(&entry.name);
        let known = seen.iter().find(|seen| seen.name == entry.name.as_bytes());
        let target = new.join(&entry.name);
        match known {
            Some(known) if known.inode == entry.inode => {
                let stays = fs::symlink_metadata(&target).is_ok_and(|there| there.ino() == entry.inode);
                match (stays, entry.is_folder) {
                    (true, _) => {}
                    (false, true) => empty_all(&own)?,
                    (false, false) => empty(&own)?,
                }
            }
            // Emptied before.
            Some(_) if fs::symlink_metadata(&own).is_ok_and(|there| there.is_file() && there.len() == 0) => {}
            _ => bring(&own, &target, entry.is_folder)?,
        }
    }
    Ok(())
}

/// Puts an empty file in the place of one; the name is there all the time.
fn empty(file: &Path) -> io::Result<()> {
    let folder = file.parent().unwrap_or(file);
    let nothing = folder.with_file_name("nothing");
    fs::File::create(&nothing)?;
    fs::rename(&nothing, file)
}

fn empty_all(folder: &Path) -> io::Result<()> {
    for entry in entries(folder)? {
        let own = folder.join(&entry.name);
        match entry.is_folder {
            true => empty_all(&own)?,
            false => empty(&own)?,
        }
    }
    Ok(())
}

/// Takes what is in `from` into `to`.
fn bring_over(from: &Path, to: &Path) -> io::Result<()> {
    for entry in entries(from)? {
        bring(&from.join(&entry.name), &to.join(&entry.name), entry.is_folder)?;
    }
    Ok(())
}

fn bring(own: &Path, target: &Path, is_folder: bool) -> io::Result<()> {
    match fs::rename(own, target) {
        Ok(()) => Ok(()),
        // A folder of this name has been made in both.
        Err(error) if is_folder && is_there(&error) => {
            bring_over(own, target)?;
            fs::remove_dir(own)
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

fn replace(one: &Replace, step: &dyn Fn(&'static str)) -> io::Result<()> {
    let folder = path(&one.folder);
    for seen in &one.removed {
        let own = folder.join(path(&seen.name));
        match fs::symlink_metadata(&own) {
            Ok(metadata) if metadata.ino() == seen.inode && metadata.is_dir() => fs::remove_dir_all(&own)?,
            Ok(metadata) if metadata.ino() == seen.inode => fs::remove_file(&own)?,
            _ => {}
        }
        step("removed");
    }
    for one in &one.moves {
        rename(one, step)?;
    }
    sync(&folder)
}

/// Makes a folder and those above it, so that they stay.
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

/// That something is where a folder was to be put, or in one that was to be removed.
fn is_there(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::DirectoryNotEmpty | io::ErrorKind::AlreadyExists)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of a folder that cannot be exchanged, files go one by one; one that somebody else has put in the place
    /// of another since stays.
    #[test]
    fn what_was_put_in_the_place_of_a_removed_file_stays() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str| folder.path().join(name);
        let removed = ["old", "replaced", "gone"].map(|name| {
            fs::write(file(name), name).unwrap();
            Seen { name: name.as_bytes().to_vec(), inode: fs::symlink_metadata(file(name)).unwrap().ino() }
        });
        fs::write(file("new"), "new").unwrap();
        fs::rename(file("new"), file("replaced")).unwrap();
        fs::remove_file(file("gone")).unwrap();
        let one = Replace {
            folder: crate::local::journal::bytes(folder.path()),
            removed: removed.to_vec(),
            moves: Vec::new(),
        };
        for _ in 0..2 {
            replace(&one, &|_| {}).unwrap();
            assert!(!file("old").exists() && !file("gone").exists());
            assert_eq!(fs::read_to_string(file("replaced")).unwrap(), "new");
        }
    }
}
