//! Object stores (S3, HDFS) and catalogs in PostgreSQL on real servers: faults, credentials, options,
//! backups, COPY, warehouses.
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

/// The HDFS server, used by one test at a time because its requests are counted. `None`, with a message, if
/// it cannot be installed. Take the gang slot after this lock.
fn hdfs() -> Option<(MutexGuard<'static, ()>, &'static Hdfs)> {
    static ALONE: Mutex<()> = Mutex::new(());
    let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    Some((alone, Hdfs::shared_instance()?))
}
