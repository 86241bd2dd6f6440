//! Statements that write rows: what they plan, and what their rows come to.

pub(crate) mod overwrite;
pub(crate) mod partition_keys;
pub(crate) mod row_checks;
pub(crate) mod writer_registration;
pub(crate) mod written_files;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use datafusion::arrow::compute::{CastOptions, cast_with_options};
use datafusion::arrow::datatypes::{DataType, Int64Type};
use datafusion::catalog::TableProvider;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column as ColumnName, TableReference};
use datafusion::datasource::{provider_as_source, source_as_provider};
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::TaskContext;
use datafusion::functions::core::expr_fn::coalesce;
use datafusion::logical_expr::dml::{InsertOp, MergeIntoOp};
use datafusion::logical_expr::{
    DmlStatement, Expr, LogicalPlan, LogicalPlanBuilder, Projection, TableScanBuilder, TableSource, WriteOp,
    lit,
};
use harrier_catalog::access::Privilege;
use harrier_catalog::files::{ColumnStats, NewDeleteFile, NewDeletes, NewFile, TableChanges};
use harrier_catalog::state::{Location, PartitionKey, State, Table, Transform};
use harrier_catalog::types::ColumnType;
use harrier_catalog::writer_name;
use harrier_error::{SqlError, SqlState};
use harrier_exec::data_files::interval_encoding::round_to_stored;
use harrier_exec::data_files::{
    DeletedRows, FILE_COLUMN, FileRecord, PartitionFolder, ROW_COLUMN, ReplacedFiles, WriteFormat, WriteSpec,
    check_catalog_years, read_deleted, write_delete_file,
};
use harrier_exec::distribution::logical_planner::WriteFiles;
use harrier_planner::binder::merge::{self, IS_WRITTEN};
use harrier_sqlstate::IntoDataFusionError;
use prost::Message;

use crate::types::assignment;
use crate::types::columns::{file_schema_of, has_foreign_buckets, schema_of};
use crate::warehouse::access::dml;
use crate::warehouse::dml::overwrite::Replaced;
use crate::warehouse::dml::partition_keys::{folder_name, key_column, transformed};
use crate::warehouse::table::file_shape::file_shape;
use crate::warehouse::table::partitions::{self, Unplaced, is_divided, partitions_of};
use crate::warehouse::table::scanned_file::{RowSource, ScannedFile};
use crate::warehouse::table::{Contents, WarehouseTable, stored_values};
use crate::warehouse::transaction::Transactions;

/// So few rows go into the catalog instead of a file of their own, unless the table says otherwise.
const INLINE_ROWS_MAX: usize = 10;

/// What a statement does to its table when its rows are there.
#[derive(Debug)]
pub(crate) struct Pending {
    target: WarehouseTable,
    work: Work,
    /// The number of the files' names.
    name: String,
    count: Count,
}

#[derive(Debug, PartialEq)]
enum Work {
    /// The rows themselves, for the catalog to keep.
    Keep,
    /// Records of files; rows that were replaced.
    Files { overwrite: bool },
    /// Places of rows to be deleted.
    Delete,
    /// The same rows again: records of files, in the place of what they were read from.
    Compact,
}

/// What the statement's tag counts.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Count {
    Written,
    Places,
    /// Of MERGE: both, those counted twice aside.
    Merged,
}

/// The rows of a statement that writes, before they are written.
pub(crate) struct Changed {
    /// Of INSERT the columns of the table; of UPDATE and MERGE then whether a row is written, and the place
    /// of that which goes; of DELETE the place. If rows are returned, there are the columns of the table
    /// before the place of DELETE, and those of its source behind them of MERGE.
    pub rows: LogicalPlan,
    pending: Pending,
}

/// A statement that writes rows, planned.
pub(crate) struct Dml {
    pub plan: LogicalPlan,
    pub pending: Pending,
}

impl Dml {
    /// The plan of `dml`, if its target is a table of the warehouse. `inserted`: the columns that an INSERT
    /// names, if it names some.
    ///
    /// Errors: those of [`Changed::of`].
    pub(crate) fn of(dml: &DmlStatement, inserted: Option<&[String]>) -> Result<Option<Self>> {
        Changed::of(dml, inserted, false)?.map(Changed::written).transpose()
    }

    /// Writes the rows of `input`, which has the table's columns in their order.
    ///
    /// Errors: those of [`Changed::insert`].
    pub(crate) fn insert(target: WarehouseTable, input: LogicalPlan, op: InsertOp) -> Result<Self> {
        Changed::insert(target, input, op)?.written()
    }

