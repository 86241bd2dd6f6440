//! `a[m:n]`: the elements of an array from the m-th to the n-th, counted from 1, as far as there are any. It
//! travels to ranks by its name.

use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, Int64Array, ListArray, UInt64Array};
use datafusion::arrow::buffer::{NullBuffer, OffsetBuffer};
use datafusion::arrow::compute::{cast, take};
use datafusion::arrow::datatypes::{DataType, Int64Type};
use datafusion::common::{Result, ScalarValue, internal_err};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

/// (array, from, to) → array; NULL if one of them is NULL.
pub fn function() -> Arc<ScalarUDF> {
    let signature = Signature::any(3, Volatility::Immutable);
    Arc::new(ScalarUDF::new_from_impl(ArraySlice { signature }))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct ArraySlice {
    signature: Signature,
}

impl ScalarUDFImpl for ArraySlice {
    fn name(&self) -> &str {
        "harrier_array_slice"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, given: &[DataType]) -> Result<DataType> {
        match given {
            [list @ DataType::List(_), _, _] => Ok(list.clone()),
            _ => internal_err!("a slice of what is no array"),
        }
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let are_constants = arguments.args.iter().all(|one| matches!(one, ColumnarValue::Scalar(_)));
        let rows = if are_constants { 1 } else { arguments.number_rows };
        let [list, from, to] = arguments.args.as_slice() else {
            return internal_err!("a slice by {} arguments", arguments.args.len());
        };
        let bound = |value: &ColumnarValue| -> Result<Int64Array> {
            let numbers = cast(&value.to_array(rows)?, &DataType::Int64)?;
            Ok(numbers.as_primitive::<Int64Type>().clone())
        };
        let slices: ArrayRef = Arc::new(slice(list.to_array(rows)?.as_list(), &bound(from)?, &bound(to)?)?);
        Ok(match are_constants {
            true => ColumnarValue::Scalar(ScalarValue::try_from_array(&slices, 0)?),
            false => ColumnarValue::Array(slices),
        })
    }
}

fn slice(lists: &ListArray, from: &Int64Array, to: &Int64Array) -> Result<ListArray> {
    let DataType::List(item) = lists.data_type() else { return internal_err!("a list was expected") };
    let nulls = NullBuffer::union_many([lists.nulls(), from.nulls(), to.nulls()]);
    let mut places = Vec::new();
    let mut lengths = Vec::with_capacity(lists.len());
    for row in 0..lists.len() {
        let is_null = nulls.as_ref().is_some_and(|nulls| nulls.is_null(row));
        let (start, length) = (lists.value_offsets()[row], i64::from(lists.value_length(row)));
        let (first, last) = match is_null {
            true => (1, 0),
            false => (from.value(row).max(1), to.value(row).min(length)),
        };
        let before = places.len();
        places.extend((first..=last).map(|place| (i64::from(start) + place - 1) as u64));
        lengths.push(places.len() - before);
    }
    let values = take(lists.values(), &UInt64Array::from(places), None)?;
    Ok(ListArray::try_new(Arc::clone(item), OffsetBuffer::from_lengths(lengths), values, nulls)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_are_clipped_to_the_array() {
        let list = || Some(vec![Some(1), None, Some(3)]);
        let lists = ListArray::from_iter_primitive::<Int64Type, _, _>([
            list(),
            list(),
            list(),
            list(),
            list(),
            Some(vec![]),
            None,
            list(),
        ]);
        let from = Int64Array::from(vec![1, 2, -5, 3, 4, 1, 1, 1]);
        let to = [Some(2), Some(i64::MAX), Some(1), Some(2), Some(9), Some(1), Some(1), None];
        let found = slice(&lists.slice(0, 8), &from, &Int64Array::from(to.to_vec())).unwrap();
        let expected = ListArray::from_iter_primitive::<Int64Type, _, _>([
            Some(vec![Some(1), None]),
            Some(vec![None, Some(3)]),
            Some(vec![Some(1)]),
            Some(vec![]),
            Some(vec![]),
            Some(vec![]),
            None,
            None,
        ]);
        assert_eq!(found, expected);
        let behind = slice(&lists.slice(1, 1), &from.slice(0, 1), &Int64Array::from(vec![1])).unwrap();
        assert_eq!(behind, ListArray::from_iter_primitive::<Int64Type, _, _>([Some(vec![Some(1)])]));
    }
}
