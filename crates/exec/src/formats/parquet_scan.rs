//! Parquet files of any writer: DataFusion's format and scan, with untrusted footers.
//!
//! - [`ParquetFiles`] is the format, [`ParquetFilesFactory`] creates it from options, [`ParquetScan`] is the
//!   scan.
//! - Wrong bounds of old writers are ignored, bytes read as text are validated as UTF-8, and metadata that
//!   the library misreads or rejects is repaired first (`footers.rs`, `repaired_footer.rs`, `pages.rs`).
//! - A panic of the library means a damaged file (`panic_guard.rs`).
//! - Column names match case-insensitively, unless there is an exact match (`names.rs`).
//! - Bytes that a footer says are UUIDs are texts in plans (`uuids.rs`).
//!
//! Warehouse files are Harrier's own, or DuckDB's, and are read without these checks.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::Arc;

use datafusion::arrow::datatypes::{Fields, Schema, SchemaRef};
use datafusion::catalog::Session;
use datafusion::common::config::{ConfigOptions, TableParquetOptions};
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{
    ColumnStatistics, DataFusionError, GetExt, Result, Statistics, internal_datafusion_err, internal_err,
};
use datafusion::datasource::file_format::file_compression_type::FileCompressionType;
use datafusion::datasource::file_format::parquet::{ParquetFormat, ParquetFormatFactory};
use datafusion::datasource::file_format::{FileFormat, FileFormatFactory, FileMeta};
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::parquet::CachedParquetFileReaderFactory;
use datafusion::datasource::physical_plan::parquet::metadata::{CachedParquetMetaData, DFParquetMetadata};
use datafusion::datasource::physical_plan::{
    FileOpener, FileScanConfig, FileScanConfigBuilder, FileSinkConfig, FileSource, ParquetSource,
};
use datafusion::datasource::source::DataSourceExec;
use datafusion::datasource::table_schema::TableSchema;
use datafusion::execution::cache::cache_manager::{CachedFileMetadataEntry, FileMetadata, FileMetadataCache};
use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::object_store::{ObjectMeta, ObjectStore, ObjectStoreExt};
use datafusion::parquet::file::metadata::ParquetMetaData;
use datafusion::physical_expr::projection::ProjectionExprs;
use datafusion::physical_expr::{EquivalenceProperties, LexRequirement, PhysicalExpr, PhysicalSortExpr};
use datafusion::physical_plan::filter_pushdown::FilterPushdownPropagation;
use datafusion::physical_plan::metrics::ExecutionPlanMetricsSet;
use datafusion::physical_plan::sort_pushdown::SortOrderPushdownResult;
use datafusion::physical_plan::{DisplayFormatType, ExecutionPlan};
use datafusion_datasource::morsel::Morselizer;
use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt};

mod bounds;
mod footers;
mod names;
mod pages;
mod panic_guard;
mod repaired_footer;
mod thrift;
mod uuids;

#[cfg(test)]
mod tests;

use crate::file_versions;
use crate::formats::damaged_files;
use crate::formats::merged_schemas::{merge, nullable};
use crate::operators::file_scan::file_scan;
use footers::CorrectedFooters;
use harrier_error::SqlState;
use panic_guard::PanicGuard;
use uuids::UuidColumns;

/// Concurrent reads of footers to repair.
const READS_AT_ONCE: usize = 16;

/// Factory of [`ParquetFiles`].
#[derive(Debug, Default)]
pub struct ParquetFilesFactory(ParquetFormatFactory);

impl FileFormatFactory for ParquetFilesFactory {
    fn create(&self, state: &dyn Session, options: &HashMap<String, String>) -> Result<Arc<dyn FileFormat>> {
        let format = self.0.create(state, options)?;
        match format.downcast_ref::<ParquetFormat>() {
            Some(parquet) => {
                let own = ParquetFormat::new().with_options(parquet.options().clone());
                Ok(Arc::new(ParquetFiles(own)))
            }
            None => Ok(format),
        }
    }

    fn default(&self) -> Arc<dyn FileFormat> {
        Arc::new(ParquetFiles(ParquetFormat::new()))
    }
}

impl GetExt for ParquetFilesFactory {
    fn get_ext(&self) -> String {
        self.0.get_ext()
    }
}

/// Wraps DataFusion's format.
#[derive(Debug)]
pub struct ParquetFiles(ParquetFormat);

