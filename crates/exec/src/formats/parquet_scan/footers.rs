//! Corrections of wrong or missing metadata in footers.
//!
//! - Writers before parquet-format 2.4 compared texts, decimals and unsigned numbers as signed bytes,
//!   recognizable by the missing column order: such bounds are dropped. Those of signed integers and floats
//!   are right.
//! - Bytes without a logical type that a table declares as text would be taken for UTF-8 unchecked.
//! - Arrow's C++ library before 3.0 compressed v2 data pages without setting the flag (apache/arrow#32459,
//!   `pages.rs`).
//! - parquet-mr before 1.2.9 omitted the dictionary page header from the column's length (PARQUET-816).
//! - parquet-go's first implementation omitted page headers from the lengths in its page index: its indexes
//!   are dropped.
//! - Footers that the library rejects are repaired (`repaired_footer.rs`).

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use datafusion::arrow::datatypes::{Schema, SchemaRef};
use datafusion::common::Result;
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::parquet::ParquetFileReaderFactory;
use datafusion::parquet::arrow::ARROW_SCHEMA_META_KEY;
use datafusion::parquet::arrow::arrow_reader::ArrowReaderOptions;
use datafusion::parquet::arrow::async_reader::AsyncFileReader;
use datafusion::parquet::basic::{
    ColumnOrder, Compression, ConvertedType, LogicalType, Repetition, Type as PhysicalType,
};
use datafusion::parquet::errors::{ParquetError, Result as ParquetResult};
use datafusion::parquet::file::metadata::{
    ColumnChunkMetaData, ColumnChunkMetaDataBuilder, FileMetaData, KeyValue, ParquetMetaData,
    ParquetMetaDataBuilder, ParquetMetaDataReader, RowGroupMetaData,
};
use datafusion::parquet::schema::types::{ColumnDescriptor, SchemaDescriptor, Type, TypePtr};
use datafusion::physical_plan::metrics::ExecutionPlanMetricsSet;
use futures::FutureExt;
use futures::future::BoxFuture;

use super::{pages, repaired_footer};
use crate::formats::distinct_names::distinct_names;

/// Bytes at the end of a file with the footer length.
const TAIL_BYTES: u64 = 8;

/// The magic number of a file with an unencrypted footer.
const MAGIC: &[u8] = b"PAR1";

/// The longest header of a dictionary page.
const HEAD_BYTES_MAX: u64 = 256;

/// The range of the footer length in a file of this size.
pub(super) fn tail(bytes: u64) -> Option<Range<u64>> {
    Some(bytes.checked_sub(TAIL_BYTES)?..bytes)
}

/// The range of the footer.
pub(super) fn place_of_footer(tail: &[u8], bytes: u64) -> Option<Range<u64>> {
    let (length, magic) = tail.split_first_chunk::<4>()?;
    let end = bytes.checked_sub(TAIL_BYTES)?;
    let begin = end.checked_sub(u32::from_le_bytes(*length).into())?;
    (magic == MAGIC).then_some(begin..end)
}

/// Repairs an encoded footer; `None`: there is nothing to repair, or it does not help.
pub(super) fn repair(footer: &[u8]) -> Option<Arc<ParquetMetaData>> {
    ParquetMetaDataReader::decode_metadata(&repaired_footer::repair(footer)?).ok().map(Arc::new)
}

/// Whether the library misinterprets types of a parsed footer: repeated maps, and groups without columns.
fn has_odd_types(kind: &Type) -> bool {
    if !kind.is_group() {
        return false;
    }
    let info = kind.get_basic_info();
    let is_odd = info.has_repetition()
        && (kind.get_fields().is_empty()
            || info.repetition() == Repetition::REPEATED && info.converted_type() == ConvertedType::MAP);
    is_odd || kind.get_fields().iter().any(|field| has_odd_types(field))
}

