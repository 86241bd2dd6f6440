//! Statements that write rows: their plans, and the changes that result from their rows.

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
use harrier_exec::data_files::{
    DeletedRows, FILE_COLUMN, FileRecord, PartitionFolder, ROW_COLUMN, ReplacedFiles, WriteFormat, WriteSpec,
    check_catalog_years, read_deleted, write_delete_file,
};
use harrier_exec::distribution::logical_planner::WriteFiles;
use harrier_exec::formats::interval_encoding::round_to_stored;
use harrier_planner::binder::merge::{self, IS_WRITTEN};
use harrier_planner::binder::on_conflict::{inserted_rows, map_inserted};
use harrier_sqlstate::IntoDataFusionError;
use prost::Message;

use crate::types::assignment;
use crate::types::columns::{file_schema_of, has_foreign_buckets, schema_of};
use crate::warehouse::access::dml;
use crate::warehouse::dml::overwrite::Removal;
use crate::warehouse::dml::partition_keys::{folder_name, key_column, key_value};
use crate::warehouse::table::file_shape::file_shape;
use crate::warehouse::table::partitions::{self, NoPartition, has_table_partitions, partitions_of};
use crate::warehouse::table::scanned_file::{RowSource, ScannedFile};
use crate::warehouse::table::{Contents, WarehouseTable, stored_values};
use crate::warehouse::transaction::Transactions;

/// Inserts of up to this many rows are inlined in the catalog instead of a data file, unless the table's
/// option says otherwise.
const INLINE_ROWS_MAX: usize = 10;

/// A write whose plan has yet to run, and which is applied to its table afterwards.
#[derive(Debug)]
pub(crate) struct PendingWrite {
    target: WarehouseTable,
    work: Work,
    /// The writer's name in file names.
    name: String,
    count: Count,
}

#[derive(Debug, PartialEq)]
enum Work {
    /// Inline the rows in the catalog.
    Inline,
    /// Add the written files; delete replaced rows.
    Files { overwrite: bool },
    /// Delete rows by position.
    Delete,
    /// Replace the source files by files with the same rows.
    Compact,
}

/// What the statement's tag counts.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Count {
    Written,
    Positions,
    /// MERGE: both, without counting updated rows twice.
    Merged,
}

/// The rows of a statement that writes, before the write.
pub(crate) struct RowChanges {
    /// INSERT: the table's columns. UPDATE and MERGE: the table's columns, then whether the row is written,
    /// and the position of the row it replaces. DELETE: the position. With RETURNING, DELETE has the table's
    /// columns before the position, and MERGE has the source's columns at the end.
    pub rows: LogicalPlan,
    pending: PendingWrite,
}

/// A planned statement that writes rows.
pub(crate) struct Dml {
    pub plan: LogicalPlan,
    pub pending: PendingWrite,
}

impl Dml {
    /// Plans `dml` if its target is a warehouse table. `inserted`: an INSERT's column list, if it has one.
    ///
    /// Errors: those of [`RowChanges::of`].
    pub(crate) fn of(dml: &DmlStatement, inserted: Option<&[String]>) -> Result<Option<Self>> {
        RowChanges::of(dml, inserted, false)?.map(RowChanges::into_write).transpose()
    }

    /// Plans an insert of the rows of `input`, which has the table's columns in their order.
    ///
    /// Errors: those of [`RowChanges::insert`].
    pub(crate) fn insert(target: WarehouseTable, input: LogicalPlan, op: InsertOp) -> Result<Self> {
        RowChanges::insert(target, input, op)?.into_write()
    }

    /// Plans a compaction of `sources` into as few files as possible.
    pub(crate) fn compact(target: WarehouseTable, sources: BTreeSet<RowSource>) -> Result<Self> {
        let target = target.with_sources(sources);
        let source = provider_as_source(Arc::new(target.clone()));
        let input = LogicalPlanBuilder::scan(target.table().name.as_str(), source, None)?.build()?;
        let pending = PendingWrite::new(target, Work::Compact, Count::Written);
        let plan = pending.write(input, false)?;
        Ok(Self { plan, pending })
    }

