//! Wire format of this crate's operators and scans.

use std::collections::BTreeMap;
use std::sync::Arc;

use datafusion::arrow::csv::WriterBuilder;
use datafusion::arrow::datatypes::Schema;
use datafusion::arrow::ipc::reader::StreamReader;
use datafusion::arrow::ipc::writer::StreamWriter;
use datafusion::catalog::memory::DataSourceExec;
use datafusion::common::config::CsvOptions;
use datafusion::common::file_options::csv_writer::CsvWriterOptions;
use datafusion::common::parsers::CompressionTypeVariant;
use datafusion::common::{Result, internal_datafusion_err, internal_err};
use datafusion::datasource::file_format::csv::CsvSink;
use datafusion::datasource::physical_plan::{FileScanConfig, FileSink, FileSource};
use datafusion::datasource::sink::DataSinkExec;
use datafusion::execution::TaskContext;
use datafusion::logical_expr::ScalarUDF;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::execution_plan::replace_children_if_necessary;
use datafusion_proto::physical_plan::from_proto::parse_protobuf_file_scan_config;
use datafusion_proto::physical_plan::to_proto::serialize_file_scan_config;
use datafusion_proto::physical_plan::{
    PhysicalExtensionCodec, PhysicalPlanDecodeContext, PhysicalProtoConverterExtension,
};
use datafusion_proto::protobuf;
use harrier_committer::object_store::ReplacedFiles;
use prost::Message;

use crate::data_files::delete_filter::{DeletedRows, LiveRowsExec, StoredDeletes};
use crate::data_files::row_filter::VisibleRowsExec;
use crate::data_files::write_files::WriteFilesExec;
use crate::data_files::write_format::WriteFormat;
use crate::data_files::write_spec::{FileShape, PartitionFolder, WriteSpec};
use crate::distribution::direct_dispatch::{Bucket, DispatchExec};
use crate::formats::arrow_ipc::{ArrowFilesSource, Batches};
use crate::formats::atomic_sinks::StagingPlace;
use crate::formats::avro;
use crate::formats::avro::{AvroSource, Blocks};
use crate::formats::delimited::{self, DelimitedSource};
use crate::formats::format_adapter::{EncodedSink, FilesSink};
use crate::formats::orc;
use crate::formats::orc::{OrcSource, Stripes};
use crate::formats::parquet_scan::{self, ParquetScan};
use crate::formats::sink_decoders::decode_sink;
use crate::formats::staged_files::{StagedFilesExec, config_of, sink_without_rows, without_rows};
use crate::formats::text_scan::{CsvScan, JsonLines, JsonSource};
use crate::functions::scalar_function;
use crate::operators::file_scan::file_scan;
use crate::operators::grouping_sets::{GroupingSet, GroupingSetsExec};
use crate::operators::runtime_filter::RuntimeFilterExec;
use crate::operators::unordered::UnorderedExec;
use crate::transport::messages;

/// Encodes [`LiveRowsExec`], [`WriteFilesExec`], [`VisibleRowsExec`], [`DispatchExec`], [`UnorderedExec`],
/// [`RuntimeFilterExec`], [`GroupingSetsExec`], [`StagedFilesExec`], [`DataSinkExec`] of formats of ours,
/// scans by [`OrcSource`], [`AvroSource`], [`ArrowFilesSource`], [`DelimitedSource`], [`CsvScan`],
/// [`JsonSource`] and [`ParquetScan`], and the bucket function.
#[derive(Debug)]
pub struct NodeCodec {
    decode_plan: DecodePlan,
}

/// Decodes a nested plan, with the functions of a session.
type DecodePlan = fn(&[u8], &TaskContext) -> Result<Arc<dyn ExecutionPlan>>;

impl NodeCodec {
    /// `decode_plan`: for the plans that [`nested_plan`] wraps.
    pub fn new(decode_plan: DecodePlan) -> Self {
        Self { decode_plan }
    }
}

