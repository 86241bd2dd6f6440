//! A warehouse table in a statement's snapshot: its data files, with the transaction's changes.

pub(crate) mod file_shape;
pub(crate) mod partitions;
pub(crate) mod prune;
pub(crate) mod row_filter;
pub(crate) mod scanned_file;
pub(crate) mod statistics;
pub(crate) mod stored_values;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use datafusion::arrow::array::{Int64Array, RecordBatch};
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef};
use datafusion::catalog::memory::MemorySourceConfig;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::{ScalarValue, internal_datafusion_err};
use datafusion::config::TableParquetOptions;
use datafusion::datasource::file_format::FileFormat;
use datafusion::datasource::file_format::parquet::ParquetFormat;
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::{FileGroup, FileScanConfigBuilder, ParquetSource};
use datafusion::datasource::table_schema::TableSchema;
use datafusion::datasource::{TableType, provider_as_source};
use datafusion::error::Result;
use datafusion::execution::SessionState;
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown, TableSource, cast, lit};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{CastExpr, Column as Place, Literal};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::empty::EmptyExec;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::union::UnionExec;
use futures::FutureExt;
use futures::future::BoxFuture;
use harrier_catalog::access::{Columns, Object, Privilege};
use harrier_catalog::files::{DataFile, InlinedRows, NewDeletes, NewFile, TableChanges, TableData};
use harrier_catalog::state::{Column, ColumnId, DefaultValue, Location, SnapshotId, State, Table};
use harrier_catalog::types::ColumnType;
use harrier_catalog::{Analysis, Catalog, Histograms, StatsRef, TableSize};
use harrier_error::{SqlError, SqlState};
use harrier_exec::data_files::location::{Folder, locate};
use harrier_exec::data_files::{DeletedRows, FILE_COLUMN, LiveRowsExec, ROW_COLUMN, StoredDeletes};
use harrier_exec::formats::interval_encoding::decode_column;
use harrier_planner::cardinality::filter_selectivity::TableHistograms;
use harrier_sqlstate::IntoDataFusionError;

use crate::planning::stored_sql::{self, SessionUsers};
use crate::types::columns::{has_stats, schema_of, stored_schema_of, type_of};
use crate::warehouse::access::Viewer;
use crate::warehouse::explain;
use crate::warehouse::keys::{self, RowCheck};
use crate::warehouse::sequences::{SEQUENCE_TAG, next_of};
use crate::warehouse::snapshot::StatementSnapshot;
use crate::warehouse::table::prune::Candidates;
use crate::warehouse::table::scanned_file::{RowSource, ScannedFile, StatsByFile};
use crate::warehouse::table::statistics::statistics_of;

/// More column statistics of files than this are not loaded merely to estimate sizes.
const STATS_MAX: usize = 20_000;

/// A table in the snapshot that a statement reads.
#[derive(Debug, Clone)]
pub(crate) struct WarehouseTable {
    catalog: Catalog,
    state: Arc<State>,
    table: Arc<Table>,
    changes: Option<TableChanges>,
    /// With row position columns, if `positions` is set.
    schema: SchemaRef,
    positions: bool,
    defaults: BTreeMap<String, Expr>,
    /// Restricts the scan to these sources.
    only_sources: Option<Arc<BTreeSet<RowSource>>>,
    /// Restricts the scan to a sample of this share of its files.
    sample: Option<f64>,
    viewer: Viewer,
    /// The columns that the viewer may read.
    readable: Columns,
    /// The row filter; `None` if all rows are visible.
    visible: Option<Expr>,
    /// The CHECK constraints, or the error of planning them.
    checks: Arc<Result<Vec<RowCheck>>>,
    /// Read AS OF an earlier snapshot, and therefore not writable.
    is_as_of: bool,
}

impl WarehouseTable {
    /// Errors: an unsupported column type (0A000); a row filter that no longer fits the table (42501).
    pub(crate) fn try_new(
        session: SessionState,
        snapshot: &StatementSnapshot,
        table: Arc<Table>,
    ) -> Result<Self> {
        let (Some(catalog), Some(state)) = (&snapshot.catalog, &snapshot.state) else {
            return Err(datafusion::error::DataFusionError::Internal("no warehouse".to_string()));
        };
        let schema = schema_of(&table.columns)?;
        let mut defaults = BTreeMap::new();
        for column in &table.columns {
            if let Some(uuid) = column.tags.get(SEQUENCE_TAG) {
                defaults.insert(column.name.clone(), next_of(&session, uuid)?);
            } else if let Some(default) = &column.default {
                defaults.insert(column.name.clone(), default_of(&session, column, default, &snapshot.asker)?);
            }
        }
        let viewer = snapshot.viewer.clone();
        let readable = viewer.columns(Object::Table(table.id), Privilege::Select);
        let visible = match viewer.row_filters(table.id) {
            Some(predicates) => {
                Some(row_filter::any_of(&session, &table, &schema, &predicates, &snapshot.asker)?)
            }
            None => None,
        };
        let checks = Arc::new(keys::checks_of(&session, &table, &schema, &snapshot.asker));
        Ok(Self {
            catalog: catalog.clone(),
            state: Arc::clone(state),
            checks,
            changes: snapshot.data.get(&table.id).cloned(),
            table,
            schema,
            positions: false,
            defaults,
            only_sources: None,
            sample: None,
            viewer,
            readable,
            visible,
            is_as_of: false,
        })
    }