/// The Parquet options of `format`, if it is Parquet.
pub fn parquet_options(format: &dyn FileFormat) -> Option<&TableParquetOptions> {
    Some(format.downcast_ref::<ParquetFiles>()?.0.options())
}

// Methods are written out for the compiler's sake: docs/decisions/0025-boxed-futures-behind-traits.md
impl FileFormat for ParquetFiles {
    fn get_ext(&self) -> String {
        self.0.get_ext()
    }

    fn get_ext_with_compression(&self, compression: &FileCompressionType) -> Result<String> {
        self.0.get_ext_with_compression(compression)
    }

    fn compression_type(&self) -> Option<FileCompressionType> {
        self.0.compression_type()
    }

    fn infer_schema<'a: 'f, 'b: 'f, 'c: 'f, 'd: 'f, 'f>(
        &'a self,
        state: &'b dyn Session,
        store: &'c Arc<dyn ObjectStore>,
        objects: &'d [ObjectMeta],
    ) -> BoxFuture<'f, Result<SchemaRef>> {
        let name = damaged_files::name_of(objects);
        async move {
            let store = &file_versions::pin_objects(store, objects);
            let inferred =
                with_repair(state, store, objects, || self.infer_merged_schema(state, store, objects));
            damaged_files::open(&name, inferred).await
        }
        .boxed()
    }

    fn infer_stats<'a: 'f, 'b: 'f, 'c: 'f, 'd: 'f, 'f>(
        &'a self,
        state: &'b dyn Session,
        store: &'c Arc<dyn ObjectStore>,
        table_schema: SchemaRef,
        object: &'d ObjectMeta,
    ) -> BoxFuture<'f, Result<Statistics>> {
        let store = file_versions::pin_objects(store, std::slice::from_ref(object));
        async move { statistics(&self.0, state, &store, table_schema, object).await }.boxed()
    }

    fn infer_stats_and_ordering<'a: 'f, 'b: 'f, 'c: 'f, 'd: 'f, 'f>(
        &'a self,
        state: &'b dyn Session,
        store: &'c Arc<dyn ObjectStore>,
        table_schema: SchemaRef,
        object: &'d ObjectMeta,
    ) -> BoxFuture<'f, Result<FileMeta>> {
        async move {
            let objects = std::slice::from_ref(object);
            let store = &file_versions::pin_objects(store, objects);
            let ordering = with_repair(state, store, objects, || {
                self.0.infer_ordering(state, store, Arc::clone(&table_schema), object).boxed()
            });
            let ordering = damaged_files::open(&damaged_files::name_of(objects), ordering).await?;
            let statistics = statistics(&self.0, state, store, table_schema, object).await?;
            Ok(FileMeta::new(statistics).with_ordering(ordering))
        }
        .boxed()
    }

    fn create_physical_plan<'a: 'f, 'b: 'f, 'f>(
        &'a self,
        state: &'b dyn Session,
        config: FileScanConfig,
    ) -> BoxFuture<'f, Result<Arc<dyn ExecutionPlan>>> {
        self.boxed_create_physical_plan(state, config)
    }

    fn create_writer_physical_plan<'a: 'f, 'b: 'f, 'f>(
        &'a self,
        input: Arc<dyn ExecutionPlan>,
        state: &'b dyn Session,
        config: FileSinkConfig,
        order: Option<LexRequirement>,
    ) -> BoxFuture<'f, Result<Arc<dyn ExecutionPlan>>> {
        async move {
            let options = bounds::without_floats(self.0.options(), &input.schema())?;
            let written = ParquetFormat::new().with_options(options);
            written.create_writer_physical_plan(input, state, config, order).await
        }
        .boxed()
    }

    fn file_source(&self, table_schema: TableSchema) -> Arc<dyn FileSource> {
        self.0.file_source(table_schema)
    }
}

