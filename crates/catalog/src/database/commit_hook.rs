//! Callbacks of tests at each step of a commit, to inject faults.

use std::pin::Pin;
use std::sync::Arc;

/// The progress of a commit, for fault injection in tests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Before the statement with this number, from 0.
    Statement(usize),
    BeforeCommit,
    AfterCommit,
}

/// A test's callback. An error counts as that of the statement, or of COMMIT.
pub type Hook =
    Arc<dyn Fn(Step) -> Pin<Box<dyn Future<Output = Result<(), sqlx::Error>> + Send>> + Send + Sync>;
