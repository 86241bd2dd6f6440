//! RETURNING of INSERT, UPDATE, DELETE and MERGE: the rows are computed once, then written, then returned.
//!
//! Memory bound: the coordinator buffers the rows and the answer, within the statement's memory limit.
//! Errors: the answer is computed before anything is written, so that an error leaves no change.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, RecordBatch};
use datafusion::arrow::compute::{CastOptions, cast_with_options};
use datafusion::arrow::datatypes::{Field, FieldRef, Schema, SchemaRef};
use datafusion::catalog::{MemTable, TableProvider};
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema, ScalarValue};
use datafusion::datasource::{provider_as_source, source_as_provider};
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::execution::{SendableRecordBatchStream, SessionState};
use datafusion::logical_expr::dml::InsertOp;
use datafusion::logical_expr::{DmlStatement, Expr, LogicalPlan, LogicalPlanBuilder, Projection, WriteOp};
use datafusion::physical_plan::memory::MemoryStream;
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{self, FromTable, TableFactor, TableWithJoins};
use futures::TryStreamExt;
use harrier_error::{SqlError, SqlState};
use harrier_sql::ast_builder;
use harrier_sql::desugar::{result_columns, update_from};
use harrier_sql::tokens::explain_options::ExplainOptions;
use harrier_sqlstate::{IntoDataFusionError, unsupported_error};

use crate::binder::{column_origins, type_names};
use crate::planning::returning_items::items;
use crate::runtime::progress::PlanProgress;
use crate::session::Session;
use crate::statement::folder_write::check_change;
use crate::statement::insert;
use crate::statement::memory_table_dml::Change;
use crate::statement::outcome::{Outcome, write_verb};
use crate::statement::parsed_statement::ParsedStatement;
use crate::statement::write::Write;
use crate::types::names;
use crate::warehouse::access::read_check;
use crate::warehouse::dml::RowChanges;
use crate::warehouse::session::WarehouseSession;
use crate::warehouse::table::WarehouseTable;

/// Relation of the buffered rows; not a name that users choose.
const BUFFER: &str = "_harrier_held";
/// Prefix of its value columns; a number follows. Columns that only direct the write have other names.
const VALUE: &str = "_harrier_value_";

/// A statement with RETURNING, split into the change and the returned query.
pub(crate) struct Returning {
    /// The statement without RETURNING.
    pub(crate) change: Statement,
    /// The RETURNING list as a query over the table and the source of the change.
    query: Statement,
    extra: ExtraColumns,
}

/// Columns besides the table's that RETURNING may name.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ExtraColumns {
    None,
    /// Those of MERGE's source, before the table's.
    Before,
    /// Those of UPDATE's FROM, after the table's.
    After,
    /// Those of DELETE's USING, which are not available: a row is deleted once, however many source rows
    /// match.
    Unknown,
}

/// The command word of a statement with RETURNING.
pub(crate) fn verb(statement: &ast::Statement) -> &'static str {
    match statement {
        ast::Statement::Insert(_) => "INSERT",
        ast::Statement::Delete(_) => "DELETE",
        ast::Statement::Merge(_) if !update_from::is_update_from(statement) => "MERGE",
        _ => "UPDATE",
    }
}

fn single_relation(relation: TableFactor) -> TableWithJoins {
    TableWithJoins { relation, joins: vec![] }
}

