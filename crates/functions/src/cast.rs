//! Casts: to declared column types, and with the type in the column name.

pub mod declared_type;
pub mod named_cast;
