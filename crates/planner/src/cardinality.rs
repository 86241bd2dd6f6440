//! Cardinality estimation: column histograms, filter selectivity, rows of relations.

pub mod filter_selectivity;
pub mod histogram;
pub mod relation_rows;
