//! State of a session: its user, its transaction and its timeouts.

use std::net::SocketAddr;
use std::time::Duration;

/// The authenticated user of a session.
#[derive(Debug, Clone)]
pub struct SessionIdentity {
    pub role: String,
    pub database: String,
    /// The backend process id, for `pg_backend_pid()` and cancel requests of other sessions.
    pub process: i32,
    /// `None` for a local socket.
    pub client: Option<SocketAddr>,
    /// Where the server has accepted the connection; `None`: not shown to the client.
    pub server: Option<SocketAddr>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TransactionState {
    /// No transaction is open.
    Idle,
    Open,
    /// A failed transaction is open, which can only be rolled back.
    Failed,
}

/// Timeouts of a session, `None` for no limit. The server enforces them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TimeLimits {
    pub statement: Option<Duration>,
    pub idle: Option<Duration>,
    pub idle_in_transaction: Option<Duration>,
}
