//! Arrow Flight SQL server: results as Arrow, for ADBC, JDBC and other Flight clients.
//!
//! ```text
//! client ═ gRPC over TCP, TLS ═► connection ─► gate ─► service ─► login: session ─► executor: statement ─► rows
//!                                              auth    RPCs                           encode ◄─ batches ─┘
//! ```
//!
//! - A handshake with a user and a password returns a token, which identifies a session from then on. Without
//!   either, the connection itself is the session, if [`Authenticate`](crate::auth::Authenticate) admits it.
//! - `GetFlightInfo` runs a statement up to its first rows, so that errors are reported at once, its schema
//!   is exact, and it is planned once; a statement without rows is completed. The ticket returns the rows,
//!   once. Rows not fetched in time are dropped.
//! - Rows are encoded once, a few messages ahead of the client; a slow reader blocks the statement
//!   (backpressure).
//! - A statement is canceled when its call, its stream or its connection ends, by `CancelFlightInfo` or
//!   `CancelQuery`, and by a stop request to its session in the [`Registry`](crate::registry::Registry).
//!
//! Errors are gRPC statuses, see [`status`]. Architecture Invariant: nothing here parses SQL beyond BEGIN,
//! SET, COPY, CREATE TABLE and information_schema.
//!
//! Source: the Arrow Flight RPC and Arrow Flight SQL pages of the Arrow documentation; Flight.proto,
//! FlightSql.proto.

mod batches;
mod configuration;
mod connection;
mod consumer;
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
mod prepared_execution;
mod service;
mod status;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use arrow_flight::flight_service_server::FlightServiceServer;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::transport::Server;

use self::flight_service::CompleteService;
use self::gate::Gate;
use self::login::Site;
use self::service::Service;

pub use self::configuration::{Flight, FlightLimits};

/// The protocol's name, for ALPN.
pub const PROTOCOLS: &[&[u8]] = &[b"h2"];

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
fn sweep_interval(limits: &FlightLimits) -> Duration {
    let shortest = limits.idle.min(limits.disconnected).min(limits.result);
    (shortest / 4).clamp(Duration::from_millis(10), Duration::from_secs(1))
}
