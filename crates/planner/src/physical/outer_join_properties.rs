//! Outer joins with a side whose rows have constants.
//!
//! An outer join fills the columns of a side with NULL where nothing matches. DataFusion takes what is
//! constant in the rows of that side for constant in the joined ones all the same: after `LEFT JOIN (SELECT
//! k, 1 AS flag FROM s) q`, `ORDER BY q.flag` would sort nothing, and a window ordered by it would take all
//! rows for peers. So nothing of it is told on.
//!
//! ```text
//! HashJoinExec: Left                  HashJoinExec: Left
//!   DataSourceExec: t             ─►    DataSourceExec: t
//!   ProjectionExec: k, 1 AS flag        UnorderedExec
//!     DataSourceExec: s                   ProjectionExec: k, 1 AS flag
//!                                           DataSourceExec: s
//! ```
//!
//! `OuterJoinProperties` can go when outer joins drop constants and computed equalities of the side that they
//! fill with NULL; no issue found.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::logical_expr::JoinType;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::execution_plan::replace_children_if_necessary;
use datafusion::physical_plan::joins::{
    HashJoinExec, NestedLoopJoinExec, PiecewiseMergeJoinExec, SortMergeJoinExec, SymmetricHashJoinExec,
};
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};
use harrier_exec::operators::unordered::UnorderedExec;

/// Puts an [`UnorderedExec`] below every outer join, above each side that it fills with NULL and of whose
/// columns one is constant or computed from others; to stand before all rules that go by an order.
#[derive(Debug)]
pub struct OuterJoinProperties;

impl PhysicalOptimizerRule for OuterJoinProperties {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        plan.transform_up(|plan| {
            let filled = match join_type(&plan) {
                Some(JoinType::Left) => [false, true],
                Some(JoinType::Right) => [true, false],
                Some(JoinType::Full) => [true, true],
                _ => return Ok(Transformed::no(plan)),
            };
            let children = plan.children();
            let is_hidden: Vec<bool> = filled
                .into_iter()
                .zip(&children)
                .map(|(filled, child)| filled && changes_by_null(child.equivalence_properties()))
                .collect();
            if !is_hidden.contains(&true) {
                return Ok(Transformed::no(plan));
            }
            let hidden = |(child, is_hidden): (&Arc<dyn ExecutionPlan>, bool)| match is_hidden {
                true => Arc::new(UnorderedExec::new(Arc::clone(child))) as _,
                false => Arc::clone(child),
            };
            let children: Vec<_> = children.into_iter().zip(is_hidden).map(hidden).collect();
            Ok(Transformed::yes(replace_children_if_necessary(plan, children)?))
        })
        .map(|transformed| transformed.data)
    }

    fn name(&self) -> &str {
        "OuterJoinProperties"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

fn join_type(plan: &Arc<dyn ExecutionPlan>) -> Option<JoinType> {
    if let Some(join) = plan.downcast_ref::<HashJoinExec>() {
        Some(*join.join_type())
    } else if let Some(join) = plan.downcast_ref::<SortMergeJoinExec>() {
        Some(join.join_type())
    } else if let Some(join) = plan.downcast_ref::<NestedLoopJoinExec>() {
        Some(*join.join_type())
    } else if let Some(join) = plan.downcast_ref::<PiecewiseMergeJoinExec>() {
        Some(join.join_type())
    } else {
        plan.downcast_ref::<SymmetricHashJoinExec>().map(|join| *join.join_type())
    }
}

/// Whether something that is known of all rows is not true of rows of NULLs. Columns that are equal to each
/// other stay so.
fn changes_by_null(known: &EquivalenceProperties) -> bool {
    let is_column = |expr: &Arc<dyn PhysicalExpr>| expr.is::<Column>();
    !known.constants().is_empty() || known.eq_group().iter().any(|class| !class.iter().all(is_column))
}