/// Drops unreliable bounds from a footer.
pub(super) fn without_unreliable_bounds(footer: Arc<ParquetMetaData>) -> Arc<ParquetMetaData> {
    let file = footer.file_metadata();
    let is_bad = |at: usize, column: &ColumnChunkMetaData| !has_bounds(file, at, column);
    // Page indexes contain the bounds once more.
    let without = |column: ColumnChunkMetaDataBuilder| column.clear_statistics();
    with_columns(&footer, is_bad, without).map_or(Arc::clone(&footer), |changed| {
        let offsets = footer.offset_index().cloned();
        Arc::new(changed.into_builder().set_offset_index(offsets).build())
    })
}

/// Changes columns of a footer and drops its page indexes; `None`: no column changes.
fn with_columns(
    footer: &ParquetMetaData,
    is_changed: impl Fn(usize, &ColumnChunkMetaData) -> bool,
    change: impl Fn(ColumnChunkMetaDataBuilder) -> ColumnChunkMetaDataBuilder,
) -> Option<ParquetMetaData> {
    let is_any = |group: &RowGroupMetaData| {
        group.columns().iter().enumerate().any(|(at, column)| is_changed(at, column))
    };
    if !footer.row_groups().iter().any(is_any) {
        return None;
    }
    let groups = footer.row_groups().iter().map(|group| {
        let columns = group.columns().iter().enumerate().map(|(at, column)| match is_changed(at, column) {
            true => change(column.clone().into_builder()).build(),
            false => Ok(column.clone()),
        });
        let columns = columns.collect::<ParquetResult<Vec<_>>>()?;
        group.clone().into_builder().set_column_metadata(columns).build()
    });
    // Fails only if column counts differ, which reading detects, too.
    let groups = groups.collect::<ParquetResult<Vec<_>>>().ok()?;
    Some(ParquetMetaDataBuilder::new(footer.file_metadata().clone()).set_row_groups(groups).build())
}

/// Drops the page index if its writer records wrong lengths there.
fn without_wrong_index(footer: Arc<ParquetMetaData>) -> Arc<ParquetMetaData> {
    let writer = footer.file_metadata().created_by().unwrap_or_default().trim();
    if !writer.is_empty() && !writer.starts_with("parquet-go version") {
        return footer;
    }
    let has_index = |_, column: &ColumnChunkMetaData| column.offset_index_offset().is_some();
    let changed = with_columns(&footer, has_index, |column| {
        column
            .set_offset_index_offset(None)
            .set_offset_index_length(None)
            .set_column_index_offset(None)
            .set_column_index_length(None)
    });
    changed.map_or(footer, Arc::new)
}

/// Whether a writer omits the dictionary page header from a column's length.
fn leaves_out_heads(writer: &str) -> bool {
    let Some(version) = writer.trim().strip_prefix("parquet-mr version") else { return false };
    let mut numbers = version.trim().split(|end: char| !end.is_ascii_digit()).map(str::parse::<u32>);
    let mut next = || numbers.next().and_then(std::result::Result::ok);
    let [Some(major), Some(minor), Some(patch)] = [next(), next(), next()] else { return false };
    (major, minor, patch) < (1, 2, 9)
}

/// Ranges of the first page headers of all columns, by row group, in a file of this size.
fn places_of_heads(footer: &ParquetMetaData, bytes: u64) -> Vec<Range<u64>> {
    let columns = footer.row_groups().iter().flat_map(RowGroupMetaData::columns);
    let places = columns.map(|column| {
        let begin = column.dictionary_page_offset().unwrap_or(column.data_page_offset());
        let begin = u64::try_from(begin).unwrap_or(bytes).min(bytes);
        begin..begin.saturating_add(HEAD_BYTES_MAX).min(bytes)
    });
    places.collect()
}

/// Extends columns by the lengths of their dictionary page headers, parsed from `heads`.
fn with_heads(footer: &ParquetMetaData, heads: &[Bytes]) -> ParquetResult<Arc<ParquetMetaData>> {
    let mut heads = heads.iter();
    let groups = footer.row_groups().iter().map(|group| {
        let columns = group.columns().iter().map(|column| {
            let head = heads.next().and_then(|head| pages::dictionary_head_bytes(head)).unwrap_or(0);
            let length = column.compressed_size().saturating_add(head);
            column.clone().into_builder().set_total_compressed_size(length).build()
        });
        let columns = columns.collect::<ParquetResult<Vec<_>>>()?;
        group.clone().into_builder().set_column_metadata(columns).build()
    });
    let groups = groups.collect::<ParquetResult<Vec<_>>>()?;
    Ok(Arc::new(ParquetMetaDataBuilder::new(footer.file_metadata().clone()).set_row_groups(groups).build()))
}

