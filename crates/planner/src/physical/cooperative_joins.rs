//! Cooperative yielding of joins.
//!
//! DataFusion's sources and exchanges yield to the tokio scheduler after some batches, and the operators
//! above with them. A join can produce thousands of batches from one input batch, and its consumer loops over
//! them without yielding: meanwhile Ctrl-C, the loss of a rank and the next statement wait. So joins consume
//! the yield budget too.
//!
//! CooperativeExec consumes tokio's budget of 128 units per poll of a task, and returns a unit if it is
//! pending. Nested joins each consume a unit before the innermost returns a row: with more nested joins than
//! units the plan would make no progress.
//!
//! ```text
//! HashJoinExec        CooperativeExec
//!   HashJoinExec  ─►    HashJoinExec
//!     rows                CooperativeExec
//!                           HashJoinExec
//! ```
//! Of nested joins the innermost 32 are wrapped, and above these every 32nd.
//!
//! `CooperativeJoins` can go when joins yield by themselves (apache/datafusion#19358, open;
//! apache/datafusion#19360 was closed unmerged).

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::coop::CooperativeExec;
use datafusion::physical_plan::joins::{CrossJoinExec, HashJoinExec, NestedLoopJoinExec, SortMergeJoinExec};

/// The number of innermost nested joins that are all wrapped; above these, one in this many is. 1200
/// relations nest up to 70 levels.
const WRAPPED_JOINS: usize = 32;

/// Adds a [`CooperativeExec`] above joins.
#[derive(Debug)]
pub struct CooperativeJoins;

impl PhysicalOptimizerRule for CooperativeJoins {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        // The join nesting depth of each visited operator.
        let mut nested: HashMap<*const u8, usize> = HashMap::new();
        plan.transform_up(|plan| {
            let below = plan.children().into_iter().filter_map(|child| nested.get(&address(child)).copied());
            let below = below.max().unwrap_or(0);
            let is_join = is_join(&plan);
            let joins = below + usize::from(is_join);
            let counts = is_join && (joins <= WRAPPED_JOINS || joins.is_multiple_of(WRAPPED_JOINS));
            let changed = match counts {
                true => Transformed::yes(Arc::new(CooperativeExec::new(plan)) as Arc<dyn ExecutionPlan>),
                false => Transformed::no(plan),
            };
            nested.insert(address(&changed.data), joins);
            Ok(changed)
        })
        .map(|transformed| transformed.data)
    }

    fn name(&self) -> &str {
        "CooperativeJoins"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

fn address(plan: &Arc<dyn ExecutionPlan>) -> *const u8 {
    Arc::as_ptr(plan).cast()
}

/// Whether `plan` is a join that emits batches of row pairs.
pub(crate) fn is_join(plan: &Arc<dyn ExecutionPlan>) -> bool {
    plan.is::<HashJoinExec>()
        || plan.is::<NestedLoopJoinExec>()
        || plan.is::<CrossJoinExec>()
        || plan.is::<SortMergeJoinExec>()
}
