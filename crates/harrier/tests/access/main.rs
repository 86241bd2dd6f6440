//! Access control of a served warehouse: authentication and roles over both protocols, LDAP, row filters, and
//! secrets.
//!
//! The tests of this folder are one program, which is linked once. Those of one file:
//! `cargo test -p harrier --test access roles::`.

mod auth_support;
mod documented_examples;
mod flight;
mod ldap;
mod protections;
mod roles;
mod secrets;
mod sequences;
mod settings;
#[path = "../support/test_server.rs"]
mod test_server;
