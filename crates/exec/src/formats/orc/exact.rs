//! Narrowing of values that the library reads with more bits than a column has.
//!
//! ORC timestamps have nanoseconds in any year: the library reads them into 128 bits, and they are rounded
//! down to microseconds. Integers are read as 64 bits ([`super::footer`]), of which the lowest are the value,
//! as in other readers: old writers compute runs in the width of the column with wrap-around.

use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, ListArray, MapArray, RecordBatch, RecordBatchOptions, StructArray,
    TimestampMicrosecondArray,
};
use datafusion::arrow::datatypes::{
    DataType, Decimal128Type, DecimalType, FieldRef, Int16Type, Int32Type, Int64Type, Schema, SchemaRef,
};
use datafusion::common::Result;

use harrier_error::{SqlError, SqlState};

/// The lossless type of timestamps: seconds with nine decimals.
const EXACT: DataType = DataType::Decimal128(Decimal128Type::MAX_PRECISION, 9);

const MICROSECOND_NS: i128 = 1000;

/// The file's schema with timestamps in the lossless type.
pub(super) fn schema(schema: &Schema) -> SchemaRef {
    let fields: Vec<FieldRef> = schema.fields().iter().map(exact_field).collect();
    Arc::new(Schema::new_with_metadata(fields, schema.metadata().clone()))
}

fn exact_field(field: &FieldRef) -> FieldRef {
    let kind = match field.data_type() {
        DataType::Timestamp(..) => EXACT,
        DataType::List(item) => DataType::List(exact_field(item)),
        DataType::Map(entries, is_sorted) => DataType::Map(exact_field(entries), *is_sorted),
        DataType::Struct(fields) => DataType::Struct(fields.iter().map(exact_field).collect()),
        _ => return Arc::clone(field),
    };
    Arc::new(field.as_ref().clone().with_data_type(kind))
}

