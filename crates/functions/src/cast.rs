//! Casts: to types as columns declare them, and with the type in their name.

pub mod declared_type;
pub mod named_cast;
