//! Configuration of a Flight SQL server: its sessions, who may log in, encryption and limits.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use harrier_error::SqlError;
use parking_lot::RwLock;
use tokio_rustls::TlsAcceptor;

use crate::backend::Backend;
use crate::registry::Registry;

/// An authentication attempt.
pub struct Attempt<'a> {
    /// Empty if missing.
    pub user: &'a str,
    /// `None` if missing.
    pub password: Option<&'a str>,
    pub database: &'a str,
    pub client: SocketAddr,
    /// The connection uses TLS.
    pub is_encrypted: bool,
    /// The client's certificate, if TLS has verified one.
    pub certificate: Option<&'a [u8]>,
}

/// Authenticates clients.
#[async_trait]
pub trait Authenticate: Send + Sync + 'static {
    /// Returns the client's role. Errors: 28P01 the password is wrong; 28000 no rule admits this connection.
    async fn authenticate(&self, attempt: &Attempt<'_>) -> Result<String, SqlError>;
}

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

/// TLS of connections; once set, unencrypted connections are rejected. Clones share it.
#[derive(Clone, Default)]
pub struct Encryption(Arc<RwLock<Option<TlsAcceptor>>>);

impl Encryption {
    /// Sets TLS for new connections. ALPN is set to HTTP/2.
    pub fn set(&self, config: Option<&rustls::ServerConfig>) {
        *self.0.write() = config.map(|config| {
            let mut config = config.clone();
            config.alpn_protocols = vec![b"h2".to_vec()];
            TlsAcceptor::from(Arc::new(config))
        });
    }

    pub(super) fn acceptor(&self) -> Option<TlsAcceptor> {
        self.0.read().clone()
    }
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
