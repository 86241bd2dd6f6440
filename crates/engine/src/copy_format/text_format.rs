//! File format of COPY … TO in PostgreSQL's text format, CSV or JSON, the same text as to STDOUT. Only COPY
//! FROM reads the text format; queries read CSV and JSON with DataFusion's formats.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::Session;
use datafusion::common::parsers::CompressionTypeVariant;
use datafusion::common::runtime::SpawnedTask;
use datafusion::common::{GetExt, Statistics};
use datafusion::datasource::file_format::csv::CsvFormat;
use datafusion::datasource::file_format::file_compression_type::FileCompressionType;
use datafusion::datasource::file_format::write::BatchSerializer;
use datafusion::datasource::file_format::write::demux::DemuxedStreamReceiver;
use datafusion::datasource::file_format::write::orchestration::spawn_writer_tasks_and_join;
use datafusion::datasource::file_format::{FileFormat, FileFormatFactory};
use datafusion::datasource::physical_plan::{FileScanConfig, FileSinkConfig, FileSource};
use datafusion::datasource::sink::{DataSink, DataSinkExec};
use datafusion::datasource::table_schema::TableSchema;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::TaskContext;
use datafusion::object_store::{ObjectMeta, ObjectStore};
use datafusion::physical_expr::LexRequirement;
use datafusion::physical_plan::ExecutionPlan;
use futures::FutureExt;
use futures::future::{BoxFuture, ready};
use harrier_error::{SqlError, SqlState};
use harrier_exec::formats::format_adapter::{EncodedSink, FilesSink, OwnSink};
use harrier_exec::formats::sink_decoders::register_sink;
use harrier_functions::parse::datetime::DateOrder;
use harrier_functions::parse::interval::IntervalStyle;
use harrier_sql::parser::copy::{CopyFormat, CopyOptions, Header, LAYOUT, byte};
use harrier_sqlstate::IntoDataFusionError;
use prost::Message;

use crate::copy_format::encode::{encode, encode_json, header};
use crate::copy_format::layout::Layout;

/// Same as [`CopyFormat::name`].
const NAME: &str = "text";

/// Creates text formats from the options of a COPY.
#[derive(Debug, Default)]
pub(crate) struct TextFormatFactory;

impl FileFormatFactory for TextFormatFactory {
    fn create(&self, state: &dyn Session, options: &HashMap<String, String>) -> Result<Arc<dyn FileFormat>> {
        let mut given = CopyOptions::default();
        let mut compression = FileCompressionType::UNCOMPRESSED;
        let invalid = |message: String| SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message);
        let plain = |name: &str| name.strip_prefix("format.").unwrap_or(name).to_string();
        let format = match options.iter().find(|(name, _)| plain(name) == LAYOUT).map(|(_, value)| value) {
            None => CopyFormat::Text,
            Some(value) => match CopyFormat::of(value) {
                Some(format @ (CopyFormat::Text | CopyFormat::Csv | CopyFormat::Json)) => format,
                _ => {
                    return Err(
                        invalid(format!("layout is text, csv or json, not \"{value}\"")).into_datafusion()
                    );
                }
            },
        };
        for (name, value) in options {
            let name = plain(name);
            match name.as_str() {
                LAYOUT | "compression" | "execution.keep_partition_by_columns" => {}
                other if format == CopyFormat::Json => {
                    return Err(invalid(format!("json has no option \"{other}\"")).into_datafusion());
                }
                _ => {}
            }
            match name.as_str() {
                "delimiter" => given.delimiter = Some(byte("delimiter", value)?),
                "quote" => given.quote = Some(byte("quote", value)?),
                "escape" => given.escape = Some(byte("escape", value)?),
                "null_value" => given.null = Some(value.clone()),
                "has_header" => {
                    given.header = Some(match value.to_ascii_lowercase().as_str() {
                        "true" => Header::Present,
                        "false" => Header::Absent,
                        _ => {
                            return Err(invalid(format!("has_header is true or false, not \"{value}\""))
                                .into_datafusion());
                        }
                    });
                }
                "compression" => compression = value.parse()?,
                // The planner of COPY handles it.
                "execution.keep_partition_by_columns" | LAYOUT => {}
                other => {
                    return Err(
                        invalid(format!("{} has no option \"{other}\"", format.name())).into_datafusion()
                    );
                }
            }
        }
        let has_header = state.config_options().catalog.has_header;
        let layout = match format {
            CopyFormat::Json => None,
            format => {
                let header = if has_header { Header::Present } else { Header::Absent };
                Some(crate::copy_format::layout::layout(&given, format, header)?)
            }
        };
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
            intervals: IntervalStyle::default(),
            dates: DateOrder::default(),
            short_booleans: false,
        };
        Arc::new(TextFormat { layout: Some(layout), compression: FileCompressionType::UNCOMPRESSED })
    }
}

