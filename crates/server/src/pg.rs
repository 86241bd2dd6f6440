//! PostgreSQL protocol, version 3: from bytes to statements, and from rows to bytes.
//!
//! ```text
//!   listen ─► connection ─► startup ─► session ─► simple query ─┐
//!   TCP, TLS   one task      login       one       parse, bind, …├─► backend ─► rows ─► reply ─► client
//!   Unix       per client                message  copy          ┘
//!                                        after the other
//! ```
//!
//! Memory bound: one batch of a result and its encoded, unsent bytes ([`connection::REPLY_BYTES`]); one
//! client message and the read-ahead while a statement runs ([`connection::AHEAD_BYTES_MAX`]).

mod authentication;
mod connection;
mod copy;
mod decode;
mod encodable;
pub(crate) mod io;
mod json_floats;
pub mod listen;
mod lists;
mod messages;
mod portal;
mod reply;
mod result_stream;
mod rows;
mod scroll;
mod server;
mod session;
pub(crate) mod text;
pub(crate) mod types;
mod value_encoder;
mod value_output;
mod values;
mod words;
pub(crate) mod zone;

pub use authentication::{Arrival, CheckPassword, ClientAuthentication, Exchange, Method};
pub use server::{Server, ServerOptions};
