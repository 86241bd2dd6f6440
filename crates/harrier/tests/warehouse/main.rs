//! Tables that stay, and whoever else is at them: other processes, DuckDB, upkeep, full disks, and death at
//! any moment.
//!
//! The tests of this folder are one program, which is linked once. Those of one file:
//! `cargo test -p harrier --test warehouse crashes::`.

mod backups;
#[path = "../support/command.rs"]
mod command;
mod crashes;
mod definitions;
mod ducklake;
mod folders;
mod full_disks;
mod like_nfs;
mod locks;
mod ownership;
mod processes;
mod put_back;
mod support;
mod sweeps;
mod upkeep;
mod written_files;
