//! The tests of the catalog are one program: each would compile the catalog's asynchronous code once more.

mod access;
mod analysis;
mod concurrency;
mod conflicts;
mod copy;
mod duckdb;
mod errors;
mod faults;
mod fence;
mod history;
mod kept;
mod layout;
mod rows;
mod sequences;
mod state;
mod support;
mod upkeep;
