//! Rows that are computed once and read in several places of a plan: the logical node, the table that stands
//! for the rows, and their operators.
//!
//! ```text
//!   SharedRows: __shared_1          computes its first input when the second one first reads a scan
//!   ├─ rows                         1 → 1 output partition
//!   └─ … TableScan: __shared_1 …    N → N output partitions; any number of scans of the rows
//! ```
//! A query that is read twice in a plan returns other rows each time if it has volatile functions, or a LIMIT
//! without a total order. The rows stay in the process that computes them, so such a plan runs on one rank.
//!
//! Memory bound: all rows are in memory, counted by the pool; beyond its limit the statement fails (53200).
//!
//! Cancellation: the rows are computed by a task of their own, which ends with the plan.

use std::cmp::Ordering;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::runtime::SpawnedTask;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchemaRef, DataFusionError, Result, internal_err};
use datafusion::datasource::{provider_as_source, source_as_provider};
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::{
    Expr, Extension, LogicalPlan, LogicalPlanBuilder, TableScan, TableType, UserDefinedLogicalNodeCore,
};
use datafusion::physical_expr::{EquivalenceProperties, Partitioning, PhysicalExpr};
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::memory::MemoryStream;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, Distribution, ExecutionPlan, InputDistributionRequirements, PlanProperties,
};
use futures::future::{BoxFuture, Shared, ready};
use futures::{FutureExt, StreamExt, TryStreamExt};

/// Computes `input` once, for all scans of `name` in `body`, and returns the rows of `body`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SharedRows {
    pub name: String,
    pub input: LogicalPlan,
    pub body: LogicalPlan,
}

impl SharedRows {
    /// The plan that scans the rows of `input`, its columns qualified by `name`.
    pub fn scan(name: &str, input: &LogicalPlan) -> Result<LogicalPlan> {
        let schema = Arc::clone(input.schema().inner());
        let table = SharedTable { name: name.to_owned(), schema };
        LogicalPlanBuilder::scan(name, provider_as_source(Arc::new(table)), None)?.build()
    }

    /// The name of the shared rows that a table scan reads, if it does.
    pub fn name_in(scan: &TableScan) -> Option<String> {
        let provider = source_as_provider(&scan.source).ok()?;
        provider.downcast_ref::<SharedTable>().map(|table| table.name.clone())
    }

    pub fn into_plan(self) -> LogicalPlan {
        LogicalPlan::Extension(Extension { node: Arc::new(self) })
    }
}

impl PartialOrd for SharedRows {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        (self == other).then_some(Ordering::Equal)
    }
}

// By default an extension node lets no filter and no limit pass.
impl UserDefinedLogicalNodeCore for SharedRows {
    fn name(&self) -> &str {
        "SharedRows"
    }

    fn inputs(&self) -> Vec<&LogicalPlan> {
        vec![&self.input, &self.body]
    }

    fn schema(&self) -> &DFSchemaRef {
        self.body.schema()
    }

    fn expressions(&self) -> Vec<Expr> {
        vec![]
    }

    fn fmt_for_explain(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SharedRows: {}", self.name)
    }

    fn with_exprs_and_inputs(&self, _: Vec<Expr>, inputs: Vec<LogicalPlan>) -> Result<Self> {
        match <[LogicalPlan; 2]>::try_from(inputs) {
            Ok([input, body]) => Ok(Self { name: self.name.clone(), input, body }),
            Err(_) => internal_err!("SharedRows has two inputs"),
        }
    }

    fn necessary_children_exprs(&self, columns: &[usize]) -> Option<Vec<Vec<usize>>> {
        Some(vec![(0..self.input.schema().fields().len()).collect(), columns.to_vec()])
    }
}

/// The table that a scan of shared rows reads.
#[derive(Debug)]
struct SharedTable {
    name: String,
    schema: SchemaRef,
}

// Methods are written out for the compiler's sake: docs/decisions/0025-boxed-futures-behind-traits.md
impl TableProvider for SharedTable {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::Temporary
    }

    fn scan<'a: 'f, 'b: 'f, 'c: 'f, 'd: 'f, 'f>(
        &'a self,
        _: &'b dyn Session,
        projection: Option<&'c Vec<usize>>,
        _: &'d [Expr],
        _: Option<usize>,
    ) -> BoxFuture<'f, Result<Arc<dyn ExecutionPlan>>> {
        let scan = SharedScanExec::try_new(&self.name, &self.schema, projection.cloned());
        ready(scan.map(|scan| Arc::new(scan) as Arc<dyn ExecutionPlan>)).boxed()
    }
}

/// The rows of an input, once they are computed.
#[derive(Debug)]
struct ComputedRows {
    batches: Vec<RecordBatch>,
    /// Freed with the rows.
    _reservation: MemoryReservation,
}

type RowsFuture = Shared<BoxFuture<'static, std::result::Result<Arc<ComputedRows>, Arc<DataFusionError>>>>;

/// An input and its rows, which the first reader has computed.
struct SharedInput {
    input: Arc<dyn ExecutionPlan>,
    rows: Mutex<Option<RowsFuture>>,
}

impl fmt::Debug for SharedInput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedInput").field("input", &self.input).finish_non_exhaustive()
    }
}

impl SharedInput {
    fn new(input: Arc<dyn ExecutionPlan>) -> Self {
        Self { input, rows: Mutex::new(None) }
    }

