//! Guard of limit pushdown: keeps the limits of sorts above operators that need all rows.
//!
//! If a window or an aggregate already returns rows in the required order, DataFusion removes the sort above
//! and pushes its limit into the sort below: `SELECT g, sum(x) OVER (PARTITION BY g ORDER BY x) FROM t ORDER
//! BY g, x LIMIT 3` summed only three rows of each partition. So while orderings are enforced, the limit is a
//! separate operator, which becomes the sort's fetch again afterwards.
//!
//! A limit of `SELECT DISTINCT` without ORDER BY is no limit hint for ordered rows: DataFusion plans an
//! operator that requires a sort direction (apache/datafusion#25350).
//!
//! Aggregates with a float key do not keep only the first groups (TopK aggregation): evicting a group looks
//! it up by its key, and does not find NaN, which is not equal to itself there.
//!
//! ```text
//! SortExec: TopK(fetch=3), g, x            ─►  GlobalLimitExec: skip=0, fetch=3     while
//!   BoundedWindowAggExec: BY g ORDER BY x        SortExec: g, x                     orders are
//!     rows                                         BoundedWindowAggExec: …          enforced
//! AggregateExec: gby=[x], lim=[3], ordered  ─►  AggregateExec: gby=[x]      UnorderedLimits
//! LimitAggregation, a key is a float        ─►  not run                     LimitedAggregationGuard
//! ```
//!
//! `LimitPushdownGuard` can go when a fetch is not pushed below a final aggregate or window
//! (apache/datafusion#24932) and no sort passes a limit that skips rows (apache/datafusion#24958;
//! apache/datafusion#25408 is still open).
//!
//! `LimitedAggregationGuard` can go when TopK aggregation finds a NaN key in its hash map; no issue found.
//!
//! `UnorderedLimits` can go with a DataFusion that includes apache/datafusion#25349: a limit without a
//! direction is not a TopK.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::limit::GlobalLimitExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::sorts::sort_preserving_merge::SortPreservingMergeExec;
use datafusion::physical_plan::windows::{BoundedWindowAggExec, WindowAggExec};
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};

use crate::delegation::delegate_physical_rule;
use crate::physical::offset_limits;

/// Wraps the rule that enforces orderings: separates limits from sorts, and fences limits with OFFSET.
#[derive(Debug)]
struct LimitPushdownGuard(Arc<dyn PhysicalOptimizerRule + Send + Sync>);

/// Wraps the rules that move limits in `rules`.
pub fn guard(rules: &mut [Arc<dyn PhysicalOptimizerRule + Send + Sync>]) {
    for rule in rules.iter_mut() {
        match rule.name() {
            "EnsureRequirements" => *rule = Arc::new(LimitPushdownGuard(Arc::clone(rule))),
            "LimitAggregation" => *rule = Arc::new(LimitedAggregationGuard(Arc::clone(rule))),
            _ => {}
        }
    }
}

/// Wraps the TopK aggregation rule, and skips plans with a float key.
#[derive(Debug)]
struct LimitedAggregationGuard(Arc<dyn PhysicalOptimizerRule + Send + Sync>);

impl PhysicalOptimizerRule for LimitedAggregationGuard {
    delegate_physical_rule!();

    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let has_floats = plan.exists(|plan| {
            let Some(aggregate) = plan.downcast_ref::<AggregateExec>() else { return Ok(false) };
            let schema = aggregate.input_schema();
            let mut keys = aggregate.group_expr().expr().iter();
            Ok(keys.any(|(key, _)| key.data_type(&schema).is_ok_and(|kind| kind.is_floating())))
        })?;
        if has_floats { Ok(plan) } else { self.0.optimize(plan, config) }
    }
}

impl PhysicalOptimizerRule for LimitPushdownGuard {
    delegate_physical_rule!();

    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let split = plan.transform_up(|plan| Ok(split_limit(plan)))?;
        let fenced = offset_limits::add_fences(split.data)?;
        let mut plan = self.0.optimize(fenced.data, config)?;
        if fenced.transformed {
            plan = offset_limits::remove_fences(plan)?;
        }
        if !split.transformed {
            return Ok(plan);
        }
        Ok(plan.transform_up(|plan| Ok(merge_limit(plan)))?.data)
    }
}