    /// Writes the rows of `sources` into as few files as possible.
    pub(crate) fn compact(target: WarehouseTable, sources: BTreeSet<RowSource>) -> Result<Self> {
        let target = target.with_only(sources);
        let source = provider_as_source(Arc::new(target.clone()));
        let input = LogicalPlanBuilder::scan(target.table().name.as_str(), source, None)?.build()?;
        let pending = Pending::new(target, Work::Compact, Count::Written);
        let plan = pending.write(input, false)?;
        Ok(Self { plan, pending })
    }

    /// Writes the rows of `input` into files of `target`, as they are; for [`Pending::files`].
    pub(crate) fn rewrite(target: WarehouseTable, input: LogicalPlan) -> Result<Self> {
        let pending = Pending::new(target, Work::Files { overwrite: false }, Count::Written);
        let plan = pending.write(input, false)?;
        Ok(Self { plan, pending })
    }

    /// Deletes the rows of `target` for which `predicate` is true.
    pub(crate) fn delete_where(target: WarehouseTable, predicate: Expr) -> Result<Self> {
        let source = target.places();
        let rows = LogicalPlanBuilder::scan(target.table().name.as_str(), source, None)?;
        Changed::delete_rows(target, rows.filter(predicate)?.build()?, false)?.written()
    }
}

impl Changed {
    /// The rows of `dml`, if its target is a table of the warehouse. `inserted`: the columns that an INSERT
    /// names, if it names some; `returns`: whether rows are asked for that are not needed to write.
    ///
    /// Errors: what it does is not supported, or not allowed (42501); it changes a table as it was (42809).
    pub(crate) fn of(dml: &DmlStatement, inserted: Option<&[String]>, returns: bool) -> Result<Option<Self>> {
        let Ok(provider) = source_as_provider(&dml.target) else {
            return Ok(None);
        };
        let Some(target) = provider.downcast_ref::<WarehouseTable>() else {
            return Ok(None);
        };
        dml::check(target, dml, inserted)?;
        if target.is_past() {
            let message = format!("cannot change table \"{}\" as it was", target.table().name);
            return Err(SqlError::new(SqlState::WRONG_OBJECT_TYPE, message)
                .with_hint("AS OF is for what a statement reads")
                .into_datafusion());
        }
        let target = target.clone();
        let input = LogicalPlan::clone(&dml.input);
        Ok(Some(match &dml.op {
            WriteOp::Insert(op) => Self::insert(target, input, *op)?,
            WriteOp::Ctas => Self::insert(target, input, InsertOp::Append)?,
            WriteOp::Delete => Self::delete(target, input, &dml.table_name, returns)?,
            WriteOp::Update => Self::update(target, input, &dml.table_name)?,
            WriteOp::MergeInto(merge) => Self::merge(target, input, &dml.table_name, merge, returns)?,
            // TRUNCATE is a statement of its own here.
            _ => return Ok(None),
        }))
    }