impl Returning {
    /// `None` for a statement without RETURNING.
    ///
    /// Errors: the statement names no target table (0A000).
    pub(crate) fn of(statement: &Statement) -> Result<Option<Self>> {
        let Statement::Statement(written) = statement else { return Ok(None) };
        let Some(items) = items(written) else { return Ok(None) };
        let mut change = ast::Statement::clone(written);
        let no_table = || {
            let message = "RETURNING of a statement that names no table to be changed is not supported";
            harrier_sqlstate::external(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message))
        };
        let (from, extra) = match &mut change {
            ast::Statement::Insert(insert) => {
                insert.returning = None;
                let ast::TableObject::TableName(name) = &insert.table else { return Err(no_table()) };
                let mut from = ast_builder::table_named(name).pop().ok_or_else(no_table)?;
                // DO UPDATE may use it, too.
                let given = match insert.on {
                    Some(_) => insert.table_alias.clone(),
                    None => insert.table_alias.take(),
                };
                if let (Some(given), TableFactor::Table { alias, .. }) = (given, &mut from.relation) {
                    let name = given.alias;
                    *alias = Some(ast::TableAlias { explicit: true, name, columns: vec![], at: None });
                }
                (vec![from], ExtraColumns::None)
            }
            ast::Statement::Update(update) => {
                update.returning = None;
                (vec![update.table.clone()], ExtraColumns::None)
            }
            ast::Statement::Delete(delete) => {
                delete.returning = None;
                let (FromTable::WithFromKeyword(from) | FromTable::WithoutKeyword(from)) = &delete.from;
                let mut from = from.clone();
                let using = delete.using.clone().unwrap_or_default();
                let extra = if using.is_empty() { ExtraColumns::None } else { ExtraColumns::Unknown };
                from.extend(using);
                update_from::rewrite(&mut change)?;
                (from, extra)
            }
            ast::Statement::Merge(merge) => {
                merge.output = None;
                let (table, source) =
                    (single_relation(merge.table.clone()), single_relation(merge.source.clone()));
                match update_from::is_update_from(&change) {
                    true => (vec![table, source], ExtraColumns::After),
                    false => (vec![source, table], ExtraColumns::Before),
                }
            }
            _ => return Ok(None),
        };
        let mut query = ast_builder::query_of(items.clone(), from);
        result_columns::prepare_query(&mut query);
        Ok(Some(Self {
            change: Statement::Statement(Box::new(change)),
            query: Statement::Statement(Box::new(ast::Statement::Query(Box::new(query)))),
            extra,
        }))
    }
}

/// Target of a statement with RETURNING, planned.
#[allow(clippy::large_enum_variant)] // One is made for a statement.
enum Target {
    Warehouse(RowChanges),
    /// UPDATE, DELETE or MERGE of a session table.
    Session(Change),
    /// INSERT into a session table.
    SessionInsert(DmlStatement),
}

impl Target {
    fn rows(&self) -> &LogicalPlan {
        match self {
            Self::Warehouse(changed) => &changed.rows,
            Self::Session(change) => &change.plan,
            Self::SessionInsert(insert) => &insert.input,
        }
    }
}

impl Session {
    /// Plans the RETURNING list as a query over the table and the source of the change.
    ///
    /// Errors: those of planning; a column may not be read (42501); it contains aggregates (42803), window
    /// functions (42P20), set-returning functions (0A000) or columns of DELETE's USING (0A000).
    pub(crate) async fn plan_of_answer(
        &self,
        returning: &Returning,
        values: &[ScalarValue],
    ) -> Result<LogicalPlan> {
        let plan = self.plan(&returning.query, values).await?;
        let refused = |state, what: &str| -> Result<LogicalPlan> {
            Err(SqlError::new(state, format!("{what} are not allowed in RETURNING")).into_datafusion())
        };
        match base_of(&plan) {
            LogicalPlan::TableScan(_) | LogicalPlan::SubqueryAlias(_) => {}
            LogicalPlan::Join(_) if returning.extra != ExtraColumns::None => {}
            LogicalPlan::Aggregate(_) => return refused(SqlState::GROUPING_ERROR, "aggregate functions"),
            LogicalPlan::Window(_) => return refused(SqlState::WINDOWING_ERROR, "window functions"),
            _ => return refused(SqlState::FEATURE_NOT_SUPPORTED, "functions that return rows"),
        }
        read_check::check_reads(&self.context().state(), &plan)?;
        Ok(plan)
    }

    /// INSERT, UPDATE, DELETE and MERGE with RETURNING.
    pub(crate) async fn execute_returning(
        &self,
        sql: &Statement,
        statement: &ParsedStatement,
    ) -> Result<Outcome> {
        match Returning::of(sql)? {
            Some(returning) => self.run_returning(&returning, statement, self.warehouse()).await,
            // EXECUTE of such a statement.
            None => Box::pin(self.run_planned(sql, statement)).await,
        }
    }

