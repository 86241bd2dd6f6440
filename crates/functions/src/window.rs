//! Window functions: ranks, aggregates over frames, and workarounds for options that the plan codec drops.

pub mod frame_aggregates;
pub mod option_wrappers;
pub mod ranking;
pub mod row_offset;
