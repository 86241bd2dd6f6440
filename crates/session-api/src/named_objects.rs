//! Prepared statements and cursors of a session, as its system catalogs show them.

use std::time::SystemTime;

use crate::cursor::CursorKind;

#[derive(Debug, Clone, Default)]
pub struct NamedObjects {
    pub prepared: Vec<PreparedStatement>,
    pub cursors: Vec<Cursor>,
}

/// A prepared statement in `pg_prepared_statements`.
#[derive(Debug, Clone)]
pub struct PreparedStatement {
    pub name: String,
    pub text: String,
    pub since: SystemTime,
    /// By PREPARE instead of the protocol.
    pub is_of_sql: bool,
}

/// A cursor in `pg_cursors`.
#[derive(Debug, Clone)]
pub struct Cursor {
    pub name: String,
    pub text: String,
    pub kind: CursorKind,
    pub since: SystemTime,
}