    /// The rows of `input`, which has the table's columns in their order.
    ///
    /// Errors: a kind of INSERT that there is not (0A000); an INSERT OVERWRITE of somebody who does not see
    /// all rows (42501).
    fn insert(target: WarehouseTable, input: LogicalPlan, op: InsertOp) -> Result<Self> {
        let overwrite = match op {
            InsertOp::Append => false,
            InsertOp::Overwrite => true,
            InsertOp::Replace => {
                return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, "REPLACE INTO is not supported")
                    .with_hint("MERGE INTO replaces rows")
                    .into_datafusion());
            }
        };
        if overwrite {
            target.check_sees_all()?;
        }
        let table = target.table();
        let few = rows_of_values(&input).is_some_and(|rows| rows <= inline_rows_max(target.state(), table));
        let input = assignment::assign_rows(table, input)?;
        let input = row_checks::checked(&target, input, None)?;
        // Rows beside the files of buckets would have to be sent to them. Those of ranges and lists are
        // checked where they are written.
        let is_bucketed = table.partition.iter().any(|key| matches!(key.transform, Transform::Bucket(_)));
        if few && !overwrite && !is_bucketed && !is_divided(table) && target.can_keep() {
            let pending = Pending::new(target, Work::Keep, Count::Written);
            return Ok(Self { rows: input, pending });
        }
        let pending = Pending::new(target, Work::Files { overwrite }, Count::Written);
        Ok(Self { rows: input, pending })
    }

    fn delete(
        target: WarehouseTable,
        input: LogicalPlan,
        name: &TableReference,
        returns: bool,
    ) -> Result<Self> {
        let input = placed(input, name, &target.places())?;
        Self::delete_rows(target, input, returns)
    }

    /// `input` has the rows with their places.
    fn delete_rows(target: WarehouseTable, input: LogicalPlan, returns: bool) -> Result<Self> {
        let own = if returns { target.table().columns.len() } else { 0 };
        let own = input.schema().columns().into_iter().take(own).map(Expr::Column);
        let rows: Vec<Expr> = own.chain([FILE_COLUMN, ROW_COLUMN].map(column)).collect();
        let rows = LogicalPlanBuilder::from(input).project(rows)?.build()?;
        let pending = Pending::new(target, Work::Delete, Count::Places);
        Ok(Self { rows, pending })
    }

    fn update(target: WarehouseTable, input: LogicalPlan, name: &TableReference) -> Result<Self> {
        let LogicalPlan::Projection(projection) = input else {
            return Err(DataFusionError::Internal("UPDATE has no values".to_string()));
        };
        let inner = placed(LogicalPlan::clone(&projection.input), name, &target.places())?;
        let mark = lit(true).alias("_harrier_write");
        // Under their names alone, whatever rules make of the columns.
        let places = [FILE_COLUMN, ROW_COLUMN]
            .map(|column| Expr::Column(ColumnName::new_unqualified(column)).alias(column));
        let mut values = projection.expr.clone();
        assignment::assign_values(target.table(), name, &mut values);
        let expressions: Vec<Expr> = values.into_iter().chain([mark]).chain(places).collect();
        let input = LogicalPlan::Projection(Projection::try_new(expressions, Arc::new(inner))?);
        let rows = row_checks::checked(&target, input, None)?;
        let pending = Pending::new(target, Work::Files { overwrite: false }, Count::Places);
        Ok(Self { rows, pending })
    }

    fn merge(
        target: WarehouseTable,
        source: LogicalPlan,
        name: &TableReference,
        merge: &MergeIntoOp,
        returns: bool,
    ) -> Result<Self> {
        let changed = merge::Target {
            name,
            schema: schema_of(&target.table().columns)?,
            rows: target.places(),
            places: &[FILE_COLUMN, ROW_COLUMN],
            default: &|column| {
                let default = target.get_column_default(column)?;
                Some(assignment::assign_default(target.table(), column, default))
            },
            returns,
        };
        let input = changed.plan(source, &assignment::assign_merge(target.table(), merge))?;
        let rows = row_checks::checked(&target, input, Some(column(IS_WRITTEN)))?;
        let pending = Pending::new(target, Work::Files { overwrite: false }, Count::Merged);
        Ok(Self { rows, pending })
    }

    /// The statement that writes them.
    pub(crate) fn written(self) -> Result<Dml> {
        let Self { rows, pending } = self;
        let plan = match pending.work {
            Work::Keep | Work::Delete => rows,
            Work::Files { .. } | Work::Compact => pending.write(rows, pending.count != Count::Written)?,
        };
        Ok(Dml { plan, pending })
    }

    /// The same statement with `rows`, which are those that it would have worked out, without what is only
    /// returned.
    pub(crate) fn with_rows(self, rows: LogicalPlan) -> Self {
        Self { rows, ..self }
    }

    /// Whether they are listed in the statement.
    pub(crate) fn are_listed(&self) -> bool {
        rows_of_values(&self.rows).is_some()
    }

    /// Values of a column as they are in the table when they are written.
    ///
    /// Errors: the table cannot have them.
    pub(crate) fn stored(&self, at: usize, values: &ArrayRef) -> Result<ArrayRef> {
        match self.pending.work {
            Work::Delete => Ok(Arc::clone(values)),
            _ => round_to_stored(values, &self.pending.target.table().columns[at].name),
        }
    }
}

pub(crate) fn column(name: &str) -> Expr {
    Expr::Column(ColumnName::new_unqualified(name))
}

/// The number of rows of an INSERT that lists them.
fn rows_of_values(plan: &LogicalPlan) -> Option<usize> {
    match plan {
        LogicalPlan::Values(values) => Some(values.values.len()),
        LogicalPlan::Projection(projection) => rows_of_values(&projection.input),
        LogicalPlan::SubqueryAlias(alias) => rows_of_values(&alias.input),
        LogicalPlan::EmptyRelation(empty) => Some(empty.produce_one_row.into()),
        _ => None,
    }
}

fn inline_rows_max(state: &State, table: &Table) -> usize {
    let option = state.option(table, "data_inlining_row_limit");
    option.and_then(|rows| rows.parse().ok()).unwrap_or(INLINE_ROWS_MAX)
}

/// `plan` with `source`, which tells the places of rows, for the table that it changes.
pub(crate) fn placed(
    plan: LogicalPlan,
    name: &TableReference,
    source: &Arc<dyn TableSource>,
) -> Result<LogicalPlan> {
    let mut found = false;
    let replaced = plan.transform_down(|plan| match &plan {
        // The first one: FROM may name the table again.
        LogicalPlan::TableScan(scan) if !found && scan.table_name.resolved_eq(name) => {
            found = true;
            let scan = TableScanBuilder::new(scan.table_name.clone(), Arc::clone(source))
                .with_filters(scan.filters.clone())
                .with_fetch(scan.fetch)
                .build()?;
            Ok(Transformed::new(LogicalPlan::TableScan(scan), true, TreeNodeRecursion::Jump))
        }
        _ if found => Ok(Transformed::new(plan, false, TreeNodeRecursion::Jump)),
        _ => Ok(Transformed::no(plan)),
    })?;
    let plan = replaced.data.transform_up(|plan| plan.recompute_schema().map(Transformed::yes))?.data;
    match found {
        true => Ok(plan),
        false => Err(DataFusionError::Internal(format!("the statement does not read {name}"))),
    }
}

