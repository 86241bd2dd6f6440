//! Fences around limits with OFFSET: no sort may move past them, and the sort below has to stay.
//!
//! DataFusion pushes a sort below a limit if the orderings are compatible, and always below one without
//! FETCH. Then other rows are skipped: `SELECT * FROM (SELECT x FROM t ORDER BY x OFFSET 3) ORDER BY x DESC`
//! dropped the greatest values, and `(… ORDER BY x LIMIT 5 OFFSET 3) ORDER BY x, y` returned two rows,
//! because the sort below returned five of which three were skipped (apache/datafusion#25378, #24958). If no
//! operator above needs an ordering, as in `SELECT DISTINCT x FROM (… ORDER BY y OFFSET 3)`, it removes the
//! sort and skips arbitrary rows (#23534). So while orderings are enforced, each such limit gets a fence
//! above it, and another one above its sort that requires the ordering.
//!
//! ```text
//! SortExec: x DESC               SortExec: x DESC
//!   GlobalLimitExec: skip=3  ─►    FenceExec
//!     SortExec: x                    GlobalLimitExec: skip=3
//!                                      FenceExec: needs x
//!                                        SortExec: x
//! ```
//! The fences exist only while EnsureRequirements runs.
//!
//! `FenceExec` can go with `LimitPushdownGuard`, which inserts it.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::physical_expr::{Distribution, LexOrdering, OrderingRequirements};
use datafusion::physical_plan::execution_plan::replace_children_if_necessary;
use datafusion::physical_plan::limit::GlobalLimitExec;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::{ExecutionPlan, PlanProperties};

/// 1 → 1 output partition: passes its input through in order, but does not claim to preserve the order, so
/// that no sort is pushed through it.
#[derive(Debug)]
struct FenceExec {
    input: Arc<dyn ExecutionPlan>,
    /// The required input ordering.
    order: Option<LexOrdering>,
}

/// Adds fences above every limit that skips rows, and above the sort that it depends on.
pub(crate) fn add_fences(plan: Arc<dyn ExecutionPlan>) -> Result<Transformed<Arc<dyn ExecutionPlan>>> {
    plan.transform_up(|plan| {
        let limit = plan.downcast_ref::<GlobalLimitExec>().filter(|limit| limit.skip() > 0);
        let Some(limit) = limit else { return Ok(Transformed::no(plan)) };
        let input = match fence_sort(limit.input())? {
            Some(sorted) => replace_children_if_necessary(Arc::clone(&plan), vec![sorted])?,
            None => plan,
        };
        Ok(Transformed::yes(Arc::new(FenceExec { input, order: None }) as _))
    })
}

/// Adds a fence above the sort below a plan, looking through projections. `None`: there is no sort.
fn fence_sort(plan: &Arc<dyn ExecutionPlan>) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    if let Some(sort) = plan.downcast_ref::<SortExec>() {
        let order = Some(sort.expr().clone());
        return Ok(Some(Arc::new(FenceExec { input: Arc::clone(plan), order })));
    }
    let Some(projection) = plan.downcast_ref::<ProjectionExec>() else { return Ok(None) };
    let Some(sorted) = fence_sort(projection.input())? else { return Ok(None) };
    replace_children_if_necessary(Arc::clone(plan), vec![sorted]).map(Some)
}

/// Removes all fences.
pub(crate) fn remove_fences(plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    plan.transform_up(|plan| {
        Ok(match plan.downcast_ref::<FenceExec>() {
            Some(fence) => Transformed::yes(Arc::clone(&fence.input)),
            None => Transformed::no(plan),
        })
    })
    .map(|transformed| transformed.data)
}

harrier_exec::display_by_name!(FenceExec);

impl ExecutionPlan for FenceExec {
    harrier_exec::one_input!("FenceExec", input, |own, input| Self { input, order: own.order.clone() });
    harrier_exec::unchanged_rows!(input);

    fn properties(&self) -> &Arc<PlanProperties> {
        self.input.properties()
    }

    fn required_input_distribution(&self) -> Vec<Distribution> {
        vec![Distribution::SinglePartition]
    }

    fn required_input_ordering(&self) -> Vec<Option<OrderingRequirements>> {
        vec![self.order.clone().map(OrderingRequirements::from)]
    }
}
