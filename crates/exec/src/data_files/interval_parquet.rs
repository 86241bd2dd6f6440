//! Parquet adapters for intervals stored as bytes: a reader that returns the bytes, and the schema that
//! declares them as intervals.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use datafusion::arrow::datatypes::{DataType, Schema};
use datafusion::common::{Result, internal_err};
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::parquet::{
    DefaultParquetFileReaderFactory, ParquetFileReaderFactory,
};
use datafusion::datasource::physical_plan::{FileSource, ParquetSource};
use datafusion::execution::TaskContext;
use datafusion::execution::object_store::ObjectStoreUrl;
use datafusion::parquet::arrow::ArrowSchemaConverter;
use datafusion::parquet::arrow::arrow_reader::ArrowReaderOptions;
use datafusion::parquet::arrow::async_reader::AsyncFileReader;
use datafusion::parquet::basic::{ConvertedType, LogicalType, Type as PhysicalType};
use datafusion::parquet::errors::Result as ParquetResult;
use datafusion::parquet::file::metadata::{FileMetaData, ParquetMetaData, ParquetMetaDataBuilder};
use datafusion::parquet::schema::types::{SchemaDescriptor, Type, TypePtr};
use datafusion::physical_plan::metrics::ExecutionPlanMetricsSet;
use futures::FutureExt;
use futures::future::BoxFuture;

use crate::formats::interval_encoding::{WIDTH, has_file_type};
use crate::formats::nested_types::replace_type;
use harrier_functions::uuid_text;

/// The Parquet schema of columns written with `interval_encoding::file_schema`; bytes of UUIDs are declared
/// as UUID.
pub(super) fn parquet_schema(schema: &Schema) -> Result<SchemaDescriptor> {
    let schema = ArrowSchemaConverter::new().convert(schema)?;
    Ok(SchemaDescriptor::new(with_uuids(&schema.root_schema_ptr())?))
}

/// Whether columns need a logical type that their Arrow types do not imply.
pub(super) fn has_uuids(schema: &Schema) -> bool {
    let in_plan = |kind: &DataType| replace_type(kind, &uuid_text::STORED, &uuid_text::SHOWN);
    schema.fields().iter().any(|field| in_plan(field.data_type()) != *field.data_type())
}

fn with_uuids(kind: &TypePtr) -> ParquetResult<TypePtr> {
    Ok(match kind.as_ref() {
        Type::GroupType { basic_info, fields } => {
            let fields = fields.iter().map(with_uuids).collect::<ParquetResult<Vec<_>>>()?;
            Arc::new(Type::GroupType { basic_info: basic_info.clone(), fields })
        }
        Type::PrimitiveType { basic_info, physical_type, type_length, .. }
            if *physical_type == PhysicalType::FIXED_LEN_BYTE_ARRAY
                && *type_length == uuid_text::WIDTH
                && basic_info.logical_type_ref().is_none()
                && basic_info.converted_type() == ConvertedType::NONE =>
        {
            let id = basic_info.has_id().then(|| basic_info.id());
            let uuid = Type::primitive_type_builder(basic_info.name(), PhysicalType::FIXED_LEN_BYTE_ARRAY)
                .with_length(uuid_text::WIDTH)
                .with_logical_type(Some(LogicalType::Uuid))
                .with_repetition(basic_info.repetition())
                .with_id(id);
            Arc::new(uuid.build()?)
        }
        Type::PrimitiveType { .. } => Arc::clone(kind),
    })
}

/// Makes `source` read intervals as bytes if its schema has some. A serialized plan cannot express this.
pub(super) fn reading_bytes(
    source: Arc<dyn FileSource>,
    store: &ObjectStoreUrl,
    context: &TaskContext,
) -> Result<Arc<dyn FileSource>> {
    let fields = source.table_schema().file_schema().fields();
    if !fields.iter().any(|field| has_file_type(field.data_type())) {
        return Ok(source);
    }
    let Some(parquet) = source.downcast_ref::<ParquetSource>() else {
        return internal_err!("intervals in files that are not Parquet");
    };
    let reader: Arc<dyn ParquetFileReaderFactory> = match parquet.parquet_file_reader_factory() {
        Some(reader) => Arc::clone(reader),
        None => Arc::new(DefaultParquetFileReaderFactory::new(context.runtime_env().object_store(store)?)),
    };
    Ok(Arc::new(parquet.clone().with_parquet_file_reader_factory(Arc::new(BytesFactory(reader)))))
}

#[derive(Debug)]
struct BytesFactory(Arc<dyn ParquetFileReaderFactory>);

impl ParquetFileReaderFactory for BytesFactory {
    fn create_reader(
        &self,
        partition_index: usize,
        partitioned_file: PartitionedFile,
        metadata_size_hint: Option<usize>,
        metrics: &ExecutionPlanMetricsSet,
    ) -> Result<Box<dyn AsyncFileReader + Send>> {
        let reader = self.0.create_reader(partition_index, partitioned_file, metadata_size_hint, metrics)?;
        Ok(Box::new(BytesReader(reader)))
    }
}

/// A reader that presents no column as an interval.
struct BytesReader(Box<dyn AsyncFileReader + Send>);

impl AsyncFileReader for BytesReader {
    fn get_bytes(&mut self, range: Range<u64>) -> BoxFuture<'_, ParquetResult<Bytes>> {
        (*self.0).get_bytes(range)
    }

    fn get_byte_ranges(&mut self, ranges: Vec<Range<u64>>) -> BoxFuture<'_, ParquetResult<Vec<Bytes>>> {
        (*self.0).get_byte_ranges(ranges)
    }

    fn get_metadata<'a>(
        &'a mut self,
        options: Option<&'a ArrowReaderOptions>,
    ) -> BoxFuture<'a, ParquetResult<Arc<ParquetMetaData>>> {
        let footer = (*self.0).get_metadata(options);
        async move { without_intervals(footer.await?) }.boxed()
    }
}

