//! How many rows a plan is expected to have.

pub mod filter_selectivity;
pub mod histogram;
