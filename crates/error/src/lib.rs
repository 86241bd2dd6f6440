//! Errors as users see them: SQLSTATEs, the error of a statement, and the exit statuses of the command line.
//!
//! Depends on nothing. `harrier_sqlstate` maps the errors of DataFusion and Arrow to these codes.

pub mod exit;
mod sql_error;
mod sql_state;

pub use sql_error::SqlError;
pub use sql_state::{Explained, SqlState};
