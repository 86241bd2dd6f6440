//! Whether a statement has been given up, for what computes without a pause.
//!
//! Dropping a stream ends what waits. What is inside of one poll goes on: the loops of a join whose condition takes next to
//! none of the pairs that it looks at, a function over a batch of long texts, a rule of the planner. Such code looks at
//! the flag of its statement, [`Canceled`], which somebody sets from another thread.
//!
//! - Who runs a statement makes its flag, and has it known as [`Canceled::current`] while the statement is planned and begun.
//! - In the process that took the statement its pool of memory has the flag ([`Canceled::of`]), and the account of its functions
//!   (`account.rs`). A part on another rank has a flag of its own, which the call that brought the part sets when it ends.
//! - [`heard`] has the joins of a plan look at it: each evaluates its condition for some thousands of pairs at a time.
//!   That is done right before the plan is run, on the rank that runs it, so that optimizers, plans that travel and
//!   EXPLAIN know nothing of it.
//!
//! Errors: what finds the flag set fails with 57014.

use std::fmt;
use std::future::Future;
use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, LazyLock};

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::{FieldRef, Schema};
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{JoinType, Result};
use datafusion::execution::TaskContext;
use datafusion::execution::memory_pool::MemoryPool;
use datafusion::logical_expr::ColumnarValue;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::lit;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::joins::utils::JoinFilter;
use datafusion::physical_plan::joins::{
    HashJoinExec, NestedLoopJoinExec, NestedLoopJoinExecBuilder, SortMergeJoinExec,
};
use datafusion_distributed::NetworkBoundaryExt;
use tokio::runtime::Handle;

use crate::front::on_gang;
use crate::sqlstate::{IntoDataFusionError, SqlError, SqlState};
use crate::statement_memory;

tokio::task_local! {
    static CURRENT: Canceled;
}

const RUNS: u8 = 0;

/// Why a statement was given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Reason {
    /// Somebody wants no more of it, or it has ended.
    Request = 1,
    /// It has had its time.
    Timeout = 2,
}

/// The flag of one statement. Cheap to clone; once set, it stays so.
#[derive(Debug, Clone, Default)]
pub struct Canceled(Arc<AtomicU8>);

impl Canceled {
    /// That of the statement which is planned or begun here, inside of [`Canceled::scope`].
    pub fn current() -> Option<Self> {
        CURRENT.try_with(Self::clone).ok()
    }

    /// That of the statement whose pool of memory this is, if it has one of its own.
    pub fn of(pool: &Arc<dyn MemoryPool>) -> Option<Self> {
        statement_memory::canceled(pool)
    }

    /// Does `work` with this as the flag of its statement.
    pub fn scope<F: Future>(&self, work: F) -> impl Future<Output = F::Output> + use<F> {
        CURRENT.scope(self.clone(), work)
    }

    /// The first reason stays.
    pub fn set(&self, reason: Reason) {
        let _ = self.0.compare_exchange(RUNS, reason as u8, Ordering::Relaxed, Ordering::Relaxed);
    }

    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed) != RUNS
    }

    /// Errors: the statement has been given up (57014).
    pub fn check(&self) -> Result<()> {
        let message = match self.0.load(Ordering::Relaxed) {
            RUNS => return Ok(()),
            reason if reason == Reason::Timeout as u8 => "canceling statement due to statement timeout",
            _ => "canceling statement due to user request",
        };
        Err(SqlError::new(SqlState::QUERY_CANCELED, message).into_datafusion())
    }

    /// Sets it when what is returned is dropped.
    pub fn when_dropped(&self) -> CancelOnDrop {
        CancelOnDrop(Some(self.clone()))
    }
}

/// Looks at the flag of the statement that is planned here, if there is one.
///
/// Errors: it has been given up (57014).
pub fn check_current() -> Result<()> {
    CURRENT.try_with(Canceled::check).unwrap_or(Ok(()))
}

/// Gives a statement up when it is dropped.
#[derive(Debug)]
pub struct CancelOnDrop(Option<Canceled>);

impl CancelOnDrop {
    /// Drops it without that.
    pub fn keep(mut self) {
        self.0 = None;
    }
}

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        if let Some(canceled) = &self.0 {
            canceled.set(Reason::Request);
        }
    }
}

/// A runtime on a thread of its own that nothing computes on, so that what sets flags is never behind what looks at them. One for
/// the process, made when it is first asked for.
pub fn aside() -> &'static Handle {
    static ASIDE: LazyLock<Handle> = LazyLock::new(|| {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("harrier-aside")
            .enable_all()
            .build()
            .expect("a thread can be started");
        let handle = runtime.handle().clone();
        // It ends with the process.
        std::mem::forget(runtime);
        handle
    });
    &ASIDE
}

/// [`heard`] of the statement that `context` is of.
pub fn heard_in(plan: Arc<dyn ExecutionPlan>, context: &TaskContext) -> Result<Arc<dyn ExecutionPlan>> {
    match Canceled::of(context.memory_pool()) {
        Some(canceled) => heard(plan, &canceled),
        None => Ok(plan),
    }
}

/// `plan`, as it is to be run for the statement of this flag: its joins look at it. Operators below a motion are those of other
/// slices, and stay as they are.
pub fn heard(plan: Arc<dyn ExecutionPlan>, canceled: &Canceled) -> Result<Arc<dyn ExecutionPlan>> {
    let changed = plan.transform_down(|plan| {
        let ends = plan.as_network_boundary().is_some() || on_gang(&plan).is_some();
        let heard = match ends {
            true => None,
            false => heard_join(&plan, canceled)?,
        };
        Ok(match (heard, ends) {
            (Some(plan), _) => Transformed::yes(plan),
            (None, true) => Transformed::new(plan, false, TreeNodeRecursion::Jump),
            (None, false) => Transformed::no(plan),
        })
    })?;
    Ok(changed.data)
}

