//! Jobs whose ranks are threads of this process: properties, resource limits, and failures.
//!
//! The tests of this folder are one program, which is linked once. Those of one file: `cargo test -p
//! harrier-mpid --test jobs streams::`.

#[cfg(feature = "arrow")]
mod arrow;
mod failures;
mod properties;
mod resource_limits;
mod simulated_ranks;
mod streams;
