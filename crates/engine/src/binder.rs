//! Binds statements to the tables and columns that a session sees, and checks what they write into columns.

pub(crate) mod assignment_casts;
pub(crate) mod column_origins;
pub(crate) mod create_table_like;
pub(crate) mod declared_types;
pub(crate) mod information_schema;
pub(crate) mod json;
pub(crate) mod on_conflict;
pub(crate) mod parameter_types;
pub(crate) mod sql_types;
pub(crate) mod type_names;
pub(crate) mod unsupported_statements;
