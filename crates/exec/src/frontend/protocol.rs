//! Protocol of a front end and its gang, over a local socket: requests, and frames of responses.

use std::io;
use std::path::Path;

use datafusion::common::{DataFusionError, Result, internal_err};
use harrier_error::SqlState;
use harrier_resources::spill_disks::DiskStatus;
use harrier_resources::statement_limits::StatementLimits;
use prost::Message;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

use crate::transport::local_socket;
use crate::transport::stream_metrics::RankCounts;

/// The largest frame that either side accepts: a batch may be large, a larger length is invalid.
const FRAME_BYTES_MAX: usize = 1 << 31;

/// The request of a connection.
#[derive(Clone, PartialEq, Message)]
pub struct Request {
    #[prost(enumeration = "RequestKind", tag = "1")]
    pub kind: i32,
    /// A one-rank plan.
    #[prost(bytes = "vec", tag = "2")]
    pub plan: Vec<u8>,
    /// The session's settings, as encoded by [`propagated_settings::text`].
    #[prost(string, tag = "3")]
    pub settings: String,
    #[prost(uint64, tag = "4")]
    pub distribute_bytes_min: u64,
    #[prost(bool, tag = "5")]
    pub verbose: bool,
    /// EXPLAIN ANALYZE of a writing statement needs its rows as well.
    #[prost(bool, tag = "6")]
    pub keeps_rows: bool,
    /// Ranks to mark down; all others are used.
    #[prost(uint64, repeated, tag = "7")]
    pub marked_down: Vec<u64>,
    /// Memory limit of the statement per rank, in bytes; 0: none.
    #[prost(uint64, tag = "8")]
    pub memory_bytes: u64,
    #[prost(uint64, tag = "9")]
    pub spill_bytes: u64,
    /// Limit of all temporary files of a rank, in bytes; 0: none.
    #[prost(uint64, tag = "11")]
    pub process_spill_bytes: u64,
    /// The number under which the statement's progress can be polled, or of the statement to poll; 0: none.
    #[prost(uint64, tag = "10")]
    pub run: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, prost::Enumeration)]
pub enum RequestKind {
    Nothing = 0,
    Run = 1,
    Explain = 2,
    Analyze = 3,
    /// A stream of gang statuses. The gang ends with the connection.
    Hold = 4,
    /// Marks ranks down for later statements.
    MarkDown = 5,
    /// The progress of a running statement.
    Snapshot = 6,
}

/// Kinds of response frames; a frame is a byte, four bytes of length, and that many bytes.
pub(crate) mod kind {
    /// A part of an Arrow IPC stream: one message with its batch, or the schema.
    pub(crate) const ROWS: u8 = 1;
    /// [`super::Lines`].
    pub(crate) const LINES: u8 = 2;
    /// [`super::Failure`]: the last frame.
    pub(crate) const FAILURE: u8 = 3;
    /// [`super::Status`].
    pub(crate) const STATUS: u8 = 4;
    /// Success: the last frame.
    pub(crate) const END: u8 = 5;
    /// [`harrier_session_api::query_profile::QueryProfile`] of the running statement, before its first row
    /// and after its last.
    pub(crate) const SNAPSHOT: u8 = 6;
}

#[derive(Clone, PartialEq, Message)]
pub struct Lines {
    #[prost(string, repeated, tag = "1")]
    pub lines: Vec<String>,
}

#[derive(Clone, PartialEq, Message)]
pub struct StatementFailure {
    #[prost(string, tag = "1")]
    pub sqlstate: String,
    #[prost(string, tag = "2")]
    pub message: String,
}

/// The status of a gang.
#[derive(Clone, PartialEq, Message)]
pub struct Status {
    #[prost(message, repeated, tag = "1")]
    pub ranks: Vec<RankStatus>,
    /// The MPI library or protocol, for display.
    #[prost(string, tag = "2")]
    pub library: String,
    #[prost(string, tag = "3")]
    pub version: String,
    /// Threads that a statement may use per rank.
    #[prost(uint64, tag = "4")]
    pub threads: u64,
}

