//! Arrow Flight SQL: results arrive as Arrow, for ADBC, JDBC and whoever speaks Flight.
//!
//! ```text
//! client ═ gRPC over TCP, TLS ═► connection ─► gate ─► service ─► login: a session ─► turn: a statement ─► rows
//!                                              who?    the calls                      encode ◄─ batches ─┘
//! ```
//!
//! - A handshake with a user and a password gives a token, which names a session from then on. Without
//!   either, the connection itself is the session, if [`Authenticate`] lets it in.
//! - `GetFlightInfo` runs a statement as far as its first rows, so that what is wrong with it is said at
//!   once, its schema is exact, and it is planned once; a statement without rows has been run by then. The
//!   ticket gives the rows, once. Rows that nobody asks for in time are given up.
//! - Rows are encoded once, a few messages ahead of the client; when it reads slowly, the statement waits.
//! - A statement ends early when its call, its stream or its connection does, by `CancelFlightInfo` or
//!   `CancelQuery`, and by whatever stops a session in the [`Registry`].
//!
//! Errors are gRPC statuses, see [`status`]. Architecture Invariant: nothing here knows SQL beyond BEGIN,
//! SET, COPY, CREATE TABLE and information_schema.
//!
//! Source: the Arrow Flight RPC and Arrow Flight SQL pages of the Arrow documentation; Flight.proto,
//! FlightSql.proto.

mod connection;
mod encode;
mod gate;
mod ingest;
mod login;
mod metadata;
mod options;
mod placeholders;
mod prepared;
mod service;
mod status;
mod turn;
mod whole;

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

use self::gate::Gate;
use self::login::Site;
use self::service::Service;
use self::whole::Whole;
use crate::backend::Backend;
use crate::registry::Registry;

/// Bytes that a client may send of a stream before they were read. Ingestion over a slow line needs more than
/// HTTP/2's 64 KiB.
const STREAM_WINDOW: u32 = 8 << 20;
const CONNECTION_WINDOW: u32 = 16 << 20;

/// Calls of one connection at a time.
const CALLS_MAX: u32 = 256;

/// How often a silent client is asked whether it lives, and how long it may take to say so.
const KEEP_ALIVE: Duration = Duration::from_secs(30);
const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(20);

/// Bytes of a message of a client that is not logged in.
const HANDSHAKE_BYTES_MAX: usize = 64 << 10;

/// Who wants in.
pub struct Attempt<'a> {
    /// Empty if none was said.
    pub user: &'a str,
    /// `None` if none was said.
    pub password: Option<&'a str>,
    pub database: &'a str,
    pub client: SocketAddr,
    /// The connection is encrypted.
    pub is_encrypted: bool,
    /// What the client has shown, if TLS has checked it.
    pub certificate: Option<&'a [u8]>,
}

/// Knows who may come in.
#[async_trait]
pub trait Authenticate: Send + Sync + 'static {
    /// Returns the role of who comes. Errors: 28P01 the password is wrong; 28000 nobody may come in that way.
    async fn authenticate(&self, attempt: &Attempt<'_>) -> Result<String, SqlError>;
}

/// What is served.
#[derive(Clone)]
pub struct Flight {
    pub backend: Arc<dyn Backend>,
    pub registry: Arc<Registry>,
    pub authenticate: Arc<dyn Authenticate>,
    pub encryption: Encryption,
    /// Of clients that name none.
    pub database: String,
    pub limits: Limits,
}

/// What connections are encrypted with; as long as there is something, no others are taken. Clones share it.
#[derive(Clone, Default)]
pub struct Encryption(Arc<RwLock<Option<TlsAcceptor>>>);

impl Encryption {
    /// For connections that come from now on. Protocols for ALPN are set to HTTP/2.
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

/// How much and how long.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Clients that are logged in.
    pub sessions_max: usize,
    /// Statements of a client that run beside its first, outside of transactions.
    pub statements_beside_max: usize,
    /// Results of a client that it has not asked for yet.
    pub results_max: usize,
    /// Prepared statements of a client.
    pub prepared_max: usize,
    /// Bytes of a message from a client: an ingestion's batch, or a statement's text.
    pub message_bytes_max: usize,
    /// A client that does nothing for so long is logged out.
    pub idle: Duration,
    /// A client whose connection is gone for so long is logged out; gRPC's clients connect again by
    /// themselves.
    pub disconnected: Duration,
    /// Rows that are not asked for within that time are given up.
    pub result: Duration,
    /// How long a statement waits for another of the same transaction.
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

/// Serves Flight SQL until `stop` is ready and then what was begun has ended: statements, transactions that
/// the protocol opened, connections. Dropping the future ends everything at once.
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
    let whole = Whole(Service(Arc::clone(&site)));
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

/// Time limits are kept to within a quarter.
fn sweep_interval(limits: &Limits) -> Duration {
    let shortest = limits.idle.min(limits.disconnected).min(limits.result);
    (shortest / 4).clamp(Duration::from_millis(10), Duration::from_secs(1))
}
