//! What is read from the catalog at a snapshot, and what of it is cached.

pub(crate) mod cache;
pub(crate) mod history;
pub(crate) mod load;
pub(crate) mod table_data;
