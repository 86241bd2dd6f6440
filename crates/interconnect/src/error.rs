//! What can go wrong between ranks, grouped by the largest thing that is dead.

use harrier_mpi::MpiError;
use std::fmt;

/// The gang could not be formed: this rank cannot take part in anything.
#[derive(Debug)]
#[non_exhaustive]
pub enum StartError {
    Mpi(MpiError),
    /// Ranks run different builds of Harrier. `versions`: one per rank.
    VersionMismatch {
        versions: Vec<String>,
    },
    Io(std::io::Error),
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StartError::Mpi(error) => error.fmt(f),
            StartError::Io(error) => write!(f, "could not set up the doorbell: {error}"),
            StartError::VersionMismatch { versions } => {
                f.write_str("the ranks run different builds of harrier: ")?;
                for (rank, version) in versions.iter().enumerate() {
                    write!(f, "{}rank {rank} {version}", if rank > 0 { ", " } else { "" })?;
                }
                Ok(())
            }
        }
    }
}

impl std::error::Error for StartError {}

impl StartError {
    /// Five characters, PostgreSQL's list: 58000 for what surrounds the gang, 55000 for ranks that do not fit together.
    pub fn sqlstate(&self) -> &'static str {
        match self {
            StartError::VersionMismatch { .. } => "55000",
            StartError::Mpi(_) | StartError::Io(_) => "58000",
        }
    }

    /// What was tried, where that helps.
    pub fn detail(&self) -> Option<String> {
        match self {
            StartError::Mpi(error) => error.detail(),
            _ => None,
        }
    }

    /// What to do about it.
    pub fn hint(&self) -> Option<String> {
        match self {
            StartError::Mpi(error) => error.hint(),
            StartError::VersionMismatch { .. } => Some("launch the same binary on every rank".to_string()),
            StartError::Io(_) => None,
        }
    }
}

impl From<MpiError> for StartError {
    fn from(error: MpiError) -> Self {
        StartError::Mpi(error)
    }
}

impl From<std::io::Error> for StartError {
    fn from(error: std::io::Error) -> Self {
        StartError::Io(error)
    }
}

/// A stream's own failure as the producing rank told it. The statement is dead, the gang lives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Five characters, PostgreSQL's list.
    pub sqlstate: String,
    pub message: String,
}

impl Failure {
    pub fn new(sqlstate: impl Into<String>, message: impl Into<String>) -> Failure {
        Failure { sqlstate: sqlstate.into(), message: message.into() }
    }

    /// Five bytes of SQLSTATE, then the message.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = format!("{:5.5}", self.sqlstate).into_bytes();
        bytes.extend_from_slice(self.message.as_bytes());
        bytes
    }

    pub(crate) fn decode(payload: &[u8]) -> Failure {
        let (sqlstate, message) = payload.split_at(payload.len().min(5));
        Failure::new(String::from_utf8_lossy(sqlstate), String::from_utf8_lossy(message))
    }
}

/// How a stream ended other than well.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StreamError {
    /// The statement is dead: its part on `rank` failed.
    Failed { rank: usize, failure: Failure },
    /// The rank is dead or cut off, and with it everything that ran there.
    Lost { rank: usize, reason: String },
    /// The bytes that came from `rank` are not what the stream's schema says. A bug or damaged memory.
    Malformed { rank: usize, reason: String },
}

impl fmt::Display for StreamError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StreamError::Failed { failure, .. } => f.write_str(&failure.message),
            StreamError::Lost { rank, reason } => write!(f, "rank {rank} is lost: {reason}"),
            StreamError::Malformed { rank, reason } => write!(f, "rank {rank} sent {reason}"),
        }
    }
}

impl std::error::Error for StreamError {}
