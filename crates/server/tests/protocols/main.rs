//! The server's protocols over real sockets: authentication, monitoring pages, Flight SQL, HiveServer2,
//! telemetry, and profiles of statements.
//!
//! The tests of this folder are one program, which is linked once. Those of one file: `cargo test -p
//! harrier-server --test protocols flight::`.

mod auth;
mod browser;
mod flight;
mod hive;
mod mock_backend;
mod monitoring_pages;
mod python;
mod self_signed;
mod statement_profiles;
mod telemetry;
