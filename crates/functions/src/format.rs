//! Output functions: values as texts in PostgreSQL's format.

pub mod datetime;
pub mod double;
pub mod element;
pub mod interval;
pub mod value;