impl Pending {
    fn new(target: WarehouseTable, work: Work, count: Count) -> Self {
        let name = writer_name(target.state().warehouse.as_deref());
        Self { target, work, name, count }
    }

    /// The plan that writes the rows of `input` into files; with `replaces` it ends with a mark and the
    /// places of rows.
    fn write(&self, input: LogicalPlan, replaces: bool) -> Result<LogicalPlan> {
        let table = self.target.table();
        let state = self.target.state();
        let columns = input.schema().columns();
        let own = table.columns.len();
        let mut expressions: Vec<Expr> = Vec::with_capacity(columns.len() + table.partition.len() + 1);
        for (at, column) in table.columns.iter().enumerate() {
            expressions.push(Expr::Column(columns[at].clone()).alias(&column.name));
        }
        let mut keys = Vec::with_capacity(table.partition.len() + 1);
        if let Some(divided) = partitions_of(table)? {
            let (place, _) = partitions::column_of(table, &divided)?;
            let value = Expr::Column(columns[place].clone());
            let is_written = if replaces { Expr::Column(columns[own].clone()) } else { lit(true) };
            // What other programs have written may be in no table partition, and stays when it is compacted.
            let id = match self.work {
                // Named for it, they are not written anew before there may be a table partition for them.
                Work::Compact => {
                    let id = partitions::of_rows(table, &divided, value, is_written, Unplaced::Null)?;
                    coalesce(vec![id, lit(-divided.next)])
                }
                _ => {
                    let readable = self.target.viewer().columns(self.target.object(), Privilege::Select);
                    let unplaced = Unplaced::Error { shows_value: readable.has(divided.column) };
                    partitions::of_rows(table, &divided, value, is_written, unplaced)?
                }
            };
            // DuckDB merges files of one folder, and knows the folders of its own keys only: this one has
            // none.
            keys.push((String::new(), id));
        }
        for key in &table.partition {
            let (place, column) = key_column(table, key)?;
            if column.kind == ColumnType::Interval {
                let message = format!("table \"{}\" is partitioned by intervals", table.name);
                return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message)
                    .with_detail("some are equal to DuckDB that are not here, and they cannot be written")
                    .into_datafusion());
            }
            if matches!(key.transform, Transform::Bucket(_)) && has_foreign_buckets(column) {
                let message = format!(
                    "table \"{}\" has buckets of column \"{}\" of type {}",
                    table.name, column.name, column.kind
                );
                return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message)
                    .with_detail(
                        "DuckDB puts its values by the hash of their text, and they cannot be written",
                    )
                    .into_datafusion());
            }
            let value = transformed(Expr::Column(columns[place].clone()), key.transform);
            keys.push((folder_name(&column.name, key.transform), value));
        }
        let mut folders = Vec::with_capacity(keys.len());
        for (at, (name, value)) in keys.into_iter().enumerate() {
            expressions.push(value.alias(format!("_harrier_key_{at}")));
            folders.push(PartitionFolder { name });
        }
        if replaces {
            expressions.extend(columns[own..].iter().cloned().map(Expr::Column));
        }
        let input = LogicalPlanBuilder::from(input).project(expressions)?.build()?;
        let sort = table
            .sort
            .iter()
            .filter_map(|key| {
                let name = key.expression.trim_matches('"');
                let at = table.columns.iter().position(|column| column.name == name)?;
                Some((at, key.descending, key.nulls_first))
            })
            .collect();
        let own_shapes = match partitions_of(table)? {
            Some(divided) => divided
                .partitions
                .iter()
                .filter(|own| !own.options.is_empty())
                .map(|own| (own.id.to_string(), file_shape(state, table, Some(&own.options))))
                .collect(),
            None => BTreeMap::new(),
        };
        let spec = WriteSpec {
            folder: state.table_path(table),
            name: self.name.clone(),
            table: table.name.clone(),
            schema: file_schema_of(&table.columns)?,
            partition: folders,
            sort,
            replaces,
            shape: file_shape(state, table, None),
            own_shapes,
            one_writer: self.work == Work::Compact,
            format: WriteFormat::Parquet,
            staging: None,
            replaced_files: ReplacedFiles::default(),
        };
        WriteFiles::plan(input, Arc::new(spec))
    }

    /// The table that is changed, and the state that it was found in.
    pub(crate) fn table(&self) -> (&State, &Arc<Table>) {
        (self.target.state(), self.target.table())
    }

    /// To be called before the statement's plan runs.
    ///
    /// Errors: those of [`Transactions::register_writer`].
    pub(crate) async fn begin(&self, transactions: &Transactions) -> Result<()> {
        match self.work {
            Work::Files { .. } | Work::Compact => {
                let folder = self.target.state().table_path(self.target.table());
                transactions.register_writer(&self.name, Some(folder)).await
            }
            // Its rows go into the catalog, or only if there are many into files.
            Work::Keep | Work::Delete => Ok(()),
        }
    }

    /// Makes the changes that the statement's rows come to; returns what its tag counts.
    pub(crate) async fn apply(
        self,
        batches: Vec<RecordBatch>,
        transactions: &Transactions,
        context: &TaskContext,
    ) -> Result<u64> {
        if self.work == Work::Keep {
            return self.keep(batches, transactions).await;
        }
        let folder = self.target.state().table_path(self.target.table());
        let mut results = Results::default();
        for batch in &batches {
            results.take(batch, &self.work)?;
        }
        let written: Vec<String> =
            results.records.iter().map(|record| format!("{folder}{}", record.path)).collect();
        transactions.wrote_all(&self.name, written).await;
        let places: u64 = results.places.values().map(|rows| rows.len() as u64).sum();
        let rows: u64 = results.records.iter().map(|record| record.rows as u64).sum();
        let count = match self.count {
            Count::Written => rows,
            Count::Places => places,
            Count::Merged => rows + results.deleted,
        };
        let overwrite = self.work == Work::Files { overwrite: true };
        if results.places.is_empty() && results.records.is_empty() && !overwrite && self.work != Work::Compact
        {
            return Ok(count);
        }
        let mut contents = match overwrite || !results.places.is_empty() {
            true => self.target.contents().await?,
            false => Contents::default(),
        };
        let deletes =
            self.deletes(&mut contents, std::mem::take(&mut results.places), transactions, context).await?;
        let is_divided = is_divided(self.target.table());
        let added: Vec<NewFile> =
            results.records.into_iter().map(|record| new_file(record, is_divided)).collect();
        let is_compaction = self.work == Work::Compact;
        let replaced = match self.work {
            Work::Compact => Some(Replaced::same_rows(&self.target.contents().await?)),
            Work::Files { overwrite: true } => Some(self.replaced(&contents, &added)?),
            _ => None,
        };
        let table = Arc::clone(self.target.table());
        transactions
            .change(|transaction| {
                let changes = transaction.changes_of(table.id);
                check_compaction(changes, is_compaction, &table.name)?;
                let forgets = !deletes.added_kept.is_empty();
                deletes.make(changes);
                if forgets {
                    // Bounds of rows that are gone again would stay for good.
                    changes.inlined_stats = stored_values::stats_of_cells(&changes.inlined, &table.columns)?;
                }
                if let Some(replaced) = replaced {
                    replaced.make(changes, &table)?;
                }
                changes.added.extend(added);
                Ok(())
            })
            .await?;
        Ok(count)
    }

    /// The files that the statement's rows tell of, which the transaction then owns, and which are no change
    /// of it yet.
    pub(crate) async fn files(
        self,
        batches: Vec<RecordBatch>,
        transactions: &Transactions,
    ) -> Result<Vec<NewFile>> {
        let folder = self.target.state().table_path(self.target.table());
        let mut results = Results::default();
        for batch in &batches {
            results.take(batch, &self.work)?;
        }
        let written: Vec<String> =
            results.records.iter().map(|record| format!("{folder}{}", record.path)).collect();
        transactions.wrote_all(&self.name, written).await;
        let is_divided = is_divided(self.target.table());
        Ok(results.records.into_iter().map(|record| new_file(record, is_divided)).collect())
    }

    async fn keep(self, batches: Vec<RecordBatch>, transactions: &Transactions) -> Result<u64> {
        let table = self.target.table();
        let schema = schema_of(&table.columns)?;
        let mut rows = Vec::new();
        let mut stats: BTreeMap<i64, ColumnStats> = BTreeMap::new();
        for batch in batches {
            let mut columns = Vec::with_capacity(table.columns.len());
            for ((column, field), values) in table.columns.iter().zip(schema.fields()).zip(batch.columns()) {
                let exact = CastOptions { safe: false, ..CastOptions::default() };
                let values = cast_with_options(values, field.data_type(), &exact)?;
                // The same as in a file, so that moving rows into one changes nothing.
                let values = round_to_stored(&values, &column.name)?;
                check_catalog_years(&values, &column.name)?;
                if !column.nullable && values.logical_null_count() > 0 {
                    return Err(SqlError::new(
                        SqlState::NOT_NULL_VIOLATION,
                        format!(
                            "null value in column \"{}\" of relation \"{}\" violates not-null constraint",
                            column.name, table.name
                        ),
                    )
                    .into_datafusion());
                }
                let seen = stored_values::stats_of(&values)?;
                let known = stats.remove(&column.id);
                let merged = match known {
                    Some(known) => merged_stats(known, seen, field.data_type())?,
                    None => seen,
                };
                stats.insert(column.id, merged);
                columns.push(values);
            }
            let nullable: Vec<_> =
                schema.fields().iter().map(|field| field.as_ref().clone().with_nullable(true)).collect();
            let schema = Arc::new(datafusion::arrow::datatypes::Schema::new(nullable));
            rows.extend(stored_values::cells_of(&RecordBatch::try_new(schema, columns)?)?);
        }
        let count = rows.len() as u64;
        let (id, name) = (table.id, table.name.clone());
        let kinds: HashMap<i64, DataType> = table
            .columns
            .iter()
            .zip(schema.fields())
            .map(|(column, field)| (column.id, field.data_type().clone()))
            .collect();
        transactions
            .change(|transaction| {
                let changes = transaction.changes_of(id);
                check_compaction(changes, false, &name)?;
                changes.inlined.extend(rows);
                for (column, seen) in stats {
                    let merged = match changes.inlined_stats.remove(&column) {
                        Some(known) => merged_stats(known, seen, &kinds[&column])?,
                        None => seen,
                    };
                    changes.inlined_stats.insert(column, merged);
                }
                Ok(())
            })
            .await?;
        Ok(count)
    }

    /// What deleting the rows at `places` comes to. Rows of data files that are few are told to the catalog,
    /// others get files.
    async fn deletes(
        &self,
        contents: &mut Contents,
        places: BTreeMap<RowSource, BTreeSet<i64>>,
        transactions: &Transactions,
        context: &TaskContext,
    ) -> Result<Deletes> {
        let table = self.target.table();
        let folder = self.target.state().table_path(table);
        let inline_max = inline_rows_max(self.target.state(), table);
        let in_files: usize = places
            .iter()
            .filter(|(source, _)| matches!(source, RowSource::File(_)))
            .map(|(_, rows)| rows.len())
            .sum();
        let mut deletes = Deletes::default();
        for (number, (source, rows)) in places.into_iter().enumerate() {
            let file = contents.files.iter().find(|file| file.source == source);
            match (source, file) {
                (RowSource::File(id), Some(file)) => {
                    let known = match file.deleted == DeletedRows::default() {
                        true => vec![],
                        false => read_deleted(&file.deleted, context).await?,
                    };
                    let all: BTreeSet<i64> = known.iter().copied().chain(rows.iter().copied()).collect();
                    if all.len() as i64 >= file.rows {
                        deletes.removed.insert(id);
                    } else if in_files <= inline_max && file.deleted.stored.is_none() {
                        deletes.files.insert(id, NewDeletes::Inline(rows));
                    } else {
                        // Who reads both adds them up, so none may be in both.
                        let listed = all.difference(&file.deleted_inline).copied().collect();
                        let made =
                            self.delete_file(number, file, &listed, &folder, transactions, context).await?;
                        deletes.files.insert(id, NewDeletes::File { file: made, positions: rows });
                    }
                }
                (RowSource::Added(at), Some(file)) => {
                    let all: BTreeSet<i64> = file.deleted.rows.iter().copied().chain(rows).collect();
                    let made = match all.len() as i64 >= file.rows {
                        true => None,
                        false => {
                            Some(self.delete_file(number, file, &all, &folder, transactions, context).await?)
                        }
                    };
                    deletes.added.insert(at, (all, made));
                }
                (RowSource::Inlined(version), _) => {
                    deletes.kept.extend(rows.into_iter().map(|row| (version, row)));
                }
                (RowSource::AddedInlined, _) => deletes.added_kept = rows,
                (RowSource::File(_) | RowSource::Added(_), None) => {
                    return Err(DataFusionError::Internal(
                        "rows of a file that the table does not have".to_string(),
                    ));
                }
            }
        }
        Ok(deletes)
    }

    async fn delete_file(
        &self,
        number: usize,
        file: &ScannedFile,
        rows: &BTreeSet<i64>,
        folder: &str,
        transactions: &Transactions,
        context: &TaskContext,
    ) -> Result<NewDeleteFile> {
        let name = format!("{}-{number}-delete.parquet", self.name);
        let location = format!("{folder}{name}");
        transactions.register_writer(&self.name, None).await?;
        transactions.will_write(location.clone()).await;
        let positions: Vec<i64> = rows.iter().copied().collect();
        let (bytes, footer_bytes) = write_delete_file(&location, &file.location, &positions, context).await?;
        Ok(NewDeleteFile {
            path: Location::relative(name),
            rows: positions.len() as i64,
            bytes,
            footer_bytes,
        })
    }

    /// What an INSERT OVERWRITE takes the place of: the table partitions that it has rows for, or all of a
    /// table without.
    fn replaced(&self, contents: &Contents, added: &[NewFile]) -> Result<Replaced> {
        let table = self.target.table();
        let is_divided = is_divided(table);
        if table.partition.is_empty() && !is_divided {
            return Ok(Replaced::all(contents));
        }
        // A range or list is replaced with all of its buckets.
        let key = |table_partition: Option<i64>, values: &[Option<String>]| {
            let is_bucket = |key: &PartitionKey| matches!(key.transform, Transform::Bucket(_));
            let values = table.partition.iter().zip(values);
            let values = values.filter(|(key, _)| !is_divided || !is_bucket(key));
            (
                table_partition.filter(|_| is_divided),
                values.map(|(_, value)| value.clone()).collect::<Vec<_>>(),
            )
        };
        let keys: BTreeSet<_> =
            added.iter().map(|file| key(partitions::of_file(&file.path), &file.partition_values)).collect();
        let has_kept =
            !contents.added_kept.is_empty() || contents.kept.iter().any(|kept| !kept.rows.is_empty());
        if has_kept && is_divided {
            let message = format!(
                "the catalog keeps rows of table \"{}\", which is divided by ranges or lists",
                table.name
            );
            return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message)
                .with_hint("OPTIMIZE writes them into the table partitions")
                .into_datafusion());
        }
        let next = partitions_of(table)?.map(|divided| divided.next);
        let mut replaced = Replaced::default();
        for file in &contents.files {
            if is_divided && file.table_partition.is_none() {
                if file.unplaced_before == next {
                    continue;
                }
                let message = format!("table \"{}\" has files that are in no table partition", table.name);
                return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message)
                    .with_hint("OPTIMIZE writes what they have into the table partitions")
                    .into_datafusion());
            }
            if !file.is_partitioned_as(table) {
                return Err(SqlError::new(
                    SqlState::FEATURE_NOT_SUPPORTED,
                    format!("table \"{}\" has files from before it was partitioned as it is", table.name),
                )
                .into_datafusion());
            }
            if keys.contains(&key(file.table_partition, &file.partition_values_now(table)?)) {
                replaced.take(file);
            }
        }
        if has_kept {
            replaced.take_kept(&self.target, contents, |values| keys.contains(&key(None, values)))?;
        }
        Ok(replaced)
    }

    /// Takes the files away that are in one table partition.
    pub(crate) async fn remove_partition(
        target: WarehouseTable,
        partition: i64,
        transactions: &Transactions,
    ) -> Result<()> {
        target.check_sees_all()?;
        let contents = target.contents().await?;
        let mut deletes = Deletes::default();
        for file in contents.of_partition(partition) {
            match file.source {
                RowSource::File(id) => drop(deletes.removed.insert(id)),
                RowSource::Added(at) => drop(deletes.added.insert(at, (BTreeSet::new(), None))),
                RowSource::Inlined(_) | RowSource::AddedInlined => {}
            }
        }
        let table = Arc::clone(target.table());
        transactions
            .change(|transaction| {
                let changes = transaction.changes_of(table.id);
                check_compaction(changes, false, &table.name)?;
                deletes.make(changes);
                Ok(())
            })
            .await
    }

    /// TRUNCATE: takes everything away.
    pub(crate) async fn truncate(target: WarehouseTable, transactions: &Transactions) -> Result<()> {
        target.check_sees_all()?;
        let contents = target.contents().await?;
        let replaced = Replaced::all(&contents);
        let table = Arc::clone(target.table());
        transactions
            .change(|transaction| {
                let changes = transaction.changes_of(table.id);
                check_compaction(changes, false, &table.name)?;
                replaced.make(changes, &table)
            })
            .await
    }
}

