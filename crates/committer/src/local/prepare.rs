//! Plans a statement's actions on each folder, under the lock, and prepares the folders for exchange.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::unistd::{AccessFlags, access};

use crate::local::entries::{Entry, entries};
use crate::local::journal::{Action, EntryRecord, Exchange, Kind, Move, Replace, bytes};
use crate::local::mounts::{can_exchange, sync};
use crate::local::staging_paths::{Place, StagingPaths};
use crate::local::{At, Error, FileVersion, Result, StagedFile};
use crate::work::Replacement;

/// In a statement's folder: the prepared folders.
const READY: &str = "ready";

/// Attempts to prepare a folder that others keep changing.
const ATTEMPTS_MAX: usize = 5;

/// The planner of a statement's actions, folder by folder.
pub(crate) struct ChangePlanner<'a> {
    pub paths: StagingPaths,
    pub staging: &'a Path,
    /// The files to remove from the present folder.
    pub replacement: Replacement<'a, FileVersion>,
    /// Whether folders can be exchanged, by staging place.
    pub exchanges: HashMap<PathBuf, bool>,
    pub actions: Vec<Action>,
    /// Folders that cannot be changed atomically.
    pub non_atomic_folders: Vec<PathBuf>,
}

impl Replacement<'_, FileVersion> {
    fn contains(&self, entry: &Entry, folder: &Path) -> bool {
        match self {
            Self::None => false,
            Self::All => is_replaced(entry, folder),
            Self::Files(files) => {
                !entry.is_folder && files.iter().any(|file| file.name.as_bytes() == entry.name.as_bytes())
            }
        }
    }

    /// Errors: a file to be merged has changed since it was read.
    fn check(&self, folder: &Path) -> Result<()> {
        let Self::Files(files) = self else { return Ok(()) };
        let is_same = |file: &&FileVersion| {
            fs::metadata(folder.join(&file.name)).is_ok_and(|now| {
                now.len() == file.bytes && now.modified().is_ok_and(|modified| modified == file.modified)
            })
        };
        match files.iter().all(is_same) {
            true => Ok(()),
            false => Err(Error::Conflict { path: folder.to_path_buf() }),
        }
    }
}