/// Whether the bounds of a column are reliable, or absent.
fn has_bounds(file: &FileMetaData, at: usize, column: &ColumnChunkMetaData) -> bool {
    let Some(statistics) = column.statistics() else { return true };
    if statistics.min_bytes_opt().is_none() && statistics.max_bytes_opt().is_none() {
        return true;
    }
    let kind = column.column_descr();
    let length = match kind.physical_type() {
        PhysicalType::FIXED_LEN_BYTE_ARRAY => usize::try_from(kind.type_length()).ok(),
        _ => None,
    };
    let is_long =
        |bytes: Option<&[u8]>| bytes.is_none_or(|bytes| length.is_none_or(|length| bytes.len() == length));
    if !is_long(statistics.min_bytes_opt()) || !is_long(statistics.max_bytes_opt()) {
        return false;
    }
    let order = file.column_orders().and_then(|orders| orders.get(at));
    let has_order = matches!(order, Some(ColumnOrder::TYPE_DEFINED_ORDER(_)));
    (has_order && !statistics.is_min_max_deprecated()) || is_signed_number(kind)
}

fn is_signed_number(kind: &ColumnDescriptor) -> bool {
    let is_number = matches!(
        kind.physical_type(),
        PhysicalType::INT32 | PhysicalType::INT64 | PhysicalType::FLOAT | PhysicalType::DOUBLE
    );
    let is_unsigned = matches!(
        kind.converted_type(),
        ConvertedType::UINT_8 | ConvertedType::UINT_16 | ConvertedType::UINT_32 | ConvertedType::UINT_64
    ) || matches!(kind.logical_type_ref(), Some(LogicalType::Integer(kind)) if !kind.is_signed);
    is_number && !is_unsigned
}

/// A reader factory with corrected footers.
#[derive(Debug)]
pub(super) struct CorrectedFooters {
    inner: Arc<dyn ParquetFileReaderFactory>,
    /// The table's columns without partition columns.
    schema: SchemaRef,
}

impl CorrectedFooters {
    pub(super) fn new(inner: Arc<dyn ParquetFileReaderFactory>, schema: SchemaRef) -> Self {
        Self { inner, schema }
    }
}

impl ParquetFileReaderFactory for CorrectedFooters {
    fn create_reader(
        &self,
        partition: usize,
        file: PartitionedFile,
        metadata_size_hint: Option<usize>,
        metrics: &ExecutionPlanMetricsSet,
    ) -> Result<Box<dyn AsyncFileReader + Send>> {
        let bytes = file.object_meta.size;
        let inner = self.inner.create_reader(partition, file, metadata_size_hint, metrics)?;
        let schema = Arc::clone(&self.schema);
        Ok(Box::new(CorrectedReader { inner, schema, bytes, has_compressed_flags: true }))
    }
}

struct CorrectedReader {
    inner: Box<dyn AsyncFileReader + Send>,
    schema: SchemaRef,
    /// Size of the file.
    bytes: u64,
    /// Whether pages declare their compression correctly.
    has_compressed_flags: bool,
}

impl CorrectedReader {
    async fn repaired_footer(&mut self) -> ParquetResult<Option<Arc<ParquetMetaData>>> {
        let Some(tail) = tail(self.bytes) else { return Ok(None) };
        let tail = (*self.inner).get_bytes(tail).await?;
        let Some(place) = place_of_footer(&tail, self.bytes) else { return Ok(None) };
        Ok(repair(&(*self.inner).get_bytes(place).await?))
    }
}

