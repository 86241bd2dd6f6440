//! The tests of the catalog are one program: each would compile the catalog's asynchronous code once more.

mod access;
mod analysis;
mod cache;
mod concurrency;
mod conflicts;
mod copy;
mod duckdb;
mod errors;
mod faults;
mod fence;
mod history;
mod layout;
mod maintenance;
mod rows;
mod sequences;
mod state;
mod support;
