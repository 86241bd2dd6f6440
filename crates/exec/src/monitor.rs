//! What statements and ranks are doing, and what they have taken.

pub mod plan_snapshot;
pub mod resource_usage;
pub(crate) mod running_slices;
pub mod slice_tree;
pub mod statement_history;
