//! `array_append`, `array_prepend`, `array_position`, `array_positions`, `array_replace` and `array_has`,
//! which `= ANY` is, of an array and a value of another type: quoted literals take the type of the
//! elements, and decimals of different precision and scale keep all their digits.
//!
//! DataFusion's functions, which these call with arguments of one type, find none for these. Ranks know them
//! by their names, which are DataFusion's: the arguments have been cast by then.

use std::sync::Arc;

use datafusion::arrow::array::{Array as _, AsArray, BooleanArray};
use datafusion::arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::{Result, ScalarValue, plan_err};
use datafusion::functions_nested::array_has::array_has_udf;
use datafusion::functions_nested::concat::{array_append_udf, array_prepend_udf};
use datafusion::functions_nested::position::{array_position_udf, array_positions_udf};
use datafusion::functions_nested::replace::{array_replace_all_udf, array_replace_n_udf, array_replace_udf};
use datafusion::logical_expr::type_coercion::binary::type_union_resolution;
use datafusion::logical_expr::type_coercion::functions::fields_with_udf;
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

use crate::delegation::delegate_scalar;

/// A decimal for a text whose digits are not known: NUMERIC without a fixed precision.
pub(crate) const NUMERIC: DataType = DataType::Decimal128(38, 10);

/// What an argument is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Role {
    Array,
    Element,
    Other,
}

use Role::{Array, Element, Other};

/// The functions that no other module wraps.
pub(crate) fn functions() -> impl Iterator<Item = Arc<ScalarUDF>> {
    [of(array_has_udf(), &[Array, Element])].into_iter()
}

/// (array, element, from where) → place
pub(crate) fn position() -> Arc<ScalarUDF> {
    of(array_position_udf(), &[Array, Element, Other])
}

/// (array, element) → places
pub(crate) fn positions() -> Arc<ScalarUDF> {
    of(array_positions_udf(), &[Array, Element])
}

/// (array, element) → array
pub fn append() -> Arc<ScalarUDF> {
    of(array_append_udf(), &[Array, Element])
}

/// (element, array) → array
pub fn prepend() -> Arc<ScalarUDF> {
    of(array_prepend_udf(), &[Element, Array])
}

/// (array, from, to) → array
pub(crate) fn replace_one() -> Arc<ScalarUDF> {
    of(array_replace_udf(), &[Array, Element, Element])
}

/// (array, from, to, count) → array
pub(crate) fn replace_some() -> Arc<ScalarUDF> {
    of(array_replace_n_udf(), &[Array, Element, Element, Other])
}

/// (array, from, to) → array
pub(crate) fn replace_all() -> Arc<ScalarUDF> {
    of(array_replace_all_udf(), &[Array, Element, Element])
}

/// DataFusion's function that `function` calls; `None`: it is none of these.
pub(crate) fn inner_function(function: &ScalarUDF) -> Option<&Arc<ScalarUDF>> {
    function.inner().downcast_ref::<OfElements>().map(|function| &function.inner)
}

fn of(inner: Arc<ScalarUDF>, roles: &'static [Role]) -> Arc<ScalarUDF> {
    let signature = Signature::user_defined(Volatility::Immutable);
    Arc::new(ScalarUDF::new_from_impl(OfElements { inner, roles, signature }))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct OfElements {
    inner: Arc<ScalarUDF>,
    roles: &'static [Role],
    signature: Signature,
}

impl ScalarUDFImpl for OfElements {
    delegate_scalar!(name, aliases, return_type, return_field_from_args, simplify);

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        let with_roles = || self.roles.iter().zip(given);
        let array = with_roles().find(|(role, _)| **role == Array).map(|(_, kind)| kind);
        let item = match array {
            Some(DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _))
                if !item.data_type().is_nested() && !item.data_type().is_null() =>
            {
                item
            }
            _ => return plain_types(given, &self.inner),
        };
        let elements = with_roles().filter(|(role, _)| **role == Element).map(|(_, kind)| kind);
        let mut common = item.data_type().clone();
        for kind in elements {
            match common_type(&common, kind) {
                Some(kind) => common = kind,
                None => return plan_err!("function {}({given:?}) does not exist", self.name()),
            }
        }
        let array = DataType::List(Arc::new(Field::new_list_field(common.clone(), true)));
        let own = with_roles().map(|(role, kind)| match role {
            Array => array.clone(),
            Element => common.clone(),
            Other if kind.is_integer() || kind.is_null() => DataType::Int64,
            Other => kind.clone(),
        });
        let own: Vec<DataType> = own.collect();
        match own.len() == given.len() {
            true => Ok(own),
            false => plain_types(given, &self.inner),
        }
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        if self.name() != "array_has" {
            return self.inner.invoke_with_args(arguments);
        }
        let array = arguments.args.first().cloned();
        let rows = arguments.number_rows;
        let found = self.inner.invoke_with_args(arguments)?;
        match array {
            Some(array) => with_unknown(found, &array, rows),
            None => Ok(found),
        }
    }
}

