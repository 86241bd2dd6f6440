//! What pages, metrics and health checks want to know of a server beyond its sessions and statements.

use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use harrier_error::SqlError;

/// Answers from what is known now. A method that takes longer than [`crate::http::PATIENCE`] is given up, and
/// the page says so.
#[async_trait]
pub trait Overview: Send + Sync + 'static {
    async fn server(&self) -> ServerFacts;

    /// Of the gang, by number, with those that are down; empty if there is no gang.
    async fn ranks(&self) -> Vec<RankFacts>;

    /// By name.
    async fn queues(&self) -> Vec<QueueFacts>;

    /// Of the snapshot that is current. Errors: the catalog cannot be read.
    async fn tables(&self) -> Result<Vec<TableFacts>, SqlError>;

    /// The last commits, the latest first, [`SNAPSHOTS_MAX`] at most. Errors: the catalog cannot be read.
    async fn snapshots(&self) -> Result<Vec<SnapshotFacts>, SqlError>;
}

/// Snapshots that are told.
pub const SNAPSHOTS_MAX: usize = 50;

/// The server itself.
#[derive(Debug, Clone)]
pub struct ServerFacts {
    pub version: String,
    pub since: SystemTime,
    /// Where the warehouse is; without secrets.
    pub warehouse: String,
    /// Where clients connect to: addresses, and the path of a socket.
    pub listen: Vec<String>,
    /// Why no session is let in, such as that the server is stopping; `None`: sessions are.
    pub closed: Option<String>,
    /// Ranks that are to work at a time; 0: statements run in the server's process.
    pub ranks_wanted: usize,
}

/// A rank of the gang.
#[derive(Debug, Clone, Default)]
pub struct RankFacts {
    pub number: usize,
    pub host: String,
    /// `None` if it is not known, or the rank never started.
    pub process: Option<u32>,
    pub state: RankState,
    /// Why it is in this state, if there is more to say.
    pub reason: Option<String>,
    /// To other ranks, since it started.
    pub sent_bytes: u64,
    pub sent_frames: u64,
    /// Streams between it and other ranks that are open now.
    pub open_streams: u64,
    /// That statements hold.
    pub reserved_bytes: u64,
    /// That statements may hold; `None`: it is not known.
    pub memory_bytes: Option<u64>,
    /// That its process takes.
    pub resident_bytes: Option<u64>,
    /// Processor time since it started.
    pub processor_seconds: f64,
    /// Cores that it kept busy of late; `None`: it was not asked twice yet.
    pub busy_cores: Option<f64>,
    /// How long ago it told all this.
    pub heard: Option<Duration>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum RankState {
    #[default]
    Working,
    /// It waits to replace one that is lost.
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
    /// What it limits, as its definition says it: `active_statements` and `8`.
    pub limits: Vec<(String, String)>,
    pub running: usize,
    pub waiting: usize,
    /// Of those that wait now.
    pub longest_wait: Duration,
    /// Statements since the server began that it let run.
    pub admitted: u64,
    /// Statements since the server began that it could not let run.
    pub refused: u64,
}

/// A table at the current snapshot.
#[derive(Debug, Clone, Default)]
pub struct TableFacts {
    pub schema: String,
    pub name: String,
    pub rows: u64,
    pub bytes: u64,
    pub files: u64,
    /// In the files, but not in the table any more.
    pub deleted_rows: u64,
    /// That the catalog has instead of a file.
    pub kept_rows: u64,
    /// The columns, and what is made of them, that say in which table partition a row is.
    pub partitioned_by: Option<String>,
}

/// What the warehouse held after a commit.
#[derive(Debug, Clone)]
pub struct SnapshotFacts {
    pub id: u64,
    pub at: SystemTime,
    /// As the catalog says it.
    pub changes: String,
    pub author: Option<String>,
    pub message: Option<String>,
}

/// How a server is, as `/healthz` tells it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Health {
    /// It lets sessions in and can run their statements.
    pub is_ready: bool,
    /// What is not as wanted; empty: all is well.
    pub complaints: Vec<String>,
}

impl Health {
    /// A server without a rank that works is not ready; one with fewer than wanted is, and is not well.
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
