//! Arrow Flight SQL server: results as Arrow, for ADBC, JDBC and other Flight clients.
//!
//! ```text
//! client ═ gRPC over TCP, TLS ═► connection ─► gate ─► service ─► login: session ─► executor: statement ─► rows
//!                                              auth    RPCs                           encode ◄─ batches ─┘
//! ```
//!
//! - A handshake with a user and a password returns a token, which identifies a session from then on. Without
//!   either, the connection itself is the session, if [`Authenticate`] admits it.
//! - `GetFlightInfo` runs a statement up to its first rows, so that errors are reported at once, its schema
//!   is exact, and it is planned once; a statement without rows is completed. The ticket returns the rows,
//!   once. Rows not fetched in time are dropped.
//! - Rows are encoded once, a few messages ahead of the client; a slow reader blocks the statement
//!   (backpressure).
//! - A statement is canceled when its call, its stream or its connection ends, by `CancelFlightInfo` or
//!   `CancelQuery`, and by a stop request to its session in the [`Registry`].
//!
//! Errors are gRPC statuses, see [`status`]. Architecture Invariant: nothing here parses SQL beyond BEGIN,
//! SET, COPY, CREATE TABLE and information_schema.
//!
//! Source: the Arrow Flight RPC and Arrow Flight SQL pages of the Arrow documentation; Flight.proto,
//! FlightSql.proto.

mod connection;
mod encode;
mod executor;
mod flight_service;
mod gate;
mod ingest;
mod login;
mod metadata;
mod options;
mod placeholders;
mod prepared;
mod service;
mod status;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use arrow_flight::flight_service_server::FlightServiceServer;
use async_trait::async_trait;
use harrier_error::SqlError;
use parking_lot::RwLock;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio_rustls::TlsAcceptor;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::transport::Server;

use self::flight_service::CompleteService;
use self::gate::Gate;
use self::login::Site;
use self::service::Service;
use crate::backend::Backend;
use crate::registry::Registry;

/// HTTP/2 flow-control window of a stream. Ingestion over a slow line needs more than the default of 64 KiB.
const STREAM_WINDOW: u32 = 8 << 20;
const CONNECTION_WINDOW: u32 = 16 << 20;

/// Maximum concurrent calls per connection.
const CALLS_MAX: u32 = 256;

/// Interval and timeout of HTTP/2 keep-alive pings.
const KEEP_ALIVE: Duration = Duration::from_secs(30);
const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(20);

/// Maximum size of an unauthenticated client's message.
const HANDSHAKE_BYTES_MAX: usize = 64 << 10;

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
    pub limits: Limits,
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

    fn acceptor(&self) -> Option<TlsAcceptor> {
        self.0.read().clone()
    }
}

/// Limits on resources and time.
#[derive(Debug, Clone)]
pub struct Limits {
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

impl Default for Limits {
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

/// Serves Flight SQL until `stop` is ready, then drains: statements, protocol transactions and connections
/// end first. Dropping the future ends everything at once.
pub async fn serve(
    listener: TcpListener,
    flight: Flight,
    stop: impl Future<Output = ()> + Send + 'static,
) -> io::Result<()> {
    let encryption = flight.encryption.clone();
    let message_bytes_max = flight.limits.message_bytes_max;
    let sweep = sweep_interval(&flight.limits);
    let site = Arc::new(Site::new(flight));
    let closing = CancellationToken::new();
    let ended = CancellationToken::new();
    let _guard = ended.clone().drop_guard();
    let (sender, links) = mpsc::channel(connection::CONNECTIONS_AHEAD);
    tokio::spawn(ended.clone().run_until_cancelled_owned(connection::accept(listener, encryption, sender)));
    tokio::spawn(ended.clone().run_until_cancelled_owned({
        let site = Arc::clone(&site);
        async move {
            let mut ticks = tokio::time::interval(sweep);
            loop {
                ticks.tick().await;
                site.sweep();
            }
        }
    }));
    tokio::spawn(ended.run_until_cancelled_owned({
        let (site, closing) = (Arc::clone(&site), closing.clone());
        async move {
            stop.await;
            site.drain().await;
            closing.cancel();
        }
    }));
    let whole = CompleteService(Service(Arc::clone(&site)));
    let inner = FlightServiceServer::new(whole.clone()).max_decoding_message_size(message_bytes_max);
    let handshake = FlightServiceServer::new(whole).max_decoding_message_size(HANDSHAKE_BYTES_MAX);
    Server::builder()
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_concurrent_streams(CALLS_MAX)
        .http2_keepalive_interval(Some(KEEP_ALIVE))
        .http2_keepalive_timeout(Some(KEEP_ALIVE_TIMEOUT))
        .add_service(Gate { site, inner, handshake })
        .serve_with_incoming_shutdown(ReceiverStream::new(links), closing.cancelled_owned())
        .await
        .map_err(io::Error::other)
}

/// Timeouts are accurate to a quarter.
fn sweep_interval(limits: &Limits) -> Duration {
    let shortest = limits.idle.min(limits.disconnected).min(limits.result);
    (shortest / 4).clamp(Duration::from_millis(10), Duration::from_secs(1))
}
