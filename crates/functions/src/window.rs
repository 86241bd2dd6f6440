//! Window functions: ranks, aggregates over frames, and what the codec of plans leaves out.

pub mod frame_aggregates;
pub mod option_wrappers;
pub mod ranking;
pub mod row_offset;
