//! Hashes of rows: buckets of tables, and rows of repeatable samples.

pub mod bucket;
pub mod table_sample;
