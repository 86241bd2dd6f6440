//! The schema `sys`, views of the catalog: `tables`, `table_partitions`, `columns`, `column_analysis`,
//! `data_files`, `snapshots` and `row_filters`.
//!
//! They show the statement's snapshot including its own transaction's changes, except `snapshots`, which
//! shows committed snapshots only.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, BooleanArray, Int64Array, RecordBatch, StringArray};
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use datafusion::catalog::memory::MemorySourceConfig;
use datafusion::catalog::{SchemaProvider, Session, TableProvider};
use datafusion::datasource::TableType;
use datafusion::error::Result;
use datafusion::logical_expr::Expr;
use datafusion::physical_plan::ExecutionPlan;
use futures::FutureExt;
use futures::future::{BoxFuture, ready};
use harrier_catalog::access::{Object, PUBLIC, Privilege};
use harrier_catalog::state::{DefaultValue, PartitionKey, State, Table, Transform};
use harrier_catalog::{Histogram, array_text};
use harrier_exec::data_files::{DividedBy, Holds, TablePartitions};
use harrier_functions::parse::text_array::parse_array;

use crate::types::columns::catalog_type_of;
use crate::warehouse::access::Viewer;
use crate::warehouse::explain;
use crate::warehouse::name_resolver::NameResolver;
use crate::warehouse::snapshot::StatementSnapshot;
use crate::warehouse::system_catalogs::server_table::ServerTable;
use crate::warehouse::table::WarehouseTable;
use crate::warehouse::table::partitions::partitions_of;
use crate::warehouse::table::scanned_file::ScannedFile;

const TABLES: [&str; 7] =
    ["column_analysis", "columns", "data_files", "row_filters", "snapshots", "table_partitions", "tables"];

/// A server table in a session.
#[derive(Debug)]
struct ServerTableProvider {
    table: ServerTable,
    viewer: Viewer,
}

impl ServerTableProvider {
    fn boxed_scan<'a>(
        &'a self,
        projection: Option<&'a Vec<usize>>,
    ) -> BoxFuture<'a, Result<Arc<dyn ExecutionPlan>>> {
        async move {
            let rows = (self.table.rows)(&self.viewer).await?;
            let plan = MemorySourceConfig::try_new_exec(&[vec![rows]], self.schema(), projection.cloned())?;
            Ok(plan as _)
        }
        .boxed()
    }
}

// Methods are written out for the compiler's sake: docs/decisions/0025-boxed-futures-behind-traits.md
impl TableProvider for ServerTableProvider {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.table.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::View
    }

    fn scan<'a: 'f, 'b: 'f, 'c: 'f, 'd: 'f, 'f>(
        &'a self,
        _: &'b dyn Session,
        projection: Option<&'c Vec<usize>>,
        _: &'d [Expr],
        _: Option<usize>,
    ) -> BoxFuture<'f, Result<Arc<dyn ExecutionPlan>>> {
        self.boxed_scan(projection)
    }
}

/// The schema `sys`.
#[derive(Debug)]
pub(crate) struct SystemSchema(Arc<NameResolver>);

impl SystemSchema {
    pub(crate) fn over(names: Arc<NameResolver>) -> Arc<dyn SchemaProvider> {
        Arc::new(Self(names))
    }

    fn boxed_table<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Option<Arc<dyn TableProvider>>>> {
        async move {
            if let Some(table) = self.0.server_tables().iter().find(|table| table.name == name) {
                let viewer = self.0.role().viewer();
                return Ok(Some(Arc::new(ServerTableProvider { table: table.clone(), viewer }) as _));
            }
            let Some(name) = TABLES.into_iter().find(|known| *known == name) else {
                return Ok(None);
            };
            // Without a catalog the tables have the same columns, and nothing is loaded.
            let schema = rows(&self.0, &StatementSnapshot::default(), name).await?.schema();
            Ok(Some(Arc::new(SystemTable { names: Arc::clone(&self.0), name, schema }) as _))
        }
        .boxed()
    }
}

