//! Rows of a plan on the gang, with one retry if a rank is lost before the first row.
//!
//! # Invariants
//! A read-only plan may be retried while none of its rows has left this module, since its first run is
//! unobserved. It names the files that it reads, so both runs read the same snapshot. Both run on a gang,
//! never in the front end: a plan that kills a rank must not kill the server.
//!
//! # Errors
//! 57P02: a rank, or the gang, was lost; reports the first loss, unless the second run failed as well.
//!
//! # Cancellation
//! Dropping the rows closes the connection, or ends the wait for a gang.

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::buffer::Buffer;
use datafusion::arrow::ipc::reader::StreamDecoder;
use datafusion::common::{DataFusionError, Result};
use datafusion::datasource::sink::DataSinkExec;
use datafusion::physical_plan::ExecutionPlan;
use futures::Stream;
use futures::stream::try_unfold;
use harrier_error::SqlState;
use parking_lot::Mutex;
use tokio::net::UnixStream;
use tokio::time::timeout;

use crate::data_files::WriteFilesExec;
use crate::frontend::admission::Admit;
use crate::frontend::link::{Link, PlanServiceAddress, RunningGuard};
use crate::frontend::protocol::{Request, decode, decode_failure, kind, read_frame};
use harrier_session_api::query_profile::QueryProfile;

/// How long a plan waits for the gang to restart, which takes a second or two. Together with the detection of
/// a silent host (5 s) it stays below the 10 s after which users take a statement for stuck.
const GANG_TIMEOUT: Duration = Duration::from_secs(3);

/// Whether a read-only plan is retried once if a rank is lost before its first row. An extension of the
/// session's settings.
#[derive(Debug, Clone, Copy)]
pub struct RetryReads(pub bool);

/// Whether running a plan has side effects.
pub(super) fn writes(plan: &Arc<dyn ExecutionPlan>) -> bool {
    plan.downcast_ref::<WriteFilesExec>().is_some()
        || plan.downcast_ref::<DataSinkExec>().is_some()
        || plan.children().into_iter().any(writes)
}

/// Everything needed to run a plan.
pub(super) struct PlanRun {
    pub(super) link: Link,
    pub(super) request: Request,
    pub(super) last_snapshot: SharedSnapshot,
    /// Whether the plan may be retried.
    pub(super) may_retry: bool,
    /// Notified of a retry.
    pub(super) admission: Option<Arc<dyn Admit>>,
}

/// Why a run has ended before its last row.
enum RunError {
    /// The gang reported an error.
    Failed(DataFusionError),
    /// The gang is gone.
    Lost,
}

impl From<DataFusionError> for RunError {
    fn from(error: DataFusionError) -> Self {
        Self::Failed(error)
    }
}

/// A plan running at a plan service.
struct ActiveRun {
    stream: UnixStream,
    running_guard: RunningGuard,
    decoder: StreamDecoder,
    buffer: Buffer,
}

impl ActiveRun {
    async fn begin(run: &PlanRun) -> Result<Self, RunError> {
        let begun = run.link.send(&run.request).await;
        let (stream, running_guard) = begun.map_err(|_| RunError::Lost)?;
        let (decoder, buffer) = (StreamDecoder::new(), Buffer::from_vec(Vec::<u8>::new()));
        Ok(Self { stream, running_guard, decoder, buffer })
    }

    /// Returns the next batch; `None` after the last one.
    async fn next(&mut self, last_snapshot: &SharedSnapshot) -> Result<Option<RecordBatch>, RunError> {
        loop {
            let decoded = self.decoder.decode(&mut self.buffer).map_err(DataFusionError::from)?;
            if let Some(batch) = decoded {
                return Ok(Some(batch));
            }
            match read_frame(&mut self.stream).await.map_err(|_| RunError::Lost)? {
                Some((kind::ROWS, bytes)) => self.buffer = Buffer::from_vec(bytes),
                Some((kind::SNAPSHOT, bytes)) => {
                    let snapshot = decode(&bytes)?;
                    let mut last = last_snapshot.lock();
                    last.snapshot = snapshot;
                    last.with_rows += 1;
                }
                Some((kind::FAILURE, bytes)) => return Err(decode_failure(&bytes).into()),
                Some((kind::END, _)) => return Ok(None),
                _ => return Err(RunError::Lost),
            }
        }
    }
}

/// The rows of `run`, in the order that the gang sends them. `turn`: its admission, held for both runs.
pub(super) fn rows(
    run: PlanRun,
    turn: Option<Box<dyn Any + Send>>,
) -> impl Stream<Item = Result<RecordBatch>> {
    try_unfold((run, None, turn), |(mut run, mut running, turn)| async move {
        let batch = next(&mut run, &mut running).await?;
        Ok(batch.map(|batch| (batch, (run, running, turn))))
    })
}

async fn next(run: &mut PlanRun, running: &mut Option<ActiveRun>) -> Result<Option<RecordBatch>> {
    loop {
        let broken = match first_or_next(run, running).await {
            Ok(batch) => {
                run.may_retry &= batch.as_ref().is_some_and(|batch| batch.num_rows() == 0);
                return Ok(batch);
            }
            Err(broken) => broken,
        };
        let (error, is_gone) = match broken {
            RunError::Failed(error) => (error, false),
            RunError::Lost => (run.link.gang_lost(), true),
        };
        let is_loss = harrier_sqlstate::of(&error) == SqlState::CRASH_SHUTDOWN;
        if !std::mem::take(&mut run.may_retry) || !is_loss {
            return Err(error);
        }
        let place = running.take().map(|running| Arc::clone(&running.running_guard.0));
        let gone = place.filter(|_| is_gone);
        let Some(again) = retry_run(run, gone).await else {
            return Err(error);
        };
        if let Some(admission) = &run.admission {
            admission.notify_retry(&error.to_string());
        }
        *running = Some(again);
    }
}

async fn first_or_next(
    run: &PlanRun,
    running: &mut Option<ActiveRun>,
) -> Result<Option<RecordBatch>, RunError> {
    let running = match running {
        Some(running) => running,
        None => running.insert(ActiveRun::begin(run).await?),
    };
    running.next(&run.last_snapshot).await
}

/// Retries the plan as soon as there is a gang other than `gone`. `None`: there was none in time.
async fn retry_run(run: &PlanRun, mut gone: Option<Arc<PlanServiceAddress>>) -> Option<ActiveRun> {
    let mut changes = run.link.inner.subscribe();
    let again = async {
        loop {
            let place = {
                let is_there = |place: &Arc<PlanServiceAddress>| {
                    gone.as_ref().is_none_or(|gone| !Arc::ptr_eq(place, gone))
                };
                let state =
                    changes.wait_for(|state| state.plan_service.as_ref().is_some_and(is_there)).await.ok()?;
                state.plan_service.clone()?
            };
            run.last_snapshot.lock().with_rows = 0;
            match ActiveRun::begin(run).await {
                Ok(running) => return Some(running),
                Err(_) => gone = Some(place),
            }
        }
    };
    timeout(GANG_TIMEOUT, again).await.ok().flatten()
}

pub(super) type SharedSnapshot = Arc<Mutex<LastSnapshot>>;

#[derive(Debug, Default)]
pub(super) struct LastSnapshot {
    pub(super) snapshot: QueryProfile,
    /// Number of snapshots received along with the rows: the second is final.
    pub(super) with_rows: usize,
}
