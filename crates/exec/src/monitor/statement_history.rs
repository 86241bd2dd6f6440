//! History of the last statements of this process, with the metrics of every rank.
//!
//! A statement ends when its last row has been taken. The ranks then still report their metrics: these are
//! awaited in the background, at most [`METRICS_TIMEOUT`].
//!
//! # Memory bound
//! [`STATEMENTS_MAX`] snapshots, which do not grow with the data; plans are not retained.
//!
//! # Cancellation
//! A statement whose rows are dropped before their end is not recorded.

use crate::gang::Gang;
use crate::monitor::plan_snapshot;
use crate::monitor::slice_tree::{SliceNode, slices, with_metrics};
use crate::transport::clock_offset::now_ns;
use datafusion::common::DataFusionError;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::{Stream, StreamExt};
use harrier_session_api::query_profile::QueryProfile;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::sync::watch;

/// Number of recorded statements.
const STATEMENTS_MAX: usize = 100;

/// The deadline for the metrics of an ended statement.
const METRICS_TIMEOUT: Duration = Duration::from_secs(1);

/// An ended statement.
#[derive(Debug, Clone, PartialEq)]
pub struct PastStatement {
    /// From 1 on, in the order in which they ended.
    pub number: u64,
    pub text: String,
    pub failed: bool,
    /// Nanoseconds since 1970, by the coordinator's clock, as all times of `look`.
    pub began_ns: u64,
    pub ended_ns: u64,
    /// For a failed one, only the metrics of its own process.
    pub snapshot: QueryProfile,
}

/// Called once for every statement, when its metrics are complete.
pub type Listener = Arc<dyn Fn(&PastStatement) + Send + Sync>;

/// The statement history. Cheap to clone.
#[derive(Clone)]
pub struct StatementHistory {
    inner: Arc<Inner>,
}

struct Inner {
    past: Mutex<Records>,
    /// Ended statements whose metrics are still awaited.
    pending: watch::Sender<usize>,
    listener: Option<Listener>,
}

#[derive(Default)]
struct Records {
    last: u64,
    statements: VecDeque<Arc<PastStatement>>,
}

impl fmt::Debug for StatementHistory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "History(of {} statements)", self.inner.past.lock().last)
    }
}

impl Default for StatementHistory {
    fn default() -> Self {
        Self::new(None)
    }
}

impl StatementHistory {
    pub fn new(listener: Option<Listener>) -> Self {
        let inner = Inner { past: Mutex::default(), pending: watch::channel(0).0, listener };
        Self { inner: Arc::new(inner) }
    }

    /// The ended statements, the last one last. Waits for the metrics of those that have just ended.
    pub async fn past(&self) -> Vec<Arc<PastStatement>> {
        self.settle().await;
        self.inner.past.lock().statements.iter().cloned().collect()
    }

    /// Waits until the metrics of all ended statements are complete. Cancel-safe.
    pub async fn settle(&self) {
        let mut pending = self.inner.pending.subscribe();
        // The sender lives as long as this does.
        let _ = pending.wait_for(|pending| *pending == 0).await;
    }

    /// Passes rows through, and records the statement when they end. Call it when the statement begins.
    pub fn watch(
        &self,
        text: &str,
        plan: &Arc<dyn ExecutionPlan>,
        gang: Option<&Gang>,
        rows: SendableRecordBatchStream,
    ) -> SendableRecordBatchStream {
        let schema = rows.schema();
        let run = RunningStatement {
            history: self.clone(),
            text: text.to_string(),
            began_ns: now_ns(),
            plan: Arc::clone(plan),
            members: gang.map(Gang::members).unwrap_or_default(),
            gang: gang.cloned(),
        };
        let watched = RecordedRows { rows, run: Some(run) };
        Box::pin(RecordBatchStreamAdapter::new(schema, watched))
    }

    /// Records a statement with known metrics, such as one run by EXPLAIN ANALYZE.
    pub async fn add(&self, text: &str, began_ns: u64, gang: Option<&Gang>, measured: &[SliceNode]) {
        let snapshot = take_snapshot(gang, measured, &gang.map(Gang::members).unwrap_or_default()).await;
        self.record(text.to_string(), false, began_ns, now_ns(), snapshot);
    }

    fn record(&self, text: String, failed: bool, began_ns: u64, ended_ns: u64, snapshot: QueryProfile) {
        let past = {
            let mut past = self.inner.past.lock();
            past.last += 1;
            let new =
                Arc::new(PastStatement { number: past.last, text, failed, began_ns, ended_ns, snapshot });
            past.statements.push_back(Arc::clone(&new));
            if past.statements.len() > STATEMENTS_MAX {
                past.statements.pop_front();
            }
            new
        };
        if let Some(listener) = &self.inner.listener {
            listener(&past);
        }
    }
}

async fn take_snapshot(gang: Option<&Gang>, slices: &[SliceNode], members: &[usize]) -> QueryProfile {
    let mut snapshot = plan_snapshot::of(slices, members);
    if let Some(gang) = gang {
        plan_snapshot::align(&mut snapshot, gang.clocks().await);
    }
    snapshot
}

/// A running statement.
struct RunningStatement {
    history: StatementHistory,
    text: String,
    began_ns: u64,
    plan: Arc<dyn ExecutionPlan>,
    members: Vec<usize>,
    gang: Option<Gang>,
}

impl RunningStatement {
    fn ends(self, failed: bool) {
        let ended_ns = now_ns();
        let pending = PendingMetrics::new(self.history.clone());
        tokio::spawn(async move {
            let RunningStatement { history, text, began_ns, plan, members, gang } = self;
            let plan = match failed {
                true => plan,
                false => match tokio::time::timeout(METRICS_TIMEOUT, with_metrics(Arc::clone(&plan))).await {
                    Ok(Ok(measured)) => measured,
                    _ => plan,
                },
            };
            let measured = slices(&plan);
            // The plan holds the hash tables of joins.
            drop(plan);
            if let Some(gang) = &gang {
                gang.release_ended();
            }
            let snapshot = take_snapshot(gang.as_ref(), &measured, &members).await;
            history.record(text, failed, began_ns, ended_ns, snapshot);
            drop(pending);
        });
    }
}

/// A statement that [`StatementHistory::settle`] waits for.
struct PendingMetrics(StatementHistory);

impl PendingMetrics {
    fn new(history: StatementHistory) -> Self {
        history.inner.pending.send_modify(|pending| *pending += 1);
        PendingMetrics(history)
    }
}

impl Drop for PendingMetrics {
    fn drop(&mut self) {
        self.0.inner.pending.send_modify(|pending| *pending -= 1);
    }
}

/// Rows whose end is recorded.
struct RecordedRows {
    rows: SendableRecordBatchStream,
    run: Option<RunningStatement>,
}

impl Stream for RecordedRows {
    type Item = Result<datafusion::arrow::array::RecordBatch, DataFusionError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let item = ready!(self.rows.poll_next_unpin(cx));
        let failed = match &item {
            None => Some(false),
            Some(Err(_)) => Some(true),
            Some(Ok(_)) => None,
        };
        if let Some(failed) = failed
            && let Some(run) = self.run.take()
        {
            run.ends(failed);
        }
        Poll::Ready(item)
    }
}