impl ParquetFiles {
    /// Infers the merged columns of files.
    fn infer_merged_schema<'a>(
        &'a self,
        state: &'a dyn Session,
        store: &'a Arc<dyn ObjectStore>,
        objects: &'a [ObjectMeta],
    ) -> BoxFuture<'a, Result<SchemaRef>> {
        async move {
            let mut inferred = self.0.infer_schema(state, store, objects).await;
            if deduplicate_cached_names(state, store, objects).await {
                inferred = self.0.infer_schema(state, store, objects).await;
            }
            match inferred {
                Err(error)
                    if objects.len() > 1 && harrier_sqlstate::of(&error) == SqlState::DATATYPE_MISMATCH => {}
                // A column may be missing in some files, where it is NULL.
                Ok(schema) if objects.len() > 1 => {
                    let fields: Fields = schema.fields().iter().map(nullable).collect();
                    let schema = Schema::new_with_metadata(fields, schema.metadata().clone());
                    return with_uuids(schema, state, store, objects).await.map(Arc::new);
                }
                Ok(schema) => {
                    return with_uuids(Arc::unwrap_or_clone(schema), state, store, objects)
                        .await
                        .map(Arc::new);
                }
                Err(error) => return Err(error),
            }
            let mut schemas = Vec::with_capacity(objects.len());
            for object in objects {
                let object = std::slice::from_ref(object);
                let schema = self.0.infer_schema(state, store, object).await?;
                schemas.push(with_uuids(Arc::unwrap_or_clone(schema), state, store, object).await?);
            }
            // Some files may have UUIDs as bytes, others as texts.
            let uuids: HashSet<String> = schemas
                .iter()
                .flat_map(|schema| schema.fields())
                .filter(|field| uuids::is_uuid(field))
                .map(|field| field.name().clone())
                .collect();
            Ok(Arc::new(uuids::declare(merge(schemas)?, &uuids)) as SchemaRef)
        }
        .boxed()
    }

    fn boxed_create_physical_plan<'a>(
        &'a self,
        state: &'a dyn Session,
        config: FileScanConfig,
    ) -> BoxFuture<'a, Result<Arc<dyn ExecutionPlan>>> {
        async move { checked_scan(self.0.create_physical_plan(state, config).await?, state.runtime_env()) }
            .boxed()
    }
}

/// The columns of files as plans have them: bytes are UUIDs if a file says so.
async fn with_uuids(
    mut schema: Schema,
    state: &dyn Session,
    store: &Arc<dyn ObjectStore>,
    objects: &[ObjectMeta],
) -> Result<Schema> {
    let cache = state.runtime_env().cache_manager.get_file_metadata_cache();
    for object in objects {
        if !uuids::may_have_uuids(&schema) {
            break;
        }
        let footer = DFParquetMetadata::new(store.as_ref(), object)
            .with_file_metadata_cache(Some(Arc::clone(&cache)))
            .fetch_metadata()
            .await?;
        schema = uuids::in_plans(&schema, &footer);
    }
    Ok(schema)
}

/// Replaces the source of a Parquet scan by [`ParquetScan`].
pub(crate) fn checked_scan(
    plan: Arc<dyn ExecutionPlan>,
    runtime: &RuntimeEnv,
) -> Result<Arc<dyn ExecutionPlan>> {
    let scan = file_scan(&plan).ok_or_else(|| internal_datafusion_err!("no scan of files"))?;
    let footers = runtime.cache_manager.get_file_metadata_cache();
    let source = ParquetScan::of(scan.file_source().as_ref(), footers)?;
    let config = FileScanConfigBuilder::from(scan.clone()).with_source(Arc::new(source)).build();
    Ok(DataSourceExec::from_data_source(config))
}

/// Undoes [`checked_scan`].
pub(crate) fn unchecked_scan(scan: &FileScanConfig, source: &ParquetScan) -> Arc<dyn ExecutionPlan> {
    let config =
        FileScanConfigBuilder::from(scan.clone()).with_source(Arc::new(source.inner.clone())).build();
    DataSourceExec::from_data_source(config)
}

