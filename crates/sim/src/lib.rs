//! Deterministic simulation of a gang in one process, and the contract test of every transport; it must never
//! know what frames mean.
//!
//! - [`Network`]: delays, reorders, stalls, partitions, damages and kills, by its seed and its [`Fault`].
//! - [`Simulation`]: a gang over such a network, with shared memory or without, in virtual time, on one
//!   thread.
//! - [`contract`]: scripts of random streams derived from a seed on both ends, for gangs over any transport.
//! - [`hostile`]: a rank with a hostile peer, for fuzzers.

pub mod contract;
pub mod hostile;
mod network;
mod simulation;

pub use network::{Fault, Network, Weather};
pub use simulation::{Hang, Simulation};
