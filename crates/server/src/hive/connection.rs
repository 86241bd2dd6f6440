//! Incoming connections: their number, TLS, the transport, authentication, and calls one after the other.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use harrier_error::{SqlError, SqlState};
use harrier_thrift::{DecodeLimits, Kind, SaslStatus};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::caller::Caller;
use super::ends::Ends;
use super::http::{self, HttpConnection, HttpConnections, Place};
use super::service::answer;
use super::session::Site;
use super::transport::{Transport, VALUES_MAX};
use crate::pg::io::Stream;

/// Maximum size of an unauthenticated client's message.
const OPENING: DecodeLimits = DecodeLimits { bytes: 64 << 10, values: 4096 };

/// Connections allowed per allowed session: pools keep some without one.
const CONNECTIONS_FOR_SESSION: usize = 3;

/// Pause after a failed accept: a lack of descriptors or memory would fail again at once.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// How long a client may take to read a reply.
const SEND_MAX: Duration = Duration::from_secs(600);

/// A connection that nobody is admitted over ends after so many calls.
const REFUSALS_MAX: u32 = 5;

/// HTTP connections waiting to be served.
const HTTP_AHEAD: usize = 64;

/// The first bytes of a connection: SASL's START, a strict message of Thrift, or a method of HTTP.
const SASL: u8 = 0x01;
const THRIFT: u8 = 0x80;
const HTTP: [u8; 5] = *b"PGHOD";

/// The mechanism of SASL.
const PLAIN: &[u8] = b"PLAIN";

/// Accepts connections until `ended`.
pub(super) async fn accept(listener: TcpListener, site: Arc<Site>, ended: CancellationToken) {
    let Ok(address) = listener.local_addr() else { return };
    let (http_sender, ready) = mpsc::channel(HTTP_AHEAD);
    tokio::spawn({
        let serve = http::serve(Arc::clone(&site), HttpConnections { ready, address });
        ended.clone().run_until_cancelled_owned(serve)
    });
    let most =
        site.hive.limits.sessions_max.saturating_mul(CONNECTIONS_FOR_SESSION).min(Semaphore::MAX_PERMITS);
    let places = Arc::new(Semaphore::new(most));
    loop {
        let (stream, client) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "hive: a connection could not be accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        // Clients that connect and stay silent must not exhaust memory.
        let Ok(place) = Arc::clone(&places).try_acquire_owned() else {
            tracing::warn!(%client, "hive: too many connections");
            continue;
        };
        let _ = stream.set_nodelay(true);
        let serve = serve(Arc::clone(&site), stream, client, place, http_sender.clone());
        tokio::spawn(ended.clone().run_until_cancelled_owned(async move {
            if let Err(error) = serve.await {
                tracing::debug!(%client, %error, "hive: a connection ended");
            }
        }));
    }
}

fn late() -> io::Error {
    io::ErrorKind::TimedOut.into()
}

async fn serve(
    site: Arc<Site>,
    stream: TcpStream,
    client: SocketAddr,
    place: Place,
    http: mpsc::Sender<HttpConnection>,
) -> io::Result<()> {
    let limit = site.hive.limits.authentication_timeout;
    let server = stream.local_addr()?;
    let (stream, ends) =
        tokio::time::timeout(limit, encrypt(&site, stream, client, server)).await.map_err(|_| late())??;
    let mut transport = Transport::new(stream);
    let first = tokio::time::timeout(limit, transport.first_byte()).await.map_err(|_| late())??;
    if HTTP.contains(&first) {
        let (stream, read) = transport.into_parts();
        let _ = http.send(HttpConnection::new(stream, read, ends, place, limit)).await;
        return Ok(());
    }
    let caller = match first {
        THRIFT => Caller::unknown(ends),
        SASL => {
            let role = authenticate(&site, &mut transport, &ends);
            let role = tokio::time::timeout(limit, role).await.map_err(|_| late())??;
            Caller::with_role(ends, role)
        }
        _ => return Err(io::Error::new(io::ErrorKind::InvalidData, "an unknown transport")),
    };
    let sessions = EndSessions { site: &site, caller: &caller };
    let result = calls(&site, &caller, &mut transport).await;
    drop(sessions);
    result
}

/// Ends the sessions of a connection with it.
struct EndSessions<'a> {
    site: &'a Site,
    caller: &'a Caller,
}