#[derive(Clone, PartialEq, Message)]
struct Node {
    #[prost(oneof = "Kind", tags = "1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17")]
    kind: Option<Kind>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
enum Kind {
    #[prost(message, tag = "1")]
    LiveRows(LiveRows),
    #[prost(message, tag = "2")]
    WriteFiles(WriteFiles),
    /// DataFusion's own encoding of everything but the format.
    #[prost(message, tag = "3")]
    OrcScan(protobuf::FileScanExecConf),
    #[prost(message, tag = "4")]
    VisibleRows(VisibleRows),
    #[prost(message, tag = "5")]
    DelimitedScan(DelimitedScan),
    #[prost(message, tag = "6")]
    Dispatch(Dispatch),
    #[prost(message, tag = "7")]
    Unordered(Unordered),
    #[prost(message, tag = "8")]
    CsvScan(Box<CsvFiles>),
    #[prost(message, tag = "9")]
    JsonScan(JsonFiles),
    #[prost(message, tag = "10")]
    AvroScan(protobuf::FileScanExecConf),
    /// In DataFusion's own encoding.
    #[prost(message, tag = "11")]
    ParquetScan(Box<protobuf::PhysicalPlanNode>),
    /// A plan that `plan_codec.rs` has encoded.
    #[prost(bytes, tag = "12")]
    WholePlan(Vec<u8>),
    #[prost(message, tag = "13")]
    ArrowScan(protobuf::FileScanExecConf),
    #[prost(message, tag = "14")]
    RuntimeFilter(RuntimeFilter),
    #[prost(message, tag = "15")]
    StagedFiles(Box<StagedFiles>),
    /// Of a format of ours.
    #[prost(message, tag = "16")]
    Sink(Box<Sink>),
    #[prost(message, tag = "17")]
    GroupingSets(GroupingSets),
}

/// Wraps the bytes of a plan in an extension node; [`NodeCodec`] decodes it by the function given to it.
pub(crate) fn nested_plan(plan: Vec<u8>) -> Vec<u8> {
    Node { kind: Some(Kind::WholePlan(plan)) }.encode_to_vec()
}

#[derive(Clone, PartialEq, Message)]
struct Sink {
    /// A sink in DataFusion's own encoding, over no rows; that of a format of ours lends its configuration to
    /// a sink of CSV.
    #[prost(message, optional, tag = "1")]
    node: Option<protobuf::PhysicalPlanNode>,
    /// The kind of a format of ours, and its bytes.
    #[prost(string, optional, tag = "2")]
    kind: Option<String>,
    #[prost(bytes = "vec", tag = "3")]
    own: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
struct StagedFiles {
    #[prost(message, optional, tag = "1")]
    sink: Option<Sink>,
    #[prost(string, tag = "2")]
    folder: String,
    #[prost(string, tag = "3")]
    root: String,
}

impl Sink {
    /// `node` is without rows.
    fn of(
        node: &Arc<DataSinkExec>,
        encode: impl FnOnce(&Arc<dyn ExecutionPlan>) -> Result<protobuf::PhysicalPlanNode>,
    ) -> Result<Self> {
        let Some(own) = node.sink().downcast_ref::<FilesSink>() else {
            return Ok(Self { node: Some(encode(&(Arc::clone(node) as _))?), kind: None, own: vec![] });
        };
        let Some(EncodedSink { kind, bytes }) = own.own().encode() else {
            return internal_err!("a sink of one process: {node:?}");
        };
        let options = CsvWriterOptions::new(WriterBuilder::new(), CompressionTypeVariant::UNCOMPRESSED);
        let lender = CsvSink::new(own.config().clone(), options);
        let node = encode(&(sink_without_rows(Arc::new(lender)) as _))?;
        Ok(Self { node: Some(node), kind: Some(kind.to_string()), own: bytes })
    }

