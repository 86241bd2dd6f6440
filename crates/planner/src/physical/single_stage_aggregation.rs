//! Single-stage aggregation for aggregates with large states: repartitions the input rows instead of partial
//! states.
//!
//! In two stages, each partition collects the lists or texts of its part of every group, and a repartition
//! sends these on in batches limited by row count. With few groups a row of states takes megabytes, and the
//! memory between the stages is not accounted for: a statement with a limit of 192 MiB used more than a
//! gigabyte. A partial stage reduces nothing here, because such a state is as large as its input. Sets of
//! distinct values may be smaller, so they stay in two stages if memory suffices.
//!
//! ```text
//! AggregateExec: mode=FinalPartitioned, gby=[g]  ─►  AggregateExec: mode=SinglePartitioned, gby=[g]
//!   AggregateExec: mode=Partial, gby=[g]               rows, later repartitioned by g
//!     rows
//! ```
//! For aggregates whose state is as large as their input, such as array_agg and string_agg.
//!
//! `SingleStageAggregation` can go when states between two stages are accounted for and split by bytes;
//! technique: no pre-aggregation where it reduces nothing.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode};
use harrier_functions::aggregate::growing_state::{self, Growth};

use crate::physical::aggregation_memory::AggregationMemory;

/// Merges a final and a partial aggregate. Runs before repartitions are added between them.
#[derive(Debug)]
pub struct SingleStageAggregation(pub(crate) AggregationMemory);

impl PhysicalOptimizerRule for SingleStageAggregation {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        plan.transform_up(|plan| {
            Ok(match merge_stages(plan.as_ref(), &self.0, config)? {
                Some(aggregate) => Transformed::yes(Arc::new(aggregate) as _),
                None => Transformed::no(plan),
            })
        })
        .map(|transformed| transformed.data)
    }

    fn name(&self) -> &str {
        "SingleStageAggregation"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// The single-stage form of a grouped aggregate whose states are as large as its input. `None`: not such an
/// aggregate, or not planned in these two stages.
fn merge_stages(
    plan: &dyn ExecutionPlan,
    budget: &AggregationMemory,
    config: &ConfigOptions,
) -> Result<Option<AggregateExec>> {
    let of_mode = |plan: &dyn ExecutionPlan, mode| {
        plan.downcast_ref::<AggregateExec>().filter(|aggregate| *aggregate.mode() == mode).cloned()
    };
    let Some(last) = of_mode(plan, AggregateMode::FinalPartitioned) else { return Ok(None) };
    let Some(first) = of_mode(last.input().as_ref(), AggregateMode::Partial) else { return Ok(None) };
    // With grouping sets a row belongs to a group of each set, but can only be sent to one partition.
    if first.group_expr().has_grouping_set() {
        return Ok(None);
    }
    let is_better = match growing_state::growth(&first)? {
        Growth::None => false,
        Growth::ByValues => !budget.holds(first.input(), config)?,
        Growth::ByRows => true,
    };
    if !is_better {
        return Ok(None);
    }
    let merged = AggregateExec::try_new(
        AggregateMode::SinglePartitioned,
        first.group_expr().clone(),
        first.aggr_expr().to_vec(),
        first.filter_expr().to_vec(),
        Arc::clone(first.input()),
        first.input_schema(),
    )?;
    Ok(Some(merged.with_limit_options(last.limit_options())))
}
