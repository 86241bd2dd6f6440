//! `harrier serve`: its sessions and its protocol, who operates and watches it, and what becomes of
//! statements when ranks or servers are lost.
//!
//! The tests of this folder are one program, which is linked once. Those of one file:
//! `cargo test -p harrier --test serve retry::`.

mod altered;
mod canceled;
mod cursors;
mod differential;
mod filling;
mod histories;
mod hostile;
mod operate;
mod origins;
mod plans;
mod prepared;
mod protocol;
mod retry;
mod returning;
#[path = "../support/served.rs"]
mod served;
mod sessions;
mod slow_reader;
mod standby;
#[path = "../support/trace_check.rs"]
mod trace_check;
mod waiting;
mod watching;