    /// Plans a write of the rows of `input` into files of `target`, without row checks; for
    /// [`PendingWrite::files`].
    pub(crate) fn rewrite(target: WarehouseTable, input: LogicalPlan) -> Result<Self> {
        let pending = PendingWrite::new(target, Work::Files { overwrite: false }, Count::Written);
        let plan = pending.write(input, false)?;
        Ok(Self { plan, pending })
    }

    /// Plans a delete of the rows of `target` for which `predicate` is true.
    pub(crate) fn delete_where(target: WarehouseTable, predicate: Expr) -> Result<Self> {
        let source = target.with_positions();
        let rows = LogicalPlanBuilder::scan(target.table().name.as_str(), source, None)?;
        RowChanges::delete_rows(target, rows.filter(predicate)?.build()?, false)?.into_write()
    }
}

impl RowChanges {
    /// The row changes of `dml` if its target is a warehouse table. `inserted`: an INSERT's column list, if
    /// it has one; `returns`: whether columns for RETURNING are added.
    ///
    /// Errors: unsupported, or not allowed (42501); the target is read AS OF an earlier snapshot (42809).
    pub(crate) fn of(dml: &DmlStatement, inserted: Option<&[String]>, returns: bool) -> Result<Option<Self>> {
        let Ok(provider) = source_as_provider(&dml.target) else {
            return Ok(None);
        };
        let Some(target) = provider.downcast_ref::<WarehouseTable>() else {
            return Ok(None);
        };
        dml::check(target, dml, inserted)?;
        if target.is_as_of() {
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
            // TRUNCATE is handled elsewhere.
            _ => return Ok(None),
        }))
    }

    /// Inserts the rows of `input`, which has the table's columns in their order.
    ///
    /// Errors: an unsupported kind of INSERT (0A000); an INSERT OVERWRITE by a role with row filters on the
    /// table (42501).
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
            target.check_all_visible()?;
        }
        let table = target.table();
        let few = rows_of_values(&input).is_some_and(|rows| rows <= inline_rows_max(target.state(), table));
        let input = Self::checked_rows(&target, input)?;
        // Inlined rows have no bucket, so scans would have to redistribute them. Rows of ranges and lists are
        // checked when they are written to files.
        let is_bucketed = table.partition.iter().any(|key| matches!(key.transform, Transform::Bucket(_)));
        if few && !overwrite && !is_bucketed && !has_table_partitions(table) && target.can_inline() {
            let pending = PendingWrite::new(target, Work::Inline, Count::Written);
            return Ok(Self { rows: input, pending });
        }
        let pending = PendingWrite::new(target, Work::Files { overwrite }, Count::Written);
        Ok(Self { rows: input, pending })
    }

    /// The rows of an INSERT with casts to the declared types and checks, before those of ON CONFLICT are
    /// found.
    fn checked_rows(target: &WarehouseTable, input: LogicalPlan) -> Result<LogicalPlan> {
        map_inserted(input, |rows| {
            row_checks::add_checks(target, assignment::assign_rows(target.table(), rows)?, None)
        })
    }

    fn delete(
        target: WarehouseTable,
        input: LogicalPlan,
        name: &TableReference,
        returns: bool,
    ) -> Result<Self> {
        let input = replace_target_scan(input, name, &target.with_positions())?;
        Self::delete_rows(target, input, returns)
    }

    /// `input` has the rows with their positions.
    fn delete_rows(target: WarehouseTable, input: LogicalPlan, returns: bool) -> Result<Self> {
        let own = if returns { target.table().columns.len() } else { 0 };
        let own = input.schema().columns().into_iter().take(own).map(Expr::Column);
        let rows: Vec<Expr> = own.chain([FILE_COLUMN, ROW_COLUMN].map(column)).collect();
        let rows = LogicalPlanBuilder::from(input).project(rows)?.build()?;
        let pending = PendingWrite::new(target, Work::Delete, Count::Positions);
        Ok(Self { rows, pending })
    }

    fn update(target: WarehouseTable, input: LogicalPlan, name: &TableReference) -> Result<Self> {
        let LogicalPlan::Projection(projection) = input else {
            return Err(DataFusionError::Internal("UPDATE has no values".to_string()));
        };
        let inner =
            replace_target_scan(LogicalPlan::clone(&projection.input), name, &target.with_positions())?;
        let mark = lit(true).alias("_harrier_write");
        // Unqualified, whatever rules do to the columns.
        let positions = [FILE_COLUMN, ROW_COLUMN]
            .map(|column| Expr::Column(ColumnName::new_unqualified(column)).alias(column));
        let mut values = projection.expr.clone();
        assignment::assign_values(target.table(), name, &mut values);
        let expressions: Vec<Expr> = values.into_iter().chain([mark]).chain(positions).collect();
        let input = LogicalPlan::Projection(Projection::try_new(expressions, Arc::new(inner))?);
        let rows = row_checks::add_checks(&target, input, None)?;
        let pending = PendingWrite::new(target, Work::Files { overwrite: false }, Count::Positions);
        Ok(Self { rows, pending })
    }

    fn merge(
        target: WarehouseTable,
        source: LogicalPlan,
        name: &TableReference,
        merge: &MergeIntoOp,
        returns: bool,
    ) -> Result<Self> {
        let is_insert = inserted_rows(&source).is_some();
        let source = if is_insert { Self::checked_rows(&target, source)? } else { source };
        let changed = merge::Target {
            name,
            schema: schema_of(&target.table().columns)?,
            rows: target.with_positions(),
            places: &[FILE_COLUMN, ROW_COLUMN],
            default: &|column| {
                let default = target.get_column_default(column)?;
                Some(assignment::assign_default(target.table(), column, default))
            },
            returns: returns && !is_insert,
        };
        let input = changed.plan(source, &assignment::assign_merge(target.table(), merge))?;
        let rows = row_checks::add_checks(&target, input, Some(column(IS_WRITTEN)))?;
        let pending = PendingWrite::new(target, Work::Files { overwrite: false }, Count::Merged);
        Ok(Self { rows, pending })
    }

    /// Plans the write of these rows.
    pub(crate) fn into_write(self) -> Result<Dml> {
        let Self { rows, pending } = self;
        let plan = match pending.work {
            Work::Inline | Work::Delete => rows,
            Work::Files { .. } | Work::Compact => pending.write(rows, pending.count != Count::Written)?,
        };
        Ok(Dml { plan, pending })
    }

    /// Replaces the rows by `rows`, which are the computed rows without the columns for RETURNING only.
    pub(crate) fn with_rows(self, rows: LogicalPlan) -> Self {
        Self { rows, ..self }
    }

    /// Whether the rows are a VALUES list.
    pub(crate) fn is_values_list(&self) -> bool {
        rows_of_values(&self.rows).is_some()
    }

    /// Values of a column as they will be stored.
    ///
    /// Errors: the table cannot store them.
    pub(crate) fn stored_values(&self, at: usize, values: &ArrayRef) -> Result<ArrayRef> {
        match self.pending.work {
            Work::Delete => Ok(Arc::clone(values)),
            _ => round_to_stored(values, &self.pending.target.table().columns[at].name),
        }
    }
}