    fn sink(
        self,
        decode: impl FnOnce(&protobuf::PhysicalPlanNode) -> Result<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<DataSinkExec>> {
        let node = self.node.ok_or_else(|| internal_datafusion_err!("files without a sink"))?;
        let node = decode(&node)?;
        let node = node.downcast_ref::<DataSinkExec>();
        let node = node.ok_or_else(|| internal_datafusion_err!("files without a sink"))?;
        Ok(match (self.kind, config_of(node.sink())) {
            (Some(kind), Some(config)) => sink_without_rows(decode_sink(&kind, &self.own, config.clone())?),
            _ => Arc::new(node.clone()),
        })
    }
}

impl StagedFiles {
    fn of(
        node: &StagedFilesExec,
        encode: impl FnOnce(&Arc<dyn ExecutionPlan>) -> Result<protobuf::PhysicalPlanNode>,
    ) -> Result<Self> {
        let text = |path: &std::path::Path| {
            path.to_str().map(str::to_string).ok_or_else(|| internal_datafusion_err!("a path is no text"))
        };
        let StagingPlace { folder, root } = node.staging();
        Ok(Self { sink: Some(Sink::of(node.sink(), encode)?), folder: text(folder)?, root: text(root)? })
    }

    fn node(
        self,
        input: Arc<dyn ExecutionPlan>,
        decode: impl FnOnce(&protobuf::PhysicalPlanNode) -> Result<Arc<dyn ExecutionPlan>>,
    ) -> Result<StagedFilesExec> {
        let sink = self.sink.ok_or_else(|| internal_datafusion_err!("files without a sink"))?;
        let staging = StagingPlace { folder: self.folder.into(), root: self.root.into() };
        Ok(StagedFilesExec::new(input, sink.sink(decode)?, staging))
    }
}

/// The bucket of the whole plan below.
#[derive(Clone, PartialEq, Message)]
struct Dispatch {
    #[prost(uint32, tag = "1")]
    number: u32,
    #[prost(uint32, tag = "2")]
    count: u32,
}

#[derive(Clone, PartialEq, Message)]
struct DelimitedScan {
    /// As for ORC.
    #[prost(message, optional, tag = "1")]
    scan: Option<protobuf::FileScanExecConf>,
    #[prost(message, optional, tag = "2")]
    layout: Option<DelimitedLayout>,
}

#[derive(Clone, PartialEq, Message)]
struct DelimitedLayout {
    #[prost(uint32, tag = "1")]
    delimiter: u32,
    #[prost(uint32, optional, tag = "2")]
    escape: Option<u32>,
    #[prost(string, tag = "3")]
    null: String,
}

impl From<&delimited::Layout> for DelimitedLayout {
    fn from(layout: &delimited::Layout) -> Self {
        Self {
            delimiter: layout.delimiter.into(),
            escape: layout.escape.map(u32::from),
            null: layout.null.clone(),
        }
    }
}

impl DelimitedLayout {
    fn layout(self) -> delimited::Layout {
        delimited::Layout {
            delimiter: self.delimiter as u8,
            escape: self.escape.map(|escape| escape as u8),
            null: self.null,
        }
    }
}

#[derive(Clone, PartialEq, Message)]
struct VisibleRows {}

#[derive(Clone, PartialEq, Message)]
struct Unordered {}

#[derive(Clone, PartialEq, Message)]
struct RuntimeFilter {
    #[prost(message, repeated, tag = "1")]
    filters: Vec<protobuf::PhysicalExprNode>,
}

#[derive(Clone, PartialEq, Message)]
struct GroupingSets {
    #[prost(message, repeated, tag = "1")]
    sets: Vec<SetOfKeys>,
    #[prost(message, optional, tag = "2")]
    schema: Option<protobuf::Schema>,
    /// A stream of one batch of one row, in the IPC format; none: empty.
    #[prost(bytes, tag = "3")]
    empty_group: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
struct SetOfKeys {
    #[prost(bool, repeated, tag = "1")]
    null_keys: Vec<bool>,
    #[prost(uint64, tag = "2")]
    id: u64,
}

impl GroupingSets {
    fn of(node: &GroupingSetsExec) -> Result<Self> {
        let set = |set: &GroupingSet| SetOfKeys { null_keys: set.null_keys.clone(), id: set.id };
        let mut empty_group = vec![];
        if let Some(group) = node.empty_group() {
            let mut writer = StreamWriter::try_new(&mut empty_group, group.schema_ref())?;
            writer.write(group)?;
            writer.finish()?;
        }
        let schema = Some(node.schema().as_ref().try_into()?);
        Ok(Self { sets: node.sets().iter().map(set).collect(), schema, empty_group })
    }

