//! Commits to folders on S3 and HDFS.
//!
//! The same contract as that of [`crate::local`] without folders to exchange: a statement writes one file for
//! each folder that it changes, because one file is replaced atomically. Files are staged
//! ([`StagedPlacement`]) and published when all are complete ([`Statement::publish`]), under a lock and after
//! a journal.
//!
//! # Invariants
//! - Only the holder of a table's lock publishes files, removes published ones, or rolls back staged files of
//!   others.
//! - Before the journal exists nothing is visible; afterwards the statement is committed and will be
//!   completed.
//! - An overwriting file takes the name of one that it replaces, if there is any: a reader never sees both
//!   old and new, nor neither.
//! - A holder that has not reached the store for half a lease stops acting under its lock.
//!
//! # Order of calls
//! [`Root::open`], [`Root::begin`]; on every process that writes [`StagedPlacement::begin`];
//! [`Statement::publish`], or [`Statement::abort`]. A reader lists between [`Root::poll_until_settled`] and
//! [`Root::is_unchanged`].
//!
//! # Cancellation
//! Run publishing to its end: if it is dropped on the way, the next statement completes or rolls it back when
//! the lease has expired.
//!
//! # Crash
//! See `docs/decisions/0021-hive-folders-on-stores.md`.

pub mod journal;
mod lock;
mod perform;
mod periodic_task;
mod publish;
mod readers;
mod recover;
mod root;
mod staged_placement;
mod statement;

pub use harrier_storage::{Options, Staged, StagedWriter};
pub use readers::LockState;
pub use root::Root;
pub use staged_placement::{ReplacedFiles, StagedPlacement};
pub use statement::{Statement, WriteCancelFlag};

use std::fmt;

use object_store::ObjectMeta;

use crate::work;

/// A staged file as [`StagedWriter::finish`] returns it.
pub type StagedFile = work::StagedFile<Staged>;
/// A file that a statement merges with others of its folder, as it was when read.
pub type MergedFile = work::MergedFile<ObjectMeta>;
/// The changes that a statement commits. No folder has more than one of the files.
pub type Work = work::Work<Staged, ObjectMeta>;
/// The result of publishing.
pub type Published = work::Published<String>;

/// Callback with the name of each completed action after which a crash may come.
pub type Step<'a> = &'a (dyn Fn(&'static str) + Send + Sync);

/// Why an operation failed, and on which path.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// Nothing is visible.
    Store { doing: &'static str, path: String, error: object_store::Error },
    /// The statement is committed, but a part of it may not be visible yet: the next user of the folder
    /// completes it.
    Unfinished { path: String, error: object_store::Error },
    /// Unknown commit outcome; the next user of the folder resolves it.
    Unknown { path: String, error: object_store::Error },
    /// Another statement has changed a file that this one was to replace. Nothing is visible.
    Conflict { path: String },
    /// The lease expired: others took this statement for dead, and rolled back its staged files or took its
    /// lock. Nothing is visible.
    LeaseExpired { path: String },
    /// The statement was canceled. Nothing is visible.
    Canceled { path: String },
    /// The store has no conditional puts, so it cannot hold a lock.
    NoConditions { path: String },
    /// The journal of a statement cannot be decoded.
    Journal { path: String },
}

pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// The error of the store, if there is one.
    pub fn store(&self) -> Option<&object_store::Error> {
        match self {
            Self::Store { error, .. } | Self::Unfinished { error, .. } | Self::Unknown { error, .. } => {
                Some(error)
            }
            _ => None,
        }
    }

    /// The same error, for a statement that failed to complete another one.
    fn for_other_statement(self) -> Self {
        match self {
            Self::Unfinished { path, error } | Self::Unknown { path, error } => {
                Self::Store { doing: "complete what another statement has left in", path, error }
            }
            other => other,
        }
    }

    /// Whether the store denies permission.
    fn is_denied(&self) -> bool {
        use object_store::Error as E;
        matches!(self.store(), Some(E::PermissionDenied { .. } | E::Unauthenticated { .. }))
    }

    /// Whether it is certain that nothing is visible.
    pub fn is_undone(&self) -> bool {
        !matches!(self, Self::Unfinished { .. } | Self::Unknown { .. })
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Store { doing, path, error } => write!(f, "could not {doing} \"{path}\": {error}"),
            Self::Unfinished { path, error } => {
                write!(f, "could not show all files of the statement, such as \"{path}\": {error}")
            }
            Self::Unknown { path, error } => {
                write!(f, "could not find out whether \"{path}\" was written: {error}")
            }
            Self::Conflict { path } => {
                write!(
                    f,
                    "could not serialize access due to concurrent update: another statement has changed \"{path}\""
                )
            }
            Self::LeaseExpired { path } => write!(f, "the statement was taken for dead in \"{path}\""),
            Self::Canceled { path } => write!(f, "the statement was given up in \"{path}\""),
            Self::NoConditions { path } => {
                write!(f, "statements cannot write to \"{path}\" whole: its store has no conditional puts")
            }
            Self::Journal { path } => {
                write!(f, "the journal \"{path}\" of another statement cannot be understood")
            }
        }
    }
}

impl std::error::Error for Error {}

/// Adds the operation and path to errors of the store.
trait At<T> {
    fn at(self, doing: &'static str, path: &object_store::path::Path) -> Result<T>;
}

impl<T> At<T> for object_store::Result<T> {
    fn at(self, doing: &'static str, path: &object_store::path::Path) -> Result<T> {
        self.map_err(|error| Error::Store { doing, path: path.to_string(), error })
    }
}
