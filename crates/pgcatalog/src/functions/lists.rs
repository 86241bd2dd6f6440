//! Functions whose results are lists, and lists with places.

use std::sync::Arc;

use datafusion::arrow::array::{
    Array, AsArray, Int32Array, ListArray, StringArray, StructArray, new_empty_array,
};
use datafusion::arrow::buffer::OffsetBuffer;
use datafusion::arrow::compute::concat;
use datafusion::arrow::datatypes::{DataType, Field, Fields};
use datafusion::common::{exec_err, plan_err};
use datafusion::error::Result;
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDFImpl, Signature, Volatility};

/// `information_schema._pg_expandarray`: the elements of a list with their places, as a list of structs of
/// `x` and `n`.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct ExpandArray {
    signature: Signature,
}

impl ExpandArray {
    pub(super) fn new() -> Self {
        Self { signature: Signature::any(1, Volatility::Immutable) }
    }

    fn result(list: &DataType) -> Result<DataType> {
        let DataType::List(item) = list else {
            return plan_err!("function _pg_expandarray({list}) does not exist");
        };
        let fields = Fields::from(vec![
            Field::new("x", item.data_type().clone(), true),
            Field::new("n", DataType::Int32, false),
        ]);
        Ok(DataType::List(Arc::new(Field::new_list_field(DataType::Struct(fields), true))))
    }
}

impl ScalarUDFImpl for ExpandArray {
    fn name(&self) -> &str {
        "_pg_expandarray"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, given: &[DataType]) -> Result<DataType> {
        match given.first() {
            Some(list) => Self::result(list),
            None => plan_err!("function _pg_expandarray() does not exist"),
        }
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let array = arguments.args[0].to_array(arguments.number_rows)?;
        let list = array.as_list::<i32>();
        let DataType::List(item) = Self::result(array.data_type())? else {
            return exec_err!("a list was expected");
        };
        let DataType::Struct(fields) = item.data_type() else { return exec_err!("a struct was expected") };
        let lengths =
            (0..list.len()).map(|row| if list.is_null(row) { 0 } else { list.value_length(row) as usize });
        let lengths = lengths.collect::<Vec<_>>();
        let places = lengths.iter().flat_map(|length| 1..=*length as i32).collect::<Int32Array>();
        let start = list.value_offsets()[0] as usize;
        let values = list.values().slice(start, places.len());
        let structs = StructArray::try_new(fields.clone(), vec![values, Arc::new(places)], None)?;
        let offsets = OffsetBuffer::from_lengths(lengths);
        let expanded =
            ListArray::try_new(Arc::clone(&item), offsets, Arc::new(structs), list.nulls().cloned())?;
        Ok(ColumnarValue::Array(Arc::new(expanded)))
    }
}

/// What `ARRAY(SELECT …)` is without rows: an empty array, where an aggregate is null.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct ArrayOrEmpty {
    signature: Signature,
}

impl ArrayOrEmpty {
    pub(super) fn new() -> Self {
        Self { signature: Signature::any(1, Volatility::Immutable) }
    }
}

impl ScalarUDFImpl for ArrayOrEmpty {
    fn name(&self) -> &str {
        "array_or_empty"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, given: &[DataType]) -> Result<DataType> {
        match given {
            [list @ DataType::List(_)] => Ok(list.clone()),
            // An array that is a text, as in `coalesce(x, '{}')`.
            [DataType::Utf8] => Ok(DataType::Utf8),
            _ => plan_err!("function array_or_empty does not exist for these arguments"),
        }
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let array = arguments.args[0].to_array(arguments.number_rows)?;
        if *array.data_type() == DataType::Utf8 {
            let texts = array.as_string::<i32>().iter().map(|text| Some(text.unwrap_or("{}")));
            return Ok(ColumnarValue::Array(Arc::new(texts.collect::<StringArray>())));
        }
        let list = array.as_list::<i32>();
        let DataType::List(item) = array.data_type() else { return exec_err!("a list was expected") };
        if list.null_count() == 0 {
            return Ok(ColumnarValue::Array(array));
        }
        // A null may have elements behind it, which have to go.
        let rows = (0..list.len()).map(|row| list.is_valid(row).then(|| list.value(row))).collect::<Vec<_>>();
        let offsets =
            OffsetBuffer::from_lengths(rows.iter().map(|row| row.as_ref().map_or(0, |row| row.len())));
        let present = rows.iter().flatten().map(|row| row.as_ref()).collect::<Vec<_>>();
        let values = match present.is_empty() {
            true => new_empty_array(item.data_type()),
            false => concat(&present)?,
        };
        Ok(ColumnarValue::Array(Arc::new(ListArray::try_new(Arc::clone(item), offsets, values, None)?)))
    }
}
