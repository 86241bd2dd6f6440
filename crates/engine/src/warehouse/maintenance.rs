//! Maintenance of a warehouse: compaction, expiry of snapshots, VACUUM, CHECK TABLE, ownership of data
//! folders.

pub(crate) mod check_table;
pub(crate) mod collect_statistics;
pub(crate) mod folder_ownership;
pub(crate) mod vacuum;