    /// The same table, found by AS OF.
    pub(crate) fn into_as_of(self) -> Self {
        Self { is_as_of: true, ..self }
    }

    /// Whether it was found by AS OF.
    pub(crate) fn is_as_of(&self) -> bool {
        self.is_as_of
    }

    /// The role as which it is read and changed.
    pub(crate) fn viewer(&self) -> &Viewer {
        &self.viewer
    }

    /// The columns that the viewer may read.
    pub(crate) fn readable(&self) -> &Columns {
        &self.readable
    }

    /// The row filter over the table's columns; `None` if all rows are visible.
    pub(crate) fn visible(&self) -> Option<&Expr> {
        self.visible.as_ref()
    }

    /// The CHECK constraints.
    ///
    /// Errors: one can no longer be planned, with the cause's code.
    pub(crate) fn checks(&self) -> Result<&[RowCheck]> {
        match self.checks.as_ref() {
            Ok(checks) => Ok(checks),
            Err(error) => {
                let message =
                    format!("a check constraint of table \"{}\" cannot be computed", self.table.name);
                Err(SqlError::new(harrier_sqlstate::of(error), message)
                    .with_detail(error.to_string())
                    .into_datafusion())
            }
        }
    }

    /// The table's object, for privileges.
    pub(crate) fn object(&self) -> Object {
        Object::Table(self.table.id)
    }

    pub(crate) fn table(&self) -> &Arc<Table> {
        &self.table
    }

    /// Whether rows of the table can be inlined in the catalog.
    pub(crate) fn can_inline(&self) -> bool {
        stored_values::can_inline(&self.table.columns) && self.catalog.can_inline(&self.table)
    }

    pub(crate) fn state(&self) -> &Arc<State> {
        &self.state
    }

    /// Adds the columns [`FILE_COLUMN`] and [`ROW_COLUMN`] after the table's own, for a statement that
    /// changes rows. Changed rows are read with all columns, whatever columns the statement may read.
    pub(crate) fn with_positions(&self) -> Arc<dyn TableSource> {
        let fields: Vec<FieldRef> = self.schema.fields().iter().cloned().chain(position_fields()).collect();
        let schema = Arc::new(Schema::new(fields));
        let table = Self { schema, positions: true, readable: Columns::All, ..self.clone() };
        provider_as_source(Arc::new(table))
    }

    /// The table with the rows that row filters hide from the viewer. `reads_all`: whatever columns the
    /// viewer may read.
    pub(crate) fn with_all_rows(&self, reads_all: bool) -> Arc<dyn TableSource> {
        let readable = if reads_all { Columns::All } else { self.readable.clone() };
        provider_as_source(Arc::new(Self { visible: None, readable, ..self.clone() }))
    }

    /// Restricts the table to some of its files, or inlined rows of some schema versions.
    pub(crate) fn with_sources(&self, sources: BTreeSet<RowSource>) -> Self {
        Self { only_sources: Some(Arc::new(sources)), ..self.clone() }
    }

    /// Restricts the table to a sample of its files' row groups, of about this share, plus all inlined rows.
    pub(crate) fn with_sample(&self, share: f64) -> Self {
        Self { sample: Some(share), ..self.clone() }
    }

    /// The number of rows, and the bytes of its files.
    pub(crate) async fn size(&self) -> Result<TableSize> {
        let contents = self.contents().await?;
        let kept: usize = contents.inlined.iter().map(|kept| kept.rows.len()).sum();
        let kept = (kept + contents.added_inlined.len()) as i64;
        Ok(TableSize {
            rows: contents.files.iter().map(ScannedFile::live_rows).sum::<i64>() + kept,
            bytes: contents.files.iter().map(|file| file.bytes).sum(),
        })
    }

    /// All sources of the table's rows.
    pub(crate) async fn contents(&self) -> Result<Contents> {
        let committed = self.load_committed().await?;
        let changes = self.changes();
        let files = self.sources(&committed, &changes)?;
        let folder = self.state.table_path(&self.table);
        let mut contents = self.inlined_contents(&committed, &changes);
        contents.files = files.iter().map(|file| self.scanned_file(file, &folder, &changes)).collect();
        Ok(contents)
    }

    /// The inlined rows, committed or added by the transaction.
    fn inlined_contents(&self, committed: &Committed, changes: &TableChanges) -> Contents {
        let mut contents = Contents::default();
        if !changes.removed_inlined {
            contents.inlined = committed.data.inlined.clone();
            for kept in &mut contents.inlined {
                remove_deleted(kept, changes);
            }
        }
        if let Some(only) = &self.only_sources {
            contents.inlined.retain(|kept| only.contains(&RowSource::Inlined(kept.schema_version)));
        }
        if self.only_sources.as_ref().is_none_or(|only| only.contains(&RowSource::AddedInlined)) {
            contents.added_inlined = changes.inlined.clone();
        }
        contents
    }

