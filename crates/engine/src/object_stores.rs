//! The object stores of a process: registry, options, listing of data files, and a listing cache per
//! statement.

pub(crate) mod data_files;
pub(crate) mod listing_cache;
pub(crate) mod options;
pub(crate) mod registry;
