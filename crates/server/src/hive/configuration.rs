//! Configuration of a HiveServer2: its sessions, who may log in, encryption and limits.

use std::sync::Arc;
use std::time::Duration;

use crate::auth::Authenticate;
use crate::backend::Backend;
use crate::encryption::Encryption;
use crate::registry::Registry;

/// Configuration of a HiveServer2.
#[derive(Clone)]
pub struct Hive {
    pub backend: Arc<dyn Backend>,
    pub registry: Arc<Registry>,
    pub authenticate: Arc<dyn Authenticate>,
    pub encryption: Encryption,
    /// The database of all sessions; Hive's databases are its schemas.
    pub database: String,
    /// Settings of all sessions, before those of the client.
    pub settings: Vec<(String, String)>,
    pub limits: HiveLimits,
}

/// DecodeLimits on resources and time.
#[derive(Debug, Clone)]
pub struct HiveLimits {
    /// Maximum number of sessions, of all protocols.
    pub sessions_max: usize,
    /// Maximum number of a session's operations that are not closed.
    pub operations_max: usize,
    /// Maximum size of a message.
    pub message_bytes_max: usize,
    /// How long a client may take to prove who it is.
    pub authentication_timeout: Duration,
    /// After this time without a call a session is ended.
    pub idle: Duration,
    /// After this time without a call an operation is closed.
    pub idle_operation: Duration,
    /// After this time rows that nobody fetches go into a buffer, so that their statement can end.
    pub buffer_after: Duration,
}

impl Default for HiveLimits {
    fn default() -> Self {
        Self {
            sessions_max: 1000,
            operations_max: 1000,
            message_bytes_max: 64 << 20,
            authentication_timeout: Duration::from_secs(30),
            idle: Duration::from_secs(4 * 3600),
            idle_operation: Duration::from_secs(3600),
            buffer_after: Duration::from_secs(10),
        }
    }
}
