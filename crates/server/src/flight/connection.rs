//! Connections that come in: accepted, encrypted if asked for, and known to the calls that arrive over them.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tonic::transport::server::Connected;

use super::login::Login;

/// How long a client may take to agree upon encryption.
const HANDSHAKE_MAX: Duration = Duration::from_secs(10);

/// What an error to accept is waited out for: it comes from a lack of descriptors or memory, and comes again at once.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Connections that were accepted and that nobody serves yet.
pub(super) const CONNECTIONS_AHEAD: usize = 64;

/// Lives as long as a connection.
#[derive(Default)]
pub(super) struct Connection {
    /// Who came over it without a user.
    pub anonymous: tokio::sync::Mutex<Weak<Login>>,
}

/// Where calls come from; an extension of every request.
#[derive(Clone)]
pub(super) struct Peer {
    pub address: SocketAddr,
    pub is_encrypted: bool,
    pub connection: Arc<Connection>,
}

/// A connection's bytes.
pub(super) struct Link {
    peer: Peer,
    bytes: Bytes,
}

enum Bytes {
    Plain(TcpStream),
    Encrypted(Box<TlsStream<TcpStream>>),
}

/// Accepts connections for ever and hands them on.
pub(super) async fn accept(
    listener: TcpListener,
    tls: Option<TlsAcceptor>,
    links: mpsc::Sender<io::Result<Link>>,
) {
    loop {
        let (stream, address) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "flight: a connection could not be accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        // Answers are written at once; without this a small one waits for the client's acknowledgement.
        let _ = stream.set_nodelay(true);
        let (tls, links) = (tls.clone(), links.clone());
        tokio::spawn(async move {
            let bytes = match tls {
                None => Bytes::Plain(stream),
                Some(tls) => match tokio::time::timeout(HANDSHAKE_MAX, tls.accept(stream)).await {
                    Ok(Ok(stream)) => Bytes::Encrypted(Box::new(stream)),
                    Ok(Err(error)) => return tracing::debug!(%address, %error, "flight: no encryption"),
                    Err(_) => return tracing::debug!(%address, "flight: no encryption in time"),
                },
            };
            let is_encrypted = matches!(bytes, Bytes::Encrypted(_));
            let peer = Peer { address, is_encrypted, connection: Arc::default() };
            let _ = links.send(Ok(Link { peer, bytes })).await;
        });
    }
}

impl Connected for Link {
    type ConnectInfo = Peer;

    fn connect_info(&self) -> Peer {
        self.peer.clone()
    }
}

impl AsyncRead for Link {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match &mut self.bytes {
            Bytes::Plain(stream) => Pin::new(stream).poll_read(context, buffer),
            Bytes::Encrypted(stream) => Pin::new(stream).poll_read(context, buffer),
        }
    }
}

impl AsyncWrite for Link {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match &mut self.bytes {
            Bytes::Plain(stream) => Pin::new(stream).poll_write(context, bytes),
            Bytes::Encrypted(stream) => Pin::new(stream).poll_write(context, bytes),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.bytes {
            Bytes::Plain(stream) => Pin::new(stream).poll_flush(context),
            Bytes::Encrypted(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.bytes {
            Bytes::Plain(stream) => Pin::new(stream).poll_shutdown(context),
            Bytes::Encrypted(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match &mut self.bytes {
            Bytes::Plain(stream) => Pin::new(stream).poll_write_vectored(context, slices),
            Bytes::Encrypted(stream) => Pin::new(stream).poll_write_vectored(context, slices),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match &self.bytes {
            Bytes::Plain(stream) => stream.is_write_vectored(),
            Bytes::Encrypted(stream) => stream.is_write_vectored(),
        }
    }
}
