//! Clients as their users have them, and what PostgreSQL's own regression suite says of a served warehouse.
//!
//! The tests of this folder are one program, which is linked once. Those of one file:
//! `cargo test -p harrier --test clients checks::`.

mod checks;
mod orc_files;
mod pg_dump;
mod regress;
#[path = "../support/test_server.rs"]
mod test_server;

use std::sync::RwLock;

/// Shared by the checks of clients. Statements of the regression suite have limits of time: it runs beside
/// none of these.
static MACHINE: RwLock<()> = RwLock::new(());
