//! Progress and resource usage of statements and ranks.

pub mod plan_snapshot;
pub mod resource_usage;
pub(crate) mod running_slices;
pub mod slice_tree;
pub mod statement_history;
