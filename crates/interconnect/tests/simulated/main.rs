//! What needs no network: batches that become blocks and batches again, and ranks over a simulated network,
//! among friends and enemies.
//!
//! The tests of this folder are one program, which is linked once. Those of one file:
//! `cargo test -p harrier-interconnect --test simulated fuzz::`.

mod batches;
mod fuzz;
mod sim;
