//! Gangs on this host, under a real launcher or by a hosts file: exchange contract, interconnect metrics,
//! failures and random kills of ranks.
//!
//! The tests of this folder are one program, which is linked once. Those of one file:
//! `cargo test -p harrier --test ranks random_rank_kills::`.

#[path = "../support/command.rs"]
mod command;
mod contract;
mod copy_folders;
#[path = "../support/exchange_contract.rs"]
mod exchange_contract;
mod failures;
mod gang;
mod hosts_file;
mod interconnect_metrics;
mod launchers;
mod random_rank_kills;
#[path = "../support/trace_check.rs"]
mod trace_check;