pub(crate) fn column(name: &str) -> Expr {
    Expr::Column(ColumnName::new_unqualified(name))
}

/// The number of rows of an INSERT with a VALUES list, of which ON CONFLICT may leave out some.
pub(crate) fn rows_of_values(plan: &LogicalPlan) -> Option<usize> {
    match inserted_rows(plan).unwrap_or(plan) {
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

/// Replaces the scan of the changed table in `plan` by `source`, which adds row positions.
pub(crate) fn replace_target_scan(
    plan: LogicalPlan,
    name: &TableReference,
    source: &Arc<dyn TableSource>,
) -> Result<LogicalPlan> {
    let mut found = false;
    let replaced = plan.transform_down(|plan| match &plan {
        // The first scan is the target's: FROM may name the table again.
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

impl PendingWrite {
    fn new(target: WarehouseTable, work: Work, count: Count) -> Self {
        let name = writer_name(target.state().warehouse.as_deref());
        Self { target, work, name, count }
    }

    /// Plans the write of the rows of `input` to files; with `replaces`, the input ends with a flag and row
    /// positions.
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
            // Rows of other programs may be in no table partition; compaction keeps them.
            let id = match self.work {
                // Marked with the next partition id, so that they are not rewritten before a new table
                // partition may exist for them.
                Work::Compact => {
                    let id = partitions::of_rows(table, &divided, value, is_written, NoPartition::Null)?;
                    coalesce(vec![id, lit(-divided.next)])
                }
                _ => {
                    let readable = self.target.viewer().columns(self.target.object(), Privilege::Select);
                    let unplaced = NoPartition::Error { shows_value: readable.has(divided.column) };
                    partitions::of_rows(table, &divided, value, is_written, unplaced)?
                }
            };
            // DuckDB merges files within a folder and knows only the folders of its own keys, so this key has
            // no folder.
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
            let value = key_value(Expr::Column(columns[place].clone()), key.transform);
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

    /// The changed table, and the catalog state in which it was resolved.
    pub(crate) fn table(&self) -> (&State, &Arc<Table>) {
        (self.target.state(), self.target.table())
    }

    /// Registers the writer. To be called before the statement's plan runs.
    ///
    /// Errors: those of [`Transactions::register_writer`].
    pub(crate) async fn begin(&self, transactions: &Transactions) -> Result<()> {
        match self.work {
            Work::Files { .. } | Work::Compact => {
                let folder = self.target.state().table_path(self.target.table());
                transactions.register_writer(&self.name, Some(folder)).await
            }
            // Rows go into the catalog, or into delete files that register themselves.
            Work::Inline | Work::Delete => Ok(()),
        }
    }

    /// Applies the changes that result from the statement's rows; returns the count for its tag.
    pub(crate) async fn apply(
        self,
        batches: Vec<RecordBatch>,
        transactions: &Transactions,
        context: &TaskContext,
    ) -> Result<u64> {
        if self.work == Work::Inline {
            return self.inline(batches, transactions).await;
        }
        let folder = self.target.state().table_path(self.target.table());
        let mut results = Results::default();
        for batch in &batches {
            results.add(batch, &self.work)?;
        }
        let written: Vec<String> =
            results.records.iter().map(|record| format!("{folder}{}", record.path)).collect();
        transactions.record_files(&self.name, written).await;
        let positions: u64 = results.positions.values().map(|rows| rows.len() as u64).sum();
        let rows: u64 = results.records.iter().map(|record| record.rows as u64).sum();
        let count = match self.count {
            Count::Written => rows,
            Count::Positions => positions,
            Count::Merged => rows + results.deleted,
        };
        let overwrite = self.work == Work::Files { overwrite: true };
        if results.positions.is_empty()
            && results.records.is_empty()
            && !overwrite
            && self.work != Work::Compact
        {
            return Ok(count);
        }
        let mut contents = match overwrite || !results.positions.is_empty() {
            true => self.target.contents().await?,
            false => Contents::default(),
        };
        let deletes = self
            .deletes(&mut contents, std::mem::take(&mut results.positions), transactions, context)
            .await?;
        let has_table_partitions = has_table_partitions(self.target.table());
        let added: Vec<NewFile> =
            results.records.into_iter().map(|record| new_file(record, has_table_partitions)).collect();
        let is_compaction = self.work == Work::Compact;
        let replaced = match self.work {
            Work::Compact => Some(Removal::same_rows(&self.target.contents().await?)),
            Work::Files { overwrite: true } => Some(self.overwrite_removal(&contents, &added)?),
            _ => None,
        };
        let table = Arc::clone(self.target.table());
        transactions
            .change(|transaction| {
                let changes = transaction.changes_of(table.id);
                check_compaction(changes, is_compaction, &table.name)?;
                let forgets = !deletes.added_inlined.is_empty();
                deletes.apply(changes);
                if forgets {
                    // Bounds of deleted rows would otherwise stay forever.
                    changes.inlined_stats = stored_values::stats_of_cells(&changes.inlined, &table.columns)?;
                }
                if let Some(replaced) = replaced {
                    replaced.apply(changes, &table)?;
                }
                changes.added.extend(added);
                Ok(())
            })
            .await?;
        Ok(count)
    }

    /// The files in the statement's result rows. The transaction owns them, but they are not part of its
    /// changes yet.
    pub(crate) async fn files(
        self,
        batches: Vec<RecordBatch>,
        transactions: &Transactions,
    ) -> Result<Vec<NewFile>> {
        let folder = self.target.state().table_path(self.target.table());
        let mut results = Results::default();
        for batch in &batches {
            results.add(batch, &self.work)?;
        }
        let written: Vec<String> =
            results.records.iter().map(|record| format!("{folder}{}", record.path)).collect();
        transactions.record_files(&self.name, written).await;
        let has_table_partitions = has_table_partitions(self.target.table());
        Ok(results.records.into_iter().map(|record| new_file(record, has_table_partitions)).collect())
    }

    async fn inline(self, batches: Vec<RecordBatch>, transactions: &Transactions) -> Result<u64> {
        let table = self.target.table();
        let schema = schema_of(&table.columns)?;
        let mut rows = Vec::new();
        let mut stats: BTreeMap<i64, ColumnStats> = BTreeMap::new();
        for batch in batches {
            let mut columns = Vec::with_capacity(table.columns.len());
            for ((column, field), values) in table.columns.iter().zip(schema.fields()).zip(batch.columns()) {
                let exact = CastOptions { safe: false, ..CastOptions::default() };
                let values = cast_with_options(values, field.data_type(), &exact)?;
                // The same rounding as in a file, so that moving rows into one changes nothing.
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
                    Some(known) => merge_stats(known, seen, field.data_type())?,
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
                        Some(known) => merge_stats(known, seen, &kinds[&column])?,
                        None => seen,
                    };
                    changes.inlined_stats.insert(column, merged);
                }
                Ok(())
            })
            .await?;
        Ok(count)
    }

    /// Computes the deletes of the rows at `positions`. Few deletes of data files are inlined in the catalog,
    /// others get delete files.
    async fn deletes(
        &self,
        contents: &mut Contents,
        positions: BTreeMap<RowSource, BTreeSet<i64>>,
        transactions: &Transactions,
        context: &TaskContext,
    ) -> Result<Deletes> {
        let table = self.target.table();
        let folder = self.target.state().table_path(table);
        let inline_max = inline_rows_max(self.target.state(), table);
        let in_files: usize = positions
            .iter()
            .filter(|(source, _)| matches!(source, RowSource::File(_)))
            .map(|(_, rows)| rows.len())
            .sum();
        let mut deletes = Deletes::default();
        for (number, (source, rows)) in positions.into_iter().enumerate() {
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
                        // Readers add both up, so no row may be in both.
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
                    deletes.inlined.extend(rows.into_iter().map(|row| (version, row)));
                }
                (RowSource::AddedInlined, _) => deletes.added_inlined = rows,
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
        transactions.record_file(location.clone()).await;
        let positions: Vec<i64> = rows.iter().copied().collect();
        let (bytes, footer_bytes) = write_delete_file(&location, &file.location, &positions, context).await?;
        Ok(NewDeleteFile {
            path: Location::relative(name),
            rows: positions.len() as i64,
            bytes,
            footer_bytes,
        })
    }

    /// What an INSERT OVERWRITE replaces: the table partitions for which it has rows, or everything if the
    /// table is not partitioned.
    fn overwrite_removal(&self, contents: &Contents, added: &[NewFile]) -> Result<Removal> {
        let table = self.target.table();
        let has_table_partitions = has_table_partitions(table);
        if table.partition.is_empty() && !has_table_partitions {
            return Ok(Removal::all(contents));
        }
        // A range or list partition is replaced with all its buckets.
        let key = |table_partition: Option<i64>, values: &[Option<String>]| {
            let is_bucket = |key: &PartitionKey| matches!(key.transform, Transform::Bucket(_));
            let values = table.partition.iter().zip(values);
            let values = values.filter(|(key, _)| !has_table_partitions || !is_bucket(key));
            (
                table_partition.filter(|_| has_table_partitions),
                values.map(|(_, value)| value.clone()).collect::<Vec<_>>(),
            )
        };
        let keys: BTreeSet<_> =
            added.iter().map(|file| key(partitions::of_file(&file.path), &file.partition_values)).collect();
        let has_kept =
            !contents.added_inlined.is_empty() || contents.inlined.iter().any(|kept| !kept.rows.is_empty());
        if has_kept && has_table_partitions {
            let message = format!(
                "the catalog keeps rows of table \"{}\", which is divided by ranges or lists",
                table.name
            );
            return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message)
                .with_hint("OPTIMIZE writes them into the table partitions")
                .into_datafusion());
        }
        let next = partitions_of(table)?.map(|divided| divided.next);
        let mut replaced = Removal::default();
        for file in &contents.files {
            if has_table_partitions && file.table_partition.is_none() {
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
                replaced.add_file(file);
            }
        }
        if has_kept {
            replaced.add_inlined(&self.target, contents, |values| keys.contains(&key(None, values)))?;
        }
        Ok(replaced)
    }

    /// Removes the files of one table partition.
    pub(crate) async fn remove_partition(
        target: WarehouseTable,
        partition: i64,
        transactions: &Transactions,
    ) -> Result<()> {
        target.check_all_visible()?;
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
                deletes.apply(changes);
                Ok(())
            })
            .await
    }

    /// TRUNCATE: removes all rows.
    pub(crate) async fn truncate(target: WarehouseTable, transactions: &Transactions) -> Result<()> {
        target.check_all_visible()?;
        let contents = target.contents().await?;
        let replaced = Removal::all(&contents);
        let table = Arc::clone(target.table());
        transactions
            .change(|transaction| {
                let changes = transaction.changes_of(table.id);
                check_compaction(changes, false, &table.name)?;
                replaced.apply(changes, &table)
            })
            .await
    }
}

