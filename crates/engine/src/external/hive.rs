//! External tables over folders in Hive's layout (`k=v/…`), with atomic writes: a listing shows a statement's
//! files completely or not at all.
//!
//! ```text
//!   INSERT [OVERWRITE] ─► staged files on all ranks ─► records ─► journal, exchange insert.rs, exec, committer
//!   PARTITION (k = 'v') ─► columns of the rows                                      partition.rs
//!   OVERWRITE ─► folders of the same keys by other names (`k=01`)                   partition_spelling.rs
//!   SELECT ─► listed while no writer publishes                                      table.rs
//!             in object stores, validated after the read                            read_validation.rs
//!   OPTIMIZE ─► small files of a folder ─► staged files ─► as above                 compaction.rs
//! ```
//!
//! A statement takes effect when it ends, even inside a transaction block, because other readers of the
//! folder know nothing of transactions. See `docs/decisions/0016-hive-folders.md`, and
//! `docs/decisions/0021-hive-folders-on-stores.md` for S3 and HDFS.

pub(crate) mod compaction;
pub(crate) mod insert;
pub(crate) mod partition;
pub(crate) mod partition_spelling;
pub(crate) mod read_validation;
pub(crate) mod table;

pub(crate) use insert::FolderWrite;
pub(crate) use partition::insert_into_partition;
pub(crate) use read_validation::ReadSet;
pub(crate) use table::{FolderLocation, FolderOptions, FolderTable};
