//! Values as texts, as PostgreSQL writes them.

pub mod datetime;
pub mod double;
pub mod element;
pub mod interval;
pub mod value;