/// `None`: it is no join, or one that is heard of because it gives rows.
fn heard_join(plan: &Arc<dyn ExecutionPlan>, canceled: &Canceled) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    if let Some(join) = plan.downcast_ref::<HashJoinExec>() {
        return match heard_filter(join.filter(), is_silent(join.join_type), canceled) {
            Some(filter) => Ok(Some(join.builder().with_filter(Some(filter)).build_exec()?)),
            None => Ok(None),
        };
    }
    if let Some(join) = plan.downcast_ref::<NestedLoopJoinExec>() {
        return match heard_filter(join.filter(), is_silent(*join.join_type()), canceled) {
            Some(filter) => {
                let join = NestedLoopJoinExecBuilder::from(join).with_filter(Some(filter)).build()?;
                Ok(Some(Arc::new(join)))
            }
            None => Ok(None),
        };
    }
    if let Some(join) = plan.downcast_ref::<SortMergeJoinExec>() {
        // Without a condition it reads on with every step.
        return match heard_filter(&join.filter, false, canceled) {
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

/// Whether a join of this kind looks at pairs for long without giving a row, even if all of them match.
fn is_silent(kind: JoinType) -> bool {
    use JoinType::{LeftAnti, LeftMark, LeftSemi, RightAnti, RightMark, RightSemi};
    matches!(kind, LeftSemi | LeftAnti | LeftMark | RightSemi | RightAnti | RightMark)
}

/// The condition of a join that looks at the flag. Where there is none, one that is always true if `is_silent`.
fn heard_filter<'a>(
    filter: impl Into<Option<&'a JoinFilter>>,
    is_silent: bool,
    canceled: &Canceled,
) -> Option<JoinFilter> {
    let (inner, columns, schema) = match filter.into() {
        Some(filter) => {
            (Arc::clone(filter.expression()), filter.column_indices().to_vec(), Arc::clone(filter.schema()))
        }
        None if is_silent => (lit(true), vec![], Arc::new(Schema::empty())),
        None => return None,
    };
    Some(JoinFilter::new(Arc::new(Heard { inner, canceled: canceled.clone() }), columns, schema))
}

/// An expression, and the flag of the statement that evaluates it.
#[derive(Debug)]
struct Heard {
    inner: Arc<dyn PhysicalExpr>,
    canceled: Canceled,
}

impl PartialEq for Heard {
    fn eq(&self, other: &Self) -> bool {
        self.inner.eq(&other.inner)
    }
}

impl Eq for Heard {}

impl Hash for Heard {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.inner.hash(state);
    }
}

impl fmt::Display for Heard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

impl PhysicalExpr for Heard {
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
    use crate::sqlstate;

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

    /// That the left number is below the right one.
    fn below() -> JoinFilter {
        let fields = ["l", "r"].map(|name| Field::new(name, DataType::Int64, true));
        let [left, right] = [("l", 0), ("r", 1)].map(|(name, at)| Arc::new(Column::new(name, at)) as _);
        let columns = [JoinSide::Left, JoinSide::Right].map(|side| ColumnIndex { index: 0, side });
        let expression = Arc::new(BinaryExpr::new(left, Operator::Lt, right));
        JoinFilter::new(expression, columns.to_vec(), Arc::new(Schema::new(fields.to_vec())))
    }

    fn hash(kind: JoinType, filter: Option<JoinFilter>, is_null_aware: bool) -> Arc<dyn ExecutionPlan> {
        // Where NULL is among the keys, it has no row without a look at the others.
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
    async fn joins_are_what_they_were_until_their_statement_is_given_up() {
        for join in joins() {
            let shown = displayable(join.as_ref()).one_line().to_string();
            let expected = collect(Arc::clone(&join), Arc::default()).await.unwrap();
            // What ran once has its rows.
            let join = join.reset_state().unwrap();
            let canceled = Canceled::default();
            let ready = heard(Arc::clone(&join), &canceled).unwrap();
            assert_eq!(ready.schema(), join.schema());
            let rows = collect(Arc::clone(&ready), Arc::default()).await.unwrap();
            let text = |batches: &[RecordBatch]| {
                datafusion::arrow::util::pretty::pretty_format_batches(batches).unwrap().to_string()
            };
            assert_eq!(text(&rows), text(&expected), "{shown}");
            canceled.set(Reason::Timeout);
            canceled.set(Reason::Request);
            let refused = collect(ready.reset_state().unwrap(), Arc::default()).await.unwrap_err();
            assert_eq!(sqlstate::of(&refused), SqlState::QUERY_CANCELED, "{shown}");
            assert!(refused.to_string().contains("statement timeout"), "{refused}");
        }
    }

    #[tokio::test]
    async fn the_flag_of_a_statement_is_found_where_it_is_planned() {
        let canceled = Canceled::default();
        let seen = canceled.scope(async { (Canceled::current().is_some(), check_current().is_ok()) }).await;
        assert_eq!(seen, (true, true));
        drop(canceled.when_dropped());
        let given_up = canceled.scope(async { check_current() }).await.unwrap_err();
        assert_eq!(sqlstate::of(&given_up), SqlState::QUERY_CANCELED);
        assert!(Canceled::current().is_none() && check_current().is_ok());
        let kept = Canceled::default();
        kept.when_dropped().keep();
        assert!(!kept.is_set());
    }
}
