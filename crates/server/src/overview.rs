//! Server state for pages, metrics and health checks, beyond sessions and statements.

use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use harrier_error::SqlError;

/// Returns current state. A call that takes longer than [`crate::facts::ANSWER_TIMEOUT`] is abandoned, and
/// the page says so.
#[async_trait]
pub trait Overview: Send + Sync + 'static {
    async fn server(&self) -> ServerFacts;

    /// The ranks of the gang by number, including those that are down; empty without a gang.
    async fn ranks(&self) -> Vec<RankFacts>;

    /// Resource queues by name.
    async fn queues(&self) -> Vec<QueueFacts>;

    /// Tables of the current snapshot. Errors: the catalog cannot be read.
    async fn tables(&self) -> Result<Vec<TableFacts>, SqlError>;

    /// The latest commits first, at most [`SNAPSHOTS_MAX`]. Errors: the catalog cannot be read.
    async fn snapshots(&self) -> Result<Vec<SnapshotFacts>, SqlError>;
}

/// Maximum snapshots listed.
pub const SNAPSHOTS_MAX: usize = 50;

/// The server itself.
#[derive(Debug, Clone)]
pub struct ServerFacts {
    pub version: String,
    pub since: SystemTime,
    /// The warehouse's location, without secrets.
    pub warehouse: String,
    /// Listen addresses, and the path of a socket.
    pub listen: Vec<String>,
    /// Why sessions are rejected, such as during shutdown; `None`: they are accepted.
    pub closed: Option<String>,
    /// Wanted number of working ranks; 0: statements run in the server's process.
    pub ranks_wanted: usize,
}

/// A rank of the gang.
#[derive(Debug, Clone, Default)]
pub struct RankFacts {
    pub number: usize,
    pub host: String,
    /// `None` if unknown, or if the rank never started.
    pub process: Option<u32>,
    pub state: RankState,
    /// More about its state, if known.
    pub reason: Option<String>,
    /// Bytes sent to other ranks since it started.
    pub sent_bytes: u64,
    pub sent_frames: u64,
    /// Open streams between it and other ranks.
    pub open_streams: u64,
    /// Memory reserved by statements.
    pub reserved_bytes: u64,
    /// Memory limit of statements; `None`: unknown.
    pub memory_bytes: Option<u64>,
    /// Resident memory of its process.
    pub resident_bytes: Option<u64>,
    /// Processor time since it started.
    pub processor_seconds: f64,
    /// Cores kept busy recently; `None` before the second report.
    pub busy_cores: Option<f64>,
    /// Age of its last report.
    pub report_age: Option<Duration>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum RankState {
    #[default]
    Working,
    /// Replaces a lost rank.
    Spare,
    Down,
}

impl RankState {
    pub const ALL: [Self; 3] = [Self::Working, Self::Spare, Self::Down];

    pub fn name(self) -> &'static str {
        match self {
            Self::Working => "working",
            Self::Spare => "spare",
            Self::Down => "down",
        }
    }
}

/// A resource queue.
#[derive(Debug, Clone, Default)]
pub struct QueueFacts {
    pub name: String,
    /// Its limits as in its definition: `active_statements` and `8`.
    pub limits: Vec<(String, String)>,
    pub running: usize,
    pub waiting: usize,
    /// Of the currently waiting statements.
    pub longest_wait: Duration,
    /// Statements admitted since the server started.
    pub admitted: u64,
    /// Statements rejected since the server started.
    pub refused: u64,
}

/// A table in the current snapshot.
#[derive(Debug, Clone, Default)]
pub struct TableFacts {
    pub schema: String,
    pub name: String,
    pub rows: u64,
    pub bytes: u64,
    pub files: u64,
    /// Rows in its files that have been deleted.
    pub deleted_rows: u64,
    /// Rows inlined in the catalog instead of a file.
    pub kept_rows: u64,
    /// The columns and transforms that determine a row's table partition.
    pub partitioned_by: Option<String>,
}

/// The warehouse after a commit.
#[derive(Debug, Clone)]
pub struct SnapshotFacts {
    pub id: u64,
    pub at: SystemTime,
    /// As recorded in the catalog.
    pub changes: String,
    pub author: Option<String>,
    pub message: Option<String>,
}

/// The server's health, as reported by `/healthz`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Health {
    /// It accepts sessions and can run their statements.
    pub is_ready: bool,
    /// Deviations from the wanted state; empty: healthy.
    pub complaints: Vec<String>,
}

impl Health {
    /// Ready needs at least one working rank; healthy needs all wanted ranks.
    pub fn of(server: &ServerFacts, ranks: &[RankFacts]) -> Self {
        let working = ranks.iter().filter(|rank| rank.state == RankState::Working).count();
        let wanted = server.ranks_wanted;
        let mut complaints: Vec<String> = server.closed.iter().cloned().collect();
        if working < wanted {
            complaints.push(format!("{working} of {wanted} ranks work"));
        }
        complaints.extend(ranks.iter().filter(|rank| rank.state == RankState::Down).map(|rank| {
            let reason = rank.reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default();
            format!("rank {} on {} is down{reason}", rank.number, rank.host)
        }));
        Self { is_ready: server.closed.is_none() && (wanted == 0 || working > 0), complaints }
    }

    pub fn is_well(&self) -> bool {
        self.is_ready && self.complaints.is_empty()
    }
}
