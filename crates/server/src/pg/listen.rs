//! Where clients come in: sockets that are listened at, and how many may be there.

use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use harrier_error::SqlError;
use parking_lot::RwLock;
use tokio::net::{TcpListener, UnixListener};

use super::connection::{self, Origin};
use super::gate::Gate;
use super::io::Stream;
use crate::backend::Backend;
use crate::registry::{Registry, Stop};

/// Connections that have not said who they are yet, for each session that may be there.
const ARRIVALS_FOR_SESSION: usize = 2;

/// How long nothing is accepted after that has failed, as it does without free descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// How often it is looked whether everybody has gone.
const DRAIN_PAUSE: Duration = Duration::from_millis(20);

/// What a server allows.
#[derive(Debug, Clone)]
pub struct ServerOptions {
    pub sessions_max: usize,
    /// For proving who one is.
    pub authentication_timeout: Duration,
}

/// What all connections share.
pub struct Server {
    pub(super) backend: Arc<dyn Backend>,
    pub(super) registry: Arc<Registry>,
    pub(super) gate: Arc<dyn Gate>,
    options: RwLock<ServerOptions>,
    tls: RwLock<Option<Arc<rustls::ServerConfig>>>,
    /// What everybody who comes is told instead of being let in.
    closed: RwLock<Option<SqlError>>,
    is_stopping: AtomicBool,
    connections: AtomicUsize,
}

impl Server {
    pub fn new(
        backend: Arc<dyn Backend>,
        registry: Arc<Registry>,
        gate: Arc<dyn Gate>,
        options: ServerOptions,
    ) -> Arc<Self> {
        Arc::new(Self {
            backend,
            registry,
            gate,
            options: RwLock::new(options),
            tls: RwLock::default(),
            closed: RwLock::default(),
            is_stopping: AtomicBool::new(false),
            connections: AtomicUsize::new(0),
        })
    }

    /// Connections that are encrypted from now on are so with this; without it none are.
    pub fn set_tls(&self, config: Option<Arc<rustls::ServerConfig>>) {
        *self.tls.write() = config;
    }

    /// What holds for connections that come from now on.
    pub fn set_options(&self, options: ServerOptions) {
        *self.options.write() = options;
    }

    pub(super) fn options(&self) -> ServerOptions {
        self.options.read().clone()
    }

    pub(super) fn tls(&self) -> Option<Arc<rustls::ServerConfig>> {
        self.tls.read().clone()
    }

    /// Lets in nobody from now on, and tells them why; or everybody again.
    pub fn set_closed(&self, failure: Option<SqlError>) {
        *self.closed.write() = failure;
    }

    pub(super) fn closed(&self) -> Option<SqlError> {
        self.closed.read().clone()
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.is_stopping.load(Ordering::Relaxed)
    }

    /// Accepts connections until the future is dropped.
    pub async fn accept(self: Arc<Self>, listener: TcpListener) {
        let address = listener.local_addr().ok();
        loop {
            match listener.accept().await {
                Ok((stream, client)) => {
                    // An answer is sent as a whole; waiting for more to send would only delay it.
                    let _ = stream.set_nodelay(true);
                    let server = stream.local_addr().ok().or(address);
                    self.begin(Box::new(stream), Origin { client: Some(client), server, local_user: None });
                }
                Err(error) => self.rest(&error).await,
            }
        }
    }

    /// The same at a local socket.
    pub async fn accept_local(self: Arc<Self>, listener: LocalListener) {
        loop {
            match listener.listener.accept().await {
                Ok((stream, _)) => {
                    let local_user = stream.peer_cred().ok().map(|peer| peer.uid());
                    self.begin(Box::new(stream), Origin { client: None, server: None, local_user });
                }
                Err(error) => self.rest(&error).await,
            }
        }
    }

    async fn rest(&self, error: &io::Error) {
        tracing::warn!(%error, "cannot accept a connection");
        tokio::time::sleep(ACCEPT_PAUSE).await;
    }

    fn begin(self: &Arc<Self>, stream: Box<dyn Stream>, origin: Origin) {
        let count = self.connections.fetch_add(1, Ordering::Relaxed);
        // Whoever opens connections and says nothing shall not fill the memory.
        let server = Arc::clone(self);
        if count >= self.options.read().sessions_max * (1 + ARRIVALS_FOR_SESSION) {
            self.connections.fetch_sub(1, Ordering::Relaxed);
            return;
        }
        tokio::spawn(async move {
            connection::serve(Arc::clone(&server), stream, origin).await;
            server.connections.fetch_sub(1, Ordering::Relaxed);
        });
    }

    /// Lets nobody in any more and sends everybody away: who runs a statement or has a transaction open may
    /// end it within `patience`.
    pub async fn drain(&self, patience: Duration) {
        self.is_stopping.store(true, Ordering::Relaxed);
        let deadline = tokio::time::Instant::now() + patience;
        loop {
            let sessions = self.registry.sessions();
            if sessions.is_empty() {
                return;
            }
            let stop = if tokio::time::Instant::now() < deadline { Stop::Drain } else { Stop::Session };
            for session in sessions {
                if session.asked() != Some(stop) {
                    session.stop(stop);
                }
            }
            if tokio::time::Instant::now() > deadline + patience.max(Duration::from_secs(1)) {
                return;
            }
            tokio::time::sleep(DRAIN_PAUSE).await;
        }
    }
}

/// A local socket that is listened at, removed with its lock when this is dropped.
pub struct LocalListener {
    listener: UnixListener,
    path: PathBuf,
}

impl LocalListener {
    /// Listens at `.s.PGSQL.<port>` in `folder`, where PostgreSQL's clients look. `is_shared`: every user of
    /// the machine may connect; else only the one that runs the server.
    ///
    /// Errors: somebody listens there already (address in use).
    pub fn bind(folder: &Path, port: u16, is_shared: bool) -> io::Result<Self> {
        let path = folder.join(format!(".s.PGSQL.{port}"));
        if path.exists() {
            // Left by a server that was killed, or in use.
            if std::os::unix::net::UnixStream::connect(&path).is_ok() {
                return Err(io::ErrorKind::AddrInUse.into());
            }
            std::fs::remove_file(&path)?;
        }
        let listener = UnixListener::bind(&path)?;
        let mode = if is_shared { 0o777 } else { 0o700 };
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode))?;
        Ok(Self { listener, path })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for LocalListener {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}
