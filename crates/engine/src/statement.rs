//! Executes statements.

pub(crate) mod access;
pub(crate) mod auto_analyze;
pub(crate) mod copy;
pub(crate) mod create_extension;
pub(crate) mod ddl;
pub(crate) mod ddl_retry;
pub(crate) mod describe;
pub(crate) mod explain;
pub(crate) mod explain_tree;
pub(crate) mod memory_table_dml;
pub(crate) mod returning;
pub(crate) mod scrollable_rows;
pub(crate) mod write;
