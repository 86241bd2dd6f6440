//! Parquet writer of row groups and the footer.
//!
//! Bounds collected by the library ignore NaN, so readers that order NaN after all other values (DuckDB,
//! PostgreSQL, Harrier) would wrongly prune by them. A column chunk with a NaN therefore gets no bounds,
//! neither its own nor its pages'; the catalog, which records whether a file has NaN, keeps them
//! ([`RowGroups::finish`] returns them).

use datafusion::arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use datafusion::arrow::datatypes::{DataType, Float16Type, Float32Type, Float64Type, SchemaRef};
use datafusion::parquet::arrow::ArrowWriter;
use datafusion::parquet::arrow::arrow_writer::{
    ArrowColumnWriter, ArrowRowGroupWriterFactory, ArrowWriterOptions, compute_leaves,
};
use datafusion::parquet::errors::{ParquetError, Result};
use datafusion::parquet::file::metadata::{KeyValue, ParquetMetaData};
use datafusion::parquet::file::statistics::Statistics;
use datafusion::parquet::file::writer::SerializedFileWriter;

/// The row group being written.
struct OpenRowGroup {
    columns: Vec<ArrowColumnWriter>,
    rows: usize,
    /// Leaf columns with a NaN.
    nans: Vec<bool>,
}

/// Encodes rows into row groups with a maximum number of rows, in memory. Memory bound: one encoded row
/// group.
pub(super) struct RowGroups {
    file: SerializedFileWriter<Vec<u8>>,
    factory: ArrowRowGroupWriterFactory,
    schema: SchemaRef,
    has_floats: bool,
    rows_max: usize,
    open: Option<OpenRowGroup>,
    /// By row group and column: bounds omitted from the file.
    omitted_bounds: Vec<(usize, usize, Statistics)>,
}

impl RowGroups {
    pub(super) fn try_new(schema: SchemaRef, options: ArrowWriterOptions) -> Result<Self> {
        let rows = ArrowWriter::try_new_with_options(Vec::new(), SchemaRef::clone(&schema), options)?;
        let (file, factory) = rows.into_serialized_writer()?;
        let rows_max = file.properties().max_row_group_row_count().unwrap_or(usize::MAX);
        let has_floats = schema.fields().iter().any(|field| has_floats(field.data_type()));
        Ok(Self { file, factory, schema, has_floats, rows_max, open: None, omitted_bounds: Vec::new() })
    }

    /// Bytes in memory.
    pub(super) fn memory_size(&self) -> usize {
        self.open.iter().flat_map(|open| &open.columns).map(ArrowColumnWriter::memory_size).sum()
    }

    /// Bytes of the open row group when encoded.
    pub(super) fn in_progress_size(&self) -> usize {
        self.open
            .iter()
            .flat_map(|open| &open.columns)
            .map(ArrowColumnWriter::get_estimated_total_bytes)
            .sum()
    }

    /// Returns whether a row group was completed.
    pub(super) fn write(&mut self, batch: &RecordBatch) -> Result<bool> {
        let mut is_complete = false;
        let mut at = 0;
        while at < batch.num_rows() {
            let rows = self.open.as_ref().map_or(0, |open| open.rows);
            let fitting = (self.rows_max - rows).min(batch.num_rows() - at);
            self.write_to_row_group(&batch.slice(at, fitting))?;
            at += fitting;
            if rows + fitting == self.rows_max {
                self.flush()?;
                is_complete = true;
            }
        }
        Ok(is_complete)
    }

    /// Writes rows of one row group.
    fn write_to_row_group(&mut self, batch: &RecordBatch) -> Result<()> {
        let open = match &mut self.open {
            Some(open) => open,
            none => {
                let columns = self.factory.create_column_writers(self.file.flushed_row_groups().len())?;
                let nans = vec![false; columns.len()];
                none.insert(OpenRowGroup { columns, rows: 0, nans })
            }
        };
        open.rows += batch.num_rows();
        let mut leaves = open.columns.iter_mut();
        for (field, column) in self.schema.fields().iter().zip(batch.columns()) {
            for leaf in compute_leaves(field, column)? {
                leaves.next().ok_or_else(too_many)?.write(&leaf)?;
            }
        }
        if self.has_floats {
            let mut at = 0;
            batch.columns().iter().for_each(|column| mark_nans(column, &mut open.nans, &mut at));
        }
        Ok(())
    }

