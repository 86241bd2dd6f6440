//! Errors of the interconnect, grouped by the largest thing that is dead.

use crate::configuration::Difference;
use crate::presence::Attendance;
use harrier_error::{SqlState, exit};
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
    /// Ranks were started with different arguments.
    ConfigurationMismatch(Difference),
    /// MPI has not connected the ranks in time. Its call may block for ever on another thread, so the exit
    /// handlers of its library are skipped.
    StartTimeout {
        seconds: u64,
        attendance: Option<Attendance>,
    },
    Io(std::io::Error),
    /// The configuration of this process's place in the gang is invalid.
    Place(PlaceError),
    /// This rank cannot listen on the address of the hosts file.
    Port {
        address: String,
        error: std::io::Error,
    },
    /// A rank answers with another token or none.
    WrongToken {
        rank: usize,
        address: String,
    },
    /// These ranks did not come, each with its address. `strangers`: peers that tried with another token.
    NoAnswer {
        missing: Vec<(usize, String)>,
        seconds: u64,
        strangers: Vec<String>,
    },
    /// Another rank is incompatible with this one, or disconnected before the gang was formed.
    Incompatible {
        rank: usize,
        address: String,
        what: String,
    },
    /// Names in the hosts file that do not resolve on this host, each with the reason.
    UnknownHosts {
        hosts: Vec<(String, String)>,
    },
    /// The encryption between ranks is not available.
    Encryption(String),
}

/// An error in the hosts file, the token, or the variables that define a process's place.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PlaceError {
    #[error("the {what} {} cannot be read: {error}", .path.display())]
    Unreadable { what: &'static str, path: PathBuf, error: std::io::Error },
    /// `line` is counted from 1.
    #[error("line {line} of the hosts file {}: {what}", .path.display())]
    Line { path: PathBuf, line: usize, what: String },
    #[error("{variable} is not set")]
    Missing { variable: &'static str },
    #[error("{variable} is \"{value}\"")]
    Variable { variable: &'static str, value: String, wanted: &'static str },
    #[error("the token has {bytes} bytes")]
    ShortToken { bytes: usize },
    #[error("the hosts file has places for {places} ranks, not for {ranks}")]
    Ranks { ranks: u64, places: usize },
    #[error("there is no rank {rank} of {ranks}")]
    Rank { rank: u64, ranks: usize },
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
            StartError::Incompatible { rank, address, what } => write!(f, "rank {rank} ({address}) {what}"),
            StartError::UnknownHosts { hosts } => {
                for (at, (host, reason)) in hosts.iter().enumerate() {
                    let and = if at > 0 { "; " } else { "" };
                    write!(f, "{and}host name \"{host}\" of the hosts file is not known here ({reason})")?;
                }
                Ok(())
            }
            StartError::ConfigurationMismatch(difference) => {
                let Difference { rank, host, what, theirs, other, others } = difference;
                write!(f, "rank {rank} (on {host}) was started with other {what}")?;
                match (theirs.as_str(), others.as_str()) {
                    ("", "") => Ok(()),
                    (theirs, others) => write!(f, ": {}; rank {other}: {}", or_none(theirs), or_none(others)),
                }
            }
            StartError::StartTimeout { seconds, attendance: None } => {
                write!(f, "the ranks have not met within {seconds} s")
            }
            StartError::StartTimeout { seconds, attendance: Some(attendance) } => {
                let Attendance { host, ranks, ranks_here, here } = attendance;
                match attendance.missing() {
                    Some(missing) if missing.is_empty() => {
                        write!(f, "the ranks are all on {host}, and have not met within {seconds} s")
                    }
                    Some(missing) => {
                        write!(f, "{} did not come within {seconds} s, on {host}", format_ranks(&missing))
                    }
                    None => {
                        write!(f, "the ranks")?;
                        if let Some(ranks) = ranks {
                            write!(f, ", {ranks} in all,")?;
                        }
                        write!(f, " have not met within {seconds} s; on {host} {} came", format_ranks(here))?;
                        match ranks_here {
                            Some(started) if *started > here.len() => {
                                write!(f, " of {started} that were started there")
                            }
                            _ => write!(f, ", and of those on other hosts nothing is known here"),
                        }
                    }
                }
            }
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

/// Formats `rank 3`, or `ranks 1, 2, 5`; at most a handful.
fn format_ranks(ranks: &[usize]) -> String {
    const NAMED_MAX: usize = 16;
    let shown: Vec<String> = ranks.iter().take(NAMED_MAX).map(usize::to_string).collect();
    match ranks {
        [] => "no rank".to_string(),
        [rank] => format!("rank {rank}"),
        _ if ranks.len() > NAMED_MAX => {
            format!("ranks {} and {} others", shown.join(", "), ranks.len() - NAMED_MAX)
        }
        _ => format!("ranks {}", shown.join(", ")),
    }
}

fn or_none(text: &str) -> &str {
    if text.is_empty() { "none" } else { text }
}

impl std::error::Error for StartError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            StartError::Mpi(error) => Some(error),
            StartError::Io(error) | StartError::Port { error, .. } => Some(error),
            StartError::Place(error) => Some(error),
            _ => None,
        }
    }
}