impl GetExt for TextFormatFactory {
    fn get_ext(&self) -> String {
        NAME.to_string()
    }
}

#[derive(Debug, Clone)]
struct TextFormat {
    /// `None`: one JSON object per line.
    layout: Option<Layout>,
    compression: FileCompressionType,
}

impl TextFormat {
    /// Errors: CSV cannot represent a column's type (0A000).
    fn check(&self, schema: &SchemaRef) -> Result<()> {
        if !self.layout.as_ref().is_some_and(|layout| layout.csv) {
            return Ok(());
        }
        match schema.fields().iter().find(|field| field.data_type().is_nested()) {
            None => Ok(()),
            Some(nested) => {
                let message =
                    format!("column \"{}\" has a nested type, which CSV does not have", nested.name());
                Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message)
                    .with_hint("COPY writes nested values to files in FORMAT json or parquet")
                    .into_datafusion())
            }
        }
    }
}

fn read_not_supported() -> DataFusionError {
    let message = "files in format text are not tables";
    SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message)
        .with_hint("COPY table FROM 'file'")
        .into_datafusion()
}

// Methods are expanded to keep compile times low: docs/decisions/0025-boxed-futures-behind-traits.md
impl FileFormat for TextFormat {
    fn get_ext(&self) -> String {
        match &self.layout {
            None => "json",
            Some(layout) if layout.csv => "csv",
            Some(_) => "txt",
        }
        .to_string()
    }

    fn get_ext_with_compression(&self, compression: &FileCompressionType) -> Result<String> {
        Ok(format!("{}{}", self.get_ext(), compression.get_ext()))
    }

    fn compression_type(&self) -> Option<FileCompressionType> {
        Some(self.compression)
    }

    fn infer_schema<'a: 'f, 'b: 'f, 'c: 'f, 'd: 'f, 'f>(
        &'a self,
        _: &'b dyn Session,
        _: &'c Arc<dyn ObjectStore>,
        _: &'d [ObjectMeta],
    ) -> BoxFuture<'f, Result<SchemaRef>> {
        ready(Err(read_not_supported())).boxed()
    }

    fn infer_stats<'a: 'f, 'b: 'f, 'c: 'f, 'd: 'f, 'f>(
        &'a self,
        _: &'b dyn Session,
        _: &'c Arc<dyn ObjectStore>,
        _: SchemaRef,
        _: &'d ObjectMeta,
    ) -> BoxFuture<'f, Result<Statistics>> {
        ready(Err(read_not_supported())).boxed()
    }

    fn create_physical_plan<'a: 'f, 'b: 'f, 'f>(
        &'a self,
        _: &'b dyn Session,
        _: FileScanConfig,
    ) -> BoxFuture<'f, Result<Arc<dyn ExecutionPlan>>> {
        ready(Err(read_not_supported())).boxed()
    }

    fn create_writer_physical_plan<'a: 'f, 'b: 'f, 'f>(
        &'a self,
        input: Arc<dyn ExecutionPlan>,
        _: &'b dyn Session,
        config: FileSinkConfig,
        order: Option<LexRequirement>,
    ) -> BoxFuture<'f, Result<Arc<dyn ExecutionPlan>>> {
        let checked = self.check(&input.schema());
        let sink = Arc::new(FilesSink::new(config, self.clone()));
        ready(checked.map(|()| Arc::new(DataSinkExec::new(input, sink, order)) as _)).boxed()
    }

    /// Scans are not supported, see [`TextFormat::create_physical_plan`].
    fn file_source(&self, table_schema: TableSchema) -> Arc<dyn FileSource> {
        CsvFormat::default().file_source(table_schema)
    }
}

