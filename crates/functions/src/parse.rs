//! Texts as values, as PostgreSQL reads them.

pub mod bytea;
pub mod datetime;
pub mod interval;
