//! Result of `ARRAY(SELECT …)` without rows: an empty array, where an aggregate is NULL.

use std::sync::Arc;

use datafusion::arrow::array::{Array, AsArray, ListArray, StringArray, new_empty_array};
use datafusion::arrow::buffer::OffsetBuffer;
use datafusion::arrow::compute::concat;
use datafusion::arrow::datatypes::DataType;
use datafusion::common::{Result, exec_err, plan_err};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

/// (array) → array, an empty one for NULL.
pub fn function() -> Arc<ScalarUDF> {
    let signature = Signature::any(1, Volatility::Immutable);
    Arc::new(ScalarUDF::new_from_impl(ArrayOrEmpty { signature }))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct ArrayOrEmpty {
    signature: Signature,
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
            // An array literal as text, as in `coalesce(x, '{}')`.
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
        // A NULL list may still reference elements, which must be dropped.
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
