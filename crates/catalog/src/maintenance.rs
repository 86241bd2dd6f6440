//! What is done to a whole warehouse: snapshots expire, files are swept, the catalog is copied.

pub(crate) mod copy;
pub(crate) mod expiry;
mod folders;