impl ChangePlanner<'_> {
    /// Plans the actions for `folder`, which gets `files`.
    pub(crate) fn folder(&mut self, folder: &str, files: &[&StagedFile]) -> Result<()> {
        let shown = self.paths.folder(folder);
        let real = match fs::canonicalize(&shown) {
            Ok(real) => real,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.replacement.check(&shown)?;
                return self.new_folder(folder, &shown, files);
            }
            Err(error) => return Err(error).at("open", &shown),
        };
        self.replacement.check(&real)?;
        let present = entries(&real).at("list", &real)?;
        let replaced =
            present.iter().any(|entry| !entry.is_hidden() && self.replacement.contains(entry, &real));
        match (files, replaced) {
            ([], false) => return Ok(()),
            ([file], false) => {
                check_writable(&real)?;
                self.actions.push(Kind::Move(Move::new(&file.staged, &real.join(&file.name))).into());
                return Ok(());
            }
            _ => {}
        }
        let exchange = match self.ready(folder, &real)? {
            // Subfolders would disappear for a moment.
            _ if !matches!(self.replacement, Replacement::All)
                && present.iter().any(|entry| entry.is_folder && !entry.is_hidden()) =>
            {
                None
            }
            Some(ready) => self.exchange(&real, &ready, files)?,
            None => None,
        };
        match exchange {
            Some(exchange) => self.actions.push(Kind::Exchange(exchange).into()),
            None => {
                check_writable(&real)?;
                let (replace, in_steps) = self.replace(&real, &present, files);
                if in_steps {
                    self.non_atomic_folders.push(real);
                }
                self.actions.push(Kind::Replace(replace).into());
            }
        }
        Ok(())
    }

    /// Plans the creation of a folder.
    fn new_folder(&mut self, folder: &str, shown: &Path, files: &[&StagedFile]) -> Result<()> {
        let mut above = shown;
        while let (false, Some(parent)) = (above.exists(), above.parent()) {
            above = parent;
        }
        check_writable(above)?;
        match files {
            [] => {}
            [file] => {
                self.actions.push(Kind::Move(Move::new(&file.staged, &shown.join(&file.name))).into());
            }
            files => {
                let base = self.base(folder)?;
                let ready = self.make_ready(&base)?;
                for file in files {
                    let to = ready.join(&file.name);
                    fs::rename(&file.staged, &to).at("write", &to)?;
                }
                sync(&ready).at("write", &ready)?;
                self.actions.push(Kind::Place(Move::new(&ready, shown)).into());
            }
        }
        Ok(())
    }

    /// The staging place for a folder that will be exchanged with `folder`, or renamed to it.
    fn base(&self, folder: &str) -> Result<PathBuf> {
        match self.paths.place(folder)? {
            Place::Home => Ok(self.staging.to_path_buf()),
            Place::Beside(place) | Place::Inside(place) => {
                self.paths.make(&place)?;
                Ok(place)
            }
        }
    }

    fn make_ready(&self, base: &Path) -> Result<PathBuf> {
        let all = base.join(READY);
        match fs::create_dir(&all) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error).at("make", &all),
            _ => {}
        }
        let ready = all.join(self.actions.len().to_string());
        fs::create_dir(&ready).at("make", &ready)?;
        Ok(ready)
    }

    /// The staging place for a folder to exchange with `real`, if that is possible.
    fn ready(&mut self, folder: &str, real: &Path) -> Result<Option<PathBuf>> {
        if let Place::Inside(_) = self.paths.place(folder)? {
            return Ok(None);
        }
        let base = self.base(folder)?;
        // A folder cannot be exchanged with one inside it.
        if base.starts_with(real) || check_writable(real.parent().unwrap_or(real)).is_err() {
            return Ok(None);
        }
        let can = match self.exchanges.get(&base) {
            Some(can) => *can,
            None => {
                let can = can_exchange(&base).at("make", &base)?;
                self.exchanges.insert(base.clone(), can);
                can
            }
        };
        Ok(can.then_some(base))
    }

    /// Prepares a folder in `base` with the new content of `real`. `None`: files that stay cannot be
    /// hard-linked.
    fn exchange(&mut self, real: &Path, base: &Path, files: &[&StagedFile]) -> Result<Option<Exchange>> {
        let ready = self.make_ready(base)?;
        let mut present = entries(real).at("list", real)?;
        let mut steady = false;
        for _ in 0..ATTEMPTS_MAX {
            let linked = self.link_all(&present, real, &ready)?;
            let now = entries(real).at("list", real)?;
            steady = now == present;
            if steady || !linked {
                steady &= linked;
                break;
            }
            present = now;
            fs::remove_dir_all(&ready).and_then(|()| fs::create_dir(&ready)).at("clear", &ready)?;
        }
        if !steady {
            fs::remove_dir_all(&ready).at("clear", &ready)?;
            return Ok(None);
        }
        let mode = fs::metadata(real).at("open", real)?.permissions();
        fs::set_permissions(&ready, mode).at("write", &ready)?;
        for file in files {
            let to = ready.join(&file.name);
            fs::rename(&file.staged, &to).at("write", &to)?;
        }
        sync(&ready).at("write", &ready)?;
        let inode = fs::metadata(&ready).at("open", &ready)?.ino();
        Ok(Some(Exchange {
            folder: bytes(real),
            ready: bytes(&ready),
            inode,
            old_entries: self.old_entries(&present, real),
        }))
    }

    /// Hard-links the files of `real` that stay into `ready`. False: they cannot be linked.
    fn link_all(&self, present: &[Entry], real: &Path, ready: &Path) -> Result<bool> {
        let stays = |entry: &&Entry| match self.replacement {
            Replacement::All => false,
            _ => !entry.is_folder && !self.replacement.contains(entry, real),
        };
        for entry in present.iter().filter(stays) {
            match fs::hard_link(real.join(&entry.name), ready.join(&entry.name)) {
                Ok(()) => {}
                // Removed concurrently; the next listing will show it.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => match error.raw_os_error().map(Errno::from_raw) {
                    // They belong to another user, or the file system has no hard links.
                    Some(Errno::EPERM | Errno::EACCES | Errno::EXDEV | Errno::EMLINK | Errno::EOPNOTSUPP) => {
                        return Ok(false);
                    }
                    _ => return Err(error).at("write", ready),
                },
            }
        }
        Ok(true)
    }

    /// The entries to remove from the old folder after the exchange.
    fn old_entries(&self, present: &[Entry], made_of: &Path) -> Vec<EntryRecord> {
        let replaced = |entry: &&Entry| match self.replacement {
            Replacement::All => is_replaced(entry, made_of),
            _ => !entry.is_folder,
        };
        present.iter().filter(replaced).map(Entry::record).collect()
    }

    /// Plans the file-by-file replacement of a folder that cannot be exchanged. True: a reader may see an
    /// intermediate state.
    fn replace(&self, real: &Path, present: &[Entry], files: &[&StagedFile]) -> (Replace, bool) {
        let gone = || present.iter().filter(|entry| self.replacement.contains(entry, real));
        let mut removed: Vec<EntryRecord> = gone().map(Entry::record).collect();
        let mut files_gone = gone().filter(|entry| !entry.is_hidden() && !entry.is_folder).map(Entry::record);
        let over = if files.is_empty() { None } else { files_gone.next_back() };
        if let Some(over) = &over {
            removed.retain(|seen| seen != over);
        }
        let in_steps = files.len() > 1 || !removed.is_empty();
        // The first new file takes the name of the last old one, so that a reader never sees both or neither.
        let mut moves = Vec::with_capacity(files.len());
        for (at, file) in files.iter().enumerate() {
            let to = match (&over, at) {
                (Some(over), 0) => real.join(crate::local::journal::path(&over.name)),
                _ => real.join(&file.name),
            };
            moves.push(Move::new(&file.staged, &to));
        }
        (Replace { folder: bytes(real), removed, moves }, in_steps)
    }
}

/// Whether an overwriting statement removes `entry`: data, and Hadoop's checksum files (`.name.crc`).
fn is_replaced(entry: &Entry, folder: &Path) -> bool {
    if !entry.is_hidden() {
        return true;
    }
    let name = entry.name.as_bytes();
    let of = name.strip_prefix(b".").and_then(|name| name.strip_suffix(b".crc"));
    of.is_some_and(|of| !of.starts_with(b".") && folder.join(crate::local::journal::path(of)).exists())
}

/// Errors: entries of `folder` cannot be changed. Checked before anything is committed.
fn check_writable(folder: &Path) -> Result<()> {
    access(folder, AccessFlags::W_OK | AccessFlags::X_OK).at("write to", folder)
}
