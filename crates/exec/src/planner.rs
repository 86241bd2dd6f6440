//! The gang's planner: plans for one rank, then spreads the plan over all ranks unless that would change its answer.
//!
//! Some plans must stay on one rank as a whole:
//! - recursive queries: the work table lives in one process;
//! - system tables (`information_schema`, `SHOW`): their rows are this process's own;
//! - plans that rely on the order of rows below a redistribution: rows of several ranks arrive interleaved, and
//!   datafusion-distributed does not merge them in order.

use async_trait::async_trait;
use datafusion::catalog::Session;
use datafusion::common::{Result, internal_err};
use datafusion::execution::SessionStateBuilder;
use datafusion::execution::context::QueryPlanner;
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties, Partitioning};
use datafusion::physical_planner::{DefaultPhysicalPlanner, PhysicalPlanner};
use datafusion_distributed::SessionStateBuilderExt;
use std::sync::Arc;

/// Operators whose rows exist in one process only.
const ONE_RANK_ONLY: [&str; 3] = ["RecursiveQueryExec", "WorkTableExec", "StreamingTableExec"];

/// Makes `builder` plan for the gang.
pub fn install(builder: SessionStateBuilder) -> SessionStateBuilder {
    let mut builder = builder.with_query_planner(Arc::new(Handed)).with_distributed_planner();
    match builder.query_planner().take() {
        Some(spreading) => builder.with_query_planner(Arc::new(GangPlanner { spreading })),
        None => builder,
    }
}

tokio::task_local! {
    /// The one-rank plan on its way from [`GangPlanner`] through datafusion-distributed's planner to [`Handed`].
    static ONE_RANK: Arc<dyn ExecutionPlan>;
}

#[derive(Debug)]
struct GangPlanner {
    spreading: Arc<dyn QueryPlanner + Send + Sync>,
}

#[async_trait]
impl QueryPlanner for GangPlanner {
    async fn create_physical_plan(
        &self,
        logical_plan: &LogicalPlan,
        session: &dyn Session,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let one_rank = DefaultPhysicalPlanner::default().create_physical_plan(logical_plan, session).await?;
        if !may_spread(&one_rank) {
            return Ok(one_rank);
        }
        ONE_RANK.scope(one_rank, self.spreading.create_physical_plan(logical_plan, session)).await
    }
}

fn may_spread(plan: &Arc<dyn ExecutionPlan>) -> bool {
    if ONE_RANK_ONLY.contains(&plan.name()) {
        return false;
    }
    if let Some(repartition) = plan.downcast_ref::<RepartitionExec>()
        && matches!(repartition.partitioning(), Partitioning::Hash(_, _))
        && plan.output_ordering().is_some()
    {
        return false;
    }
    plan.children().into_iter().all(may_spread)
}

/// Where datafusion-distributed's planner asks for the plan it shall spread.
#[derive(Debug)]
struct Handed;

#[async_trait]
impl QueryPlanner for Handed {
    async fn create_physical_plan(&self, _: &LogicalPlan, _: &dyn Session) -> Result<Arc<dyn ExecutionPlan>> {
        match ONE_RANK.try_with(Arc::clone) {
            Ok(plan) => Ok(plan),
            Err(_) => internal_err!("a plan was to be spread before it was made"),
        }
    }
}