    /// The transaction's changes of the table.
    fn changes(&self) -> Cow<'_, TableChanges> {
        self.changes.as_ref().map_or_else(|| Cow::Owned(TableChanges::default()), Cow::Borrowed)
    }

    /// Loads the table's data in the snapshot.
    async fn load_committed(&self) -> Result<Committed> {
        let own = Arc::new(self.table.columns.clone());
        if self.table.id < 0 {
            return Ok(Committed { data: Arc::default(), versions: Vec::new(), columns: Vec::new(), own });
        }
        let snapshot = self.state.snapshot;
        let data = self.catalog.data_in(&self.state, &self.table).await.map_err(explain)?;
        let versions = self.catalog.column_versions(self.table.id, snapshot).await.map_err(explain)?;
        let mut columns: Vec<Option<Arc<Vec<Column>>>> = vec![None; versions.len() + 1];
        for file in data.files.iter() {
            let known = &mut columns[version_at(&versions, file.begin)];
            if known.is_none() {
                let columns = self.catalog.columns_at(self.table.id, file.begin).await.map_err(explain)?;
                // Files with equal columns are scanned together; sharing the `Arc` makes the comparison
                // cheap.
                *known = Some(if columns == *own { Arc::clone(&own) } else { Arc::new(columns) });
            }
        }
        Ok(Committed { data, versions, columns, own })
    }

    /// Lists every file that rows are read from.
    ///
    /// Errors: an unsupported file.
    fn sources<'a>(&self, committed: &'a Committed, changes: &'a TableChanges) -> Result<Vec<Source<'a>>> {
        let is_wanted = |source| self.only_sources.as_ref().is_none_or(|only| only.contains(&source));
        let mut all = Vec::with_capacity(committed.data.files.len() + changes.added.len());
        for file in committed.data.files.iter() {
            if changes.removed.contains(&file.id) {
                continue;
            }
            check_readable_file(file, self.state.snapshot)?;
            if is_wanted(RowSource::File(file.id)) {
                all.push(Source::Committed(file, committed.columns_of(file)?));
            }
        }
        for (at, file) in changes.added.iter().enumerate() {
            if is_wanted(RowSource::Added(at)) {
                all.push(Source::Added(at, file, &committed.own));
            }
        }
        Ok(all)
    }

    fn scanned_file(&self, file: &Source<'_>, folder: &str, changes: &TableChanges) -> ScannedFile {
        match file {
            Source::Committed(file, columns) => {
                committed_file(file, &self.table, folder, Arc::clone(columns), changes, self.state.snapshot)
            }
            Source::Added(at, file, columns) => added_file(*at, file, folder, columns),
        }
    }

    async fn load_stats(&self, files: &[Source<'_>], columns: &[ColumnId]) -> Result<StatsByFile> {
        let ids = || {
            files.iter().filter_map(|file| match file {
                Source::Committed(file, _) => Some(file.id),
                Source::Added(..) => None,
            })
        };
        let (Some(first), Some(last)) = (ids().min(), ids().max()) else {
            return Ok(StatsByFile::default());
        };
        if columns.is_empty() {
            return Ok(StatsByFile::default());
        }
        let known = self.catalog.column_stats(self.table.id, columns, first, last).await.map_err(explain)?;
        Ok(StatsByFile(known))
    }

    /// Loads file statistics of the filtered columns, and also of those in `projection` unless there are too
    /// many files.
    async fn load_scan_stats(
        &self,
        files: &[Source<'_>],
        projection: &[usize],
        filtered: &[&Column],
    ) -> Result<StatsByFile> {
        let mut wanted: Vec<ColumnId> = filtered.iter().map(|column| column.id).collect();
        let projected = projection.iter().filter_map(|at| self.table.columns.get(*at));
        let projected: Vec<ColumnId> =
            projected.filter(|column| has_stats(column)).map(|column| column.id).collect();
        if projected.len() * files.len() <= STATS_MAX {
            wanted.extend(projected);
        }
        wanted.sort_unstable();
        wanted.dedup();
        self.load_stats(files, &wanted).await
    }

    /// Prunes `files` by `filters`.
    fn prune_files(
        &self,
        session: &dyn Session,
        files: Vec<Source<'_>>,
        filters: &[Expr],
        candidates: &Candidates<'_>,
        changes: &TableChanges,
    ) -> Result<Vec<ScannedFile>> {
        let folder = self.state.table_path(&self.table);
        let scanned = |file: &Source<'_>| self.scanned_file(file, &folder, changes);
        if candidates.rows.is_empty() {
            return Ok(files.iter().map(scanned).collect());
        }
        let table_schema = schema_of(&self.table.columns)?;
        let keep = prune::may_match(session, filters, &table_schema, &self.table.columns, candidates)?;
        let wanted = prune::matching_buckets(filters, &self.table, &table_schema);
        let in_bucket = |file: &ScannedFile| match (&wanted, file.bucket(&self.table)) {
            (Some(wanted), Some(bucket)) => wanted.contains(&bucket.number),
            _ => true,
        };
        let kept = files.iter().zip(keep).filter(|(_, keep)| *keep);
        Ok(kept.map(|(file, _)| scanned(file)).filter(in_bucket).collect())
    }

    /// Scans files that were written with the same columns.
    #[expect(
        clippy::too_many_arguments,
        reason = "the last step of a scan, with what the steps before it found"
    )]
    async fn scan_group(
        &self,
        session: &dyn Session,
        group: &[ScannedFile],
        stats: &StatsByFile,
        candidates: &Candidates<'_>,
        projection: &[usize],
        limit: Option<usize>,
        known: Option<&KnownRows>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let Some(first) = group.first() else {
            return Ok(Arc::new(EmptyExec::new(self.projected_schema(projection)?)));
        };
        let file_columns = Arc::clone(&first.columns);
        let deleted: BTreeMap<i64, DeletedRows> = group
            .iter()
            .filter(|file| file.deleted != DeletedRows::default())
            .map(|file| (file.source.encode(), file.deleted.clone()))
            .collect();
        let shown = schema_of(&file_columns)?;
        // Columns that are NOT NULL in the table may be NULL in a file, and intervals and UUIDs are stored as
        // bytes.
        let file_schema = stored_schema_of(&file_columns)?;
        // Columns of the file that the projection needs, and their positions in the scan's output.
        let mut read: Vec<usize> = Vec::new();
        let mut sources: Vec<Option<usize>> = Vec::new();
        for at in projection.iter().filter(|at| **at < self.table.columns.len()) {
            let id = self.table.columns[*at].id;
            sources.push(file_columns.iter().position(|column| column.id == id).map(|in_file| {
                read.iter().position(|known| *known == in_file).unwrap_or_else(|| {
                    read.push(in_file);
                    read.len() - 1
                })
            }));
        }
        let read_columns = read.len();
        let has_intervals =
            read.iter().any(|at| shown.field(*at).data_type() != file_schema.field(*at).data_type());
        let by_row = self.positions || !deleted.is_empty() || has_intervals;
        let file_field: FieldRef = Arc::new(Field::new(FILE_COLUMN, DataType::Int64, true));
        let partition_columns: Vec<FieldRef> = if by_row { vec![file_field] } else { vec![] };
        let table_schema = TableSchema::builder(Arc::clone(&file_schema))
            .with_table_partition_cols(partition_columns)
            .build();
        if by_row {
            read.push(file_schema.fields().len());
        }
        let rows: i64 = group.iter().map(ScannedFile::live_rows).sum();
        let all_live = deleted.is_empty() && self.sample.is_none();
        let mut statistics = statistics_of(group, stats, &file_columns, rows, by_row, all_live)?;
        let folder = Folder::try_new(&self.state.table_path(&self.table))?;
        let mut files: Vec<PartitionedFile> = group
            .iter()
            .map(|file| file.partitioned_file(by_row, &self.table, &folder))
            .collect::<Result<_>>()?;
        if let Some(known) = known {
            statistics::add_analysis(&mut statistics, &file_columns, rows, &known.analysis);
            let of_all = (known.rows_per_scanned > 1.0).then_some(candidates);
            let columns =
                statistics::distributions(&statistics, of_all, &file_columns, known.rows, &known.analysis)?;
            if let Some(first) = files.first_mut() {
                first
                    .extensions
                    .insert(TableHistograms { columns, rows_per_scanned: known.rows_per_scanned });
            }
        }
        if let Some(share) = self.sample {
            files = sample_row_groups(&files, share);
            if files.is_empty() {
                return Ok(Arc::new(EmptyExec::new(self.projected_schema(projection)?)));
            }
        }
        let (store, _) = locate(&first.location)?;
        let options = TableParquetOptions {
            global: session.config_options().execution.parquet.clone(),
            ..TableParquetOptions::default()
        };
        let source = ParquetSource::new(table_schema).with_table_parquet_options(options.clone());
        let groups = FileGroup::new(files).split_files(session.config().target_partitions());
        let config = FileScanConfigBuilder::new(store, Arc::new(source))
            .with_file_groups(groups)
            .with_statistics(statistics)
            .with_projection_indices(Some(read))?
            .with_limit(if by_row { None } else { limit })
            .build();
        let scan = ParquetFormat::new().with_options(options).create_physical_plan(session, config).await?;
        // DataFusion would not split it below the operator that comes next.
        let options = session.config_options();
        let scan = match by_row && options.optimizer.repartition_file_scans {
            true => scan.repartitioned(session.config().target_partitions(), options)?.unwrap_or(scan),
            false => scan,
        };
        let scan = match by_row {
            true => Arc::new(LiveRowsExec::try_new(scan, Arc::new(deleted), self.positions)?) as _,
            false => scan,
        };
        self.project_scan(session, scan, &sources, read_columns, projection)
    }

    /// Projects the scan's output to the table's columns.
    fn project_scan(
        &self,
        session: &dyn Session,
        scan: Arc<dyn ExecutionPlan>,
        sources: &[Option<usize>],
        read_columns: usize,
        projection: &[usize],
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let from = scan.schema();
        let wanted = self.projected_schema(projection)?;
        let mut sources = sources.iter();
        let mut expressions: Vec<(Arc<dyn PhysicalExpr>, String)> = Vec::with_capacity(projection.len());
        for (at, field) in projection.iter().zip(wanted.fields()) {
            let expression: Arc<dyn PhysicalExpr> = match at.checked_sub(self.table.columns.len()) {
                Some(place) => Arc::new(Place::new(field.name(), read_columns + place)),
                None => match sources.next().copied().flatten() {
                    Some(source) => {
                        let place = Arc::new(Place::new(from.field(source).name(), source));
                        let value = decode_column(place, &from, session.config().options())?;
                        match value.data_type(&from)? == *field.data_type() {
                            true => value,
                            false => Arc::new(CastExpr::new(value, field.data_type().clone(), None)),
                        }
                    }
                    None => Arc::new(Literal::new(missing_value(&self.table.columns[*at])?)),
                },
            };
            expressions.push((expression, field.name().clone()));
        }
        let is_same = expressions.len() == from.fields().len()
            && expressions.iter().enumerate().all(|(at, (expression, name))| {
                expression.downcast_ref::<Place>().is_some_and(|place| place.index() == at)
                    && from.field(at).name() == name
            });
        Ok(match is_same {
            true => scan,
            false => Arc::new(ProjectionExec::try_new(expressions, scan)?),
        })
    }

    /// The inlined rows: one batch per schema version, and one of the transaction's own.
    pub(crate) fn inlined_batches(
        &self,
        contents: &Contents,
        projection: &[usize],
    ) -> Result<Vec<RecordBatch>> {
        let columns: Vec<&Column> = projection.iter().filter_map(|at| self.table.columns.get(*at)).collect();
        let own_projection: Vec<usize> =
            projection.iter().copied().filter(|at| *at < self.table.columns.len()).collect();
        let own_schema = Arc::new(schema_of(&self.table.columns)?.project(&own_projection)?);
        let schema = self.projected_schema(projection)?;
        let mut batches = Vec::new();
        for kept in contents.inlined.iter().filter(|kept| !kept.rows.is_empty()) {
            let from: Vec<Option<(usize, ColumnType)>> = columns
                .iter()
                .map(|column| {
                    let at = kept.columns.iter().position(|(id, _)| *id == column.id)?;
                    Some((at, kept.kinds[at]))
                })
                .collect();
            let batch = stored_values::rows_of(&kept.rows, &columns, &from, &nullable(&own_schema))?;
            let source = RowSource::Inlined(kept.schema_version);
            batches.push(self.add_positions(batch, source, kept.row_ids.clone(), &schema, projection)?);
        }
        if !contents.added_inlined.is_empty() {
            let from = own_projection.iter().map(|at| Some((*at, self.table.columns[*at].kind)));
            let from: Vec<Option<(usize, ColumnType)>> = from.collect();
            let batch =
                stored_values::rows_of(&contents.added_inlined, &columns, &from, &nullable(&own_schema))?;
            let rows = (0..contents.added_inlined.len() as i64).collect();
            batches.push(self.add_positions(batch, RowSource::AddedInlined, rows, &schema, projection)?);
        }
        Ok(batches)
    }

    /// Adds position columns to a batch of inlined rows where `projection` includes them.
    fn add_positions(
        &self,
        batch: RecordBatch,
        source: RowSource,
        rows: Vec<i64>,
        schema: &SchemaRef,
        projection: &[usize],
    ) -> Result<RecordBatch> {
        let files = Int64Array::from(vec![source.encode(); batch.num_rows()]);
        let rows = Int64Array::from(rows);
        let mut own = batch.columns().iter();
        let mut columns: Vec<datafusion::arrow::array::ArrayRef> = Vec::with_capacity(projection.len());
        for at in projection {
            match at.checked_sub(self.table.columns.len()) {
                Some(0) => columns.push(Arc::new(files.clone())),
                Some(_) => columns.push(Arc::new(rows.clone())),
                None => columns.extend(own.next().cloned()),
            }
        }
        let count =
            datafusion::arrow::array::RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        Ok(RecordBatch::try_new_with_options(Arc::clone(schema), columns, &count)?)
    }

    fn projected_schema(&self, projection: &[usize]) -> Result<SchemaRef> {
        Ok(nullable(&Arc::new(self.schema.project(projection)?)))
    }
}

