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

#![warn(missing_docs)]
#![allow(missing_docs, reason = "fields that carry the name DuckLake gives them")]

pub mod access;
mod analysis;
mod bulk;
mod cache;
mod catalog;
mod changes;
mod column_stats;
mod commit;
mod conflicts;
mod copy;
mod database;
mod error;
mod fence;
mod file_stats;
pub mod files;
mod history;
mod identity;
mod inlined;
mod layout;
mod load;
mod maintenance;
mod marker;
mod retry;
pub mod sequences;
pub mod state;
mod stats;
mod table_data;
mod transaction;
pub mod types;
mod values;
mod versions;
mod writers;

pub use analysis::{Analysis, ColumnAnalysis, Histogram, Histograms, array_text};
pub use catalog::Catalog;
pub use commit::{CommitNote, Committed, Hook, Step};
pub use copy::{Cells, CopiedFile, CopiedTable, CopySummary, Line, copy_in};
pub use error::{Error, Result};
pub use fence::{Fence, Holder, Lease};
pub use file_stats::{FileStats, StatsRef};
pub use identity::{Identity, Place, writer_name};
pub use layout::{OWN as OWN_LAYOUT, PROGRAM, check_version};
pub use load::{SnapshotInfo, TableColumnStats, TableSize, TableStats};
pub use maintenance::{Expiry, ExpiryReport, ScheduledFile};
pub use marker::{MARKER, Marker};
pub use transaction::Transaction;
pub use writers::{SILENCE as WRITER_SILENCE, is_reader, process, reader_name};
