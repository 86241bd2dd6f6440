//! Orders that joins claim of the side whose order they do not keep (apache/datafusion#25052).
//!
//! A join repeats the rows of one side for each row of the other one, whose order it keeps. DataFusion takes
//! the order of the repeated rows for what comes next in the order of the joined ones:
//!
//! ```text
//! l, ordered by v: (1, 10), (1, 20)     r, ordered by k: (1), (1)
//!
//! HashJoinExec l.k = r.k, ordered by k, v as is claimed:   (1, 10), (1, 20), (1, 10), (1, 20)
//! ```
//!
//! That is true where no two rows of the side that is kept are equal in its order, which nobody asks. So
//! `ORDER BY k, v` sorted nothing, and windows took equal rows for different ones. Here a hash join does not
//! hear of the order of the side that it builds its table from. A sort-merge join needs both sides ordered,
//! and lets a sort by more than its keys be pushed into either: nothing is told of the order of its rows.
//!
//! To be removed when upstream has the suffix for unique orders alone.
//!
//! `JoinOrderings` can go when joins append the order of the repeated side only if the kept order is unique
//! (apache/datafusion#25053, open).

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::logical_expr::JoinType;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::execution_plan::replace_children_if_necessary;
use datafusion::physical_plan::joins::{HashJoinExec, PiecewiseMergeJoinExec, SortMergeJoinExec};
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};
use harrier_exec::operators::unordered::UnorderedExec;

/// Puts an [`UnorderedExec`] above the ordered side that a hash join builds its table from, and above merge
/// joins; to stand behind the rule that says which side that is, and before those that leave sorts out.
#[derive(Debug)]
pub(crate) struct JoinOrderings;

/// Puts the rule in its place among those of DataFusion.
pub fn insert(rules: &mut Vec<Arc<dyn PhysicalOptimizerRule + Send + Sync>>) {
    let at = rules.iter().position(|rule| rule.name() == "EnsureRequirements").unwrap_or(rules.len());
    rules.insert(at, Arc::new(JoinOrderings));
}

impl PhysicalOptimizerRule for JoinOrderings {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        plan.transform_up(|plan| {
            if claims_order_of_both_sides(&plan) {
                return Ok(Transformed::yes(Arc::new(UnorderedExec::new(plan))));
            }
            let Some(join) = plan.downcast_ref::<HashJoinExec>() else { return Ok(Transformed::no(plan)) };
            let (built, probed) = (join.left(), join.right());
            if built.output_ordering().is_none()
                || !matches!(join.join_type(), JoinType::Inner | JoinType::Right)
            {
                return Ok(Transformed::no(plan));
            }
            let built: Arc<dyn ExecutionPlan> = Arc::new(UnorderedExec::new(Arc::clone(built)));
            let children = vec![built, Arc::clone(probed)];
            Ok(Transformed::yes(replace_children_if_necessary(plan, children)?))
        })
        .map(|transformed| transformed.data)
    }

    fn name(&self) -> &str {
        "JoinOrderings"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// Whether this is a join that reads both sides in an order and gives rows with columns of both.
fn claims_order_of_both_sides(plan: &Arc<dyn ExecutionPlan>) -> bool {
    let kind = match plan.downcast_ref::<SortMergeJoinExec>() {
        Some(join) => Some(join.join_type()),
        None => plan.downcast_ref::<PiecewiseMergeJoinExec>().map(PiecewiseMergeJoinExec::join_type),
    };
    matches!(kind, Some(JoinType::Inner | JoinType::Left | JoinType::Right))
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::Int64Array;
    use datafusion::arrow::compute::SortOptions;
    use datafusion::arrow::datatypes::{DataType, Field, Schema};
    use datafusion::arrow::record_batch::RecordBatch;
    use datafusion::common::NullEquality;
    use datafusion::datasource::memory::MemorySourceConfig;
    use datafusion::physical_expr::{LexOrdering, PhysicalSortExpr, expressions::col};
    use datafusion::physical_plan::displayable;
    use datafusion::physical_plan::joins::PartitionMode;
    use datafusion::physical_plan::sorts::sort::SortExec;

    use super::*;

    fn sorted(by: &str) -> Arc<dyn ExecutionPlan> {
        let schema =
            Arc::new(Schema::new(["k", "v"].map(|name| Field::new(name, DataType::Int64, true)).to_vec()));
        let columns =
            vec![Arc::new(Int64Array::from(vec![1])) as _, Arc::new(Int64Array::from(vec![2])) as _];
        let batch = RecordBatch::try_new(Arc::clone(&schema), columns).unwrap();
        let rows = MemorySourceConfig::try_new_exec(&[vec![batch]], Arc::clone(&schema), None).unwrap();
        let order = PhysicalSortExpr::new(col(by, &schema).unwrap(), SortOptions::default());
        Arc::new(SortExec::new(LexOrdering::new([order]).unwrap(), rows))
    }

    fn hash(kind: JoinType) -> Arc<dyn ExecutionPlan> {
        let (left, right) = (sorted("v"), sorted("k"));
        let on = vec![(col("k", &left.schema()).unwrap(), col("k", &right.schema()).unwrap())];
        let join = HashJoinExec::try_new(
            left,
            right,
            on,
            None,
            &kind,
            None,
            PartitionMode::CollectLeft,
            NullEquality::NullEqualsNothing,
            false,
        );
        Arc::new(join.unwrap())
    }

    fn shown(plan: Arc<dyn ExecutionPlan>) -> String {
        let plan = JoinOrderings.optimize(plan, &ConfigOptions::default()).unwrap();
        // Of columns that are equal any one.
        let name = |order: &LexOrdering| order.to_string().split('@').next().unwrap_or_default().to_string();
        let order = plan.output_ordering().map_or("none".to_string(), name);
        let names: Vec<String> = displayable(plan.as_ref())
            .indent(false)
            .to_string()
            .lines()
            .map(|line| line.split(':').next().unwrap_or_default().to_string())
            .collect();
        format!("{}\norder: {order}", names.join("\n"))
    }

    #[test]
    fn a_hash_join_keeps_the_order_of_one_side() {
        assert_eq!(
            hash(JoinType::Inner).output_ordering().unwrap().len(),
            2,
            "mended upstream: remove this rule"
        );
        for kind in [JoinType::Inner, JoinType::Right] {
            let expected = "HashJoinExec\n  UnorderedExec\n    SortExec\n      DataSourceExec\n  SortExec\n    DataSourceExec\norder: k";
            assert_eq!(shown(hash(kind)), expected);
        }
    }

    #[test]
    fn joins_without_rows_of_both_sides_stay() {
        let expected =
            "HashJoinExec\n  SortExec\n    DataSourceExec\n  SortExec\n    DataSourceExec\norder: none";
        assert_eq!(shown(hash(JoinType::LeftSemi)), expected);
    }
}
