//! External tables that are folders in Hive's layout (`k=v/…`): read whole, and written so that who lists them sees no half statement.
//!
//! ```text
//!   INSERT [OVERWRITE] ─► rows on every rank ─► staged files ─► records ─► journal, exchange      insert.rs, exec, folders
//!   PARTITION (k = 'v') ─► columns of the rows                                                    partition.rs
//!   SELECT ─► listed while nobody shows anything                                                  table.rs
//! ```
//!
//! A statement takes effect when it ends, whatever transaction it is in: others who list a folder know nothing of transactions.
//! `docs/decisions/0016-hive-folders.md` tells the rest.

mod insert;
mod partition;
mod table;

pub(crate) use insert::FolderWrite;
pub(crate) use partition::{PartitionClause, cut};
pub(crate) use table::{FolderOptions, FolderTable};
