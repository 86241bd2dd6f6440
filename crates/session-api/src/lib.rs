//! What a server and an engine tell each other about a session: values, and what follows from them alone.
//!
//! ```text
//! server ── Identity, NamedObjects ─────────────────────────────────────────────► engine
//!        ◄─ StatementKind, Description, Completion, TransactionState, TimeLimits ─
//!        ◄─ SessionCommand ─────────────────────────────────────────────────────── crate sql
//! pages  ◄─ QueryProfile ───────────────────────────────────────────────────────── ranks
//! ```
//!
//! Streams of rows are not among them: an engine's are DataFusion's, and a server's come from other threads.

pub mod command;
pub mod cursor;
pub mod named_objects;
pub mod query_profile;
pub mod session;
pub mod statement;
