//! Cardinality estimation: column histograms and filter selectivity.

pub mod filter_selectivity;
pub mod histogram;
