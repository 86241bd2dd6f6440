//! What a statement is to do to each folder, found out under the lock; folders that are to be exchanged are
//! made ready.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::unistd::{AccessFlags, access};

use crate::local::journal::{Action, Exchange, Kind, Move, Replace, Seen, bytes};
use crate::local::mounts::{can_exchange, sync};
use crate::local::places::{Place, Places};
use crate::local::publish::{Merged, StagedFile};
use crate::local::{At, Error, Result};

/// Below a statement's folder, those made ready.
const READY: &str = "ready";

/// How often a folder is made ready again because others have changed the one it is to replace.
const TRIES: usize = 5;

/// Finds out what is to be done, folder by folder.
pub(crate) struct Preparing<'a> {
    pub places: Places,
    pub staging: &'a Path,
    /// What the present folder loses.
    pub goes: Goes<'a>,
    /// Whether folders can be exchanged, by where they are made ready.
    pub exchanges: HashMap<PathBuf, bool>,
    pub actions: Vec<Action>,
    /// Folders that cannot change in one step.
    pub one_by_one: Vec<PathBuf>,
}

/// Which files of a folder new ones come instead of.
#[derive(Debug, Clone)]
pub(crate) enum Goes<'a> {
    Nothing,
    All,
    Merged(Vec<&'a Merged>),
}

