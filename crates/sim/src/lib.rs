//! Ranks in one process over a network that obeys a seed, and the contract that every transport keeps, for
//! tests; it must never know what frames mean.
//!
//! - [`Network`]: delays, reorders, stalls, cuts off, damages and kills, as its seed and its [`Fault`] say.
//! - [`Simulation`]: a gang over such a network, with shared memory or without, in virtual time, on one
//!   thread.
//! - [`contract`]: scripts of random streams that both ends know from a seed, for gangs over any transport.
//! - [`hostile`]: a rank whose peer says anything at all.

pub mod contract;
pub mod hostile;
mod network;
mod simulation;

pub use network::{Fault, Network, Weather};
pub use simulation::{Hang, Simulation};