    /// Runs a statement with RETURNING. `warehouse`: the session's, if any.
    ///
    /// Errors: those of the statement and of [`Session::plan_of_answer`]; the table belongs neither to the
    /// warehouse nor to the session (0A000); the rows do not fit in memory (53200).
    async fn run_returning(
        &self,
        returning: &Returning,
        statement: &ParsedStatement,
        warehouse: Option<&Arc<WarehouseSession>>,
    ) -> Result<Outcome> {
        let Statement::Statement(parsed) = &returning.change else {
            return Err(DataFusionError::Internal("a statement that writes is one of SQL".to_string()));
        };
        if statement.partition.is_some() {
            return Err(unsupported_error("RETURNING of an INSERT with PARTITION is not supported"));
        }
        self.begin_distributed().await?;
        let mut inserted = None;
        if let ast::Statement::Insert(insert) = parsed.as_ref() {
            inserted = insert::column_list(insert);
        }
        let filled = self.with_column_list(&returning.change).await;
        let plan = self.plan(filled.as_ref().unwrap_or(&returning.change), &statement.values).await?;
        read_check::check_reads(&self.context().state(), &plan)?;
        check_change(&plan)?;
        let verb = write_verb(&plan, Some(parsed)).unwrap_or("INSERT");
        let LogicalPlan::Dml(dml) = plan else {
            return Err(DataFusionError::Internal("what writes was planned as something else".to_string()));
        };
        let target = target_of(&dml, inserted.as_deref()).await?;
        let answer = self.plan_of_answer(returning, &statement.values).await?;
        let base = Arc::clone(base_of(&answer).schema());
        let own = dml.target.schema().fields().len();
        if returning.extra == ExtraColumns::Unknown {
            check_no_using(&answer, own)?;
        }
        // Column types sent to clients must match those of Describe.
        let columns = if self.is_client() { type_names::of(&answer) } else { vec![] };
        let origins = self.origins(&answer);

        let context = self.task_ctx(&self.context().state())?;
        let reservation = MemoryConsumer::new("RETURNING").register(context.memory_pool());
        let rows = target.rows().clone();
        let state = match &target {
            Target::Warehouse(changed) if !changed.is_values_list() => self.context().state(),
            // In the order of the VALUES list.
            _ => with_one_partition(self.context().state()),
        };
        let rows = self.rows_of(&state, &rows, verb, &statement.text).await?;
        let shape = Shape::of(returning.extra, own, &base, !matches!(dml.op, WriteOp::Delete));
        let written_schema = shape.written_schema(&rows.schema());
        let rows = shape.buffer_rows(rows, &target, &reservation).await?;

        self.begin_distributed().await?;
        let answer = replace_base(answer, &|schema| shape.relation(schema, &rows))?;
        let state = with_one_partition(self.context().state());
        let Outcome::Rows { stream, .. } =
            self.execute_plan(&state, &answer, None, &statement.text, statement.explain).await?
        else {
            return Err(DataFusionError::Internal("a query has no rows".to_string()));
        };
        let answer_schema = stream.schema();
        let answer = collect_reserved(stream, &reservation).await?;

        self.begin_distributed().await?;
        let written = shape.project_written(&rows, &written_schema)?;
        drop(rows);
        self.write_buffered(target, written, written_schema, verb, statement, warehouse).await?;
        let schema =
            column_origins::with_origins(&names::with_type_names(&answer_schema, &columns), &origins);
        let stream = MemoryStream::try_new(answer, answer_schema, None)?.with_reservation(reservation);
        Ok(Outcome::Rows { schema, stream: Box::pin(stream), progress: PlanProgress::none() })
    }

