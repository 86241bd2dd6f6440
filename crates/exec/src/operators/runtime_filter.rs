//! Operator that applies the runtime filters of joins and sorts to the rows of a scan.
//!
//! DataFusion prunes row groups by such filters, and passes on all rows of the others. This operator removes
//! the rows that cannot reach the result, before anything hashes, copies or moves them.
//!
//! ```text
//! HashJoinExec: part ⋈ lineitem         builds from part: l_partkey IN (…), once the build side is complete
//!   part                                                     │
//!   AggregateExec                                            │
//!     RuntimeFilterExec: l_partkey IN (…)  ◄─────────────────┘
//!       lineitem
//! ```
//!
//! A filter, which DataFusion calls a dynamic filter, is optional: the join finds the same rows without it.
//! One that passes most rows costs more than it saves, so each stream measures its filters, orders them by
//! selectivity and suspends unselective ones.
//!
//! The idea: Bloom filters of semi-joins (sideways information passing); upstream: apache/datafusion#22384.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use datafusion::arrow::array::{AsArray, RecordBatch};
use datafusion::arrow::compute::{BatchCoalescer, filter_record_batch};
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Result, Statistics, internal_err};
use datafusion::execution::{RecordBatchStream, SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{DynamicFilterPhysicalExpr, Literal};
use datafusion::physical_plan::execution_plan::CardinalityEffect;
use datafusion::physical_plan::metrics::{
    BaselineMetrics, Count, ExecutionPlanMetricsSet, MetricBuilder, MetricsSet, RecordOutput,
};
use datafusion::physical_plan::statistics::{ChildStats, StatisticsArgs};
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties};
use futures::{Stream, StreamExt};

/// A filter is judged by this many rows.
const SAMPLE_ROWS: usize = 16 * 1024;

/// A filter that passes a larger share of the rows is suspended.
const SHARE_MAX: f64 = 0.6;

/// A suspended filter is tried again after as many batches; after twice as many if it still passes too much.
const SUSPENDED_BATCHES: usize = 50;

/// N → N output partitions: removes the rows that do not satisfy runtime filters. Preserves order.
#[derive(Debug)]
pub struct RuntimeFilterExec {
    input: Arc<dyn ExecutionPlan>,
    filters: Vec<Arc<dyn PhysicalExpr>>,
    metrics: ExecutionPlanMetricsSet,
}

impl RuntimeFilterExec {
    /// `filters`: [`DynamicFilterPhysicalExpr`]s over the columns of `input`; others are not applied.
    pub fn new(input: Arc<dyn ExecutionPlan>, filters: Vec<Arc<dyn PhysicalExpr>>) -> Self {
        Self { input, filters, metrics: ExecutionPlanMetricsSet::new() }
    }

    pub fn filters(&self) -> &[Arc<dyn PhysicalExpr>] {
        &self.filters
    }
}

impl DisplayAs for RuntimeFilterExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RuntimeFilterExec: ")?;
        for (at, filter) in self.filters.iter().enumerate() {
            write!(f, "{}{filter}", if at == 0 { "" } else { ", " })?;
        }
        Ok(())
    }
}

impl ExecutionPlan for RuntimeFilterExec {
    fn name(&self) -> &str {
        "RuntimeFilterExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.input.properties()
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn apply_expressions(
        &self,
        visit: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        for filter in &self.filters {
            if visit(filter)? == TreeNodeRecursion::Stop {
                return Ok(TreeNodeRecursion::Stop);
            }
        }
        Ok(TreeNodeRecursion::Continue)
    }

    fn with_new_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(Arc::new(Self::new(children.swap_remove(0), self.filters.clone())))
    }

    /// Joins of a plan that runs again build no filters, and those of the first run do not apply to its rows.
    fn reset_state(self: Arc<Self>) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(Arc::new(Self::new(Arc::clone(&self.input), vec![])))
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        vec![true]
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        vec![false]
    }

    fn cardinality_effect(&self) -> CardinalityEffect {
        CardinalityEffect::LowerEqual
    }

    fn child_stats_requests(&self, partition: Option<usize>) -> Vec<ChildStats> {
        vec![ChildStats::At(partition)]
    }

    /// Those of the input: how many rows remain is known at run time only.
    fn statistics_from_inputs(
        &self,
        inputs: &[Arc<Statistics>],
        _: &StatisticsArgs,
    ) -> Result<Arc<Statistics>> {
        let [input] = inputs else { return internal_err!("statistics of {} inputs", inputs.len()) };
        Ok(Arc::new(input.as_ref().clone().to_inexact()))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let batch_rows = context.session_config().batch_size();
        let input = self.input.execute(partition, context)?;
        if self.filters.is_empty() {
            return Ok(input);
        }
        let schema = input.schema();
        let coalescer = BatchCoalescer::new(Arc::clone(&schema), batch_rows)
            .with_biggest_coalesce_batch_size(Some(batch_rows / 2));
        Ok(Box::pin(FilteredStream {
            input: Some(input),
            filters: self.filters.iter().filter_map(AdaptiveFilter::new).collect(),
            coalescer,
            schema,
            metrics: BaselineMetrics::new(&self.metrics, partition),
            removed_rows: MetricBuilder::new(&self.metrics).counter("removed_rows", partition),
        }))
    }
}

