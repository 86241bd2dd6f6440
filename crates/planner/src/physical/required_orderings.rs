//! Adds sorts where a plan no longer provides a required ordering.
//!
//! DataFusion omits a sort if it can prove that rows are ordered, for example by constant or equal columns. A
//! later rule that moves a filter, a projection or a join side may lose that proof, and the final sanity
//! check rejects the plan. So inputs that are not provably ordered are sorted.
//!
//! Rows ordered by `k` are also ordered by `k::bigint`, which DataFusion knows; but a window partitioned by
//! `k::bigint` looks for that very key in the ordering, and fails at run time.
//!
//! ```text
//! SortPreservingMergeExec: k        ─►  SortPreservingMergeExec: k
//!   FilterExec: …, order unknown          SortExec: k
//!                                           FilterExec: …, order unknown
//! BoundedWindowAggExec: BY k::bigint  ─►  BoundedWindowAggExec: BY k::bigint
//!   SortExec: k                             SortExec: k::bigint
//!                                             UnorderedExec above SortExec: k
//! ```
//!
//! `RequiredOrderings` can go when orderings are enforced after the last rule that moves filters and
//! projections, and windows look up keys by equivalence; related: apache/datafusion#9177,
//! apache/datafusion#9198, apache/datafusion#18527.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::physical_expr::LexOrdering;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::execution_plan::replace_children_if_necessary;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::windows::{BoundedWindowAggExec, WindowAggExec};
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties, InputOrderMode};
use harrier_exec::operators::unordered::UnorderedExec;

/// Sorts inputs that do not provably satisfy the required ordering. Runs before the sanity check.
#[derive(Debug)]
pub struct RequiredOrderings;

/// Whether a window over rows sorted by its partition keys finds all of them in the ordering; true for any
/// other operator.
fn has_partitions_in_order(plan: &Arc<dyn ExecutionPlan>, child: &Arc<dyn ExecutionPlan>) -> Result<bool> {
    let windows = match plan.downcast_ref::<BoundedWindowAggExec>() {
        Some(window) if matches!(window.input_order_mode, InputOrderMode::Sorted) => window.window_expr(),
        Some(_) => return Ok(true),
        None => match plan.downcast_ref::<WindowAggExec>() {
            Some(window) => window.window_expr(),
            None => return Ok(true),
        },
    };
    let Some(window) = windows.first() else { return Ok(true) };
    let keys = window.partition_by();
    let (found, _) = child.equivalence_properties().find_longest_permutation(keys)?;
    Ok(found.len() == keys.len())
}

impl PhysicalOptimizerRule for RequiredOrderings {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        plan.transform_up(|plan| {
            let mut is_changed = false;
            let mut children = Vec::with_capacity(plan.children().len());
            for (child, needed) in plan.children().into_iter().zip(plan.required_input_ordering()) {
                let child = Arc::clone(child);
                let Some(needed) = needed.map(|needed| needed.into_single()) else {
                    children.push(child);
                    continue;
                };
                let is_ordered =
                    child.equivalence_properties().ordering_satisfy_requirement(needed.clone())?;
                let child = match is_ordered {
                    true if has_partitions_in_order(&plan, &child)? => {
                        children.push(child);
                        continue;
                    }
                    // Otherwise the redundant sort would report the known ordering instead of its own keys.
                    true => Arc::new(UnorderedExec::new(child)) as _,
                    false => child,
                };
                is_changed = true;
                let is_split = child.output_partitioning().partition_count() > 1;
                let sort = SortExec::new(LexOrdering::from(needed), child);
                children.push(Arc::new(sort.with_preserve_partitioning(is_split)));
            }
            Ok(match is_changed {
                true => Transformed::yes(replace_children_if_necessary(plan, children)?),
                false => Transformed::no(plan),
            })
        })
        .map(|transformed| transformed.data)
    }

    fn name(&self) -> &str {
        "RequiredOrderings"
    }

    fn schema_check(&self) -> bool {
        true
    }
}
