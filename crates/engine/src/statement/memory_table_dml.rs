//! DELETE, UPDATE, MERGE and INSERT OVERWRITE of in-memory tables of a session. A query that returns row
//! numbers finds the rows; INSERT OVERWRITE replaces them all.
//!
//! DataFusion's own implementation is not used: it changes rows during planning, also for EXPLAIN, and passes
//! a table only the predicates left at its scan, so that a statement with a subquery would change every row.

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, Int64Array, RecordBatch, UInt64Array};
use datafusion::arrow::compute::{cast, concat_batches, interleave_record_batch, take_arrays};
use datafusion::arrow::datatypes::{DataType, Field, Int64Type, Schema, SchemaRef};
use datafusion::catalog::{MemTable, TableProvider};
use datafusion::common::Column;
use datafusion::datasource::{provider_as_source, source_as_provider};
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::dml::InsertOp;
use datafusion::logical_expr::{
    DmlStatement, Expr, LogicalPlan, LogicalPlanBuilder, PlanType, Projection, ToStringifiedPlan, WriteOp,
};
use datafusion::sql::parser::Statement;
use futures::TryStreamExt;
use harrier_error::{SqlError, SqlState};
use harrier_planner::binder::merge;
use harrier_sqlstate::IntoDataFusionError;

use crate::session::Session;
use crate::statement::memory_table_dml;
use crate::statement::outcome::{Outcome, command, write_verb};
use crate::statement::parsed_statement::ParsedStatement;
use crate::warehouse::dml::replace_target_scan;
use crate::warehouse::temporary_tables;

/// Column with the row's number in its table, from 0.
const ROW: &str = "_harrier_row";

/// A planned DELETE, UPDATE, MERGE or INSERT OVERWRITE.
pub(crate) struct Change {
    table: Arc<dyn TableProvider>,
    /// Its last column is the number of the changed row; before it come the new values of UPDATE and MERGE,
    /// and for MERGE a flag whether there are any. With RETURNING, DELETE also has the old rows, and MERGE
    /// the source's columns after its values. For INSERT OVERWRITE: the new rows alone.
    pub plan: LogicalPlan,
    kind: Kind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Delete,
    Update,
    Merge,
    Overwrite,
}

impl Change {
    /// `None` for other statements and other tables.
    pub(crate) async fn of(dml: &DmlStatement, returns: bool) -> Result<Option<Self>> {
        let kind = match dml.op {
            WriteOp::Update => Kind::Update,
            WriteOp::Delete => Kind::Delete,
            WriteOp::MergeInto(_) => Kind::Merge,
            WriteOp::Insert(InsertOp::Overwrite) if !returns => Kind::Overwrite,
            _ => return Ok(None),
        };
        let table = source_as_provider(&dml.target)?;
        let Some(rows) = table.downcast_ref::<MemTable>() else { return Ok(None) };
        if kind == Kind::Overwrite {
            let plan = LogicalPlan::clone(&dml.input);
            return Ok(Some(Self { table, plan, kind }));
        }
        let source = provider_as_source(Arc::new(with_row_numbers(rows).await?));
        // Unqualified, so that rewrites of the rows below do not affect it.
        let row = Expr::Column(Column::new_unqualified(ROW)).alias(ROW);
        let plan = match (&dml.op, dml.input.as_ref()) {
            (WriteOp::MergeInto(merge), input) => {
                let target = merge::Target {
                    name: &dml.table_name,
                    schema: rows.schema(),
                    rows: source,
                    places: &[ROW],
                    default: &|column| rows.get_column_default(column).cloned(),
                    returns,
                };
                target.plan(input.clone(), merge)?
            }
            (WriteOp::Update, LogicalPlan::Projection(values)) => {
                let rows = replace_target_scan(LogicalPlan::clone(&values.input), &dml.table_name, &source)?;
                let expressions = values.expr.iter().cloned().chain([row]).collect();
                LogicalPlan::Projection(Projection::try_new(expressions, Arc::new(rows))?)
            }
            (WriteOp::Update, _) => {
                return Err(DataFusionError::Internal("UPDATE has no values".to_string()));
            }
            (_, input) => {
                let rows = replace_target_scan(input.clone(), &dml.table_name, &source)?;
                let own = if returns { table.schema().fields().len() } else { 0 };
                let own: Vec<Expr> =
                    rows.schema().columns()[..own].iter().cloned().map(Expr::Column).collect();
                LogicalPlanBuilder::from(rows).project(own.into_iter().chain([row]))?.build()?
            }
        };
        Ok(Some(Self { table, plan, kind }))
    }