struct FilteredStream {
    /// `None`: it has ended.
    input: Option<SendableRecordBatchStream>,
    filters: Vec<AdaptiveFilter>,
    coalescer: BatchCoalescer,
    schema: SchemaRef,
    metrics: BaselineMetrics,
    removed_rows: Count,
}

impl FilteredStream {
    /// Adds the rows of a batch that satisfy all filters to the next output batch.
    fn push(&mut self, mut batch: RecordBatch) -> Result<()> {
        let _timer = self.metrics.elapsed_compute().timer();
        let rows = batch.num_rows();
        for filter in &mut self.filters {
            if batch.num_rows() == 0 {
                break;
            }
            batch = filter.apply(batch)?;
        }
        self.filters.sort_by(|a, b| a.share().total_cmp(&b.share()));
        self.removed_rows.add(rows - batch.num_rows());
        if batch.num_rows() > 0 {
            self.coalescer.push_batch(batch)?;
        }
        Ok(())
    }
}

impl Stream for FilteredStream {
    type Item = Result<RecordBatch>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let stream = &mut *self;
        loop {
            if let Some(batch) = stream.coalescer.next_completed_batch() {
                return Poll::Ready(Some(Ok(batch.record_output(&stream.metrics))));
            }
            let Some(input) = &mut stream.input else {
                return Poll::Ready(None);
            };
            let pushed = match ready!(input.poll_next_unpin(context)) {
                Some(batch) => batch.and_then(|batch| stream.push(batch)),
                None => {
                    stream.input = None;
                    stream.coalescer.finish_buffered_batch().map_err(Into::into)
                }
            };
            if let Err(error) = pushed {
                return Poll::Ready(Some(Err(error)));
            }
        }
    }
}

impl RecordBatchStream for FilteredStream {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }
}

/// A runtime filter with its selectivity in one stream.
struct AdaptiveFilter {
    filter: Arc<dyn PhysicalExpr>,
    /// The filter's generation, and its condition then; `None`: it passes all rows yet.
    current: (u64, Option<Arc<dyn PhysicalExpr>>),
    rows_in: usize,
    rows_out: usize,
    /// Batches to pass without applying the filter.
    suspended: usize,
    /// The length of the next suspension, in batches.
    suspension: usize,
}

impl AdaptiveFilter {
    fn new(filter: &Arc<dyn PhysicalExpr>) -> Option<Self> {
        filter.is::<DynamicFilterPhysicalExpr>().then(|| Self {
            filter: Arc::clone(filter),
            current: (0, None),
            rows_in: 0,
            rows_out: 0,
            suspended: 0,
            suspension: SUSPENDED_BATCHES,
        })
    }

    /// The share of the rows that the filter passes.
    fn share(&self) -> f64 {
        if self.rows_in == 0 { 1.0 } else { self.rows_out as f64 / self.rows_in as f64 }
    }

    /// The condition as of now; `None`: all rows pass.
    fn condition(&mut self) -> Result<Option<Arc<dyn PhysicalExpr>>> {
        let generation = self.filter.snapshot_generation();
        if self.current.0 != generation
            && let Some(filter) = self.filter.downcast_ref::<DynamicFilterPhysicalExpr>()
        {
            let condition = filter.current()?;
            self.current = (generation, (!condition.is::<Literal>()).then_some(condition));
        }
        Ok(self.current.1.clone())
    }

    fn apply(&mut self, batch: RecordBatch) -> Result<RecordBatch> {
        if self.suspended > 0 {
            self.suspended -= 1;
            return Ok(batch);
        }
        let Some(condition) = self.condition()? else {
            return Ok(batch);
        };
        let rows = batch.num_rows();
        let passes = condition.evaluate(&batch)?.into_array(rows)?;
        let passes = passes.as_boolean();
        let count = passes.true_count();
        self.record(rows, count);
        Ok(if count == rows { batch } else { filter_record_batch(&batch, passes)? })
    }

