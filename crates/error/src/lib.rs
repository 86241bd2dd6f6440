//! What a user is told of a failure: SQLSTATEs, the error of a statement, and the exit statuses of the
//! command line.
//!
//! Depends on nothing. The code of an error of DataFusion or Arrow is looked up in `harrier_sqlstate`, which
//! knows these.

pub mod exit;
mod sql_error;
mod sql_state;

pub use sql_error::SqlError;
pub use sql_state::{Explained, SqlState};