impl Drop for EndSessions<'_> {
    fn drop(&mut self) {
        for session in self.caller.take_sessions() {
            self.site.end_named(&session);
        }
    }
}

/// Encrypts a connection, if TLS is configured.
async fn encrypt(
    site: &Site,
    stream: TcpStream,
    client: SocketAddr,
    server: SocketAddr,
) -> io::Result<(Box<dyn Stream>, Ends)> {
    let Some(acceptor) = site.hive.encryption.acceptor() else {
        return Ok((Box::new(stream), Ends { client, server, is_encrypted: false, certificate: None }));
    };
    let stream = acceptor.accept(stream).await?;
    let shown = stream.get_ref().1.peer_certificates();
    let certificate = shown.and_then(|chain| chain.first()).map(|first| Arc::from(first.as_ref()));
    Ok((Box::new(stream), Ends { client, server, is_encrypted: true, certificate }))
}

/// SASL's negotiation. Returns the client's role.
async fn authenticate(site: &Site, transport: &mut Transport, ends: &Ends) -> io::Result<String> {
    let start = transport.negotiation(OPENING.bytes).await?;
    if start.status != SaslStatus::Start || start.payload != PLAIN {
        let name = String::from_utf8_lossy(&start.payload).into_owned();
        transport
            .negotiate(SaslStatus::Bad, &format!("the mechanism {name} is not supported; PLAIN is"))
            .await?;
        return Err(io::Error::new(io::ErrorKind::Unsupported, format!("SASL mechanism {name}")));
    }
    let proof = transport.negotiation(OPENING.bytes).await?;
    let role = match credentials(&proof.payload) {
        Some((user, password)) if matches!(proof.status, SaslStatus::Ok | SaslStatus::Complete) => {
            site.authenticate(ends, &user, Some(&password)).await
        }
        _ => Err(SqlError::fatal(SqlState::PROTOCOL_VIOLATION, "credentials of SASL PLAIN were expected")),
    };
    match role {
        Ok(role) => {
            transport.negotiate(SaslStatus::Complete, "").await?;
            Ok(role)
        }
        Err(failure) => {
            transport.negotiate(SaslStatus::Bad, &failure.message).await?;
            Err(io::Error::new(io::ErrorKind::PermissionDenied, failure.message))
        }
    }
}

/// User and password of SASL PLAIN (RFC 4616): whom to act as, user, password.
fn credentials(payload: &[u8]) -> Option<(String, String)> {
    let mut parts = payload.split(|byte| *byte == 0);
    let (acts_as, user, password) = (parts.next()?, parts.next()?, parts.next()?);
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).ok();
    let is_own = acts_as.is_empty() || acts_as == user;
    (is_own && parts.next().is_none()).then_some(())?;
    Some((text(user)?, text(password)?))
}

/// Answers calls until the client has disconnected.
async fn calls(site: &Arc<Site>, caller: &Caller, transport: &mut Transport) -> io::Result<()> {
    let limits = &site.hive.limits;
    let whole = DecodeLimits { bytes: limits.message_bytes_max, values: VALUES_MAX };
    let deadline = Instant::now() + limits.authentication_timeout;
    let mut refusals = 0;
    loop {
        let message = if caller.is_admitted() {
            // A session without calls has ended by then.
            tokio::time::timeout(limits.idle, transport.message(whole)).await
        } else {
            tokio::time::timeout_at(deadline, transport.message(OPENING)).await
        };
        let message = message.map_err(|_| late())??;
        let reply = tokio::select! {
            biased;
            reply = answer(site, caller, &message) => reply,
            error = transport.wait_for_disconnect() => return Err(error),
        };
        if message.kind != Kind::OneWay {
            tokio::time::timeout(SEND_MAX, transport.send(&reply)).await.map_err(|_| late())??;
        }
        if !caller.is_admitted() {
            refusals += 1;
            if refusals >= REFUSALS_MAX {
                return Err(io::ErrorKind::PermissionDenied.into());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_read() {
        let ada = Some(("ada".to_string(), "secret".to_string()));
        assert_eq!(credentials(b"\0ada\0secret"), ada);
        assert_eq!(credentials(b"ada\0ada\0secret"), ada);
        for wrong in [&b"eve\0ada\0secret"[..], b"ada\0secret", b"", b"\0a\0b\0c", b"\0\xff\0x"] {
            assert_eq!(credentials(wrong), None);
        }
    }
}