    /// Applies the changes that `plan` found; returns the number of rows.
    ///
    /// Errors: a NOT NULL column would get a NULL (23502), or a row would change twice (21000); then nothing
    /// is changed.
    pub(crate) async fn apply(self, found: Vec<RecordBatch>) -> Result<usize> {
        let Some(table) = self.table.downcast_ref::<MemTable>() else {
            return Err(DataFusionError::Internal("the table is in memory".to_string()));
        };
        if self.kind == Kind::Overwrite {
            return overwrite(table, &found).await;
        }
        let Some(first) = found.first() else { return Ok(0) };
        let found = concat_batches(&first.schema(), &found)?;
        let changes = self.changes(&found, &table.schema())?;
        // Replace all batches at once, so that no reader sees a partial change.
        let mut partitions = Vec::with_capacity(table.batches.len());
        for partition in &table.batches {
            partitions.push(partition.write().await);
        }
        let mut row = 0;
        let mut changed = Vec::with_capacity(partitions.len());
        for partition in &partitions {
            let mut batches = Vec::with_capacity(partition.len());
            for batch in partition.iter() {
                batches.push(changes.apply_to(batch, row)?);
                row += batch.num_rows() as i64;
            }
            changed.push(batches);
        }
        match (changed.last_mut(), changes.added_rows()?) {
            (Some(last), added) => last.extend(added),
            (None, None) => {}
            (None, Some(_)) => {
                return Err(DataFusionError::Internal("a table has no place for rows".to_string()));
            }
        }
        for (partition, changed) in partitions.iter_mut().zip(changed) {
            **partition = changed;
        }
        table.sort_order.lock().clear();
        Ok(found.num_rows())
    }

    /// Decodes the plan's rows.
    fn changes(&self, found: &RecordBatch, schema: &SchemaRef) -> Result<Changes> {
        let missing = || DataFusionError::Internal("rows have numbers".to_string());
        let (numbers, values) = found.columns().split_last().ok_or_else(missing)?;
        let (values, is_written) = match self.kind {
            Kind::Delete => (&[][..], None),
            Kind::Update | Kind::Overwrite => (values, None),
            Kind::Merge => {
                let (is_written, values) = values.split_last().ok_or_else(missing)?;
                (values, Some(is_written.as_boolean()))
            }
        };
        let numbers = numbers.as_primitive::<Int64Type>();
        let (mut changed, mut added) = (HashMap::new(), Vec::new());
        // The rows with new values.
        let mut written = Vec::new();
        for at in 0..found.num_rows() {
            let has_values = self.kind != Kind::Delete && is_written.is_none_or(|written| written.value(at));
            let value = has_values.then(|| {
                written.push(at as u64);
                written.len() - 1
            });
            if numbers.is_null(at) {
                added.extend(value);
            } else if changed.insert(numbers.value(at), value).is_some() {
                let message = "the statement would change a row a second time";
                return Err(SqlError::new(SqlState::CARDINALITY_VIOLATION, message)
                    .with_hint("more than one row of FROM or USING fits the same row of the table")
                    .into_datafusion());
            }
        }
        let values = match self.kind {
            Kind::Delete => RecordBatch::new_empty(Arc::clone(schema)),
            _ => {
                let written = UInt64Array::from(written);
                let values = take_arrays(values, &written, None)?;
                values_of(&values, schema)?
            }
        };
        Ok(Changes { values, changed, added })
    }
}

/// Replaces all rows of a table; returns the number of the new ones.
///
/// Errors: a NOT NULL column would get a NULL (23502); then nothing is changed.
async fn overwrite(table: &MemTable, rows: &[RecordBatch]) -> Result<usize> {
    let schema = table.schema();
    let rows = rows.iter().map(|batch| values_of(batch.columns(), &schema)).collect::<Result<Vec<_>>>()?;
    let count = rows.iter().map(RecordBatch::num_rows).sum();
    let mut partitions = Vec::with_capacity(table.batches.len());
    for partition in &table.batches {
        partitions.push(partition.write().await);
    }
    let mut rows = Some(rows);
    for partition in &mut partitions {
        **partition = rows.take().unwrap_or_default();
    }
    table.sort_order.lock().clear();
    match rows {
        Some(rows) if !rows.is_empty() => {
            Err(DataFusionError::Internal("a table has no place for rows".to_string()))
        }
        _ => Ok(count),
    }
}

