//! Limits of sorts that must not pass what needs all rows.
//!
//! Where rows come out of a window or of an aggregate in the order that is asked for, DataFusion does not
//! sort them again, and hands the limit of the sort down to the one below:
//! `SELECT g, sum(x) OVER (PARTITION BY g ORDER BY x) FROM t ORDER BY g, x LIMIT 3` added up three rows of
//! each partition. So there the limit stands by itself while orders are enforced, and is the sort's again
//! afterwards.
//!
//! And a limit of `SELECT DISTINCT` without an order is no hint for rows that come in one: DataFusion plans
//! an operator that has to have a direction (apache/datafusion#25350).
//!
//! Nor does an aggregate keep the first few groups alone where the key is a float: it looks for a group that
//! it gives up by its key, and does not find NaN, which equals nothing there.
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
//! `LimitedAggregationGuard` can go when limited aggregation finds a NaN key in its map of groups; no issue
//! found.
//!
//! `UnorderedLimits` can go with a DataFusion that has apache/datafusion#25349: a limit without a direction
//! is no TopK.

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

use crate::physical::offset_limits;

/// The rule that enforces orders, with limits apart from sorts, and behind fences where they skip rows.
#[derive(Debug)]
struct LimitPushdownGuard(Arc<dyn PhysicalOptimizerRule + Send + Sync>);

/// Has the rule that moves sorts leave limits where they belong.
pub fn guard(rules: &mut [Arc<dyn PhysicalOptimizerRule + Send + Sync>]) {
    for rule in rules.iter_mut() {
        match rule.name() {
            "EnsureRequirements" => *rule = Arc::new(LimitPushdownGuard(Arc::clone(rule))),
            "LimitAggregation" => *rule = Arc::new(LimitedAggregationGuard(Arc::clone(rule))),
            _ => {}
        }
    }
}

/// The rule that has aggregates keep the first few groups alone, where no key is a float.
#[derive(Debug)]
struct LimitedAggregationGuard(Arc<dyn PhysicalOptimizerRule + Send + Sync>);

impl PhysicalOptimizerRule for LimitedAggregationGuard {
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

    fn name(&self) -> &str {
        self.0.name()
    }

    fn schema_check(&self) -> bool {
        self.0.schema_check()
    }
}

impl PhysicalOptimizerRule for LimitPushdownGuard {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let parted = plan.transform_up(|plan| Ok(parted(plan)))?;
        let fenced = offset_limits::fenced(parted.data)?;
        let mut plan = self.0.optimize(fenced.data, config)?;
        if fenced.transformed {
            plan = offset_limits::without_fences(plan)?;
        }
        if !parted.transformed {
            return Ok(plan);
        }
        Ok(plan.transform_up(|plan| Ok(joined(plan)))?.data)
    }

    fn name(&self) -> &str {
        self.0.name()
    }

    fn schema_check(&self) -> bool {
        self.0.schema_check()
    }
}

/// A sort with a limit above rows of a window or an aggregate, as a limit above a sort.
fn parted(plan: Arc<dyn ExecutionPlan>) -> Transformed<Arc<dyn ExecutionPlan>> {
    let limit = match plan.downcast_ref::<SortExec>() {
        Some(sort) if !sort.preserve_partitioning() && needs_all(sort.input()) => {
            sort.fetch().map(|fetch| (sort, fetch))
        }
        _ => None,
    };
    let Some((sort, fetch)) = limit else { return Transformed::no(plan) };
    let whole = SortExec::new(sort.expr().clone(), Arc::clone(sort.input()));
    let mut limit = GlobalLimitExec::new(Arc::new(whole), 0, Some(fetch));
    limit.set_required_ordering(Some(sort.expr().clone()));
    Transformed::yes(Arc::new(limit))
}

/// Whether there is something between these rows and the next sort that tells one row of many.
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

/// A limit as that of what is sorted right below it.
fn joined(plan: Arc<dyn ExecutionPlan>) -> Transformed<Arc<dyn ExecutionPlan>> {
    let limit = plan.downcast_ref::<GlobalLimitExec>();
    let Some((input, fetch)) = limit
        .filter(|limit| limit.skip() == 0)
        .and_then(|limit| limit.fetch().map(|fetch| (limit.input(), fetch)))
    else {
        return Transformed::no(plan);
    };
    if let Some(merge) = input.downcast_ref::<SortPreservingMergeExec>() {
        let sorted = limited(merge.input(), fetch).unwrap_or_else(|| Arc::clone(merge.input()));
        let fetch = merge.fetch().map_or(fetch, |own| own.min(fetch));
        let merge = SortPreservingMergeExec::new(merge.expr().clone(), sorted).with_fetch(Some(fetch));
        return Transformed::yes(Arc::new(merge));
    }
    match limited(input, fetch) {
        Some(sort) => Transformed::yes(sort),
        None => Transformed::no(plan),
    }
}

/// A sort that gives so many rows of each of its partitions; `None`: there is no sort.
fn limited(plan: &Arc<dyn ExecutionPlan>, fetch: usize) -> Option<Arc<dyn ExecutionPlan>> {
    let sort = plan.downcast_ref::<SortExec>()?;
    let fetch = sort.fetch().map_or(fetch, |own| own.min(fetch));
    Some(Arc::new(sort.with_fetch(Some(fetch))))
}

/// Takes hints of limits from aggregates whose rows come in an order; to stand behind all that finds orders.
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
