//! Errors of a warehouse's catalog.

use harrier_error::SqlError;

/// An error of a catalog operation. Nothing of a failed commit is visible.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A concurrent transaction has committed a conflicting change (SQLSTATE 40001).
    #[error("could not serialize access: {0}")]
    Conflict(String),
    /// A commit was sent and its outcome could not be determined (40003).
    #[error("the outcome of the commit of transaction {transaction} is unknown")]
    Unknown { transaction: String, source: Option<sqlx::Error> },
    /// The catalog database cannot be reached or failed (08001, 08006, 58030).
    #[error("catalog database: {0}")]
    Database(#[from] sqlx::Error),
    /// It contains something that this program does not support (0A000), or that is malformed (XX001).
    #[error("{0}")]
    Unsupported(String),
    #[error("{0}")]
    Corrupt(String),
    /// There is no warehouse (3D000), or no such snapshot (22023).
    #[error("{0}")]
    NotFound(String),
    /// The database or its file is read-only (25006).
    #[error("{0}")]
    ReadOnly(String),
    /// A rule about roles and privileges forbids it; contains its SQLSTATE.
    #[error("{}", .0.message)]
    Refused(Box<SqlError>),
}

impl Error {
    /// Adds a detail; only to `Refused`.
    pub(crate) fn with_detail(mut self, detail: impl Into<String>) -> Self {
        if let Self::Refused(refusal) = &mut self {
            refusal.detail = Some(detail.into());
        }
        self
    }

    pub(crate) fn with_hint(mut self, hint: impl Into<String>) -> Self {
        if let Self::Refused(refusal) = &mut self {
            refusal.hint = Some(hint.into());
        }
        self
    }
}

pub type Result<T, E = Error> = std::result::Result<T, E>;
