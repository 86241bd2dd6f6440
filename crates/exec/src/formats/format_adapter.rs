//! Adapters that turn a format's own parts into a DataFusion format, scan and sink.
//!
//! - [`OwnFormat`] is a format with its options, [`Files`] the DataFusion format around it, [`FilesFactory`]
//!   creates it from options.
//! - [`OwnScan`] opens files, [`FilesSource`] is the scan: it reads the projected columns in batches.
//! - [`OwnSink`] writes files, [`FilesSink`] is the sink: DataFusion distributes rows to its files.

use std::collections::HashMap;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::Session;
use datafusion::common::runtime::SpawnedTask;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{GetExt, Result, Statistics, internal_datafusion_err, not_impl_err};
use datafusion::datasource::file_format::file_compression_type::FileCompressionType;
use datafusion::datasource::file_format::write::demux::DemuxedStreamReceiver;
use datafusion::datasource::file_format::{FileFormat, FileFormatFactory};
use datafusion::datasource::physical_plan::{
    FileOpener, FileScanConfig, FileSink, FileSinkConfig, FileSource,
};
use datafusion::datasource::projection::{ProjectionOpener, SplitProjection};
use datafusion::datasource::sink::{DataSink, DataSinkExec};
use datafusion::datasource::source::DataSourceExec;
use datafusion::datasource::table_schema::TableSchema;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::object_store::{ObjectMeta, ObjectStore};
use datafusion::physical_expr::projection::ProjectionExprs;
use datafusion::physical_expr::{LexRequirement, PhysicalExpr};
use datafusion::physical_plan::metrics::{ExecutionPlanMetricsSet, MetricsSet};
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, apply_expression_roots};
use futures::FutureExt;
use futures::future::{BoxFuture, ready};

use crate::file_versions;
use crate::formats::damaged_files;
use harrier_error::{SqlError, SqlState};
use harrier_sqlstate::IntoDataFusionError;

/// A format with its options.
pub trait OwnFormat: fmt::Debug + Default + Send + Sync + 'static {
    /// The name in errors, and in SQL in either case.
    const NAME: &'static str;
    /// Extension of file names.
    const EXTENSION: &'static str;

    /// Sets one option; returns whether it exists.
    ///
    /// Errors: the value is invalid (22023).
    fn set(&mut self, name: &str, value: &str) -> Result<bool>;

    /// Checks the options after all are set.
    ///
    /// Errors: they are inconsistent (22023).
    fn check(&self) -> Result<()> {
        Ok(())
    }

    /// Infers the merged columns of all files.
    fn infer_schema<'a>(
        &'a self,
        state: &'a dyn Session,
        store: &'a Arc<dyn ObjectStore>,
        objects: &'a [ObjectMeta],
    ) -> BoxFuture<'a, Result<SchemaRef>>;

    /// Infers the statistics of one file.
    fn infer_stats<'a>(
        &'a self,
        _store: &'a Arc<dyn ObjectStore>,
        table_schema: SchemaRef,
        _object: &'a ObjectMeta,
    ) -> BoxFuture<'a, Result<Statistics>> {
        ready(Ok(Statistics::new_unknown(&table_schema))).boxed()
    }

    fn source(&self, table_schema: TableSchema) -> Arc<dyn FileSource>;

    /// The sink of COPY.
    ///
    /// Errors: COPY is not supported; a type or a name cannot be written (0A000).
    fn sink(&self, _config: FileSinkConfig) -> Result<Arc<dyn DataSink>> {
        not_impl_err!("COPY writes no files in {}; INSERT into an external table may", Self::NAME)
    }
}

/// Factory of [`Files`].
pub struct FilesFactory<F>(PhantomData<fn() -> F>);

impl<F> FilesFactory<F> {
    pub fn new() -> Arc<Self> {
        Arc::new(Self(PhantomData))
    }
}

impl<F: OwnFormat> fmt::Debug for FilesFactory<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("FilesFactory").field(&F::NAME).finish()
    }
}

impl<F: OwnFormat> FileFormatFactory for FilesFactory<F> {
    fn create(&self, _: &dyn Session, options: &HashMap<String, String>) -> Result<Arc<dyn FileFormat>> {
        let mut own = F::default();
        for (name, value) in options {
            let name = name.strip_prefix("format.").unwrap_or(name);
            if !own.set(name, value)? {
                let message = format!("{} has no option \"{name}\"", F::NAME);
                return Err(SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message).into_datafusion());
            }
        }
        own.check()?;
        Ok(Arc::new(Files { own }))
    }

    fn default(&self) -> Arc<dyn FileFormat> {
        Arc::new(Files { own: F::default() })
    }
}

