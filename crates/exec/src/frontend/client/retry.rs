//! The rows of a plan that the gang runs: asked for once, and once more when a rank was lost before the first
//! of them.
//!
//! # Invariants
//! A plan that writes nothing, and of which no row has left this module, may be run again, since nobody has
//! seen anything of its first run. It names the files that it reads, so both runs read the same snapshot. It
//! runs on a gang both times, never in the front end: what has killed a rank shall not kill the server.
//!
//! # Errors
//! 57P02: a rank, or the gang, was lost; what is told is the first loss, unless the second run failed as
//! well.
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
use tokio::net::UnixStream;
use tokio::time::timeout;

use super::{Admit, GangExec, Link, Place, Request, Told, Visit, decode, failed, kind, read_frame};
use crate::data_files::WriteFilesExec;
use harrier_error::SqlState;

/// How long a plan waits for the gang to be there again, which takes a second or two. Together with the time
/// in which a host that is silent is found out (5 s) it stays below the 10 s after which somebody takes a
/// statement for stuck.
const GANG_PATIENCE: Duration = Duration::from_secs(3);

/// Whether a plan that reads is run once more when a rank is lost before its first row. An extension of the
/// session's settings.
#[derive(Debug, Clone, Copy)]
pub struct RetryReads(pub bool);

/// Whether running a plan leaves anything behind.
pub(super) fn writes(plan: &Arc<dyn ExecutionPlan>) -> bool {
    plan.downcast_ref::<WriteFilesExec>().is_some()
        || plan.downcast_ref::<DataSinkExec>().is_some()
        || plan.children().into_iter().any(writes)
}

/// What is needed to run a plan.
pub(super) struct Run {
    pub(super) link: Link,
    pub(super) request: Request,
    pub(super) told: Told,
    /// Whether the plan may be run again.
    pub(super) may_repeat: bool,
    /// To be told that it is.
    pub(super) admission: Option<Arc<dyn Admit>>,
}

/// Why a run has ended without its last row.
enum Broken {
    /// The gang has said so.
    Failed(DataFusionError),
    /// It is not there any more, or was not.
    Lost,
}

impl From<DataFusionError> for Broken {
    fn from(error: DataFusionError) -> Self {
        Self::Failed(error)
    }
}

/// A plan that runs at a desk.
struct Running {
    stream: UnixStream,
    visit: Visit,
    decoder: StreamDecoder,
    buffer: Buffer,
}

impl Running {
    async fn begin(run: &Run) -> Result<Self, Broken> {
        let begun = GangExec::ask(&run.link, &run.request).await;
        let (stream, visit) = begun.map_err(|_| Broken::Lost)?;
        let (decoder, buffer) = (StreamDecoder::new(), Buffer::from_vec(Vec::<u8>::new()));
        Ok(Self { stream, visit, decoder, buffer })
    }

    /// The next batch; `None` behind the last one.
    async fn next(&mut self, told: &Told) -> Result<Option<RecordBatch>, Broken> {
        loop {
            let decoded = self.decoder.decode(&mut self.buffer).map_err(DataFusionError::from)?;
            if let Some(batch) = decoded {
                return Ok(Some(batch));
            }
            match read_frame(&mut self.stream).await.map_err(|_| Broken::Lost)? {
                Some((kind::ROWS, bytes)) => self.buffer = Buffer::from_vec(bytes),
                Some((kind::LOOK, bytes)) => {
                    let look = decode(&bytes)?;
                    let mut told = told.lock();
                    told.look = look;
                    told.with_rows += 1;
                }
                Some((kind::FAILURE, bytes)) => return Err(failed(&bytes).into()),
                Some((kind::END, _)) => return Ok(None),
                _ => return Err(Broken::Lost),
            }
        }
    }
}

/// The rows of `run`, in the order that the gang sends them. `turn`: the statement's on the gang, for both
/// runs.
pub(super) fn rows(run: Run, turn: Option<Box<dyn Any + Send>>) -> impl Stream<Item = Result<RecordBatch>> {
    try_unfold((run, None, turn), |(mut run, mut running, turn)| async move {
        let batch = next(&mut run, &mut running).await?;
        Ok(batch.map(|batch| (batch, (run, running, turn))))
    })
}

async fn next(run: &mut Run, running: &mut Option<Running>) -> Result<Option<RecordBatch>> {
    loop {
        let broken = match one(run, running).await {
            Ok(batch) => {
                run.may_repeat &= batch.as_ref().is_some_and(|batch| batch.num_rows() == 0);
                return Ok(batch);
            }
            Err(broken) => broken,
        };
        let (error, is_gone) = match broken {
            Broken::Failed(error) => (error, false),
            Broken::Lost => (run.link.lost(), true),
        };
        let is_loss = harrier_sqlstate::of(&error) == SqlState::CRASH_SHUTDOWN;
        if !std::mem::take(&mut run.may_repeat) || !is_loss {
            return Err(error);
        }
        let place = running.take().map(|running| Arc::clone(&running.visit.0));
        let gone = place.filter(|_| is_gone);
        let Some(again) = repeated(run, gone).await else {
            return Err(error);
        };
        if let Some(admission) = &run.admission {
            admission.repeated(&error.to_string());
        }
        *running = Some(again);
    }
}

async fn one(run: &Run, running: &mut Option<Running>) -> Result<Option<RecordBatch>, Broken> {
    let running = match running {
        Some(running) => running,
        None => running.insert(Running::begin(run).await?),
    };
    running.next(&run.told).await
}

/// Runs the plan again as soon as there is a gang that is not at `gone`. `None`: there was none in time.
async fn repeated(run: &Run, mut gone: Option<Arc<Place>>) -> Option<Running> {
    let mut changes = run.link.inner.subscribe();
    let again = async {
        loop {
            let place = {
                let is_there =
                    |place: &Arc<Place>| gone.as_ref().is_none_or(|gone| !Arc::ptr_eq(place, gone));
                let state = changes.wait_for(|state| state.desk.as_ref().is_some_and(is_there)).await.ok()?;
                state.desk.clone()?
            };
            run.told.lock().with_rows = 0;
            match Running::begin(run).await {
                Ok(running) => return Some(running),
                Err(_) => gone = Some(place),
            }
        }
    };
    timeout(GANG_PATIENCE, again).await.ok().flatten()
}
