//! Commits to folders of a local or shared file system.
//!
//! A table is a folder with table partitions as folders below it (`k=v/`). A statement stages its files in
//! hidden places ([`StagingPaths`]) and publishes them at its end ([`Statement::publish`]): each changed
//! folder goes from its old to its new content in one step of the file system. The actions are first written
//! to a [`journal`], so that the next writer or reader completes a statement whose process dies in the
//! middle.
//!
//! # Invariants
//! - Only the holder of the exclusive lock of a table's folder changes its visible files, or removes files
//!   that others have staged.
//! - Before the journal is complete nothing is visible; afterwards the statement is committed and will be
//!   completed.
//! - File names are unique to the statement: two statements never stage or publish the same one.
//! - An exchanged folder keeps its names for a minute, out of sight: a reader that is listing it at that
//!   moment sees all of them.
//! - Files that others have put into a folder stay, except those that an overwriting statement found there.
//!
//! # Order of calls
//! [`Root::create`], [`Root::begin`]; on every process that writes [`StagingPaths::of`] and
//! [`StagingPaths::staging_path`]; [`Statement::publish`]. Dropping an unpublished statement removes what it
//! has staged. A reader calls [`Root::find`] and lists while it holds the guard of [`Root::read`].
//!
//! # Threads
//! Everything blocks, on disk I/O and on locks of others. Nothing is collective.
//!
//! # Crash
//! See `docs/decisions/0016-hive-folders.md`.

mod entries;
pub mod journal;
mod mounts;
mod perform;
mod prepare;
mod publish;
mod readers;
mod recover;
mod root;
mod staging_paths;
mod statement;

pub use readers::ReadGuard;
pub use root::Root;
pub use staging_paths::{STAGED, StagingPaths};
pub use statement::Statement;

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use crate::work;

/// A staged file at a path from [`StagingPaths::staging_path`].
pub type StagedFile = work::StagedFile<PathBuf>;
/// A file that a statement merges with others of its folder.
pub type MergedFile = work::MergedFile<FileVersion>;
/// The changes that a statement commits.
pub type Work = work::Work<PathBuf, FileVersion>;
/// The result of publishing.
pub type Published = work::Published<PathBuf>;

/// A file of a folder, as it was when read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileVersion {
    pub name: String,
    pub bytes: u64,
    pub modified: SystemTime,
}

/// Why an operation failed, and on which path.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// Nothing is visible.
    Io { doing: &'static str, path: PathBuf, error: io::Error },
    /// The statement is committed, but a part of it may not be visible yet: the next user of the folder
    /// completes it.
    Unfinished { path: PathBuf, error: io::Error },
    /// Another statement has changed a file that this one was to merge. Nothing is visible.
    Conflict { path: PathBuf },
    /// The journal of a statement cannot be decoded.
    Journal { path: PathBuf },
}

pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// The error of the operating system, if there is one.
    pub fn io(&self) -> Option<&io::Error> {
        match self {
            Self::Io { error, .. } | Self::Unfinished { error, .. } => Some(error),
            Self::Conflict { .. } | Self::Journal { .. } => None,
        }
    }

    /// Whether it is certain that nothing is visible.
    pub fn is_undone(&self) -> bool {
        !matches!(self, Self::Unfinished { .. })
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

/// Adds the operation and path to errors of the operating system.
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