/// Plans must not rely on NOT NULL, which is checked on write only: files may come from other programs.
fn nullable(schema: &SchemaRef) -> SchemaRef {
    let fields: Vec<Field> =
        schema.fields().iter().map(|field| field.as_ref().clone().with_nullable(true)).collect();
    Arc::new(Schema::new(fields))
}

fn position_fields() -> [FieldRef; 2] {
    [FILE_COLUMN, ROW_COLUMN].map(|name| Arc::new(Field::new(name, DataType::Int64, true)))
}

fn default_of(
    session: &SessionState,
    column: &Column,
    default: &DefaultValue,
    asker: &SessionUsers,
) -> Result<Expr> {
    let kind = type_of(column, false)?;
    match default {
        DefaultValue::Literal(text) => Ok(lit(stored_values::parse_one(text, &kind)?)),
        DefaultValue::Expression { sql, .. } => {
            let default = stored_sql::default(session, sql, asker)
                .map_err(|error| {
                    SqlError::new(
                        SqlState::FEATURE_NOT_SUPPORTED,
                        format!("the default of column \"{}\", {sql}: {error}", column.name),
                    )
                })
                .map_err(harrier_sqlstate::external)?;
            Ok(match default {
                // The planner's TIMESTAMPTZ has nanoseconds.
                Expr::Cast(inner) if matches!(inner.field.data_type(), DataType::Timestamp(_, Some(_))) => {
                    cast(*inner.expr, kind)
                }
                other => other,
            })
        }
    }
}

