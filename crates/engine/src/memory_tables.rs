//! DELETE and UPDATE of tables that a session has in memory. Which rows they are is worked out by a query that tells the numbers of rows.
//!
//! The planner's own way is not taken: it changes rows while it plans, EXPLAIN included, and hands a table those conditions only that are left
//! beside its scan, so that a statement with a subquery changes every row.

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, Int64Array, RecordBatch};
use datafusion::arrow::compute::{cast, concat_batches, interleave_record_batch};
use datafusion::arrow::datatypes::{DataType, Field, Int64Type, Schema, SchemaRef};
use datafusion::catalog::{MemTable, TableProvider};
use datafusion::common::Column;
use datafusion::datasource::{provider_as_source, source_as_provider};
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::{
    DmlStatement, Expr, LogicalPlan, LogicalPlanBuilder, PlanType, Projection, ToStringifiedPlan, WriteOp,
};
use harrier_exec::sqlstate::{CodedError, SqlState};

use crate::warehouse::placed;

/// The column with the number that a row has in its table, from 0.
const ROW: &str = "_harrier_row";

/// A DELETE or UPDATE, planned.
pub(crate) struct Change {
    table: Arc<dyn TableProvider>,
    /// Its rows end with the number of a row that is changed; before it are the new values, of UPDATE.
    pub plan: LogicalPlan,
    updates: bool,
}

impl Change {
    /// `None` for other statements, and other tables.
    pub(crate) async fn of(dml: &DmlStatement) -> Result<Option<Self>> {
        let updates = match dml.op {
            WriteOp::Update => true,
            WriteOp::Delete => false,
            _ => return Ok(None),
        };
        let table = source_as_provider(&dml.target)?;
        let Some(rows) = table.downcast_ref::<MemTable>() else { return Ok(None) };
        let source = provider_as_source(Arc::new(numbered(rows).await?));
        let row = Expr::Column(Column::new_unqualified(ROW));
        let plan = match dml.input.as_ref() {
            LogicalPlan::Projection(values) if updates => {
                let rows = placed(LogicalPlan::clone(&values.input), &dml.table_name, &source)?;
                let expressions = values.expr.iter().cloned().chain([row]).collect();
                LogicalPlan::Projection(Projection::try_new(expressions, Arc::new(rows))?)
            }
            _ if updates => return Err(DataFusionError::Internal("UPDATE has no values".to_string())),
            input => {
                let rows = placed(input.clone(), &dml.table_name, &source)?;
                LogicalPlanBuilder::from(rows).project([row])?.build()?
            }
        };
        Ok(Some(Self { table, plan, updates }))
    }

    /// Changes the rows that `plan` has found, and tells how many they are.
    ///
    /// Errors: a column that is NOT NULL would have a NULL (23502); then nothing is changed.
    pub(crate) async fn apply(self, found: Vec<RecordBatch>) -> Result<usize> {
        let Some(table) = self.table.downcast_ref::<MemTable>() else {
            return Err(DataFusionError::Internal("the table is in memory".to_string()));
        };
        let Some(first) = found.first() else { return Ok(0) };
        let found = concat_batches(&first.schema(), &found)?;
        let (numbers, values) = found
            .columns()
            .split_last()
            .ok_or_else(|| DataFusionError::Internal("rows have numbers".to_string()))?;
        let changed: HashMap<i64, usize> = numbers
            .as_primitive::<Int64Type>()
            .values()
            .iter()
            .enumerate()
            .map(|(at, row)| (*row, at))
            .collect();
        let values = if self.updates { Some(values_of(values, &table.schema())?) } else { None };
        // All at once, so that nobody sees a part of it.
        let mut partitions = Vec::with_capacity(table.batches.len());
        for partition in &table.batches {
            partitions.push(partition.write().await);
        }
        let mut row = 0;
        for partition in &mut partitions {
            let mut kept = Vec::with_capacity(partition.len());
            for batch in partition.iter() {
                kept.push(with_changes(batch, row, &changed, values.as_ref())?);
                row += batch.num_rows() as i64;
            }
            **partition = kept;
        }
        table.sort_order.lock().clear();
        Ok(changed.len())
    }
}

/// EXPLAIN of such a statement with the plan that finds the rows.
///
/// Errors: it is EXPLAIN ANALYZE (0A000).
pub(crate) async fn explained(mut plan: LogicalPlan) -> Result<LogicalPlan> {
    let inner = match &plan {
        LogicalPlan::Explain(asked) => &asked.plan,
        LogicalPlan::Analyze(asked) => &asked.input,
        _ => return Ok(plan),
    };
    let LogicalPlan::Dml(dml) = inner.as_ref() else { return Ok(plan) };
    let Some(change) = Change::of(dml).await? else { return Ok(plan) };
    match &mut plan {
        LogicalPlan::Explain(asked) => {
            asked.stringified_plans = vec![change.plan.to_stringified(PlanType::InitialLogicalPlan)];
            asked.plan = Arc::new(change.plan);
            Ok(plan)
        }
        _ => {
            let message = "EXPLAIN ANALYZE of a statement that changes a table in memory is not supported";
            Err(CodedError::new(SqlState::FEATURE_NOT_SUPPORTED, message)
                .with_hint("EXPLAIN shows how its rows are found")
                .into())
        }
    }
}

/// The same rows with their numbers.
async fn numbered(table: &MemTable) -> Result<MemTable> {
    let own = table.schema();
    let number = Arc::new(Field::new(ROW, DataType::Int64, false));
    let schema = Arc::new(Schema::new(own.fields().iter().cloned().chain([number]).collect::<Vec<_>>()));
    let mut row = 0;
    let mut partitions = Vec::with_capacity(table.batches.len());
    for partition in &table.batches {
        let mut batches = Vec::new();
        for batch in partition.read().await.iter() {
            let end = row + batch.num_rows() as i64;
            let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(row..end));
            let columns = batch.columns().iter().cloned().chain([numbers]).collect();
            batches.push(RecordBatch::try_new(Arc::clone(&schema), columns)?);
            row = end;
        }
        partitions.push(batches);
    }
    MemTable::try_new(schema, partitions)
}

/// The new values as rows of the table.
fn values_of(values: &[ArrayRef], schema: &SchemaRef) -> Result<RecordBatch> {
    let mut columns = Vec::with_capacity(values.len());
    for (value, field) in values.iter().zip(schema.fields()) {
        let value = cast(value, field.data_type())?;
        if !field.is_nullable() && value.logical_null_count() > 0 {
            let message = format!("null value in column \"{}\" violates not-null constraint", field.name());
            return Err(CodedError::new(SqlState::NOT_NULL_VIOLATION, message).into());
        }
        columns.push(value);
    }
    Ok(RecordBatch::try_new(Arc::clone(schema), columns)?)
}

/// A batch, the first row of which has the number `first`, with `values` in the place of rows that have changed, or without these.
fn with_changes(
    batch: &RecordBatch,
    first: i64,
    changed: &HashMap<i64, usize>,
    values: Option<&RecordBatch>,
) -> Result<RecordBatch> {
    let rows = (0..batch.num_rows()).filter_map(|at| match changed.get(&(first + at as i64)) {
        None => Some((0, at)),
        Some(value) => values.map(|_| (1, *value)),
    });
    let rows: Vec<(usize, usize)> = rows.collect();
    let sources: Vec<&RecordBatch> = [batch].into_iter().chain(values).collect();
    Ok(interleave_record_batch(&sources, &rows)?)
}