/// Converts rows read with [`schema`] to the schema of the file.
///
/// Errors: a timestamp is out of range (22008).
pub(super) fn narrow_batch(batch: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch> {
    let columns = batch.columns().iter().zip(schema.fields());
    let columns = columns.map(|(column, field)| narrow_column(column, field.data_type()));
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    Ok(RecordBatch::try_new_with_options(Arc::clone(schema), columns.collect::<Result<_>>()?, &options)?)
}

/// Converts a column read with [`schema`] to its type in the file's schema.
///
/// Errors: a timestamp is out of range (22008).
fn narrow_column(column: &ArrayRef, kind: &DataType) -> Result<ArrayRef> {
    Ok(match (kind, column.data_type()) {
        (DataType::Timestamp(_, zone), DataType::Decimal128(..)) => {
            let exact = column.as_primitive::<Decimal128Type>();
            let times = exact.iter().map(|time| {
                let Some(time) = time else { return Ok(None) };
                let time = i64::try_from(time.div_euclid(MICROSECOND_NS))
                    .map_err(|_| {
                        SqlError::new(
                            SqlState::DATETIME_FIELD_OVERFLOW,
                            "timestamp of an ORC file out of range",
                        )
                    })
                    .map_err(harrier_sqlstate::external)?;
                Ok(Some(time))
            });
            let times: TimestampMicrosecondArray = times.collect::<Result<_>>()?;
            Arc::new(times.with_timezone_opt(zone.clone()))
        }
        (DataType::Int16, DataType::Int64) => {
            Arc::new(column.as_primitive::<Int64Type>().unary::<_, Int16Type>(|number| number as i16))
        }
        (DataType::Int32, DataType::Int64) => {
            Arc::new(column.as_primitive::<Int64Type>().unary::<_, Int32Type>(|number| number as i32))
        }
        (DataType::List(item), DataType::List(_)) => {
            let (_, ends, items, nulls) = column.as_list::<i32>().clone().into_parts();
            let items = narrow_column(&items, item.data_type())?;
            Arc::new(ListArray::try_new(Arc::clone(item), ends, items, nulls)?)
        }
        (DataType::Map(entries, is_sorted), DataType::Map(..)) => {
            let (_, ends, items, nulls, _) = column.as_map().clone().into_parts();
            let items = narrow_column(&(Arc::new(items) as ArrayRef), entries.data_type())?;
            let items = items.as_struct().clone();
            Arc::new(MapArray::try_new(Arc::clone(entries), ends, items, nulls, *is_sorted)?)
        }
        (DataType::Struct(fields), DataType::Struct(_)) => {
            let (_, columns, nulls) = column.as_struct().clone().into_parts();
            let columns =
                columns.iter().zip(fields).map(|(column, field)| narrow_column(column, field.data_type()));
            let columns = columns.collect::<Result<Vec<_>>>()?;
            Arc::new(StructArray::try_new_with_length(fields.clone(), columns, nulls, column.len())?)
        }
        _ => Arc::clone(column),
    })
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::{Decimal128Array, Int32Array, Int64Array};
    use datafusion::arrow::buffer::OffsetBuffer;
    use datafusion::arrow::datatypes::{Field, Fields, TimeUnit};

    use super::*;

    #[test]
    fn integers_wrap_around() {
        let wide: ArrayRef = Arc::new(Int64Array::from(vec![Some(62_463), None, Some(-5), Some(1 << 31)]));
        let small = narrow_column(&wide, &DataType::Int16).unwrap();
        assert_eq!(*small.as_primitive::<Int16Type>(), vec![Some(-3073), None, Some(-5), Some(0)].into());
        let middle = narrow_column(&wide, &DataType::Int32).unwrap();
        assert_eq!(middle.as_primitive::<Int32Type>().value(3), i32::MIN);
    }

    #[test]
    fn sub_precision_times_are_rounded_down() {
        let kind = DataType::Timestamp(TimeUnit::Microsecond, None);
        let item = Arc::new(Field::new("item", kind.clone(), true));
        let fields = Fields::from(vec![
            Field::new("n", DataType::Int32, true),
            Field::new("l", DataType::List(Arc::clone(&item)), true),
        ]);
        let nested = DataType::Struct(fields.clone());
        let file = Schema::new(vec![Field::new("s", nested.clone(), true)]);
        let exact = schema(&file);
        let DataType::Struct(read) = exact.field(0).data_type() else { panic!("{exact}") };
        let DataType::List(read_item) = read[1].data_type() else { panic!("{read:?}") };
        assert_eq!(*read_item.data_type(), EXACT);
        // In the year 9999, a nanosecond before 1970, and NULL.
        let times = [Some(253_402_214_400_000_000_999), Some(-1), None];
        let times = Decimal128Array::from_iter(times).with_precision_and_scale(38, 9).unwrap();
        let list =
            ListArray::new(Arc::clone(read_item), OffsetBuffer::from_lengths([3]), Arc::new(times), None);
        let columns: Vec<ArrayRef> = vec![Arc::new(Int32Array::from(vec![7])), Arc::new(list)];
        let given: ArrayRef = Arc::new(StructArray::new(read.clone(), columns, None));
        let found = narrow_column(&given, &nested).unwrap();
        assert_eq!(*found.data_type(), nested);
        let list = found.as_struct().column(1).as_list::<i32>().value(0);
        let expected = TimestampMicrosecondArray::from_iter([Some(253_402_214_400_000_000), Some(-1), None]);
        assert_eq!(list.as_ref(), &expected as &dyn Array);
        // A decimal column is unchanged.
        let decimal: ArrayRef =
            Arc::new(Decimal128Array::from(vec![1]).with_precision_and_scale(38, 9).unwrap());
        assert_eq!(narrow_column(&decimal, &EXACT).unwrap().data_type(), &EXACT);
        let far: ArrayRef = Arc::new(Decimal128Array::from(vec![i128::MAX / 2]));
        assert!(narrow_column(&far, &kind).is_err());
    }
}
