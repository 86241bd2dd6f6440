//! Hides orderings that joins wrongly claim (apache/datafusion#25052).
//!
//! A join preserves the ordering of one side and repeats the rows of the other. DataFusion appends the
//! ordering of the repeated side to the preserved one:
//!
//! ```text
//! l, ordered by v: (1, 10), (1, 20)     r, ordered by k: (1), (1)
//!
//! HashJoinExec l.k = r.k, claimed to be ordered by k, v:   (1, 10), (1, 20), (1, 10), (1, 20)
//! ```
//!
//! This only holds if the preserved ordering is unique, which DataFusion does not check. So `ORDER BY k, v`
//! did not sort, and windows treated peers as different rows. This rule hides the ordering of the build side
//! from hash joins. A sort-merge join needs both sides ordered, and lets sorts with keys beyond the join keys
//! be pushed into either side: its output ordering is hidden.
//!
//! `JoinOrderings` can go when joins append the ordering of the repeated side only if the preserved ordering
//! is unique (apache/datafusion#25053, open).

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

/// Adds an [`UnorderedExec`] above the ordered build side of hash joins, and above merge joins. Runs after
/// join side selection, and before the rules that remove sorts.
#[derive(Debug)]
pub(crate) struct JoinOrderings;

/// Inserts the rule among DataFusion's.
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
            let (build, probe) = (join.left(), join.right());
            if build.output_ordering().is_none()
                || !matches!(join.join_type(), JoinType::Inner | JoinType::Right)
            {
                return Ok(Transformed::no(plan));
            }
            let build: Arc<dyn ExecutionPlan> = Arc::new(UnorderedExec::new(Arc::clone(build)));
            let children = vec![build, Arc::clone(probe)];
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

/// Whether this is a merge join, which reads ordered inputs, and returns columns of both sides.
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

    fn sorted_rows(by: &str) -> Arc<dyn ExecutionPlan> {
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
        let (left, right) = (sorted_rows("v"), sorted_rows("k"));
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

    fn plan_names(plan: Arc<dyn ExecutionPlan>) -> String {
        let plan = JoinOrderings.optimize(plan, &ConfigOptions::default()).unwrap();
        // Of equivalent columns, any one.
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
            assert_eq!(plan_names(hash(kind)), expected);
        }
    }

    #[test]
    fn joins_without_rows_of_both_sides_stay() {
        let expected =
            "HashJoinExec\n  SortExec\n    DataSourceExec\n  SortExec\n    DataSourceExec\norder: none";
        assert_eq!(plan_names(hash(JoinType::LeftSemi)), expected);
    }
}
