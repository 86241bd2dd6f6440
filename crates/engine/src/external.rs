//! Tables over files: a single file, a glob pattern, or a folder in Hive's layout.

pub(crate) mod file_kinds;
pub(crate) mod file_names;
pub(crate) mod file_tables;
mod hidden_columns;
pub(crate) mod hive;
pub(crate) mod store_urls;