#[derive(Clone, PartialEq, Message)]
pub struct RankStatus {
    #[prost(string, tag = "1")]
    pub host: String,
    #[prost(uint32, tag = "2")]
    pub pid: u32,
    /// It takes part in statements; otherwise it is a spare, or lost.
    #[prost(bool, tag = "3")]
    pub works: bool,
    /// The reason, if it is lost.
    #[prost(string, optional, tag = "4")]
    pub lost: Option<String>,
    #[prost(uint64, tag = "5")]
    pub bytes_sent: u64,
    #[prost(uint64, tag = "6")]
    pub frames_sent: u64,
    #[prost(uint64, tag = "7")]
    pub process_cpu_ns: u64,
    #[prost(uint64, tag = "8")]
    pub reserved_bytes: u64,
    #[prost(uint64, tag = "9")]
    pub streams_open: u64,
    /// Marked down: takes part in no statement until it is marked up.
    #[prost(bool, tag = "10")]
    pub marked_down: bool,
    /// Its spill disks; known for working ranks.
    #[prost(message, repeated, tag = "11")]
    pub disks: Vec<DiskStatus>,
    #[prost(uint64, tag = "12")]
    pub resident_bytes: u64,
    /// Known for working ranks.
    #[prost(message, required, tag = "13")]
    pub counts: RankCounts,
    /// Nanoseconds by which its clock is ahead of rank 0's.
    #[prost(sint64, tag = "14")]
    pub clock_ahead_ns: i64,
}

/// The reason shown for a rank that was marked down.
const MARKED_DOWN: &str = "marked down";

impl RankStatus {
    /// Whether it can take part in no statement.
    pub fn is_down(&self) -> bool {
        self.lost.is_some() || self.marked_down
    }

    /// The reason, if it is down.
    pub fn reason(&self) -> Option<String> {
        self.lost.clone().or_else(|| self.marked_down.then(|| MARKED_DOWN.to_string()))
    }
}

impl Request {
    /// Limits of the statement per rank.
    pub(crate) fn limits(&self) -> StatementLimits {
        let limit = |bytes: u64| Some(bytes).filter(|bytes| *bytes > 0);
        StatementLimits {
            memory_bytes: limit(self.memory_bytes),
            spill_bytes: limit(self.spill_bytes),
            process_spill_bytes: limit(self.process_spill_bytes),
        }
    }

    pub(super) fn with_limits(self, limits: StatementLimits) -> Self {
        let StatementLimits { memory_bytes, spill_bytes, process_spill_bytes } =
            self.limits().lower_of(limits);
        Self {
            memory_bytes: memory_bytes.unwrap_or_default(),
            spill_bytes: spill_bytes.unwrap_or_default(),
            process_spill_bytes: process_spill_bytes.unwrap_or_default(),
            ..self
        }
    }
}

pub(super) async fn send_request(path: &Path, request: &Request) -> Result<UnixStream> {
    let mut stream = local_socket::connect(path).await?;
    let bytes = request.encode_to_vec();
    stream.write_all(&(bytes.len() as u32).to_le_bytes()).await?;
    stream.write_all(&bytes).await?;
    Ok(stream)
}

/// Reads the next frame; `None` if the other side has closed the connection.
pub(super) async fn read_frame(stream: &mut UnixStream) -> Result<Option<(u8, Vec<u8>)>> {
    let mut head = [0; 5];
    match stream.read_exact(&mut head).await {
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        Err(error) => return Err(error.into()),
    }
    let length = u32::from_le_bytes([head[1], head[2], head[3], head[4]]) as usize;
    if length > FRAME_BYTES_MAX {
        return internal_err!("a frame of {length} bytes from the gang");
    }
    let mut bytes = vec![0; length];
    match stream.read_exact(&mut bytes).await {
        Ok(_) => Ok(Some((head[0], bytes))),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
        Err(error) => Err(error.into()),
    }
}

pub(super) fn decode<M: Message + Default>(bytes: &[u8]) -> Result<M> {
    M::decode(bytes).map_err(|error| DataFusionError::Internal(format!("a frame of the gang: {error}")))
}

pub(super) fn decode_failure(bytes: &[u8]) -> DataFusionError {
    match StatementFailure::decode(bytes) {
        Ok(StatementFailure { sqlstate, message }) => {
            let state = SqlState::parse(&sqlstate).unwrap_or(SqlState::INTERNAL_ERROR);
            harrier_sqlstate::remote(state, message)
        }
        Err(error) => DataFusionError::Internal(format!("a failure of the gang: {error}")),
    }
}
