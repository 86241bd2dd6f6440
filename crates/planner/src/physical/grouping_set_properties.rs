//! GROUPING SETS, CUBE and ROLLUP over columns that are ordered, constant or equal.
//!
//! A column is NULL in the groups of each set that does not have it. DataFusion takes what it knows of the
//! input for true of the groups all the same: after `WHERE k = 0`, `ORDER BY k` would sort nothing, and ranks
//! would yield groups more than once. So nothing of it is told on.
//!
//! ```text
//! AggregateExec: gby=[(k, g), (k), ()]  ─►  UnorderedExec
//!   FilterExec: k = 0                         AggregateExec: gby=[(k, g), (k), ()]
//!                                               FilterExec: k = 0
//! ```
//! Below the aggregate k is the constant 0. Above it k is NULL in the groups of the set ().
//!
//! `GroupingSetProperties` can go when an aggregate with grouping sets claims no order, constant or equality
//! above it (apache/datafusion#24422 mends the streaming of its input only); akin: apache/datafusion#11291.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::AggregateExec;
use harrier_exec::operators::unordered::UnorderedExec;

/// Puts an [`UnorderedExec`] above every aggregate with grouping sets; to be the first of the rules, before
/// any of them goes by an order.
#[derive(Debug)]
pub struct GroupingSetProperties;

impl PhysicalOptimizerRule for GroupingSetProperties {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        plan.transform_up(|plan| {
            // A final aggregate has none: it groups by the columns as they are then, and the number of their
            // set.
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
