//! Client side of a front end that is not part of the gang: sends large enough plans to the coordinating rank
//! over a local socket, and receives their rows.
//!
//! ```text
//!   front end: statement ─► one-rank plan ─► GangExec ══ local socket ══► PlanService: motions ─► ranks
//!                             │ too small, or not for ranks            rows, lines, failure ◄──────┘
//!                             └─► runs here
//! ```
//!
//! One connection carries one request. Backpressure is the socket's: rows are read on demand.
//!
//! # Cancellation
//! Dropping the rows closes the connection; the plan service then drops the plan.
//!
//! # Crash
//! A connection that closes without an end frame means that the gang is lost (57P02). The front end survives,
//! and retries a read-only plan once if allowed (`client/retry.rs`).

mod retry;

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use datafusion::arrow::buffer::Buffer;
use datafusion::arrow::ipc::reader::StreamDecoder;
use datafusion::catalog::Session;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{DataFusionError, Result, internal_err};
use datafusion::execution::context::QueryPlanner;
use datafusion::execution::{SendableRecordBatchStream, SessionState, SessionStateBuilder, TaskContext};
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{ExecutionPlan, Partitioning, PlanProperties};
use datafusion::prelude::SessionConfig;
use futures::FutureExt;
use futures::future::BoxFuture;
use harrier_resources::statement_limits::Scope;
use harrier_session_api::query_profile::QueryProfile;
use tokio::net::UnixStream;

use self::retry::{PlanRun, SharedSnapshot};
use crate::distribution::direct_dispatch::{scanned_bytes, with_dispatch};
use crate::distribution::gang_planner;
use crate::distribution::logical_planner::physical_plan;
use crate::frontend::admission::{Admission, Admitted};
use crate::frontend::link::Link;
use crate::frontend::protocol::{
    Lines, Request, RequestKind, Status, decode, decode_failure, kind, read_frame, send_request,
};
use crate::operators::cancelable_joins;
use crate::transport::{plan_codec, propagated_settings};

pub use self::retry::RetryReads;

/// Holds a gang: it ends when this is dropped.
pub struct Hold(UnixStream);

impl Hold {
    /// Takes hold of the gang with its plan service at `path`. Errors: it does not exist, or not yet.
    pub async fn take(path: &Path) -> Result<Self> {
        send_request(path, &Request { kind: RequestKind::Hold.into(), ..Request::default() }).await.map(Self)
    }

    /// Waits for the gang's next status, sent every second or on a change.
    ///
    /// Errors: the gang is lost.
    pub async fn next(&mut self) -> Result<Status> {
        match read_frame(&mut self.0).await? {
            Some((kind::STATUS, bytes)) => decode(&bytes),
            Some((kind::FAILURE, bytes)) => Err(decode_failure(&bytes)),
            _ => Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
        }
    }
}

impl Link {
    /// Makes `builder` plan for the gang while there is one. `here_only`: a rule for plans that run in this
    /// process, whose operators ranks do not know.
    pub fn configure(
        &self,
        builder: SessionStateBuilder,
        here_only: Arc<dyn PhysicalOptimizerRule + Send + Sync>,
    ) -> SessionStateBuilder {
        let planner = FrontPlanner { link: self.clone(), here_only: here_only.name().to_string() };
        builder.with_physical_optimizer_rule(here_only).with_query_planner(Arc::new(planner))
    }
}

/// Marks these ranks down for later statements, and all others up.
///
/// Errors: the gang at `path` is gone.
pub async fn mark_down(path: &Path, ranks: impl IntoIterator<Item = usize>) -> Result<()> {
    let marked_down = ranks.into_iter().map(|rank| rank as u64).collect();
    let mut stream = send_request(
        path,
        &Request { kind: RequestKind::MarkDown.into(), marked_down, ..Request::default() },
    )
    .await?;
    match read_frame(&mut stream).await? {
        Some((kind::END, _)) => Ok(()),
        Some((kind::FAILURE, bytes)) => Err(decode_failure(&bytes)),
        _ => Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
    }
}

#[derive(Debug)]
struct FrontPlanner {
    link: Link,
    here_only: String,
}

