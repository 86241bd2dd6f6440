//! Joins that check the cancellation flag of their statement ([`harrier_resources::cancellation`]): a join
//! whose condition rejects nearly all pairs computes for hours inside one poll, and dropping its stream does
//! not stop it.
//!
//! ```text
//! HashJoinExec on k, filter: f   ──►   HashJoinExec on k, filter: CancelCheck(f), which fails with 57014
//! once the flag is set
//! ```
//!
//! A join evaluates its condition for some thousands of pairs at a time. The rewrite happens right before the
//! plan is run, on the rank that runs it, so that optimizers, serialized plans and EXPLAIN do not see it.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::{FieldRef, Schema};
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{JoinType, Result};
use datafusion::execution::TaskContext;
use datafusion::logical_expr::ColumnarValue;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::lit;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::joins::utils::JoinFilter;
use datafusion::physical_plan::joins::{
    HashJoinExec, NestedLoopJoinExec, NestedLoopJoinExecBuilder, SortMergeJoinExec,
};
use datafusion_distributed::NetworkBoundaryExt;
use harrier_resources::cancellation::CancelFlag;
use harrier_resources::statement_memory;

/// The name of the operator that sends a plan to a gang: the plan below it runs elsewhere.
pub(crate) const GANG_EXEC: &str = "GangExec";

/// [`cancelable`] with the flag of the statement of `context`.
pub fn cancelable_in(plan: Arc<dyn ExecutionPlan>, context: &TaskContext) -> Result<Arc<dyn ExecutionPlan>> {
    match statement_memory::cancel_flag(context.memory_pool()) {
        Some(canceled) => cancelable(plan, &canceled),
        None => Ok(plan),
    }
}

/// Makes the joins of `plan` check this flag. Operators below a motion belong to other slices, and are
/// unchanged.
pub fn cancelable(plan: Arc<dyn ExecutionPlan>, canceled: &CancelFlag) -> Result<Arc<dyn ExecutionPlan>> {
    let changed = plan.transform_down(|plan| {
        let ends = plan.as_network_boundary().is_some() || plan.name() == GANG_EXEC;
        let heard = match ends {
            true => None,
            false => cancelable_join(&plan, canceled)?,
        };
        Ok(match (heard, ends) {
            (Some(plan), _) => Transformed::yes(plan),
            (None, true) => Transformed::new(plan, false, TreeNodeRecursion::Jump),
            (None, false) => Transformed::no(plan),
        })
    })?;
    Ok(changed.data)
}

/// `None`: it is not a join, or one that returns to the caller often enough.
fn cancelable_join(
    plan: &Arc<dyn ExecutionPlan>,
    canceled: &CancelFlag,
) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    if let Some(join) = plan.downcast_ref::<HashJoinExec>() {
        return match cancelable_filter(join.filter(), is_silent(join.join_type), canceled) {
            Some(filter) => Ok(Some(join.builder().with_filter(Some(filter)).build_exec()?)),
            None => Ok(None),
        };
    }
    if let Some(join) = plan.downcast_ref::<NestedLoopJoinExec>() {
        return match cancelable_filter(join.filter(), is_silent(*join.join_type()), canceled) {
            Some(filter) => {
                let join = NestedLoopJoinExecBuilder::from(join).with_filter(Some(filter)).build()?;
                Ok(Some(Arc::new(join)))
            }
            None => Ok(None),
        };
    }
    if let Some(join) = plan.downcast_ref::<SortMergeJoinExec>() {
        // Without a condition it returns after every step.
        return match cancelable_filter(&join.filter, false, canceled) {
            Some(filter) => Ok(Some(Arc::new(SortMergeJoinExec::try_new(
                Arc::clone(&join.left),
                Arc::clone(&join.right),
                join.on.clone(),
                Some(filter),
                join.join_type,
                join.sort_options.clone(),
                join.null_equality,
            )?))),
            None => Ok(None),
        };
    }
    Ok(None)
}

/// Whether a join of this kind may process pairs for long without output, even if all of them match.
fn is_silent(kind: JoinType) -> bool {
    use JoinType::{LeftAnti, LeftMark, LeftSemi, RightAnti, RightMark, RightSemi};
    matches!(kind, LeftSemi | LeftAnti | LeftMark | RightSemi | RightAnti | RightMark)
}

/// A join condition that checks the flag. Without a condition, one that is always true if `is_silent`.
fn cancelable_filter<'a>(
    filter: impl Into<Option<&'a JoinFilter>>,
    is_silent: bool,
    canceled: &CancelFlag,
) -> Option<JoinFilter> {
    let (inner, columns, schema) = match filter.into() {
        Some(filter) => {
            (Arc::clone(filter.expression()), filter.column_indices().to_vec(), Arc::clone(filter.schema()))
        }
        None if is_silent => (lit(true), vec![], Arc::new(Schema::empty())),
        None => return None,
    };
    Some(JoinFilter::new(Arc::new(CancelCheck { inner, canceled: canceled.clone() }), columns, schema))
}

/// An expression that checks the cancellation flag of its statement.
#[derive(Debug)]
struct CancelCheck {
    inner: Arc<dyn PhysicalExpr>,
    canceled: CancelFlag,
}

impl PartialEq for CancelCheck {
    fn eq(&self, other: &Self) -> bool {
        self.inner.eq(&other.inner)
    }
}

impl Eq for CancelCheck {}

impl Hash for CancelCheck {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.inner.hash(state);
    }
}

impl fmt::Display for CancelCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

impl PhysicalExpr for CancelCheck {
    fn return_field(&self, input: &Schema) -> Result<FieldRef> {
        self.inner.return_field(input)
    }

