//! What can go wrong between ranks, grouped by the largest thing that is dead.

use harrier_mpi::MpiError;
use std::fmt;
use std::path::PathBuf;

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
    /// What this process was told of the gang cannot be used.
    Place(PlaceError),
    /// This rank cannot listen where the hosts file says.
    Port {
        address: String,
        error: std::io::Error,
    },
    /// A rank answers, and knows another token or none.
    WrongToken {
        rank: usize,
        address: String,
    },
    /// These ranks did not come, each with its address. `strangers`: who tried with another token.
    NoAnswer {
        missing: Vec<(usize, String)>,
        seconds: u64,
        strangers: Vec<String>,
    },
    /// Another rank does not fit to this one, or went away before the gang was formed.
    Unfit {
        rank: usize,
        address: String,
        what: String,
    },
    /// The encryption that ranks speak cannot be had.
    Encryption(String),
}

/// What is wrong with the hosts file, the token, or the variables that tell a process its place.
#[derive(Debug)]
#[non_exhaustive]
pub enum PlaceError {
    Unreadable {
        what: &'static str,
        path: PathBuf,
        error: std::io::Error,
    },
    /// `line` is counted from 1.
    Line {
        path: PathBuf,
        line: usize,
        what: String,
    },
    Missing {
        variable: &'static str,
    },
    Variable {
        variable: &'static str,
        value: String,
        wanted: &'static str,
    },
    ShortToken {
        bytes: usize,
    },
    Ranks {
        ranks: u64,
        places: usize,
    },
    Rank {
        rank: u64,
        ranks: usize,
    },
}

impl fmt::Display for PlaceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PlaceError::Unreadable { what, path, error } => {
                write!(f, "the {what} {} cannot be read: {error}", path.display())
            }
            PlaceError::Line { path, line, what } => {
                write!(f, "line {line} of the hosts file {}: {what}", path.display())
            }
            PlaceError::Missing { variable } => write!(f, "{variable} is not set"),
            PlaceError::Variable { variable, value, .. } => write!(f, "{variable} is \"{value}\""),
            PlaceError::ShortToken { bytes } => write!(f, "the token has {bytes} bytes"),
            PlaceError::Ranks { ranks, places } => {
                write!(f, "the hosts file has places for {places} ranks, not for {ranks}")
            }
            PlaceError::Rank { rank, ranks } => write!(f, "there is no rank {rank} of {ranks}"),
        }
    }
}

impl PlaceError {
    fn hint(&self) -> Option<String> {
        let hint = match self {
            PlaceError::Missing { variable } if variable.ends_with("RANK") => {
                "start every rank with its number, from 0 on, in HARRIER_RANK"
            }
            PlaceError::Missing { .. } | PlaceError::ShortToken { .. } => {
                "set HARRIER_TOKEN, or HARRIER_TOKEN_FILE to a file, to the same secret of at least 16 bytes on every \
                 rank, such as openssl rand -hex 32 prints"
            }
            PlaceError::Variable { variable, wanted, .. } => {
                return Some(format!("{variable} takes {wanted}"));
            }
            PlaceError::Ranks { .. } | PlaceError::Rank { .. } => {
                "ranks are numbered from 0 on in the order of the hosts file; HARRIER_RANKS takes the first of them"
            }
            PlaceError::Line { .. } => "a line is host, host:port or host slots=N; # begins a comment",
            PlaceError::Unreadable { .. } => return None,
        };
        Some(hint.to_string())
    }
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StartError::Mpi(error) => error.fmt(f),
            StartError::Io(error) => write!(f, "could not set up the doorbell: {error}"),
            StartError::Place(error) => error.fmt(f),
            StartError::Port { address, error } => write!(f, "could not listen on {address}: {error}"),
            StartError::WrongToken { rank, address } => {
                write!(f, "rank {rank} ({address}) was started with another token")
            }
            StartError::NoAnswer { missing, seconds, .. } => {
                for (at, (rank, address)) in missing.iter().enumerate() {
                    write!(f, "{}rank {rank} ({address})", if at > 0 { ", " } else { "" })?;
                }
                write!(f, " did not come within {seconds} s")
            }
            StartError::Unfit { rank, address, what } => write!(f, "rank {rank} ({address}) {what}"),
            StartError::Encryption(reason) => write!(f, "could not set up the encryption: {reason}"),
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

impl std::error::Error for PlaceError {}

impl StartError {
    /// Five characters, PostgreSQL's list: 58000 for what surrounds the gang, 55000 for ranks that do not fit together, F0000
    /// for what they were told.
    pub fn sqlstate(&self) -> &'static str {
        match self {
            StartError::VersionMismatch { .. } | StartError::Unfit { .. } => "55000",
            StartError::Mpi(_) | StartError::Io(_) | StartError::Encryption(_) => "58000",
            StartError::Place(_) => "F0000",
            StartError::Port { .. } => "58030",
            StartError::WrongToken { .. } => "28000",
            StartError::NoAnswer { .. } => "08001",
        }
    }

    /// What was tried, where that helps.
    pub fn detail(&self) -> Option<String> {
        match self {
            StartError::Mpi(error) => error.detail(),
            StartError::NoAnswer { strangers, .. } if !strangers.is_empty() => {
                Some(format!("another token was used from {}", strangers.join(", ")))
            }
            _ => None,
        }
    }

    /// What to do about it.
    pub fn hint(&self) -> Option<String> {
        match self {
            StartError::Mpi(error) => error.hint(),
            StartError::VersionMismatch { .. } => Some("launch the same binary on every rank".to_string()),
            StartError::Place(error) => error.hint(),
            StartError::Port { error, .. } if error.kind() == std::io::ErrorKind::AddrInUse => {
                Some("another process has the port: end it, or give this rank another one in the hosts file".to_string())
            }
            StartError::Port { .. } => {
                Some("this process must run on the host that the hosts file names for its rank".to_string())
            }
            StartError::WrongToken { .. } => {
                Some("give every rank the same HARRIER_TOKEN, and every gang its own".to_string())
            }
            StartError::NoAnswer { .. } => Some(
                "start every rank of the hosts file, let UDP pass between the hosts, and give HARRIER_START_SECONDS \
                 if they need longer"
                    .to_string(),
            ),
            StartError::Unfit { .. } => Some("give every rank the same hosts file and the same binary".to_string()),
            StartError::Io(_) | StartError::Encryption(_) => None,
        }
    }
}

impl From<MpiError> for StartError {
    fn from(error: MpiError) -> Self {
        StartError::Mpi(error)
    }
}

impl From<PlaceError> for StartError {
    fn from(error: PlaceError) -> Self {
        StartError::Place(error)
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