// Methods are written out for the compiler's sake: docs/decisions/0025-boxed-futures-behind-traits.md
impl SchemaProvider for SystemSchema {
    fn table_names(&self) -> Vec<String> {
        let mut names = TABLES.map(str::to_string).to_vec();
        names.extend(self.0.server_tables().iter().map(|table| table.name.to_string()));
        names.sort();
        names
    }

    fn table<'a: 'f, 'b: 'f, 'f>(
        &'a self,
        name: &'b str,
    ) -> BoxFuture<'f, Result<Option<Arc<dyn TableProvider>>>> {
        self.boxed_table(name)
    }

    fn table_type<'a: 'f, 'b: 'f, 'f>(&'a self, name: &'b str) -> BoxFuture<'f, Result<Option<TableType>>> {
        ready(Ok(self.table_exist(name).then_some(TableType::View))).boxed()
    }

    fn table_exist(&self, name: &str) -> bool {
        TABLES.contains(&name) || self.0.server_tables().iter().any(|table| table.name == name)
    }
}

/// One of the tables; the catalog is read by the scan, not by the lookup.
#[derive(Debug)]
struct SystemTable {
    names: Arc<NameResolver>,
    name: &'static str,
    schema: SchemaRef,
}

impl SystemTable {
    fn boxed_scan<'a>(
        &'a self,
        projection: Option<&'a Vec<usize>>,
    ) -> BoxFuture<'a, Result<Arc<dyn ExecutionPlan>>> {
        async move {
            let rows = rows(&self.names, &self.names.snapshot(), self.name).await?;
            let schema = Arc::clone(&self.schema);
            Ok(MemorySourceConfig::try_new_exec(&[vec![rows]], schema, projection.cloned())? as _)
        }
        .boxed()
    }
}

// Methods are written out for the compiler's sake: docs/decisions/0025-boxed-futures-behind-traits.md
impl TableProvider for SystemTable {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::View
    }

    fn scan<'a: 'f, 'b: 'f, 'c: 'f, 'd: 'f, 'f>(
        &'a self,
        _: &'b dyn Session,
        projection: Option<&'c Vec<usize>>,
        _: &'d [Expr],
        _: Option<usize>,
    ) -> BoxFuture<'f, Result<Arc<dyn ExecutionPlan>>> {
        self.boxed_scan(projection)
    }
}

async fn rows(names: &NameResolver, snapshot: &StatementSnapshot, name: &str) -> Result<RecordBatch> {
    let columns = match name {
        "column_analysis" => column_analysis(snapshot).await?,
        "columns" => columns(snapshot)?,
        "data_files" => data_files(names, snapshot).await?,
        "row_filters" => row_filters(snapshot).await?,
        "snapshots" => snapshots(snapshot).await?,
        "table_partitions" => table_partitions(names, snapshot).await?,
        _ => tables(names, snapshot).await?,
    };
    let (fields, arrays): (Vec<Field>, Vec<ArrayRef>) = columns
        .into_iter()
        .map(|(name, array)| (Field::new(name, array.data_type().clone(), true), array))
        .unzip();
    Ok(RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays)?)
}