impl AsyncFileReader for CorrectedReader {
    fn get_bytes(&mut self, range: Range<u64>) -> BoxFuture<'_, ParquetResult<Bytes>> {
        (*self.inner).get_bytes(range)
    }

    fn get_byte_ranges(&mut self, ranges: Vec<Range<u64>>) -> BoxFuture<'_, ParquetResult<Vec<Bytes>>> {
        if self.has_compressed_flags {
            return (*self.inner).get_byte_ranges(ranges);
        }
        async move {
            let columns = (*self.inner).get_byte_ranges(ranges).await?;
            Ok(columns.into_iter().map(pages::set_compressed_flags).collect())
        }
        .boxed()
    }

    /// Errors: columns are outside the file.
    fn get_metadata<'a>(
        &'a mut self,
        options: Option<&'a ArrowReaderOptions>,
    ) -> BoxFuture<'a, ParquetResult<Arc<ParquetMetaData>>> {
        async move {
            let footer = match (*self.inner).get_metadata(options).await {
                Ok(footer) if !has_odd_types(footer.file_metadata().schema_descr().root_schema()) => footer,
                other => match self.repaired_footer().await {
                    Ok(Some(footer)) => footer,
                    _ => other?,
                },
            };
            check_places(&footer, self.bytes)?;
            self.has_compressed_flags = !is_doubtful(&footer);
            let footer = with_distinct_names(&footer)?.unwrap_or(footer);
            let mut footer = without_wrong_index(footer);
            if leaves_out_heads(footer.file_metadata().created_by().unwrap_or_default()) {
                let heads = (*self.inner).get_byte_ranges(places_of_heads(&footer, self.bytes)).await?;
                footer = with_heads(&footer, &heads)?;
                check_places(&footer, self.bytes)?;
            }
            with_texts(without_unreliable_bounds(footer), &self.schema)
        }
        .boxed()
    }
}

/// Errors: a column is outside the file, which the library does not check.
fn check_places(footer: &ParquetMetaData, bytes: u64) -> ParquetResult<()> {
    let is_within = |column: &ColumnChunkMetaData| {
        let begin = column.dictionary_page_offset().unwrap_or(column.data_page_offset());
        let places = [begin, column.data_page_offset(), column.compressed_size(), column.num_values()];
        let end = begin.checked_add(column.compressed_size()).and_then(|end| u64::try_from(end).ok());
        places.iter().all(|place| *place >= 0) && end.is_some_and(|end| end <= bytes)
    };
    let is_whole = |group: &RowGroupMetaData| group.num_rows() >= 0 && group.columns().iter().all(is_within);
    match footer.row_groups().iter().all(is_whole) {
        true => Ok(()),
        false => Err(ParquetError::General("a column is not within the file".to_string())),
    }
}

/// Whether the writer may have compressed pages without setting the flag.
fn is_doubtful(footer: &ParquetMetaData) -> bool {
    let major = || {
        let writer = footer.file_metadata().created_by()?.trim();
        let version =
            writer.strip_prefix("parquet-cpp version").or(writer.strip_prefix("parquet-cpp-arrow version"))?;
        version.trim().split('.').next()?.parse::<u32>().ok()
    };
    major().is_some_and(|major| major < 3)
        && footer
            .row_groups()
            .iter()
            .flat_map(RowGroupMetaData::columns)
            .any(|column| column.compression() != Compression::UNCOMPRESSED)
}

/// Declares bytes without a logical type as UTF-8 where the table has texts, so that they are validated.
fn with_texts(footer: Arc<ParquetMetaData>, table: &Schema) -> ParquetResult<Arc<ParquetMetaData>> {
    let file = footer.file_metadata();
    let root = file.schema_descr().root_schema_ptr();
    let is_text = |name: &str| {
        let field = table.fields().iter().find(|field| field.name().eq_ignore_ascii_case(name));
        field.is_some_and(|field| field.data_type().is_string())
    };
    let is_bare = |kind: &TypePtr| {
        kind.is_primitive()
            && kind.get_physical_type() == PhysicalType::BYTE_ARRAY
            && kind.get_basic_info().converted_type() == ConvertedType::NONE
            && kind.get_basic_info().logical_type_ref().is_none()
    };
    let changes = |kind: &TypePtr| is_bare(kind) && is_text(kind.name());
    if !root.get_fields().iter().any(changes) {
        return Ok(footer);
    }
    let fields = root.get_fields().iter().map(|kind| {
        if !changes(kind) {
            return Ok(Arc::clone(kind));
        }
        let info = kind.get_basic_info();
        let text = Type::primitive_type_builder(info.name(), PhysicalType::BYTE_ARRAY)
            .with_converted_type(ConvertedType::UTF8)
            .with_repetition(info.repetition())
            .with_id(info.has_id().then(|| info.id()));
        Ok(Arc::new(text.build()?))
    });
    let pairs = file.key_value_metadata().cloned();
    with_columns_of_root(&footer, fields.collect::<ParquetResult<Vec<_>>>()?, pairs)
}

