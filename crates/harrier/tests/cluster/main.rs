//! Tests on several hosts (network namespaces) or a Slurm cluster: host failures, low bandwidth, job steps,
//! chaos.
//!
//! The tests of this folder are one program, which is linked once. Those of one file:
//! `cargo test -p harrier --test cluster chaos::`.

mod chaos;
#[path = "../support/command.rs"]
mod command;
mod host_failures;
mod low_bandwidth;
mod namespace_hosts;
mod slurm;
#[path = "../support/test_server.rs"]
mod test_server;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Held by each test: they share the network and the processors.
fn exclusive_cluster() -> MutexGuard<'static, ()> {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner)
}
