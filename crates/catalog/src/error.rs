//! Errors of a warehouse's catalog.

use std::fmt;

use harrier_error::SqlError;

/// An error of a catalog operation. Nothing of a failed commit is visible.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// A concurrent transaction has committed a conflicting change (SQLSTATE 40001).
    Conflict(String),
    /// A commit was sent and its outcome could not be determined (40003).
    Unknown {
        transaction: String,
        source: Option<sqlx::Error>,
    },
    /// The catalog database cannot be reached or failed (08001, 08006, 58030).
    Database(sqlx::Error),
    /// It contains something that this program does not support (0A000), or that is malformed (XX001).
    Unsupported(String),
    Corrupt(String),
    /// There is no warehouse (3D000), or no such snapshot (22023).
    NotFound(String),
    /// The database or its file is read-only (25006).
    ReadOnly(String),
    /// A rule about roles and privileges forbids it; contains its SQLSTATE.
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

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Conflict(what) => write!(f, "could not serialize access: {what}"),
            Self::Unknown { transaction, .. } => {
                write!(f, "the outcome of the commit of transaction {transaction} is unknown")
            }
            Self::Database(source) => write!(f, "catalog database: {source}"),
            Self::Unsupported(what) | Self::Corrupt(what) | Self::NotFound(what) | Self::ReadOnly(what) => {
                f.write_str(what)
            }
            Self::Refused(refusal) => f.write_str(&refusal.message),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Database(source) | Self::Unknown { source: Some(source), .. } => Some(source),
            _ => None,
        }
    }
}

impl From<sqlx::Error> for Error {
    fn from(source: sqlx::Error) -> Self {
        Self::Database(source)
    }
}