/// What the rows of a statement say.
#[derive(Default)]
struct Results {
    records: Vec<FileRecord>,
    places: BTreeMap<RowSource, BTreeSet<i64>>,
    /// Rows that were deleted and not written anew.
    deleted: u64,
}

impl Results {
    fn take(&mut self, batch: &RecordBatch, work: &Work) -> Result<()> {
        let places = match work {
            Work::Delete => 0,
            _ => {
                let records = batch.column(0).as_binary::<i32>();
                for record in records.iter().flatten() {
                    let record = FileRecord::decode(record)
                        .map_err(|error| DataFusionError::Internal(format!("record of a file: {error}")))?;
                    self.records.push(record);
                }
                let rewritten = batch.column(3).as_boolean();
                self.deleted += rewritten.iter().filter(|rewritten| *rewritten == Some(false)).count() as u64;
                1
            }
        };
        let files = batch.column(places).as_primitive::<Int64Type>();
        let rows = batch.column(places + 1).as_primitive::<Int64Type>();
        for at in (0..batch.num_rows()).filter(|at| files.is_valid(*at)) {
            let source = RowSource::decode(files.value(at));
            if !self.places.entry(source).or_default().insert(rows.value(at)) {
                return Err(SqlError::new(
                    SqlState::CARDINALITY_VIOLATION,
                    "the statement would change a row a second time",
                )
                .with_hint("more than one row of FROM or USING fits the same row of the table")
                .into_datafusion());
            }
        }
        Ok(())
    }
}

