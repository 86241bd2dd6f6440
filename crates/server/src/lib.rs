//! The server's front end: the PostgreSQL protocol, Flight SQL, authentication, resource queues, and web
//! pages. It knows no engine, and of plans only the profile that it shows ([`probe`]); statements run
//! behind [`backend`].
//!
//! ```text
//! client ═ TCP, TLS ═► pg/      ─► auth ─► registry, queues ─► backend ─► rows ═► client
//!          gRPC         flight/     who       what runs and waits
//!          HTTP         http/  ─► overview
//! ```

pub mod audit;
pub mod auth;
pub mod backend;
pub mod config;
pub mod encryption;
mod execution;
pub mod facts;
pub mod flight;
pub mod hive;
pub mod http;
pub mod metrics;
pub mod overview;
pub mod pg;
pub mod probe;
pub mod queues;
pub mod registry;
pub mod telemetry;
pub mod trace;
pub mod trace_parent;
