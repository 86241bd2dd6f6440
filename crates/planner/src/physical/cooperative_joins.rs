//! Makes joins give way to others.
//!
//! DataFusion's sources and exchanges give way after some batches, and what stands above them with them. A
//! join can make thousands of batches from one of its input, and whoever asks for them in a loop never stops
//! for as long: meanwhile Ctrl-C, the loss of a rank and the next statement wait. So joins count their
//! batches too.
//!
//! What counts takes from a budget of tokio's, of 128 for each time that a task is polled, and gives it back
//! if it has nothing to show. Joins inside of each other take from it one after the other before the
//! innermost gives a row: more than there is budget for would never come so far.
//!
//! ```text
//! HashJoinExec        CooperativeExec
//!   HashJoinExec  ─►    HashJoinExec
//!     rows                CooperativeExec
//!                           HashJoinExec
//! ```
//! Of joins inside of each other the innermost 32 get one each, and then one of every 32.
//!
//! `CooperativeJoins` can go when joins give way by themselves (apache/datafusion#19358, open;
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

/// Joins inside of each other that count, all of them; of those above, one of so many. 1200 relations make 70
/// levels of them.
const COUNTED: usize = 32;

/// Puts a [`CooperativeExec`] above joins.
#[derive(Debug)]
pub struct CooperativeJoins;

impl PhysicalOptimizerRule for CooperativeJoins {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        // Of operators that have been seen, how many joins are inside of each other there.
        let mut nested: HashMap<*const u8, usize> = HashMap::new();
        plan.transform_up(|plan| {
            let below = plan.children().into_iter().filter_map(|child| nested.get(&address(child)).copied());
            let below = below.max().unwrap_or(0);
            let is_join = is_join(&plan);
            let joins = below + usize::from(is_join);
            let counts = is_join && (joins <= COUNTED || joins.is_multiple_of(COUNTED));
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

/// Whether `plan` makes batches of pairs of rows.
pub(crate) fn is_join(plan: &Arc<dyn ExecutionPlan>) -> bool {
    plan.is::<HashJoinExec>()
        || plan.is::<NestedLoopJoinExec>()
        || plan.is::<CrossJoinExec>()
        || plan.is::<SortMergeJoinExec>()
}
