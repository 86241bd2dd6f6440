//! The last statements that this process has run, and what every rank did for them.
//!
//! A statement is over when its last row has been taken. Then the ranks are still to tell what they have
//! measured: that is waited for beside whatever comes next, and for no longer than [`METRICS_PATIENCE`].
//!
//! # Memory bound
//! [`STATEMENTS_MAX`] looks, which do not grow with the data; of a plan nothing is kept.
//!
//! # Cancellation
//! A statement whose rows are dropped before their end is not remembered.

use crate::gang::Gang;
use crate::monitor::plan_snapshot::Look;
use crate::monitor::slice_tree::{Slice, slices, with_metrics};
use crate::transport::clock_offset::now_ns;
use datafusion::common::DataFusionError;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::{Stream, StreamExt};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::sync::watch;

/// How many statements are remembered.
const STATEMENTS_MAX: usize = 100;

/// How long the numbers of a statement that is over may take.
const METRICS_PATIENCE: Duration = Duration::from_secs(1);

/// A statement that is over.
#[derive(Debug, Clone, PartialEq)]
pub struct Past {
    /// From 1 on, in the order in which they ended.
    pub number: u64,
    pub text: String,
    pub failed: bool,
    /// Nanoseconds since 1970, by the coordinator's clock, as all times of `look`.
    pub began_ns: u64,
    pub ended_ns: u64,
    /// Of one that failed, what its own process knows.
    pub look: Look,
}

/// Told of every statement, once, when what it did is known.
pub type Listener = Arc<dyn Fn(&Past) + Send + Sync>;

/// Remembers statements. Cheap to clone.
#[derive(Clone)]
pub struct History {
    inner: Arc<Inner>,
}

struct Inner {
    past: Mutex<Kept>,
    /// Statements that are over and whose numbers are on their way.
    pending: watch::Sender<usize>,
    listener: Option<Listener>,
}

#[derive(Default)]
struct Kept {
    last: u64,
    statements: VecDeque<Arc<Past>>,
}

impl fmt::Debug for History {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "History(of {} statements)", self.inner.past.lock().last)
    }
}

impl Default for History {
    fn default() -> Self {
        Self::new(None)
    }
}

impl History {
    pub fn new(listener: Option<Listener>) -> Self {
        let inner = Inner { past: Mutex::default(), pending: watch::channel(0).0, listener };
        Self { inner: Arc::new(inner) }
    }

    /// The statements that are over, the last one last. Waits for the numbers of those that have just ended.
    pub async fn past(&self) -> Vec<Arc<Past>> {
        self.settle().await;
        self.inner.past.lock().statements.iter().cloned().collect()
    }

    /// Waits until everything is known of the statements that are over. Cancel-safe.
    pub async fn settle(&self) {
        let mut pending = self.inner.pending.subscribe();
        // The sender lives as long as this does.
        let _ = pending.wait_for(|pending| *pending == 0).await;
    }

    /// The same rows; the statement is remembered when they end. To be called when it begins.
    pub fn watch(
        &self,
        text: &str,
        plan: &Arc<dyn ExecutionPlan>,
        gang: Option<&Gang>,
        rows: SendableRecordBatchStream,
    ) -> SendableRecordBatchStream {
        let schema = rows.schema();
        let run = Run {
            history: self.clone(),
            text: text.to_string(),
            began_ns: now_ns(),
            plan: Arc::clone(plan),
            members: gang.map(Gang::members).unwrap_or_default(),
            gang: gang.cloned(),
        };
        let watched = Watched { rows, run: Some(run) };
        Box::pin(RecordBatchStreamAdapter::new(schema, watched))
    }

    /// Remembers a statement whose numbers are known, such as one that was run to be explained.
    pub async fn add(&self, text: &str, began_ns: u64, gang: Option<&Gang>, measured: &[Slice]) {
        let look = look(gang, measured, &gang.map(Gang::members).unwrap_or_default()).await;
        self.remember(text.to_string(), false, began_ns, now_ns(), look);
    }

    fn remember(&self, text: String, failed: bool, began_ns: u64, ended_ns: u64, look: Look) {
        let past = {
            let mut past = self.inner.past.lock();
            past.last += 1;
            let new = Arc::new(Past { number: past.last, text, failed, began_ns, ended_ns, look });
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

async fn look(gang: Option<&Gang>, slices: &[Slice], members: &[usize]) -> Look {
    let mut look = Look::of(slices, members);
    if let Some(gang) = gang {
        look.align(gang.clocks().await);
    }
    look
}

/// A statement that runs.
struct Run {
    history: History,
    text: String,
    began_ns: u64,
    plan: Arc<dyn ExecutionPlan>,
    members: Vec<usize>,
    gang: Option<Gang>,
}

impl Run {
    fn ends(self, failed: bool) {
        let ended_ns = now_ns();
        let pending = Pending::new(self.history.clone());
        tokio::spawn(async move {
            let Run { history, text, began_ns, plan, members, gang } = self;
            let plan = match failed {
                true => plan,
                false => {
                    match tokio::time::timeout(METRICS_PATIENCE, with_metrics(Arc::clone(&plan))).await {
                        Ok(Ok(measured)) => measured,
                        _ => plan,
                    }
                }
            };
            let measured = slices(&plan);
            // It holds the tables of joins.
            drop(plan);
            if let Some(gang) = &gang {
                gang.tidy();
            }
            let look = look(gang.as_ref(), &measured, &members).await;
            history.remember(text, failed, began_ns, ended_ns, look);
            drop(pending);
        });
    }
}

/// One of the statements that [`History::settle`] waits for.
struct Pending(History);

impl Pending {
    fn new(history: History) -> Self {
        history.inner.pending.send_modify(|pending| *pending += 1);
        Pending(history)
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        self.0.inner.pending.send_modify(|pending| *pending -= 1);
    }
}

/// Rows that somebody waits for the end of.
struct Watched {
    rows: SendableRecordBatchStream,
    run: Option<Run>,
}

impl Stream for Watched {
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
