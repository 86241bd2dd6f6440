//! Sort-based aggregation for aggregates whose large states may not fit into memory.
//!
//! A hash aggregate holds the states of all groups at once. When it runs out of memory it spills them, and
//! reads all states of a group back at once, however large: with few groups that takes several times the
//! memory limit. If rows arrive group by group, only one state exists at a time; the sort below spills rows,
//! which are small.
//!
//! ```text
//! AggregateExec: mode=SinglePartitioned      AggregateExec: mode=SinglePartitioned, ordering_mode=Sorted
//!   gby=[g], array_agg(x ORDER BY o)     ─►    gby=[g], array_agg(x ORDER BY o)
//!     SortExec: o                                SortExec: g, o
//!       rows                                       rows
//! ```
//! Only if the states may not fit into the memory of the statement.
//!
//! `SortedAggregation` can go when a spilling hash aggregate bounds the state of each group it reads back
//! (apache/datafusion#12937, open); technique: sort-based aggregation.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::physical_expr::{LexOrdering, PhysicalSortExpr};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode};
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties, InputOrderMode};
use harrier_functions::aggregate::growing_state::{self, Growth};

use crate::physical::aggregation_memory::AggregationMemory;

/// Sorts the input of aggregates with large states by group. Runs after unnecessary sorts have been removed.
#[derive(Debug)]
pub struct SortedAggregation(pub(crate) AggregationMemory);

impl PhysicalOptimizerRule for SortedAggregation {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        plan.transform_up(|plan| {
            Ok(match sort_input(plan.as_ref(), &self.0, config)? {
                Some(sorted) => Transformed::yes(sorted),
                None => Transformed::no(plan),
            })
        })
        .map(|transformed| transformed.data)
    }

    fn name(&self) -> &str {
        "SortedAggregation"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// The aggregate over sorted rows. `None`: its states are small or fit into memory, or its input is already
/// sorted.
fn sort_input(
    plan: &dyn ExecutionPlan,
    budget: &AggregationMemory,
    config: &ConfigOptions,
) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    let Some(aggregate) = plan.downcast_ref::<AggregateExec>() else { return Ok(None) };
    let is_whole = matches!(aggregate.mode(), AggregateMode::Single | AggregateMode::SinglePartitioned);
    if !is_whole
        || *aggregate.input_order_mode() == InputOrderMode::Sorted
        || aggregate.limit_options().is_some()
        || !aggregate.group_expr().is_single()
        || growing_state::growth(aggregate)? == Growth::None
        || budget.holds(aggregate.input(), config)?
    {
        return Ok(None);
    }
    // An existing sort establishes the order within groups, which comes second.
    let below = aggregate.input().downcast_ref::<SortExec>().filter(|sort| sort.fetch().is_none());
    let input = below.map_or_else(|| aggregate.input(), SortExec::input);
    let groups = aggregate.group_expr().input_exprs().into_iter().map(PhysicalSortExpr::new_default);
    let needed = plan.required_input_ordering().into_iter().flatten().next();
    let within = needed.map(|needed| LexOrdering::from(needed.into_single()));
    let Some(order) = LexOrdering::new(groups.chain(within.into_iter().flatten())) else { return Ok(None) };
    let is_split = input.output_partitioning().partition_count() > 1;
    let sort = SortExec::new(order, Arc::clone(input)).with_preserve_partitioning(is_split);
    let sorted = AggregateExec::try_new(
        *aggregate.mode(),
        aggregate.group_expr().clone(),
        aggregate.aggr_expr().to_vec(),
        aggregate.filter_expr().to_vec(),
        Arc::new(sort),
        aggregate.input_schema(),
    )?;
    Ok((*sorted.input_order_mode() == InputOrderMode::Sorted).then(|| Arc::new(sorted) as _))
}
