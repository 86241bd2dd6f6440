//! The PostgreSQL protocol, version 3: from bytes to statements, and from rows to bytes.
//!
//! ```text
//!   listen ─► connection ─► startup ─► session ─► simple query ─┐
//!   TCP, TLS   one task      who is it   one      parse, bind, …├─► backend ─► rows ─► reply ─► client
//!   Unix       per client                message  copy          ┘
//!                                        after the other
//! ```
//!
//! Memory bound: of a result, one batch and what of it was written but not sent
//! ([`connection::REPLY_BYTES`]); of a client's messages, one, and what came behind it while a statement ran
//! ([`connection::AHEAD_BYTES_MAX`]).

mod connection;
mod copy;
mod decode;
mod feed;
mod gate;
mod io;
pub mod listen;
mod lists;
mod messages;
mod own;
mod portal;
mod put;
mod ready;
mod reply;
mod rows;
mod scroll;
mod session;
mod text;
mod types;
mod values;

pub use gate::{Arrival, CheckPassword, Exchange, Gate, Method};
pub use listen::{Server, ServerOptions};
