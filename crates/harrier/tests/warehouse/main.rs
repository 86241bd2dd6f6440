//! Warehouses with persistent tables: concurrent processes, DuckDB, maintenance, backups, full disks, and
//! crashes.
//!
//! The tests of this folder are one program, which is linked once. Those of one file:
//! `cargo test -p harrier --test warehouse crashes::`.

mod backups;
mod catalog_restore;
#[path = "../support/command.rs"]
mod command;
mod concurrent_ddl;
mod concurrent_processes;
mod crashes;
mod ducklake;
mod external_table_listings;
mod file_ownership;
mod filesystem_without_locks;
mod full_and_read_only_disks;
mod garbage_collection;
mod maintenance_concurrency;
mod nfs_open_files;
mod support;
mod written_files;