/// The value of a column in rows written before the column was added.
pub(crate) fn missing_value(column: &Column) -> Result<ScalarValue> {
    let kind = type_of(column, false)?;
    match &column.initial_default {
        Some(text) => stored_values::parse_one(text, &kind),
        None => ScalarValue::try_new_null(&kind),
    }
}

/// The sources of a table's rows.
#[derive(Debug, Default)]
pub(crate) struct Contents {
    pub files: Vec<ScannedFile>,
    pub inlined: Vec<InlinedRows>,
    pub added_inlined: Vec<Vec<harrier_catalog::files::Cell>>,
}

impl Contents {
    /// The files of one table partition.
    pub(crate) fn of_partition(&self, id: i64) -> impl Iterator<Item = &ScannedFile> {
        self.files.iter().filter(move |file| file.table_partition == Some(id))
    }

    /// Sources that may hold rows of several table partitions.
    pub(crate) fn sources_outside_partitions(&self) -> BTreeSet<RowSource> {
        let files = self.files.iter().filter(|file| file.table_partition.is_none());
        let kept = self.inlined.iter().filter(|kept| !kept.rows.is_empty());
        let kept = kept.map(|kept| RowSource::Inlined(kept.schema_version));
        files.map(|file| file.source).chain(kept).collect()
    }
}