    /// Writes the buffered rows.
    async fn write_buffered(
        &self,
        target: Target,
        rows: Vec<RecordBatch>,
        schema: SchemaRef,
        verb: &'static str,
        statement: &ParsedStatement,
        warehouse: Option<&Arc<WarehouseSession>>,
    ) -> Result<()> {
        match (target, warehouse) {
            (Target::Session(change), _) => change.apply(rows).await.map(drop),
            (Target::SessionInsert(insert), _) => {
                let rows = relation(rows, schema)?;
                let DmlStatement { table_name, target, op, .. } = insert;
                let insert = LogicalPlan::Dml(DmlStatement::new(table_name, target, op, Arc::new(rows)));
                let state = self.context().state();
                let stream = self.rows_of(&state, &insert, verb, &statement.text).await?;
                stream.try_collect::<Vec<RecordBatch>>().await.map(drop)
            }
            (Target::Warehouse(changed), Some(warehouse)) => {
                let written = changed.with_rows(relation(rows, schema)?).into_write()?;
                let written = self.write(written, verb, statement, warehouse).await?;
                let Outcome::Write(write) = written else {
                    return Err(DataFusionError::Internal(
                        "a statement that writes has answered".to_string(),
                    ));
                };
                let Write { stream, pending, auto_analyze, mut abort_guard, .. } = write;
                // On error the caller fails the statement.
                abort_guard.disarm();
                let Some((pending, warehouse, context)) = pending else {
                    return Err(DataFusionError::Internal("a write has nothing to change".to_string()));
                };
                let count =
                    pending.apply(stream.try_collect().await?, &warehouse.transactions, &context).await?;
                warehouse.transactions.end_statement().await?;
                if let Some(analyze) = auto_analyze
                    && !warehouse.transactions.is_open()
                {
                    analyze.run(count).await;
                }
                Ok(())
            }
            (Target::Warehouse(_), None) => {
                Err(DataFusionError::Internal("a table of a warehouse without one".to_string()))
            }
        }
    }

    /// Runs a write's plan and returns its rows.
    async fn rows_of(
        &self,
        state: &SessionState,
        plan: &LogicalPlan,
        verb: &'static str,
        text: &str,
    ) -> Result<SendableRecordBatchStream> {
        match self.execute_plan(state, plan, Some(verb), text, ExplainOptions::default()).await? {
            Outcome::Write(write) => Ok(write.stream),
            _ => Err(DataFusionError::Internal("a statement that writes has answered".to_string())),
        }
    }
}

/// Errors: the table belongs neither to the warehouse nor to the session, or does not support the change
/// (0A000).
async fn target_of(dml: &DmlStatement, inserted: Option<&[String]>) -> Result<Target> {
    let provider = source_as_provider(&dml.target)?;
    if provider.downcast_ref::<WarehouseTable>().is_some()
        && let Some(changed) = RowChanges::of(dml, inserted, true)?
    {
        return Ok(Target::Warehouse(changed));
    }
    if provider.downcast_ref::<MemTable>().is_some() {
        if matches!(dml.op, WriteOp::Insert(InsertOp::Overwrite)) {
            let message = "INSERT OVERWRITE of a table in memory has no RETURNING";
            return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message)
                .with_hint("TRUNCATE, and then INSERT … RETURNING")
                .into_datafusion());
        }
        if matches!(dml.op, WriteOp::Insert(_)) {
            return Ok(Target::SessionInsert(dml.clone()));
        }
        if let Some(change) = Change::of(dml, true).await? {
            return Ok(Target::Session(change));
        }
    }
    let name = dml.table_name.table();
    Err(unsupported_error(format!(
        "RETURNING is for tables of the warehouse and of the session, and \"{name}\" is none"
    )))
}

/// The relation below the projections of a RETURNING plan.
fn base_of(plan: &LogicalPlan) -> &LogicalPlan {
    let mut node = plan;
    while let LogicalPlan::Projection(values) = node {
        node = values.input.as_ref();
    }
    node
}

/// Replaces the relation below the projections of `plan` by another one with the same columns.
fn replace_base(plan: LogicalPlan, other: &dyn Fn(&DFSchema) -> Result<LogicalPlan>) -> Result<LogicalPlan> {
    match plan {
        LogicalPlan::Projection(Projection { expr, input, .. }) => {
            let input = replace_base(Arc::unwrap_or_clone(input), other)?;
            Ok(LogicalPlan::Projection(Projection::try_new(expr, Arc::new(input))?))
        }
        base => other(base.schema()),
    }
}