impl FrontPlanner {
    fn boxed_create_physical_plan<'a>(
        &'a self,
        logical_plan: &'a LogicalPlan,
        session: &'a dyn Session,
    ) -> BoxFuture<'a, Result<Arc<dyn ExecutionPlan>>> {
        async move {
            let here = physical_plan(logical_plan, session, 1).await?;
            let (partitions, ranks) = {
                let inner = self.link.inner.borrow();
                match inner.plan_service {
                    Some(_) => (inner.partitions, inner.ranks),
                    None => return Ok(here),
                }
            };
            let bytes_min =
                session.config().get_extension::<DistributeBytesMin>().map_or(0, |bytes_min| bytes_min.0);
            if !gang_planner::is_distributable(&here) || scanned_bytes(&here) < bytes_min.max(1) {
                return Ok(here);
            }
            let config = session.config().clone().with_target_partitions(partitions);
            let Some(state) = session.as_any().downcast_ref::<SessionState>() else {
                return internal_err!("a session without a state");
            };
            let rules = state.physical_optimizers().iter().filter(|rule| rule.name() != self.here_only);
            let there = SessionStateBuilder::new_from_existing(state.clone())
                .with_physical_optimizer_rules(rules.cloned().collect())
                .with_config(config.clone())
                .build();
            let one_rank = physical_plan(logical_plan, &there, ranks).await?;
            match GangExec::try_new(self.link.clone(), one_rank, &config, bytes_min) {
                Ok(gang) => Ok(Arc::new(gang)),
                // Plans that cannot be serialized, for example with an in-memory table, run here.
                Err(error) => {
                    tracing::debug!(%error, "a plan stays in this process");
                    Ok(here)
                }
            }
        }
        .boxed()
    }
}

// Methods are written out for the compiler's sake: docs/decisions/0025-boxed-futures-behind-traits.md
impl QueryPlanner for FrontPlanner {
    fn create_physical_plan<'a: 'f, 'b: 'f, 'c: 'f, 'f>(
        &'a self,
        logical_plan: &'b LogicalPlan,
        session: &'c dyn Session,
    ) -> BoxFuture<'f, Result<Arc<dyn ExecutionPlan>>> {
        self.boxed_create_physical_plan(logical_plan, session)
    }
}

/// A scan of fewer bytes than this stays in the front end. An extension of the session's settings.
#[derive(Debug, Clone, Copy)]
pub struct DistributeBytesMin(pub usize);

/// Runs a plan on the gang. 1 output partition, in the order of the plan's rows if that has one.
#[derive(Debug)]
pub struct GangExec {
    link: Link,
    plan: Arc<dyn ExecutionPlan>,
    bytes: u64,
    request: Request,
    properties: Arc<PlanProperties>,
    /// The gang's last snapshot of the plan.
    last_snapshot: SharedSnapshot,
}

impl GangExec {
    fn try_new(
        link: Link,
        plan: Arc<dyn ExecutionPlan>,
        config: &SessionConfig,
        bytes_min: usize,
    ) -> Result<Self> {
        let marked = with_dispatch(Arc::clone(&plan));
        let bytes = plan_codec::encode(&marked)?;
        let request = Request {
            kind: RequestKind::Run.into(),
            plan: bytes,
            settings: propagated_settings::text(config),
            distribute_bytes_min: bytes_min as u64,
            run: link.last_run.fetch_add(1, Ordering::Relaxed) + 1,
            ..Request::default()
        };
        let request = request.with_limits(Scope::of(config).map(|scope| scope.limits).unwrap_or_default());
        let properties = PlanProperties::new(
            EquivalenceProperties::new(plan.schema()),
            Partitioning::UnknownPartitioning(1),
            EmissionType::Incremental,
            Boundedness::Bounded,
        );
        let bytes = scanned_bytes(&plan) as u64;
        Ok(Self {
            link,
            plan,
            bytes,
            request,
            properties: Arc::new(properties),
            last_snapshot: SharedSnapshot::default(),
        })
    }

    /// The gang's last snapshot of the plan: taken at its beginning, its end, and on every poll. Empty before
    /// the plan is admitted.
    pub fn last_snapshot(&self) -> QueryProfile {
        self.last_snapshot.lock().snapshot.clone()
    }

