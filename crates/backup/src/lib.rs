//! Backup and restore of a warehouse, in a folder or an object store.
//!
//! Architecture invariant: this crate never knows what is in a data file, nor what a statement is.
//!
//! ```text
//!   TARGET/_harrier_backup             the warehouse that owns these backups, and the format
//!   TARGET/backups/ID.json             manifest: files with lengths and checksums; written last
//!   TARGET/catalogs/ID.jsonl.zst       the catalog as of that moment
//!   TARGET/files/main/t/….parquet      data and delete files, under their names in the warehouse
//!   TARGET/lock                        lock of the current writer
//! ```
//!
//! # Invariants
//! - A backup exists when its manifest does; by then all files that it names are written and, on disks,
//!   fsynced.
//! - A file is written once: warehouse files are immutable, and a later backup references the files of
//!   earlier ones.
//! - Only the holder of the lock writes or removes anything, and removes only files whose names this crate
//!   gave.
//! - A restored warehouse exists when its catalog does, which comes last and atomically. It is a new
//!   warehouse with its own identity.
//!
//! # Order of calls
//! [`backup`], with an open catalog; [`list`], [`check`] and [`restore`] at any time.
//!
//! # Errors
//! See [`Error`]. Cancellation: dropping a call has the effect of a crash: no backup, no warehouse, and files
//! that the next call reuses or overwrites.
//!
//! Memory bound: the names of all files of a backup, and some megabytes for each of [`FILES_AT_ONCE`] copies.

#![warn(missing_docs)]

mod backup;
mod catalog_lines;
mod check;
mod copy;
mod error;
mod manifest;
mod read_lease;
mod restore;
mod retention;
mod store;
mod target;
#[cfg(test)]
mod tests;

pub use backup::{Backup, backup};
pub use check::{CheckReport, check};
pub use error::Error;
pub use harrier_storage::wait_for_pending_work;
pub use manifest::{Manifest, Stored};
pub use restore::{Place, Restored, restore};
pub use target::{BackupEntry, list};

/// The crate's result type.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Number of files copied or read concurrently.
pub const FILES_AT_ONCE: usize = 8;
