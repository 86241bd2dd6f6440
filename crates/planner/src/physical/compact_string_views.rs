//! Compaction of string view buffers above joins.
//!
//! The output batches of a join refer to all buffers of the build side, possibly thousands, however few
//! strings a batch contains. Every operator above copies and drops these references for each batch, and the
//! next join multiplies them: each of its batches refers to thousands of buffers per build batch. So batches
//! that refer to many buffers get their strings copied into a new one directly above the join. This cuts the
//! run time of TPC-H query 18 at scale 10 to a third (`docs/benchmarks.md`).
//!
//! Distributed plans need it less: motions copy strings into new buffers.
//!
//! ```text
//! HashJoinExec: s@0 Utf8View, …  ─►  CompactStringViewsExec
//!                                      HashJoinExec: s@0 Utf8View, …
//!
//! batch: s has views into 65 buffers or more  ─►  batch: s has views into 1 buffer
//! batch: s has views into at most 64 buffers  ─►  the same batch
//! ```
//!
//! `CompactStringViews` can go when joins or coalescing compact view buffers (apache/datafusion#16206, open);
//! technique: garbage collection of string views.

use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use datafusion::arrow::datatypes::DataType;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Result, config::ConfigOptions};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::execution_plan::CardinalityEffect;
use datafusion::physical_plan::metrics::{
    BaselineMetrics, ExecutionPlanMetricsSet, MetricsSet, RecordOutput,
};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{ExecutionPlan, PlanProperties};
use futures::StreamExt;

use crate::physical::cooperative_joins::is_join;

/// The maximum number of buffers of a column in a batch that is left as it is. Copying a batch's strings
/// costs about as much as copying and dropping references to a few hundred buffers once.
const BUFFERS_MAX: usize = 64;

/// Adds a [`CompactStringViewsExec`] above every join that returns string or binary views.
#[derive(Debug)]
pub struct CompactStringViews;

impl PhysicalOptimizerRule for CompactStringViews {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        plan.transform_up(|plan| {
            Ok(
                match is_join(&plan) && plan.schema().fields().iter().any(|field| is_view(field.data_type()))
                {
                    true => Transformed::yes(Arc::new(CompactStringViewsExec::new(plan)) as _),
                    false => Transformed::no(plan),
                },
            )
        })
        .map(|transformed| transformed.data)
    }

    fn name(&self) -> &str {
        "CompactStringViews"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

fn is_view(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Utf8View | DataType::BinaryView)
}

/// N → N output partitions; the same rows in the same order, with views into few buffers.
#[derive(Debug)]
struct CompactStringViewsExec {
    input: Arc<dyn ExecutionPlan>,
    metrics: ExecutionPlanMetricsSet,
}

impl CompactStringViewsExec {
    fn new(input: Arc<dyn ExecutionPlan>) -> Self {
        Self { input, metrics: ExecutionPlanMetricsSet::new() }
    }
}

harrier_exec::display_by_name!(CompactStringViewsExec);

impl ExecutionPlan for CompactStringViewsExec {
    harrier_exec::one_input!("CompactStringViewsExec", input, |_, input| Self::new(input));

    fn properties(&self) -> &Arc<PlanProperties> {
        self.input.properties()
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        vec![true]
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        vec![false]
    }

    fn cardinality_effect(&self) -> CardinalityEffect {
        CardinalityEffect::Equal
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let metrics = BaselineMetrics::new(&self.metrics, partition);
        let input = self.input.execute(partition, context)?;
        let schema = input.schema();
        let batches = input.map(move |batch| {
            let batch = batch?;
            let _timer = metrics.elapsed_compute().timer();
            compact(&batch).map(|batch| batch.record_output(&metrics))
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, batches)))
    }
}

fn compact(batch: &RecordBatch) -> Result<RecordBatch> {
    if !batch.columns().iter().any(is_scattered) {
        return Ok(batch.clone());
    }
    let columns = batch.columns().iter().map(|column| match (is_scattered(column), column.data_type()) {
        (true, DataType::Utf8View) => Arc::new(column.as_string_view().gc()) as ArrayRef,
        (true, DataType::BinaryView) => Arc::new(column.as_binary_view().gc()) as ArrayRef,
        _ => Arc::clone(column),
    });
    Ok(RecordBatch::try_new(batch.schema(), columns.collect())?)
}

fn is_scattered(column: &ArrayRef) -> bool {
    let buffers = match column.data_type() {
        DataType::Utf8View => column.as_string_view().data_buffers().len(),
        DataType::BinaryView => column.as_binary_view().data_buffers().len(),
        _ => 0,
    };
    buffers > BUFFERS_MAX
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::arrow::array::StringViewArray;
    use datafusion::arrow::compute::concat_batches;

    fn scattered_batch(buffers: usize) -> RecordBatch {
        let batches: Vec<RecordBatch> = (0..buffers)
            .map(|at| {
                let strings =
                    StringViewArray::from_iter_values([format!("a string of its own buffer: {at}")]);
                RecordBatch::try_from_iter([("s", Arc::new(strings) as ArrayRef)]).unwrap()
            })
            .collect();
        concat_batches(&batches[0].schema(), &batches).unwrap()
    }

    #[test]
    fn string_view_buffers_are_compacted() {
        let check = |buffers, expected| {
            let batch = scattered_batch(buffers);
            let compacted = compact(&batch).unwrap();
            assert_eq!(compacted, batch);
            assert_eq!(compacted.column(0).as_string_view().data_buffers().len(), expected);
        };
        check(BUFFERS_MAX + 1, 1);
        check(BUFFERS_MAX, BUFFERS_MAX);
    }
}
