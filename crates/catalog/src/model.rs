//! What a warehouse contains, as plain values: no SQL and no connection.

pub(crate) mod file_stats;
pub mod files;
pub(crate) mod identity;
pub mod ids;
pub(crate) mod marker;
pub mod sequences;
pub mod state;
pub(crate) mod transaction;
pub mod types;
pub(crate) mod values;
