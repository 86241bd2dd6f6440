//! `array_remove`: an array without the elements that are not distinct from a value; NULL matches NULL.
//!
//! DataFusion's requires both to be of one type, removes all matches only under another name, and never
//! removes NULL. Ranks know it by its name, which is DataFusion's.

use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, ListArray, UInt32Array, make_comparator,
};
use datafusion::arrow::buffer::OffsetBuffer;
use datafusion::arrow::compute::kernels::cmp::distinct;
use datafusion::arrow::compute::{SortOptions, cast, filter, take};
use datafusion::arrow::datatypes::DataType;
use datafusion::common::{Result, ScalarValue, internal_err, plan_err};
use datafusion::logical_expr::type_coercion::binary::comparison_coercion;
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

use crate::array_elements::NUMERIC;
use crate::datetime::interval_span;

/// (array, value) → array; NULL for a NULL array.
pub(crate) fn function() -> Arc<ScalarUDF> {
    let signature = Signature::user_defined(Volatility::Immutable);
    Arc::new(ScalarUDF::new_from_impl(ArrayRemove { signature, aliases: vec!["list_remove".to_string()] }))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct ArrayRemove {
    signature: Signature,
    aliases: Vec<String>,
}

impl ScalarUDFImpl for ArrayRemove {
    fn name(&self) -> &str {
        "array_remove"
    }

    fn aliases(&self) -> &[String] {
        &self.aliases
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        let [list, value] = given else { return plan_err!("function {} has two arguments", self.name()) };
        let item = match list {
            DataType::Null => return Ok(given.to_vec()),
            DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _) => item,
            other => return plan_err!("function {}({other}, {value}) does not exist", self.name()),
        };
        let value = match value {
            // A string literal takes the type of the elements.
            value if value.is_null() => item.data_type().clone(),
            // It may have more digits than the elements.
            value if value.is_string() && item.data_type().is_decimal() => {
                compared_as(item.data_type(), &NUMERIC).unwrap_or(NUMERIC)
            }
            value if value.is_string() => item.data_type().clone(),
            value if compared_as(item.data_type(), value).is_some() => value.clone(),
            value => return plan_err!("function {}({list}, {value}) does not exist", self.name()),
        };
        Ok(vec![DataType::List(Arc::clone(item)), value])
    }

    fn return_type(&self, given: &[DataType]) -> Result<DataType> {
        match given.first() {
            Some(list) => Ok(list.clone()),
            None => plan_err!("function {} has two arguments", self.name()),
        }
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [list, value] = arguments.args.as_slice() else {
            return internal_err!("{} has two arguments", self.name());
        };
        if list.data_type().is_null() {
            return Ok(ColumnarValue::Scalar(ScalarValue::Null));
        }
        let is_constant = arguments.args.iter().all(|argument| matches!(argument, ColumnarValue::Scalar(_)));
        let rows = if is_constant { 1 } else { arguments.number_rows };
        let removed: ArrayRef =
            Arc::new(remove(list.to_array(rows)?.as_list::<i32>(), &value.to_array(rows)?)?);
        match is_constant {
            true => ScalarValue::try_from_array(&removed, 0).map(ColumnarValue::Scalar),
            false => Ok(ColumnarValue::Array(removed)),
        }
    }
}

/// The common type to compare an element and a value; `None`: not comparable.
fn compared_as(item: &DataType, value: &DataType) -> Option<DataType> {
    match (item, value) {
        (item, value) if item == value => Some(item.clone()),
        (DataType::Null, kind) | (kind, DataType::Null) => Some(kind.clone()),
        // As comparison coercion does.
        (item, value) if item.is_decimal() && value.is_floating() => Some(DataType::Float64),
        (item, value) if item.is_floating() && value.is_decimal() => Some(DataType::Float64),
        (item, value) => comparison_coercion(item, value),
    }
}

fn remove(lists: &ListArray, values: &ArrayRef) -> Result<ListArray> {
    let (DataType::List(field), offsets) = (lists.data_type(), lists.offsets()) else {
        return internal_err!("{} is no list", lists.data_type());
    };
    let first = offsets[0] as usize;
    let items = lists.values().slice(first, offsets[lists.len()] as usize - first);
    let rows = offsets.lengths().enumerate().flat_map(|(row, items)| std::iter::repeat_n(row as u32, items));
    let others = take(values, &UInt32Array::from_iter_values(rows), None)?;
    let is_kept = are_distinct(&items, &others)?;
    let kept = filter(&items, &is_kept)?;
    let lengths = offsets.windows(2).map(|range| {
        let (from, to) = (range[0] as usize - first, range[1] as usize - first);
        is_kept.values().slice(from, to - from).count_set_bits()
    });
    let offsets = OffsetBuffer::from_lengths(lengths);
    Ok(ListArray::try_new(Arc::clone(field), offsets, kept, lists.nulls().cloned())?)
}

/// Whether elements are distinct from the values in the same positions; never NULL.
fn are_distinct(items: &ArrayRef, others: &ArrayRef) -> Result<BooleanArray> {
    let Some(kind) = compared_as(items.data_type(), others.data_type()) else {
        return internal_err!("{} is not compared with {}", items.data_type(), others.data_type());
    };
    let [items, others] = [items, others].map(|side| interval_span::spans(&cast(side, &kind)?));
    let (items, others) = (items?, others?);
    if !items.data_type().is_nested() {
        return Ok(distinct(&items, &others)?);
    }
    let compare = make_comparator(&items, &others, SortOptions::default())?;
    Ok((0..items.len()).map(|at| Some(compare(at, at).is_ne())).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::arrow::array::{Float64Array, Int32Array};
    use datafusion::arrow::datatypes::Int32Type;

    #[test]
    fn equal_elements_are_removed() {
        let lists = ListArray::from_iter_primitive::<Int32Type, _, _>(vec![
            Some(vec![Some(1), None, Some(2), Some(1)]),
            None,
            Some(vec![]),
            Some(vec![None, Some(3)]),
            Some(vec![None, Some(3)]),
        ]);
        let values: ArrayRef =
            Arc::new(Float64Array::from(vec![Some(1.0), Some(1.0), None, None, Some(3.5)]));
        let expected = ListArray::from_iter_primitive::<Int32Type, _, _>(vec![
            Some(vec![None, Some(2)]),
            None,
            Some(vec![]),
            Some(vec![Some(3)]),
            Some(vec![None, Some(3)]),
        ]);
        assert_eq!(remove(&lists, &values).unwrap(), expected);
        // A slice of an array.
        assert_eq!(remove(&lists.slice(3, 2), &values.slice(3, 2)).unwrap(), expected.slice(3, 2));
    }

    #[test]
    fn lists_in_lists_are_compared() {
        let lists =
            ListArray::from_iter_primitive::<Int32Type, _, _>(vec![Some(vec![Some(1)]), Some(vec![Some(2)])]);
        let field =
            Arc::new(datafusion::arrow::datatypes::Field::new_list_field(lists.data_type().clone(), true));
        let outer = ListArray::new(field, OffsetBuffer::from_lengths([2]), Arc::new(lists.clone()), None);
        let value: ArrayRef = Arc::new(lists.slice(1, 1));
        let found = remove(&outer, &value).unwrap();
        assert_eq!(
            found.value(0).as_list::<i32>().value(0).as_ref(),
            &Int32Array::from(vec![1]) as &dyn Array
        );
        assert_eq!(found.value_length(0), 1);
    }
}