/// Splits a sort with a fetch above a window or an aggregate into a limit above a sort.
fn split_limit(plan: Arc<dyn ExecutionPlan>) -> Transformed<Arc<dyn ExecutionPlan>> {
    let limit = match plan.downcast_ref::<SortExec>() {
        Some(sort) if !sort.preserve_partitioning() && needs_all(sort.input()) => {
            sort.fetch().map(|fetch| (sort, fetch))
        }
        _ => None,
    };
    let Some((sort, fetch)) = limit else { return Transformed::no(plan) };
    let unlimited = SortExec::new(sort.expr().clone(), Arc::clone(sort.input()));
    let mut limit = GlobalLimitExec::new(Arc::new(unlimited), 0, Some(fetch));
    limit.set_required_ordering(Some(sort.expr().clone()));
    Transformed::yes(Arc::new(limit))
}

/// Whether an operator between these rows and the next sort computes a row from many.
fn needs_all(plan: &Arc<dyn ExecutionPlan>) -> bool {
    if plan.is::<WindowAggExec>() || plan.is::<BoundedWindowAggExec>() {
        return true;
    }
    if let Some(aggregate) = plan.downcast_ref::<AggregateExec>()
        && aggregate.input().output_ordering().is_some()
    {
        return true;
    }
    !plan.is::<SortExec>() && plan.children().into_iter().any(needs_all)
}

/// Merges a limit into the sort directly below.
fn merge_limit(plan: Arc<dyn ExecutionPlan>) -> Transformed<Arc<dyn ExecutionPlan>> {
    let limit = plan.downcast_ref::<GlobalLimitExec>();
    let Some((input, fetch)) = limit
        .filter(|limit| limit.skip() == 0)
        .and_then(|limit| limit.fetch().map(|fetch| (limit.input(), fetch)))
    else {
        return Transformed::no(plan);
    };
    if let Some(merge) = input.downcast_ref::<SortPreservingMergeExec>() {
        let sorted = with_fetch(merge.input(), fetch).unwrap_or_else(|| Arc::clone(merge.input()));
        let fetch = merge.fetch().map_or(fetch, |own| own.min(fetch));
        let merge = SortPreservingMergeExec::new(merge.expr().clone(), sorted).with_fetch(Some(fetch));
        return Transformed::yes(Arc::new(merge));
    }
    match with_fetch(input, fetch) {
        Some(sort) => Transformed::yes(sort),
        None => Transformed::no(plan),
    }
}

/// Sets the fetch of a sort, which applies to each partition; `None`: not a sort.
fn with_fetch(plan: &Arc<dyn ExecutionPlan>, fetch: usize) -> Option<Arc<dyn ExecutionPlan>> {
    let sort = plan.downcast_ref::<SortExec>()?;
    let fetch = sort.fetch().map_or(fetch, |own| own.min(fetch));
    Some(Arc::new(sort.with_fetch(Some(fetch))))
}

/// Removes limit hints from aggregates over ordered rows. Runs after all rules that establish orderings.
#[derive(Debug)]
pub struct UnorderedLimits;

impl PhysicalOptimizerRule for UnorderedLimits {
    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, _: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
        let changed = plan.transform_up(|plan| {
            let Some(aggregate) = plan.downcast_ref::<AggregateExec>() else {
                return Ok(Transformed::no(plan));
            };
            let is_hint = aggregate.limit_options().is_some_and(|limit| limit.descending().is_none());
            let is_ordered =
                plan.output_ordering().is_some() || aggregate.input().output_ordering().is_some();
            match is_hint && is_ordered {
                true => Ok(Transformed::yes(Arc::new(aggregate.with_new_limit_options(None)) as _)),
                false => Ok(Transformed::no(plan)),
            }
        })?;
        Ok(changed.data)
    }

    fn name(&self) -> &str {
        "UnorderedLimits"
    }

    fn schema_check(&self) -> bool {
        true
    }
}