/// What deletes come to.
#[derive(Default)]
struct Deletes {
    files: BTreeMap<i64, NewDeletes>,
    removed: BTreeSet<i64>,
    added: BTreeMap<usize, (BTreeSet<i64>, Option<NewDeleteFile>)>,
    kept: BTreeSet<(i64, i64)>,
    added_kept: BTreeSet<i64>,
}

impl Deletes {
    fn make(self, changes: &mut TableChanges) {
        for id in self.removed {
            changes.deleted.remove(&id);
            changes.removed.insert(id);
        }
        for (id, deletes) in self.files {
            let merged = match (changes.deleted.remove(&id), deletes) {
                (Some(NewDeletes::Inline(known)), NewDeletes::Inline(rows)) => {
                    NewDeletes::Inline(known.into_iter().chain(rows).collect())
                }
                (
                    Some(NewDeletes::Inline(known) | NewDeletes::File { positions: known, .. }),
                    NewDeletes::File { file, positions },
                ) => NewDeletes::File { file, positions: known.into_iter().chain(positions).collect() },
                (_, deletes) => deletes,
            };
            changes.deleted.insert(id, merged);
        }
        changes.deleted_inlined.extend(self.kept);
        let mut place = -1;
        changes.inlined.retain(|_| {
            place += 1;
            !self.added_kept.contains(&place)
        });
        // From the last to the first, because those after one that goes move up.
        for (at, (rows, file)) in self.added.into_iter().rev() {
            match file {
                Some(file) => {
                    changes.added[at].deleted = rows;
                    changes.added[at].deletes = Some(file);
                }
                None => drop(changes.added.remove(at)),
            }
        }
    }
}

