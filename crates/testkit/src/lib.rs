//! Test support, never shipped: benchmark queries and answers, oracles, result comparison, and drivers of the
//! binary. It uses the binary only through its command line and depends on no crate that is shipped.

pub mod binary;
pub mod differential;
pub mod history;
pub mod peak;
pub mod plain;
pub mod random_query;
pub mod rows;
pub mod session;
pub mod slt;
pub mod tpcds;
pub mod tpch;
