//! Hides constants and computed equivalences of the nullable side of outer joins.
//!
//! An outer join fills the columns of unmatched rows with NULL. DataFusion nevertheless propagates constants
//! of that side to its output: after `LEFT JOIN (SELECT k, 1 AS flag FROM s) q`, `ORDER BY q.flag` would not
//! sort, and a window ordered by it would treat all rows as peers. So no properties of that side are
//! propagated.
//!
//! ```text
//! HashJoinExec: Left                  HashJoinExec: Left
//!   DataSourceExec: t             ─►    DataSourceExec: t
//!   ProjectionExec: k, 1 AS flag        UnorderedExec
//!     DataSourceExec: s                   ProjectionExec: k, 1 AS flag
//!                                           DataSourceExec: s
//! ```
//!
//! `OuterJoinProperties` can go when outer joins drop constants and computed equivalences of the nullable
//! side; no issue found.

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

/// Adds an [`UnorderedExec`] above each nullable input of an outer join with a constant or computed column.
/// Runs before all rules that rely on orderings.
#[derive(Debug)]
pub struct OuterJoinProperties;

impl PhysicalOptimizerRule for OuterJoinProperties {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        plan.transform_up(|plan| {
            let is_nullable = match join_type(&plan) {
                Some(JoinType::Left) => [false, true],
                Some(JoinType::Right) => [true, false],
                Some(JoinType::Full) => [true, true],
                _ => return Ok(Transformed::no(plan)),
            };
            let children = plan.children();
            let is_hidden: Vec<bool> = is_nullable
                .into_iter()
                .zip(&children)
                .map(|(is_nullable, child)| {
                    is_nullable && is_violated_by_null(child.equivalence_properties())
                })
                .collect();
            if !is_hidden.contains(&true) {
                return Ok(Transformed::no(plan));
            }
            let hide = |(child, is_hidden): (&Arc<dyn ExecutionPlan>, bool)| match is_hidden {
                true => Arc::new(UnorderedExec::new(Arc::clone(child))) as _,
                false => Arc::clone(child),
            };
            let children: Vec<_> = children.into_iter().zip(is_hidden).map(hide).collect();
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

/// Whether NULL-extended rows violate a known property. Columns that equal each other remain equal.
fn is_violated_by_null(known: &EquivalenceProperties) -> bool {
    let is_column = |expr: &Arc<dyn PhysicalExpr>| expr.is::<Column>();
    !known.constants().is_empty() || known.eq_group().iter().any(|class| !class.iter().all(is_column))
}
