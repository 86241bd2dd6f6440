//! The order of arrays and rows as PostgreSQL has it: an element that is NULL is more than any value. Arrow
//! has it less where it compares two of them, and in `greatest` and `least`; where it sorts them, it depends.
//!
//! A key is compared in the place of an array or a row, with the same result in all of these: before each
//! element stands whether it is NULL.
//!
//! They travel to ranks by their names.

use std::cmp::Ordering;
use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, FixedSizeListArray, GenericListArray, Int32Array, StructArray, make_comparator,
};
use datafusion::arrow::compute::{SortOptions, cast, interleave, is_null};
use datafusion::arrow::datatypes::{DataType, Field, Fields};
use datafusion::common::{DataFusionError, Result, ScalarValue, internal_err, plan_err};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

const NULLS_LAST: SortOptions = SortOptions { descending: false, nulls_first: false };

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Kind {
    Compare,
    Greatest,
    Least,
    Key,
}

impl Kind {
    fn function(self) -> Arc<ScalarUDF> {
        let signature = match self {
            Self::Compare => Signature::any(2, Volatility::Immutable),
            Self::Key => Signature::any(1, Volatility::Immutable),
            Self::Greatest | Self::Least => Signature::variadic_any(Volatility::Immutable),
        };
        Arc::new(ScalarUDF::new_from_impl(Nested { kind: self, signature }))
    }
}

/// (array, array) → less than 0 if the first one is less, 0 if they are equal, more if it is more; NULL
/// beside NULL.
pub fn compare() -> Arc<ScalarUDF> {
    Kind::Compare.function()
}

/// (array, …) → the greatest that is not NULL.
pub fn greatest() -> Arc<ScalarUDF> {
    Kind::Greatest.function()
}

/// (array, …) → the least that is not NULL.
pub fn least() -> Arc<ScalarUDF> {
    Kind::Least.function()
}

/// (array) → what is sorted in its place.
pub fn key() -> Arc<ScalarUDF> {
    Kind::Key.function()
}

pub(crate) fn functions() -> impl Iterator<Item = Arc<ScalarUDF>> {
    [Kind::Compare, Kind::Greatest, Kind::Least, Kind::Key].into_iter().map(Kind::function)
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Nested {
    kind: Kind,
    signature: Signature,
}

impl ScalarUDFImpl for Nested {
    fn name(&self) -> &str {
        match self.kind {
            Kind::Compare => "harrier_nested_compare",
            Kind::Greatest => "harrier_nested_greatest",
            Kind::Least => "harrier_nested_least",
            Kind::Key => "harrier_nested_key",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, given: &[DataType]) -> Result<DataType> {
        match (self.kind, given) {
            (Kind::Compare, _) => Ok(DataType::Int32),
            (Kind::Key, [value]) => Ok(key_type(value)),
            (_, [first, ..]) => Ok(first.clone()),
            (_, []) => plan_err!("nothing to compare"),
        }
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let are_constants = arguments.args.iter().all(|one| matches!(one, ColumnarValue::Scalar(_)));
        let rows = if are_constants { 1 } else { arguments.number_rows };
        let mut arrays = Vec::with_capacity(arguments.args.len());
        for argument in &arguments.args {
            let array = argument.to_array(rows)?;
            // Types that differ in the names of fields only.
            let array = match arrays.first() {
                Some(first) if array.data_type() != ArrayRef::data_type(first) => {
                    cast(&array, first.data_type())?
                }
                _ => array,
            };
            arrays.push(array);
        }
        let result = match self.kind {
            Kind::Compare => compare_rows(&arrays[0], &arrays[1])?,
            Kind::Greatest => choose(&arrays, Ordering::Greater)?,
            Kind::Least => choose(&arrays, Ordering::Less)?,
            Kind::Key => key_of(&arrays[0])?,
        };
        match are_constants {
            true => Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&result, 0)?)),
            false => Ok(ColumnarValue::Array(result)),
        }
    }
}

fn compare_rows(left: &ArrayRef, right: &ArrayRef) -> Result<ArrayRef> {
    let compare = make_comparator(left, right, NULLS_LAST)?;
    let of_row = |row: usize| match left.is_null(row) || right.is_null(row) {
        true => None,
        false => Some(compare(row, row) as i32),
    };
    Ok(Arc::new((0..left.len()).map(of_row).collect::<Int32Array>()))
}

/// The type of keys.
fn key_type(kind: &DataType) -> DataType {
    let entry = |item: &Field| {
        let fields = Fields::from(vec![
            Field::new("missing", DataType::Boolean, false),
            Field::new("value", key_type(item.data_type()), true),
        ]);
        Arc::new(Field::new(item.name(), DataType::Struct(fields), false))
    };
    match kind {
        DataType::List(item) => DataType::List(entry(item)),
        DataType::LargeList(item) => DataType::LargeList(entry(item)),
        DataType::FixedSizeList(item, size) => DataType::FixedSizeList(entry(item), *size),
        DataType::Struct(fields) => {
            DataType::Struct(fields.iter().flat_map(|field| key_fields(field)).collect())
        }
        other => other.clone(),
    }
}

/// What stands in the place of a column of a row.
fn key_fields(field: &Field) -> [Field; 2] {
    [
        Field::new(format!("{}_missing", field.name()), DataType::Boolean, false),
        Field::new(field.name(), key_type(field.data_type()), true),
    ]
}