    /// Polls the plan's progress on all ranks. Returns the last snapshot if it does not run or the gang does
    /// not respond.
    pub async fn poll_snapshot(&self) -> QueryProfile {
        let request =
            Request { kind: RequestKind::Snapshot.into(), run: self.request.run, ..Request::default() };
        let response = async {
            let address = self.link.inner.borrow().plan_service.clone()?;
            let mut stream = send_request(&address.path, &request).await.ok()?;
            match read_frame(&mut stream).await {
                Ok(Some((kind::SNAPSHOT, bytes))) => decode::<QueryProfile>(&bytes).ok(),
                _ => None,
            }
        };
        if let Some(snapshot) = response.await.filter(|snapshot| !snapshot.is_empty()) {
            let mut last = self.last_snapshot.lock();
            // The end may have overtaken the response.
            if last.with_rows < 2 {
                last.snapshot = snapshot;
            }
        }
        self.last_snapshot()
    }

    /// Runs EXPLAIN on the gang; returns the lines, and the rows if it was run and they were requested.
    pub async fn explain(
        &self,
        kind: RequestKind,
        verbose: bool,
        keeps_rows: bool,
        admission: Option<Arc<Admission>>,
    ) -> Result<ExplainedPlan> {
        let turn = match admission.filter(|_| kind == RequestKind::Analyze) {
            Some(admission) => admission.0.admit(self.bytes).await?,
            None => Admitted::default(),
        };
        let request = Request { kind: kind.into(), verbose, keeps_rows, ..self.request.clone() };
        let request = request.with_limits(turn.limits);
        let (mut stream, _running) = self.link.send(&request).await?;
        let mut decoder = StreamDecoder::new();
        let mut explained = ExplainedPlan::default();
        loop {
            match read_frame(&mut stream).await? {
                Some((kind::ROWS, bytes)) => {
                    let mut buffer = Buffer::from_vec(bytes);
                    while let Some(batch) = decoder.decode(&mut buffer)? {
                        explained.batches.push(batch);
                    }
                }
                Some((kind::LINES, bytes)) => explained.lines = decode::<Lines>(&bytes)?.lines,
                Some((kind::FAILURE, bytes)) => return Err(decode_failure(&bytes)),
                Some((kind::END, _)) => return Ok(explained),
                _ => return Err(self.link.gang_lost()),
            }
        }
    }
}

/// The result of [`GangExec::explain`].
#[derive(Debug, Default)]
pub struct ExplainedPlan {
    pub lines: Vec<String>,
    pub batches: Vec<datafusion::arrow::array::RecordBatch>,
}

crate::display_by_name!(GangExec);

impl ExecutionPlan for GangExec {
    fn name(&self) -> &'static str {
        cancelable_joins::GANG_EXEC
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.plan]
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        match children.first() {
            Some(child) if Arc::ptr_eq(child, &self.plan) => Ok(self),
            _ => internal_err!("a plan that was encoded for the gang is not changed any more"),
        }
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        // The plan's expressions belong to the plan.
        Ok(TreeNodeRecursion::Continue)
    }

    fn execute(&self, _: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let schema = self.schema();
        let (link, request, bytes) = (self.link.clone(), self.request.clone(), self.bytes);
        let last_snapshot = Arc::clone(&self.last_snapshot);
        let config = context.session_config();
        let admission = config.get_extension::<Admission>().map(|admission| Arc::clone(&admission.0));
        let wants_repeat = config.get_extension::<RetryReads>().is_some_and(|retry| retry.0);
        let may_retry = wants_repeat && !retry::writes(&self.plan);
        let rows = futures::stream::once(async move {
            let Admitted { turn, limits } = match &admission {
                Some(admission) => admission.admit(bytes).await?,
                None => Admitted::default(),
            };
            let request = request.with_limits(limits);
            Ok::<_, DataFusionError>(retry::rows(
                PlanRun { link, request, last_snapshot, may_retry, admission },
                turn,
            ))
        });
        let rows = futures::TryStreamExt::try_flatten(rows);
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, rows)))
    }
}

/// The `GangExec` that a plan is, if it is one.
pub fn on_gang(plan: &Arc<dyn ExecutionPlan>) -> Option<&GangExec> {
    plan.downcast_ref::<GangExec>()
}
