//! What the server says and hears, over real sockets: who comes in, pages, Flight SQL, telemetry, and what it
//! keeps of statements that ran.
//!
//! The tests of this folder are one program, which is linked once. Those of one file:
//! `cargo test -p harrier-server --test protocols flight::`.

mod auth;
mod browser;
mod flight;
mod pages;
mod python;
mod telemetry;
mod work;