impl StartError {
    /// 58000 for the environment of the gang, 55000 for incompatible ranks, F0000 for their configuration.
    pub fn sqlstate(&self) -> SqlState {
        match self {
            StartError::VersionMismatch { .. }
            | StartError::ConfigurationMismatch(_)
            | StartError::Incompatible { .. } => SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE,
            StartError::Mpi(_) | StartError::Io(_) | StartError::Encryption(_) => SqlState::SYSTEM_ERROR,
            StartError::Place(_) => SqlState::CONFIG_FILE_ERROR,
            StartError::Port { .. } => SqlState::IO_ERROR,
            StartError::WrongToken { .. } => SqlState::INVALID_AUTHORIZATION_SPECIFICATION,
            StartError::NoAnswer { .. }
            | StartError::StartTimeout { .. }
            | StartError::UnknownHosts { .. } => SqlState::CONNECTION_NOT_ESTABLISHED,
        }
    }

    /// Whether rank `rank` of a launcher reports it: rank 0 reports what all ranks know, and the first rank
    /// of a host what only the ranks of that host know. Without a launcher above it, this may be the only
    /// rank.
    pub fn is_reported_by(&self, rank: usize) -> bool {
        match self {
            StartError::VersionMismatch { .. } | StartError::ConfigurationMismatch(_) => rank == 0,
            StartError::StartTimeout { attendance: Some(Attendance { here, .. }), .. } => {
                here.iter().all(|other| rank <= *other)
            }
            StartError::StartTimeout { attendance: None, .. } => true,
            _ => rank == 0 || !harrier_mpi::has_launcher(),
        }
    }

    /// All lines for standard error, without a final newline.
    pub fn report(&self) -> String {
        let mut report = format!("ERROR {}: {self}", self.sqlstate());
        for (label, text) in [("DETAIL", self.detail()), ("HINT", self.hint())] {
            if let Some(text) = text {
                report.push_str(&format!("\n{label}: {text}"));
            }
        }
        report
    }

    /// The exit status of a process that could not determine its launch: a broken MPI library, or a usage
    /// error.
    pub fn exit_status(&self) -> u8 {
        match self {
            StartError::Mpi(_) => exit::BROKEN,
            _ => exit::USAGE,
        }
    }

    /// The attempts, where that helps.
    pub fn detail(&self) -> Option<String> {
        match self {
            StartError::Mpi(error) => error.detail(),
            StartError::NoAnswer { strangers, .. } if !strangers.is_empty() => {
                Some(format!("another token was used from {}", strangers.join(", ")))
            }
            _ => None,
        }
    }

    /// Suggests what to do.
    pub fn hint(&self) -> Option<String> {
        match self {
            StartError::Mpi(error) => error.hint(),
            StartError::VersionMismatch { .. } => Some("launch the same binary on every rank".to_string()),
            StartError::ConfigurationMismatch(_) => Some(
                "ranks of one gang run one program with the same arguments; where each process shall work by itself, give --alone or \
                 HARRIER_ALONE=1"
                    .to_string(),
            ),
            StartError::StartTimeout { attendance, .. } => {
                let program = "a rank whose program ends before it joins keeps the others waiting: look what it said; \
                               HARRIER_START_SECONDS gives them longer, and --alone or HARRIER_ALONE=1 runs a process by itself";
                let network = "between hosts, name the network that joins them: --mca btl_tcp_if_include 10.0.0.0/8 (Open MPI), \
                               UCX_NET_DEVICES=eth0 (UCX), FI_TCP_IFACE=eth0 (libfabric), for a bridge such as docker0 has the same \
                               address on every host";
                let missing = attendance.as_ref().and_then(Attendance::missing).map(|missing| missing.is_empty());
                Some(match missing {
                    Some(false) => program.to_string(),
                    Some(true) => format!("{network}; HARRIER_START_SECONDS gives the ranks longer"),
                    None => format!("{program}; {network}"),
                })
            }
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
            StartError::UnknownHosts { .. } => {
                Some("write names into the hosts file that every host knows, or addresses".to_string())
            }
            StartError::Incompatible { .. } => Some("give every rank the same hosts file and the same binary".to_string()),
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

/// A stream's failure as reported by the producing rank. The statement is dead, the gang lives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    pub sqlstate: SqlState,
    pub message: String,
}

impl Failure {
    pub fn new(sqlstate: SqlState, message: impl Into<String>) -> Failure {
        Failure { sqlstate, message: message.into() }
    }

    /// Five bytes of SQLSTATE, then the message.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = self.sqlstate.as_str().as_bytes().to_vec();
        bytes.extend_from_slice(self.message.as_bytes());
        bytes
    }

    pub(crate) fn decode(payload: &[u8]) -> Failure {
        let (sqlstate, message) = payload.split_at(payload.len().min(5));
        let sqlstate = str::from_utf8(sqlstate).ok().and_then(SqlState::parse);
        Failure::new(sqlstate.unwrap_or(SqlState::INTERNAL_ERROR), String::from_utf8_lossy(message))
    }
}

/// A stream's abnormal end.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StreamError {
    /// The statement is dead: its slice on `rank` failed.
    Failed { rank: usize, failure: Failure },
    /// The rank is dead or cut off, and with it everything that ran there.
    Lost { rank: usize, reason: String },
    /// The bytes from `rank` do not match the stream's schema. A bug or memory corruption.
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