/// The reliable statistics of a footer for the columns of a table.
fn statistics<'a>(
    format: &'a ParquetFormat,
    state: &'a dyn Session,
    store: &'a Arc<dyn ObjectStore>,
    table_schema: SchemaRef,
    object: &'a ObjectMeta,
) -> BoxFuture<'a, Result<Statistics>> {
    let reading = async move {
        let crypto = &format.options().crypto;
        if crypto.file_decryption.is_some() || crypto.factory_id.is_some() {
            return format.infer_stats(state, store, table_schema, object).await;
        }
        let cache = state.runtime_env().cache_manager.get_file_metadata_cache();
        let fetched = || {
            let footer = DFParquetMetadata::new(store.as_ref(), object)
                .with_metadata_size_hint(format.metadata_size_hint())
                .with_file_metadata_cache(Some(Arc::clone(&cache)));
            async move { footer.fetch_metadata().await }.boxed()
        };
        let footer = with_repair(state, store, std::slice::from_ref(object), fetched).await?;
        let footer = footers::without_unreliable_bounds(footer);
        let stored = uuids::in_file(&table_schema, &footer);
        let mut statistics = DFParquetMetadata::statistics_from_parquet_metadata(&footer, &stored)?;
        // A column with another case in the file would be taken for a missing one.
        let roots = footer.file_metadata().schema_descr().root_schema().get_fields();
        let fields = table_schema.fields().iter().zip(stored.fields());
        for ((field, own), known) in fields.zip(&mut statistics.column_statistics) {
            if field.data_type() != own.data_type() || !roots.iter().any(|root| root.name() == field.name()) {
                *known = ColumnStatistics::new_unknown();
            }
        }
        Ok(statistics)
    };
    async move { damaged_files::open(&damaged_files::name_of(std::slice::from_ref(object)), reading).await }
        .boxed()
}

/// Runs `done`. If the library rejects a file, runs it again after repairing the footers, if there are any to
/// repair.
fn with_repair<'a, T: Send + 'a>(
    state: &'a dyn Session,
    store: &'a Arc<dyn ObjectStore>,
    objects: &'a [ObjectMeta],
    done: impl Fn() -> BoxFuture<'a, Result<T>> + Send + 'a,
) -> BoxFuture<'a, Result<T>> {
    async move {
        let error = match done().await {
            Err(error) if is_repairable(&error) => error,
            done => return done,
        };
        let cache = state.runtime_env().cache_manager.get_file_metadata_cache();
        let mut reads = Vec::with_capacity(objects.len());
        for object in objects {
            reads.push(repaired_footer(store.as_ref(), object));
        }
        let mut reads = futures::stream::iter(reads).buffer_unordered(READS_AT_ONCE);
        let mut is_repaired = false;
        while let Some(read) = reads.next().await {
            let Some((object, footer)) = read else { continue };
            let footer: Arc<dyn FileMetadata> = Arc::new(CachedParquetMetaData::new(footer));
            cache.put(&object.location, CachedFileMetadataEntry::new(object.clone(), footer));
            is_repaired = true;
        }
        if is_repaired { done().await } else { Err(error) }
    }
    .boxed()
}

/// Whether an error is the library's about a file's content: not the store's, nor a cancellation.
fn is_repairable(error: &DataFusionError) -> bool {
    [SqlState::DATA_CORRUPTED, SqlState::FEATURE_NOT_SUPPORTED, SqlState::INTERNAL_ERROR]
        .contains(&harrier_sqlstate::of(error))
}

/// Replaces cached footers by ones with deduplicated column names, if the first file has duplicates. Returns
/// whether it has.
async fn deduplicate_cached_names(
    state: &dyn Session,
    store: &Arc<dyn ObjectStore>,
    objects: &[ObjectMeta],
) -> bool {
    let cache = state.runtime_env().cache_manager.get_file_metadata_cache();
    for (at, object) in objects.iter().enumerate() {
        let footer = DFParquetMetadata::new(store.as_ref(), object)
            .with_file_metadata_cache(Some(Arc::clone(&cache)))
            .fetch_metadata()
            .await;
        let Some(footer) =
            footer.ok().and_then(|footer| footers::with_distinct_names(&footer).ok().flatten())
        else {
            match at {
                0 => return false,
                _ => continue,
            }
        };
        let footer: Arc<dyn FileMetadata> = Arc::new(CachedParquetMetaData::new(footer));
        cache.put(&object.location, CachedFileMetadataEntry::new(object.clone(), footer));
    }
    !objects.is_empty()
}

/// A file with its repaired footer; `None`: there is nothing to repair, or it cannot be read.
fn repaired_footer<'a>(
    store: &'a dyn ObjectStore,
    object: &'a ObjectMeta,
) -> BoxFuture<'a, Option<(&'a ObjectMeta, Arc<ParquetMetaData>)>> {
    async move {
        let tail = store.get_range(&object.location, footers::tail(object.size)?).await.ok()?;
        let place = footers::place_of_footer(&tail, object.size)?;
        let footer = footers::repair(&store.get_range(&object.location, place).await.ok()?)?;
        Some((object, footer))
    }
    .boxed()
}

