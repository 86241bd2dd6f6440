//! Guard of the rule that answers aggregates from statistics: hides aggregates with FILTER.
//!
//! DataFusion looks for the partial stage of an aggregate below its final stage. It skipped one with a FILTER
//! and found that of an aggregate further below: `SELECT count(*) FILTER (WHERE c > 5) FROM (SELECT count(*)
//! AS c FROM t)` failed to plan (XX000), or returned the value of the inner one if both had the same name.
//!
//! ```text
//! AggregateExec: Final, count(*) FILTER (c > 5)
//!   AggregateExec: Partial, count(*) FILTER (c > 5)    ─►  the same, with only the inner one replaced
//!     ProjectionExec: count(*) as c
//!       AggregateExec: Final, count(*)
//! ```
//! While the rule runs, the stages of an aggregate with FILTER are wrapped in an operator that it does not
//! recognize.
//!
//! `AggregateStatisticsGuard` can go when aggregate_statistics searches for the partial stage only up to the
//! next aggregate; no issue found.

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Result, internal_err};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::execution_plan::replace_children_if_necessary;
use datafusion::physical_plan::{ExecutionPlan, PlanProperties};

use crate::delegation::delegate_physical_rule;

/// Wraps the rule that answers aggregates from statistics.
#[derive(Debug)]
struct AggregateStatisticsGuard(Arc<dyn PhysicalOptimizerRule + Send + Sync>);

/// Wraps DataFusion's rule in `rules`.
pub fn guard(rules: &mut [Arc<dyn PhysicalOptimizerRule + Send + Sync>]) {
    for rule in rules.iter_mut().filter(|rule| rule.name() == "aggregate_statistics") {
        *rule = Arc::new(AggregateStatisticsGuard(Arc::clone(rule)));
    }
}

impl PhysicalOptimizerRule for AggregateStatisticsGuard {
    delegate_physical_rule!();

    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        // The final stage lists the filters too, although the partial one applies them.
        let hidden = plan.transform_up(|plan| match plan.downcast_ref::<AggregateExec>() {
            Some(aggregate)
                if aggregate.filter_expr().iter().any(Option::is_some) || is_above_hidden(&plan) =>
            {
                Ok(Transformed::yes(Arc::new(HiddenExec(plan)) as _))
            }
            _ => Ok(Transformed::no(plan)),
        })?;
        let plan = self.0.optimize(hidden.data, config)?;
        if !hidden.transformed {
            return Ok(plan);
        }
        let restored = plan.transform_up(|plan| match plan.downcast_ref::<HiddenExec>() {
            Some(hidden) => Ok(Transformed::yes(Arc::clone(&hidden.0))),
            None => Ok(Transformed::no(plan)),
        })?;
        Ok(restored.data)
    }
}

/// Whether the partial stage of an aggregate is hidden; operators with one input may lie between.
fn is_above_hidden(plan: &Arc<dyn ExecutionPlan>) -> bool {
    match plan.children().as_slice() {
        [below] => below.is::<HiddenExec>() || !below.is::<AggregateExec>() && is_above_hidden(below),
        _ => false,
    }
}

/// Replaces an aggregate stage while the rule runs.
#[derive(Debug)]
struct HiddenExec(Arc<dyn ExecutionPlan>);

harrier_exec::display_by_name!(HiddenExec);

impl ExecutionPlan for HiddenExec {
    fn name(&self) -> &str {
        "HiddenExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.0.properties()
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        self.0.children()
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(Arc::new(Self(replace_children_if_necessary(Arc::clone(&self.0), children)?)))
    }

    fn execute(&self, _: usize, _: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        internal_err!("{} is gone from plans that run", self.name())
    }
}
