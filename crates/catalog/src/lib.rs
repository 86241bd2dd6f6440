//! The catalog of a warehouse: snapshots, commits and conflicts. It never touches a data file.
//!
//! It lies in SQLite or PostgreSQL, in the tables of DuckLake 1.0, so that other programs can open the same warehouse.
//!
//! ```text
//!   Catalog::head ─► State (a snapshot: schemas, tables, views) ─► Transaction (a changed copy) ─► Catalog::commit
//!                    Catalog::data ─► TableData (files and kept rows of one table)                     │
//!                                                             Committed, or an Error ◄────────────────┘
//! ```

#![warn(missing_docs)]
#![allow(missing_docs, reason = "fields that carry the name DuckLake gives them")]

mod error;
pub mod files;
pub mod state;
mod transaction;
pub mod types;

pub use error::{Error, Result};
pub use transaction::Transaction;
