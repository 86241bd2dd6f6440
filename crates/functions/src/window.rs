//! Window functions: ranks, aggregates over frames, rows with new keys, and workarounds for options that the
//! plan codec drops.

pub mod first_of_keys;
pub mod frame_aggregates;
pub mod option_wrappers;
pub mod ranking;
pub mod row_offset;
