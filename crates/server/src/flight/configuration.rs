//! Configuration of a Flight SQL server: its sessions, who may log in, encryption and limits.

use std::sync::Arc;
use std::time::Duration;

use crate::auth::Authenticate;
use crate::backend::Backend;
use crate::encryption::Encryption;
use crate::registry::Registry;

/// Configuration of a Flight SQL server.
#[derive(Clone)]
pub struct Flight {
    pub backend: Arc<dyn Backend>,
    pub registry: Arc<Registry>,
    pub authenticate: Arc<dyn Authenticate>,
    pub encryption: Encryption,
    /// Default database.
    pub database: String,
    pub limits: FlightLimits,
}

/// FlightLimits on resources and time.
#[derive(Debug, Clone)]
pub struct FlightLimits {
    /// Maximum number of logins.
    pub sessions_max: usize,
    /// Maximum concurrent statements of a client beside its first, outside of transactions.
    pub statements_beside_max: usize,
    /// Maximum results of a client not yet fetched.
    pub results_max: usize,
    /// Maximum prepared statements of a client.
    pub prepared_max: usize,
    /// Maximum size of a client's message: an ingested batch, or a statement's text.
    pub message_bytes_max: usize,
    /// Idle timeout of a login.
    pub idle: Duration,
    /// Timeout of a login after its connection is lost; gRPC clients reconnect by themselves.
    pub disconnected: Duration,
    /// Timeout of results not fetched.
    pub result: Duration,
    /// How long a statement waits for another one of the same transaction.
    pub busy: Duration,
}

impl Default for FlightLimits {
    fn default() -> Self {
        Self {
            sessions_max: 1000,
            statements_beside_max: 16,
            results_max: 64,
            prepared_max: 1000,
            message_bytes_max: 256 << 20,
            idle: Duration::from_secs(30 * 60),
            disconnected: Duration::from_secs(60),
            result: Duration::from_secs(120),
            busy: Duration::from_secs(5),
        }
    }
}
