//! Jobs whose ranks are threads of this process: what they promise, what they hold at most, and what they say
//! when something goes wrong.
//!
//! The tests of this folder are one program, which is linked once. Those of one file:
//! `cargo test -p harrier-mpid --test jobs streams::`.

#[cfg(feature = "arrow")]
mod arrow;
mod resource_limits;
mod failures;
mod properties;
mod simulated_ranks;
mod streams;
