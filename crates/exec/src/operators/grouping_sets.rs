//! Operator that turns the groups of all keys of GROUPING SETS, CUBE or ROLLUP into those of each set.
//!
//! A set of fewer keys groups the rows of a set of more keys, so each row is aggregated once, by all keys,
//! and the states of these groups once for each set. DataFusion aggregates each row once for each set.
//!
//! ```text
//! AggregateExec: mode=PartialReduce, gby=[a, b, __grouping_id]
//!   GroupingSetsExec: [(a, b), (a), ()]           states of (1, 2), then of (1, NULL) and of (NULL, NULL)
//!     AggregateExec: mode=Partial, gby=[a, b]     states of (1, 2)
//! ```

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use datafusion::arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions, UInt64Array, new_null_array};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::{Result, Statistics};
use datafusion::execution::{RecordBatchStream, SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::EquivalenceProperties;
use datafusion::physical_plan::execution_plan::CardinalityEffect;
use datafusion::physical_plan::metrics::{
    BaselineMetrics, ExecutionPlanMetricsSet, MetricsSet, RecordOutput,
};
use datafusion::physical_plan::statistics::{ChildStats, StatisticsArgs};
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, Partitioning, PlanProperties,
};
use futures::{Stream, StreamExt};

/// One of the sets by which rows are grouped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupingSet {
    /// For each key, whether it is NULL in the groups of this set.
    pub null_keys: Vec<bool>,
    /// The value of the grouping ID.
    pub id: u64,
}

/// N → N output partitions: rows with keys in front become as many rows as there are sets, with the keys of
/// each, its grouping ID, and the other columns unchanged.
#[derive(Debug)]
pub struct GroupingSetsExec {
    input: Arc<dyn ExecutionPlan>,
    sets: Arc<[GroupingSet]>,
    /// The group of a set without keys if there are no rows, which is output for an input without rows.
    empty_group: Option<RecordBatch>,
    schema: SchemaRef,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

impl GroupingSetsExec {
    /// `schema`: that of `input`, with keys that may be NULL, and with the grouping ID behind them;
    /// `empty_group`: a row of `schema`, or `None` if each set has keys.
    pub fn new(
        input: Arc<dyn ExecutionPlan>,
        sets: Arc<[GroupingSet]>,
        empty_group: Option<RecordBatch>,
        schema: SchemaRef,
    ) -> Self {
        let properties = Arc::new(PlanProperties::new(
            EquivalenceProperties::new(Arc::clone(&schema)),
            Partitioning::UnknownPartitioning(input.output_partitioning().partition_count()),
            input.pipeline_behavior(),
            input.boundedness(),
        ));
        Self { input, sets, empty_group, schema, properties, metrics: ExecutionPlanMetricsSet::new() }
    }

    pub fn sets(&self) -> &[GroupingSet] {
        &self.sets
    }

    pub fn empty_group(&self) -> Option<&RecordBatch> {
        self.empty_group.as_ref()
    }
}

impl DisplayAs for GroupingSetsExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let keys_of = |set: &GroupingSet| {
            let keys = set.null_keys.iter().enumerate().filter(|(_, is_null)| !**is_null);
            let keys: Vec<&str> = keys.map(|(at, _)| self.schema.field(at).name().as_str()).collect();
            format!("({})", keys.join(", "))
        };
        let sets: Vec<String> = self.sets.iter().map(keys_of).collect();
        write!(f, "GroupingSetsExec: [{}]", sets.join(", "))
    }
}

impl ExecutionPlan for GroupingSetsExec {
    crate::one_input!("GroupingSetsExec", input, |node, input| {
        Self::new(input, Arc::clone(&node.sets), node.empty_group.clone(), Arc::clone(&node.schema))
    });

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        vec![false]
    }

    fn cardinality_effect(&self) -> CardinalityEffect {
        CardinalityEffect::GreaterEqual
    }

    fn child_stats_requests(&self, partition: Option<usize>) -> Vec<ChildStats> {
        vec![ChildStats::At(partition)]
    }

    /// As many rows for each set as the input has.
    fn statistics_from_inputs(
        &self,
        inputs: &[Arc<Statistics>],
        _: &StatisticsArgs,
    ) -> Result<Arc<Statistics>> {
        let rows = inputs.first().and_then(|input| input.num_rows.get_value().copied());
        let mut statistics = Statistics::new_unknown(&self.schema);
        if let Some(rows) = rows {
            statistics.num_rows =
                datafusion::common::stats::Precision::Inexact(rows.saturating_mul(self.sets.len()));
        }
        Ok(Arc::new(statistics))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        Ok(Box::pin(GroupingSetsStream {
            input: self.input.execute(partition, context)?,
            sets: Arc::clone(&self.sets),
            empty_group: self.empty_group.clone(),
            schema: Arc::clone(&self.schema),
            current: None,
            metrics: BaselineMetrics::new(&self.metrics, partition),
        }))
    }
}

struct GroupingSetsStream {
    input: SendableRecordBatchStream,
    sets: Arc<[GroupingSet]>,
    /// `None` once there was a row, or it was output.
    empty_group: Option<RecordBatch>,
    schema: SchemaRef,
    /// A batch of the input, and the next set to output it for.
    current: Option<(RecordBatch, usize)>,
    metrics: BaselineMetrics,
}

impl GroupingSetsStream {
    /// The groups of a batch for one of the sets.
    fn groups(&self, batch: &RecordBatch, set: &GroupingSet) -> Result<RecordBatch> {
        let rows = batch.num_rows();
        let keys = set.null_keys.len();
        let mut columns: Vec<ArrayRef> = Vec::with_capacity(self.schema.fields().len());
        for (is_null, column) in set.null_keys.iter().zip(batch.columns()) {
            columns.push(match is_null {
                true => new_null_array(column.data_type(), rows),
                false => Arc::clone(column),
            });
        }
        let ids = UInt64Array::from(vec![set.id; rows]);
        columns.push(cast(&ids, self.schema.field(keys).data_type())?);
        columns.extend(batch.columns()[keys..].iter().cloned());
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        Ok(RecordBatch::try_new_with_options(Arc::clone(&self.schema), columns, &options)?)
    }
}

impl Stream for GroupingSetsStream {
    type Item = Result<RecordBatch>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let stream = &mut *self;
        loop {
            if let Some((batch, at)) = stream.current.take()
                && let Some(set) = stream.sets.get(at)
            {
                let groups = stream.groups(&batch, set);
                stream.current = Some((batch, at + 1));
                return Poll::Ready(Some(groups.record_output(&stream.metrics)));
            }
            match ready!(stream.input.poll_next_unpin(context)) {
                Some(Ok(batch)) if batch.num_rows() == 0 => {}
                Some(Ok(batch)) => {
                    stream.empty_group = None;
                    stream.current = Some((batch, 0));
                }
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                None => {
                    let empty_group = stream.empty_group.take();
                    return Poll::Ready(empty_group.map(|group| Ok(group.record_output(&stream.metrics))));
                }
            }
        }
    }
}

impl RecordBatchStream for GroupingSetsStream {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }
}