    fn evaluate(&self, batch: &RecordBatch) -> Result<ColumnarValue> {
        self.canceled.check()?;
        self.inner.evaluate(batch)
    }

    fn children(&self) -> Vec<&Arc<dyn PhysicalExpr>> {
        vec![&self.inner]
    }

    fn with_new_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn PhysicalExpr>>,
    ) -> Result<Arc<dyn PhysicalExpr>> {
        let inner = children.pop().unwrap_or_else(|| Arc::clone(&self.inner));
        Ok(Arc::new(Self { inner, canceled: self.canceled.clone() }))
    }

    fn fmt_sql(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt_sql(f)
    }
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::Int64Array;
    use datafusion::arrow::compute::SortOptions;
    use datafusion::arrow::datatypes::{DataType, Field};
    use datafusion::common::{JoinSide, NullEquality};
    use datafusion::datasource::memory::MemorySourceConfig;
    use datafusion::logical_expr::Operator;
    use datafusion::physical_expr::expressions::{BinaryExpr, Column};
    use datafusion::physical_plan::joins::PartitionMode;
    use datafusion::physical_plan::joins::utils::ColumnIndex;
    use datafusion::physical_plan::{collect, displayable};

    use super::*;
    use harrier_error::SqlState;
    use harrier_resources::cancellation::Reason;

    /// The numbers below 10, one of which is NULL.
    fn rows() -> Arc<dyn ExecutionPlan> {
        numbers(7)
    }

    fn numbers(null: i64) -> Arc<dyn ExecutionPlan> {
        let schema = Arc::new(Schema::new(vec![Field::new("a", DataType::Int64, true)]));
        let column =
            Arc::new(Int64Array::from_iter((0..10).map(|number| (number != null).then_some(number))));
        let batch = RecordBatch::try_new(Arc::clone(&schema), vec![column]).unwrap();
        MemorySourceConfig::try_new_exec(&[vec![batch]], schema, None).unwrap()
    }

    fn key() -> Arc<dyn PhysicalExpr> {
        Arc::new(Column::new("a", 0))
    }

    /// The left number is below the right one.
    fn below() -> JoinFilter {
        let fields = ["l", "r"].map(|name| Field::new(name, DataType::Int64, true));
        let [left, right] = [("l", 0), ("r", 1)].map(|(name, at)| Arc::new(Column::new(name, at)) as _);
        let columns = [JoinSide::Left, JoinSide::Right].map(|side| ColumnIndex { index: 0, side });
        let expression = Arc::new(BinaryExpr::new(left, Operator::Lt, right));
        JoinFilter::new(expression, columns.to_vec(), Arc::new(Schema::new(fields.to_vec())))
    }

    fn hash(kind: JoinType, filter: Option<JoinFilter>, is_null_aware: bool) -> Arc<dyn ExecutionPlan> {
        // With NULL among the keys, a null-aware join returns no row without checking other pairs.
        let null = if is_null_aware { -1 } else { 7 };
        let join = HashJoinExec::try_new(
            numbers(null),
            numbers(null),
            vec![(key(), key())],
            filter,
            &kind,
            None,
            PartitionMode::CollectLeft,
            NullEquality::NullEqualsNothing,
            is_null_aware,
        );
        Arc::new(join.unwrap())
    }

    fn joins() -> Vec<Arc<dyn ExecutionPlan>> {
        use JoinType::{Full, Inner, LeftAnti, LeftMark, LeftSemi, RightAnti, RightMark, RightSemi};
        let mut joins = vec![
            hash(Inner, Some(below()), false),
            hash(Full, Some(below()), false),
            hash(LeftAnti, None, true),
        ];
        for kind in [LeftSemi, LeftAnti, LeftMark, RightSemi, RightAnti, RightMark] {
            joins.push(hash(kind, None, false));
            joins.push(Arc::new(NestedLoopJoinExec::try_new(rows(), rows(), None, &kind, None).unwrap()));
        }
        for kind in [Inner, Full, LeftSemi] {
            let filter = Some(below());
            joins.push(Arc::new(NestedLoopJoinExec::try_new(rows(), rows(), filter, &kind, None).unwrap()));
            let sorted = SortMergeJoinExec::try_new(
                rows(),
                rows(),
                vec![(key(), key())],
                Some(below()),
                kind,
                vec![SortOptions::default()],
                NullEquality::NullEqualsNothing,
            );
            joins.push(Arc::new(sorted.unwrap()));
        }
        joins
    }

    #[tokio::test]
    async fn joins_run_until_canceled() {
        for join in joins() {
            let shown = displayable(join.as_ref()).one_line().to_string();
            let expected = collect(Arc::clone(&join), Arc::default()).await.unwrap();
            // A join that ran holds its rows.
            let join = join.reset_state().unwrap();
            let canceled = CancelFlag::default();
            let ready = cancelable(Arc::clone(&join), &canceled).unwrap();
            assert_eq!(ready.schema(), join.schema());
            let rows = collect(Arc::clone(&ready), Arc::default()).await.unwrap();
            let text = |batches: &[RecordBatch]| {
                datafusion::arrow::util::pretty::pretty_format_batches(batches).unwrap().to_string()
            };
            assert_eq!(text(&rows), text(&expected), "{shown}");
            canceled.set(Reason::Timeout);
            canceled.set(Reason::Request);
            let refused = collect(ready.reset_state().unwrap(), Arc::default()).await.unwrap_err();
            assert_eq!(harrier_sqlstate::of(&refused), SqlState::QUERY_CANCELED, "{shown}");
            assert!(refused.to_string().contains("statement timeout"), "{refused}");
        }
    }
}
