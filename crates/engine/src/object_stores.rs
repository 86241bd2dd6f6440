//! The object stores of a process: their registry, options, the listing of data files, and the listing cache
//! of a statement.

pub(crate) mod data_files;
pub(crate) mod listing_cache;
pub(crate) mod options;
pub(crate) mod registry;
