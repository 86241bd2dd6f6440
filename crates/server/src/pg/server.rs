//! State of the protocol's server, shared by all its connections.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use harrier_error::SqlError;
use parking_lot::RwLock;

use super::authentication::ClientAuthentication;
use crate::backend::Backend;
use crate::registry::Registry;

/// Limits of a server.
#[derive(Debug, Clone)]
pub struct ServerOptions {
    pub sessions_max: usize,
    /// Time limit of authentication.
    pub authentication_timeout: Duration,
}

/// State shared by all connections.
pub struct Server {
    pub(super) backend: Arc<dyn Backend>,
    pub(super) registry: Arc<Registry>,
    pub(super) authentication: Arc<dyn ClientAuthentication>,
    pub(super) options: RwLock<ServerOptions>,
    tls: RwLock<Option<Arc<rustls::ServerConfig>>>,
    /// The error sent to every new client while the server is closed.
    closed: RwLock<Option<SqlError>>,
    pub(super) is_stopping: AtomicBool,
    pub(super) connections: AtomicUsize,
}

impl Server {
    pub fn new(
        backend: Arc<dyn Backend>,
        registry: Arc<Registry>,
        authentication: Arc<dyn ClientAuthentication>,
        options: ServerOptions,
    ) -> Arc<Self> {
        Arc::new(Self {
            backend,
            registry,
            authentication,
            options: RwLock::new(options),
            tls: RwLock::default(),
            closed: RwLock::default(),
            is_stopping: AtomicBool::new(false),
            connections: AtomicUsize::new(0),
        })
    }

    /// Sets the TLS configuration of new connections; `None` disables encryption.
    pub fn set_tls(&self, config: Option<Arc<rustls::ServerConfig>>) {
        *self.tls.write() = config;
    }

    /// Sets the options of new connections.
    pub fn set_options(&self, options: ServerOptions) {
        *self.options.write() = options;
    }

    pub(super) fn options(&self) -> ServerOptions {
        self.options.read().clone()
    }

    pub(super) fn tls(&self) -> Option<Arc<rustls::ServerConfig>> {
        self.tls.read().clone()
    }

    /// Rejects new clients with this error; `None` accepts them again.
    pub fn set_closed(&self, failure: Option<SqlError>) {
        *self.closed.write() = failure;
    }

    pub(super) fn closed_reason(&self) -> Option<SqlError> {
        self.closed.read().clone()
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.is_stopping.load(Ordering::Relaxed)
    }
}