/// A table's data in the snapshot.
struct Committed {
    data: Arc<TableData>,
    /// Snapshots in which its columns changed, ascending.
    versions: Vec<SnapshotId>,
    /// The columns before the first of `versions`, and from each on; loaded only where a file has them.
    columns: Vec<Option<Arc<Vec<Column>>>>,
    /// The current columns.
    own: Arc<Vec<Column>>,
}

impl Committed {
    fn columns_of(&self, file: &DataFile) -> Result<&Arc<Vec<Column>>> {
        let known = self.columns.get(version_at(&self.versions, file.begin)).and_then(Option::as_ref);
        known.ok_or_else(|| internal_datafusion_err!("columns of data file {} were not read", file.id))
    }
}

/// A data file before pruning, with the table's columns when it was written.
enum Source<'a> {
    Committed(&'a DataFile, &'a Arc<Vec<Column>>),
    /// Added by the transaction; its index among those.
    Added(usize, &'a NewFile, &'a Arc<Vec<Column>>),
}

impl<'a> Source<'a> {
    fn rows(&self) -> i64 {
        match self {
            Self::Committed(file, _) => file.rows,
            Self::Added(_, file, _) => file.rows,
        }
    }

    /// Rows that are not deleted.
    fn live_rows(&self, changes: &TableChanges) -> i64 {
        let deleted = match self {
            Self::Committed(file, _) => deleted_count(file, changes),
            Self::Added(_, file, _) => file.deleted.len() as i64,
        };
        (self.rows() - deleted).max(0)
    }

    pub(crate) fn columns(&self) -> &'a Arc<Vec<Column>> {
        match self {
            Self::Committed(_, columns) | Self::Added(_, _, columns) => columns,
        }
    }

    fn stats<'s>(&self, known: &'s StatsByFile, column: ColumnId) -> Option<StatsRef<'s>>
    where
        'a: 's,
    {
        match self {
            Self::Committed(file, _) => known.0.get(&column)?.get(file.id),
            Self::Added(_, file, _) => file.stats.get(&column).map(StatsRef::from),
        }
    }
}

/// Pruning input for `files` and the columns `filtered`; empty if there are no such columns.
fn candidates<'s, 'a: 's>(
    files: &[Source<'a>],
    stats: &'s StatsByFile,
    filtered: &[&Column],
) -> Candidates<'s> {
    if filtered.is_empty() {
        return Candidates::default();
    }
    let mut known = Candidates { rows: files.iter().map(Source::rows).collect(), ..Candidates::default() };
    for column in filtered {
        // A column added later has its default in every row of the file.
        let mut last: Option<(&Arc<Vec<Column>>, Option<ColumnType>)> = None;
        let mut kind_in = |columns: &'a Arc<Vec<Column>>| match last {
            Some((known, kind)) if Arc::ptr_eq(known, columns) => kind,
            _ => {
                let kind = columns.iter().find(|own| own.id == column.id).map(|own| own.kind);
                last = Some((columns, kind));
                kind
            }
        };
        let kinds: Vec<Option<ColumnType>> = files.iter().map(|file| kind_in(file.columns())).collect();
        let each = files.iter().zip(&kinds).map(|(file, kind)| match kind {
            Some(_) => file.stats(stats, column.id),
            None => None,
        });
        known.stats.insert(column.id, each.collect());
        if kinds.iter().flatten().any(|kind| *kind != column.kind) {
            let kinds = kinds.into_iter().map(|kind| kind.unwrap_or(column.kind));
            known.written.insert(column.id, kinds.collect());
        }
    }
    known
}

/// Sampling unit: this many bytes of a file are read or skipped. A row group belongs to the unit in which it
/// begins.
const PIECE_BYTES: i64 = 1 << 20;

