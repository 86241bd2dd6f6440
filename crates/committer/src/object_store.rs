//! Commits to folders on S3 and HDFS.
//!
//! The same contract as that of [`crate::local`], where there are no folders to exchange: a statement has one
//! file for each folder that it changes, because one file comes in one step. Files are staged ([`Placing`]),
//! and shown when all of them are there ([`Statement::publish`]), under a lock and after a journal.
//!
//! # Invariants
//! - Only who holds a table's lock shows files, removes what was shown, or takes back what others have
//!   staged.
//! - Before the journal is there nothing has been shown; afterwards the statement has happened, and is
//!   completed.
//! - An overwriting file takes the name of one that it replaces, if there is any: a reader never sees old and
//!   new, nor neither.
//! - Who has not heard from the store for half a lease does nothing more under its lock.
//!
//! # Order of calls
//! [`Root::open`], [`Root::begin`]; on every process that writes [`Placing::begin`]; [`Statement::publish`],
//! or [`Statement::give_up`]. A reader lists between [`Root::settled`] and [`Root::is_settled`].
//!
//! # Cancellation
//! Publishing is to be run to its end: what is dropped on the way is completed, or taken back, by the next
//! statement when the lease is over.
//!
//! # Crash
//! See `docs/decisions/0021-hive-folders-on-stores.md`.

mod control;
pub mod journal;
mod lock;
mod placing;
mod publish;
mod recover;
mod repeating;
mod statement;

pub use control::{Root, Settled};
pub use harrier_storage::{Options, Staged, StagedWriter};
pub use placing::{Placing, Takes};
pub use publish::{Merged, Published, StagedFile, Work};
pub use statement::{GivenUp, Statement};

use std::fmt;

/// Is told what was done after each thing that a crash may come after.
pub type Step<'a> = &'a (dyn Fn(&'static str) + Send + Sync);

/// What went wrong, and where.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// Nothing has been shown.
    Store { doing: &'static str, path: String, error: object_store::Error },
    /// The statement is decided, and a part of it may not be shown yet: whoever uses the folder next
    /// completes it.
    Unfinished { path: String, error: object_store::Error },
    /// Whether the statement is decided is not known; the next one that uses the folder knows.
    Unknown { path: String, error: object_store::Error },
    /// Another statement has changed what this one was to replace. Nothing has been shown.
    Conflict { path: String },
    /// It was silent for so long that others took it for dead, and took back what it had staged, or took its
    /// lock. Nothing has been shown.
    TakenBack { path: String },
    /// It was not wanted any more. Nothing has been shown.
    GivenUp { path: String },
    /// The store puts objects on no condition, so that nobody can hold a lock in it.
    NoConditions { path: String },
    /// The journal of a statement cannot be understood.
    Journal { path: String },
}

pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// What the store said, if it did.
    pub fn store(&self) -> Option<&object_store::Error> {
        match self {
            Self::Store { error, .. } | Self::Unfinished { error, .. } | Self::Unknown { error, .. } => {
                Some(error)
            }
            _ => None,
        }
    }

    /// The same error, for a statement that had to complete another one and could not.
    fn of_others(self) -> Self {
        match self {
            Self::Unfinished { path, error } | Self::Unknown { path, error } => {
                Self::Store { doing: "complete what another statement has left in", path, error }
            }
            other => other,
        }
    }

    /// Whether the store does not let this process do what was asked.
    fn is_denied(&self) -> bool {
        use object_store::Error as E;
        matches!(self.store(), Some(E::PermissionDenied { .. } | E::Unauthenticated { .. }))
    }

    /// Whether nothing has been shown, for sure.
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
            Self::TakenBack { path } => write!(f, "the statement was taken for dead in \"{path}\""),
            Self::GivenUp { path } => write!(f, "the statement was given up in \"{path}\""),
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

/// Gives errors of the store their place.
trait At<T> {
    fn at(self, doing: &'static str, path: &object_store::path::Path) -> Result<T>;
}

impl<T> At<T> for object_store::Result<T> {
    fn at(self, doing: &'static str, path: &object_store::path::Path) -> Result<T> {
        self.map_err(|error| Error::Store { doing, path: path.to_string(), error })
    }
}
