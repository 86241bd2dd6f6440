//! `SET a[i] = v`: an array with another element. An array that is shorter gets NULLs between, and one that
//! is NULL is taken for an empty one. It travels to ranks by its name.

use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, Int64Array, ListArray, new_null_array};
use datafusion::arrow::buffer::OffsetBuffer;
use datafusion::arrow::compute::interleave;
use datafusion::arrow::datatypes::{DataType, Int64Type};
use datafusion::common::{Result, ScalarValue, internal_err};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use harrier_error::{SqlError, SqlState};
use harrier_sqlstate::IntoDataFusionError;

/// The most elements of an array, as in PostgreSQL.
const ELEMENTS_MAX: i64 = 134_217_727;

/// (array, subscript, value) → array
pub(crate) fn function() -> Arc<ScalarUDF> {
    let signature = Signature::user_defined(Volatility::Immutable);
    Arc::new(ScalarUDF::new_from_impl(ArrayAssign { signature }))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct ArrayAssign {
    signature: Signature,
}

impl ScalarUDFImpl for ArrayAssign {
    fn name(&self) -> &str {
        "harrier_array_assign"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        match given {
            [list @ DataType::List(item), _, _] => {
                Ok(vec![list.clone(), DataType::Int64, item.data_type().clone()])
            }
            [other, _, _] => {
                let message =
                    format!("cannot subscript type {other} because it does not support subscripting");
                Err(SqlError::new(SqlState::DATATYPE_MISMATCH, message).into_datafusion())
            }
            _ => internal_err!("{} has three arguments", self.name()),
        }
    }

    fn return_type(&self, given: &[DataType]) -> Result<DataType> {
        match given {
            [DataType::List(item), ..] => {
                Ok(DataType::List(Arc::new(item.as_ref().clone().with_nullable(true))))
            }
            _ => internal_err!("an element of what is no array"),
        }
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let are_constants = arguments.args.iter().all(|one| matches!(one, ColumnarValue::Scalar(_)));
        let rows = if are_constants { 1 } else { arguments.number_rows };
        let [list, at, value] = arguments.args.as_slice() else {
            return internal_err!("{} has three arguments", self.name());
        };
        let at = at.to_array(rows)?;
        let changed: ArrayRef = Arc::new(assign_elements(
            list.to_array(rows)?.as_list(),
            at.as_primitive::<Int64Type>(),
            &value.to_array(rows)?,
        )?);
        Ok(match are_constants {
            true => ColumnarValue::Scalar(ScalarValue::try_from_array(&changed, 0)?),
            false => ColumnarValue::Array(changed),
        })
    }
}

/// Errors: a subscript is NULL (22004), less than 1 (2202E), too large (54000), or not 1 in an array without
/// elements, which would begin there (0A000).
fn assign_elements(lists: &ListArray, at: &Int64Array, values: &ArrayRef) -> Result<ListArray> {
    let DataType::List(item) = lists.data_type() else { return internal_err!("a list was expected") };
    let none = new_null_array(item.data_type(), 1);
    let (mut places, mut lengths) = (Vec::new(), Vec::with_capacity(lists.len()));
    let error = |state, message: &str| Err(SqlError::new(state, message).into_datafusion());
    for row in 0..lists.len() {
        if at.is_null(row) {
            let message = "array subscript in assignment must not be null";
            return error(SqlState::NULL_VALUE_NOT_ALLOWED, message);
        }
        let at = match at.value(row) {
            ..1 => return error(SqlState::ARRAY_ELEMENT_ERROR, "array subscript out of range"),
            at if at > ELEMENTS_MAX => {
                let message = "array size exceeds the maximum allowed";
                return error(SqlState::PROGRAM_LIMIT_EXCEEDED, message);
            }
            at => at as usize - 1,
        };
        let (start, length) = match lists.is_null(row) {
            true => (0, 0),
            false => (lists.value_offsets()[row] as usize, lists.value_length(row) as usize),
        };
        if length == 0 && at > 0 {
            let message = "an array that begins elsewhere than at 1 is not supported";
            return error(SqlState::FEATURE_NOT_SUPPORTED, message);
        }
        let count = length.max(at + 1);
        places.extend((0..count).map(|place| match place {
            place if place == at => (1, row),
            place if place < length => (0, start + place),
            _ => (2, 0),
        }));
        lengths.push(count);
    }
    let parts: [&dyn Array; 3] = [lists.values(), values, &none];
    let item = Arc::new(item.as_ref().clone().with_nullable(true));
    Ok(ListArray::try_new(item, OffsetBuffer::from_lengths(lengths), interleave(&parts, &places)?, None)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lists() -> ListArray {
        ListArray::from_iter_primitive::<Int64Type, _, _>([
            Some(vec![Some(1), Some(2), Some(3)]),
            Some(vec![]),
            None,
        ])
    }

    #[test]
    fn an_element_is_replaced_or_added() {
        let values = Arc::new(Int64Array::from(vec![Some(7), Some(8), None])) as ArrayRef;
        let found = assign_elements(&lists(), &Int64Array::from(vec![5, 1, 1]), &values).unwrap();
        let expected = ListArray::from_iter_primitive::<Int64Type, _, _>([
            Some(vec![Some(1), Some(2), Some(3), None, Some(7)]),
            Some(vec![Some(8)]),
            Some(vec![None]),
        ]);
        assert_eq!(found, expected);
    }

    #[test]
    fn other_subscripts_are_errors() {
        let values = Arc::new(Int64Array::from(vec![0, 0, 0])) as ArrayRef;
        for (at, state) in [
            (Some(0), SqlState::ARRAY_ELEMENT_ERROR),
            (None, SqlState::NULL_VALUE_NOT_ALLOWED),
            (Some(i64::MAX), SqlState::PROGRAM_LIMIT_EXCEEDED),
            (Some(2), SqlState::FEATURE_NOT_SUPPORTED),
        ] {
            let error = assign_elements(&lists(), &Int64Array::from(vec![at; 3]), &values).unwrap_err();
            assert_eq!(harrier_sqlstate::of(&error), state);
        }
    }
}