    /// Completes the row group.
    pub(super) fn flush(&mut self) -> Result<()> {
        let Some(open) = self.open.take() else { return Ok(()) };
        let group = self.file.flushed_row_groups().len();
        let mut chunks = Vec::with_capacity(open.columns.len());
        for (at, (column, has_nan)) in open.columns.into_iter().zip(open.nans).enumerate() {
            let mut chunk = column.close()?;
            let close = chunk.close_mut();
            if let (true, Some(bounds)) = (has_nan, close.metadata.statistics()) {
                self.omitted_bounds.push((group, at, bounds.clone()));
                let told = close.metadata.clone().into_builder().set_statistics(without_bounds(bounds));
                close.metadata = told.build()?;
                close.column_index = None;
            }
            chunks.push(chunk);
        }
        let mut group = self.file.next_row_group()?;
        for chunk in chunks {
            chunk.append_to_row_group(&mut group)?;
        }
        group.close()?;
        // The last pages may still be in the writer's buffer.
        Ok(self.file.flush()?)
    }

    pub(super) fn append_key_value_metadata(&mut self, pair: KeyValue) {
        self.file.append_key_value_metadata(pair);
    }

    /// Writes the footer; returns it with the bounds that the file omits.
    pub(super) fn finish(&mut self) -> Result<ParquetMetaData> {
        let footer = self.file.finish()?;
        if self.omitted_bounds.is_empty() {
            return Ok(footer);
        }
        let mut builder = footer.into_builder();
        let mut groups = builder.take_row_groups();
        for (group, column, bounds) in self.omitted_bounds.drain(..) {
            let mut columns = groups[group].columns().to_vec();
            columns[column] = columns[column].clone().into_builder().set_statistics(bounds).build()?;
            groups[group] = groups[group].clone().into_builder().set_column_metadata(columns).build()?;
        }
        Ok(builder.set_row_groups(groups).build())
    }

    /// The encoded bytes not yet taken.
    pub(super) fn bytes_mut(&mut self) -> &mut Vec<u8> {
        self.file.inner_mut()
    }
}

fn too_many() -> ParquetError {
    ParquetError::General("a batch has more columns than its file".to_string())
}

fn has_floats(kind: &DataType) -> bool {
    match kind {
        DataType::List(field)
        | DataType::LargeList(field)
        | DataType::FixedSizeList(field, _)
        | DataType::ListView(field)
        | DataType::LargeListView(field)
        | DataType::Map(field, _) => has_floats(field.data_type()),
        DataType::Struct(fields) => fields.iter().any(|field| has_floats(field.data_type())),
        DataType::Dictionary(_, values) => has_floats(values),
        kind => kind.is_floating(),
    }
}

/// Marks the leaf columns from `at` on that have a NaN in `array`, and advances `at` past them. Values hidden
/// by nulls may count.
fn mark_nans(array: &ArrayRef, nans: &mut [bool], at: &mut usize) {
    let has_nan = match array.data_type() {
        DataType::Struct(_) => {
            return array.as_struct().columns().iter().for_each(|column| mark_nans(column, nans, at));
        }
        DataType::List(_) => return mark_nans(array.as_list::<i32>().values(), nans, at),
        DataType::LargeList(_) => return mark_nans(array.as_list::<i64>().values(), nans, at),
        DataType::ListView(_) => return mark_nans(array.as_list_view::<i32>().values(), nans, at),
        DataType::LargeListView(_) => return mark_nans(array.as_list_view::<i64>().values(), nans, at),
        DataType::FixedSizeList(..) => return mark_nans(array.as_fixed_size_list().values(), nans, at),
        DataType::Map(..) => {
            let entries = array.as_map().entries();
            return entries.columns().iter().for_each(|column| mark_nans(column, nans, at));
        }
        DataType::Dictionary(..) => {
            return match array.as_any_dictionary_opt() {
                Some(dictionary) => mark_nans(dictionary.values(), nans, at),
                None => *at += 1,
            };
        }
        DataType::Float16 => array.as_primitive::<Float16Type>().iter().flatten().any(|value| value.is_nan()),
        DataType::Float32 => array.as_primitive::<Float32Type>().iter().flatten().any(f32::is_nan),
        DataType::Float64 => array.as_primitive::<Float64Type>().iter().flatten().any(f64::is_nan),
        _ => false,
    };
    if let Some(seen) = nans.get_mut(*at) {
        *seen |= has_nan;
    }
    *at += 1;
}