/// Samples about a share of the row groups of files: stratified, with one random unit per stratum.
fn sample_row_groups(files: &[PartitionedFile], share: f64) -> Vec<PartitionedFile> {
    let pieces = files.iter().flat_map(|file| {
        let end = file.object_meta.size as i64;
        (0..end).step_by(PIECE_BYTES as usize).map(move |start| (file, start, end.min(start + PIECE_BYTES)))
    });
    let random = RandomState::new();
    let draw = |stratum: u64| random.hash_one(stratum) as f64 / u64::MAX as f64;
    // At equal distances, samples would hit the row groups of equal files all together or not at all.
    let (mut at, mut stratum, mut chosen) = (0.0, 0, draw(0));
    let taken = pieces.filter(|_| {
        let before = at;
        at += share;
        let is_taken = before <= chosen && chosen < at;
        while at >= (stratum + 1) as f64 {
            stratum += 1;
            chosen = stratum as f64 + draw(stratum);
        }
        is_taken || before <= chosen && chosen < at
    });
    taken.map(|(file, start, end)| file.clone().with_range(start, end)).collect()
}

/// The index of a snapshot's column version, where `versions` lists all but the first.
fn version_at(versions: &[SnapshotId], snapshot: SnapshotId) -> usize {
    versions.partition_point(|version| *version <= snapshot)
}

/// Errors: an unsupported file (0A000).
fn check_readable_file(file: &DataFile, snapshot: SnapshotId) -> Result<()> {
    let unsupported = |what: String| -> Result<()> {
        Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, what).into_datafusion())
    };
    if file.format != "parquet" {
        return unsupported(format!("data file {} has format {}", file.path.path, file.format));
    }
    if file.partial_max.is_some_and(|last| last > snapshot) {
        return unsupported(format!(
            "snapshot {snapshot} lies within data file {}, which others have merged",
            file.path.path
        ));
    }
    match &file.deletes {
        Some(deletes) if deletes.format != "parquet" => {
            unsupported(format!("delete file {} has format {}", deletes.path.path, deletes.format))
        }
        _ => Ok(()),
    }
}

/// The number of rows deleted from a file, by snapshots and by the transaction.
fn deleted_count(file: &DataFile, changes: &TableChanges) -> i64 {
    let before = file.deleted_inline.len() as i64 + file.deletes.as_ref().map_or(0, |deletes| deletes.rows);
    before
        + match changes.deleted.get(&file.id) {
            Some(NewDeletes::Inline(rows)) => rows.len() as i64,
            Some(NewDeletes::File { positions, .. }) => positions.len() as i64,
            None => 0,
        }
}

fn committed_file(
    file: &DataFile,
    table: &Table,
    folder: &str,
    columns: Arc<Vec<Column>>,
    changes: &TableChanges,
    snapshot: SnapshotId,
) -> ScannedFile {
    let mut deleted = DeletedRows { rows: file.deleted_inline.clone(), stored: None };
    if let Some(deletes) = &file.deletes {
        deleted.stored = Some(StoredDeletes {
            location: deletes.path.below(folder),
            bytes: deletes.bytes as u64,
            snapshot_max: deletes.partial_max.map(|_| snapshot),
        });
    }
    match changes.deleted.get(&file.id) {
        Some(NewDeletes::Inline(rows)) => deleted.rows.extend(rows),
        Some(NewDeletes::File { file, .. }) => {
            deleted.stored = Some(stored_deletes(&file.path, file.bytes, folder))
        }
        None => {}
    }
    ScannedFile {
        source: RowSource::File(file.id),
        location: file.path.below(folder),
        rows: file.rows,
        bytes: file.bytes,
        partition_values: file.partition_values.clone(),
        table_partition: partitions::of_file(&file.path),
        unplaced_before: partitions::unplaced_before(&file.path),
        is_partitioned_now: file.partition_id == table.partition_id,
        footer_bytes: file.footer_bytes,
        columns,
        deleted,
        deleted_inline: file.deleted_inline.iter().copied().collect(),
        deleted_count: deleted_count(file, changes),
        own_stats: BTreeMap::new(),
    }
}

fn added_file(at: usize, file: &NewFile, folder: &str, columns: &Arc<Vec<Column>>) -> ScannedFile {
    ScannedFile {
        source: RowSource::Added(at),
        location: file.path.below(folder),
        rows: file.rows,
        bytes: file.bytes,
        partition_values: file.partition_values.clone(),
        table_partition: partitions::of_file(&file.path),
        unplaced_before: partitions::unplaced_before(&file.path),
        is_partitioned_now: true,
        footer_bytes: Some(file.footer_bytes),
        columns: Arc::clone(columns),
        deleted: DeletedRows { rows: file.deleted.iter().copied().collect(), stored: None },
        deleted_inline: BTreeSet::new(),
        deleted_count: file.deleted.len() as i64,
        own_stats: file.stats.clone(),
    }
}

fn stored_deletes(path: &Location, bytes: i64, folder: &str) -> StoredDeletes {
    StoredDeletes { location: path.below(folder), bytes: bytes as u64, snapshot_max: None }
}

/// Removes the rows that the transaction has deleted.
fn remove_deleted(kept: &mut InlinedRows, changes: &TableChanges) {
    let lives: Vec<bool> = kept
        .row_ids
        .iter()
        .map(|row| !changes.deleted_inlined.contains(&(kept.schema_version, *row)))
        .collect();
    let mut at = lives.iter();
    kept.rows.retain(|_| *at.next().unwrap_or(&true));
    let mut at = lives.iter();
    kept.row_ids.retain(|_| *at.next().unwrap_or(&true));
}

