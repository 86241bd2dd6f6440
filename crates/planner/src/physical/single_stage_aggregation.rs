//! Aggregates of long states in one stage: the rows go where their group is, not states that were made of
//! them before.
//!
//! In two stages each partition collects lists or texts of its part of every group, and a repartition sends
//! these on, in batches counted by rows. With few groups a row of states takes megabytes, and what stands
//! between the stages is counted for nobody: a statement that was to hold 192 MiB took more than a gigabyte.
//! A first stage makes nothing shorter here, because such a state is as long as the rows it was made of. Sets
//! of different values may be shorter, so these stay in two stages where memory is enough.
//!
//! ```text
//! AggregateExec: mode=FinalPartitioned, gby=[g]  ─►  AggregateExec: mode=SinglePartitioned, gby=[g]
//!   AggregateExec: mode=Partial, gby=[g]               rows, which are repartitioned by g later
//!     rows
//! ```
//! For aggregates whose state is as long as their input, such as array_agg and string_agg.
//!
//! `SingleStageAggregation` can go when the states between two stages are counted and cut by bytes;
//! technique: no pre-aggregation where it makes nothing smaller.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode};
use harrier_functions::aggregate::growing_state::{self, Growth};

use crate::physical::aggregation_memory::AggregationMemory;

/// Makes a final and a partial aggregate one; to come before repartitions are put between them.
#[derive(Debug)]
pub struct SingleStageAggregation(pub(crate) AggregationMemory);

impl PhysicalOptimizerRule for SingleStageAggregation {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        plan.transform_up(|plan| {
            Ok(match in_one_stage(plan.as_ref(), &self.0, config)? {
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

/// The whole of an aggregate by groups whose states are as long as its input. `None`: it is none, or has been
/// put together otherwise.
fn in_one_stage(
    plan: &dyn ExecutionPlan,
    budget: &AggregationMemory,
    config: &ConfigOptions,
) -> Result<Option<AggregateExec>> {
    let of_mode = |plan: &dyn ExecutionPlan, mode| {
        plan.downcast_ref::<AggregateExec>().filter(|aggregate| *aggregate.mode() == mode).cloned()
    };
    let Some(last) = of_mode(plan, AggregateMode::FinalPartitioned) else { return Ok(None) };
    let Some(first) = of_mode(last.input().as_ref(), AggregateMode::Partial) else { return Ok(None) };
    // With grouping sets a row has a group in each of them, and can only go to one place.
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
    let whole = AggregateExec::try_new(
        AggregateMode::SinglePartitioned,
        first.group_expr().clone(),
        first.aggr_expr().to_vec(),
        first.filter_expr().to_vec(),
        Arc::clone(first.input()),
        first.input_schema(),
    )?;
    Ok(Some(whole.with_limit_options(last.limit_options())))
}
