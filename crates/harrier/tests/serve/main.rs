//! `harrier serve`: sessions, protocol, cursors, cancellation, operation, monitoring, retry and failover.
//!
//! The tests of this folder are one program, which is linked once. Those of one file:
//! `cargo test -p harrier --test serve retry::`.

mod cancellation;
mod column_origins;
mod cursors;
mod denial_of_service;
mod differential;
mod isolation_histories;
mod locks_and_sync;
mod memory_exhaustion;
mod monitoring_pages;
mod plan_transport;
mod prepared_after_ddl;
mod prepared_statements;
mod protocol;
mod retry;
mod returning;
mod server_operation;
mod sessions;
mod slow_reader;
mod standby;
#[path = "../support/test_server.rs"]
mod test_server;
#[path = "../support/trace_check.rs"]
mod trace_check;
