//! Sorts below window functions, by columns that a filter makes constant as well: sorts omit these, and a
//! motion does not propagate constants.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::physical_expr::{LexOrdering, PhysicalExpr, PhysicalSortExpr};
use datafusion::physical_plan::execution_plan::replace_children_if_necessary;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::windows::{BoundedWindowAggExec, WindowAggExec};
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties, InputOrderMode};

/// Sorts the input of a window function also by those `PARTITION BY` keys that need no sorting because they
/// are constant or equal to others. A rank that replans the window function above a motion rejects an input
/// not ordered by all keys. The order of rows does not change.
pub(crate) fn sort_by_keys(plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    let windows = match (plan.downcast_ref::<WindowAggExec>(), plan.downcast_ref::<BoundedWindowAggExec>()) {
        (Some(window), _) => window.window_expr(),
        (_, Some(window)) if window.input_order_mode == InputOrderMode::Sorted => window.window_expr(),
        _ => return Ok(plan),
    };
    let keys = windows.first().map(|window| window.partition_by().to_vec()).unwrap_or_default();
    let [input] = plan.children()[..] else {
        return Ok(plan);
    };
    let sort = input.downcast_ref::<SortExec>();
    let sorted: Vec<PhysicalSortExpr> = match sort {
        Some(sort) => sort.expr().iter().cloned().collect(),
        None => input.output_ordering().into_iter().flatten().cloned().collect(),
    };
    let is_sorted = |key: &Arc<dyn PhysicalExpr>| sorted.iter().any(|sorted| sorted.expr.eq(key));
    if keys.iter().all(is_sorted) {
        return Ok(plan);
    }
    // The keys in the existing order and direction of the rows.
    let (known, _) = input.equivalence_properties().find_longest_permutation(&keys)?;
    let first = match known.len() == keys.len() {
        true => known,
        false => keys.into_iter().filter(|key| !is_sorted(key)).map(PhysicalSortExpr::new_default).collect(),
    };
    let Some(ordering) = LexOrdering::new(first.into_iter().chain(sorted.iter().cloned())) else {
        return Ok(plan);
    };
    let sort = match sort {
        Some(sort) => SortExec::new(ordering, Arc::clone(sort.input()))
            .with_fetch(sort.fetch())
            .with_preserve_partitioning(sort.preserve_partitioning()),
        None => SortExec::new(ordering, Arc::clone(input)).with_preserve_partitioning(true),
    };
    replace_children_if_necessary(plan, vec![Arc::new(sort)])
}
