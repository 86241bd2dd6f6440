//! COPY … TO a file in PostgreSQL's text format: what goes to STDOUT, as a format of files. Nothing reads it but COPY FROM.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::Session;
use datafusion::common::runtime::SpawnedTask;
use datafusion::common::{GetExt, Statistics};
use datafusion::datasource::file_format::csv::CsvFormat;
use datafusion::datasource::file_format::file_compression_type::FileCompressionType;
use datafusion::datasource::file_format::write::BatchSerializer;
use datafusion::datasource::file_format::write::demux::DemuxedStreamReceiver;
use datafusion::datasource::file_format::write::orchestration::spawn_writer_tasks_and_join;
use datafusion::datasource::file_format::{FileFormat, FileFormatFactory};
use datafusion::datasource::physical_plan::{FileScanConfig, FileSinkConfig, FileSource};
use datafusion::datasource::sink::DataSinkExec;
use datafusion::datasource::table_schema::TableSchema;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::TaskContext;
use datafusion::object_store::{ObjectMeta, ObjectStore};
use datafusion::physical_expr::LexRequirement;
use datafusion::physical_plan::ExecutionPlan;
use harrier_exec::file_formats::{FilesSink, OwnSink};
use harrier_exec::sqlstate::{CodedError, SqlState};

use super::out::{encode, header};
use super::parse::{CopyFormat, CopyOptions, Header, byte};
use super::rows::Layout;

/// As [`CopyFormat::name`] has it.
const NAME: &str = "text";

/// Makes text formats of the options of a COPY.
#[derive(Debug, Default)]
pub(crate) struct TextFormatFactory;

impl FileFormatFactory for TextFormatFactory {
    fn create(&self, _: &dyn Session, options: &HashMap<String, String>) -> Result<Arc<dyn FileFormat>> {
        let mut given = CopyOptions::default();
        let mut compression = FileCompressionType::UNCOMPRESSED;
        let invalid = |message: String| CodedError::new(SqlState::INVALID_PARAMETER_VALUE, message);
        for (name, value) in options {
            match name.strip_prefix("format.").unwrap_or(name) {
                "delimiter" => given.delimiter = Some(byte("delimiter", value)?),
                "quote" => given.quote = Some(byte("quote", value)?),
                "escape" => given.escape = Some(byte("escape", value)?),
                "null_value" => given.null = Some(value.clone()),
                "has_header" => {
                    given.header = Some(match value.to_ascii_lowercase().as_str() {
                        "true" => Header::Present,
                        "false" => Header::Absent,
                        _ => {
                            return Err(
                                invalid(format!("has_header is true or false, not \"{value}\"")).into()
                            );
                        }
                    });
                }
                "compression" => compression = value.parse()?,
                // The planner of COPY reads it.
                "execution.keep_partition_by_columns" => {}
                other => return Err(invalid(format!("text has no option \"{other}\"")).into()),
            }
        }
        let layout = super::layout(&given, CopyFormat::Text, Header::Absent)?;
        Ok(Arc::new(TextFormat { layout, compression }))
    }

    fn default(&self) -> Arc<dyn FileFormat> {
        let layout = Layout {
            csv: false,
            delimiter: b'\t',
            quote: b'"',
            escape: b'"',
            null: "\\N".to_string(),
            header: Header::Absent,
        };
        Arc::new(TextFormat { layout, compression: FileCompressionType::UNCOMPRESSED })
    }
}

impl GetExt for TextFormatFactory {
    fn get_ext(&self) -> String {
        NAME.to_string()
    }
}

#[derive(Debug, Clone)]
struct TextFormat {
    layout: Layout,
    compression: FileCompressionType,
}

fn only_copied() -> DataFusionError {
    let message = "files in format text are not tables";
    CodedError::new(SqlState::FEATURE_NOT_SUPPORTED, message).with_hint("COPY table FROM 'file'").into()
}

#[async_trait]
impl FileFormat for TextFormat {
    fn get_ext(&self) -> String {
        "txt".to_string()
    }

    fn get_ext_with_compression(&self, compression: &FileCompressionType) -> Result<String> {
        Ok(format!("txt{}", compression.get_ext()))
    }

    fn compression_type(&self) -> Option<FileCompressionType> {
        Some(self.compression)
    }

    async fn infer_schema(
        &self,
        _: &dyn Session,
        _: &Arc<dyn ObjectStore>,
        _: &[ObjectMeta],
    ) -> Result<SchemaRef> {
        Err(only_copied())
    }

    async fn infer_stats(
        &self,
        _: &dyn Session,
        _: &Arc<dyn ObjectStore>,
        _: SchemaRef,
        _: &ObjectMeta,
    ) -> Result<Statistics> {
        Err(only_copied())
    }

    async fn create_physical_plan(
        &self,
        _: &dyn Session,
        _: FileScanConfig,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Err(only_copied())
    }

    async fn create_writer_physical_plan(
        &self,
        input: Arc<dyn ExecutionPlan>,
        _: &dyn Session,
        config: FileSinkConfig,
        order: Option<LexRequirement>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let sink = Arc::new(FilesSink::new(config, self.clone()));
        Ok(Arc::new(DataSinkExec::new(input, sink, order)))
    }

    /// Of a scan that [`TextFormat::create_physical_plan`] does not make.
    fn file_source(&self, table_schema: TableSchema) -> Arc<dyn FileSource> {
        CsvFormat::default().file_source(table_schema)
    }
}

/// What writes it, as plans show it.
impl fmt::Display for TextFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TextSink")
    }
}

#[async_trait]
impl OwnSink for TextFormat {
    async fn write(
        &self,
        context: &Arc<TaskContext>,
        demux: SpawnedTask<Result<()>>,
        files: DemuxedStreamReceiver,
        store: Arc<dyn ObjectStore>,
    ) -> Result<u64> {
        let lines = Arc::new(Lines(self.layout.clone()));
        spawn_writer_tasks_and_join(context, lines, self.compression, None, store, demux, files).await
    }
}

struct Lines(Layout);

impl BatchSerializer for Lines {
    fn serialize(&self, batch: RecordBatch, initial: bool) -> Result<Bytes> {
        let mut text = match initial && self.0.header != Header::Absent {
            true => header(&batch.schema(), &self.0),
            false => Vec::new(),
        };
        text.extend(encode(&batch, Some(&self.0))?);
        Ok(text.into())
    }
}
