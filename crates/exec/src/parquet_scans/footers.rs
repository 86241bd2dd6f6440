//! What footers say that is not so, and what their libraries have left out.
//!
//! - Writers before parquet-format 2.4 compared texts, decimals and numbers without a sign byte by byte, with
//!   a sign, and say so by naming no order: their bounds are none. Those of numbers with a sign, and of
//!   fractions, are right.
//! - Bytes without a type that a table has as texts would be taken for UTF-8 without a look.
//! - Arrow's C++ library before 3.0 compressed pages of the second version without saying so
//!   (apache/arrow#32459).

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use datafusion::arrow::datatypes::{Schema, SchemaRef};
use datafusion::common::Result;
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::parquet::ParquetFileReaderFactory;
use datafusion::parquet::arrow::arrow_reader::ArrowReaderOptions;
use datafusion::parquet::arrow::async_reader::AsyncFileReader;
use datafusion::parquet::basic::{
    ColumnOrder, Compression, ConvertedType, LogicalType, Type as PhysicalType,
};
use datafusion::parquet::errors::{ParquetError, Result as ParquetResult};
use datafusion::parquet::file::metadata::{
    ColumnChunkMetaData, FileMetaData, ParquetMetaData, ParquetMetaDataBuilder, RowGroupMetaData,
};
use datafusion::parquet::schema::types::{ColumnDescriptor, SchemaDescriptor, Type, TypePtr};
use datafusion::physical_plan::metrics::ExecutionPlanMetricsSet;
use futures::FutureExt;
use futures::future::BoxFuture;

/// The first bytes of the header of a page of the second version.
const SECOND_VERSION: &[u8] = &[0x15, 0x06];

/// A footer without bounds that are not reliable.
pub(super) fn reliable(footer: Arc<ParquetMetaData>) -> Arc<ParquetMetaData> {
    let is_bad = |group: &RowGroupMetaData| {
        group.columns().iter().enumerate().any(|(at, column)| !has_bounds(footer.file_metadata(), at, column))
    };
    if !footer.row_groups().iter().any(is_bad) {
        return footer;
    }
    let file = footer.file_metadata();
    let groups = footer.row_groups().iter().map(|group| {
        let columns =
            group.columns().iter().enumerate().map(|(at, column)| match has_bounds(file, at, column) {
                true => Ok(column.clone()),
                false => column.clone().into_builder().clear_statistics().build(),
            });
        let columns = columns.collect::<ParquetResult<Vec<_>>>()?;
        group.clone().into_builder().set_column_metadata(columns).build()
    });
    match groups.collect::<ParquetResult<Vec<_>>>() {
        // Indexes of pages have the bounds once more.
        Ok(groups) => Arc::new(
            ParquetMetaDataBuilder::new(file.clone())
                .set_row_groups(groups)
                .set_offset_index(footer.offset_index().cloned())
                .build(),
        ),
        // Only where the numbers of columns differ, which reading finds, too.
        Err(_) => footer,
    }
}

/// Whether the bounds of a column are what they should be, or there are none.
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

/// Opens files whose footers are what they should be.
#[derive(Debug)]
pub(super) struct Checked {
    inner: Arc<dyn ParquetFileReaderFactory>,
    /// Of the table, without its partition columns.
    schema: SchemaRef,
}

impl Checked {
    pub(super) fn new(inner: Arc<dyn ParquetFileReaderFactory>, schema: SchemaRef) -> Self {
        Self { inner, schema }
    }
}

impl ParquetFileReaderFactory for Checked {
    fn create_reader(
        &self,
        partition: usize,
        file: PartitionedFile,
        metadata_size_hint: Option<usize>,
        metrics: &ExecutionPlanMetricsSet,
    ) -> Result<Box<dyn AsyncFileReader + Send>> {
        let bytes = file.object_meta.size;
        let inner = self.inner.create_reader(partition, file, metadata_size_hint, metrics)?;
        Ok(Box::new(CheckedReader { inner, schema: Arc::clone(&self.schema), bytes }))
    }
}

struct CheckedReader {
    inner: Box<dyn AsyncFileReader + Send>,
    schema: SchemaRef,
    /// How many there are in the file.
    bytes: u64,
}

impl AsyncFileReader for CheckedReader {
    fn get_bytes(&mut self, range: Range<u64>) -> BoxFuture<'_, ParquetResult<Bytes>> {
        (*self.inner).get_bytes(range)
    }

    fn get_byte_ranges(&mut self, ranges: Vec<Range<u64>>) -> BoxFuture<'_, ParquetResult<Vec<Bytes>>> {
        (*self.inner).get_byte_ranges(ranges)
    }

    /// Errors: columns are not in the file, or pages cannot be read as they are.
    fn get_metadata<'a>(
        &'a mut self,
        options: Option<&'a ArrowReaderOptions>,
    ) -> BoxFuture<'a, ParquetResult<Arc<ParquetMetaData>>> {
        async move {
            let footer = (*self.inner).get_metadata(options).await?;
            check_places(&footer, self.bytes)?;
            if let Some(place) = doubtful_page(&footer)
                && (*self.inner).get_bytes(place..place + 2).await?.as_ref() == SECOND_VERSION
            {
                let message = "data pages of version 2 that Arrow before 3.0.0 has compressed";
                return Err(ParquetError::NYI(message.to_string()));
            }
            with_texts(reliable(footer), &self.schema)
        }
        .boxed()
    }
}

/// Errors: a column is not within the file, which the library takes for granted.
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

/// Where the first page of a file is whose writer may have compressed it without saying so.
fn doubtful_page(footer: &ParquetMetaData) -> Option<u64> {
    let writer = footer.file_metadata().created_by()?.trim();
    let version =
        writer.strip_prefix("parquet-cpp version").or(writer.strip_prefix("parquet-cpp-arrow version"))?;
    let major: u32 = version.trim().split('.').next()?.parse().ok()?;
    let column = footer.row_groups().first()?.columns().first()?;
    let is_doubtful = major < 3 && column.compression() != Compression::UNCOMPRESSED;
    u64::try_from(column.data_page_offset()).ok().filter(|_| is_doubtful)
}

/// The same footer, with bytes without a type that the table has as texts for texts, which are checked.
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
    let fields = fields.collect::<ParquetResult<Vec<_>>>()?;
    let root = Type::group_type_builder(root.name()).with_fields(fields).build()?;
    let schema = Arc::new(SchemaDescriptor::new(Arc::new(root)));
    let changed = FileMetaData::new(
        file.version(),
        file.num_rows(),
        file.created_by().map(str::to_string),
        file.key_value_metadata().cloned(),
        schema,
        file.column_orders().cloned(),
    );
    let changed = ParquetMetaDataBuilder::new(changed)
        // Readers go by the schema of the file.
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
        let reliable = reliable(Arc::new(footer));
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
    fn writers_whose_pages_are_doubtful_are_known() {
        for (writer, expected) in [
            ("parquet-cpp version 1.5.1-SNAPSHOT", Some(4)),
            ("parquet-cpp-arrow version 2.0.0", Some(4)),
            ("parquet-cpp-arrow version 14.0.2", None),
            ("parquet-mr version 1.8.1 (build 4aba4da)", None),
            ("", None),
        ] {
            assert_eq!(doubtful_page(&footer(columns(false), writer, true)), expected, "{writer}");
        }
    }

    #[test]
    fn bytes_that_are_texts_are_called_so() {
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