/// The collected result rows of a write plan.
#[derive(Default)]
struct Results {
    records: Vec<FileRecord>,
    positions: BTreeMap<RowSource, BTreeSet<i64>>,
    /// Rows that were deleted and not rewritten.
    deleted: u64,
}

impl Results {
    fn add(&mut self, batch: &RecordBatch, work: &Work) -> Result<()> {
        let positions = match work {
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
        let files = batch.column(positions).as_primitive::<Int64Type>();
        let rows = batch.column(positions + 1).as_primitive::<Int64Type>();
        for at in (0..batch.num_rows()).filter(|at| files.is_valid(*at)) {
            let source = RowSource::decode(files.value(at));
            if !self.positions.entry(source).or_default().insert(rows.value(at)) {
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

/// Deletes by kind of row source.
#[derive(Default)]
struct Deletes {
    files: BTreeMap<i64, NewDeletes>,
    removed: BTreeSet<i64>,
    added: BTreeMap<usize, (BTreeSet<i64>, Option<NewDeleteFile>)>,
    inlined: BTreeSet<(i64, i64)>,
    added_inlined: BTreeSet<i64>,
}

impl Deletes {
    fn apply(self, changes: &mut TableChanges) {
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
        changes.deleted_inlined.extend(self.inlined);
        let mut place = -1;
        changes.inlined.retain(|_| {
            place += 1;
            !self.added_inlined.contains(&place)
        });
        // From last to first, since removal shifts later indexes.
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

/// The catalog records a compaction differently from a change of rows.
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

/// `has_table_partitions`: the first partition value is the table partition, which is in the file's path
/// instead.
fn new_file(record: FileRecord, has_table_partitions: bool) -> NewFile {
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
            .skip(usize::from(has_table_partitions))
            .map(|value| value.value)
            .collect(),
        stats: stats.collect(),
        deleted: BTreeSet::new(),
        deletes: None,
    }
}

fn merge_stats(a: ColumnStats, b: ColumnStats, kind: &DataType) -> Result<ColumnStats> {
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
