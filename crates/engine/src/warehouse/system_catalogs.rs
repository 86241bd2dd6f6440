//! System catalogs over a snapshot of the warehouse: PostgreSQL's `pg_catalog`, and the schema `sys`.

pub(crate) mod pg_catalog;
pub(crate) mod server_table;
pub(crate) mod sys_schema;