impl Goes<'_> {
    fn has(&self, entry: &Entry, folder: &Path) -> bool {
        match self {
            Self::Nothing => false,
            Self::All => is_replaced(entry, folder),
            Self::Merged(files) => {
                !entry.is_folder && files.iter().any(|file| file.name.as_bytes() == entry.name.as_bytes())
            }
        }
    }

    /// Errors: a file that is merged is not what it was when it was read.
    fn check(&self, folder: &Path) -> Result<()> {
        let Self::Merged(files) = self else { return Ok(()) };
        let is_same = |file: &&Merged| {
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

/// An entry of a folder of the table.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Entry {
    pub name: OsString,
    pub inode: u64,
    pub is_folder: bool,
}

impl Entry {
    /// Readers pass over it.
    pub fn is_hidden(&self) -> bool {
        self.name.as_bytes().starts_with(b".") || self.name.as_bytes().starts_with(b"_")
    }

    fn seen(&self) -> Seen {
        Seen { name: self.name.as_bytes().to_vec(), inode: self.inode }
    }
}

/// What is in a folder, in the order of names.
pub(crate) fn entries(folder: &Path) -> io::Result<Vec<Entry>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        match entry.metadata() {
            Ok(metadata) => found.push(Entry {
                name: entry.file_name(),
                inode: metadata.ino(),
                is_folder: metadata.is_dir(),
            }),
            // Gone meanwhile.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    found.sort();
    Ok(found)
}

impl Preparing<'_> {
    /// Adds what is to be done to `folder`, which gets `files`.
    pub(crate) fn folder(&mut self, folder: &str, files: &[&StagedFile]) -> Result<()> {
        let shown = self.places.folder(folder);
        let real = match fs::canonicalize(&shown) {
            Ok(real) => real,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.goes.check(&shown)?;
                return self.new_folder(folder, &shown, files);
            }
            Err(error) => return Err(error).at("open", &shown),
        };
        self.goes.check(&real)?;
        let present = entries(&real).at("list", &real)?;
        let replaced = present.iter().any(|entry| !entry.is_hidden() && self.goes.has(entry, &real));
        match (files, replaced) {
            ([], false) => return Ok(()),
            ([file], false) => {
                may_change(&real)?;
                self.actions.push(Kind::Move(Move::new(&file.staged, &real.join(&file.name))).into());
                return Ok(());
            }
            _ => {}
        }
        let exchange = match self.ready(folder, &real)? {
            // What is below a folder would be gone for a moment.
            _ if !matches!(self.goes, Goes::All)
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
                may_change(&real)?;
                let (replace, in_steps) = self.replace(&real, &present, files);
                if in_steps {
                    self.one_by_one.push(real);
                }
                self.actions.push(Kind::Replace(replace).into());
            }
        }
        Ok(())
    }

    /// A folder that is not there yet.
    fn new_folder(&mut self, folder: &str, shown: &Path, files: &[&StagedFile]) -> Result<()> {
        let mut above = shown;
        while let (false, Some(parent)) = (above.exists(), above.parent()) {
            above = parent;
        }
        may_change(above)?;
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

    /// Where folders can be made that are to take the place of `folder`, or to become it.
    fn base(&self, folder: &str) -> Result<PathBuf> {
        match self.places.place(folder)? {
            Place::Home => Ok(self.staging.to_path_buf()),
            Place::Beside(place) | Place::Inside(place) => {
                self.places.make(&place)?;
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

    /// Where a folder can be made ready to be exchanged with `real`, if that can be done.
    fn ready(&mut self, folder: &str, real: &Path) -> Result<Option<PathBuf>> {
        if let Place::Inside(_) = self.places.place(folder)? {
            return Ok(None);
        }
        let base = self.base(folder)?;
        // A folder cannot change names with one that is in it.
        if base.starts_with(real) || may_change(real.parent().unwrap_or(real)).is_err() {
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

    /// Makes a folder in `base` that has what `real` is to have. `None`: files that stay cannot be in both.
    fn exchange(&mut self, real: &Path, base: &Path, files: &[&StagedFile]) -> Result<Option<Exchange>> {
        let ready = self.make_ready(base)?;
        let mut present = entries(real).at("list", real)?;
        let mut steady = false;
        for _ in 0..TRIES {
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
            seen: self.gone(&present, real),
        }))
    }

    /// Has the files of `real` that stay in `ready`, too. False: they cannot be in both.
    fn link_all(&self, present: &[Entry], real: &Path, ready: &Path) -> Result<bool> {
        let stays = |entry: &&Entry| match self.goes {
            Goes::All => false,
            _ => !entry.is_folder && !self.goes.has(entry, real),
        };
        for entry in present.iter().filter(stays) {
            match fs::hard_link(real.join(&entry.name), ready.join(&entry.name)) {
                Ok(()) => {}
                // Gone meanwhile, as the next look will say.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => match error.raw_os_error().map(Errno::from_raw) {
                    // Of somebody else, or on a file system without them.
                    Some(Errno::EPERM | Errno::EACCES | Errno::EXDEV | Errno::EMLINK | Errno::EOPNOTSUPP) => {
                        return Ok(false);
                    }
                    _ => return Err(error).at("write", ready),
                },
            }
        }
        Ok(true)
    }

    /// What is to be removed from the folder when it has been exchanged.
    fn gone(&self, present: &[Entry], made_of: &Path) -> Vec<Seen> {
        let goes = |entry: &&Entry| match self.goes {
            Goes::All => is_replaced(entry, made_of),
            _ => !entry.is_folder,
        };
        present.iter().filter(goes).map(Entry::seen).collect()
    }

    /// Where nothing can be exchanged: what goes and what comes, and whether a reader can see some of it
    /// only.
    fn replace(&self, real: &Path, present: &[Entry], files: &[&StagedFile]) -> (Replace, bool) {
        let gone = || present.iter().filter(|entry| self.goes.has(entry, real));
        let mut removed: Vec<Seen> = gone().map(Entry::seen).collect();
        let mut files_gone = gone().filter(|entry| !entry.is_hidden() && !entry.is_folder).map(Entry::seen);
        let over = if files.is_empty() { None } else { files_gone.next_back() };
        if let Some(over) = &over {
            removed.retain(|seen| seen != over);
        }
        let in_steps = files.len() > 1 || !removed.is_empty();
        // The first new file takes the name of the last old one, so that a reader never sees both, nor none.
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

/// Whether an overwriting statement takes `entry` away: data, and checksums that Hadoop keeps of data
/// (`.name.crc`).
fn is_replaced(entry: &Entry, folder: &Path) -> bool {
    if !entry.is_hidden() {
        return true;
    }
    let name = entry.name.as_bytes();
    let of = name.strip_prefix(b".").and_then(|name| name.strip_suffix(b".crc"));
    of.is_some_and(|of| !of.starts_with(b".") && folder.join(crate::local::journal::path(of)).exists())
}

/// Errors: entries of `folder` cannot be changed, which is better known before anything is decided.
fn may_change(folder: &Path) -> Result<()> {
    access(folder, AccessFlags::W_OK | AccessFlags::X_OK).at("write to", folder)
}