fn key_of(values: &ArrayRef) -> Result<ArrayRef> {
    let missing = |values: &ArrayRef| Ok::<ArrayRef, DataFusionError>(Arc::new(is_null(values)?));
    let entries = |items: &ArrayRef, entry: &Field| -> Result<ArrayRef> {
        let DataType::Struct(fields) = entry.data_type() else {
            return internal_err!("a key without entries");
        };
        let columns = vec![missing(items)?, key_of(items)?];
        Ok(Arc::new(StructArray::try_new_with_length(fields.clone(), columns, None, items.len())?))
    };
    Ok(match (values.data_type(), key_type(values.data_type())) {
        (DataType::List(_), DataType::List(entry)) => {
            let lists = values.as_list::<i32>();
            let items = entries(lists.values(), &entry)?;
            Arc::new(GenericListArray::try_new(
                entry,
                lists.offsets().clone(),
                items,
                lists.nulls().cloned(),
            )?)
        }
        (DataType::LargeList(_), DataType::LargeList(entry)) => {
            let lists = values.as_list::<i64>();
            let items = entries(lists.values(), &entry)?;
            Arc::new(GenericListArray::try_new(
                entry,
                lists.offsets().clone(),
                items,
                lists.nulls().cloned(),
            )?)
        }
        (DataType::FixedSizeList(..), DataType::FixedSizeList(entry, size)) => {
            let lists = values.as_fixed_size_list();
            let items = entries(lists.values(), &entry)?;
            Arc::new(FixedSizeListArray::try_new(entry, size, items, lists.nulls().cloned())?)
        }
        (DataType::Struct(_), DataType::Struct(fields)) => {
            let rows = values.as_struct();
            let mut columns = Vec::with_capacity(fields.len());
            for column in rows.columns() {
                columns.extend([missing(column)?, key_of(column)?]);
            }
            Arc::new(StructArray::try_new_with_length(fields, columns, rows.nulls().cloned(), rows.len())?)
        }
        _ => Arc::clone(values),
    })
}

/// Of each row the value that is `wanted` beside all others.
fn choose(arrays: &[ArrayRef], wanted: Ordering) -> Result<ArrayRef> {
    let rows = arrays.first().map_or(0, |first| first.len());
    let mut best: Vec<usize> = vec![0; rows];
    for at in 1..arrays.len() {
        let with: Vec<_> = (0..at)
            .map(|other| make_comparator(&arrays[at], &arrays[other], NULLS_LAST))
            .collect::<std::result::Result<_, _>>()?;
        for (row, best) in best.iter_mut().enumerate() {
            let is_better =
                !arrays[at].is_null(row) && (arrays[*best].is_null(row) || with[*best](row, row) == wanted);
            if is_better {
                *best = at;
            }
        }
    }
    let values: Vec<&dyn Array> = arrays.iter().map(|array| array.as_ref()).collect();
    let places: Vec<(usize, usize)> = best.into_iter().enumerate().map(|(row, at)| (at, row)).collect();
    Ok(interleave(&values, &places)?)
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::ListArray;
    use datafusion::arrow::datatypes::{Int32Type, Int64Type};

    use super::*;

    fn lists(rows: &[Option<&[Option<i64>]>]) -> ArrayRef {
        Arc::new(ListArray::from_iter_primitive::<Int64Type, _, _>(
            rows.iter().map(|row| row.map(|row| row.to_vec())),
        ))
    }

    #[test]
    fn null_elements_are_more_than_values() {
        let left = lists(&[
            Some(&[Some(1), Some(2)]),
            Some(&[None]),
            Some(&[Some(1), None]),
            Some(&[None]),
            Some(&[]),
            None,
        ]);
        let right = lists(&[
            Some(&[None, Some(5)]),
            Some(&[Some(9), Some(9)]),
            Some(&[Some(1)]),
            Some(&[None]),
            Some(&[None]),
            Some(&[None]),
        ]);
        // A key is as its value, whatever is said of NULL.
        for nulls_first in [false, true] {
            let options = SortOptions { descending: false, nulls_first };
            let keys = [&left, &right].map(|values| key_of(values).unwrap());
            assert_eq!(*keys[0].data_type(), key_type(left.data_type()));
            let compare = make_comparator(&keys[0], &keys[1], options).unwrap();
            let found: Vec<Ordering> = (0..5).map(|row| compare(row, row)).collect();
            let expected = [Ordering::Less, Ordering::Greater, Ordering::Greater, Ordering::Equal];
            assert_eq!(found[..4], expected);
            assert_eq!(found[4], Ordering::Less);
        }
        let found = compare_rows(&left, &right).unwrap();
        let found: Vec<Option<i32>> = found.as_primitive::<Int32Type>().iter().collect();
        assert_eq!(found, [Some(-1), Some(1), Some(1), Some(0), Some(-1), None]);
        assert_eq!(
            &choose(&[left.clone(), right.clone()], Ordering::Greater).unwrap(),
            &lists(&[
                Some(&[None, Some(5)]),
                Some(&[None]),
                Some(&[Some(1), None]),
                Some(&[None]),
                Some(&[None]),
                Some(&[None]),
            ])
        );
        assert_eq!(
            &choose(&[left, right], Ordering::Less).unwrap(),
            &lists(&[
                Some(&[Some(1), Some(2)]),
                Some(&[Some(9), Some(9)]),
                Some(&[Some(1)]),
                Some(&[None]),
                Some(&[]),
                Some(&[None]),
            ])
        );
    }
}
