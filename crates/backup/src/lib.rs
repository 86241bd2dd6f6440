//! Backups of a warehouse in a folder or an object store, and warehouses that are restored from them.
//!
//! Architecture invariant: this crate never knows what is in a data file, nor what a statement is.
//!
//! ```text
//!   TARGET/_harrier_backup             whose backups these are, and in which format
//!   TARGET/backups/ID.json             one backup: its files with lengths and checksums; written last
//!   TARGET/catalogs/ID.jsonl.zst       the catalog as of that moment
//!   TARGET/files/main/t/….parquet      data and delete files, by the names that they have in the warehouse
//!   TARGET/lock                        somebody is writing here
//! ```
//!
//! # Invariants
//! - A backup is there when its manifest is, and then all that it names has been written and, on disks,
//!   synchronised.
//! - A file is written once: files of a warehouse never change, and a later backup names what an earlier one
//!   has written.
//! - Only who holds the lock writes or removes anything, and removes nothing but what has a name that this
//!   crate gives.
//! - A restored warehouse is there when its catalog is, which comes last and in one step. It is another
//!   warehouse than the first one.
//!
//! # Order of calls
//! [`backup`], with a catalog that is open; [`list`], [`check`] and [`restore`] at any time.
//!
//! # Errors
//! See [`Error`]. Cancellation: a call that is dropped leaves what a process leaves that is killed: no
//! backup, no warehouse, and files which the next call uses or writes anew.
//!
//! Memory bound: the names of all files of a backup, and some megabytes for each of [`FILES_AT_ONCE`] that
//! are copied.

#![warn(missing_docs)]

mod backup;
mod check;
mod copying;
mod error;
mod hold;
mod keep;
mod lines;
mod manifest;
mod restore;
mod store;
mod target;
#[cfg(test)]
mod tests;

pub use backup::{Backup, backup};
pub use check::{Checked, check};
pub use error::Error;
pub use harrier_storage::settled;
pub use manifest::{Manifest, Stored};
pub use restore::{Place, Restored, restore};
pub use target::{Listed, list};

/// The result of whatever may fail here.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// How many files are copied or read at the same time.
pub const FILES_AT_ONCE: usize = 8;
