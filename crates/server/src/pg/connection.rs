//! A connection from its first byte: encryption, cancel requests, authentication, then its session.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::{Buf, Bytes};
use harrier_error::{SqlError, SqlState};
use harrier_session_api::session::SessionIdentity;
use rand::Rng;
use tokio_rustls::TlsAcceptor;

use super::authentication::{Arrival, Exchange, Method};
use super::io::{Io, Stream};
use super::messages::{self, First, Message};
use super::server::Server;
use super::session::{ClientSession, RequestError, terminated_error};
use crate::auth::wrong_password;

/// The first byte of direct TLS, without an SSLRequest.
const TLS_HANDSHAKE: u8 = 0x16;

/// Codes of authentication messages.
const OK: i32 = 0;
const CLEARTEXT_PASSWORD: i32 = 3;
const SASL: i32 = 10;
const SASL_CONTINUE: i32 = 11;
const SASL_FINAL: i32 = 12;

/// The origin of a connection.
#[derive(Debug, Clone, Copy)]
pub(super) struct Origin {
    /// `None`: over a local socket.
    pub(super) client: Option<SocketAddr>,
    pub(super) server: Option<SocketAddr>,
    pub(super) local_user: Option<u32>,
}

/// The settings a client requests in its startup message.
struct StartupRequest {
    role: String,
    database: String,
    settings: Vec<(String, String)>,
}

/// Serves one connection until it ends.
pub(super) async fn serve(server: Arc<Server>, stream: Box<dyn Stream>, origin: Origin) {
    let limit = server.options().authentication_timeout;
    let mut io = Io::new(stream);
    let started = tokio::time::timeout(limit, start(&server, &mut io, origin)).await;
    let mut conversation = match started {
        Ok(Ok(Some(begin))) => {
            let Begin { session, guard } = begin;
            ClientSession::new(io, session, Arc::clone(&server.registry), guard)
        }
        // A cancel request, or a disconnected client.
        Ok(Ok(None) | Err(RequestError::Disconnected(_))) => return,
        Ok(Err(RequestError::Failed(failure))) => {
            server.registry.totals().refused.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            io.reply.failure(&SqlError { is_fatal: true, ..failure });
            let _ = tokio::time::timeout(limit, io.flush()).await;
            return;
        }
        // Without an error message, as in PostgreSQL.
        Err(_) => return,
    };
    conversation.run().await;
}

struct Begin {
    session: Arc<dyn crate::backend::BackendSession>,
    guard: crate::registry::SessionGuard,
}

/// Authenticates the client and opens a session; `None` for a cancel request.
async fn start(server: &Arc<Server>, io: &mut Io, origin: Origin) -> Result<Option<Begin>, RequestError> {
    let Some((request, is_encrypted, certificate)) = startup(server, io).await? else {
        return Ok(None);
    };
    if let Some(failure) = server.closed_reason() {
        return Err(failure.into());
    }
    if server.is_stopping() {
        return Err(
            SqlError::fatal(SqlState::CANNOT_CONNECT_NOW, "the database system is shutting down").into()
        );
    }
    let StartupRequest { role, database, settings } = request;
    let Origin { client, server: address, local_user } = origin;
    let arrival = Arrival {
        role: role.clone(),
        database: database.clone(),
        client,
        server: address,
        local_user,
        is_encrypted,
        certificate,
    };
    let authenticated = authenticate(server, io, &arrival).await;
    let authenticated = match authenticated {
        Ok(()) => server.authentication.admit(&arrival).await.map_err(RequestError::from),
        failed => failed,
    };
    if let Err(RequestError::Failed(failure)) = &authenticated {
        server.authentication.report_rejection(&arrival, failure);
        server.registry.refuse(&role, &database, client, failure);
    }
    authenticated?;
    let process = server.registry.next_session();
    let secret = rand::rng().random();
    let guard = server.registry.enter(process, secret, &role, &database, client);
    if server.registry.sessions().len() > server.options().sessions_max {
        return Err(SqlError::fatal(SqlState::TOO_MANY_CONNECTIONS, "sorry, too many clients already").into());
    }
    let identity = SessionIdentity { role, database, process, client, server: address };
    let session = server.backend.open(identity, settings).await?;
    io.reply.authentication(OK, &[]);
    io.reply.key(process, secret);
    if server.is_stopping() {
        return Err(terminated_error().into());
    }
    Ok(Some(Begin { session, guard }))
}