/// Errors: the answer uses columns after the first `own`, which are those of USING (0A000).
fn check_no_using(answer: &LogicalPlan, own: usize) -> Result<()> {
    let base = base_of(answer).schema();
    let check = |column: &Column| match base.maybe_index_of_column(column) {
        Some(at) if at >= own => Err(harrier_sqlstate::external(
            SqlError::new(
                SqlState::FEATURE_NOT_SUPPORTED,
                format!("column \"{}\" of USING in RETURNING of a DELETE is not supported", column.name),
            )
            .with_hint("MERGE INTO … USING … ON … WHEN MATCHED THEN DELETE RETURNING … has columns of both"),
        )),
        _ => Ok(()),
    };
    let mut node = answer;
    while let LogicalPlan::Projection(values) = node {
        if base_of(values.input.as_ref()).schema() == values.input.schema() {
            for expr in &values.expr {
                expr.apply(|part| {
                    match part {
                        Expr::Column(column) => check(column)?,
                        Expr::ScalarSubquery(subquery) => {
                            subquery.outer_ref_columns.iter().try_for_each(outer(&check))?
                        }
                        Expr::Exists(exists) => {
                            exists.subquery.outer_ref_columns.iter().try_for_each(outer(&check))?
                        }
                        Expr::InSubquery(within) => {
                            within.subquery.outer_ref_columns.iter().try_for_each(outer(&check))?
                        }
                        _ => {}
                    }
                    Ok(TreeNodeRecursion::Continue)
                })?;
            }
        }
        node = values.input.as_ref();
    }
    Ok(())
}

/// Applies a check to a subquery's outer reference.
fn outer<'c>(check: &'c dyn Fn(&Column) -> Result<()>) -> impl Fn(&Expr) -> Result<()> + 'c {
    move |named| match named {
        Expr::OuterReferenceColumn(_, column) => check(column),
        _ => Ok(()),
    }
}

/// The state with one output partition, so that rows keep their order.
fn with_one_partition(mut state: SessionState) -> SessionState {
    state.config_mut().options_mut().execution.target_partitions = 1;
    state
}

/// Layout of a statement's rows: the columns of the table, those of its source if any, and those that direct
/// the write.
struct Shape {
    own: usize,
    /// The columns of the table and of the source.
    values: Vec<FieldRef>,
    extra: ExtraColumns,
    /// Whether the table's columns are written: a DELETE only needs row positions.
    writes_values: bool,
}

impl Shape {
    /// `base`: the relation that RETURNING is computed from.
    fn of(extra: ExtraColumns, own: usize, base: &DFSchema, writes_values: bool) -> Self {
        let fields = base.fields();
        let values: Vec<FieldRef> = match extra {
            ExtraColumns::None | ExtraColumns::Unknown => fields.iter().take(own).cloned().collect(),
            ExtraColumns::After => fields.iter().cloned().collect(),
            ExtraColumns::Before => {
                let source = fields.len().saturating_sub(own);
                fields.iter().skip(source).chain(fields.iter().take(source)).cloned().collect()
            }
        };
        let values = values.into_iter().enumerate().map(|(at, field)| {
            Arc::new(Field::clone(&field).with_name(format!("{VALUE}{at}")).with_nullable(true))
        });
        Self { own, values: values.collect(), extra, writes_values }
    }

    /// Indices of the columns that are written, not only returned.
    fn written_places(&self, count: usize) -> Vec<usize> {
        (0..count).filter(|at| self.writes_values && *at < self.own || *at >= self.values.len()).collect()
    }

    /// The schema of the written columns.
    fn written_schema(&self, rows: &SchemaRef) -> SchemaRef {
        let fields = self.written_places(rows.fields().len()).into_iter().map(|at| {
            let field = rows.field(at);
            let kind = if at < self.own { self.values[at].data_type() } else { field.data_type() };
            field.clone().with_data_type(kind.clone()).with_nullable(true)
        });
        Arc::new(Schema::new(fields.collect::<Vec<Field>>()))
    }

