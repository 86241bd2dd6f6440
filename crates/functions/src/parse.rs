//! Input functions: texts as values, parsed as in PostgreSQL.

pub mod byte_size;
pub mod bytea;
pub mod datetime;
pub mod decimal;
pub mod float;
pub mod interval;
pub mod text_array;
