//! Arrow IPC files and streams: DataFusion's format with its own scan.
//!
//! DataFusion infers the schema from the beginning of an object, and rejects a file whose first message
//! follows more padding than the format requires, which its own writer produces. Here the schema comes from
//! the footer. [`Batches`] reads the rows (`batches.rs`), with checks for damaged files and casts to the
//! table's types.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::ipc::reader::read_footer_length;
use datafusion::catalog::Session;
use datafusion::common::{GetExt, Result, Statistics};
use datafusion::datasource::file_format::arrow::ArrowFormatFactory;
use datafusion::datasource::file_format::file_compression_type::FileCompressionType;
use datafusion::datasource::file_format::{FileFormat, FileFormatFactory};
use datafusion::datasource::physical_plan::{
    FileScanConfig, FileScanConfigBuilder, FileSinkConfig, FileSource,
};
use datafusion::datasource::source::DataSourceExec;
use datafusion::datasource::table_schema::TableSchema;
use datafusion::object_store::{ObjectMeta, ObjectStore, ObjectStoreExt};
use datafusion::physical_expr::LexRequirement;
use datafusion::physical_plan::ExecutionPlan;
use futures::FutureExt;
use futures::future::{BoxFuture, ready};

mod batches;

use crate::file_versions;
use crate::formats::damaged_files;
use crate::formats::format_adapter::FilesSource;
use crate::formats::merged_schemas::merge;
pub use batches::Batches;

/// A scan of Arrow IPC files and streams.
pub type ArrowFilesSource = FilesSource<Batches>;

/// Bytes of the footer length and the magic number, at the end of a file.
const TRAILER_BYTES: usize = 10;

/// Factory of the Arrow IPC format.
#[derive(Debug, Default)]
pub struct ArrowFilesFactory(ArrowFormatFactory);

impl FileFormatFactory for ArrowFilesFactory {
    fn create(&self, state: &dyn Session, options: &HashMap<String, String>) -> Result<Arc<dyn FileFormat>> {
        Ok(Arc::new(ArrowFiles(self.0.create(state, options)?)))
    }

    fn default(&self) -> Arc<dyn FileFormat> {
        Arc::new(ArrowFiles(FileFormatFactory::default(&self.0)))
    }
}

impl GetExt for ArrowFilesFactory {
    fn get_ext(&self) -> String {
        self.0.get_ext()
    }
}

/// Wraps DataFusion's format.
#[derive(Debug)]
struct ArrowFiles(Arc<dyn FileFormat>);

// Methods are written out for the compiler's sake: docs/decisions/0025-boxed-futures-behind-traits.md
impl FileFormat for ArrowFiles {
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
        _: &'b dyn Session,
        store: &'c Arc<dyn ObjectStore>,
        objects: &'d [ObjectMeta],
    ) -> BoxFuture<'f, Result<SchemaRef>> {
        boxed_infer_schema(store, objects)
    }

    fn infer_stats<'a: 'f, 'b: 'f, 'c: 'f, 'd: 'f, 'f>(
        &'a self,
        state: &'b dyn Session,
        store: &'c Arc<dyn ObjectStore>,
        table_schema: SchemaRef,
        object: &'d ObjectMeta,
    ) -> BoxFuture<'f, Result<Statistics>> {
        let store = file_versions::pin_objects(store, std::slice::from_ref(object));
        async move { self.0.infer_stats(state, &store, table_schema, object).await }.boxed()
    }

    fn create_physical_plan<'a: 'f, 'b: 'f, 'f>(
        &'a self,
        state: &'b dyn Session,
        config: FileScanConfig,
    ) -> BoxFuture<'f, Result<Arc<dyn ExecutionPlan>>> {
        let create = || {
            let table_schema = config.file_source().table_schema().clone();
            let mut source: Arc<dyn FileSource> =
                Arc::new(ArrowFilesSource::new(table_schema, Batches::within(state.runtime_env())));
            if let Some(projection) = config.file_source().projection()
                && let Some(projected) = source.try_pushdown_projection(projection)?
            {
                source = projected;
            }
            let config = FileScanConfigBuilder::from(config.clone()).with_source(source).build();
            Ok(DataSourceExec::from_data_source(config) as Arc<dyn ExecutionPlan>)
        };
        ready(create()).boxed()
    }

    fn create_writer_physical_plan<'a: 'f, 'b: 'f, 'f>(
        &'a self,
        input: Arc<dyn ExecutionPlan>,
        state: &'b dyn Session,
        config: FileSinkConfig,
        order: Option<LexRequirement>,
    ) -> BoxFuture<'f, Result<Arc<dyn ExecutionPlan>>> {
        self.0.create_writer_physical_plan(input, state, config, order)
    }

    fn file_source(&self, table_schema: TableSchema) -> Arc<dyn FileSource> {
        self.0.file_source(table_schema)
    }
}

fn boxed_infer_schema<'a>(
    store: &'a Arc<dyn ObjectStore>,
    objects: &'a [ObjectMeta],
) -> BoxFuture<'a, Result<SchemaRef>> {
    async move {
        let mut schemas = Vec::with_capacity(objects.len());
        let store = file_versions::pin_objects(store, objects);
        for object in objects {
            schemas.push(batches::schema_of(Arc::clone(&store), object.clone()).await?);
        }
        Ok(Arc::new(merge(schemas)?))
    }
    .boxed()
}

/// Reads the footer of a file; `None`: the object has none, because it is a stream or not Arrow.
async fn footer(store: &Arc<dyn ObjectStore>, object: &ObjectMeta) -> Result<Option<Bytes>> {
    let Some(end) = object.size.checked_sub(TRAILER_BYTES as u64) else { return Ok(None) };
    let trailer = store.get_range(&object.location, end..object.size).await?;
    let Ok(trailer) = <[u8; TRAILER_BYTES]>::try_from(trailer.as_ref()) else { return Ok(None) };
    let Ok(length) = read_footer_length(trailer) else { return Ok(None) };
    match end.checked_sub(length as u64) {
        Some(begin) => Ok(Some(store.get_range(&object.location, begin..end).await?)),
        None => {
            let name = object.location.filename().unwrap_or_default();
            Err(damaged_files::error(name, "its footer would begin before the file"))
        }
    }
}
