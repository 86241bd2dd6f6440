//! The catalog of a warehouse: snapshots, commits and conflicts. It never touches a data file.
//!
//! It is stored in SQLite or PostgreSQL, in the tables of DuckLake 1.0, so that other programs can open the
//! same warehouse.
//!
//! ```text
//!   Catalog::head ─► State (a snapshot: schemas, tables, views) ─► Transaction (a changed copy) ─► Catalog::commit
//!                    Catalog::data ─► TableData (files and inlined rows of one table)                  │
//!                                                             Committed, or an Error ◄────────────────┘
//! ```
//!
//! Its rooms, from below; each uses those before it alone, and no files use each other in circles:
//!
//! | room | what is in it |
//! |---|---|
//! | `error` | what can go wrong |
//! | `model` | what a warehouse contains, as values: states, files, sequences, identities, transactions |
//! | `database` | SQL as text, errors, transactions, pools of both databases, retries, the right to write |
//! | `layout` | DuckLake's tables and Harrier's additions: how the values are stored |
//! | `snapshot` | what is read at a snapshot, the caches of it, and whether the history is still the same |
//! | `access` | roles and privileges: the rules, and their tables |
//! | `catalog` | the handle [`Catalog`], and the calls that read, or change what has no snapshots |
//! | `commit` | conflicts, and the statements of a commit |
//! | `maintenance` | expiry, files that nothing refers to, copies of the catalog |

#![warn(missing_docs)]
#![allow(missing_docs, reason = "fields that carry the name DuckLake gives them")]

pub mod access;
mod catalog;
mod commit;
mod database;
mod error;
mod layout;
mod maintenance;
mod model;
mod snapshot;

pub use catalog::Catalog;
pub use catalog::analysis::{Analysis, ColumnAnalysis, Histogram, Histograms, array_text};
pub use catalog::writers::{SILENCE as WRITER_SILENCE, is_reader, process, reader_name};
pub use database::commit_hook::{Hook, Step};
pub use database::fence::Fence;
pub use database::lease::{Holder, Lease};
pub use error::{Error, Result};
pub use layout::{OWN as OWN_LAYOUT, PROGRAM, check_version};
pub use maintenance::copy::{Cells, CopiedFile, CopiedTable, CopySummary, Line, copy_in};
pub use maintenance::expiry::{Expiry, ExpiryReport, ScheduledFile};
pub use model::file_stats::{FileStats, StatsRef};
pub use model::identity::{Identity, Place, writer_name};
pub use model::marker::{MARKER, Marker};
pub use model::transaction::{CommitNote, Committed, Transaction};
pub use model::{files, sequences, state, types};
pub use snapshot::head::SnapshotInfo;
pub use snapshot::table_stats::{TableColumnStats, TableSize, TableStats};