type Columns = Vec<(&'static str, ArrayRef)>;

fn texts<T: AsRef<str>>(values: impl IntoIterator<Item = Option<T>>) -> ArrayRef {
    Arc::new(values.into_iter().collect::<StringArray>())
}

fn numbers(values: impl IntoIterator<Item = Option<i64>>) -> ArrayRef {
    Arc::new(values.into_iter().collect::<Int64Array>())
}

fn tables_of(snapshot: &StatementSnapshot) -> Vec<(&State, &Arc<Table>)> {
    let state = snapshot.state.as_deref();
    let all = state.into_iter().flat_map(|state| state.tables.values().map(move |table| (state, table)));
    all.filter(|(_, table)| snapshot.viewer.may_inspect(Object::Table(table.id))).collect()
}

async fn tables(names: &NameResolver, snapshot: &StatementSnapshot) -> Result<Columns> {
    let all = tables_of(snapshot);
    let mut counts = Vec::with_capacity(all.len());
    for (_, table) in &all {
        let contents =
            WarehouseTable::try_new(names.session()?, snapshot, Arc::clone(table))?.contents().await?;
        let deleted: i64 = contents.files.iter().map(ScannedFile::deleted_rows).sum();
        let in_files: i64 = contents.files.iter().map(|file| file.rows).sum();
        let kept: usize = contents.inlined.iter().map(|kept| kept.rows.len()).sum();
        let kept = (kept + contents.added_inlined.len()) as i64;
        let bytes: i64 = contents.files.iter().map(|file| file.bytes).sum();
        counts.push((in_files - deleted + kept, contents.files.len() as i64, bytes, deleted, kept));
    }
    let count =
        |pick: fn(&(i64, i64, i64, i64, i64)) -> i64| numbers(counts.iter().map(|all| Some(pick(all))));
    // The row count would reveal rows that a row filter hides.
    let of_rows = |pick: fn(&(i64, i64, i64, i64, i64)) -> i64| {
        let sees_all = |table: &Table| snapshot.viewer.row_filters(table.id).is_none();
        numbers(all.iter().zip(&counts).map(|((_, table), all)| sees_all(table).then(|| pick(all))))
    };
    let partitioned_by = all.iter().map(|(_, table)| partitioning(table)).collect::<Result<Vec<_>>>()?;
    Ok(vec![
        ("table_schema", texts(all.iter().map(|(_, table)| snapshot.schema_name(table)))),
        ("table_name", texts(all.iter().map(|(_, table)| Some(&table.name)))),
        ("table_id", numbers(all.iter().map(|(_, table)| Some(table.id)))),
        ("rows", of_rows(|all| all.0)),
        ("files", count(|all| all.1)),
        ("bytes", count(|all| all.2)),
        ("deleted_rows", of_rows(|all| all.3)),
        ("kept_rows", of_rows(|all| all.4)),
        ("partitioned_by", texts(partitioned_by)),
        ("sorted_by", texts(all.iter().map(|(_, table)| sorting(table)))),
        ("location", texts(all.iter().map(|(state, table)| Some(state.table_path(table))))),
        ("comment", texts(all.iter().map(|(_, table)| table.comment.as_ref()))),
    ])
}

fn columns(snapshot: &StatementSnapshot) -> Result<Columns> {
    let tables = tables_of(snapshot);
    let all: Vec<_> = tables
        .iter()
        .flat_map(|(state, table)| {
            table.columns.iter().enumerate().map(move |(at, column)| (*state, *table, at, column))
        })
        .collect();
    let types = all
        .iter()
        .map(|(.., column)| catalog_type_of(column).map(|kind| Some(kind.to_string())))
        .collect::<Result<Vec<_>>>()?;
    let default = |default: &Option<DefaultValue>| match default {
        Some(DefaultValue::Literal(text) | DefaultValue::Expression { sql: text, .. }) => Some(text.clone()),
        _ => None,
    };
    Ok(vec![
        ("table_schema", texts(all.iter().map(|(_, table, ..)| snapshot.schema_name(table)))),
        ("table_name", texts(all.iter().map(|(_, table, ..)| Some(&table.name)))),
        ("column_name", texts(all.iter().map(|(.., column)| Some(&column.name)))),
        ("ordinal_position", numbers(all.iter().map(|(_, _, at, _)| Some(*at as i64 + 1)))),
        ("column_id", numbers(all.iter().map(|(.., column)| Some(column.id)))),
        ("data_type", texts(types)),
        (
            "is_nullable",
            Arc::new(all.iter().map(|(.., column)| Some(column.nullable)).collect::<BooleanArray>()),
        ),
        ("column_default", texts(all.iter().map(|(.., column)| default(&column.default)))),
        ("comment", texts(all.iter().map(|(.., column)| column.comment.as_ref()))),
    ])
}

/// Results of ANALYZE, for columns that may be read in all rows.
async fn column_analysis(snapshot: &StatementSnapshot) -> Result<Columns> {
    let analyses = match &snapshot.catalog {
        Some(catalog) => catalog.analyses().await.map_err(explain)?,
        None => Default::default(),
    };
    let mut all = Vec::new();
    for (_, table) in tables_of(snapshot) {
        let readable = snapshot.viewer.columns(Object::Table(table.id), Privilege::Select);
        let Some(analysis) = analyses.get(&table.id) else { continue };
        if snapshot.viewer.row_filters(table.id).is_some() {
            continue;
        }
        for column in table.columns.iter().filter(|column| readable.has(column.id)) {
            let found = analysis.columns.get(&column.id);
            all.extend(found.map(|found| (snapshot.schema_name(table), table, column, analysis, found)));
        }
    }
    let histograms = || all.iter().map(|(.., found)| found.histogram.as_ref());
    let common = |histogram: &Histogram| array_text(histogram.common.iter().map(|(value, _)| value.clone()));
    let share = |histogram: &Histogram| {
        array_text(histogram.common.iter().map(|(_, share)| format!("{}", *share as f32)))
    };
    Ok(vec![
        ("table_schema", texts(all.iter().map(|(schema, ..)| *schema))),
        ("table_name", texts(all.iter().map(|(_, table, ..)| Some(&table.name)))),
        ("column_name", texts(all.iter().map(|(_, _, column, ..)| Some(&column.name)))),
        ("snapshot_id", numbers(all.iter().map(|(.., analysis, _)| Some(analysis.snapshot)))),
        ("rows", numbers(all.iter().map(|(.., analysis, _)| Some(analysis.rows)))),
        ("nulls", numbers(all.iter().map(|(.., found)| Some(found.nulls)))),
        ("distinct_values", numbers(all.iter().map(|(.., found)| Some(found.distinct)))),
        ("mean_bytes", numbers(all.iter().map(|(.., found)| found.mean_bytes))),
        ("common_values", texts(histograms().map(|histogram| histogram.map(common)))),
        ("common_shares", texts(histograms().map(|histogram| histogram.map(share)))),
        ("bounds", texts(histograms().map(|histogram| Some(array_text(&histogram?.bounds))))),
    ])
}

async fn data_files(names: &NameResolver, snapshot: &StatementSnapshot) -> Result<Columns> {
    let mut all = Vec::new();
    for (_, table) in tables_of(snapshot) {
        let contents =
            WarehouseTable::try_new(names.session()?, snapshot, Arc::clone(table))?.contents().await?;
        // Row counts per key would reveal rows that a row filter hides.
        let sees_all = snapshot.viewer.row_filters(table.id).is_none();
        all.extend(
            contents.files.into_iter().map(|file| (snapshot.schema_name(table), table, sees_all, file)),
        );
    }
    let mut partitions = Vec::with_capacity(all.len());
    let mut divided: Option<(i64, HashMap<i64, String>)> = None;
    for (_, table, sees_all, file) in &all {
        if divided.as_ref().is_none_or(|(known, _)| *known != table.id) {
            let division = partitions_of(table)?;
            let named = division.iter().flat_map(|division| {
                let name = division_name(table, division);
                division.partitions.iter().map(move |own| (own.id, format!("{name}={}", own.name)))
            });
            divided = Some((table.id, named.collect()));
        }
        let own = divided.as_ref().and_then(|(_, named)| named.get(&file.table_partition?).cloned());
        let keys = table.partition.iter().zip(&file.partition_values);
        let keys = keys
            .map(|(key, value)| format!("{}={}", key_name(table, key), value.as_deref().unwrap_or("NULL")));
        let levels: Vec<String> = own.into_iter().chain(keys).collect();
        partitions.push((*sees_all && !levels.is_empty()).then(|| levels.join("/")));
    }
    let visible = |number: fn(&ScannedFile) -> i64| {
        numbers(all.iter().map(move |(_, _, sees_all, file)| sees_all.then(|| number(file))))
    };
    Ok(vec![
        ("table_schema", texts(all.iter().map(|(schema, ..)| *schema))),
        ("table_name", texts(all.iter().map(|(_, table, ..)| Some(&table.name)))),
        ("path", texts(all.iter().map(|(_, _, sees_all, file)| sees_all.then_some(&file.location)))),
        ("rows", visible(|file| file.rows)),
        ("deleted_rows", visible(ScannedFile::deleted_rows)),
        ("bytes", numbers(all.iter().map(|(.., file)| Some(file.bytes)))),
        ("table_partition", texts(partitions)),
    ])
}

/// Range and list partitions of tables.
async fn table_partitions(names: &NameResolver, snapshot: &StatementSnapshot) -> Result<Columns> {
    let mut all = Vec::new();
    for (_, table) in tables_of(snapshot) {
        let Some(division) = partitions_of(table)? else { continue };
        let contents =
            WarehouseTable::try_new(names.session()?, snapshot, Arc::clone(table))?.contents().await?;
        let sees_all = snapshot.viewer.row_filters(table.id).is_none();
        let mut totals: HashMap<i64, [i64; 3]> = HashMap::new();
        for file in &contents.files {
            let Some(id) = file.table_partition else { continue };
            let [rows, files, bytes] = totals.entry(id).or_default();
            *rows += file.rows - file.deleted_rows();
            *files += 1;
            *bytes += file.bytes;
        }
        for partition in division.partitions {
            let counts = totals.get(&partition.id).copied().unwrap_or_default();
            let counts = counts.map(|count| sees_all.then_some(count));
            all.push((snapshot.schema_name(table), table, division.by, partition, counts));
        }
    }
    let cut = |holds: &Holds, is_end: bool| match holds {
        Holds::Range(start, end) => if is_end { end } else { start }.clone(),
        _ => None,
    };
    let cuts: Vec<_> =
        all.iter().map(|(.., own, _)| (cut(&own.holds, false), cut(&own.holds, true))).collect();
    let flags = |flags: Vec<Option<bool>>| Arc::new(flags.into_iter().collect::<BooleanArray>()) as ArrayRef;
    let values = |holds: &Holds| match holds {
        Holds::Values(values) => {
            let values = values.iter().map(|value| match value {
                Some(value) => format!("'{}'", value.replace('\'', "''")),
                None => "NULL".to_string(),
            });
            Some(values.collect::<Vec<_>>().join(", "))
        }
        _ => None,
    };
    let options = |options: &BTreeMap<String, String>| {
        let texts: Vec<String> = options.iter().map(|(name, value)| format!("{name} = {value}")).collect();
        (!texts.is_empty()).then(|| texts.join(", "))
    };
    let by = |by: DividedBy| if by == DividedBy::Range { "range" } else { "list" };
    Ok(vec![
        ("table_schema", texts(all.iter().map(|(schema, ..)| *schema))),
        ("table_name", texts(all.iter().map(|(_, table, ..)| Some(&table.name)))),
        ("partition_name", texts(all.iter().map(|(.., own, _)| Some(&own.name)))),
        ("partition_type", texts(all.iter().map(|(_, _, divided, ..)| Some(by(*divided))))),
        ("range_start", texts(cuts.iter().map(|(start, _)| start.as_ref().map(|cut| &cut.value)))),
        (
            "start_inclusive",
            flags(cuts.iter().map(|(start, _)| start.as_ref().map(|cut| !cut.after)).collect()),
        ),
        ("range_end", texts(cuts.iter().map(|(_, end)| end.as_ref().map(|cut| &cut.value)))),
        ("end_inclusive", flags(cuts.iter().map(|(_, end)| end.as_ref().map(|cut| cut.after)).collect())),
        ("list_values", texts(all.iter().map(|(.., own, _)| values(&own.holds)))),
        ("is_default", flags(all.iter().map(|(.., own, _)| Some(own.holds == Holds::Rest)).collect())),
        ("options", texts(all.iter().map(|(.., own, _)| options(&own.options)))),
        ("rows", numbers(all.iter().map(|(.., counts)| counts[0]))),
        ("files", numbers(all.iter().map(|(.., counts)| counts[1]))),
        ("bytes", numbers(all.iter().map(|(.., counts)| counts[2]))),
    ])
}

/// Row filters are shown to table owners only.
async fn row_filters(snapshot: &StatementSnapshot) -> Result<Columns> {
    let access = match &snapshot.catalog {
        Some(catalog) => catalog.access().await.map_err(explain)?,
        None => Arc::default(),
    };
    let all: Vec<_> = access
        .row_filters
        .iter()
        .filter_map(|((table, role), predicate)| {
            let state = snapshot.state.as_deref()?;
            let table = state.tables.get(table)?;
            let role = match *role {
                PUBLIC => "public",
                role => access.roles.get(&role)?.name.as_str(),
            };
            let owns = snapshot.viewer.owns(Object::Table(table.id));
            owns.then(|| (snapshot.schema_name(table), &table.name, role, predicate))
        })
        .collect();
    Ok(vec![
        ("table_schema", texts(all.iter().map(|row| row.0))),
        ("table_name", texts(all.iter().map(|row| Some(row.1)))),
        ("role_name", texts(all.iter().map(|row| Some(row.2)))),
        ("predicate", texts(all.iter().map(|row| Some(row.3)))),
    ])
}

/// Changes name tables, so they are shown to superusers only.
async fn snapshots(snapshot: &StatementSnapshot) -> Result<Columns> {
    let all = match &snapshot.catalog {
        Some(catalog) => catalog.snapshots().await.map_err(explain)?,
        None => vec![],
    };
    let sees_all = snapshot.viewer.is_superuser();
    let shown = |text: Option<&String>| text.filter(|_| sees_all).cloned();
    let times: StringArray = all.iter().map(|snapshot| Some(snapshot.time.as_str())).collect();
    let kind = DataType::Timestamp(TimeUnit::Microsecond, Some("+00:00".into()));
    Ok(vec![
        ("snapshot_id", numbers(all.iter().map(|snapshot| Some(snapshot.snapshot)))),
        ("snapshot_time", parse_array(&times, &kind)?),
        ("schema_version", numbers(all.iter().map(|snapshot| Some(snapshot.schema_version)))),
        ("changes", texts(all.iter().map(|snapshot| shown(Some(&snapshot.changes))))),
        ("author", texts(all.iter().map(|snapshot| shown(snapshot.author.as_ref())))),
        ("message", texts(all.iter().map(|snapshot| shown(snapshot.message.as_ref())))),
    ])
}

fn key_name(table: &Table, key: &PartitionKey) -> String {
    let column = table.columns.iter().find(|column| column.id == key.column);
    let column = column.map_or("?", |column| column.name.as_str());
    match key.transform {
        Transform::Identity => column.to_string(),
        Transform::Year => format!("year({column})"),
        Transform::Month => format!("month({column})"),
        Transform::Day => format!("day({column})"),
        Transform::Hour => format!("hour({column})"),
        Transform::Bucket(count) => format!("bucket({count}, {column})"),
    }
}

fn division_name(table: &Table, division: &TablePartitions) -> String {
    let column = table.columns.iter().find(|column| column.id == division.column);
    let by = if division.by == DividedBy::Range { "range" } else { "list" };
    format!("{by}({})", column.map_or("?", |column| column.name.as_str()))
}

fn partitioning(table: &Table) -> Result<Option<String>> {
    let division = partitions_of(table)?.map(|division| division_name(table, &division));
    let keys = table.partition.iter().map(|key| key_name(table, key));
    let keys: Vec<String> = division.into_iter().chain(keys).collect();
    Ok((!keys.is_empty()).then(|| keys.join(", ")))
}

fn sorting(table: &Table) -> Option<String> {
    let key = |key: &harrier_catalog::state::SortKey| {
        let direction = if key.descending { " DESC" } else { "" };
        let nulls = if key.nulls_first { " NULLS FIRST" } else { " NULLS LAST" };
        format!("{}{direction}{nulls}", key.expression)
    };
    let keys: Vec<String> = table.sort.iter().map(key).collect();
    (!keys.is_empty()).then(|| keys.join(", "))
}
