//! TLS of protocols that have no request for it: a connection is encrypted from its first byte.

use std::sync::Arc;

use parking_lot::RwLock;
use tokio_rustls::TlsAcceptor;

/// TLS of connections; once set, unencrypted connections are rejected. Clones share it.
#[derive(Clone)]
pub struct Encryption {
    /// Names of the protocols inside, for ALPN; none is named without any.
    protocols: &'static [&'static [u8]],
    acceptor: Arc<RwLock<Option<TlsAcceptor>>>,
}

impl Encryption {
    pub fn new(protocols: &'static [&'static [u8]]) -> Self {
        Self { protocols, acceptor: Arc::default() }
    }

    /// Sets TLS for new connections.
    pub fn set(&self, config: Option<&rustls::ServerConfig>) {
        *self.acceptor.write() = config.map(|config| {
            let mut config = config.clone();
            config.alpn_protocols = self.protocols.iter().map(|name| name.to_vec()).collect();
            TlsAcceptor::from(Arc::new(config))
        });
    }

    pub(crate) fn acceptor(&self) -> Option<TlsAcceptor> {
        self.acceptor.read().clone()
    }
}
