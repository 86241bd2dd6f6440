//! The face of a warehouse that stays up: the PostgreSQL protocol, who may come in, who waits, and the pages.
//! It knows no engine, and of plans only what there is to show ([`work`]): what runs statements is behind
//! [`backend`].
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
pub mod flight;
pub mod http;
pub mod overview;
pub mod pg;
pub mod queues;
pub mod registry;
pub mod telemetry;
pub mod trace;
pub mod work;
