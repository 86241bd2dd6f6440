//! External tables that are folders in Hive's layout (`k=v/…`): read whole, and written so that who lists
//! them sees no half statement.
//!
//! ```text
//!   INSERT [OVERWRITE] ─► rows on every rank ─► staged files ─► records ─► journal, exchange      insert.rs, exec, folders
//!   PARTITION (k = 'v') ─► columns of the rows                                                    partition.rs
//!   OVERWRITE ─► folders of the same keys by other names (`k=01`)                                 spellings.rs
//!   SELECT ─► listed while nobody shows anything                                                  table.rs
//!             in object stores, read while nobody overwrites anything                             watched.rs
//!   OPTIMIZE ─► small files of a folder ─► staged files ─► as above                               merge.rs
//! ```
//!
//! A statement takes effect when it ends, whatever transaction it is in: others who list a folder know
//! nothing of transactions. `docs/decisions/0016-hive-folders.md` tells the rest, and
//! `docs/decisions/0021-hive-folders-on-stores.md` of S3 and HDFS.

pub(crate) mod compaction;
pub(crate) mod insert;
pub(crate) mod partition;
pub(crate) mod partition_spelling;
pub(crate) mod read_validation;
pub(crate) mod table;

pub(crate) use insert::FolderWrite;
pub(crate) use partition::insert_into_partition;
pub(crate) use read_validation::Watched;
pub(crate) use table::{FolderOptions, FolderTable, Place};