/// What was not found is NULL in an array with a NULL: that may be equal. DataFusion's says so of constant
/// arrays only.
fn with_unknown(found: ColumnarValue, array: &ColumnarValue, rows: usize) -> Result<ColumnarValue> {
    let lists = match array {
        ColumnarValue::Array(lists) => Arc::clone(lists),
        ColumnarValue::Scalar(list) => list.to_array()?,
    };
    let Some(lists) = lists.as_list_opt::<i32>() else { return Ok(found) };
    let Some(nulls) = lists.values().logical_nulls().filter(|nulls| nulls.null_count() > 0) else {
        return Ok(found);
    };
    let is_constant = matches!(array, ColumnarValue::Scalar(_));
    let has_null = |row: usize| {
        let row = if is_constant { 0 } else { row };
        let (start, length) = (lists.value_offsets()[row] as usize, lists.value_length(row) as usize);
        lists.is_valid(row) && nulls.slice(start, length).null_count() > 0
    };
    let is_scalar = matches!(found, ColumnarValue::Scalar(_));
    let answers = found.to_array(if is_scalar { 1 } else { rows })?;
    let answers = answers.as_boolean().iter().enumerate().map(|(row, found)| match found {
        Some(false) if has_null(row) => None,
        found => found,
    });
    let answers: BooleanArray = answers.collect();
    match is_scalar {
        true => ScalarValue::try_from_array(&answers, 0).map(ColumnarValue::Scalar),
        false => Ok(ColumnarValue::Array(Arc::new(answers))),
    }
}

/// The types that a function takes for arguments of these types.
pub(crate) fn plain_types(given: &[DataType], function: &ScalarUDF) -> Result<Vec<DataType>> {
    let fields: Vec<FieldRef> =
        given.iter().map(|kind| Arc::new(Field::new("", kind.clone(), true))).collect();
    let fields = fields_with_udf(&fields, function)?;
    Ok(fields.iter().map(|field| field.data_type().clone()).collect())
}

/// The type for elements of one type and a value of another; `None`: there is none.
fn common_type(item: &DataType, value: &DataType) -> Option<DataType> {
    match value {
        value if value == item || value.is_null() => Some(item.clone()),
        // A quoted literal, or text in another layout.
        value if value.is_string() && item.is_decimal() => type_union_resolution(&[item.clone(), NUMERIC]),
        value if value.is_string() => Some(item.clone()),
        value if item.is_string() && !value.is_string() => None,
        // As in PostgreSQL, decimals beside floats become these.
        value if item.is_floating() && (value.is_decimal() || value.is_integer()) => Some(item.clone()),
        value if value.is_floating() && (item.is_decimal() || item.is_integer()) => Some(value.clone()),
        value => type_union_resolution(&[item.clone(), value.clone()]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(item: DataType) -> DataType {
        DataType::new_list(item, true)
    }

    #[test]
    fn decimals_keep_their_digits() {
        let decimal = DataType::Decimal128;
        for (item, value, expected) in [
            (decimal(4, 1), decimal(4, 3), decimal(6, 3)),
            (decimal(4, 1), DataType::Utf8, decimal(38, 10)),
            (decimal(4, 1), DataType::Null, decimal(4, 1)),
            (DataType::Int64, DataType::Utf8View, DataType::Int64),
            (DataType::Date32, DataType::Utf8, DataType::Date32),
            (DataType::Int32, DataType::Int64, DataType::Int64),
            (DataType::Float64, decimal(3, 2), DataType::Float64),
            (DataType::Float32, decimal(3, 2), DataType::Float32),
            (decimal(3, 2), DataType::Float64, DataType::Float64),
            (DataType::Int64, DataType::Float64, DataType::Float64),
        ] {
            for (function, given, own) in [
                (
                    append(),
                    vec![list(item.clone()), value.clone()],
                    vec![list(expected.clone()), expected.clone()],
                ),
                (
                    prepend(),
                    vec![value.clone(), list(item.clone())],
                    vec![expected.clone(), list(expected.clone())],
                ),
            ] {
                assert_eq!(function.coerce_types(&given).unwrap(), own, "{given:?}");
            }
        }
    }

    #[test]
    fn values_of_other_kinds_are_no_elements() {
        for (item, value) in [(DataType::Utf8, DataType::Int64), (DataType::Boolean, DataType::Date32)] {
            assert!(append().coerce_types(&[list(item), value]).is_err());
        }
    }
}