/// Changes of a table's rows.
struct Changes {
    /// New versions of rows.
    values: RecordBatch,
    /// Deleted row numbers, with the indices in `values` of their replacements.
    changed: HashMap<i64, Option<usize>>,
    /// Indices in `values` of inserted rows.
    added: Vec<usize>,
}

impl Changes {
    /// Applies the changes to a batch, whose first row has the number `first`.
    fn apply_to(&self, batch: &RecordBatch, first: i64) -> Result<RecordBatch> {
        let rows = (0..batch.num_rows()).filter_map(|at| match self.changed.get(&(first + at as i64)) {
            None => Some((0, at)),
            Some(value) => value.map(|value| (1, value)),
        });
        let rows: Vec<(usize, usize)> = rows.collect();
        Ok(interleave_record_batch(&[batch, &self.values], &rows)?)
    }

    fn added_rows(&self) -> Result<Option<RecordBatch>> {
        if self.added.is_empty() {
            return Ok(None);
        }
        let rows: Vec<(usize, usize)> = self.added.iter().map(|at| (0, *at)).collect();
        Ok(Some(interleave_record_batch(&[&self.values], &rows)?))
    }
}

/// EXPLAIN of such a statement, with the plan that finds the rows.
///
/// Errors: it is EXPLAIN ANALYZE (0A000).
pub(crate) async fn explain_change(mut plan: LogicalPlan) -> Result<LogicalPlan> {
    let inner = match &plan {
        LogicalPlan::Explain(explain) => &explain.plan,
        LogicalPlan::Analyze(explain) => &explain.input,
        _ => return Ok(plan),
    };
    let LogicalPlan::Dml(dml) = inner.as_ref() else { return Ok(plan) };
    let Some(change) = Change::of(dml, false).await? else { return Ok(plan) };
    match &mut plan {
        LogicalPlan::Explain(explain) => {
            explain.stringified_plans = vec![change.plan.to_stringified(PlanType::InitialLogicalPlan)];
            explain.plan = Arc::new(change.plan);
            Ok(plan)
        }
        _ => {
            let message = "EXPLAIN ANALYZE of a statement that changes a table in memory is not supported";
            Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message)
                .with_hint("EXPLAIN shows how its rows are found")
                .into_datafusion())
        }
    }
}

/// The table with a row number column.
async fn with_row_numbers(table: &MemTable) -> Result<MemTable> {
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
            return Err(SqlError::new(SqlState::NOT_NULL_VIOLATION, message).into_datafusion());
        }
        columns.push(value);
    }
    Ok(RecordBatch::try_new(Arc::clone(schema), columns)?)
}

impl Session {
    /// DELETE, UPDATE, MERGE, INSERT OVERWRITE and TRUNCATE of an in-memory table; `None` for other plans.
    pub(crate) async fn change_memory_table(
        &self,
        plan: &LogicalPlan,
        parsed: &Statement,
        statement: &ParsedStatement,
    ) -> Result<Option<Outcome>> {
        let LogicalPlan::Dml(dml) = plan else { return Ok(None) };
        if matches!(dml.op, WriteOp::Truncate)
            && let Ok(table) = source_as_provider(&dml.target)
            && let Some(table) = table.downcast_ref::<MemTable>()
        {
            temporary_tables::truncate(table).await;
            return Ok(Some(command("TRUNCATE TABLE")));
        }
        let Some(change) = memory_table_dml::Change::of(dml, false).await? else { return Ok(None) };
        let written = self.target_statement(parsed)?;
        let Some(verb) = write_verb(plan, written.as_deref()) else { return Ok(None) };
        match self
            .execute_plan(
                &self.context().state(),
                &change.plan,
                Some(verb),
                &statement.text,
                statement.explain,
            )
            .await?
        {
            Outcome::Write(write) => {
                let count = change.apply(write.stream.try_collect().await?).await?;
                Ok(Some(command(&match verb {
                    "INSERT" => format!("INSERT 0 {count}"),
                    verb => format!("{verb} {count}"),
                })))
            }
            _ => Err(DataFusionError::Internal("a statement that writes has answered".to_string())),
        }
    }
}