/// DataFusion's scan of Parquet files, for files of any writer.
#[derive(Clone)]
pub struct ParquetScan {
    inner: ParquetSource,
    footers: Arc<FileMetadataCache>,
}

impl ParquetScan {
    fn of(source: &dyn FileSource, footers: Arc<FileMetadataCache>) -> Result<Self> {
        match source.downcast_ref::<ParquetSource>() {
            Some(inner) => Ok(Self { inner: inner.clone(), footers }),
            None => internal_err!("a scan of Parquet files that is none"),
        }
    }

    /// The same around another scan.
    fn over(&self, inner: Arc<dyn FileSource>) -> Result<Arc<dyn FileSource>> {
        Ok(Arc::new(Self::of(inner.as_ref(), Arc::clone(&self.footers))?))
    }
}

impl FileSource for ParquetScan {
    fn create_file_opener(
        &self,
        store: Arc<dyn ObjectStore>,
        config: &FileScanConfig,
        partition: usize,
    ) -> Result<Arc<dyn FileOpener>> {
        self.inner.create_file_opener(store, config, partition)
    }

    fn create_morselizer(
        &self,
        store: Arc<dyn ObjectStore>,
        config: &FileScanConfig,
        partition: usize,
    ) -> Result<Box<dyn Morselizer>> {
        let store = file_versions::pin_scan(store, config);
        let reader = CachedParquetFileReaderFactory::new(Arc::clone(&store), Arc::clone(&self.footers));
        let reader =
            CorrectedFooters::new(Arc::new(reader), Arc::clone(self.inner.table_schema().file_schema()));
        let mut config = config.clone();
        config.expr_adapter_factory = Some(Arc::new(UuidColumns));
        let source = self.inner.clone().with_parquet_file_reader_factory(Arc::new(reader));
        Ok(Box::new(PanicGuard::new(source.create_morselizer(store, &config, partition)?)))
    }

    fn table_schema(&self) -> &TableSchema {
        self.inner.table_schema()
    }

    fn with_batch_size(&self, batch_rows: usize) -> Arc<dyn FileSource> {
        let inner = self.inner.with_batch_size(batch_rows);
        self.over(Arc::clone(&inner)).unwrap_or(inner)
    }

    fn filter(&self) -> Option<Arc<dyn PhysicalExpr>> {
        self.inner.filter()
    }

    fn projection(&self) -> Option<&ProjectionExprs> {
        self.inner.projection()
    }

    fn metrics(&self) -> &ExecutionPlanMetricsSet {
        self.inner.metrics()
    }

    fn file_type(&self) -> &str {
        self.inner.file_type()
    }

    fn fmt_extra(&self, kind: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt_extra(kind, f)
    }

    fn supports_repartitioning(&self) -> bool {
        self.inner.supports_repartitioning()
    }

    fn try_pushdown_filters(
        &self,
        filters: Vec<Arc<dyn PhysicalExpr>>,
        config: &ConfigOptions,
    ) -> Result<FilterPushdownPropagation<Arc<dyn FileSource>>> {
        let done = self.inner.try_pushdown_filters(filters, config)?;
        let updated_node = done.updated_node.map(|inner| self.over(inner)).transpose()?;
        Ok(FilterPushdownPropagation { filters: done.filters, updated_node })
    }

    fn try_pushdown_sort(
        &self,
        order: &[PhysicalSortExpr],
        properties: &EquivalenceProperties,
    ) -> Result<SortOrderPushdownResult<Arc<dyn FileSource>>> {
        self.inner.try_pushdown_sort(order, properties)?.try_map(|inner| self.over(inner))
    }

    fn reorder_files(&self, files: Vec<PartitionedFile>) -> Vec<PartitionedFile> {
        self.inner.reorder_files(files)
    }

    fn try_pushdown_projection(&self, projection: &ProjectionExprs) -> Result<Option<Arc<dyn FileSource>>> {
        let inner = self.inner.try_pushdown_projection(projection)?;
        inner.map(|inner| self.over(inner)).transpose()
    }

    fn apply_expressions(
        &self,
        f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        self.inner.apply_expressions(f)
    }
}
