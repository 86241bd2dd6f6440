//! Incoming connections: accepted, optionally encrypted, and attached to the calls that arrive on them.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio_rustls::server::TlsStream;
use tonic::transport::server::Connected;

use crate::encryption::Encryption;

/// Time limit of a TLS handshake.
const HANDSHAKE_MAX: Duration = Duration::from_secs(10);

/// Pause after a failed accept: a lack of descriptors or memory would fail again at once.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Accepted connections waiting to be served.
pub(super) const CONNECTIONS_AHEAD: usize = 64;

/// Lives as long as a connection.
#[derive(Default)]
pub(super) struct Connection {
    /// The token of the login of a client without a user.
    pub anonymous: tokio::sync::Mutex<Option<String>>,
}

/// The origin of a call; an extension of every request.
#[derive(Clone)]
pub(super) struct Peer {
    pub address: SocketAddr,
    /// Where the client has connected to.
    pub server: SocketAddr,
    pub is_encrypted: bool,
    /// The client's certificate, if TLS has verified one.
    pub certificate: Option<Arc<[u8]>>,
    pub connection: Arc<Connection>,
}

/// A connection's byte stream.
pub(super) struct Link {
    peer: Peer,
    bytes: Bytes,
}

enum Bytes {
    Plain(TcpStream),
    Encrypted(Box<TlsStream<TcpStream>>),
}

/// Accepts connections forever and hands them to the server.
pub(super) async fn accept(
    listener: TcpListener,
    encryption: Encryption,
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
        // Replies are written at once; Nagle's algorithm would delay small ones until the client's
        // acknowledgement.
        let _ = stream.set_nodelay(true);
        let Ok(server) = stream.local_addr() else { continue };
        let (encryption, links) = (encryption.clone(), links.clone());
        tokio::spawn(async move {
            let bytes = match tokio::time::timeout(HANDSHAKE_MAX, begin(stream, &encryption)).await {
                Ok(Ok(bytes)) => bytes,
                Ok(Err(error)) => return tracing::debug!(%address, %error, "flight: no encryption"),
                Err(_) => return tracing::debug!(%address, "flight: no encryption in time"),
            };
            let (is_encrypted, certificate) = match &bytes {
                Bytes::Plain(_) => (false, None),
                Bytes::Encrypted(stream) => {
                    let shown = stream.get_ref().1.peer_certificates();
                    (true, shown.and_then(|chain| chain.first()).map(|first| Arc::from(first.as_ref())))
                }
            };
            let peer = Peer { address, server, is_encrypted, certificate, connection: Arc::default() };
            let _ = links.send(Ok(Link { peer, bytes })).await;
        });
    }
}

/// Encrypts a connection, if TLS is configured.
async fn begin(stream: TcpStream, encryption: &Encryption) -> io::Result<Bytes> {
    let Some(acceptor) = encryption.acceptor() else {
        return Ok(Bytes::Plain(stream));
    };
    Ok(Bytes::Encrypted(Box::new(acceptor.accept(stream).await?)))
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
