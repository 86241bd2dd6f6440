//! What is read from the catalog at a snapshot, and what of it is cached.
//!
//! Every function reads within one database transaction, so that its result is consistent even while
//! snapshots are expired.

pub(crate) mod cache;
pub(crate) mod head;
pub(crate) mod history;
pub(crate) mod inlined_rows;
pub(crate) mod objects;
pub(crate) mod table_data;
pub(crate) mod table_stats;
