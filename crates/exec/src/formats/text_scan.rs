//! CSV and JSON: DataFusion's formats with their own scans.
//!
//! - [`TextFiles`] is the format, [`TextFilesFactory`] creates it from options.
//! - [`CsvScan`] splits files between rows only, even with line ends in quotes (`quotes.rs`,
//!   `row_starts.rs`), and detects unclosed quotes. DataFusion's reader parses the rows of the bytes given to
//!   it (`one_file.rs`), except if a pattern defines NULL or a column has floats (`csv_rows.rs`).
//! - [`JsonLines`] reads numbers without loss (`json_lines.rs`), and records on single lines or not
//!   (`json_records.rs`).
//!
//! Both read all members of compressed files (`compression.rs`), on ranks, too.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::catalog::Session;
use datafusion::common::config::{CsvOptions, JsonOptions};
use datafusion::common::{DataFusionError, GetExt, Result, Statistics};
use datafusion::datasource::file_format::csv::{CsvFormat, CsvFormatFactory};
use datafusion::datasource::file_format::file_compression_type::FileCompressionType;
use datafusion::datasource::file_format::json::{JsonFormat, JsonFormatFactory};
use datafusion::datasource::file_format::{DEFAULT_SCHEMA_INFER_MAX_RECORD, FileFormat, FileFormatFactory};
use datafusion::datasource::physical_plan::{
    CsvSource, FileScanConfig, FileScanConfigBuilder, FileSinkConfig, FileSource,
};
use datafusion::datasource::sink::DataSinkExec;
use datafusion::datasource::source::DataSourceExec;
use datafusion::datasource::table_schema::TableSchema;
use datafusion::logical_expr::dml::InsertOp;
use datafusion::object_store::{ObjectMeta, ObjectStore, ObjectStoreExt};
use datafusion::physical_expr::LexRequirement;
use datafusion::physical_plan::ExecutionPlan;
use futures::future::{BoxFuture, ready};
use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt, TryStreamExt};

mod csv_rows;
mod csv_scan;
mod json_lines;
mod json_records;
pub(crate) mod json_sink;
mod one_file;
mod quotes;
mod row_starts;

use crate::file_versions;
use crate::formats::compression;
use crate::formats::distinct_names::with_distinct_names;
use crate::formats::format_adapter::{FilesSink, FilesSource};
use crate::formats::merged_schemas;
pub use csv_scan::CsvScan;
use harrier_error::{SqlError, SqlState};
use harrier_sqlstate::IntoDataFusionError;
pub use json_lines::JsonLines;
use json_sink::JsonFiles;
use one_file::InputFiles;

/// The longest valid record: a few compressed bytes may expand to any length.
const RECORD_BYTES_MAX: usize = 256 << 20;

/// A scan of JSON files.
pub type JsonSource = FilesSource<JsonLines>;

/// Wraps DataFusion's factories to create [`TextFiles`].
#[derive(Debug)]
pub struct TextFilesFactory(Arc<dyn FileFormatFactory>);

impl TextFilesFactory {
    pub fn csv() -> Arc<Self> {
        Arc::new(Self(Arc::new(CsvFormatFactory::new())))
    }

    pub fn json() -> Arc<Self> {
        Arc::new(Self(Arc::new(JsonFormatFactory::new())))
    }
}

impl FileFormatFactory for TextFilesFactory {
    fn create(&self, state: &dyn Session, options: &HashMap<String, String>) -> Result<Arc<dyn FileFormat>> {
        Ok(TextFiles::of(self.0.create(state, options)?))
    }

    fn default(&self) -> Arc<dyn FileFormat> {
        TextFiles::of(FileFormatFactory::default(self.0.as_ref()))
    }
}

impl GetExt for TextFilesFactory {
    fn get_ext(&self) -> String {
        self.0.get_ext()
    }
}

/// DataFusion's format of CSV or JSON, with the scans of this module.
#[derive(Debug)]
pub enum TextFiles {
    Csv(Box<CsvFormat>),
    Json(JsonFormat),
}

impl TextFiles {
    /// CSV with these options.
    pub fn csv(options: CsvOptions) -> Arc<dyn FileFormat> {
        Arc::new(Self::Csv(Box::new(CsvFormat::default().with_options(options))))
    }

    fn of(format: Arc<dyn FileFormat>) -> Arc<dyn FileFormat> {
        if let Some(csv) = format.downcast_ref::<CsvFormat>() {
            return Self::csv(csv.options().clone());
        }
        match format.downcast_ref::<JsonFormat>() {
            Some(json) => Arc::new(Self::Json(JsonFormat::default().with_options(json.options().clone()))),
            None => format,
        }
    }

    fn inner(&self) -> &dyn FileFormat {
        match self {
            Self::Csv(csv) => csv.as_ref(),
            Self::Json(json) => json,
        }
    }

    fn compression(&self) -> FileCompressionType {
        match self {
            Self::Csv(csv) => csv.options().compression.into(),
            Self::Json(json) => json.options().compression.into(),
        }
    }
}