/// What is to be said of a transaction that compacts a table is another thing than what is to be said of one
/// that changes its rows.
///
/// Errors: a transaction does both to one table (25001).
fn check_compaction(changes: &TableChanges, is_compaction: bool, table: &str) -> Result<()> {
    let is_other = match is_compaction {
        true => !changes.compacts && !changes.is_empty(),
        false => changes.compacts,
    };
    if !is_other {
        return Ok(());
    }
    let message = format!("OPTIMIZE and other changes of table \"{table}\" cannot be in one transaction");
    Err(SqlError::new(SqlState::ACTIVE_TRANSACTION, message).into_datafusion())
}

/// `is_divided`: the first partition value is the table partition, which the file's path says.
fn new_file(record: FileRecord, is_divided: bool) -> NewFile {
    let rows = record.rows;
    let stats = record.stats.into_iter().map(|stats| {
        let known = ColumnStats {
            bytes: Some(stats.bytes),
            values: stats.nulls.map(|nulls| rows - nulls),
            nulls: stats.nulls,
            min: stats.min,
            max: stats.max,
            nan: stats.nan,
        };
        (stats.column, known)
    });
    NewFile {
        path: Location::relative(record.path),
        rows,
        bytes: record.bytes,
        footer_bytes: record.footer_bytes,
        partition_values: record
            .partition
            .into_iter()
            .skip(usize::from(is_divided))
            .map(|value| value.value)
            .collect(),
        stats: stats.collect(),
        deleted: BTreeSet::new(),
        deletes: None,
    }
}

fn merged_stats(a: ColumnStats, b: ColumnStats, kind: &DataType) -> Result<ColumnStats> {
    let sum = |a: Option<i64>, b: Option<i64>| Some(a? + b?);
    let best = |a: Option<String>, b: Option<String>, greater: bool| -> Result<Option<String>> {
        let (Some(a), Some(b)) = (&a, &b) else {
            return Ok(a.or(b));
        };
        let order = stored_values::parse_one(a, kind)?.partial_cmp(&stored_values::parse_one(b, kind)?);
        let a_wins = order.is_none_or(|order| order.is_gt() == greater);
        Ok(Some(if a_wins { a.clone() } else { b.clone() }))
    };
    Ok(ColumnStats {
        bytes: None,
        values: sum(a.values, b.values),
        nulls: sum(a.nulls, b.nulls),
        min: best(a.min, b.min, false)?,
        max: best(a.max, b.max, true)?,
        nan: match (a.nan, b.nan) {
            (Some(a), Some(b)) => Some(a || b),
            _ => None,
        },
    })
}
