//! Listening sockets, and the limit on connections.

use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::net::{TcpListener, UnixListener};

use super::connection::{self, Origin};
use super::io::Stream;
use super::server::Server;
use crate::registry::Stop;

/// Unauthenticated connections allowed per allowed session.
const ARRIVALS_FOR_SESSION: usize = 2;

/// Pause after a failed accept, as when file descriptors run out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Interval between checks for open connections while draining.
const DRAIN_PAUSE: Duration = Duration::from_millis(20);

impl Server {
    /// Accepts connections until the future is dropped.
    pub async fn accept(self: Arc<Self>, listener: TcpListener) {
        let address = listener.local_addr().ok();
        loop {
            match listener.accept().await {
                Ok((stream, client)) => {
                    // A reply is sent as a whole; Nagle's algorithm would only delay it.
                    let _ = stream.set_nodelay(true);
                    let server = stream.local_addr().ok().or(address);
                    self.begin(Box::new(stream), Origin { client: Some(client), server, local_user: None });
                }
                Err(error) => self.pause(&error).await,
            }
        }
    }

    /// Accepts connections on a local socket until the future is dropped.
    pub async fn accept_local(self: Arc<Self>, listener: LocalListener) {
        loop {
            match listener.listener.accept().await {
                Ok((stream, _)) => {
                    let local_user = stream.peer_cred().ok().map(|peer| peer.uid());
                    self.begin(Box::new(stream), Origin { client: None, server: None, local_user });
                }
                Err(error) => self.pause(&error).await,
            }
        }
    }

    async fn pause(&self, error: &io::Error) {
        tracing::warn!(%error, "cannot accept a connection");
        tokio::time::sleep(ACCEPT_PAUSE).await;
    }

    fn begin(self: &Arc<Self>, stream: Box<dyn Stream>, origin: Origin) {
        let count = self.connections.fetch_add(1, Ordering::Relaxed);
        // Clients that connect and stay silent must not exhaust memory.
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

    /// Rejects new clients and ends all sessions; a running statement or open transaction may finish within
    /// `grace_period`.
    pub async fn drain(&self, grace_period: Duration) {
        self.is_stopping.store(true, Ordering::Relaxed);
        let deadline = tokio::time::Instant::now() + grace_period;
        loop {
            let sessions = self.registry.sessions();
            if sessions.is_empty() {
                return;
            }
            let stop = if tokio::time::Instant::now() < deadline { Stop::Drain } else { Stop::Session };
            for session in sessions {
                if session.requested_stop() != Some(stop) {
                    session.stop(stop);
                }
            }
            if tokio::time::Instant::now() > deadline + grace_period.max(Duration::from_secs(1)) {
                return;
            }
            tokio::time::sleep(DRAIN_PAUSE).await;
        }
    }
}

/// A local listening socket; dropping it removes it and its lock file.
pub struct LocalListener {
    listener: UnixListener,
    path: PathBuf,
}

impl LocalListener {
    /// Listens at `.s.PGSQL.<port>` in `folder`, where PostgreSQL's clients look. `is_shared`: every user of
    /// the machine may connect; otherwise only the user that runs the server.
    ///
    /// Errors: another server listens there (address in use).
    pub fn bind(folder: &Path, port: u16, is_shared: bool) -> io::Result<Self> {
        let path = folder.join(format!(".s.PGSQL.{port}"));
        if path.exists() {
            // Stale after a killed server, or in use.
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