    fn record(&mut self, rows_in: usize, rows_out: usize) {
        self.rows_in += rows_in;
        self.rows_out += rows_out;
        if self.rows_in < SAMPLE_ROWS {
            return;
        }
        if self.share() > SHARE_MAX {
            self.suspended = self.suspension;
            self.suspension = self.suspension.saturating_mul(2);
            (self.rows_in, self.rows_out) = (0, 0);
        } else {
            self.suspension = SUSPENDED_BATCHES;
            // Recent rows weigh more.
            (self.rows_in, self.rows_out) = (self.rows_in / 2, self.rows_out / 2);
        }
    }
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::Int64Array;
    use datafusion::arrow::datatypes::{DataType, Field, Int64Type, Schema};
    use datafusion::catalog::memory::MemorySourceConfig;
    use datafusion::logical_expr::Operator;
    use datafusion::physical_expr::expressions::{binary, col, lit};
    use datafusion::physical_plan::common::collect;

    use super::*;

    fn schema() -> SchemaRef {
        Arc::new(Schema::new(vec![Field::new("a", DataType::Int64, true)]))
    }

    /// A filter that a join or sort has not set yet.
    fn open_filter() -> Result<Arc<DynamicFilterPhysicalExpr>> {
        Ok(Arc::new(DynamicFilterPhysicalExpr::new(vec![col("a", &schema())?], lit(true))))
    }

    fn below(value: i64) -> Result<Arc<dyn PhysicalExpr>> {
        binary(col("a", &schema())?, Operator::Lt, lit(value), &schema())
    }

    fn batch(values: impl IntoIterator<Item = Option<i64>>) -> RecordBatch {
        let values: Int64Array = values.into_iter().collect();
        RecordBatch::try_new(schema(), vec![Arc::new(values)]).expect("one column")
    }

    fn scan(batches: &[RecordBatch]) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(MemorySourceConfig::try_new_exec(&[batches.to_vec()], schema(), None)?)
    }

    async fn values(plan: Arc<dyn ExecutionPlan>) -> Result<Vec<Option<i64>>> {
        let batches = collect(plan.execute(0, Arc::new(TaskContext::default()))?).await?;
        let values =
            |batch: &RecordBatch| batch.column(0).as_primitive::<Int64Type>().iter().collect::<Vec<_>>();
        Ok(batches.iter().flat_map(values).collect())
    }

    #[tokio::test]
    async fn rows_are_removed_once_a_filter_is_set() -> Result<()> {
        let filter = open_filter()?;
        let batches = [batch([Some(1), None, Some(5)]), batch([Some(7), Some(2)])];
        let plan = Arc::new(RuntimeFilterExec::new(scan(&batches)?, vec![Arc::clone(&filter) as _]));
        let all = [Some(1), None, Some(5), Some(7), Some(2)];
        assert_eq!(values(Arc::clone(&plan) as _).await?, all);
        filter.update(below(3)?)?;
        assert_eq!(values(Arc::clone(&plan) as _).await?, [Some(1), Some(2)]);
        let removed = plan.metrics().and_then(|metrics| metrics.sum_by_name("removed_rows"));
        assert_eq!(removed.map(|removed| removed.as_usize()), Some(3));
        assert_eq!(values(plan.reset_state()?).await?, all);
        Ok(())
    }

    #[test]
    fn unselective_filters_are_suspended_for_a_while() -> Result<()> {
        let filter = open_filter()?;
        filter.update(below(90)?)?;
        let filter: Arc<dyn PhysicalExpr> = filter;
        let mut adaptive = AdaptiveFilter::new(&filter).expect("a dynamic filter");
        let hundred = batch((0..100).map(Some));
        let mut applied = 0;
        let batches = 100 * SAMPLE_ROWS / 100;
        for _ in 0..batches {
            applied += usize::from(adaptive.apply(hundred.clone())?.num_rows() < 100);
        }
        // Suspensions of 50, 100, 200, … batches leave few samples.
        let samples = SAMPLE_ROWS.div_ceil(100);
        assert!(applied >= 2 * samples, "applied to {applied} of {batches} batches");
        assert!(applied <= 10 * samples, "applied to {applied} of {batches} batches");
        Ok(())
    }

    #[test]
    fn selective_filters_stay() -> Result<()> {
        let filter = open_filter()?;
        filter.update(below(10)?)?;
        let filter: Arc<dyn PhysicalExpr> = filter;
        let mut adaptive = AdaptiveFilter::new(&filter).expect("a dynamic filter");
        let hundred = batch((0..100).map(Some));
        for _ in 0..1000 {
            assert_eq!(adaptive.apply(hundred.clone())?.num_rows(), 10);
        }
        Ok(())
    }
}
