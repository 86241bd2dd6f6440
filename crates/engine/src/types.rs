//! Types of columns: the catalog's, Arrow's and the declared ones of SQL.

pub(crate) mod assigned;
pub(crate) mod columns;
pub(crate) mod declared;
pub(crate) mod json_columns;
pub(crate) mod names;