/// Copies statistics without minimum and maximum.
fn without_bounds(all: &Statistics) -> Statistics {
    let nulls = all.null_count_opt();
    match all {
        Statistics::Float(_) => Statistics::float(None, None, None, nulls, false),
        Statistics::Double(_) => Statistics::double(None, None, None, nulls, false),
        // Float16.
        Statistics::FixedLenByteArray(_) => Statistics::fixed_len_byte_array(None, None, None, nulls, false),
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::Bytes;
    use datafusion::arrow::array::{Float32Array, Float64Array, Int64Array, StructArray};
    use datafusion::arrow::datatypes::Field;
    use datafusion::parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
    use datafusion::parquet::file::metadata::{PageIndexPolicy, ParquetMetaDataReader};
    use datafusion::parquet::file::properties::WriterProperties;

    use super::*;

    /// Three row groups; the second has NaN in a column and in a nested field.
    #[test]
    fn chunks_with_nan_have_no_bounds() {
        let doubles: Vec<f64> = (0..25).map(|v| if v == 12 { f64::NAN } else { f64::from(v) }).collect();
        let inner: ArrayRef = Arc::new(Float32Array::from_iter_values(doubles.iter().map(|v| *v as f32)));
        let count: ArrayRef = Arc::new(Int64Array::from_iter_values(0..25));
        let nested = StructArray::from(vec![
            (Arc::new(Field::new("n", DataType::Int64, false)), Arc::clone(&count)),
            (Arc::new(Field::new("f", DataType::Float32, false)), inner),
        ]);
        let batch = RecordBatch::try_from_iter([
            ("i", count),
            ("s", Arc::new(nested) as ArrayRef),
            ("d", Arc::new(Float64Array::from(doubles)) as ArrayRef),
        ])
        .unwrap();
        let properties = WriterProperties::builder().set_max_row_group_row_count(Some(10)).build();
        let options = ArrowWriterOptions::new().with_properties(properties);
        let mut rows = RowGroups::try_new(batch.schema(), options).unwrap();
        assert!(rows.write(&batch).unwrap());
        rows.flush().unwrap();
        let full = rows.finish().unwrap();
        let bytes = Bytes::from(std::mem::take(rows.bytes_mut()));
        let reader = ParquetMetaDataReader::new().with_page_index_policy(PageIndexPolicy::Optional);
        let told = reader.parse_and_finish(&bytes).unwrap();
        let bounds = |footer: &ParquetMetaData| -> Vec<Vec<bool>> {
            let of_group = |group: usize| {
                let columns = footer.row_group(group).columns().iter();
                columns.map(|column| column.statistics().unwrap().min_bytes_opt().is_some()).collect()
            };
            (0..footer.num_row_groups()).map(of_group).collect()
        };
        assert_eq!(bounds(&told), [[true; 4], [true, true, false, false], [true; 4]]);
        assert_eq!(bounds(&full), [[true; 4]; 3]);
        assert_eq!(told.row_group(1).column(3).statistics().unwrap().null_count_opt(), Some(0));
        let read =
            ParquetRecordBatchReaderBuilder::try_new(bytes).unwrap().with_batch_size(100).build().unwrap();
        let read: Vec<RecordBatch> = read.map(|batch| batch.unwrap()).collect();
        assert_eq!(read.iter().map(RecordBatch::num_rows).sum::<usize>(), 25);
        assert!(read[0].column(2).as_primitive::<Float64Type>().value(12).is_nan());
    }
}
