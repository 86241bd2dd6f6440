//! The lane of a session: its backend session, on which one statement runs at a time.

use std::sync::Arc;

use tokio::sync::{OwnedMutexGuard, watch};

use crate::backend::BackendSession;
use crate::pg::zone::Zone;
use crate::registry::{Registry, SessionGuard};

pub(super) struct Lane {
    pub backend: Arc<dyn BackendSession>,
    pub guard: SessionGuard,
    pub registry: Arc<Registry>,
    busy: Arc<tokio::sync::Mutex<()>>,
    /// Statements that wait for their turn.
    waiting: watch::Sender<usize>,
}

/// The right to run a statement.
pub(super) struct Turn {
    _busy: OwnedMutexGuard<()>,
}

impl Lane {
    pub fn new(backend: Arc<dyn BackendSession>, guard: SessionGuard, registry: Arc<Registry>) -> Self {
        Self { backend, guard, registry, busy: Arc::default(), waiting: watch::Sender::new(0) }
    }

    /// Waits until no other statement runs. Cancel-safe.
    pub async fn turn(&self) -> Turn {
        let _waits = Waits::new(&self.waiting);
        Turn { _busy: Arc::clone(&self.busy).lock_owned().await }
    }

    /// How many statements wait: whoever holds the turn and only waits for its client lets them in.
    pub fn waiting(&self) -> watch::Receiver<usize> {
        self.waiting.subscribe()
    }

    /// Whether no statement runs.
    pub fn is_free(&self) -> bool {
        self.busy.try_lock().is_ok()
    }

    /// The session's time zone.
    pub fn zone(&self) -> Zone {
        Zone::from_name(&self.backend.parameter("TimeZone").unwrap_or_default())
    }
}

struct Waits<'a>(&'a watch::Sender<usize>);

impl<'a> Waits<'a> {
    fn new(waiting: &'a watch::Sender<usize>) -> Self {
        waiting.send_modify(|count| *count += 1);
        Self(waiting)
    }
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}
