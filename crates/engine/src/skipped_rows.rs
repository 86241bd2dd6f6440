//! Limits with OFFSET, which no sort may pass.
//!
//! DataFusion moves a sort below a limit when the rows come in an order with which the sort agrees, and below one without FETCH in any case. The rows that
//! are skipped are others then: `SELECT * FROM (SELECT x FROM t ORDER BY x OFFSET 3) ORDER BY x DESC` left out the greatest, and
//! `(… ORDER BY x LIMIT 5 OFFSET 3) ORDER BY x, y` had two rows, because five came out of the sort below and three of them were skipped
//! (`pushdown_requirement_to_children` of DataFusion 55). So while orders are enforced a fence stands above each of them.

use std::fmt;
use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Result, Statistics, internal_err};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::execution_plan::CardinalityEffect;
use datafusion::physical_plan::limit::GlobalLimitExec;
use datafusion::physical_plan::statistics::{ChildStats, StatisticsArgs};
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties};

/// 1 → 1 output partition: its input as it is and as ordered as it is, though it does not say that it keeps the order, so that no sort passes.
#[derive(Debug)]
struct FenceExec {
    input: Arc<dyn ExecutionPlan>,
}

/// Puts a fence above every limit that skips rows.
pub(crate) fn fenced(plan: Arc<dyn ExecutionPlan>) -> Result<Transformed<Arc<dyn ExecutionPlan>>> {
    plan.transform_up(|plan| {
        let skips = plan.downcast_ref::<GlobalLimitExec>().is_some_and(|limit| limit.skip() > 0);
        Ok(match skips {
            true => Transformed::yes(Arc::new(FenceExec { input: plan }) as _),
            false => Transformed::no(plan),
        })
    })
}

/// Takes all fences away.
pub(crate) fn without_fences(plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    plan.transform_up(|plan| {
        Ok(match plan.downcast_ref::<FenceExec>() {
            Some(fence) => Transformed::yes(Arc::clone(&fence.input)),
            None => Transformed::no(plan),
        })
    })
    .map(|transformed| transformed.data)
}

impl DisplayAs for FenceExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FenceExec")
    }
}

impl ExecutionPlan for FenceExec {
    fn name(&self) -> &str {
        "FenceExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.input.properties()
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn with_new_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(Arc::new(Self { input: children.swap_remove(0) }))
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        vec![false]
    }

    fn cardinality_effect(&self) -> CardinalityEffect {
        CardinalityEffect::Equal
    }

    fn child_stats_requests(&self, partition: Option<usize>) -> Vec<ChildStats> {
        vec![ChildStats::At(partition)]
    }

    fn statistics_from_inputs(
        &self,
        inputs: &[Arc<Statistics>],
        _: &StatisticsArgs,
    ) -> Result<Arc<Statistics>> {
        let [input] = inputs else { return internal_err!("statistics of {} inputs", inputs.len()) };
        Ok(Arc::clone(input))
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        self.input.execute(partition, context)
    }
}
