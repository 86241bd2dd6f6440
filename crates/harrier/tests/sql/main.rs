//! The binary without a server: SQL files, command line, COPY, shell, estimates, and benchmarks at minimum
//! size.
//!
//! The tests of this folder are one program, which is linked once. Those of one file:
//! `cargo test -p harrier --test sql slt::`.

mod bench;
mod bench_serve;
mod cli;
#[path = "../support/command.rs"]
mod command;
mod copy;
mod damaged_files;
mod estimates;
mod hive;
mod memory_limits;
mod pg_dump_scripts;
mod reference;
mod shell;
mod signals;
mod slt;
