//! Functions that return arrays, and arrays with subscripts.

use std::sync::Arc;

use datafusion::arrow::array::{Array, AsArray, Int32Array, ListArray, StructArray};
use datafusion::arrow::buffer::OffsetBuffer;
use datafusion::arrow::datatypes::{DataType, Field, Fields};
use datafusion::common::{exec_err, plan_err};
use datafusion::error::Result;
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDFImpl, Signature, Volatility};

/// `information_schema._pg_expandarray`: the elements of an array with their subscripts, as a list of structs
/// of `x` and `n`.
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
