//! Tests of the catalog, linked as one program: each program would compile the catalog's asynchronous code
//! again.

mod access;
mod analyze;
mod cache;
mod concurrency;
mod conflicts;
mod copy;
mod duckdb;
mod errors;
mod faults;
mod layout_version;
mod maintenance;
mod random_transactions;
mod rows;
mod sequences;
mod state;
mod support;
mod writer_lease;