/// Deduplicates column names; `None`: they are distinct.
pub(super) fn with_distinct_names(footer: &ParquetMetaData) -> ParquetResult<Option<Arc<ParquetMetaData>>> {
    let fields = footer.file_metadata().schema_descr().root_schema().get_fields();
    let names: Vec<String> = fields.iter().map(|field| field.name().to_string()).collect();
    let Some(own) = distinct_names(names.iter()) else { return Ok(None) };
    let fields = fields.iter().zip(own).map(|(field, name)| with_name(field, &name));
    let fields = fields.collect::<ParquetResult<Vec<_>>>()?;
    // Arrow's embedded schema refers to columns by their names in the file.
    let is_kept = |pair: &&KeyValue| pair.key != ARROW_SCHEMA_META_KEY;
    let pairs = footer.file_metadata().key_value_metadata();
    let pairs = pairs.map(|pairs| pairs.iter().filter(is_kept).cloned().collect());
    with_columns_of_root(footer, fields, pairs).map(Some)
}

/// The same type under another name.
fn with_name(kind: &TypePtr, name: &str) -> ParquetResult<TypePtr> {
    let info = kind.get_basic_info();
    if info.name() == name {
        return Ok(Arc::clone(kind));
    }
    let id = info.has_id().then(|| info.id());
    let logical = info.logical_type_ref().cloned();
    let built = match kind.as_ref() {
        Type::PrimitiveType { physical_type, type_length, scale, precision, .. } => {
            Type::primitive_type_builder(name, *physical_type)
                .with_repetition(info.repetition())
                .with_converted_type(info.converted_type())
                .with_logical_type(logical)
                .with_length(*type_length)
                .with_precision(*precision)
                .with_scale(*scale)
                .with_id(id)
                .build()
        }
        Type::GroupType { fields, .. } => Type::group_type_builder(name)
            .with_repetition(info.repetition())
            .with_converted_type(info.converted_type())
            .with_logical_type(logical)
            .with_fields(fields.clone())
            .with_id(id)
            .build(),
    };
    built.map(Arc::new)
}

