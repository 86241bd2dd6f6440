//! The ends of a connection.

use std::net::SocketAddr;
use std::sync::Arc;

/// The ends of a connection.
#[derive(Debug, Clone)]
pub(super) struct Ends {
    pub client: SocketAddr,
    pub server: SocketAddr,
    pub is_encrypted: bool,
    /// The client's certificate, if TLS has verified one.
    pub certificate: Option<Arc<[u8]>>,
}
