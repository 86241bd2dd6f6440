//! Tests without a network: encoding of batches, fuzzing, and ranks over a simulated network with faults.
//!
//! The tests of this folder are one program, which is linked once. Those of one file: `cargo test -p
//! harrier-interconnect --test simulated fuzz::`.

mod batches;
mod fuzz;
mod sim;