    /// Buffers the statement's rows, with values as the table stores them.
    async fn buffer_rows(
        &self,
        mut rows: SendableRecordBatchStream,
        target: &Target,
        reservation: &MemoryReservation,
    ) -> Result<Vec<RecordBatch>> {
        let options = CastOptions { safe: false, ..CastOptions::default() };
        let rest = rows.schema();
        let rest = rest.fields().iter().skip(self.values.len()).cloned();
        let schema =
            Arc::new(Schema::new(self.values.iter().cloned().chain(rest).collect::<Vec<FieldRef>>()));
        let mut batches = Vec::new();
        while let Some(batch) = rows.try_next().await? {
            let mut columns: Vec<ArrayRef> = Vec::with_capacity(batch.num_columns());
            for (at, column) in batch.columns().iter().enumerate() {
                let Some(field) = self.values.get(at) else {
                    columns.push(Arc::clone(column));
                    continue;
                };
                let column = cast_with_options(column, field.data_type(), &options)?;
                columns.push(match target {
                    Target::Warehouse(changed) if at < self.own => changed.stored_values(at, &column)?,
                    _ => column,
                });
            }
            let batch = RecordBatch::try_new(Arc::clone(&schema), columns)?;
            reservation.try_grow(batch.get_array_memory_size())?;
            batches.push(batch);
        }
        Ok(batches)
    }

    /// The rows as a relation with the columns of `base`.
    fn relation(&self, base: &DFSchema, rows: &[RecordBatch]) -> Result<LogicalPlan> {
        let places: Vec<usize> = (0..self.values.len()).collect();
        let rows =
            rows.iter().map(|batch| batch.project(&places)).collect::<std::result::Result<Vec<_>, _>>()?;
        let schema = Arc::new(Schema::new(self.values.clone()));
        let rows =
            provider_as_source(Arc::new(MemTable::try_new(schema, vec![rows])?) as Arc<dyn TableProvider>);
        let count = self.values.len();
        let place = |at: usize| match self.extra {
            ExtraColumns::Before => (at + self.own) % count,
            _ => at,
        };
        let columns = base.iter().take(count).enumerate().map(|(at, (relation, field))| {
            let value = Expr::Column(Column::new(Some(BUFFER), format!("{VALUE}{}", place(at))));
            value.alias_qualified(relation.cloned(), field.name())
        });
        let columns: Vec<Expr> = columns.collect();
        LogicalPlanBuilder::scan(BUFFER, rows, None)?.project(columns)?.build()
    }

    /// Projects the rows to the written columns.
    fn project_written(&self, rows: &[RecordBatch], schema: &SchemaRef) -> Result<Vec<RecordBatch>> {
        let parts = rows.iter().map(|batch| {
            let places = self.written_places(batch.num_columns());
            let columns = places.into_iter().map(|at| Arc::clone(batch.column(at))).collect();
            RecordBatch::try_new(Arc::clone(schema), columns)
        });
        Ok(parts.collect::<std::result::Result<Vec<_>, _>>()?)
    }
}

/// Rows as a relation with unqualified columns.
fn relation(rows: Vec<RecordBatch>, schema: SchemaRef) -> Result<LogicalPlan> {
    let rows = MemTable::try_new(schema, vec![rows])?;
    let rows =
        LogicalPlanBuilder::scan(BUFFER, provider_as_source(Arc::new(rows) as Arc<dyn TableProvider>), None)?;
    let columns = rows.schema().columns();
    let columns: Vec<Expr> = columns
        .into_iter()
        .map(|column| {
            let name = column.name.clone();
            Expr::Column(column).alias(name)
        })
        .collect();
    rows.project(columns)?.build()
}

async fn collect_reserved(
    mut rows: SendableRecordBatchStream,
    reservation: &MemoryReservation,
) -> Result<Vec<RecordBatch>> {
    let mut batches = Vec::new();
    while let Some(batch) = rows.try_next().await? {
        reservation.try_grow(batch.get_array_memory_size())?;
        batches.push(batch);
    }
    Ok(batches)
}