/// The CSV options of `format`, if it is CSV.
pub fn csv_options(format: &dyn FileFormat) -> Option<&CsvOptions> {
    match format.downcast_ref::<TextFiles>()? {
        TextFiles::Csv(csv) => Some(csv.options()),
        TextFiles::Json(_) => None,
    }
}

/// The JSON options of `format`, if it is JSON.
pub fn json_options(format: &dyn FileFormat) -> Option<&JsonOptions> {
    match format.downcast_ref::<TextFiles>()? {
        TextFiles::Json(json) => Some(json.options()),
        TextFiles::Csv(_) => None,
    }
}

// Methods are written out for the compiler's sake: docs/decisions/0025-boxed-futures-behind-traits.md
impl FileFormat for TextFiles {
    fn get_ext(&self) -> String {
        self.inner().get_ext()
    }

    fn get_ext_with_compression(&self, compression: &FileCompressionType) -> Result<String> {
        self.inner().get_ext_with_compression(compression)
    }

    fn compression_type(&self) -> Option<FileCompressionType> {
        self.inner().compression_type()
    }

    fn infer_schema<'a: 'f, 'b: 'f, 'c: 'f, 'd: 'f, 'f>(
        &'a self,
        state: &'b dyn Session,
        store: &'c Arc<dyn ObjectStore>,
        objects: &'d [ObjectMeta],
    ) -> BoxFuture<'f, Result<SchemaRef>> {
        let store = file_versions::pin_objects(store, objects);
        async move {
            match self {
                Self::Csv(csv) => infer_csv(csv, state, &store, objects).await,
                Self::Json(json) => infer_json(json, &store, objects).await,
            }
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
        self.inner().infer_stats(state, store, table_schema, object)
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
        let Self::Json(json) = self else {
            return self.inner().create_writer_physical_plan(input, state, config, order);
        };
        // DataFusion's says why it cannot.
        if config.insert_op != InsertOp::Append {
            return self.inner().create_writer_physical_plan(input, state, config, order);
        }
        let JsonOptions { compression, compression_level, .. } = *json.options();
        let sink = JsonFiles { compression, level: compression_level };
        let sink = Arc::new(FilesSink::new(config, sink));
        ready(Ok(Arc::new(DataSinkExec::new(input, sink, order)) as _)).boxed()
    }

    fn file_source(&self, table_schema: TableSchema) -> Arc<dyn FileSource> {
        match self {
            Self::Json(json) => {
                let compression = json.options().compression;
                Arc::new(JsonSource::new(table_schema, JsonLines { compression }))
            }
            // The scan's options are set when it is planned.
            Self::Csv(_) => self.inner().file_source(table_schema),
        }
    }
}

impl TextFiles {
    fn boxed_create_physical_plan<'a>(
        &'a self,
        state: &'a dyn Session,
        config: FileScanConfig,
    ) -> BoxFuture<'a, Result<Arc<dyn ExecutionPlan>>> {
        async move {
            let plan = self.inner().create_physical_plan(state, config).await?;
            let Self::Csv(csv) = self else { return Ok(plan) };
            let Some(scan) = crate::operators::file_scan::file_scan(&plan) else { return Ok(plan) };
            let Some(source) = scan.file_source().downcast_ref::<CsvSource>() else { return Ok(plan) };
            let mut options = csv.options().clone();
            options.has_header = Some(source.has_header());
            options.newlines_in_values = Some(source.newlines_in_values());
            let source = CsvScan::new(source.clone(), options);
            let config = FileScanConfigBuilder::from(scan.clone())
                .with_file_compression_type(self.compression())
                .with_source(Arc::new(source))
                .build();
            Ok(DataSourceExec::from_data_source(config) as _)
        }
        .boxed()
    }
}

/// A column whose sampled values are all NULL is inferred as text: later values are unknown.
fn infer_csv<'a>(
    csv: &'a CsvFormat,
    state: &'a dyn Session,
    store: &'a Arc<dyn ObjectStore>,
    objects: &'a [ObjectMeta],
) -> BoxFuture<'a, Result<SchemaRef>> {
    async move {
        let mut schemas = Vec::new();
        for (compression, files) in group_by_compression(csv.options().compression.into(), objects) {
            schemas.push(match compression.is_compressed() {
                true => {
                    let plain = CsvFormat::default()
                        .with_options(csv.options().clone())
                        .with_file_compression_type(FileCompressionType::UNCOMPRESSED);
                    let whole: Arc<dyn ObjectStore> =
                        Arc::new(InputFiles::decompressing(Arc::clone(store), compression));
                    columns_of(&plain, state, &whole, files).await?
                }
                false => columns_of(csv, state, store, files).await?,
            });
        }
        let schema = merge_schemas(schemas)?;
        if schema.fields().iter().all(|field| *field.data_type() != DataType::Null) {
            return Ok(schema);
        }
        let fields = schema.fields().iter().map(|field| match field.data_type() {
            DataType::Null => Arc::new(Field::new(field.name(), DataType::Utf8, true)),
            _ => Arc::clone(field),
        });
        let fields = fields.collect::<Vec<_>>();
        Ok(Arc::new(Schema::new_with_metadata(fields, schema.metadata().clone())) as SchemaRef)
    }
    .boxed()
}