// Methods are written out for the compiler's sake: docs/decisions/0025-boxed-futures-behind-traits.md
impl TableProvider for WarehouseTable {
    fn schema(&self) -> SchemaRef {
        nullable(&self.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    fn get_column_default(&self, column: &str) -> Option<&Expr> {
        self.defaults.get(column)
    }

    fn supports_filters_pushdown(&self, filters: &[&Expr]) -> Result<Vec<TableProviderFilterPushDown>> {
        Ok(vec![TableProviderFilterPushDown::Inexact; filters.len()])
    }

    fn scan<'a: 'f, 'b: 'f, 'c: 'f, 'd: 'f, 'f>(
        &'a self,
        session: &'b dyn Session,
        projection: Option<&'c Vec<usize>>,
        filters: &'d [Expr],
        limit: Option<usize>,
    ) -> BoxFuture<'f, Result<Arc<dyn ExecutionPlan>>> {
        self.boxed_scan(session, projection, filters, limit)
    }
}

/// The results of ANALYZE for a table, and the scaling from scanned rows.
struct KnownRows {
    analysis: Analysis,
    /// Rows in all files of the table.
    rows: i64,
    /// Ratio of the rows in all files to those in scanned files.
    rows_per_scanned: f64,
}

impl WarehouseTable {
    /// `rows`: in all files; `scanned`: in the files left after pruning by `filters`.
    async fn known_rows(&self, rows: i64, scanned: i64, filters: &[Expr]) -> Result<Option<KnownRows>> {
        // An uncommitted table has no statistics.
        if self.table.id < 0 {
            return Ok(None);
        }
        let columns = prune::columns_in(filters, &self.table.columns);
        let columns: Vec<ColumnId> = columns.iter().map(|column| column.id).collect();
        let wanted = Histograms::Of(&columns);
        let analysis = self.catalog.analysis(self.table.id, wanted).await.map_err(explain)?;
        let rows_per_scanned = rows as f64 / scanned.max(1) as f64;
        Ok(analysis.map(|analysis| KnownRows { analysis, rows, rows_per_scanned }))
    }

    fn boxed_scan<'a>(
        &'a self,
        session: &'a dyn Session,
        projection: Option<&'a Vec<usize>>,
        filters: &'a [Expr],
        limit: Option<usize>,
    ) -> BoxFuture<'a, Result<Arc<dyn ExecutionPlan>>> {
        async move {
            let all: Vec<usize> = (0..self.schema.fields().len()).collect();
            let projection = projection.unwrap_or(&all);
            self.check_readable(projection, filters)?;
            match &self.visible {
                None => self.scan_rows(session, projection, filters, limit).await,
                Some(visible) => self.scan_visible(session, projection, filters, visible).await,
            }
        }
        .boxed()
    }

    async fn scan_rows(
        &self,
        session: &dyn Session,
        projection: &[usize],
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let committed = self.load_committed().await?;
        let changes = self.changes();
        let contents = self.inlined_contents(&committed, &changes);
        let files = self.sources(&committed, &changes)?;
        let rows = files.iter().map(|file| file.live_rows(&changes)).sum();
        let filtered = prune::columns_in(filters, &self.table.columns);
        let stats = self.load_scan_stats(&files, projection, &filtered).await?;
        let candidates = candidates(&files, &stats, &filtered);
        let files = self.prune_files(session, files, filters, &candidates, &changes)?;
        let mut groups: Vec<Vec<ScannedFile>> = Vec::new();
        for file in files {
            // Numbering rows is expensive, so files without deletes are scanned without it.
            let fits = |group: &&mut Vec<ScannedFile>| {
                group.first().is_some_and(|first| {
                    (Arc::ptr_eq(&first.columns, &file.columns) || first.columns == file.columns)
                        && (self.positions
                            || (first.deleted == DeletedRows::default())
                                == (file.deleted == DeletedRows::default()))
                })
            };
            match groups.iter_mut().find(fits) {
                Some(group) => group.push(file),
                None => groups.push(vec![file]),
            }
        }
        let scanned = groups.iter().flatten().map(ScannedFile::live_rows).sum();
        let known = self.known_rows(rows, scanned, filters).await?;
        let mut plans = Vec::with_capacity(groups.len() + 1);
        for group in groups {
            let scan =
                self.scan_group(session, &group, &stats, &candidates, projection, limit, known.as_ref());
            plans.push(scan.await?);
        }
        let kept = self.inlined_batches(&contents, projection)?;
        if !kept.is_empty() {
            plans.push(
                MemorySourceConfig::try_new_exec(&[kept], self.projected_schema(projection)?, None)? as _
            );
        }
        match plans.len() {
            0 => Ok(Arc::new(EmptyExec::new(self.projected_schema(projection)?))),
            1 => Ok(plans.remove(0)),
            _ => UnionExec::try_new(plans),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_sources_round_trip() {
        let sources = [0, 1, 2, 99]
            .map(|at| [RowSource::File(at), RowSource::Added(at as usize), RowSource::Inlined(at + 1)]);
        for source in sources.into_iter().flatten().chain([RowSource::AddedInlined]) {
            assert_eq!(RowSource::decode(source.encode()), source, "{}", source.encode());
        }
    }
}