impl<F: OwnFormat> GetExt for FilesFactory<F> {
    fn get_ext(&self) -> String {
        F::NAME.to_ascii_lowercase()
    }
}

/// A DataFusion format around an [`OwnFormat`].
#[derive(Debug)]
pub struct Files<F> {
    own: F,
}

impl<F> Files<F> {
    pub fn own(&self) -> &F {
        &self.own
    }
}

// Methods are written out for the compiler's sake: docs/decisions/0025-boxed-futures-behind-traits.md
impl<F: OwnFormat> FileFormat for Files<F> {
    fn get_ext(&self) -> String {
        F::EXTENSION.to_string()
    }

    /// Files of these formats contain their compression.
    fn get_ext_with_compression(&self, _: &FileCompressionType) -> Result<String> {
        Ok(F::EXTENSION.to_string())
    }

    fn compression_type(&self) -> Option<FileCompressionType> {
        None
    }

    fn infer_schema<'a: 'f, 'b: 'f, 'c: 'f, 'd: 'f, 'f>(
        &'a self,
        state: &'b dyn Session,
        store: &'c Arc<dyn ObjectStore>,
        objects: &'d [ObjectMeta],
    ) -> BoxFuture<'f, Result<SchemaRef>> {
        let name = damaged_files::name_of(objects);
        let store = file_versions::pin_objects(store, objects);
        async move { damaged_files::open(&name, self.own.infer_schema(state, &store, objects)).await }.boxed()
    }

    fn infer_stats<'a: 'f, 'b: 'f, 'c: 'f, 'd: 'f, 'f>(
        &'a self,
        _: &'b dyn Session,
        store: &'c Arc<dyn ObjectStore>,
        table_schema: SchemaRef,
        object: &'d ObjectMeta,
    ) -> BoxFuture<'f, Result<Statistics>> {
        let store = file_versions::pin_objects(store, std::slice::from_ref(object));
        async move { self.own.infer_stats(&store, table_schema, object).await }.boxed()
    }

    fn create_physical_plan<'a: 'f, 'b: 'f, 'f>(
        &'a self,
        _: &'b dyn Session,
        config: FileScanConfig,
    ) -> BoxFuture<'f, Result<Arc<dyn ExecutionPlan>>> {
        ready(Ok(DataSourceExec::from_data_source(config) as _)).boxed()
    }

    fn create_writer_physical_plan<'a: 'f, 'b: 'f, 'f>(
        &'a self,
        input: Arc<dyn ExecutionPlan>,
        _: &'b dyn Session,
        config: FileSinkConfig,
        order: Option<LexRequirement>,
    ) -> BoxFuture<'f, Result<Arc<dyn ExecutionPlan>>> {
        let sink = self.own.sink(config);
        ready(sink.map(|sink| Arc::new(DataSinkExec::new(input, sink, order)) as _)).boxed()
    }

    fn file_source(&self, table_schema: TableSchema) -> Arc<dyn FileSource> {
        self.own.source(table_schema)
    }
}

/// How files of a format are opened.
pub trait OwnScan: Clone + fmt::Debug + Send + Sync + 'static {
    /// The name in plans.
    const NAME: &'static str;
    /// Whether several output partitions may read one file, each a range of its bytes.
    const CUTS_FILES: bool;

    /// Opens files with the columns `file_schema`, which are the table's without its partition columns;
    /// batches have the columns at the indexes `columns`, in that order.
    fn opener(
        &self,
        store: Arc<dyn ObjectStore>,
        file_schema: &SchemaRef,
        columns: &[usize],
        batch_rows: usize,
    ) -> Result<Arc<dyn FileOpener>>;
}

/// A scan of files of a format.
#[derive(Debug, Clone)]
pub struct FilesSource<S> {
    own: S,
    table_schema: TableSchema,
    batch_rows: Option<usize>,
    projection: SplitProjection,
    metrics: ExecutionPlanMetricsSet,
}

impl<S> FilesSource<S> {
    pub fn new(table_schema: TableSchema, own: S) -> Self {
        Self {
            own,
            projection: SplitProjection::unprojected(&table_schema),
            table_schema,
            batch_rows: None,
            metrics: ExecutionPlanMetricsSet::new(),
        }
    }

    pub fn own(&self) -> &S {
        &self.own
    }
}