/// Infers the columns of compressed CSV files, with deduplicated names: DataFusion merges columns of the same
/// name.
async fn columns_of(
    csv: &CsvFormat,
    state: &dyn Session,
    store: &Arc<dyn ObjectStore>,
    objects: &[ObjectMeta],
) -> Result<SchemaRef> {
    let mut left = csv.options().schema_infer_max_rec.unwrap_or(DEFAULT_SCHEMA_INFER_MAX_RECORD);
    let mut schemas = Vec::new();
    for object in objects {
        let bytes = store.get(&object.location).await?.into_stream();
        let chunks = csv.read_to_delimited_chunks_from_stream(bytes.map_err(DataFusionError::from).boxed());
        let (schema, records) = csv
            .infer_schema_from_stream(state, left, chunks)
            .await
            .map_err(|error| error.context(format!("Error when processing CSV file {}", object.location)))?;
        schemas.push(with_distinct_names(schema));
        left -= records;
        if left == 0 {
            break;
        }
    }
    Ok(Arc::new(Schema::try_merge(schemas)?))
}

fn infer_json<'a>(
    json: &'a JsonFormat,
    store: &'a Arc<dyn ObjectStore>,
    objects: &'a [ObjectMeta],
) -> BoxFuture<'a, Result<SchemaRef>> {
    async move {
        let mut schemas = Vec::new();
        for (compression, files) in group_by_compression(json.options().compression.into(), objects) {
            let records = json.options().schema_infer_max_rec.unwrap_or(DEFAULT_SCHEMA_INFER_MAX_RECORD);
            schemas.push(json_records::infer(store, files, compression, records).await?);
        }
        merge_schemas(schemas)
    }
    .boxed()
}

fn merge_schemas(schemas: Vec<SchemaRef>) -> Result<SchemaRef> {
    match <[SchemaRef; 1]>::try_from(schemas) {
        Ok([schema]) => Ok(schema),
        Err(schemas) => Ok(Arc::new(merged_schemas::merge(schemas.into_iter().map(Arc::unwrap_or_clone))?)),
    }
}

/// Groups consecutive files of the same compression.
fn group_by_compression(
    declared: FileCompressionType,
    files: &[ObjectMeta],
) -> impl Iterator<Item = (FileCompressionType, &[ObjectMeta])> {
    let compression = move |file: &ObjectMeta| compression_of(declared, file);
    let groups = files.chunk_by(move |file, next| compression(file) == compression(next));
    groups.map(move |group| (compression(&group[0]), group))
}

/// The compression of a file: as declared, or else by its name.
fn compression_of(declared: FileCompressionType, file: &ObjectMeta) -> FileCompressionType {
    match declared.is_compressed() {
        true => declared,
        false => compression::of_name(file.location.filename().unwrap_or_default()),
    }
}

/// Passes decompressed bytes through, with an error if a line is too long: its compressed form may be a
/// thousandth of the memory.
fn limit_line_length(
    bytes: BoxStream<'static, Result<Bytes>>,
    name: &str,
) -> BoxStream<'static, Result<Bytes>> {
    let name = name.to_string();
    let mut line_bytes = 0;
    let check = move |piece: Result<Bytes>| {
        let piece = piece?;
        line_bytes = match memchr::memrchr2(b'\n', b'\r', &piece) {
            Some(at) => piece.len() - at,
            None => line_bytes + piece.len(),
        };
        if line_bytes > RECORD_BYTES_MAX { Err(too_long(&name)) } else { Ok(piece) }
    };
    bytes.map(check).boxed()
}

/// The error of an unterminated record.
fn too_long(name: &str) -> DataFusionError {
    let message = format!("a record of file \"{name}\" is longer than {} megabytes", RECORD_BYTES_MAX >> 20);
    SqlError::new(SqlState::PROGRAM_LIMIT_EXCEEDED, message).into_datafusion()
}

/// The error of an unclosed quote, which takes all later rows into one field.
fn unclosed_quote(file: &ObjectMeta, line: u64) -> DataFusionError {
    let name = file.location.filename().unwrap_or_default();
    SqlError::new(SqlState::BAD_COPY_FILE_FORMAT, "unterminated CSV quoted field")
        .with_detail(format!("file \"{name}\", line {line}"))
        .into_datafusion()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn record_length_is_limited() {
        let read = |last: &'static [u8]| async move {
            let piece = Bytes::from(vec![b'x'; RECORD_BYTES_MAX / 2]);
            let pieces = [piece.clone(), Bytes::from_static(last), piece, Bytes::from_static(b"x")];
            let pieces = futures::stream::iter(pieces.map(Ok)).boxed();
            limit_line_length(pieces, "f").collect::<Vec<_>>().await.into_iter().collect::<Result<Vec<_>>>()
        };
        assert_eq!(read(b"y\ny").await.unwrap().len(), 4);
        let error = read(b"yy").await.unwrap_err();
        assert_eq!(harrier_sqlstate::of(&error), SqlState::PROGRAM_LIMIT_EXCEEDED);
    }
}
