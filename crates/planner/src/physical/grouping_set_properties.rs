//! Hides orderings, constants and equivalences above GROUPING SETS, CUBE and ROLLUP.
//!
//! A column is NULL in the groups of each set that does not contain it. DataFusion nevertheless propagates
//! the properties of the input: after `WHERE k = 0`, `ORDER BY k` would not sort, and ranks would return
//! groups more than once. So no properties are propagated.
//!
//! ```text
//! AggregateExec: gby=[(k, g), (k), ()]  ─►  UnorderedExec
//!   FilterExec: k = 0                         AggregateExec: gby=[(k, g), (k), ()]
//!                                               FilterExec: k = 0
//! ```
//! Below the aggregate k is the constant 0. Above it, k is NULL in the groups of the set ().
//!
//! `GroupingSetProperties` can go when an aggregate with grouping sets claims no ordering, constant or
//! equivalence (apache/datafusion#24422 only fixes the streaming of its input); related:
//! apache/datafusion#11291.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::AggregateExec;
use harrier_exec::operators::unordered::UnorderedExec;

/// Adds an [`UnorderedExec`] above every aggregate with grouping sets. Runs first, before any rule that
/// relies on orderings.
#[derive(Debug)]
pub struct GroupingSetProperties;

impl PhysicalOptimizerRule for GroupingSetProperties {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        plan.transform_up(|plan| {
            // A final aggregate has no grouping sets: it groups by the columns and the grouping ID.
            let has_sets = |aggregate: &AggregateExec| aggregate.group_expr().has_grouping_set();
            Ok(match plan.downcast_ref::<AggregateExec>().is_some_and(has_sets) {
                true => Transformed::yes(Arc::new(UnorderedExec::new(plan)) as _),
                false => Transformed::no(plan),
            })
        })
        .map(|transformed| transformed.data)
    }

    fn name(&self) -> &str {
        "GroupingSetProperties"
    }

    fn schema_check(&self) -> bool {
        true
    }
}
