//! Commits to folders of a local or shared file system.
//!
//! A table is a folder with table partitions as folders below it (`k=v/`). A statement stages its files where
//! nobody looks for them ([`Places`]), and shows them at its end ([`Statement::publish`]): each folder that
//! it changes takes one step of the file system from what it was to what it is to be. What is going to be
//! done is written down first ([`journal`]), so that a statement whose process dies in the middle is
//! completed by the next one that writes or reads here.
//!
//! # Invariants
//! - Only who holds the lock of a table's folder exclusively changes what is shown in it, or removes what
//!   others have staged.
//! - Before the journal is complete nothing has been shown; afterwards the statement has happened, and is
//!   completed.
//! - Names of files are the statement's own: two statements never stage or show the same one.
//! - A folder that was exchanged keeps its names for a minute, out of sight: whoever is listing it at that
//!   moment sees all of them.
//! - Files that others have put into a folder stay, except those that an overwriting statement found there.
//!
//! # Order of calls
//! [`Root::create`], [`Root::begin`]; on every process that writes [`Places::of`] and [`Places::staged`];
//! [`Statement::publish`]. Dropping a statement that was not published takes back what it has staged. A
//! reader calls [`Root::find`] and lists while it holds what [`Root::read`] gave it.
//!
//! # Threads
//! Everything blocks, on the disk and on locks that others hold. Nothing is collective.
//!
//! # Crash
//! See `docs/decisions/0016-hive-folders.md`.

mod control;
pub mod journal;
mod mounts;
mod places;
mod prepare;
mod publish;
mod recover;

pub use control::{Reading, Root, Statement};
pub use places::{Places, STAGED};
pub use publish::{Merged, Published, StagedFile, Work};

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// What went wrong, and where.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// Nothing has been shown.
    Io { doing: &'static str, path: PathBuf, error: io::Error },
    /// The statement is decided, and a part of it may not be shown yet: whoever uses the folder next
    /// completes it.
    Unfinished { path: PathBuf, error: io::Error },
    /// Another statement has changed what this one was to merge. Nothing has been shown.
    Conflict { path: PathBuf },
    /// The journal of a statement cannot be understood.
    Journal { path: PathBuf },
}

pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// What the operating system said, if it did.
    pub fn io(&self) -> Option<&io::Error> {
        match self {
            Self::Io { error, .. } | Self::Unfinished { error, .. } => Some(error),
            Self::Conflict { .. } | Self::Journal { .. } => None,
        }
    }

    /// Whether the statement has happened all the same.
    pub fn has_happened(&self) -> bool {
        matches!(self, Self::Unfinished { .. })
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io { doing, path, error } => write!(f, "could not {doing} \"{}\": {error}", path.display()),
            Self::Unfinished { path, error } => {
                write!(f, "could not show all files of the statement in \"{}\": {error}", path.display())
            }
            Self::Conflict { path } => write!(
                f,
                "could not serialize access due to concurrent update: another statement has changed \"{}\"",
                path.display()
            ),
            Self::Journal { path } => {
                write!(f, "the journal \"{}\" of another statement cannot be understood", path.display())
            }
        }
    }
}

impl std::error::Error for Error {}

/// Gives errors of the operating system their place.
trait At<T> {
    fn at(self, doing: &'static str, path: &Path) -> Result<T>;
}

impl<T> At<T> for io::Result<T> {
    fn at(self, doing: &'static str, path: &Path) -> Result<T> {
        self.map_err(|error| Error::Io { doing, path: path.to_path_buf(), error })
    }
}

impl<T> At<T> for nix::Result<T> {
    fn at(self, doing: &'static str, path: &Path) -> Result<T> {
        self.map_err(io::Error::from).at(doing, path)
    }
}
