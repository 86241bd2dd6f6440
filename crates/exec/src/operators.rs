//! Our own operators, and changes to DataFusion's.

pub mod cancelable_joins;
pub mod file_scan;
pub mod shared_rows;
pub mod unordered;