    fn node(self, input: Arc<dyn ExecutionPlan>) -> Result<GroupingSetsExec> {
        let set = |set: SetOfKeys| GroupingSet { null_keys: set.null_keys, id: set.id };
        let schema = self.schema.ok_or_else(|| internal_datafusion_err!("grouping sets without a schema"))?;
        let schema: Schema = (&schema).try_into()?;
        let empty_group = match self.empty_group.as_slice() {
            [] => None,
            group => StreamReader::try_new(group, None)?.next().transpose()?,
        };
        let sets = self.sets.into_iter().map(set).collect();
        Ok(GroupingSetsExec::new(input, sets, empty_group, Arc::new(schema)))
    }
}

#[derive(Clone, PartialEq, Message)]
struct LiveRows {
    #[prost(message, repeated, tag = "1")]
    deleted: Vec<FileDeletes>,
    #[prost(bool, tag = "2")]
    places: bool,
}

#[derive(Clone, PartialEq, Message)]
struct FileDeletes {
    #[prost(int64, tag = "1")]
    file: i64,
    #[prost(int64, repeated, tag = "2")]
    rows: Vec<i64>,
    #[prost(string, optional, tag = "3")]
    location: Option<String>,
    #[prost(uint64, tag = "4")]
    bytes: u64,
    #[prost(int64, optional, tag = "5")]
    snapshot_max: Option<i64>,
}

#[derive(Clone, PartialEq, Message)]
struct WriteFiles {
    #[prost(string, tag = "1")]
    folder: String,
    #[prost(string, tag = "2")]
    name: String,
    #[prost(string, tag = "3")]
    table: String,
    #[prost(bytes, tag = "4")]
    schema: Vec<u8>,
    #[prost(string, repeated, tag = "5")]
    partition: Vec<String>,
    #[prost(message, repeated, tag = "6")]
    sort: Vec<Sort>,
    #[prost(bool, tag = "7")]
    replaces: bool,
    #[prost(message, required, tag = "8")]
    shape: Shape,
    #[prost(bool, tag = "11")]
    one_writer: bool,
    #[prost(string, optional, tag = "12")]
    staging: Option<String>,
    /// None: Parquet.
    #[prost(oneof = "Format", tags = "13, 14, 15, 17, 18")]
    format: Option<Format>,
    #[prost(message, optional, tag = "16")]
    replaced_files: Option<ReplacedFilesNode>,
    #[prost(btree_map = "string, message", tag = "19")]
    own_shapes: BTreeMap<String, Shape>,
}

#[derive(Clone, PartialEq, Message)]
struct Shape {
    #[prost(string, tag = "1")]
    compression: String,
    #[prost(uint64, tag = "2")]
    row_group_rows: u64,
    #[prost(uint64, tag = "3")]
    target_file_bytes: u64,
}

impl Shape {
    fn of(shape: &FileShape) -> Self {
        let FileShape { compression, row_group_rows, target_file_bytes } = shape.clone();
        Self { compression, row_group_rows: row_group_rows as u64, target_file_bytes }
    }

    fn shape(self) -> FileShape {
        let Self { compression, row_group_rows, target_file_bytes } = self;
        FileShape { compression, row_group_rows: row_group_rows as usize, target_file_bytes }
    }
}

/// The files that staged ones replace.
#[derive(Clone, PartialEq, Message)]
struct ReplacedFilesNode {
    /// By folder; empty: any file.
    #[prost(btree_map = "string, string", tag = "1")]
    named: BTreeMap<String, String>,
}

impl ReplacedFilesNode {
    fn of(replaced_files: &ReplacedFiles) -> Option<Self> {
        match replaced_files {
            ReplacedFiles::None => None,
            ReplacedFiles::Any => Some(Self::default()),
            ReplacedFiles::Named(named) => Some(Self { named: named.clone() }),
        }
    }