impl<S: OwnScan> FileSource for FilesSource<S> {
    fn create_file_opener(
        &self,
        store: Arc<dyn ObjectStore>,
        config: &FileScanConfig,
        _: usize,
    ) -> Result<Arc<dyn FileOpener>> {
        let store = file_versions::pin_scan(store, config);
        let file_schema = self.table_schema.file_schema();
        let batch_rows = self.batch_rows.ok_or_else(|| internal_datafusion_err!("no batch size"))?;
        let opener = self.own.opener(store, file_schema, &self.projection.file_indices, batch_rows)?;
        let opener = damaged_files::opener(opener);
        ProjectionOpener::try_new(self.projection.clone(), opener, file_schema)
    }

    fn table_schema(&self) -> &TableSchema {
        &self.table_schema
    }

    fn with_batch_size(&self, batch_rows: usize) -> Arc<dyn FileSource> {
        Arc::new(Self { batch_rows: Some(batch_rows), ..self.clone() })
    }

    fn projection(&self) -> Option<&ProjectionExprs> {
        Some(&self.projection.source)
    }

    fn try_pushdown_projection(&self, projection: &ProjectionExprs) -> Result<Option<Arc<dyn FileSource>>> {
        let merged = self.projection.source.try_merge(projection)?;
        let projection = SplitProjection::new(self.table_schema.file_schema(), &merged);
        Ok(Some(Arc::new(Self { projection, ..self.clone() })))
    }

    fn metrics(&self) -> &ExecutionPlanMetricsSet {
        &self.metrics
    }

    fn file_type(&self) -> &str {
        S::NAME
    }

    fn supports_repartitioning(&self) -> bool {
        S::CUTS_FILES
    }

    fn apply_expressions(
        &self,
        f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        apply_expression_roots(self.projection.source.iter(), f)
    }
}

/// How files of a format are written. Its `Display` is shown in plans.
pub trait OwnSink: fmt::Debug + fmt::Display + Send + Sync + 'static {
    /// The sink for ranks, which `sink_decoders.rs` makes again there; `None` for one that stays in its
    /// process.
    fn encode(&self) -> Option<EncodedSink>;

    /// Writes each file of `files` with its rows, and waits for `demux`, which feeds them; returns the number
    /// of rows.
    fn write<'a>(
        &'a self,
        context: &'a Arc<TaskContext>,
        demux: SpawnedTask<Result<()>>,
        files: DemuxedStreamReceiver,
        store: Arc<dyn ObjectStore>,
    ) -> BoxFuture<'a, Result<u64>>;
}

/// A sink without its configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EncodedSink {
    /// Its format.
    pub kind: &'static str,
    pub bytes: Vec<u8>,
}

/// Writes rows to files as DataFusion's demuxer distributes them.
#[derive(Debug)]
pub struct FilesSink {
    config: FileSinkConfig,
    own: Box<dyn OwnSink>,
}

impl FilesSink {
    pub fn new(config: FileSinkConfig, own: impl OwnSink) -> Self {
        Self { config, own: Box::new(own) }
    }

    pub fn own(&self) -> &dyn OwnSink {
        self.own.as_ref()
    }
}

impl DisplayAs for FilesSink {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.own)
    }
}

// Methods are written out for the compiler's sake: docs/decisions/0025-boxed-futures-behind-traits.md
impl DataSink for FilesSink {
    fn metrics(&self) -> Option<MetricsSet> {
        None
    }

    fn schema(&self) -> &SchemaRef {
        self.config.output_schema()
    }

    fn write_all<'a: 'f, 'b: 'f, 'f>(
        &'a self,
        data: SendableRecordBatchStream,
        context: &'b Arc<TaskContext>,
    ) -> BoxFuture<'f, Result<u64>> {
        FileSink::write_all(self, data, context)
    }
}

// Methods are written out for the compiler's sake: docs/decisions/0025-boxed-futures-behind-traits.md
impl FileSink for FilesSink {
    fn config(&self) -> &FileSinkConfig {
        &self.config
    }

    fn spawn_writer_tasks_and_join<'a: 'f, 'b: 'f, 'f>(
        &'a self,
        context: &'b Arc<TaskContext>,
        demux: SpawnedTask<Result<()>>,
        files: DemuxedStreamReceiver,
        store: Arc<dyn ObjectStore>,
    ) -> BoxFuture<'f, Result<u64>> {
        self.own.write(context, demux, files, store)
    }
}
