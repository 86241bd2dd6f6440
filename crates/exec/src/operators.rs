//! Our own operators, and changes to DataFusion's.

pub mod cancelable_joins;
pub mod file_scan;
pub mod grouping_sets;
pub(crate) mod pass_through;
pub mod runtime_filter;
pub mod shared_rows;
pub mod shared_subplan;
pub mod unordered;
