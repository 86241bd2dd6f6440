//! The connection of a front end to a gang that may come and go.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use datafusion::common::{DataFusionError, Result};
use harrier_error::SqlState;
use tokio::net::UnixStream;
use tokio::sync::watch;

use crate::frontend::protocol::{Request, send_request};

/// The socket of a gang's plan service, and the number of statements running there.
#[derive(Debug)]
pub struct PlanServiceAddress {
    pub(super) path: PathBuf,
    running: AtomicUsize,
}

impl PlanServiceAddress {
    /// Statements that the gang runs for this process.
    pub fn running(&self) -> usize {
        self.running.load(Ordering::Relaxed)
    }
}

/// Counts a statement at a plan service until dropped.
pub(super) struct RunningGuard(pub(super) Arc<PlanServiceAddress>);

impl RunningGuard {
    fn new(place: Arc<PlanServiceAddress>) -> Self {
        place.running.fetch_add(1, Ordering::Relaxed);
        Self(place)
    }
}

impl Drop for RunningGuard {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The connection to a gang that may come and go. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Link {
    pub(super) inner: Arc<watch::Sender<LinkState>>,
    /// The number of the last plan.
    pub(super) last_run: Arc<AtomicU64>,
}

#[derive(Debug, Default)]
pub(super) struct LinkState {
    /// `None` while there is no gang.
    pub(super) plan_service: Option<Arc<PlanServiceAddress>>,
    /// Output partitions of plans for the gang.
    pub(super) partitions: usize,
    /// Number of ranks of the gang.
    pub(super) ranks: usize,
    /// Why the gang was last lost.
    reason: String,
}

impl Link {
    /// Routes later plans to the plan service at `path`, planned for `ranks` of `threads`.
    pub fn up(&self, path: &Path, ranks: usize, threads: usize) -> Arc<PlanServiceAddress> {
        let place = Arc::new(PlanServiceAddress { path: path.to_path_buf(), running: AtomicUsize::new(0) });
        self.inner.send_modify(|inner| {
            inner.plan_service = Some(Arc::clone(&place));
            // With one partition there is no redistribution that could become a motion.
            inner.partitions = threads.max(2);
            inner.ranks = ranks;
        });
        place
    }

    /// Runs later plans in this process.
    pub fn down(&self, reason: &str) {
        self.inner.send_modify(|inner| {
            inner.plan_service = None;
            inner.reason = reason.to_string();
        });
    }

    pub fn is_up(&self) -> bool {
        self.inner.borrow().plan_service.is_some()
    }

    /// Sends a request to the gang's plan service.
    ///
    /// Errors: the gang is lost.
    pub(super) async fn send(&self, request: &Request) -> Result<(UnixStream, RunningGuard)> {
        let address = self.inner.borrow().plan_service.clone();
        let Some(address) = address else {
            return Err(self.gang_lost());
        };
        let running_guard = RunningGuard::new(address);
        let stream = send_request(&running_guard.0.path, request).await.map_err(|_| self.gang_lost())?;
        Ok((stream, running_guard))
    }

    pub(super) fn gang_lost(&self) -> DataFusionError {
        let reason = &self.inner.borrow().reason;
        let message = match reason.is_empty() {
            true => "the gang is lost".to_string(),
            false => format!("the gang is lost: {reason}"),
        };
        harrier_sqlstate::remote(SqlState::CRASH_SHUTDOWN, message)
    }
}
