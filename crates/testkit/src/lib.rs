//! Test support, never shipped: the benchmarks' queries and answers, oracles, result comparison, and the
//! means to run the binary. It knows the binary by its command line alone and depends on no crate that is
//! shipped.

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