    fn replaced_files(self) -> ReplacedFiles {
        match self.named.is_empty() {
            true => ReplacedFiles::Any,
            false => ReplacedFiles::Named(self.named),
        }
    }
}

// One is created per plan.
#[allow(clippy::large_enum_variant)]
#[derive(Clone, PartialEq, prost::Oneof)]
enum Format {
    #[prost(message, tag = "13")]
    Csv(protobuf::CsvFormat),
    /// The compression's name.
    #[prost(string, tag = "14")]
    Json(String),
    #[prost(string, tag = "15")]
    Orc(String),
    #[prost(string, tag = "17")]
    Avro(String),
    #[prost(message, tag = "18")]
    Delimited(DelimitedLayout),
}

impl Format {
    fn of(format: &WriteFormat) -> Result<Option<Self>> {
        Ok(match format {
            WriteFormat::Parquet => None,
            WriteFormat::Csv(options) => {
                Some(Self::Csv(protobuf::CsvFormat { options: Some(options.as_ref().try_into()?) }))
            }
            WriteFormat::Json(compression) => Some(Self::Json(compression.to_string())),
            WriteFormat::Orc(codec) => Some(Self::Orc(codec.name().to_string())),
            WriteFormat::Avro(codec) => Some(Self::Avro(codec.name().to_string())),
            WriteFormat::Delimited(layout) => Some(Self::Delimited(layout.into())),
        })
    }

    fn format(self) -> Result<WriteFormat> {
        Ok(match self {
            Self::Csv(csv) => {
                let options = csv.options.ok_or_else(|| internal_datafusion_err!("CSV without options"))?;
                WriteFormat::Csv(Box::new((&options).try_into()?))
            }
            Self::Json(compression) => WriteFormat::Json(compression.parse()?),
            Self::Orc(codec) => WriteFormat::Orc(orc::Codec::of(&codec)?),
            Self::Avro(codec) => WriteFormat::Avro(avro::Codec::of(&codec)?),
            Self::Delimited(layout) => WriteFormat::Delimited(layout.layout()),
        })
    }
}

#[derive(Clone, PartialEq, Message)]
struct CsvFiles {
    #[prost(message, optional, tag = "1")]
    scan: Option<protobuf::FileScanExecConf>,
    #[prost(message, optional, tag = "2")]
    format: Option<protobuf::CsvFormat>,
}

#[derive(Clone, PartialEq, Message)]
struct JsonFiles {
    #[prost(message, optional, tag = "1")]
    scan: Option<protobuf::FileScanExecConf>,
    /// By name.
    #[prost(string, tag = "2")]
    compression: String,
}

#[derive(Clone, PartialEq, Message)]
struct Sort {
    #[prost(uint64, tag = "1")]
    column: u64,
    #[prost(bool, tag = "2")]
    descending: bool,
    #[prost(bool, tag = "3")]
    nulls_first: bool,
}

impl From<&LiveRowsExec> for LiveRows {
    fn from(node: &LiveRowsExec) -> Self {
        let deleted = node.deleted_rows().iter().map(|(file, deleted)| FileDeletes {
            file: *file,
            rows: deleted.rows.clone(),
            location: deleted.stored.as_ref().map(|stored| stored.location.clone()),
            bytes: deleted.stored.as_ref().map_or(0, |stored| stored.bytes),
            snapshot_max: deleted.stored.as_ref().and_then(|stored| stored.snapshot_max),
        });
        Self { deleted: deleted.collect(), places: node.places() }
    }
}

impl LiveRows {
    fn deleted_rows(self) -> BTreeMap<i64, DeletedRows> {
        let one = |deletes: FileDeletes| {
            let FileDeletes { file, rows, location, bytes, snapshot_max } = deletes;
            let stored = location.map(|location| StoredDeletes { location, bytes, snapshot_max });
            (file, DeletedRows { rows, stored })
        };
        self.deleted.into_iter().map(one).collect()
    }
}

impl WriteFiles {
    fn of(spec: &WriteSpec) -> Result<Self> {
        let schema: protobuf::Schema = spec.schema.as_ref().try_into()?;
        let sort = spec.sort.iter().map(|(column, descending, nulls_first)| Sort {
            column: *column as u64,
            descending: *descending,
            nulls_first: *nulls_first,
        });
        Ok(Self {
            folder: spec.folder.clone(),
            name: spec.name.clone(),
            table: spec.table.clone(),
            schema: schema.encode_to_vec(),
            partition: spec.partition.iter().map(|folder| folder.name.clone()).collect(),
            sort: sort.collect(),
            replaces: spec.replaces,
            shape: Shape::of(&spec.shape),
            own_shapes: spec.own_shapes.iter().map(|(key, own)| (key.clone(), Shape::of(own))).collect(),
            one_writer: spec.one_writer,
            staging: spec.staging.clone(),
            replaced_files: ReplacedFilesNode::of(&spec.replaced_files),
            format: Format::of(&spec.format)?,
        })
    }