/// Reads the messages before the startup message, and encrypts the connection on request.
async fn startup(
    server: &Arc<Server>,
    io: &mut Io,
) -> Result<Option<(StartupRequest, bool, Option<Vec<u8>>)>, RequestError> {
    let mut is_encrypted = false;
    let mut certificate = None;
    loop {
        let first = loop {
            if !is_encrypted && io.input.first() == Some(&TLS_HANDSHAKE) {
                let Some(config) = server.tls() else {
                    return Err(RequestError::Disconnected(io::ErrorKind::ConnectionRefused.into()));
                };
                certificate = encrypt(io, config).await?;
                is_encrypted = true;
                continue;
            }
            match messages::first(&mut io.input)? {
                Some(first) => break first,
                None => io.fill().await?,
            }
        };
        match first {
            First::Ssl if !is_encrypted => {
                let config = server.tls();
                // Plaintext after the request could be injected by an attacker.
                if !io.input.is_empty() {
                    let message = "received unencrypted data after SSL request";
                    return Err(SqlError::fatal(SqlState::PROTOCOL_VIOLATION, message).into());
                }
                io.reply.0.extend_from_slice(if config.is_some() { b"S" } else { b"N" });
                io.flush().await?;
                if let Some(config) = config {
                    certificate = encrypt(io, config).await?;
                    is_encrypted = true;
                }
            }
            First::Ssl | First::Gss => {
                io.reply.0.extend_from_slice(b"N");
                io.flush().await?;
            }
            First::Cancel { process, secret } => {
                server.registry.cancel(process, secret);
                return Ok(None);
            }
            First::Startup { minor, parameters } => {
                return Ok(Some((startup_request(io, minor, parameters)?, is_encrypted, certificate)));
            }
        }
    }
}

/// Parses the parameters of a startup message.
fn startup_request(
    io: &mut Io,
    minor: u16,
    parameters: Vec<(String, String)>,
) -> Result<StartupRequest, SqlError> {
    let (mut role, mut database, mut settings) = (String::new(), String::new(), Vec::new());
    let mut unknown = Vec::new();
    for (name, value) in &parameters {
        match name.as_str() {
            "user" => role.clone_from(value),
            "database" => database.clone_from(value),
            "replication" if matches!(value.as_str(), "false" | "off" | "no" | "0") => {}
            "replication" => {
                return Err(SqlError::fatal(SqlState::FEATURE_NOT_SUPPORTED, "replication is not supported"));
            }
            "options" => settings.extend(command_line(value)?),
            protocol if protocol.starts_with("_pq_.") => unknown.push(protocol),
            _ => settings.push((name.clone(), value.clone())),
        }
    }
    if role.is_empty() {
        return Err(SqlError::fatal(
            SqlState::INVALID_AUTHORIZATION_SPECIFICATION,
            "no PostgreSQL user name specified in startup packet",
        ));
    }
    if database.is_empty() {
        database.clone_from(&role);
    }
    if minor > 0 || !unknown.is_empty() {
        io.reply.negotiate(&unknown);
    }
    Ok(StartupRequest { role, database, settings })
}

/// Parses settings in the form `-c name=value` or `--name=value`, with backslashes before blanks in values.
fn command_line(text: &str) -> Result<Vec<(String, String)>, SqlError> {
    let mut words = vec![String::new()];
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        let word = words.last_mut().filter(|_| !c.is_whitespace());
        match (word, c) {
            (None, _) => words.push(String::new()),
            (Some(word), '\\') => word.extend(chars.next()),
            (Some(word), c) => word.push(c),
        }
    }
    let mut settings = Vec::new();
    let mut words = words.into_iter().filter(|word| !word.is_empty());
    while let Some(word) = words.next() {
        let setting = match word.strip_prefix("--") {
            Some(setting) => setting.replacen('-', "_", usize::MAX),
            None if word == "-c" => words.next().unwrap_or_default(),
            None => word.strip_prefix("-c").unwrap_or_default().to_string(),
        };
        match setting.split_once('=') {
            Some((name, value)) if !name.is_empty() => settings.push((name.to_string(), value.to_string())),
            _ => {
                let message = format!("invalid command-line argument for server process: {word}");
                return Err(SqlError::fatal(SqlState::SYNTAX_ERROR, message));
            }
        }
    }
    Ok(settings)
}

/// Encrypts the connection. Returns the client's certificate, if it has presented one.
async fn encrypt(io: &mut Io, config: Arc<rustls::ServerConfig>) -> Result<Option<Vec<u8>>, RequestError> {
    let closed: Box<dyn Stream> = Box::new(tokio::io::join(tokio::io::empty(), tokio::io::sink()));
    let plain = std::mem::replace(&mut io.stream, closed);
    // Bytes already read belong to the handshake.
    let plain = ReadAhead { bytes: io.input.split().freeze(), stream: plain };
    let encrypted = TlsAcceptor::from(config).accept(plain).await?;
    let certificates = encrypted.get_ref().1.peer_certificates();
    let certificate = certificates.and_then(|chain| chain.first()).map(|first| first.to_vec());
    io.stream = Box::new(encrypted);
    Ok(certificate)
}