/// Name of the sink in plans.
impl fmt::Display for TextFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match &self.layout {
            None => "JsonSink",
            Some(layout) if layout.csv => "CsvSink",
            Some(_) => "TextSink",
        })
    }
}

impl OwnSink for TextFormat {
    fn encode(&self) -> Option<EncodedSink> {
        Some(EncodedSink { kind: NAME, bytes: SentFormat::of(self)?.encode_to_vec() })
    }

    fn write<'a>(
        &'a self,
        context: &'a Arc<TaskContext>,
        demux: SpawnedTask<Result<()>>,
        files: DemuxedStreamReceiver,
        store: Arc<dyn ObjectStore>,
    ) -> BoxFuture<'a, Result<u64>> {
        let lines = Arc::new(LineSerializer(self.layout.clone()));
        spawn_writer_tasks_and_join(context, lines, self.compression, None, store, demux, files).boxed()
    }
}

/// A [`TextFormat`] for ranks. What only readers use is left out.
#[derive(Clone, PartialEq, Message)]
struct SentFormat {
    #[prost(message, optional, tag = "1")]
    layout: Option<SentLayout>,
    /// By name.
    #[prost(string, tag = "2")]
    compression: String,
}

#[derive(Clone, PartialEq, Message)]
struct SentLayout {
    #[prost(bool, tag = "1")]
    csv: bool,
    /// Delimiter, quote and escape.
    #[prost(bytes = "vec", tag = "2")]
    bytes: Vec<u8>,
    #[prost(string, tag = "3")]
    null: String,
    #[prost(bool, tag = "4")]
    has_header: bool,
    #[prost(bool, tag = "5")]
    short_booleans: bool,
}

impl SentFormat {
    /// `None`: a style of intervals that COPY to files does not have.
    fn of(format: &TextFormat) -> Option<Self> {
        let sent = |layout: &Layout| SentLayout {
            csv: layout.csv,
            bytes: vec![layout.delimiter, layout.quote, layout.escape],
            null: layout.null.clone(),
            has_header: layout.header != Header::Absent,
            short_booleans: layout.short_booleans,
        };
        let is_default = |layout: &Layout| layout.intervals == IntervalStyle::default();
        format.layout.as_ref().is_none_or(is_default).then(|| Self {
            layout: format.layout.as_ref().map(sent),
            compression: format.compression.get_variant().to_string(),
        })
    }

    fn format(self) -> Result<TextFormat> {
        let layout = self.layout.map(|sent| match sent.bytes[..] {
            [delimiter, quote, escape] => Ok(Layout {
                csv: sent.csv,
                delimiter,
                quote,
                escape,
                null: sent.null,
                header: if sent.has_header { Header::Present } else { Header::Absent },
                intervals: IntervalStyle::default(),
                dates: DateOrder::default(),
                short_booleans: sent.short_booleans,
            }),
            _ => Err(DataFusionError::Internal("a layout without its delimiters".to_string())),
        });
        let compression: CompressionTypeVariant = self.compression.parse()?;
        Ok(TextFormat { layout: layout.transpose()?, compression: compression.into() })
    }
}

/// Makes the sink again on a rank.
pub(crate) fn decode_sink(bytes: &[u8], config: FileSinkConfig) -> Result<Arc<dyn DataSink>> {
    let sent = SentFormat::decode(bytes).map_err(|error| DataFusionError::External(Box::new(error)))?;
    Ok(Arc::new(FilesSink::new(config, sent.format()?)))
}

/// Makes ranks of this process know the format.
pub(crate) fn register() {
    register_sink(NAME, decode_sink);
}

struct LineSerializer(Option<Layout>);

impl BatchSerializer for LineSerializer {
    fn serialize(&self, batch: RecordBatch, initial: bool) -> Result<Bytes> {
        let Some(layout) = &self.0 else {
            return Ok(encode_json(&batch)?.into());
        };
        let mut text = match initial && layout.header != Header::Absent {
            true => header(&batch.schema(), layout),
            false => Vec::new(),
        };
        text.extend(encode(&batch, layout)?);
        Ok(text.into())
    }
}