    fn spec(self) -> Result<WriteSpec> {
        let schema: protobuf::Schema = messages::decode(&self.schema)?;
        let schema: Schema = (&schema).try_into()?;
        Ok(WriteSpec {
            folder: self.folder,
            name: self.name,
            table: self.table,
            schema: Arc::new(schema),
            partition: self.partition.into_iter().map(|name| PartitionFolder { name }).collect(),
            sort: self
                .sort
                .into_iter()
                .map(|sort| (sort.column as usize, sort.descending, sort.nulls_first))
                .collect(),
            replaces: self.replaces,
            shape: self.shape.shape(),
            own_shapes: self.own_shapes.into_iter().map(|(key, own)| (key, own.shape())).collect(),
            one_writer: self.one_writer,
            staging: self.staging,
            replaced_files: self.replaced_files.map(ReplacedFilesNode::replaced_files).unwrap_or_default(),
            format: self.format.map_or(Ok(WriteFormat::Parquet), Format::format)?,
        })
    }
}

impl PhysicalExtensionCodec for NodeCodec {
    fn try_decode(
        &self,
        buf: &[u8],
        inputs: &[Arc<dyn ExecutionPlan>],
        context: &TaskContext,
        converter: &dyn PhysicalProtoConverterExtension,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let node: Node = messages::decode(buf)?;
        let kind = node.kind.ok_or_else(|| internal_datafusion_err!("no operator on data files"))?;
        if let Kind::WholePlan(plan) = &kind {
            return (self.decode_plan)(plan, context);
        }
        let scan = match &kind {
            Kind::OrcScan(scan) | Kind::AvroScan(scan) | Kind::ArrowScan(scan) => Some(Some(scan)),
            Kind::DelimitedScan(files) => Some(files.scan.as_ref()),
            Kind::CsvScan(files) => Some(files.scan.as_ref()),
            Kind::JsonScan(files) => Some(files.scan.as_ref()),
            _ => None,
        };
        if let Some(scan) = scan {
            let scan = scan.ok_or_else(|| internal_datafusion_err!("a scan without its files"))?;
            let table_schema = FileScanConfig::parse_table_schema_from_proto(scan)?;
            // DataFusion's encoding omits it.
            let mut compression = CompressionTypeVariant::UNCOMPRESSED;
            let source: Arc<dyn FileSource> = match &kind {
                Kind::DelimitedScan(DelimitedScan { layout: Some(layout), .. }) => {
                    Arc::new(DelimitedSource::new(table_schema, layout.clone().layout()))
                }
                Kind::CsvScan(files) => {
                    let options = files.format.as_ref().and_then(|format| format.options.as_ref());
                    let options = options.ok_or_else(|| internal_datafusion_err!("CSV without options"))?;
                    let options: CsvOptions = options.try_into()?;
                    compression = options.compression;
                    Arc::new(CsvScan::of_table(table_schema, options))
                }
                Kind::JsonScan(JsonFiles { compression: name, .. }) => {
                    compression = name.parse()?;
                    Arc::new(JsonSource::new(table_schema, JsonLines { compression }))
                }
                Kind::OrcScan(_) => Arc::new(OrcSource::new(table_schema, Stripes)),
                Kind::AvroScan(_) => Arc::new(AvroSource::new(table_schema, Blocks)),
                Kind::ArrowScan(_) => {
                    let own = Batches::within(&context.runtime_env());
                    Arc::new(ArrowFilesSource::new(table_schema, own))
                }
                _ => return internal_err!("a scan without its options"),
            };
            let decoding = PhysicalPlanDecodeContext::new(context, self);
            let mut config = parse_protobuf_file_scan_config(scan, &decoding, converter, source)?;
            config.file_compression_type = compression.into();
            return Ok(DataSourceExec::from_data_source(config));
        }
        if let Kind::ParquetScan(scan) = &kind {
            let decoding = PhysicalPlanDecodeContext::new(context, self);
            let scan = converter.proto_to_execution_plan(scan, &decoding)?;
            return parquet_scan::checked_scan(scan, &context.runtime_env());
        }
        let [input] = inputs else {
            return internal_err!("an operator on data files with {} inputs", inputs.len());
        };
        let input = Arc::clone(input);
        Ok(match kind {
            Kind::LiveRows(live) => {
                let places = live.places;
                Arc::new(LiveRowsExec::try_new(input, Arc::new(live.deleted_rows()), places)?)
            }
            Kind::WriteFiles(write) => Arc::new(WriteFilesExec::new(input, Arc::new(write.spec()?))),
            Kind::VisibleRows(_) => Arc::new(VisibleRowsExec::new(input)),
            Kind::Unordered(_) => Arc::new(UnorderedExec::new(input)),
            Kind::GroupingSets(sets) => Arc::new(sets.node(input)?),
            Kind::RuntimeFilter(RuntimeFilter { filters }) => {
                let decoding = PhysicalPlanDecodeContext::new(context, self);
                let schema = input.schema();
                let filters =
                    filters.iter().map(|filter| converter.proto_to_physical_expr(filter, &schema, &decoding));
                let filters = filters.collect::<Result<_>>()?;
                Arc::new(RuntimeFilterExec::new(input, filters))
            }
            Kind::Dispatch(Dispatch { number, count }) => {
                Arc::new(DispatchExec::new(input, Bucket { number, count }))
            }
            Kind::StagedFiles(files) => {
                let decoding = PhysicalPlanDecodeContext::new(context, self);
                Arc::new(files.node(input, |sink| converter.proto_to_execution_plan(sink, &decoding))?)
            }
            Kind::Sink(sink) => {
                let decoding = PhysicalPlanDecodeContext::new(context, self);
                let sink = sink.sink(|sink| converter.proto_to_execution_plan(sink, &decoding))?;
                replace_children_if_necessary(sink, vec![input])?
            }
            Kind::OrcScan(_)
            | Kind::AvroScan(_)
            | Kind::ArrowScan(_)
            | Kind::DelimitedScan(_)
            | Kind::CsvScan(_)
            | Kind::JsonScan(_)
            | Kind::ParquetScan(_)
            | Kind::WholePlan(_) => {
                return internal_err!("a scan with an input");
            }
        })
    }

