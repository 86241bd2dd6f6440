//! Files on S3 and HDFS, and catalogs in PostgreSQL, upon real servers: what statements say, and how stores
//! are opened.
//!
//! The tests of this folder are one program, which is linked once. Those of one file:
//! `cargo test -p harrier --test stores store_options::`.

mod backups;
mod broken_responses;
mod credentials;
mod failed_copies;
mod failed_statement_cleanup;
mod fault_injection;
mod formats;
mod namenode_failover;
mod object_names;
mod replaced_objects;
mod request_counts;
mod store_options;
#[path = "../support/test_server.rs"]
mod test_server;
mod warehouses;

use std::sync::{Mutex, MutexGuard, PoisonError};

use harrier_servers::Hdfs;

/// The one HDFS server, which one test has at a time: what it is asked is counted over all of them. `None`,
/// said loudly, where it cannot be installed. Who needs a turn among gangs, too, takes it after this.
fn hdfs() -> Option<(MutexGuard<'static, ()>, &'static Hdfs)> {
    static ALONE: Mutex<()> = Mutex::new(());
    let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    Some((alone, Hdfs::shared()?))
}
