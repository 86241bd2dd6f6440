//! Write-ahead journal of a statement's actions on folders. Every action is idempotent.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use prost::Message;

use crate::local::mounts::sync;
use crate::local::{At, Error, Result};

const JOURNAL: &str = "journal";
const UNFINISHED: &str = "journal.unfinished";

#[derive(Clone, PartialEq, Message)]
pub struct Journal {
    #[prost(message, repeated, tag = "1")]
    pub actions: Vec<Action>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Action {
    #[prost(oneof = "Kind", tags = "1, 2, 3, 4")]
    pub kind: Option<Kind>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
pub enum Kind {
    #[prost(message, tag = "1")]
    Move(Move),
    #[prost(message, tag = "2")]
    Place(Move),
    #[prost(message, tag = "3")]
    Exchange(Exchange),
    #[prost(message, tag = "4")]
    Replace(Replace),
}

/// Renames a file, or a folder that becomes one of the table. Paths are bytes: names need not be UTF-8.
#[derive(Clone, PartialEq, Message)]
pub struct Move {
    #[prost(bytes, tag = "1")]
    pub from: Vec<u8>,
    #[prost(bytes, tag = "2")]
    pub to: Vec<u8>,
}

/// Exchanges a folder with a prepared one; then the old one is emptied.
#[derive(Clone, PartialEq, Message)]
pub struct Exchange {
    #[prost(bytes, tag = "1")]
    pub folder: Vec<u8>,
    #[prost(bytes, tag = "2")]
    pub ready: Vec<u8>,
    /// Inode of the prepared folder: tells whether the exchange has happened.
    #[prost(uint64, tag = "3")]
    pub inode: u64,
    /// Entries of the old folder that are replaced, or are linked into the new one, too. All others came
    /// later, and stay.
    #[prost(message, repeated, tag = "4")]
    pub old_entries: Vec<EntryRecord>,
}

#[derive(Clone, PartialEq, Message)]
pub struct EntryRecord {
    #[prost(bytes, tag = "1")]
    pub name: Vec<u8>,
    #[prost(uint64, tag = "2")]
    pub inode: u64,
}

/// Removes files of a folder that cannot be exchanged one by one, then adds others one by one.
#[derive(Clone, PartialEq, Message)]
pub struct Replace {
    #[prost(bytes, tag = "1")]
    pub folder: Vec<u8>,
    #[prost(message, repeated, tag = "2")]
    pub removed: Vec<EntryRecord>,
    #[prost(message, repeated, tag = "3")]
    pub moves: Vec<Move>,
}

impl From<Kind> for Action {
    fn from(kind: Kind) -> Self {
        Self { kind: Some(kind) }
    }
}

impl Move {
    pub fn new(from: &Path, to: &Path) -> Self {
        Self { from: bytes(from), to: bytes(to) }
    }
}

pub(crate) fn bytes(path: &Path) -> Vec<u8> {
    path.as_os_str().as_bytes().to_vec()
}

pub(crate) fn path(bytes: &[u8]) -> PathBuf {
    PathBuf::from(std::ffi::OsString::from_vec(bytes.to_vec()))
}

impl Journal {
    /// Writes the journal into a statement's folder. On success it is complete and durable; on failure it
    /// does not exist.
    pub(crate) fn write(&self, staging: &Path) -> Result<()> {
        let unfinished = staging.join(UNFINISHED);
        let write = || -> io::Result<()> {
            let mut file = File::create(&unfinished)?;
            file.write_all(&self.encode_to_vec())?;
            file.sync_all()
        };
        write().at("write", &unfinished)?;
        let complete = staging.join(JOURNAL);
        fs::rename(&unfinished, &complete).at("write", &complete)?;
        // If its directory entry is not durable, nothing may depend on it.
        sync(staging).or_else(|error| fs::remove_file(&complete).and(Err(error))).at("write", &complete)
    }

    /// Reads the journal of a statement, if it is complete.
    pub(crate) fn read(staging: &Path) -> Result<Option<Self>> {
        let file = staging.join(JOURNAL);
        match fs::read(&file) {
            Ok(bytes) => Self::decode(&bytes[..]).map(Some).map_err(|_| Error::Journal { path: file }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error).at("read", &file),
        }
    }

    /// Removes the journal of a completed statement.
    pub(crate) fn remove(staging: &Path) -> io::Result<()> {
        fs::remove_file(staging.join(JOURNAL))
    }
}