/// Authenticates the client.
async fn authenticate(server: &Server, io: &mut Io, arrival: &Arrival) -> Result<(), RequestError> {
    match server.authentication.method(arrival).await? {
        Method::Trust => Ok(()),
        Method::Password(password) => {
            io.reply.authentication(CLEARTEXT_PASSWORD, &[]);
            let answer = next_auth_message(io).await?;
            let given = answer.strip_suffix(&[0]).and_then(|bytes| std::str::from_utf8(bytes).ok());
            password.check(given.ok_or_else(|| wrong_password(&arrival.role))?).await?;
            Ok(())
        }
        Method::Scram(exchange) => scram(io, exchange).await,
    }
}

async fn scram(io: &mut Io, mut exchange: Box<dyn Exchange>) -> Result<(), RequestError> {
    let malformed_message = || SqlError::fatal(SqlState::PROTOCOL_VIOLATION, "malformed SCRAM message");
    let mut names = Vec::new();
    for mechanism in exchange.mechanisms() {
        names.extend_from_slice(mechanism.as_bytes());
        names.push(0);
    }
    names.push(0);
    io.reply.authentication(SASL, &names);
    let mut first = next_auth_message(io).await?;
    let end = first.iter().position(|byte| *byte == 0).ok_or_else(malformed_message)?;
    let mechanism = String::from_utf8(first.split_to(end).into()).map_err(|_| malformed_message())?;
    first.advance(1);
    let length = first.try_get_i32().map_err(|_| malformed_message())?;
    if usize::try_from(length).map_err(|_| malformed_message())? != first.len() {
        return Err(malformed_message().into());
    }
    let challenge = exchange.first(&mechanism, &first)?;
    io.reply.authentication(SASL_CONTINUE, &challenge);
    let last = next_auth_message(io).await?;
    let outcome = exchange.last(&last)?;
    io.reply.authentication(SASL_FINAL, &outcome);
    Ok(())
}

/// The next message of a client that is authenticating.
async fn next_auth_message(io: &mut Io) -> Result<Bytes, RequestError> {
    io.flush().await?;
    loop {
        match messages::next(&mut io.input, false)? {
            Some(Message::Password(bytes)) => return Ok(bytes),
            Some(_) => return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
            None => io.fill().await?,
        }
    }
}

/// A stream with bytes that were read ahead of it.
struct ReadAhead {
    bytes: Bytes,
    stream: Box<dyn Stream>,
}

impl tokio::io::AsyncRead for ReadAhead {
    fn poll_read(
        self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
        buffer: &mut tokio::io::ReadBuf<'_>,
    ) -> std::task::Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.bytes.is_empty() {
            return std::pin::Pin::new(&mut this.stream).poll_read(context, buffer);
        }
        let count = this.bytes.len().min(buffer.remaining());
        buffer.put_slice(&this.bytes.split_to(count));
        std::task::Poll::Ready(Ok(()))
    }
}

impl tokio::io::AsyncWrite for ReadAhead {
    fn poll_write(
        self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
        bytes: &[u8],
    ) -> std::task::Poll<io::Result<usize>> {
        std::pin::Pin::new(&mut self.get_mut().stream).poll_write(context, bytes)
    }

    fn poll_flush(
        self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<io::Result<()>> {
        std::pin::Pin::new(&mut self.get_mut().stream).poll_flush(context)
    }

    fn poll_shutdown(
        self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<io::Result<()>> {
        std::pin::Pin::new(&mut self.get_mut().stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_settings() {
        let cases: [(&str, Option<&[(&str, &str)]>); 5] = [
            ("", Some(&[])),
            ("-c a=1 -cb=2", Some(&[("a", "1"), ("b", "2")])),
            ("--search-path=x\\ y", Some(&[("search_path", "x y")])),
            ("-c a", None),
            ("-x", None),
        ];
        for (text, expected) in cases {
            let found = command_line(text).ok();
            let expected = expected.map(|expected| {
                let owned = |(name, value): &(&str, &str)| (name.to_string(), value.to_string());
                expected.iter().map(owned).collect::<Vec<_>>()
            });
            assert_eq!(found, expected, "{text}");
        }
    }
}
