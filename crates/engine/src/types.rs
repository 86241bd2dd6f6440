//! Column types: the catalog's, Arrow's, and SQL's declared types.

pub(crate) mod assignment;
pub(crate) mod columns;
pub(crate) mod declared;
pub(crate) mod json_columns;
pub(crate) mod names;