    /// The rows; starts to compute them if no reader has before.
    fn rows(&self, context: &Arc<TaskContext>) -> Result<RowsFuture> {
        let mut rows = self.rows.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(rows) = rows.as_ref() {
            return Ok(rows.clone());
        }
        let input = self.input.execute(0, Arc::clone(context))?;
        let reservation = MemoryConsumer::new("SharedRows").register(context.memory_pool());
        // A reader that ends early does not end the others' rows.
        let task = SpawnedTask::spawn(collect(input, reservation));
        let computed = async move {
            match task.join().await {
                Ok(rows) => rows.map(Arc::new).map_err(Arc::new),
                Err(error) => Err(Arc::new(DataFusionError::ExecutionJoin(Box::new(error)))),
            }
        };
        Ok(rows.insert(computed.boxed().shared()).clone())
    }
}

async fn collect(
    mut input: SendableRecordBatchStream,
    reservation: MemoryReservation,
) -> Result<ComputedRows> {
    let mut batches = Vec::new();
    while let Some(batch) = input.next().await.transpose()? {
        reservation.try_grow(batch.get_array_memory_size())?;
        batches.push(batch);
    }
    Ok(ComputedRows { batches, _reservation: reservation })
}

/// The operator of [`SharedRows`]. Output partitions are those of the body.
#[derive(Debug)]
pub struct SharedRowsExec {
    name: String,
    input: Arc<dyn ExecutionPlan>,
    body: Arc<dyn ExecutionPlan>,
    properties: Arc<PlanProperties>,
}

impl SharedRowsExec {
    /// Lets the scans of `name` in `body` read the rows of `input`.
    pub fn try_new(name: &str, input: Arc<dyn ExecutionPlan>, body: Arc<dyn ExecutionPlan>) -> Result<Self> {
        let shared = Arc::new(SharedInput::new(Arc::clone(&input)));
        let body = body.transform_down(|plan| match plan.downcast_ref::<SharedScanExec>() {
            Some(scan) if scan.name == name => Ok(Transformed::yes(Arc::new(scan.of(&shared)))),
            _ => Ok(Transformed::no(plan)),
        })?;
        let properties = Arc::clone(body.data.properties());
        Ok(Self { name: name.to_owned(), input, body: body.data, properties })
    }
}

impl DisplayAs for SharedRowsExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SharedRowsExec: {}, on one rank", self.name)
    }
}

impl ExecutionPlan for SharedRowsExec {
    fn name(&self) -> &str {
        "SharedRowsExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input, &self.body]
    }

    fn input_distribution_requirements(&self) -> InputDistributionRequirements {
        InputDistributionRequirements::new(vec![
            Distribution::SinglePartition,
            Distribution::UnspecifiedDistribution,
        ])
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        vec![false, true]
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        vec![false, false]
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    /// The rows are computed anew: a recursive query resets its plan in this way.
    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let [input, body] = <[_; 2]>::try_from(children)
            .map_err(|_| DataFusionError::Internal("SharedRowsExec has two inputs".to_owned()))?;
        Ok(Arc::new(Self::try_new(&self.name, input, body)?))
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        self.body.execute(partition, context)
    }
}

/// 0 → 1 output partition: the shared rows.
#[derive(Debug)]
pub struct SharedScanExec {
    name: String,
    projection: Option<Vec<usize>>,
    /// Set by the [`SharedRowsExec`] above.
    shared: Option<Arc<SharedInput>>,
    properties: Arc<PlanProperties>,
}

impl SharedScanExec {
    fn try_new(name: &str, schema: &SchemaRef, projection: Option<Vec<usize>>) -> Result<Self> {
        let schema = match &projection {
            Some(projection) => Arc::new(schema.project(projection)?),
            None => Arc::clone(schema),
        };
        let properties = PlanProperties::new(
            EquivalenceProperties::new(schema),
            Partitioning::UnknownPartitioning(1),
            EmissionType::Incremental,
            Boundedness::Bounded,
        );
        Ok(Self { name: name.to_owned(), projection, shared: None, properties: Arc::new(properties) })
    }

    fn of(&self, shared: &Arc<SharedInput>) -> Self {
        Self {
            name: self.name.clone(),
            projection: self.projection.clone(),
            shared: Some(Arc::clone(shared)),
            properties: Arc::clone(&self.properties),
        }
    }
}

impl DisplayAs for SharedScanExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SharedScanExec: {}", self.name)
    }
}

impl ExecutionPlan for SharedScanExec {
    fn name(&self) -> &str {
        "SharedScanExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![]
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn with_new_children(self: Arc<Self>, _: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    fn execute(&self, _: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let Some(shared) = self.shared.clone() else {
            return internal_err!("no rows are shared as {}", self.name);
        };
        let (schema, projection) = (self.schema(), self.projection.clone());
        let stream_schema = Arc::clone(&schema);
        let rows = async move {
            let rows = shared.rows(&context)?.await.map_err(DataFusionError::Shared)?;
            MemoryStream::try_new(rows.batches.clone(), schema, projection)
                // The rows are counted until their last reader ends.
                .map(|stream| {
                    stream.inspect(move |_| {
                        let _counted = &rows;
                    })
                })
        };
        let stream = futures::stream::once(rows).try_flatten();
        Ok(Box::pin(RecordBatchStreamAdapter::new(stream_schema, stream)))
    }
}
