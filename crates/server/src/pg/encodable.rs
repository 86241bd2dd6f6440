//! Casts of Arrow arrays, nested ones too, to the few types that have encoders: once per batch.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use arrow::compute::cast;
use arrow::datatypes::{DataType, FieldRef, IntervalUnit, TimeUnit};
use harrier_error::{SqlError, SqlState};

use super::types::{self, PgType};

/// A column of an encodable type.
pub(crate) struct EncodableColumn {
    pub(crate) array: ArrayRef,
    pub(crate) field: FieldRef,
    pub(crate) pg_type: PgType,
    /// For lists (here `List` or `LargeList`), their flattened values.
    pub(crate) items: Option<Box<EncodableColumn>>,
}

impl EncodableColumn {
    /// Errors: there is no such cast (XX000).
    fn new(array: &ArrayRef, field: &FieldRef) -> Result<Self, SqlError> {
        let pg_type = PgType::of_field(field);
        let mut array = Arc::clone(array);
        while let Some(wanted) = encodable_type(array.data_type()) {
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

    /// Sets the type from the row description.
    pub(crate) fn set_type(&mut self, pg_type: PgType) {
        self.pg_type = pg_type;
        // UUIDs are text arrays; only the list's type says so.
        if let Some(items) = &mut self.items
            && items.pg_type.oid == types::TEXT
            && types::item_of(pg_type.oid) == Some(types::UUID)
        {
            items.pg_type.oid = types::UUID;
        }
    }
}

/// Casts the columns of a batch to encodable types.
pub(crate) fn encodable_columns(batch: &RecordBatch) -> Result<Vec<EncodableColumn>, SqlError> {
    let schema = batch.schema_ref();
    batch
        .columns()
        .iter()
        .zip(schema.fields())
        .map(|(array, field)| EncodableColumn::new(array, field))
        .collect()
}

/// The type to cast to before encoding; `None` if the array can be encoded directly.
fn encodable_type(data_type: &DataType) -> Option<DataType> {
    let microseconds = TimeUnit::Microsecond;
    Some(match data_type {
        // The Null array has no validity bitmap.
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
