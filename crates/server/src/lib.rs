//! The face of a warehouse that stays up: the PostgreSQL protocol, who may come in, who waits, and the pages. It knows no plan
//! and no engine: what runs statements is behind [`backend`].
//!
//! ```text
//! client ═ TCP, TLS ═► pg/ ─► registry ─► backend ─► rows ─► pg/rows.rs ═► client
//!                      who may come in, which message comes when, cursors, time limits
//! ```

pub mod auth;
pub mod backend;
<<<<<<< HEAD
pub mod flight;
=======
pub mod config;
pub mod http;
pub mod overview;
>>>>>>> web
pub mod pg;
pub mod queues;
pub mod registry;
