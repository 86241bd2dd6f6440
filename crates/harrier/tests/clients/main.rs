//! Client drivers and tools, and PostgreSQL's regression suite, against a served warehouse.
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

/// Read lock: checks of clients. Write lock: the regression suite, whose statements have timeouts and must
/// run alone.
static MACHINE: RwLock<()> = RwLock::new(());