/// Replaces intervals in a footer's Arrow-visible schema by bytes. The row group metadata is unchanged:
/// readers use the file's schema.
fn without_intervals(footer: Arc<ParquetMetaData>) -> ParquetResult<Arc<ParquetMetaData>> {
    let file = footer.file_metadata();
    let columns = file.schema_descr().columns();
    if !columns.iter().any(|column| column.converted_type() == ConvertedType::INTERVAL) {
        return Ok(footer);
    }
    let schema = SchemaDescriptor::new(as_bytes(&file.schema_descr().root_schema_ptr())?);
    let file = FileMetaData::new(
        file.version(),
        file.num_rows(),
        file.created_by().map(str::to_string),
        file.key_value_metadata().cloned(),
        Arc::new(schema),
        file.column_orders().cloned(),
    );
    let changed = ParquetMetaDataBuilder::new(file)
        .set_row_groups(footer.row_groups().to_vec())
        .set_column_index(footer.column_index().cloned())
        .set_offset_index(footer.offset_index().cloned());
    Ok(Arc::new(changed.build()))
}

fn as_bytes(kind: &TypePtr) -> ParquetResult<TypePtr> {
    Ok(match kind.as_ref() {
        Type::GroupType { basic_info, fields } => {
            let fields = fields.iter().map(as_bytes).collect::<ParquetResult<Vec<_>>>()?;
            Arc::new(Type::GroupType { basic_info: basic_info.clone(), fields })
        }
        Type::PrimitiveType { basic_info, .. } if basic_info.converted_type() == ConvertedType::INTERVAL => {
            let id = basic_info.has_id().then(|| basic_info.id());
            let bytes = Type::primitive_type_builder(basic_info.name(), PhysicalType::FIXED_LEN_BYTE_ARRAY)
                .with_length(WIDTH)
                .with_repetition(basic_info.repetition())
                .with_id(id);
            Arc::new(bytes.build()?)
        }
        Type::PrimitiveType { .. } => Arc::clone(kind),
    })
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use datafusion::arrow::array::{
        Array, ArrayRef, IntervalMonthDayNanoArray, ListArray, RecordBatch, StringArray,
    };
    use datafusion::arrow::buffer::OffsetBuffer;
    use datafusion::arrow::datatypes::{Field, IntervalMonthDayNano, IntervalUnit};
    use datafusion::parquet::arrow::arrow_reader::{ArrowReaderMetadata, ParquetRecordBatchReaderBuilder};
    use datafusion::parquet::arrow::arrow_writer::ArrowWriterOptions;
    use datafusion::parquet::arrow::{ArrowWriter, PARQUET_FIELD_ID_META_KEY};

    use super::super::column_stats::field_id;
    use super::*;
    use crate::formats::interval_encoding::{encode_intervals, file_schema, round_to_stored};

    #[test]
    fn intervals_are_stored_as_annotated_bytes() {
        let interval = |months: i32, days: i32| IntervalMonthDayNano::new(months, days, 7_000_000);
        let own: ArrayRef = Arc::new(IntervalMonthDayNanoArray::from(vec![
            Some(interval(14, 3)),
            None,
            Some(interval(0, 40)),
        ]));
        let kind = DataType::Interval(IntervalUnit::MonthDayNano);
        let element = Arc::new(Field::new("element", kind.clone(), true));
        let offsets = OffsetBuffer::from_lengths([2, 0, 1]);
        let lists: ArrayRef =
            Arc::new(ListArray::try_new(Arc::clone(&element), offsets, Arc::clone(&own), None).unwrap());
        let texts: ArrayRef = Arc::new(StringArray::from(vec!["a", "b", "c"]));
        let id = |id: &str| HashMap::from([(PARQUET_FIELD_ID_META_KEY.to_string(), id.to_string())]);
        let schema = Schema::new(vec![
            Field::new("v", kind, true).with_metadata(id("7")),
            Field::new("t", DataType::Utf8, true),
            Field::new("l", DataType::List(element), true),
        ]);
        let columns = [&own, &texts, &lists].map(|column| encode_intervals(column, "").unwrap());
        let stored = RecordBatch::try_new(file_schema(&schema), columns.to_vec()).unwrap();
        let options = ArrowWriterOptions::new()
            .with_skip_arrow_metadata(true)
            .with_parquet_schema(parquet_schema(&schema).unwrap());
        let mut file = Vec::new();
        let mut writer = ArrowWriter::try_new_with_options(&mut file, stored.schema(), options).unwrap();
        writer.write(&stored).unwrap();
        writer.close().unwrap();

        let file = Bytes::from(file);
        let known = ArrowReaderMetadata::load(&file, ArrowReaderOptions::new()).unwrap();
        // By default the library reads them as days and milliseconds.
        assert_eq!(*known.schema().field(0).data_type(), DataType::Interval(IntervalUnit::DayTime));
        let footer = without_intervals(Arc::clone(known.metadata())).unwrap();
        let known = ArrowReaderMetadata::try_new(footer, ArrowReaderOptions::new()).unwrap();
        assert_eq!(field_id(known.schema().field(0)), Some(7));
        let mut rows = ParquetRecordBatchReaderBuilder::new_with_metadata(file, known).build().unwrap();
        let rows = rows.next().unwrap().unwrap();
        assert_eq!(rows.column(0), stored.column(0));
        assert_eq!(rows.column(1), stored.column(1));
        assert_eq!(rows.column(2).to_data().child_data(), stored.column(2).to_data().child_data());
        assert_eq!(&round_to_stored(&own, "v").unwrap(), &own);
    }
}
