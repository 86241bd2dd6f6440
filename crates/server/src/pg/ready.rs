//! Arrays of Arrow as the few types that there is a way to write for: cast once for a batch, arrays in arrays
//! too.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use arrow::compute::cast;
use arrow::datatypes::{DataType, FieldRef, IntervalUnit, TimeUnit};
use harrier_error::{SqlError, SqlState};

use super::types::{self, PgType};

/// A column that can be written.
pub(crate) struct Ready {
    pub(crate) array: ArrayRef,
    pub(crate) field: FieldRef,
    pub(crate) pg_type: PgType,
    /// Of an array of lists (which are `List` or `LargeList` here), the values in them, one behind the other.
    pub(crate) items: Option<Box<Ready>>,
}

impl Ready {
    /// Errors: there is no such cast (XX000).
    fn new(array: &ArrayRef, field: &FieldRef) -> Result<Self, SqlError> {
        let pg_type = PgType::of_field(field);
        let mut array = Arc::clone(array);
        while let Some(wanted) = written_as(array.data_type()) {
            let failed = |error| {
                SqlError::new(
                    SqlState::INTERNAL_ERROR,
                    format!("could not write a value of type {wanted}: {error}"),
                )
            };
            array = cast(&array, &wanted).map_err(failed)?;
        }
        let items = match array.data_type() {
            DataType::List(item) => Some((Arc::clone(array.as_list::<i32>().values()), item)),
            DataType::LargeList(item) => Some((Arc::clone(array.as_list::<i64>().values()), item)),
            _ => None,
        };
        let items = items.map(|(values, item)| Self::new(&values, item)).transpose()?.map(Box::new);
        let field = match field.data_type() == array.data_type() {
            true => Arc::clone(field),
            false => Arc::new(field.as_ref().clone().with_data_type(array.data_type().clone())),
        };
        Ok(Self { array, field, pg_type, items })
    }

    /// Has it be of a type that a client was told.
    pub(crate) fn tell(&mut self, pg_type: PgType) {
        self.pg_type = pg_type;
        // Of UUIDs, which are texts, the array alone says it.
        if let Some(items) = &mut self.items
            && items.pg_type.oid == types::TEXT
            && types::item_of(pg_type.oid) == Some(types::UUID)
        {
            items.pg_type.oid = types::UUID;
        }
    }
}

/// The columns of a batch, ready to be written.
pub(crate) fn ready(batch: &RecordBatch) -> Result<Vec<Ready>, SqlError> {
    let schema = batch.schema_ref();
    batch.columns().iter().zip(schema.fields()).map(|(array, field)| Ready::new(array, field)).collect()
}

/// What a type is cast to before it is written; `None` if it is written as it is.
fn written_as(data_type: &DataType) -> Option<DataType> {
    let microseconds = TimeUnit::Microsecond;
    Some(match data_type {
        // Which has no marks of what is NULL.
        DataType::Null => DataType::Utf8,
        DataType::Int8 | DataType::UInt8 => DataType::Int16,
        DataType::UInt16 => DataType::Int32,
        DataType::UInt32 => DataType::Int64,
        DataType::Float16 => DataType::Float32,
        DataType::Date64 => DataType::Timestamp(microseconds, None),
        DataType::Timestamp(unit, zone) if *unit != microseconds => {
            DataType::Timestamp(microseconds, zone.clone())
        }
        DataType::Time32(_) | DataType::Time64(TimeUnit::Nanosecond) => DataType::Time64(microseconds),
        DataType::Interval(unit) if *unit != IntervalUnit::MonthDayNano => {
            DataType::Interval(IntervalUnit::MonthDayNano)
        }
        DataType::Duration(unit) if *unit != microseconds => DataType::Duration(microseconds),
        DataType::Decimal32(precision, scale) | DataType::Decimal64(precision, scale) => {
            DataType::Decimal128(*precision, *scale)
        }
        DataType::Dictionary(_, value) => DataType::clone(value),
        DataType::RunEndEncoded(_, value) => value.data_type().clone(),
        DataType::LargeBinary | DataType::BinaryView => DataType::Binary,
        DataType::ListView(item) | DataType::FixedSizeList(item, _) => DataType::List(Arc::clone(item)),
        DataType::LargeListView(item) => DataType::LargeList(Arc::clone(item)),
        _ => return None,
    })
}