    fn try_encode(
        &self,
        node: Arc<dyn ExecutionPlan>,
        buf: &mut Vec<u8>,
        converter: &dyn PhysicalProtoConverterExtension,
    ) -> Result<()> {
        let kind = if let Some(live) = node.downcast_ref::<LiveRowsExec>() {
            Kind::LiveRows(live.into())
        } else if let Some(write) = node.downcast_ref::<WriteFilesExec>() {
            Kind::WriteFiles(WriteFiles::of(write.spec())?)
        } else if node.is::<VisibleRowsExec>() {
            Kind::VisibleRows(VisibleRows {})
        } else if node.is::<UnorderedExec>() {
            Kind::Unordered(Unordered {})
        } else if let Some(node) = node.downcast_ref::<GroupingSetsExec>() {
            Kind::GroupingSets(GroupingSets::of(node)?)
        } else if let Some(node) = node.downcast_ref::<RuntimeFilterExec>() {
            let filters = node.filters().iter().map(|filter| converter.physical_expr_to_proto(filter, self));
            Kind::RuntimeFilter(RuntimeFilter { filters: filters.collect::<Result<_>>()? })
        } else if let Some(files) = node.downcast_ref::<StagedFilesExec>() {
            let encode = |sink: &Arc<dyn ExecutionPlan>| converter.execution_plan_to_proto(sink, self);
            Kind::StagedFiles(Box::new(StagedFiles::of(files, encode)?))
        } else if let Some(sink) = node.downcast_ref::<DataSinkExec>() {
            let encode = |sink: &Arc<dyn ExecutionPlan>| converter.execution_plan_to_proto(sink, self);
            Kind::Sink(Box::new(Sink::of(&Arc::new(without_rows(sink)?), encode)?))
        } else if let Some(dispatch) = node.downcast_ref::<DispatchExec>() {
            let Bucket { number, count } = dispatch.bucket();
            Kind::Dispatch(Dispatch { number, count })
        } else if let Some(scan) = file_scan(&node).filter(|scan| scan.file_source().is::<OrcSource>()) {
            Kind::OrcScan(serialize_file_scan_config(scan, self, converter)?)
        } else if let Some(scan) = file_scan(&node)
            && let Some(source) = scan.file_source().downcast_ref::<ParquetScan>()
        {
            let own = parquet_scan::unchecked_scan(scan, source);
            Kind::ParquetScan(Box::new(converter.execution_plan_to_proto(&own, self)?))
        } else if let Some(scan) = file_scan(&node).filter(|scan| scan.file_source().is::<AvroSource>()) {
            Kind::AvroScan(serialize_file_scan_config(scan, self, converter)?)
        } else if let Some(scan) = file_scan(&node).filter(|scan| scan.file_source().is::<ArrowFilesSource>())
        {
            Kind::ArrowScan(serialize_file_scan_config(scan, self, converter)?)
        } else if let Some(scan) = file_scan(&node)
            && let Some(source) = scan.file_source().downcast_ref::<DelimitedSource>()
        {
            let layout = Some(source.own().into());
            let scan = Some(serialize_file_scan_config(scan, self, converter)?);
            Kind::DelimitedScan(DelimitedScan { scan, layout })
        } else if let Some(scan) = file_scan(&node)
            && let Some(source) = scan.file_source().downcast_ref::<CsvScan>()
        {
            let format = Some(protobuf::CsvFormat { options: Some(source.options().try_into()?) });
            let scan = Some(serialize_file_scan_config(scan, self, converter)?);
            Kind::CsvScan(Box::new(CsvFiles { scan, format }))
        } else if let Some(scan) = file_scan(&node)
            && let Some(source) = scan.file_source().downcast_ref::<JsonSource>()
        {
            let compression = source.own().compression.to_string();
            let scan = Some(serialize_file_scan_config(scan, self, converter)?);
            Kind::JsonScan(JsonFiles { scan, compression })
        } else {
            return internal_err!("{} is not an operator on data files", node.name());
        };
        buf.extend(Node { kind: Some(kind) }.encode_to_vec());
        Ok(())
    }

    fn try_decode_udf(&self, name: &str, _: &[u8]) -> Result<Arc<ScalarUDF>> {
        match scalar_function(name) {
            Some(function) => Ok(function),
            None => internal_err!("no function {name}"),
        }
    }
}