/// Replaces the column types of a footer.
fn with_columns_of_root(
    footer: &ParquetMetaData,
    fields: Vec<TypePtr>,
    pairs: Option<Vec<KeyValue>>,
) -> ParquetResult<Arc<ParquetMetaData>> {
    let file = footer.file_metadata();
    let root =
        Type::group_type_builder(file.schema_descr().root_schema().name()).with_fields(fields).build()?;
    let schema = Arc::new(SchemaDescriptor::new(Arc::new(root)));
    let changed = FileMetaData::new(
        file.version(),
        file.num_rows(),
        file.created_by().map(str::to_string),
        pairs,
        schema,
        file.column_orders().cloned(),
    );
    let changed = ParquetMetaDataBuilder::new(changed)
        // Readers go by the file's schema.
        .set_row_groups(footer.row_groups().to_vec())
        .set_column_index(footer.column_index().cloned())
        .set_offset_index(footer.offset_index().cloned());
    Ok(Arc::new(changed.build()))
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::datatypes::{DataType, Field};
    use datafusion::parquet::basic::SortOrder;
    use datafusion::parquet::data_type::{ByteArray, FixedLenByteArray};
    use datafusion::parquet::file::statistics::Statistics;

    use super::*;

    /// A footer of one row group whose columns have these bounds.
    fn footer(columns: Vec<(Type, Statistics)>, writer: &str, has_orders: bool) -> ParquetMetaData {
        let (kinds, statistics): (Vec<_>, Vec<_>) = columns.into_iter().unzip();
        let count = kinds.len();
        let root = Type::group_type_builder("schema").with_fields(kinds.into_iter().map(Arc::new).collect());
        let schema = Arc::new(SchemaDescriptor::new(Arc::new(root.build().unwrap())));
        let columns = schema.columns().iter().zip(statistics).map(|(kind, statistics)| {
            let builder = ColumnChunkMetaData::builder(Arc::clone(kind)).set_statistics(statistics);
            builder.set_compression(Compression::SNAPPY).set_data_page_offset(4).build().unwrap()
        });
        let group = RowGroupMetaData::builder(Arc::clone(&schema))
            .set_num_rows(3)
            .set_column_metadata(columns.collect())
            .build()
            .unwrap();
        let order = ColumnOrder::TYPE_DEFINED_ORDER(SortOrder::SIGNED);
        let orders = has_orders.then(|| vec![order; count]);
        let file = FileMetaData::new(1, 3, Some(writer.to_string()), None, schema, orders);
        ParquetMetaDataBuilder::new(file).set_row_groups(vec![group]).build()
    }

    fn kind(name: &str, physical: PhysicalType, converted: ConvertedType) -> Type {
        let length = if physical == PhysicalType::FIXED_LEN_BYTE_ARRAY { 2 } else { -1 };
        let builder = Type::primitive_type_builder(name, physical).with_length(length);
        let builder = builder.with_converted_type(converted);
        match converted {
            ConvertedType::DECIMAL => builder.with_precision(4).with_scale(2).build().unwrap(),
            _ => builder.build().unwrap(),
        }
    }

    fn columns(is_old: bool) -> Vec<(Type, Statistics)> {
        let text = |text: &str| Some(ByteArray::from(text));
        let bytes = |bytes: &[u8]| Some(FixedLenByteArray::from(bytes.to_vec()));
        vec![
            (
                kind("text", PhysicalType::BYTE_ARRAY, ConvertedType::UTF8),
                Statistics::byte_array(text("a"), text("z"), None, Some(0), is_old),
            ),
            (
                kind("decimal", PhysicalType::FIXED_LEN_BYTE_ARRAY, ConvertedType::DECIMAL),
                Statistics::fixed_len_byte_array(bytes(b"\0\x01"), bytes(b"\0\x02"), None, Some(0), is_old),
            ),
            (
                kind("unsigned", PhysicalType::INT32, ConvertedType::UINT_32),
                Statistics::int32(Some(-1), Some(5), None, Some(0), is_old),
            ),
            (
                kind("signed", PhysicalType::INT64, ConvertedType::NONE),
                Statistics::int64(Some(-1), Some(5), None, Some(0), is_old),
            ),
            (
                kind("double", PhysicalType::DOUBLE, ConvertedType::NONE),
                Statistics::double(Some(-1.0), Some(5.0), None, Some(0), is_old),
            ),
        ]
    }

    fn with_bounds(footer: ParquetMetaData) -> Vec<String> {
        let reliable = without_unreliable_bounds(Arc::new(footer));
        let columns = reliable.row_group(0).columns().iter();
        let has = |column: &&ColumnChunkMetaData| column.statistics().is_some();
        columns.filter(has).map(|column| column.column_path().string()).collect()
    }

    #[test]
    fn bounds_without_an_order_are_those_of_signed_numbers_alone() {
        let all = ["text", "decimal", "unsigned", "signed", "double"];
        assert_eq!(with_bounds(footer(columns(false), "w", true)), all);
        assert_eq!(with_bounds(footer(columns(true), "w", true)), all[3..]);
        assert_eq!(with_bounds(footer(columns(false), "w", false)), all[3..]);
        let cut = Some(FixedLenByteArray::from(vec![1]));
        let short = Statistics::fixed_len_byte_array(cut.clone(), cut, None, None, false);
        let decimal = kind("decimal", PhysicalType::FIXED_LEN_BYTE_ARRAY, ConvertedType::DECIMAL);
        assert_eq!(with_bounds(footer(vec![(decimal, short)], "w", true)), [""; 0]);
    }

    #[test]
    fn columns_are_within_their_file() {
        let whole = footer(columns(false), "w", true);
        assert!(check_places(&whole, 4).is_ok());
        assert!(check_places(&whole, 3).is_err());
        let group = whole.row_group(0);
        for (begin, length) in [(-1, 0), (0, -1), (4, 1), (i64::MAX, i64::MAX)] {
            let column = group.column(0).clone().into_builder();
            let column = column.set_data_page_offset(begin).set_total_compressed_size(length);
            let mut columns = group.columns().to_vec();
            columns[0] = column.build().unwrap();
            let changed = group.clone().into_builder().set_column_metadata(columns).build().unwrap();
            let changed = ParquetMetaDataBuilder::new(whole.file_metadata().clone())
                .set_row_groups(vec![changed])
                .build();
            assert!(check_places(&changed, 4).is_err(), "{length} from {begin} on");
        }
    }

    #[test]
    fn writers_with_wrong_flags_are_detected() {
        for (writer, expected) in [
            ("parquet-cpp version 1.5.1-SNAPSHOT", true),
            ("parquet-cpp-arrow version 2.0.0", true),
            ("parquet-cpp-arrow version 14.0.2", false),
            ("parquet-mr version 1.8.1 (build 4aba4da)", false),
            ("", false),
        ] {
            assert_eq!(is_doubtful(&footer(columns(false), writer, true)), expected, "{writer}");
        }
    }

    #[test]
    fn columns_of_old_writers_are_longer_by_the_heads_of_dictionaries() {
        for (writer, expected) in [
            ("parquet-mr version 1.2.5-cdh4.5.0 (build )", true),
            ("parquet-mr version 1.2.8", true),
            ("parquet-mr version 1.2.9", false),
            ("parquet-mr version 1.10.0", false),
            ("parquet-mr", false),
            ("impala version 1.2.3", false),
        ] {
            assert_eq!(leaves_out_heads(writer), expected, "{writer}");
        }
        let footer = footer(columns(false), "w", true);
        let places = places_of_heads(&footer, 100);
        assert_eq!(places, vec![4..100; columns(false).len()]);
        // Headers of a dictionary page, of seven bytes, and of a data page.
        let dictionary = Bytes::from_static(&[0x15, 4, 0x15, 8, 0x15, 8, 0, 1, 2, 3, 4]);
        let data = Bytes::from_static(&[0x15, 0, 0x15, 8, 0x15, 8, 0, 1, 2, 3, 4]);
        let heads = [vec![dictionary], vec![data; columns(false).len() - 1]].concat();
        let changed = with_heads(&footer, &heads).unwrap();
        let lengths: Vec<i64> =
            changed.row_group(0).columns().iter().map(|column| column.compressed_size()).collect();
        assert_eq!(lengths, [7, 0, 0, 0, 0]);
    }

    #[test]
    fn footer_range_is_computed() {
        let place = |tail: &[u8], bytes| place_of_footer(tail, bytes);
        assert_eq!(place(b"\x10\0\0\0PAR1", 100), Some(76..92));
        assert_eq!(place(b"\x10\0\0\0PARE", 100), None);
        assert_eq!(place(b"\x10\0\0\0PAR1", 20), None);
        assert_eq!(place(b"PAR1", 100), None);
        assert_eq!(tail(7), None);
    }

    #[test]
    fn utf8_bytes_are_annotated() {
        let bare =
            || vec![(kind("A", PhysicalType::BYTE_ARRAY, ConvertedType::NONE), columns(false).remove(0).1)];
        let table = |kind| Schema::new(vec![Field::new("a", kind, true)]);
        let converted = |kind| {
            let changed = with_texts(Arc::new(footer(bare(), "w", true)), &table(kind)).unwrap();
            changed.file_metadata().schema_descr().column(0).converted_type()
        };
        assert_eq!(converted(DataType::Utf8View), ConvertedType::UTF8);
        assert_eq!(converted(DataType::BinaryView), ConvertedType::NONE);
    }
}
