//! Operators of our own, and what is done to DataFusion's.

pub mod cancelable_joins;
pub mod file_scan;
pub mod unordered;
